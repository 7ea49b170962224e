"""Planning: the conductor's text becomes steps while it is being written.

A fault in the text is shown back once, with the steps that stand; after that the best worker is taken for what is
missing. So there is always a plan, and each detour is an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Request
from conductor_cli.core.errors import ConductorError, Failure, FailureKind, LimitReached, ModelError, PlanError
from conductor_cli.core.plan import SELF, Accept, Plan, Step, check
from conductor_cli.core.policy import rules_for
from conductor_cli.core.pool import Pool
from conductor_cli.core.prompts import conductor_request, spelling_for, terms_for
from conductor_cli.core.spellings import Parsed, Terms
from conductor_cli.core.spellings.terms import DIRECT
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.core.usage import NOTHING, Usage, priced
from conductor_cli.run.calls import estimated, wait_before, within

if TYPE_CHECKING:
    from conductor_cli.models.port import Model
    from conductor_cli.run.workflow import Workflow

TRIES: Final = 2
"""How often the conductor may write: once, and once more after a fault."""

REVIEW: Final = "Check the answer at hand against the question. Accept it if it stands; otherwise have it corrected."
FINISH: Final = "Answer the question, using what the earlier steps found."
UNHEARD: Final = frozenset({"connect", "timeout"})
"""A conductor that never spoke: to answer without it is not what was asked for. Nonsense is got round."""
CLOSING: Final = " \t\r\n`}])."
"""What may follow a whole plan without being worth a word: the end of a fence or of the JSON around it."""


async def make_plan(run: Workflow) -> Failure | None:
    """Have the run's plan made, read from a file, or taken over; each step is announced as it comes.

    Returns what makes planning impossible, None when there is a plan.
    """
    if run.given_plan is not None:
        return _announce(run, run.given_plan)
    if run.resumed is not None and _take_over(run, run.resumed):
        return None
    if run.setting.model is None:
        return Failure(kind="conductor", message="there is no conductor model to plan with")
    return await _write(run, run.setting.model)


def _terms(run: Workflow, first: int = 1) -> Terms:
    setting = run.setting
    rules = rules_for(
        setting.pool, setting.limits, down=run.shared.down, given=bool(run.question.given), depth_left=run.depth_left
    )
    terms = terms_for(setting.profile, setting.pool, rules, setting.mode, exact=setting.exact)
    return replace(terms, first=first)


def _announce(run: Workflow, plan: Plan) -> Failure | None:
    """The steps of a plan that somebody else made. It says who does what, so nobody takes the place of another."""
    for step in plan.steps:
        why = run.shared.down.get(step.worker)
        if why is not None:
            return replace(why, message=f"the plan names {step.worker}, which is left out: {why.message}")
    try:
        rules = _terms(run).rules
        check(plan, replace(rules, workers=(*rules.workers, SELF)))  # a step on the conductor itself needs no worker
    except PlanError as error:
        return Failure(kind="usage", message=error.message, hint=error.hint)
    for number, step in enumerate(plan.steps, start=1):
        _announce_step(run, Parsed(number=number, step=step, last=number == len(plan.steps)))
    _ready(run, _plan_of(run, plan.reasoning))
    return None


def _plan_of(run: Workflow, reasoning: str = "") -> Plan:
    return Plan(steps=tuple(record.step for record in run.trace.steps), reasoning=reasoning.strip())


def _ready(run: Workflow, plan: Plan | Accept, usage: Usage = NOTHING) -> None:
    run.emit(ev.PlanReady(at=run.now(), plan=plan, usage=usage))
    run.advance()


def _take_over(run: Workflow, earlier: Trace) -> bool:
    """Take over the steps of an earlier run: what is done counts, what is not is done. Returns whether that is all."""
    done = ", ".join(map(str, earlier.done()))
    if earlier.steps:
        run.notice(f"taken over from run {earlier.run}: {f'finished steps {done}' if done else 'the plan'}")
    for record in earlier.steps:
        if record.state == "done":
            _show_finished(run, record)
        else:
            run.planned(record.number, record.step, last=record.last)
    if isinstance(earlier.plan, Accept):
        _ready(run, earlier.plan)
    elif earlier.plan is not None or any(record.last for record in earlier.steps):
        _ready(run, earlier.plan or _plan_of(run))
    return run.trace.plan is not None


def _show_finished(run: Workflow, record: StepRecord) -> None:
    """A step that an earlier run finished: its text is taken over and costs nothing now."""
    number = record.number
    run.show(number, record.step, last=record.last)
    run.emit(ev.StepStarted(at=run.now(), step=number, worker=record.worker, attempt=1, prompt=record.prompt))
    run.emit(ev.StepDelta(at=run.now(), step=number, attempt=1, text=record.text, thinking=record.thinking))
    finish = record.finish or "stop"
    run.emit(ev.StepFinished(at=run.now(), step=number, attempt=1, text=record.text, usage=NOTHING, finish=finish))
    run.ended(number)


async def _write(run: Workflow, model: Model) -> Failure | None:
    """Ask the conductor, at most `TRIES` times, and fall back on the best worker."""
    fault = ""
    for attempt in range(1, TRIES + 1):
        standing = _plan_of(run).steps
        terms = _terms(run, first=len(standing) + 1)
        if terms.first > terms.rules.steps:
            break
        reader = _Reader(run, model, terms)
        try:
            await reader.read(standing, fault)
        except PlanError as error:
            fault = error.message
            reader.reject(attempt, error.line, error)
        except LimitReached as error:
            run.reach_limit(error.failure)
            return error.failure
        except ModelError as error:
            if not error.retryable:
                return _conductor_failed(error)
            fault = ""
            reader.reject(attempt, "", error)
            if attempt == TRIES and error.reason in UNHEARD and not run.trace.steps:
                return _conductor_failed(error)
            if attempt < TRIES:
                await asyncio.sleep(wait_before(attempt + 1, error.retry_after, run.setting.random))
        else:
            reader.ready()
            return None
        finally:
            reader.settle()
    _fall_back(run)
    return None


def _conductor_failed(error: ConductorError) -> Failure:
    """A key is a key; whatever else makes a conductor unusable is told as that."""
    failure = error.failure
    kind: FailureKind = "key" if failure.kind == "key" else "conductor"
    return Failure(kind=kind, message=f"the conductor cannot plan: {failure.message}", hint=failure.hint)


class _Reader:
    """Reads one reply of the conductor and announces its steps."""

    def __init__(self, run: Workflow, model: Model, terms: Terms) -> None:
        self.run = run
        self.model = model
        self.terms = terms
        self.parser = spelling_for(run.setting.profile, terms).parser(terms)
        self.accepted: Accept | None = None
        self.whole = False
        self.cut = False
        self.text = ""
        self.said: Usage | None = None
        self.usage = NOTHING

    async def read(self, standing: tuple[Step, ...], fault: str) -> None:
        """Ask and stream the reply. Raises `PlanError`, `ModelError`, `LimitReached`; what was announced stands."""
        run = self.run
        request = conductor_request(
            run.question, run.setting.pool, run.setting.profile, self.terms, standing=standing, fault=fault
        )
        wanted, price = request.max_tokens or 0, run.setting.price
        async with run.shared.turn(self.model):
            reservation = await run.shared.reserve(estimated(request, "").tokens_in, wanted, price, call=False)
            request = replace(request, seed=run.setting.seed, max_tokens=reservation.answer)
            began = run.now()
            try:
                await self._stream(request)
            except ModelError as error:
                # As for workers: a call that failed before its first word is taken to have cost nothing.
                self.said = error.usage or self.said or (None if self.text else Usage(calls=1))
                raise
            finally:
                used = priced(self.said or estimated(request, self.text), price)
                self.usage = replace(used, seconds=round(run.now() - began, 4))
                run.shared.settle(reservation, self.usage)

    async def _stream(self, request: Request) -> None:
        async with aclosing(within(self.model.stream(request), self.run.setting.patience)) as chunks:
            async for chunk in chunks:
                self.said = chunk.usage or self.said
                self.cut = chunk.finish == "length"
                if chunk.note:
                    self.run.notice(f"the conductor: {chunk.note}")
                if self.whole and chunk.text.strip(CLOSING):
                    return  # the plan stands; what it goes on to say about it is not worth waiting for
                self._take(chunk.text)
        if self.cut and not self.whole and not self.terms.single:
            raise PlanError("the text was cut by its token limit", line=self.text[-200:].strip())
        if not self.whole:
            self._accept(self.parser.end())

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
            self.whole = item.last
            _announce_step(self.run, item)
            if item.last:
                return

    def ready(self) -> None:
        _ready(self.run, self.accepted or _plan_of(self.run, self.parser.reasoning), self._told())

    def reject(self, attempt: int, text: str, error: ConductorError) -> None:
        usage = self._told()
        self.run.emit(
            ev.PlanRejected(
                at=self.run.now(), attempt=attempt, text=text, problem=error.message, hint=error.hint, usage=usage
            )
        )

    def _told(self) -> Usage:
        usage, self.usage = self.usage, NOTHING
        return usage

    def settle(self) -> None:
        """What no event has told of counts all the same."""
        self.run.untold += self._told()


def _announce_step(run: Workflow, item: Parsed) -> None:
    """A planned step; behind the last one, with `--recursion`, a review by the conductor itself."""
    appended = item.last and run.appended > 0
    run.planned(item.number, item.step, last=item.last and not appended)
    if appended:
        everything = tuple(range(1, item.number + 1))
        run.planned(item.number + 1, Step(worker=SELF, subtask=REVIEW, access=everything), last=True)


def _fall_back(run: Workflow) -> None:
    """A plan nobody wrote: the best worker answers, seeing whatever stands and whatever was given."""
    number = len(run.trace.steps) + 1
    allowed = rules_for(run.setting.pool, run.setting.limits, down=run.shared.down, given=False, depth_left=0).workers
    worker = Pool(workers=tuple(run.setting.pool[name] for name in allowed)).best().name
    run.notice(f"no valid plan: {worker} takes the question")
    step = Step(worker=worker, subtask=FINISH if number > 1 else DIRECT, access=_terms(run).everything_before(number))
    _announce_step(run, Parsed(number=number, step=step, last=True))
    _ready(run, _plan_of(run))
