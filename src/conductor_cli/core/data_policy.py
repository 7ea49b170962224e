"""The policy, applied to one question: who may see its files, and the answers that may quote them.

Pure.

An answer may quote whatever its worker read. So a step *holds files* where its worker is shown
them, and where it sees the answer of a step that does; only workers that may see the files see such
an answer. Earlier turns of a conversation with files may quote them, so they are treated like
files, also where these go along no longer.

The subtasks go to every worker, and the planner writes them. So it is shown the files only if every
allowed worker may see them. In a nested run the existing answer cannot be hidden from the planner,
so there the workers that may not see that answer are excluded.

`MediaAccess` says who can see the attachments of a question that have no text, such as images.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Final

from conductor_cli.core.chat import MediaKind
from conductor_cli.core.errors import Failure, PolicyError
from conductor_cli.core.formatting import format_list
from conductor_cli.core.media import describe_media
from conductor_cli.core.plan import SELF, Plan, Step
from conductor_cli.core.plan_formats.base import PlanFormatContext
from conductor_cli.core.policy import NO_POLICY, POLICY_HINT, PoolPolicy, no_worker_error
from conductor_cli.core.pool import Pool
from conductor_cli.core.question import Question
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.tools import tool_selector
from conductor_cli.core.trace import Trace

_PARTS: Final = {"history": "the earlier turns", "files": "the attached files"}


class DataPolicy:
    """A pool's policy applied to one question.

    `names` are the workers of the pool, `resumed` is the run whose steps are reused. `needs_files`
    says that every worker must be allowed to see the files: one of them answers alone, or item 0 of
    a nested run may quote the files.
    """

    def __init__(
        self,
        pool_policy: PoolPolicy,
        names: Collection[str],
        question: Question,
        *,
        resumed: Trace | None = None,
        needs_files: bool = False,
    ) -> None:
        self.pool_policy = pool_policy
        self.question = question
        self._is_empty = pool_policy.policy == NO_POLICY
        self._resumed = resumed
        self._needs_files = needs_files
        self._workers = tuple(name for name in names if name != SELF)

    @cached_property
    def allowed(self) -> tuple[str, ...]:
        allowed = []
        for name in self._workers:
            if not self.pool_policy.denial_reason(name) and (
                not self._needs_files or self._may_see_files(name)
            ):
                allowed.append(name)
        return tuple(allowed)

    @cached_property
    def excluded(self) -> frozenset[str]:
        if self._is_empty:
            return frozenset()
        return frozenset(self._workers) - frozenset(self.allowed)

    @cached_property
    def _conductor_sees_files(self) -> bool:
        return self._is_empty or all(map(self._may_see_files, (SELF, *self.allowed)))

    def _may_see_files(self, name: str) -> bool:
        return not self.question.holds_files or self.pool_policy.allows_files(name)

    def _is_shown_files(self, name: str) -> bool:
        """Return whether a worker is shown the files.

        A nested run (`self`) asks its planner and any of its workers.
        """
        if name == SELF:
            return self._conductor_sees_files or any(map(self._may_see_files, self.allowed))
        # A worker that is gone from the settings may have had a tag by which it was shown them.
        is_in_settings = name in self._workers or name in self.pool_policy.recipients
        return not is_in_settings or self._may_see_files(name)

    # What a model is shown

    def withheld(self, name: str) -> tuple[str, ...]:
        if self._is_shown_files(name):
            return ()
        return self._parts_with_files()

    def withheld_from_conductor(self) -> tuple[str, ...]:
        if self._conductor_sees_files:
            return ()
        return self._parts_with_files()

    def _parts_with_files(self) -> tuple[str, ...]:
        return tuple(part for part in _PARTS if getattr(self.question, part))

    def question_for(self, name: str) -> Question:
        if self._is_shown_files(name):
            return self.question
        return self.question_without_files

    def question_for_planner(self) -> Question:
        if self._conductor_sees_files:
            return self.question
        return self.question_without_files

    @cached_property
    def question_without_files(self) -> Question:
        # Nor earlier turns, which may quote them.
        return replace(self.question, history=(), files=(), conversation=None, context=())

    def rules_for_planner(self, context: PlanFormatContext) -> tuple[str, ...]:
        """Return what the planner is told about who may see what, a line each."""
        hidden = self.withheld_from_conductor()
        rule = "is not shown the attached files, nor answers that come from them."
        lines = []
        if hidden:
            lines.append(withheld_note(hidden))
        for name in context.rules.workers:
            if self.withheld(name):
                lines.append(f"{context.label(name)} {rule}")
        return tuple(lines)

    # What subtasks may reveal

    def planner_saw_files(self, *, plans: bool) -> bool:
        """Return whether subtasks may reveal the files to whoever reads them.

        `plans`: the planner writes them now.
        """
        before = self._resumed is not None and self._resumed.planner_saw_files
        return self.question.holds_files and (before or (plans and self._conductor_sees_files))

    def reveals_files(self, step: Step) -> bool:
        """Return whether a subtask may reveal the files.

        It is reused from a run whose planner was shown them.

        A subtask planned now reveals nothing that a worker may not see: the planner was not shown
        it.
        """
        earlier = self._resumed
        if (
            self._is_empty
            or earlier is None
            or not (self.question.holds_files and earlier.planner_saw_files)
        ):
            return False
        return any(record.step.subtask == step.subtask for record in earlier.steps)

    def may_show_steps(self, steps: Sequence[Step]) -> bool:
        """Return whether the planner may see these steps.

        They may reveal files that are hidden from it.
        """
        return not self.withheld_from_conductor() or not any(map(self.reveals_files, steps))

    # What a plan may hold

    def hold_files(self, steps: Sequence[Step]) -> list[bool]:
        """Return, for item 0 and for each step, whether its subtask or answer may quote the files.

        The workers of `steps` are those that were really asked. A step that was done under other
        rules may quote all that could be seen then.
        """
        earlier = self._resumed
        done_under_other_rules: Collection[int] = ()
        if earlier is not None and earlier.policy != self.pool_policy.policy:
            done_under_other_rules = earlier.done()
        holds = [self._needs_files]
        for number, step in enumerate(steps, start=1):
            is_shown = number in done_under_other_rules or self._is_shown_files(step.worker)
            may_quote = is_shown or self.receives_files(step, holds)
            holds.append(self.question.holds_files and may_quote)
        return holds

    def receives_files(self, step: Step, holds: Sequence[bool]) -> bool:
        """Return whether a step's subtask, or an answer it reads, may quote the files.

        `holds`: see `hold_files`.
        """
        if self.reveals_files(step):
            return True
        return any(holds[item] for item in step.access if item < len(holds))

    def plan_violation(self, plan: Plan) -> Failure | None:
        for index, step in enumerate(plan.steps):
            why = self.violation(plan.steps[:index], step)
            if why:
                return Failure(kind="policy", message=why, hint=POLICY_HINT)
        return None

    def violation(self, before: Sequence[Step], step: Step) -> str:
        if self._is_empty:
            return ""
        name = step.worker
        number = len(before) + 1
        denied = self._denial_of_step(name)
        if denied:
            return f"step {number} asks {name}, and {denied}"
        if name in self.excluded:
            return f"step {number} asks {name}, which may not be shown what this run is about"
        if self._may_see_answers_with_files(name):
            return ""
        quoting = self._text_that_may_quote_files(before, step)
        if not quoting:
            return ""
        return (
            f"step {number} shows {name} {quoting}, which may quote the attached files, which "
            f"policy.files_only keeps from {name}"
        )

    def _denial_of_step(self, name: str) -> str:
        # The planner may plan although steps on it are denied: `deny = ["self"]` is only about such
        # steps.
        if name == SELF and SELF in self.pool_policy.policy.deny:
            return f"policy.deny names {SELF}"
        return self.pool_policy.denial_reason(name)

    def _text_that_may_quote_files(self, before: Sequence[Step], step: Step) -> str:
        """Return what a step is shown that may quote the files; empty where nothing may."""
        if self.reveals_files(step):
            return "its subtask"
        holds = self.hold_files(before)
        for item in step.access:
            if item < len(holds) and holds[item]:
                if item:
                    return f"the answer of step {item}"
                return "what was given"
        return ""

    def _may_see_answers_with_files(self, name: str) -> bool:
        # A nested run shows an existing answer to its planner, and needs a worker that may see it
        # as well.
        inside = name != SELF or any(map(self._may_see_files, self.allowed))
        return self._may_see_files(name) and inside

    def tool_objection(self, server: str, before: Sequence[Step], step: Step) -> str:
        """Return why `step`, after those `before` it, may not call the tools of a server.

        Empty where it may.

        What a tool is called with may quote all that the step's worker reads, so the server is a
        recipient like a worker.
        """
        if self._is_empty:
            return ""
        selector = tool_selector(server)
        denied = self.pool_policy.denial_reason(selector)
        if (
            denied
            or self.pool_policy.allows_files(selector)
            or not self.hold_files([*before, step])[-1]
        ):
            return denied
        return "policy.files_only keeps from it what this step is shown of the attached files"

    def without_hidden(self, before: Sequence[Step], step: Step) -> Step:
        """Return `step` with those items of its access list that its worker may see."""
        if self._is_empty or self._may_see_answers_with_files(step.worker):
            return step
        holds = self.hold_files(before)
        return replace(step, access=tuple(item for item in step.access if not holds[item]))

    def may_replace(self, name: str, planned: str) -> bool:
        """Return whether a worker sees of the question all that the planned one would."""
        return self._is_shown_files(name) or not self._is_shown_files(planned)

    # Before anything is called

    def check(self, *, plans: bool) -> None:
        """Raise `PolicyError` where no run is possible. `plans`: the planner will be asked."""
        if self._is_empty:
            return
        if plans:
            self.pool_policy.check_conductor()
        if self.allowed and not any(map(self._may_see_files, self.allowed)):
            subject = "the attached files"
            way_out = "ask without the files"
            if not self.question.files:
                subject = "the earlier turns, which may quote files"
                way_out = "begin a new conversation"
            message = (
                f"no allowed worker may be shown {subject}: policy.files_only names none of them"
            )
            raise PolicyError(message, hint=f"{way_out}, or change the rule; {POLICY_HINT}")
        if not self.allowed:
            alone = "it may not be shown all of the question, and one worker answers alone"
            reasons = {}
            for name in self.excluded:
                reasons[name] = self.pool_policy.denial_reason(name) or alone
            raise no_worker_error(reasons)


def withheld_note(parts: Sequence[str]) -> str:
    """Return what a model is told about the parts of the question that it is not shown."""
    if not parts:
        return ""
    return f"Not shown to you: {', '.join(_PARTS[part] for part in parts)}."


_MEDIA: Final[Mapping[MediaKind, str]] = {"image": "image", "pdf": "PDF"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaAccess:
    """For each kind of attachment without text that a question has.

    One file of it, and the workers that can see it.

    `hidden` are those that could if the policy did not hide the file from them. A step on the
    planner itself counts where it sees no earlier answer: its own plan is then held to the same
    rule.
    """

    files: Mapping[MediaKind, str]
    names: Mapping[MediaKind, tuple[str, ...]]
    hidden: Mapping[MediaKind, tuple[str, ...]]

    def seen_by(self, worker: str) -> frozenset[MediaKind]:
        return frozenset(kind for kind, names in self.names.items() if worker in names)

    def best_of(self, workers: Sequence[str]) -> tuple[str, ...]:
        """Return those of these workers that see the most kinds.

        All of them where there is nothing to see.
        """
        most = max((len(self.seen_by(worker)) for worker in workers), default=0)
        return tuple(worker for worker in workers if len(self.seen_by(worker)) == most)

    def may_replace(self, worker: str, planned: str) -> bool:
        """Return whether a worker sees all that the planned one would."""
        return self.seen_by(planned) <= self.seen_by(worker)

    def fault(self, steps: Iterable[Step]) -> str:
        """Return why these steps are no valid plan: none of them sees a kind of file.

        Empty where they are one.
        """
        steps = tuple(steps)
        if any(step.worker == SELF and not step.access for step in steps):
            return ""
        kinds_seen = set(chain.from_iterable(self.seen_by(step.worker) for step in steps))
        for kind in self.files:
            if kind not in kinds_seen:
                # Without the name of the file: the planner may not be shown the files.
                who = format_list(self.names[kind]) or "nobody"
                return f"no step asks a worker that can see the attached {_MEDIA[kind]}; {who} can"
        return ""


def find_media_access(question: Question, shown: Mapping[str, Question], pool: Pool) -> MediaAccess:
    """Return who can see what.

    `shown` is the question as each worker of the pool is shown it by the policy.
    """
    files = _files_to_see(question)
    names: dict[MediaKind, tuple[str, ...]] = {}
    hidden: dict[MediaKind, tuple[str, ...]] = {}
    for kind in files:
        shown_to = []
        hidden_from = []
        for worker in pool:
            if kind not in (worker.accepts or ()):
                continue
            if _is_shown_kind(shown[worker.name], kind):
                shown_to.append(worker.name)
            else:
                hidden_from.append(worker.name)
        names[kind] = tuple(shown_to)
        hidden[kind] = tuple(hidden_from)
    return MediaAccess(files=files, names=names, hidden=hidden)


def _files_to_see(question: Question) -> dict[MediaKind, str]:
    """Return by kind the name of the first file that says nothing to those who cannot see it."""
    files: dict[MediaKind, str] = {}
    if question.given:  # a nested run that was given an answer needs nobody to look again
        return files
    for file in reversed(question.files):
        kind = file.kind_without_text
        if kind is not None:
            files[kind] = one_line(file.name)
    return files


def _is_shown_kind(question: Question, kind: MediaKind) -> bool:
    return any(file.kind_without_text == kind for file in question.files)


def nobody_sees(media_access: MediaAccess, absent: Collection[str]) -> tuple[str, str]:
    """Return what to say and advise where nobody can see a file, else nothing.

    Workers in `absent` cannot be asked.
    """
    for kind, names in media_access.names.items():
        if set(names) - set(absent):
            continue
        could = ""
        if names:
            could = f"{format_list(names)} could, but cannot be used; "
        if hidden := media_access.hidden.get(kind):
            hint = f"{format_list(hidden)} could, but a rule hides the files: conductor config show"
            return f"nobody who may see {media_access.files[kind]} accepts {_MEDIA[kind]}s", hint
        hint = f"{could}if a worker can, say so: conductor workers add NAME --set accepts={kind}"
        return (
            (
                f"no worker of this run accepts {_MEDIA[kind]}s, so nobody could see "
                f"{media_access.files[kind]}"
            ),
            hint,
        )
    return "", ""


def describe_attached(
    question: Question, shown: Mapping[str, Question], labels: Mapping[str, str], pool: Pool
) -> list[str]:
    """Return what the planner is told of each attachment: what it is, and who can see it.

    `question` is the one that the planner is shown, `shown` what each worker is.
    """
    lines = []
    for file in question.files:
        if file.attachment is None:
            continue
        able = []
        for label, worker in labels.items():
            is_shown = worker in shown and file in shown[worker].files
            if is_shown and file.is_sent_to(pool[worker].accepts or ()):
                able.append(label)
        name = f'Attached: "{one_line(file.name)}" ({describe_media(file.attachment)}).'
        if file.kind_without_text is not None:
            lines.append(
                f"{name} Only {format_list(able)} can see it, so a step of one of these must "
                "look at it."
            )
        elif able:
            lines.append(f"{name} Every worker reads its text; {format_list(able)} the file.")
        else:
            lines.append(f"{name} Every worker reads its text.")
    return lines
