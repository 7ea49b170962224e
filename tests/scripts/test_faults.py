"""A small part of the fault campaigns, what they count, and that they see what they look for.

`make faults` runs all of it. Of the campaigns of `make scale` the shortest form is run, without
judging times.
"""

from __future__ import annotations

import base64
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.state.spending import DailySpend
from scripts.faults import books, clocks, crashes, fuzz, fuzz_targets, limits, neighbours, wire
from scripts.faults.attacks import slow_pdf
from scripts.faults.crashes import Known, check, learn, live
from scripts.faults.desk import CANARY, Desk, desk, ending_problem
from scripts.faults.fuzz_targets import TARGETS, Target
from scripts.faults.kills import kill, prepare
from scripts.faults.prefork import Ended
from scripts.faults.syscalls import SCENES, Disturbed
from scripts.faults.tools import run as run_tools
from scripts.faults.tries import Outcome, OutOfTime, Report, Tries
from scripts.faults.wire import private_home
from scripts.faults.wire_faults import FAULTS
from scripts.scale import batch, outages, replicas, stage, state, traces
from scripts.scale.stage import CONDUCTOR, Figure
from tests import fork_server
from tests.cli.stage import Stage
from tests.state.cluster import Cluster, cluster

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@pytest.fixture(scope="module")
def at() -> Iterator[Desk]:
    """A desk for all tests: to make one takes longer than a test."""
    with desk() as made:
        prepare(made)
        yield made


@needs_strace
def test_a_killed_run_is_resumed_and_pays_nothing_twice(at: Desk) -> None:
    for calls, number in (("pwrite64", 1), ("write", 10)):
        assert kill(at, fault=f"{calls}:signal=SIGKILL:when={number}") == Outcome()


@needs_strace
def test_settings_survive_a_system_call_that_fails(at: Desk) -> None:
    """The old or the new settings are there whole, and the error is explained.

    An untouched command hits nothing.
    """
    at.reset()
    at.prefork.run(["config", "set", "limits.cost", "0.5"])
    at.save()
    command = Disturbed(SCENES["config"], at, list(SCENES["config"].words))
    for fault in ("write:error=ENOSPC:when=1", "rename:error=EIO:when=1"):
        assert command(fault=fault) == Outcome()
    assert command(fault="write:error=EIO:when=300") == Outcome(hit=False)


def test_the_checks_find_what_they_look_for(at: Desk) -> None:
    """A silent failure, a traceback, a signal, no end, and a key in an output or a file."""
    assert ending_problem(Ended(code=0, out="", err="")) == ""
    assert ending_problem(Ended(code=1, out="", err="")).startswith("it was not explained")
    assert ending_problem(Ended(code=1, out="", err="Traceback")).startswith("it was not explained")
    assert ending_problem(Ended(code=-11, out="", err="")) == "signal 11"
    assert ending_problem(Ended(code=None, out="", err="")) == "it did not end"
    assert at.leak_problem(Ended(code=0, out=CANARY, err="")) == "a key was printed"
    (at.home / "note").write_text(f"the key {CANARY}")
    assert at.leak_problem(Ended(code=0, out="", err="")) == "a key is in note"


def test_a_campaign_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    """What was tried is not tried again.

    A failure keeps its name, and an exception is a failure.
    """
    tried: list[str] = []

    def check(name: str) -> Outcome:
        tried.append(name)
        if name == "c":
            raise ValueError("no")
        return Outcome(problem="lost" if name == "b" else "", hit=name != "d", weight=3)

    first = Tries("demo", tmp_path, seed=1, minutes=5)
    for name in "ab":
        first.attempt(name, partial(check, name))
    again = Tries("demo", tmp_path, seed=1, minutes=5)
    for name in "abcd":
        again.attempt(name, partial(check, name))
    assert tried == ["a", "b", "c", "d"]
    report = again.report()
    assert (report.tried, report.failed, report.first) == (7, 2, "b: lost")
    with pytest.raises(OutOfTime):
        Tries("demo", tmp_path, seed=1, minutes=-1).attempt("e", partial(check, "e"))


