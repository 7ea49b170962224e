"""Live tests of workers, for `workers test` and `doctor`: one small question each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final

from conductor_cli.app.keys import open_key_store
from conductor_cli.app.worker_selection import discovered_workers
from conductor_cli.config import Settings
from conductor_cli.core.chat import Message, Request
from conductor_cli.core.errors import ConductorError, Failure, PolicyError
from conductor_cli.core.formatting import format_duration
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.serialization import dump
from conductor_cli.models.catalog import StoredKeys, open_model
from conductor_cli.models.known_secrets import KNOWN_SECRETS

SECONDS: Final = 60.0
"""How long a worker under test may take."""

ANSWER_TOKENS: Final = 16
"""Tokens of the answer: the least that all providers accept."""

THINKING_TOKENS: Final = 16_384
"""More tokens for a worker that is set to think and has no budget: as many as litellm allows for the highest effort.

A provider that streams its thinking is stopped at the first token of it; others would think without a bound.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTest:
    """What one worker did with one small question: its first words, or why there are none, after how many seconds."""

    name: str
    seconds: float = 0.0
    text: str = ""
    failure: Failure | None = None

    @property
    def state(self) -> str:
        return "ok" if self.failure is None else "failed"

    @property
    def message(self) -> str:
        """The first words of its answer, or what went wrong and what to do."""
        if self.failure is None:
            return self.text
        return "; ".join(filter(None, (self.failure.message, self.failure.hint)))

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        seconds, error = round(self.seconds, 3), dump(self.failure)
        return {"name": self.name, "state": self.state, "seconds": seconds, "text": self.text, "error": error}


Report = Callable[[WorkerTest], None]


def workers_to_test(settings: Settings, names: Sequence[str]) -> list[Worker]:
    """The named workers, or all that are enabled. Raises `UsageError` for an unknown name, `PolicyError` for none."""
    configured = settings.workers or discovered_workers(settings)
    pool = Pool(workers=tuple(item.worker for item in configured if item.enabled or item.worker.name in names))
    pool = pool.subset(names) if names else pool
    workers = [worker for worker in pool if worker.kind != SELF]
    if not workers:
        raise PolicyError("there is no worker to test", hint="add one with: conductor workers add NAME --kind KIND")
    return workers


def run_worker_tests(settings: Settings, workers: Sequence[Worker], report: Report) -> list[WorkerTest]:
    """Test the workers at the same time; each result goes to `report` as soon as it is known."""
    stored = open_key_store(settings)

    async def run_one(worker: Worker) -> WorkerTest:
        result = await run_worker_test(worker, settings.environ, stored)
        report(result)
        return result

    async def run_all() -> list[WorkerTest]:
        return list(await asyncio.gather(*map(run_one, workers)))

    return asyncio.run(run_all())


async def run_worker_test(worker: Worker, environ: Mapping[str, str], stored: StoredKeys) -> WorkerTest:
    """Ask for one word, with the worker's own settings; any token will do, and the first one ends the test."""
    started = time.monotonic()
    result = WorkerTest(name=worker.name)
    try:
        result = replace(result, text=await _first_words(worker, environ, stored))
    except ConductorError as error:
        result = replace(result, failure=error.failure)
    except TimeoutError:
        failure = Failure(kind="unreachable", message=f"no answer within {format_duration(SECONDS)}")
        result = replace(result, failure=failure)
    return replace(result, seconds=time.monotonic() - started)


async def _first_words(worker: Worker, environ: Mapping[str, str], stored: StoredKeys) -> str:
    """What a worker writes first. Raises `ConductorError` and `TimeoutError`."""
    model = open_model(worker, environ=environ, stored=stored, secrets=KNOWN_SECRETS)
    try:
        async with asyncio.timeout(SECONDS), aclosing(model.stream(_small_question(worker))) as chunks:
            async for chunk in chunks:
                if chunk.text or chunk.thinking:
                    return " ".join(chunk.text.split())[:40] or "(thinking)"
    finally:
        await model.close()
    return f"(no text within {ANSWER_TOKENS} tokens)"


def _small_question(worker: Worker) -> Request:
    """A question that one word answers."""
    option = worker.options.get
    thinks = option("reasoning_effort") not in (None, "none")
    # A bound below the thinking budget would be refused, so the budget is added to it.
    thinking = option("thinking_budget") or (THINKING_TOKENS if thinks else 0)
    return Request(
        messages=(Message(role="user", content="Reply with the one word: ready"),),
        max_tokens=ANSWER_TOKENS + thinking, temperature=option("temperature"),
    )  # fmt: skip
