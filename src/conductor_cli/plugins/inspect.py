"""conductor as a model of Inspect: `inspect eval TASK --model conductor/auto`.

inspect.aisi.org.uk/extensions.html describes providers, and `inspect_ai/model/_model.py` (0.3.285)
what each method is given. Inspect loads this module by the entry point `inspect_ai`.
"""

from __future__ import annotations

import json
import mimetypes
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from inspect_ai import model as inspect_model
from inspect_ai import tool as inspect_tool

from conductor_cli.core.chat import ToolCall
from conductor_cli.core.errors import UsageError
from conductor_cli.core.mappings import without_none
from conductor_cli.core.tools import parse_arguments
from conductor_cli.server.api.errors import TOO_LONG
from conductor_cli.server.api.request import RequestError

CONFIG_FIELDS: Final[Mapping[str, str]] = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "seed": "seed",
    "stop_seqs": "stop",
    "num_choices": "n",
    "logprobs": "logprobs",
    "reasoning_effort": "reasoning_effort",
    "top_p": "top_p",
    "top_k": "top_k",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "parallel_tool_calls": "parallel_tool_calls",
}
"""What Inspect calls a field of Chat Completions."""

UNSERVED: Final = (
    "best_of",
    "cache_prompt",
    "effort",
    "fallback_models",
    "internal_tools",
    "modalities",
    "prompt_logprobs",
    "reasoning_mode",
    "reasoning_summary",
    "reasoning_tokens",
    "top_logprobs",
    "verbosity",
)
"""Options of a model that have no effect here. They are sent, so that the answer names them.

All others are of Inspect itself, or of its providers with an address.
"""

STOPS: Final[Mapping[str, inspect_model.StopReason]] = {
    "stop": "stop",
    "length": "max_tokens",
    "content_filter": "content_filter",
    "tool_calls": "tool_calls",
}
"""What Inspect calls the end of an answer."""

OWN_FAILURES: Final = frozenset(
    {
        TOO_LONG,
        "workers_failed",
        "invalid_answer",
        "limit_time",
        "limit_calls",
        "limit_tokens",
        "limit_cost",
    }
)
"""The codes of errors that say something about the sample, not about the models or the settings."""


