"""Completes slash commands and what follows them, while a person types in a chat."""

from __future__ import annotations

from collections.abc import Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from conductor_cli.cli.chat_session import ChatSession
from conductor_cli.cli.slash_commands import ALL_WORKERS, COMMANDS, SlashCommand
from conductor_cli.core.terminal_text import one_line


class SlashCompleter(Completer):
    """Completes lines that begin with a slash; questions are left alone."""

    def __init__(self, chat: ChatSession) -> None:
        self._chat = chat
        self._paths = PathCompleter(expanduser=True)

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        line = document.text_before_cursor
        if not document.text.startswith("/") or "\n" in document.text:
            return
        name, space, argument = line.removeprefix("/").partition(" ")
        command = COMMANDS.get(name)
        if not space:
            yield from self._command_names(line)
        elif command is not None and command.takes_file:
            yield from self._paths.get_completions(Document(argument), complete_event)
        elif command is not None:
            yield from self._arguments(command, argument)

    def _command_names(self, typed: str) -> Iterable[Completion]:
        for command in COMMANDS.values():
            word = f"/{command.name}"
            if not word.startswith(typed):
                continue
            yield Completion(
                # What follows a command is typed without another key.
                f"{word} " if command.takes else word,
                start_position=-len(typed),
                display=f"{word} {command.takes}".rstrip(),
                display_meta=one_line(command.help),
            )

    def _arguments(self, command: SlashCommand, argument: str) -> Iterable[Completion]:
        """Yield the words that may follow a command; `argument` is typed already.

        `/workers` takes any number of names with commas between them; each can be named once, and
        `all` only alone.
        """
        before, _, last = argument.rpartition(",")
        named = set[str]()
        if before:
            named = {*map(str.strip, before.split(",")), ALL_WORKERS}
            last = last.lstrip()
        words = last.split(" ")
        if len(words) > len(command.offers):
            return
        typed = words[-1]
        for word, about in command.offers[len(words) - 1](self._chat):
            if word.startswith(typed) and word not in named:
                yield Completion(
                    word,
                    start_position=-len(typed),
                    display=word,
                    display_meta=one_line(about),
                )
