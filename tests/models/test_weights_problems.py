"""What is wrong with the model store at a look, how a model comes back, and how much memory one takes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.models.weights.import_file import ImportRequest, import_model
from conductor_cli.models.weights.model_store import Manifest, ModelFile, ModelStore
from conductor_cli.models.weights.registry import OVERHEAD, file_memory, load_registry, manifest_memory, memory_needed
from conductor_cli.models.weights.verify import CheckedFile, find_problems, hash_file, repair_hint
from conductor_cli.models.weights.verify import ignore_progress as silent
from tests.tiny_gguf import Shape, make

REGISTRY = """[[models]]
name = "listed"
context_bytes = 256
repo = "acme/tiny"
revision = "main"
licence = "Apache-2.0"
about = "a test's"
[[models.parts]]
file = "listed.gguf"
size = 1000
"""


@pytest.fixture(autouse=True)
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry with one model."""
    path = tmp_path / "registry.toml"
    path.write_text(REGISTRY)
    monkeypatch.setenv("CONDUCTOR_LLM_REGISTRY", str(path))
    return path


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "data/models")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return make(tmp_path / "my model.gguf")


@pytest.fixture
def take(store: ModelStore) -> Callable[..., Manifest]:
    """Takes a file into the model store."""

    def taken(path: Path, **more: object) -> Manifest:
        return import_model(ImportRequest(path=path, **more), store, os.environ, silent).manifest  # type: ignore[arg-type]

    return taken


def manifest(path: Path, source: str, name: str = "some", **more: Any) -> Manifest:
    files = (ModelFile(path=path, size=path.stat().st_size, sha256=hash_file(path)),)
    return replace(Manifest(name=name, files=files, source=source), **more)


def test_a_model_is_repaired_from_its_source_which_must_be_there(take: Callable[..., Manifest], file: Path) -> None:
    found, again = take(file, copy=True), f"conductor model import '{file}' --name my-model"
    assert repair_hint(found, os.environ) == f"if {file} is whole: {again}"
    file.unlink()
    assert repair_hint(found, os.environ) == f"get {file} again, then: {again}"


def test_a_registry_model_is_repaired_by_a_pull(file: Path) -> None:
    for source in ("hub:acme/tiny@0123", f"file:{file}.gone"):
        assert repair_hint(manifest(file, source, "listed"), os.environ) == "conductor model pull listed"


def test_a_model_that_left_the_registry_names_its_repository(file: Path, known: Path) -> None:
    expected = "get acme/other@0123 again, then: conductor model import FILE --name some"
    assert expected in repair_hint(manifest(file, "hub:acme/other@0123"), os.environ)
    known.write_text("models = [")
    assert expected in repair_hint(manifest(file, "hub:acme/other@0123"), os.environ)


def test_the_repair_of_an_adapter_names_its_base(file: Path, tmp_path: Path) -> None:
    directory = tmp_path / "trained"
    directory.mkdir()
    found = repair_hint(manifest(file, f"file:{directory}", base="my base.gguf"), os.environ)
    assert found == f"if {directory} is whole: conductor model import {directory} --name some --base 'my base.gguf'"


def test_problems_are_found_without_reading_files(
    take: Callable[..., Manifest], store: ModelStore, file: Path, known: Path
) -> None:
    whole = take(file, copy=True)
    assert find_problems(store, os.environ) == []
    gone = take(shutil.copy(file, file.with_name("gone.gguf")), copy=True)
    gone.path.unlink()
    broken = take(shutil.copy(file, file.with_name("broken.gguf")))
    (store.folder(broken.name) / "manifest.toml").write_text("name = [")
    known.write_text("models = [")
    found = find_problems(store, os.environ)
    assert [each.name for each in found] == ["broken", "gone"]
    assert all(each.problem and each.hint for each in found)
    assert "conductor model rm broken" in found[0].hint
    assert found[1] == CheckedFile(
        name="gone", path=gone.path, problem=gone.fault(), hint=repair_hint(gone, os.environ)
    )
    assert whole.fault() == ""


def test_memory_is_computed_from_the_file(file: Path) -> None:
    shape, size = Shape(), file.stat().st_size
    per_token = 2 * 2 * shape.layers * shape.key_heads * (shape.width // shape.heads)
    assert file_memory(file, size) == memory_needed(size, per_token)
    assert file_memory(file, size, 100) == size + 100 * per_token + OVERHEAD
    assert file_memory(file, size, 1_000_000) == size + shape.context * per_token + OVERHEAD


def test_memory_of_files_that_are_not_models_is_unknown(tmp_path: Path, file: Path) -> None:
    (tmp_path / "text.gguf").write_text("I am a text.")
    assert [file_memory(tmp_path / name, 1000) for name in ("none.gguf", "text.gguf")] == [0, 0]
    assert manifest_memory(manifest(file, "file:/x", base="/nowhere/base.gguf"), {}, {}) == 0


def test_memory_of_an_adapter_includes_its_base(file: Path) -> None:
    size, listed = file.stat().st_size, load_registry(os.environ)[0]
    base = manifest(file, "file:/x", "base")
    entries = {listed.name: listed.memory}
    for name, below in (("base", file_memory(file, size)), (str(file), file_memory(file, size)),
                        ("listed", listed.memory)):  # fmt: skip
        adapter = manifest(file, "file:/x", base=name)
        assert manifest_memory(adapter, {"base": base}, entries) == below + size
