"""`eval`, `try` and `workers calibrate`.

Requests to a local server, real files, signals, and suites of a hub.
"""

from __future__ import annotations

import json
import re
import signal
import threading
import venv
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pexpect
import pytest

from conductor_cli.cli.try_command import advise
from conductor_cli.config.cards import cards_file
from conductor_cli.config.files import app_paths
from conductor_cli.core.errors import ConfigError
from conductor_cli.evals import sandbox
from conductor_cli.evals.cases import EVERYDAY_FILE, is_correct, read_cases
from conductor_cli.evals.sandbox import require_sandbox
from conductor_cli.evals.summary import Summary, summarize
from conductor_cli.rehearsal import players as rehearsal_workers
from tests.cli.stage import COMMAND, Done, Stage, refuses, says, stalls, stopped
from tests.cli.terminals import start_in_terminal
from tests.evals.sample_outcomes import outcomes
from tests.hub import Hub, Refusal, gated, hub, read_environment
from tests.servers import Script, SeenRequest, Wire

SUMS = [
    {
        "id": f"s{number}",
        "question": f"What is {number} + 1?",
        "answer": f"{number + 1}",
        "scorer": "number",
        "tags": ["sums"],
    }
    for number in range(1, 7)
]


DEAR = dict.fromkeys(("alpha", "beta"), "price = { input = 1000, output = 1000 }")


