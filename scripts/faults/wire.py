"""The wire: a server with faults behind every adapter, at every position of three shapes of plans.

A run must end in time with what is right, or say why not; then the same conductor must answer a
question without fault. A question has a tag, such as `c1a2b3c4d`, whose first letter is the shape
of its plan. The answer to a subtask is made of the tag, the number of the part, and a hash of the
answers in the prompt, so that no answer can pass for another.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import re
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Final
from unittest.mock import patch

import conductor_cli
from conductor_cli.app.api import AsyncConductor
from conductor_cli.core.errors import EXIT_CODES
from conductor_cli.core.plan import GIVEN
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.models.litellm import preload_litellm
from scripts.faults.desk import homes
from scripts.faults.tries import Outcome, Tries
from scripts.faults.wire_faults import FAULTS, REFUSE, Fault, FaultServer
from tests.servers import SeenRequest, Speaker, Wire

APIS: Final = {
    "chat": 'kind = "openai-compatible"\nbase_url = "{url}/v1"\nmodel = "{name}"',
    "responses": 'kind = "openai"\napi = "responses"\nbase_url = "{url}/v1"\nmodel = "{name}"',
    "anthropic": 'kind = "anthropic"\nbase_url = "{url}"\nmodel = "{name}"',
    "gemini": 'kind = "gemini"\nbase_url = "{url}/v1beta"\nmodel = "{name}"',
    "litellm": 'kind = "litellm"\nbase_url = "{url}/v1"\nmodel = "openai/{name}"',
}
"""The settings of a worker for each adapter and API."""

SHAPES: Final = {"chain": "c", "tree": "t", "recursive": "r"}
"""The shapes of plans, and the letter with which a question asks the double for one."""

WORKERS: Final = ("planner", "one", "two", "three")
"""Who is behind a server with faults: the model that plans, and a worker for each step."""

SPANS: Final = {"once": 1, "always": 1 << 30}  # how many calls of its worker a fault strikes
LANES: Final = 5  # runs at the same time for each API
# How long a run may take: some ten attempts that time out, on a busy machine
RUN_SECONDS: Final = 40.0
OPTIONS: Final[dict[str, object]] = {"limits.attempts": 2, "planner.profile": "prompted"}
TIMEOUTS: Final = {"first_token": 1.5, "idle": 1.5, "total": 4.0}
# Seconds that this process may wait for its turn before a timeout says nothing
MAX_DELAY: Final = 0.2
LATE: Final = ("token within", "did not end within", "no answer in")
"""What a run says that ended by a timeout, as it does in vain on a busy machine."""

# How the keys of all workers begin, which must never be seen again
KEY: Final = "sk-canary-4f1bd0c97ae2"


@dataclass(frozen=True, slots=True)
class Case:
    """One run: which API, what fault, in which shape of plan, at whose calls, how often."""

    api: str
    fault: Fault
    shape: str
    worker: str
    span: str

    def __str__(self) -> str:
        return f"{self.api}/{self.fault.name}/{self.shape}/{self.worker}/{self.span}"


def cases() -> list[Case]:
    """Every pair of fault and position, over all APIs and shapes."""
    return [Case(*parts) for parts in product(APIS, (REFUSE, *FAULTS), SHAPES, WORKERS, SPANS)]


def run(tries: Tries) -> None:
    """Try every case, in an order that is drawn with the seed."""
    chosen = [case for case in cases() if tries.wants(str(case))]
    random.Random(tries.seed).shuffle(chosen)
    if any(case.api == "litellm" for case in chosen):
        preload_litellm().result()  # it takes longer than the timeouts of a run
    with tempfile.TemporaryDirectory() as home, private_home(Path(home)):
        asyncio.run(_run_cases(tries, chosen, Path(home)))


def private_home(home: Path) -> AbstractContextManager[object]:
    """An environment with a home directory of its own, and with the keys of the workers."""
    return patch.dict(
        os.environ, homes(home) | {f"WIRE_{name.upper()}": f"{KEY}-{name}" for name in WORKERS}
    )


async def _run_cases(tries: Tries, chosen: list[Case], home: Path) -> None:
    double = Double()
    delays = Delays()
    measuring = asyncio.create_task(delays.measure())
    queues = {api: iter([case for case in chosen if case.api == api]) for api in APIS}
    lanes = [
        Lane(api, double, delays, home / f"{api}-{number}.toml")
        for api, number in product(APIS, range(LANES))
    ]
    try:
        for lane in lanes:
            await lane.open()
        async with asyncio.TaskGroup() as group:
            for lane in lanes:
                group.create_task(tries.in_lanes(queues[lane.api], 1, lane.attempt))
    finally:
        measuring.cancel()
        for lane in lanes:
            lane.close()


class Delays:
    """How late this process gets its turn: a timeout on a busy machine says nothing."""

    def __init__(self) -> None:
        # When a delay ended, and its seconds
        self._seen: deque[tuple[float, float]] = deque(maxlen=2000)

    async def measure(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.05)
            now = time.monotonic()
            self._seen.append((now, now - began - 0.05))

    def worst_since(self, moment: float) -> float:
        return max((delay for ended, delay in self._seen if ended >= moment), default=0.0)


class Lane:
    """One conductor at a time, whose planner and workers each have a server with faults."""

    def __init__(self, api: str, double: Double, delays: Delays, config: Path) -> None:
        self.api = api
        self._delays = delays
        self._double = double
        self._config = config
        models = {"object": "list", "data": [{"id": name, "object": "model"} for name in WORKERS]}
        self._servers = {name: FaultServer(double.reply, models) for name in WORKERS}
        self._asked = 0

    async def open(self) -> None:
        tables = ['[planner]\nmodel = "planner"']
        for name, server in self._servers.items():
            await server.open()
            table = APIS[self.api].format(url=server.url, name=name)
            tables.append(f'[workers.{name}]\n{table}\nkey_env = "WIRE_{name.upper()}"')
        self._config.write_text("\n".join(tables))

    def close(self) -> None:
        for server in self._servers.values():
            server.close()

    async def attempt(self, case: Case) -> Outcome | None:
        """One question with the fault, and one after it without.

        None where the machine was too busy to tell.
        """
        began = time.monotonic()
        timeouts = {f"timeouts.{name}": seconds for name, seconds in TIMEOUTS.items()}
        options = OPTIONS | timeouts | ({"limits.review": 1} if case.shape == "recursive" else {})
        server = self._servers[case.worker]
        async with conductor_cli.open_async(
            config=self._config, settings=options, seed=1
        ) as orchestra:
            if case.fault is REFUSE:
                server.close()
                if case.span == "once":
                    asyncio.get_running_loop().call_later(
                        0.1, lambda: asyncio.ensure_future(server.open())
                    )
            else:
                server.set(case.fault.strike, last=SPANS[case.span])
            problems = await self._ask(orchestra, case)
            server.set(None)
            if case.fault is REFUSE and case.span == "always":
                await server.open()
            sound = replace(case, fault=replace(case.fault, promise="right"))
            problems_afterwards = await self._ask(orchestra, sound)
            problems += [f"afterwards: {problem}" for problem in problems_afterwards]
        text = "; ".join(problems)
        is_late = any(late in text for late in LATE)
        if is_late and self._delays.worst_since(began) > MAX_DELAY:
            return None
        return Outcome(problem=text, weight=2)

    async def _ask(self, orchestra: AsyncConductor, case: Case) -> list[str]:
        """Ask a question that asks for the case's shape. Returns what was wrong about the run."""
        self._asked += 1
        tag = f"{SHAPES[case.shape]}{hash((str(case), self._asked)) & 0xFFFFFFFF:08x}"
        run = orchestra.ask(f"What is {tag}?")
        shown = ""
        try:
            async with asyncio.timeout(RUN_SECONDS):
                async for event in run:
                    shown += repr(event)
        except TimeoutError:
            return [f"the run did not end within {RUN_SECONDS:.0f} s"]
        cut = case.fault.promise == "as sent"
        altered = cut and case.api != "responses"  # which says the whole text at the end
        problems = list(
            problems_of(run.trace, tag, billed=self._double.billed[tag], altered=altered, cut=cut)
        )
        problems += ["a key was shown"] if KEY in shown else []
        # After three failures in a row nobody is asked for a while.
        is_skipped = run.error is not None and "skipped for" in run.error.message
        if case.fault.promise == "right" and run.error is not None and not is_skipped:
            problems.append(f"it should have been answered: {run.error.message}")
        if conductor_cli.load_trace(run.id) != run.trace:
            problems.append("the stored trace is another one")
        return problems


