"""One process of the benchmark of the local conductor.

`live_conductor.py JOB BEGAN WHAT [NUMBER]` prints JSON.

JOB is a JSON file with the model and the directory for what is remembered, BEGAN the monotonic time
at which this process was started; times are in seconds from there. WHAT: `plan` and `mini` put one
question to a `Orchestra`, with NUMBER as the token that the grammar refuses first; `restore` takes
the prefix from disk; `decode` writes the plan in turns with the raw loop of llama.cpp, NUMBER
rounds; `live` puts NUMBER questions, one after the other.

The model is made to answer by force: before each draw the logit of the next token of the wanted
plan is lifted above all others. All else is as it would be: the logits are computed, the grammar is
asked, the token is drawn.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import resource
import sys
import time
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, Self

import psutil

from conductor_cli.core.chat import Message, Request
from conductor_cli.core.events import Mode, PlanReady, StepStarted
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.plan_formats import PLAN_FORMATS
from conductor_cli.core.policy import plan_rules
from conductor_cli.core.pool import Card, Limits, Pool, Worker
from conductor_cli.core.profile import PROMPTED, PROMPTED_JSON, Profile
from conductor_cli.core.prompts import plan_format_context, planner_request
from conductor_cli.core.question import Question
from conductor_cli.core.usage import Usage
from conductor_cli.models.base import ScriptedModel
from conductor_cli.models.llama.adapter import Llama
from conductor_cli.models.llama.bindings import load_bindings
from conductor_cli.models.llama.loading import LlamaOptions
from conductor_cli.models.llama.sampling import GrammarSampler
from conductor_cli.run import Orchestra, RunSpec, Team, start_run

CONTEXT: Final = 4096  # tokens; for everybody
LIFT: Final = 1e4  # the logit of a forced token; of one that is forced to be refused, twice that
REFUSED: Final = "\t"  # the grammar of a plan allows it nowhere

JOB: Final[Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_name("conductor_job.toml").read_text("utf-8")
)

POOL: Final = Pool(
    workers=tuple(
        Worker(
            name=name,
            kind="scripted",
            about=about,
            card=Card(
                strengths={
                    first: 0.94 - at / 100,
                    second: 0.81 - at / 100,
                    "following": 0.75,
                    "general": 0.7,
                }
            ),
        )
        for at, (name, about, first, second) in enumerate(JOB["workers"])
    )
)
QUESTION: Final = Question(text=JOB["question"])
PLAN: Final = Plan(
    steps=tuple(
        Step(worker=worker, subtask=subtask, access=tuple(access))
        for worker, subtask, access in JOB["steps"]
    )
)
SHORT: Final = Plan(
    steps=(PLAN.steps[0], Step(worker="ember", subtask="Answer the question.", access=(1,)))
)
"""For where it matters how many questions were asked, not how long a plan is."""


def request(profile: Profile = PROMPTED, question: Question = QUESTION, mode: Mode = "auto") -> Any:
    """The request by which a conductor is asked."""
    return planner_request(question, POOL, profile, _terms(profile, mode))


def spelled(plan: Plan, profile: Profile = PROMPTED) -> str:
    """The plan as a conductor of this profile writes it."""
    return PLAN_FORMATS[profile.plan_format].render(plan, _terms(profile, "auto"))


def _terms(profile: Profile, mode: Mode) -> Any:
    rules = plan_rules(POOL, Limits(), down=(), given=False, depth_left=0)
    return plan_format_context(profile, POOL, rules, mode, constrained=True)


def naive_job() -> dict[str, str]:
    """What the naive script is given: the prompt as one text, the grammar, the plan to force."""
    question = request(PROMPTED_JSON)
    turns = "".join(
        f"<|im_start|>{turn.role}\n{turn.content}<|im_end|>\n" for turn in question.messages
    )
    return {
        "prompt": f"{turns}<|im_start|>assistant\n",
        "grammar": question.grammar,
        "plan": spelled(PLAN, PROMPTED_JSON),
    }


class Forced:
    """Makes every reply under a grammar be `text`.

    `draws` has the processor time of each draw, `times` when each ended, in seconds and by reply.
    `refused` says at which token, counted from 0 in each reply, the grammar has to refuse one
    first; below 0 nowhere. Every token is drawn, also where the grammar leaves no choice, so that a
    token can be compared with one of the raw loop.
    """

    def __init__(self, text: str, refused: int = -1) -> None:
        self.text = text
        self.refused = refused
        self.draws: list[list[float]] = []
        self.times: list[list[float]] = []
        self.refusals = 0
        self.context: Any = None
        self._reply: Any = None
        self._tokens: list[int] = []
        self._draw: Callable[[Any, Any], int] = GrammarSampler.draw
        self._no_choice: Callable[[Any], Sequence[int]] = GrammarSampler.forced

    def __enter__(self) -> Self:
        # A bound method would not be handed the sampler that it is called on.
        GrammarSampler.draw = lambda sampler, context: self._forced(sampler, context)  # type: ignore[method-assign]  # noqa: PLW0108
        GrammarSampler.forced = lambda _: ()  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        GrammarSampler.draw = self._draw  # type: ignore[method-assign]
        GrammarSampler.forced = self._no_choice  # type: ignore[method-assign]

    def _forced(self, sampler: Any, context: Any) -> int:
        lib = load_bindings()
        if sampler is not self._reply:
            self._reply = sampler
            self.context = context
            self._tokens = tokens(lib, context, self.text)
            self.draws.append([])
            self.times.append([])
        at = len(self.draws[-1])
        logits = lib.llama_get_logits_ith(context, -1)
        logits[self._tokens[at]] = LIFT
        if at == self.refused:
            logits[tokens(lib, context, REFUSED)[0]] = 2 * LIFT
            self.refusals += 1
        began = time.thread_time()
        token = self._draw(sampler, context)
        spent = time.thread_time() - began
        ended = time.perf_counter()
        if token != self._tokens[at]:
            raise SystemExit(f"token {at} of the plan was to be {self._tokens[at]} and is {token}")
        self.draws[-1].append(spent)
        self.times[-1].append(ended)
        return token


def tokens(lib: Any, context: Any, text: str, *, special: bool = False) -> list[int]:
    """The tokens of a text, and the one that ends a reply.

    `special` reads those that are spelled in it.
    """
    vocabulary = lib.llama_model_get_vocab(lib.llama_get_model(context))
    content = text.encode()
    ids = (ctypes.c_int32 * len(content))()
    count = lib.llama_tokenize(vocabulary, content, len(content), ids, len(content), False, special)  # noqa: FBT003
    return [*ids[:count], lib.llama_vocab_eos(vocabulary)]


class Raw:
    """A second context on the model of a first one, with its settings.

    It has the first `depth` tokens that the first one has read.
    """

    def __init__(self, context: Any, depth: int) -> None:
        lib = load_bindings()
        self._lib = lib
        self._depth = depth
        model = lib.llama_get_model(context)
        params = lib.llama_context_default_params()
        for name in ("n_ctx", "n_batch", "n_ubatch"):
            setattr(params, name, getattr(lib, f"llama_{name}")(context))
        if not lib.llama_supports_gpu_offload():  # As conductor's own, whose state it takes over
            params.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.n_threads = lib.llama_n_threads(context)
        params.n_threads_batch = params.n_threads
        self._context = lib.llama_init_from_model(model, params)
        self._tokens = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
        size = lib.llama_state_seq_get_size(context, 0)
        state = (ctypes.c_uint8 * size)()
        lib.llama_state_seq_get_data(context, state, size, 0)
        if lib.llama_state_seq_set_data(self._context, state, size, 0) != size:
            raise SystemExit("the state of one context does not go into another")

    def run(self, count: int) -> float:
        """Write `count` tokens behind the prompt; seconds for each."""
        import numpy as np

        lib = self._lib
        token = (ctypes.c_int32 * 1)(0)
        lib.llama_memory_seq_rm(lib.llama_get_memory(self._context), 0, self._depth, -1)
        batch = lib.llama_batch_get_one(token, 1)
        began = time.perf_counter()
        for _ in range(count):
            if lib.llama_decode(self._context, batch) != 0:
                raise SystemExit("llama.cpp could not go on")
            logits = np.ctypeslib.as_array(
                lib.llama_get_logits_ith(self._context, -1), (self._tokens,)
            )
            token[0] = int(np.argmax(logits))
        return (time.perf_counter() - began) / count


def peak() -> int:
    """The most bytes held so far.

    Linux counts for `getrusage` also what a process held before it was this one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text(encoding="utf-8").partition("VmHWM:")[2].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