def knows(*numbers: int) -> Script:
    """A worker that adds one to these numbers, and answers 0 to all others."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        text = " ".join(message["content"] for message in request.json["messages"])
        right = next((number for number in numbers if f"What is {number} + 1?" in text), -1)
        await says(f"It is {right + 1}.", read=20, written=4)(request, wire)

    return script


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """Six sums in a file."""
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(json.dumps(case) + "\n" for case in SUMS))
    return path


@pytest.fixture
def two_workers(stage: Stage) -> Stage:
    """Two workers, of which alpha knows more, and no planner."""
    stage.configure(conductor=None)
    stage.models = {"alpha": knows(1, 2, 3, 4), "beta": knows(4, 5)}
    return stage


def by_name(evaluation: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {system["name"]: system for system in evaluation["systems"]}


def test_each_system_runs_on_the_same_cases(two_workers: Stage, cases: Path) -> None:
    done = two_workers.ok("eval", cases, "--systems", "alone,vote", "--yes", "--json")
    results = by_name(done.json)
    assert {name: system["right"] for name, system in results.items()} == {
        "alone:alpha": 4,
        "alone:beta": 2,
        "vote": 4,
    }
    assert [system["n"] for system in results.values()] == [6, 6, 6]
    assert (
        results["alone:alpha"]["calls"],
        results["vote"]["calls"],
        results["vote"]["tokens"],
    ) == (
        1,
        5,
        120,
    )
    assert (results["alone:alpha"]["cost"], results["alone:alpha"]["unpriced"]) == (None, 6)
    assert done.json["best_worker"] == "alone:alpha"
    assert results["alone:beta"]["versus_best"]["difference"] == pytest.approx(-1 / 3)
    assert results["alone:alpha"]["tags"]["sums"]["right"] == 4
    assert (done.json["cases"], done.json["seed"], done.json["source"]) == (6, 0, "sums.jsonl")
    assert "18 of 18 runs" in done.err
    spent = two_workers.ok("cost", "--json").json["rows"]
    # Not alpha-1 to alpha-5, as the votes are called
    assert {row["worker"] for row in spent} == {"alpha", "beta"}


@pytest.fixture
def own_scorer(tmp_path: Path) -> Path:
    """A file with a scorer that takes an even number for right, whatever the case expects."""
    path = tmp_path / "checks.py"
    path.write_text(
        "def even(answer, case):\n"
        "    assert case.question.startswith('What is')\n"
        "    return 0.5 if int(answer.split()[-1].strip('.')) % 2 == 0 else 0.25\n"
        "def word(answer, case):\n    return 'right'\n"
    )
    return path


def test_a_scorer_of_the_users_own_takes_the_place_of_those_of_the_cases(
    two_workers: Stage, cases: Path, own_scorer: Path
) -> None:
    """Another one, or a changed one, begins a new evaluation."""
    command = ("eval", cases, "--systems", "alone", "--yes", "--json")
    by_own_scorer = two_workers.ok(*command, "--scorer", f"{own_scorer}:even").json
    # alpha says 2, 3, 4, 5, 0 and 0; beta says 0, 0, 0, 5, 6 and 0
    assert [by_name(by_own_scorer)[f"alone:{name}"]["right"] for name in ("alpha", "beta")] == [
        4,
        5,
    ]
    assert any(
        f"scored by {own_scorer}:even" in note and "0.5" in note for note in by_own_scorer["notes"]
    )
    state = app_paths(two_workers.environ()).state
    (stored,) = state.glob("evals/*/outcomes.jsonl")
    assert "checks.py:even gave 0.25" in stored.read_text()
    usual = two_workers.ok(*command).json
    assert by_name(usual)["alone:alpha"]["right"] == 4
    assert by_name(usual)["alone:beta"]["right"] == 2
    assert usual["id"] != by_own_scorer["id"]


@pytest.mark.parametrize(
    ("function", "options", "code", "problem"),
    [
        ("word", (), 3, "returned 'right', not a number from 0 to 1"),
        ("missing", (), 3, "has no function missing"),
        ("even", ("--judge", "alpha"), 2, "--scorer and --judge cannot be given together"),
        ("even", ("--ray", "auto"), 2, "--scorer and --ray cannot be given together"),
    ],
)
def test_a_scorer_that_cannot_score_is_refused(
    two_workers: Stage,
    cases: Path,
    own_scorer: Path,
    function: str,
    options: tuple[str, ...],
    code: int,
    problem: str,
) -> None:
    scorer = f"{own_scorer}:{function}"
    command = ("eval", cases, "--systems", "alone", "--yes", "--scorer", scorer)
    two_workers.ends(code, *command, *options, told=problem)


def test_a_file_of_cases_cannot_name_code(two_workers: Stage, own_scorer: Path) -> None:
    cases = own_scorer.with_name("foreign.jsonl")
    cases.write_text(json.dumps({**SUMS[0], "scorer": f"{own_scorer}:even"}) + "\n")
    two_workers.costs_nothing(
        2, "eval", cases, "--systems", "alone", "--yes", told="unknown scorer"
    )


def test_by_default_one_system_of_each_idea_is_compared(stage: Stage, cases: Path) -> None:
    stage.models = {"alpha": knows(1, 2, 3), "beta": knows()}
    done = stage.ok("eval", cases, "--yes", "--json")
    assert list(by_name(done.json)) == ["best-worker", "keyword", "vote", "moa", "conductor"]
    lines = done.err.splitlines()
    assert lines[0].startswith("comparing best-worker, keyword, vote, moa, conductor on ")
    assert re.match(r"30 runs: about ", lines[1]), done.err
    assert lines[2].startswith("estimated cost: ")


def test_by_default_the_conductor_is_left_out_if_no_model_plans(
    two_workers: Stage, cases: Path
) -> None:
    done = two_workers.ok("eval", cases, "--yes", "--json")
    assert list(by_name(done.json)) == ["best-worker", "keyword", "vote", "moa"]
    (line,) = [line for line in done.err.splitlines() if line.startswith("left out")]
    assert line.startswith("left out: conductor: ")
    assert line in done.json["notes"]


def test_an_evaluation_that_may_cost_money_needs_a_confirmation(
    two_workers: Stage, cases: Path
) -> None:
    messages = ("12 runs: about 12 calls", "unknown: no price is known for alpha, beta", "--yes")
    two_workers.ends(2, "eval", cases, "--systems", "alone", out="", told=messages)
    # It cannot be enforced
    two_workers.fails(3, "eval", cases, "--systems", "alone", "--yes", "--max-cost", "1")
    assert two_workers.posts == []


def test_systems_share_calls_under_a_limit_that_leaves_each_other_room(
    stage: Stage, cases: Path
) -> None:
    """Each call may write its share of what is left, which is another one each time."""
    price = "price = { input = 0, output = 1000 }"
    stage.configure(conductor=None, workers={"alpha": price, "beta": price})
    stage.models = {"alpha": knows(1, 2, 3, 4), "beta": knows(4, 5)}
    words = ("eval", cases, "--systems", "alone,moa", "--yes", "--json", "--max-cost", "60")
    spent = stage.ok(*words).json["spent"]
    rooms = {request.json["max_tokens"] for request in stage.posts}
    assert len(rooms) > 6
    assert len(stage.posts) == 6 * (2 + 1)
    assert Decimal(spent) == Decimal("0.004") * len(stage.posts)


def test_a_free_evaluation_starts_at_once(two_workers: Stage, cases: Path) -> None:
    two_workers.configure(
        workers=dict.fromkeys(("alpha", "beta"), "price = { input = 0, output = 0 }")
    )
    done = two_workers.ok("eval", cases, "--systems", "alone", "--json")
    assert by_name(done.json)["alone:alpha"]["cost"] == "0"
    assert "estimated" not in done.err


@pytest.mark.parametrize(
    ("answer", "code", "has_calls"), [("n", 0, False), ("y", 0, True), ("\x03", 130, False)]
)
def test_a_terminal_asks_for_confirmation(
    two_workers: Stage, cases: Path, answer: str, code: int, has_calls: bool
) -> None:
    command = COMMAND if answer == "\x03" else ()
    child = start_in_terminal(
        two_workers, "eval", str(cases), "--systems", "alone", command=command
    )
    child.expect("Continue\\? ")
    child.sendline(answer)
    child.expect(pexpect.EOF)
    child.close()
    assert (child.exitstatus, len(two_workers.posts) > 0) == (code, has_calls)
    screen_text = str(child.before)
    assert ("alone:alpha" in screen_text) is has_calls
    assert "66.7" in screen_text or not has_calls
    assert "Traceback" not in screen_text


def test_only_systems_that_plan_look_for_the_conductor_model(
    two_workers: Stage, cases: Path
) -> None:
    two_workers.configure(conductor="openai/gpt")
    two_workers.ends(
        4,
        "eval",
        cases,
        "--yes",
        "--json",
        "--n",
        "2",
        "--systems",
        "conductor",
        told="OPENAI_API_KEY",
    )
    assert (
        two_workers.ok("eval", cases, "--yes", "--json", "--n", "2", "--systems", "alone").json[
            "conductor"
        ]
        is None
    )


def cut_off(stage: Stage, *arguments: str | Path, by: signal.Signals) -> Done:
    """Start an evaluation, end it with a signal while beta stalls, and let beta answer again.

    Beta has answered twice before it stalls.
    """
    scripts = dict(stage.models)
    request_count = 0
    waits = threading.Event()

    async def held(request: SeenRequest, wire: Wire) -> None:
        nonlocal request_count
        request_count += 1
        if request_count > 2:
            waits.set()
        await (scripts["beta"] if request_count <= 2 else stalls())(request, wire)

    stage.models["beta"] = held
    with stage.start(
        "eval", *arguments, "--systems", "alone", "--parallel", "1", "--yes", "--json"
    ) as process:
        assert waits.wait(30)
        done = stopped(process, by)
    stage.models = scripts
    return done


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_an_evaluation_that_was_ended_goes_on(
    two_workers: Stage, cases: Path, by: signal.Signals
) -> None:
    done = cut_off(two_workers, cases, by=by)
    assert (done.code, done.out) == (128 + by, "")
    assert by == signal.SIGKILL or "of 12 runs are stored; the same command continues" in done.err
    before = len(two_workers.posts)
    assert (
        0
        < sum(
            system["n"]
            for system in two_workers.ok("eval", "--show", "last", "--json").json["systems"]
        )
        < 12
    )
    assert len(two_workers.posts) == before
    done = two_workers.ok(
        "eval", cases, "--systems", "alone", "--yes", "--json", told="continuing 2"
    )
    assert len(two_workers.posts) - before < 12 - 4
    scores = {name: (system["right"], system["n"]) for name, system in by_name(done.json).items()}
    assert scores == {"alone:alpha": (4, 6), "alone:beta": (2, 6)}


def test_a_stored_evaluation_is_shown_without_its_models(two_workers: Stage, cases: Path) -> None:
    with two_workers.config.open("a") as file:
        file.write('[workers.gone]\nkind = "openai"\nmodel = "m"\n')
    first = two_workers.ok("eval", cases, "--systems", "alone,moa", "--yes", "--json")
    assert any("alone:gone" in line for line in first.json["notes"])
    two_workers.configure(workers=("gamma",), conductor="none/such")
    before = len(two_workers.posts)
    for name in ("last", first.json["id"]):
        assert two_workers.ok("eval", "--show", name, "--json").json == first.json
    assert len(two_workers.posts) == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('model = "beta"', 'model = "gamma"'),
        ("[planner]", '[planner]\nprofile = "published"'),
        ("attempts = 1", "attempts = 1\n[timeouts]\nidle = 5"),
        ("", ""),
    ],
    ids=["worker", "profile", "timeouts", "seed"],
)
def test_a_changed_evaluation_is_not_continued(
    stage: Stage, cases: Path, old: str, new: str
) -> None:
    stage.models["beta"] = refuses(400, "no")
    words = ("eval", cases, "--systems", "conductor,alone:beta", "--yes", "--n", "2")
    stage.inside(*words)
    stage.config.write_text(stage.config.read_text().replace(old, new, 1))
    assert "continuing" not in stage.inside(*words, "--seed", "0" if old else "1").err
    assert len(stage.inside("eval", "--list", "--json").json["evaluations"]) == 2


def test_an_evaluation_without_a_judged_case_ends_with_8(two_workers: Stage, cases: Path) -> None:
    two_workers.models = dict.fromkeys(("alpha", "beta"), refuses(500, "down"))
    two_workers.ends(
        8, "eval", cases, "--systems", "alone", "--yes", told="no case could be judged"
    )


def test_without_bubblewrap_programs_are_refused_before_anybody_is_asked(
    two_workers: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "programs.jsonl"
    answer = json.dumps({"asserts": "assert double(2) == 4", "function": "double"})
    path.write_text(
        json.dumps({"id": "1", "question": "Double.", "answer": answer, "scorer": "program"}) + "\n"
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    done = two_workers.costs_nothing(3, "eval", path, "--systems", "alone", "--yes")
    assert "bubblewrap" in done.err
    assert "Inspect" in done.err


def test_another_python_scores_the_replies_anew_and_asks_nobody(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report never mixes verdicts of two Pythons, whether the first evaluation had ended or not.

    What was paid counts for the limit.
    """
    try:
        require_sandbox()
    except ConfigError as error:
        pytest.skip(error.message)
    monkeypatch.setattr(sandbox._Chosen, "interpreter", None)
    venv.create(tmp_path / "venv", symlinks=True)
    other = str(tmp_path / "venv/bin/python")
    program = "import sys\ndef double(x):\n    return 2 * x if 'venv' in sys.prefix else 0"
    free = "price = { input = 0, output = 0 }"
    stage.configure(conductor=None, workers={"alpha": DEAR["alpha"], "beta": free})
    stage.models = {"alpha": says(f"```python\n{program}\n```"), "beta": refuses(500, "down")}
    path = tmp_path / "programs.jsonl"
    answer = json.dumps({"asserts": "assert double(2) == 4", "function": "double"})
    case = {"id": "1", "question": "Double.", "answer": answer, "scorer": "program"}
    path.write_text(json.dumps(case) + "\n")
    words = ("eval", path, "--systems", "alone", "--yes", "--json", "--max-cost", "2")
    first = stage.ok(*words).json
    assert [system["right"] for system in first["systems"]] == [0, 0]
    assert [system["failed"] for system in first["systems"]] == [0, 1]
    stage.ok("config", "set", "eval.python", other)
    before = len(stage.asked("alpha"))
    done = stage.ok(*words, told=f"were run by {first['python']} in {first['id']}: the replies")
    assert done.json["id"] != first["id"]
    assert done.json["python"].startswith(other)
    assert [system["right"] for system in done.json["systems"]] == [1, 0]
    assert done.json["spent"] == first["spent"]
    stage.models["beta"] = stage.models["alpha"]
    continued = stage.ok(*words, told="continuing 2").json
    assert [system["right"] for system in continued["systems"]] == [1, 1]
    assert len(stage.asked("alpha")) == before
    shown = stage.ok("eval", "--show", first["id"], "--json").json
    assert [system["right"] for system in shown["systems"]] == [0, 0]


