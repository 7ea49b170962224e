"""Options that are given twice.

Those that name several add up, and no other one drops a value in silence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from conductor_cli.cli.command_tree import app
from conductor_cli.cli.options import LAST_COUNTS
from conductor_cli.core.errors import UsageError
from tests.cli.stage import PLANNER, Stage


def every_option() -> Iterator[tuple[Any, str, Any]]:
    """Each command of the tree, its words, and each of its options."""

    def walk(command: Any, path: str) -> Iterator[tuple[Any, str, Any]]:
        context = command.context_class(command, info_name=path)
        for parameter in command.params:
            if parameter.param_type_name == "option":
                yield command, path, parameter
        for name in getattr(command, "commands", ()):
            yield from walk(command.get_command(context, name), f"{path} {name}".strip())

    return walk(get_command(app), "")


def two_values(option: Any) -> tuple[str, str]:
    """Two values that differ, of the kind that the option takes."""
    choices = option.type_descriptor.choices
    if choices is None:
        return "3", "4"
    first, second, *_ = map(str, choices)
    return first, second


def read_twice(command: Any, option: Any) -> Any:
    """What the command reads where the option is given with two values, or by both of its names."""
    if option.is_flag:
        words = [option.opts[0], option.secondary_opts[0]]
    else:
        first, second = two_values(option)
        words = [option.opts[0], first, option.opts[-1], second]
    context = command.make_context("conductor", words, resilient_parsing=True)
    return context.params.get(option.name)


def test_every_option_that_may_name_several_keeps_all_that_are_given() -> None:
    """Over the whole tree, so that one which keeps only the last cannot be added."""
    names = set()
    for command, path, option in every_option():
        metavar = option.metavar or ""
        if "," in metavar:
            assert option.multiple, f"{path} {option.opts} names several and keeps only the last"
        if option.multiple:
            assert read_twice(command, option) == [*two_values(option)], (path, option.opts)
            names.add(max(option.opts, key=len))
    assert names == set(ADDS_UP)


def test_every_other_option_refuses_two_values_or_is_known_to_take_the_last() -> None:
    flags = set[str]()
    for command, path, option in every_option():
        if option.multiple or (option.is_flag and not option.secondary_opts):
            continue
        if LAST_COUNTS.isdisjoint(option.opts):
            with pytest.raises(UsageError) as refused:
                read_twice(command, option)
            shown = [*option.opts, *option.secondary_opts] if option.is_flag else two_values(option)
            assert all(text in refused.value.message for text in shown), (path, option.opts)
        else:
            read_twice(command, option)
            flags |= LAST_COUNTS.intersection(option.opts)
    assert flags == LAST_COUNTS


ADDS_UP = {
    "--workers": "test_repeated_rules_all_hold",
    "--allow": "test_repeated_rules_all_hold",
    "--deny": "test_repeated_rules_all_hold",
    "--tools": "test_repeated_tools_are_all_known",
    "--allow-tools": "test_repeated_tools_are_all_known",
    "--file": "test_repeated_files_and_parameters_are_all_read",
    "--param": "test_repeated_files_and_parameters_are_all_read",
    "--set": "test_repeated_settings_add_up_or_are_refused",
    "--header": "test_repeated_headers_are_all_kept",
    "--model": "test_repeated_models_are_all_added",
    "--systems": "test_repeated_systems_and_fields_are_all_used",
    "--fields": "test_repeated_systems_and_fields_are_all_used",
}
"""Every option that adds up, and the test which shows that its command uses all that it reads."""


def test_repeated_models_are_all_added(stage: Stage) -> None:
    stage.ok("workers", "add", "--base-url", stage.url, "--model", "gamma", "-m", "delta")
    assert {table["model"] for table in stage.own_settings["workers"].values()} == {
        "gamma",
        "delta",
    }


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("--deny alpha --deny beta", {"gamma"}),
        ("--deny alpha,beta", {"gamma"}),
        ("--deny tag:cheap --deny beta", {"gamma"}),
        ("--allow alpha --allow gamma", {"alpha", "gamma"}),
        ("--allow alpha,beta --deny alpha", {"beta"}),
        ("--workers alpha --workers gamma", {"alpha", "gamma"}),
        ("--workers alpha,gamma --workers alpha", {"alpha", "gamma"}),
    ],
)
@pytest.mark.parametrize("command", ["ask What?", "batch questions.txt -o out.jsonl --yes"])
def test_repeated_rules_all_hold(
    stage: Stage, command: str, words: str, left: set[str], tmp_path: Path
) -> None:
    """A rule that was dropped in silence would send the question to whom the user forbade it."""
    stage.configure(workers={"alpha": 'tags = ["cheap"]', "beta": "", "gamma": ""})
    (tmp_path / "questions.txt").write_text("What?\n")
    stage.ok(*command.split(), *words.split(), cwd=tmp_path)
    started = stage.ok("trace", "replay", "last", "--speed", "0", "--format", "jsonl").events[0]
    assert {worker["name"] for worker in started["pool"]["workers"]} == left


def test_rules_that_together_leave_nobody_ask_nobody(stage: Stage) -> None:
    stage.costs_nothing(3, "ask", "What?", "--deny", "alpha", "--deny", "beta")
    stage.costs_nothing(3, "eval", "basics", "--yes", "--deny", "alpha", "--deny", "beta")


def test_a_repeated_workers_option_without_a_name_is_refused(stage: Stage) -> None:
    """A script whose variable is empty means no other workers than those that it names."""
    stage.costs_nothing(
        2, "ask", "What?", "--workers", "alpha", "--workers", "", told="names no worker"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--tools one --tools two", "no tool server is named 'one'"),
        ("--tools two --tools one", "no tool server is named 'two'"),
        ("--allow-tools one --allow-tools two", "no tool server is named 'one'"),
        ("--tools none --tools one", "no tool server is named 'none'"),
    ],
)
def test_repeated_tools_are_all_known(stage: Stage, words: str, message: str) -> None:
    stage.costs_nothing(2, "ask", "What?", *words.split(), told=message)


def test_repeated_files_and_parameters_are_all_read(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("first file")
    (tmp_path / "b.txt").write_text("second file")
    (stage.home / "config/conductor-llm/templates").mkdir(parents=True)
    (stage.home / "config/conductor-llm/templates/pair.toml").write_text(
        'question = "$one and $two"\n'
    )
    both = ("-f", tmp_path / "a.txt", "--file", tmp_path / "b.txt")
    stage.ok("ask", "-t", "pair", "-p", "one=sun", "--param", "two=moon", *both)
    sent = json.dumps(stage.asked("alpha")[0].json)
    assert all(text in sent for text in ("sun and moon", "first file", "second file"))
    stage.costs_nothing(
        2,
        "ask",
        "-t",
        "pair",
        "-p",
        "one=a",
        "-p",
        "two=b",
        "-p",
        "one=c",
        told="--param one is given twice: 'a' and 'c'",
    )


def test_repeated_settings_add_up_or_are_refused(stage: Stage) -> None:
    base = ("workers", "add", "new", "--kind", "ollama", "--model", "m")
    for words, message in {
        "--set temperature=0.2 --set temperature=0.9": (
            "--set temperature is given twice: '0.2' and '0.9'"
        ),
        "--set price=1,2 --set price=": "--set price is given twice: '1,2' and ''",
        "--set model=other": "--model is given twice: 'other' and 'm'",
        "--sandbox --set sandbox=false": "--sandbox is given twice: 'false' and 'true'",
        "--set tags=none --set tags=a": "tags is none and also names some",
        "--set tools=none --tools a": "--tools is given twice: 'none' and 'a'",
        f"--set context={'9' * 5000}": "context",
    }.items():
        stage.fails(2, *base, *words.split(), told=message)
    again = ("--set", "context=9000")
    stage.ok(*base, "--set", "tags=a,b", "--set", "tags=c", *again, *again)
    assert stage.own_settings["workers"]["new"]["tags"] == ["a", "b", "c"]
    only = ("--set", "only=x", "--set", "only=y")
    allow = ("--allow", "x", "--allow", "y", "--set", "allow=z")
    stage.ok("tools", "add", "one", *only, *allow, "--", "true")
    stage.ok("tools", "add", "two", "--", "true")
    stored = stage.own_settings["tools"]["one"]
    assert stored["only"] == ["x", "y"]
    assert sorted(stored["allow"]) == ["x", "y", "z"]
    stage.ok(*base, "--tools", "one", "--tools", "two")
    assert stage.own_settings["workers"]["new"]["tools"] == ["one", "two"]
    message = "--set group is given twice: '4' and '8'"
    stage.fails(2, "train", "--set", "group=4", "--set", "group=8", told=message)


def test_repeated_headers_are_all_kept(stage: Stage) -> None:
    add = ("tools", "add", "web", "https://example.com/mcp", "--insecure-storage")
    stage.ok(*add, "--header", "X-One: $ONE", "--header", "X-Two: $TWO")
    assert stage.own_settings["tools"]["web"]["headers"] == {"X-One": "$ONE", "X-Two": "$TWO"}
    message = "the header 'x-one' is given twice"
    done = stage.fails(
        2, *add, "--header", "X-One: s3cr3t", "--header", "x-one: 0ther", told=message
    )
    assert "s3cr3t" not in done.err


def test_repeated_systems_and_fields_are_all_used(stage: Stage, tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"problem": "How?", "target": "so"}\n')
    evaluate = (
        "eval",
        cases,
        "--yes",
        "--json",
        "--fields",
        "question=problem",
        "--fields",
        "answer=target",
    )
    done = stage.ok(*evaluate, "--systems", "vote", "--systems", "moa")
    assert [system["name"] for system in done.json["systems"]] == ["vote", "moa"]
    message = "--fields gives 'answer' two columns: 'target' and 'problem'"
    stage.costs_nothing(2, *evaluate, "--fields", "answer=problem", told=message)


def test_limits_that_contradict_each_other_cost_nothing(stage: Stage) -> None:
    """Taking the last, as is usual, would spend more than the first one allows."""
    message = "--max-cost is given twice: '1' and '5'"
    stage.costs_nothing(2, "ask", "What?", "--max-cost", "1", "--max-cost", "5", told=message)
    stage.costs_nothing(2, "ask", "What?", "--approve", "--no-approve", told="exclude each other")
    stage.ok("ask", "What?", "--max-calls", "3", "--max-calls", "3")


def test_how_a_run_is_shown_is_taken_from_the_last_option(stage: Stage) -> None:
    """So an alias with an option of its own can be overridden."""
    assert (
        stage.ok("ask", "What?", "--format", "json", "--format", "answer").out == "alpha answers\n"
    )


def test_help_comes_before_a_contradiction(stage: Stage) -> None:
    assert "--max-cost" in stage.ok("ask", "--max-cost", "1", "--max-cost", "2", "--help").out


def test_two_settings_files_are_refused_wherever_they_stand(stage: Stage, tmp_path: Path) -> None:
    """A settings file has policies, so the one that is dropped may forbid what the other allows."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(stage.config.read_text())
    first = str(tmp_path / "a")
    second = str(tmp_path / "b")
    for words in (
        ("--config", first, "--config", second, "config", "show"),
        ("--config", first, "config", "show", "--config", second),
        ("config", "--config", first, "show", "--config", second),
    ):
        stage.fails(2, *words, told="--config is given twice")
    stage.ok("--config", first, "config", "show", "--config", first)