def test_a_book_that_a_server_writes_for_several_keys_is_the_bill(at: Desk) -> None:
    """While other commands open and close it, and after a kill.

    In this order calls were lost once.
    """
    at.reset()
    at.stage.models.clear()
    assert books.write_book(at, books.prepare(at), random.Random("1 1")) == Outcome()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_honest", [True, False])
def test_random_limits_hold(at: Desk, is_honest: bool) -> None:
    """With an honest provider nothing exceeds them, with one that lies what SECURITY.md says."""
    encoder = limits.prepare(at)
    for number in range(2):
        chance = random.Random(f"7 {number}")
        setting = limits.draw_setting(chance, is_honest=is_honest)
        outcome = limits.try_setting(at, encoder, setting, chance)
        assert outcome.problem == "", setting


def test_a_limit_that_is_exceeded_is_seen() -> None:
    """Of all runs, of a day and of one run, by a fraction of a cent or one call."""
    drawn = limits.draw_setting(random.Random("1"), is_honest=True)
    setting = replace(
        drawn,
        command="batch",
        max_cost=Decimal(1),
        day_limits=(("calls_day", Decimal(3)),),
        run_limits=(("tokens", Decimal(100)),),
    )
    provider = limits.Provider(setting, random.Random("1"))
    provider.total = limits.Bill(cost=Decimal("1.001"), calls=4)
    provider.of_question["Why 1?"] = limits.Bill(tokens=101)
    problems = [*limits.exceeded(setting, provider, setting.max_cost)]
    assert [problem.split()[0] for problem in problems] == ["$1.001", "4", "101"]


def test_what_was_acknowledged_outlives_crashes() -> None:
    """Files hold all that processes were told is done, wherever they died.

    Traces, spending, ratings and settings are such files.
    """
    outcome = crashes.try_lives(1, 1)
    assert (outcome.problem, outcome.weight >= 5) == ("", True)


@pytest.mark.parametrize("writes", [1, 2])
def test_a_life_ends_inside_an_operation(tmp_path: Path, writes: int) -> None:
    """The last operation is begun and not acknowledged, and what is half written is not read."""
    events = live(tmp_path, 1, [("begin", 0), ("event", 0), ("rate", 0)], writes)
    learned = Known()
    for event in events:
        learn(learned, event)
    assert [event["done"][0] for event in events if "done" in event] == ["begin", "event"]
    assert events[-1]["begins"][0] == "rate"
    check(tmp_path, learned)


def test_a_lost_event_is_seen(tmp_path: Path) -> None:
    """An acknowledged event that is not in the file fails the campaign, with what was lost."""
    learned = Known()
    for event in live(tmp_path, 1, [("begin", 0), ("event", 0), ("list", 0)], 0):
        learn(learned, event)
    check(tmp_path, learned)
    file = next((tmp_path / "traces").glob("*.jsonl"))
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(AssertionError, match="acknowledged were"):
        check(tmp_path, learned)


@pytest.mark.parametrize("seed", range(4))
def test_no_jump_of_the_clock_gives_a_day_more_than_its_limit(seed: int) -> None:
    """Back, forward and over midnight, also within calls; back by up to a day opens no new day."""
    assert clocks.walk(seed).problem == ""


@pytest.mark.parametrize("night", clocks.NIGHTS)
def test_a_day_of_daylight_saving_is_one_day(night: str) -> None:
    """Where the clock goes over midnight by it, each day has its limit once, and may use it up."""
    zone = {"spring": "forward over midnight", "autumn": "back over midnight"}[night]
    outcome = clocks.through_a_night(zone, night)
    assert (outcome.hit, outcome.problem) == (True, "")


