"""Workers at hand: keys in the environment, servers on this machine."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.config.tables import NAME
from conductor_cli.core.pool import Worker
from conductor_cli.core.redact import Secrets
from conductor_cli.models import discovery as module
from conductor_cli.models.api_errors import error_of_response
from conductor_cli.models.discovery import (
    KeyVerdict,
    check_key,
    discover,
    key_state_of,
    list_models,
    served_context,
    workers_with_keys,
)
from conductor_cli.models.presets import PRESETS
from tests.models.kit import answering, page, silent
from tests.servers import Loopback, SeenRequest, Wire, loopback

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["models", "data", "name", "id"]), inner, max_size=4)
    ),
    max_leaves=12,
)


def closed() -> int:
    """A port on which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def at(monkeypatch: pytest.MonkeyPatch, **ports: int) -> None:
    """Let the usual port of each local server be another."""
    for kind, port in ports.items():
        name = kind.replace("_", "-")
        preset = PRESETS[name]
        changed = type(preset)(
            base_url=f"http://127.0.0.1:{port}/v1", local=True, about=preset.about
        )
        monkeypatch.setitem(PRESETS, name, changed)


LISTED = [
    "qwen3:8b",
    "nomic-embed-text:latest",
    "library/llama4:latest",
    "gpt-oss:120b-cloud",
    "third:1b",
    "fourth:1b",
]
tags = answering({"models": [{"name": name} for name in LISTED]})


def test_a_key_in_the_environment_is_a_worker() -> None:
    workers = workers_with_keys(
        {"OPENAI_API_KEY": "k", "GOOGLE_API_KEY": "k", "XAI_API_KEY": " ", "HOME": "/"}
    )
    assert [(worker.name, worker.kind, worker.model) for worker in workers] == [
        ("openai", "openai", PRESETS["openai"].model),
        ("gemini", "gemini", PRESETS["gemini"].model),
    ]


@pytest.mark.parametrize("moved", [False, True], ids=["the usual port", "OLLAMA_HOST"])
def test_a_local_ollama_offers_its_first_models(
    monkeypatch: pytest.MonkeyPatch, moved: bool
) -> None:
    with loopback(tags) as server:
        at(monkeypatch, ollama=closed() if moved else server.port, llama_server=closed())
        discovered = asyncio.run(
            discover({"OLLAMA_HOST": f"0.0.0.0:{server.port}"} if moved else {})
        )
    assert discovered[0].options == (
        {"base_url": f"http://127.0.0.1:{server.port}/v1"} if moved else {}
    )
    assert [request.path for request in server.requests] == ["/api/tags"]
    assert [(worker.name, worker.model, worker.parallel) for worker in discovered] == [
        ("qwen3-8b", "qwen3:8b", 1),
        ("llama4", "library/llama4:latest", 1),
        ("third-1b", "third:1b", 1),
    ]
    assert all(worker.price is not None and worker.price.output == 0 for worker in discovered)


def test_a_local_llama_server_offers_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    with loopback(
        answering({"object": "list", "data": [{"id": "/models/Qwen2.5-7B-Q4_K_M.gguf"}]})
    ) as server:
        at(monkeypatch, ollama=closed(), llama_server=server.port)
        discovered = asyncio.run(discover({"OPENAI_API_KEY": "k"}))
    assert [(worker.name, worker.kind) for worker in discovered] == [
        ("openai", "openai"),
        ("Qwen2.5-7B-Q4_K_M", "llama-server"),
    ]


def test_a_server_of_conductor_is_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    models = [{"id": "conductor", "owned_by": "conductor"}, {"id": "tiny", "owned_by": "me"}]
    with loopback(answering({"object": "list", "data": models})) as server:
        at(monkeypatch, ollama=closed(), llama_server=server.port)
        workers = asyncio.run(discover({}))
    assert [worker.name for worker in workers] == ["tiny"]


@pytest.mark.parametrize(
    "script", [page, answering({"error": "no"}, 401), silent], ids=["page", "refused", "silent"]
)
def test_what_is_no_model_server_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, script: Any
) -> None:
    with loopback(script) as server:
        at(monkeypatch, ollama=server.port, llama_server=server.port)
        assert asyncio.run(discover({})) == ()


