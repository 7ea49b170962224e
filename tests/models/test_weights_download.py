"""Pulling models from a hub on loopback into a cache that the hub's own library reads."""

from __future__ import annotations

import json
import os
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
from typing import Any

import pytest

from conductor_cli.core.errors import ConductorUnusable
from conductor_cli.models.weights.cache import Cache
from conductor_cli.models.weights.download import estimate_pull, pull_model
from conductor_cli.models.weights.http_download import RetryPolicy
from conductor_cli.models.weights.hub import OFFICIAL
from conductor_cli.models.weights.hub import Hub as Address
from conductor_cli.models.weights.model_store import Manifest, ModelStore
from conductor_cli.models.weights.progress import Progress
from conductor_cli.models.weights.registry import RegistryFile, RegistryModel
from conductor_cli.models.weights.removal import Removal, bytes_freed, plan_removal, remove_model, unfinished_files
from tests.hub import Fault, Hub, Refusal, gated, git_hash, hub, sha256

REPO = "maker/model"
FILE = "model-q4.gguf"
TOKEN = "hf_verysecrettoken"


def model(number: int, size: int, **split: int) -> bytes:
    """A GGUF of one tensor; what follows is drawn. `split` are the keys of a divided one."""

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
QUICK = RetryPolicy(stall=20.0, waits=(0.0, 0.0, 0.0))


def entry(*parts: RegistryFile, **more: Any) -> RegistryModel:
    told: dict[str, Any] = {
        "name": "tiny", "repo": REPO, "revision": "main", "licence": "Apache-2.0", "about": "", "memory": 0,
    }  # fmt: skip
    return RegistryModel(**(told | {"parts": parts or (RegistryFile(file=FILE),)} | more))


@dataclass
class Desk:
    """A user before a hub, with a cache and a store of their own."""

    hub: Hub
    home: Path
    environ: dict[str, str]
    told: list[Progress] = field(default_factory=list)

    @property
    def store(self) -> ModelStore:
        return ModelStore(self.home / "store")

    @property
    def cache(self) -> Cache:
        return Cache.from_environment(self.environ)

    @property
    def notes(self) -> list[str]:
        return [told.note for told in self.told if told.note]

    def pull(self, what: RegistryModel | None = None, pace: RetryPolicy = QUICK) -> Manifest:
        return pull_model(what or entry(), self.store, self.environ, self.told.append, pace)

    def remove(self, what: RegistryModel) -> Removal:
        return remove_model(what.name, self.store, what, self.cache)

    def fails(self, what: RegistryModel | None = None, pace: RetryPolicy = QUICK) -> ConductorUnusable:
        with pytest.raises(ConductorUnusable) as error:
            self.pull(what, pace)
        assert error.value.hint
        assert TOKEN not in f"{error.value.message}{error.value.hint}{self.told}"
        return error.value

    def begin(self, data: bytes, size: int, file: str = FILE) -> None:
        """As if a pull of `data` had stopped after so many bytes."""
        begun = self.cache.partial(REPO, file, sha256(data))
        begun.start(0)
        begun.part.write_bytes(data[:size])

    def process(self, pace: RetryPolicy = QUICK, before: str = "") -> subprocess.Popen[str]:
        """A pull in a process of its own. It prints what it is told, a line of JSON each."""
        code = PULL.format(before=before, store=str(self.store.directory), pace=pace, entry=entry())
        command = [sys.executable, "-c", code]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environ)

    def files(self, where: str = "blobs") -> list[str]:
        folder = self.cache.folder(REPO) / where
        return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


PULL = """
import dataclasses, json, os
from pathlib import Path
from conductor_cli.models.weights.download import pull_model
from conductor_cli.models.weights.http_download import RetryPolicy
from conductor_cli.models.weights.model_store import ModelStore
from conductor_cli.models.weights.registry import RegistryFile, RegistryModel
{before}
tell = lambda told: print(json.dumps(dataclasses.asdict(told)), flush=True)
print(pull_model({entry!r}, ModelStore(Path({store!r})), os.environ, tell, {pace!r}).path)
"""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with hub() as server:
        server.commit(REPO, {FILE: DATA})
        ours = {"HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": server.url, "HF_TOKEN": TOKEN}
        environ = dict(os.environ) | ours | {"NO_PROXY": "127.0.0.1,localhost"}
        yield Desk(hub=server, home=tmp_path, environ=environ)


def test_a_first_pull_ends_in_the_hubs_cache(desk: Desk) -> None:
    """The file lies among the blobs under its SHA-256, in the snapshot under its name; nothing else is left."""
    manifest = desk.pull()
    commit = desk.hub.repos[REPO].revisions["main"]
    folder = desk.cache.folder(REPO)
    assert manifest.path == folder / "snapshots" / commit / FILE
    assert manifest.path.read_bytes() == DATA
    assert manifest.path.resolve() == (folder / "blobs" / sha256(DATA)).resolve()
    assert (folder / "refs/main").read_text() == commit
    assert sorted(path.name for path in folder.iterdir()) == ["blobs", "refs", "snapshots"]
    assert len(desk.hub.fetched) == 1