def test_other_rules_score_the_replies_anew_and_ask_nobody(two_workers: Stage, cases: Path) -> None:
    """A report never mixes verdicts of two versions, whether the evaluation had ended or not."""
    words = ("eval", cases, "--systems", "alone", "--yes", "--json")
    first = two_workers.ok(*words).json
    state = app_paths(two_workers.environ()).state
    (spec_file,) = state.glob("evals/*/spec.json")
    spec = json.loads(spec_file.read_text())
    assert spec["rules"]
    spec_file.write_text(json.dumps({**spec, "rules": "those of an earlier version"}))
    outcomes = spec_file.with_name("outcomes.jsonl")
    outcomes.write_text(outcomes.read_text().replace('"right"', '"wrong"'))
    before = len(two_workers.posts)
    done = two_workers.ok(*words, told=f"by the rules of another version in {first['id']}: the")
    assert done.json["id"] != first["id"]
    rights = [system["right"] for system in first["systems"]]
    assert any(rights)
    assert [system["right"] for system in done.json["systems"]] == rights
    assert len(two_workers.posts) == before
    assert "rules" not in done.json


def test_continuing_with_an_exhausted_budget_makes_no_calls(
    two_workers: Stage, cases: Path
) -> None:
    two_workers.configure(workers=DEAR)
    arguments = ("--yes", "--max-cost", "0.33", "--json")
    first = two_workers.inside("eval", cases, "--systems", "alone", *arguments)
    before = len(two_workers.posts)
    assert (first.code, before) == (6, 3), "0.024 each"
    assert "estimated cost: usually " in first.err
    assert "it stops where $0.3300 would be exceeded; --max-cost USD sets another" in first.err
    assert "unknown" not in first.err
    done = two_workers.inside("eval", cases, "--systems", "alone", *arguments)
    assert (done.code, len(two_workers.posts)) == (6, before)
    assert "the limit of $0.3300 is reached: 3 of 12 runs cost $0.0720" in done.err
    assert done.json == first.json


