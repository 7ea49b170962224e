"""One question to one worker in one call: `--model`, `/model`, and a question without a command."""

from __future__ import annotations

import pytest

from conductor_cli.cli.chat_session import ChatSession
from tests.cli.stage import TWO, Stage
from tests.cli.test_chat import enter, run_in_chat, talk


def test_a_model_is_asked_in_one_call_without_a_planner(stage: Stage) -> None:
    stage.plan = TWO
    done = stage.ok("ask", "-m", "beta", "Say hi", "--format", "json")
    assert len(stage.posts) == 1
    (request,) = stage.asked("beta")
    assert request.json["messages"][-1]["content"] == "Say hi"
    assert done.json["answer"] == "beta answers"
    assert [step["worker"] for step in done.json["steps"]] == ["beta"]


def test_one_call_needs_no_planner_and_obeys_no_mode_or_review_of_the_settings(
    stage: Stage,
) -> None:
    settings = 'mode = "ultra"\n[limits]\nattempts = 1\nreview = 2'
    stage.configure(settings, conductor=None)
    stage.ok("ask", "-m", "alpha", "Say hi", out="alpha answers\n")
    assert len(stage.posts) == 1


def test_the_bill_of_one_call_is_one_line_with_its_worker(stage: Stage) -> None:
    lines = stage.ok("ask", "-m", "alpha", "Say hi", "--progress", "plain").err.splitlines()
    assert lines[1] == "one call, without a plan, 1 worker"
    assert lines[-1].startswith("alpha, 18 tokens, ")


@pytest.mark.parametrize(
    ("option", "name"),
    [
        (("--workers", "beta"), "--workers"),
        (("--mode", "mini"), "--mode"),
        (("--max-steps", "2"), "--max-steps"),
        (("--pool", "some"), "--pool"),
    ],
)
def test_an_option_about_plans_beside_a_model_is_refused(
    stage: Stage, option: tuple[str, str], name: str
) -> None:
    message = f"--model is one call of one worker, and {name} is no part of it"
    stage.costs_nothing(2, "ask", "-m", "alpha", *option, "Say hi")
    stage.fails(2, "ask", "-m", "alpha", *option, "Say hi", told=message)


def test_a_model_that_is_no_worker_is_refused_with_what_there_is(stage: Stage) -> None:
    stage.costs_nothing(2, "ask", "-m", "alhpa", "Say hi")
    stage.fails(2, "ask", "-m", "alhpa", "Say hi", told="did you mean alpha?")
    message = "the workers are alpha, beta"
    stage.fails(2, "ask", "-m", "nobody-like-that", "Say hi", told=message)


def test_a_model_of_a_provider_needs_its_key(stage: Stage) -> None:
    messages = (
        "worker 'openai-gpt-9' needs a key: OPENAI_API_KEY is not set",
        "conductor keys set",
    )
    stage.costs_nothing(4, "ask", "-m", "openai/gpt-9", "Say hi")
    stage.fails(4, "ask", "-m", "openai/gpt-9", "Say hi", told=messages)


@pytest.mark.parametrize("planner", ["", None])
def test_a_plain_call_that_was_cut_off_at_once_begins_again(
    stage: Stage, planner: str | None
) -> None:
    """It was planned, or wanted a planner where none was chosen: no event said who answers."""
    stage.ok("ask", "-m", "alpha", "How many?")
    run = stage.inside("trace", "list", "--json").json[0]["run"]
    path = stage.traces / f"{run}.jsonl"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    stage.configure("[limits]\nattempts = 1", conductor=planner)
    done = stage.ok("ask", "--resume", run, "--format", "json")
    assert (done.json["answer"], done.json["planner"]) == ("alpha answers", "none")
    assert len(stage.asked("alpha")) == len(stage.posts) == 2


def test_a_model_of_a_provider_is_asked_again_when_its_run_is_resumed(stage: Stage) -> None:
    """No server of Ollama runs here, so both runs end at the same worker."""
    message = "ollama-alpha"
    stage.ends(8, "ask", "-m", "ollama/alpha", "Say hi", told=message)
    stage.ends(8, "ask", "--resume", "last", told=message)
    assert not stage.posts


def test_rules_hold_for_a_model_of_a_provider(stage: Stage) -> None:
    key = {"OPENAI_API_KEY": "sk-of-a-test-0123456789"}
    message = "worker openai-gpt-9 may not be asked"
    stage.fails(3, "ask", "-m", "openai/gpt-9", "Hi", "--local-only", env=key, told=message)
    stage.fails(3, "ask", "-m", "openai/gpt-9", "Hi", "--deny", "provider:openai", env=key)
    stage.fails(3, "ask", "-m", "openai/gpt-9", "Hi", "--allow", "alpha", env=key, told=message)
    assert not stage.posts


def test_the_model_of_a_worker_is_that_worker_with_its_rules(stage: Stage) -> None:
    stage.ok("ask", "-m", "openai-compatible/beta", "Say hi", out="beta answers\n")
    denied = ("ask", "-m", "openai-compatible/beta", "Say hi", "--deny", "beta")
    stage.fails(3, *denied, told="worker beta may not be asked")


def test_a_question_in_quotes_is_asked_without_a_command(stage: Stage) -> None:
    done = stage.ok("Why is the sky blue?", "--format", "json")
    assert done.json["answer"] == "alpha answers"
    assert "Why is the sky blue?" in stage.asked("alpha")[0].body.decode()
    stage.ok("-q", "Why is it?", "-m", "beta", out="beta answers\n")


def test_a_command_in_quotes_is_no_question(stage: Stage) -> None:
    message = "the command, without quotes: conductor trace list"
    stage.costs_nothing(2, "trace list")
    stage.fails(2, "trace list", told=message)
    stage.fails(2, "ask --mode mini", told="is a command in quotes")
    stage.ok("plan a walk in the park", out="alpha answers\n")


def test_a_mistyped_command_is_an_error_with_its_suggestion(stage: Stage) -> None:
    stage.costs_nothing(2, "trcae")
    stage.fails(2, "trcae", told="did you mean conductor trace?")
    stage.costs_nothing(2, "trcae", "list")


def test_a_chat_asks_one_model_until_it_plans_again(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.plan = TWO
    talk("/model beta", "one", "/mode mini", "/plan something", "/model -", "two")
    assert len(stage.asked("planner")) == 1
    assert len(stage.asked("beta")) == 2
    shown = capsys.readouterr().err
    assert "beta (this machine) answers in one call; /model - plans again" in shown
    assert "/mode has no effect: beta answers each question in one call" in shown
    assert "/plan has no effect: beta answers each question in one call" in shown


def test_a_chat_says_once_that_a_model_answers_without_a_plan(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = list[str]()

    async def work(chat: ChatSession) -> None:
        chat.named = lines.append
        await chat.ready()
        await enter(chat, "/model beta")
        await chat.ready()

    run_in_chat(work)
    assert [line for line in lines if "nothing is planned" in line] == []
    assert capsys.readouterr().err.count("beta (this machine) answers") == 1


def test_a_wrong_model_of_a_chat_changes_nothing(stage: Stage) -> None:
    chat = talk("/model nobody", "one")
    assert chat.model is None
    assert len(stage.asked("planner")) == 1