def test_the_manifest_says_what_came_from_where(desk: Desk) -> None:
    """It has size, SHA-256, commit and endpoint, and is stored; a hub at another address vouches as a mirror."""
    manifest = desk.pull()
    assert desk.store.find("tiny") == manifest
    assert (manifest.files[0].size, manifest.files[0].sha256) == (len(DATA), sha256(DATA))
    assert manifest.source == f"hub:{REPO}@{desk.hub.repos[REPO].revisions['main']}"
    assert (manifest.endpoint, manifest.hash_source) == (desk.hub.url, "hub")
    assert (manifest.licence, manifest.profile, manifest.base) == ("Apache-2.0", "prompted", "")


def test_a_hash_of_the_registry_vouches_by_itself(desk: Desk) -> None:
    """Through whatever mirror it came, a file with the registry's SHA-256 is what it should be."""
    assert desk.pull(entry(RegistryFile(file=FILE, size=len(DATA), sha256=sha256(DATA)))).hash_source == "registry"


def test_what_goes_on_is_told(desk: Desk) -> None:
    """Asking, fetching, checking and storing are told in this order, the bytes up to the last one."""
    desk.pull()
    stages = list(dict.fromkeys(told.stage for told in desk.told))
    assert stages == ["asking", "fetching", "checking", "storing"]
    assert {told.file for told in desk.told} == {FILE}
    checked = [told.done for told in desk.told if told.stage == "checking"]
    assert checked[-1] == len(DATA)
    assert desk.notes == []


LIBRARY = "from huggingface_hub import hf_hub_download, scan_cache_dir; "


def library(desk: Desk, code: str) -> str:
    """What the hub's own library says, in a process of its own."""
    command = [sys.executable, "-c", LIBRARY + code]
    return subprocess.run(command, env=desk.environ, check=True, capture_output=True, text=True).stdout.strip()


def test_the_hubs_library_finds_what_was_pulled(desk: Desk) -> None:
    """It knows the file without asking the hub, and finds its cache in order."""
    manifest = desk.pull()
    found = library(desk, f"print(hf_hub_download({REPO!r}, {FILE!r}, local_files_only=True))")
    assert Path(found) == manifest.path
    assert library(desk, "s = scan_cache_dir(); print(len(s.repos), s.warnings, s.size_on_disk)") == f"1 [] {len(DATA)}"


@pytest.mark.parametrize("known", ["", sha256(DATA)], ids=["unknown hash", "known hash"])
def test_what_the_hubs_library_fetched_is_used(desk: Desk, known: str) -> None:
    """A file that any other tool brought into the cache is checked and used; nothing is fetched or stored twice."""
    found = library(desk, f"print(hf_hub_download({REPO!r}, {FILE!r}))")
    asked, fetched = len(desk.hub.front.requests), len(desk.hub.fetched)
    assert desk.pull(entry(RegistryFile(file=FILE, sha256=known))).path == Path(found)
    assert len(desk.hub.fetched) == fetched
    assert (len(desk.hub.front.requests) > asked) == (not known)  # without a hash the hub is asked for one
    assert desk.files() == [sha256(DATA)]


def test_a_second_pull_asks_nobody(desk: Desk) -> None:
    """A file that is pinned and there is read and checked, without a request."""
    first = desk.pull()
    asked = len(desk.hub.front.requests)
    desk.told.clear()
    again = desk.pull()
    assert (again.files, again.source, again.hash_source) == (first.files, first.source, first.hash_source)
    assert len(desk.hub.front.requests) == asked
    assert {told.stage for told in desk.told} == {"checking"}


def test_who_vouched_stays_in_the_manifest(desk: Desk) -> None:
    """A file from a mirror that is found again without asking is not said to come from the hub."""
    desk.pull()
    del desk.environ["HF_ENDPOINT"]
    manifest = desk.pull()
    assert (manifest.hash_source, manifest.endpoint) == ("hub", desk.hub.url)


def test_a_file_that_nobody_vouched_for_is_said_to_be_that(desk: Desk) -> None:
    """Found in the cache of another tool while offline, without a hash to compare it with: its trust is its own."""
    library(desk, f"hf_hub_download({REPO!r}, {FILE!r})")
    desk.environ["HF_HUB_OFFLINE"] = "1"
    manifest = desk.pull()
    assert (manifest.hash_source, manifest.endpoint) == ("file", "")


def test_what_another_tool_fetched_is_not_removed(desk: Desk) -> None:
    """A file that was in the cache before the pull stays there when the model is taken out of the model store."""
    found = Path(library(desk, f"print(hf_hub_download({REPO!r}, {FILE!r}))"))
    desk.pull()
    gone = desk.remove(entry())
    assert (gone.names, gone.freed, gone.kept) == ((), 0, (found,))
    assert found.read_bytes() == DATA
    assert desk.store.manifests() == ()


def test_what_a_pull_fetched_is_removed(desk: Desk) -> None:
    """Also when a later pull found it, and wrote the manifest anew; the other model's first, it stays for this one."""
    desk.pull()
    desk.pull(entry(name="other"))
    desk.pull()
    assert desk.remove(entry()).freed == 0
    assert desk.remove(entry(name="other")).freed == len(DATA)
    assert not desk.cache.folder(REPO).exists()


def test_what_a_stopped_pull_fetched_is_removed(desk: Desk) -> None:
    """A pull that ended between two files leaves no manifest; the next one knows all the same whose the first is."""
    names = ["big-00001-of-00002.gguf", "big-00002-of-00002.gguf"]
    desk.hub.commit(REPO, dict(zip(names, HALVES, strict=True)))
    big = entry(*(RegistryFile(file=name) for name in names), name="big")

    def stop(progress: Progress) -> None:
        if progress.file == names[1]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull_model(big, desk.store, desk.environ, stop, QUICK)
    desk.pull(big)
    assert len(desk.hub.fetched) == 2
    assert desk.remove(big).freed == sum(map(len, HALVES))
    assert not desk.cache.folder(REPO).exists()


