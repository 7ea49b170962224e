"""What one run is, as values: `RunSpec`, and `Team`, those who take part in it.

What outlives runs is the `Orchestra` of `run/orchestra.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from conductor_cli.core.chat import Request
from conductor_cli.core.errors import Failure
from conductor_cli.core.events import Mode
from conductor_cli.core.plan import MAX_STEPS, Plan, PlanRules, asks_self
from conductor_cli.core.plan_formats import PlanFormatContext
from conductor_cli.core.policy import PoolPolicy, plan_rules
from conductor_cli.core.pool import Limits, Pool
from conductor_cli.core.profile import PROMPTED, Profile, WorkerProfile
from conductor_cli.core.prompts import plan_format_context, planner_request
from conductor_cli.core.question import Question
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import Price
from conductor_cli.models.base import Model
from conductor_cli.programs.turns import FairPlaces
from conductor_cli.run.budget import CallBudget


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Who takes part in a run and how each is asked: the planner, the workers, and the policy."""

    model: Model | None  # The planner; None where every run brings its plan
    pool: Pool
    workers: Mapping[str, Model]  # A model for each name in `pool`
    # Workers that cannot be asked, and why
    unavailable: Mapping[str, Failure] = field(default_factory=dict)
    pool_policy: PoolPolicy = PoolPolicy()  # Who may be asked, and shown what
    name: str = "conductor"  # The planner's, with its file hash
    planner_worker: str = ""  # The worker that is the same model as the planner
    recipient: str = ""  # Who receives what the planner is sent
    key_hint: str = ""  # What to do where the planner's key is refused
    price: Price | None = None  # The planner's; None where it is not known
    constrained: bool = False  # The planner's backend obeys grammars
    profile: Profile = PROMPTED
    max_steps: int = MAX_STEPS  # Of a plan, where the limits do not say
    worker_profile: WorkerProfile = WorkerProfile()
    # The steps of a usual plan of this user, for estimates; None where nobody knows
    usual_steps: Callable[[], int | None] = lambda: None
    # What plans of the planner of this name were measured to gain; empty where nothing was
    describe_gain: Callable[[str], str] = lambda _: ""
    mode: Mode = "auto"
    # Where no worker can do a step, the planner is asked once for the rest of the plan
    revises: bool = False
    # The last step reads what no other one does; in training a plan earns what it says
    joins_unread_steps: bool = True
    notices: tuple[str, ...] = ()  # What a user is told of the team at the start of a run
    turns: Mapping[int, FairPlaces] | None = None
    """Those of `model_turns`, for several runs at once that share the models; None gives each run
    its own.
    """

    @property
    def holds_answer(self) -> bool:
        """Whether what the last step writes may be no answer.

        A verdict on the one before it, or a refusal.
        """
        return bool(self.profile.verdicts or self.worker_profile.refusal)

    def rules(
        self,
        limits: Limits,
        *,
        given: bool,
        depth_left: int,
        down: Collection[str] = (),
        excluded: Collection[str] = (),
    ) -> PlanRules:
        """Return the rules of a plan that this team can do."""
        return plan_rules(
            self.pool,
            limits,
            down=down,
            given=given,
            depth_left=depth_left,
            excluded=excluded,
            most=self.max_steps,
        )

    def context(self, rules: PlanRules) -> PlanFormatContext:
        """Return what a plan format is told of the team and of these rules."""
        return plan_format_context(
            self.profile, self.pool, rules, self.mode, constrained=self.constrained
        )

    def planning_request(self, question: Question, limits: Limits) -> Request:
        """Return the first request to the planner for a plan of `question`."""
        depth_left = max(limits.recursion, 1)
        rules = self.rules(limits, given=bool(question.given), depth_left=depth_left)
        return planner_request(question, self.pool, self.profile, self.context(rules))


@dataclass(frozen=True, kw_only=True)  # Without slots for `fast_replace`
class RunSpec:
    """What one run is: what is asked, under which limits, by whom, and how its reader takes it."""

    question: Question
    id: str = ""  # Of `new_run_id`, where the run was announced before it could begin
    plan: Plan | None = None  # Then nothing is planned
    resume: Trace | None = None
    """The run whose finished steps are reused: only what is missing of it is done. Where it has
    this `id`, its process was lost, and the run itself goes on without beginning anew.
    """
    plan_only: bool = False  # No step is started, and the answer stays empty
    skips_planner: bool = False  # Where it has nothing to choose, one worker answers in one call
    is_plain: bool = False  # So it is whatever the settings say of plans: the user has said so
    approves: bool = False  # No step is started before `Run.decide` was told so
    reviews: bool = True  # The reviews that `limits.review` asks for are appended to the plan

    team: Team | None = None  # None for that of the orchestra
    limits: Limits | None = None  # None for those of the orchestra
    seed: int | None = None  # It goes with every call; None for that of the orchestra
    budget: CallBudget | None = None  # What many runs at once are paid from

    origin: str = ""  # Who asks, as the trace says it
    notices: tuple[str, ...] = ()  # Shown at the start of the run, after those of the team
    asks_about_tools: bool = False
    """Somebody can be asked about a call of a tool that needs approval; otherwise it is refused."""

    streams_answer: bool = False
    """The text of the answering step is shown as it comes, so that step is not tried again once it
    has written.
    """
    streams_nested: bool = False  # So is that of a nested run whose answer is the run's
    # Set while the reader of the run keeps up: a worker's answer waits for it
    keeps_up: asyncio.Event | None = None
    # The reader stores the start of the run, and no model is called before that
    stored: bool = False
    # Another process goes on with the run where this one is gone, which then makes no call
    leased: bool = False

    @property
    def begins_again(self) -> bool:
        """Whether it resumes a run without a planner, which ended before its one step was stored.

        The same worker is asked then, whatever the settings say of planners today.
        """
        resumed = self.resume
        return resumed is not None and resumed.is_unplanned and resumed.plan is None

    def needs_planner(self, limits: Limits) -> bool:
        """Return whether a planner is needed, as far as a run under `limits` can know before it."""
        if self.begins_again:
            return self.reviews and limits.recursion > 0
        given = self.plan
        if given is None and self.resume is not None and isinstance(self.resume.plan, Plan):
            given = self.resume.plan
        if given is None or self.plan_only:
            return True
        is_reviewed = self.reviews and limits.recursion > 0
        return is_reviewed or asks_self(given.steps)
