"""litellm behind the port: quiet, at home, tried once.

Its exceptions, its notes, its connections.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.chat import Message, Request, Tool
from conductor_cli.core.errors import ModelError
from conductor_cli.models.litellm import LiteLLM, error_reason, preload_litellm
from conductor_cli.models.tool_schemas import api_key
from tests.models.kit import (
    BYTES,
    CHART,
    LITELLM,
    answering,
    broken_off,
    fine,
    notes,
    play,
    refusing,
)
from tests.servers import SeenRequest, Wire, aimock, authority, loopback, proxy

pytestmark = LITELLM

ASKED = Request(messages=(Message(role="user", content="What is the capital of France?"),))
HAIKU = "anthropic/claude-haiku-4-5"


def failure(model: LiteLLM) -> ModelError:
    return broken_off(model, ASKED)[1]


def test_what_the_network_said_counts_more_than_what_litellm_calls_it() -> None:
    import httpx

    error = preload_litellm().result().InternalServerError("m", "openai", "m")
    error.__cause__ = ValueError()
    error.__cause__.__cause__ = httpx.ConnectError("no")
    assert error_reason(error) == "connect"
    error.__cause__.__cause__ = None
    assert error_reason(error) == "overloaded"
    assert error_reason(ValueError()) == "internal"


def test_no_money_is_not_waited_for() -> None:
    script = answering(
        {"error": {"message": "You have no money", "code": "insufficient_quota", "type": "x"}}, 429
    )
    with loopback(script) as server:
        error = failure(LiteLLM("openai/m", key="sk-123456", base_url=f"{server.url}/v1"))
    assert (error.reason, "You have no money" in error.message) == ("refused", True)


@pytest.mark.parametrize(
    ("field", "value", "sent"),
    [("seed", 3, [False, False]), ("temperature", 0.5, [True, False, False])],
    ids=["litellm knows that the provider has none", "the server refuses it"],
)
def test_what_is_not_taken_is_left_out_remembered_and_reported(
    field: str, value: Any, sent: list[bool]
) -> None:
    error = {
        "type": "invalid_request_error",
        "message": "`temperature` is deprecated for this model.",
    }
    request = replace(ASKED, **{field: value})
    with loopback(refusing({"temperature": error}, fine)) as server:
        both = play(LiteLLM(HAIKU, key="k", base_url=server.url), request, request)
    assert [notes(chunks) for chunks in both] == [
        [f"{HAIKU} does not accept {field}; sent without it"],
        [],
    ]
    assert [field in request.json for request in server.requests] == sent


def test_a_detail_of_an_image_that_litellm_would_leave_out_is_told_to_each() -> None:
    image = Message(role="user", content="What?", attachments=(replace(CHART, detail="low"),))
    asked = Request(messages=(image,), read_attachment=lambda file: BYTES[file.name])
    with loopback(fine) as server:
        both = play(LiteLLM(HAIKU, key="k", base_url=server.url), asked, asked)
    refusal = [f"{HAIKU} does not accept image detail; sent without it"]
    assert [notes(chunks) for chunks in both] == [refusal, refusal]


def test_a_provider_that_takes_no_detail_at_all_is_told_so_once() -> None:
    message = "'image_url.detail' is not permitted"

    async def script(request: SeenRequest, wire: Wire) -> None:
        if "detail" in str(request.json):
            return await wire.json({"error": {"message": message}}, 400)
        return await fine(request, wire)

    image = Message(role="user", content="What?", attachments=(replace(CHART, detail="original"),))
    asked = Request(messages=(image,), read_attachment=lambda file: BYTES[file.name])
    with loopback(script) as server:
        (chunks,) = play(LiteLLM("openai/m", key="k", base_url=f"{server.url}/v1"), asked)
    assert notes(chunks) == ["openai/m does not accept image detail; sent without it"]
    assert len(server.requests) == 3


def test_a_detail_of_an_image_that_a_server_refuses_is_sent_as_it_takes_it() -> None:
    """Litellm gives the words of the error, and not the place that it names."""
    message = "Invalid value: 'original'. Supported values are: 'auto', 'low', and 'high'."

    async def script(request: SeenRequest, wire: Wire) -> None:
        if "original" in str(request.json):
            return await wire.json({"error": {"message": message}}, 400)
        return await fine(request, wire)

    image = Message(role="user", content="What?", attachments=(replace(CHART, detail="original"),))
    asked = Request(messages=(image,), read_attachment=lambda file: BYTES[file.name])
    with loopback(script) as server:
        (chunks,) = play(LiteLLM("openai/m", key="k", base_url=f"{server.url}/v1"), asked)
    assert notes(chunks) == ["openai/m does not accept image detail original; sent as high"]
    assert server.requests[-1].json["messages"][0]["content"][0]["image_url"]["detail"] == "high"


def test_a_refusal_for_another_reason_is_asked_once() -> None:
    script = answering(
        {"type": "error", "error": {"type": "api_error", "message": "Sorry, sk-123456"}}, 500
    )
    with loopback(script) as server:
        error = failure(LiteLLM(HAIKU, key="sk-123456", base_url=server.url))
    assert str(error) == f"{HAIKU}: Sorry, [key]"
    assert len(server.requests) == 1


def test_what_a_provider_holds_a_reply_to_is_known_from_litellm() -> None:
    async def go() -> list[str]:
        names = (HAIKU, "anthropic/claude-2", "nobody/nothing", "")
        return [await LiteLLM(name).constraint_support() for name in names]

    assert asyncio.run(go()) == ["schema", "nothing", "nothing", "nothing"]


def test_a_model_that_litellm_does_not_know_is_refused() -> None:
    error = failure(LiteLLM("nobody/knows-it"))
    assert error.reason == "refused"
    assert "nobody/knows-it" in str(error)


@pytest.mark.parametrize("name", [HAIKU, "gemini/gemini-3.8-flash", "openai/gpt-5", "azure/m"])
def test_a_redirect_does_not_take_the_key_along(name: str) -> None:
    async def elsewhere(request: SeenRequest, wire: Wire) -> None:
        await wire.head(
            307, "text/plain", location=other.url.replace("127.0.0.1", "localhost") + request.path
        )

    with loopback(fine) as other, loopback(elsewhere) as server:
        error = failure(LiteLLM(name, key="sk-123456", base_url=server.url))
    assert error.reason == "missing"
    assert (len(server.requests), len(other.requests)) == (1, 0)


def test_https_goes_through_the_proxy_with_the_ca_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = authority(tmp_path)
    with loopback(fine, made.tls) as server, proxy(server) as tunnel:
        monkeypatch.setenv("HTTPS_PROXY", tunnel.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(made.ca))
        chunks = play(LiteLLM(HAIKU, key="k", base_url="https://model.test"), ASKED)[0]
    assert "".join(chunk.text for chunk in chunks) == "Yes."
    assert [request.path for request in tunnel.requests] == ["model.test:443"]


PROGRAM = """
import asyncio, sys
from conductor_cli.core.chat import Message, Request
from conductor_cli.models.litellm import LiteLLM