def test_an_exhausted_limit_of_the_day_stops_every_evaluation(
    two_workers: Stage, cases: Path
) -> None:
    two_workers.configure("[limits]\nattempts = 1\ncost_day = 0.33", workers=DEAR)
    first = two_workers.inside("eval", cases, "--systems", "alone", "--yes", "--json")
    before = len(two_workers.posts)
    assert (first.code, before) == (6, 3), first.err
    assert "wait for tomorrow" in first.err
    other = two_workers.inside("eval", cases, "--systems", "best-worker", "--yes", "--json")
    assert (other.code, len(two_workers.posts)) == (6, before), other.err
    assert "0 of 6 runs cost $0.00" in other.err


@pytest.mark.parametrize(("limit", "calls"), [("calls_day = 4", 4), ("tokens_day = 1000", 24)])
def test_each_limit_of_the_day_stops_an_evaluation(
    two_workers: Stage, cases: Path, limit: str, calls: int
) -> None:
    """It counts no case as failed; tomorrow the same command goes on."""
    two_workers.configure(f"[limits]\nattempts = 1\n{limit}")
    done = two_workers.inside("eval", cases, "--systems", "alone", "--yes", "--json")
    assert done.code == 6, done.err
    assert "today's limit of" in done.err
    assert 0 < len(two_workers.posts) <= calls
    assert not any(system["failed"] for system in done.json["systems"])


