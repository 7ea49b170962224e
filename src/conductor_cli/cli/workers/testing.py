"""Live checks of workers, for `workers test` and `doctor`: one small question each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core.chat import Chunk, Message, Request
from conductor_cli.core.errors import ConductorError, Failure, PolicyError
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Pool, Worker

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.models.catalog import StoredKeys

PATIENCE: Final = 60.0
"""Seconds that a worker under test may take."""

LIMIT: Final = 16
"""Tokens of the answer: the least that all providers take."""

THOUGHT: Final = 16_384
"""Tokens beside them for one that is set to think and has no budget: as many as litellm makes of the highest effort.

A provider that streams its thinking is stopped at the first token of it; others would think without a bound.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTest:
    """What one worker did with one small question.

    `seconds` are those to its first token, or to what went wrong; `notes` is what its adapter had to say.
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
    def time(self) -> str:
        return f"{self.seconds:.2f} s"

    @property
    def said(self) -> str:
        """The first words of its answer, or what went wrong and what to do."""
        if self.failure is None:
            silent = "(it thinks)" if self.thought else "(no word within its few tokens)"
            return " ".join(self.text.split())[:40] or silent
        return f"{self.failure.message}; {self.failure.hint}" if self.failure.hint else self.failure.message

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        error = (
            None
            if self.failure is None
            else {"kind": self.failure.kind, "message": self.failure.message, "hint": self.failure.hint}
        )
        return {
            "name": self.name, "state": self.state, "seconds": round(self.seconds, 3), "text": self.text,
            "thought": self.thought, "notes": list(self.notes), "error": error,
        }  # fmt: skip


def test_workers(settings: Settings, names: Sequence[str]) -> list[WorkerTest]:
    """Test the named workers, or all that are enabled, at the same time. Raises `UsageError` for an unknown name."""
    from conductor_cli.app.keys import open_key_store
    from conductor_cli.app.worker_selection import choose_workers, discovered_workers

    listed = settings.workers or discovered_workers(settings)
    pool = Pool(workers=tuple(item.worker for item in listed if item.enabled or item.worker.name in names))
    if names:
        pool = choose_workers(pool, names)
    pool = Pool(workers=tuple(worker for worker in pool if worker.kind != SELF))
    if not len(pool):
        raise PolicyError("there is no worker to test", hint="add one with: conductor workers add NAME --kind KIND")
    return asyncio.run(_test_all(pool, settings.environ, open_key_store(settings)))


async def _test_all(pool: Pool, environ: Mapping[str, str], stored: StoredKeys) -> list[WorkerTest]:
    return list(await asyncio.gather(*(test_worker(worker, environ, stored) for worker in pool)))


async def test_worker(worker: Worker, environ: Mapping[str, str], stored: StoredKeys) -> WorkerTest:
    """Ask for one word, with the worker's own settings; any token is good, and the first one ends it."""
    from conductor_cli.models.catalog import open_model

    started = time.monotonic()
    found = WorkerTest(name=worker.name, seconds=0.0)
    try:
        model = open_model(worker, environ=environ, stored=stored)
        try:
            async with asyncio.timeout(PATIENCE), aclosing(model.stream(_word(worker))) as chunks:
                found = await _first(chunks, found)
        finally:
            await model.close()
    except ConductorError as error:
        found = replace(found, failure=error.failure)
    except TimeoutError:
        failure = Failure(kind="unreachable", message=f"no answer within {PATIENCE:g} s")
        found = replace(found, failure=failure)
    return replace(found, seconds=time.monotonic() - started)


async def _first(chunks: AsyncIterator[Chunk], found: WorkerTest) -> WorkerTest:
    """What came up to the first token."""
    async for chunk in chunks:
        notes = (*found.notes, chunk.note) if chunk.note else found.notes
        found = replace(found, text=chunk.text, thought=bool(chunk.thinking), notes=notes)
        if chunk.text or chunk.thinking:
            break
    return found


def _word(worker: Worker) -> Request:
    """A question that one word answers. A bound under a thinking budget would be refused for itself."""
    option = worker.options.get
    thought = option("thinking_budget") or (THOUGHT if option("reasoning_effort") not in (None, "none") else 0)
    return Request(
        messages=(Message(role="user", content="Reply with the one word: ready"),),
        max_tokens=LIMIT + thought, temperature=option("temperature"),
    )  # fmt: skip