def test_closed_ports_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing listens nothing is asked.

    No request is made, and httpx is not needed to find that out.
    """
    at(monkeypatch, ollama=closed(), llama_server=closed())
    monkeypatch.setattr(module, "preload_http", None)
    assert asyncio.run(discover({})) == ()


@given(listed=JSON, kind=st.sampled_from(["ollama", "llama-server"]))
def test_whatever_is_listed_makes_workers_or_none(listed: Any, kind: str) -> None:
    workers = module.workers_of_server(kind, listed, base_url="http://127.0.0.1:1/v1")
    assert len(workers) <= 3
    assert all(NAME.fullmatch(worker.name) for worker in workers)


KEY = "sk-test-0123456789abcdef"


def checked(server: Loopback, provider: str = "openai", seconds: float = 5.0) -> KeyVerdict:
    with server:
        return asyncio.run(check_key(provider, server.url, KEY, seconds=seconds))


def error_body(message: str, code: str = "", kind: str = "") -> dict[str, object]:
    return {"error": {"message": message, "code": code or None, "type": kind or None}}


# As the providers' references, SDKs and their users' reports had them in November 2026.
SCOPES = "You have insufficient permissions for this operation. Missing scopes: api.model.read."
QUOTA = "You exceeded your current quota, please check your plan and billing details."
INVALID = "invalid_request_error"
RATE = "rate_limit_exceeded"
REFUSALS = {
    "openai wrong": (
        401,
        error_body("Incorrect API key provided: sk-te***cdef.", "invalid_api_key", INVALID),
        "wrong",
    ),
    "openai restricted": (403, error_body(SCOPES, kind=INVALID), "failed"),
    "openai quota": (429, error_body(QUOTA, "insufficient_quota"), "failed"),
    "openai rate": (429, error_body("Rate limit reached for requests", RATE, "requests"), "failed"),
    "anthropic wrong": (
        401,
        {"type": "error"} | error_body("invalid x-api-key", kind="authentication_error"),
        "wrong",
    ),
    "anthropic overloaded": (
        529,
        {"type": "error"} | error_body("Overloaded", kind="overloaded_error"),
        "unreachable",
    ),
    "gemini wrong": (
        400,
        [error_body("API key not valid. Please pass a valid API key.", "400")],
        "wrong",
    ),
    "gemini expired": (
        400,
        [error_body("API key expired. Please renew the API key.", "400")],
        "wrong",
    ),
    "xai wrong": (
        400,
        {"code": "an invalid argument", "error": "Incorrect API key provided: sk***ef."},
        "wrong",
    ),
    "deepseek empty": (402, error_body("Insufficient Balance", INVALID, "unknown_error"), "failed"),
    "mistral wrong": (401, {"message": "Unauthorized", "request_id": "x"}, "wrong"),
    "openrouter wrong": (401, error_body("No cookie auth credentials found", "401"), "wrong"),
    "some token expired": (401, error_body("The token has expired", "token_expired"), "wrong"),
    "a region": (400, error_body("User location is not supported for the API use."), "failed"),
    "another server": (404, {"detail": "Not Found"}, "failed"),
    "a server in trouble": (503, {"error": "try later"}, "unreachable"),
}


@pytest.mark.parametrize(("status", "body", "verdict"), REFUSALS.values(), ids=REFUSALS)
def test_each_providers_refusal_is_distinguished(status: int, body: object, verdict: str) -> None:
    assert (
        key_state_of(error_of_response("x", status, {}, json.dumps(body).encode(), Secrets()))
        == verdict
    )


@pytest.mark.parametrize(
    ("provider", "path", "header", "value"),
    [
        ("openai", "/models", "authorization", f"Bearer {KEY}"),
        ("gemini", "/models", "x-goog-api-key", KEY),
        ("anthropic", "/v1/models", "x-api-key", KEY),
        ("openrouter", "/key", "authorization", f"Bearer {KEY}"),
    ],
)
def test_a_good_key_is_good(provider: str, path: str, header: str, value: str) -> None:
    server = loopback(answering({"data": []}))
    result = checked(server, provider)
    assert (result.state, result.seconds > 0) == ("good", True)
    [request] = server.requests
    assert (request.method, request.path, request.headers[header]) == ("GET", path, value)
    assert len({"authorization", "x-api-key", "x-goog-api-key"} & set(request.headers)) == 1


def test_a_key_at_google_s_compatible_address_is_sent_as_openai_wants_it() -> None:
    with loopback(answering({"data": []})) as server:
        problem = asyncio.run(check_key("gemini", f"{server.url}/openai", KEY, seconds=5))
    [request] = server.requests
    assert (problem.state, request.path) == ("good", "/openai/models")
    assert request.headers["authorization"] == f"Bearer {KEY}"


def test_a_server_that_says_nothing_is_unreachable_in_time() -> None:
    assert checked(loopback(silent), seconds=0.2).state == "unreachable"


@pytest.mark.parametrize(
    ("kind", "path", "answer", "listed"),
    [
        (
            "openai-compatible",
            "/v1/models",
            {
                "data": [
                    {"id": "b", "max_model_len": 4096},
                    {
                        "id": "a",
                        "pricing": {"prompt": "0.000001", "completion": "0.000002"},
                        "context_length": 1000,
                    },
                    {"id": "text-embedding-3"},
                    {"id": "whisper-1"},
                    {"id": "x" * 201},
                    {"id": "c\x1b[2J"},
                    {"id": 3},
                    "d",
                    {
                        "id": "e",
                        "pricing": {"prompt": "much", "completion": "-1"},
                        "max_model_len": True,
                    },
                ]
            },
            [("a", 1000, (1, 2)), ("b", 4096, None), ("e", None, None)],
        ),
        (
            "gemini",
            "/v1/models?pageSize=1000",
            {
                "models": [
                    {
                        "name": "models/gemini-x",
                        "inputTokenLimit": 5,
                        "supportedGenerationMethods": ["generateContent"],
                    },
                    {"name": "models/gemini-y", "supportedGenerationMethods": ["predict"]},
                    {"name": "models/gemini-z", "supportedGenerationMethods": 7},
                ]
            },
            [("gemini-x", 5, None), ("gemini-z", None, None)],
        ),
        ("anthropic", "/v1/v1/models?limit=1000", {"data": [{"id": "m"}]}, [("m", None, None)]),
        ("openai-compatible", "/v1/models", {"object": "list"}, []),
    ],
)
def test_the_chat_models_of_a_server_are_listed(
    kind: str, path: str, answer: Any, listed: Any
) -> None:
    """What is no name of a chat model, no price and no number of tokens is left out."""
    with loopback(answering(answer)) as server:
        worker = Worker(
            name="w",
            kind=kind,
            options={"base_url": f"{server.url}/v1", "headers": {"x-team": "7"}},
        )
        model_list = asyncio.run(list_models(worker, "secret-key", seconds=5))
        [request] = server.requests
    amounts = [model.price and (model.price.input, model.price.output) for model in model_list]
    assert [
        (model.name, model.context, price) for model, price in zip(model_list, amounts, strict=True)
    ] == listed
    assert (request.path, request.headers["x-team"]) == (path, "7")
    assert "secret-key" in str(request.headers)


def test_a_model_of_the_price_table_has_its_context_and_price() -> None:
    model = module._listed_model(Worker(name="w", kind="openai", model=PRESETS["openai"].model), {})
    assert model.context is not None
    assert model.price is not None


@pytest.mark.parametrize(
    ("kind", "answers", "context"),
    [
        ("openai-compatible", {"/v1/models": {"data": [{"id": "m", "max_model_len": 9000}]}}, 9000),
        (
            "openai-compatible",
            {"/v1/models": {"data": [{"id": "other", "max_model_len": 9}]}},
            None,
        ),
        (
            "llama-server",
            {
                "/v1/models": {
                    "data": [{"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx_train": 131072}}]
                },
                "/props": {"default_generation_settings": {"n_ctx": 8192}},
            },
            8192,
        ),
        ("ollama", {"/api/ps": {"models": [{"name": "m", "context_length": 4096}]}}, 4096),
        (
            "ollama",
            {
                "/api/ps": {"models": []},
                "/api/show": {
                    "parameters": "stop x\nnum_ctx    16384\n",
                    "model_info": {"qwen2.context_length": 32768},
                },
            },
            16384,
        ),
        (
            "ollama",
            {
                "/api/ps": {"models": []},
                "/api/show": {"model_info": {"qwen2.context_length": 32768}},
            },
            None,
        ),
        ("openai-compatible", {"/v1/models": {"data": [{"id": "m", "max_model_len": "x"}]}}, None),
        ("openai-compatible", {}, None),
    ],
)
def test_the_context_that_a_server_gives_a_model_is_asked_for(
    kind: str, answers: dict[str, Any], context: int | None
) -> None:
    """Not the one that it was trained with, which may be much more than it is given."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        answer = answers.get(request.path)
        await wire.json(answer or {"error": "nothing here"}, 200 if answer else 404)

    with loopback(script) as server:
        options = {"base_url": f"{server.url}/v1"}
        worker = Worker(name="w", kind=kind, model="m", options=options)
        assert asyncio.run(served_context(worker, "", seconds=5)) == context


@given(JSON)
def test_a_server_may_say_anything_of_its_contexts(listed: object) -> None:
    with loopback(answering(listed)) as server:
        for kind in ("ollama", "llama-server"):
            options = {"base_url": f"{server.url}/v1"}
            worker = Worker(name="w", kind=kind, model="m", options=options)
            assert asyncio.run(served_context(worker, "", seconds=5)) is None
