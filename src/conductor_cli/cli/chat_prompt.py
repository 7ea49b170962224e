"""Where a person types in a chat.

Prompt_toolkit with our keys, completions, right edge and history file.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app, run_in_terminal
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, get_common_complete_suffix
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.styles import Style

from conductor_cli.cli.chat_banner import is_plain_terminal, prompt_mark
from conductor_cli.cli.output import print_notice
from conductor_cli.cli.signals import ENDING_SIGNALS, on_signal
from conductor_cli.system.disk import make_private_directory
from conductor_cli.system.known_secrets import KNOWN_SECRETS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from prompt_toolkit.completion import Completer

# The exit code of a chat whose terminal is gone: that of a process that SIGHUP has ended
HANG_UP: Final = 129
# Characters of an entry in the history file. Longer text was pasted, and is in the trace
MAX_ENTRY: Final = 100_000
# Rows for the line that is completed and the menu below it. They are kept free below each prompt
MENU: Final = 16
STYLE: Final = Style.from_dict(
    {
        "prompt": "bold",
        "rprompt": "noreverse dim",
        "auto-suggestion": "dim",
        "completion-menu": "noinherit",
        "completion-menu.completion": "noinherit",
        "completion-menu.completion.current": "noinherit reverse",
        "completion-menu.meta.completion": "noinherit dim",
        "completion-menu.meta.completion.current": "noinherit reverse",
    }
)
"""Only the terminal's own colours, so that it is readable on a dark and on a light background."""


ANSI_SEQUENCES.update(
    {
        "\x1b[13;2u": (Keys.Escape, Keys.ControlM),  # Shift+Enter breaks the line, as Alt+Enter
        "\x1b[27;2;13~": (Keys.Escape, Keys.ControlM),
        "\x1b[13;3u": (Keys.Escape, Keys.ControlM),  # Alt+Enter
        "\x1b[27;3;13~": (Keys.Escape, Keys.ControlM),
        "\x1b[13;5u": Keys.ControlM,  # Ctrl+Enter
        "\x1b[13;6u": Keys.ControlM,  # Ctrl+Shift+Enter
        "\x1b[127;2u": Keys.ControlH,  # Shift+Backspace
        "\x1b[27;2;127~": Keys.ControlH,
    }
)
"""How terminals such as kitty, and tmux with `extended-keys`, send these keys.

What prompt_toolkit does not know it takes for text.
"""


