"""`--check COMMAND`: a program of the user's that rates an answer."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.app import learning
from tests.cli.stage import ONE, Stage, breaks, explained


def ratings(stage: Stage) -> list[dict[str, Any]]:
    path = stage.traces.with_name("ratings.jsonl")
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line]


def python(code: str) -> str:
    return f"{sys.executable} -c {shlex.quote(code)}"


def test_the_exit_code_of_a_check_rates_the_answer(stage: Stage) -> None:
    done = stage.inside("ask", "How many?", "--check", "grep -q alpha", "--progress", "none")
    assert (done.code, done.out, done.err) == (0, "alpha answers\n", "the check says that the answer is good\n")
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
    ("code", "said"),
    [
        ("import time; time.sleep(600)", "was stopped after"),
        ("print('x' * (1 << 21))", "it wrote more than"),
        ("import os; os.kill(os.getpid(), 9)", "did not end by itself (signal 9)"),
    ],
)
def test_a_check_that_does_not_end_by_itself_rates_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    monkeypatch.setattr(learning, "CHECK_SECONDS", 0.5 if "sleep" in code else 60)
    done = stage.inside("ask", "How many?", "--check", python(code))
    assert (done.code, said in done.err, ratings(stage)) == (0, True, []), done.err


@pytest.mark.parametrize("check", ["no-such-program-here -x", "grep 'open"])
def test_a_check_that_cannot_be_run_is_an_error_before_anything_is_asked(stage: Stage, check: str) -> None:
    done = stage.inside("ask", "How many?", "--check", check)
    assert (done.code, stage.asked("planner")) == (3, [])
    explained(done)


def test_a_check_gets_no_key_and_no_shell(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "OPENAI_API_KEY", "sk-not-for-checks")
    code = "import os, sys; sys.exit('OPENAI_API_KEY' in os.environ or sys.argv[1:] != ['$HOME', ';', 'false'])"
    stage.inside("ask", "How many?", "--check", f"{python(code)} $HOME ';' false")
    assert [item["verdict"] for item in ratings(stage)] == ["good"]


def test_an_answer_that_is_cut_off_is_not_checked(stage: Stage) -> None:
    stage.configure(workers=["alpha"])
    stage.plan = ONE
    stage.models["alpha"] = breaks("half an")
    stage.inside("ask", "How many?", "--check", "true")
    assert ratings(stage) == []


def test_good_and_bad_rate_the_last_answer_of_a_chat(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    from conductor_cli.cli.chat_session import ChatSession
    from tests.cli.test_chat import enter, run_in_chat

    stage.configure(workers={"alpha": "card = { strengths = { math = 0.8 } }"})

    async def work(chat: ChatSession) -> None:
        await enter(chat, "/good")
        await chat.ask("How many?")
        await enter(chat, "/good 1")
        await enter(chat, "/bad")
        await enter(chat, "/bad 7")
        await enter(chat, "/bad it")
        await chat.ask("How many now?")

    run_in_chat(work)
    err = capsys.readouterr().err
    for said in (
        "the conversation has no run yet",
        "good; credit: alpha 1.00",
        "bad; credit: alpha 1.00",
        "no step 7",
        "'it' is not a step",
    ):
        assert said in err, err
    assert [item["verdict"] for item in ratings(stage)] == ["good", "bad"]
    assert "math 0.81" in stage.asked("planner")[-1].json["messages"][0]["content"]
