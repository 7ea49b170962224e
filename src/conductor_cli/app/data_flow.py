"""What a plan offers, and which model reads what: of a plan that waits to be run, and of a stored run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast, get_args

from conductor_cli.core.chat import MediaKind
from conductor_cli.core.disclosures import Disclosure, disclosures_of, expected_disclosures, planning_disclosure
from conductor_cli.core.errors import UsageError
from conductor_cli.core.plan import SELF, Plan
from conductor_cli.core.pool import Pool
from conductor_cli.core.question import Question
from conductor_cli.models.presets import recipient_of
from conductor_cli.store.trace_store import TraceStore
from conductor_cli.views.plan_offer import PlanOffer

if TYPE_CHECKING:
    from conductor_cli.run import Conductor, Run


def describe_offer(run: Run) -> PlanOffer:
    """The plan of a run with all that a user decides by."""
    from conductor_cli.evals.cost import planner_estimate  # `trace show --flow` starts in half the time without it

    assert isinstance(run.trace.plan, Plan)
    setting = run.config
    return PlanOffer(
        question_for=run.state.policy.question_for, has_files=bool(run.question.files),
        plan=run.trace.plan, pool=setting.pool, profile=setting.worker_profile,
        limits=setting.limits, recipients=recipients_of(setting.pool),
        remarks=tuple(
            notice.text for notice in run.trace.recovered if not notice.step and notice.at >= run.state.planning_since
        ),
        done=frozenset(run.trace.done()), planner=planner_estimate(cast("Conductor", setting), run.question),
    )  # fmt: skip


def planned_flow(run: Run) -> list[Disclosure]:
    """Which model will read what when the run's plan is run, its planning included."""
    assert isinstance(run.trace.plan, Plan)
    policy, recipients = run.state.policy, recipients_of(run.config.pool)
    # A step on the conductor itself may ask any worker.
    reached = {SELF: dict.fromkeys((run.config.recipient, *recipients.values()))}
    reached |= {name: {recipient: None} for name, recipient in recipients.items() if name != SELF}
    planning = [planning_disclosure(policy.question_for_conductor(), run.config.recipient)]
    pool = run.config.pool

    def question_for(name: str) -> Question:
        # A step on the conductor itself may reach any worker, so it counts as one that accepts everything.
        accepts = (pool[name].accepts or ()) if name in pool and name != SELF else get_args(MediaKind)
        return policy.question_for(name).as_sent_to(accepts)

    def tools_of(number: int) -> Sequence[str]:
        step = steps_planned[number - 1]
        servers = pool[step.worker].tools if step.worker in pool else ()
        return [server for server in servers if not policy.tool_objection(server, steps_planned[: number - 1], step)]

    steps_planned = run.trace.plan.steps
    steps = expected_disclosures(steps_planned, question_for, reached, tools_of)
    return [*(planning if run.trace.planning.calls else ()), *steps]


def stored_flow(store: TraceStore, run: str, step: int | None) -> list[Disclosure]:
    """Which model read what in a stored run, or for one step of it. Raises `UsageError` for a step without a call."""
    sent = [call for call in disclosures_of(store.events(run), recipient_of) if step in (None, call.step[0])]
    if step is not None and not sent:
        raise UsageError(f"step {step} of run {run} called no model", hint="omit --step to see all steps")
    return sent


def recipients_of(pool: Pool) -> Mapping[str, str]:
    """Who reads what each worker is sent: a provider, a host, or this machine."""
    return {worker.name: recipient_of(worker) for worker in pool}
