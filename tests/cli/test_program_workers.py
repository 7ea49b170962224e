"""Programs as workers, from the command line: adding, testing, running, limits and policy."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.cli.stage import Stage

FREE = '[workers.free]\nkind = "command"\ncommand = ["sh", "-c", "cat > {}; echo heard"]'


def test_a_program_is_added_shown_tested_and_used(stage: Stage) -> None:
    stage.configure(workers=())
    done = stage.inside("workers", "add", "up", "--kind", "command", "--set", "seconds=9", "--", "echo", "$x", "a*")
    assert (done.code, done.err) == (0, "")
    table = tomllib.loads(stage.own.read_text())["workers"]["up"]
    assert table == {"kind": "command", "command": ["echo", "$x", "a*"], "seconds": 9.0}
    shown = stage.inside("workers", "show", "up").out
    assert "echo '$x' 'a*'" in shown
    assert "unknown" in shown
    assert "$x a*" in stage.inside("workers", "test", "up").out
    stage.inside("workers", "add", "up", "--", "echo", "changed")
    stage.plan = "up | - | Answer."
    assert stage.inside("ask", "hi").out == "changed\n"


def test_a_program_that_is_missing_or_wrong_is_not_added(stage: Stage) -> None:
    stage.configure()
    for arguments, words in (
        (("--kind", "command", "--", "no-such-program"), "the program no-such-program was not found"),
        (("--kind", "command"), "names no program"),
        (("--kind", "command", "--set", "network=true", "--", "cat"), "network is for a program in a sandbox"),
        (("--kind", "command", "--set", "env=A=b", "--", "cat"), "not the name of a variable"),
        (("--kind", "openai", "--", "cat"), "has no option 'args'"),
    ):
        stage.fails(2, "workers", "add", "p", *arguments, told=words)
    assert not stage.own.exists()


def test_settings_of_programs_are_checked_with_file_and_line(stage: Stage) -> None:
    for line, words in (
        ('command = "cat"', "command is 'cat'; expected a list of texts"),
        ('command = ["cat", 1]', "command is not a list of texts"),
        ('command = ["cat"]\ntemperature = 0.5', "has no option 'temperature'"),
        ('command = ["cat"]\naccepts = ["image"]', "a program reads text only"),
        ('command = ["cat"]\nseconds = 0', "seconds is 0"),
        ('command = ["cat"]\nsandbox = "yes"', "sandbox is 'yes'; expected true or false"),
    ):
        stage.configure(more=f'[workers.p]\nkind = "command"\n{line}')
        stage.ends(3, "workers", "list", told=(words, "config.toml, line"))


def test_the_seconds_of_a_program_hold_instead_of_the_timeouts(stage: Stage) -> None:
    stage.plan = "slow | - | Answer."
    timeouts = "[limits]\nattempts = 1\n[timeouts]\nfirst_token = 0.3\nidle = 0.3\ntotal = 0.6\n"
    slow = '[workers.slow]\nkind = "command"\ncommand = ["sh", "-c", "sleep 1; echo done"]\n'
    stage.configure(more=f"{timeouts}{slow}seconds = 20", workers=())
    assert stage.inside("ask", "hi", "--workers", "slow").out == "done\n"
    stage.configure(more=slow.replace("sleep 1", "sleep 600") + "seconds = 0.5\n[limits]\nattempts = 1", workers=())
    stage.ends(8, "ask", "hi", "--workers", "slow", told="within 0.5 s")


@pytest.mark.parametrize("rule", ["--local-only", "files", "deny"])
def test_what_must_stay_here_never_reaches_a_program(rule: str, stage: Stage, tmp_path: Path) -> None:
    heard, notes = tmp_path / "heard", tmp_path / "notes.txt"
    notes.write_text("the launch code is 9876")
    more = FREE.format(heard)
    stage.configure(more=f'[policy]\nfiles_only = ["provider:local"]\n{more}' if rule == "files" else more)
    stage.plan = "free | - | Read the notes.\nalpha | 1 | Answer."
    flags = {"--local-only": ("--local-only",), "files": (), "deny": ("--deny", "provider:openai")}[rule]
    stage.ok("ask", "What do the notes say?", "-f", notes, *flags)
    assert not heard.exists() or "9876" not in heard.read_text()
    assert rule == "files" or not heard.exists()


def test_a_limit_of_money_is_refused_for_a_program_without_a_price(stage: Stage, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    stage.configure(more=FREE.format(heard), workers=())
    stage.plan = "free | - | Answer."
    stage.ends(3, "ask", "hi", "--workers", "free", "--max-cost", "1", told="free has no price")
    assert not heard.exists()
    done = stage.inside("ask", "hi", "--workers", "free", "--format", "json")
    assert done.json["steps"][0]["usage"]["cost"] is None
    assert done.json["steps"][0]["usage"]["unpriced"] == 1


def test_doctor_names_a_program_that_is_not_installed(stage: Stage) -> None:
    codex = '[workers.codex]\nkind = "codex"\ncommand = ["no-such-codex"]'
    stage.configure(more=f'{codex}\n[workers.up]\nkind = "command"\ncommand = ["tr", "a", "b"]', workers=())
    checks = {check["name"]: check for check in stage.inside("doctor", "--offline", "--json").json["checks"]}
    assert checks["worker codex"]["state"] == "failed"
    assert "npm install -g @openai/codex" in checks["worker codex"]["hint"]
    assert (checks["worker up"]["state"], "tr a b" in checks["worker up"]["found"]) == ("ok", True)


def test_a_program_can_plan(stage: Stage) -> None:
    """Its lines are the plan, each step starts with its line, and it is not taken for another program."""
    plans = "echo 'up | - | Shout.'; sleep 0.2; echo 'alpha | 1 | Answer.'"
    up = '[workers.up]\nkind = "command"\ncommand = ["tr", "a-z", "A-Z"]'
    stage.configure(more=f'[workers.head]\nkind = "command"\ncommand = ["sh", "-c", "{plans}"]\n{up}', conductor="head")
    done = stage.inside("ask", "hi", "--workers", "up,alpha", "--format", "json")
    assert ([step["worker"] for step in done.json["steps"]], done.json["answer"]) == (["up", "alpha"], "alpha answers")
    assert "also the worker" not in stage.inside("trace", "show", "last").out
