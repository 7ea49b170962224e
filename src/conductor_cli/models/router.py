"""Routers and guided planners: `conductor tune` writes them, and runs use them as any planner.

A router is a planner that gives each question whole to one worker. It reads the question with a
small local model, and multiplies the hidden state by a matrix with a row for each worker. A guided
planner is a model that reads more than the rules: what was learned from the user's cases about
planning for their workers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.core.profile import Guide
from conductor_cli.core.serialization import DecodeError, dump, load
from conductor_cli.core.usage import FREE, Usage, with_cost
from conductor_cli.models.base import NO_FEATURES, Features

SUFFIX: Final = ".planner"
MAX_FILE_SIZE: Final = 64_000_000  # Bytes: 100 workers and a hidden state of 16,000 floats
MAX_GUIDE: Final = 60_000  # Characters of a guided planner's file
FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterFile:
    """A router: `encoder` is the GGUF file that reads questions, `identity` the hash of its ends.

    `weights` has a row for each of `workers`: a constant, and a factor for each number of the
    hidden state. `proof` says how it did on cases that it was not made from.
    """

    format: int = FORMAT
    encoder: str
    identity: str
    workers: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]
    proof: str = ""

    def scores(self, state: Any) -> dict[str, float]:  # noqa: ANN401 - numpy is slow to import
        """Return how well each worker is expected to do, by the hidden state of the question."""
        import numpy as np

        values = np.asarray(self.weights) @ np.concatenate(([1.0], state))
        return dict(zip(self.workers, map(float, values), strict=True))


def write_planner(planner: RouterFile | Guide) -> str:
    """Return the text of the file."""
    return json.dumps(dump(planner), allow_nan=False, ensure_ascii=False) + "\n"


def read_planner(path: Path) -> RouterFile | Guide:
    """Return what a file holds, which may be anybody's. Raises `ModelError` of kind `file`."""
    try:
        if path.stat().st_size > MAX_FILE_SIZE:
            raise ValueError(f"it has more than {MAX_FILE_SIZE:,} bytes")
        fields = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(fields, dict) and fields.get("format", FORMAT) != FORMAT:
            raise ValueError(
                f"it has the format {fields['format']!r:.20}, and this version reads {FORMAT}"
            )
        if isinstance(fields, dict) and "planner" in fields:
            guide = load(Guide, fields)
            names_planner = guide.planner != "" and not guide.planner.endswith(SUFFIX)
            if not names_planner or len(write_planner(guide)) > MAX_GUIDE:
                raise ValueError("it names no planner, or has more text than a planner can read")
            return guide
        router = load(RouterFile, fields)
        has_row_for_each = len(router.weights) == len(router.workers) > 0
        has_equal_rows = len({len(row) for row in router.weights}) == 1
        if not has_row_for_each or not has_equal_rows:
            raise ValueError("its tables do not fit each other")
    except (OSError, ValueError, RecursionError, DecodeError) as error:
        hint = "make it again: conductor tune CASES.jsonl"
        raise ModelError(
            "file", f"{path} is no planner that can be used: {error}", hint=hint
        ) from None
    return router


@dataclass
class Router:
    """The router in a file, as a model."""

    path: Path
    features: Features = NO_FEATURES
    _loaded: tuple[RouterFile, Any] | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """Yield the label of the best worker on offer.

        The message is what `core.profile.render_for_router` writes.
        """
        task = json.loads(request.messages[-1].content)
        async with self._turn:
            scores, tokens = await asyncio.to_thread(self._score, task["question"])
        labels = {label: scores[name] for label, name in task["workers"].items() if name in scores}
        if not labels:
            hint = "conductor tune learns about the workers of today"
            raise ModelError("refused", "the router knows none of the workers on offer", hint=hint)
        best = max(labels, key=labels.__getitem__)
        choices = {choice.strip(): choice for choice in reversed(request.choices)}
        yield Chunk(text=choices.get(best, best))
        yield Chunk(usage=with_cost(Usage(tokens_in=tokens, calls=1), FREE), finish="stop")

    async def close(self) -> None:
        if self._loaded is not None:
            loaded = self._loaded
            self._loaded = None
            await asyncio.to_thread(loaded[1].close)

    def _score(self, question: str) -> tuple[dict[str, float], int]:
        """Return the score of each worker, and about how many tokens were read."""
        # A planner behind a URL needs no llama.cpp
        from conductor_cli.models.llama.engine import MAX_ENCODED_TOKENS, Encoder

        if self._loaded is None:
            router = read_planner(self.path)
            assert isinstance(router, RouterFile), "a guided planner is another model"
            check_encoder(router)
            encoder = Encoder(Path(router.encoder))
            if encoder.size != len(router.weights[0]) - 1:
                encoder.close()
                raise ModelError(
                    "file",
                    f"{router.encoder} has hidden states of another size than {self.path} expects",
                )
            self._loaded = router, encoder
        router, encoder = self._loaded
        tokens = min(len(question) // 4, MAX_ENCODED_TOKENS)
        return router.scores(encoder.encode(question)), tokens


def check_encoder(router: RouterFile) -> None:
    """Raise `ModelError` where questions would be read by another model than at its making."""
    from conductor_cli.models.llama.gguf import read_model_info

    path = Path(router.encoder)
    if not path.is_file() or read_model_info(path).identity != router.identity:
        message = f"the router reads questions with {path}, which is missing or has changed"
        raise ModelError("file", message, hint="make it again: conductor tune CASES.jsonl")
