"""Providers in the files: what they become, and what is refused with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from conductor_cli.config.files import read_toml
from conductor_cli.config.tables import ConfiguredProvider, providers_of
from conductor_cli.core.errors import ConfigError
from conductor_cli.core.pool import Worker
from conductor_cli.models.presets import is_at_provider


def providers(folder: Path, text: str) -> tuple[ConfiguredProvider, ...]:
    (folder / "config.toml").write_text(text)
    return providers_of([read_toml(folder / "config.toml")])


def test_a_table_says_how_many_calls_a_provider_takes(tmp_path: Path) -> None:
    """In the order of the file; the name of a host needs quotes."""
    text = '[providers.openai]\nparallel = 4\n[providers."llm.example.com"]\nparallel = 1'
    assert providers(tmp_path, text) == (
        ConfiguredProvider(name="openai", parallel=4), ConfiguredProvider(name="llm.example.com", parallel=1),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("[providers.openai]", 1, "has no parallel"),
        ("[providers.openai]\nparallel = 0", 2, "expected a whole number of at least 1"),
        ('[providers.openai]\nparallel = "two"', 2, "parallel"),
        ("[providers.openai]\nparallel = 2\nretries = 9", 3, "has no key 'retries'"),
    ],
)
def test_what_a_provider_cannot_have_is_refused_with_its_line(tmp_path: Path, text: str, line: int, why: str) -> None:
    """The error names the file and what was expected."""
    with pytest.raises(ConfigError, match=why) as caught:
        providers(tmp_path, text)
    assert f"config.toml:{line}" in caught.value.message or f"line {line}" in caught.value.message


@pytest.mark.parametrize(
    ("worker", "names"),
    [
        (Worker(name="a", kind="openai", model="gpt"), ("openai", "OpenAI", "api.openai.com")),
        (Worker(name="a", kind="ollama", model="qwen3"), ("ollama", "local", "127.0.0.1")),
        (Worker(name="a", kind="llama", model="x.gguf"), ("llama", "local")),
    ],
)
def test_a_provider_is_named_as_a_user_would_name_it(worker: Worker, names: tuple[str, ...]) -> None:
    """By its own name, its host, the kind of the worker, or `local`; no other name fits."""
    known = {"openai", "OpenAI", "api.openai.com", "ollama", "local", "localhost", "127.0.0.1", "llama", "a"}
    assert {name for name in known if is_at_provider(worker, name)} == set(names)
