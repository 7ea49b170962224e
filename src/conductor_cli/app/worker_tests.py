"""Live tests of workers, for `workers test` and `doctor`: one small question each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final

from conductor_cli.app.keys import open_key_store
from conductor_cli.app.worker_selection import discovered_workers
from conductor_cli.config import Settings
from conductor_cli.core.chat import Chunk, Message, Request
from conductor_cli.core.errors import ConductorError, Failure, PolicyError
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Pool, Worker
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
    """What one worker did with one small question.

    `seconds` is the time to its first token, or to its failure; `notes` is what its adapter had to say.
    """

    name: str
    seconds: float
    text: str = ""
    thought: bool = False
    notes: tuple[str, ...] = ()
    failure: Failure | None = None

    @property
    def state(self) -> str:
        return "ok" if self.failure is None else "failed"

    @property
    def message(self) -> str:
        """The first words of its answer, or what went wrong and what to do."""
        if self.failure is None:
            silent = "(thinking)" if self.thought else f"(no text within {ANSWER_TOKENS} tokens)"
            return " ".join(self.text.split())[:40] or silent
        return f"{self.failure.message}; {self.failure.hint}" if self.failure.hint else self.failure.message

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        failure = self.failure
        error = failure and {"kind": failure.kind, "message": failure.message, "hint": failure.hint}
        return {
            "name": self.name, "state": self.state, "seconds": round(self.seconds, 3), "text": self.text,
            "thought": self.thought, "notes": list(self.notes), "error": error,
        }  # fmt: skip


def run_worker_tests(settings: Settings, names: Sequence[str]) -> list[WorkerTest]:
    """Test the named workers, or all that are enabled, at the same time. Raises `UsageError` for an unknown name."""
    configured = settings.workers or discovered_workers(settings)
    pool = Pool(workers=tuple(item.worker for item in configured if item.enabled or item.worker.name in names))
    pool = pool.subset(names) if names else pool
    workers = [worker for worker in pool if worker.kind != SELF]
    if not workers:
        raise PolicyError("there is no worker to test", hint="add one with: conductor workers add NAME --kind KIND")
    stored = open_key_store(settings)

    async def run_all() -> list[WorkerTest]:
        return list(await asyncio.gather(*(run_worker_test(worker, settings.environ, stored) for worker in workers)))

    return asyncio.run(run_all())


async def run_worker_test(worker: Worker, environ: Mapping[str, str], stored: StoredKeys) -> WorkerTest:
    """Ask for one word, with the worker's own settings; any token will do, and the first one ends the test."""
    started = time.monotonic()
    result = WorkerTest(name=worker.name, seconds=0.0)
    try:
        model = open_model(worker, environ=environ, stored=stored, secrets=KNOWN_SECRETS)
        try:
            async with asyncio.timeout(SECONDS), aclosing(model.stream(_small_question(worker))) as chunks:
                result = await _read_first_token(chunks, result)
        finally:
            await model.close()
    except ConductorError as error:
        result = replace(result, failure=error.failure)
    except TimeoutError:
        failure = Failure(kind="unreachable", message=f"no answer within {SECONDS:g} s")
        result = replace(result, failure=failure)
    return replace(result, seconds=time.monotonic() - started)


async def _read_first_token(chunks: AsyncIterator[Chunk], result: WorkerTest) -> WorkerTest:
    async for chunk in chunks:
        notes = (*result.notes, chunk.note) if chunk.note else result.notes
        result = replace(result, text=chunk.text, thought=bool(chunk.thinking), notes=notes)
        if chunk.text or chunk.thinking:
            break
    return result


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
