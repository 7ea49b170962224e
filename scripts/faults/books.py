"""The record of spending, written by a server for several keys at once while other commands use it.

Then a kill.

Each key and each change of the settings is another record in the server's process. Commands that
open and close the file beside it must take nothing away: where nothing is under way, what is
recorded is what the provider billed.
"""

from __future__ import annotations

import random
import re
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import httpx

from scripts.faults.desk import SETTINGS, Desk, desk, serving
from scripts.faults.tries import Outcome, Tries
from tests.cli.stage import PLANNER

ROUNDS: Final = 300
CLIENTS: Final = ("phone", "laptop", "desk")
BESIDE: Final = (
    ("cost",),
    ("cost", "--by", "key"),
    ("ask", "hi"),
    ("ask", "-m", "alpha", "hi"),
    ("ask", "hi", "-f", "{home}/page.html"),
    ("ask", "hi", "-f", "{home}/notes"),
    ("batch", "{home}/questions.txt", "-o", "{home}/answers-{number}.jsonl", "--yes"),
    ("trace", "list"),
    ("config", "set", "limits.calls_day"),
)
"""What is done beside the server, by its step: a setting is given another value each time."""

_KEY: Final = re.compile(r"ck-[\w-]{20,}")


def run(tries: Tries) -> None:
    """Write books, each in its own order."""
    with desk() as at:
        keys = prepare(at)
        for number in range(ROUNDS):
            chance = random.Random(f"{tries.seed} {number}")
            tries.attempt(f"book {number}", partial(write_book, at, keys, chance))


def prepare(at: Desk) -> tuple[str, ...]:
    """Have the desk ready, with a key for each client. Returns the keys."""
    # A setting in that file could not be changed by a command
    at.configure(SETTINGS.replace("calls_day = 1000\n", ""))
    keys = []
    for name in CLIENTS:
        key = _KEY.search(at.prefork.run(("serve", "keys", "add", name)).out)
        assert key is not None, "no key was made"
        keys.append(key[0])
    (at.home / "page.html").write_text("<h1>A page</h1><p>with a text")
    (at.home / "questions.txt").write_text("hi\nho\n")
    (at.home / "notes").mkdir()
    (at.home / "notes/a.md").write_text("A note\n")
    at.save()
    with at.prefork.warming():
        at.prefork.run(("ask", "hi"))
    return tuple(keys)


def write_book(at: Desk, keys: Sequence[str], chance: random.Random) -> Outcome:
    """Have a server and commands spend in a random order, kill it, and compare book and bill."""
    at.reset()
    server = at.stage.start("serve", "--port", "0", stderr=subprocess.DEVNULL)
    with serving(server) as url:
        for number in range(chance.randint(4, 10)):
            if chance.random() < 0.5:
                _ask_together(url, chance.choices(keys, k=chance.randint(1, 4)))
            else:
                words = [word.format(home=at.home, number=number) for word in chance.choice(BESIDE)]
                values = (str(1001 + number),) if "set" in words else ()
                ended = at.prefork.run((*words, *values))
                if ended.code:
                    return Outcome(problem=f"{words} ended with {ended.code}: {ended.err[-200:]}")
            if problem := _difference(at, under_way=False):
                return Outcome(problem=f"after {number + 1} steps: {problem}")
        if chance.random() < 0.5:
            room = chance.randint(0, 4)
            limit = _worker_calls(at) + room
            at.prefork.run(("config", "set", "limits.calls_day", str(limit or 1)))
            _ask_together(url, [*keys, *keys])
            if _worker_calls(at) > max(limit, 1):
                return Outcome(
                    problem=f"{_worker_calls(at)} calls of workers within a limit of {limit}"
                )
        under_way = chance.random() < 0.5
        if under_way:
            with ThreadPoolExecutor(len(keys)) as clients:
                asking = [clients.submit(_ask, url, key) for key in keys]
                time.sleep(chance.random() * 0.2)
                server.kill()
                [task.result() for task in asking]
    at.wait_for_server()
    return Outcome(problem=_difference(at, under_way=under_way) or at.traces_problem())


def _ask_together(url: str, keys: Sequence[str]) -> None:
    with ThreadPoolExecutor(len(keys)) as clients:
        list(clients.map(partial(_ask, url), keys))


def _ask(url: str, key: str) -> None:
    """One request, however it ends: the server may be killed, or refuse it because of a limit."""
    body = {"model": "conductor", "messages": [{"role": "user", "content": "hi"}]}
    try:
        httpx.post(
            f"{url}/v1/chat/completions",
            json=body,
            headers={"Authorization": f"Bearer {key}"},
            timeout=30,
        )
    except httpx.HTTPError:
        return


def _worker_calls(at: Desk) -> int:
    return sum(model != PLANNER for model in at.billed)


def _difference(at: Desk, *, under_way: bool) -> str:
    """How the book differs from the bill.

    A call that was under way at a kill may be recorded and never made.
    """
    billed = len(at.billed)
    recorded = at.recorded
    fits = recorded >= billed if under_way else recorded == billed
    return "" if fits else f"{billed} calls billed, {recorded} recorded"
