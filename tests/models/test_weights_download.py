"""Pulling models from a hub on loopback into a cache that the hub's own library reads."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from conductor_cli.core.errors import ConductorUnusable
from conductor_cli.models.weights import huggingface as library_hub
from conductor_cli.models.weights.download import (
    Removal,
    missing_bytes,
    partial_files,
    pull_model,
    remove_model,
)
from conductor_cli.models.weights.huggingface import cache_directory, repo_folder, shown_endpoint
from conductor_cli.models.weights.model_store import Manifest, ModelFile, ModelStore
from conductor_cli.models.weights.registry import RegistryModel
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


def entry(*parts: ModelFile, **fields: Any) -> RegistryModel:
    values: dict[str, Any] = {
        "name": "tiny",
        "repo": REPO,
        "revision": "main",
        "licence": "Apache-2.0",
        "about": "",
        "memory": 0,
    }
    return RegistryModel(**(values | {"parts": parts or (ModelFile(file=FILE),)} | fields))


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

    def pull(self, model: RegistryModel | None = None) -> Manifest:
        return pull_model(model or entry(), self.store, self.report)

    def remove(self, model: RegistryModel) -> Removal:
        return remove_model(model.name, self.store, model)

    def fails(self, model: RegistryModel | None = None) -> ConductorUnusable:
        with pytest.raises(ConductorUnusable) as error:
            self.pull(model)
        assert error.value.hint
        assert TOKEN not in f"{error.value.message}{error.value.hint}{self.reports}"
        return error.value

    def begin(self, partial: bytes, content: bytes = DATA) -> Path:
        """As if a pull of `data` had stopped with these bytes."""
        part = repo_folder(REPO) / f".conductor-llm/{FILE}@{sha256(content)}"
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(partial)
        return part

    def process(self) -> subprocess.Popen[str]:
        """A pull in another process, which prints the path at the end."""
        code = PULL.format(store=str(self.store.directory), entry=entry())
        command = [sys.executable, "-c", code]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def files(self, where: str = "blobs") -> list[str]:
        folder = repo_folder(REPO) / where
        return sorted(
            path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
        )

    def links(self, file: str) -> list[Path]:
        """The names of a file in all snapshots."""
        return [path for path in (repo_folder(REPO) / "snapshots").rglob(file) if path.is_symlink()]


PULL = """
from pathlib import Path, PosixPath
from conductor_cli.models.weights.download import pull_model
from conductor_cli.models.weights.model_store import ModelFile, ModelStore
from conductor_cli.models.weights.registry import RegistryModel
print(pull_model({entry!r}, ModelStore(Path({store!r})), lambda *_: None).path)
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setattr(library_hub, "WAITS", (0.0, 0.0, 0.0))
    with hub() as server:
        server.commit(REPO, {FILE: DATA})
        prepared = Machine(hub=server, home=tmp_path, monkeypatch=monkeypatch)
        prepared.set(
            HF_HOME=str(tmp_path / "hf"),
            HF_ENDPOINT=server.url,
            HF_TOKEN=TOKEN,
            NO_PROXY="127.0.0.1,localhost",
        )
        yield prepared


def test_pull_stores_the_file_in_the_hubs_cache_and_writes_a_manifest(machine: Machine) -> None:
    manifest = machine.pull()
    commit = machine.hub.repos[REPO].revisions["main"]
    folder = repo_folder(REPO)
    assert manifest.path == folder / "snapshots" / commit / FILE
    assert manifest.path.read_bytes() == DATA
    assert manifest.path.resolve() == (folder / "blobs" / sha256(DATA)).resolve()
    assert (folder / "refs/main").read_text() == commit
    assert sorted(path.name for path in folder.iterdir()) == ["blobs", "refs", "snapshots"]
    assert len(machine.hub.fetched) == 1
    assert machine.store.find("tiny") == manifest
    assert (manifest.files[0].size, manifest.files[0].sha256) == (len(DATA), sha256(DATA))
    assert (manifest.source, manifest.endpoint) == (f"hub:{REPO}@{commit}", machine.hub.url)
    assert (manifest.hash_source, manifest.licence, manifest.profile, manifest.base) == (
        "hub",
        "Apache-2.0",
        "prompted",
        "",
    )
    assert machine.labels == [f"asking about {REPO}", f"downloading {FILE}", f"checking {FILE}"]
    assert machine.reports[-1] == (f"checking {FILE}", len(DATA), len(DATA))
    assert library_download(local_files_only=True) == manifest.path
    from huggingface_hub import scan_cache_dir

    scanned = scan_cache_dir(cache_directory())
    assert (len(scanned.repos), scanned.warnings, scanned.size_on_disk) == (1, [], len(DATA))