def test_a_damaged_file_in_the_cache_is_fetched_again(desk: Desk) -> None:
    """One flipped byte is found, and the good file takes the place of the bad one."""
    path = desk.pull().path
    damaged = bytearray(DATA)
    damaged[1_000_000] ^= 1
    path.resolve().write_bytes(damaged)
    assert desk.pull().path.read_bytes() == DATA
    assert desk.files() == [sha256(DATA)]


@pytest.mark.parametrize("begun", [1, 65_536, 1_000_000, len(DATA) - 1, len(DATA)])
def test_a_pull_goes_on_where_one_stopped(desk: Desk, begun: int) -> None:
    """Only the bytes that are missing are asked for, and the whole is checked."""
    desk.begin(DATA, begun)
    assert desk.pull().path.read_bytes() == DATA
    assert desk.hub.ranges == ([f"bytes={begun}-"] if begun < len(DATA) else [])
    assert desk.files(".conductor-llm") == []


def test_a_part_of_another_content_is_not_continued(desk: Desk) -> None:
    """When the file was changed at the hub since, what was begun is dropped."""
    desk.begin(OTHER, 1_000_000)
    assert desk.pull().path.read_bytes() == DATA
    assert desk.hub.ranges == [""]


def test_a_part_that_is_longer_than_the_file_is_dropped(desk: Desk) -> None:
    """What cannot be the beginning of the file is not asked about."""
    desk.begin(DATA + b"more", len(DATA) + 4)
    assert desk.pull().path.read_bytes() == DATA
    assert desk.hub.ranges == [""]


def test_a_wrong_beginning_is_fetched_again_from_zero(desk: Desk) -> None:
    """When the hash is wrong after a part was continued, it is deleted and fetched once more."""
    desk.begin(DATA, 0)
    desk.cache.partial(REPO, FILE).part.write_bytes(OTHER[:500_000])
    assert desk.pull().path.read_bytes() == DATA
    assert desk.hub.ranges == ["bytes=500000-", ""]


def test_wrong_bytes_are_refused_with_both_hashes(desk: Desk) -> None:
    """They are deleted, get no name in the cache, and the files that were there stay."""
    kept = desk.pull(entry(name="kept")).path
    desk.hub.commit(REPO, {"other.gguf": OTHER})
    desk.hub.faults = [Fault(kind="wrong")]
    error = desk.fails(entry(RegistryFile(file="other.gguf")))
    assert sha256(OTHER) in error.message
    assert sha256(bytes(byte ^ 1 for byte in OTHER)) in error.message
    assert desk.files() == [sha256(DATA)]
    assert desk.files(".conductor-llm") == []
    assert kept.read_bytes() == DATA
    assert desk.store.find("tiny") is None


def test_wrong_bytes_after_a_part_are_tried_once_more_and_refused(desk: Desk) -> None:
    """A host that has other bytes than the hub says is not asked for ever."""
    desk.begin(DATA, 500_000)
    desk.hub.faults = [Fault(kind="wrong"), Fault(kind="wrong")]
    assert "hash" in desk.fails().message
    assert desk.hub.ranges == ["bytes=500000-", ""]


def test_a_hash_that_the_registry_knows_is_compared_before_a_byte_is_fetched(desk: Desk) -> None:
    """A hub or mirror that has another file is refused by its own word."""
    error = desk.fails(entry(RegistryFile(file=FILE, sha256=sha256(OTHER))))
    assert sha256(OTHER) in error.message
    assert sha256(DATA) in error.message
    assert desk.hub.fetched == []


def test_a_size_that_the_registry_knows_is_compared_before_a_byte_is_fetched(desk: Desk) -> None:
    """A file of another size is not fetched; both sizes are named."""
    error = desk.fails(entry(RegistryFile(file=FILE, size=123_456)))
    assert "123,456" in error.message
    assert f"{len(DATA):,}" in error.message
    assert desk.hub.fetched == []


@pytest.mark.parametrize("fault", ["", "more"])
def test_a_host_with_another_size_than_the_hub_says_is_named(desk: Desk, fault: str) -> None:
    """A hub that says one size and a host that sends another do not end in a file."""
    desk.hub.faults = [Fault(kind="more")] * 9 if fault else []
    desk.hub.size = None if fault else len(DATA) + 100
    error = desk.fails()
    assert f"localhost:{desk.hub.back.port}" in error.message
    assert f"{len(DATA):,}" in error.message
    assert desk.files() == []


def test_a_pin_is_kept_and_a_changed_file_is_refused(desk: Desk) -> None:
    """What the hub said at the first pull counts from then on: another hash is an error, and nothing is replaced."""
    desk.pull()
    desk.hub.commit(REPO, {FILE: OTHER})
    assert desk.pull().files[0].sha256 == sha256(DATA)  # the hub is not even asked
    shutil.rmtree(desk.cache.folder(REPO) / "snapshots")
    error = desk.fails()
    assert sha256(OTHER) in error.message
    assert sha256(DATA) in error.message
    assert desk.files() == [sha256(DATA)]
    assert [found.hashes for found in desk.store.manifests()] == [[sha256(DATA)]]


