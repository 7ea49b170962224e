"""The model store of local models.

Manifests, SHA-256, taking files that are here, checking them, removing them.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.errors import ConductorUnusable, ConfigError, ModelError, UsageError
from conductor_cli.models.weights.download import remove_model
from conductor_cli.models.weights.import_file import ImportResult, derive_name, import_model
from conductor_cli.models.weights.model_store import Manifest, ModelFile, ModelStore
from conductor_cli.models.weights.registry import (
    OVERHEAD_BYTES,
    file_memory,
    load_registry,
    manifest_memory,
    memory_needed,
)
from conductor_cli.models.weights.verify import (
    CheckedFile,
    find_problems,
    hash_file,
    repair_hint,
    verify_model,
)
from conductor_cli.system import disk
from tests.models.test_weights_download import HALVES
from tests.tiny_gguf import Extra, Shape, lora, make

REGISTRY = """[[models]]
name = "tiny-known"
context_bytes = 256
repo = "acme/tiny"
revision = "main"
licence = "Apache-2.0"
about = "a test's"
profile = "published"
[[models.parts]]
file = "sub/known.gguf"
"""


def silent(*_: object) -> None:
    """Report no progress."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return make(tmp_path_factory.mktemp("made") / "model.gguf").read_bytes()


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "data/models")


