"""What each earlier version stored is opened by this one. `upgrades/README.md` says how the states were made."""

from __future__ import annotations

import gzip
import json
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from conductor_cli.core.errors import ConfigError
from conductor_cli.models.response_cache import ResponseCache
from conductor_cli.state.spending import FILE, open_database, read_spent
from tests.cli.stage import Stage

STATES = sorted((Path(__file__).parent / "upgrades").glob("*.tar.xz"))
DAY = date(2026, 11, 26)


@pytest.fixture
def place(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directories that the commands of a test use."""
    for name in ("config", "state"):
        (home / "old" / name).mkdir(parents=True)
        monkeypatch.setenv(f"CONDUCTOR_LLM_{name.upper()}_DIR", str(home / "old" / name))
    return home / "old"


@pytest.fixture
def stage(home: Path) -> Iterator[Stage]:
    stage = Stage(home)
    with stage.server:  # else its event loop is never closed
        yield stage


def unpack(archive: Path, place: Path) -> list[Path]:
    """Put a state into its place. Returns the traces, the oldest first."""
    with tarfile.open(archive) as content:
        content.extractall(place, filter="data")
    return sorted((place / "state/traces").glob("*.jsonl"))


@pytest.mark.parametrize("archive", STATES, ids=lambda path: path.name.partition(".")[0])
def test_the_state_of_an_earlier_version_opens(archive: Path, place: Path, stage: Stage) -> None:
    """Settings, traces, ratings, spending and stored replies; what is rewritten keeps a copy."""
    traces = unpack(archive, place)
    settings = json.loads(stage.ok("config", "show", "--json").out)
    assert "90.0" in json.dumps(settings)  # the time that the first token has, under either name
    assert "the good one" in stage.ok("workers", "list", "--json").out

    listed = json.loads(stage.ok("trace", "list", "--json").out)
    assert [run["state"] for run in listed] == ["finished"] * 3
    for path, steps in zip(traces, (3, 2, 4), strict=True):
        run, original = path.name.removesuffix(".jsonl"), path.read_bytes()
        shown = json.loads(stage.ok("trace", "show", run, "--json").out)
        assert len(shown["steps"]) == steps
        assert "Rhine" in shown["answer"]
        assert "Rhine" in stage.ok("trace", "replay", run, "--speed", "0").out
        if stage.inside("trace", "verify", run).code:  # its lines have no hashes yet
            assert "no hashes" in stage.inside("trace", "verify", run).out
            stage.ok("trace", "verify", run, "--repair")
            assert [copy.read_bytes() for copy in path.parent.glob(f"{path.name}.*")] == [original]
            assert json.loads(stage.ok("trace", "show", run, "--json").out) == shown
        stage.ok("trace", "verify", run)

    spending, books = place / "state/spending", sorted((place / "state/spending").glob("*.jsonl"))
    before = {row.worker: row.usage for row in read_spent(spending, DAY)}
    if (place / "state/spending").exists():
        assert before["good"].calls >= 11
        assert before["good"].cost is not None
        columns = "failed" in (spending / FILE).read_bytes().decode("latin-1")
        open_database(spending / FILE).close()  # as the next run does
        assert {row.worker: row.usage for row in read_spent(spending, DAY)} == before
        assert columns or (spending / f"{FILE}.old").stat().st_size > 0
    assert all(book.with_name(f"{book.name}.old").exists() and not book.exists() for book in books)
    if (place / "state/ratings.jsonl").exists():
        shown = stage.ok("workers", "show", "good")
        assert ("good" in shown.out, shown.err) == (True, "")
    for calls in place.glob("state/evals/*/calls.jsonl"):
        stored = [json.loads(line) for line in calls.read_text().splitlines() if line.strip()]
        with closing(ResponseCache(calls)) as replies:
            found = [replies.replies.get(reply["key"]) for reply in stored if reply["text"]]
        assert found
        assert None not in found


def test_what_a_newer_version_stored_is_refused(place: Path, stage: Stage) -> None:
    traces = unpack(STATES[-1], place)
    newer = gzip.decompress(traces[0].read_bytes()).replace(b'"format":3', b'"format":4', 1)
    traces[0].write_bytes(newer)
    done = stage.fails(2, "trace", "show", traces[0].name.removesuffix(".jsonl"))
    assert "was written by a newer conductor" in done.err
    assert "upgrade" in done.err
    assert traces[0].read_bytes() == newer

    with closing(sqlite3.connect(place / "state/spending" / FILE)) as database:
        database.execute("PRAGMA user_version = 1")
    with pytest.raises(ConfigError, match="a newer conductor wrote it"):
        read_spent(place / "state/spending", DAY)
    with pytest.raises(sqlite3.DatabaseError, match="newer"):
        open_database(place / "state/spending" / FILE)


def test_a_rule_that_cannot_be_kept_is_refused(place: Path, stage: Stage) -> None:
    """Ignored, it would protect nothing."""
    (place / "config/config.toml").write_text('[policy]\nno_question = ["good"]\n')
    assert "[policy] has no key 'no_question'" in stage.fails(3, "config", "show").err
