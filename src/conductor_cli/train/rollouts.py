"""Plans that were sampled elsewhere, run by the `Conductor` itself over real workers: what is trained is what runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.core.pool import Limits, Pool
from conductor_cli.core.profile import speciality
from conductor_cli.core.prompts import conductor_request
from conductor_cli.core.question import Question
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import Usage
from conductor_cli.models.port import Model
from conductor_cli.rehearsal import conducting, workers
from conductor_cli.run.conductor import Conductor
from conductor_cli.train.exercises import Exercise
from conductor_cli.train.rewards import is_valid, reward

NOTHING: Final = "?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a conductor wrote for an exercise; `whole`: it ended by itself, and not by a limit."""

    exercise: Any
    text: str
    whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it. `reward` None: a worker failed.

    `calls` are those of workers; `tokens` those of all models, in and out; `cost` is in US dollars, None where nothing
    that was used has a price. `routes` say, step by step, to whom or what kind of worker it went. `fitting` says of
    each hop whether the step in its place went to a worker that is good at it, or at nothing in particular where nobody
    is; it is empty where the plan has another number of steps.
    """

    reward: float | None
    valid: bool
    steps: int = 0
    calls: int = 0
    tokens: int = 0
    cost: Decimal | None = None
    routes: tuple[str, ...] = ()
    fitting: tuple[tuple[str, bool], ...] = ()

    @property
    def right(self) -> bool:
        return self.reward == 1.0


class Spoken:
    """A conductor model that says one text, once: a plan that was sampled is not repaired."""

    def __init__(self, text: str, *, whole: bool) -> None:
        self._text = text
        self._whole = whole
        self._said = False

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """The text, whatever is asked."""
        del request
        if self._said:
            raise ModelError("refused", "a sampled plan is read once")
        self._said = True
        yield Chunk(text=self._text)
        yield Chunk(usage=Usage(calls=1), finish="stop" if self._whole else "length")

    async def close(self) -> None:
        """Nothing is held."""


class Worded:
    """A worker that says `NOTHING` where it would end without a word.

    A run would give the step to another worker. Here whoever asks a worker for what it cannot do shall hear of it.
    """

    def __init__(self, model: Model) -> None:
        self._model = model

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """What the worker says, and a word at the end where that is none."""
        silent = True
        async with aclosing(self._model.stream(request)) as chunks:
            async for chunk in chunks:
                silent = silent and not chunk.text.strip()
                if chunk.finish is not None and silent:
                    yield Chunk(text=NOTHING)
                yield chunk

    async def close(self) -> None:
        """Close the worker's model."""
        await self._model.close()


@dataclass(slots=True, kw_only=True)
class Rollouts:
    """Runs what was written. The same text for the same exercise is run once: the workers draw no lots.

    `pool` has the workers with their cards, `models` one model for each of them.
    """

    pool: Pool
    models: Mapping[str, Model]
    known: dict[tuple[str, tuple[str, ...], str, bool], Outcome] = field(default_factory=dict)

    def prompt(self, exercise: Exercise) -> str:
        """What the conductor reads, as the program itself would write it."""
        conductor = self._conductor(exercise)
        terms = conductor.terms(down=(), given=False, depth_left=1)
        question = Question(text=exercise.problem.question)
        return conductor_request(question, conductor.pool, conductor.profile, terms).messages[0].content

    async def outcomes(self, written: Sequence[Written]) -> list[Outcome]:
        """What came of each, in order."""
        new = {_key(item): item for item in written if _key(item) not in self.known}
        found = await asyncio.gather(*(self._outcome(item) for item in new.values()))
        self.known |= {key: outcome for key, outcome in zip(new, found, strict=True) if outcome.reward is not None}
        failed = {key: outcome for key, outcome in zip(new, found, strict=True) if outcome.reward is None}
        return [failed.get(_key(item)) or self.known[_key(item)] for item in written]

    async def planned(
        self,
        model: Model,
        exercises: Sequence[Exercise],
        *,
        temperature: float = 0.0,
        seed: int = 0,
        exact: bool = False,
    ) -> list[Outcome]:
        """What comes of the plans that `model` itself writes, one after the other; `exact`: held by the grammar."""
        profile = replace(conducting.PROFILE, sampling=replace(conducting.PROFILE.sampling, temperature=temperature))
        found = []
        for number, item in enumerate(exercises):
            conductor = replace(self._conductor(item, model), profile=profile, exact=exact, seed=seed + number)
            found.append(await self._run(conductor, item))
        return found

    async def _outcome(self, item: Written) -> Outcome:
        return await self._run(self._conductor(item.exercise, Spoken(item.text, whole=item.whole)), item.exercise)

    async def _run(self, conductor: Conductor, exercise: Exercise) -> Outcome:
        trace = await traced(conductor, exercise.problem.question)
        worth = reward(trace, lambda text: workers.clean(text) == exercise.problem.answer)
        kinds = {worker.name: speciality(worker.card) for worker in self.pool}
        offered = {kinds[name] for name in exercise.names}
        hops = [(hop.skill, hop.skill if hop.skill in offered else "any") for hop in exercise.problem.hops]
        return outcome_of(trace, worth, kinds.__getitem__, hops)

    def _conductor(self, exercise: Exercise, model: Model | None = None) -> Conductor:
        return Conductor(
            model=model, pool=exercise.pool(self.pool), workers=self.models, profile=conducting.PROFILE,
            worker_profile=workers.PROFILE, limits=Limits(attempts=1), exact=False,
        )  # fmt: skip


def _key(item: Written) -> tuple[str, tuple[str, ...], str, bool]:
    return item.exercise.problem.question, item.exercise.names, item.text, item.whole


async def traced(conductor: Conductor, question: str) -> Trace:
    """The trace of a run from its beginning to its end."""
    run = conductor.run(Question(text=question))
    async for _ in run:
        pass
    return run.trace


def outcome_of(
    trace: Trace, worth: float | None, route: Callable[[str], str], hops: Sequence[tuple[str, str]] = ()
) -> Outcome:
    """What a trace says. `route` names the way that a worker stands for; `hops` are skills, each with the way to it."""
    spent = Outcome(reward=worth, valid=is_valid(trace), tokens=trace.usage.tokens, cost=trace.usage.cost)
    if not spent.valid:
        return spent
    routes = tuple(route(record.step.worker) for record in trace.steps)
    calls = sum(record.state == "done" for record in trace.steps)
    pairs = zip(hops, routes, strict=True) if len(hops) == len(routes) else ()
    fitting = tuple((skill, found == wanted) for (skill, wanted), found in pairs)
    return replace(spent, steps=len(routes), calls=calls, routes=routes, fitting=fitting)
