"""Live checks of workers, for `workers list|test` and `doctor`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core.chat import Chunk, Message, Request
from conductor_cli.core.errors import ConductorError, Failure, KeyMissing, PolicyError
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Pool, Worker

if TYPE_CHECKING:
    from conductor_cli.config import Listed, Settings
    from conductor_cli.keys.safe import Safe
    from conductor_cli.models.catalog import StoredKeys

PATIENCE: Final = 60.0
"""Seconds that a worker under test may take."""


LIMIT: Final = 16
"""Tokens of the answer: the least that all providers take. One that is set to think is stopped at its first token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
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
            silent = "(it thinks)" if self.thought else f"(no word within {LIMIT} tokens)"
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


def at_hand(settings: Settings) -> tuple[Listed, ...]:
    """The workers that are found where the settings name none."""
    from conductor_cli.cli.keyring_rows import at_hand as stored_at_hand
    from conductor_cli.cli.keyring_rows import stored_keys
    from conductor_cli.config import Listed
    from conductor_cli.models.discover import discover

    found = asyncio.run(discover(settings.environ, stored_at_hand(stored_keys(settings))))
    return tuple(Listed(worker=worker, enabled=True, source="found at hand") for worker in found)


def key_state(worker: Worker, environ: Mapping[str, str], safe: Safe) -> str:
    """`not needed`, the name of the variable that holds the key, where it is stored, or `missing`. Never the key."""
    from conductor_cli.models.catalog import key_of
    from conductor_cli.models.presets import PRESETS, base_url_of

    if worker.kind not in PRESETS:
        return "not needed"
    entry = None if worker.options.get("key_env") else safe.entry(worker.kind, base_url_of(worker))
    try:
        key = key_of(worker, environ, lambda _kind, _url: entry.where if entry else None)
    except KeyMissing:
        return "missing"
    if entry is not None and key == entry.where:
        return entry.where
    names = (str(worker.options.get("key_env") or ""), *PRESETS[worker.kind].keys)
    return next((name for name in names if key and environ.get(name, "").strip() == key), "not needed")


def test_workers(settings: Settings, names: Sequence[str]) -> list[Tested]:
    """Test the named workers, or all that are enabled, at the same time. Raises `UsageError` for an unknown name."""
    from conductor_cli.cli.keyring_rows import stored_keys
    from conductor_cli.cli.options import named

    listed = settings.workers or at_hand(settings)
    pool = Pool(workers=tuple(item.worker for item in listed if item.enabled or item.worker.name in names))
    if names:
        pool = named(pool, names)
    pool = Pool(workers=tuple(worker for worker in pool if worker.kind != SELF))
    if not len(pool):
        raise PolicyError("there is no worker to test", hint="add one with: conductor workers add NAME --kind KIND")
    return asyncio.run(_test_all(pool, settings.environ, stored_keys(settings)))


async def _test_all(pool: Pool, environ: Mapping[str, str], stored: StoredKeys) -> list[Tested]:
    return list(await asyncio.gather(*(test_worker(worker, environ, stored) for worker in pool)))


async def test_worker(worker: Worker, environ: Mapping[str, str], stored: StoredKeys) -> Tested:
    """Ask for one word, with the worker's own settings; any token is good, and the first one ends it."""
    from conductor_cli.models.catalog import open_model

    started = time.monotonic()
    found = Tested(name=worker.name, seconds=0.0)
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


async def _first(chunks: AsyncIterator[Chunk], found: Tested) -> Tested:
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
    thinks = bool(option("thinking_budget")) or option("reasoning_effort") not in (None, "none")
    return Request(
        messages=(Message(role="user", content="Reply with the one word: ready"),),
        max_tokens=None if thinks else LIMIT, temperature=option("temperature"),
    )  # fmt: skip
