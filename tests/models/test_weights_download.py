"""Pulling models from a hub on loopback into a cache that the hub's own library reads."""

from __future__ import annotations

import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from conductor_cli.core.errors import ConductorUnusable, ConfigError
from conductor_cli.models.weights import huggingface as library_hub
from conductor_cli.models.weights.download import (
    Removal,
    missing_bytes,
    partial_files,
    plan_removal,
    pull_model,
    remove_model,
)
from conductor_cli.models.weights.huggingface import cache_directory, repo_folder, shown_endpoint
from conductor_cli.models.weights.model_store import Manifest, ModelStore
from conductor_cli.models.weights.registry import RegistryFile, RegistryModel
from tests.hub import Fault, Hub, Refusal, gated, git_hash, hub, read_environment, sha256

REPO = "maker/model"
FILE = "model-q4.gguf"
TOKEN = "hf_verysecrettoken"


def model(number: int, size: int, **split: int) -> bytes:
    """A GGUF file with one tensor and random data. `split` are the keys of a divided model."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    keys = [text("general.architecture") + struct.pack("<I", 8) + text("qwen2")]
    keys += [text(f"split.{key}") + struct.pack("<IH", 2, value) for key, value in split.items()]
    tensor = text("t") + struct.pack("<IQIQ", 1, 32, 0, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(keys)) + b"".join(keys) + tensor
    return head + random.Random(number).randbytes(size - len(head))


DATA = model(1, 2_000_000)
OTHER = model(2, 2_000_000)
HALVES = [model(number, 1_000_000 + number, no=number, count=2) for number in range(2)]


def entry(*parts: RegistryFile, **more: Any) -> RegistryModel:
    values: dict[str, Any] = {
        "name": "tiny", "repo": REPO, "revision": "main", "licence": "Apache-2.0", "about": "", "memory": 0,
    }  # fmt: skip
    return RegistryModel(**(values | {"parts": parts or (RegistryFile(file=FILE),)} | more))


@dataclass
class Machine:
    """A machine with a cache and a model store of its own, and the hub that it asks."""

    hub: Hub
    home: Path
    monkeypatch: pytest.MonkeyPatch
    reports: list[tuple[str, int, int]] = field(default_factory=list)

    @property
    def store(self) -> ModelStore:
        return ModelStore(self.home / "store")

    @property
    def labels(self) -> list[str]:
        """What was reported, each once."""
        return list(dict.fromkeys(label for label, _, _ in self.reports))

    def set(self, **environ: str | None) -> None:
        """Change the environment, as the hub's library sees it."""
        for name, value in environ.items():
            if value is None:
                self.monkeypatch.delenv(name)
            else:
                self.monkeypatch.setenv(name, value)
        read_environment()

    def report(self, label: str, done: int, total: int) -> None:
        self.reports.append((label, done, total))

    def pull(self, what: RegistryModel | None = None) -> Manifest:
        return pull_model(what or entry(), self.store, self.report)

    def remove(self, what: RegistryModel) -> Removal:
        return remove_model(what.name, self.store, what)

    def fails(self, what: RegistryModel | None = None) -> ConductorUnusable:
        with pytest.raises(ConductorUnusable) as error:
            self.pull(what)
        assert error.value.hint
        assert TOKEN not in f"{error.value.message}{error.value.hint}{self.reports}"
        return error.value

    def begin(self, data: bytes, size: int, file: str = FILE) -> Path:
        """As if a pull of `data` had stopped after so many bytes."""
        part = repo_folder(REPO) / f".conductor-llm/{file}@{sha256(data)}"
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data[:size])
        return part

    def process(self, before: str = "") -> subprocess.Popen[str]:
        """A pull in another process. It prints its progress as lines of JSON."""
        code = PULL.format(before=before, store=str(self.store.directory), entry=entry())
        command = [sys.executable, "-c", code]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def files(self, where: str = "blobs") -> list[str]:
        folder = repo_folder(REPO) / where
        return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