def test_a_new_commit_with_the_same_file_fetches_nothing(desk: Desk) -> None:
    """The same bytes in another commit get a second name, not a second copy."""
    desk.pull()
    shutil.rmtree(desk.cache.folder(REPO) / "snapshots")
    commit = desk.hub.commit(REPO, {"README.md": b"changed"})
    manifest = desk.pull()
    assert manifest.source.endswith(commit)
    assert len(desk.hub.fetched) == 1


def test_a_divided_model_is_one_manifest_with_its_parts_side_by_side(desk: Desk) -> None:
    """All parts are of one commit and lie in one directory, even if the branch moves in between."""
    names = [f"big-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    contents = [model(number, 300_000 + number, no=number, count=3) for number in range(3)]
    first = desk.hub.commit(REPO, dict(zip(names, contents, strict=True)))
    told: list[Progress] = []

    def tell(progress: Progress) -> None:
        told.append(progress)
        if progress.stage == "storing" and progress.file == names[0]:
            desk.hub.commit(REPO, {names[1]: b"x" * 5000})

    manifest = pull_model(entry(*(RegistryFile(file=name) for name in names)), desk.store, desk.environ, tell, QUICK)
    assert [file.path.name for file in manifest.files] == names
    assert {file.path.parent.name for file in manifest.files} == {first}
    assert [file.path.read_bytes() for file in manifest.files] == contents
    assert desk.store.find("tiny") == manifest


NO_MODELS = {
    "a web page": b"<!doctype html><title>Please log in</title>" + bytes(5000),
    "random bytes": random.Random(5).randbytes(300_000),
    "half a header": DATA[:40] + bytes(3000),
    "a further part": model(6, 5000, no=1, count=2),
    "one part of two": model(7, 5000, no=0, count=2),
}


@pytest.mark.parametrize("content", NO_MODELS.values(), ids=NO_MODELS)
def test_what_is_no_model_is_not_pinned(desk: Desk, content: bytes) -> None:
    """Where only the hub vouches for a file, it has to be a GGUF, and whole, before its hash is believed."""
    desk.hub.commit(REPO, {FILE: content})
    error = desk.fails()
    assert f"{FILE} of {REPO}" in error.message
    assert str(desk.home) not in error.message
    assert "was not saved" in error.hint
    assert (desk.files(), desk.files(".conductor-llm"), desk.store.manifests()) == ([], [], ())
    desk.hub.commit(REPO, {FILE: DATA})
    assert desk.pull().path.read_bytes() == DATA


def test_what_is_no_model_in_the_cache_of_another_tool_is_not_pinned(desk: Desk) -> None:
    """Neither with the hub's word for it nor offline; the file stays."""
    desk.hub.commit(REPO, {FILE: b"no model" * 1000})
    library(desk, f"hf_hub_download({REPO!r}, {FILE!r})")
    for offline in ({}, {"HF_HUB_OFFLINE": "1"}):
        desk.environ |= offline
        assert "is not a GGUF file" in desk.fails().message
        assert desk.store.find("tiny") is None
    assert desk.files() == [sha256(b"no model" * 1000)]


def test_an_adapter_is_no_model_and_no_adapter_a_model(desk: Desk) -> None:
    """An entry with a base has to be an adapter."""
    assert "an adapter was expected" in desk.fails(entry(base="other")).message


def test_a_part_that_is_none_is_named_and_the_first_one_stays(desk: Desk) -> None:
    """Of two parts the second is none: nothing is in the model store, and what came of the first can be taken away."""
    names = ["big-00001-of-00002.gguf", "big-00002-of-00002.gguf"]
    desk.hub.commit(REPO, {names[0]: HALVES[0], names[1]: HALVES[0][:-1]})
    big = entry(*(RegistryFile(file=name) for name in names), name="big")
    assert f"{names[1]} of {REPO}" in desk.fails(big).message
    assert desk.store.find("big") is None
    assert bytes_freed(unfinished_files(big, desk.store, desk.cache)) == len(HALVES[0])
    assert desk.remove(big).freed == len(HALVES[0])
    assert not desk.cache.folder(REPO).exists()


def test_what_was_begun_is_known_and_taken_away(desk: Desk) -> None:
    """The bytes so far, and nothing of other files; a second time there is nothing."""
    kept = desk.pull(entry(name="kept")).path
    what = entry(RegistryFile(file="other.gguf"))
    desk.begin(OTHER, 700_000, "other.gguf")
    found = plan_removal(what.name, desk.store, what, desk.cache)
    assert found.freed == 700_000
    assert desk.remove(what) == found
    assert desk.remove(what) == Removal()
    assert desk.files(".conductor-llm") == []
    assert kept.read_bytes() == DATA


def test_what_is_being_pulled_is_not_taken_away(desk: Desk) -> None:
    """While another process brings the file, that is said, and its bytes stay."""
    desk.hub.faults = [Fault(kind="hold", after=500_000)]
    with desk.process() as process:
        wait_for_bytes(desk, 100_000)
        with pytest.raises(ConductorUnusable, match="is being pulled"):
            desk.remove(entry())
        desk.hub.go_on.set()
        process.communicate()
    assert desk.pull().path.read_bytes() == DATA


def test_a_small_file_is_checked_by_its_git_hash(desk: Desk) -> None:
    """What the hub keeps in git has no SHA-256 there; its other hash is compared, and a wrong one refused."""
    desk.hub.commit(REPO, {"config.json": b'{"r": 8}'})
    manifest = desk.pull(entry(RegistryFile(file="config.json")))
    assert manifest.path.resolve().name == git_hash(b'{"r": 8}')
    assert manifest.files[0].sha256 == sha256(b'{"r": 8}')
    desk.hub.commit(REPO, {"other.json": b'{"r": 9}'})
    desk.hub.etag = "0" * 40
    assert "0" * 40 in desk.fails(entry(RegistryFile(file="other.json"))).message


def test_a_mirror_without_a_hash_is_taken_by_size_and_pinned(desk: Desk) -> None:
    """An ETag that is no hash proves nothing; what came is pinned, and stored under its own SHA-256."""
    desk.hub.etag = "5f3c-12"
    manifest = desk.pull()
    assert manifest.path.resolve().name == sha256(DATA)
    assert manifest.hashes == [sha256(DATA)]


REFUSALS = [
    pytest.param(Refusal(status=401), "rejects the token", "token", id="401"),
    pytest.param(gated(), "gated", "accept its licence at", id="403 gated"),
    pytest.param(Refusal(status=403), "denies access to", "token", id="403"),
    pytest.param(Refusal(status=404), f"has no {FILE}", "HF_ENDPOINT", id="404"),
    pytest.param(Refusal(status=429, headers={"Retry-After": "3600"}), "3600 s", "try again later", id="429"),
    pytest.param(Refusal(status=429, headers={"ratelimit": '"api";r=0;t=290'}), "290 s", "again", id="429 of the hub"),
    pytest.param(Refusal(status=407), "proxy", "HTTPS_PROXY", id="407"),
    pytest.param(Refusal(status=451), "refuses", "HF_ENDPOINT", id="451"),
]


@pytest.mark.parametrize(("refusal", "message", "hint"), REFUSALS)
def test_each_refusal_says_what_happened_and_what_to_do(desk: Desk, refusal: Refusal, message: str, hint: str) -> None:
    """An error of the hub names the status, the reason and the next step."""
    desk.hub.refusals = [refusal] * 9
    error = desk.fails()
    assert message in error.message
    assert str(refusal.status) in error.message
    assert hint in error.hint
    assert error.exit_code == 5


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"repo": "maker/none"}, "has no repository maker/none"),
        ({"revision": "v9"}, "no revision v9"),
        ({"parts": (RegistryFile(file="none.gguf"),)}, "has no none.gguf"),
    ],
)
def test_what_the_hub_does_not_have_is_named(desk: Desk, more: dict[str, Any], message: str) -> None:
    """A repository, a revision and a file that are not there are told apart."""
    assert message in desk.fails(entry(**more)).message