def library_download(**options: Any) -> Path:
    """Download the file, or find it, as another user of the hub's own library does."""
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(REPO, FILE, cache_dir=cache_directory(), **options))


@pytest.mark.parametrize("known_hash", ["", sha256(DATA)], ids=["unknown hash", "known hash"])
def test_pull_uses_a_file_that_the_hubs_library_downloaded(
    machine: Machine, known_hash: str
) -> None:
    paths = library_download()
    request_count = len(machine.hub.front.requests)
    fetched = len(machine.hub.fetched)
    assert machine.pull(entry(ModelFile(file=FILE, sha256=known_hash))).path == paths
    assert len(machine.hub.fetched) == fetched
    # Without a hash the hub is asked for one
    assert (len(machine.hub.front.requests) > request_count) == (not known_hash)
    assert machine.files() == [sha256(DATA)]


def test_a_second_pull_sends_no_request_and_keeps_the_endpoint(machine: Machine) -> None:
    first = machine.pull()
    request_count = len(machine.hub.front.requests)
    machine.reports.clear()
    machine.set(HF_ENDPOINT=None)
    again = machine.pull()
    assert (again.files, again.source, again.hash_source) == (
        first.files,
        first.source,
        first.hash_source,
    )
    assert again.endpoint == machine.hub.url
    assert len(machine.hub.front.requests) == request_count
    assert machine.labels == [f"checking {FILE}"]


def test_removing_keeps_files_that_another_tool_downloaded(machine: Machine) -> None:
    paths = library_download()
    machine.pull()
    gone = machine.remove(entry())
    assert (gone.names, gone.freed, gone.kept) == ((), 0, (paths,))
    assert paths.read_bytes() == DATA
    assert machine.store.manifests() == ()


def test_removing_deletes_downloads_that_no_other_model_uses(machine: Machine) -> None:
    """The names of a file go in the snapshots of all commits."""
    machine.pull()
    machine.pull(entry(name="other"))
    machine.hub.commit(REPO, {"second.gguf": OTHER})
    assert library_download().is_symlink()
    second = entry(ModelFile(file="second.gguf"), name="second")
    stays = machine.pull(second).path
    machine.pull()
    assert len(machine.links(FILE)) == 2
    assert machine.remove(entry()).freed == 0
    assert machine.remove(entry(name="other")).freed == len(DATA)
    assert machine.links(FILE) == []
    assert stays.read_bytes() == OTHER
    assert machine.remove(second).freed == len(OTHER)
    assert not repo_folder(REPO).exists()


def test_a_model_of_two_parts_is_put_into_the_cache_at_its_end(machine: Machine) -> None:
    names = ["big-00001-of-00002.gguf", "big-00002-of-00002.gguf"]
    machine.hub.commit(REPO, dict(zip(names, HALVES, strict=True)))
    big = entry(*(ModelFile(file=name) for name in names), name="big")

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


@pytest.mark.parametrize(
    ("partial", "content", "ranges"),
    [
        (b"", DATA, [""]),
        (DATA[:1_000_000], DATA, ["bytes=1000000-"]),
        (DATA, DATA, []),
        (OTHER[:1_000_000], OTHER, [""]),
        (DATA + b"more", DATA, [""]),
        (OTHER[:500_000], DATA, ["bytes=500000-", ""]),
    ],
    ids=[
        "nothing",
        "a half",
        "the whole",
        "another content",
        "too long",
        "a wrong hash at the end",
    ],
)
def test_a_partial_file_is_continued_if_it_fits(
    machine: Machine, partial: bytes, content: bytes, ranges: list[str]
) -> None:
    machine.begin(partial, content)
    assert machine.pull().path.read_bytes() == DATA
    assert machine.hub.ranges == ranges
    assert machine.files(".conductor-llm") == []