PULL = """
import json
from pathlib import Path
from conductor_cli.models.weights.download import pull_model
from conductor_cli.models.weights.model_store import ModelStore
from conductor_cli.models.weights.registry import RegistryFile, RegistryModel
{before}
report = lambda *progress: print(json.dumps(progress), flush=True)
print(pull_model({entry!r}, ModelStore(Path({store!r})), report).path)
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setattr(library_hub, "WAITS", (0.0, 0.0, 0.0))
    with hub() as server:
        server.commit(REPO, {FILE: DATA})
        found = Machine(hub=server, home=tmp_path, monkeypatch=monkeypatch)
        found.set(HF_HOME=str(tmp_path / "hf"), HF_ENDPOINT=server.url, HF_TOKEN=TOKEN, NO_PROXY="127.0.0.1,localhost")
        yield found


def test_pull_stores_the_file_in_the_hubs_cache(machine: Machine) -> None:
    """The file is a blob named by its SHA-256 with a link in the snapshot; nothing else is left behind."""
    manifest = machine.pull()
    commit = machine.hub.repos[REPO].revisions["main"]
    folder = repo_folder(REPO)
    assert manifest.path == folder / "snapshots" / commit / FILE
    assert manifest.path.read_bytes() == DATA
    assert manifest.path.resolve() == (folder / "blobs" / sha256(DATA)).resolve()
    assert (folder / "refs/main").read_text() == commit
    assert sorted(path.name for path in folder.iterdir()) == ["blobs", "refs", "snapshots"]
    assert len(machine.hub.fetched) == 1


def test_pull_writes_a_manifest(machine: Machine) -> None:
    """It has size, SHA-256, commit and endpoint, and says that the hash comes from the hub."""
    manifest = machine.pull()
    assert machine.store.find("tiny") == manifest
    assert (manifest.files[0].size, manifest.files[0].sha256) == (len(DATA), sha256(DATA))
    assert manifest.source == f"hub:{REPO}@{machine.hub.repos[REPO].revisions['main']}"
    assert (manifest.endpoint, manifest.hash_source) == (machine.hub.url, "hub")
    assert (manifest.licence, manifest.profile, manifest.base) == ("Apache-2.0", "prompted", "")


def test_a_registry_hash_is_named_as_the_hash_source(machine: Machine) -> None:
    """It does not matter which mirror sent the file."""
    assert machine.pull(entry(RegistryFile(file=FILE, size=len(DATA), sha256=sha256(DATA)))).hash_source == "registry"


def test_pull_reports_its_stages(machine: Machine) -> None:
    """Asking, downloading and checking are reported in this order, with counts up to the last byte."""
    machine.pull()
    assert machine.labels == [f"asking about {REPO}", f"downloading {FILE}", f"checking {FILE}"]
    assert machine.reports[-1] == (f"checking {FILE}", len(DATA), len(DATA))


LIBRARY = "from huggingface_hub import hf_hub_download, scan_cache_dir; "


def library(machine: Machine, code: str) -> str:
    """What the hub's own library prints in another process."""
    command = [sys.executable, "-c", LIBRARY + code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_hubs_library_finds_a_pulled_file(machine: Machine) -> None:
    """It finds the file without asking the hub, and reports no problem in the cache."""
    manifest = machine.pull()
    found = library(machine, f"print(hf_hub_download({REPO!r}, {FILE!r}, local_files_only=True))")
    assert Path(found) == manifest.path
    assert (
        library(machine, "s = scan_cache_dir(); print(len(s.repos), s.warnings, s.size_on_disk)") == f"1 [] {len(DATA)}"
    )


@pytest.mark.parametrize("known", ["", sha256(DATA)], ids=["unknown hash", "known hash"])
def test_pull_uses_a_file_that_the_hubs_library_downloaded(machine: Machine, known: str) -> None:
    """The file is verified and used; nothing is downloaded or stored twice."""
    found = library(machine, f"print(hf_hub_download({REPO!r}, {FILE!r}))")
    asked, fetched = len(machine.hub.front.requests), len(machine.hub.fetched)
    assert machine.pull(entry(RegistryFile(file=FILE, sha256=known))).path == Path(found)
    assert len(machine.hub.fetched) == fetched
    assert (len(machine.hub.front.requests) > asked) == (not known)  # without a hash the hub is asked for one
    assert machine.files() == [sha256(DATA)]


def test_a_second_pull_sends_no_request(machine: Machine) -> None:
    """A file whose hash is saved is read and verified from the cache."""
    first = machine.pull()
    asked = len(machine.hub.front.requests)
    machine.reports.clear()
    again = machine.pull()
    assert (again.files, again.source, again.hash_source) == (first.files, first.source, first.hash_source)
    assert len(machine.hub.front.requests) == asked
    assert machine.labels == [f"checking {FILE}"]


def test_a_pull_from_the_cache_keeps_the_endpoint(machine: Machine) -> None:
    """A hash that a mirror reported is not attributed to the official hub later."""
    machine.pull()
    machine.set(HF_ENDPOINT=None)
    manifest = machine.pull()
    assert (manifest.hash_source, manifest.endpoint) == ("hub", machine.hub.url)


def test_an_offline_pull_has_no_hash_source(machine: Machine) -> None:
    """A file of another tool's cache without a known hash has only itself as the source of its hash."""
    library(machine, f"hf_hub_download({REPO!r}, {FILE!r})")
    machine.set(HF_HUB_OFFLINE="1")
    manifest = machine.pull()
    assert (manifest.hash_source, manifest.endpoint) == ("file", "")


def test_removing_keeps_files_that_another_tool_downloaded(machine: Machine) -> None:
    """A file that was in the cache before the pull stays there."""
    found = Path(library(machine, f"print(hf_hub_download({REPO!r}, {FILE!r}))"))
    machine.pull()
    gone = machine.remove(entry())
    assert (gone.names, gone.freed, gone.kept) == ((), 0, (found,))
    assert found.read_bytes() == DATA
    assert machine.store.manifests() == ()


def test_removing_deletes_downloads_that_no_other_model_uses(machine: Machine) -> None:
    """A file that two models use stays until the second is removed, also after a later pull found it in the cache."""
    machine.pull()
    machine.pull(entry(name="other"))
    machine.pull()
    assert machine.remove(entry()).freed == 0
    assert machine.remove(entry(name="other")).freed == len(DATA)
    assert not repo_folder(REPO).exists()


def test_a_model_of_two_parts_is_put_into_the_cache_at_its_end(machine: Machine) -> None:
    """After an interruption between two files the first is only continued or removed by conductor."""
    names = ["big-00001-of-00002.gguf", "big-00002-of-00002.gguf"]
    machine.hub.commit(REPO, dict(zip(names, HALVES, strict=True)))
    big = entry(*(RegistryFile(file=name) for name in names), name="big")

    def stop(label: str, done: int, total: int) -> None:
        if label == f"downloading {names[1]}":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull_model(big, machine.store, stop)
    assert machine.files() == []
    assert partial_files(REPO, names[0])[0].read_bytes() == HALVES[0]
    fetched = len(machine.hub.fetched)
    machine.pull(big)
    assert len(machine.hub.fetched) == fetched + 1
    assert machine.remove(big).freed == sum(map(len, HALVES))
    assert not repo_folder(REPO).exists()


def test_a_damaged_file_in_the_cache_is_downloaded_again(machine: Machine) -> None:
    """One flipped byte is found, and the file is replaced."""
    path = machine.pull().path
    damaged = bytearray(DATA)
    damaged[1_000_000] ^= 1
    path.resolve().write_bytes(damaged)
    assert machine.pull().path.read_bytes() == DATA
    assert machine.files() == [sha256(DATA)]


@pytest.mark.parametrize("size", [0, 1, 65_536, 1_000_000, len(DATA) - 1, len(DATA)])
def test_pull_continues_a_partial_file(machine: Machine, size: int) -> None:
    """Only the missing bytes are requested, and the whole file is verified."""
    machine.begin(DATA, size)
    assert machine.pull().path.read_bytes() == DATA
    assert machine.hub.ranges == {0: [""], len(DATA): []}.get(size, [f"bytes={size}-"])
    assert machine.files(".conductor-llm") == []


def test_a_partial_file_of_another_content_is_discarded(machine: Machine) -> None:
    """The file was changed at the hub since the download began."""
    machine.begin(OTHER, 1_000_000)
    assert machine.pull().path.read_bytes() == DATA
    assert machine.hub.ranges == [""]


def test_a_partial_file_longer_than_the_file_is_discarded(machine: Machine) -> None:
    """It cannot be the beginning of the file."""
    machine.begin(DATA + b"more", len(DATA) + 4)
    assert machine.pull().path.read_bytes() == DATA
    assert machine.hub.ranges == [""]


def test_a_continued_file_with_a_wrong_hash_is_downloaded_once_more(machine: Machine) -> None:
    """The partial file is deleted, and the download starts over."""
    machine.begin(DATA, 0).write_bytes(OTHER[:500_000])
    assert machine.pull().path.read_bytes() == DATA
    assert machine.hub.ranges == ["bytes=500000-", ""]


def test_a_download_with_a_wrong_hash_is_rejected(machine: Machine) -> None:
    """The error names both hashes; the file is deleted, and other files stay."""
    kept = machine.pull(entry(name="kept")).path
    machine.hub.commit(REPO, {"other.gguf": OTHER})
    machine.hub.faults = [Fault(kind="wrong")]
    error = machine.fails(entry(RegistryFile(file="other.gguf")))
    assert sha256(OTHER) in error.message
    assert sha256(bytes(byte ^ 1 for byte in OTHER)) in error.message
    assert machine.files() == [sha256(DATA)]
    assert machine.files(".conductor-llm") == []
    assert kept.read_bytes() == DATA
    assert machine.store.find("tiny") is None


def test_a_continued_file_is_downloaded_once_more_only(machine: Machine) -> None:
    """A host that has other bytes than the hub reports is not asked again and again."""
    machine.begin(DATA, 500_000)
    machine.hub.faults = [Fault(kind="wrong"), Fault(kind="wrong")]
    assert "SHA-256" in machine.fails().message
    assert machine.hub.ranges == ["bytes=500000-", ""]


def test_a_hub_with_another_hash_than_the_registry_is_rejected(machine: Machine) -> None:
    """No byte is downloaded."""
    error = machine.fails(entry(RegistryFile(file=FILE, sha256=sha256(OTHER))))
    assert sha256(OTHER) in error.message
    assert sha256(DATA) in error.message
    assert machine.hub.fetched == []


def test_a_hub_with_another_size_than_the_registry_is_rejected(machine: Machine) -> None:
    """No byte is downloaded; both sizes are named."""
    error = machine.fails(entry(RegistryFile(file=FILE, size=123_456)))
    assert "123456" in error.message
    assert str(len(DATA)) in error.message
    assert machine.hub.fetched == []


@pytest.mark.parametrize("fault", ["more", "surplus"])
def test_a_host_that_sends_too_much_is_rejected(machine: Machine, fault: Literal["more", "surplus"]) -> None:
    """What it sends beyond the size that the hub names is not written."""
    machine.hub.faults = [Fault(kind=fault, after=3_000_000)] * 9
    error = machine.fails()
    assert f"{len(DATA):,}" in error.message
    assert machine.files() == []
    assert all(path.stat().st_size <= len(DATA) for path in partial_files(REPO, FILE))


def test_a_host_that_sends_too_little_is_rejected(machine: Machine) -> None:
    """The hub reports one size, and the host of the bytes has fewer."""
    machine.hub.size = len(DATA) + 100
    error = machine.fails()
    assert f"localhost:{machine.hub.back.port}" in error.message
    assert machine.files() == []


def test_a_saved_hash_rejects_a_changed_file(machine: Machine) -> None:
    """The hash of the first pull counts from then on; nothing is replaced."""
    machine.pull()
    machine.hub.commit(REPO, {FILE: OTHER})
    assert machine.pull().files[0].sha256 == sha256(DATA)  # the hub is not even asked
    shutil.rmtree(repo_folder(REPO) / "snapshots")
    error = machine.fails()
    assert sha256(OTHER) in error.message
    assert sha256(DATA) in error.message
    assert machine.files() == [sha256(DATA)]
    assert [found.hashes for found in machine.store.manifests()] == [[sha256(DATA)]]


def test_a_new_commit_with_the_same_file_downloads_nothing(machine: Machine) -> None:
    """The same bytes in another commit get a second name, not a second copy."""
    machine.pull()
    shutil.rmtree(repo_folder(REPO) / "snapshots")
    commit = machine.hub.commit(REPO, {"README.md": b"changed"})
    manifest = machine.pull()
    assert manifest.source.endswith(commit)
    assert len(machine.hub.fetched) == 1


def test_parts_of_a_divided_model_are_of_one_commit(machine: Machine) -> None:
    """They are in one directory and one manifest, even if the branch moves between two downloads."""
    names = [f"big-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    contents = [model(number, 300_000 + number, no=number, count=3) for number in range(3)]
    first = machine.hub.commit(REPO, dict(zip(names, contents, strict=True)))

    def report(label: str, done: int, total: int) -> None:
        if label == f"checking {names[0]}":
            machine.hub.commit(REPO, {names[1]: b"x" * 5000})

    manifest = pull_model(entry(*(RegistryFile(file=name) for name in names)), machine.store, report)
    assert [file.path.name for file in manifest.files] == names
    assert {file.path.parent.name for file in manifest.files} == {first}
    assert [file.path.read_bytes() for file in manifest.files] == contents
    assert machine.store.find("tiny") == manifest


NO_MODELS = {
    "a web page": b"<!doctype html><title>Please log in</title>" + bytes(5000),
    "random bytes": random.Random(5).randbytes(300_000),
    "half a header": DATA[:40] + bytes(3000),
    "a further part": model(6, 5000, no=1, count=2),
    "one part of two": model(7, 5000, no=0, count=2),
}


@pytest.mark.parametrize("content", NO_MODELS.values(), ids=NO_MODELS)
def test_a_file_that_is_not_a_model_is_rejected(machine: Machine, content: bytes) -> None:
    """Where only the hub knows the hash, the file must be a complete GGUF file before that hash is saved."""
    machine.hub.commit(REPO, {FILE: content})
    error = machine.fails()
    assert f"{FILE} of {REPO}" in error.message
    assert str(machine.home) not in error.message
    assert "was not saved" in error.hint
    assert (machine.files(), machine.files(".conductor-llm"), machine.store.manifests()) == ([], [], ())
    machine.hub.commit(REPO, {FILE: DATA})
    assert machine.pull().path.read_bytes() == DATA


def test_a_cached_file_that_is_not_a_model_is_rejected(machine: Machine) -> None:
    """Online and offline; the file stays in the cache."""
    machine.hub.commit(REPO, {FILE: b"no model" * 1000})
    library(machine, f"hf_hub_download({REPO!r}, {FILE!r})")
    for offline in ({}, {"HF_HUB_OFFLINE": "1"}):
        machine.set(**offline)
        assert "is not a GGUF file" in machine.fails().message
        assert machine.store.find("tiny") is None
    assert machine.files() == [sha256(b"no model" * 1000)]


def test_a_model_is_rejected_where_the_registry_has_an_adapter(machine: Machine) -> None:
    """A registry model with a base must be an adapter."""
    assert "an adapter was expected" in machine.fails(entry(base="other")).message


def test_a_wrong_second_part_is_named(machine: Machine) -> None:
    """Nothing is installed, and the download of the first part can be removed."""
    names = ["big-00001-of-00002.gguf", "big-00002-of-00002.gguf"]
    machine.hub.commit(REPO, {names[0]: HALVES[0], names[1]: HALVES[0][:-1]})
    big = entry(*(RegistryFile(file=name) for name in names), name="big")
    assert f"{names[1]} of {REPO}" in machine.fails(big).message
    assert machine.store.find("big") is None
    assert machine.remove(big).freed == len(HALVES[0])
    assert not repo_folder(REPO).exists()


def test_removing_deletes_partial_files(machine: Machine) -> None:
    """Only those of this model; a second time there is nothing to remove."""
    kept = machine.pull(entry(name="kept")).path
    what = entry(RegistryFile(file="other.gguf"))
    machine.begin(OTHER, 700_000, "other.gguf")
    found = plan_removal(what.name, machine.store, what)
    assert found.freed == 700_000
    assert machine.remove(what) == found
    assert machine.remove(what) == Removal()
    assert machine.files(".conductor-llm") == []
    assert kept.read_bytes() == DATA


def test_removing_fails_while_the_model_is_pulled(machine: Machine) -> None:
    """The other process finishes undisturbed."""
    machine.hub.faults = [Fault(kind="hold", after=1_500_000)]
    with machine.process() as process:
        wait_for_bytes(machine, 1 << 20)
        with pytest.raises(ConductorUnusable, match="is being pulled"):
            machine.remove(entry())
        machine.hub.go_on.set()
        process.communicate()
    assert machine.pull().path.read_bytes() == DATA


def test_a_small_file_is_named_by_its_git_hash(machine: Machine) -> None:
    """The hub has no SHA-256 for files that it keeps in git; the one that was computed is saved."""
    machine.hub.commit(REPO, {"config.json": b'{"r": 8}'})
    manifest = machine.pull(entry(RegistryFile(file="config.json"), base="other"))
    assert manifest.path.resolve().name == git_hash(b'{"r": 8}')
    assert manifest.files[0].sha256 == sha256(b'{"r": 8}')


def test_a_mirror_without_hashes_is_accepted_by_size(machine: Machine) -> None:
    """The file's own SHA-256 is saved."""
    machine.hub.hashes = False
    assert machine.pull().hashes == [sha256(DATA)]


def test_a_mirror_that_only_lists_names_needs_the_registry(machine: Machine) -> None:
    """Size and hash come from the registry; without them nothing could be checked."""
    machine.hub.listing = {"siblings": [{"rfilename": FILE}]}
    assert "no size or no hash" in machine.fails().message
    known = entry(RegistryFile(file=FILE, size=len(DATA), sha256=sha256(DATA)))
    assert machine.pull(known).path.resolve().name == sha256(DATA)


REFUSALS = [
    pytest.param(
        Refusal(status=401, headers={"X-Error-Message": "Invalid credentials in Authorization header"}),
        "rejects the token", "token", id="401",
    ),
    pytest.param(gated(), "gated", "accept its licence at", id="403 gated"),
    pytest.param(Refusal(status=403), "denies access to", "token", id="403"),
    pytest.param(Refusal(status=404), f"has no revision main of {REPO}", "HF_ENDPOINT", id="404"),
    pytest.param(Refusal(status=429, headers={"Retry-After": "3600"}), "rate limit", "try again later", id="429"),
    pytest.param(Refusal(status=407), "proxy", "HTTPS_PROXY", id="407"),
    pytest.param(Refusal(status=451), "refuses", "HF_ENDPOINT", id="451"),
]  # fmt: skip


@pytest.mark.parametrize(("refusal", "message", "hint"), REFUSALS)
def test_each_error_of_the_hub_is_explained(machine: Machine, refusal: Refusal, message: str, hint: str) -> None:
    """The error has the status, the reason and the next step."""
    machine.hub.refusals = [refusal] * 9
    error = machine.fails()
    assert message in error.message
    assert str(refusal.status) in error.message
    assert hint in error.hint
    assert error.exit_code == 5


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"repo": "maker/none"}, "has no repository maker/none"),
        ({"revision": "v9"}, f"no revision v9 of {REPO}"),
        ({"parts": (RegistryFile(file="none.gguf"),)}, "has no none.gguf"),
    ],
)
def test_a_missing_repository_revision_or_file_is_named(machine: Machine, more: dict[str, Any], message: str) -> None:
    """Each has its own message."""
    assert message in machine.fails(entry(**more)).message


