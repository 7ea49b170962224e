"""Workers at hand: keys in the environment, servers on this machine."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.config.tables import NAME
from conductor_cli.models import discovery as module
from conductor_cli.models.discovery import discover, workers_of_server, workers_with_keys
from conductor_cli.models.presets import PRESETS
from tests.servers import SeenStep, Wire, loopback

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
        changed = type(preset)(base_url=f"http://127.0.0.1:{port}/v1", local=True, about=preset.about)
        monkeypatch.setitem(PRESETS, name, changed)


async def tags(seen: SeenStep, wire: Wire) -> None:
    names = [
        "qwen3:8b",
        "nomic-embed-text:latest",
        "library/llama4:latest",
        "gpt-oss:120b-cloud",
        "third:1b",
        "fourth:1b",
    ]
    await wire.json({"models": [{"name": name} for name in names]})


def test_a_key_in_the_environment_is_a_worker() -> None:
    """Each provider whose key is set becomes a worker with the model it begins with, in the order of the table."""
    found = workers_with_keys({"OPENAI_API_KEY": "k", "GOOGLE_API_KEY": "k", "XAI_API_KEY": " ", "HOME": "/"})
    assert [(worker.name, worker.kind, worker.model) for worker in found] == [
        ("openai", "openai", PRESETS["openai"].model),
        ("gemini", "gemini", PRESETS["gemini"].model),
    ]


def test_a_local_ollama_offers_its_first_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first models that answer questions, and do so here, become workers that do one step at a time."""
    with loopback(tags) as server:
        at(monkeypatch, ollama=server.port, llama_server=closed())
        found = asyncio.run(discover({}))
    assert [seen.path for seen in server.requests] == ["/api/tags"]
    assert [(worker.name, worker.model, worker.parallel) for worker in found] == [
        ("qwen3-8b", "qwen3:8b", 1),
        ("llama4", "library/llama4:latest", 1),
        ("third-1b", "third:1b", 1),
    ]
    assert all(worker.price is not None and worker.price.output == 0 for worker in found)


def test_a_local_llama_server_offers_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A llama-server is found by its list of models; the worker is named after the file."""

    async def script(seen: SeenStep, wire: Wire) -> None:
        await wire.json({"object": "list", "data": [{"id": "/models/Qwen2.5-7B-Q4_K_M.gguf"}]})

    with loopback(script) as server:
        at(monkeypatch, ollama=closed(), llama_server=server.port)
        found = asyncio.run(discover({"OPENAI_API_KEY": "k"}))
    assert [(worker.name, worker.kind) for worker in found] == [
        ("openai", "openai"), ("Qwen2.5-7B-Q4_K_M", "llama-server"),
    ]  # fmt: skip


def test_ollama_host_moves_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where OLLAMA_HOST names another port, that one is asked, on this machine; the worker keeps the address."""
    with loopback(tags) as server:
        at(monkeypatch, ollama=closed(), llama_server=closed())
        found = asyncio.run(discover({"OLLAMA_HOST": f"0.0.0.0:{server.port}"}))
    assert found[0].options == {"base_url": f"http://127.0.0.1:{server.port}/v1"}


async def page(seen: SeenStep, wire: Wire) -> None:
    await wire.head(200, "text/html")
    await wire.send("<html>")


async def refused(seen: SeenStep, wire: Wire) -> None:
    await wire.json({"error": "no"}, 401)


async def stalled(seen: SeenStep, wire: Wire) -> None:
    await wire.stall()


@pytest.mark.parametrize("script", [page, refused, stalled], ids=lambda script: script.__name__)
def test_what_is_no_model_server_is_passed_over(monkeypatch: pytest.MonkeyPatch, script: Any) -> None:
    """Another program on a usual port, one that refuses and one that says nothing offer no worker."""
    with loopback(script) as server:
        at(monkeypatch, ollama=server.port, llama_server=server.port)
        assert asyncio.run(discover({})) == ()


def test_closed_ports_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing listens nothing is asked: no request is made, and httpx is not needed to find that out."""
    at(monkeypatch, ollama=closed(), llama_server=closed())
    monkeypatch.setattr(module, "preload", None)
    assert asyncio.run(discover({})) == ()


@given(listed=JSON, kind=st.sampled_from(["ollama", "llama-server"]))
def test_whatever_is_listed_makes_workers_or_none(listed: Any, kind: str) -> None:
    """The list of a local server is not trusted: its workers have valid names, and are few."""
    found = workers_of_server(kind, listed, base_url="http://127.0.0.1:1/v1")
    assert len(found) <= 3
    assert all(NAME.fullmatch(worker.name) for worker in found)
