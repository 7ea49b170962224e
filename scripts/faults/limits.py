"""Limits on dollars, tokens and calls, with random settings: of a run, of all runs, of a day.

`batch`, `eval`, `try` and `tune` are asked for more than the limits allow, at once, again, with
more, and after a kill. Workers fail, break off and answer nothing now and then. The provider counts
what it bills by itself. An honest one is never asked for more than a limit; one that states ten
times what it was allowed exceeds a limit by what its calls under way state, as SECURITY.md says.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Final, Literal

from scripts.faults.desk import Desk, desk, ending_problem
from scripts.faults.prefork import Command
from scripts.faults.tries import Outcome, Tries
from tests.cli.stage import PLANNER, breaks, refuses, says
from tests.servers import SeenRequest, Wire
from tests.tiny_gguf import make

SETTINGS: Final = 100  # Random settings for each of the two providers
QUESTIONS: Final = 40
COMMAND_SECONDS: Final = 120.0
WORKERS: Final = ("alpha", "beta", "gamma")
PLANS: Final = (
    "alpha | - | Answer it.",
    "alpha | - | Find it out.\nalpha | 1 | Check it and answer.",
    "alpha | - | Find it out.\nalpha | - | Find it out in another way.\nalpha | 1 2 | Answer.",
)
READ: Final = Decimal(10)  # US dollars for a million tokens of a prompt
PLANNED: Final = Decimal(50)  # And for those that the planner writes
LIE: Final = 10  # How many times what it was allowed a provider states that lies

_QUESTION: Final = re.compile(r"Why \d+\?")

CommandName = Literal["batch", "eval", "try", "tune"]


def run(tries: Tries) -> None:
    """Try random settings with a provider that is honest, and with one that lies."""
    with desk() as at:
        encoder = prepare(at)
        for is_honest in (True, False):
            word = "honest" if is_honest else "lying"
            for number in range(SETTINGS):
                chance = random.Random(f"{tries.seed} {word} {number}")
                setting = draw_setting(chance, is_honest=is_honest)
                name = f"{word} {number}: {setting}"
                tries.attempt(name, partial(try_setting, at, encoder, setting, chance))


def prepare(at: Desk) -> Path:
    """Have the desk ready; returns a small local model for `tune`."""
    at.save()
    with at.prefork.warming():
        at.prefork.run(("ask", "hi"))
    return make(at.home.parent / "tiny.gguf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a command is given. Limits are None where there is none."""

    command: CommandName
    is_honest: bool
    parallel: int
    attempts: int
    workers: int
    most_written: int
    price: Decimal
    failing: float  # The share of calls that fail
    is_killed: bool
    plan: str
    max_cost: Decimal | None
    run_limits: tuple[tuple[str, Decimal], ...]
    day_limits: tuple[tuple[str, Decimal], ...]

    def __str__(self) -> str:
        limits = [f"{name} {amount}" for name, amount in (*self.run_limits, *self.day_limits)]
        if self.max_cost is not None:
            limits.append(f"--max-cost {self.max_cost}")
        return f"{self.command} --parallel {self.parallel}, {', '.join(limits)}"


def draw_setting(chance: random.Random, *, is_honest: bool) -> Setting:
    """Draw a command and its limits: one of them at least."""
    command: CommandName = chance.choice(("batch", "batch", "eval", "eval", "try", "tune"))
    amounts = {
        "cost": _draw_amount(chance, "0.8", "6"),
        "tokens": Decimal(chance.randint(2000, 40_000)),
        "calls": Decimal(chance.randint(1, 25)),
    }
    max_cost = None
    if command != "batch" or chance.random() < 0.6:
        max_cost = _draw_amount(chance, "0.5", "6")
    run_limits = _draw_some(chance, amounts)
    day_limits = _draw_some(chance, {f"{name}_day": most for name, most in amounts.items()})
    if max_cost is None and not run_limits and not day_limits:
        day_limits = (("cost_day", amounts["cost"]),)
    return Setting(
        command=command,
        is_honest=is_honest,
        parallel=chance.randint(1, 16),
        attempts=chance.randint(1, 3),
        workers=chance.randint(1, 3),
        most_written=chance.randint(300, 2000),
        price=Decimal(chance.choice((100, 400, 1000))),
        failing=chance.choice((0.0, 0.0, 0.1, 0.3)),
        is_killed=is_honest and chance.random() < 0.3,
        plan=chance.choice(PLANS),
        max_cost=max_cost,
        run_limits=run_limits,
        day_limits=day_limits,
    )


