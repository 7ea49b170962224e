"""Who reads what a worker is sent: what policies go by."""

from __future__ import annotations

from typing import Any

import pytest

from conductor_cli.core.policy import Policy
from conductor_cli.core.pool import Worker
from conductor_cli.models.presets import party_of


@pytest.mark.parametrize(
    ("kind", "values", "recipient", "local"),
    [
        ("llama", {"model": "a.gguf"}, "this machine", True),
        ("ollama", {"model": "m"}, "this machine", True),
        ("openai-compatible", {"base_url": "http://127.0.0.1:1/v1"}, "this machine", True),
        ("openai-compatible", {"base_url": "https://LLM.example.com/v1"}, "llm.example.com", False),
        ("openai", {}, "openai", False),
        ("openai", {"base_url": "https://proxy.example.com/v1"}, "proxy.example.com", False),
        ("anthropic", {}, "anthropic", False),
        ("litellm", {"model": "azure/gpt"}, "azure", False),
        ("litellm", {"model": "openai/gpt", "base_url": "https://proxy.example.com"}, "proxy.example.com", False),
        ("litellm", {"model": "gpt-4o"}, "unknown", False),
        ("openai-compatible", {"base_url": "https://API.openai.com./v1"}, "openai", False),
        ("deepseek", {"base_url": "https://eu.api.openai.com:443/v2"}, "openai", False),
        ("openai-compatible", {"base_url": "https://api.openai.com.evil/v1"}, "api.openai.com.evil", False),
        ("openai-compatible", {"base_url": "http://localhost@example.com/v1"}, "example.com", False),
        ("openai-compatible", {"base_url": "http://[nowhere/v1"}, "http://[nowhere/v1", False),
        ("ollama", {"model": "m:Cloud"}, "ollama", False),
        ("openai-compatible", {"base_url": "http://localhost:11434/v1", "model": "m:120b-cloud"}, "ollama", False),
        ("command", {"command": ["cat"]}, "unknown", False),
        ("command", {"command": ["cat"], "network": False}, "unknown", False),
        ("command", {"command": ["cat"], "sandbox": True}, "this machine", True),
        ("command", {"command": ["cat"], "sandbox": True, "network": True}, "unknown", False),
        ("command", {"command": ["cat"], "provider": "local"}, "this machine", True),
        ("command", {"command": ["cat"], "provider": "Mistral"}, "mistral", False),
        ("codex", {}, "openai", False),
        ("codex", {"model": "gpt-6.1-sol", "cwd": "/x", "env": ["CODEX_API_KEY"]}, "openai", False),
        ("codex", {"sandbox": True, "network": True}, "openai", False),
        ("codex", {"args": ["-c", "model_provider=lab"]}, "unknown", False),
        ("claude-code", {"env": ["ANTHROPIC_BASE_URL"]}, "unknown", False),
        ("claude-code", {"command": ["my-claude"]}, "unknown", False),
        ("gemini-cli", {"provider": "unknown"}, "unknown", False),
        ("opencode", {"model": "anthropic/claude"}, "unknown", False),
    ],
)
def test_a_party_is_known_by_who_reads_what_it_is_sent(
    kind: str, values: dict[str, Any], recipient: str, local: bool
) -> None:
    """An address of its own counts, whatever the kind says and through whatever library."""
    model = values.pop("model", "")
    party = party_of(Worker(name="w", kind=kind, model=model, options=values, tags=("eu",)))
    assert (party.recipient, party.local, party.kind, party.tags) == (recipient, local, kind, ("eu",))


def test_a_worker_whose_provider_nobody_knows_is_forbidden_with_any() -> None:
    """Litellm finds a provider by the name of the model; a rule that forbids one must not be got round by that."""
    party = party_of(Worker(name="w", kind="litellm", model="gpt-4o"))
    said = Policy(deny=("provider:openai",)).denial_reason(party)
    assert said == "policy.deny names provider:openai, and the provider of w is not known"
    assert Policy(allow=(("provider:openai",),)).denial_reason(party)
    assert not Policy(deny=("provider:local", "tag:eu", "x")).denial_reason(party)


def test_no_program_is_shown_what_must_stay_here_unless_it_can_send_nothing() -> None:
    """A rule that keeps files or everything on this machine admits a program only in a sandbox without a network."""
    programs: dict[str, dict[str, Any]] = {
        "free": {}, "boxed": {"sandbox": True}, "open": {"sandbox": True, "network": True}, "args": {"args": ["-x"]},
    }  # fmt: skip
    parties = [
        party_of(Worker(name=name, kind="command", options={"command": ["cat"], **options}))
        for name, options in programs.items()
    ]
    here, files = Policy(local_only=True), Policy(files_only=(("provider:local",),))
    assert [party.name for party in parties if not here.denial_reason(party)] == ["boxed"]
    assert [party.name for party in parties if files.allows_files(party)] == ["boxed"]
    assert [party.name for party in parties if not Policy(deny=("provider:openai",)).denial_reason(party)] == ["boxed"]