def test_without_a_token_the_way_to_one_is_named(desk: Desk) -> None:
    """Whoever has sent no token hears how to."""
    del desk.environ["HF_TOKEN"]
    desk.hub.refusals = [Refusal(status=401)]
    error = desk.fails()
    assert "requires a token" in error.message
    assert "HF_TOKEN" in error.hint
    assert "hf auth login" in error.hint


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_passes_is_tried_again(desk: Desk, status: int) -> None:
    """Too many requests, and a server that is not able now, are asked again, and the note says so."""
    desk.hub.refusals = [Refusal(status=status, headers={"Retry-After": "0"})] * 2
    assert desk.pull().path.read_bytes() == DATA
    assert [note.partition(":")[0] for note in desk.notes[:1]] == [desk.hub.url[7:].partition(":")[0]]
    assert f"answers {status}: trying again in 0 s" in desk.notes[0]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_does_not_pass_ends(desk: Desk, status: int) -> None:
    """A server that is never able is given up after a few tries."""
    desk.hub.refusals = [Refusal(status=status)] * 9
    assert str(status) in desk.fails().message
    assert len(desk.hub.front.requests) == 1 + len(QUICK.waits)


def test_an_error_of_the_host_that_has_the_bytes_is_tried_again(desk: Desk) -> None:
    """A host that answers 503 is asked again until it passes."""
    desk.hub.cdn_refusals = [Refusal(status=503)] * 3
    assert desk.pull().path.read_bytes() == DATA
    assert desk.notes == [f"localhost:{desk.hub.back.port} answers 503: trying again in 0 s"] * 3


def test_a_mirror_whose_host_refuses_the_bytes_is_told_from_its_host(desk: Desk) -> None:
    """The error names who said where the bytes are, and who does not give them."""
    desk.hub.cdn_refusals = [Refusal(status=403, body=f"no, {TOKEN}".encode())] * 9
    error = desk.fails()
    assert f"{desk.hub.url[7:]} redirects to localhost:{desk.hub.back.port}" in error.message
    assert "403" in error.message
    assert "HF_ENDPOINT" in error.hint


def test_a_host_of_the_bytes_that_is_not_there_is_named(desk: Desk) -> None:
    """A redirect to nowhere blames the host it leads to."""
    desk.hub.location = "http://localhost:9/nothing"
    error = desk.fails()
    assert "localhost:9" in error.message
    assert "cannot be reached" in error.message


def test_a_hub_that_is_not_there_is_named_at_once(desk: Desk) -> None:
    """Without a network nothing is tried for long."""
    desk.environ["HF_ENDPOINT"] = "http://127.0.0.1:9"
    error = desk.fails()
    assert "127.0.0.1:9 cannot be reached" in error.message
    assert "network" in error.hint
    assert desk.notes == []


