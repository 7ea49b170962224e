"""Runs over files that are longer than a worker's prompt.

They are looked up with tools, refused, or shortened where the user says so.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Request
from conductor_cli.core.errors import UsageError
from conductor_cli.core.policy import Policy, PoolPolicy
from conductor_cli.core.pool import Pool
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import File, Question
from conductor_cli.core.tools import RunTools
from conductor_cli.models.base import ALL_FEATURES, ScriptedModel
from conductor_cli.programs.bounded_child import ChildLimits
from conductor_cli.run import Orchestra, Run, directory_tools
from tests.run.kit import hold, notices, of, pool_of, read, says, setting, start
from tests.run.test_tool_loop import Box, asks

PLAN = "A | - | answer it\n"
FILLER = "".join(f"value_{number} = {number}\n" for number in range(9000))
TREE = (
    File(name="src/a.py", text=FILLER, directory="src/"),
    File(name="src/deep/b.py", text="def needle():\n    return 'found-42'\n", directory="src/"),
)
QUESTION = Question(text="What does needle return?", files=TREE)


def play(orchestra: Orchestra, question: Question) -> tuple[Run, list[ev.Event]]:
    """Run a question whose searches are made by a thread or a process, for which no clock jumps."""
    run = start(replace(orchestra, clock=time.monotonic), question)
    events = asyncio.run(read(run))
    hold(run, events)
    return run, events


def looks_up(*calls: tuple[str, Any], then: str = "It is 42.") -> ScriptedModel:
    return ScriptedModel([*[asks(call) for call in calls], [then]])


def results_of(events: list[ev.Event]) -> list[str]:
    return [event.text for event in of(events, ev.ToolReturned)]


def test_a_directory_longer_than_a_prompt_is_looked_up_with_tools() -> None:
    model = looks_up(
        ("search_text", {"pattern": "def needle"}),
        ("read_file", {"path": "src/deep/b.py"}),
        ("list_files", {}),
        ("find_files", {"pattern": "*.py"}),
    )
    run, events = play(setting(PLAN, {"ann": model}), QUESTION)
    first = model.requests[0]
    assert [tool.name for tool in first.tools] == [
        "search_text",
        "read_file",
        "find_files",
        "list_files",
    ]
    prompt = first.messages[-1].content
    assert "src/deep/b.py 2: needle" in prompt
    assert "value_77" not in prompt
    matches, read, listed, names = results_of(events)
    assert matches == "src/deep/b.py:1: def needle():"
    assert "2|     return 'found-42'" in read
    assert listed == "src/deep/ 1 file\nsrc/a.py 9,000 lines"
    assert names == "src/a.py 9,000 lines\nsrc/deep/b.py 2 lines"
    called = of(events, ev.ToolCalled)
    assert {event.tool for event in called} == {
        "attached.search_text",
        "attached.read_file",
        "attached.list_files",
        "attached.find_files",
    }
    assert all(event.read_only for event in called)
    assert (run.trace.answer, run.trace.partial) == ("It is 42.", False)


def test_the_planner_is_given_the_outline() -> None:
    conductor = says(PLAN)
    _, events = play(setting(conductor, {"ann": says("yes")}), QUESTION)
    (request,) = conductor.requests
    prompt = request.messages[-1].content
    assert "src/deep/b.py 2: needle" in prompt
    assert "value_77" not in prompt
    assert "the planner reads the outline of src/, not the files" in notices(events)


def test_a_directory_that_fits_is_sent_whole_without_tools() -> None:
    model = says("yes")
    play(setting(PLAN, {"ann": model}), Question(text="?", files=TREE[1:]))
    assert "found-42" in model.requests[0].messages[-1].content
    assert model.requests[0].tools == ()


@pytest.mark.parametrize(
    ("features", "profile"),
    [
        (ALL_FEATURES - {"tools"}, WorkerProfile()),
        (ALL_FEATURES, WorkerProfile(reads_directories=False)),
    ],
    ids=["a worker without tools", "switched off"],
)
def test_without_tools_it_is_refused_before_anybody_is_asked(
    features: frozenset[Any], profile: WorkerProfile
) -> None:
    model = ScriptedModel([["yes"]], features=features)
    conductor = says(PLAN)
    orchestra = setting(conductor, {"ann": model}, worker_profile=profile)
    with pytest.raises(UsageError, match="more than any worker reads: ann 32,768") as caught:
        play(orchestra, QUESTION)
    assert "--fit" in caught.value.hint
    assert (conductor.requests, model.requests) == ([], [])


def test_a_worker_that_is_too_small_takes_no_part_and_is_told() -> None:
    pool = Pool(
        workers=(
            *pool_of("ann", options={"context": 8000}).workers,
            *pool_of("bob", options={"context": 100_000}).workers,
        )
    )
    ann = says("from ann")
    question = Question(text="?", files=(File(name="a.txt", text="x" * 60_000),))
    run, events = play(setting(PLAN, {"ann": ann, "bob": says("from bob")}, pool=pool), question)
    assert (run.trace.answer, ann.requests) == ("from bob", [])
    (left_out,) = (text for text in notices(events) if "ann is left out" in text)
    assert "about 17,1" in left_out
    assert "the context of ann holds 8,000" in left_out
    assert "conductor workers add ann --set context=N" in left_out


def test_fit_shortens_and_names_each_file_with_its_share() -> None:
    model = says("yes")
    profile = WorkerProfile(fits_files=True)
    _, events = play(setting(PLAN, {"ann": model}, worker_profile=profile), QUESTION)
    (shortened,) = (event for event in of(events, ev.Notice) if event.reason == "shortened")
    assert "ann was sent only a part of src/a.py " in shortened.text
    assert f"of {len(FILLER):,} characters" in shortened.text
    prompt = model.requests[0].messages[-1].content
    assert "found-42" in prompt
    assert model.requests[0].tools == ()


def test_an_unknown_context_is_told_where_a_prompt_is_long() -> None:
    question = Question(text="?", files=(File(name="a.txt", text="x" * 20_000),))
    plan = "A | - | one\nA | 1 | two\n"
    for options, count in (({}, 1), ({"context": 50_000}, 0)):
        pool = pool_of("ann", options=options)
        _, events = play(setting(plan, {"ann": says("yes")}, pool=pool), question)
        remarks = [text for text in notices(events) if "32,768 tokens are assumed" in text]
        assert len(remarks) == count


def test_who_may_not_see_the_files_gets_no_tools_over_them() -> None:
    policy = PoolPolicy(policy=Policy(files_only=(("bob", "self"),)))
    ann = says("nothing")
    bob = looks_up(("search_text", {"pattern": "needle"}))
    plan = "A | - | one\nB | 1 | two\n"
    play(setting(plan, {"ann": ann, "bob": bob}, pool_policy=policy), QUESTION)
    assert [request.tools for request in ann.requests] == [()]
    assert "needle" not in ann.requests[0].messages[-1].content.replace("needle return", "")
    assert bob.requests[0].tools


def test_tools_of_a_server_stay_beside_those_of_the_directory() -> None:
    box = Box("read_file")
    pool = pool_of("ann", tools=("web",))
    model = ScriptedModel(
        [
            asks(("attached_read_file", {"path": "b.py"}), ("read_file", {"path": "x"})),
            ["yes"],
        ]
    )
    orchestra = setting(PLAN, {"ann": model}, pool=pool, tools=RunTools(open=lambda: box))
    _, events = play(orchestra, QUESTION)
    names = [tool.name for tool in model.requests[0].tools]
    assert names == ["search_text", "attached_read_file", "find_files", "list_files", "read_file"]
    directory_result, server_result = results_of(events)
    assert "found-42" in directory_result
    assert (server_result, box.calls) == ("read_file found it", [("read_file", {"path": "x"})])


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a+)+$", "the search took more than"),
        ("(", "the pattern is no regular expression"),
        ("zebra$", "no line matches 'zebra$' in 3 files, nor any word of it"),
    ],
)
def test_a_hostile_or_broken_pattern_is_an_answer_to_the_worker(
    pattern: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_tools, "SEARCH_LIMITS", ChildLimits(seconds=2))
    files = (*TREE, File(name="src/c.txt", text="a" * 40 + "b\n", directory="src/"))
    model = looks_up(("search_text", {"pattern": pattern}))
    question = Question(text="?", files=files)
    _, events = play(setting(PLAN, {"ann": model}), question)
    (result,) = of(events, ev.ToolReturned)
    assert result.error == ("no line" not in message)
    assert message in result.text


def test_the_passages_with_most_words_of_the_question_are_in_the_prompt() -> None:
    """A small model reads these, and may look for nothing."""
    model = says("It returns found-42.")
    play(setting(PLAN, {"ann": model}), QUESTION)
    prompt = model.requests[0].messages[-1].content
    assert "src/deep/b.py:2:     return 'found-42'" in prompt
    assert len(prompt) < 20_000


def test_a_worker_whose_context_is_nearly_full_has_to_answer() -> None:
    pool = pool_of("ann", options={"context": 9000})

    def read_on(request: Request) -> list[Any]:
        if request.tool_choice == "none":
            return ["yes"]
        start_line = 300 * len(request.messages)
        return asks(("read_file", {"path": "src/a.py", "start": start_line}))

    model = ScriptedModel(reply=read_on)
    _, events = play(setting(PLAN, {"ann": model}, pool=pool), QUESTION)
    assert model.requests[-1].tool_choice == "none"
    assert len(model.requests) < 6
    assert any("has filled much of its context of 9,000 tokens" in text for text in notices(events))
    assert of(events, ev.StepFailed) == []
