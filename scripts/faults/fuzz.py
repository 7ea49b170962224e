"""Random and damaged inputs for everything that reads what others wrote.

Bounded, and no error but our own.

A try is some hundred inputs made from one number, so that its name is its reproduction.
"""

from __future__ import annotations

import base64
import json
import random
import resource
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Final

from scripts.faults.fuzz_targets import MARKS, TARGETS
from scripts.faults.tries import Outcome, Tries

SECONDS: Final = 2.0  # seconds of a processor that one input may take
LARGEST: Final = 64 << 10  # bytes of an input
GROWTH: Final = 128 << 10  # KiB by which one input may make this process larger
ROUNDS: Final = 400  # tries of each target
FOUND: Final = Path("build/faults/found")  # where an input is kept that broke something


def run(tries: Tries) -> None:
    """Try each target in turn, so that time that runs out is shared."""
    for number in range(ROUNDS):
        for name in TARGETS:
            tries.attempt(
                f"{name} {number}", partial(_try_inputs, name, f"{tries.seed} {name} {number}")
            )


def _try_inputs(name: str, seed: str) -> Outcome:
    target = TARGETS[name]
    chance = random.Random(seed)
    for number in range(target.inputs):
        content = mutate(_seeds(name), (*target.words, *MARKS), chance)
        problem = try_input(name, content)
        if problem:
            return Outcome(
                problem=f"input {number}, {keep(name, content)}: {problem}", weight=number + 1
            )
    return Outcome(weight=target.inputs)


def try_input(name: str, content: bytes) -> str:
    """What broke with this input; empty where nothing did."""
    with suppress(OSError):  # Linux: an earlier peak would hide this one
        Path("/proc/self/clear_refs").write_text("5")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    try:
        with _stopped_after(SECONDS * 2):
            TARGETS[name].check(content)
    except TimeoutError:
        return f"it took more than {SECONDS * 2:g} s"
    except Exception as error:  # noqa: BLE001 - whatever comes out is what is looked for
        return f"{type(error).__name__}: {error}"[:600]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if grown > GROWTH:
        return f"it took {grown >> 10} MiB of memory"
    took = time.process_time() - began
    return f"it took {took:.1f} s" if took > SECONDS else ""


@contextmanager
def _stopped_after(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` in the block once this process has computed so long.

    Waiting does not count.
    """

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def keep(name: str, content: bytes) -> str:
    """Store an input that broke something; returns where, or the input itself if it is short."""
    if len(content) <= 60:
        return json.dumps(base64.b64encode(content).decode())
    FOUND.mkdir(parents=True, exist_ok=True)
    file = FOUND / f"{name.replace(' ', '-')}-{abs(hash(content)):x}"
    file.write_bytes(content)
    return str(file)


@cache
def _seeds(name: str) -> Sequence[bytes]:
    return TARGETS[name].seeds()


def mutate(seeds: Sequence[bytes], words: Sequence[bytes], chance: random.Random) -> bytes:
    """One of the seeds with one to six changes."""
    content = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(content) + 1)
        end = min(len(content), at + chance.choice((1, 1, 2, 4, 16, 200)))
        kind = chance.randrange(9)
        if kind == 0:
            content[at:end] = b""
        elif kind == 1:
            content[at:at] = chance.choice(words)
        elif kind == 2:
            content[at:end] = chance.choice(words)
        elif kind == 3:
            content[at:at] = content[at:end] * chance.choice((1, 2, 50))
        elif kind == 4 and at < len(content):
            content[at] ^= 1 << chance.randrange(8)
        elif kind == 5:
            content[at:end] = chance.randbytes(end - at)
        elif kind == 6:
            other = chance.choice(seeds)
            begin = chance.randrange(len(other) + 1)
            content[at:end] = other[begin : begin + chance.choice((4, 30, 300))]
        elif kind == 7:
            content[at:end] = chance.choice(
                (b"0", b"-1", b"18446744073709551615", b"1e400", b"true", b"[]", b"{}", b'""')
            )
        else:
            _swap_value(content, chance)
    return bytes(content[:LARGEST])


def _swap_value(content: bytearray, chance: random.Random) -> None:
    """Put another JSON value after some colon.

    A value of a wrong type reaches further than a broken text.
    """
    places = [at for at, byte in enumerate(content) if byte == ord(":")][:400]
    if not places:
        return
    begin = chance.choice(places) + 1
    ends = [at for at in (content.find(sign, begin) for sign in (b",", b"}")) if at >= 0]
    values = (
        b"null",
        b"true",
        b"-1",
        b"0.5",
        b"9e99",
        b"[]",
        b"{}",
        b'"x"',
        b'[{"a":[1]}]',
        b'{"type":"x"}',
        b"123456789012345678901",
    )
    content[begin : min(ends, default=len(content))] = chance.choice(values)
