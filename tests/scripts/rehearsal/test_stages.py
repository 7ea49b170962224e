"""`make rehearsal` in real processes, with a trainer in the place of ours that takes no time and counts its calls."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.rehearsal.report import clock, values
from scripts.rehearsal.stages import WORKERS

ROOT = Path(__file__).resolve().parents[3]

TRAINER = '''
import json, os, sys, time
from pathlib import Path

given = sys.argv[1:]
options = dict(zip(given, given[1:]))
out = Path(options.get("--out", given[-1]))


def learn(name, *makes):
    """Two calls: the first leaves a state, the second makes the files. `wait` is a pipe to wait at, `fail` an end."""
    for each in makes:
        each.parent.mkdir(parents=True, exist_ok=True)
    state = makes[0].with_name(name + ".state")
    print(name + ": learning", flush=True)
    if os.environ.get("WAIT_" + name):
        open(os.environ["WAIT_" + name]).read()
    if os.environ.get("FAIL_" + name):
        print("error: the state is damaged\\n  remove it")
        sys.exit(3)
    if not state.exists():
        state.write_text("half")
        sys.exit(3)
    for each in makes:
        if os.environ.get("SLOW_" + name):
            each.touch()
            time.sleep(1)
        rewards = [json.dumps({"step": step, "reward": step / 10}) for step in range(1, 11)]
        each.write_text(chr(10).join(rewards) if each.suffix == ".jsonl" else name)


if given[0] == "worker":
    learn(given[1], out / (given[1] + ".gguf"))
elif given[0] == "conductor" and options["--stage"] == "cold":
    learn("cold", out / "cold.gguf")
elif given[0] == "conductor":
    assert Path(options["--start"]).read_text() == "cold"
    assert "letters" in (Path(options["--workers"]) / "letters.gguf").read_text()
    assert Path(options["--cards"]).is_file()
    place = out / f"grpo-{options['--seed']}-{options.get('--steps', 220)}"
    learn("grpo-" + options["--seed"], place / "conductor.gguf", place / "curve.jsonl")
elif given[0] == "table":
    print("letters on letters, one hop                     0.990  at least 0.95   kept")
else:
    seed = int(Path(given[1]).read_text().removeprefix("grpo-"))
    kept = "MISSED" if os.environ.get("MISS") else "kept"
    print(f"four workers                                    0.9{seed}0  at least 0.85   {kept}")
    print("held-out phrasings                               0.800  at least 0.75   kept")
    sys.exit(1 if kept == "MISSED" or os.environ.get("BREAK") else 0)
'''

CONDUCTOR = """
import os, sys
from pathlib import Path

assert sys.argv[1:4] == ["workers", "calibrate", "--rehearsal"]
models = Path(os.environ["CONDUCTOR_LLM_REHEARSAL_DIR"])
Path(sys.argv[-1]).write_text((models / "letters.gguf").read_text())
"""

MAIN = """
import sys
from scripts.rehearsal import stages

programs = sys.argv.pop(1)
stages.TRAIN = (sys.executable, f"{programs}/train.py")
stages.CALIBRATE = (sys.executable, f"{programs}/conductor.py", *stages.CALIBRATE[3:])
from scripts.rehearsal.__main__ import main