def test_an_address_that_is_none_is_refused(desk: Desk) -> None:
    """HF_ENDPOINT is named when it is wrong."""
    desk.environ["HF_ENDPOINT"] = "huggingface.co"
    assert "HF_ENDPOINT" in desk.fails().message


@pytest.mark.parametrize(
    "address", ["http://localhost:abc", "http://localhost:99999", "http://", "ftp://x", "http://a b", "http://[::1"]
)
def test_an_address_that_cannot_be_asked_names_its_variable(desk: Desk, address: str) -> None:
    """A port that is none, and the like: HF_ENDPOINT is named with what to do, and a password in it is not shown."""
    desk.environ["HF_ENDPOINT"] = address.replace("//", "//me:secret@")
    error = desk.fails()
    assert error.message.startswith("HF_ENDPOINT is not a valid URL")
    assert "secret" not in error.message
    assert "unset it" in error.hint


@pytest.mark.parametrize("where", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "file"])
def test_a_token_that_cannot_be_sent_names_its_place(desk: Desk, where: str) -> None:
    """Characters that no token has, as from a text that was copied along: the variable or file, and what to do."""
    del desk.environ["HF_TOKEN"]
    path = desk.home / "hf/token"
    if where == "file":
        path.parent.mkdir()
        path.write_text("hf_geheimnisträger", encoding="utf-8")
    else:
        desk.environ[where] = "hf_geheimnisträger"
    error = desk.fails()
    assert (str(path) if where == "file" else where) in error.message
    assert "geheim" not in error.message
    assert "hf auth login" in error.hint
    assert desk.hub.front.requests == []


def test_a_server_that_is_no_hub_is_refused(desk: Desk) -> None:
    """A login page of a network answers everything with a good status, and no commit."""
    desk.hub.refusals = [Refusal(status=200, body=b"<html>log in</html>")]
    assert "not answer like a model hub" in desk.fails().message


