"""conductor as a model of Simon Willison's `llm`: `llm -m conductor "…"`.

llm.datasette.io/en/stable/plugins/advanced-model-plugins.html describes such plugins. llm loads this module by the
entry point `llm`, in every command, so nothing of conductor is imported before a question is asked.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import llm
from llm.parts import AttachmentPart
from pydantic import Field

if TYPE_CHECKING:
    from conductor_cli.plugins.in_process import InProcessServer

NAMES: Final = ("conductor", "conductor-mini", "conductor-ultra")
"""The models of `conductor serve`. A named pool is chosen with `-o pool NAME`."""

PDF: Final = "application/pdf"
ATTACHMENTS: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", PDF})


@llm.hookimpl
def register_models(register: Callable[..., None]) -> None:
    """Called by llm when it starts."""
    for name in NAMES:
        register(ConductorModel(name))


class ConductorModel(llm.Model):
    """A model of `conductor serve`, in this process."""

    can_stream = True
    supports_tools = True
    supports_schema = True
    attachment_types = ATTACHMENTS

    class Options(llm.Options):
        """The options of `-o NAME VALUE`."""

        pool: str | None = Field(default=None, description="a named pool of your settings, instead of the mode")
        max_cost: float | None = Field(default=None, gt=0, description="maximum US dollars of the run")
        max_tokens: int | None = Field(default=None, ge=1, description="maximum tokens of the answer")
        temperature: float | None = Field(default=None, ge=0, le=2, description="of the worker that answers")
        rehearsal: bool = Field(default=False, description="ask the demo models that ship with conductor")

    def __init__(self, model_id: str) -> None:
        self.model_id = model_id

    def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: llm.Conversation | None  # noqa: ARG002, FBT001 - as llm calls it
    ) -> Iterator[str]:  # fmt: skip
        """Yield the text of the answer as it comes. Raises `llm.ModelError`."""
        from conductor_cli.server.api.request import RequestError

        try:
            with closing(_server(prompt).stream(_body(self.model_id, prompt))) as pieces:
                for piece in pieces:
                    yield from _text(piece, response)
        except RequestError as error:
            raise llm.ModelError(error.message) from None


def _server(prompt: llm.Prompt) -> InProcessServer:
    from conductor_cli.plugins.in_process import shared_server

    return shared_server(rehearsal=prompt.options.rehearsal)


def _text(piece: Any, response: llm.Response) -> Iterator[str]:  # noqa: ANN401 - a piece of in_process
    from conductor_cli.core.chat import ToolCall
    from conductor_cli.server.narration import AnswerText

    if isinstance(piece, AnswerText):
        yield piece.text
    elif isinstance(piece, ToolCall):
        # Arguments that are no object become one, so that the tool can say what is wrong.
        try:
            arguments = json.loads(piece.arguments or "{}")
        except ValueError:
            arguments = piece.arguments
        arguments = arguments if isinstance(arguments, dict) else {"arguments": arguments}
        response.add_tool_call(llm.ToolCall(name=piece.name, arguments=arguments, tool_call_id=piece.id))
    elif isinstance(piece, Mapping):
        conductor = piece["conductor"]
        total = conductor["usage"]["total"]
        details = {"conductor_run": conductor["run"], "cost": conductor["cost"], "calls": total["calls"]}
        response.set_usage(input=total["input_tokens"], output=total["output_tokens"], details=details)
        # What `llm logs --json` shows.
        response.response_json = {"conductor": conductor}


# The body of Chat Completions


def _body(model: str, prompt: llm.Prompt) -> dict[str, Any]:
    options = prompt.options
    body: dict[str, Any] = {"model": options.pool or model, "messages": list(_messages(prompt))}
    if options.max_cost is not None:
        body["conductor"] = {"max_cost": options.max_cost}
    body |= {name: value for name in ("max_tokens", "temperature") if (value := getattr(options, name)) is not None}
    if prompt.schema:
        form = {"name": "answer", "schema": prompt.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    if prompt.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name, "description": tool.description or "", "parameters": tool.input_schema
                },
            }
            for tool in prompt.tools
        ]  # fmt: skip
    return body


def _messages(prompt: llm.Prompt) -> Iterator[dict[str, Any]]:
    for message in prompt.messages:
        parts = [part.to_dict() for part in message.parts]
        texts = [part["text"] for part in parts if part["type"] == "text"]
        for part in parts:
            if part["type"] == "tool_result":
                yield {"role": "tool", "tool_call_id": part.get("tool_call_id") or "", "content": part["output"]}
        calls = [
            {
                "id": part.get("tool_call_id") or "", "type": "function",
                "function": {"name": part["name"], "arguments": json.dumps(part["arguments"])},
            }
            for part in parts if part["type"] == "tool_call"
        ]  # fmt: skip
        files = [_file(part.attachment) for part in message.parts if isinstance(part, AttachmentPart)]
        if message.role == "tool" or not (texts or calls or files):
            continue
        content: Any = "\n".join(texts)
        if files:
            content = [*({"type": "text", "text": text} for text in texts), *files]
        yield {"role": message.role, "content": content} | ({"tool_calls": calls} if calls else {})


def _file(attachment: llm.Attachment) -> dict[str, Any]:
    """Return an image or a PDF as a part of a message. llm reads files, and fetches addresses."""
    kind = attachment.resolve_type()
    data = f"data:{kind};base64,{b64encode(attachment.content_bytes()).decode()}"
    if kind == PDF:
        return {"type": "file", "file": {"filename": "attachment.pdf", "file_data": data}}
    return {"type": "image_url", "image_url": {"url": data}}
