"""Who sees what: which texts reach each step of a plan, by its own prompt and by the answers it is shown. Pure.

An answer may quote whatever its worker read. So what a text may hold is followed along the access lists and never
forgotten: where a step was shown the attached files, its answer may hold them, and so may the answer of every step that
is shown that answer. Two things are left out: the system text, which every worker gets, and the subtasks, which the
conductor writes (`data_policy` limits what the conductor is shown).
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
    """Which parts of a question a worker's prompt may hold, and who receives it (of a nested run, several)."""

    recipients: tuple[str, ...]
    question: bool = True
    history: bool = True
    files: bool = True

    def covers(self, other: Visibility) -> bool:
        """Whether every part that the other may hold may be held here too."""
        return all(getattr(self, part) or not getattr(other, part) for part in ("question", "history", "files"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Which parts of a question a text may hold, and whose words it may be."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInputs:
    """What reaches one step.

    `question`, `history` and `files` (by name) are in the prompt itself. `answers` are the steps whose subtask and
    answer are in it too, 0 for what a nested run was given; `provenance` is what those answers may hold in turn.
    """

    number: int
    workers: tuple[str, ...]
    recipients: tuple[str, ...]
    question: bool
    history: bool
    files: tuple[str, ...]
    answers: tuple[int, ...]
    provenance: Provenance

    @property
    def answer_provenance(self) -> Provenance:
        """What the step's own answer may hold: all that reached it, and words of its recipients."""
        writers = {*self.recipients, *([EARLIER] if self.history else [])}
        return self.provenance | Provenance(
            question=self.question, history=self.history, files=bool(self.files), writers=frozenset(writers)
        )


def inputs_of_steps(
    steps: Sequence[Step],
    question: Question,
    visibility: Mapping[str, Visibility],
    asked: Mapping[int, Sequence[str]] | None = None,
    given: Provenance = NO_PROVENANCE,
) -> tuple[StepInputs, ...]:
    """What reaches each of the steps, which are numbered from 1.

    `visibility` is by worker name. `asked` holds the workers that were really asked at a step, where the plan says
    otherwise. `given` is the provenance of item 0.
    """
    found: list[StepInputs] = []
    for number, step in enumerate(steps, start=1):
        workers = tuple(dict.fromkeys((asked or {}).get(number) or (step.worker,)))
        seen = [visibility[name] for name in workers]
        found.append(
            StepInputs(
                number=number,
                workers=workers,
                recipients=tuple(dict.fromkeys(recipient for each in seen for recipient in each.recipients)),
                question=any(each.question for each in seen),
                history=bool(question.history) and any(each.history for each in seen),
                files=tuple(file.name for file in question.files) if any(each.files for each in seen) else (),
                answers=step.access,
                provenance=provenance_of(step.access, found, given),
            )
        )
    return tuple(found)


def provenance_of(access: Iterable[int], before: Sequence[StepInputs], given: Provenance = NO_PROVENANCE) -> Provenance:
    """What the answers on an access list may hold together. `before` are the steps from 1 on."""
    found = NO_PROVENANCE
    for item in access:
        found |= given if item == GIVEN else before[item - 1].answer_provenance
    return found
