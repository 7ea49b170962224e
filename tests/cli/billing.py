"""A provider for tests that bills what it says, and what it is asked."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from pathlib import Path

from tests.cli.stage import ONE, Stage, says
from tests.servers import SeenRequest, Wire

MOST = 1000  # Tokens of the longest answer
# US dollars for a million tokens that a worker writes: the longest answer costs a dollar
WRITTEN = 1000
PLANNED = 1


class Provider:
    """Bills what it says that it has used: with honesty just as many tokens as it may write."""

    def __init__(
        self,
        stage: Stage,
        overstates: int = 1,
        *,
        written: int = WRITTEN,
        plan: str = ONE,
        limits: str = "",
        workers: tuple[str, ...] = ("alpha",),
    ) -> None:
        """`overstates`: so many times what it may write is what it bills.

        `written` is its price.
        """
        self.plan_text = plan
        self.price = written
        self.billed = Decimal(0)
        self.running = 0
        self.most_running = 0
        self.answer = "fine"
        self.overstates = overstates
        worker = f"price = {{ input = 0.0, output = {written}.0 }}\nmax_tokens = {MOST}\n"
        planner = f"price = {{ input = 0.0, output = {PLANNED}.0 }}\nenabled = false\n"
        settings = f"[limits]\nattempts = 1\n{limits}"
        stage.configure(
            settings,
            workers=dict.fromkeys(workers, worker) | {"planner": planner},
            conductor="planner",
        )
        stage.models |= dict.fromkeys(workers, self.work)
        stage.models["planner"] = self.plan

    def bill(self, request: SeenRequest, price: int) -> int:
        written = self.overstates * int(request.json["max_tokens"])
        self.billed += written * Decimal(price) / 1_000_000
        return written

    async def work(self, request: SeenRequest, wire: Wire) -> None:
        written = self.bill(request, self.price)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(0.05)  # others come meanwhile
        self.running -= 1
        await says(self.answer, written=written)(request, wire)

    async def plan(self, request: SeenRequest, wire: Wire) -> None:
        await says(self.plan_text, written=self.bill(request, PLANNED))(request, wire)


def questions(path: Path, count: int = 40) -> Path:
    path.write_text("".join(f'{{"id": "q{n}", "question": "Why {n}?"}}\n' for n in range(count)))
    return path


def cases(path: Path, count: int = 40) -> Path:
    lines = [{"id": f"c{n}", "question": f"Why {n}?", "answer": "fine"} for n in range(count)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path