def tried(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo") and "127.0.0.1" not in str(arguments):
        if isinstance(arguments[0], str) or isinstance(arguments[1], tuple):
            print("WENT OUT", event, arguments)

sys.addaudithook(tried)

async def ask(model, base_url, text):
    made = LiteLLM(model, key="sk-123456", base_url=base_url)
    try:
        async for chunk in made.stream(Request(messages=(Message(role="user", content=text),), \
seed=3)):
            print(chunk.text, end="")
    except Exception as error:
        print(type(error).__name__, end="")
    await made.close()
    print()

url = sys.argv[1]
asyncio.run(ask("anthropic/claude-haiku-4-5", url, "What is the capital of France?"))
asyncio.run(ask("openai/gpt-5", url + "/v1", "too busy"))
asyncio.run(ask("nobody/knows-it", url, "x"))
import os
print(os.environ.get("FROM_DOTENV"))
"""


def test_stdout_and_stderr_hold_nothing_but_ours(tmp_path: Path) -> None:
    """No banner, no log, no .env read, nobody asked for prices.

    Not with an answer, an error or an unknown provider, even where the user's environment turns
    litellm's log on.
    """
    (tmp_path / ".env").write_text("FROM_DOTENV=read\n")
    environ = os.environ | {
        "LITELLM_LOG": "DEBUG",
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
    }
    with aimock() as url:
        command = [sys.executable, "-c", PROGRAM, url]
        done = subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
        )
    assert done.stdout == "The capital of France is Paris.\nModelError\nModelError\nNone\n"
    assert done.stderr == ""


def test_connections_are_let_go_when_no_model_uses_them() -> None:
    async def go(url: str) -> list[bool]:
        both = [LiteLLM(HAIKU, key="k", base_url=url) for _ in range(2)]
        for model in both:
            async for _ in model.stream(ASKED):
                pass
        shared: Any = preload_litellm().result().module_level_aclient.client
        are_closed = []
        for model in both:
            await model.close()
            are_closed.append(shared.is_closed)
        return are_closed

    with loopback(fine) as server:
        assert asyncio.run(go(server.url)) == [False, True]


def test_a_server_behind_litellm_is_sent_the_order_that_it_takes() -> None:
    async def script(request: SeenRequest, wire: Wire) -> None:
        if [message["role"] for message in request.json["messages"]] == ["user"]:
            return await fine(request, wire)
        message = "Conversation roles must alternate user/assistant/user/assistant/..."
        return await wire.json({"error": {"message": message, "type": "invalid"}}, 400)

    two = tuple(Message(role="user", content=text) for text in ("Rules.", "Warm?"))
    with loopback(script) as server:
        model = LiteLLM("openai/m", key="k", base_url=f"{server.url}/v1")
        both = play(model, Request(messages=two), Request(messages=two))
    told = "openai/m does not accept messages in this order; sent as questions and answers by turns"
    assert [notes(chunks) for chunks in both] == [[told], []]
    assert [len(request.json["messages"]) for request in server.requests] == [2, 1, 1]


def test_a_server_behind_litellm_may_take_neither_the_order_nor_a_system_message() -> None:
    async def script(request: SeenRequest, wire: Wire) -> None:
        if [message["role"] for message in request.json["messages"]] == ["user"]:
            return await fine(request, wire)
        message = "Conversation roles must alternate user/assistant/user/assistant/..."
        return await wire.json({"error": {"message": message, "type": "invalid"}}, 400)

    rules = Message(role="system", content="Be brief.")
    two = tuple(Message(role="user", content=text) for text in ("Rules.", "Warm?"))
    asked = Request(messages=(rules, *two))
    with loopback(script) as server:
        (chunks,) = play(LiteLLM("openai/m", key="k", base_url=f"{server.url}/v1"), asked)
    assert len(notes(chunks)) == 2
    assert server.requests[-1].json["messages"] == [
        {"role": "user", "content": "Be brief.\n\nRules.\n\nWarm?"}
    ]


@pytest.mark.parametrize(
    ("message", "taken", "told"),
    [
        (
            "Invalid schema for function 'lists': In context=(…), array schema missing items.",
            {"names": {"type": "array", "items": {}}, "城市": {}},
            "arrays that do not say what they hold; sent as arrays of anything",
        ),
        (
            "tools.0.custom.input_schema.properties: Property keys should match pattern '^[a-z]$'",
            {"names": {"type": "array"}, api_key("城市", is_ascii=True): {"title": "城市"}},
            "names of arguments in other scripts; sent with other names, and their own as titles",
        ),
    ],
)
def test_a_server_behind_litellm_is_sent_the_schemas_that_it_takes(
    message: str, taken: dict[str, Any], told: str
) -> None:
    """Azure and gateways are at addresses of their own, and refuse the whole request."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        if request.json["tools"][0]["function"]["parameters"]["properties"] == taken:
            return await fine(request, wire)
        return await wire.json({"error": {"message": message, "type": "invalid"}}, 400)

    parameters = {"properties": {"names": {"type": "array"}, "城市": {}}}
    asked = replace(ASKED, tools=(Tool(name="lists", parameters=parameters),))
    with loopback(script) as server:
        both = play(LiteLLM("openai/m", key="k", base_url=f"{server.url}/v1"), asked, asked)
    assert [notes(chunks) for chunks in both] == [[f"openai/m does not accept {told}"], []]
    assert len(server.requests) == 3


def test_what_a_client_asks_litellm_for_is_told_each_time() -> None:
    asked = replace(ASKED, sampling={"top_k": 3}, seed=3, asked=frozenset({"seed"}))
    with loopback(fine) as server:
        both = play(LiteLLM(HAIKU, key="k", base_url=server.url), asked, asked)
    assert ["seed" in " ".join(notes(chunks)) for chunks in both] == [True, True]
