"""`GET /openapi.json`: what this server answers, from one table and the models of the bodies that it reads. Pure.

It ignores what it does not know, so objects are open. Source of the form: https://spec.openapis.org/oas/v3.1.0
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from conductor_cli.server.api.chat_completions import ChatBody
from conductor_cli.server.api.messages import MessagesBody
from conductor_cli.server.api.responses import ResponsesBody

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
RUNS: Final = "/v1/conductor/runs"

_Row = tuple[str, str, str, tuple[str, ...], type[BaseModel] | None]

OPERATIONS: Final[tuple[_Row, ...]] = (
    ("post", "/v1/chat/completions", "Answer a conversation (OpenAI Chat Completions)", (JSON, EVENTS), ChatBody),
    ("post", "/v1/responses", "Answer a conversation (OpenAI Responses)", (JSON, EVENTS), ResponsesBody),
    ("get", "/v1/responses/{id}", "A stored response, or with stream=true its events", (JSON, EVENTS), None),
    ("delete", "/v1/responses/{id}", "Delete a stored response", (JSON,), None),
    ("post", "/v1/responses/{id}/cancel", "Stop a response that is under way", (JSON,), None),
    ("post", "/v1/messages", "Answer a conversation (Anthropic Messages)", (JSON, EVENTS), MessagesBody),
    ("post", "/v1/messages/count_tokens", "How long a conversation is, by an estimate", (JSON,), MessagesBody),
    ("post", "/v1/files", "Keep a file of requests for a batch (OpenAI Files, as a form)", (JSON,), None),
    ("get", "/v1/files", "The files of this client", (JSON,), None),
    ("get", "/v1/files/{id}", "One of the files", (JSON,), None),
    ("get", "/v1/files/{id}/content", "Its bytes", ("application/octet-stream",), None),
    ("delete", "/v1/files/{id}", "Delete a file", (JSON,), None),
    ("post", "/v1/batches", "Answer all requests of a file (OpenAI Batches)", (JSON,), None),
    ("get", "/v1/batches", "The batches of this client, newest first", (JSON,), None),
    ("get", "/v1/batches/{id}", "One of the batches", (JSON,), None),
    ("post", "/v1/batches/{id}/cancel", "Cancel a batch; what is finished is kept", (JSON,), None),
    ("get", "/v1/models", "The models: conductor and its modes, and each named pool", (JSON,), None),
    ("get", "/v1/models/{id}", "One of the models", (JSON,), None),
    ("get", RUNS, "The stored runs, newest first", (JSON,), None),
    ("get", f"{RUNS}/{{id}}", "One run with its plan, steps and prices", (JSON,), None),
    ("get", f"{RUNS}/{{id}}/events", "The events of a run, as they happen", (EVENTS,), None),
    ("post", f"{RUNS}/{{id}}/rating", "Rate the answer of a run, or of one of its steps", (JSON,), None),
    ("post", f"{RUNS}/{{id}}/rerun", "Run the plan of a run again from a step on", (JSON,), None),
    ("get", "/health", "Whether the server lives", (JSON,), None),
    ("get", "/livez", "Whether the server lives, for whoever restarts it", (JSON,), None),
    (
        "get",
        "/readyz",
        "Whether requests should be sent here: it does not end, and state and planner answer",
        (JSON,),
        None,
    ),
    ("get", "/metrics", "Counters for Prometheus", ("text/plain",), None),
    ("get", "/", "The page that asks and shows runs", ("text/html",), None),
)
"""Method, path, summary, types of the answer, and the body; everything that is answered."""

OPEN: Final = ("/", "/health", "/livez", "/readyz")
"""The paths that need no key."""


def describe_api(version: str) -> dict[str, Any]:
    """The OpenAPI document."""
    bodies: list[Any] = [(body, "validation") for *_, body in OPERATIONS if body is not None]
    schemas, definitions = models_json_schema(bodies, ref_template="#/components/schemas/{model}")
    paths: dict[str, dict[str, Any]] = {}
    for method, path, summary, kinds, body in OPERATIONS:
        refused: dict[str, Any] = {"content": {JSON: {}}}
        described: dict[str, Any] = {
            "summary": summary,
            "responses": {
                "200": {"description": "The answer", "content": {kind: {} for kind in kinds}},
                "4XX": {"description": "Why the request is refused", **refused},
                "5XX": {"description": "Why it could not be answered now", **refused},
            },
            # An empty requirement: a server without keys asks for none.
            "security": [{}] if path in OPEN else [{"bearer": []}, {"header": []}, {}],
        }
        if "{id}" in path:
            described["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
        if body is not None:
            described["requestBody"] = {"required": True, "content": {JSON: {"schema": schemas[body, "validation"]}}}
        paths.setdefault(path, {})[method] = described
    keys = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "conductor serve", "version": version},
        "paths": paths,
        "components": {"securitySchemes": keys, "schemas": definitions["$defs"]},
    }
