"""Live tests of workers, for `workers test` and `doctor`: one small question each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from conductor_cli.app.check_results import CheckResult
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
from conductor_cli.models.presets import with_key_hint

SECONDS: Final = 60.0
"""How long a worker under test may take."""

ANSWER_TOKENS: Final = 16
"""Tokens of the answer: the least that all providers accept."""

THINKING_TOKENS: Final = 16_384
"""More tokens for a worker that is set to think and has no budget: as many as litellm allows for the highest effort.

A provider that streams its thinking is stopped at the first token of it; others would think without a bound.
"""


Report = Callable[[CheckResult], None]


def workers_to_test(settings: Settings, names: Sequence[str]) -> list[Worker]:
    """The named workers, or all that are enabled. Raises `UsageError` for an unknown name, `PolicyError` for none."""
    configured = settings.workers or discovered_workers(settings)
    pool = Pool(workers=tuple(item.worker for item in configured if item.enabled or item.worker.name in names))
    pool = pool.subset(names) if names else pool
    workers = [worker for worker in pool if worker.kind != SELF]
    if not workers:
        raise PolicyError(
            "there is no worker to test",
            hint="find some: conductor setup, or add one: conductor workers add NAME --kind KIND",
        )
    return workers


def run_worker_tests(settings: Settings, workers: Sequence[Worker], report: Report) -> list[CheckResult]:
    """Test the workers at the same time; each result goes to `report` as soon as it is known."""
    stored = open_key_store(settings)

    async def run_one(worker: Worker) -> CheckResult:
        result = await run_worker_test(worker, settings.environ, stored)
        report(result)
        return result

    async def run_all() -> list[CheckResult]:
        return list(await asyncio.gather(*map(run_one, workers)))

    return asyncio.run(run_all())


async def run_worker_test(worker: Worker, environ: Mapping[str, str], stored: StoredKeys) -> CheckResult:
    """Ask for one word, with the worker's own settings; any token will do, and the first one ends the test."""
    started = time.monotonic()
    text, failure = f"(no text within {ANSWER_TOKENS} tokens)", None
    option = worker.options.get
    thinks = option("reasoning_effort") not in (None, "none")
    # A bound below the thinking budget would be refused, so the budget is added to it.
    thinking = option("thinking_budget") or (THINKING_TOKENS if thinks else 0)
    question = Message(role="user", content="Reply with the one word: ready")
    request = Request(messages=(question,), max_tokens=ANSWER_TOKENS + thinking, temperature=option("temperature"))
    try:
        model = open_model(worker, environ=environ, stored=stored, secrets=KNOWN_SECRETS)
        try:
            async with asyncio.timeout(SECONDS), aclosing(model.stream(request)) as chunks:
                async for chunk in chunks:
                    if chunk.text or chunk.thinking:
                        text = " ".join(chunk.text.split())[:40] or "(thinking)"
                        break
        finally:
            await model.close()
    except ConductorError as error:
        text, failure = "", with_key_hint(worker, error.failure)
    except TimeoutError:
        text, failure = "", Failure(kind="unreachable", message=f"no answer within {format_duration(SECONDS)}")
    seconds, data = time.monotonic() - started, {"text": text, "error": dump(failure)}
    if failure is not None:
        return replace(CheckResult.failed(worker.name, failure, seconds=seconds), data=data)
    return CheckResult(name=worker.name, text=text, seconds=seconds, data=data)
