"""The three ways of a file's bytes, each over real sockets, and when one takes over from another."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

import pytest

from conductor_cli.core.errors import ModelError
from conductor_cli.models.weights import plain, transfer
from conductor_cli.models.weights.hub import Download, Found, Refused, ask
from conductor_cli.models.weights.hub import Hub as Address
from conductor_cli.models.weights.progress import Meter, Progress, RetryPolicy
from tests.hub import XORB, Fault, Hub, Refusal, hub, sha256

REPO = "maker/model"
FILE = "model.gguf"
DATA = random.Random(3).randbytes(3 * XORB + 12_345)
QUICK = RetryPolicy(stall=20.0, waits=(0.0, 0.0, 0.0))
SHORT = RetryPolicy(stall=4.0, waits=(0.0, 0.0, 0.0))


@dataclass
class Line:
    """A hub, a file of it, and the part that its bytes go to."""

    hub: Hub
    part: Path
    environ: dict[str, str]
    told: list[Progress] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        return [told.note for told in self.told if told.note]

    @property
    def download(self) -> Download:
        address = Address(endpoint=self.hub.url, token="hf_secret")
        found = ask(address, REPO, "main", FILE, 20.0)
        return Download(hub=address, repo=REPO, file=FILE, found=found, part=self.part)

    @property
    def meter(self) -> Meter:
        return Meter(self.told.append, "fetching", FILE, len(DATA))

    def plainly(self, pace: RetryPolicy = QUICK) -> None:
        plain.fetch(self.download, pace, self.meter)

    def transfer(self, pace: RetryPolicy = QUICK) -> bool:
        return transfer.transfer(self.download, self.environ, pace, self.meter)

    def stub(self, name: str, code: str) -> None:
        """Put a module before all others of this name in the child."""
        folder = self.part.parent / "stubs"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(code)
        self.environ["PYTHONPATH"] = str(folder)


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    with hub() as server:
        server.commit(REPO, {FILE: DATA})
        environ = dict(os.environ) | {"HF_HOME": str(tmp_path / "hf"), "NO_PROXY": "127.0.0.1,localhost"}
        yield Line(hub=server, part=tmp_path / "part", environ=environ)


def test_the_hub_is_understood(line: Line) -> None:
    """Commit, SHA-256, size and the offer of Xet are read from the answer that leads to the bytes."""
    commit = line.hub.repos[REPO].revisions["main"]
    assert line.download.found == Found(commit=commit, etag=sha256(DATA), size=len(DATA), xet=False)
    line.hub.xet = True
    assert line.download.found.xet
    assert line.hub.fetched == []


def test_xet_brings_a_file(line: Line) -> None:
    """Where the hub offers Xet the library fetches by it, in one piece, and the plain host is not asked."""
    line.hub.xet = True
    assert line.transfer()
    assert line.part.read_bytes() == DATA
    assert len(line.hub.cas.requests) == 1 + 4
    assert line.hub.fetched == []
    assert line.notes == []


def test_xet_that_hangs_is_continued_without_it(line: Line) -> None:
    """What Xet had written stands at the beginning of the file, and only the rest is asked for."""
    line.hub.xet, line.hub.xet_stall = True, 2
    assert not line.transfer(SHORT)
    assert line.part.read_bytes() == DATA
    assert line.hub.ranges == [f"bytes={2 * XORB}-"]
    assert line.notes == ["no byte for 4 s: starting again without Xet"]


def test_the_library_that_hangs_is_continued_by_plain_http(line: Line) -> None:
    """All three ways in turn: Xet hangs, the library hangs without it, our own request brings the end."""
    line.hub.xet, line.hub.xet_stall = True, 1
    line.hub.faults = [Fault(kind="stall", after=XORB)]
    assert not line.transfer(SHORT)
    assert line.part.read_bytes() == DATA
    assert line.hub.ranges == [f"bytes={XORB}-", f"bytes={2 * XORB}-"]
    assert [note.partition(": ")[2] for note in line.notes] == [
        "starting again without Xet",
        "starting again without the hub's library",
    ]
    agents = [seen.headers["user-agent"].partition(";")[0] for seen in line.hub.fetched]
    assert agents == ["conductor-llm/None", "conductor-llm"]


def test_xet_can_be_switched_off(line: Line) -> None:
    """With HF_HUB_DISABLE_XET it is not even begun."""
    line.hub.xet = True
    line.environ["HF_HUB_DISABLE_XET"] = "1"
    assert line.transfer()
    assert line.part.read_bytes() == DATA
    assert line.hub.cas.requests == []


def test_what_is_begun_is_not_given_to_xet(line: Line) -> None:
    """Xet would begin at zero, so the rest of a part is fetched without it."""
    line.hub.xet = True
    line.part.write_bytes(DATA[:XORB])
    assert not line.transfer()
    assert line.hub.cas.requests == []
    assert line.hub.ranges == [f"bytes={XORB}-"]


def test_a_slow_line_is_no_stall(line: Line) -> None:
    """A transfer that takes longer than the stall, with a byte now and then, is let be."""
    line.hub.faults = [Fault(kind="drip", pause=0.16)]  # 25 pieces, so four seconds at least
    assert line.transfer(RetryPolicy(stall=3.0, waits=(0.0,)))
    assert len(line.hub.fetched) == 1


DEATHS = [
    pytest.param("huggingface_hub", "raise ImportError('gone')", "cannot be loaded", id="no library"),
    pytest.param(
        "huggingface_hub", "print('noise', flush=True); raise ImportError('gone')", "cannot be loaded", id="noise"
    ),
    pytest.param("huggingface_hub", "http_get = None", "cannot be loaded", id="another library"),
    pytest.param("huggingface_hub", "import os; os.kill(os.getpid(), 9)", "ended", id="killed"),
    pytest.param("sitecustomize", "print('hello', flush=True)", "garbage", id="garbage"),
    pytest.param("sitecustomize", "print('[1]', flush=True)", "garbage", id="no message"),
    pytest.param("sitecustomize", "import os; os._exit(0)", "ended", id="gone"),
]


@pytest.mark.parametrize(("module", "code", "reason"), DEATHS)
def test_a_child_that_dies_or_babbles_is_replaced(line: Line, module: str, code: str, reason: str) -> None:
    """However the process of the library fails, requests of our own bring the file, and the note says why."""
    line.stub(module, code)
    assert not line.transfer()
    assert line.part.read_bytes() == DATA
    assert len(line.notes) == 1
    assert reason in line.notes[0]
    assert line.notes[0].endswith("starting again without the hub's library")


def test_a_child_that_does_not_begin_is_replaced(line: Line) -> None:
    """A process that says nothing for its time to start is killed."""
    line.stub("sitecustomize", "import time; time.sleep(600)")
    assert not line.transfer(RetryPolicy(start=0.5, waits=(0.0,)))
    assert line.part.read_bytes() == DATA
    assert line.notes[0].startswith("no byte for")


def test_an_interpreter_that_cannot_be_started_is_replaced(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no Python to start, as in a frozen program, requests of our own bring the file."""
    monkeypatch.setattr(sys, "executable", str(line.part.parent / "no-python"))
    assert not line.transfer()
    assert line.part.read_bytes() == DATA


