"""The files with the bytes of attachments: missing, changed, badly named, or perhaps needed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from conductor_cli.core.chat import Attachment
from conductor_cli.core.errors import ModelError
from conductor_cli.state.records import Attachments


def named(data: bytes, name: str = "a.png") -> Attachment:
    digest = hashlib.sha256(data).hexdigest()
    return Attachment(name=name, media_type="image/png", sha256=digest, size=len(data))


def test_missing_and_changed_bytes_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    kept = Attachments(tmp_path, tmp_path / "traces")
    kept.add(b"one")
    one = named(b"one", "chart.png")
    kept.store([one])
    [path] = [path for path in tmp_path.glob("??/*") if path.is_file()]
    path.write_bytes(b"two")
    with pytest.raises(ModelError, match=r"chart\.png was changed"):
        kept.read(one)
    path.unlink()
    with pytest.raises(ModelError, match=r"chart\.png cannot be read"):
        kept.read(one)


def test_a_hash_that_is_a_path_reads_nothing(tmp_path: Path) -> None:
    """A plan file is edited by hand: its hash never leads out of the directory."""
    (tmp_path / "secret").write_bytes(b"secret")
    kept = Attachments(tmp_path / "kept", tmp_path / "traces")
    for digest in ("../secret", "../../secret", str(tmp_path / "secret"), ""):
        assert not kept.holds(Attachment(name="x", media_type="image/png", sha256=digest, size=6))


def test_traces_that_cannot_be_read_keep_all_bytes(tmp_path: Path) -> None:
    """Where it is not known what a trace names, nothing is deleted."""
    traces = tmp_path / "traces"
    kept = Attachments(tmp_path / "kept", traces)
    kept.add(b"one")
    kept.store([named(b"one")])
    traces.mkdir()
    (traces / "a.jsonl").mkdir()  # reading it is an OSError
    kept.prune()
    assert kept.holds(named(b"one"))
