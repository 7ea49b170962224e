"""`make rehearsal` with a fake trainer that takes no time.

In real processes where signals end them.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest

from training.rehearsal import __main__ as rehearsal

ROOT = Path(__file__).resolve().parents[3]

TRAINER = '''
import os, sys
from pathlib import Path

arguments = sys.argv[1:]
options = dict(zip(arguments, arguments[1:]))
out = Path(options.get("--out", arguments[-1]))


def learn(name, makes):
    """The first call stores a state, the second makes the file. WAIT_name is a pipe to read \
first, FAIL_name fails."""
    makes.parent.mkdir(parents=True, exist_ok=True)
    state = makes.with_name(name + ".state")
    print(name + ": learning", flush=True)
    if os.environ.get("WAIT_" + name):
        open(os.environ["WAIT_" + name]).read()
    if os.environ.get("FAIL_" + name):
        print("error: the state is damaged\\n  remove it")
        sys.exit(3)
    if not state.exists():
        state.write_text("half")
        sys.exit(3)
    makes.write_text(name)


if arguments[0] == "worker":
    learn(arguments[1], out / (arguments[1] + ".gguf"))
elif arguments[0] == "conductor" and options["--stage"] == "cold":
    learn("cold", out / "cold.gguf")
elif arguments[0] == "conductor":
    assert Path(options["--start"]).read_text() == "cold"
    assert "spelling" in (Path(options["--workers"]) / "spelling.gguf").read_text()
    place = out / f"grpo-{options['--seed']}-{options.get('--steps', 220)}"
    learn("grpo-" + options["--seed"], place / "conductor.gguf")
elif arguments[0] == "cards":
    (out / "cards.json").write_text((out / "spelling.gguf").read_text())
elif arguments[0] == "table":
    print("spelling at its own steps, one hop                     0.990  at least 0.95   pass")
else:
    seed = int(Path(arguments[1]).read_text().removeprefix("grpo-"))
    result = "MISSED" if os.environ.get("MISS") else "pass"
    print(f"known phrasings                                 0.9{seed}0  at least 0.85   {result}")
    print("held-out phrasings                               0.800  at least 0.75   pass")
    sys.exit(1 if result == "MISSED" or os.environ.get("BREAK") else 0)
'''

WORKERS = ("adding", "spelling", "geography")
ALL = ("cold", *WORKERS, "table", "cards", "grpo-1", "exam-1")
SETTINGS: dict[str, object] = {
    "WORKERS": WORKERS,
    "FILES": tuple(f"{name}.gguf" for name in WORKERS),
}
MAIN = f"""
import sys
from training.rehearsal import __main__ as rehearsal

