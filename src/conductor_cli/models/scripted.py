"""A model that plays a script: for tests, for benchmarks, and for the plans that a training has sampled.

A run that uses one as a worker shows it by the worker's kind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass, field

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.core.usage import Usage
from conductor_cli.models.features import ALL_FEATURES, Features, check_features

ScriptItem = str | Chunk | float | ModelError
"""Text, a whole chunk, a pause in seconds, or an error to raise at this point."""

Script = Iterable[ScriptItem]


@dataclass
class ScriptedModel:
    """Plays one script per call, repeating the last one; or asks `reply` for the script of each request."""

    scripts: list[Script] = field(default_factory=list)
    reply: Callable[[Request], Script] | None = None
    requests: list[Request] = field(default_factory=list)
    closed: int = 0
    features: Features = ALL_FEATURES

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        check_features("the script", self.features, request)
        self.requests.append(request)
        written = 0
        try:
            for line in self._script(request):
                if isinstance(line, ModelError):
                    raise line
                if isinstance(line, float):
                    await asyncio.sleep(line)
                    continue
                chunk = Chunk(text=line) if isinstance(line, str) else line
                written += 1
                yield chunk
                if chunk.usage is not None:
                    return
            read = sum(len(message.content.split()) for message in request.messages)
            yield Chunk(usage=Usage(tokens_in=read, tokens_out=written, calls=1), finish="stop")
        finally:
            self.closed += 1

    def _script(self, request: Request) -> Script:
        if self.reply is not None:
            return self.reply(request)
        return self.scripts[min(len(self.requests), len(self.scripts)) - 1]

    async def close(self) -> None:
        """There is nothing to close."""
