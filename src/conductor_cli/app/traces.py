"""Stored runs as data: selecting, verifying, pruning and exporting them.

What a plan offers, and which model reads what: of a plan that waits to be run, and of a stored run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from conductor_cli.config.schema import SETTINGS
from conductor_cli.config.settings import app_paths, load_settings
from conductor_cli.core.chat import MediaKind
from conductor_cli.core.data_policy import DataPolicy
from conductor_cli.core.disclosures import (
    UNKNOWN,
    Disclosure,
    disclosures_of,
    expected_disclosures,
    planning_disclosure,
)
from conductor_cli.core.errors import ConductorError, ConfigError, Failure, UsageError
from conductor_cli.core.plan import SELF, Plan, PlanRules, Step, check_plan
from conductor_cli.core.policy import PoolPolicy
from conductor_cli.core.pool import Pool
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import PastTurn, Question
from conductor_cli.core.serialization import dump
from conductor_cli.core.trace import PLAN_FILE, Outcome, Trace
from conductor_cli.models.recipients import recipient_facts, recipient_of
from conductor_cli.state.interfaces import TraceCheck, Traces
from conductor_cli.state.opening import open_state
from conductor_cli.state.stored_run import RunQuery, StoredRun, normalize_terms
from conductor_cli.state.trace_file import unreadable
from conductor_cli.system.known_secrets import KNOWN_SECRETS
from conductor_cli.views.html import html_page
from conductor_cli.views.markdown_page import conversation_markdown, run_markdown
from conductor_cli.views.plan_text import PlanOffer

if TYPE_CHECKING:
    from conductor_cli.run import Run


RunState = Literal[Outcome, "unreadable"]

_TIME_SPAN: Final = re.compile(r"(\d{1,6})\s*(min|h|d|w)")
_UNIT_SECONDS: Final = {"min": 60, "h": 3600, "d": 86_400, "w": 604_800}


def open_trace_store() -> Traces:
    """Return the store of this user.

    It reads no settings, so traces can be looked at even when those are broken.
    """
    return open_state(app_paths(os.environ)).traces


def display_settings(
    config: str | None, flags: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    """Return the settings by name.

    `flags` and the defaults when the settings cannot be read, because traces still can.
    """
    try:
        return load_settings(os.environ, flags, config).values
    except ConfigError:
        return {item.name: (flags or {}).get(item.name) or item.default for item in SETTINGS}


# Selecting runs


def earliest_run_id(since: str, now: datetime) -> str:
    """Return the beginning of the first run id at or after `since`.

    A time span before now, a date, or a local time.

    Raises `UsageError`.
    """
    span = _TIME_SPAN.fullmatch(since.strip())
    if span is not None:
        length = timedelta(seconds=int(span[1]) * _UNIT_SECONDS[span[2]])
        then = now - min(length, now - datetime(1970, 1, 2, tzinfo=UTC))
    else:
        try:
            then = datetime.fromisoformat(since.strip()).astimezone(UTC)
        except (ValueError, OverflowError):
            hint = "for example: 30min, 12h, 7d, 2w, 2026-11-20 or 2026-11-20T18:30"
            raise UsageError(f"{since!r:.40} is not a time", hint=hint) from None
    return f"{then:%Y%m%d-%H%M%S}"


def make_run_query(
    state: RunState | None, worker: str | None, since: str | None, terms: Sequence[str]
) -> RunQuery:
    """Return which runs are asked for. Raises `UsageError`."""
    words = normalize_terms(terms)
    if terms and not words:
        raise UsageError(
            "the text to search for is empty", hint='for example: conductor trace list "a word"'
        )
    if not all(word.isprintable() for word in (*words, worker or "")):
        raise UsageError(
            "the text to search for has control characters", hint="use printable UTF-8 text"
        )
    earliest = ""
    if since:
        earliest = earliest_run_id(since, datetime.now(UTC))
    return RunQuery(state=state or "", worker=worker or "", since=earliest, terms=words)


# Verifying


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedTrace:
    """What was found in a trace. `aside` is the file that has it as it was before it was repaired.

    `problem` says why it cannot be read or repaired.
    """

    check: TraceCheck
    aside: str = ""
    problem: str = ""

    @property
    def whole(self) -> bool:
        return self.check.whole and not self.problem

    def to_json(self) -> dict[str, Any]:
        check = self.check
        return {
            "run": check.run,
            "whole": self.whole,
            "running": check.running,
            "lines": check.lines,
            "hash": check.link,
            "faults": [dump(fault) for fault in check.faults],
            "set_aside": self.aside or None,
            "problem": self.problem or None,
        }


def verify_trace(store: Traces, run: str, *, repair: bool = False) -> VerifiedTrace:
    """Check a trace; with `repair`, keep what is whole of it and check that.

    Never raises for one that is damaged.
    """
    check = TraceCheck(run=run, lines=0, link="")
    try:
        check = store.check(run)
        aside = ""
        if repair and not check.whole and not check.running:
            aside = store.repair(run, check)
        return VerifiedTrace(check=store.check(run) if aside else check, aside=aside)
    except UsageError as error:
        return VerifiedTrace(check=check, problem=error.message)


# Pruning


def find_old_runs(
    store: Traces, older_than: str | None, keep: int | None, now: datetime
) -> list[StoredRun]:
    """Return the runs that are older than a time span and not among the newest `keep`.

    None of them is running. Raises `UsageError`.
    """
    before = "~"  # no id sorts after a tilde
    if older_than:
        before = earliest_run_id(older_than, now)
    try:
        rows, _ = store.newest(count=-1)
    except OSError as error:
        raise unreadable(store.place, error) from None
    return [run for run in rows[keep or 0 :] if run.run < before and run.state != "running"]


def size_of_runs(runs: Sequence[StoredRun]) -> int:
    """Return how many bytes it frees to delete runs.

    Their traces, and the attachments that no other run needs.
    """
    attachments = open_state(app_paths(os.environ)).attachments()
    size = sum(max(run.size, 0) for run in runs)
    if runs:
        size += attachments.prunable({run.run for run in runs})
    return size


def delete_runs(store: Traces, runs: Sequence[StoredRun]) -> list[UsageError]:
    """Delete runs. Returns why some of them could not be."""
    try:
        return store.prune([run.run for run in runs])
    finally:
        forget_removed(store)


def forget_removed(store: Traces) -> None:
    """Remove what belonged to deleted runs only.

    Their texts in the index, and their attachments.
    """
    store.refresh()
    open_state(app_paths(os.environ)).prune_attachments()


# Exporting


def export_run(trace: Trace, *, live: bool = False) -> str:
    """Return the run as a page. Keys that this process has read are redacted."""
    return KNOWN_SECRETS.redact(html_page(trace, live=live))


def export_markdown(trace: Trace, *, live: bool = False) -> str:
    """Return the run as Markdown, redacted likewise."""
    return KNOWN_SECRETS.redact(run_markdown(trace, live=live))


def export_conversation(turns: Sequence[PastTurn | Trace], run: str) -> str:
    """Return a conversation as Markdown, redacted likewise; `run` is the last one of it."""
    return KNOWN_SECRETS.redact(conversation_markdown(turns, run))


def conversation_of(store: Traces, trace: Trace) -> tuple[PastTurn | Trace, ...]:
    """Return all turns of the conversation that ends with this run, from the stored runs before it.

    Where an earlier run is gone or cannot be read, the turns that the next one was sent stand for
    those before.
    """
    turns = list[Trace]()
    runs = set[str]()
    while True:
        turns.insert(0, trace)
        runs.add(trace.run)
        parent = trace.question.parent
        earlier = None
        if parent and parent not in runs:
            with suppress(ConductorError):
                earlier = store.trace(store.find(parent))
        if earlier is None or earlier.run in runs:
            return (*trace.question.history, *turns)
        trace = earlier


def describe_offer(run: Run) -> PlanOffer:
    """Return the plan of a run with all that a user decides by."""
    assert isinstance(run.trace.plan, Plan)
    began_at = run.state.planning.began_at
    remarks = []
    for notice in run.trace.recovered:
        if not notice.step and notice.at >= began_at:
            remarks.append(notice.text)
    return PlanOffer(
        question_for=run.state.policy.question_for,
        has_files=bool(run.question.files),
        plan=run.trace.plan,
        pool=run.team.pool,
        profile=run.team.worker_profile,
        limits=run.limits,
        recipients=recipients_of(run.team.pool),
        gain=run.team.describe_gain(run.team.name),
        by_planner=bool(run.trace.plan_text),
        remarks=tuple(remarks),
        done=frozenset(run.trace.done()),
    )


def describe_stored_offer(trace: Trace) -> PlanOffer:
    """Return the plan that a run of another process offers, as its trace has it."""
    assert isinstance(trace.plan, Plan)
    return PlanOffer(
        question_for=_stored_policy(trace).question_for,
        has_files=bool(trace.question.files),
        plan=trace.plan,
        pool=trace.pool,
        profile=WorkerProfile(),
        limits=trace.limits,
        recipients=recipients_of(trace.pool),
        by_planner=bool(trace.plan_text),
        remarks=tuple(notice.text for notice in trace.recovered if not notice.step),
        done=frozenset(trace.done()),
    )


def _stored_policy(trace: Trace) -> DataPolicy:
    recipients = {worker.name: recipient_facts(worker) for worker in trace.pool}
    pool_policy = PoolPolicy(policy=trace.policy, recipients=recipients)
    return DataPolicy(pool_policy, trace.pool.names, trace.question)


def may_edit_offered(trace: Trace) -> bool:
    """Return whether a plan on offer may be edited: nothing of it is done."""
    return not trace.done()


def may_replan_offered(trace: Trace) -> bool:
    """Return whether a plan on offer may be planned again: a planner wrote it."""
    return may_edit_offered(trace) and trace.planner != PLAN_FILE


def check_edited_offer(trace: Trace, plan: Plan) -> Failure | None:
    """Return why an edited plan cannot be run, as far as the trace of its run tells.

    The process of the run knows all rules, and says so if it does not take a plan.
    """
    rules = PlanRules(workers=(*trace.pool.names, SELF), steps=len(plan.steps))
    try:
        check_plan(plan, rules)
    except ConductorError as error:
        return error.failure
    return None


def planned_flow(run: Run) -> list[Disclosure]:
    """Return which model will read what when the run's plan is run, its planning included."""
    assert isinstance(run.trace.plan, Plan)
    policy = run.state.policy
    planner = run.team.recipient
    steps = _flow_of_steps(run.trace.plan.steps, policy, run.team.pool, planner)
    if not run.trace.planning.calls:
        return steps
    return [planning_disclosure(policy.question_for_planner(), planner), *steps]


