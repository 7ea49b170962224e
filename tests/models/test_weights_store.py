"""The model store of local models: manifests, SHA-256, taking files that are here, checking them, removing them."""

from __future__ import annotations

import errno
import hashlib
import os
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
from conductor_cli.models import disk
from conductor_cli.models.weights import import_file
from conductor_cli.models.weights.download import remove_model
from conductor_cli.models.weights.import_file import ImportRequest, derive_name, import_model
from conductor_cli.models.weights.model_store import Manifest, ModelFile, ModelStore
from conductor_cli.models.weights.verify import PIECE, hash_file, verify_model, verify_unknown_file
from conductor_cli.models.weights.verify import ignore_progress as silent
from tests.tiny_gguf import make

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


def manifest(name: str, *files: Path, **more: Any) -> Manifest:
    """A manifest of files as they are now."""
    found = tuple(ModelFile(path=path, size=path.stat().st_size, sha256=hash_file(path)) for path in files)
    return replace(Manifest(name=name, files=found, source="file:/x"), **more)


def ours(found: Manifest) -> Manifest:
    """The manifest of a pull that downloaded the files itself."""
    return replace(found, files=tuple(replace(file, downloaded=True) for file in found.files))


def cache(tmp_path: Path, data: bytes, name: str = "m.gguf") -> tuple[Path, Path]:
    """A file as the hub's cache keeps it: the blob, and its name in a snapshot."""
    repo = tmp_path / "hub/models--acme--tiny"
    blob = repo / "blobs" / hashlib.sha256(data).hexdigest()
    link = repo / "snapshots/0123/sub" / name
    for path in (blob, link):
        path.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(data)
    link.symlink_to(blob)
    (repo / "refs").mkdir(exist_ok=True)
    (repo / "refs/main").write_text("0123")
    return blob, link


# manifests


def test_a_written_manifest_is_found(store: ModelStore, file: Path) -> None:
    """By its name and in the list; files outside the store have absolute paths."""
    put = manifest(
        "b", file, licence="MIT", base="a", endpoint="http://127.0.0.1:1", hash_source="hub", at="2026-11-20"
    )
    store.write(put)
    store.write(manifest("a", file))
    assert store.find("b") == put
    assert [found.name for found in store.manifests()] == ["a", "b"]
    assert (put.path, put.size) == (file, file.stat().st_size)


def test_the_store_can_be_moved(store: ModelStore, tmp_path: Path) -> None:
    """Files inside it are found again at the new place."""
    own = store.folder("a") / "a.gguf"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"x")
    store.write(manifest("a", own))
    store.directory.rename(tmp_path / "moved")
    found = ModelStore(tmp_path / "moved").find("a")
    assert found is not None
    assert found.path == tmp_path / "moved/a/a.gguf"
    assert found.fault() == ""


def test_an_empty_store_has_no_manifests(store: ModelStore) -> None:
    """Before the first model there is no directory and no manifest."""
    assert store.manifests() == ()
    assert store.find("a") is None
    store.delete("a")


def test_a_deleted_manifest_is_gone(store: ModelStore, file: Path) -> None:
    """Its empty directory goes, too; the model file stays."""
    store.write(manifest("a", file))
    store.delete("a")
    assert store.find("a") is None
    assert not store.folder("a").exists()
    assert file.exists()


DAMAGE = {
    "no TOML": b"name = [",
    "not UTF-8": b"\xff\xfe",
    "no files": b'name = "a"\nsource = "file:/x"\nfiles = []',
    "files no tables": b'name = "a"\nsource = "file:/x"\nfiles = ["x"]',
    "wrong type": b'name = 3\nsource = "file:/x"\n[[files]]\npath = "x"\nsize = 1\nsha256 = "0"',
    "size no number": b'name = "a"\nsource = "file:/x"\n[[files]]\npath = "x"\nsize = "1"\nsha256 = "0"',
    "unknown hash source": b'name = "a"\nsource = ""\nhash_source = "me"\n[[files]]\npath = "x"\nsize = 1\nsha256 = ""',
    "another name": b'name = "b"\nsource = "file:/x"\n[[files]]\npath = "x"\nsize = 1\nsha256 = "0"',
    "deep": b"a = " + b"[" * 100_000,
}