def test_a_401_without_a_token_says_how_to_log_in(machine: Machine) -> None:
    """Whoever has sent no token hears how to."""
    machine.set(HF_TOKEN=None)
    machine.hub.refusals = [Refusal(status=401)]
    error = machine.fails()
    assert "or requires one" in error.message
    assert "HF_TOKEN" in error.hint
    assert "hf auth login" in error.hint


@pytest.mark.parametrize("status", [500, 503])
def test_errors_of_a_server_are_retried(machine: Machine, status: int) -> None:
    """Both hosts are asked again, a few times."""
    machine.hub.refusals = [Refusal(status=status)] * 2
    machine.hub.cdn_refusals = [Refusal(status=status)] * 3
    assert machine.pull().path.read_bytes() == DATA


@pytest.mark.parametrize("status", [429, 500, 503])
def test_retries_of_the_hub_end(machine: Machine, status: int) -> None:
    """A server that keeps failing is given up after a few tries; a rate limit is the user's to wait for."""
    machine.hub.refusals = [Refusal(status=status)] * 9
    assert str(status) in machine.fails().message
    assert len(machine.hub.front.requests) == (1 if status == 429 else 4)


def test_a_download_host_that_refuses_is_named(machine: Machine) -> None:
    """The error names the hub that redirected and the host that refused."""
    machine.hub.cdn_refusals = [Refusal(status=403, body=f"no, {TOKEN}".encode())] * 9
    error = machine.fails()
    assert f"{machine.hub.url[7:]} redirects to localhost:{machine.hub.back.port}" in error.message
    assert "403" in error.message
    assert "HF_ENDPOINT" in error.hint
    assert "s3cret" not in error.message