def test_no_key_is_in_the_report(
    two_workers: Stage, cases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-planted/0123456789"
    monkeypatch.setenv("A_KEY", key)
    two_workers.config.write_text(
        two_workers.config.read_text().replace(
            'model = "beta"', 'model = "beta"\nkey_env = "A_KEY"\nheaders = { X-Team = "s3cret" }'
        )
    )
    cases.write_text(
        cases.read_text()
        .replace("What is 3", f"With {key}, what is 3")
        .replace('"sums"', f'"{key}"')
    )
    done = two_workers.ok("eval", cases, "--systems", "alone", "--yes", "--json")
    assert key not in done.out + done.err
    stored = [
        path.read_text()
        for path in (two_workers.home / "state/conductor-llm/evals").rglob("*.json*")
    ]
    assert len(stored) == 5
    assert not any("s3cret" in text for text in stored), "no header of a worker is stored"


def test_damaged_evaluations_are_not_listed(two_workers: Stage, cases: Path) -> None:
    assert "no evaluations are stored" in two_workers.inside("eval", "--list").out
    for _ in range(2):
        two_workers.inside("eval", cases, "--systems", "alone", "--yes", "--n", "2")
    whole, damaged = (
        row["id"] for row in two_workers.inside("eval", "--list", "--json").json["evaluations"]
    )
    directory = two_workers.home / "state/conductor-llm/evals"
    (directory / damaged / "spec.json").write_text("{")
    (directory / "a file").touch()
    listed = two_workers.ok("eval", "--list")
    suites, _, evaluations = listed.out.partition("\n\n")
    lines = [line.split() for line in evaluations.splitlines()]
    assert [(line[0], line[-3:]) for line in lines[1:]] == [(whole, ["2", "4", "4"])]
    assert "gpqa_diamond.csv of Idavidrein/gpqa" in suites


def test_print_cases_prints_built_in_sets(two_workers: Stage, tmp_path: Path) -> None:
    for name in ("rehearsal", "basics"):
        first = two_workers.inside("eval", name, "--n", "30", "--print-cases")
        assert first.out == two_workers.inside("eval", name, "--n", "30", "--print-cases").out
        assert len({case["question"] for case in first.events}) == 30
        (tmp_path / "again.jsonl").write_text(first.out)
        assert (
            two_workers.inside("eval", tmp_path / "again.jsonl", "--print-cases").out == first.out
        )


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nothing",),
        (__file__,),
        ("--list", "--show", "last"),
        ("--show", "last"),
        ("basics", "--systems", "magic", "--yes"),
        ("basics", "--systems", ",", "--yes"),
        ("basics", "--workers", "nobody", "--systems", "alone"),
        ("basics", "--max-cost", "much"),
        ("basics", "--from", "riddles"),
        ("rehearsal", "--n", "100000000"),
    ],
    ids=" ".join,
)
def test_invalid_command_lines_have_exit_code_2(
    two_workers: Stage, arguments: tuple[str, ...]
) -> None:
    two_workers.costs_nothing(2, "eval", *arguments, out="")


def test_the_rehearsal_runs_the_demo_workers(
    two_workers: Stage, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal_workers, "model_path", lambda _: tiny)
    done = two_workers.ok(
        "eval", "rehearsal", "--systems", "alone,best-routing", "--n", "3", "--json"
    )
    assert set(by_name(done.json)) == {
        *(f"alone:{name}" for name in rehearsal_workers.NAMES),
        "best-routing",
    }
    assert len(two_workers.posts) == 0
    assert (done.json["source"], done.json["cases"]) == ("rehearsal", 3)
    assert all(system["cost"] == "0" for system in done.json["systems"])


def test_spending_that_cannot_be_recorded_is_told(two_workers: Stage, cases: Path) -> None:
    spending = two_workers.traces.parent / "spending"
    spending.parent.mkdir(parents=True, exist_ok=True)
    spending.write_text("in the way")
    done = two_workers.ok("eval", cases, "--systems", "alone", "--yes", "--json")
    assert f"note: what was spent is not recorded: {spending}: File exists\n" in done.err


def test_cases_are_run_several_times(two_workers: Stage, cases: Path) -> None:
    words = ("eval", cases, "--systems", "alone", "--repeat", "3", "--yes")
    done = two_workers.ok(*words, told="on 6 cases, 3 times each")
    assert "12 of 18 answers to 6 cases right" in done.out
    assert "6 cases of sums.jsonl, each run 3 times, seed 0" in done.out
    assert len(two_workers.posts) == 36
    shown = two_workers.inside("eval", "--show", "last", "--json").json
    alpha = by_name(shown)["alone:alpha"]
    assert (
        shown["repeat"],
        alpha["right"],
        alpha["n"],
        alpha["cases"],
        alpha["between_draws"],
    ) == (3, 12, 18, 6, 0)
    assert two_workers.inside("eval", cases, "--repeat", "0").code == 2