# The double


PLANS: Final = {
    "c": (
        "one | - | Do part 1 of {tag}.",
        "two | 1 | Do part 2 of {tag}.",
        "three | 2 | Do part 3 of {tag}.",
    ),
    "t": (
        "one | - | Do part 1 of {tag}.",
        "two | - | Do part 2 of {tag}.",
        "three | 1 2 | Do part 3 of {tag}.",
    ),
    "r": ("one | - | Do part 1 of {tag}.", "two | 1 | Do part 2 of {tag}."),
}
"""The plans by shape: a chain, a tree, and a chain that a nested run reviews."""

NESTED: Final = ("three | given | Do part 3 of {tag}.",)
"""The plan of the nested run: it does not keep the answer at hand."""

PIECE: Final = 7  # characters of an answer in one frame


class Double:
    """Answers in four APIs.

    `billed` counts the calls that it has answered, by the tag of the question.
    """

    def __init__(self) -> None:
        self.billed: Counter[str] = Counter()

    async def reply(self, request: SeenRequest) -> list[bytes]:
        prompt = "\n".join(_texts(request.json))
        mark = re.search(r"\b[ctr][0-9a-f]{8}\b", prompt)
        tag = mark[0] if mark else ""
        self.billed[tag] += 1
        recorder = Recorder()
        speaker = Speaker(request, recorder)
        await speaker.begin()
        for piece in pieces(_said(tag, prompt)):
            await speaker.say(piece)
        await speaker.end()
        return recorder.events