@pytest.fixture
def impatient(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The library waits for 0.3 s, and not at all between its own tries."""
    machine.set(HF_HUB_DOWNLOAD_TIMEOUT="1")
    from huggingface_hub import constants, file_download

    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.3)
    monkeypatch.setattr(file_download.time, "sleep", lambda seconds: None)
    return machine


@pytest.mark.parametrize("kind", ["cut", "stall"])
@pytest.mark.parametrize("after", [0, 1_500_000, len(DATA) - 1])
def test_a_broken_connection_is_continued(impatient: Machine, kind: Literal["cut", "stall"], after: int) -> None:
    """A connection that is cut or silent is opened again; at most the last mebibyte is requested twice."""
    impatient.hub.faults = [Fault(kind=kind, after=after)]
    assert impatient.pull().path.read_bytes() == DATA
    assert impatient.hub.ranges == ["", f"bytes={1 << 20}-" if after else ""]


def test_a_connection_that_breaks_often_is_not_given_up(impatient: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library gives up after six tries without a new byte, and we do where its tries bring none at all."""
    monkeypatch.setattr(library_hub, "CHUNK", 64 * 1024)
    impatient.hub.faults = [Fault(kind="cut", after=200_000)] * 9
    assert impatient.pull().path.read_bytes() == DATA
    assert len(impatient.hub.fetched) == 10


def test_a_silent_host_ends_in_a_time_out(impatient: Machine) -> None:
    """It accepts each request and sends no answer; what came before stays."""
    part = impatient.begin(DATA, 1000)
    impatient.hub.faults = [Fault(kind="mute")] * 20
    error = impatient.fails()
    assert f"localhost:{impatient.hub.back.port}" in error.message
    assert "no answer in time" in error.message
    assert part.read_bytes() == DATA[:1000]
    assert len(impatient.hub.fetched) <= 6


def test_a_slow_connection_is_not_given_up(impatient: Machine) -> None:
    """The download takes longer than the time limit, but bytes keep coming."""
    impatient.hub.faults = [Fault(kind="drip", pause=0.02)]
    assert impatient.pull().path.read_bytes() == DATA
    assert len(impatient.hub.fetched) == 1


def test_a_host_without_ranges_sends_the_whole_file(machine: Machine) -> None:
    """The partial file is overwritten."""
    machine.begin(DATA, 0).write_bytes(b"x" * 1000)
    machine.hub.faults = [Fault(kind="no range")]
    assert machine.pull().path.read_bytes() == DATA


@pytest.mark.parametrize(
    "where", ["file:///etc/passwd", "ftp://localhost/x", "http://", "http://[::1", "http://localhost:99999/"]
)
def test_invalid_redirects_are_rejected(impatient: Machine, where: str) -> None:
    """Whatever a redirect says, the outcome is an error that is ours."""
    impatient.hub.location = where
    impatient.fails()


def test_endless_redirects_are_given_up(machine: Machine) -> None:
    """A hub that leads in a circle is not followed for ever."""
    commit = machine.hub.repos[REPO].revisions["main"]
    machine.hub.location = f"{machine.hub.url}/{REPO}/resolve/{commit}/{FILE}"
    assert "redirects" in machine.fails().message


def test_an_unreachable_download_host_is_named(impatient: Machine) -> None:
    """A redirect to nowhere blames the host it leads to."""
    impatient.hub.location = "http://localhost:9/nothing"
    error = impatient.fails()
    assert "localhost:9" in error.message
    assert "cannot be reached" in error.message


def test_an_unreachable_hub_is_not_retried(machine: Machine) -> None:
    """Without a network the error comes at once."""
    machine.set(HF_ENDPOINT="http://127.0.0.1:9")
    error = machine.fails()
    assert "127.0.0.1:9 cannot be reached" in error.message
    assert "network" in error.hint


def test_an_endpoint_without_a_scheme_is_rejected(machine: Machine) -> None:
    """HF_ENDPOINT is named when it is wrong."""
    machine.set(HF_ENDPOINT="huggingface.co")
    assert "HF_ENDPOINT" in machine.fails().hint


@pytest.mark.parametrize("address", ["http://localhost:abc", "http://localhost:99999", "http://", "ftp://x"])
def test_an_invalid_endpoint_is_rejected(machine: Machine, address: str) -> None:
    """The error or its hint names HF_ENDPOINT; neither shows a password in it."""
    machine.set(HF_ENDPOINT=address.replace("//", "//me:secret@"))
    error = machine.fails()
    assert "secret" not in error.message
    assert "HF_ENDPOINT" in f"{error.message} {error.hint}"


@pytest.mark.parametrize(("name", "value"), [("HF_ENDPOINT", "http://me:secret@[::1"), ("HF_HUB_ETAG_TIMEOUT", "x")])
def test_a_variable_that_the_library_cannot_read_is_an_error_of_the_settings(
    machine: Machine, name: str, value: str
) -> None:
    """The library fails at its import."""
    machine.monkeypatch.setenv(name, value)
    with machine.process() as process:
        _, problem = process.communicate()
    assert "ConfigError: a variable of the hub is invalid" in problem
    assert "secret" not in problem.splitlines()[-1]


@pytest.mark.parametrize("where", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "file"])
def test_a_token_with_invalid_characters_is_rejected(machine: Machine, where: str) -> None:
    """The error does not show the token."""
    machine.set(HF_TOKEN=None)
    path = machine.home / "hf/token"
    if where == "file":
        path.parent.mkdir()
        path.write_text("hf_geheimnisträger", encoding="utf-8")
    else:
        machine.set(**{where: "hf_geheimnisträger"})
    error = machine.fails()
    assert "invalid characters" in error.message
    assert "geheim" not in error.message
    assert "hf auth login" in error.hint
    assert machine.hub.front.requests == []