@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_manifest_affects_no_other_model(store: ModelStore, file: Path, content: bytes) -> None:
    """The error names the file and what to do."""
    path = store.folder("a") / "manifest.toml"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    store.write(manifest("whole", file))
    with pytest.raises(ConductorUnusable) as caught:
        store.find("a")
    assert str(path) in caught.value.message
    assert "conductor model rm a" in caught.value.hint
    assert [found.name for found in store.manifests()] == ["whole"]
    assert store.damaged() == {"a": caught.value.message}
    store.delete("a")
    assert (len(store.manifests()), store.damaged()) == (1, {})


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "-a", "a b", "x" * 81, "manifest.toml", "a\n"])
def test_an_invalid_model_name_is_rejected(store: ModelStore, file: Path, name: str) -> None:
    """A name cannot lead out of the store."""
    assert store.find(name) is None
    with pytest.raises(UsageError):
        store.write(manifest(name, file))


def test_an_unwritable_store_is_named(tmp_path: Path, file: Path) -> None:
    """A file in the place of the directory: an error with the path, and nothing else is touched."""
    (tmp_path / "taken").write_text("x")
    with pytest.raises(ConfigError, match="taken"):
        ModelStore(tmp_path / "taken").write(manifest("a", file))


def test_a_full_disk_keeps_the_old_manifest(store: ModelStore, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest is written whole or not at all."""

    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store.write(manifest("a", file))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="No space left"):
        store.write(manifest("a", file, licence="MIT"))
    assert store.find("a") == manifest("a", file)
    assert [path.name for path in store.folder("a").iterdir()] == ["manifest.toml"]


# sha-256


def test_hashing_reads_the_whole_file(tmp_path: Path) -> None:
    """Progress ends with the file's size; an empty file has a hash, too."""
    data = os.urandom(PIECE + 17)
    path, reports = tmp_path / "x", list[tuple[str, int, int]]()
    path.write_bytes(data)
    assert hash_file(path, lambda *progress: reports.append(progress)) == hashlib.sha256(data).hexdigest()
    counts = [done for _, done, _ in reports]
    assert (counts, counts[-1]) == (sorted(counts), len(data))
    path.write_bytes(b"")
    assert hash_file(path) == hashlib.sha256(b"").hexdigest()


@pytest.mark.parametrize("name", ["missing", "."])
def test_an_unreadable_file_cannot_be_hashed(tmp_path: Path, name: str) -> None:
    """The error is of kind file and names the path."""
    with pytest.raises(ModelError) as caught:
        hash_file(tmp_path / name)
    assert caught.value.reason == "file"
    assert str(tmp_path) in caught.value.message


# taking a file


def test_import_links_the_file(store: ModelStore, file: Path) -> None:
    """No second copy is stored, and the model stays when the first name is deleted."""
    found = import_model(ImportRequest(path=file), store, os.environ, silent)
    assert (found.manifest.name, found.stored, found.existed) == ("My-Model", True, False)
    assert found.manifest.path.samefile(file)
    assert found.manifest.path.parent == store.folder("My-Model")
    assert found.manifest.files[0].sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert found.manifest.source == f"file:{file}"
    file.unlink()
    assert store.find("My-Model") == found.manifest
    assert found.manifest.fault() == ""


def test_import_follows_a_symbolic_link(store: ModelStore, file: Path, tmp_path: Path) -> None:
    """The file behind it is imported under the link's name."""
    link = tmp_path / "pretty.gguf"
    link.symlink_to(file)
    found = import_model(ImportRequest(path=link), store, os.environ, silent)
    assert found.manifest.path.name == "pretty.gguf"
    assert not found.manifest.path.is_symlink()
    assert found.manifest.path.samefile(file)


def test_importing_a_file_twice_changes_nothing(store: ModelStore, file: Path) -> None:
    """Also by its name in the store."""
    first = import_model(ImportRequest(path=file), store, os.environ, silent)
    again = import_model(ImportRequest(path=file), store, os.environ, silent)
    assert (again.existed, again.manifest) == (True, first.manifest)
    store.delete("My-Model")
    own = import_model(ImportRequest(path=first.manifest.path, name="My-Model"), store, os.environ, silent)
    assert (own.existed, own.manifest.path) == (False, first.manifest.path)
    assert sorted(path.name for path in store.folder("My-Model").iterdir()) == ["My Model.gguf", "manifest.toml"]


def test_importing_the_original_repairs_a_damaged_copy(store: ModelStore, file: Path) -> None:
    """The copy's size is right and its bytes are not."""
    first = import_model(ImportRequest(path=file, copy=True), store, os.environ, silent).manifest
    first.path.write_bytes(file.read_bytes()[:-9] + b"something")
    found = import_model(ImportRequest(path=file, copy=True), store, os.environ, silent)
    assert (found.existed, found.manifest.files) == (False, first.files)
    assert all(checked.problem == "" for checked in verify_model(found.manifest, os.environ, silent))
    assert import_model(ImportRequest(path=file), store, os.environ, silent).existed


def test_a_linked_file_that_was_changed_cannot_repair_itself(store: ModelStore, file: Path) -> None:
    """It is another model now; the original bytes repair the model."""
    import_model(ImportRequest(path=file), store, os.environ, silent)
    data = file.read_bytes()
    with file.open("r+b") as same:
        same.seek(-9, os.SEEK_END)
        same.write(b"something")
    with pytest.raises(UsageError, match="another model is called My-Model") as caught:
        import_model(ImportRequest(path=file), store, os.environ, silent)
    assert "conductor model rm My-Model" in caught.value.hint
    file.unlink()
    file.write_bytes(data)
    assert not import_model(ImportRequest(path=file), store, os.environ, silent).existed
    assert import_model(ImportRequest(path=file), store, os.environ, silent).existed


def test_a_name_that_is_taken_is_rejected(store: ModelStore, file: Path, tmp_path: Path) -> None:
    """A damaged model is replaced."""
    first = import_model(ImportRequest(path=file), store, os.environ, silent)
    other = make(tmp_path / "other.gguf", seed=1)
    with pytest.raises(UsageError, match="My-Model"):
        import_model(ImportRequest(path=other, name="My-Model"), store, os.environ, silent)
    first.manifest.path.unlink()
    assert import_model(ImportRequest(path=other, name="My-Model"), store, os.environ, silent).manifest.path.samefile(
        other
    )


def test_without_hard_links_the_file_is_used_where_it_is(
    store: ModelStore, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store holds the manifest only."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    found = import_model(ImportRequest(path=file), store, os.environ, silent)
    assert (found.stored, found.manifest.path) == (False, file)
    assert [path.name for path in store.folder("My-Model").iterdir()] == ["manifest.toml"]


def test_a_copy_is_independent_of_the_original(store: ModelStore, file: Path) -> None:
    """`copy` makes bytes of its own: a change of the first file does not reach them."""
    found = import_model(ImportRequest(path=file, copy=True), store, os.environ, silent)
    file.write_bytes(b"changed")
    assert found.stored
    assert all(checked.problem == "" for checked in verify_model(found.manifest, os.environ, silent))


def test_a_linked_model_can_be_copied_later(store: ModelStore, file: Path) -> None:
    """A change of the original does not reach the copy."""
    first = import_model(ImportRequest(path=file), store, os.environ, silent)
    again = import_model(ImportRequest(path=file, copy=True), store, os.environ, silent)
    assert first.manifest.path == again.manifest.path
    assert not again.manifest.path.samefile(file)
    file.write_bytes(b"changed")
    assert all(checked.problem == "" for checked in verify_model(again.manifest, os.environ, silent))


def test_a_model_on_another_disk_can_be_copied_later(
    store: ModelStore, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file on another disk that was taken without `copy` before comes over with it."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    assert import_model(ImportRequest(path=file), store, os.environ, silent).manifest.path == file
    again = import_model(ImportRequest(path=file, copy=True), store, os.environ, silent)
    assert (again.stored, again.existed, again.manifest.path.parent) == (True, False, store.folder("My-Model"))
    file.unlink()
    assert again.manifest.fault() == ""


def test_a_file_that_changes_during_the_copy_is_rejected(
    store: ModelStore, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing stays in the store."""
    monkeypatch.setattr(import_file, "hash_file", lambda path, report: "0" * 64)
    with pytest.raises(ModelError, match="changed"):
        import_model(ImportRequest(path=file, copy=True), store, os.environ, silent)
    assert store.manifests() == ()
    assert not store.folder("My-Model").exists()


def test_a_disk_that_fills_up_during_a_copy_leaves_nothing(
    store: ModelStore, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file and no manifest."""

    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConductorUnusable, match="No space left"):
        import_model(ImportRequest(path=file, copy=True), store, os.environ, silent)
    assert not store.folder("My-Model").exists()


def test_a_copy_is_deleted_when_its_manifest_cannot_be_written(
    store: ModelStore, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise gigabytes would stay that no command lists or removes."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk, "write_atomically", full)
    for copy in (True, False):
        with pytest.raises(ConfigError, match="No space left"):
            import_model(ImportRequest(path=file, copy=copy), store, os.environ, silent)
        assert not store.folder("My-Model").exists()
    assert file.exists()


@pytest.mark.parametrize("when", ["in the copy", "before the manifest"])
def test_an_import_that_is_interrupted_leaves_nothing(
    store: ModelStore, file: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Ctrl-C in the middle: no file, no manifest, and the next import works."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(*((os, "fsync") if when == "in the copy" else (disk, "write_atomically")), interrupt)
        with pytest.raises(KeyboardInterrupt):
            import_model(ImportRequest(path=file, copy=True), store, os.environ, silent)
    assert not store.folder("My-Model").exists()
    assert not import_model(ImportRequest(path=file, copy=True), store, os.environ, silent).existed


KILLED = """
import os, signal, sys
from pathlib import Path
from conductor_cli.models.weights import import_file
from conductor_cli.models.weights.model_store import ModelStore
os.fsync = lambda number: os.kill(os.getpid(), signal.SIGKILL)
request = import_file.ImportRequest(path=Path(sys.argv[2]), copy=True)
import_file.import_model(request, ModelStore(Path(sys.argv[1])), os.environ, lambda *_: None)
"""


@pytest.mark.parametrize("then", ["remove", "import"])
def test_what_a_killed_import_left_is_shown_and_removable(store: ModelStore, file: Path, then: str) -> None:
    """It is in the list as damaged; `rm` removes it, and so does the next import of that name."""
    command = [sys.executable, "-c", KILLED, str(store.directory), str(file)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    folder = store.folder("My-Model")
    (left,) = folder.iterdir()
    assert "has no manifest: an import is running, or was stopped" in store.damaged()["My-Model"]
    if then == "import":
        import_model(ImportRequest(path=file), store, os.environ, silent)
        assert (left.exists(), store.damaged()) == (False, {})
        return
    assert remove_model("My-Model", store, None).freed == file.stat().st_size
    assert (folder.exists(), store.damaged()) == (False, {})


def test_a_running_import_is_not_removed(store: ModelStore, file: Path) -> None:
    """Its copy looks like one that was left."""
    store.folder("My-Model").mkdir(parents=True)
    (store.folder("My-Model") / ".0011223344556677.new").touch()
    with store.lock(lambda: None), ThreadPoolExecutor(1) as other:
        removal = other.submit(remove_model, "My-Model", store, None)
        with pytest.raises(ConductorUnusable, match="My-Model is being imported"):
            removal.result()
    assert remove_model("My-Model", store, None).names


def test_missing_disk_space_is_reported(tmp_path: Path) -> None:
    """The error has both sizes, also for a directory that does not exist yet."""
    with pytest.raises(ConductorUnusable, match="do not fit") as caught:
        disk.check_room(tmp_path / "not/there", 1 << 60, "HF_HOME")
    assert "HF_HOME" in caught.value.hint


def test_the_last_bytes_of_a_disk_stay_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """256 MiB are kept; nothing is required where nothing is to come."""
    monkeypatch.setattr(disk, "free_bytes", lambda directory: disk.MARGIN + 10)
    disk.check_room(tmp_path, 10)
    with pytest.raises(ConductorUnusable):
        disk.check_room(tmp_path, 11)
    monkeypatch.setattr(disk, "free_bytes", lambda directory: 0)
    disk.check_room(tmp_path, 0)


def test_temporary_names_are_unique(tmp_path: Path) -> None:
    """They do not depend on the process id, which two containers may share."""
    with disk.temporary_path(tmp_path / "x") as first, disk.temporary_path(tmp_path / "x") as second:
        assert first != second
        first.write_text("1")
        second.write_text("2")
        first.replace(tmp_path / "x")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["1"]


def test_all_parts_of_a_divided_model_are_imported(store: ModelStore, tmp_path: Path) -> None:
    """They keep their names, by which llama.cpp finds them; the model's name has no part numbers."""
    files = divided(tmp_path / "parts")
    found = import_model(ImportRequest(path=files[0]), store, os.environ, silent)
    assert found.manifest.name == "big"
    assert [file.path.name for file in found.manifest.files] == [path.name for path in files]
    assert all(checked.problem == "" for checked in verify_model(found.manifest, os.environ, silent))


def test_a_missing_part_is_named(store: ModelStore, tmp_path: Path) -> None:
    """Nothing is imported."""
    files = divided(tmp_path / "parts")
    files[1].unlink()
    with pytest.raises(ModelError, match="big-00002-of-00002"):
        import_model(ImportRequest(path=files[0]), store, os.environ, silent)
    assert store.manifests() == ()


def test_a_further_part_cannot_be_imported(store: ModelStore, tmp_path: Path) -> None:
    """The hint names the first part."""
    files = divided(tmp_path / "parts")
    with pytest.raises(ModelError, match="not the first part") as caught:
        import_model(ImportRequest(path=files[1]), store, os.environ, silent)
    assert str(files[0]) in caught.value.hint
    assert str(files[0].name) not in verify_unknown_file(files[0], silent).problem


def divided(directory: Path) -> tuple[Path, Path]:
    """A model in two files, in the form of llama.cpp's own splitter."""
    import gguf
    import numpy as np

    directory.mkdir()
    paths = (directory / "big-00001-of-00002.gguf", directory / "big-00002-of-00002.gguf")
    for number, path in enumerate(paths):
        writer = gguf.GGUFWriter(path, "qwen2")
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 2)
        writer.add_int32("split.tensors.count", 2)
        writer.add_tensor(f"t{number}", np.zeros((4, 4), np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return paths


BAD = {
    "missing": None, "empty": b"", "text": b"I am a text.\n" * 100, "cut": b"GGUF" + bytes(100),
}  # fmt: skip


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_import_rejects_files_that_are_not_models(store: ModelStore, tmp_path: Path, content: bytes | None) -> None:
    """The header is checked first, and the store stays empty."""
    path = tmp_path / "x.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        import_model(ImportRequest(path=path), store, os.environ, silent)
    assert caught.value.exit_code == 5
    assert not store.directory.exists()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.gguf", "a"), ("Qwen 2.5 (7B).gguf", "Qwen-2.5-7B"), ("m-00001-of-00003.gguf", "m"), ("日本.gguf", "model"),
     ("x" * 200 + ".gguf", "x" * 80), ("-v1.5", "v1.5")],
)  # fmt: skip
def test_a_model_name_is_derived_from_the_file_name(name: str, expected: str) -> None:
    """A file's name becomes one that the model store takes."""
    assert derive_name(Path("/somewhere") / name) == expected


# recognising


def test_import_recognises_a_registry_model_by_its_hash(
    store: ModelStore, file: Path, registry: Callable[[str], None]
) -> None:
    """Name, licence, profile and hash source are the registry's."""
    registry(f'sha256 = "{hash_file(file)}"\nsize = {file.stat().st_size}')
    found = import_model(ImportRequest(path=file), store, os.environ, silent).manifest
    assert (found.name, found.licence, found.profile, found.hash_source) == (
        "tiny-known",
        "Apache-2.0",
        "published",
        "registry",
    )


def test_import_recognises_a_registry_model_by_name_and_size(
    store: ModelStore, file: Path, registry: Callable[[str], None]
) -> None:
    """Its hash is still not verified."""
    registry(f"size = {file.stat().st_size}")
    same = file.rename(file.with_name("known.gguf"))
    found = import_model(ImportRequest(path=same), store, os.environ, silent).manifest
    assert (found.name, found.profile, found.hash_source) == ("tiny-known", "published", "file")


def test_a_file_that_only_looks_like_a_registry_model_is_rejected(
    store: ModelStore, file: Path, registry: Callable[[str], None]
) -> None:
    """It is probably damaged; with a name of its own it can be imported."""
    registry(f'sha256 = "{"0" * 64}"\nsize = {file.stat().st_size}')
    same = file.rename(file.with_name("known.gguf"))
    with pytest.raises(ModelError, match="tiny-known"):
        import_model(ImportRequest(path=same), store, os.environ, silent)
    found = import_model(ImportRequest(path=same, name="mine"), store, os.environ, silent).manifest
    assert (found.name, found.profile, found.hash_source) == ("mine", "prompted", "file")


def test_a_registry_name_is_reserved(store: ModelStore, file: Path, registry: Callable[[str], None]) -> None:
    """Another file cannot have it, by `--name` or by its own name."""
    registry(f'sha256 = "{"0" * 64}"')
    named = file.with_name("tiny-known.gguf")
    named.hardlink_to(file)
    for wanted in (ImportRequest(path=file, name="tiny-known"), ImportRequest(path=named)):
        with pytest.raises(UsageError, match="tiny-known"):
            import_model(wanted, store, os.environ, silent)
    assert store.manifests() == ()


def test_the_licence_is_read_from_the_header(store: ModelStore, tmp_path: Path) -> None:
    """It is made safe to print."""
    from tests.tiny_gguf import Extra

    path = make(tmp_path / "x.gguf", extra=Extra(metadata={"general.license": "mit\n\x1b[31m"}))
    assert import_model(ImportRequest(path=path), store, os.environ, silent).manifest.licence == "mit [31m"


# checking


def test_verify_finds_no_problem_in_a_whole_model(store: ModelStore, file: Path) -> None:
    """Every file is read, and progress is reported."""
    found, reports = (
        import_model(ImportRequest(path=file), store, os.environ, silent).manifest,
        list[tuple[str, int, int]](),
    )
    (checked,) = verify_model(found, os.environ, lambda *progress: reports.append(progress))
    assert (checked.problem, checked.sha256) == ("", found.files[0].sha256)
    assert reports[-1][1:] == (found.size, found.size)


def test_verify_describes_each_kind_of_damage(store: ModelStore, file: Path) -> None:
    """A flipped byte, a missing byte and a missing file."""
    found = import_model(ImportRequest(path=file, copy=True), store, os.environ, silent).manifest
    data = bytearray(found.path.read_bytes())
    data[-100] ^= 1
    found.path.write_bytes(data)
    assert found.fault() == ""
    assert "SHA-256 should be" in verify_model(found, os.environ, silent)[0].problem
    found.path.write_bytes(data[:-1])
    assert "bytes instead of" in found.fault()
    assert "bytes instead of" in verify_model(found, os.environ, silent)[0].problem
    found.path.unlink()
    assert "is missing" in found.fault()
    assert "cannot be read" in verify_model(found, os.environ, silent)[0].problem


def test_verify_accepts_a_file_without_a_manifest(file: Path) -> None:
    """Its hash is computed and its header checked."""
    assert verify_unknown_file(file, silent).sha256 == hash_file(file)
    file.write_bytes(b"GGUF" + bytes(100))
    assert verify_unknown_file(file, silent).problem


# removing


def test_removing_a_linked_model_keeps_the_original(store: ModelStore, file: Path) -> None:
    """A hard link frees nothing; a copy frees its bytes."""
    linked = import_model(ImportRequest(path=file), store, os.environ, silent).manifest
    copied = import_model(ImportRequest(path=file, name="copy", copy=True), store, os.environ, silent).manifest
    assert remove_model(linked.name, store, None).freed == 0
    assert remove_model(copied.name, store, None).freed == file.stat().st_size
    assert file.exists()
    assert store.manifests() == ()
    assert not store.folder("copy").exists()


def test_removing_keeps_files_outside_the_store(store: ModelStore, file: Path) -> None:
    """They are named."""
    store.write(manifest("a", file))
    found = store.find("a")
    assert found is not None
    gone = remove_model(found.name, store, None)
    assert (gone.names, gone.freed, gone.kept) == ((), 0, (file,))
    assert file.exists()
    assert store.find("a") is None


def test_removing_a_download_deletes_its_blob_and_links(store: ModelStore, model: bytes, tmp_path: Path) -> None:
    """With its last file the repository's directory goes, too."""
    blob, link = cache(tmp_path, model)
    other = link.parents[2] / "4567/m.gguf"
    other.parent.mkdir()
    other.symlink_to(blob)
    found = ours(manifest("a", link, source="hub:acme/tiny@0123"))
    store.write(found)
    assert remove_model(found.name, store, None).freed == len(model)
    assert not (tmp_path / "hub/models--acme--tiny").exists()


def test_removing_keeps_other_files_of_the_repository(store: ModelStore, model: bytes, tmp_path: Path) -> None:
    """Removing one file of a repository leaves the others, with their links."""
    _, link = cache(tmp_path, model)
    _, stays = cache(tmp_path, b"other", "other.gguf")
    found = ours(manifest("a", link, source="hub:acme/tiny@0123"))
    store.write(found)
    remove_model(found.name, store, None)
    assert not link.is_symlink()
    assert stays.read_bytes() == b"other"


def test_removing_keeps_a_file_that_another_model_uses(store: ModelStore, model: bytes, tmp_path: Path) -> None:
    """Two manifests, one blob: it goes with the second of them."""
    blob, link = cache(tmp_path, model)
    first, second = (ours(manifest(name, link, source="hub:acme/tiny@0123")) for name in "ab")
    store.write(first)
    store.write(second)
    assert remove_model(first.name, store, None).kept == (link,)
    assert blob.exists()
    assert remove_model(second.name, store, None).freed == len(model)
    assert not blob.exists()


def test_removing_keeps_cached_files_that_are_not_marked_as_downloaded(
    store: ModelStore, model: bytes, tmp_path: Path
) -> None:
    """Only the manifest goes."""
    blob, link = cache(tmp_path, model)
    found = manifest("a", link, source="hub:acme/tiny@0123")
    store.write(found)
    path = store.folder("a") / "manifest.toml"
    path.write_text(path.read_text().replace("downloaded = false\n", ""))
    assert store.find("a") == found
    assert remove_model(found.name, store, None).kept == (link,)
    assert link.read_bytes() == blob.read_bytes() == model


def test_removing_a_damaged_model_empties_its_directory(store: ModelStore, file: Path) -> None:
    """Nothing outside of it is deleted."""
    import_model(ImportRequest(path=file, name="a"), store, os.environ, silent)
    (store.folder("a") / "manifest.toml").write_text("name = [")
    gone = remove_model("a", store, None)
    assert [path.name for path in gone.names] == [file.name]
    assert not store.folder("a").exists()
    assert file.exists()


def test_removing_an_imported_file_keeps_the_cache(store: ModelStore, model: bytes, tmp_path: Path) -> None:
    """Import gave the blob a second name; only that one goes."""
    blob, link = cache(tmp_path, model)
    found = import_model(ImportRequest(path=link), store, os.environ, silent).manifest
    assert found.path.samefile(blob)
    remove_model(found.name, store, None)
    assert link.read_bytes() == model


# adapters


def adapter(path: Path, architecture: str = "qwen2", second: str = "lora_b") -> Path:
    """The header of a LoRA in a GGUF file, with one pair of tensors."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 8.0)
    writer.add_tensor("blk.0.attn_q.weight.lora_a", np.zeros((4, 64), np.float32))
    writer.add_tensor(f"blk.0.attn_q.weight.{second}", np.zeros((64, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_an_adapter_is_imported_with_its_base(store: ModelStore, file: Path, tmp_path: Path) -> None:
    """The base is a file or a known name, and the manifest keeps which."""
    lora = adapter(tmp_path / "lora.gguf")
    import_model(ImportRequest(path=file, name="whole"), store, os.environ, silent)
    for wanted in (
        ImportRequest(path=lora),
        ImportRequest(path=lora, base=str(lora)),
        ImportRequest(path=file, name="x", base="whole"),
    ):
        with pytest.raises(UsageError):
            import_model(wanted, store, os.environ, silent)
    with pytest.raises(ConductorUnusable):
        import_model(ImportRequest(path=lora, base="unheard-of"), store, os.environ, silent)
    assert import_model(ImportRequest(path=lora, base=str(file)), store, os.environ, silent).manifest.base == str(file)
    assert (
        import_model(ImportRequest(path=lora, name="two", base="whole"), store, os.environ, silent).manifest.base
        == "whole"
    )


@pytest.mark.parametrize(
    ("more", "problem"), [({"architecture": "llama"}, "architecture"), ({"second": "other"}, "not pairs")]
)
def test_an_adapter_that_does_not_fit_its_base_is_rejected(
    store: ModelStore, file: Path, tmp_path: Path, more: dict[str, str], problem: str
) -> None:
    """It is checked at the import, not at the first use."""
    lora = adapter(tmp_path / "lora.gguf", **more)
    with pytest.raises(ModelError, match=problem):
        import_model(ImportRequest(path=lora, base=str(file)), store, os.environ, silent)
    assert store.manifests() == ()


def test_a_missing_base_file_is_named(store: ModelStore, tmp_path: Path) -> None:
    """A path is not looked up in the registry."""
    lora = adapter(tmp_path / "lora.gguf")
    with pytest.raises(ConductorUnusable, match="unknown model"):
        import_model(ImportRequest(path=lora, base=str(tmp_path / "nosuch.gguf")), store, os.environ, silent)


def test_a_directory_without_an_adapter_is_rejected(store: ModelStore, tmp_path: Path) -> None:
    """A directory, or safetensors without a PEFT configuration beside them."""
    (tmp_path / "x").mkdir()
    for path in (tmp_path / "x", tmp_path / "x/model.safetensors"):
        with pytest.raises(ModelError, match="no adapter_config"):
            import_model(ImportRequest(path=path, base="b"), store, os.environ, silent)
