"""The table of known models: what is shipped, what stands in for it, and what is refused in it."""

from __future__ import annotations

import json
import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from conductor_cli.core.errors import ConductorUnusable, ConfigError
from conductor_cli.models.weights.registry import VARIABLE, find_registry_model, load_registry
from conductor_cli.models.weights.verify import hash_file

HASH = "0123456789abcdef" * 4
OUTSIDE = (
    "../a.gguf",
    "/a.gguf",
    "a/../b.gguf",
    "a//b.gguf",
    "C:\\a.gguf",
    ".hidden.gguf",
    "a b.gguf",
    "a.gguf\n",
)


def model(**changes: Any) -> dict[str, Any]:
    whole = {
        "name": "a",
        "context_bytes": 1024,
        "repo": "owner/name",
        "revision": "main",
        "licence": "MIT",
        "about": "one",
        "parts": [{"file": "a.gguf", "size": 100, "sha256": HASH}],
    } | changes
    return {key: value for key, value in whole.items() if value is not None}


def table(directory: Path, *models: Any, **changes: Any) -> dict[str, str]:
    """The environment that names a table with these models."""
    values = {"models": list(models)} | changes
    path = directory / "registry.toml"
    path.write_text(
        tomli_w.dumps({key: value for key, value in values.items() if value is not None})
    )
    return {VARIABLE: str(path)}


def test_every_shipped_model_has_commit_sizes_and_hashes() -> None:
    entries = [entry for entry in load_registry({}) if not entry.is_packaged]
    parts = list(chain.from_iterable(entry.parts for entry in entries))
    assert all(re.fullmatch(r"[0-9a-f]{40}", entry.revision) for entry in entries)
    assert all(part.size > 0 and part.sha256 for part in parts)
    assert len({part.sha256 for part in parts}) == len(parts)


def test_an_adapter_that_ships_is_the_one_of_its_record() -> None:
    packaged = [entry for entry in load_registry({}) if entry.is_packaged]
    for part in chain.from_iterable(entry.parts for entry in packaged):
        assert hash_file(part.path) == part.sha256


def test_a_name_is_found_in_any_case() -> None:
    assert find_registry_model("QWEN2.5-7B-Q4_K_M", {}) == load_registry({})[0]


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("qwen2.5-3b", "qwen2.5-3b-q4_k_m"),
        ("qwen2.5-14b-q4km", "qwen2.5-14b-q4_k_m"),
        ("llama", ""),
        ("/x/y.gguf", ""),
    ],
)
def test_an_unknown_name_gets_suggestions(given: str, near: str) -> None:
    with pytest.raises(ConductorUnusable, match="unknown model") as caught:
        find_registry_model(given, {})
    assert repr(given) in caught.value.message
    assert (f"did you mean {near}" if near else "conductor model list") in caught.value.hint
    assert ("did you mean" in caught.value.hint) == bool(near)
    assert "conductor model import FILE" in caught.value.hint


def test_another_registry_replaces_the_shipped_one(tmp_path: Path) -> None:
    environ = table(tmp_path, model(), model(name="b", profile="published", revision="v1.0"))
    assert [(entry.name, entry.profile) for entry in load_registry(environ)] == [
        ("a", "prompted"),
        ("b", "published"),
    ]


def test_sizes_and_hashes_are_optional(tmp_path: Path) -> None:
    first = load_registry(table(tmp_path, model(parts=[{"file": "a.gguf"}])))[0]
    assert (first.size, first.memory, first.parts[0].sha256) == (0, 0, "")


def test_an_adapter_adds_to_the_memory_of_its_base(tmp_path: Path) -> None:
    files = [
        {"file": "adapter_model.safetensors", "size": 5},
        {"file": "sub/adapter_config.json", "size": 1},
    ]
    base, lora = load_registry(
        table(tmp_path, model(), model(name="l", context_bytes=None, base="a", parts=files))
    )
    assert (lora.base, lora.size, lora.memory) == ("a", 6, base.memory + 6)