def test_a_server_that_is_not_a_hub_is_rejected(machine: Machine) -> None:
    """A network's login page answers everything with a good status, and no commit."""
    machine.hub.refusals = [Refusal(status=200, body=b"<html>log in</html>")]
    assert "not answer like a model hub" in machine.fails().message


def test_downloads_use_the_proxy_of_the_environment(machine: Machine) -> None:
    """A hub that only the proxy knows is asked, and its file downloaded, through it."""
    machine.set(HF_ENDPOINT="http://hub.test", HTTP_PROXY=machine.hub.url)
    assert machine.pull().path.read_bytes() == DATA
    assert all(seen.path.startswith("http://hub.test/") for seen in machine.hub.front.requests)


def test_an_unreachable_proxy_is_explained(machine: Machine) -> None:
    """The hint names HTTPS_PROXY."""
    machine.set(HF_ENDPOINT="https://hub.test", HTTPS_PROXY="http://127.0.0.1:9")
    error = machine.fails()
    assert "hub.test" in error.message
    assert "HTTPS_PROXY" in error.hint


@pytest.mark.parametrize("where", ["HF_TOKEN", "file"])
def test_the_token_is_sent_to_the_hub_only(machine: Machine, where: str) -> None:
    """It comes from the environment or from the file of `hf auth login`, and does not follow a redirect."""
    if where == "file":
        machine.set(HF_TOKEN=None)
        (machine.home / "hf").mkdir()
        (machine.home / "hf/token").write_text(f"{TOKEN}\n")
    machine.pull()
    assert {seen.headers.get("authorization") for seen in machine.hub.front.requests} == {f"Bearer {TOKEN}"}
    assert [seen.headers.get("authorization") for seen in machine.hub.fetched] == [None]
    assert TOKEN not in str(machine.reports)


