"""The data that ships: providers, the published pool, cards of well-known models.

And what it costs to have it.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.config.files import read_toml
from conductor_cli.config.tables import workers_of
from conductor_cli.core.policy import Policy
from conductor_cli.core.pool import Card, Worker
from conductor_cli.models import cards
from conductor_cli.models.addresses import with_scheme
from conductor_cli.models.cards import builtin_card
from conductor_cli.models.key_hints import key_hint, missing_key_hint
from conductor_cli.models.presets import PRESETS, SHIPPED
from conductor_cli.models.prices import price_name
from conductor_cli.models.recipients import recipient_facts

PUBLISHED = [
    item.worker
    for item in workers_of([read_toml(Path(__file__).parents[2] / "docs/published-pools.toml")])
]


@pytest.fixture(scope="module")
def prices() -> dict[str, Any]:
    """The table of models in litellm, read as data: it is not imported."""
    module_spec = importlib.util.find_spec("litellm")
    assert module_spec is not None
    assert module_spec.origin is not None
    table = Path(module_spec.origin).parent / "model_prices_and_context_window_backup.json"
    return dict(json.loads(table.read_text(encoding="utf-8")))


OFFERED = [Worker(name=kind, kind=kind) for kind, preset in PRESETS.items() if preset.model]
PRICED = [worker for worker in OFFERED if PRESETS[worker.kind].cost == "unknown"]


@pytest.mark.parametrize("worker", [*PRICED, *PUBLISHED], ids=lambda worker: worker.name)
def test_each_worker_that_is_proposed_has_a_price_and_can_be_used(
    worker: Worker, prices: dict[str, Any]
) -> None:
    row = prices[price_name(worker)]
    assert row["mode"] == "chat"
    assert min(row["input_cost_per_token"], row["output_cost_per_token"]) > 0
    assert row.get("deprecation_date", "9999") > SHIPPED["as_of"]
    assert worker.options.get("max_tokens", 0) <= row.get("max_output_tokens", 0)


CARDS = cards._shipped_cards()


@pytest.mark.parametrize("name", sorted(set(chain.from_iterable(line["models"] for line in CARDS))))
def test_each_card_is_of_a_model_that_there_is(name: str, prices: dict[str, Any]) -> None:
    assert name == "openrouter/openrouter/auto" or prices[name]["mode"] == "chat"


@pytest.mark.parametrize(
    "line", CARDS, ids=lambda line: f"{line['models'][0]} {line['source'][-24:]}"
)
def test_each_card_has_a_source_and_shares(line: dict[str, Any]) -> None:
    assert ("strengths" in line) != ("words" in line)
    assert line["source"].startswith("https://" if "words" in line else "arXiv ")
    assert set(line.get("strengths", {})) <= {"math", "facts", "code", "science"}
    assert all(0 < share < 1 for share in line.get("strengths", {}).values())
    assert set(line) <= {
        "models",
        "source",
        "strengths",
        "words",
        "reasoning_effort",
        "thinking_budget",
        "default",
    }


@pytest.mark.parametrize(
    "line", [line for line in CARDS if "words" in line], ids=lambda line: line["models"][0]
)
def test_the_words_of_a_card_agree_with_the_price_table(
    line: dict[str, Any], prices: dict[str, Any]
) -> None:
    row = prices.get(line["models"][0])
    if row is None:
        assert line["models"] == ["openrouter/openrouter/auto"]
        return
    tokens = row["max_input_tokens"]
    words = line["words"].split(", ")
    assert f"{tokens:,} tokens" in line["source"]
    assert ("very long texts" in words) == (tokens >= 900_000)
    assert "reasoning" not in words or row["supports_reasoning"]
    assert len(line["words"]) <= 60


@pytest.mark.parametrize("worker", [*OFFERED, *PUBLISHED], ids=lambda worker: worker.name)
def test_each_model_that_a_preset_chooses_has_a_card(worker: Worker) -> None:
    card = builtin_card(worker)
    assert card.strengths or card.words
    assert card.source
    assert not card.measured


def test_words_alone_give_a_worker_no_figures() -> None:
    """A worker with figures is not behind one that is only described."""
    assert builtin_card(Worker(name="w", kind="openai")).mean() == 0


def made(kind: str, model: str, **options: Any) -> Worker:
    return Worker(name="w", kind=kind, model=model, options=options)


def test_a_prior_card_is_marked_as_not_measured() -> None:
    card = builtin_card(made("openai", "gpt-5"))
    assert (card.measured, card.strengths["code"]) == (False, 0.829)
    assert "2512.04388" in card.source
    assert builtin_card(made("anthropic", "claude-3-haiku")) == Card()
    assert builtin_card(made("llama", "x.gguf")) == Card()


def test_figures_hold_for_the_effort_that_they_were_measured_with() -> None:
    direct, thinking = (
        made("deepinfra", "Qwen/Qwen3-32B", **effort)
        for effort in ({"reasoning_effort": "none"}, {})
    )
    assert builtin_card(direct).strengths["math"] < builtin_card(thinking).strengths["math"]
    usual = builtin_card(made("openai", "gpt-5"))
    assert builtin_card(made("openai", "gpt-5", reasoning_effort="high")) == usual != Card()
    assert builtin_card(made("openai", "gpt-5", reasoning_effort="low")) == Card()
    assert builtin_card(made("gemini", "gemini-2.5-pro", thinking_budget=0)) == Card()


def test_a_name_behind_another_address_is_nobodys() -> None:
    worker = made("openai", "gpt-5")
    assert builtin_card(
        replace(worker, options={"base_url": "https://api.openai.com/v1/"})
    ) == builtin_card(worker)
    assert builtin_card(replace(worker, options={"base_url": "http://127.0.0.1:1/v1"})) == Card()


def test_a_model_is_known_through_whoever_serves_it() -> None:
    assert (
        builtin_card(made("groq", ""))
        == builtin_card(made("deepinfra", "openai/gpt-oss-120b"))
        != Card()
    )


def test_what_to_do_about_a_refused_key() -> None:
    assert (
        key_hint(Worker(name="a", kind="openai", options={"key_env": "MINE"}))
        == "set MINE to a valid key"
    )
    plain = Worker(name="a", kind="openai")
    assert key_hint(plain) == "conductor keys set openai, or correct OPENAI_API_KEY if it is set"
    elsewhere = Worker(name="a", kind="openai", options={"base_url": "https://gateway.example/v1"})
    assert key_hint(elsewhere) == "conductor keys set openai --base-url https://gateway.example/v1"
    assert key_hint(Worker(name="a", kind="command")) == ""


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1"),
        ("localhost:11434", "http://localhost:11434"),
        ("[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("llm.example.com/v1", "https://llm.example.com/v1"),
        ("192.168.1.5:8000", "http://192.168.1.5:8000"),
        ("openai/gpt-6", ""),
        ("planner.gguf", ""),
        ("llama3.2:3b", ""),
        ("", ""),
    ],
)
def test_an_address_without_a_scheme_is_recognised(text: str, url: str) -> None:
    assert with_scheme(text) == url


def test_a_missing_key_is_exported_or_stored() -> None:
    assert (
        missing_key_hint(Worker(name="a", kind="openai"))
        == "export OPENAI_API_KEY=…, or conductor keys set openai"
    )
    assert (
        missing_key_hint(Worker(name="a", kind="openai", options={"key_env": "MINE"}))
        == "export MINE=…"
    )


@pytest.mark.parametrize(
    ("kind", "values", "recipient", "local"),
    [
        ("llama", {"model": "a.gguf"}, "this machine", True),
        ("ollama", {"model": "m"}, "this machine", True),
        ("openai-compatible", {"base_url": "http://127.0.0.1:1/v1"}, "this machine", True),
        ("openai-compatible", {"base_url": "http://10.0.0.1/v1"}, "10.0.0.1", False),
        ("openai-compatible", {"base_url": "http://127.evil.test/v1"}, "127.evil.test", False),
        ("ollama", {"model": "m", "base_url": "http://gpu.test:11434/v1"}, "gpu.test", False),
        ("openai-compatible", {"base_url": "https://LLM.example.com/v1"}, "llm.example.com", False),
        ("openai", {}, "openai", False),
        ("openai", {"base_url": "https://proxy.example.com/v1"}, "proxy.example.com", False),
        ("litellm", {"model": "azure/gpt"}, "azure", False),
        (
            "litellm",
            {"model": "openai/gpt", "base_url": "https://proxy.example.com"},
            "proxy.example.com",
            False,
        ),
        ("litellm", {"model": "gpt-4o"}, "unknown", False),
        ("openai-compatible", {"base_url": "https://API.openai.com./v1"}, "openai", False),
        ("deepseek", {"base_url": "https://eu.api.openai.com:443/v2"}, "openai", False),
        (
            "openai-compatible",
            {"base_url": "https://api.openai.com.evil/v1"},
            "api.openai.com.evil",
            False,
        ),
        (
            "openai-compatible",
            {"base_url": "http://localhost@example.com/v1"},
            "example.com",
            False,
        ),
        ("openai-compatible", {"base_url": "http://[nowhere/v1"}, "http://[nowhere/v1", False),
        ("ollama", {"model": "m:Cloud"}, "ollama", False),
        (
            "openai-compatible",
            {"base_url": "http://localhost:11434/v1", "model": "m:120b-cloud"},
            "ollama",
            False,
        ),
        ("command", {"command": ["cat"]}, "unknown", False),
        ("command", {"command": ["cat"], "sandbox": True}, "this machine", True),
        ("command", {"command": ["cat"], "sandbox": True, "network": True}, "unknown", False),
        ("command", {"command": ["cat"], "provider": "local"}, "this machine", True),
        ("command", {"command": ["cat"], "provider": "Mistral"}, "mistral", False),
        ("codex", {"model": "gpt-6.1-sol", "cwd": "/x", "env": ["CODEX_API_KEY"]}, "openai", False),
        ("codex", {"sandbox": True, "network": True}, "openai", False),
        ("codex", {"args": ["-c", "model_provider=lab"]}, "unknown", False),
        ("claude-code", {"env": ["ANTHROPIC_BASE_URL"]}, "unknown", False),
        ("claude-code", {"command": ["my-claude"]}, "unknown", False),
        ("gemini-cli", {"provider": "unknown"}, "unknown", False),
    ],
)
def test_a_party_is_known_by_who_reads_what_it_is_sent(
    kind: str, values: dict[str, Any], recipient: str, local: bool
) -> None:
    model = values.pop("model", "")
    party = recipient_facts(Worker(name="w", kind=kind, model=model, options=values, tags=("eu",)))
    assert (party.provider, party.local, party.kind, party.tags) == (
        recipient,
        local,
        kind,
        ("eu",),
    )


def test_a_worker_whose_provider_nobody_knows_is_forbidden_with_any() -> None:
    party = recipient_facts(Worker(name="w", kind="litellm", model="gpt-4o"))
    reason = Policy(deny=("provider:openai",)).denial_reason(party)
    assert reason == "policy.deny names provider:openai, and the provider of w is not known"
    assert Policy(allow=(("provider:openai",),)).denial_reason(party)
    assert not Policy(deny=("provider:local", "tag:eu", "x")).denial_reason(party)


def test_no_program_is_shown_what_must_stay_here_unless_it_can_send_nothing() -> None:
    programs: dict[str, dict[str, Any]] = {
        "free": {},
        "boxed": {"sandbox": True},
        "open": {"sandbox": True, "network": True},
        "args": {"args": ["-x"]},
    }
    parties = [
        recipient_facts(Worker(name=name, kind="command", options={"command": ["cat"], **options}))
        for name, options in programs.items()
    ]
    here = Policy(local_only=True)
    files = Policy(files_only=(("provider:local",),))
    assert [party.name for party in parties if not here.denial_reason(party)] == ["boxed"]
    assert [party.name for party in parties if files.allows_files(party)] == ["boxed"]
    assert [
        party.name
        for party in parties
        if not Policy(deny=("provider:openai",)).denial_reason(party)
    ] == ["boxed"]
