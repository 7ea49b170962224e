"""Where the answers of a batch go: a file of answers, and one of failures."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Protocol

from conductor_cli.app.batches.answer_lines import LineFile
from conductor_cli.app.batches.results import BatchProgress, BatchResult
from conductor_cli.core.errors import UsageError, describe_system_error


class AnswerSink(Protocol):
    """Takes what becomes of the questions of a batch, and knows how far the batch is."""

    progress: BatchProgress
    has_answers: bool
    """Whether some were answered before this process began, though perhaps with other keys or
    another planner.
    """

    def write(self, result: BatchResult) -> None:
        """Write what became of a question at once. Raises `UsageError` where that is refused."""

    def add_cost(self, cost: Decimal) -> None:
        """Count the US dollars of results that are not written."""

    def sync(self) -> str:
        """Return when all that was written has reached the disk.

        The text says what somebody else has done to it meanwhile, and is empty where all is well.
        Raises `OSError`.
        """

    def keep_lines(self) -> str:
        """Return what somebody else has done to what was written, and where it is kept.

        The text is empty where all is well.
        """


class AnswerFiles:
    """The two files of a batch, whose lines are the record of what is done."""

    def __init__(
        self,
        answers: LineFile,
        failures: LineFile,
        progress: BatchProgress,
        *,
        has_answers: bool = False,
    ) -> None:
        self.answers = answers
        self.failures = failures
        self.progress = progress
        self.has_answers = has_answers
        self.is_lost = False  # Somebody else has removed, replaced or cut one of them

    def write(self, result: BatchResult) -> None:
        file = self.failures
        if result.failure is None:
            file = self.answers
        try:
            file.append(result.line)
        except OSError as error:
            message = f"the answers cannot be written: {describe_system_error(error)}"
            hint = "free some space; the same command continues"
            raise UsageError(message, hint=hint) from None
        self.progress = self.progress.after(result)

    def add_cost(self, cost: Decimal) -> None:
        self.progress = replace(self.progress, cost=self.progress.cost + cost)

    def sync(self) -> str:
        messages: list[str] = []
        for file in (self.answers, self.failures):
            file.sync()
            if loss := file.loss:
                messages.append(f"{file.path} was {loss} by somebody else")
        return "; ".join(messages)

    def keep_lines(self) -> str:
        try:
            losses = [file.keep_lines() for file in (self.answers, self.failures)]
        except OSError as error:
            losses = [f"the answers cannot be kept: {describe_system_error(error)}"]
        message = "; ".join(filter(None, losses))
        self.is_lost = bool(message)
        return message
