"""The conductor's own file in an evaluation: asked through the adapter that runs use, and remembered.

`write_plans` writes many likeliest plans together with torch, in half of the time, and puts them where `StoredModel`
finds them. Without torch each plan is written when it is needed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Final

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import ConfigError, ModelError
from conductor_cli.core.usage import FREE, Usage, with_cost
from conductor_cli.models.base import NO_FEATURES, Features, Model
from conductor_cli.rehearsal.players import MOST_TOKENS
from scripts.rehearsal.store import GREEDY, Store, Written, digest

BATCH: Final = 64
"""Plans that are written together: with fewer, and with more, each takes longer."""


class StoredModel:
    """The model in a file, which is asked only for what the store does not know."""

    def __init__(self, model: Model, file: Path, store: Store) -> None:
        self._model, self._file, self._store = model, file, store

    @property
    def features(self) -> Features:
        return NO_FEATURES

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """The reply, in one piece."""
        written = await self.write(request)
        yield Chunk(text=written.text)
        used = Usage(calls=1, tokens_in=written.tokens_in, tokens_out=written.tokens_out)
        yield Chunk(usage=with_cost(used, FREE), finish="stop" if written.complete else "length")

    async def write(self, request: Request) -> Written:
        """What the model writes. A reply that is not the likeliest one is not remembered."""
        if request.rank:
            return await self._ask(request)
        prompt = "".join(message.content for message in request.messages)
        seed = (request.seed or 0) if request.temperature else GREEDY
        found = self._store.get(self._file, prompt, seed)
        if found is None:
            found = await self._ask(request)
            self._store.put(self._file, prompt, found, seed)
        return found

    def prepare(self, prompts: Sequence[str]) -> None:
        """Write the likeliest plans after these prompts together, where torch is installed."""
        write_plans(self._file, prompts, self._store)

    async def _ask(self, request: Request) -> Written:
        chunks = [chunk async for chunk in self._model.stream(request)]
        used = chunks[-1].usage or Usage()
        text = "".join(chunk.text for chunk in chunks)
        return Written(text, 0.0, used.tokens_in, used.tokens_out, chunks[-1].finish == "stop")

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()


def write_plans(file: Path, prompts: Sequence[str], store: Store) -> int:
    """Put the likeliest plans after these prompts into the store; how many were missing.

    Does nothing without torch, or for a file of another vocabulary, which only llama.cpp can read.
    """
    missing = [prompt for prompt in dict.fromkeys(prompts) if store.get(file, prompt) is None]
    try:
        from scripts.rehearsal.plans_in_batches import planner_of

        planner = planner_of(file, digest(file)) if missing else None
    except (ConfigError, ModelError):
        return 0
    if planner is not None:
        # Texts of like length together, so that little is padded.
        missing.sort(key=planner.length)
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            for prompt, written in zip(batch, planner.write(batch, MOST_TOKENS), strict=True):
                store.put(file, prompt, written)
    return len(missing)
