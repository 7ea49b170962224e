"""The policy from the command line: flags, settings, project files; what is refused before anything is called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.stage import TWO, Stage, refuses

FAR = '[workers.far]\nkind = "openai-compatible"\nbase_url = "http://192.0.2.1/v1"\nmodel = "m"\ntags = ["us"]'
"""An address that no test may reach."""


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (("--deny", "alpha,beta"), 3, "the policy allows no worker (alpha: policy.deny names alpha; beta: "),
        (("--allow", "alhpa"), 2, "no worker matches 'alhpa'\n  did you mean alpha?"),
        (("--allow", "alpha,qqq"), 2, "no worker matches 'qqq'\n  see names, kinds and tags: conductor workers list"),
        (("--deny", "provider:opnai"), 2, "no worker matches 'provider:opnai'\n  did you mean provider:openai?"),
        (("--workers", "alhpa"), 2, "unknown worker 'alhpa'\n  did you mean alpha?"),
        (("--workers", "beta", "--deny", "beta"), 3, "worker beta may not be asked: policy.deny names beta"),
        (
            ("--conductor", "openai/m", "--local-only"),
            3,
            "the policy forbids asking the planner (openai): policy.local",
        ),
        (("--conductor", "openai/m", "--deny", "provider:openai"), 3, "policy.deny names provider:openai"),
        (("--allow", ""), 2, "--allow is ['']; expected a list of worker names"),
    ],
)
def test_what_allows_nothing_ends_before_any_call(stage: Stage, flags: tuple[str, ...], code: int, said: str) -> None:
    stage.configure()
    stage.costs_nothing(code, "ask", "How many?", *flags, out="", told=said)


@pytest.mark.parametrize("command", [("plan", "x"), ("run", "PLAN"), ("eval", "CASES", "--yes")])
def test_a_mistyped_rule_ends_every_command(stage: Stage, tmp_path: Path, command: tuple[str, ...]) -> None:
    steps = [{"worker": "alpha", "subtask": "Answer it.", "access": []}]
    (tmp_path / "PLAN").write_text(json.dumps({"version": 1, "question": {"text": "What?"}, "steps": steps}))
    (tmp_path / "CASES").write_text('{"id": "1", "question": "1+1?", "answer": "2", "scorer": "exact"}\n')
    words = [str(tmp_path / word) if word.isupper() else word for word in command]
    stage.costs_nothing(
        2, *words, "--deny", "btea", given="What?\n", out="", told="no worker matches 'btea'\n  did you mean beta?"
    )


def test_a_rule_may_name_a_provider_or_a_worker_that_the_run_does_not_use(stage: Stage) -> None:
    stage.configure(more='[policy]\ndeny = ["gamma"]\n[pools.small]\nworkers = ["alpha"]')
    done = stage.ok("ask", "What?", "--pool", "small", "--deny", "beta,provider:openai")
    assert "policy.deny: no worker matches gamma" in done.err


def test_a_rule_that_is_set_and_matches_nobody_is_noted_at_once(stage: Stage) -> None:
    assert stage.ok("config", "set", "policy.deny", "btea,beta").err == "policy.deny: no worker matches btea\n"
    assert stage.ok("config", "set", "policy.allow", "btea").err == "policy.allow: no worker matches btea\n"


def test_a_rule_may_name_a_worker_that_was_found(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.configure(workers=())
    monkeypatch.setenv("OPENAI_API_KEY", "sk-abcdefgh")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-abcdefgi")
    assert "no worker matches" not in stage.inside("plan", "What?", "--deny", "openai").err
    assert stage.inside("plan", "What?", "--deny", "opnai").code == 2


def test_a_plan_file_is_held_to_the_rules_before_a_worker_is_called(stage: Stage) -> None:
    stage.configure(more='[policy]\nfiles_only = ["alpha"]')
    steps = [{"worker": "alpha", "subtask": "Read it.", "access": []}]
    question = {"text": "What?", "files": [{"name": "pay.csv", "text": "SECRETS"}]}
    good = {"question": question, "steps": [*steps, {"worker": "beta", "subtask": "Say it.", "access": []}]}
    assert stage.inside("run", given=json.dumps(good)).code == 0
    assert "SECRETS" in json.dumps(stage.asked("alpha")[0].json)
    assert "SECRETS" not in json.dumps(stage.asked("beta")[0].json)
    before = len(stage.server.requests)
    bad = {"question": question, "steps": [*steps, {"worker": "beta", "subtask": "Say it.", "access": [1]}]}
    done = stage.ends(3, "run", given=json.dumps(bad))
    assert "step 2 shows beta the answer of step 1, which may quote the attached files" in done.err
    assert len(stage.server.requests) == before


def test_a_resumed_run_is_held_to_the_rules_that_it_began_with(stage: Stage) -> None:
    stage.plan = "alpha | - | one\nalpha | 1 | two"
    stage.configure(more=f"[limits]\nattempts = 1\n{FAR}")
    stage.ends(6, "ask", "--local-only", "--deny", "beta", "--max-steps", "2", "--max-calls", "1", "How many?")
    stage.models["alpha"] = refuses(500)
    done = stage.inside("ask", "--resume", "last", "--format", "jsonl")
    assert done.code != 0
    assert done.events[0]["policy"] | {"deny": ["beta"], "local_only": True} == done.events[0]["policy"]
    assert not stage.asked("beta")


def test_a_project_file_narrows_and_says_so(stage: Stage, tmp_path: Path) -> None:
    stage.plan = TWO
    stage.configure()
    file = tmp_path / ".conductor.toml"
    file.write_text('[policy]\ndeny = ["beta"]\n[limits]\nsteps = 1\n')
    stage.ok("ask", "How many?", cwd=tmp_path, told=f"{file} narrows policy.deny, limits.steps")
    assert not stage.asked("beta")
    shown = stage.inside("config", "show", "--json", cwd=tmp_path).json
    assert shown["policy.deny"] == {"value": ["beta"], "from": str(file)}
    assert str(file) in stage.inside("config", "show", cwd=tmp_path).out


def test_a_conversation_goes_on_under_the_rules_that_it_began_with(stage: Stage) -> None:
    stage.plan = "alpha | - | one"
    stage.configure(more=FAR)
    assert stage.inside("ask", "--local-only", "--deny", "beta", "How many?").code == 0
    stage.plan = TWO
    done = stage.ok("ask", "-c", "last", "And then?", "--format", "jsonl")
    assert (done.events[0]["policy"]["local_only"], done.events[0]["policy"]["deny"]) == (True, ["beta"])
    assert "these rules apply: policy.deny, policy.local_only" in done.err
    assert not stage.asked("beta")


def test_a_run_is_not_run_again_on_a_worker_that_its_rules_forbid(stage: Stage) -> None:
    stage.plan = "alpha | - | one"
    stage.configure()
    assert stage.inside("ask", "--deny", "beta", "How many?").code == 0
    assert "policy     deny beta\n" in stage.inside("trace", "show").out
    before = len(stage.server.requests)
    done = stage.inside("trace", "rerun", "last", "--worker", "beta")
    assert (done.code, len(stage.server.requests)) == (3, before)
    assert "worker beta may not be asked: policy.deny names beta" in done.err


def test_forbidden_workers_are_marked_in_the_list(stage: Stage) -> None:
    stage.configure(more='[policy]\ndeny = ["beta"]')
    done = stage.inside("workers", "list")
    assert [line.split()[:3:2] for line in done.out.splitlines()[1:3]] == [["alpha", "yes"], ["beta", "forbidden"]]
    rows = {row["name"]: row["forbidden"] for row in stage.inside("workers", "list", "--json").json}
    assert (rows["alpha"], rows["beta"]) == (None, "policy.deny names beta")
    assert "yes, but policy.deny names beta" in stage.inside("workers", "show", "beta").out