def test_a_proxy_of_the_environment_is_used(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that only the proxy knows is asked, and its file fetched, through it."""
    desk.environ |= {"HF_ENDPOINT": "http://hub.test", "HTTP_PROXY": desk.hub.url}
    monkeypatch.setenv("HTTP_PROXY", desk.hub.url)
    assert desk.pull().path.read_bytes() == DATA
    assert all(seen.path.startswith("http://hub.test/") for seen in desk.hub.front.requests)


def test_a_proxy_that_is_not_there_is_named(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that cannot be reached through the proxy leads the user to the setting."""
    desk.environ |= {"HF_ENDPOINT": "https://hub.test", "HTTPS_PROXY": "http://127.0.0.1:9"}
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    error = desk.fails()
    assert "hub.test" in error.message
    assert "HTTPS_PROXY" in error.hint


@pytest.mark.parametrize("where", ["HF_TOKEN", "file"])
def test_the_token_goes_to_the_hub_and_to_nobody_else(desk: Desk, where: str) -> None:
    """Whether from the environment or from the file of `hf auth login`, it does not follow a redirect."""
    if where == "file":
        del desk.environ["HF_TOKEN"]
        (desk.home / "hf").mkdir()
        (desk.home / "hf/token").write_text(f"{TOKEN}\n")
    desk.pull()
    assert {seen.headers.get("authorization") for seen in desk.hub.front.requests} == {f"Bearer {TOKEN}"}
    assert [seen.headers.get("authorization") for seen in desk.hub.fetched] == [None]
    assert TOKEN not in str(desk.told)


def test_a_login_that_is_too_old_is_renewed(desk: Desk) -> None:
    """A login of the browser lasts hours only; the hub's library renews it, and the pull goes on with the new token."""
    del desk.environ["HF_TOKEN"]
    folder = desk.home / "hf"
    folder.mkdir()
    (folder / "token").write_text("hf_old")
    (folder / "stored_tokens").write_text("[me]\nhf_token = hf_old\nrefresh_token = again\nexpires_at = 1\n")
    desk.hub.token, desk.hub.logins = TOKEN, {"again": TOKEN}
    with desk.process() as process:  # the library reads its environment when it is imported
        path, problem = process.communicate()
    assert process.returncode == 0, problem
    assert Path(path.splitlines()[-1]).read_bytes() == DATA
    assert (folder / "token").read_text() == TOKEN


def test_a_token_that_cannot_be_renewed_is_refused(desk: Desk) -> None:
    """A token that the hub does not know is named as the reason."""
    desk.hub.token = "hf_another"
    assert "rejects the token" in desk.fails().message


def test_an_error_of_the_hub_does_not_echo_the_token(desk: Desk) -> None:
    """A hub that repeats the token in its message has it blotted out."""
    desk.hub.refusals = [Refusal(status=403, headers={"X-Error-Message": f"the token {TOKEN} is bad"})]
    assert "[key]" in desk.fails().message


def test_offline_and_there_it_is_used(desk: Desk) -> None:
    """With HF_HUB_OFFLINE a file in the cache is checked by the name it has there, and nobody is asked."""
    library(desk, f"hf_hub_download({REPO!r}, {FILE!r})")
    asked = len(desk.hub.front.requests)
    desk.environ["HF_HUB_OFFLINE"] = "1"
    assert desk.pull().files[0].sha256 == sha256(DATA)
    assert len(desk.hub.front.requests) == asked


def test_offline_and_damaged_it_is_refused(desk: Desk) -> None:
    """With HF_HUB_OFFLINE a file that is not what its name says is not used."""
    library(desk, f"hf_hub_download({REPO!r}, {FILE!r})")
    desk.cache.blob(REPO, sha256(DATA)).write_bytes(OTHER)
    desk.environ["HF_HUB_OFFLINE"] = "1"
    assert "is incomplete" in desk.fails().message


def test_offline_and_not_there_it_is_refused(desk: Desk) -> None:
    """With HF_HUB_OFFLINE nobody is asked for what is missing."""
    desk.environ["HF_HUB_OFFLINE"] = "1"
    error = desk.fails()
    assert "HF_HUB_OFFLINE" in error.message
    assert "import" in error.hint
    assert desk.hub.front.requests == []


BAD = [
    "../x.gguf",
    "/etc/x",
    "a/../../x",
    "a//b",
    "C:\\x",
    "C:x",
    "..\\x",
    "a\\b",
    "x\x00y",
    "",
    ".",
    "a/.",
    "a\nb",
    "a.",
]


@pytest.mark.parametrize("name", BAD)
def test_a_name_that_leads_out_is_refused(desk: Desk, name: str) -> None:
    """A file or revision of a registry cannot name a place outside of the cache; nobody is asked."""
    assert "is not a valid file name" in desk.fails(entry(RegistryFile(file=name))).message
    assert "is not a valid revision name" in desk.fails(entry(revision=name)).message
    with pytest.raises(ConductorUnusable):
        estimate_pull(entry(RegistryFile(file=name)), desk.environ)
    assert desk.hub.front.requests == []


@pytest.mark.parametrize(
    "repo", ["../model", "maker/../x", "maker/a/b", "/maker/model", "maker--x/model", "maker/..", ""]
)
def test_a_repository_that_leads_out_is_refused(desk: Desk, repo: str) -> None:
    """A repository has a maker and a name, and neither can lead anywhere."""
    assert "is not a valid repository name" in desk.fails(entry(repo=repo)).message


@pytest.mark.parametrize("header", [{"X-Repo-Commit": "../../../x"}, {"ETag": '"../../x"'}, {"ETag": '"a/b"'}])
def test_a_hub_that_names_a_place_outside_is_refused(desk: Desk, header: dict[str, str]) -> None:
    """Commit and hash of the hub become names of files, so they are not believed either."""
    good = {"X-Repo-Commit": "0" * 40, "ETag": '"0"', "Content-Length": "0"}
    desk.hub.refusals = [Refusal(status=200, headers=good | header)]
    assert "not answer like a model hub" in desk.fails().message


def test_a_disk_that_is_too_small_is_told_before_a_byte_is_fetched(desk: Desk) -> None:
    """What is still to come and what is free are named."""
    desk.hub.size = 10**15
    error = desk.fails()
    assert "1,000,000,000,000,000 more bytes do not fit" in error.message
    assert "HF_HOME" in error.hint
    assert desk.hub.fetched == []


LIMIT = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no limit for files")
def test_a_file_that_cannot_grow_ends_the_pull_and_is_continued(desk: Desk) -> None:
    """When the system takes no more bytes, that is said, it is not tried again, and the next pull continues."""
    with desk.process(before=LIMIT) as process:
        _, problem = process.communicate()
    assert "ConductorUnusable" in problem
    assert "is full" in problem
    assert len(desk.hub.fetched) == 1
    assert desk.pull().path.read_bytes() == DATA
    assert len(desk.hub.ranges) == 2
    assert desk.hub.ranges[1].startswith("bytes=")


def test_a_cache_that_cannot_be_written_is_named(desk: Desk) -> None:
    """A file where the directory should be is the user's to move away."""
    (desk.home / "hf").write_text("not a directory")
    error = desk.fails()
    assert "cannot write" in error.message
    assert "HF_HOME" in error.hint


def wait_for_bytes(desk: Desk, size: int) -> None:
    """Wait until so many bytes of the file are on the disk."""
    part = desk.cache.partial(REPO, FILE).part
    deadline = time.monotonic() + 60
    while not part.exists() or part.stat().st_size < size:
        assert time.monotonic() < deadline, "the bytes do not come"
        time.sleep(0.02)


def until(process: subprocess.Popen[str], **wanted: Any) -> None:
    """Read what a pull prints until it tells what is wanted: a stage, and so many bytes."""
    size = wanted.pop("done", 0)
    assert process.stdout is not None
    for line in process.stdout:
        told = json.loads(line)
        if wanted.items() <= told.items() and told["done"] >= size:
            return
    pytest.fail("the pull ended before")


def test_two_processes_end_in_one_file(desk: Desk) -> None:
    """The second waits for the first, says so, and finds the file: its bytes are fetched once."""
    desk.hub.faults = [Fault(kind="hold", after=1_000_000)]
    with desk.process() as first:
        wait_for_bytes(desk, 900_000)
        with desk.process() as second:
            until(second, stage="waiting", note="another process is downloading it")
            desk.hub.go_on.set()
            said = [process.communicate()[0].splitlines()[-1] for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0)
    assert said[0] == said[1]
    assert Path(said[0]).read_bytes() == DATA
    assert desk.hub.ranges == [""]


LOCK = """
import sys
import time
from huggingface_hub.utils import WeakFileLock
with WeakFileLock(sys.argv[1]):
    print("held", flush=True)
    input()
"""


def test_the_hubs_library_is_waited_for(desk: Desk) -> None:
    """While another tool fetches the same bytes into the same cache, a pull waits for its lock."""
    lock = desk.cache.blob_lock(REPO, sha256(DATA))
    lock.parent.mkdir(parents=True)
    command = [sys.executable, "-c", LOCK, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with desk.process() as process:
            until(process, stage="waiting", note="another tool is downloading it")
            assert desk.hub.fetched == []
            other.communicate("\n")
            process.communicate()
    assert process.returncode == 0
    assert len(desk.hub.fetched) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no such signals")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_pull_that_is_killed_is_continued(desk: Desk, number: signal.Signals) -> None:
    """However it ends, its child ends with it, no lock stays, and the next one asks for what is missing."""
    desk.hub.faults = [Fault(kind="hold", after=1_000_000)]
    with desk.process() as process:
        wait_for_bytes(desk, 900_000)
        process.send_signal(number)
        process.communicate()
    assert desk.hub.fetched[0].closed.wait(30)
    assert desk.files() == []
    assert desk.pull().path.read_bytes() == DATA
    begun = int(desk.hub.ranges[1].removeprefix("bytes=").removesuffix("-"))
    assert begun >= 900_000


def test_a_quote_asks_nobody(desk: Desk) -> None:
    """Before, in the middle and after: what is missing is known from the disk alone."""
    what = entry(RegistryFile(file=FILE, size=len(DATA), sha256=sha256(DATA)))
    before = estimate_pull(what, desk.environ)
    assert (before.missing, before.cached, before.directory) == (len(DATA), False, desk.home / "hf/hub")
    assert before.free > 0
    desk.begin(DATA, 500_000)
    assert estimate_pull(what, desk.environ).missing == len(DATA) - 500_000
    desk.pull(what)
    asked = len(desk.hub.front.requests)
    after = estimate_pull(what, desk.environ)
    assert (after.missing, after.cached) == (0, True)
    assert len(desk.hub.front.requests) == asked


ENVIRONMENTS: list[dict[str, str]] = [
    {},
    {"XDG_CACHE_HOME": "/x/cache"},
    {"HF_HOME": "~/hf"},
    {"HF_HOME": "$HOME/hf", "HF_TOKEN_PATH": "~/t"},
    {"HUGGINGFACE_HUB_CACHE": "/x/old"},
    {"HUGGINGFACE_HUB_CACHE": "/x/old", "HF_HUB_CACHE": "/x/new", "HF_HOME": "/x/home"},
]

CONSTANTS = "from huggingface_hub import constants as c; print(c.HF_HUB_CACHE); print(c.HF_TOKEN_PATH)"


@pytest.mark.parametrize("more", ENVIRONMENTS, ids=lambda more: " ".join(more) or "none")
def test_the_cache_is_where_the_hubs_library_has_it(more: dict[str, str], home: Path) -> None:
    """Each variable that moves the cache, or the file of the token, moves ours alike."""
    environ = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"} | more
    command = [sys.executable, "-c", CONSTANTS]
    said = subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout.splitlines()
    assert str(Cache.from_environment(environ).directory) == said[0]
    if str(home) in said[1]:
        Path(said[1]).parent.mkdir(parents=True, exist_ok=True)
        Path(said[1]).write_text("hf_of_the_file")
        assert Address.from_environment(environ).token == "hf_of_the_file"


def test_the_environment_says_who_we_are() -> None:
    """HF_TOKEN is taken without its line break, and not where it is switched off; the official hub is the default."""
    assert Address.from_environment({"HF_TOKEN": " hf_a\n"}).token == "hf_a"
    assert Address.from_environment({"HF_TOKEN": "hf_a", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}).token == ""
    assert Address.from_environment({}).endpoint == OFFICIAL
    assert Address.from_environment({"HF_ENDPOINT": "https://me:secret@mirror.test/"}).shown == "https://mirror.test"
    assert "hf_a" not in repr(Address.from_environment({"HF_TOKEN": "hf_a"}))


@pytest.mark.parametrize("before", [False, True])
def test_without_links_the_file_itself_is_in_the_snapshot(desk: Desk, before: bool) -> None:
    """Where the system has no links, or they are switched off, there is still one copy, and it is found again."""
    desk.environ["HF_HUB_DISABLE_SYMLINKS"] = "1"
    if before:
        library(desk, f"hf_hub_download({REPO!r}, {FILE!r})")
    fetched = len(desk.hub.fetched)
    path = desk.pull().path
    assert not path.is_symlink()
    assert path.read_bytes() == DATA
    assert desk.files() == []
    assert desk.pull().path == path
    assert len(desk.hub.fetched) == fetched + (not before)


def test_without_links_other_snapshots_keep_their_file(desk: Desk) -> None:
    """A blob of another tool, with links to it, is not moved when links are switched off later."""
    first = Path(library(desk, f"print(hf_hub_download({REPO!r}, {FILE!r}))"))
    assert first.is_symlink()
    desk.hub.commit(REPO, {"README.md": b"changed"})
    desk.environ["HF_HUB_DISABLE_SYMLINKS"] = "1"
    second = desk.pull().path
    assert second.parent != first.parent
    assert not second.is_symlink()
    assert [path.read_bytes() for path in (first, second)] == [DATA, DATA]
    assert len(desk.hub.fetched) == 1