def test_a_download_with_a_wrong_hash_is_rejected(machine: Machine) -> None:
    kept = machine.pull(entry(name="kept")).path
    machine.hub.commit(REPO, {"other.gguf": OTHER})
    machine.hub.faults = [Fault(kind="wrong")]
    error = machine.fails(entry(ModelFile(file="other.gguf")))
    assert sha256(OTHER) in error.message
    assert sha256(bytes(byte ^ 1 for byte in OTHER)) in error.message
    assert machine.files() == [sha256(DATA)]
    assert machine.files(".conductor-llm") == []
    assert kept.read_bytes() == DATA
    assert machine.store.find("tiny") is None


def test_a_continued_file_is_downloaded_once_more_only(machine: Machine) -> None:
    machine.begin(DATA[:500_000])
    machine.hub.faults = [Fault(kind="wrong"), Fault(kind="wrong")]
    assert "SHA-256" in machine.fails().message
    assert machine.hub.ranges == ["bytes=500000-", ""]


@pytest.mark.parametrize(
    ("registered", "messages"),
    [
        ({"sha256": sha256(OTHER)}, (sha256(OTHER), sha256(DATA))),
        ({"size": 123_456}, ("123456", "2000000")),
    ],
)
def test_a_hub_that_contradicts_the_registry_is_rejected(
    machine: Machine, registered: dict[str, Any], messages: tuple[str, str]
) -> None:
    error = machine.fails(entry(ModelFile(file=FILE, **registered)))
    assert all(word in error.message for word in messages)
    assert machine.hub.fetched == []


@pytest.mark.parametrize("fault", ["more", "surplus"])
def test_a_host_that_sends_too_much_is_rejected(
    machine: Machine, fault: Literal["more", "surplus"]
) -> None:
    machine.hub.faults = [Fault(kind=fault, after=3_000_000)] * 9
    error = machine.fails()
    assert f"{len(DATA):,}" in error.message
    assert machine.files() == []
    assert all(path.stat().st_size <= len(DATA) for path in partial_files(REPO, FILE))


def test_a_saved_hash_rejects_a_changed_file(machine: Machine) -> None:
    machine.pull()
    machine.hub.commit(REPO, {FILE: OTHER})
    assert machine.pull().files[0].sha256 == sha256(DATA)  # the hub is not even asked
    shutil.rmtree(repo_folder(REPO) / "snapshots")
    error = machine.fails()
    assert sha256(OTHER) in error.message
    assert sha256(DATA) in error.message
    assert machine.files() == [sha256(DATA)]
    assert [manifest.hashes for manifest in machine.store.manifests()] == [[sha256(DATA)]]


def test_a_new_commit_with_the_same_file_downloads_nothing(machine: Machine) -> None:
    machine.pull()
    shutil.rmtree(repo_folder(REPO) / "snapshots")
    commit = machine.hub.commit(REPO, {"README.md": b"changed"})
    manifest = machine.pull()
    assert manifest.source.endswith(commit)
    assert len(machine.hub.fetched) == 1


