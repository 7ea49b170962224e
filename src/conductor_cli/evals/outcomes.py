"""What became of one case under one system.

The verdict, what it cost, and how long its longest chain of calls took.

An evaluation on disk is one directory, readable by its owner only, and whole after a kill at any
moment.

spec.json        what is evaluated: cases, systems, workers, seed, versions
cases.jsonl      the cases themselves
calls.jsonl      every complete reply of every model, so that no call is repeated, not even after a
kill outcomes.jsonl   one line for each case that a system has answered
spent.jsonl      what was reserved for each call that costs something, and what it has cost
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

from conductor_cli.core import events as ev
from conductor_cli.core.errors import (
    LIMITS_OF_SEVERAL,
    Failure,
    LimitReached,
    UsageError,
    describe_system_error,
)
from conductor_cli.core.plan import Step
from conductor_cli.core.question import shorten
from conductor_cli.core.serialization import dump, encode_line, load
from conductor_cli.core.terminal_text import escape_json
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.evals.cases import (
    AnswerScorer,
    Case,
    read_cases,
    score_answer,
    write_cases,
)
from conductor_cli.evals.score import Score
from conductor_cli.evals.systems import System, majority_answer
from conductor_cli.models.response_cache import ResponseCache
from conductor_cli.run.budget import read_spent
from conductor_cli.system import disk
from conductor_cli.system.disk import AppendLog, exclusive_lock, read_lines

Verdict = Literal["right", "wrong", "failed"]
"""Failed: a model could not be reached after all retries, or the answer not scored, which says
nothing about the system.