sys.exit(main())
"""

ALL = ("cold", *WORKERS, "table", "cards", "grpo-2", "exam-2")


@dataclass(frozen=True, kw_only=True)
class Desk:
    """A directory, and the programs that stand in for the trainer and for `conductor`."""

    out: Path
    programs: Path

    def start(self, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        env = {**os.environ, "CONDUCTOR_LLM_CONDUCTOR_MODEL": "nothing", **environ}
        command = [sys.executable, "-c", MAIN, str(self.programs), "--out", str(self.out), *arguments]
        return subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def run(self, *arguments: str, **environ: str) -> tuple[int, str]:
        with self.start(*arguments, **environ) as process:
            told, _ = process.communicate(timeout=60)
        return process.returncode, told

    def calls(self) -> list[tuple[str, int]]:
        lines = (self.out / "stages.jsonl").read_text().splitlines()
        return [(call["stage"], call["exit"]) for call in map(json.loads, lines)]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "train.py").write_text(TRAINER)
    (tmp_path / "conductor.py").write_text(CONDUCTOR)
    return Desk(out=tmp_path / "build" / "rehearsal", programs=tmp_path)


def until(process: subprocess.Popen[str], text: str) -> None:
    """Read what it writes up to a line."""
    assert process.stdout is not None
    told = []
    for line in process.stdout:
        told.append(line)
        if text in line:
            return
    raise AssertionError("".join(told))


def before(order: Sequence[str], first: str, then: str) -> bool:
    return max(at for at, name in enumerate(order) if name == first) < order.index(then)


def test_everything_is_trained_from_nothing(desk: Desk) -> None:
    """Each stage runs until it is done, after what it needs. The end shows minutes, results and how to ship."""
    code, told = desk.run()
    assert code == 0, told
    order = [name for name, _ in desk.calls()]
    twice = ("cold", *WORKERS, "grpo-2")
    assert sorted(order) == sorted((*ALL, *twice))
    assert all(before(order, worker, then) for worker in WORKERS for then in ("table", "cards"))
    assert all(before(order, first, "grpo-2") for first in ("cold", "cards"))
    assert before(order, "grpo-2", "exam-2")
    assert "numbers: more to do (0." in told
    assert "four workers: 0.920 (0.920)" in told
    assert f"cp {desk.out}/cards.json src/conductor_cli/rehearsal/" in told
    assert f"cp {desk.out}/cold.gguf scripts/rehearsal/" in told
    line = json.loads((desk.out / "stages.jsonl").read_text().splitlines()[0])
    assert set(line) == {"stage", "at", "wall", "processor", "exit"}
    assert 0 < line["processor"] < line["wall"] + 1
    assert (desk.out / "conductor.gguf").read_text() == "grpo-2"
    assert len((desk.out / "curve.jsonl").read_text().splitlines()) == 10
    assert "grpo-2: reward 0.300 to 0.800 in 10 steps (means of 5)" in told
    assert "0.990" in (desk.out / "table.txt").read_text()


def test_a_half_written_file_starts_no_stage_that_needs_it(desk: Desk) -> None:
    """Other stages end while the worker's file is being written; the table waits for the whole file."""
    code, told = desk.run("--jobs", "5", SLOW_numbers="1")
    assert code == 0, told
    assert "starts over" not in told
    assert sorted(name for name, _ in desk.calls()) == sorted((*ALL, "cold", *WORKERS, "grpo-2"))


def test_finished_stages_are_not_repeated(desk: Desk) -> None:
    """A second call only prints the results again. `--status` shows what is missing."""
    assert desk.run("--status")[0] == 3
    assert not desk.out.exists()
    desk.run()
    before = desk.calls()
    code, told = desk.run()
    assert (code, desk.calls()) == (0, before)
    assert "four workers: 0.920" in told
    code, told = desk.run("--status")
    assert (code, told.count("done"), told.count("missing")) == (0, len(ALL), 0)


def test_several_seeds_share_the_supervised_training(desk: Desk) -> None:
    """Each is trained and evaluated separately; the mean is shown, and the first can be shipped."""
    desk.run()
    code, told = desk.run("--seeds", "1,2,3")
    assert code == 0, told
    names = [name for name, _ in desk.calls()]
    assert (names.count("cold"), names.count("grpo-1"), names.count("grpo-3"), names.count("exam-2")) == (2, 2, 2, 1)
    assert "four workers: 0.920 (0.910, 0.920, 0.930)" in told
    assert (desk.out / "conductor.gguf").read_text() == "grpo-1"


def test_a_changed_worker_repeats_the_stages_that_depend_on_it(desk: Desk) -> None:
    """Cards, tables and GRPO start over; the other workers and the supervised training stay."""
    desk.run()
    earlier = len(desk.calls())
    (desk.out / "letters.gguf").write_text("other letters")
    code, told = desk.run()
    assert code == 0, told
    assert {name for name, _ in desk.calls()[earlier:]} == {"table", "cards", "grpo-2", "exam-2"}
    assert [name for name, _ in desk.calls()[earlier:]].count("grpo-2") == 2
    assert "grpo-2: its input files have changed, so it starts over" in told


