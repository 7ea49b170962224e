"""Downloading the bytes of a file by ranged requests, over real sockets, with every fault that a line can have."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from conductor_cli.core.errors import ModelError
from conductor_cli.models.weights.http_download import RetryPolicy, download_bytes
from conductor_cli.models.weights.hub import Download, HubRefusal, RemoteFile, read_remote_file
from conductor_cli.models.weights.hub import Hub as Address
from conductor_cli.models.weights.progress import Progress, ProgressMeter
from tests.hub import Fault, Hub, Refusal, hub, sha256

REPO = "maker/model"
FILE = "model.gguf"
BREAK = 512 * 1024
"""Where a connection breaks in these tests."""

DATA = random.Random(3).randbytes(3 * BREAK + 12_345)
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
        found = read_remote_file(address, REPO, "main", FILE, 20.0)
        return Download(hub=address, repo=REPO, file=FILE, remote=found, part=self.part)

    @property
    def meter(self) -> ProgressMeter:
        return ProgressMeter(self.told.append, "fetching", FILE, len(DATA))

    def download_all(self, pace: RetryPolicy = QUICK) -> None:
        download_bytes(self.download, pace, self.meter)


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    with hub() as server:
        server.commit(REPO, {FILE: DATA})
        environ = dict(os.environ) | {"HF_HOME": str(tmp_path / "hf"), "NO_PROXY": "127.0.0.1,localhost"}
        yield Line(hub=server, part=tmp_path / "part", environ=environ)


def test_the_hub_is_understood(line: Line) -> None:
    """Commit, SHA-256, size and the offer of Xet are read from the answer that leads to the bytes."""
    commit = line.hub.repos[REPO].revisions["main"]
    assert line.download.remote == RemoteFile(commit=commit, etag=sha256(DATA), size=len(DATA))
    assert line.hub.fetched == []


def test_a_slow_line_is_no_stall(line: Line) -> None:
    """A transfer that takes longer than the stall, with a byte now and then, is let be."""
    line.hub.faults = [Fault(kind="drip", pause=0.06)]  # 25 pieces, so 1.5 seconds at least
    line.download_all(RetryPolicy(stall=1.0, waits=(0.0,)))
    assert line.part.read_bytes() == DATA
    assert len(line.hub.fetched) == 1


@pytest.mark.parametrize("begun", [0, 1, 65_537, len(DATA) // 2, len(DATA) - 1, len(DATA)])
def test_a_download_goes_on_at_any_byte(line: Line, begun: int) -> None:
    """The rest is asked for from where the part ends; what is whole is not asked for."""
    line.part.write_bytes(DATA[:begun])
    line.download_all()
    assert line.part.read_bytes() == DATA
    ranges = [f"bytes={begun}-" if begun else ""]
    assert line.hub.ranges == ([] if begun == len(DATA) else ranges)


@pytest.mark.parametrize("kind", ["cut", "stall"])
@pytest.mark.parametrize("after", [0, 1, BREAK, len(DATA) - 1])
def test_a_download_goes_on_after_a_break(line: Line, kind: Literal["cut", "stall"], after: int) -> None:
    """A connection that is cut or silent, at any byte, is opened again there."""
    line.hub.faults = [Fault(kind=kind, after=after)]
    line.download_all(RetryPolicy(stall=0.3, waits=(0.0, 0.0, 0.0)))
    assert line.part.read_bytes() == DATA
    assert line.hub.ranges == ["", f"bytes={after}-" if after else ""]
    assert len(line.notes) == 1


def test_a_download_does_not_wait_for_an_answer_for_ever(line: Line) -> None:
    """A host that takes the request and says nothing is asked again."""
    line.hub.faults = [Fault(kind="mute")]
    line.download_all(RetryPolicy(stall=0.3, waits=(0.0,)))
    assert line.part.read_bytes() == DATA
    assert line.notes == [f"no data from localhost:{line.hub.back.port} for 0 s: trying again in 0 s"]


def test_a_download_counts_tries_only_where_nothing_came(line: Line) -> None:
    """A line that breaks often is no reason to give up as long as each piece brings something."""
    line.hub.faults = [Fault(kind="cut", after=50_000)] * 12
    line.download_all()
    assert line.part.read_bytes() == DATA
    assert len(line.hub.fetched) == 13


def test_a_download_gives_up_where_nothing_comes(line: Line) -> None:
    """After its tries without a byte it is over, and what was there is there."""
    line.part.write_bytes(DATA[:1000])
    line.hub.faults = [Fault(kind="cut")] * 20
    with pytest.raises(ModelError) as error:
        line.download_all()
    assert error.value.reason == "broken"
    assert len(line.hub.fetched) == 1 + len(QUICK.waits)
    assert line.part.read_bytes() == DATA[:1000]


def test_a_download_begins_anew_where_no_ranges_are_known(line: Line) -> None:
    """A host that answers with the whole file gets its whole file written."""
    line.part.write_bytes(b"x" * 1000)
    line.hub.faults = [Fault(kind="no range")]
    line.download_all()
    assert line.part.read_bytes() == DATA


def test_a_download_does_not_join_two_contents(line: Line) -> None:
    """The ETag of the first piece is sent with the next; a host that has another content by then sends it whole."""
    line.hub.faults = [Fault(kind="cut", after=BREAK), Fault(kind="changed")]
    line.download_all()
    assert line.part.read_bytes() == DATA
    first, second = line.hub.fetched
    assert "if-range" not in first.headers
    assert second.headers["if-range"].startswith('"')


def test_a_download_needs_no_etag(line: Line) -> None:
    """Where the host of the bytes sends none, as the hub's own does, a part is continued all the same."""
    line.hub.cdn_etag = False
    line.hub.faults = [Fault(kind="cut", after=BREAK)]
    line.download_all()
    assert line.part.read_bytes() == DATA
    assert line.hub.ranges == ["", f"bytes={BREAK}-"]


