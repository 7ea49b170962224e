"""Looking after a state.

From files to a database and back, the password, and what earlier versions stored.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sqlite3
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from conductor_cli.config.files import AppPaths
from conductor_cli.core.chat import Attachment
from conductor_cli.core.errors import ConfigError, StateUnavailable
from conductor_cli.core.learning import Rating
from conductor_cli.core.question import File, Question
from conductor_cli.models.response_cache import ResponseCache
from conductor_cli.state.interfaces import Spender
from conductor_cli.state.key_store import POSTGRESQL, KeyStore
from conductor_cli.state.opening import FileState, State
from conductor_cli.state.postgres import upkeep
from conductor_cli.state.postgres.records import SharedState
from conductor_cli.state.postgres.spending import release_hold
from conductor_cli.state.postgres.upkeep import (
    check_database,
    export_days,
    export_files,
    import_files,
)
from conductor_cli.state.served_files import ServedFiles
from conductor_cli.state.spending_file import FILE, open_database, read_spent
from conductor_cli.state.trace_file import open_trace
from tests.cli.stage import Stage
from tests.state.cluster import PASSWORD, Cluster
from tests.state.test_run_index import events, put
from tests.state.test_shared_spend import CENT, LONG_AGO, reserve
from tests.state.test_trace_store import begun
from tests.traces.stored import begin_run

SERVED = f"file-{'0' * 24}"
DATA = b"\0image"
IMAGE = Attachment(
    name="a.png", media_type="image/png", sha256=hashlib.sha256(DATA).hexdigest(), size=len(DATA)
)


def silent(kind: str, number: int) -> None:
    """Nobody is told."""


def files(directory: Path) -> FileState:
    return FileState(AppPaths(config=directory, state=directory, data=directory, cache=directory))


@pytest.fixture
def shared(postgres: Cluster, tmp_path: Path) -> SharedState:
    return SharedState(postgres.new_database(), tmp_path, tmp_path)


def call(state: State, client: str = "", *, ends: bool = True) -> None:
    spend = state.spending(client=Spender(name=client))
    room = reserve(spend, 3)
    if ends:
        spend.settle(room, CENT)
    spend.close()


def fill(state: FileState) -> None:
    """Runs whole, cut, damaged and large; a picture; ratings; a name; calls, one without an end.

    A secret.
    """
    for day in (1, 2, 3):
        put(state.traces, day, f"question {day}", until=7 if day < 3 else 4)
    put(state.traces, 4, "large", answer="pears " * 100_000)
    state.traces.path("20261105-100000-00000a").write_bytes(b'\xff\0 no trace\n{"cut')
    state.traces.path("odd.name").write_bytes(b"")
    kept = state.attachments()
    question = Question(text="?", files=(File(name="a.png", text="", attachment=IMAGE),))
    kept.add(DATA)
    begin_run(state.traces, "20261106-100000-00000a", [begun(question)]).close()
    kept.store([IMAGE])
    for number in (1, 2):
        state.ratings.add(
            Rating(run=f"{number}", step=0, verdict="good", by="user", time=1.0, shares=())
        )
    state.conversations.set("pears", "20261101-100000-00000a")
    for client in ("", "", "app"):
        call(state, client)
    call(state, "app", ends=False)
    state.secret()
    served = state.served_files
    batch = {"object": "batch", "created_at": 1, "owner": "key:app"}
    served.write({**batch, "id": f"batch_{'0' * 24}", "status": "completed"})
    served.write({**batch, "id": f"batch_{'1' * 24}", "status": "in_progress"})
    served.add(
        {"id": SERVED, "object": "file", "created_at": 2, "owner": "key:app"},
        [b"half ", b"an answer\n"],
    )


def content(state: FileState) -> dict[str, bytes]:
    """Every trace as its lines."""
    contents = {}
    for run in state.traces.runs():
        with open_trace(state.traces.path(run)) as file:
            contents[run] = file.read()
    return contents


def facts(state: State) -> list[object]:
    """All but the bytes of the traces. A database bounds the texts of lists."""
    rows = [
        row._replace(size=0, answers=row.answers[:1000]) for row in state.traces.newest(count=20)[0]
    ]
    spent = state.read_spent(LONG_AGO), state.read_spent(LONG_AGO, "key"), state.spending().today()
    names = list(state.conversations.read().items())
    read = state.attachments().read(IMAGE)
    return [
        *sorted(rows),
        *spent,
        state.ratings.read(),
        names,
        state.secret(),
        read,
        served(state.served_files),
    ]


def served(files: ServedFiles) -> list[object]:
    """The records of files and of batches that are over, and the bytes of the file."""
    over = [record for record in files.all("batch") if record["status"] == "completed"]
    content = files.content(SERVED)
    return [
        *files.all("file"),
        *over,
        content.read_bytes() if isinstance(content, Path) else b"".join(content),
    ]


def test_a_state_moves_to_a_database_and_back_and_nothing_is_lost(
    shared: SharedState, tmp_path: Path
) -> None:
    """Said again, nothing is new.

    Not in the database, nor in other files, nor where it came from.
    """
    source = files(tmp_path / "a")
    target = files(tmp_path / "b")
    fill(source)
    moved = import_files(source, shared, silent)
    assert (moved.counts, moved.left) == (
        {
            "attachments": 1,
            "runs": 7,
            "files": 1,
            "batches": 1,
            "ratings": 2,
            "names": 1,
            "calls": 4,
        },
        [f"batch batch_{'1' * 24} is not over"],
    )
    assert facts(source) == facts(shared)
    assert export_files(shared, target, silent).counts == moved.counts
    assert facts(source) == facts(target)
    assert content(source) == content(target)
    assert import_files(source, shared, silent).left == moved.left
    both = (source, target)
    for again in (
        *(import_files(directory, shared, silent) for directory in both),
        *(export_files(shared, directory, silent) for directory in both),
    ):
        assert again.counts.total() == 0
    assert facts(source) == facts(shared)


def test_a_day_that_is_over_is_one_parquet_file_with_the_same_lines(
    shared: SharedState, tmp_path: Path
) -> None:
    """Said again, nothing is new."""
    parquet = pytest.importorskip("pyarrow.parquet")
    source = files(tmp_path / "a")
    target = tmp_path / "old.parquet"
    fill(source)
    import_files(source, shared, silent)
    days = {run[:8] for run in source.traces.runs()}
    assert export_days(shared, target.as_uri(), silent).counts == {"days": len(days)}
    exported: dict[str, bytes] = {}
    for path in target.iterdir():
        for row in parquet.read_table(path).to_pylist():
            exported[row["run"]] = exported.get(row["run"], b"") + row["line"]
    assert exported == {run: lines for run, lines in content(source).items() if lines}
    assert export_days(shared, str(target), silent).counts == {}
    first, second, *_ = sorted(target.iterdir())
    whole = [first.read_bytes(), second.read_bytes()]
    first.write_bytes(b"")
    second.write_bytes(whole[1][:-1])  # as a full disk leaves them, or a copy that was stopped
    assert export_days(shared, str(target), silent).counts == {"days": 2}
    assert [first.read_bytes(), second.read_bytes()] == whole


def test_a_move_that_was_stopped_goes_on(
    shared: SharedState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = files(tmp_path / "a")
    target = files(tmp_path / "b")
    steps = list[str]()
    fill(source)
    monkeypatch.setattr(upkeep, "BATCH_ROWS", 1)

    def stops(kind: str, number: int) -> None:
        steps.append(kind)
        if len(steps) in {3, 8, 12, 16, 20}:
            raise KeyboardInterrupt

    def until_done(move: Callable[[], object]) -> None:
        for _ in range(6):
            with suppress(KeyboardInterrupt):
                move()
                return

    until_done(lambda: import_files(source, shared, stops))
    until_done(lambda: export_files(shared, target, stops))
    assert len(steps) > 20
    assert facts(source) == facts(shared)
    assert content(source) == content(target)


def test_a_call_that_ends_after_its_import_is_settled_by_the_next_one(
    shared: SharedState, tmp_path: Path
) -> None:
    source = files(tmp_path / "a")
    spend = source.spending()
    room = reserve(spend, 3)
    import_files(source, shared, silent)
    assert shared.spending().today().cost == Decimal("0.03")
    assert [hold.expired for hold in check_database(shared.database).holds] == [True]
    spend.settle(room, CENT)
    spend.close()
    import_files(source, shared, silent)
    assert shared.spending().today().cost == Decimal("0.01")
    assert check_database(shared.database).holds == ()


@pytest.mark.parametrize("damage", ["cut", "changed", "no file"])
def test_a_trace_that_cannot_be_read_stays_alone(
    shared: SharedState, tmp_path: Path, damage: str
) -> None:
    """All others are moved, there and back, and it is told what is wrong with it."""
    source = files(tmp_path / "a")
    put(source.traces, 1, "one")
    path = source.traces.path(put(source.traces, 2, "two", answer="pears " * 10_000))
    put(source.traces, 3, "three")
    whole = path.read_bytes()
    assert whole.startswith(b"\x1f\x8b")
    path.unlink()
    if damage == "no file":
        path.mkdir()
    else:
        path.write_bytes(whole[:-9] if damage == "cut" else whole[:60] + b"\xff" * 40 + whole[100:])
    moved = import_files(source, shared, silent)
    assert (moved.counts["runs"], len(moved.left)) == (2, 1)
    assert moved.left[0].startswith(f"run '{path.stem}' cannot be read whole: ")
    begin_run(shared.traces, path.stem, [begun()]).close()
    assert export_files(shared, source, silent).left == [f"run '{path.stem}' differs in the files"]


def test_a_run_whose_process_is_gone_is_moved_once_and_whole(
    postgres: Cluster, tmp_path: Path
) -> None:
    """Also before a list has looked at it."""
    url = postgres.new_database()
    gone, shared = (SharedState(url, tmp_path, tmp_path) for _ in range(2))
    target = files(tmp_path / "a")
    run = "20261101-100000-00000a"
    happened = events(run, "How many?")[:5]
    writer = begin_run(gone.traces, run, happened)
    writer.flush()
    gone.traces.forget(writer)
    shared.database.call("UPDATE conductor_leases SET until = clock_timestamp()")
    assert export_files(shared, target, silent).counts["runs"] == 1
    assert list(target.traces.events(run)) == happened
    for again in (export_files(shared, target, silent), import_files(target, shared, silent)):
        assert (again.counts.total(), again.left) == (0, [])


def test_an_attachment_that_was_changed_is_told_and_left(
    shared: SharedState, tmp_path: Path
) -> None:
    source = files(tmp_path / "a")
    kept = source.attachments()
    kept.add(DATA)
    kept.store([IMAGE])
    (path,) = source.paths.attachments.glob("??/*")
    path.write_bytes(b"something else")
    moved = import_files(source, shared, silent)
    assert (moved.counts["attachments"], moved.left) == (
        0,
        [f"attachment {path} was changed after it was stored"],
    )
    assert not shared.attachments().holds(IMAGE)


def test_a_hold_that_was_released_is_no_call_under_way_elsewhere(
    shared: SharedState, tmp_path: Path
) -> None:
    """Its end, which comes after all, is counted where it comes."""
    source = files(tmp_path / "a")
    target = files(tmp_path / "b")
    spend = source.spending()
    room = reserve(spend, 3)
    import_files(source, shared, silent)
    export_files(shared, target, silent)
    assert [row.open for row in target.read_spent(LONG_AGO)] == [1]
    (hold,) = check_database(shared.database).holds
    assert release_hold(shared.database, hold.id)
    export_files(shared, target, silent)
    assert [row.open for row in target.read_spent(LONG_AGO)] == [0]
    import_files(target, shared, silent)
    assert shared.spending().today().cost == 0
    spend.settle(room, CENT)
    spend.close()
    import_files(source, shared, silent)
    assert shared.spending().today().cost == Decimal("0.01")
    export_files(shared, target, silent)
    assert target.spending().today().cost == Decimal("0.01")


def test_what_two_copies_of_an_export_have_spent_counts_twice(
    shared: SharedState, tmp_path: Path
) -> None:
    call(shared)
    copies = [files(tmp_path / name) for name in ("a", "b")]
    for copy in copies:
        export_files(shared, copy, silent)
        call(copy)
        call(copy, "app")
    for copy in (*copies, *copies):
        import_files(copy, shared, silent)
    assert shared.spending().today().cost == Decimal("0.05")
    export_files(shared, copies[0], silent)
    assert copies[0].spending().today().cost == Decimal("0.05")


def test_a_run_that_differs_is_told_and_stays(shared: SharedState, tmp_path: Path) -> None:
    source = files(tmp_path / "a")
    run = put(source.traces, 1, "one")
    begin_run(shared.traces, run, [begun()]).close()
    assert import_files(source, shared, silent).left == [f"run '{run}' differs in the database"]
    assert export_files(shared, source, silent).left == [f"run '{run}' differs in the files"]
    going_on = begin_run(source.traces, "20261130-100000-00000a", [begun()])
    assert import_files(source, shared, silent).left[1:] == [
        "run '20261130-100000-00000a' is being written"
    ]
    going_on.close()


def test_the_password_may_be_a_stored_key(
    postgres: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of this database; the environment comes first, and no message shows either."""
    url = postgres.new_database()
    bare = url.replace(f":{PASSWORD.replace(' ', '%20')}@", "@")
    for variable in ("PGPASSWORD", "PGPASSFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    keys = KeyStore(tmp_path, {})
    keys.set(POSTGRESQL, "postgresql://conductor@other/db", "swordfish", plaintext=True)
    with pytest.raises(StateUnavailable, match="asks for a password"):
        SharedState(bare, tmp_path, tmp_path).database.check()
    keys.set(POSTGRESQL, bare, PASSWORD, plaintext=True)
    SharedState(bare, tmp_path, tmp_path).database.check()
    monkeypatch.setenv("PGPASSWORD", "swordfish")
    with pytest.raises(StateUnavailable, match="refuses the password") as error:
        SharedState(bare, tmp_path, tmp_path).database.check()
    assert "swordfish" not in f"{error.value}{error.value.hint}"


STATES = sorted((Path(__file__).parent / "upgrades").glob("*.tar.xz"))
DAY = date(2026, 11, 26)


@pytest.fixture
def directory(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def unpack(archive: Path, directory: Path) -> list[Path]:
    """Put a state into its place. Returns the traces, the oldest first."""
    with tarfile.open(archive) as content:
        content.extractall(directory, filter="data")
    return sorted((directory / "state/traces").glob("*.jsonl"))


@pytest.mark.parametrize("archive", STATES, ids=lambda path: path.name.partition(".")[0])
def test_the_state_of_an_earlier_version_opens(
    archive: Path, directory: Path, stage: Stage
) -> None:
    """Settings, traces, ratings, spending and stored replies; what is rewritten keeps a copy."""
    traces = unpack(archive, directory)
    settings = json.loads(stage.ok("config", "show", "--json").out)
    assert "90.0" in json.dumps(settings)  # the time that the first token has, under either name
    assert "the good one" in stage.ok("workers", "list", "--json").out

    listed = json.loads(stage.ok("trace", "list", "--json").out)
    assert [run["state"] for run in listed] == ["finished"] * 3
    for path, steps in zip(traces, (3, 2, 4), strict=True):
        run = path.name.removesuffix(".jsonl")
        original = path.read_bytes()
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

    spending = directory / "state/spending"
    books = sorted((directory / "state/spending").glob("*.jsonl"))
    before = {row.worker: row.usage for row in read_spent(spending, DAY)}
    if (directory / "state/spending").exists():
        assert before["good"].calls >= 11
        assert before["good"].cost is not None
        columns = "failed" in (spending / FILE).read_bytes().decode("latin-1")
        open_database(spending / FILE).close()  # as the next run does
        assert {row.worker: row.usage for row in read_spent(spending, DAY)} == before
        assert columns or (spending / f"{FILE}.old").stat().st_size > 0
    assert all(book.with_name(f"{book.name}.old").exists() and not book.exists() for book in books)
    if (directory / "state/ratings.jsonl").exists():
        shown = stage.ok("workers", "show", "good")
        assert ("good" in shown.out, shown.err) == (True, "")
    for calls in directory.glob("state/evals/*/calls.jsonl"):
        stored = [json.loads(line) for line in calls.read_text().splitlines() if line.strip()]
        with closing(ResponseCache(calls)) as replies:
            replies_found = [replies.replies.get(reply["key"]) for reply in stored if reply["text"]]
        assert replies_found
        assert None not in replies_found


def test_what_a_newer_version_stored_is_refused(directory: Path, stage: Stage) -> None:
    traces = unpack(STATES[-1], directory)
    newer = gzip.decompress(traces[0].read_bytes()).replace(b'"format":3', b'"format":4', 1)
    traces[0].write_bytes(newer)
    done = stage.fails(2, "trace", "show", traces[0].name.removesuffix(".jsonl"))
    assert "was written by a newer conductor" in done.err
    assert "upgrade" in done.err
    assert traces[0].read_bytes() == newer

    with closing(sqlite3.connect(directory / "state/spending" / FILE)) as database:
        database.execute("PRAGMA user_version = 1")
    with pytest.raises(ConfigError, match="a newer conductor wrote it"):
        read_spent(directory / "state/spending", DAY)
    with pytest.raises(sqlite3.DatabaseError, match="newer"):
        open_database(directory / "state/spending" / FILE)


def test_a_rule_that_cannot_be_kept_is_refused(directory: Path, stage: Stage) -> None:
    """Ignored, it would protect nothing."""
    (directory / "config/config.toml").write_text('[policy]\nno_question = ["good"]\n')
    assert "[policy] has no key 'no_question'" in stage.fails(3, "config", "show").err
