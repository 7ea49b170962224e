"""What the tests of a run share.

A clock that only waiting moves, conductors by script, what holds for every stream.

On `VirtualLoop` a sleep costs nothing and an order of events is exact, so scripts may hold pauses.
Where everybody waits for somebody else the loop says so instead of hanging.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import Failure
from conductor_cli.core.plan import MAX_STEPS, Plan, Step
from conductor_cli.core.pool import Limits, Pool, Worker
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import Question
from conductor_cli.core.trace import Trace, apply_event
from conductor_cli.core.usage import FREE, Usage
from conductor_cli.models.base import ALL_FEATURES, Model, ScriptedModel
from conductor_cli.run import Orchestra, Run, RunSpec, Team, start_run

T = TypeVar("T")

BLIND = WorkerProfile(
    render=lambda question, step, _: f"{question.text}\nDo this now: {step.subtask}"
)
"""Workers with prompts of their own, which are shown nothing that is not planned."""
QUESTION = Question(text="What is 6 times 7?")


class _Jumping(selectors.DefaultSelector):
    """Never waits: tells the loop how far it would have."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("everybody waits for somebody else")
        self.now += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time goes on only while everybody waits, and then at once."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on a `VirtualLoop`; no task may be left behind."""

    async def watched() -> T:
        try:
            return await main
        finally:
            for _ in range(3):
                await asyncio.sleep(0)
            left = [
                task.get_name()
                for task in asyncio.all_tasks()
                if task is not asyncio.current_task()
            ]
            assert not left, f"tasks left behind: {left}"

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(watched())


def now() -> float:
    return asyncio.get_running_loop().time()


def says(*texts: Any) -> ScriptedModel:
    """A model that gives this one reply again and again."""
    return ScriptedModel([texts])


def pool_of(*names: str, **options: Any) -> Pool:
    return Pool(workers=tuple(Worker(name=name, kind="scripted", **options) for name in names))


def with_self(*names: str, **options: Any) -> Pool:
    return Pool(workers=(*pool_of(*names, **options).workers, Worker(name="self", kind="self")))


WITH_SELF = with_self("ann", "bob")


def setting(
    plan: Model | str | list[Any] | None = None,
    workers: Mapping[str, Model] | None = None,
    **options: Any,
) -> Orchestra:
    """Return an orchestra that writes `plan`, over workers by name.

    Each answers with its name unless told otherwise.
    """
    models = dict(
        workers or {"ann": says("from ann"), "bob": says("from bob"), "cyd": says("from cyd")}
    )
    model: Any = plan
    if isinstance(plan, str):
        model = says(plan)
    elif isinstance(plan, list):
        model = ScriptedModel([plan])
    options.setdefault("pool", pool_of(*models))
    options.setdefault("clock", now)
    options.setdefault(
        "price", FREE if "limits" in options and options["limits"].cost is not None else None
    )
    options.setdefault("random", random.Random(1))
    # A script may write several steps also where the pool has one worker, whose default is one
    # step.
    limits = options.get("limits", Limits())
    options["limits"] = replace(limits, steps=limits.steps or MAX_STEPS)
    return orchestra_of(model=model, workers=models, **options)


def orchestra_of(**values: Any) -> Orchestra:
    """An orchestra by the fields of its team and its own."""
    names = {field.name for field in fields(Team)}
    team = {name: value for name, value in values.items() if name in names}
    others = {name: value for name, value in values.items() if name not in names}
    return Orchestra(team=Team(**team), **others)


def with_team(orchestra: Orchestra, **changes: Any) -> Orchestra:
    """The same orchestra with another team."""
    return replace(orchestra, team=replace(orchestra.team, **changes))


def start(orchestra: Orchestra, question: Question = QUESTION, **fields: Any) -> Run:
    """Start a question. `fields` is what else a `RunSpec` is told."""
    return start_run(orchestra, RunSpec(question=question, **fields))


async def read(run: Run) -> list[ev.Event]:
    return [event async for event, _ in run]


def play(
    orchestra: Orchestra,
    question: Question = QUESTION,
    act: Callable[[Run, ev.Event], object] | None = None,
    **fields: Any,
) -> tuple[Run, list[ev.Event]]:
    """Run a question to its end, and hold the stream to all rules.

    `act` is called with each event as it is read. `fields` is what else a `RunSpec` is told.
    """

    async def main() -> tuple[Run, list[ev.Event]]:
        run = start(orchestra, question, **fields)
        events = list[ev.Event]()
        async for event, _ in run:
            events.append(event)
            if act is not None:
                act(run, event)
        return run, events

    run, events = virtually(main())
    hold(run, events)
    return run, events


def later(seconds: float, *call: Any) -> None:
    asyncio.get_running_loop().call_later(seconds, *call)


def play_and_stop(
    orchestra: Orchestra, at: float, *stop: Any, **fields: Any
) -> tuple[Run, list[ev.Event]]:
    """As `play`, but the run is stopped `at` seconds after its start."""

    def act(run: Run, event: ev.Event) -> None:
        if isinstance(event, ev.RunStarted):
            later(at, run.stop, *stop)

    return play(orchestra, act=act, **fields)