class Recorder(Wire):
    """Keeps what is said as events, instead of sending it."""

    def __init__(self) -> None:
        self.events: list[bytes] = []

    async def head(self, status: int = 200, kind: str = "", **headers: str) -> None:
        """Nothing is sent."""

    async def send(self, piece: bytes | str) -> None:
        self.events.append(piece.encode() if isinstance(piece, str) else piece)


def answer(tag: str, subtask: str, prompt: str) -> str:
    """The answer of any worker to `subtask`; `prompt` has the answers that it sees."""
    part = re.search(r"Do part (\d) of", subtask)
    number = part[1] if part else "all"
    marks = " ".join(sorted(set(re.findall(r"\[\[[^\]]*\]\]", prompt))))
    digest = hashlib.sha256(f"{tag} {number} {marks}".encode()).hexdigest()[:16]
    return f"Part {number} of {tag} is [[{tag}-{number}-{digest}]], and that is all."


def pieces(text: str) -> list[str]:
    """An answer as it is streamed."""
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


def _said(tag: str, prompt: str) -> str:
    """What the model that gets this prompt says.

    A worker an answer, the planner what is missing of a plan.
    """
    _, worker, task = prompt.rpartition("Do this now: ")
    if worker:
        return answer(tag, task, prompt)
    is_bare_question = "The workers:" not in prompt  # which the only step of a plan sends
    if is_bare_question:
        return answer(tag, "", prompt)
    plan = PLANS.get(tag[:1], PLANS["c"])
    if "an answer at hand" in prompt:
        plan = NESTED
    first = 0
    repaired = re.search(r"Steps 1 to (\d) stand", prompt)
    revised = re.search(r"from step (\d) on", prompt)
    if repaired:
        first = int(repaired[1])
    elif revised:
        first = int(revised[1]) - 1
    return "\n".join(plan[first:] or plan[-1:]).format(tag=tag)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _texts(item)


# What must hold after every run, whatever happened on the wire


def problems_of(trace: Trace, tag: str, *, billed: int, altered: bool, cut: bool) -> Iterator[str]:
    """Every promise that a run has broken.

    `billed` are the calls for which a provider would want money. With `altered`, a text may be as a
    server sent it that repeated, exchanged or left out a piece; with `cut`, the text of a step that
    failed.
    """
    if billed > trace.usage.calls:
        yield f"{billed} calls were billed and {trace.usage.calls} recorded"
    yield from _wrong_texts(trace, tag, altered=altered, cut=cut)
    failure = trace.error
    if failure is not None:
        if failure.kind == "internal" or not EXIT_CODES.get(failure.kind):
            yield f"the failure is of kind {failure.kind}: {failure.message}"
        text = f"{failure.message}\n{failure.hint}".strip()
        if not failure.message.strip() or len(text.splitlines()) > 3:
            yield f"the failure is not explained in one to three lines: {text!r}"
        if trace.answer and not trace.partial:
            yield "an answer of a failed run is not called partial"
    elif trace.partial or not trace.steps or trace.answer != trace.steps[-1].text:
        yield f"the answer is not that of the last step: {trace.answer!r}"


def _wrong_texts(trace: Trace, tag: str, *, altered: bool, cut: bool) -> Iterator[str]:
    """The steps whose text is not what their worker said, made of what they saw."""
    for record in trace.steps:
        if record.nested is not None:
            yield from _wrong_texts(record.nested, tag, altered=altered, cut=cut)
            if record.state == "done" and record.text != record.nested.answer:
                yield f"step {record.number} is not the answer of its nested run"
            continue
        right = answer(tag, record.step.subtask, "\n".join(_seen(trace, record)))
        is_done = record.state == "done"
        allowed = (right, *_alterations(right)) if altered or (cut and not is_done) else (right,)
        if is_done and record.text not in allowed:
            yield f"the text of step {record.number} is {record.text!r} instead of {right!r}"
        if not is_done and not any(text.startswith(record.text) for text in allowed):
            yield (
                f"step {record.number} was cut off after {record.text!r}, which does not begin "
                f"{right!r}"
            )


def _seen(trace: Trace, record: StepRecord) -> Iterator[str]:
    done = {step.number: step.text for step in trace.steps if step.state == "done"}
    for number in record.step.access:
        if number == GIVEN:
            yield from (given.answer for given in trace.question.given)
        else:
            yield done.get(number, "")


def _alterations(text: str) -> Iterator[str]:
    """What `wire_faults` makes of a text whose pieces it repeats, exchanges or leaves out."""
    parts = pieces(text)
    yield "".join([*parts[:3], *parts[2:]])
    yield "".join([*parts[:2], parts[3], parts[2], *parts[4:]])
    yield "".join([*parts[:2], *parts[3:]])
    yield "".join([*parts, parts[-1]])
