"""Planning: the conductor's text becomes steps while it is being written.

A fault in the text is shown back once, with the steps that stand; after that the best worker is taken for what is
missing. So there is always a plan, and each detour is an event.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Request
from conductor_cli.core.errors import ConductorError, Failure, FailureKind, LimitReached, ModelError, PlanError
from conductor_cli.core.plan import SELF, Accept, Plan, Step, check
from conductor_cli.core.policy import rules_for
from conductor_cli.core.pool import Pool, Usage, priced
from conductor_cli.core.prompts import conductor_request, terms_for
from conductor_cli.core.spellings import SPELLINGS, Parsed, Terms
from conductor_cli.core.spellings.terms import DIRECT
from conductor_cli.core.trace import Trace
from conductor_cli.run.calls import estimated, within

if TYPE_CHECKING:
    from conductor_cli.run.stream import Run

TRIES = 2
"""How often the conductor may write: once, and once more after a fault."""

REVIEW = "Check the answer at hand against the question. Accept it if it stands; otherwise have it corrected."
FINISH = "Answer the question, using what the earlier steps found."


async def make_plan(run: Run) -> Failure | None:
    """Have the run's plan made, read from a file, or taken over; each step is announced as it comes.

    Returns what makes planning impossible, None when there is a plan.
    """
    terms = _terms(run)
    if run.given_plan is not None:
        return _announce(run, run.given_plan, terms)
    if run.resumed is not None:
        _take_over(run, run.resumed)
        if isinstance(run.resumed.plan, Plan):
            run.emit(ev.PlanReady(at=run.now(), plan=run.resumed.plan, usage=Usage()))
            run.advance()
            return None
    return await _write(run, terms)


def _terms(run: Run) -> Terms:
    setting = run.setting
    rules = rules_for(
        setting.pool, setting.limits, down=run.down, given=bool(run.question.given), depth_left=run.depth_left
    )
    return terms_for(setting.profile, setting.pool, rules, setting.mode, exact=setting.exact)


def _announce(run: Run, plan: Plan, terms: Terms) -> Failure | None:
    try:
        check(plan, terms.rules)
    except PlanError as error:
        return Failure(kind="usage", message=error.message, hint=error.hint)
    for number, step in enumerate(plan.steps, start=1):
        _announce_step(run, Parsed(number=number, step=step, last=number == len(plan.steps)))
    run.emit(ev.PlanReady(at=run.now(), plan=plan, usage=Usage()))
    return None


def _take_over(run: Run, earlier: Trace) -> None:
    """Steps of an earlier run: what is done counts, what is not is planned again as it stood."""
    done = ", ".join(map(str, earlier.done()))
    run.notice(f"taken over from run {earlier.run}: {f'finished steps {done}' if done else 'the plan'}")
    for record in earlier.steps:
        if record.state == "done":
            run.finished_before(record)
        else:
            run.planned(record.number, record.step, last=record.last)


async def _write(run: Run, terms: Terms) -> Failure | None:
    """Ask the conductor, at most `TRIES` times, and fall back on the best worker."""
    fault = ""
    for attempt in range(1, TRIES + 1):
        standing = tuple(record.step for record in run.trace.steps)
        terms = replace(terms, first=len(standing) + 1)
        request = conductor_request(
            run.question, run.setting.pool, run.setting.profile, terms, standing=standing, fault=fault
        )
        request = replace(request, seed=run.setting.seed)
        reader = _Reader(run, terms, standing)
        try:
            await reader.read(request)
            reader.ready()
        except PlanError as error:
            fault = error.message
            run.emit(reader.rejected(attempt, error.line, error.message, error.hint))
            continue
        except LimitReached as error:
            run.reach_limit(error.failure)
            return error.failure
        except ModelError as error:
            if not error.retryable:
                return _conductor_failed(error)
            fault = ""
            run.emit(reader.rejected(attempt, "", error.message, error.hint))
            continue
        return None
    _fall_back(run)
    return None


def _conductor_failed(error: ConductorError) -> Failure:
    """A key is a key; whatever else makes a conductor unusable is told as that."""
    failure = error.failure
    kind: FailureKind = "key" if failure.kind == "key" else "conductor"
    return Failure(kind=kind, message=f"the conductor cannot plan: {failure.message}", hint=failure.hint)


class _Reader:
    """Reads one reply of the conductor and announces its steps."""

    def __init__(self, run: Run, terms: Terms, standing: tuple[Step, ...]) -> None:
        self.run = run
        self.terms = terms
        self.parser = SPELLINGS[run.setting.profile.spelling].parser(terms)
        self.steps = list(standing)
        self.accepted: Accept | None = None
        self.whole = False
        self.text = ""
        self.usage = Usage()

    async def read(self, request: Request) -> None:
        """Stream the reply. Raises `PlanError` or `ModelError`; what was announced stands."""
        model = self.run.setting.model
        if model is None:
            raise ModelError("missing", "there is no conductor model to plan with")
        reservation = self.run.ledger.reserve(
            estimated(request, "").tokens_in, request.max_tokens or 0, self.run.setting.price, call=False
        )
        self.usage = estimated(request, "")
        try:
            async with aclosing(within(model.stream(request), self.run.setting.patience)) as chunks:
                async for chunk in chunks:
                    self._take(chunk.text)
                    if chunk.note:
                        self.run.notice(f"the conductor: {chunk.note}")
                    self.usage = chunk.usage or estimated(request, self.text)
            if not self.whole:
                self._accept(self.parser.end())
        finally:
            self.usage = priced(self.usage, self.run.setting.price)
            if reservation is not None:
                self.run.ledger.settle(reservation, self.usage)
                self.run.room.set()

    def _take(self, text: str) -> None:
        if not text:
            return
        self.text += text
        self.run.emit(ev.PlanDelta(at=self.run.now(), text=text))
        if not self.whole:
            self._accept(self.parser.feed(text))

    def _accept(self, parsed: Iterable[Parsed | Accept]) -> None:
        for item in parsed:
            if isinstance(item, Accept):
                self.accepted, self.whole = item, True
                return
            self.steps.append(item.step)
            self.whole = item.last
            _announce_step(self.run, item)
            if item.last:
                return

    def ready(self) -> None:
        plan: Plan | Accept = self.accepted or Plan(
            steps=tuple(record.step for record in self.run.trace.steps), reasoning=self.parser.reasoning.strip()
        )
        self.run.emit(ev.PlanReady(at=self.run.now(), plan=plan, usage=self.usage))

    def rejected(self, attempt: int, text: str, problem: str, hint: str) -> ev.PlanRejected:
        return ev.PlanRejected(
            at=self.run.now(), attempt=attempt, text=text, problem=problem, hint=hint, usage=self.usage
        )


def _announce_step(run: Run, item: Parsed) -> None:
    """A planned step; behind the last one, with `--recursion`, a review by the conductor itself."""
    appended = item.last and run.appended > 0
    run.planned(item.number, item.step, last=item.last and not appended)
    if appended:
        everything = tuple(range(1, item.number + 1))
        run.planned(item.number + 1, Step(worker=SELF, subtask=REVIEW, access=everything), last=True)


def _fall_back(run: Run) -> None:
    """A plan nobody wrote: the best worker answers, seeing whatever stands."""
    standing = tuple(record.number for record in run.trace.steps)
    allowed = rules_for(run.setting.pool, run.setting.limits, down=run.down, given=False, depth_left=0).workers
    worker = Pool(workers=tuple(run.setting.pool[name] for name in allowed)).best().name
    run.notice(f"no valid plan: {worker} takes the question")
    number = len(standing) + 1
    step = Step(worker=worker, subtask=FINISH if standing else DIRECT, access=standing)
    _announce_step(run, Parsed(number=number, step=step, last=True))
    plan = Plan(steps=tuple(record.step for record in run.trace.steps))
    run.emit(ev.PlanReady(at=run.now(), plan=plan, usage=Usage()))