@pytest.fixture
def file(tmp_path: Path, model: bytes) -> Path:
    path = tmp_path / "mine" / "My Model.gguf"
    path.parent.mkdir()
    path.write_bytes(model)
    return path


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Replaces the registry by one with `tiny-known`, whose only part gets what is given."""

    def write(part: str) -> None:
        path = tmp_path / "registry.toml"
        path.write_text(f"{REGISTRY}{part}\n")
        monkeypatch.setenv("CONDUCTOR_LLM_REGISTRY", str(path))

    return write


def manifest(name: str, *files: Path, **fields: Any) -> Manifest:
    """A manifest of files as they are now."""
    model_files = tuple(
        ModelFile(path=path, size=path.stat().st_size, sha256=hash_file(path)) for path in files
    )
    return replace(Manifest(name=name, files=model_files, source="file:/x"), **fields)


def take(store: ModelStore, path: Path, *, apart: bool = False, **options: Any) -> ImportResult:
    """Import a file; `apart` then makes a file of its own of each link to it."""
    imported = import_model(path, store, os.environ, silent, **options)
    for file in imported.manifest.files if apart else ():
        content = file.path.read_bytes()
        file.path.unlink()
        file.path.write_bytes(content)
    return imported


def test_a_written_manifest_is_found(store: ModelStore, file: Path) -> None:
    put = manifest(
        "b",
        file,
        licence="MIT",
        base="a",
        endpoint="http://127.0.0.1:1",
        hash_source="hub",
        at="2026-11-20",
    )
    store.write(put)
    store.write(manifest("a", file))
    assert store.find("b") == put
    assert [manifest.name for manifest in store.manifests()] == ["a", "b"]
    assert (put.path, put.size) == (file, file.stat().st_size)


def test_the_store_can_be_moved(store: ModelStore, tmp_path: Path) -> None:
    model_path = store.folder("a") / "a.gguf"
    model_path.parent.mkdir(parents=True)
    model_path.write_bytes(b"x")
    store.write(manifest("a", model_path))
    store.directory.rename(tmp_path / "moved")
    moved = ModelStore(tmp_path / "moved").find("a")
    assert moved is not None
    assert moved.path == tmp_path / "moved/a/a.gguf"
    assert moved.fault() == ""


DAMAGE = {
    "no TOML": b"name = [",
    "not UTF-8": b"\xff\xfe",
    "no files": b'name = "a"\nsource = "file:/x"\nfiles = []',
    "files no tables": b'name = "a"\nsource = "file:/x"\nfiles = ["x"]',
    "size no number": (
        b'name = "a"\nsource = "file:/x"\n[[files]]\npath = "x"\nsize = "1"\nsha256 = "0"'
    ),
    "unknown hash source": (
        b'name = "a"\nsource = ""\nhash_source = "me"\n[[files]]\npath = "x"\nsize = 1\nsha256 = ""'
    ),
    "another name": b'name = "b"\nsource = "file:/x"\n[[files]]\npath = "x"\nsize = 1\nsha256 = "0"',
    "deep": b"a = " + b"[" * 100_000,
}


@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_manifest_affects_no_other_model(
    store: ModelStore, file: Path, content: bytes
) -> None:
    path = store.folder("a") / "manifest.toml"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    store.write(manifest("whole", file))
    with pytest.raises(ConductorUnusable) as caught:
        store.find("a")
    assert str(path) in caught.value.message
    assert "conductor model rm a" in caught.value.hint
    assert [manifest.name for manifest in store.manifests()] == ["whole"]
    assert store.damaged() == {"a": caught.value.message}
    store.delete("a")
    assert (len(store.manifests()), store.damaged()) == (1, {})


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "-a", "a b", "x" * 81, "manifest.toml", "a\n"]
)
def test_an_invalid_model_name_is_rejected(store: ModelStore, file: Path, name: str) -> None:
    assert store.find(name) is None
    with pytest.raises(UsageError):
        store.write(manifest(name, file))


def test_an_unwritable_store_is_named(tmp_path: Path, file: Path) -> None:
    (tmp_path / "taken").write_text("x")
    with pytest.raises(ConfigError, match="taken"):
        ModelStore(tmp_path / "taken").write(manifest("a", file))


@pytest.mark.parametrize("name", ["missing", "."])
def test_an_unreadable_file_cannot_be_hashed(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match=str(tmp_path)) as caught:
        hash_file(tmp_path / name)
    assert caught.value.reason == "file"


def test_import_follows_a_symbolic_link(store: ModelStore, file: Path, tmp_path: Path) -> None:
    link = tmp_path / "pretty.gguf"
    link.symlink_to(file)
    imported = take(store, link)
    assert imported.manifest.path.name == "pretty.gguf"
    assert not imported.manifest.path.is_symlink()
    assert imported.manifest.path.samefile(file)


def test_a_name_that_is_taken_is_rejected(store: ModelStore, file: Path, tmp_path: Path) -> None:
    first = take(store, file)
    other = make(tmp_path / "other.gguf", seed=1)
    with pytest.raises(UsageError, match="My-Model"):
        take(store, other, name="My-Model")
    first.manifest.path.unlink()
    assert take(store, other, name="My-Model").manifest.path.samefile(other)


def test_without_hard_links_the_file_is_used_where_it_is(
    store: ModelStore, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    imported = take(store, file)
    assert (imported.stored, imported.manifest.path) == (False, file)
    assert [path.name for path in store.folder("My-Model").iterdir()] == ["manifest.toml"]


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
def test_an_import_that_fails_or_is_interrupted_leaves_nothing(
    store: ModelStore, file: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_atomically", fail)
        with pytest.raises((KeyboardInterrupt, ConfigError)) as caught:
            take(store, file, apart=True)
    assert isinstance(error, KeyboardInterrupt) or "No space left" in str(caught.value)
    assert not store.folder("My-Model").exists()
    assert not take(store, file, apart=True).existed


KILLED = """
import os, signal, sys
from pathlib import Path
from conductor_cli.models.weights import import_file
from conductor_cli.models.weights.model_store import ModelStore
os.fsync = lambda number: os.kill(os.getpid(), signal.SIGKILL)
import_file.import_model(Path(sys.argv[2]), ModelStore(Path(sys.argv[1])), os.environ, lambda *_: \
None)
"""


def test_what_a_killed_import_left_is_shown_and_removable(store: ModelStore, file: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(store.directory), str(file)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert "has no manifest: an import is running, or was stopped" in store.damaged()["My-Model"]
    take(store, file)
    assert store.damaged() == {}
    assert sorted(path.name for path in store.folder("My-Model").iterdir()) == [
        "My Model.gguf",
        "manifest.toml",
    ]
    store.delete("My-Model")
    assert remove_model("My-Model", store, None).names
    assert (store.folder("My-Model").exists(), store.damaged()) == (False, {})


def test_a_running_import_is_not_removed(store: ModelStore) -> None:
    store.folder("My-Model").mkdir(parents=True)
    (store.folder("My-Model") / ".0011223344556677.new").touch()
    with store.lock(lambda: None), ThreadPoolExecutor(1) as other:
        removal = other.submit(remove_model, "My-Model", store, None)
        with pytest.raises(ConductorUnusable, match="My-Model is being imported"):
            removal.result()
    assert remove_model("My-Model", store, None).names


def test_the_last_bytes_of_a_disk_stay_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "free_bytes", lambda directory: disk.MARGIN_BYTES + 10)
    disk.check_room(tmp_path, 10)
    with pytest.raises(ConductorUnusable):
        disk.check_room(tmp_path, 11)
    monkeypatch.setattr(disk, "free_bytes", lambda directory: 0)
    disk.check_room(tmp_path, 0)


def test_all_parts_of_a_divided_model_are_imported_from_its_first(
    store: ModelStore, tmp_path: Path
) -> None:
    files = [tmp_path / f"big-0000{number}-of-00002.gguf" for number in (1, 2)]
    for path, content in zip(files, HALVES, strict=True):
        path.write_bytes(content)
    with pytest.raises(ModelError, match="not the first part") as caught:
        take(store, files[1])
    assert str(files[0]) in caught.value.hint
    imported = take(store, files[0])
    assert imported.manifest.name == "big"
    assert [file.path.name for file in imported.manifest.files] == [path.name for path in files]
    assert not any(
        checked.problem for checked in verify_model(imported.manifest, os.environ, silent)
    )
    store.delete("big")
    files[1].unlink()
    with pytest.raises(ModelError, match="big-00002-of-00002"):
        take(store, files[0])
    assert store.manifests() == ()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.gguf", "a"),
        ("Qwen 2.5 (7B).gguf", "Qwen-2.5-7B"),
        ("m-00001-of-00003.gguf", "m"),
        ("日本.gguf", "model"),
        ("x" * 200 + ".gguf", "x" * 80),
        ("-v1.5", "v1.5"),
    ],
)
def test_a_model_name_is_derived_from_the_file_name(name: str, expected: str) -> None:
    assert derive_name(Path("/somewhere") / name) == expected


@pytest.mark.parametrize("known_by", ["hash", "name and size"])
def test_import_recognises_a_registry_model(
    store: ModelStore, file: Path, registry: Callable[[str], None], known_by: str
) -> None:
    by_hash = known_by == "hash"
    registry(f"size = {file.stat().st_size}" + f'\nsha256 = "{hash_file(file)}"' * by_hash)
    imported = take(store, file if by_hash else file.rename(file.with_name("known.gguf"))).manifest
    assert (imported.name, imported.licence, imported.profile) == (
        "tiny-known",
        "Apache-2.0",
        "published",
    )
    assert imported.hash_source == ("registry" if by_hash else "file")


def test_a_file_that_only_looks_like_a_registry_model_is_rejected(
    store: ModelStore, file: Path, registry: Callable[[str], None]
) -> None:
    registry(f'sha256 = "{"0" * 64}"\nsize = {file.stat().st_size}')
    same = file.rename(file.with_name("known.gguf"))
    with pytest.raises(ModelError, match="tiny-known"):
        take(store, same)
    imported = take(store, same, name="mine").manifest
    assert (imported.name, imported.profile, imported.hash_source) == ("mine", "prompted", "file")


def test_a_registry_name_is_reserved(
    store: ModelStore, file: Path, registry: Callable[[str], None]
) -> None:
    registry(f'sha256 = "{"0" * 64}"')
    named = file.with_name("tiny-known.gguf")
    named.hardlink_to(file)
    for path, name in ((file, "tiny-known"), (named, "")):
        with pytest.raises(UsageError, match="tiny-known"):
            take(store, path, name=name)
    assert store.manifests() == ()


def test_the_licence_is_read_from_the_header(store: ModelStore, tmp_path: Path) -> None:
    path = make(tmp_path / "x.gguf", extra=Extra(metadata={"general.license": "mit\n\x1b[31m"}))
    assert take(store, path).manifest.licence == "mit [31m"


def test_verify_describes_each_kind_of_damage_and_none_of_a_whole_model(
    store: ModelStore, file: Path
) -> None:
    imported = take(store, file, apart=True).manifest
    reports = list[tuple[str, int, int]]()
    (checked,) = verify_model(imported, os.environ, lambda *progress: reports.append(progress))
    assert (checked.problem, checked.sha256) == ("", imported.files[0].sha256)
    assert reports[-1][1:] == (imported.size, imported.size)
    content = bytearray(imported.path.read_bytes())
    content[-100] ^= 1
    imported.path.write_bytes(content)
    assert imported.fault() == ""
    assert "SHA-256 should be" in verify_model(imported, os.environ, silent)[0].problem
    imported.path.write_bytes(content[:-1])
    assert "bytes instead of" in imported.fault()
    assert "bytes instead of" in verify_model(imported, os.environ, silent)[0].problem
    imported.path.unlink()
    assert "is missing" in imported.fault()
    assert "cannot be read" in verify_model(imported, os.environ, silent)[0].problem


def test_an_adapter_is_imported_with_its_base(
    store: ModelStore, file: Path, tmp_path: Path
) -> None:
    adapter = lora(tmp_path / "lora.gguf")
    take(store, file, name="whole")
    for path, name, base in ((adapter, "", ""), (adapter, "", str(adapter)), (file, "x", "whole")):
        with pytest.raises(UsageError):
            take(store, path, name=name, base=base)
    for unknown in ("unheard-of", str(tmp_path / "nosuch.gguf")):
        with pytest.raises(ConductorUnusable, match="unknown model"):
            take(store, adapter, base=unknown)
    assert take(store, adapter, base=str(file)).manifest.base == str(file)
    assert take(store, adapter, name="two", base="whole").manifest.base == "whole"


def test_an_adapter_of_peft_is_refused_with_what_converts_it(
    store: ModelStore, tmp_path: Path
) -> None:
    (tmp_path / "x").mkdir()
    for path in (tmp_path / "x", tmp_path / "x/model.safetensors"):
        with pytest.raises(ModelError, match="is no GGUF file") as caught:
            take(store, path, base="b")
        assert "convert_lora_to_gguf.py" in caught.value.hint


def test_a_registry_model_is_repaired_by_a_pull(
    file: Path, registry: Callable[[str], None]
) -> None:
    registry("size = 1000")
    for source in ("hub:acme/tiny@0123", f"file:{file}.gone"):
        stored_manifest = manifest("tiny-known", file, source=source)
        assert repair_hint(stored_manifest, os.environ) == "conductor model pull tiny-known"


def test_a_model_that_left_the_registry_names_its_repository(
    file: Path, registry: Callable[[str], None]
) -> None:
    stored_manifest = manifest("some", file, source="hub:acme/other@0123")
    for fields in ("size = 1000", "broken ="):
        registry(fields)
        expected = "get acme/other@0123 again, then: conductor model import FILE --name some"
        assert expected in repair_hint(stored_manifest, os.environ)


def test_the_repair_of_an_adapter_names_its_base(file: Path, tmp_path: Path) -> None:
    directory = tmp_path / "trained"
    directory.mkdir()
    hint = repair_hint(
        manifest("some", file, source=f"file:{directory}", base="my base.gguf"), os.environ
    )
    assert hint == (
        f"if {directory} is whole: conductor model import {directory} --name some --base 'my "
        "base.gguf'"
    )


def test_problems_are_found_without_reading_files(
    store: ModelStore, file: Path, registry: Callable[[str], None]
) -> None:
    whole = take(store, file, apart=True).manifest
    assert find_problems(store, os.environ) == []
    gone = take(store, Path(shutil.copy(file, file.with_name("gone.gguf"))), apart=True).manifest
    gone.path.unlink()
    broken = take(store, Path(shutil.copy(file, file.with_name("broken.gguf")))).manifest
    (store.folder(broken.name) / "manifest.toml").write_text("name = [")
    registry("broken =")
    problems = find_problems(store, os.environ)
    assert [problem.name for problem in problems] == ["broken", "gone"]
    assert all(problem.problem and problem.hint for problem in problems)
    assert "conductor model rm broken" in problems[0].hint
    assert problems[1] == CheckedFile(
        name="gone", path=gone.path, problem=gone.fault(), hint=repair_hint(gone, os.environ)
    )
    assert whole.fault() == ""


def test_memory_is_computed_from_the_file(file: Path) -> None:
    shape = Shape()
    size = file.stat().st_size
    per_token = 2 * 2 * shape.layers * shape.key_heads * (shape.width // shape.heads)
    assert file_memory(file, size) == memory_needed(size, per_token)
    assert file_memory(file, size, 100) == size + 100 * per_token + OVERHEAD_BYTES
    assert file_memory(file, size, 1_000_000) == size + shape.context * per_token + OVERHEAD_BYTES


def test_memory_of_files_that_are_not_models_is_unknown(tmp_path: Path, file: Path) -> None:
    (tmp_path / "text.gguf").write_text("I am a text.")
    assert [file_memory(tmp_path / name, 1000) for name in ("none.gguf", "text.gguf")] == [0, 0]
    assert manifest_memory(manifest("some", file, base="/nowhere/base.gguf"), {}, {}) == 0


def test_memory_of_an_adapter_includes_its_base(
    file: Path, registry: Callable[[str], None]
) -> None:
    registry("size = 1000")
    size = file.stat().st_size
    listed = load_registry(os.environ)[0]
    base = manifest("base", file)
    entries = {listed.name: listed.memory}
    for name, below in (
        ("base", file_memory(file, size)),
        (str(file), file_memory(file, size)),
        (listed.name, listed.memory),
    ):
        adapter = manifest("some", file, base=name)
        assert manifest_memory(adapter, {"base": base}, entries) == below + size