def test_an_expired_login_is_renewed(machine: Machine) -> None:
    """The hub's library renews a browser login, and the pull continues with the new token."""
    machine.set(HF_TOKEN=None)
    folder = machine.home / "hf"
    folder.mkdir()
    (folder / "token").write_text("hf_old")
    (folder / "stored_tokens").write_text("[me]\nhf_token = hf_old\nrefresh_token = again\nexpires_at = 1\n")
    machine.hub.token, machine.hub.logins = TOKEN, {"again": TOKEN}
    with machine.process() as process:  # the library reads its environment when it is imported
        path, problem = process.communicate()
    assert process.returncode == 0, problem
    assert Path(path.splitlines()[-1]).read_bytes() == DATA
    assert (folder / "token").read_text() == TOKEN


def test_a_rejected_token_is_named(machine: Machine) -> None:
    """A token that the hub does not know is named as the reason."""
    machine.hub.token = "hf_another"
    assert "rejects the token" in machine.fails().message


def test_a_token_in_an_error_of_the_hub_is_redacted(machine: Machine) -> None:
    """A hub that repeats the token in its message has it blotted out."""
    machine.hub.refusals = [Refusal(status=403, headers={"X-Error-Message": f"the token {TOKEN} is bad"})]
    assert "[key]" in machine.fails().message


