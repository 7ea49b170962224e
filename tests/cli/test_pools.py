"""`--pool`, `workers` by several names, tags and settings, and the policy on the command line.

Programs as workers are here, too.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from tests.cli.stage import TWO, Stage, finished, refuses, says, stalls
from tests.cli.terminals import Gate, terminal
from tests.servers import SeenRequest, Wire, delta, loopback


def write_own_workers(stage: Stage, *names: str) -> None:
    """Workers of this server that the tool itself wrote down, and none else."""
    stage.configure(workers=())
    for name in names:
        stage.inside(
            "workers",
            "add",
            name,
            "-k",
            "openai-compatible",
            "--base-url",
            stage.url,
            "--model",
            name,
        )


@pytest.mark.parametrize("command", ["ask", "plan"])
def test_a_pool_and_names_narrow_together(stage: Stage, command: str) -> None:
    stage.pool("both", "beta", "alpha")
    stage.pool("small", "beta")
    assert stage.inside(command, "hi", "--pool", "both", "--workers", "alpha").code == 0
    stage.fails(
        2, command, "hi", "--pool", "small", "--workers", "alpha", told="unknown worker 'alpha'"
    )


def test_a_pool_in_use_is_that_of_every_run_that_names_none(stage: Stage) -> None:
    stage.pool("small", "beta")
    assert (
        stage.inside("config", "set", "conductor.pool", "small").out == "conductor.pool = small\n"
    )
    stage.plan = "beta | - | Answer it."
    assert stage.inside("ask", "hi", "--mode", "ultra").out == "beta answers\n"
    planned = stage.asked("planner")[-1].body.decode()
    assert "beta" in planned
    assert "alpha" not in planned
    stage.plan = "alpha | - | Answer it."
    assert stage.inside("ask", "hi", "--pool", "").out == "alpha answers\n"
    stage.inside("config", "set", "conductor.pool", "default")
    assert stage.inside("ask", "hi").out == "alpha answers\n"
    stage.configure('pool = "gone"\n[limits]\nattempts = 1')
    stage.fails(3, "ask", "hi", told=f"conductor.pool is from {stage.config}")
    stage.configure('[pools.mine]\nworkers = ["alpha", "zeta"]')
    stage.fails(3, "ask", "hi", "--pool", "mine", told=(f"{stage.config}, line", "names 'zeta'"))


def test_a_run_is_finished_with_its_own_workers(stage: Stage) -> None:
    stage.models["alpha"] = refuses(503, "later")
    stage.plan = "alpha | - | Answer it."
    assert stage.inside("ask", "hi", "--workers", "alpha").code != 0
    stage.models.clear()
    stage.pool("small", "beta")
    stage.inside("config", "set", "conductor.pool", "small")
    assert stage.inside("ask", "--resume", "last").out == "alpha answers\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ask", "hi", "--pool", "nope"), "no pool is named 'nope'"),
        (("workers", "test", "--pool", "nope"), "no pool is named 'nope'"),
        (
            ("ask", "What is the capital of France?", "--demo", "--pool", "nope"),
            "--demo has its own workers",
        ),
    ],
)
def test_a_wrong_pool_is_reported(stage: Stage, arguments: tuple[str, ...], message: str) -> None:
    stage.fails(2, *arguments, told=message)


def test_a_pool_without_an_enabled_worker_is_refused(stage: Stage) -> None:
    write_own_workers(stage, "alpha", "beta", "gamma")
    stage.pool("two", "beta", "gamma")
    text = stage.own_file.read_text()
    stage.own_file.write_text(text.replace("[workers.beta]", "[workers.beta]\nenabled = false"))
    stage.plan = "gamma | - | Answer it."
    assert stage.inside("ask", "hi", "--pool", "two").out == "gamma answers\n"
    stage.own_file.write_text(
        re.sub(r"\[workers\.(beta|gamma)\]", r"[workers.\1]\nenabled = false", text)
    )
    stage.ends(3, "ask", "hi", "--pool", "two", told="all workers of pool 'two' are disabled")
    assert stage.inside("workers", "add", "gamma").code == 0
    assert stage.inside("ask", "hi", "--pool", "two").out == "gamma answers\n"


def test_a_worker_of_a_pool_is_not_removed(stage: Stage) -> None:
    write_own_workers(stage, "alpha", "beta")
    # As earlier versions wrote it
    stage.own_file.write_text(stage.own_file.read_text() + '[pools.old]\nworkers = ["beta"]\n')
    stage.pool("both", "alpha", "beta")
    for name, pool in (("alpha", "both"), ("beta", "old")):
        stage.fails(2, "workers", "rm", name, told=f"worker '{name}' is in pool '{pool}'")


def test_tags_and_settings_are_added_shown_and_taken_out(stage: Stage) -> None:
    add = ("workers", "add", "g", "-k", "gemini", "-m", "gemini-2.5-pro")
    stage.ok(
        *add, "--set", "thinking_budget=128", "--set", "tags=eu,cheap", "--set", "temperature=0.9"
    )
    listed = {row["name"]: row for row in stage.inside("workers", "list", "--json").json}
    assert (listed["g"]["tags"], listed["g"]["options"]) == (
        ["eu", "cheap"],
        {"thinking_budget": 128, "temperature": 0.9},
    )
    assert "eu, cheap" in stage.inside("workers", "list").out
    shown = stage.inside("workers", "show", "g").out
    assert "thinking_budget 128, temperature 0.9" in shown
    assert " per million tokens (litellm " in shown
    assert stage.inside("workers", "show", "g", "--json").json["price_from"].startswith("litellm ")
    assert "not measured: arXiv 2512.04388" in shown
    assert stage.inside("workers", "add", "g", "--set", "temperature=").out.startswith("changed g")
    assert "temperature" not in stage.own_settings["workers"]["g"]
    assert stage.inside("workers", "add", "g", "-m", "gemini-2.5-pro").out.startswith(
        "changed g: nothing, "
    )
    assert stage.inside("workers", "add", "g", "--set", "tags=", "-m", "m").out.startswith(
        "changed g: model, tags;"
    )
    for wrong in (("--set", "kind="), ("--set", "reasoning_effort=low"), ("--set", "tags=a b")):
        stage.fails(2, "workers", "add", "g", *wrong)
    stage.ends(2, "workers", "add", "g", "--set", "modle=", told="did you mean model?")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "m"), "\n  for example: --kind openai\n"),
        (("--kind", "opnai"), "\n  did you mean openai?\n"),
        (("--kind", "openai-compatible"), "\n  for example: --base-url http://127.0.0.1:8080/v1\n"),
        (
            ("--kind", "openai-compatible", "--base-url", "127.0.0.1:8080/v1"),
            "did you mean http://127.0.0.1:8080/v1?",
        ),
        (
            ("--kind", "openai-compatible", "--base-url", "ftp://here"),
            "a URL that begins with http",
        ),
        (("--kind", "ollama", "--base-url", "http://me:secret@here/v1"), ""),
        (("--kind", "llama"), "\n  for example: --model /models/some.gguf\n"),
        (("--kind", "llama", "--model", "/missing.gguf"), "/missing.gguf"),
        (("--kind", "openai", "--set", "price=3"), "input and output: price=1.25,10"),
        (("--kind", "openai", "--set", "key_env=sk-a1b2c3"), "key_env"),
        (("--kind", "openai", "--set", "temperature=nan"), "temperature"),
        (("--kind", "openai", "--", "cat"), "has no option 'args'"),
        (
            ("--kind", "command"),
            "names no program\n  for example: conductor workers add NAME --kind command -- tac\n",
        ),
        (
            ("--kind", "command", "--", "no-such-program"),
            "the program no-such-program was not found",
        ),
        (
            ("--kind", "command", "--set", "network=true", "--", "cat"),
            "network is for a program in a sandbox",
        ),
        (("--kind", "command", "--set", "env=A=b", "--", "cat"), "not the name of a variable"),
    ],
)
def test_a_worker_that_could_not_be_used_is_not_added(
    stage: Stage, words: tuple[str, ...], message: str
) -> None:
    """What it lacks is named as an option, and nothing of what may be a key is repeated."""
    done = stage.fails(2, "workers", "add", "new", *words, told=message)
    assert not [word for word in ("base_url", "secret", "sk-") if word in done.err]
    assert not stage.own_file.exists()
    stage.fails(2, "workers", "add", "bad name", *words)


def test_a_test_is_one_token_with_the_workers_own_settings(stage: Stage) -> None:
    stage.configure(workers={"beta": 'reasoning_effort = "low"', "alpha": ""})
    stage.models["alpha"] = stalls("re")
    rows = stage.inside("workers", "test", "--json").json
    assert [(row["name"], row["state"]) for row in rows] == [("beta", "ok"), ("alpha", "ok")]
    assert next(row["text"] for row in rows if row["name"] == "alpha") == "re"
    assert stage.asked("alpha")[0].json["max_tokens"] == 16
    sent = stage.asked("beta")[0].json
    assert (sent["reasoning_effort"], sent["max_tokens"]) == ("low", 16 + 16_384)


def test_thinking_is_a_token_too(stage: Stage) -> None:
    async def thinks(request: SeenRequest, wire: Wire) -> None:
        await wire.head()
        await wire.frames(delta(reasoning_content="Hm."))
        await wire.stall()

    stage.models = {"alpha": thinks, "beta": says(finish="length")}
    done = stage.inside("workers", "test")
    assert (done.code, "(thinking)" in done.out, "(no text within 16 tokens)" in done.out) == (
        0,
        True,
        True,
    )


def test_a_refused_setting_is_named(stage: Stage) -> None:
    stage.configure(workers={"beta": "temperature = 0.2", "alpha": ""})
    stage.models["beta"] = refuses(
        400, "Unsupported value: 'temperature' does not support 0.2 with this model."
    )
    done = stage.ends(1, "workers", "test")
    assert "beta does not accept temperature = 0.2" in done.out
    assert "--set temperature=" in done.out
    assert [line.split()[0] for line in done.out.splitlines() if " alpha: " in line] == ["ok"]


def test_each_result_comes_as_soon_as_it_is_known(stage: Stage) -> None:
    gate = Gate("late")
    stage.models["alpha"] = gate
    with stage.start("workers", "test") as process:
        assert process.stdout is not None
        assert process.stdout.readline().split()[:2] == [b"ok", b"beta:"]
        gate.let(2)
        assert process.stdout.readline().split()[:2] == [b"ok", b"alpha:"]
        assert finished(process).code == 0
    rows = stage.inside("workers", "test", "--json").json
    assert [row["name"] for row in rows] == ["alpha", "beta"]


@pytest.mark.parametrize(
    "command", [("workers", "test"), ("doctor",)], ids=["workers test", "doctor"]
)
def test_a_terminal_shows_what_still_runs(stage: Stage, command: tuple[str, ...]) -> None:
    gate = Gate("late")
    stage.models["alpha"] = gate
    with terminal(stage, *command) as screen:
        shown = screen.until("alpha 1 s")
        assert shown.splitlines()[-1].startswith("waiting for ")
        assert "beta" in shown
        gate.let()
        assert screen.end() == 0
        assert "waiting for" not in screen.scrolled


def test_only_the_workers_of_a_pool_are_tested(stage: Stage) -> None:
    stage.pool("small", "beta")
    rows = stage.inside("workers", "test", "--pool", "small", "--json").json
    assert [row["name"] for row in rows] == ["beta"]
    assert stage.asked("alpha") == []


FREE = '[workers.free]\nkind = "command"\ncommand = ["sh", "-c", "cat > {}; echo heard"]'


def test_a_program_is_added_shown_tested_and_used(stage: Stage) -> None:
    stage.configure(workers=())
    done = stage.inside(
        "workers", "add", "up", "--kind", "command", "--set", "seconds=9", "--", "echo", "$x", "a*"
    )
    assert (done.code, done.err) == (0, "")
    table = tomllib.loads(stage.own_file.read_text())["workers"]["up"]
    assert table == {"kind": "command", "command": ["echo", "$x", "a*"], "seconds": 9.0}
    shown = stage.inside("workers", "show", "up").out
    assert "echo '$x' 'a*'" in shown
    assert "unknown" in shown
    assert "$x a*" in stage.inside("workers", "test", "up").out
    stage.inside("workers", "add", "up", "--", "echo", "changed")
    stage.plan = "up | - | Answer."
    assert stage.inside("ask", "hi").out == "changed\n"


def test_the_seconds_of_a_program_hold_instead_of_the_timeouts(stage: Stage) -> None:
    stage.plan = "slow | - | Answer."
    timeouts = "[limits]\nattempts = 1\n[timeouts]\nfirst_token = 0.3\nidle = 0.3\ntotal = 0.6\n"
    slow = '[workers.slow]\nkind = "command"\ncommand = ["sh", "-c", "sleep 1; echo done"]\n'
    stage.configure(tables=f"{timeouts}{slow}seconds = 20", workers=())
    assert stage.inside("ask", "hi", "--workers", "slow").out == "done\n"
    stage.configure(
        tables=slow.replace("sleep 1", "sleep 600") + "seconds = 0.5\n[limits]\nattempts = 1",
        workers=(),
    )
    stage.ends(8, "ask", "hi", "--workers", "slow", told="within 0.5 s")


@pytest.mark.parametrize("rule", ["--local-only", "files", "deny"])
def test_what_must_stay_here_never_reaches_a_program(
    rule: str, stage: Stage, tmp_path: Path
) -> None:
    heard = tmp_path / "heard"
    notes = tmp_path / "notes.txt"
    notes.write_text("the launch code is 9876")
    free_table = FREE.format(heard)
    stage.configure(
        tables=f'[policy]\nfiles_only = ["provider:local"]\n{free_table}'
        if rule == "files"
        else free_table
    )
    stage.plan = "free | - | Read the notes.\nalpha | 1 | Answer."
    flags = {"--local-only": ("--local-only",), "files": (), "deny": ("--deny", "provider:openai")}[
        rule
    ]
    stage.ok("ask", "What do the notes say?", "-f", notes, *flags)
    assert not heard.exists() or "9876" not in heard.read_text()
    assert rule == "files" or not heard.exists()


def test_a_limit_of_money_is_refused_for_a_program_without_a_price(
    stage: Stage, tmp_path: Path
) -> None:
    heard = tmp_path / "heard"
    stage.configure(tables=FREE.format(heard), workers=())
    stage.plan = "free | - | Answer."
    stage.ends(3, "ask", "hi", "--workers", "free", "--max-cost", "1", told="free has no price")
    assert not heard.exists()
    done = stage.inside("ask", "hi", "--workers", "free", "--format", "json")
    assert done.json["steps"][0]["usage"]["cost"] is None
    assert done.json["steps"][0]["usage"]["unpriced"] == 1


def test_doctor_names_a_program_that_is_not_installed(stage: Stage) -> None:
    codex = '[workers.codex]\nkind = "codex"\ncommand = ["no-such-codex"]'
    stage.configure(
        tables=f'{codex}\n[workers.up]\nkind = "command"\ncommand = ["tr", "a", "b"]', workers=()
    )
    checks = {
        check["name"]: check
        for check in stage.inside("doctor", "--offline", "--json").json["checks"]
    }
    assert checks["worker codex"]["state"] == "failed"
    assert "npm install -g @openai/codex" in checks["worker codex"]["hint"]
    assert (checks["worker up"]["state"], "tr a b" in checks["worker up"]["found"]) == ("ok", True)


def test_a_program_can_plan(stage: Stage) -> None:
    """Its lines are the plan, and each step starts with its line.

    It is not taken for another program.
    """
    plans = "echo 'up | - | Shout.'; sleep 0.2; echo 'alpha | 1 | Answer.'"
    up = '[workers.up]\nkind = "command"\ncommand = ["tr", "a-z", "A-Z"]'
    stage.configure(
        tables=f'[workers.head]\nkind = "command"\ncommand = ["sh", "-c", "{plans}"]\n{up}',
        conductor="head",
    )
    done = stage.inside("ask", "hi", "--workers", "up,alpha", "--format", "json")
    assert ([step["worker"] for step in done.json["steps"]], done.json["answer"]) == (
        ["up", "alpha"],
        "alpha answers",
    )
    assert "also the worker" not in stage.inside("trace", "show", "last").out


FAR = (
    '[workers.far]\nkind = "openai-compatible"\nbase_url = "http://192.0.2.1/v1"\nmodel = "m"\n'
    'tags = ["us"]'
)
"""An address that no test may reach."""


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (
            ("--deny", "alpha,beta"),
            3,
            "the policy allows no worker (alpha: policy.deny names alpha; beta: ",
        ),
        (("--allow", "alhpa"), 2, "no worker matches 'alhpa'\n  did you mean alpha?"),
        (
            ("--allow", "alpha,qqq"),
            2,
            "no worker matches 'qqq'\n  see names, kinds and tags: conductor workers list",
        ),
        (
            ("--deny", "provider:opnai"),
            2,
            "no worker matches 'provider:opnai'\n  did you mean provider:openai?",
        ),
        (
            ("--allow", "provider:openai"),
            2,
            "no worker matches 'provider:openai'\n  see names, kinds and tags: conductor workers",
        ),
        (("--workers", "alhpa"), 2, "unknown worker 'alhpa'\n  did you mean alpha?"),
        (
            ("--workers", "beta", "--deny", "beta"),
            3,
            "worker beta may not be asked: policy.deny names beta",
        ),
        (
            ("--planner", "openai/m", "--local-only"),
            3,
            "the policy forbids asking the planner (openai): policy.local",
        ),
        (
            ("--planner", "openai/m", "--deny", "provider:openai"),
            3,
            "policy.deny names provider:openai",
        ),
        (("--allow", ""), 2, "--allow is ['']; expected a list of worker names"),
    ],
)
def test_what_allows_nothing_ends_before_any_call(
    stage: Stage, flags: tuple[str, ...], code: int, message: str
) -> None:
    stage.configure()
    stage.costs_nothing(code, "ask", "How many?", *flags, out="", told=message)


@pytest.mark.parametrize("command", [("plan", "x"), ("run", "PLAN"), ("eval", "CASES", "--yes")])
def test_a_mistyped_rule_ends_every_command(
    stage: Stage, tmp_path: Path, command: tuple[str, ...]
) -> None:
    steps = [{"worker": "alpha", "subtask": "Answer it.", "access": []}]
    (tmp_path / "PLAN").write_text(
        json.dumps({"version": 1, "question": {"text": "What?"}, "steps": steps})
    )
    (tmp_path / "CASES").write_text(
        '{"id": "1", "question": "1+1?", "answer": "2", "scorer": "exact"}\n'
    )
    words = [str(tmp_path / word) if word.isupper() else word for word in command]
    stage.costs_nothing(
        2,
        *words,
        "--deny",
        "btea",
        given="What?\n",
        out="",
        told="no worker matches 'btea'\n  did you mean beta?",
    )


def test_a_rule_may_name_a_provider_or_a_worker_that_the_run_does_not_use(stage: Stage) -> None:
    stage.configure(tables='[policy]\ndeny = ["gamma"]\n[pools.small]\nworkers = ["alpha"]')
    done = stage.ok("ask", "What?", "--pool", "small", "--deny", "beta,provider:openai")
    assert "policy.deny: no worker matches gamma" in done.err


def test_a_rule_that_is_set_and_matches_nobody_is_noted_at_once(stage: Stage) -> None:
    assert (
        stage.ok("config", "set", "policy.deny", "btea,beta").err
        == "policy.deny: no worker matches btea\n"
    )
    assert (
        stage.ok("config", "set", "policy.allow", "btea").err
        == "policy.allow: no worker matches btea\n"
    )


def test_a_rule_may_name_a_worker_that_was_found(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.configure(workers=())
    monkeypatch.setenv("OPENAI_API_KEY", "sk-abcdefgh")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-abcdefgi")
    assert "no worker matches" not in stage.inside("plan", "What?", "--deny", "openai").err
    assert stage.inside("plan", "What?", "--deny", "opnai").code == 2


def test_a_plan_file_is_held_to_the_rules_before_a_worker_is_called(stage: Stage) -> None:
    stage.configure(tables='[policy]\nfiles_only = ["alpha"]')
    steps = [{"worker": "alpha", "subtask": "Read it.", "access": []}]
    question = {"text": "What?", "files": [{"name": "pay.csv", "text": "SECRETS"}]}
    good = {
        "question": question,
        "steps": [*steps, {"worker": "beta", "subtask": "Say it.", "access": []}],
    }
    assert stage.inside("run", given=json.dumps(good)).code == 0
    assert "SECRETS" in json.dumps(stage.asked("alpha")[0].json)
    assert "SECRETS" not in json.dumps(stage.asked("beta")[0].json)
    before = len(stage.server.requests)
    bad = {
        "question": question,
        "steps": [*steps, {"worker": "beta", "subtask": "Say it.", "access": [1]}],
    }
    done = stage.ends(3, "run", given=json.dumps(bad))
    assert "step 2 shows beta the answer of step 1, which may quote the attached files" in done.err
    assert len(stage.server.requests) == before


def test_a_resumed_run_is_held_to_the_rules_that_it_began_with(stage: Stage) -> None:
    stage.plan = "alpha | - | one\nalpha | 1 | two"
    stage.configure(tables=f"[limits]\nattempts = 1\n{FAR}")
    stage.ends(
        6,
        "ask",
        "--local-only",
        "--deny",
        "beta",
        "--max-steps",
        "2",
        "--max-calls",
        "1",
        "--mode",
        "ultra",
        "How many?",
    )
    stage.models["alpha"] = refuses(500)
    done = stage.inside("ask", "--resume", "last", "--format", "jsonl")
    assert done.code != 0
    assert (
        done.events[0]["policy"] | {"deny": ["beta"], "local_only": True}
        == done.events[0]["policy"]
    )
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
    stage.configure(tables=FAR)
    assert stage.inside("ask", "--local-only", "--deny", "beta", "How many?").code == 0
    stage.plan = TWO
    done = stage.ok("ask", "-c", "last", "And then?", "--format", "jsonl")
    assert (done.events[0]["policy"]["local_only"], done.events[0]["policy"]["deny"]) == (
        True,
        ["beta"],
    )
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
    stage.configure(tables='[policy]\ndeny = ["beta"]')
    done = stage.inside("workers", "list")
    assert [line.split()[:3:2] for line in done.out.splitlines()[1:3]] == [
        ["alpha", "yes"],
        ["beta", "forbidden"],
    ]
    rows = {row["name"]: row["forbidden"] for row in stage.inside("workers", "list", "--json").json}
    assert (rows["alpha"], rows["beta"]) == (None, "policy.deny names beta")
    assert "yes, but policy.deny names beta" in stage.inside("workers", "show", "beta").out


def test_a_pool_is_set_shown_used_and_removed(stage: Stage) -> None:
    done = stage.ok("config", "set", "pools.small", "beta,alpha")
    assert done.out == "pools.small = beta, alpha; to use it: conductor ask --pool small …\n"
    assert stage.own_settings["pools"] == {"small": {"workers": ["beta", "alpha"]}}
    assert stage.ok("config", "show", "pools.small").out == "beta, alpha\n"
    (row,) = stage.ok("config", "show", "pools").out.splitlines()[1:]
    assert row.split() == ["pools.small", "beta,", "alpha", str(stage.own_file)]
    shown = stage.ok("config", "show", "pools", "--json").json
    assert shown == stage.ok("config", "show", "pools.small", "--json").json
    value = stage.ok("config", "show", "pools.small", "--json").json["pools.small"]
    assert value == {"value": ["beta", "alpha"], "from": str(stage.own_file)}
    stage.ok("config", "set", "pools.small", "beta")
    assert stage.ok("ask", "hi", "--pool", "small").out == "beta answers\n"
    stage.ok("config", "set", "conductor.pool", "small")
    stage.fails(2, "config", "set", "pools.small", "default", told="the pool 'small' is in use")
    stage.ok("config", "set", "conductor.pool", "default")
    assert "its workers stay" in stage.ok("config", "set", "pools.small", "default").out
    stage.fails(2, "config", "show", "pools.small", told="no pool is named 'small'")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("pools.new", "alpha,gamma", "no worker is named 'gamma'"),
        ("pools.new", "alpha,alpha", "names a worker twice"),
        ("pools.new", "", "no worker is named ''"),
        ("pools.a b", "alpha", "'a b' is not a valid name for pools"),
        ("pools.new", "default", "no pool is named 'new'"),
    ],
)
def test_a_pool_that_cannot_be_is_refused(
    stage: Stage, name: str, value: str, message: str
) -> None:
    stage.fails(2, "config", "set", name, value, told=message)
    assert "pools" not in stage.own_settings


def test_a_pool_that_the_user_wrote_is_not_changed(stage: Stage) -> None:
    stage.pool("mine", "alpha")
    stage.fails(3, "config", "set", "pools.mine", "beta", told="which conductor does not change")


def test_adding_a_worker_stores_the_context_that_its_server_gives_it(stage: Stage) -> None:
    """A larger one that the user sets stays; with another model it is asked for again."""

    async def lists(request: SeenRequest, wire: Wire) -> None:
        contexts = {"alpha": 16_384, "beta": 8192, "gamma": None}
        models = [{"id": name, "max_model_len": context} for name, context in contexts.items()]
        await wire.json({"data": models})

    with loopback(lists) as server:
        add = ("workers", "add", "new", "-k", "openai-compatible")
        url = f"{server.url}/v1"
        done = stage.ok(*add, "--base-url", url, "-m", "alpha")
        assert "added new, whose context is 16,384 tokens" in " ".join(done.out.split())
        assert stage.own_settings["workers"]["new"]["context"] == 16_384
        stage.ok("workers", "add", "new", "--set", "context=50000")
        stage.ok("workers", "add", "new", "--set", "about=good")
        assert stage.own_settings["workers"]["new"]["context"] == 50_000
        stage.ok("workers", "add", "new", "-m", "beta")
        assert stage.own_settings["workers"]["new"]["context"] == 8192
        stage.ok("workers", "add", "new", "-m", "gamma")
        assert "context" not in stage.own_settings["workers"]["new"]


def test_settings_of_a_worker_are_changed_by_key_and_value(stage: Stage) -> None:
    added = ("workers", "add", "own", "-k", "openai-compatible", "--base-url", stage.url)
    stage.ok(*added, "-m", "alpha")
    done = stage.ok("workers", "set", "own", "model=beta", "price=1,2", "temperature=0.2")
    assert done.out.startswith("changed own: ")
    table = stage.own_settings["workers"]["own"]
    assert (table["model"], table["temperature"]) == ("beta", 0.2)
    stage.ok("workers", "set", "own", "temperature=")
    assert "temperature" not in stage.own_settings["workers"]["own"]
    stage.fails(2, "workers", "set", "owm", "model=beta", told="did you mean own?")
    stage.fails(2, "workers", "set", "own", "model", told="workers set takes KEY=VALUE")
    stage.fails(2, "workers", "set", "own")
