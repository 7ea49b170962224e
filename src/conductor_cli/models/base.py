"""The interface of every model: conductor, workers and test doubles."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol, runtime_checkable

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.models.features import Features


class Model(Protocol):
    """Something that answers a request with a stream of chunks.

    The contract, which one test suite checks for every adapter:

    - the reply's text is the joined `Chunk.text`; thinking likewise; neither is ever dropped;
    - exactly one chunk has `usage` and `finish`, and it is the last;
    - a failure is a `ModelError` and nothing else, whatever the underlying library raised;
    - closing the iterator or cancelling the task stops the work behind it: a server sees the connection close within
      one second, a local model stops within 200 ms on a CPU;
    - a request that needs what is not among `features` is a `ModelError` of reason `refused`, and nothing is sent;
    - `stream` may be called again while another stream is open, unless the worker's `parallel` is 1.
    """

    @property
    def features(self) -> Features:
        """What can be sent besides text, as far as the adapter knows. Whether the model reads it is another question.

        Raises nothing.
        """
        ...

    def stream(self, request: Request) -> AsyncGenerator[Chunk, None]: ...

    async def close(self) -> None: ...


@runtime_checkable
class ChoosesModel(Protocol):
    """A model behind a server that lists what it has: where the settings name no model, the first of them is asked."""

    async def chosen_model(self) -> str:
        """The id of the model that is asked for, empty if the server does not answer. Raises nothing."""
        ...
