"""conductor as a provider of litellm: after `register()`, `litellm.completion("conductor/auto", …)`.

docs.litellm.ai/docs/providers/custom_llm_server describes such providers, and `litellm/llms/custom_llm.py` (1.106) what
each method is given. A proxy of litellm names `conductor_cli.plugins.litellm.provider` in `custom_provider_map`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, closing
from typing import Any, Final

import litellm
from litellm.llms.custom_llm import CustomLLM, CustomLLMError
from litellm.types.utils import GenericStreamingChunk, ModelResponse

from conductor_cli.core.chat import ToolCall
from conductor_cli.plugins import in_process
from conductor_cli.server.api.request import RequestError
from conductor_cli.server.narration import AnswerText, Piece

PROVIDER: Final = "conductor"  # what comes before the slash in the name of a model


class ConductorLLM(CustomLLM):
    """The models of `conductor serve`, in this process: `auto`, `mini`, `ultra`, or a named pool.

    The response has the object `conductor` of the server, with the run and what each step used.
    """

    def __init__(self, *, rehearsal: bool = False, config: str | None = None) -> None:
        """Nothing is opened before the first call."""
        super().__init__()
        self._rehearsal = rehearsal
        self._config = config

    @property
    def _server(self) -> in_process.InProcessServer:
        return in_process.shared_server(rehearsal=self._rehearsal, config=self._config)

    def completion(self, *_: object, **call: Any) -> ModelResponse:  # noqa: ANN401 - as litellm passes them
        """Return the whole answer. Raises `CustomLLMError`."""
        try:
            return _response(self._server.answer_blocking(_body(call)))
        except RequestError as error:
            raise _litellm_error(error) from None

    async def acompletion(self, *_: object, **call: Any) -> ModelResponse:  # noqa: ANN401 - as litellm passes them
        """Return the same in an event loop."""
        try:
            return _response(await self._server.answer(_body(call)))
        except RequestError as error:
            raise _litellm_error(error) from None

    def streaming(self, *_: object, **call: Any) -> Iterator[GenericStreamingChunk]:  # noqa: ANN401 - as litellm passes them
        """Yield the answer in pieces; the last one has the usage. Raises `CustomLLMError`."""
        writer = _ChunkWriter()
        try:
            with closing(self._server.stream(_body(call))) as pieces:
                yield from (chunk for piece in pieces if (chunk := writer.write(piece)) is not None)
        except RequestError as error:
            raise _litellm_error(error) from None

    async def astreaming(self, *_: object, **call: Any) -> AsyncIterator[GenericStreamingChunk]:  # noqa: ANN401 - as litellm passes them
        """Yield the same in an event loop."""
        writer = _ChunkWriter()
        try:
            async with aclosing(self._server.stream_async(_body(call))) as pieces:
                async for piece in pieces:
                    chunk = writer.write(piece)
                    if chunk is not None:
                        yield chunk
        except RequestError as error:
            raise _litellm_error(error) from None


provider: Final = ConductorLLM()
"""The provider with the user's own settings, for the configuration of a proxy."""


def register(*, rehearsal: bool = False, config: str | None = None) -> None:
    """Make `conductor/…` known to litellm in this process. A second call replaces the first."""
    handler = ConductorLLM(rehearsal=rehearsal, config=config)
    others = [item for item in litellm.custom_provider_map if item["provider"] != PROVIDER]
    litellm.custom_provider_map = [*others, {"provider": PROVIDER, "custom_handler": handler}]


def _body(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of Chat Completions for a call of litellm, which has its parameters in the same form."""
    name = str(call["model"]).removeprefix(f"{PROVIDER}/")
    return {**call["optional_params"], "model": in_process.model_name(name), "messages": call["messages"]}


def _response(response: Mapping[str, Any]) -> ModelResponse:
    answer = ModelResponse(**response)
    # litellm has no price of these models; this one is known.
    answer._hidden_params["response_cost"] = response["conductor"]["cost"]  # noqa: SLF001 - where litellm keeps it
    return answer


class _ChunkWriter:
    """Writes the pieces of one answer as litellm streams them. What is told of the run is left out."""

    def __init__(self) -> None:
        self._calls = 0

    def write(self, piece: Piece | Mapping[str, Any]) -> GenericStreamingChunk | None:
        """Return the chunk of a piece, or of the whole response at the end."""
        chunk: dict[str, Any] = {
            "text": "", "index": 0, "is_finished": False, "finish_reason": "", "usage": None, "tool_use": None
        }  # fmt: skip
        match piece:
            case AnswerText():
                chunk["text"] = piece.text
            case ToolCall():
                function = {"name": piece.name, "arguments": piece.arguments}
                chunk["tool_use"] = {"id": piece.id, "type": "function", "function": function, "index": self._calls}
                self._calls += 1
            case Mapping():
                chunk |= {
                    "is_finished": True, "finish_reason": piece["choices"][0]["finish_reason"], "usage": piece["usage"]
                }  # fmt: skip
            case _:
                return None
        return GenericStreamingChunk(**chunk)


def _litellm_error(error: RequestError) -> CustomLLMError:
    return CustomLLMError(status_code=error.status, message=error.message)