def test_a_clock_that_opens_new_days_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The campaign can fail.

    Where a call counts for the day that the clock shows, going back gives a new limit.
    """
    monkeypatch.setattr(DailySpend, "_day", lambda self, database: self._now().date())
    assert any("went back by less than a day" in clocks.walk(seed).problem for seed in range(12))


FAULTS_BY_NAME = {fault.name: fault for fault in FAULTS}
QUICK = (
    "reset-before-head",
    "reset-inside-event",
    "early-end",
    "no-answer",
    "trickle",
    "429-with-time",
    "500-echo",
    "error-event",
    "not-http",
    "wrong-types",
    "length-too-short",
    "two-answers",
    "late-second-answer",
    "gzip-truncated",
    "byte-order-mark",
    "lost-event",
)
"""Faults that need no timeout to be noticed."""


def tried(cases: list[wire.Case], directory: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    """What a campaign of these cases reports."""
    monkeypatch.setattr(wire, "cases", lambda: cases)
    # Longer than any machine is busy: none of these faults needs them.
    monkeypatch.setattr(wire, "TIMEOUTS", {"first_token": 30.0, "idle": 30.0, "total": 40.0})
    tries = Tries("wire", directory, seed=1, minutes=1)
    wire.run(tries)
    return tries.report()


def test_a_question_under_a_fault_ends_well_and_so_does_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run ends with what is right or says why not.

    The next one on the same connections is answered.
    """
    apis = ("chat", "responses", "anthropic", "gemini")
    workers = wire.WORKERS
    shapes = tuple(wire.SHAPES)
    cases = [
        wire.Case(apis[at % 4], FAULTS_BY_NAME[name], shapes[at % 3], workers[at // 4 % 4], "once")
        for at, name in enumerate(QUICK)
    ]
    report = tried(cases, tmp_path, monkeypatch)
    assert (report.tried, report.first) == (2 * len(QUICK), "")


def test_the_campaign_sees_a_wrong_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece that is lost where no API could notice it is found.

    Unless it is what the campaign allows.
    """
    lost = replace(FAULTS_BY_NAME["lost-event"], promise="right")
    report = tried([wire.Case("chat", lost, "chain", "three", "once")], tmp_path, monkeypatch)
    assert report.failed == 1
    assert "the text of step 3" in report.first


def test_tools_over_http_survive_a_reset(tmp_path: Path) -> None:
    """A call whose connection breaks off is an error that a worker can read.

    The next run gets its text.
    """
    tries = Tries("tools", tmp_path, seed=1, minutes=1, only="reset-before-head/tools/call/once")
    run_tools(tries)
    report = tries.report()
    assert (report.tried, report.failed) == (2, 0), report.first


FEW = {"pdf": 1, "gguf": 5, "trace": 5}


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_inputs_are_read_or_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inputs that a target begins with, and the first damaged ones, break no promise.

    A target leaves no file behind.
    """
    monkeypatch.setattr(fuzz_targets, "_MEMORY", tmp_path)
    monkeypatch.setitem(TARGETS, name, TARGETS[name]._replace(inputs=FEW.get(name, 40)))
    seeds = [] if name == "pdf" else TARGETS[name].seeds()[:3]
    assert not any(fuzz.try_input(name, seed) for seed in seeds)
    assert fuzz._try_inputs(name, "1").problem == ""
    assert list(tmp_path.iterdir()) == []


def raises(content: bytes) -> None:
    if b"7" in content:
        raise KeyError("seven")


def computes(content: bytes) -> None:
    while content:
        pass


def grows(content: bytes) -> None:
    bytes(content) * (130 << 20)


@pytest.mark.parametrize(
    ("check", "message"),
    [(raises, "KeyError: 'seven'"), (computes, "more than 0.2 s"), (grows, "MiB of memory")],
)
def test_a_broken_promise_is_seen(
    check: Callable[[bytes], None], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A foreign error, a slow input, and one that takes much memory are problems."""
    monkeypatch.setitem(TARGETS, "made up", Target(check=check, seeds=lambda: [b"7"]))
    monkeypatch.setattr(fuzz, "SECONDS", 0.1)
    assert message in fuzz.try_input("made up", b"7")


def test_the_name_of_a_try_is_its_reproduction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed try is found again by its name alone, with the same input.

    The input is in its problem.
    """
    monkeypatch.setattr(
        fuzz, "TARGETS", {"made up": Target(check=raises, seeds=lambda: [b"123456"], inputs=20)}
    )
    monkeypatch.setattr(fuzz, "ROUNDS", 3)
    reports = []
    for folder in ("one", "two"):
        fuzz._seeds.cache_clear()
        tries = Tries("fuzz", tmp_path / folder, seed=4, minutes=1)
        fuzz.run(tries)
        reports.append(tries.report())
    assert reports[0].failed == reports[1].failed > 0
    assert reports[0].first == reports[1].first
    assert "KeyError" in reports[0].first
    fuzz._seeds.cache_clear()


def test_waiting_is_not_computing() -> None:
    """The limit on an input counts what the processor does.

    So a busy machine breaks no promise.
    """
    with fuzz._stopped_after(0.01):
        time.sleep(0.05)


ELSEWHERE = {"memory", "streams that SIGKILL of a replica cut"}
"""What a test cannot judge: a child of this process counts its memory, and so few streams may miss
one replica.
"""

needs_haproxy = pytest.mark.skipif(
    shutil.which("haproxy", path="/usr/sbin:/usr/bin") is None, reason="haproxy is not installed"
)


def start_forked(words: list[str], env: dict[str, str], **how: Any) -> subprocess.Popen[bytes]:
    """Start a command of conductor as a fork, anything else anew."""
    own_words = words[len(CONDUCTOR) :]
    read_by_python = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(fork_server.READ_BY_PYTHON)
    }
    environ = {**read_by_python, **env, "PYTHONPATH": fork_server.SOURCE}
    if words == [*CONDUCTOR, *own_words] and fork_server.can_start(own_words, environ):
        return fork_server.ForkedCommand(own_words, env=environ, **how)
    return subprocess.Popen(words, env=env, **how)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


@pytest.mark.parametrize(
    "campaign",
    [
        pytest.param(partial(state.run, rounds=1), id="state"),
        pytest.param(partial(outages.run, stops=0, outage=1), id="outages"),
        pytest.param(
            partial(replicas.restart, streams=6, seconds=2, restarts=1),
            id="restart",
            marks=needs_haproxy,
        ),
        pytest.param(partial(batch.run, questions=200, kills=1, postgres=True), id="batch"),
        pytest.param(partial(traces.run, rows=30_000), id="traces"),
    ],
)
def test_what_replicas_promise_holds(
    campaign: Callable[[], Iterator[Figure]], postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share one server of PostgreSQL. The last one keeps connections to it open."""
    for module in (batch, outages, replicas, state, traces):
        monkeypatch.setattr(module, "cluster", lambda: nullcontext(postgres))
    monkeypatch.setattr(stage, "start_process", start_forked)
    monkeypatch.setattr(state, "PROCESSES", 5)
    monkeypatch.setattr(traces, "LINES", 2)
    monkeypatch.setattr(traces, "WRITES", 40)
    broken = [figure for figure in campaign() if figure.holds is False and not figure.timed]
    assert [figure for figure in broken if figure.what not in ELSEWHERE] == []


GIVEN_UP_SECONDS = 3 * neighbours.BATCH_SECONDS
"""What takes longer was given up: a batch after this time, and a failed request counts as more."""


@pytest.mark.parametrize(
    "name",
    [
        "runs that never end",
        "batches that never end",
        "uploads that trickle",
        "documents that take long",
        "schemas that take for ever",
    ],
)
def test_a_hostile_client_keeps_no_ordinary_one_waiting(tmp_path: Path, name: str) -> None:
    """What the ordinary client does ends, on a busy machine too; `make faults` judges how soon."""
    with private_home(tmp_path):
        desk_of_both = Stage(tmp_path)
        with desk_of_both.server:
            keys = neighbours.prepare(desk_of_both)
            figures = neighbours.attack(desk_of_both, name, keys, seconds=0.5, settle=0.5)
    endless = {
        work: seconds for work, seconds in figures.items() if max(seconds) > GIVEN_UP_SECONDS
    }
    assert endless == {}


def test_the_slow_documents_of_a_hostile_client_are_read() -> None:
    """Each is made another one by more letters of base64, which padding would forbid."""
    encoded = slow_pdf(2).partition("base64,")[2]
    assert base64.b64decode(encoded + "AAAA", validate=True).startswith(b"%PDF")