Found = dict[str, Any]

PAIRS = 5  # how often the prefix is taken from disk


async def main(job: Mapping[str, Any], began: float, task: str, number: int) -> Found:
    """Measure what is named."""
    took: dict[str, float] = {}

    def note(thing: str) -> None:
        took.setdefault(thing, time.monotonic() - began)

    note("import")
    cache = Path(job["cache"])
    if task == "restore":
        return await restore(Path(job["model"]), cache, job["context"])
    async with loaded(Path(job["model"]), cache, job["context"]) as model:
        note("load")
        if task == "decode":
            return await decode(model, number)
        if task == "live":
            return await live(model, number)
        return {"took": took} | await one(model, "mini" if task == "mini" else "auto", number, note)


@asynccontextmanager
async def loaded(path: Path, cache: Path, context: int) -> AsyncIterator[Llama]:
    """A model, loaded, with room for so many tokens."""
    model = Llama(path, LlamaOptions(context=context, cache=cache))
    try:
        await model.load()
        yield model
    finally:
        await model.close()


def orchestra(model: Llama, mode: Mode = "auto") -> Orchestra:
    """Over workers that answer at once."""
    workers = {name: ScriptedModel(scripts=[["Done."]]) for name in POOL.names}
    team = Team(model=model, pool=POOL, workers=workers, mode=mode, constrained=True)
    return Orchestra(team=team)