def test_a_download_drops_a_part_that_is_longer_than_the_file(line: Line) -> None:
    """A host that knows no such range (416) has the file fetched from its beginning."""
    line.part.write_bytes(DATA + b"too much")
    line.download_all()
    assert line.part.read_bytes() == DATA
    assert line.hub.ranges == [f"bytes={len(DATA) + 8}-", ""]


def test_a_download_gives_up_where_what_grows_is_dropped_again(line: Line) -> None:
    """A host that sends more than there is, each time more, and then knows no such range: it is not asked for ever."""
    line.hub.faults = [Fault(kind="surplus", after=1000 * (at // 2 + 1)) for at in range(40)]
    with pytest.raises(ModelError) as error:
        line.download_all()
    assert error.value.reason == "broken"
    assert len(line.hub.fetched) <= 2 * (1 + len(QUICK.waits))


def test_a_download_takes_a_whole_part_of_unknown_size_for_whole(line: Line) -> None:
    """When the hub says no size, a range right behind the end (416) tells that all is there."""
    line.part.write_bytes(DATA)
    known = line.download
    found = RemoteFile(commit=known.remote.commit, etag=known.remote.etag, size=0)
    unsized = Download(hub=known.hub, repo=REPO, file=FILE, remote=found, part=line.part)
    download_bytes(unsized, QUICK, line.meter)
    assert line.part.read_bytes() == DATA


def test_a_download_waits_as_long_as_it_is_asked_to(line: Line) -> None:
    """Retry-After of the host of the bytes is obeyed, and told."""
    line.hub.cdn_refusals = [Refusal(status=429, headers={"Retry-After": "0"})] * 2
    line.download_all(RetryPolicy(waits=(600.0, 600.0, 600.0)))
    assert line.part.read_bytes() == DATA
    assert line.notes == [f"localhost:{line.hub.back.port} answers 429: trying again in 0 s"] * 2


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_download_does_not_insist_where_it_is_refused(line: Line, status: int) -> None:
    """A refusal that will not pass is final."""
    line.hub.cdn_refusals = [Refusal(status=status)]
    with pytest.raises(HubRefusal) as error:
        line.download_all()
    assert (error.value.status, error.value.host) == (status, f"localhost:{line.hub.back.port}")


@pytest.mark.parametrize("where", ["file:///etc/passwd", "ftp://localhost/x", "http://"])
def test_a_download_follows_to_http_only(line: Line, where: str) -> None:
    """A redirect to another kind of address is none that is followed."""
    download = line.download
    line.hub.location = where
    with pytest.raises(ModelError) as error:
        download_bytes(download, QUICK, line.meter)
    assert error.value.reason == "missing"


@pytest.mark.parametrize("where", ["http://[::1", "http://localhost:99999/", "http://localhost:x/"])
def test_an_address_that_cannot_be_read_is_not_followed(line: Line, where: str) -> None:
    """Whatever a redirect says, the outcome is an error that is ours."""
    download = line.download
    line.hub.location = where
    with pytest.raises(ModelError):
        download_bytes(download, QUICK, line.meter)
    with pytest.raises(ModelError):
        read_remote_file(download.hub, REPO, "main", FILE, 20.0)


def test_redirects_without_end_are_given_up(line: Line) -> None:
    """A hub that leads in a circle is not followed for ever."""
    download = line.download
    line.hub.location = download.url
    with pytest.raises(ModelError, match="without end"):
        download_bytes(download, QUICK, line.meter)


def test_a_disk_that_takes_no_byte_is_no_fault_of_the_line(line: Line) -> None:
    """What the system says when a file cannot be written comes through as it is."""
    line.part.mkdir()
    with pytest.raises(OSError, match="directory"):
        line.download_all()