Never counted as wrong. What the system itself made fail (a prompt that is too long for the worker
that it chose, a request that was refused, a reply that came too late) is wrong, or right where
another worker helped it out.
"""

OF_THE_SYSTEM: Final[Mapping[str, str]] = {
    "length": "a prompt too long for the worker",
    "refused": "a refused request",
    "timeout": "a late reply",
    "empty_answer": "an empty reply",
    "schema": "an answer of another form",
    "declined": "a step that was declined",
    "plan_invalid": "no valid plan",
    "nesting_limit": "runs nested too deeply",
    "answer_truncated": "an answer that was cut off",
    "answer_not_json": "an answer of another form",
    "answer_not_schema": "an answer of another form",
    "answer_not_checked": "an answer of another form",
    "worker_unknown": "a worker that is not there",
    "worker_excluded": "a worker that was left out",
    "step_not_run": "a step that was not run",
    "workers_failed": "workers that all failed",
}
"""Reasons of failures that are the system's own, in words. All others are those of the machinery:
connections, servers that are overloaded or answer nonsense, keys and files.
"""

# What a run is of: the name of a system, the id of a case, and the draw
RunKey = tuple[str, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseOutcome:
    """The result of one run of a case under a system."""

    system: str
    case: str
    tags: tuple[str, ...] = ()
    verdict: Verdict
    answer: str = ""
    usage: Usage = NO_USAGE  # What all models used, but a judge
    planning: Usage = NO_USAGE  # The conductor's share of it
    seconds: float = 0.0
    """The longest chain of calls that waited for each other, whatever ran in parallel and whichever
    were cached.
    """
    steps: int = 0
    planned: bool = False  # A model wrote the plan
    valid: bool = True  # Its first version was valid; meaningless unless planned
    plan: tuple[Step, ...] = ()  # What the planner wrote
    answers: tuple[str, ...] = ()  # How the answer of each of its steps began
    error: str = ""
    fault: str = ""  # The reason of the first step that failed by the system's own doing
    cut_off: bool = False  # The answer reached its worker's token limit
    # What the scorer took from the answer and why it is right or wrong, if it says so
    scoring: str = ""
    draw: int = 0  # Counts the runs of the case under the system
    confirmed: bool | None = None  # Whether a judge agreed with the rule that scored the answer
    judging: Usage = NO_USAGE  # What the judge used

    @property
    def cost(self) -> Decimal | None:
        """US dollars of the run and of its judgement; None if one of them has no known price."""
        return (self.usage + self.judging).cost

    @property
    def key(self) -> RunKey:
        return self.system, self.case, self.draw

    @property
    def right(self) -> bool:
        return self.verdict == "right"


# How often the planner is called before a worker gets the question without a plan
MAX_PLAN_REQUESTS: Final = 2


def judge_run(
    system: System,
    case: Case,
    trace: Trace,
    events: Sequence[ev.Event],
    scorer: AnswerScorer = score_answer,
) -> CaseOutcome:
    """Return the outcome of a case; `trace` is the fold of `events`, which are all of one run."""
    planned = system.plan is None
    error = infrastructure_error(trace, events, planned=planned)
    fault = ""
    answer = ""
    if not error:
        fault = own_fault(trace, events)
        answer = trace.answer
        if system.votes:
            answer = majority_answer(trace, case)
    score = Score(right=False)
    if answer:
        score = scorer(answer, case)
    if score.right is None:
        error = score.why
    plan: tuple[Step, ...] = ()
    answers: tuple[str, ...] = ()
    if planned:
        plan = tuple(record.step for record in trace.steps)
        answers = tuple(shorten(record.text, 400) for record in trace.steps)
    return CaseOutcome(
        system=system.name,
        case=case.id,
        tags=case.tags,
        verdict=_verdict(score, error),
        answer=answer,
        usage=trace.usage,
        planning=planning_usage(trace),
        steps=len(trace.steps),
        planned=planned,
        plan=plan,
        answers=answers,
        seconds=round(critical_path_seconds(trace, independent=system.votes), 4),
        valid=not any(_has_reply(rejected) for rejected in trace.rejected),
        error=error,
        fault=fault,
        cut_off=_is_cut_off(trace),
        scoring=_scoring(score, trace),
    )


def _scoring(score: Score, trace: Trace) -> str:
    """Return what the scorer says, and why the answer that it scored is not a whole one."""
    parts = [score.why]
    if trace.partial and trace.error is not None:
        parts.append(trace.error.message)
    return "; ".join(filter(None, parts))


def _verdict(score: Score, error: str) -> Verdict:
    if error:
        return "failed"
    if score.right:
        return "right"
    return "wrong"


def own_fault(trace: Trace, events: Iterable[ev.Event]) -> str:
    """Return the reason of the first failure that is the system's own; empty if there is none.

    A step that was given to another worker counts, an answer that only was not good does not.
    """
    for failure in _final_failures(events):
        if failure.reason in OF_THE_SYSTEM and failure.reason not in ("empty_answer", "declined"):
            return failure.reason
    if trace.state == "failed" and trace.error is not None:
        return trace.error.reason or trace.error.kind
    return ""


def _final_failures(events: Iterable[ev.Event]) -> Iterator[Failure]:
    """Yield the failures of steps after which the same worker was not asked again."""
    for event in map(ev.innermost_event, events):
        if isinstance(event, ev.StepFailed) and event.retry_in is None:
            yield event.error


def _is_cut_off(trace: Trace) -> bool:
    """Return whether the step that gives the answer ended at its worker's token limit."""
    return any(record.last and record.finish == "length" for record in trace.steps)


def infrastructure_error(trace: Trace, events: Iterable[ev.Event], *, planned: bool) -> str:
    """Why this run says nothing about the system: a model could not be reached.

    Empty if it does say something.

    That is so where a transport failed after all retries: no connection, a server that is
    overloaded or breaks off, a key that is refused. All that a system makes fail itself counts
    (`OF_THE_SYSTEM`), and so does an exhausted limit.
    """
    for failure in _final_failures(events):
        if failure.reason not in OF_THE_SYSTEM:
            return failure.message
    failure_of_run = None
    if trace.state == "failed":
        failure_of_run = trace.error
    if (
        failure_of_run is not None
        and failure_of_run.kind != "limit"
        and failure_of_run.reason not in OF_THE_SYSTEM
    ):
        return failure_of_run.message
    # One unanswered request is repeated by the engine; only when all were, a worker answered
    # without a plan.
    unanswered = []
    for rejected in trace.rejected:
        if not _has_reply(rejected) and rejected.reason not in OF_THE_SYSTEM:
            unanswered.append(rejected)
    if planned and len(unanswered) >= MAX_PLAN_REQUESTS:
        return unanswered[-1].problem
    return ""


