"""`GET /openapi.json`: what this server answers, made from one table. Pure.

Requests are described as far as this server reads them; it ignores what it does not know, so objects are open.
Source of the form: https://spec.openapis.org/oas/v3.1.0
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Schema = Mapping[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 1}
_OBJECTS: Final[Schema] = {"type": "array", "items": {"type": "object"}}
_CONTENT: Final[Schema] = {"type": ["string", "array", "null"], "items": {"type": "object"}}
_OPTIONS: Final[Schema] = {
    "type": "object",
    "description": "Options of this server. A limit can only narrow those of the settings.",
    "properties": {"max_cost": {"type": "number", "exclusiveMinimum": 0}},
}


def _messages(*roles: str) -> Schema:
    message = {
        "type": "object",
        "required": ["role"],
        "properties": {"role": {"type": "string", "enum": list(roles)}, "content": _CONTENT},
    }
    return {"type": "array", "minItems": 1, "items": message}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path. `body` are the fields of its JSON object, of which `required` must be there."""

    method: str
    path: str
    summary: str
    body: Mapping[str, Schema] | None = None
    required: tuple[str, ...] = ()
    streams: bool = False
    content: str = "application/json"
    is_open: bool = False


_SHARED: Final[dict[str, Schema]] = {
    "model": _TEXT, "stream": {"type": "boolean"}, "temperature": {"type": "number", "minimum": 0, "maximum": 2},
    "tools": _OBJECTS, "conductor": _OPTIONS,
}  # fmt: skip

_COUNTED: Final[dict[str, Schema]] = {
    "model": _TEXT, "messages": _messages("user", "assistant", "system"), "system": _CONTENT, "tools": _OBJECTS,
}  # fmt: skip

OPERATIONS: Final = (
    Operation(
        method="post", path="/v1/chat/completions", summary="Answer a conversation (OpenAI Chat Completions)",
        body=_SHARED | {
            "messages": _messages("system", "developer", "user", "assistant", "tool"), "max_tokens": _COUNT,
            "max_completion_tokens": _COUNT, "stop": {"type": ["string", "array", "null"], "items": _TEXT},
            "reasoning_effort": _TEXT, "response_format": {"type": "object"}, "stream_options": {"type": "object"},
        },
        required=("model", "messages"), streams=True,
    ),
    Operation(
        method="post", path="/v1/responses", summary="Answer a conversation (OpenAI Responses)",
        body=_SHARED | {
            "input": _CONTENT, "instructions": _TEXT, "max_output_tokens": _COUNT, "store": {"type": "boolean"},
            "previous_response_id": {"type": ["string", "null"]}, "reasoning": {"type": "object"},
            "text": {"type": "object"},
        },
        required=("model", "input"), streams=True,
    ),
    Operation(method="get", path="/v1/responses/{id}", summary="A stored response"),
    Operation(method="delete", path="/v1/responses/{id}", summary="Delete a stored response"),
    Operation(method="post", path="/v1/responses/{id}/cancel", summary="Stop a response that is under way"),
    Operation(
        method="post", path="/v1/messages", summary="Answer a conversation (Anthropic Messages)",
        body=_SHARED | {
            **_COUNTED, "max_tokens": _COUNT, "stop_sequences": {"type": "array", "items": _TEXT},
            "thinking": {"type": "object"},
        },
        required=("model", "messages", "max_tokens"), streams=True,
    ),
    Operation(
        method="post", path="/v1/messages/count_tokens", summary="How long a conversation is, by an estimate",
        body=_COUNTED, required=("model", "messages"),
    ),
    Operation(method="get", path="/v1/models", summary="The models: conductor and its modes, and each named pool"),
    Operation(method="get", path="/v1/conductor/runs", summary="The stored runs, newest first"),
    Operation(method="get", path="/v1/conductor/runs/{id}", summary="One run with its plan, steps and prices"),
    Operation(
        method="get", path="/v1/conductor/runs/{id}/events", summary="The events of a run, as they happen",
        content="text/event-stream",
    ),
    Operation(method="get", path="/health", summary="Whether the server lives", is_open=True),
    Operation(method="get", path="/metrics", summary="Counters for Prometheus", content="text/plain"),
    Operation(method="get", path="/", summary="The page that shows runs", content="text/html", is_open=True),
)  # fmt: skip
"""Everything that is answered."""


def describe_api(version: str) -> dict[str, Any]:
    """The OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _describe(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "conductor serve", "version": version},
        "paths": paths,
        "components": {"securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }},
    }  # fmt: skip


def _describe(operation: Operation) -> dict[str, Any]:
    content: dict[str, Any] = {operation.content: {}} | ({"text/event-stream": {}} if operation.streams else {})
    described: dict[str, Any] = {
        "summary": operation.summary,
        "responses": {
            "200": {"description": "The answer", "content": content},
            "4XX": {"description": "Why the request is refused", "content": {"application/json": {}}},
            "5XX": {"description": "Why it could not be answered now", "content": {"application/json": {}}},
        },
        # An empty requirement: a server without keys asks for none.
        "security": [{}] if operation.is_open else [{"bearer": []}, {"header": []}, {}],
    }
    if "{id}" in operation.path:
        described["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": _TEXT}]
    if operation.body is not None:
        schema = {"type": "object", "required": list(operation.required), "properties": dict(operation.body)}
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return described
