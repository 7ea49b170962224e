"""Who sees what: which texts reach each step of a plan, by its prompt and by the answers that it is shown. Pure.

    reaches(steps, question, sights, asked={}, given=NONE) -> tuple[Reach, ...]     what reaches each step
    received(reaches) -> dict[str, Reach]                                            the same by reader, in one order

An answer may hold whatever its worker read, word for word. So what a text carries is counted along the access lists,
and never forgotten: of a step that was shown the attached files, the answer carries files; of a step that was shown
that answer, the answer carries files too. Two things are no part of this: the system text, which every worker is
given, and the subtasks, which the conductor writes (what it is shown itself is the business of `taint`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from conductor_cli.core.plan import GIVEN, Step
from conductor_cli.core.question import Question

EARLIER: Final = "an earlier run"
"""Who wrote the answers of earlier turns, as far as a run can know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility:
    """What a worker's own prompt may hold of a question, and who reads it: one reader, or all of a nested run's."""

    recipients: tuple[str, ...]
    question: bool = True
    history: bool = True
    files: bool = True

    def covers(self, other: Visibility) -> bool:
        """Whether it holds all that the other does."""
        return all(getattr(self, part) or not getattr(other, part) for part in ("question", "history", "files"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What a text may hold of what its writers read, and whose words it may be."""

    question: bool = False
    history: bool = False
    files: bool = False
    writers: frozenset[str] = frozenset()

    def __or__(self, other: Provenance) -> Provenance:
        return Provenance(
            question=self.question or other.question,
            history=self.history or other.history,
            files=self.files or other.files,
            writers=self.writers | other.writers,
        )


NO_PROVENANCE: Final = Provenance()
"""Of a text that holds nothing of anybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInputs:
    """What reaches one step.

    `question`, `history` and `files` (by name) stand in the prompt itself. `answers` are the steps whose subtask and
    answer stand there too, 0 for what a nested run was given. `carried` is what these answers may hold in turn.
    """

    number: int
    workers: tuple[str, ...]
    recipients: tuple[str, ...]
    question: bool
    history: bool
    files: tuple[str, ...]
    answers: tuple[int, ...]
    carried: Provenance

    @property
    def leaves(self) -> Provenance:
        """What the step's own answer may hold: all that reached it, and words of those who wrote it."""
        writers = {*self.recipients, *([EARLIER] if self.history else [])}
        return self.carried | Provenance(
            question=self.question, history=self.history, files=bool(self.files), writers=frozenset(writers)
        )


def inputs_of_steps(
    steps: Sequence[Step],
    question: Question,
    sights: Mapping[str, Visibility],
    asked: Mapping[int, Sequence[str]] | None = None,
    given: Provenance = NO_PROVENANCE,
) -> tuple[StepInputs, ...]:
    """What reaches each of the steps, which are numbered from 1.

    `sights` by worker name. `asked` are the workers that were really asked at a step, where these are more or others
    than the plan says. `given` is what item 0 carries.
    """
    found: list[StepInputs] = []
    for number, step in enumerate(steps, start=1):
        workers = tuple(dict.fromkeys((asked or {}).get(number) or (step.worker,)))
        found.append(_reach(number, step, workers, question, [sights[name] for name in workers], given, found))
    return tuple(found)


def _reach(  # noqa: PLR0913, PLR0917 - all that reaches a step
    number: int, step: Step, workers: tuple[str, ...], question: Question,
    eyes: Sequence[Visibility], given: Provenance, before: Sequence[StepInputs],
) -> StepInputs:  # fmt: skip
    shown = question.files if any(sight.files for sight in eyes) else ()
    return StepInputs(
        number=number,
        workers=workers,
        recipients=tuple(dict.fromkeys(recipient for sight in eyes for recipient in sight.recipients)),
        question=any(sight.question for sight in eyes),
        history=bool(question.history) and any(sight.history for sight in eyes),
        files=tuple(file.name for file in shown),
        answers=step.access,
        carried=provenance_of(step.access, before, given),
    )


def provenance_of(access: Iterable[int], before: Sequence[StepInputs], given: Provenance = NO_PROVENANCE) -> Provenance:
    """What the answers on an access list may hold, taken together. `before` are the steps from 1 on."""
    found = NO_PROVENANCE
    for item in access:
        found |= given if item == GIVEN else before[item - 1].leaves
    return found


def inputs_by_recipient(found: Iterable[StepInputs]) -> dict[str, StepInputs]:
    """What each reader receives over all steps, as one `Reach` each: numbered 0, its `workers` all that are its own."""
    table: dict[str, StepInputs] = {}
    for reach in found:
        for recipient in reach.recipients:
            own = StepInputs(
                number=0, workers=reach.workers, recipients=(recipient,), question=reach.question,
                history=reach.history, files=reach.files, answers=reach.answers, carried=reach.carried,
            )  # fmt: skip
            table[recipient] = _joined(table[recipient], own) if recipient in table else own
    return table


def _joined(one: StepInputs, other: StepInputs) -> StepInputs:
    return StepInputs(
        number=0,
        workers=tuple(dict.fromkeys((*one.workers, *other.workers))),
        recipients=one.recipients,
        question=one.question or other.question,
        history=one.history or other.history,
        files=tuple(dict.fromkeys((*one.files, *other.files))),
        answers=tuple(dict.fromkeys((*one.answers, *other.answers))),
        carried=one.carried | other.carried,
    )
