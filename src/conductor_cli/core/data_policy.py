"""The policy, applied to one question: what of it each worker may be shown, and which answers. Pure.

`data_flow` follows what a text may hold. The conductor receives data as well, and what it writes, the subtasks, goes to
every worker. So it is shown nothing that an allowed worker may not see, except the question itself: what it makes of
that is all that a worker is given which never sees the question. In a nested run the existing answer cannot be hidden
from the conductor, so there the workers that may not see that answer are excluded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from conductor_cli.core import data_flow
from conductor_cli.core.data_flow import NO_PROVENANCE, Provenance, StepInputs, Visibility, provenance_of
from conductor_cli.core.errors import PolicyError
from conductor_cli.core.plan import SELF, Step
from conductor_cli.core.plan_formats.base import ANSWER_DIRECTLY, PlanFormatContext
from conductor_cli.core.policy import NO_POLICY, POLICY_HINT, Party, Policy, no_worker_error
from conductor_cli.core.question import Question

UNRESTRICTED: Final = Visibility(recipients=())
_PARTS: Final = {"question": "the question itself", "history": "the earlier turns", "files": "the attached files"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPolicy:
    """A policy, and the parties it is about by worker name: the workers of the pool, and the conductor as `self`."""

    policy: Policy = NO_POLICY
    parties: Mapping[str, Party] = field(default_factory=dict)

    def party(self, name: str) -> Party:
        """The party of a worker. One that is not known has no tags and no provider, so no rule allows it by these."""
        return self.parties.get(name) or Party(name=name, recipient=name)

    def denial_reason(self, name: str) -> str:
        """Why nothing may be sent to a worker, or to the conductor as `self`; empty where it may."""
        return self.policy.denial_reason(self.party(name), plans=name == SELF)

    def check_conductor(self) -> None:
        """Raise `PolicyError` where the conductor must not be asked, whatever the question."""
        party = self.party(SELF)
        denied = self.denial_reason(SELF)
        if not denied and not self.policy.allows_question(party):
            denied = "policy.no_question names it, and whoever plans must read the question"
        if denied:
            hint = "plan with a local model: conductor model use NAME"
            raise PolicyError(f"the policy forbids asking the conductor ({party.recipient}): {denied}", hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rights:
    """What the rules say about one party, looked up once for a run."""

    recipient: str
    denied: str
    question: bool
    files: bool
    answers: bool


class DataPolicy:
    """A pool's policy applied to one question.

    `names` are the workers of the pool, `given` is the provenance of item 0 of a nested run, `single` says that one
    worker answers alone. Everything that follows is computed on first use, which without rules is hardly ever.
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
        self.is_empty = pool_policy.policy == NO_POLICY
        """Whether there is no rule at all."""
        self._single = single
        self._known_rights: dict[str, _Rights] = {}
        self._workers = tuple(name for name in names if name != SELF)

    @cached_property
    def allowed(self) -> tuple[str, ...]:
        """The workers that a plan may name."""
        names = [name for name in self._workers if not self._rights(name).denied and not self._hidden(name, self.given)]
        return tuple(name for name in names if not (self._single and self._missing_parts(self._visibility_of(name))))

    @cached_property
    def excluded(self) -> frozenset[str]:
        """The workers that no plan may name."""
        return frozenset() if self.is_empty else frozenset(self._workers) - frozenset(self.allowed)

    @cached_property
    def visibility(self) -> Mapping[str, Visibility]:
        """What each known worker may see, and a nested run (`self`) where there is a conductor."""
        known = {
            name: self._visibility_of(name) for name in (*self.pool_policy.parties, *self._workers) if name != SELF
        }
        if SELF not in self.pool_policy.parties:
            return known
        # A nested run may see what its conductor or any of its workers may.
        inside = [self.conductor, *map(self._visibility_of, self.allowed)]
        nested = Visibility(
            recipients=tuple(dict.fromkeys(recipient for each in inside for recipient in each.recipients)),
            history=any(each.history for each in inside),
            files=any(each.files for each in inside),
        )
        return known | {SELF: nested}

    @cached_property
    def conductor(self) -> Visibility:
        """What the conductor's own prompt may hold: what every allowed worker may see as well."""
        names = () if self.is_empty else (SELF, *self.allowed)
        return Visibility(
            recipients=(self._rights(SELF).recipient,),
            history=all(self._may_see_history(name) for name in names),
            files=all(self._rights(name).files for name in names),
        )

    def _rights(self, name: str) -> _Rights:
        if name not in self._known_rights:
            policy, party = self.pool_policy.policy, self.pool_policy.party(name)
            self._known_rights[name] = _Rights(
                recipient=party.recipient,
                denied=self.pool_policy.denial_reason(name),
                question=policy.allows_question(party),
                files=policy.allows_files(party),
                answers=policy.allows_answers(party),
            )
        return self._known_rights[name]

    def _visibility_of(self, name: str) -> Visibility:
        rights = self._rights(name)
        history = rights.question and self._may_see_history(name)
        return Visibility(recipients=(rights.recipient,), question=rights.question, history=history, files=rights.files)

    def _may_see_history(self, name: str) -> bool:
        # Earlier answers may quote files, in the words of any worker.
        rights = self._rights(name)
        return rights.answers and (rights.files or not self.question.files)

    def _hidden(self, name: str, provenance: Provenance) -> str:
        rights = self._rights(name)
        if provenance.files and not rights.files:
            return "may quote the attached files, which policy.files_only keeps from"
        others = provenance.writers - {rights.recipient}
        if others and not rights.answers:
            return f"may hold words of {', '.join(sorted(others))}, which policy.no_others keeps from"
        return ""

    # What somebody is shown

    def withheld(self, name: str) -> tuple[str, ...]:
        """The parts of the question that a worker is not shown: question, history, files."""
        return () if self.is_empty else self._missing_parts(self.visibility.get(name, UNRESTRICTED))

    def _missing_parts(self, visibility: Visibility) -> tuple[str, ...]:
        present = {"question": True, "history": bool(self.question.history), "files": bool(self.question.files)}
        return tuple(part for part, here in present.items() if here and not getattr(visibility, part))

    def question_for(self, name: str) -> Question:
        """The question as a worker is shown it; without its text for one that never sees the question."""
        return _without(self.question, self.withheld(name))

    def withheld_from_conductor(self) -> tuple[str, ...]:
        """The parts of the question that the conductor is not shown."""
        return () if self.is_empty else self._missing_parts(self.conductor)

    def question_for_conductor(self) -> Question:
        """The question as the conductor is shown it."""
        return _without(self.question, self.withheld_from_conductor())

    def rules_for_planner(self, context: PlanFormatContext) -> tuple[str, ...]:
        """What the conductor is told about who may see what, a line each."""
        names = context.rules.workers
        hidden = self.withheld_from_conductor()
        lines = [withheld_note(hidden)] if hidden else []
        for part, rule in (
            ("files", "is not shown the attached files, nor answers that come from them"),
            ("question", "is not shown the question: say all that it needs in its subtask"),
        ):
            lines += [f"{context.label(name)} {rule}." for name in names if part in self.withheld(name)]
        apart = [name for name in names if not self._rights(name).answers]
        lines += [f"{context.label(name)} sees answers of {self._rights(name).recipient} only." for name in apart]
        return tuple(lines)

    # What a plan may hold

    def violation(self, before: Sequence[Step], step: Step, asked: Mapping[int, Sequence[str]] | None = None) -> str:
        """Why `step` may not follow those `before` it, empty where it may.

        `asked`: who was really asked at these, where the plan says otherwise.
        """
        if self.is_empty:
            return ""
        name, number = step.worker, len(before) + 1
        denied = self._rights(name).denied
        # The conductor may plan although steps on it are denied: `deny = ["self"]` is only about such steps.
        if name == SELF and SELF in self.pool_policy.policy.deny:
            denied = f"policy.deny names {SELF}"
        if denied:
            return f"step {number} asks {name}, and {denied}"
        if name in self.excluded:
            return f"step {number} asks {name}, which may not be shown what this run is about"
        # "Answer the question." is useless to a worker that is not shown the question.
        if step.subtask.strip() == ANSWER_DIRECTLY and "question" in self.withheld(name):
            return f"step {number} asks {name}, which never sees the question, and its subtask does not state it"
        inputs = self.inputs_of_steps(before, asked) if step.access else ()
        for item in step.access:
            why = self.hidden_reason(name, provenance_of((item,), inputs, self.given))
            if why:
                what = f"the answer of step {item}" if item else "what was given"
                return f"step {number} shows {name} {what}, which {why} {name}"
        # A nested run may have a worker for each of the answers, and none for all of them.
        together = self.hidden_reason(name, provenance_of(step.access, inputs, self.given))
        return f"step {number} shows {name} answers that together {together} every worker" if together else ""

    def hidden_reason(self, name: str, provenance: Provenance) -> str:
        """Why a text must be hidden from a worker, or from a nested run (`self`); empty where it need not.

        A nested run also needs a worker that may be shown what the conductor is.
        """
        why = self._hidden(name, provenance)
        if why or name != SELF:
            return why
        reasons = [self._hidden(worker, provenance) for worker in self.allowed]
        return reasons[0] if reasons and all(reasons) else ""

    def inputs_of_steps(
        self, steps: Sequence[Step], asked: Mapping[int, Sequence[str]] | None = None
    ) -> tuple[StepInputs, ...]:
        """What reaches each of the steps; see `data_flow.inputs_of_steps`."""
        names = {step.worker for step in steps}.union(*(asked or {}).values())
        visibility = {name: self.visibility.get(name, UNRESTRICTED) for name in names}
        return data_flow.inputs_of_steps(steps, self.question, visibility, asked, self.given)

    def without_hidden(
        self, before: Sequence[Step], step: Step, asked: Mapping[int, Sequence[str]] | None = None
    ) -> Step:
        """`step` with those items of its access list that its worker may see."""
        if self.is_empty:
            return step
        inputs = self.inputs_of_steps(before, asked)
        held = {item: provenance_of((item,), inputs, self.given) for item in step.access}
        visible = [item for item, provenance in held.items() if not self.hidden_reason(step.worker, provenance)]
        return replace(step, access=tuple(visible))

    def may_replace(self, name: str, planned: str) -> bool:
        """Whether a worker sees of the question all that the planned one would."""
        return self.visibility.get(name, UNRESTRICTED).covers(self.visibility.get(planned, UNRESTRICTED))

    # Before anything is called

    def check(self, *, plans: bool) -> None:
        """Raise `PolicyError` where no run is possible. `plans`: the conductor will be asked."""
        if self.is_empty:
            return
        if plans:
            self.pool_policy.check_conductor()
        if self.question.files and self.allowed and not any(self.visibility[name].files for name in self.allowed):
            raise PolicyError(
                "no allowed worker may be shown the attached files: policy.files_only names none of them",
                hint=f"ask without the files, or change the rule; {POLICY_HINT}",
            )
        if not self.allowed:
            alone = "it may not be shown all of the question, and one worker answers alone"
            raise no_worker_error({name: self.pool_policy.denial_reason(name) or alone for name in self.excluded})


def _without(question: Question, parts: Sequence[str]) -> Question:
    if not parts:
        return question
    return replace(
        question,
        text="" if "question" in parts else question.text,
        history=() if "history" in parts else question.history,
        files=() if "files" in parts else question.files,
    )


def withheld_note(parts: Sequence[str]) -> str:
    """What a model is told about the parts of the question that it is not shown."""
    return f"Not shown to you: {', '.join(_PARTS[part] for part in parts)}." if parts else ""