def _has_reply(rejected: ev.PlanRejected) -> bool:
    """Return whether the planner answered at all, if only with an invalid plan or with nothing."""
    return bool(rejected.text or rejected.usage.tokens_out or rejected.reason == "empty_answer")


def planning_usage(trace: Trace) -> Usage:
    """Return what the planner used, including nested runs."""
    usage = trace.planning
    for record in trace.steps:
        if record.nested is not None:
            usage += planning_usage(record.nested)
    return usage


def critical_path_seconds(trace: Trace, *, independent: bool = False) -> float:
    """Return the seconds of the run's longest chain of calls, each as long as when it was made.

    Planning comes first, although steps may in fact start before it has ended. With `independent`
    no step waits for another.
    """
    ends: dict[int, float] = {}
    for record in trace.steps:
        seconds = record.usage.seconds
        if record.nested is not None:
            seconds = critical_path_seconds(record.nested)
        if not independent:
            seconds += max((ends.get(number, 0.0) for number in record.step.access), default=0.0)
        ends[record.number] = seconds
    if not independent:
        # The run ends with the step that gives the answer, even if another one would take longer.
        for record in trace.steps:
            if record.last:
                return trace.planning.seconds + ends[record.number]
    return trace.planning.seconds + max(ends.values(), default=0.0)


def check_limit_of_all(trace: Trace) -> None:
    """Raise `LimitReached` for a run that had no room in a limit of several runs.

    Such a run says nothing of its system.
    """
    failure = trace.error
    if failure is not None and failure.reason in LIMITS_OF_SEVERAL:
        raise LimitReached(failure.message, hint=failure.hint, reason=failure.reason)


SPEC: Final = "spec.json"
CASES: Final = "cases.jsonl"
REPLIES: Final = "calls.jsonl"
OUTCOMES: Final = "outcomes.jsonl"
SPENT: Final = "spent.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSpec:
    """What is evaluated."""

    source: str  # The name of the set of cases
    hash: str  # That of its content
    cases: int  # How many it has
    systems: tuple[str, ...]  # The names of those that run
    workers: tuple[str, ...]
    seed: int = 0
    repeat: int = 1  # How often each system runs a case
    planner_id: str | None = None  # What identifies the planner for the response cache
    conductor: str | None = None  # The name of the planner, with its file hash
    judge: str | None = None  # The worker that judges answers
    python: str = ""  # The Python that runs programs of models, where the cases have any
    rules: str = ""  # Which rules say what is right: `scorers.scoring_rules`
    identity: Any  # All that must be equal to continue the evaluation
    notes: tuple[str, ...] = ()
    version: str = ""
    time: str = ""

    @property
    def runs(self) -> int:
        """How many runs it takes: each case `repeat` times under each system."""
        return len(self.systems) * self.cases * self.repeat

    def json(self) -> dict[str, Any]:
        fields: dict[str, Any] = dump(self)
        del fields["identity"], fields["planner_id"], fields["rules"]
        return fields


