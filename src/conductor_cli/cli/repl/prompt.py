"""Where a person types: prompt_toolkit with our keys, completions and right edge.

It is shown before anything that a run needs is loaded.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app, run_in_terminal
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import Completer, DynamicCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.styles import Style

from conductor_cli.cli.chat_banner import is_plain_terminal, prompt_mark
from conductor_cli.cli.output import print_notice
from conductor_cli.cli.repl.history import open_history
from conductor_cli.cli.signals import ENDING, TWICE, on_signal

if TYPE_CHECKING:
    from collections.abc import Callable

NARROW: Final = 60
"""Columns below which the right edge is shortened."""
MENU: Final = 6
"""Rows for the completion menu and the line that is completed."""
INTERRUPTED: Final = 130
STYLE: Final = Style.from_dict({
    "prompt": "bold", "rprompt": "noreverse dim", "auto-suggestion": "dim",
    "completion-menu": "noinherit", "completion-menu.completion": "noinherit",
    "completion-menu.completion.current": "noinherit reverse", "completion-menu.meta.completion": "noinherit dim",
    "completion-menu.meta.completion.current": "noinherit reverse",
})  # fmt: skip
"""Only the terminal's own colours, so that it is readable on a dark and on a light background."""


class ChatEnded(Exception):
    """The chat ends, by the person or by a signal; `code` is the exit code."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(code)
        self.code = code


class PromptStatus(Protocol):
    """What the prompt shows of a chat, and when Ctrl-C last stopped one of its runs, by the monotonic clock."""

    stopped: float

    def status(self, *, narrow: bool = False) -> list[str]: ...


class Prompt:
    """Reads one message after the other. A message may have several lines."""

    def __init__(self, history: Path | None) -> None:
        """`history` is the directory of the history file; None keeps no history on disk."""
        _return_to_line_start()
        self.chat: PromptStatus | None = None
        self.completer: Completer | None = None
        self._mark = prompt_mark()
        self._plain = plain = is_plain_terminal()
        # Only slash commands are completed while one types; questions have no completions.
        slash = Condition(lambda: get_app().current_buffer.document.text.startswith("/"))
        self._session: PromptSession[str] = PromptSession(
            self._mark, multiline=True, prompt_continuation="  ", completer=DynamicCompleter(lambda: self.completer),
            history=InMemoryHistory() if history is None else open_history(history),
            complete_while_typing=slash if not plain else False, enable_open_in_editor=True, tempfile_suffix=".md",
            auto_suggest=None if plain else AutoSuggestFromHistory(), key_bindings=self._keys(),
            rprompt=None if plain else self._right, style=STYLE, erase_when_done=not plain,
            include_default_pygments_style=False,
        )  # fmt: skip
        self._session.app.before_render += self._fit

    def forget(self) -> None:
        """Keep what is typed only until the chat ends."""
        self._session.history = self._session.default_buffer.history = InMemoryHistory()

    def refresh(self) -> None:
        """Redraw the prompt, if it is shown."""
        self._session.app.invalidate()

    def above(self, action: Callable[[], None]) -> None:
        """Write something above the prompt, or at once if the prompt is not shown."""
        if self._session.app.is_running:
            run_in_terminal(action)
        else:
            action()

    def leave(self, reason: Exception) -> None:
        """Make `read` raise, if it is waiting."""
        if self._session.app.is_running and not self._session.app.is_done:
            self._session.app.exit(exception=reason)

    async def read(self, text: str = "", *, editor: bool = False) -> str:
        """The next message. `text` is there to edit; with `editor` the editor opens on it. Raises `ChatEnded`."""
        app = self._session.app
        _return_to_line_start()

        def open_editor() -> None:
            app.current_buffer.open_in_editor(validate_and_handle=True)

        with ExitStack() as held:
            for number in ENDING:
                held.enter_context(on_signal(number, partial(self.leave, ChatEnded(128 + number))))
            try:
                return await self._session.prompt_async(default=text, pre_run=open_editor if editor else None)
            except EOFError:
                raise ChatEnded from None

    # Keys

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        keys.add("enter")(_accept)
        keys.add("c-j")(_accept)  # an Enter that was pressed before the prompt was shown
        keys.add("escape", "enter")(lambda event: event.current_buffer.insert_text("\n"))
        keys.add("c-c")(self._clear)
        return keys

    def _clear(self, event: KeyPressEvent) -> None:
        """Ctrl-C clears the line. Right after a Ctrl-C that stopped a run, it ends the chat."""
        empty = not event.current_buffer.text
        if empty and self.chat is not None and time.monotonic() - self.chat.stopped < TWICE:
            event.app.exit(exception=ChatEnded(INTERRUPTED))
        elif empty:
            run_in_terminal(lambda: print_notice("Ctrl-D leaves"))
        event.current_buffer.reset()

    # What is shown

    def _right(self) -> str:
        """The right edge: the status of the chat."""
        if self.chat is None:
            return ""
        parts = self.chat.status(narrow=self._columns < NARROW)
        return (" \u00b7 " if self._mark != "> " else ", ").join(parts)

    def _fit(self, _: object) -> None:
        """Reserve rows for the menu, but no more than there are: else nothing at all would be shown."""
        self._session.reserve_space_for_menu = min(MENU, self._session.app.output.get_size().rows - 1)

    @property
    def _columns(self) -> int:
        return self._session.app.output.get_size().columns

    def echo(self, message: str) -> None:
        """Print the first line of a message where it was typed, unless the terminal shows all of it anyway."""
        if self._plain:
            return
        from conductor_cli.core.formatting import format_count
        from conductor_cli.views.text_layout import Screen

        screen = Screen(width=self._columns)
        lines = message.splitlines()
        more = f" (+{format_count(len(lines) - 1, 'line')})" if len(lines) > 1 else ""
        sys.stderr.write(f"{self._mark}{screen.crop(lines[0], screen.width - len(self._mark) - len(more))}{more}\n")
        sys.stderr.flush()


def _return_to_line_start() -> None:
    """Go back to the start of the line, over the mark that was printed before anything was loaded."""
    sys.stdout.write("\r")
    sys.stdout.flush()


def _accept(event: KeyPressEvent) -> None:
    """Enter sends the message, unless it is empty, a completion is being chosen, or the line ends with a backslash."""
    buffer = event.current_buffer
    if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
        buffer.complete_state = None
    elif buffer.document.current_line_before_cursor.endswith("\\"):
        buffer.delete_before_cursor()
        buffer.insert_text("\n")
    elif buffer.text.strip():
        buffer.validate_and_handle()
    else:
        buffer.reset()
