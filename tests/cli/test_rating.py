"""Who rates an answer, a person or a program (`--check COMMAND`).

And what `conductor workers show` says of it.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.app import learning
from tests.cli.stage import ONE, THREE, TWO, Stage, breaks, explained, refuses
from tests.cli.test_chat import talk

CARDS = "card = { strengths = { math = 0.8 } }\nprice = { input = 1, output = 2 }"


@pytest.fixture
def carded(stage: Stage) -> Stage:
    """Two workers whose cards have a figure."""
    configure(stage)
    return stage


def configure(stage: Stage, settings: str = "") -> None:
    stage.configure(settings, workers=dict.fromkeys(("alpha", "beta"), CARDS))


def run_of(stage: Stage, plan: str) -> str:
    stage.plan = plan
    return str(stage.inside("ask", "How many?", "--format", "json").json["run"])


def cards(stage: Stage) -> dict[str, Any]:
    """The ratings of each worker for its only tag."""
    return {
        name: stage.inside("workers", "show", name, "--json").json["ratings"]["math"]
        for name in ("alpha", "beta")
    }


def prompt_of_planner(stage: Stage) -> str:
    return "".join(message["content"] for message in stage.asked("planner")[-1].json["messages"])


def test_a_rating_changes_the_cards_that_the_planner_reads(carded: Stage) -> None:
    run_of(carded, TWO)
    before = prompt_of_planner(carded)
    sent = [request.json for request in carded.asked("alpha")]
    done = carded.inside("trace", "rate", "last", "bad")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith(" bad; credit: alpha 0.50, beta 0.50\n")
    assert cards(carded)["alpha"] == {"good": 0, "bad": 1, "weight": 0.25, "now": 0.7805}
    assert (
        "math 0 good, 1 bad, so the planner reads 0.78"
        in carded.inside("workers", "show", "alpha").out
    )
    run_of(carded, TWO)
    assert before.replace("math 0.80", "math 0.78") == prompt_of_planner(carded)
    assert "math 0.78" in prompt_of_planner(carded)
    assert [request.json for request in carded.asked("alpha")] == sent * 2


def test_a_worker_of_several_steps_is_named_once_in_a_rating(carded: Stage) -> None:
    run_of(carded, THREE)
    done = carded.ok("trace", "rate", "last", "good")
    assert done.out.endswith(" good; credit: alpha 0.67, beta 0.33\n")


def test_the_last_rating_of_a_run_counts_and_outlives_its_trace(carded: Stage) -> None:
    run = run_of(carded, TWO)
    for verdict in ("bad", "good"):
        carded.inside("trace", "rate", run, verdict)
    assert (cards(carded)["beta"]["good"], cards(carded)["beta"]["bad"]) == (1, 0)
    assert carded.inside("trace", "rm", run).code == 0
    assert cards(carded)["beta"]["good"] == 1
    text = carded.traces.with_name("ratings.jsonl").read_text()
    assert not [word for word in ("How many", "Find it", "answers") if word in text]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["19990101-000000", "good"], "there is no run"),
        (["last", "fine"], "good"),
        (["last", "good", "--step", "4"], "has no step 4"),
        (["last", "good"], "has no answer to rate"),
        (["last", "bad", "--step", "1"], "has no answer to rate"),
    ],
)
def test_what_cannot_be_rated_is_said(
    carded: Stage, arguments: Sequence[str], message: str
) -> None:
    carded.models |= {"alpha": refuses(500), "beta": refuses(500)}
    run_of(carded, "alpha | - | Answer it.")
    carded.ends(2, "trace", "rate", *arguments, told=message)
    assert not carded.traces.with_name("ratings.jsonl").exists()


def test_a_damaged_file_of_ratings_is_read_as_far_as_it_can_be(carded: Stage) -> None:
    run_of(carded, TWO)
    carded.inside("trace", "rate", "last", "good")
    path = carded.traces.with_name("ratings.jsonl")
    whole = path.read_bytes()
    path.write_bytes(b"\xff\x00 garbage\n" + whole + whole.strip()[:60])
    assert (
        "2 lines are damaged; 1 rating could be read"
        in carded.inside("workers", "show", "alpha").err
    )
    carded.inside("trace", "rate", "last", "good", "--step", "1")
    assert (
        "2 lines are damaged; 2 ratings could be read"
        in carded.inside("workers", "show", "alpha").err
    )
    assert cards(carded)["alpha"]["good"] == 1
    path.unlink()
    path.mkdir()
    carded.fails(3, "trace", "rate", "last", "good")


def test_learning_is_off_by_one_setting(carded: Stage) -> None:
    run_of(carded, TWO)
    carded.inside("trace", "rate", "last", "bad")
    configure(carded, "[learning]\nenabled = false")
    assert cards(carded)["alpha"]["now"] == 0.8
    run_of(carded, TWO)
    assert "math 0.80" in prompt_of_planner(carded)
    carded.fails(3, "trace", "rate", "last", "good")


def ratings(stage: Stage) -> list[dict[str, Any]]:
    path = stage.traces.with_name("ratings.jsonl")
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line]


def python(code: str) -> str:
    return f"{sys.executable} -c {shlex.quote(code)}"


def test_the_exit_code_of_a_check_rates_the_answer(stage: Stage) -> None:
    done = stage.inside("ask", "How many?", "--check", "grep -q alpha", "--progress", "none")
    assert (done.code, done.out, done.err) == (
        0,
        "alpha answers\n",
        "the check says that the answer is good\n",
    )
    assert ratings(stage)[-1]["verdict"] == "good"
    code = "import sys; sys.exit(sys.stdin.read() + ' is wrong')"
    done = stage.inside("ask", "How many?", "--check", python(code))
    assert (done.code, done.out) == (0, "alpha answers\n")
    assert "the check says that the answer is bad (exit code 1): alpha answers is wrong" in done.err
    assert (ratings(stage)[-1]["verdict"], ratings(stage)[-1]["by"]) == ("bad", "check")


def test_a_setting_names_the_check_of_every_run(stage: Stage, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    step = {"worker": "beta", "subtask": "Answer it.", "access": []}
    plan.write_text(json.dumps({"question": {"text": "How many?"}, "steps": [step]}))
    stage.configure('[learning]\ncheck = "grep -q beta"')
    assert stage.inside("run", plan).code == 0
    assert [item["verdict"] for item in ratings(stage)] == ["good"]
    stage.inside("ask", "How many?", "--check", "")
    stage.configure('[learning]\ncheck = "grep -q beta"\nenabled = false')
    stage.inside("ask", "How many?")
    assert len(ratings(stage)) == 1
    stage.fails(3, "ask", "How many?", "--check", "true")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import time; time.sleep(600)", "was stopped after"),
        ("print('x' * (1 << 21))", "it wrote more than"),
        ("import os; os.kill(os.getpid(), 9)", "did not end by itself (signal 9)"),
    ],
)
def test_a_stopped_check_rates_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, code: str, message: str
) -> None:
    monkeypatch.setattr(learning, "CHECK_SECONDS", 0.5 if "sleep" in code else 60)
    done = stage.inside("ask", "How many?", "--check", python(code))
    assert (done.code, message in done.err, ratings(stage)) == (0, True, []), done.err


@pytest.mark.parametrize("check", ["no-such-program-here -x", "grep 'open"])
def test_a_check_that_cannot_be_run_is_an_error_before_anything_is_asked(
    stage: Stage, check: str
) -> None:
    done = stage.inside("ask", "How many?", "--check", check)
    assert (done.code, stage.asked("planner")) == (3, [])
    explained(done)


def test_a_check_gets_no_key_and_no_shell(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "OPENAI_API_KEY", "sk-not-for-checks")
    code = (
        "import os, sys; sys.exit('OPENAI_API_KEY' in os.environ or sys.argv[1:] != ['$HOME', "
        "';', 'false'])"
    )
    stage.inside("ask", "How many?", "--check", f"{python(code)} $HOME ';' false")
    assert [item["verdict"] for item in ratings(stage)] == ["good"]


def test_an_answer_that_is_cut_off_is_not_checked(stage: Stage) -> None:
    stage.configure(workers=["alpha"])
    stage.plan = ONE
    stage.models["alpha"] = breaks("half an")
    stage.inside("ask", "How many?", "--check", "true")
    assert ratings(stage) == []


def test_good_and_bad_rate_the_last_answer_of_a_chat(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.configure(workers={"alpha": "card = { strengths = { math = 0.8 } }", "beta": ""})
    talk("/good", "How many?", "/good 1", "/bad", "/bad 7", "/bad it", "How many now?")
    err = capsys.readouterr().err
    for line in (
        "the conversation has no run yet",
        "good; credit: alpha 1.00",
        "bad; credit: alpha 1.00",
        "no step 7",
        "'it' is not a step",
    ):
        assert line in err, err
    assert [item["verdict"] for item in ratings(stage)] == ["good", "bad"]
    assert "math 0.81" in stage.asked("planner")[-1].json["messages"][0]["content"]