class Evaluation:
    """One evaluation's directory."""

    def __init__(self, directory: Path) -> None:
        """Open an existing evaluation. Raises `UsageError` if the directory holds none."""
        try:
            spec = load(EvaluationSpec, json.loads((directory / SPEC).read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError) as error:
            message = (
                f"{directory} holds no evaluation that can be read: {describe_system_error(error)}"
            )
            raise UsageError(message, hint="conductor eval --list shows those that can") from None
        self.directory = directory
        self.spec = spec

    @classmethod
    def create(
        cls,
        directory: Path,
        spec: EvaluationSpec,
        cases: Sequence[Case],
        *,
        replies_of: Evaluation | None = None,
    ) -> Evaluation:
        """Create an evaluation in a new directory. Raises `UsageError`.

        It begins with the replies of another one, where it is given that.
        """
        try:
            disk.make_private_directory(directory)
            disk.write_atomically(directory / CASES, write_cases(cases), mode=0o600)
            if replies_of is not None and (replies_of.directory / REPLIES).exists():
                replies = (replies_of.directory / REPLIES).read_bytes()
                disk.write_atomically(directory / REPLIES, replies, mode=0o600)
            # The spec comes last: a directory without one is no evaluation.
            text = escape_json(json.dumps(dump(spec), ensure_ascii=False, indent=2))
            disk.write_atomically(directory / SPEC, f"{text}\n", mode=0o600)
        except OSError as error:
            hint = "make it writable and free some space"
            raise UsageError(f"cannot write {directory}: {error.strerror}", hint=hint) from None
        return cls(directory)

    @property
    def id(self) -> str:
        return self.directory.name

    def cases(self) -> tuple[Case, ...]:
        return read_cases(self.directory / CASES)

    def outcomes(self) -> tuple[CaseOutcome, ...]:
        """Return the newest outcome of each run, in the order in which they were first written."""
        return tuple({outcome.key: outcome for outcome in self._written_outcomes()}.values())

    def judged(self) -> set[RunKey]:
        """Return the runs that did not fail.

        `conductor tune` adds some of systems that the evaluation does not have.
        """
        return {outcome.key for outcome in self.outcomes() if outcome.verdict != "failed"}

    def spent(self) -> Decimal:
        """Return the US dollars that all runs have cost.

        Runs that failed, were repeated or were cut off by a kill are included.
        """
        record = self.directory / SPENT
        if record.exists():
            return read_spent(record)[0]
        # Of an evaluation of an earlier version, which counts a reply that several runs share once
        # for each.
        return sum((outcome.cost or Decimal(0) for outcome in self._written_outcomes()), Decimal(0))

    @contextmanager
    def writer(self) -> Iterator[ResultWriter]:
        """Write to it.

        Raises `UsageError` while another process does, or if the directory cannot be written.
        """

        def busy() -> NoReturn:
            raise UsageError(
                f"{self.directory} is being evaluated by another process",
                hint="wait until it has ended",
            )

        with ExitStack() as stack:
            try:
                stack.enter_context(exclusive_lock(self.directory / "lock", busy))
                writer = stack.enter_context(closing(ResultWriter(self.directory)))
            except OSError as error:
                raise write_error(self.directory, error) from None
            yield writer

    def _written_outcomes(self) -> Iterator[CaseOutcome]:
        for text in read_lines(self.directory / OUTCOMES):
            with suppress(ValueError, RecursionError):  # a line that a kill cut off
                yield load(CaseOutcome, json.loads(text))


class ResultWriter:
    """Writes an evaluation's replies and outcomes."""

    def __init__(self, directory: Path) -> None:
        """Raises `OSError`."""
        self.replies = ResponseCache(directory / REPLIES)
        self._outcomes = AppendLog(directory / OUTCOMES)

    def write(self, outcome: CaseOutcome) -> None:
        """Write an outcome.

        Raises `UsageError` if the disk refuses it, or refused one of its replies.
        """
        path = self._outcomes.path
        try:
            self._outcomes.append(encode_line(dump(outcome)))
        except OSError as error:
            raise write_error(path, error) from None
        # A later part would ask, and pay for, the same again.
        if self.replies.error is not None:
            raise write_error(path.with_name(REPLIES), self.replies.error)

    def close(self) -> None:
        self.replies.close()
        self._outcomes.close()


def write_error(path: Path, error: OSError) -> UsageError:
    """Return the error of an evaluation that cannot be written."""
    hint = "make it writable and free some space; the same command continues"
    return UsageError(f"cannot write {path}: {error.strerror}", hint=hint)