def test_a_trial_compares_the_best_worker_with_a_plan_and_advises(
    stage: Stage, tmp_path: Path
) -> None:
    stage.configure(workers=("a", "b"))
    stage.plan = "b | - | Answer it."
    stage.models["a"] = says("5")
    stage.models["b"] = says("4")
    cases = tmp_path / "cases.jsonl"
    lines = [
        {"id": str(n), "question": f"What is 2 + 2, number {n}?", "answer": "4", "scorer": "number"}
        for n in range(5)
    ]
    cases.write_text("\n".join(map(json.dumps, lines)))
    done = stage.ok("try", cases, "--yes")
    assert "5 questions of cases.jsonl" in done.out
    assert "alone:b" in done.out
    assert "alone:a" not in done.out
    assert "Cannot say from 5 cases whether a plan pays: +0 points against b" in done.out
    stage.fails(2, "try", cases, "--n", "1")


def test_a_trial_tells_of_answers_that_were_cut_off(stage: Stage, tmp_path: Path) -> None:
    stage.configure(workers=("a",))
    stage.models["a"] = says("4", finish="length")
    line = {"id": "1", "question": "What is 2 + 2?", "answer": "4", "scorer": "number"}
    cases = tmp_path / "cases.jsonl"
    cases.write_text("\n".join(json.dumps({**line, "id": str(n)}) for n in range(3)))
    notice = "answers that were cut off at a worker's max_tokens: 3 of 3 of alone:a"
    assert notice in " ".join(stage.ok("try", cases, "--yes").out.split())


def test_a_trial_that_its_limit_stops_does_not_blame_the_workers(
    stage: Stage, tmp_path: Path
) -> None:
    price = "price = {input = 10, output = 10}"
    stage.configure(workers={"a": price, "planner": price}, conductor="planner")
    line = {"id": "1", "question": "What is 2 + 2?", "answer": "4", "scorer": "number"}
    cases = tmp_path / "cases.jsonl"
    cases.write_text("\n".join(json.dumps({**line, "id": str(n)}) for n in range(3)))
    done = stage.ends(6, "try", cases, "--workers", "a", "--max-cost", "0.0001", "--yes")
    assert "Nothing can be said yet: it was stopped" in done.out
    assert "workers test" not in done.out


def test_a_simulated_trial_says_that_it_is_one(stage: Stage) -> None:
    done = stage.ok("try", "--demo", "--n", "4")
    assert "A simulation" in done.out
    assert "4 questions of rehearsal" in done.out


MATH = "HuggingFaceH4/MATH-500"
ROWS = "\n".join(
    json.dumps({"problem": f"What is {n} + 1?", "answer": f"{n + 1}", "unique_id": f"q{n}"})
    for n in range(60)
).encode()


@pytest.fixture
def suites(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with one suite."""
    with hub() as server:
        server.commit(MATH, {"test.jsonl": ROWS})
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        read_environment()
        yield server


def test_a_suite_is_fetched_by_name_once(stage: Stage, suites: Hub) -> None:
    first = stage.inside("eval", "math500", "--n", "3", "--print-cases")
    assert (first.code, len(first.events), len(suites.fetched)) == (0, 3, 1), first.err
    suites.commit(MATH, {"test.jsonl": ROWS.replace(b"What", b"Tell")})
    assert (
        stage.inside("eval", "math500", "--n", "3", "--print-cases").out,
        len(suites.fetched),
    ) == (first.out, 1)


def test_a_suite_is_fetched_with_its_solved_questions(stage: Stage, suites: Hub) -> None:
    """The published file names end with .parquet, which is what is in them."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    row = {
        "question_id": 1,
        "question": "Which?",
        "options": ["w", "x"],
        "answer": "B",
        "category": "law",
        "cot_content": "A: So. The answer is (B).",
    }
    files = {}
    for split, rows in (("test", [row]), ("validation", [row] * 5)):
        path = stage.home / f"{split}.parquet"
        parquet.write_table(pa.Table.from_pylist(rows), path)
        files[f"data/{split}-00000-of-00001.parquet"] = path.read_bytes()
    suites.commit("TIGER-Lab/MMLU-Pro", files)
    (case,) = stage.ok("eval", "mmlu-pro", "--print-cases").events
    assert case["question"].count("The answer is (B).") == 5
    assert len(suites.fetched) == 2
    stage.ok("eval", "mmlu-pro", "--print-cases")
    assert len(suites.fetched) == 2


def test_a_suite_that_was_changed_is_refused(stage: Stage, suites: Hub) -> None:
    assert stage.inside("eval", "math500", "--print-cases").code == 0
    (path,) = stage.home.rglob("suites/math500/test.jsonl")
    path.write_bytes(ROWS.replace(b"1", b"2"))
    stage.ends(5, "eval", "math500", "--print-cases", told="its hash has changed")
    path.unlink()
    (commit,) = suites.repos[MATH].commits
    suites.repos[MATH].commits[commit]["test.jsonl"] = ROWS.replace(b"1", b"3")
    stage.ends(5, "eval", "math500", "--print-cases", told="has another hash than before")
    assert not path.exists()


