"""What a failure means for a batch: for its own question, or for all of them.

Some failures say nothing about a question, such as a limit of the day. Then the batch stops, and
the question is asked when it goes on. Others may be of the question, as by a filter of content, or
of all, as a wrong key. Their results are held back until another question is answered, which shows
that planner, workers and keys work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from conductor_cli.app.batches.results import BatchResult
from conductor_cli.core.errors import LIMITS_OF_SEVERAL, Failure

MAX_UNREACHABLE: Final = 3
"""The batch stops after so many times `parallel` runs in a row that reached no worker."""

MAX_REFUSED: Final = 10
"""The batch stops after so many refused questions in a row, or `parallel` where that is more."""

STOPPING_KINDS: Final = frozenset({"config", "policy", "cancelled", "terminated"})
"""Kinds of failures that say nothing about a question."""

STOPPING_REASONS: Final = LIMITS_OF_SEVERAL | {"state"}
"""Reasons that say nothing about a question: a limit of the day or of the batch, and a state that
does not answer.
"""

REFUSAL_KINDS: Final = frozenset({"key", "conductor"})
"""Kinds of failures of which nobody knows whether they are of the question or of all."""


class Verdict(NamedTuple):
    """Which results are written now, and for which of them the batch stops, unwritten."""

    to_write: Sequence[BatchResult] = ()
    to_stop: Sequence[BatchResult] = ()


class FailureRules:
    """Decides about the results of a batch in their order."""

    def __init__(self, parallel: int) -> None:
        self._max_unreachable = MAX_UNREACHABLE * parallel
        self._max_refused = max(MAX_REFUSED, parallel)
        self._unreachable_in_row = 0
        self._refused_in_row: list[BatchResult] = []

    @property
    def is_holding(self) -> bool:
        """Whether results are held back that are not written yet."""
        return bool(self._refused_in_row)

    def judge(self, result: BatchResult) -> Verdict:
        """Decide about a result, and about those that were held back where it says more of them."""
        failure = result.failure
        if failure is None:
            self._unreachable_in_row = 0
            return Verdict(to_write=(*self._release_refused(), result))
        self._count_unreachable(failure)
        if failure.kind in REFUSAL_KINDS:
            return self._hold(result)
        is_of_all = failure.kind in STOPPING_KINDS or failure.reason in STOPPING_REASONS
        if is_of_all or self._unreachable_in_row > self._max_unreachable:
            return Verdict(to_stop=(result,))
        return Verdict(to_write=(result,))

    def judge_held(self, *, are_others_answered: bool, is_stopped: bool) -> Verdict:
        """Decide about what is still held back, after which no other question was answered.

        Where no other one ever was, they are failures of their own only if each was refused itself.
        """
        results = self._release_refused()
        is_each_refused = all(_is_refused(result) for result in results)
        if not is_stopped and (are_others_answered or is_each_refused):
            return Verdict(to_write=results)
        return Verdict(to_stop=results)

    def _count_unreachable(self, failure: Failure) -> None:
        if failure.kind == "unreachable":
            self._unreachable_in_row += 1
        else:
            self._unreachable_in_row = 0

    def _hold(self, result: BatchResult) -> Verdict:
        self._refused_in_row.append(result)
        if len(self._refused_in_row) < self._max_refused:
            return Verdict()
        return Verdict(to_stop=self._release_refused())

    def _release_refused(self) -> list[BatchResult]:
        results = self._refused_in_row
        self._refused_in_row = []
        return results


def _is_refused(result: BatchResult) -> bool:
    return result.failure is not None and result.failure.reason == "refused"
