"""Downloading a file by ranged requests over real sockets, with every fault that a connection can have."""

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
NO_WAIT = RetryPolicy(stall=20.0, waits=(0.0, 0.0, 0.0))
SHORT = RetryPolicy(stall=4.0, waits=(0.0, 0.0, 0.0))


@dataclass
class Connection:
    """A hub with a file, and the partial file that its bytes are appended to."""

    hub: Hub
    part: Path
    environ: dict[str, str]
    reports: list[Progress] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        return [report.note for report in self.reports if report.note]

    @property
    def download(self) -> Download:
        address = Address(endpoint=self.hub.url, token="hf_secret")
        found = read_remote_file(address, REPO, "main", FILE, 20.0)
        return Download(hub=address, repo=REPO, file=FILE, remote=found, part=self.part)

    @property
    def meter(self) -> ProgressMeter:
        return ProgressMeter(self.reports.append, "downloading", FILE, len(DATA))

    def download_all(self, policy: RetryPolicy = NO_WAIT) -> None:
        download_bytes(self.download, policy, self.meter)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    with hub() as server:
        server.commit(REPO, {FILE: DATA})
        environ = dict(os.environ) | {"HF_HOME": str(tmp_path / "hf"), "NO_PROXY": "127.0.0.1,localhost"}
        yield Connection(hub=server, part=tmp_path / "part", environ=environ)


def test_the_hubs_answer_is_read(connection: Connection) -> None:
    """Commit, SHA-256 and size are in the headers of the answer that redirects to the bytes."""
    commit = connection.hub.repos[REPO].revisions["main"]
    assert connection.download.remote == RemoteFile(commit=commit, etag=sha256(DATA), size=len(DATA))
    assert connection.hub.fetched == []


def test_a_slow_connection_is_not_given_up(connection: Connection) -> None:
    """The download takes longer than the stall limit, but bytes keep coming."""
    connection.hub.faults = [Fault(kind="drip", pause=0.06)]  # 25 pieces, so 1.5 seconds at least
    connection.download_all(RetryPolicy(stall=1.0, waits=(0.0,)))
    assert connection.part.read_bytes() == DATA
    assert len(connection.hub.fetched) == 1