def test_the_directory_of_the_user_is_not_imported_from(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file called like the library, in the directory that the user is in, is not run."""
    trap = line.part.parent / "here"
    trap.mkdir()
    (trap / "huggingface_hub.py").write_text("raise SystemExit('run')")
    monkeypatch.chdir(trap)
    assert line.transfer()
    assert line.notes == []


def test_lines_without_a_new_byte_are_no_life() -> None:
    """A child that repeats itself is as good as silent; each higher count is a sign of life."""
    most: dict[str, int] = {}
    said: list[dict[str, Any]] = [
        {"ready": True}, {"done": 0}, {"done": 5}, {"done": 5}, {"moved": 1}, {"done": 4}, {"done": 6},
    ]  # fmt: skip
    assert [transfer._grown(message, most) for message in said] == [True, True, True, False, True, False, True]


def test_a_child_that_only_repeats_itself_is_given_up() -> None:
    """The clock is not set back by lines that bring nothing."""
    lines: SimpleQueue[bytes] = SimpleQueue()
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        lines.put(json.dumps({"done": 7}).encode())

    look()
    assert transfer._watch(lines, RetryPolicy(stall=0.2, start=0.2), look) == {"failed": "no byte for 0 s"}
    assert looks > 1


@pytest.mark.parametrize("begun", [0, 1, 65_537, len(DATA) // 2, len(DATA) - 1, len(DATA)])
def test_plain_http_goes_on_at_any_byte(line: Line, begun: int) -> None:
    """The rest is asked for from where the part ends; what is whole is not asked for."""
    line.part.write_bytes(DATA[:begun])
    line.plainly()
    assert line.part.read_bytes() == DATA
    ranges = [f"bytes={begun}-" if begun else ""]
    assert line.hub.ranges == ([] if begun == len(DATA) else ranges)


@pytest.mark.parametrize("kind", ["cut", "stall"])
@pytest.mark.parametrize("after", [0, 1, XORB, len(DATA) - 1])
def test_plain_http_goes_on_after_a_break(line: Line, kind: Literal["cut", "stall"], after: int) -> None:
    """A connection that is cut or silent, at any byte, is opened again there."""
    line.hub.faults = [Fault(kind=kind, after=after)]
    line.plainly(RetryPolicy(stall=0.3, waits=(0.0, 0.0, 0.0)))
    assert line.part.read_bytes() == DATA
    assert line.hub.ranges == ["", f"bytes={after}-" if after else ""]
    assert len(line.notes) == 1


def test_plain_http_does_not_wait_for_an_answer_for_ever(line: Line) -> None:
    """A host that takes the request and says nothing is asked again."""
    line.hub.faults = [Fault(kind="mute")]
    line.plainly(RetryPolicy(stall=0.3, waits=(0.0,)))
    assert line.part.read_bytes() == DATA
    assert line.notes == [f"no byte for 0 s from localhost:{line.hub.back.port}: trying again in 0 s"]


def test_plain_http_counts_tries_only_where_nothing_came(line: Line) -> None:
    """A line that breaks often is no reason to give up as long as each piece brings something."""
    line.hub.faults = [Fault(kind="cut", after=50_000)] * 12
    line.plainly()
    assert line.part.read_bytes() == DATA
    assert len(line.hub.fetched) == 13


def test_plain_http_gives_up_where_nothing_comes(line: Line) -> None:
    """After its tries without a byte it is over, and what was there is there."""
    line.part.write_bytes(DATA[:1000])
    line.hub.faults = [Fault(kind="cut")] * 20
    with pytest.raises(ModelError) as error:
        line.plainly()
    assert error.value.reason == "broken"
    assert len(line.hub.fetched) == 1 + len(QUICK.waits)
    assert line.part.read_bytes() == DATA[:1000]


def test_plain_http_begins_anew_where_no_ranges_are_known(line: Line) -> None:
    """A host that answers with the whole file gets its whole file written."""
    line.part.write_bytes(b"x" * 1000)
    line.hub.faults = [Fault(kind="no range")]
    line.plainly()
    assert line.part.read_bytes() == DATA


def test_plain_http_does_not_join_two_contents(line: Line) -> None:
    """The ETag of the first piece is sent with the next; a host that has another content by then sends it whole."""
    line.hub.faults = [Fault(kind="cut", after=XORB), Fault(kind="changed")]
    line.plainly()
    assert line.part.read_bytes() == DATA
    first, second = line.hub.fetched
    assert "if-range" not in first.headers
    assert second.headers["if-range"].startswith('"')


def test_plain_http_needs_no_etag(line: Line) -> None:
    """Where the host of the bytes sends none, as the hub's own does, a part is continued all the same."""
    line.hub.cdn_etag = False
    line.hub.faults = [Fault(kind="cut", after=XORB)]
    line.plainly()
    assert line.part.read_bytes() == DATA
    assert line.hub.ranges == ["", f"bytes={XORB}-"]


def test_plain_http_drops_a_part_that_is_longer_than_the_file(line: Line) -> None:
    """A host that knows no such range (416) has the file fetched from its beginning."""
    line.part.write_bytes(DATA + b"too much")
    line.plainly()
    assert line.part.read_bytes() == DATA
    assert line.hub.ranges == [f"bytes={len(DATA) + 8}-", ""]


def test_plain_http_gives_up_where_what_grows_is_dropped_again(line: Line) -> None:
    """A host that sends more than there is, each time more, and then knows no such range: it is not asked for ever."""
    line.hub.faults = [Fault(kind="surplus", after=1000 * (at // 2 + 1)) for at in range(40)]
    with pytest.raises(ModelError) as error:
        line.plainly()
    assert error.value.reason == "broken"
    assert len(line.hub.fetched) <= 2 * (1 + len(QUICK.waits))


def test_plain_http_takes_a_whole_part_of_unknown_size_for_whole(line: Line) -> None:
    """When the hub says no size, a range right behind the end (416) tells that all is there."""
    line.part.write_bytes(DATA)
    known = line.download
    found = Found(commit=known.found.commit, etag=known.found.etag, size=0)
    unsized = Download(hub=known.hub, repo=REPO, file=FILE, found=found, part=line.part)
    plain.fetch(unsized, QUICK, line.meter)
    assert line.part.read_bytes() == DATA


def test_plain_http_waits_as_long_as_it_is_asked_to(line: Line) -> None:
    """Retry-After of the host of the bytes is obeyed, and told."""
    line.hub.cdn_refusals = [Refusal(status=429, headers={"Retry-After": "0"})] * 2
    line.plainly(RetryPolicy(waits=(600.0, 600.0, 600.0)))
    assert line.part.read_bytes() == DATA
    assert line.notes == [f"localhost:{line.hub.back.port} answers 429: trying again in 0 s"] * 2


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_plain_http_does_not_insist_where_it_is_refused(line: Line, status: int) -> None:
    """A refusal that will not pass is final."""
    line.hub.cdn_refusals = [Refusal(status=status)]
    with pytest.raises(Refused) as error:
        line.plainly()
    assert (error.value.status, error.value.host) == (status, f"localhost:{line.hub.back.port}")


@pytest.mark.parametrize("where", ["file:///etc/passwd", "ftp://localhost/x", "http://"])
def test_plain_http_follows_to_http_only(line: Line, where: str) -> None:
    """A redirect to another kind of address is none that is followed."""
    download = line.download
    line.hub.location = where
    with pytest.raises(ModelError) as error:
        plain.fetch(download, QUICK, line.meter)
    assert error.value.reason == "missing"


@pytest.mark.parametrize("where", ["http://[::1", "http://localhost:99999/", "http://localhost:x/"])
def test_an_address_that_cannot_be_read_is_not_followed(line: Line, where: str) -> None:
    """Whatever a redirect says, the outcome is an error that is ours."""
    download = line.download
    line.hub.location = where
    with pytest.raises(ModelError):
        plain.fetch(download, QUICK, line.meter)
    with pytest.raises(ModelError):
        ask(download.hub, REPO, "main", FILE, 20.0)


def test_redirects_without_end_are_given_up(line: Line) -> None:
    """A hub that leads in a circle is not followed for ever."""
    download = line.download
    line.hub.location = download.url
    with pytest.raises(ModelError, match="without end"):
        plain.fetch(download, QUICK, line.meter)


def test_a_disk_that_takes_no_byte_is_no_fault_of_the_line(line: Line) -> None:
    """What the system says when a file cannot be written comes through as it is."""
    line.part.mkdir()
    with pytest.raises(OSError, match="directory"):
        line.plainly()
