"""The interface of every model: conductor, workers and test doubles."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol, runtime_checkable

from conductor_cli.core.chat import Chunk, Request


class Model(Protocol):
    """Something that answers a request with a stream of chunks.

    The contract, which one test suite checks for every adapter:

    - the reply's text is the joined `Chunk.text`; thinking likewise; neither is ever dropped;
    - exactly one chunk has `usage` and `finish`, and it is the last;
    - a failure is a `ModelError` and nothing else, whatever the underlying library raised;
    - closing the iterator or cancelling the task stops the work behind it: a server sees the connection close within
      one second, a local model stops within 200 ms on a CPU;
    - `stream` may be called again while another stream is open, unless the worker's `parallel` is 1.
    """

    def stream(self, request: Request) -> AsyncGenerator[Chunk, None]: ...

    async def close(self) -> None: ...


@runtime_checkable
class ChoosesModel(Protocol):
    """A model behind a server that lists what it has: where the settings name no model, the first of them is asked."""

    async def chosen_model(self) -> str:
        """The id of the model that is asked for, empty if the server does not answer. Raises nothing."""
        ...