def test_an_offline_pull_uses_the_cache(machine: Machine) -> None:
    """The file is verified by its blob's name, and no request is sent."""
    library(machine, f"hf_hub_download({REPO!r}, {FILE!r})")
    asked = len(machine.hub.front.requests)
    machine.set(HF_HUB_OFFLINE="1")
    assert machine.pull().files[0].sha256 == sha256(DATA)
    assert len(machine.hub.front.requests) == asked


def test_an_offline_pull_rejects_a_damaged_file(machine: Machine) -> None:
    """With HF_HUB_OFFLINE a file that is not what its name says is not used."""
    library(machine, f"hf_hub_download({REPO!r}, {FILE!r})")
    (repo_folder(REPO) / "blobs" / sha256(DATA)).write_bytes(OTHER)
    machine.set(HF_HUB_OFFLINE="1")
    assert "is incomplete" in machine.fails().message


def test_an_offline_pull_of_a_missing_file_fails(machine: Machine) -> None:
    """With HF_HUB_OFFLINE nobody is asked for what is missing."""
    machine.set(HF_HUB_OFFLINE="1")
    error = machine.fails()
    assert "HF_HUB_OFFLINE" in error.message
    assert "import" in error.hint
    assert machine.hub.front.requests == []


BAD = ["../x.gguf", "/etc/x", "a/../../x", "a//b", "C:\\x", "C:x", "..\\x", "a\\b", "x\x00y", "", ".", "a/.", "a\nb"]


@pytest.mark.parametrize("name", BAD)
def test_a_path_outside_the_cache_is_rejected(name: str) -> None:
    """Neither a file's nor a revision's name can lead out of the cache."""
    with pytest.raises(ConfigError, match="not a relative path"):
        RegistryFile(file=name)
    with pytest.raises(ConfigError, match="not a valid revision"):
        entry(revision=name)