async def asked(
    orchestra: Orchestra, question: Question, note: Callable[[str], None] = lambda _: None
) -> tuple[Plan, Usage]:
    """The plan that a question gets, and what it cost.

    Notes when a step was handed to its worker, and the plan.
    """
    ready: PlanReady | None = None
    async for event, _ in start_run(orchestra, RunSpec(question=question)):
        if isinstance(event, StepStarted):
            note("step")
        elif isinstance(event, PlanReady):
            note("plan")
            ready = event
    if ready is None or not isinstance(ready.plan, Plan):
        raise SystemExit("there is no plan")
    return ready.plan, ready.usage


async def one(model: Llama, mode: Mode, refused: int, note: Callable[[str], None]) -> Found:
    """One question from a new process."""
    with Forced(spelled(PLAN), refused) as forced:
        plan, usage = await asked(orchestra(model, mode), QUESTION, note)
    if mode == "auto" and plan != PLAN:
        raise SystemExit(f"the plan is another one: {plan}")
    return {
        "peak": peak(),
        "draws": list(chain.from_iterable(forced.draws)),
        "refusals": forced.refusals,
        "read": usage.tokens_in,
        "cached": usage.tokens_cached,
    }


async def restore(path: Path, cache: Path, context: int) -> Found:
    """Seconds that a prefix costs: computed, and taken from disk.

    What comes behind it is taken off by a live prefix.

    Each request has a word of its own right behind the prefix, so that nothing else is shared.
    """
    async with loaded(path, cache / "empty", context) as model:
        first = await seconds(model, " one")
        again = await seconds(model, " two")
    computed = first[0] - again[0]
    prefix = again[1].tokens_cached
    pairs: list[float] = []
    for _ in range(PAIRS):
        async with loaded(path, cache, context) as model:
            from_disk = await seconds(model, " one")
            live = await seconds(model, " two")
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
    question = Request(
        messages=(system, Message(role="user", content="1")), max_tokens=1, cuts=prompt.cuts
    )
    began = time.perf_counter()
    usage = await usage_of(model, question)
    return time.perf_counter() - began, usage


async def usage_of(model: Llama, question: Request) -> Usage:
    """What a request took, which is answered to its end."""
    usages = [chunk.usage async for chunk in model.stream(question)]
    if not usages or usages[-1] is None:
        raise SystemExit("the model did not say what it used")
    return usages[-1]


async def decode(model: Llama, rounds: int) -> Found:
    """Seconds for each token of the plan, in turns with the raw loop at the same depth."""
    ours: list[float] = []
    theirs: list[float] = []
    raw: Raw | None = None
    with Forced(spelled(PLAN)) as forced:
        for _ in range(rounds):
            usage = await usage_of(model, request())
            times = forced.times[-1]
            ours.append((times[-1] - times[0]) / (len(times) - 1))
            raw = raw or Raw(forced.context, usage.tokens_in)
            theirs.append(raw.run(len(times) - 1))
    return {"ours": ours, "theirs": theirs}


async def live(model: Llama, count: int) -> Found:
    """Many questions to one process.

    What it holds after each, what each reads, and what it has to read.
    """
    figures: Found = {"resident": [], "read": [], "own": [], "seconds": []}
    team = orchestra(model)
    with Forced(spelled(SHORT)) as forced:
        for number in range(count):
            question = Question(
                text=(
                    f"Question {number} of its kind: what is {number * 37} times {number + 2}, "
                    "and why?"
                )
            )
            began = time.perf_counter()
            _, usage = await asked(team, question)
            figures["seconds"].append(time.perf_counter() - began)
            figures["resident"].append(psutil.Process().memory_info().rss)
            figures["read"].append(usage.tokens_in - usage.tokens_cached)
            figures["own"].append(own(forced, question))
    return figures


def own(forced: Forced, question: Question) -> int:
    """The tokens of a prompt behind its prefix.

    Those of the question and of the template around it.
    """
    lib = load_bindings()
    turn = request(question=question).messages[1].content
    behind = f"<|im_end|>\n<|im_start|>user\n{turn}<|im_end|>\n<|im_start|>assistant\n"
    return len(tokens(lib, forced.context, behind, special=True)) - 1


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    number = int(sys.argv[4]) if len(sys.argv) > 4 else -1
    print(json.dumps(asyncio.run(main(given, float(sys.argv[2]), sys.argv[3], number))))