def test_a_signal_ends_running_stages_and_keeps_results(desk: Desk, tmp_path: Path) -> None:
    """Both jobs end and are recorded, no other starts, and the next call continues."""
    os.mkfifo(tmp_path / "pipe")
    process = desk.start(WAIT_cold=str(tmp_path / "pipe"), WAIT_facts=str(tmp_path / "pipe"))
    with process:
        until(process, "facts: learning")
        process.send_signal(signal.SIGTERM)
        told = process.communicate(timeout=30)[0]
    assert process.returncode == 128 + signal.SIGTERM
    assert told.rstrip().endswith("stopped; run the same command again to resume")
    calls = desk.calls()
    assert sorted(calls[-2:]) == [("cold", -signal.SIGTERM), ("facts", -signal.SIGTERM)]
    assert {"numbers", "letters"} == {name for name, code in calls if code == 0}
    assert desk.run()[0] == 0
    assert [name for name, _ in desk.calls()].count("numbers") == 2


def test_a_stage_of_a_killed_call_is_waited_for(desk: Desk, tmp_path: Path) -> None:
    """It writes the same files as the next call would."""
    os.mkfifo(tmp_path / "pipe")
    with desk.start(WAIT_cold=str(tmp_path / "pipe")) as process:
        until(process, "cold: learning")
        process.kill()
    with desk.start() as again:
        until(again, "waiting: somebody else, or a stage of an earlier call, is at work")
        (tmp_path / "pipe").write_text("go on")
        assert again.communicate(timeout=60)[0]
    assert again.returncode == 0
    assert desk.calls().count(("cold", 0)) == 1


def test_a_failed_stage_ends_the_call(desk: Desk) -> None:
    """A setting error has the exit code of an unfinished stage, but is not repeated for ever."""
    code, told = desk.run(FAIL_letters="1")
    assert code == 1
    assert "letters: FAILED, exit code 3" in told
    assert "letters: error: the state is damaged" in told
    assert [call for call in desk.calls() if call[0] == "letters"] == [("letters", 3)]
    assert not (desk.out / "table.txt").exists()
    assert desk.run()[0] == 0


def test_a_missed_bound_is_reported_at_the_end(desk: Desk) -> None:
    """The table is kept, the exit code is 1, and nothing is trained again for it."""
    code, told = desk.run(MISS="1")
    assert code == 1
    assert f"a bound is missed: see {desk.out}/seed-2/exam.txt" in told
    assert "ship it" in told
    assert desk.run()[0] == 1
    assert [name for name, _ in desk.calls()].count("exam-2") == 1


def test_the_output_of_a_crashed_stage_is_not_kept(desk: Desk) -> None:
    """A crash has the exit code of a missed bound."""
    code, told = desk.run(BREAK="1")
    assert code == 1
    assert "exam-2: FAILED, exit code 1" in told
    assert not (desk.out / "seed-2" / "exam.txt").exists()


def test_once_runs_each_stage_one_time(desk: Desk) -> None:
    """Exit code 3 says that there is more to do."""
    code, _ = desk.run("--once", "--steps", "7")
    assert code == 3
    assert sorted(desk.calls()) == sorted((name, 3) for name in ("cold", *WORKERS))
    desk.run("--steps", "7")
    assert (desk.out / "seed-2-steps-7" / "grpo-2-7" / "conductor.gguf").exists()


def test_parallel_stages_count_once_on_the_clock() -> None:
    """Two at a time for ten minutes, a pause, one alone for five."""
    calls = [("00:00", 600), ("00:05", 300), ("00:02", 60), ("01:00", 300)]
    lines = [{"at": f"2026-01-01T{at}:00+00:00", "wall": wall} for at, wall in calls]
    assert clock(lines) == 15
    assert clock([]) == 0


def test_a_row_is_found_by_its_full_name() -> None:
    """The beginning of another row's name is not it."""
    text = "held-out phrasings                             0.698  at least\nheld-out phrasings, best routing    0.934\n"
    assert values(text, "held-out phrasings") == [0.698]
    assert values(text, "four workers") == []