class ChatEnded(Exception):
    """The chat ends, by the person or by a signal; `code` is the exit code."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(code)
        self.code = code


class ChatPrompt:
    """Reads messages.

    It is there before its chat is loaded: `connect` gives it what only the chat knows.
    """

    def __init__(self) -> None:
        _return_to_line_start()
        self._status: Callable[[], list[str]] = lambda: ["loading"]
        self._history = _LaterHistory()
        self._mark = prompt_mark()
        self._has_told_exit = False  # Whether this prompt has said how to leave
        plain = is_plain_terminal()
        self._plain = plain
        # Only slash commands are completed while one types; questions have no completions.
        slash = Condition(lambda: get_app().current_buffer.document.text.startswith("/"))
        self._session: PromptSession[str] = PromptSession(
            self._mark,
            multiline=True,
            prompt_continuation="  ",
            history=self._history,
            complete_while_typing=slash if not plain else False,
            enable_open_in_editor=True,
            tempfile_suffix=".md",
            enable_suspend=True,
            auto_suggest=None if plain else AutoSuggestFromHistory(),
            key_bindings=self._keys(),
            rprompt=None if plain else self._right,
            style=STYLE,
            erase_when_done=not plain,
            include_default_pygments_style=False,
        )
        self._session.app.before_render += self._fit

    def connect(
        self, status: Callable[[], list[str]], completer: Completer, history: Path | None
    ) -> None:
        """Show a chat's status at the right edge, complete its commands, and offer earlier lines.

        `history` is the directory of the history file; None keeps no history on disk.
        """
        self._status = status
        self._session.completer = completer
        if history is None:
            self._history.open(InMemoryHistory())
        else:
            self._history.open(open_history(history, self.tell))
        if not self._plain and self._session.default_buffer.text.startswith("/"):
            # It was typed when there was nothing to complete it
            self._session.default_buffer.start_completion()
        self.refresh()

    def refresh(self) -> None:
        self._session.app.invalidate()

    def above(self, action: Callable[[], object]) -> None:
        """Write something above the prompt, or at once if the prompt is not shown."""
        if self._session.app.is_running:
            run_in_terminal(action)  # it erases the prompt, and draws it again below
        else:
            action()

    def tell(self, text: str) -> None:
        self.above(lambda: print_notice(text))

    async def read(self) -> str:
        """Return the next message. Raises `ChatEnded`."""
        _return_to_line_start()
        app = self._session.app
        self._has_told_exit = False
        reading = asyncio.current_task()
        endings = list[Exception]()

        def end(reason: Exception) -> None:
            if app.is_running and not app.is_done:
                app.exit(exception=reason)
            elif reading is not None:
                # What waits is not the prompt itself but something that it has to write
                endings.append(reason)
                reading.cancel()

        def explain(loop: asyncio.AbstractEventLoop, failure: dict[str, object]) -> None:
            error = failure.get("exception")
            if self._is_lost():
                end(ChatEnded(HANG_UP))
            elif not isinstance(error, OSError):
                self.above(lambda: loop.default_exception_handler(failure))
            elif not app.is_running:  # else what could not be drawn is drawn again soon
                end(error)

        loop = asyncio.get_running_loop()
        before = loop.get_exception_handler()
        with ExitStack() as held:
            for number in ENDING_SIGNALS:
                held.enter_context(on_signal(number, partial(end, ChatEnded(128 + number))))
            held.callback(loop.set_exception_handler, before)
            loop.set_exception_handler(explain)  # for failures that nobody waits for
            try:
                # prompt_toolkit would explain one and wait for Enter, again and again where nobody
                # can press it.
                message = await self._session.prompt_async(set_exception_handler=False)
            except (EOFError, OSError) as error:
                if not self._is_lost() and not isinstance(error, EOFError):
                    raise
                raise ChatEnded(HANG_UP if self._is_lost() else 0) from None
            except asyncio.CancelledError:
                if not endings:
                    raise
                raise endings[0] from None
        if problem := self._history.new_problem():
            print_notice(problem)
        return message

    def _is_lost(self) -> bool:
        """Return whether the terminal is gone.

        No signal says so in a chat that ignores SIGHUP, as under `nohup`.
        """
        app = self._session.app
        for end in (app.input, app.output):
            with suppress(NotImplementedError):  # an end that is no file cannot be lost
                if is_lost(end.fileno()):
                    return True
        return False

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        # In a prompt of several lines prompt_toolkit's own Enter breaks the line.
        keys.add("enter", filter=~is_searching)(_accept)
        # An Enter that was pressed before the prompt was shown
        keys.add("c-j", filter=~is_searching)(_accept)
        keys.add("escape", "enter")(lambda event: event.current_buffer.insert_text("\n"))
        keys.add("tab")(_complete)
        keys.add("c-c", filter=~is_searching)(self._clear)
        keys.add("<sigint>")(self._clear)  # a Ctrl-C just before the prompt took the keys
        return keys

    def _clear(self, event: KeyPressEvent) -> None:
        """Ctrl-C clears the line.

        It never ends the chat; on an empty line it says once what does.
        """
        if not event.current_buffer.text and not self._has_told_exit:
            self._has_told_exit = True
            run_in_terminal(lambda: print_notice("Ctrl-D or /exit leaves"))
        event.current_buffer.reset()

    def _right(self) -> str:
        """Return the right edge: the status of the chat."""
        return (" \u00b7 " if self._mark != "> " else ", ").join(self._status())

    def _fit(self, _: object) -> None:
        """Reserve rows for the menu, but no more than there are.

        Else nothing at all would be shown.
        """
        self._session.reserve_space_for_menu = min(
            MENU, self._session.app.output.get_size().rows - 1
        )

    def echo(self, message: str) -> None:
        """Print a message where it was typed, unless the terminal shows it there anyway."""
        if self._plain:
            return
        # Loaded by now, and not needed for the prompt itself
        from conductor_cli.views.text_layout import Screen

        size = self._session.app.output.get_size()
        screen = Screen(width=size.columns, height=size.rows, encoding=sys.stderr.encoding)
        mark = self._mark
        for line in screen.block(message, screen.width - len(mark)):
            sys.stderr.write(f"{mark}{line}\n")
            mark = " " * len(mark)
        sys.stderr.flush()


def is_lost(descriptor: int) -> bool:
    """Return whether the terminal behind a descriptor is gone. What never was a terminal is not."""
    if sys.platform == "win32":
        return False
    import errno
    import termios

    try:
        termios.tcgetattr(descriptor)
    except termios.error as error:
        return error.args[0] in {errno.EIO, errno.ENXIO}
    return False


def open_history(directory: Path, tell: Callable[[str], None] = print_notice) -> History:
    """Return the history file in a directory.

    Where that cannot be used, a history in memory, with a notice.
    """
    path = directory / "history"
    try:
        make_private_directory(directory)
        # The file may be older than this rule, or have been copied with another mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)
    except OSError as error:
        tell(f"the history is not saved: {path}: {error.strerror}")
        return InMemoryHistory()
    return _RedactedHistory(path)


class _LaterHistory(History):
    """A history that is opened after the prompt is there.

    What is typed before that is added to it then.
    """

    def __init__(self) -> None:
        super().__init__()
        self._history: History = InMemoryHistory()
        self._opened = asyncio.Event()

    def open(self, history: History) -> None:
        early = self._history
        self._history = history
        for text in reversed(list(early.load_history_strings())):
            history.store_string(text)
        self._opened.set()

    async def load(self) -> AsyncGenerator[str, None]:
        await self._opened.wait()
        async for text in super().load():
            yield text

    def load_history_strings(self) -> Iterable[str]:
        return self._history.load_history_strings()

    def store_string(self, string: str) -> None:
        self._history.store_string(string)

    def new_problem(self) -> str:
        """Return why the file cannot be used; empty where it can, or where that was told."""
        if isinstance(self._history, _RedactedHistory):
            return self._history.new_problem()
        return ""


class _RedactedHistory(FileHistory):
    """Entries without API keys.

    A full disk, or a file that cannot be read, costs the history, not the chat.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._problem = ""
        self._is_told = False
        super().__init__(path)

    def load_history_strings(self) -> Iterable[str]:
        try:
            return super().load_history_strings()
        except OSError as error:
            self._problem = f"earlier lines are not offered: {self._path}: {error.strerror}"
        return []

    def store_string(self, string: str) -> None:
        try:
            with suppress(UnicodeError):
                if len(string) <= MAX_ENTRY:
                    # Bytes that the locale does not know are lone surrogates.
                    text = string.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
                    super().store_string(KNOWN_SECRETS.redact(text))
        except OSError as error:
            self._problem = f"the history is not saved: {self._path}: {error.strerror}"

    def new_problem(self) -> str:
        """Return what went wrong with the file, once in a chat; empty for nothing."""
        if not self._problem or self._is_told:
            return ""
        self._is_told = True
        return self._problem


def _return_to_line_start() -> None:
    """Go back to the start of the line, over the mark that was printed before anything was loaded.

    Keys that were typed after it are erased; the terminal has kept them for the prompt.
    """
    sys.stdout.write("\r" if is_plain_terminal() else "\r\x1b[K")
    sys.stdout.flush()


def _complete(event: KeyPressEvent) -> None:
    """Tab adds what all completions have in common.

    It chooses the only one, and moves on from one that is chosen.
    """
    buffer = event.current_buffer
    state = buffer.complete_state
    if state is not None and state.current_completion is not None:
        buffer.complete_next()
        return
    completions = list(
        buffer.completer.get_completions(buffer.document, CompleteEvent(completion_requested=True))
    )
    if len(completions) == 1:
        buffer.apply_completion(completions[0])
    elif common := get_common_complete_suffix(buffer.document, completions):
        buffer.insert_text(common)
    elif completions and state is None:
        buffer.start_completion()


def _accept(event: KeyPressEvent) -> None:
    """Send the message at Enter.

    Not one that is empty, nor while a completion is being chosen, nor after a backslash at the end
    of the line, which begins another one.
    """
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