def test_parts_of_a_divided_model_are_of_one_commit(machine: Machine) -> None:
    names = [f"big-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    contents = [model(number, 300_000 + number, no=number, count=3) for number in range(3)]
    first = machine.hub.commit(REPO, dict(zip(names, contents, strict=True)))

    def report(label: str, done: int, total: int) -> None:
        if label == f"checking {names[0]}":
            machine.hub.commit(REPO, {names[1]: b"x" * 5000})

    manifest = pull_model(entry(*(ModelFile(file=name) for name in names)), machine.store, report)
    assert [file.path.name for file in manifest.files] == names
    assert {file.path.parent.name for file in manifest.files} == {first}
    assert [file.path.read_bytes() for file in manifest.files] == contents
    assert machine.store.find("tiny") == manifest


def test_a_small_file_is_named_by_its_git_hash(machine: Machine) -> None:
    machine.hub.commit(REPO, {"config.json": b'{"r": 8}'})
    manifest = machine.pull(entry(ModelFile(file="config.json"), base="other"))
    assert manifest.path.resolve().name == git_hash(b'{"r": 8}')
    assert manifest.files[0].sha256 == sha256(b'{"r": 8}')


def test_a_mirror_without_hashes_is_accepted_by_size(machine: Machine) -> None:
    machine.hub.hashes = False
    assert machine.pull().hashes == [sha256(DATA)]


def test_a_mirror_that_only_lists_names_needs_the_registry(machine: Machine) -> None:
    machine.hub.listing = {"siblings": [{"rfilename": FILE}]}
    assert "no size or no hash" in machine.fails().message
    listed = entry(ModelFile(file=FILE, size=len(DATA), sha256=sha256(DATA)))
    assert machine.pull(listed).path.resolve().name == sha256(DATA)


REFUSALS = [
    pytest.param(
        Refusal(
            status=401, headers={"X-Error-Message": ("Invalid credentials in Authorization header")}
        ),
        "rejects the token",
        "token",
        id="401",
    ),
    pytest.param(gated(), "gated", "accept its licence at", id="403 gated"),
    pytest.param(Refusal(status=403), "denies access to", "token", id="403"),
    pytest.param(Refusal(status=404), f"has no revision main of {REPO}", "HF_ENDPOINT", id="404"),
    pytest.param(
        Refusal(status=429, headers={"Retry-After": "3600"}),
        "rate limit",
        "try again later",
        id="429",
    ),
    pytest.param(Refusal(status=407), "proxy", "HTTPS_PROXY", id="407"),
    pytest.param(Refusal(status=451), "refuses", "HF_ENDPOINT", id="451"),
]


@pytest.mark.parametrize(("refusal", "message", "hint"), REFUSALS)
def test_each_error_of_the_hub_is_explained(
    machine: Machine, refusal: Refusal, message: str, hint: str
) -> None:
    machine.hub.refusals = [refusal] * 9
    error = machine.fails()
    assert message in error.message
    assert str(refusal.status) in error.message
    assert hint in error.hint
    assert error.exit_code == 5


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"repo": "maker/none"}, "has no repository maker/none"),
        ({"revision": "v9"}, f"no revision v9 of {REPO}"),
        ({"parts": (ModelFile(file="none.gguf"),)}, "has no none.gguf"),
    ],
)
def test_a_missing_repository_revision_or_file_is_named(
    machine: Machine, fields: dict[str, Any], message: str
) -> None:
    assert message in machine.fails(entry(**fields)).message


def test_errors_of_a_server_are_retried(machine: Machine) -> None:
    machine.hub.refusals = [Refusal(status=500)] * 2
    machine.hub.cdn_refusals = [Refusal(status=503)] * 3
    assert machine.pull().path.read_bytes() == DATA
    told = [label for label, _, _ in machine.reports if label.endswith("; trying again in 0 s")]
    assert len(told) == 5
    assert "(500)" in told[0]
    assert "(503)" in told[-1]


@pytest.mark.parametrize("status", [429, 503])
def test_retries_of_the_hub_end(machine: Machine, status: int) -> None:
    machine.hub.refusals = [Refusal(status=status)] * 9
    assert str(status) in machine.fails().message
    assert len(machine.hub.front.requests) == (1 if status == 429 else 4)