@pytest.mark.parametrize("size", [0, 1, 65_537, len(DATA) // 2, len(DATA) - 1, len(DATA)])
def test_a_download_continues_at_any_byte(connection: Connection, size: int) -> None:
    """The rest is requested from where the partial file ends; a complete file is not requested."""
    connection.part.write_bytes(DATA[:size])
    connection.download_all()
    assert connection.part.read_bytes() == DATA
    ranges = [f"bytes={size}-" if size else ""]
    assert connection.hub.ranges == ([] if size == len(DATA) else ranges)


@pytest.mark.parametrize("kind", ["cut", "stall"])
@pytest.mark.parametrize("after", [0, 1, BREAK, len(DATA) - 1])
def test_a_broken_connection_is_continued(connection: Connection, kind: Literal["cut", "stall"], after: int) -> None:
    """A connection that is cut or silent at any byte is opened again there."""
    connection.hub.faults = [Fault(kind=kind, after=after)]
    connection.download_all(RetryPolicy(stall=0.3, waits=(0.0, 0.0, 0.0)))
    assert connection.part.read_bytes() == DATA
    assert connection.hub.ranges == ["", f"bytes={after}-" if after else ""]
    assert len(connection.notes) == 1


def test_a_silent_host_is_asked_again(connection: Connection) -> None:
    """It accepts the request and sends no answer."""
    connection.hub.faults = [Fault(kind="mute")]
    connection.download_all(RetryPolicy(stall=0.3, waits=(0.0,)))
    assert connection.part.read_bytes() == DATA
    assert connection.notes == [f"no data from localhost:{connection.hub.back.port} for 0 s: trying again in 0 s"]


def test_retries_start_over_after_progress(connection: Connection) -> None:
    """A connection that breaks often is not given up as long as each one brings bytes."""
    connection.hub.faults = [Fault(kind="cut", after=50_000)] * 12
    connection.download_all()
    assert connection.part.read_bytes() == DATA
    assert len(connection.hub.fetched) == 13


def test_retries_without_progress_end(connection: Connection) -> None:
    """The partial file stays."""
    connection.part.write_bytes(DATA[:1000])
    connection.hub.faults = [Fault(kind="cut")] * 20
    with pytest.raises(ModelError) as error:
        connection.download_all()
    assert error.value.reason == "broken"
    assert len(connection.hub.fetched) == 1 + len(NO_WAIT.waits)
    assert connection.part.read_bytes() == DATA[:1000]


def test_a_host_without_ranges_sends_the_whole_file(connection: Connection) -> None:
    """The partial file is overwritten."""
    connection.part.write_bytes(b"x" * 1000)
    connection.hub.faults = [Fault(kind="no range")]
    connection.download_all()
    assert connection.part.read_bytes() == DATA


def test_a_changed_file_is_not_joined_with_its_old_beginning(connection: Connection) -> None:
    """The first answer's ETag is sent with the next request, so that a host with another content sends all of it."""
    connection.hub.faults = [Fault(kind="cut", after=BREAK), Fault(kind="changed")]
    connection.download_all()
    assert connection.part.read_bytes() == DATA
    first, second = connection.hub.fetched
    assert "if-range" not in first.headers
    assert second.headers["if-range"].startswith('"')


def test_a_host_without_an_etag_is_continued(connection: Connection) -> None:
    """The hub's own host sends none."""
    connection.hub.cdn_etag = False
    connection.hub.faults = [Fault(kind="cut", after=BREAK)]
    connection.download_all()
    assert connection.part.read_bytes() == DATA
    assert connection.hub.ranges == ["", f"bytes={BREAK}-"]


def test_a_partial_file_that_is_too_long_is_discarded(connection: Connection) -> None:
    """The host answers 416, and the file is downloaded from its beginning."""
    connection.part.write_bytes(DATA + b"too much")
    connection.download_all()
    assert connection.part.read_bytes() == DATA
    assert connection.hub.ranges == [f"bytes={len(DATA) + 8}-", ""]


def test_a_host_that_sends_too_much_is_given_up(connection: Connection) -> None:
    """It sends more each time and then rejects the range; this is no progress."""
    connection.hub.faults = [Fault(kind="surplus", after=1000 * (at // 2 + 1)) for at in range(40)]
    with pytest.raises(ModelError) as error:
        connection.download_all()
    assert error.value.reason == "broken"
    assert len(connection.hub.fetched) <= 2 * (1 + len(NO_WAIT.waits))


def test_a_complete_file_of_unknown_size_is_recognised(connection: Connection) -> None:
    """A 416 right behind its end says that nothing is missing."""
    connection.part.write_bytes(DATA)
    known = connection.download
    found = RemoteFile(commit=known.remote.commit, etag=known.remote.etag, size=0)
    unsized = Download(hub=known.hub, repo=REPO, file=FILE, remote=found, part=connection.part)
    download_bytes(unsized, NO_WAIT, connection.meter)
    assert connection.part.read_bytes() == DATA


def test_retry_after_is_obeyed(connection: Connection) -> None:
    """A note says how long."""
    connection.hub.cdn_refusals = [Refusal(status=429, headers={"Retry-After": "0"})] * 2
    connection.download_all(RetryPolicy(waits=(600.0, 600.0, 600.0)))
    assert connection.part.read_bytes() == DATA
    assert connection.notes == [f"localhost:{connection.hub.back.port} answers 429: trying again in 0 s"] * 2


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_permanent_errors_are_not_retried(connection: Connection, status: int) -> None:
    """A refusal that will not pass is final."""
    connection.hub.cdn_refusals = [Refusal(status=status)]
    with pytest.raises(HubRefusal) as error:
        connection.download_all()
    assert (error.value.status, error.value.host) == (status, f"localhost:{connection.hub.back.port}")


@pytest.mark.parametrize("where", ["file:///etc/passwd", "ftp://localhost/x", "http://"])
def test_redirects_to_other_schemes_are_rejected(connection: Connection, where: str) -> None:
    """A redirect to another kind of address is none that is followed."""
    download = connection.download
    connection.hub.location = where
    with pytest.raises(ModelError) as error:
        download_bytes(download, NO_WAIT, connection.meter)
    assert error.value.reason == "missing"


@pytest.mark.parametrize("where", ["http://[::1", "http://localhost:99999/", "http://localhost:x/"])
def test_redirects_to_invalid_urls_are_rejected(connection: Connection, where: str) -> None:
    """Whatever a redirect says, the outcome is an error that is ours."""
    download = connection.download
    connection.hub.location = where
    with pytest.raises(ModelError):
        download_bytes(download, NO_WAIT, connection.meter)
    with pytest.raises(ModelError):
        read_remote_file(download.hub, REPO, "main", FILE, 20.0)


def test_endless_redirects_are_given_up(connection: Connection) -> None:
    """A hub that leads in a circle is not followed for ever."""
    download = connection.download
    connection.hub.location = download.url
    with pytest.raises(ModelError, match="without end"):
        download_bytes(download, NO_WAIT, connection.meter)


def test_a_disk_error_is_not_retried(connection: Connection) -> None:
    """The error of the system is raised as it is."""
    connection.part.mkdir()
    with pytest.raises(OSError, match="directory"):
        connection.download_all()