@pytest.mark.parametrize(
    ("refusal", "says"),
    [
        (Refusal(status=404), "math500"),
        (gated(), "is gated"),
        (Refusal(status=200, body=b"[]"), "like a model hub"),
    ],
)
def test_a_hub_that_refuses_is_told_with_a_way_on(
    refusal: Refusal, says: str, stage: Stage, suites: Hub
) -> None:
    suites.refusals = [refusal] * 8
    messages = (
        says,
        f"/datasets/{MATH}; with a file that you have: conductor eval math500 --from FILE",
    )
    stage.ends(5, "eval", "math500", "--print-cases", out="", told=messages)


RIGHT_SIGNS = "+" * 12
WRONG_SIGNS = "-" * 12
MIXED_SIGNS = "+-" * 6


def summary(first: str, second: str, route: str, plan: str, *, valid: bool = True) -> Summary:
    ways = {"alone:one": first, "alone:two": second, "conductor-mini": route, "conductor": plan}
    judged = []
    for name, signs in ways.items():
        is_planned = name.startswith("conductor")
        judged += [
            replace(outcome, planned=is_planned, valid=valid) for outcome in outcomes(name, signs)
        ]
    return summarize(judged, [*ways])


@pytest.mark.parametrize(
    ("signs", "advice"),
    [
        (
            (WRONG_SIGNS, WRONG_SIGNS, WRONG_SIGNS, RIGHT_SIGNS),
            "Plan (the default mode): +100 points against one",
        ),
        ((WRONG_SIGNS, WRONG_SIGNS, RIGHT_SIGNS, RIGHT_SIGNS), "Route (--mode mini): +100 points"),
        (
            (WRONG_SIGNS, RIGHT_SIGNS, WRONG_SIGNS, WRONG_SIGNS),
            "Ask one, two: with a plan, -100 points",
        ),
        (
            (MIXED_SIGNS, WRONG_SIGNS, MIXED_SIGNS, MIXED_SIGNS),
            "Cannot say from 12 cases whether a plan pays: +0 points",
        ),
        ((MIXED_SIGNS, WRONG_SIGNS, MIXED_SIGNS, "++" + MIXED_SIGNS[2:]), "About "),
        ((MIXED_SIGNS, WRONG_SIGNS, MIXED_SIGNS, "++++" + MIXED_SIGNS[4:]), "Cannot say"),
        (("+-----+-----", WRONG_SIGNS, WRONG_SIGNS, WRONG_SIGNS), "No way is worth using"),
        (("!" * 12, "!" * 12, MIXED_SIGNS, MIXED_SIGNS), "Nothing can be said"),
    ],
)
def test_advice_follows_from_the_corrected_p_value(
    signs: tuple[str, str, str, str], advice: str
) -> None:
    assert advice in advise(summary(*signs))


def test_advice_names_what_a_plan_was_compared_with() -> None:
    """Where the two halves choose other workers, it is not the one that did best on all cases."""
    halves = summary("++++++------", "------++++++", MIXED_SIGNS, RIGHT_SIGNS)
    comparison = "points against the single worker that did best on the other half of the cases ("
    assert comparison in advise(halves)
    assert "points against one (" in advise(
        summary(WRONG_SIGNS, WRONG_SIGNS, MIXED_SIGNS, RIGHT_SIGNS)
    )


def test_a_planner_without_a_valid_plan_is_not_advised() -> None:
    assert "never wrote a valid plan" in advise(
        summary(WRONG_SIGNS, MIXED_SIGNS, RIGHT_SIGNS, RIGHT_SIGNS, valid=False)
    )


def test_the_questions_that_ship_can_be_scored() -> None:
    cases = read_cases(EVERYDAY_FILE)
    assert [sum(tag in case.tags for case in cases) for tag in ("everyday", "hard")] == [12, 12]
    for case in cases:
        assert is_correct(f"Answer: {case.answer}", case), case.id
        assert not is_correct("Answer: 123456", case), case.id


COLOURS = [
    {
        "id": f"{tag}{number}",
        "question": f"Say {tag} {number}.",
        "answer": f"{tag} {number}",
        "tags": [tag],
    }
    for tag, number in product(("red", "blue"), range(4))
]


