"""From a worker to its model: presets, keys, options."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from conductor_cli.core.chat import Chunk, Message, Request
from conductor_cli.core.errors import ConfigError, KeyMissing
from conductor_cli.core.pool import Worker
from conductor_cli.core.redact import REDACTED, Secrets
from conductor_cli.models.addresses import is_own_address
from conductor_cli.models.base import Model
from conductor_cli.models.catalog import api_key_of, open_model
from conductor_cli.models.chat_api_model import ChatApiModel
from conductor_cli.models.litellm import LiteLLM
from conductor_cli.models.presets import PRESETS
from conductor_cli.models.recipients import costs_nothing, is_local
from tests.models.kit import LITELLM, answering, play, text, used
from tests.servers import SeenRequest, Wire, delta, loopback, saying, usage

pytestmark = LITELLM
ASKED = Request(messages=(Message(role="user", content="Yes?"),), max_tokens=9)


def worker(kind: str, model: str = "", **options: Any) -> Worker:
    return Worker(name="w", kind=kind, model=model, options=options)


def ask(model: Model, request: Request = ASKED) -> list[Chunk]:
    return play(model, request)[0]


@pytest.mark.parametrize("kind", PRESETS)
def test_each_preset_is_whole(kind: str) -> None:
    """A preset with a key has an encrypted address.

    One without a key is local, or its user gives the address.
    """
    preset = PRESETS[kind]
    assert preset.base_url.startswith("https://") == bool(preset.keys)
    assert preset.local == preset.base_url.startswith("http://127.0.0.1:")
    assert preset.about
    assert all(re.fullmatch(r"[A-Z]+_API_KEY", name) for name in preset.keys)


@pytest.mark.parametrize("kind", [kind for kind, preset in PRESETS.items() if preset.keys])
def test_each_provider_opens_with_its_key_and_names_it_when_it_is_missing(kind: str) -> None:
    preset = PRESETS[kind]
    with pytest.raises(KeyMissing, match=preset.keys[0]) as error:
        open_model(worker(kind), environ={preset.keys[0]: " "})
    assert error.value.hint.startswith("export ")
    assert "conductor doctor" in error.value.hint
    model = open_model(worker(kind), environ={preset.keys[-1]: "sk-123456"})
    assert isinstance(model, LiteLLM if preset.adapter == "litellm" else ChatApiModel)


def test_the_first_variable_that_is_set_counts() -> None:
    assert api_key_of(worker("gemini"), {"GOOGLE_API_KEY": "b"}) == "b"
    assert api_key_of(worker("gemini"), {"GOOGLE_API_KEY": "b", "GEMINI_API_KEY": "a"}) == "a"


def test_a_variable_that_is_named_is_the_only_one_read() -> None:
    environ = {"OPENAI_API_KEY": "theirs", "MINE": "mine"}
    assert api_key_of(worker("openai", key_env="MINE"), environ) == "mine"
    with pytest.raises(KeyMissing, match="OTHER is not set"):
        api_key_of(worker("openai", key_env="OTHER"), environ)


def test_a_providers_key_is_sent_to_its_own_address_only() -> None:
    environ = {"OPENAI_API_KEY": "sk-theirs-123", "MINE": "sk-mine-123"}
    with loopback(saying(delta("Yes.", finish="stop"), usage())) as server:
        ask(open_model(worker("openai", "m", base_url=server.url), environ=environ))
        ask(open_model(worker("openai", "m", base_url=server.url, key_env="MINE"), environ=environ))
    sent = [request.headers.get("authorization") for request in server.requests]
    assert sent == [None, "Bearer sk-mine-123"]


@pytest.mark.parametrize("address", ["https://api.openai.com/v1", "https://api.openai.com/v1/"])
def test_a_providers_own_address_may_be_written_out(address: str) -> None:
    assert is_own_address(worker("openai", base_url=address))
    assert api_key_of(worker("openai", base_url=address), {"OPENAI_API_KEY": "k"}) == "k"


@pytest.mark.parametrize("key", ["sk-ä", "sk 1", "sk\n1", "“sk”"])
def test_a_key_that_cannot_be_one_is_reported(key: str) -> None:
    with pytest.raises(KeyMissing, match="OPENAI_API_KEY has invalid characters") as error:
        open_model(worker("openai"), environ={"OPENAI_API_KEY": key})
    assert key not in str(error.value)


@pytest.mark.parametrize("quote", ['"', "'"])
def test_a_key_in_quotes_is_reported_and_not_sent(quote: str) -> None:
    """As `docker run --env-file` passes on what a shell would have read without them."""
    environ = {"OPENAI_API_KEY": f"{quote}sk-0123456789{quote}"}
    with pytest.raises(KeyMissing, match="OPENAI_API_KEY is in quotes") as error:
        open_model(worker("openai"), environ=environ)
    assert "0123456789" not in f"{error.value}{error.value.hint}"
    with pytest.raises(KeyMissing, match="invalid characters"):
        open_model(worker("openai"), environ={"OPENAI_API_KEY": "\u201csk-0123456789\u201d"})


def test_a_model_that_ollama_sends_on_is_not_free_and_not_local() -> None:
    assert costs_nothing(worker("ollama", "gpt-oss:20b"))
    cloud = worker("ollama", "gpt-oss:120b-cloud")
    assert not costs_nothing(cloud)
    assert not is_local(cloud)


def test_a_cost_is_believed_from_openrouters_own_address_only() -> None:
    with loopback(saying(delta("Yes.", finish="stop"), usage(cost=0.0))) as server:
        assert (
            used(ask(open_model(worker("openrouter", "m", base_url=server.url), environ={}))).cost
            is None
        )


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (worker("nonsense"), "unknown kind 'nonsense'"),
        (worker("openai-compatible"), "needs base_url"),
        (worker("openai-compatible", base_url="localhost:8080"), "needs base_url"),
        (worker("ollama", "m", topk=1), "no option 'topk'"),
        (worker("ollama", "m", temperature="hot"), "temperature is 'hot'; expected a number"),
        (worker("ollama", "m", max_tokens=True), "max_tokens is True; expected a whole number"),
        (worker("ollama", "m", headers="x: y"), "headers is 'x: y'; expected a table"),
        (worker("litellm"), "names no model"),
        (worker("litellm", "bedrock/x", ca_file="ca.pem"), "litellm does not support ca_file"),
        (worker("llama"), "names no file"),
        (worker("llama", "x.gguf", mmap="yes"), "mmap is 'yes'; expected true or false"),
        (worker("scripted", script=["Yes."]), "is for tests"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_a_setting_gets_wrong_is_reported(made: Worker, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)) as error:
        open_model(made, environ={})
    assert error.value.hint


def test_a_scripted_worker_says_what_it_is_reported_and_is_called_so() -> None:
    made = Worker(
        name="w", kind="scripted", about="scripted, for tests", options={"script": ["Y", "es."]}
    )
    model = open_model(made, environ={})
    assert "".join(chunk.text for chunk in ask(model) + ask(model)) == "Yes.Yes."


def test_openai_is_asked_in_the_words_of_its_newer_models() -> None:
    script = answering({"choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}]})
    model = open_model(worker("openai"), environ={"OPENAI_API_KEY": "k"})
    assert isinstance(model, ChatApiModel)
    assert model._body(ASKED, frozenset())["max_completion_tokens"] == 9
    with loopback(script) as server:
        ask(open_model(worker("openai", "m", base_url=server.url), environ={}))
    assert server.requests[0].json["max_tokens"] == 9


OPENING = """
import sys, threading
from conductor_cli.core.pool import Worker
from conductor_cli.core.redact import REDACTED, Secrets
from conductor_cli.models.catalog import open_model