@pytest.fixture
def impatient(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A pull waits for 0.3 s."""
    machine.set(HF_HUB_DOWNLOAD_TIMEOUT="1")
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.3)
    return machine


@pytest.mark.parametrize("kind", ["cut", "stall"])
@pytest.mark.parametrize("after", [0, 1_500_000])
def test_a_broken_connection_is_continued(
    impatient: Machine, kind: Literal["cut", "stall"], after: int
) -> None:
    impatient.hub.faults = [Fault(kind=kind, after=after)]
    assert impatient.pull().path.read_bytes() == DATA
    assert impatient.hub.ranges == ["", f"bytes={after}-" if after else ""]


def test_a_silent_host_ends_in_a_time_out(impatient: Machine) -> None:
    part = impatient.begin(DATA[:1000])
    impatient.hub.faults = [Fault(kind="mute")] * 20
    error = impatient.fails()
    assert f"localhost:{impatient.hub.back.port}" in error.message
    assert "no answer in time" in error.message
    assert part.read_bytes() == DATA[:1000]
    assert len(impatient.hub.fetched) <= 6


def test_a_host_without_ranges_sends_the_whole_file(machine: Machine) -> None:
    machine.begin(b"x" * 1000)
    machine.hub.faults = [Fault(kind="no range")]
    assert machine.pull().path.read_bytes() == DATA


@pytest.mark.parametrize(
    ("case_name", "value", "message", "hint"),
    [
        ("size", len(DATA) + 100, "{bytes}", ""),
        ("size", 10**15, "1000000 GB do not fit", "HF_HOME"),
        ("location", "http://localhost:9/nothing", "localhost:9 cannot be reached", ""),
        ("location", "{url}/" + REPO + "/resolve/{commit}/" + FILE, "redirects", ""),
        *(
            ("location", where, "", "")
            for where in ("file:///etc/passwd", "http://[::1", "http://localhost:99999/")
        ),
        (
            "refusals",
            [Refusal(status=200, body=b"<html>log in</html>")],
            "not answer like a model hub",
            "",
        ),
        (
            "refusals",
            [Refusal(status=403, headers={"X-Error-Message": f"the token {TOKEN} is bad"})],
            "[key]",
            "",
        ),
        (
            "cdn_refusals",
            [Refusal(status=403, body=f"no, {TOKEN}".encode())] * 9,
            "{hub} redirects to {bytes} for",
            "HF_ENDPOINT",
        ),
    ],
)
def test_each_fault_of_a_host_is_explained(
    impatient: Machine, case_name: str, value: object, message: str, hint: str
) -> None:
    """The host that is to blame is named, whatever it says, and nothing is put into the cache."""
    server = impatient.hub
    names = {"url": server.url, "hub": server.url[7:], "bytes": f"localhost:{server.back.port}"}
    names["commit"] = server.repos[REPO].revisions["main"]
    setattr(server, case_name, value.format_map(names) if isinstance(value, str) else value)
    error = impatient.fails()
    assert message.format_map(names) in error.message
    assert hint in error.hint
    assert "s3cret" not in error.message
    assert impatient.files() == []


def test_a_401_without_a_token_says_how_to_log_in(machine: Machine) -> None:
    machine.set(HF_TOKEN=None)
    machine.hub.refusals = [Refusal(status=401)]
    error = machine.fails()
    assert "or requires one" in error.message
    assert "hf auth login" in error.hint


@pytest.mark.parametrize(
    ("environ", "message", "hint"),
    [
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "127.0.0.1:9 cannot be reached", "network"),
        ({"HF_ENDPOINT": "huggingface.co"}, "", "HF_ENDPOINT"),
        ({"HF_ENDPOINT": "ftp://me:secret@x"}, "", "HF_ENDPOINT"),
        (
            {"HF_ENDPOINT": "https://hub.test", "HTTPS_PROXY": "http://127.0.0.1:9"},
            "hub.test",
            "HTTPS_PROXY",
        ),
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE", "import"),
        ({"HF_TOKEN": "hf_secretträger"}, "invalid characters", "hf auth login"),
    ],
)
def test_an_environment_that_reaches_no_hub_is_explained(
    machine: Machine, environ: dict[str, str], message: str, hint: str
) -> None:
    machine.set(**environ)
    error = machine.fails()
    assert message in error.message
    assert "secret" not in error.message
    assert hint in f"{error.message} {error.hint}"
    assert machine.hub.front.requests == []


def test_a_variable_that_the_library_cannot_read_is_an_error_of_the_settings(
    machine: Machine,
) -> None:
    machine.monkeypatch.setenv("HF_ENDPOINT", "http://me:secret@[::1")
    with machine.process() as process:
        _, problem = process.communicate()
    assert "ConfigError: a variable of the hub is invalid" in problem
    assert "secret" not in problem.splitlines()[-1]


def test_downloads_use_the_proxy_of_the_environment(machine: Machine) -> None:
    machine.set(HF_ENDPOINT="http://hub.test", HTTP_PROXY=machine.hub.url)
    assert machine.pull().path.read_bytes() == DATA
    assert all(
        request.path.startswith("http://hub.test/") for request in machine.hub.front.requests
    )


@pytest.mark.parametrize("where", ["HF_TOKEN", "file"])
def test_the_token_is_sent_to_the_hub_only(machine: Machine, where: str) -> None:
    if where == "file":
        machine.set(HF_TOKEN=None)
        (machine.home / "hf").mkdir()
        (machine.home / "hf/token").write_text(f"{TOKEN}\n")
    machine.pull()
    assert {request.headers.get("authorization") for request in machine.hub.front.requests} == {
        f"Bearer {TOKEN}"
    }
    assert [request.headers.get("authorization") for request in machine.hub.fetched] == [None]
    assert TOKEN not in str(machine.reports)


def test_a_token_that_has_expired_is_left_out_where_none_is_needed(machine: Machine) -> None:
    machine.hub.expired = TOKEN
    assert machine.pull().path.read_bytes() == DATA
    told = [label for label in machine.labels if "token" in label]
    host = machine.hub.url.removeprefix("http://")
    assert told == [f"{host} rejects your token (401), and gives {REPO} without one"]
    machine.hub.token = "another"  # and now one is needed
    error = machine.fails(entry(revision="v2"))
    assert "rejects the token" in error.message
    assert "expired" in error.hint


def test_an_offline_pull_uses_the_cache_and_has_no_hash_source(machine: Machine) -> None:
    library_download()
    request_count = len(machine.hub.front.requests)
    machine.set(HF_HUB_OFFLINE="1")
    manifest = machine.pull()
    assert (manifest.files[0].sha256, manifest.hash_source, manifest.endpoint) == (
        sha256(DATA),
        "file",
        "",
    )
    assert len(machine.hub.front.requests) == request_count
    (repo_folder(REPO) / "blobs" / sha256(DATA)).write_bytes(OTHER)
    machine.remove(entry())
    assert "is incomplete" in machine.fails().message


@pytest.mark.parametrize(
    "listing",
    [
        {"sha": "../../../x"},
        {"siblings": None},
        {"siblings": [{"rfilename": FILE, "size": 5, "blobId": "../../x"}]},
        {"siblings": [{"rfilename": FILE, "size": "x", "blobId": "0" * 40}]},
        {"siblings": [{"rfilename": FILE, "lfs": {"sha256": "../x"}}]},
    ],
)
def test_a_list_of_files_that_makes_no_sense_is_rejected(
    machine: Machine, listing: dict[str, Any]
) -> None:
    machine.hub.listing = listing
    assert "not answer like a model hub" in machine.fails().message
    assert machine.hub.fetched == []


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no limit for files")
def test_a_disk_that_fills_up_ends_the_pull(machine: Machine) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    try:
        assert "is full" in machine.fails().message
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert machine.pull().path.read_bytes() == DATA
    assert machine.hub.ranges[0] == ""
    assert machine.hub.ranges[1].startswith("bytes=")


def test_an_unwritable_cache_is_named(machine: Machine) -> None:
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
    def report(label: str, done: int, total: int) -> None:
        machine.report(label, done, total)
        if label.startswith("waiting"):
            machine.hub.go_on.set()

    machine.hub.faults = [Fault(kind="hold", after=1_500_000)]
    with machine.process() as first:
        wait_for_bytes(machine, 1 << 20)
        second = pull_model(entry(), machine.store, report)
        assert first.communicate()[0].splitlines()[-1] == str(second.path)
    assert machine.labels == [
        f"waiting for another process that downloads from {REPO}",
        f"checking {FILE}",
    ]
    assert second.path.read_bytes() == DATA
    assert machine.hub.ranges == [""]


def test_a_killed_pull_is_continued(machine: Machine) -> None:
    machine.hub.faults = [Fault(kind="hold", after=1_500_000)]
    with machine.process() as process:
        wait_for_bytes(machine, 1 << 20)
        with pytest.raises(ConductorUnusable, match="is being pulled"):
            machine.remove(entry())
        process.kill()
        process.communicate()
    assert machine.hub.fetched[0].closed.wait(30)
    assert machine.files() == []
    assert machine.pull().path.read_bytes() == DATA
    continued_at = int(machine.hub.ranges[1].removeprefix("bytes=").removesuffix("-"))
    assert continued_at >= 1 << 20


def test_an_estimate_sends_no_request(machine: Machine) -> None:
    listed = entry(ModelFile(file=FILE, size=len(DATA), sha256=sha256(DATA)))
    assert cache_directory() == machine.home / "hf/hub"
    assert missing_bytes(listed) == len(DATA)
    machine.begin(DATA[:500_000])
    assert missing_bytes(listed) == len(DATA) - 500_000
    assert machine.pull(listed).hash_source == "registry"
    request_count = len(machine.hub.front.requests)
    assert missing_bytes(listed) == 0
    assert len(machine.hub.front.requests) == request_count


def test_a_password_in_the_endpoint_is_not_shown(machine: Machine) -> None:
    machine.set(HF_ENDPOINT="https://me:secret@mirror.test/")
    assert shown_endpoint() == "https://mirror.test"


def test_without_links_the_snapshot_holds_the_file(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
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
