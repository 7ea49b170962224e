"""One process of the benchmark of the local conductor: `live_conductor.py JOB BEGAN WHAT [NUMBER]` prints JSON.

JOB is a JSON file with the model and the directory for what is remembered, BEGAN the monotonic time at which this
process was started; times are in seconds from there. WHAT: `plan` and `mini` put one question to a `Conductor`, with
NUMBER as the token that the grammar refuses first; `restore` takes the prefix from disk; `decode` writes the plan in
turns with the raw loop of llama.cpp, NUMBER rounds; `live` puts NUMBER questions, one after the other.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import raw_loop
from forced import PLAN, POOL, QUESTION, SHORT, Forced, request, spelled, tokens
from resident import peak, resident

from conductor_cli.core.chat import Message, Request
from conductor_cli.core.events import Event, Mode, PlanReady, StepStarted
from conductor_cli.core.plan import Plan
from conductor_cli.core.question import Question
from conductor_cli.core.usage import Usage
from conductor_cli.models.base import ScriptedModel
from conductor_cli.models.llama import Llama, LlamaOptions
from conductor_cli.run import Conductor

Found = dict[str, Any]

PAIRS = 5
"""How often the prefix is taken from disk."""


async def main(job: Mapping[str, Any], began: float, what: str, number: int) -> Found:
    """Measure what is named."""
    took = {"import": time.monotonic() - began}
    cache = Path(job["cache"])
    if what == "restore":
        return await restore(Path(job["model"]), cache, job["context"])
    async with loaded(Path(job["model"]), cache, job["context"]) as model:
        took["load"] = time.monotonic() - began
        if what == "decode":
            return await decode(model, number)
        if what == "live":
            return await live(model, number)
        return await one(model, "mini" if what == "mini" else "auto", number, Clock(began, took))


@asynccontextmanager
async def loaded(path: Path, cache: Path, context: int) -> AsyncIterator[Llama]:
    """A model, loaded, with room for so many tokens."""
    model = Llama(path, LlamaOptions(context=context, cache=cache))
    try:
        await model.load()
        yield model
    finally:
        await model.close()


class Clock:
    """When each thing happened first."""

    def __init__(self, began: float, took: dict[str, float]) -> None:
        self._began, self.took = began, took

    def see(self, event: Event) -> None:
        """A step was handed to its worker; the plan is whole."""
        name = {StepStarted: "step", PlanReady: "plan"}.get(type(event))
        if name is not None:
            self.took.setdefault(name, time.monotonic() - self._began)


def conductor(model: Llama, mode: Mode = "auto") -> Conductor:
    """Over workers that answer at once."""
    workers = {name: ScriptedModel(scripts=[["Done."]]) for name in POOL.names}
    return Conductor(model=model, pool=POOL, workers=workers, mode=mode, constrained=True)


async def asked(conductor: Conductor, question: Question, clock: Clock | None = None) -> tuple[Plan, Usage]:
    """The plan that a question gets, and what it cost."""
    ready: PlanReady | None = None
    async for event in conductor.run(question):
        if clock is not None:
            clock.see(event)
        ready = event if isinstance(event, PlanReady) else ready
    if ready is None or not isinstance(ready.plan, Plan):
        raise SystemExit("there is no plan")
    return ready.plan, ready.usage


async def one(model: Llama, mode: Mode, refused: int, clock: Clock) -> Found:
    """One question from a new process."""
    with Forced(spelled(PLAN), refused) as forced:
        plan, usage = await asked(conductor(model, mode), QUESTION, clock)
    if mode == "auto" and plan != PLAN:
        raise SystemExit(f"the plan is another one: {plan}")
    return {
        "took": clock.took, "peak": peak(), "draws": [draw for reply in forced.draws for draw in reply],
        "refusals": forced.refusals, "read": usage.tokens_in, "cached": usage.tokens_cached,
    }  # fmt: skip


async def restore(path: Path, cache: Path, context: int) -> Found:
    """Seconds that a prefix costs: computed, and taken from disk. What comes behind it is taken off by a live prefix.

    Each request has a word of its own right behind the prefix, so that nothing else is shared.
    """
    async with loaded(path, cache / "empty", context) as model:
        first, again = await seconds(model, " one"), await seconds(model, " two")
    computed, prefix = first[0] - again[0], again[1].tokens_cached
    pairs: list[float] = []
    for _ in range(PAIRS):
        async with loaded(path, cache, context) as model:
            from_disk, live = await seconds(model, " one"), await seconds(model, " two")
        if {from_disk[1].tokens_cached, live[1].tokens_cached} != {prefix}:
            raise SystemExit(f"the prefix did not come from disk: {from_disk[1]}")
        pairs.append(from_disk[0] - live[0])
    if first[1].tokens_cached:
        raise SystemExit(f"the prefix was not computed: {first[1]}")
    return {"computed": computed, "restored": pairs, "tokens": prefix}


async def seconds(model: Llama, word: str) -> tuple[float, Usage]:
    """How long it takes until one token is there, behind the prefix and `word`."""
    prompt = request()
    system = replace(prompt.messages[0], content=prompt.messages[0].content + word)
    asked = Request(messages=(system, Message(role="user", content="1")), max_tokens=1, cuts=prompt.cuts)
    began = time.perf_counter()
    usage = await usage_of(model, asked)
    return time.perf_counter() - began, usage


async def usage_of(model: Llama, asked: Request) -> Usage:
    """What a request took, which is answered to its end."""
    usages = [chunk.usage async for chunk in model.stream(asked)]
    if not usages or usages[-1] is None:
        raise SystemExit("the model did not say what it used")
    return usages[-1]


async def decode(model: Llama, rounds: int) -> Found:
    """Seconds for each token of the plan, in turns with the raw loop at the same depth."""
    ours: list[float] = []
    theirs: list[float] = []
    raw: raw_loop.Raw | None = None
    with Forced(spelled(PLAN)) as forced:
        for _ in range(rounds):
            usage = await usage_of(model, request())
            times = forced.times[-1]
            ours.append((times[-1] - times[0]) / (len(times) - 1))
            raw = raw or raw_loop.Raw(forced.context, usage.tokens_in)
            theirs.append(raw.run(len(times) - 1))
    return {"ours": ours, "theirs": theirs}


async def live(model: Llama, count: int) -> Found:
    """Many questions to one process: what it holds after each, what each reads, and what it has to read."""
    found: Found = {"resident": [], "read": [], "own": [], "seconds": []}
    team = conductor(model)
    with Forced(spelled(SHORT)) as forced:
        for number in range(count):
            question = Question(
                text=f"Question {number} of its kind: what is {number * 37} times {number + 2}, and why?"
            )
            began = time.perf_counter()
            _, usage = await asked(team, question)
            found["seconds"].append(time.perf_counter() - began)
            found["resident"].append(resident())
            found["read"].append(usage.tokens_in - usage.tokens_cached)
            found["own"].append(own(forced, question))
    return found


def own(forced: Forced, question: Question) -> int:
    """The tokens of a prompt behind its prefix: those of the question and of the template around it."""
    import llama_cpp

    turn = request(question=question).messages[1].content
    behind = f"<|im_end|>\n<|im_start|>user\n{turn}<|im_end|>\n<|im_start|>assistant\n"
    return len(tokens(llama_cpp, forced.context, behind, special=True)) - 1


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    number = int(sys.argv[4]) if len(sys.argv) > 4 else -1
    print(json.dumps(asyncio.run(main(given, float(sys.argv[2]), sys.argv[3], number))))