def repeats(*tags: str) -> Script:
    """A worker that gives right answers only for these tags."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        text = request.json["messages"][-1]["content"]
        word = text.partition("Say ")[2].partition(".")[0]
        await says(word if word.partition(" ")[0] in tags else "nothing", read=30, written=5)(
            request, wire
        )

    return script


@pytest.fixture
def colours(tmp_path: Path) -> Path:
    """Eight cases, of two tags."""
    path = tmp_path / "colours.jsonl"
    path.write_text("".join(json.dumps(case) + "\n" for case in COLOURS))
    return path


@pytest.fixture
def each_one_tag(stage: Stage) -> Stage:
    """Two workers, each good at one tag."""
    stage.models = {"alpha": repeats("red"), "beta": repeats("blue")}
    return stage


def strengths(stage: Stage) -> dict[str, Any]:
    """What `workers list` knows of each worker."""
    listed = stage.inside("workers", "list", "--json").json
    return {worker["name"]: worker["card"]["strengths"] for worker in listed}


def test_a_worker_in_place_of_cases_is_told_how_it_is_measured(each_one_tag: Stage) -> None:
    told = "conductor workers calibrate --workers alpha"
    each_one_tag.costs_nothing(2, "workers", "calibrate", "alpha", "--yes", told=told)


def test_each_worker_gets_a_card(each_one_tag: Stage, colours: Path) -> None:
    done = each_one_tag.ok("workers", "calibrate", colours, "--yes", "--json")
    alpha, beta = done.json["cards"]
    assert (alpha["worker"], alpha["right"], alpha["n"]) == ("alpha", 4, 8)
    red = alpha["strengths"]["red"]
    assert (red["right"], red["n"]) == (4, 4)
    assert (alpha["tokens_in"], alpha["tokens_out"], alpha["cost"]) == (30, 5, None)
    assert beta["strengths"]["red"]["right"] == 0
    assert strengths(each_one_tag) == {
        "alpha": {"red": 1.0, "blue": 0.0},
        "beta": {"red": 0.0, "blue": 1.0},
    }
    assert len(each_one_tag.posts) == 16, "each worker once for each case, and no conductor"


def test_only_workers_without_a_card_are_measured(each_one_tag: Stage, colours: Path) -> None:
    each_one_tag.inside("workers", "calibrate", colours, "--yes", "--workers", "alpha")
    before = len(each_one_tag.posts)
    each_one_tag.inside("workers", "calibrate", colours, "--yes")
    assert (len(each_one_tag.posts) - before, len(each_one_tag.asked("alpha"))) == (8, 8)
    each_one_tag.config.write_text(
        each_one_tag.config.read_text().replace(
            'model = "alpha"', 'model = "alpha"\ntemperature = 0.5'
        )
    )
    assert strengths(each_one_tag)["alpha"] == {}, "another temperature has not been measured"
    each_one_tag.inside("workers", "calibrate", colours, "--yes")
    assert len(each_one_tag.asked("alpha")) == 16


def test_a_card_of_some_of_the_cases_is_measured_again(each_one_tag: Stage, colours: Path) -> None:
    """Cases that failed say nothing of a worker, so its card is not whole without them."""
    answer = each_one_tag.models["beta"]

    async def fails_on_blue(request: SeenRequest, wire: Wire) -> None:
        is_blue = "blue" in str(request.json["messages"])
        await (refuses(401, "who are you") if is_blue else answer)(request, wire)

    each_one_tag.models["beta"] = fails_on_blue
    told = "beta: 4 of 8 cases failed, and the same command measures it again: "
    words = ("workers", "calibrate", colours, "--yes", "--json")
    first = each_one_tag.ok(*words, told=told).json["cards"]
    assert [(card["worker"], card["n"]) for card in first] == [("alpha", 8), ("beta", 4)]
    each_one_tag.models["beta"] = answer
    again = each_one_tag.ok(*words).json["cards"]
    assert [(card["worker"], card["n"]) for card in again] == [("alpha", 8), ("beta", 8)]
    assert len(each_one_tag.asked("alpha")) == 8
    assert strengths(each_one_tag)["beta"] == {"red": 0.0, "blue": 1.0}


def test_an_unreachable_worker_gets_no_card(each_one_tag: Stage, colours: Path) -> None:
    each_one_tag.models["beta"] = refuses(401, "who are you")
    done = each_one_tag.ok("workers", "calibrate", colours, "--yes", "--json")
    assert [card["worker"] for card in done.json["cards"]] == ["alpha"]
    assert "beta: 8 of 8 cases failed, so it has no card" in done.err


def test_a_calibration_that_reaches_no_worker_ends_with_8(
    each_one_tag: Stage, colours: Path
) -> None:
    each_one_tag.models = dict.fromkeys(("alpha", "beta"), refuses(401, "who are you"))
    each_one_tag.ends(8, "workers", "calibrate", colours, "--yes")
    assert not cards_file(app_paths({})).exists()


@pytest.mark.parametrize("arguments", [("none.jsonl",), ("--workers", "nobody")], ids=" ".join)
def test_a_wrong_command_line_calls_nobody(each_one_tag: Stage, arguments: tuple[str, ...]) -> None:
    each_one_tag.costs_nothing(2, "workers", "calibrate", *arguments, "--yes")


def test_a_damaged_file_of_cards_is_moved_aside(each_one_tag: Stage, colours: Path) -> None:
    file = cards_file(app_paths({}))
    file.parent.mkdir(parents=True)
    file.write_text("{half a fi")
    assert each_one_tag.inside("workers", "list").code == 0
    each_one_tag.ok(
        "workers", "calibrate", colours, "--yes", told="was damaged; its content was moved to"
    )
    assert file.with_name("cards.json.damaged-1").read_text() == "{half a fi"
    assert strengths(each_one_tag)["alpha"] == {"red": 1.0, "blue": 0.0}
