"""What a provider's answer says of a key."""

from __future__ import annotations

import asyncio
import json

import pytest

from conductor_cli.core.redact import Secrets
from conductor_cli.models.api_errors import error_of_response
from conductor_cli.models.discovery import KeyVerdict, check_key, verdict_of
from tests.servers import Loopback, SeenStep, Wire, loopback

KEY = "sk-test-0123456789abcdef"


def answering(status: int, body: object, **headers: str) -> Loopback:
    async def script(seen: SeenStep, wire: Wire) -> None:
        await wire.json(body, status, **headers)

    return loopback(script)


def checked(server: Loopback, provider: str = "openai", seconds: float = 5.0) -> KeyVerdict:
    with server:
        return asyncio.run(check_key(provider, server.url, KEY, seconds=seconds))


def said(message: str, code: str = "", kind: str = "") -> dict[str, object]:
    return {"error": {"message": message, "code": code or None, "type": kind or None}}


# As the providers' references, SDKs and their users' reports had them in November 2026.
SCOPES = "You have insufficient permissions for this operation. Missing scopes: api.model.read."
QUOTA = "You exceeded your current quota, please check your plan and billing details."
INVALID, RATE = "invalid_request_error", "rate_limit_exceeded"
REFUSALS = {
    "openai wrong": (401, said("Incorrect API key provided: sk-te***cdef.", "invalid_api_key", INVALID), "wrong"),
    "openai restricted": (403, said(SCOPES, kind=INVALID), "failed"),
    "openai quota": (429, said(QUOTA, "insufficient_quota"), "failed"),
    "openai rate": (429, said("Rate limit reached for requests", RATE, "requests"), "failed"),
    "anthropic wrong": (401, {"type": "error"} | said("invalid x-api-key", kind="authentication_error"), "wrong"),
    "anthropic overloaded": (529, {"type": "error"} | said("Overloaded", kind="overloaded_error"), "unreachable"),
    "gemini wrong": (400, [said("API key not valid. Please pass a valid API key.", "400")], "wrong"),
    "gemini expired": (400, [said("API key expired. Please renew the API key.", "400")], "wrong"),
    "xai wrong": (400, {"code": "an invalid argument", "error": "Incorrect API key provided: sk***ef."}, "wrong"),
    "deepseek wrong": (401, said("Authentication Fails, Your api key: ****cdef is invalid", INVALID), "wrong"),
    "deepseek empty": (402, said("Insufficient Balance", INVALID, "unknown_error"), "failed"),
    "mistral wrong": (401, {"message": "Unauthorized", "request_id": "x"}, "wrong"),
    "groq wrong": (401, said("Invalid API Key", "invalid_api_key", INVALID), "wrong"),
    "openrouter wrong": (401, said("No cookie auth credentials found", "401"), "wrong"),
    "some token expired": (401, said("The token has expired", "token_expired"), "wrong"),
    "a region": (400, said("User location is not supported for the API use."), "failed"),
    "another server": (404, {"detail": "Not Found"}, "failed"),
    "a server in trouble": (503, {"error": "try later"}, "unreachable"),
}


@pytest.mark.parametrize(("status", "body", "verdict"), REFUSALS.values(), ids=REFUSALS)
def test_each_providers_refusal_is_distinguished(status: int, body: object, verdict: str) -> None:
    """Only a key that the provider does not accept is wrong. One without credit or a permission may still work."""
    assert verdict_of(error_of_response("x", status, {}, json.dumps(body).encode(), Secrets())) == verdict


def test_a_good_key_is_good() -> None:
    """One GET with the key in the header that the provider reads, and how long it took."""
    server = answering(200, {"data": []})
    result = checked(server)
    assert result.state == "good"
    assert result.seconds > 0
    [seen] = server.requests
    assert (seen.method, seen.path, seen.headers["authorization"]) == ("GET", "/models", f"Bearer {KEY}")


def test_anthropic_is_asked_in_its_own_way() -> None:
    """Its own header, and its own path."""
    server = answering(200, {"data": []})
    assert checked(server, "anthropic").state == "good"
    [seen] = server.requests
    assert (seen.path, seen.headers["x-api-key"]) == ("/v1/models", KEY)
    assert "authorization" not in seen.headers


def test_openrouter_is_asked_about_the_key_itself() -> None:
    """Anybody may list its models, so a list says nothing about the key."""
    server = answering(200, {"data": {"limit": 5}})
    assert checked(server, "openrouter").state == "good"
    assert server.requests[0].path == "/key"


def test_a_server_that_is_not_there_is_unreachable() -> None:
    """Nobody listens: that says nothing of the key."""
    result = asyncio.run(check_key("openai", "http://127.0.0.1:9", KEY, seconds=5.0))
    assert result.state == "unreachable"


def test_a_server_that_says_nothing_is_unreachable_in_time() -> None:
    """The time that is given bounds it all."""

    async def script(seen: SeenStep, wire: Wire) -> None:
        await wire.stall()

    assert checked(loopback(script), seconds=0.2).state == "unreachable"
