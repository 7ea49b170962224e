"""Data rules: what of a question each worker may be shown, and which answers, judged by what these may carry. Pure.

What a text may carry is counted in `flow`. The conductor is a reader as well, and what it writes, the subtasks, goes to
everybody. So it is shown nothing that a worker on offer may not see, the question itself excepted: what it makes of
that is what workers who never see the question are given. In a nested run the answer at hand cannot be kept from it,
so there the workers that may not see that are not on offer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from conductor_cli.core.data_flow import (
    NO_PROVENANCE,
    Provenance,
    StepInputs,
    Visibility,
    inputs_of_steps,
    provenance_of,
)
from conductor_cli.core.errors import PolicyError
from conductor_cli.core.plan import SELF, Step
from conductor_cli.core.plan_formats.base import ANSWER_DIRECTLY, PlanFormatContext
from conductor_cli.core.policy import NO_POLICY, POLICY_HINT, Party, Policy, no_worker_error
from conductor_cli.core.question import Question

EVERYTHING: Final = Visibility(recipients=())
_PARTS: Final = {"question": "the question itself", "history": "the earlier turns", "files": "the attached files"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPolicy:
    """A policy, and the parties it is about by worker name: the workers of the pool, and the conductor as `self`."""

    policy: Policy = NO_POLICY
    parties: Mapping[str, Party] = field(default_factory=dict)

    def party(self, name: str) -> Party:
        """Whom a policy knows nothing of is nobody's friend."""
        return self.parties.get(name) or Party(name=name, recipient=name)

    def forbids(self, name: str) -> str:
        """Why nothing may be sent to a worker, or to the conductor as `self`; empty where it may."""
        return self.policy.forbids(self.party(name), plans=name == SELF)

    def check_conductor(self) -> None:
        """Raise `PolicyError` where the conductor must not be asked, whatever the question."""
        party = self.party(SELF)
        forbidden = self.forbids(SELF)
        if not forbidden and not self.policy.gives_question(party):
            forbidden = "policy.no_question names it, and whoever plans must read the question"
        if forbidden:
            hint = "plan with a local model: conductor model use NAME, or --conductor FILE.gguf"
            raise PolicyError(f"the conductor, read by {party.recipient}, may not be asked: {forbidden}", hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class _May:
    """What the rules say of one party, looked up once for a run."""

    recipient: str
    forbidden: str
    question: bool
    files: bool
    others: bool


class DataPolicy:
    """A guard at work on one question. `given` is what item 0 of a nested run may carry; `single`: one worker answers.

    `names` are the workers of the pool. What follows from all that is worked out when it is first asked for: where
    there is no rule, that is hardly ever.
    """

    def __init__(
        self,
        pool_policy: PoolPolicy,
        names: Collection[str],
        question: Question,
        *,
        given: Provenance = NO_PROVENANCE,
        single: bool = False,
    ) -> None:
        self.pool_policy = pool_policy
        self.question = question
        self.given = given
        self.idle = pool_policy.policy == NO_POLICY
        """Whether there is no rule at all."""
        self._single = single
        self._workers = tuple(name for name in names if name != SELF)

    @cached_property
    def offered(self) -> tuple[str, ...]:
        """The workers that a plan may name."""
        may = [name for name in self._workers if not self._may[name].forbidden and not self._hidden(name, self.given)]
        return tuple(name for name in may if not (self._single and self._lacks(self._sight(name))))

    @cached_property
    def barred(self) -> frozenset[str]:
        """The workers that no plan may name."""
        return frozenset() if self.idle else frozenset(self._workers) - frozenset(self.offered)

    @cached_property
    def sights(self) -> Mapping[str, Visibility]:
        """What each worker that is known may see, and a nested run (`self`) where there is a conductor."""
        known = {name: self._sight(name) for name in self._may if name != SELF}
        return known | {SELF: self._nested_sight()} if SELF in self.pool_policy.parties else known

    @cached_property
    def conductor(self) -> Visibility:
        """What the conductor's own prompt may hold."""
        names = () if self.idle else (SELF, *self.offered)
        return Visibility(
            recipients=(self._may[SELF].recipient,),
            history=all(self._earlier(name) for name in names),
            files=all(self._may[name].files for name in names),
        )

    @cached_property
    def _may(self) -> Mapping[str, _May]:
        names = dict.fromkeys((*self.pool_policy.parties, *self._workers, SELF))
        return {name: _rules(self.pool_policy, name) for name in names}

    def _sight(self, name: str) -> Visibility:
        may = self._may[name]
        history = may.question and self._earlier(name)
        return Visibility(recipients=(may.recipient,), question=may.question, history=history, files=may.files)

    def _earlier(self, name: str) -> bool:
        """Whether earlier answers may go to somebody: they may hold what stood in files, in words of anybody."""
        may = self._may[name]
        return may.others and (may.files or not self.question.files)

    def _nested_sight(self) -> Visibility:
        """All that may be looked at in a nested run, and by whom."""
        eyes = [self.conductor, *map(self._sight, self.offered)]
        return Visibility(
            recipients=tuple(dict.fromkeys(recipient for sight in eyes for recipient in sight.recipients)),
            history=any(sight.history for sight in eyes),
            files=any(sight.files for sight in eyes),
        )

    def _hidden(self, name: str, carried: Provenance) -> str:
        """Why a text that carries so much must be kept from a party, empty where it need not."""
        may = self._may.get(name) or _rules(self.pool_policy, name)
        if carried.files and not may.files:
            return "may hold what stands in the attached files, and policy.files_only keeps these from"
        if not may.others and carried.writers - {may.recipient}:
            others = ", ".join(sorted(carried.writers - {may.recipient}))
            return f"may hold words of {others}, and policy.no_others keeps such from"
        return ""

    # What somebody is shown

    def withheld(self, name: str) -> tuple[str, ...]:
        """The parts of the question that a worker is not shown: question, history, files."""
        return () if self.idle else self._lacks(self.sights.get(name, EVERYTHING))

    def _lacks(self, sight: Visibility) -> tuple[str, ...]:
        there = {"question": True, "history": bool(self.question.history), "files": bool(self.question.files)}
        return tuple(part for part, is_there in there.items() if is_there and not getattr(sight, part))

    def seen_by(self, name: str) -> Question:
        """The question as a worker is shown it; without its text for one that never sees the question."""
        return _without(self.question, self.withheld(name))

    def withheld_from_conductor(self) -> tuple[str, ...]:
        """The same of the conductor."""
        return () if self.idle else self._lacks(self.conductor)

    def seen_by_conductor(self) -> Question:
        """The question as the conductor is shown it."""
        return _without(self.question, self.withheld_from_conductor())

    def rules_for_planner(self, context: PlanFormatContext) -> tuple[str, ...]:
        """What the conductor is told of all this, a line each."""
        hidden = self.withheld_from_conductor()
        lines = [f"Not shown to you: {_named(hidden)}."] if hidden else []
        for part, said in (
            ("files", "is not shown the attached files, nor answers that come from them"),
            ("question", "is not shown the question: say all that it needs in its subtask"),
        ):
            labels = [context.label(name) for name in context.rules.workers if part in self.withheld(name)]
            lines += [f"{label} {said}." for label in labels]
        return (*lines, *self._rules_on_others(context))

    def _rules_on_others(self, context: PlanFormatContext) -> list[str]:
        apart = [name for name in context.rules.workers if name in self._may and not self._may[name].others]
        return [f"{context.label(name)} sees answers of {self._may[name].recipient} only." for name in apart]

    # What a plan may hold

    def fault(self, before: Sequence[Step], step: Step, asked: Mapping[int, Sequence[str]] | None = None) -> str:
        """Why `step` may not stand behind those `before` it, empty where it may.

        `asked`: who was really asked at these, where it was somebody else than planned.
        """
        if self.idle:
            return ""
        name, number = step.worker, len(before) + 1
        forbidden = self._may[name].forbidden if name in self._may else self.pool_policy.forbids(name)
        if name == SELF and SELF in self.pool_policy.policy.deny:
            forbidden = f"policy.deny names {SELF}"
        if forbidden:
            return f"step {number} asks {name}, and {forbidden}"
        if name in self.barred:
            return f"step {number} asks {name}, which may not be shown what this run is about"
        if step.subtask.strip() == ANSWER_DIRECTLY and "question" in self.withheld(name):
            return f"step {number} asks {name}, which never sees the question, and its subtask does not say it"
        return self._leak(step, number, self.inputs_of_steps(before, asked)) if step.access else ""

    def _leak(self, step: Step, number: int, before: Sequence[StepInputs]) -> str:
        for item in step.access:
            why = self.hidden_in(step.worker, provenance_of((item,), before, self.given))
            if why:
                what = f"the answer of step {item}" if item else "what was given"
                return f"step {number} shows {step.worker} {what}, which {why} {step.worker}"
        together = self.hidden_in(step.worker, provenance_of(step.access, before, self.given))
        return f"step {number} shows {step.worker} answers that together {together} every worker" if together else ""

    def hidden_in(self, name: str, carried: Provenance) -> str:
        """Why a text that carries so much must be kept from a worker, or from a nested run (`self`); empty where not.

        A nested run also needs a worker that may be shown what the conductor is.
        """
        why = self._hidden(name, carried)
        if why or name != SELF:
            return why
        everybody = [self._hidden(worker, carried) for worker in self.offered]
        return everybody[0] if everybody and all(everybody) else ""

    def inputs_of_steps(
        self, steps: Sequence[Step], asked: Mapping[int, Sequence[str]] | None = None
    ) -> tuple[StepInputs, ...]:
        """What reaches each of the steps; see `flow.reaches`."""
        names = {step.worker for step in steps}.union(*(asked or {}).values())
        sights = {name: self.sights.get(name, EVERYTHING) for name in names}
        return inputs_of_steps(steps, self.question, sights, asked, self.given)

    def visible(self, before: Sequence[Step], step: Step, asked: Mapping[int, Sequence[str]] | None = None) -> Step:
        """`step` with those items of its access list that its worker may see."""
        if self.idle:
            return step
        found = self.inputs_of_steps(before, asked)
        seen = (
            item for item in step.access if not self.hidden_in(step.worker, provenance_of((item,), found, self.given))
        )
        return replace(step, access=tuple(seen))

    def may_replace(self, name: str, planned: str) -> bool:
        """Whether a worker sees of the question all that the one it stands in for would."""
        return self.sights.get(name, EVERYTHING).covers(self.sights.get(planned, EVERYTHING))

    # Before anything is called

    def check(self, *, plans: bool) -> None:
        """Raise `PolicyError` where nothing useful can be allowed. `plans`: the conductor will be asked."""
        if self.idle:
            return
        if plans:
            self.pool_policy.check_conductor()
        if self.question.files and self.offered and not any(self.sights[name].files for name in self.offered):
            raise PolicyError(
                "no worker may be shown the attached files: policy.files_only names none that is on offer",
                hint=f"ask without them, or change the rule; {POLICY_HINT}",
            )
        if not self.offered:
            alone = "it may not be shown all of the question, and one worker answers alone"
            raise no_worker_error({name: self.pool_policy.forbids(name) or alone for name in self.barred})


def _rules(pool_policy: PoolPolicy, name: str) -> _May:
    policy, party = pool_policy.policy, pool_policy.party(name)
    return _May(
        recipient=party.recipient, forbidden=pool_policy.forbids(name), question=policy.gives_question(party),
        files=policy.gives_files(party), others=policy.gives_others(party),
    )  # fmt: skip


def _without(question: Question, parts: Sequence[str]) -> Question:
    if not parts:
        return question
    return replace(
        question,
        text="" if "question" in parts else question.text,
        history=() if "history" in parts else question.history,
        files=() if "files" in parts else question.files,
    )


def _named(parts: Sequence[str]) -> str:
    return ", ".join(_PARTS[part] for part in parts)


def withheld_note(parts: Sequence[str]) -> str:
    """What a worker is told of the parts of the question that it is not shown."""
    return f"Not shown to you: {_named(parts)}." if parts else ""
