"""The soak.

Rehearsal questions to one server, 32 at a time, from clients that break off in every way.

The same questions are asked twice: first by clients that behave, then at random by clients that do
not, which get the same answers. Nothing may hang or grow. Where the time is too short for all of
them, as many are asked as it allows.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from conductor_cli.app.rehearsal import held_out_cases
from conductor_cli.evals.cases import Case, is_correct
from scripts.faults.desk import serving
from scripts.faults.tries import Outcome, Tries
from scripts.faults.wire import private_home
from tests.servers import reset

QUESTIONS: Final = 2000
AT_ONCE: Final = 32
FAULTY: Final = 0.5  # the part of the clients that break their connection
# How long an answer may take, of a server that answers 32 at a time on a part of one core
SECONDS: Final = 300.0
# The part of the time for the first round; the second has as much, and the rest is for comparing
FIRST: Final = 0.4
WARM: Final = 300  # questions after which the server is as large as it will be
GROWTH_KB: Final = 30_000
"""How much larger a server may be afterwards: allocators do not give back all that was used at
once.
"""


@dataclass(frozen=True, slots=True)
class Client:
    """A connection to the server, and the question that it brings."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    question: str
    chance: random.Random

    def request(self, *, stream: bool = False) -> bytes:
        body = {
            "model": "conductor",
            "messages": [{"role": "user", "content": self.question}],
            "stream": stream,
        }
        content = json.dumps(body).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: "
            f"{len(content)}\r\n"
        )
        return f"{head}content-type: application/json\r\n\r\n".encode() + content

    async def answer(self) -> str:
        """The text of one answer that is no stream. Raises `ValueError` as `_head`."""
        head = await self._head()
        if length := re.search(r"content-length: (\d+)", head, re.IGNORECASE):
            body = await self.reader.readexactly(int(length[1]))
        else:  # a long run: spaces come before it, so that no proxy gives up
            body = b""
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readuntil(b"\r\n")
        text: str = json.loads(body)["choices"][0]["message"]["content"]
        return text

    async def _head(self) -> str:
        """The head of an answer. Raises `ValueError` for one of another status than 200."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        status, _, rest = head.partition("\r\n")
        if " 200 " not in status:
            raise ValueError(f"{status}: {await self.reader.read(500)!r}")
        return rest

    async def streamed(self, size: int = 1 << 16, pause: float = 0.0) -> str:
        """The text of a streamed answer, read in pieces of at most `size` bytes.

        Raises `ValueError` as `_head`.
        """
        await self._head()
        stream = b""
        while b"data: [DONE]" not in stream:
            piece = await self.reader.read(size)
            if not piece:
                raise ValueError(stream.decode(errors="replace"))
            stream += piece
            await asyncio.sleep(pause)
        frames = [json.loads(line) for line in re.findall(rb"data: (\{.*\})", stream)]
        text = ""
        for frame in frames:
            for choice in frame.get("choices", ()):
                text += choice["delta"].get("content") or ""
        return text


Behaviour = Callable[[Client], Awaitable[str | None]]
"""What a client does; it returns the answer, or None if it did not wait for one."""


async def _ask(client: Client) -> str:
    client.writer.write(client.request())
    return await client.answer()


async def _ask_for_a_stream(client: Client) -> str:
    client.writer.write(client.request(stream=True))
    return await client.streamed()


async def _leave(client: Client) -> None:
    """Break off before the head, in it, in the body, while the run goes on, or in the answer."""
    kind = client.chance.choice(("at once", "head", "body", "run", "answer"))
    content = client.request(
        stream=kind == "answer" or (kind == "run" and client.chance.random() < 0.5)
    )
    client.writer.write(
        {"at once": b"", "head": content[:40], "body": content[:-20]}.get(kind, content)
    )
    if kind == "answer":
        await client.reader.read(200)
    elif kind != "at once":
        await asyncio.sleep(client.chance.random() * 0.5)  # until a moment of a run, or less
    reset(client.writer)


async def _read_slowly(client: Client) -> str:
    client.writer.write(client.request(stream=True))
    return await client.streamed(100, 0.01)


async def _write_slowly(client: Client) -> str:
    content = client.request()
    for at in range(0, len(content), 20):
        client.writer.write(content[at : at + 20])
        await asyncio.sleep(0.01)
    return await client.answer()


async def _ask_twice_at_once(client: Client) -> str:
    client.writer.write(client.request() * 2)
    first = await client.answer()
    second = await client.answer()
    if first != second:
        raise ValueError(f"two answers to one question: {first!r}, {second!r}")
    return first


async def _send_garbage(client: Client) -> None:
    client.writer.write(client.chance.randbytes(200) + b"\r\n\r\n")
    await asyncio.wait({asyncio.create_task(client.reader.read())}, timeout=1.0)


async def _send_more_than_said(client: Client) -> str | None:
    client.writer.write(client.request() + b"and more")
    try:
        return await client.answer()
    except ValueError as error:
        if " 400 " in str(error):
            return None
        raise


SOUND: Final[tuple[Behaviour, ...]] = (_ask, _ask_for_a_stream)
BROKEN: Final[tuple[Behaviour, ...]] = (
    *(_leave,) * 5,
    _read_slowly,
    _write_slowly,
    _ask_twice_at_once,
    _send_garbage,
    _send_more_than_said,
)


def run(tries: Tries) -> None:
    """One soak."""

    def soak() -> Outcome:
        command = [
            sys.executable,
            "-m",
            "conductor_cli",
            "serve",
            "--demo",
            "--seed",
            "1",
            "--port",
            "0",
        ]
        server = subprocess.Popen(command, stdout=subprocess.PIPE)
        with serving(server) as url:
            port = int(url.rpartition(":")[2])
            cases = held_out_cases(QUESTIONS, 0)
            outcome = asyncio.run(
                _soak(server.pid, port, cases, random.Random(tries.seed), tries.seconds_left)
            )
            server.terminate()
            server.wait(timeout=60)  # it must end when it is told to
            return outcome

    with tempfile.TemporaryDirectory() as home, private_home(Path(home)):
        tries.attempt(f"{QUESTIONS} questions", soak)


async def _soak(
    pid: int, port: int, cases: tuple[Case, ...], chance: random.Random, seconds: float
) -> Outcome:
    began = time.monotonic()
    first = Round(port, chance, faulty=0.0)
    await first.ask_all(cases[:WARM], began + FIRST * seconds)
    before = _size(pid)
    await first.ask_all(cases[WARM:], began + FIRST * seconds)
    cases = tuple(case for case in cases if case.id in first.asked)
    second = Round(port, chance, faulty=FAULTY)
    await second.ask_all(cases, time.monotonic() + FIRST * seconds)
    await asyncio.sleep(1.0)
    after = _size(pid)
    both = [case for case in cases if case.id in first.answers and case.id in second.answers]
    for round_ in (first, second):
        right = sum(is_correct(round_.answers[case.id], case) for case in both)
        print(
            f"  {len(round_.answers)} answered in {round_.seconds:.0f} s; of {len(both)} in both "
            f"rounds {right} right"
        )
    print(f"  {before}, then {after}; {dict(second.clients.most_common())}", flush=True)
    changed = [case for case in both if first.answers[case.id] != second.answers[case.id]]
    compared = list[str]()  # one by one, each with dozens of questions, until the time is over
    while len(compared) < len(changed) and time.monotonic() < began + seconds:
        compared.append(await _difference(first, second, changed[len(compared)]))
    differences = list(filter(None, compared))
    alike = f"{len(compared) - len(differences)} of {len(compared)} that were asked again"
    print(f"  {len(changed)} answered otherwise, {alike} also without faults")
    missing = [f"{len(cases) - len(first.answers)} questions of clients that behave have no answer"]
    problems = [
        *first.problems,
        *second.problems,
        *missing[: len(cases) - len(first.answers)],
        *differences,
    ]
    is_warm = len(cases) > WARM
    if is_warm and after.kilobytes > before.kilobytes + GROWTH_KB:
        problems.append(f"the server grew from {before.kilobytes:,} to {after.kilobytes:,} KB")
    if after.files > before.files + 2 or after.threads > before.threads + 2:
        problems.append(f"something was left open: {before}, then {after}")
    return Outcome(problem="; ".join(problems[:5]), weight=len(first.asked) + len(second.asked))


async def _difference(first: Round, second: Round, case: Case) -> str:
    """What the second round answered that no client gets without faults.

    Empty where both answers are among those.

    The planner computes the plans of several questions together, and rounds a little differently
    with each number of them. Where two plans are equally probable, that decides.
    """
    was = first.answers[case.id]
    now = second.answers[case.id]
    sound_answers: set[str | None] = set()
    for count in (1, 2, AT_ONCE // 2, AT_ONCE):
        sound_answers.update(await first.ask_at_once(case, count))
    if was in sound_answers and now in sound_answers:
        return ""
    return f"{case.question!r} was answered {was!r}, then {now!r}"


@dataclass
class Round:
    """All questions once, by clients of which a part is faulty."""

    port: int
    chance: random.Random
    faulty: float
    answers: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    clients: Counter[str] = field(default_factory=Counter)
    asked: set[str] = field(default_factory=set)
    seconds: float = 0.0

    async def ask_all(self, cases: tuple[Case, ...], ends: float) -> None:
        """Ask these, so many at the same time, and no more once the clock is at `ends`."""
        began = time.monotonic()
        queue = iter(cases)

        async def ask_some() -> None:
            for case in queue:
                if time.monotonic() > ends:
                    return
                self.asked.add(case.id)
                await self._ask(case)

        await asyncio.gather(*(ask_some() for _ in range(AT_ONCE)))
        self.seconds += time.monotonic() - began

    async def ask_at_once(self, case: Case, count: int) -> list[str | None]:
        """The answers that so many clients without faults get to one question."""
        return await asyncio.gather(*(self._act(_ask, case) for _ in range(count)))

    async def _act(self, behave: Behaviour, case: Case) -> str | None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            async with asyncio.timeout(SECONDS):
                return await behave(Client(reader, writer, case.question, self.chance))
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _ask(self, case: Case) -> None:
        behave = self.chance.choice(BROKEN if self.chance.random() < self.faulty else SOUND)
        name = behave.__name__.strip("_")
        self.clients[name] += 1
        try:
            answer = await self._act(behave, case)
            if answer is not None:
                self.answers[case.id] = answer
        except (ValueError, KeyError, OSError, EOFError, TimeoutError) as error:
            if behave is not _send_garbage:
                self.problems.append(
                    f"{name}: {case.question!r}: {type(error).__name__}: {error}"[:300]
                )


class Size(NamedTuple):
    """What a process holds: resident memory, open files, threads."""

    kilobytes: int
    files: int
    threads: int


def _size(pid: int) -> Size:
    process = psutil.Process(pid)
    return Size(process.memory_info().rss >> 10, process.num_fds(), process.num_threads())