def stored_planned_flow(trace: Trace) -> list[Disclosure]:
    """Return the same for the plan that a run of another process offers, as its trace has it."""
    assert isinstance(trace.plan, Plan)
    policy = _stored_policy(trace)
    planner = trace.recipient or UNKNOWN
    steps = _flow_of_steps(trace.plan.steps, policy, trace.pool, planner)
    if not trace.planning.calls:
        return steps
    # By what rule the planner may see the files is not stored, but whether it saw them is
    question = trace.question
    if question.holds_files and not trace.planner_saw_files:
        question = policy.question_without_files
    return [planning_disclosure(question, planner), *steps]


def _flow_of_steps(
    steps: Sequence[Step], policy: DataPolicy, pool: Pool, planner: str
) -> list[Disclosure]:
    """Return which model will read what for the steps; `planner` is who reads for the planner."""
    recipients = recipients_of(pool)
    # A step on the conductor itself may ask any worker.
    reached = {}
    for name, recipient in recipients.items():
        reached[name] = [recipient]
    reached[SELF] = list(dict.fromkeys((planner, *recipients.values())))

    def question_for(name: str) -> Question:
        # A step on the conductor itself may reach any worker, so it counts as one that accepts
        # everything.
        accepts: Sequence[MediaKind] = get_args(MediaKind)
        if name in pool and name != SELF:
            accepts = pool[name].accepts or ()
        return policy.question_for(name).as_sent_to(accepts)

    def tools_of(number: int) -> Sequence[str]:
        step = steps[number - 1]
        before = steps[: number - 1]
        if step.worker not in pool:
            return ()
        servers = pool[step.worker].tools
        return [server for server in servers if not policy.tool_objection(server, before, step)]

    return expected_disclosures(steps, question_for, reached, tools_of)


def stored_flow(store: Traces, run: str, step: int | None) -> list[Disclosure]:
    """Return which model read what in a stored run, or in one step.

    Raises `UsageError` for a step without a call.
    """
    sent = []
    for call in disclosures_of(store.events(run), recipient_of):
        if step in (None, call.step[0]):
            sent.append(call)
    if step is not None and not sent:
        raise UsageError(
            f"step {step} of run {run} called no model", hint="omit --step to see all steps"
        )
    return sent


def recipients_of(pool: Pool) -> Mapping[str, str]:
    """Return who reads what each worker is sent: a provider, a host, or this machine."""
    return {worker.name: recipient_of(worker) for worker in pool}