@inspect_model.modelapi(name="conductor")
class ConductorAPI(inspect_model.ModelAPI):
    """One of the models of `conductor serve`, in this process.

    `auto`, `mini`, `ultra`, or a named pool.

    `-M rehearsal=true` asks the demo models, `-M config=FILE` reads other settings. The metadata of
    each output has the id of the run, under which its trace is stored, and what each step used. The
    usage is that of the whole run.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - as Inspect calls it
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        # As Inspect's own providers have it
        config: inspect_model.GenerateConfig = inspect_model.GenerateConfig(),  # noqa: B008
        rehearsal: bool = False,  # noqa: FBT001, FBT002 - an argument of the command line
        config_file: str | None = None,
    ) -> None:
        """Nothing is opened before the first sample.

        Raises `UsageError` where a server is named.
        """
        super().__init__(model_name, base_url, api_key, [], config)
        if base_url is not None:
            hint = "for a server: --model openai-api/conductor/conductor, with CONDUCTOR_BASE_URL"
            raise UsageError("conductor/… runs in this process and has no address", hint=hint)
        self._rehearsal = rehearsal
        self._config_file = config_file

    async def generate(
        self,
        input: list[inspect_model.ChatMessage],  # noqa: A002 - as Inspect calls it
        tools: list[inspect_tool.ToolInfo],
        tool_choice: inspect_tool.ToolChoice,
        config: inspect_model.GenerateConfig,
    ) -> inspect_model.ModelOutput:
        """Return one answer. Where Inspect cancels the sample, the workers are cancelled.

        A run that ended without an answer for a reason of its own gives an empty one, with the
        reason as its error: it is wrong, and the other samples go on. Raises `RequestError` where
        models cannot be reached, a setting is wrong or a limit of the day is used up, which says
        nothing about the sample.
        """
        # Every command of Inspect loads this module, most of which ask nothing.
        from conductor_cli.plugins.in_process import SHORT_NAMES, shared_server

        model = SHORT_NAMES.get(self.model_name, self.model_name)
        body = {"model": model, "messages": [_chat_message(message) for message in input]}
        server = shared_server(rehearsal=self._rehearsal, config=self._config_file)
        try:
            return _output(
                await server.answer(body | _options(config) | _tools(tools, tool_choice))
            )
        except RequestError as error:
            if error.code not in OWN_FAILURES:
                raise
            stop: inspect_model.StopReason = "model_length" if error.code == TOO_LONG else "unknown"
            return inspect_model.ModelOutput.from_content(self.model_name, "", stop, error.message)


def _chat_message(message: inspect_model.ChatMessage) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "role": message.role,
        "content": list(_content_parts(message.content)),
    }
    if isinstance(message, inspect_model.ChatMessageAssistant) and message.tool_calls:
        named = []
        for call in message.tool_calls:
            named.append({"name": call.function, "arguments": json.dumps(call.arguments)})
        called = zip(message.tool_calls, named, strict=True)
        fields["tool_calls"] = []
        for call, function in called:
            fields["tool_calls"].append({"id": call.id, "type": "function", "function": function})
    if isinstance(message, inspect_model.ChatMessageTool):
        fields["tool_call_id"] = message.tool_call_id or ""
        if message.error is not None:
            fields["content"] = f"Error: {message.error.message}"
    return fields


def _content_parts(content: str | Sequence[inspect_model.Content]) -> Iterator[dict[str, Any]]:
    """Yield the parts of a message. Raises `UsageError` for audio and video."""
    parts: Sequence[Any] = content
    if isinstance(content, str):
        parts = [inspect_model.ContentText(text=content)]
    for part in parts:
        match part:
            case inspect_model.ContentText():
                yield {"type": "text", "text": part.text}
            case inspect_model.ContentImage():
                image = {"url": _data_url(part.image), "detail": part.detail}
                yield {"type": "image_url", "image_url": image}
            case inspect_model.ContentDocument():
                file = {
                    "filename": part.filename or "document.pdf",
                    "file_data": _data_url(part.document),
                }
                yield {"type": "file", "file": file}
            case inspect_model.ContentReasoning():
                pass
            case _:
                raise UsageError(f"a message has {part.type}, which no worker can be sent")


def _data_url(location: str) -> str:
    """Return the bytes of a file in the form that a body has; an address stays as it is."""
    if location.startswith(("data:", "http:", "https:")):
        return location
    path = Path(location.removeprefix("file://"))
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return f"data:{kind};base64,{b64encode(path.read_bytes()).decode()}"


def _options(config: inspect_model.GenerateConfig) -> dict[str, Any]:
    given = {name: getattr(config, field) for field, name in CONFIG_FIELDS.items()}
    given |= {name: getattr(config, name) for name in UNSERVED}
    if config.logit_bias is not None:
        given["logit_bias"] = {str(token): value for token, value in config.logit_bias.items()}
    if config.response_schema is not None:
        form = config.response_schema
        schema = form.json_schema.model_dump(exclude_none=True, by_alias=True)
        given["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": form.name, "schema": schema},
        }
    return without_none(given)


def _tools(
    tools: Sequence[inspect_tool.ToolInfo], choice: inspect_tool.ToolChoice
) -> dict[str, Any]:
    if not tools:
        return {}
    fields = {"name", "description", "parameters"}
    offered = []
    for tool in tools:
        function = tool.model_dump(include=fields, exclude_none=True, by_alias=True)
        offered.append({"type": "function", "function": function})
    named: Any = choice
    if isinstance(choice, str):
        named = {"any": "required"}.get(choice, choice)
    if isinstance(choice, inspect_tool.ToolFunction):
        named = {"type": "function", "function": {"name": choice.name}}
    return {
        "tools": offered,
        "tool_choice": named,
    }


def _output(response: Mapping[str, Any]) -> inspect_model.ModelOutput:
    choice = response["choices"][0]
    orchestra = response["conductor"]
    calls = []
    for call in choice["message"].get("tool_calls", ()):
        calls.append(_called(call["id"], **call["function"]))
    message = inspect_model.ChatMessageAssistant(
        content=choice["message"]["content"] or "",
        model=response["model"],
        source="generate",
        tool_calls=calls or None,
    )
    total = orchestra["usage"]["total"]
    read = total["input_tokens"]
    cached = total["cached_tokens"]
    written = total["output_tokens"]
    usage = inspect_model.ModelUsage(  # Inspect counts input apart from what was cached
        input_tokens=read - cached,
        input_tokens_cache_read=cached,
        output_tokens=written,
        total_tokens=read + written,
        reasoning_tokens=total["reasoning_tokens"],
        total_cost=total["cost"],
    )
    return inspect_model.ModelOutput(
        model=response["model"],
        choices=[
            inspect_model.ChatCompletionChoice(
                message=message, stop_reason=STOPS[choice["finish_reason"]]
            )
        ],
        usage=usage,
        metadata={"conductor": orchestra},
        response_id=response["id"],
        input_context_tokens=orchestra["usage"]["answer"]["input_tokens"],
    )


def _called(call: str, name: str, arguments: str) -> inspect_tool.ToolCall:
    """Return a call of a tool.

    Inspect tells the model what is wrong with arguments that are no object.
    """
    problem = None
    parsed = dict[str, Any]()
    try:
        parsed = parse_arguments(ToolCall(id=call, name=name, arguments=arguments))
    except ValueError as error:
        problem = str(error)
    return inspect_tool.ToolCall(id=call, function=name, arguments=parsed, parse_error=problem)
