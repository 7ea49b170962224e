"""Live tests of workers, for `workers test` and `doctor`: one small question each, on demand files and a tool."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final

from conductor_cli.app.feature_tests import ANSWER_TOKENS as FEATURE_TOKENS
from conductor_cli.app.feature_tests import FeatureTest, run_feature_tests
from conductor_cli.app.keys import open_key_store
from conductor_cli.app.worker_selection import discovered_workers
from conductor_cli.config import Settings
from conductor_cli.core.chat import MediaKind, Message, Request
from conductor_cli.core.errors import ConductorError, Failure, PolicyError
from conductor_cli.core.formatting import format_duration
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.serialization import dump
from conductor_cli.models.base import Model
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTest:
    """What one worker did with one small question: its first words, or why there are none, after how many seconds.

    `features` is what it takes besides text, if that was tested.
    """

    name: str
    seconds: float = 0.0
    text: str = ""
    failure: Failure | None = None
    features: tuple[FeatureTest, ...] = ()

    @property
    def state(self) -> str:
        return "ok" if self.failure is None else "failed"

    @property
    def message(self) -> str:
        """What it takes or the first words of its answer, or what went wrong and what to do."""
        if self.failure is None:
            return "; ".join(map(str, self.features)) or self.text
        return "; ".join(filter(None, (self.failure.message, self.failure.hint)))

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        seconds, error = round(self.seconds, 3), dump(self.failure)
        data = {"name": self.name, "state": self.state, "seconds": seconds, "text": self.text, "error": error}
        tested = {test.feature: {"takes": test.takes, "why": test.why} for test in self.features}
        return data | ({"features": tested} if tested else {})

    @property
    def accepts(self) -> list[MediaKind] | None:
        """The kinds of attachments that it was seen to read; None if one of them is not known."""
        media = {test.feature: test.takes for test in self.features if test.feature != "tools"}
        known = bool(media) and "unknown" not in media.values()
        return [kind for kind, takes in media.items() if takes == "yes"] if known else None


Report = Callable[[WorkerTest], None]


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


def run_worker_tests(
    settings: Settings, workers: Sequence[Worker], report: Report, *, features: bool = False
) -> list[WorkerTest]:
    """Test the workers at the same time; each result goes to `report` as soon as it is known.

    With `features` it is also tested what each takes besides text: three more calls.
    """
    stored = open_key_store(settings)

    async def run_one(worker: Worker) -> WorkerTest:
        result = await run_worker_test(worker, settings.environ, stored, features=features)
        report(result)
        return result

    async def run_all() -> list[WorkerTest]:
        return list(await asyncio.gather(*map(run_one, workers)))

    return asyncio.run(run_all())


async def run_worker_test(
    worker: Worker, environ: Mapping[str, str], stored: StoredKeys, *, features: bool = False
) -> WorkerTest:
    """Ask for one word, with the worker's own settings; any token will do, and the first one ends the test.

    With `features` a worker that answers is also tested for what it takes besides text.
    """
    started = time.monotonic()
    result = WorkerTest(name=worker.name)
    try:
        model = open_model(worker, environ=environ, stored=stored, secrets=KNOWN_SECRETS)
        try:
            result = replace(result, text=await _first_words(worker, model))
            if features:
                settings = _request(worker, FEATURE_TOKENS)
                result = replace(result, features=await run_feature_tests(model, settings, SECONDS))
        finally:
            await model.close()
    except ConductorError as error:
        result = replace(result, failure=with_key_hint(worker, error.failure))
    except TimeoutError:
        failure = Failure(kind="unreachable", message=f"no answer within {format_duration(SECONDS)}")
        result = replace(result, failure=failure)
    return replace(result, seconds=time.monotonic() - started)


async def _first_words(worker: Worker, model: Model) -> str:
    """What a worker writes first. Raises `ConductorError` and `TimeoutError`."""
    question = Message(role="user", content="Reply with the one word: ready")
    request = replace(_request(worker, ANSWER_TOKENS), messages=(question,))
    async with asyncio.timeout(SECONDS), aclosing(model.stream(request)) as chunks:
        async for chunk in chunks:
            if chunk.text or chunk.thinking:
                return " ".join(chunk.text.split())[:40] or "(thinking)"
    return f"(no text within {ANSWER_TOKENS} tokens)"


def _request(worker: Worker, tokens: int) -> Request:
    """A request without messages whose answer may have so many tokens, with the worker's settings."""
    option = worker.options.get
    thinks = option("reasoning_effort") not in (None, "none")
    # A bound below the thinking budget would be refused, so the budget is added to it.
    thinking = option("thinking_budget") or (THINKING_TOKENS if thinks else 0)
    return Request(messages=(), max_tokens=tokens + thinking, temperature=option("temperature"))