def test_an_earlier_name_of_an_option_works_and_says_the_present_one(stage: Stage) -> None:
    planner = f"{stage.url}#{PLANNER}"
    message = "--conductor is called --planner now; the earlier name works on\n"
    done = stage.ok("ask", "hi", "--conductor", planner, told=message)
    assert done.err.count("--planner") == 1
    stage.ok("ask", "hi", f"--conductor={planner}", told=message)
    assert stage.ok("ask", "hi", "--planner", planner).err == ""
    stage.ok("ask", "hi", "--recursion", "0", told="--recursion is called --review now")
    stage.ends(2, "ask", "hi", "--recursion", "1", "--review", "2", told="--review is given twice")


def test_an_earlier_name_after_two_dashes_is_a_part_of_the_question(stage: Stage) -> None:
    done = stage.ok("ask", "--", "what was", "--conductor")
    assert done.err == ""
    assert "what was --conductor" in stage.asked("alpha")[0].body.decode()


def test_the_first_help_has_five_groups_and_names_the_rest(stage: Stage) -> None:
    shown = stage.inside("--help").out
    headings = [line for line in shown.splitlines() if line.endswith(":") and line[0] != " "]
    assert headings[1:] == [
        "Everyday:",
        "Setup:",
        "Models, workers and keys:",
        "Records:",
        "Advanced:",
        "More:",
    ]
    assert "  completions, state, train" in shown
    assert stage.inside("train", "--help").code == 0
