"""Where a person types: prompt_toolkit with our keys, completions and right edge.

It stands before there is a desk, so it loads nothing of what a run needs.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

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
from conductor_cli.cli.repl.history import history_at
from conductor_cli.cli.signals import ENDING, on_signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from conductor_cli.cli.repl.chat_session import ChatSession

NARROW: Final = 60
"""Columns below which the right edge saves words."""
MENU: Final = 6
"""Rows that a menu of completions may take, with the line that is completed."""
INTERRUPTED: Final = 130
STYLE: Final = Style.from_dict({
    "prompt": "bold", "rprompt": "noreverse dim", "auto-suggestion": "dim",
    "completion-menu": "noinherit", "completion-menu.completion": "noinherit",
    "completion-menu.completion.current": "noinherit reverse", "completion-menu.meta.completion": "noinherit dim",
    "completion-menu.meta.completion.current": "noinherit reverse",
})  # fmt: skip
"""No colour but the terminal's own, so that it reads on dark and on light."""


class Left(Exception):
    """The person leaves, or is made to; `code` is the exit code."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(code)
        self.code = code


class Prompt:
    """Reads one message after the other; a message may have many lines."""

    def __init__(self, history: Path | None) -> None:
        """`history` is the directory that what is typed is remembered in, None for nowhere."""
        _return()
        self.desk: ChatSession | None = None
        self.completer: Completer | None = None
        self._mark = prompt_mark()
        self._plain = plain = is_plain_terminal()
        # The commands alone are completed while one types: prose has no completions.
        slash = Condition(lambda: get_app().current_buffer.document.text.startswith("/"))
        self._session: PromptSession[str] = PromptSession(
            self._mark, multiline=True, prompt_continuation="  ", completer=DynamicCompleter(lambda: self.completer),
            history=InMemoryHistory() if history is None else history_at(history),
            complete_while_typing=slash if not plain else False, enable_open_in_editor=True, tempfile_suffix=".md",
            auto_suggest=None if plain else AutoSuggestFromHistory(), key_bindings=self._keys(),
            rprompt=None if plain else self._right, style=STYLE, erase_when_done=not plain,
            include_default_pygments_style=False,
        )  # fmt: skip
        self._session.app.before_render += self._fit

    def forget(self) -> None:
        """Remember what is typed no longer than until the end."""
        self._session.history = self._session.default_buffer.history = InMemoryHistory()

    def refresh(self) -> None:
        """Show what holds now, if the prompt is shown."""
        self._session.app.invalidate()

    def above(self, action: Callable[[], None]) -> None:
        """Have something written above the prompt, or at once where none is shown."""
        if self._session.app.is_running:
            run_in_terminal(action)
        else:
            action()

    def leave(self, reason: Exception) -> None:
        """Have `read` raise, if somebody is asked now."""
        if self._session.app.is_running and not self._session.app.is_done:
            self._session.app.exit(exception=reason)

    async def read(self, text: str = "", *, editor: bool = False) -> str:
        """The next message, `text` to begin with, or what the editor made of it. Raises `Left`."""
        app = self._session.app
        _return()

        def open_editor() -> None:
            app.current_buffer.open_in_editor(validate_and_handle=True)

        with ExitStack() as held:
            for number in ENDING:
                held.enter_context(on_signal(number, partial(self.leave, Left(128 + number))))
            try:
                return await self._session.prompt_async(default=text, pre_run=open_editor if editor else None)
            except EOFError:
                raise Left from None

    # Keys

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        keys.add("enter")(_accept)
        keys.add("c-j")(_accept)  # an Enter that was pressed before the prompt was there
        keys.add("escape", "enter")(_break)
        keys.add("c-c")(self._clear)
        return keys

    def _clear(self, event: KeyPressEvent) -> None:
        """Ctrl-C: what is typed is cleared. Right after one that stopped a run it is the second: the chat is left."""
        empty = not event.current_buffer.text
        if empty and self._was_just_stopped():
            event.app.exit(exception=Left(INTERRUPTED))
        elif empty:
            run_in_terminal(lambda: print_notice("Ctrl-D leaves"))
        event.current_buffer.reset()

    def _was_just_stopped(self) -> bool:
        if self.desk is None:
            return False
        from conductor_cli.cli.signals import TWICE

        return time.monotonic() - self.desk.stopped < TWICE

    # What is shown

    def _right(self) -> str:
        """What holds for the next question, at the right edge."""
        if self.desk is None:
            return ""
        parts = self.desk.standing(narrow=self._columns < NARROW)
        return (" \u00b7 " if self._mark != "> " else ", ").join(parts)

    def _fit(self, _: object) -> None:
        """Leave room for a menu, and no more than there is: else nothing at all would be shown."""
        self._session.reserve_space_for_menu = min(MENU, self._session.app.output.get_size().rows - 1)

    @property
    def _columns(self) -> int:
        return self._session.app.output.get_size().columns

    def echo(self, message: str) -> None:
        """Let the head of a message stand where it was typed, unless all of it still does."""
        if self._plain:
            return
        from conductor_cli.views.text_layout import Screen

        screen = Screen(width=self._columns)
        lines = message.splitlines()
        more = f" (+{len(lines) - 1:,} lines)" if len(lines) > 1 else ""
        sys.stderr.write(f"{self._mark}{screen.crop(lines[0], screen.width - len(self._mark) - len(more))}{more}\n")
        sys.stderr.flush()


def _return() -> None:
    """Go to the begin of the line, over the mark that was there before anything was loaded."""
    sys.stdout.write("\r")
    sys.stdout.flush()


def _accept(event: KeyPressEvent) -> None:
    """Enter: the message goes, unless there is nothing in it, a completion is being chosen, or the line goes on."""
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


def _break(event: KeyPressEvent) -> None:
    event.current_buffer.insert_text("\n")