vars(rehearsal).update({SETTINGS!r}, TRAIN=(sys.executable, "-IS", sys.argv.pop(1)))
sys.exit(rehearsal.main())
"""


@dataclass(frozen=True, kw_only=True)
class Project:
    """The directory of a training; beside it is the program that stands in for the trainer."""

    out: Path

    @property
    def trainer(self) -> str:
        return str(self.out.with_name("train.py"))

    def run(self, *arguments: str, **environ: str) -> tuple[int, str]:
        """The exit code and the output of `make rehearsal`, in this process."""
        changed = SETTINGS | {"TRAIN": (sys.executable, "-IS", self.trainer)}
        words = ["rehearsal", "--out", str(self.out), *arguments]
        with (
            redirect_stdout(io.StringIO()) as output,
            patch.object(signal, "signal"),
            patch.object(sys, "argv", words),
            patch.dict(os.environ, environ),
            patch.dict(vars(rehearsal), changed),
        ):
            return rehearsal.main(), output.getvalue()

    def start(self, **environ: str) -> subprocess.Popen[str]:
        """`make rehearsal` as a process of its own."""
        command = [sys.executable, "-c", MAIN, self.trainer, "--out", str(self.out)]
        return subprocess.Popen(
            command,
            env={**os.environ, **environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def calls(self) -> list[tuple[str, int]]:
        lines = (self.out / "stages.jsonl").read_text().splitlines()
        return [(call["stage"], call["exit"]) for call in map(json.loads, lines)]


def new_project(directory: Path) -> Project:
    (directory / "train.py").write_text(TRAINER)
    return Project(out=directory / "rehearsal")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return new_project(tmp_path)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, str]:
    """A training from nothing to its end, and what it said."""
    made = new_project(tmp_path_factory.mktemp("first"))
    code, output = made.run()
    assert code == 0, output
    return made, output


@pytest.fixture
def finished(project: Project, first: tuple[Project, str]) -> Project:
    """A copy of a training that is done."""
    shutil.copytree(first[0].out, project.out)
    return project


def read_until(process: subprocess.Popen[str], text: str) -> None:
    """Read the output up to a line with this text."""
    assert process.stdout is not None
    assert any(text in line for line in process.stdout)


def before(order: Sequence[str], first: str, then: str) -> bool:
    return max(at for at, name in enumerate(order) if name == first) < order.index(then)


def test_everything_is_trained_from_nothing(first: tuple[Project, str]) -> None:
    project, output = first
    order = [name for name, _ in project.calls()]
    twice = ("cold", *WORKERS, "grpo-1")
    assert sorted(order) == sorted((*ALL, *twice))
    assert all(before(order, worker, "table") for worker in WORKERS)
    assert all(before(order, worker, "cards") for worker in WORKERS)
    assert all(before(order, earlier, "grpo-1") for earlier in ("cold", *WORKERS))
    assert before(order, "grpo-1", "exam-1")
    assert "adding: more to do (0." in output
    assert "known phrasings: 0.910 (0.910)" in output
    assert f"cp {project.out}/cold.gguf src/conductor_cli/rehearsal/models/" in output
    line = json.loads((project.out / "stages.jsonl").read_text().splitlines()[0])
    assert set(line) == {"stage", "at", "wall", "processor", "exit"}
    assert 0 < line["processor"] < line["wall"] + 1
    assert (project.out / "conductor.gguf").read_text() == "grpo-1"
    assert "0.990" in (project.out / "table.txt").read_text()


def test_finished_stages_are_not_repeated(finished: Project) -> None:
    earlier = finished.calls()
    code, output = finished.run()
    assert (code, finished.calls()) == (0, earlier)
    assert "known phrasings: 0.910" in output


def test_a_changed_worker_repeats_the_stages_that_depend_on_it(finished: Project) -> None:
    """Cards, tables and GRPO start over; the other workers and the supervised training stay."""
    earlier = len(finished.calls())
    (finished.out / "spelling.gguf").write_text("other spelling")
    code, output = finished.run()
    assert code == 0, output
    again = [name for name, _ in finished.calls()[earlier:]]
    assert sorted(again) == ["cards", "exam-1", "grpo-1", "grpo-1", "table"]
    assert "grpo-1: its input files have changed, so it starts over" in output


def test_a_signal_ends_running_stages_and_keeps_results(project: Project, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    process = project.start(WAIT_cold=str(tmp_path / "pipe"), WAIT_geography=str(tmp_path / "pipe"))
    with process:
        read_until(process, "geography: learning")
        process.send_signal(signal.SIGTERM)
        output = process.communicate(timeout=30)[0]
    assert process.returncode == 128 + signal.SIGTERM
    assert output.rstrip().endswith("stopped; run the same command again to resume")
    calls = project.calls()
    assert sorted(calls[-2:]) == [("cold", -signal.SIGTERM), ("geography", -signal.SIGTERM)]
    assert set(WORKERS[: WORKERS.index("geography")]) == {name for name, code in calls if code == 0}
    assert project.run()[0] == 0
    assert [name for name, _ in project.calls()].count("adding") == 2


def test_the_next_call_waits_for_a_stage_of_a_killed_one(project: Project, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with project.start(WAIT_cold=str(tmp_path / "pipe")) as process:
        read_until(process, "cold: learning")
        process.kill()
    with project.start() as again:
        read_until(again, "waiting for another training, or a stage of an earlier one")
        (tmp_path / "pipe").write_text("go on")
        assert again.communicate(timeout=60)[0]
    assert again.returncode == 0
    assert project.calls().count(("cold", 0)) == 1


def test_a_failed_stage_ends_the_call(project: Project) -> None:
    """A setting error has the exit code of an unfinished stage, but is not repeated."""
    code, output = project.run(FAIL_spelling="1")
    assert code == 1
    assert "spelling: FAILED, exit code 3" in output
    assert "spelling: error: the state is damaged" in output
    assert [call for call in project.calls() if call[0] == "spelling"] == [("spelling", 3)]
    assert not (project.out / "table.txt").exists()


def test_a_missed_bound_is_reported_at_the_end_and_a_crash_is_no_missed_bound(
    finished: Project,
) -> None:
    """Both have the same exit code.

    The output of a crashed stage is not stored; a table with a missed bound is.
    """
    exam = finished.out / "seed-1" / "exam.txt"
    exam.unlink()
    code, output = finished.run(BREAK="1")
    assert (code, exam.exists()) == (1, False)
    assert "exam-1: FAILED, exit code 1" in output
    earlier = len(finished.calls())
    code, output = finished.run(MISS="1")
    assert code == 1
    assert f"a bound is missed: see {exam}" in output
    assert "ship it" in output
    assert finished.run()[0] == 1
    assert finished.calls()[earlier:] == [("exam-1", 1)]


def test_a_short_trial_has_a_directory_of_its_own(project: Project) -> None:
    stages = rehearsal.plan(project.out, seeds=(1,), minutes=1, steps=7)
    assert {"seed-1-steps-7/grpo-*/conductor.gguf", "seed-1-steps-7/exam.txt"} <= {
        stage.makes for stage in stages
    }
