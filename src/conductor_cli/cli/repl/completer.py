"""What Tab offers: commands, and after a command its modes, workers, steps, runs, limits or files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from conductor_cli.cli.repl.commands import COMMANDS, LIMITS
from conductor_cli.cli.repl.display import MODES
from conductor_cli.core.sanitize import one_line
from conductor_cli.store import fast_list

if TYPE_CHECKING:
    from conductor_cli.cli.repl.chat_session import ChatSession


class SlashCompleter(Completer):
    """Completes lines that begin with a slash; questions are left alone."""

    def __init__(self, chat: ChatSession) -> None:
        self._chat = chat
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """The completions of the word before the cursor."""
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        name, space, rest = text.partition(" ")
        if not space:
            yield from self._commands(name)
        elif name in {"/file", "/save"}:
            yield from self._paths.get_completions(Document(rest), complete_event)
        else:
            typed = rest.rpartition(",")[2] if name == "/workers" else rest.rpartition(" ")[2]
            for value, meta in self._values(name, rest.split(" ")[:-1]):
                if value.startswith(typed):
                    yield Completion(value, start_position=-len(typed), display_meta=one_line(meta))

    def _commands(self, typed: str) -> Iterator[Completion]:
        for command in COMMANDS:
            name = f"/{command.name}"
            if name.startswith(typed):
                yield Completion(name, start_position=-len(typed), display_meta=command.help)

    def _values(self, name: str, before: list[str]) -> Iterable[tuple[str, str]]:
        """The possible next words of a command, each with a description."""
        place = (name, len(before))
        if place == ("/mode", 0):
            return [(mode, "") for mode in MODES]
        if place == ("/limits", 0):
            return [(limit.name.partition(".")[2], limit.help) for limit in LIMITS]
        if place in {("/workers", 0), ("/redo", 1)}:
            return [*self._workers(), *([("all", "every worker of the settings")] if name == "/workers" else [])]
        if place in {("/redo", 0), ("/trace", 0)}:
            return [*self._steps(), *(self._runs() if name == "/trace" else [])]
        return []

    def _workers(self) -> list[tuple[str, str]]:
        listed = self._chat.session.settings.workers if not self._chat.rehearsal else ()
        found = {item.worker.name: item.worker.about for item in listed if item.enabled}
        if self._chat.conductor is not None:
            found |= {worker.name: worker.about for worker in self._chat.conductor.pool}
        return list(found.items())

    def _steps(self) -> list[tuple[str, str]]:
        steps = self._chat.runs[-1].steps if self._chat.runs else ()
        return [(str(record.number), f"{record.worker}: {record.step.subtask}") for record in steps]

    def _runs(self) -> list[tuple[str, str]]:
        try:
            return [(name, "") for name in fast_list.run_names(str(self._chat.session.settings.paths.traces))]
        except OSError:
            return []