def test_an_adapter_beside_the_registry_needs_a_right_record(tmp_path: Path) -> None:
    adapter = model(name="l", context_bytes=None, base="a", parts=[{"file": "p/l.gguf"}])
    del adapter["repo"], adapter["revision"]
    environ = table(tmp_path, model(), adapter)
    assert [entry.name for entry in load_registry(environ)] == ["a"]
    (tmp_path / "p").mkdir()
    (tmp_path / "p/l.gguf").write_bytes(b"GGUF")
    with pytest.raises(ConfigError, match=r"cannot read .*l\.json"):
        load_registry(environ)
    record = {"sha256": "1" * 64, "base_sha256": "2" * 64, "examined": "2026-11-29", "figures": {}}
    for broken in ({"sha256": "1"}, {"figures": {"x": "two\nlines"}}, {"figures": 5}):
        (tmp_path / "p/l.json").write_text(json.dumps({**record, **broken}))
        with pytest.raises(ConfigError, match=r"l\.json"):
            load_registry(environ)
    (tmp_path / "p/l.json").write_text(json.dumps(record))
    packaged = load_registry(environ)[1]
    assert (packaged.is_packaged, packaged.size, packaged.parts[0].sha256) == (True, 4, "1" * 64)


def test_parts_must_be_numbered_in_order(tmp_path: Path) -> None:
    good = [{"file": "m-00001-of-00002.gguf"}, {"file": "m-00002-of-00002.gguf"}]
    assert len(load_registry(table(tmp_path, model(parts=good)))[0].parts) == 2
    with pytest.raises(
        ConfigError, match=r"a: m-00002-of-00002\.gguf does not end in -00001-of-00002"
    ):
        load_registry(table(tmp_path, model(parts=good[::-1])))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"size": 5}, "unknown key 'size'"),
        ({"licence": None}, "models[0]: 'licence' is missing"),
        ({"about": "two\nlines"}, "models[0]: a: licence or about is empty, or more than one line"),
        ({"name": 5}, "models[0].name: expected text"),
        ({"name": "../x"}, "'../x' is not a valid name"),
        ({"repo": "name"}, "'name' is not a valid repo"),
        ({"repo": "a/b--c"}, "is not a valid repo"),
        ({"revision": "refs/../x"}, "is not a valid revision"),
        ({"profile": "odd"}, "profile is 'odd'; expected one of prompted, published"),
        ({"context_bytes": "x"}, "models[0].context_bytes: expected a whole number"),
        ({"base": "b"}, "its base is not a model above it"),
        ({"parts": []}, "a has no parts"),
        ({"parts": ["a.gguf"]}, "models[0].parts[0]: expected an object"),
        ({"parts": [{"file": "a.bin"}]}, "a.bin does not end in .gguf"),
        ({"parts": [{"file": "a.gguf", "size": -1}]}, "the size of a.gguf is negative"),
        (
            {"parts": [{"file": "a.gguf", "sha256": "g" * 64}]},
            "sha256 of a.gguf is not 64 hex digits",
        ),
        ({"parts": [{"file": "a.gguf", "etag": "x"}]}, "unknown key 'etag'"),
        *(({"parts": [{"file": file}]}, "is not a relative path of a file") for file in OUTSIDE),
    ],
)
def test_an_invalid_model_is_named(tmp_path: Path, broken: dict[str, Any], message: str) -> None:
    environ = table(tmp_path, model(**broken))
    with pytest.raises(ConfigError) as caught:
        load_registry(environ)
    assert caught.value.message.startswith(environ[VARIABLE])
    assert message in caught.value.message
    assert VARIABLE in caught.value.hint


def test_an_invalid_registry_is_rejected(tmp_path: Path) -> None:
    for models, message in (
        ([], "it contains no model"),
        ([model(), model()], "another model has the same name"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_registry(table(tmp_path, *models))


@pytest.mark.parametrize("text", [b"a = ", b"\xff\xfe", b"[" * 5000])
def test_a_registry_that_is_not_toml_is_rejected(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "odd.toml"
    path.write_bytes(text)
    with pytest.raises(ConfigError, match="is not a valid registry"):
        load_registry({VARIABLE: str(path)})


def test_a_missing_registry_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*gone\.toml: No such file"):
        load_registry({VARIABLE: str(tmp_path / "gone.toml")})