def of(events: Sequence[ev.Event], *kinds: type) -> list[Any]:
    return [event for event in events if isinstance(event, kinds)]


def kinds(events: Sequence[ev.Event]) -> list[str]:
    """The kinds in order, pieces of text left out."""
    return [event.kind for event in events if not isinstance(event, (ev.PlanDelta, ev.StepDelta))]


def error_of(run: Run) -> Failure:
    assert run.trace.error is not None
    return run.trace.error


def notices(events: Sequence[ev.Event]) -> list[str]:
    return [event.text for event in of(events, ev.Notice)]


def inner(events: Sequence[ev.Event], step: int) -> list[ev.Event]:
    """The stream of the nested run that a step is."""
    return [event.event for event in of(events, ev.NestedEvent) if event.step == step]


def hold(run: Run, events: list[ev.Event]) -> None:
    """Every rule that holds for every stream."""
    assert run.trace == fold(events)
    assert fold([ev.from_line(ev.to_line(event)) for event in events]) == run.trace
    sound(events, planned_only=run.spec.plan_only)
    assert sum_of(events) + run.state.work.unreported_usage == run.trace.usage
    assert not run.state.resources.ledger._held


def fold(events: Sequence[ev.Event]) -> Trace:
    trace = Trace()
    for event in events:
        trace = apply_event(trace, event)
    return trace


def sum_of(events: Sequence[ev.Event]) -> Usage:
    endings = of(
        events, ev.PlanRejected, ev.PlanReady, ev.StepFailed, ev.StepStopped, ev.StepFinished
    )
    return sum((event.usage for event in endings), Usage())


def sound(events: Sequence[ev.Event], *, planned_only: bool = False) -> None:
    """A stream by itself.

    Its begin, its one end, its order, its times, its texts, and the same for what is nested.
    """
    assert isinstance(events[0], ev.RunStarted)
    assert [isinstance(event, (ev.RunFinished, ev.RunFailed)) for event in events].count(True) == 1
    assert isinstance(events[-1], (ev.RunFinished, ev.RunFailed))
    assert [event.at for event in events] == sorted(event.at for event in events)
    taken_back = [
        n for n, e in enumerate(events) if isinstance(e, ev.PlanDecided) and e.verdict != "approved"
    ]
    assert not of(events[: max(taken_back, default=0)], ev.StepStarted)
    events = events[max(taken_back, default=0) :]
    steps: dict[int, ev.StepPlanned] = {event.step: event for event in of(events, ev.StepPlanned)}
    assert list(steps) == list(range(1, len(steps) + 1))
    running: dict[int, int] = {}
    texts: dict[int, str] = {}
    ended: list[int] = []
    for event in events:
        match event:
            case ev.StepStarted():
                assert event.step not in running
                assert event.step not in ended
                assert all(earlier in ended for earlier in steps[event.step].access if earlier > 0)
                running[event.step] = event.attempt
                texts[event.step] = ""
            case ev.StepDelta():
                assert running[event.step] == event.attempt
                texts[event.step] += event.text
            case ev.ToolCalled():
                assert running[event.step] == event.attempt
                texts[event.step] = ""
            case ev.StepFinished():
                assert running.pop(event.step) == event.attempt
                assert texts[event.step] == event.text
                ended.append(event.step)
            case ev.StepFailed():
                running.pop(event.step, None)
                if event.retry_in is None and event.substitute is None:
                    ended.append(event.step)
            case ev.StepStopped():
                running.pop(event.step, None)
                ended.append(event.step)
    assert not running
    assert len(ended) == len(set(ended))
    assert planned_only or sorted(ended) == sorted(steps)
    for step in steps:
        nested = inner(events, step)
        if nested:
            sound(nested)


def raising(error: Callable[[], BaseException], *after: str | float) -> ScriptedModel:
    """A model that raises what no adapter may raise."""

    def reply(_: Request) -> Iterator[str | float]:
        yield from after
        raise error()

    return ScriptedModel(reply=reply)


class Counting:
    """A model that takes `seconds` for each reply and knows how many of them were open at once."""

    features = ALL_FEATURES

    def __init__(self, text: str = "done", seconds: float = 1.0) -> None:
        self.text = text
        self.seconds = seconds
        self.open = 0
        self.most = 0

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            await asyncio.sleep(self.seconds)
            yield Chunk(text=self.text)
            yield Chunk(usage=Usage(tokens_in=10, tokens_out=5, calls=1), finish="stop")
        finally:
            self.open -= 1

    async def close(self) -> None: ...


def plan_of(*steps: tuple[str, Sequence[int]] | tuple[str, Sequence[int], str]) -> Plan:
    rows = [(*step, "Do it.")[:3] for step in steps]
    return Plan(
        steps=tuple(
            Step(worker=worker, access=tuple(access), subtask=task) for worker, access, task in rows
        )
    )