@pytest.mark.parametrize(
    "repo", ["../model", "maker/../x", "maker/a/b", "/maker/model", "maker--x/model", "maker/..", ""]
)
def test_a_repository_outside_the_cache_is_rejected(repo: str) -> None:
    """A repository has a maker and a name, and neither can lead anywhere."""
    with pytest.raises(ConfigError, match="not a valid repo"):
        entry(repo=repo)


BROKEN_LISTINGS: list[dict[str, Any]] = [
    {"sha": "../../../x"},
    {"sha": None},
    {"siblings": None},
    {"siblings": [{"rfilename": FILE, "size": 5, "blobId": "../../x"}]},
    {"siblings": [{"rfilename": FILE, "size": 5, "blobId": "a/b"}]},
    {"siblings": [{"rfilename": FILE, "size": "x", "blobId": "0" * 40}]},
    {"siblings": [{"rfilename": FILE, "lfs": {"sha256": "../x"}}]},
    {"siblings": "x"},
]


@pytest.mark.parametrize("listing", BROKEN_LISTINGS)
def test_a_list_of_files_that_makes_no_sense_is_rejected(machine: Machine, listing: dict[str, Any]) -> None:
    """Commits and hashes become names of files, so the hub's answer is not trusted."""
    machine.hub.listing = listing
    assert "not answer like a model hub" in machine.fails().message
    assert machine.hub.fetched == []


def test_a_full_disk_is_reported_before_the_download(machine: Machine) -> None:
    """The error has the bytes to come and the bytes free."""
    machine.hub.size = 10**15
    error = machine.fails()
    assert "1000000 GB do not fit" in error.message
    assert "HF_HOME" in error.hint
    assert machine.hub.fetched == []


LIMIT = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no limit for files")
def test_a_disk_that_fills_up_ends_the_pull(machine: Machine) -> None:
    """It is not retried, and the next pull continues."""
    with machine.process(before=LIMIT) as process:
        _, problem = process.communicate()
    assert "ConductorUnusable" in problem
    assert "is full" in problem
    assert len(machine.hub.fetched) == 1
    assert machine.pull().path.read_bytes() == DATA
    assert len(machine.hub.ranges) == 2
    assert machine.hub.ranges[1].startswith("bytes=")


def test_an_unwritable_cache_is_named(machine: Machine) -> None:
    """A file where the directory should be is the user's to move away."""
    (machine.home / "hf").write_text("not a directory")
    error = machine.fails()
    assert "cannot write" in error.message
    assert "HF_HOME" in error.hint


def wait_for_bytes(machine: Machine, size: int) -> None:
    """Wait until so many bytes of the file are on the disk."""
    deadline = time.monotonic() + 60
    while not any(path.stat().st_size >= size for path in partial_files(REPO, FILE)):
        assert time.monotonic() < deadline, "the bytes do not come"
        time.sleep(0.02)


def test_two_processes_download_a_file_once(machine: Machine) -> None:
    """The second waits for the first, says so, and uses its file."""
    machine.hub.faults = [Fault(kind="hold", after=1_500_000)]
    with machine.process() as first:
        wait_for_bytes(machine, 1 << 20)
        with machine.process() as second:
            assert second.stdout is not None
            assert f"waiting for another process that downloads from {REPO}" in second.stdout.readline()
            machine.hub.go_on.set()
            said = [process.communicate()[0].splitlines()[-1] for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0)
    assert said[0] == said[1]
    assert Path(said[0]).read_bytes() == DATA
    assert machine.hub.ranges == [""]


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no such signals")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_pull_is_continued(machine: Machine, number: signal.Signals) -> None:
    """Its connection is closed, no lock stays, and the next pull requests only the missing bytes."""
    machine.hub.faults = [Fault(kind="hold", after=1_500_000)]
    with machine.process() as process:
        wait_for_bytes(machine, 1 << 20)
        process.send_signal(number)
        process.communicate()
    assert machine.hub.fetched[0].closed.wait(30)
    assert machine.files() == []
    assert machine.pull().path.read_bytes() == DATA
    continued_at = int(machine.hub.ranges[1].removeprefix("bytes=").removesuffix("-"))
    assert continued_at >= 1 << 20


def test_an_estimate_sends_no_request(machine: Machine) -> None:
    """What is missing is known from the disk alone, before, during and after a pull."""
    what = entry(RegistryFile(file=FILE, size=len(DATA), sha256=sha256(DATA)))
    assert cache_directory() == machine.home / "hf/hub"
    assert missing_bytes(what) == len(DATA)
    machine.begin(DATA, 500_000)
    assert missing_bytes(what) == len(DATA) - 500_000
    machine.pull(what)
    asked = len(machine.hub.front.requests)
    assert missing_bytes(what) == 0
    assert len(machine.hub.front.requests) == asked


def test_a_password_in_the_endpoint_is_not_shown(machine: Machine) -> None:
    """The address is written into manifests."""
    machine.set(HF_ENDPOINT="https://me:secret@mirror.test/")
    assert shown_endpoint() == "https://mirror.test"


def test_without_links_the_snapshot_holds_the_file(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is still one copy, and a second pull finds it."""

    def refuse(*_: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    path = machine.pull().path
    assert not path.is_symlink()
    assert path.read_bytes() == DATA
    assert machine.files() == []
    assert machine.pull().path == path
    assert len(machine.hub.fetched) == 1
    assert machine.remove(entry()).freed == len(DATA)