def _draw_amount(chance: random.Random, least: str, most: str) -> Decimal:
    return Decimal(str(round(chance.uniform(float(least), float(most)), 2)))


def _draw_some(
    chance: random.Random, amounts: dict[str, Decimal]
) -> tuple[tuple[str, Decimal], ...]:
    """Return each of the limits with a chance of a third."""
    return tuple((name, amount) for name, amount in amounts.items() if chance.random() < 1 / 3)


@dataclass(slots=True)
class Bill:
    """What calls have cost, by the provider's own count."""

    cost: Decimal = Decimal(0)
    tokens: int = 0
    calls: int = 0  # Of workers

    def add(self, cost: Decimal, tokens: int, *, is_work: bool) -> None:
        self.cost += cost
        self.tokens += tokens
        self.calls += is_work

    def amount(self, limit: str) -> Decimal:
        """Return what counts for a limit of this name."""
        return Decimal(getattr(self, limit.removesuffix("_day")))


@dataclass
class Provider:
    """A provider that counts what it bills, for each question and in all.

    `dearest` and `longest` are the most that one of its calls has stated.
    """

    setting: Setting
    chance: random.Random
    total: Bill = field(default_factory=Bill)
    of_question: dict[str, Bill] = field(default_factory=dict)
    running: int = 0
    most_running: int = 0
    dearest: Decimal = Decimal(0)
    longest: int = 0
    # What evaluations have cost that ended before the present one began
    paid_for_others: Decimal = Decimal(0)

    async def __call__(self, request: SeenRequest, wire: Wire) -> None:
        """Answer a call, and bill it, unless it fails before its first word."""
        is_work = request.json["model"] != PLANNER
        text = "\n".join(str(message["content"]) for message in request.json["messages"])
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(0.005)  # others come meanwhile
            if self.chance.random() < self.setting.failing:
                await self._fail(text, request, wire, is_work=is_work)
                return
            written = self._written(int(request.json["max_tokens"]), is_work=is_work)
            read = len(text.encode()) // 4
            self._count(text, read, written, is_work=is_work)
            answer = "because" if is_work else self.setting.plan
            await says(answer, read=read, written=written)(request, wire)
        finally:
            self.running -= 1

    def _written(self, most: int, *, is_work: bool) -> int:
        """Return how many tokens a reply has, as the provider says.

        The planner is honest: what it states at the end is not heard where a step has ended its run
        before.
        """
        if not is_work:
            return min(most, len(self.setting.plan) // 4)
        if not self.setting.is_honest:
            return LIE * most
        return self.chance.choice((most, most, self.chance.randint(1, most)))

    async def _fail(self, text: str, request: SeenRequest, wire: Wire, *, is_work: bool) -> None:
        kind = self.chance.choice(("status", "broken", "empty"))
        read = len(text.encode()) // 4
        if kind == "status":
            self._count(text, 0, 0, is_work=is_work)
            await refuses(500)(request, wire)
        elif kind == "broken":
            self._count(text, read, 1, is_work=is_work)
            await breaks("be")(request, wire)
        else:
            self._count(text, read, 1, is_work=is_work)
            await says("", read=read, written=1)(request, wire)

    def _count(self, text: str, read: int, written: int, *, is_work: bool) -> None:
        price = self.setting.price if is_work else PLANNED
        cost = (read * READ + written * price) / 1_000_000
        self.dearest = max(self.dearest, cost)
        self.longest = max(self.longest, read + written)
        questions = _QUESTION.findall(text)
        of_question = self.of_question.setdefault(questions[-1] if questions else "", Bill())
        for bill in (self.total, of_question):
            bill.add(cost, read + written, is_work=is_work)

    def room_for_lies(self, limit: str, amount: Decimal) -> Decimal:
        """Return by how much a limit may be exceeded: by what calls under way have stated.

        They had reserved the whole limit at most. Calls that have ended here may be under way for
        the command, so those that ran here at once may be fewer.
        """
        if self.setting.is_honest or limit.startswith("calls"):
            return Decimal(0)
        most = self.dearest if limit.startswith("cost") else Decimal(self.longest)
        return max(self.most_running * most, LIE * amount)


def try_setting(at: Desk, encoder: Path, setting: Setting, chance: random.Random) -> Outcome:
    """Give the command two or three times, and compare the bill with the limits each time."""
    _configure(at, setting)
    provider = Provider(setting, chance)
    at.stage.models = dict.fromkeys((*WORKERS, PLANNER), provider)
    max_cost = setting.max_cost
    for turn in range(chance.randint(2, 3)):
        if turn == 2 and max_cost is not None:
            max_cost *= Decimal("1.5")
        provider.of_question.clear()
        billed_before = provider.total.cost
        words = _words(at.home, encoder, setting, max_cost)
        command = at.prefork.start(words)
        if setting.is_killed and turn == 0:
            _kill_after(command, provider, chance.randint(1, 8))
        ended = command.ended(COMMAND_SECONDS)
        at.wait_for_server()
        may_be_killed = setting.is_killed and turn == 0
        problem = "" if may_be_killed else ending_problem(ended)
        if problem:
            return Outcome(problem=f"call {turn + 1}: {problem}")
        if "continuing" not in ended.err and setting.command != "batch":
            provider.paid_for_others = billed_before
        for problem in exceeded(setting, provider, max_cost):
            return Outcome(problem=f"call {turn + 1}: {problem}")
    return Outcome(hit=provider.total.calls > 0)


def _configure(at: Desk, setting: Setting) -> None:
    """Begin with an empty home, with the workers and the limits of a setting."""
    at.reset()
    most = f"max_tokens = {setting.most_written}\n"
    worker = f"price = {{ input = {READ}.0, output = {setting.price}.0 }}\n{most}"
    planner = f"price = {{ input = {READ}.0, output = {PLANNED}.0 }}\nenabled = false\n"
    limits = "\n".join(
        f"{name} = {amount}" for name, amount in (*setting.run_limits, *setting.day_limits)
    )
    at.stage.configure(
        f"[limits]\nattempts = {setting.attempts}\n{limits}",
        workers=dict.fromkeys(WORKERS[: setting.workers], worker) | {PLANNER: planner},
        conductor=PLANNER,
    )
    lines = [
        json.dumps({"id": f"q{number}", "question": f"Why {number}?", "answer": "because"})
        for number in range(QUESTIONS)
    ]
    (at.home / "questions.jsonl").write_text("".join(f"{line}\n" for line in lines))


def _words(home: Path, encoder: Path, setting: Setting, max_cost: Decimal | None) -> Sequence[str]:
    """Return the words of a command. Each question is one run of it, but for `try` and `tune`."""
    file = str(home / "questions.jsonl")
    words = {
        "batch": ["batch", file, "-o", str(home / "answers.jsonl"), "--yes"],
        "eval": ["eval", file, "--systems", "conductor", "--yes"],
        "try": ["try", file, "--yes"],
        "tune": [
            "tune",
            file,
            "--encoder",
            str(encoder),
            "--plans",
            "10",
            "-o",
            str(home / "mine.planner"),
            "--yes",
        ],
    }[setting.command]
    if setting.command != "try":
        words += ["--parallel", str(setting.parallel)]
    if max_cost is not None:
        words += ["--max-cost", str(max_cost)]
    return words


def _kill_after(command: Command, provider: Provider, calls: int) -> None:
    """Kill a command once it has made so many calls, if it has not ended by itself."""
    end = time.monotonic() + COMMAND_SECONDS
    while command.is_running and time.monotonic() < end:
        if provider.total.calls >= calls:
            command.signal(signal.SIGKILL)
            return
        time.sleep(0.01)


def exceeded(setting: Setting, provider: Provider, max_cost: Decimal | None) -> Iterator[str]:
    """Yield the limits that the bill exceeds by more than SECURITY.md says."""
    if max_cost is not None:
        cost = provider.total.cost - provider.paid_for_others
        if cost > max_cost + provider.room_for_lies("cost", max_cost):
            yield f"${cost} billed, --max-cost is {max_cost}"
    for name, most in setting.day_limits:
        amount = provider.total.amount(name)
        if amount > most + provider.room_for_lies(name, most):
            yield f"{amount} of {name} billed, the limit of the day is {most}"
    if setting.command in ("try", "tune"):  # these ask a question in several runs
        return
    for question, bill in provider.of_question.items():
        for name, most in setting.run_limits:
            amount = bill.amount(name)
            if question and amount > most + provider.room_for_lies(name, most):
                yield f"{amount} of {name} billed for {question!r}, the limit of a run is {most}"