def heavy():
    importing = [thread.name for thread in threading.enumerate() if thread.name == "import litellm"]
    return sorted({"httpx", "litellm", "llama_cpp"} & set(sys.modules)) + importing

open_model(Worker(name="w", kind="openai"), environ={"OPENAI_API_KEY": "k"})
open_model(Worker(name="w", kind="anthropic"), environ={"ANTHROPIC_API_KEY": "k"})
open_model(Worker(name="w", kind="gemini"), environ={"GEMINI_API_KEY": "k"})
open_model(Worker(name="w", kind="llama", model="x.gguf"), environ={})
print(heavy())
open_model(Worker(name="w", kind="litellm", model="bedrock/x"), environ={})
print("import litellm" in heavy())
"""


def test_opening_a_worker_loads_nothing_but_litellm_in_the_background() -> None:
    """What is heavy waits until a worker is asked.

    Litellm alone begins at once, beside what the run does meanwhile.

    A program that ends before the import has, ends well and in silence.
    """
    done = subprocess.run(
        [sys.executable, "-c", OPENING], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("[]\nTrue\n", "")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4o", "OPENAI_BASE_URL"),
        ("groq/llama", "GROQ_API_BASE"),
        ("azure-ai/x", "AZURE_AI_API_BASE"),
    ],
)
def test_a_variable_does_not_send_litellm_s_texts_elsewhere(model: str, name: str) -> None:
    environ = {name: "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "sk-123456"}
    with pytest.raises(ConfigError, match=name) as caught:
        open_model(worker("litellm", model=model), environ=environ)
    assert "base_url" in caught.value.hint
    open_model(worker("litellm", model=model, base_url="http://127.0.0.1:9/v1"), environ=environ)
    open_model(worker("litellm", model=model), environ={"OPENAI_API_KEY": "sk-123456"})


SECRETS = {
    "x-session": "HDR-CANARY-1a2b3c4d5e6f",
    "x-relay": "Zq8-Lm3_pT6rX1vB9nK4wH7",
    "authorization": "Bearer sk-9aB8cD7eF6gH5iJ4k",
}


async def echo(request: SeenRequest, wire: Wire) -> None:
    leaked = []
    for name in SECRETS:
        header = request.headers[name]
        leaked += [header, header[:-1], header[::-1]]
    await wire.head()
    await wire.frames(
        *(delta(letter) for letter in " and ".join(leaked)), delta(finish="stop"), usage(), "[DONE]"
    )


def test_headers_that_a_server_repeats_are_redacted() -> None:
    """Nothing of a worker's headers comes back, whole or nearly whole."""
    with loopback(echo) as server:
        made = worker("openai-compatible", "m", base_url=f"{server.url}/v1", headers=SECRETS)
        answer = text(play(open_model(made, environ={}, secrets=Secrets()), ASKED)[0])
    assert answer.count(REDACTED) >= 3 * len(SECRETS)
    for secret in SECRETS.values():
        word = secret.rpartition(" ")[2]
        assert not any(part in answer for part in (word, word[:-1], word[::-1], word[4:16]))
