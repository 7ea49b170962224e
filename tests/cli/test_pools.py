"""`conductor pools`, `--pool`, and `workers` by several names, tags and settings."""

from __future__ import annotations

import asyncio
import re
import threading
import tomllib
from typing import Any

import pytest

from tests.cli.stage import Stage, finished, refuses, says, stalls
from tests.cli.terminals import terminal
from tests.servers import SeenStep, Wire, delta


def settings(stage: Stage) -> dict[str, Any]:
    """What conductor's own file holds."""
    return tomllib.loads(stage.own.read_text()) if stage.own.exists() else {}


def own(stage: Stage, *names: str) -> None:
    """Workers of this server that the tool itself wrote down, and none else."""
    stage.configure(workers=())
    for name in names:
        stage.inside("workers", "add", name, "-k", "openai-compatible", "--base-url", stage.url, "--model", name)


# pools


def test_a_pool_is_made_listed_used_and_removed(stage: Stage) -> None:
    assert stage.inside("pools", "add", "small", "beta").code == 0
    assert settings(stage)["pools"] == {"small": {"workers": ["beta"]}}
    (row, *shipped) = stage.inside("pools", "list", "--json").json
    assert (row["name"], row["workers"], row["state"]) == ("small", ["beta"], "added")
    assert "published" in [pool["name"] for pool in shipped]
    stage.plan = "beta | - | Answer it."
    assert stage.inside("ask", "hi", "--pool", "small").out == "beta answers\n"
    planned = stage.asked("planner")[-1].body.decode()
    assert "beta" in planned
    assert "alpha" not in planned
    assert stage.inside("pools", "rm", "small").code == 0
    assert settings(stage) == {}


@pytest.mark.parametrize("command", ["ask", "plan"])
def test_a_pool_and_names_narrow_together(stage: Stage, command: str) -> None:
    stage.inside("pools", "add", "both", "beta", "alpha")
    stage.inside("pools", "add", "small", "beta")
    assert stage.inside(command, "hi", "--pool", "both", "--workers", "alpha").code == 0
    stage.fails(2, command, "hi", "--pool", "small", "--workers", "alpha", told="unknown worker 'alpha'")


def test_a_pool_in_use_is_that_of_every_run_that_names_none(stage: Stage) -> None:
    stage.inside("pools", "add", "small", "beta")
    assert stage.inside("config", "set", "conductor.pool", "small").out == "conductor.pool = small\n"
    assert settings(stage)["conductor"] == {"pool": "small"}
    stage.plan = "beta | - | Answer it."
    assert stage.inside("ask", "hi").out == "beta answers\n"
    stage.plan = "alpha | - | Answer it."
    assert stage.inside("ask", "hi", "--pool", "").out == "alpha answers\n"
    stage.fails(2, "pools", "rm", "small", told="pool 'small' is in use")
    stage.inside("config", "set", "conductor.pool", "default")
    assert stage.inside("pools", "rm", "small").code == 0
    assert settings(stage) == {}
    assert stage.inside("ask", "hi").out == "alpha answers\n"


def test_a_run_is_finished_with_its_own_workers(stage: Stage) -> None:
    stage.models["alpha"] = refuses(503, "later")
    stage.plan = "alpha | - | Answer it."
    assert stage.inside("ask", "hi", "--workers", "alpha").code != 0
    stage.models.clear()
    stage.inside("pools", "add", "small", "beta")
    stage.inside("config", "set", "conductor.pool", "small")
    assert stage.inside("ask", "--resume", "last").out == "alpha answers\n"


WRONG = {
    "unknown pool": (("ask", "hi", "--pool", "nope"), 2, "no pool is named 'nope'"),
    "unknown worker": (("pools", "add", "x", "nobody"), 2, "no worker is named 'nobody'"),
    "nobody": (("pools", "add", "x"), 2, "pool 'x' needs at least one worker"),
    "twice": (("pools", "add", "x", "alpha", "alpha"), 2, "needs the names of its workers, each once"),
    "bad name": (("pools", "add", "a b", "alpha"), 2, "'a b' is not a valid name for pools"),
    "rm": (("pools", "rm", "nope"), 2, "no pool is named 'nope'"),
    "list": (("pools", "list", "nope"), 2, "no pool is named 'nope'"),
    "rehearsal": (
        ("ask", "What is the capital of France?", "--rehearsal", "--pool", "nope"),
        2,
        "--rehearsal has its own workers",
    ),
    "no key": (("pools", "add", "published"), 4, "no key was found for any worker of pool 'published'"),
    "test": (("workers", "test", "--pool", "nope"), 2, "no pool is named 'nope'"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_pool_is_reported(stage: Stage, what: str) -> None:
    arguments, code, words = WRONG[what]
    stage.fails(code, *arguments, told=words)
    assert not stage.own.exists()


def test_a_pool_of_the_users_file_is_checked_when_it_is_used(stage: Stage) -> None:
    stage.configure('[pools.mine]\nworkers = ["alpha", "zeta"]')
    assert stage.inside("workers", "list").code == 0
    assert "zeta" in stage.inside("pools", "list").out
    stage.fails(3, "ask", "hi", "--pool", "mine", told=(f"{stage.config}, line", "names 'zeta'"))
    assert stage.inside("pools", "rm", "mine").code == 3


def test_a_setting_that_names_no_pool_says_where_it_is_from(stage: Stage) -> None:
    stage.configure('pool = "gone"\n[limits]\nattempts = 1')
    stage.fails(3, "ask", "hi", told=f"conductor.pool is from {stage.config}")


# the published pool


def test_the_published_pool_is_added_as_far_as_there_are_keys(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.configure(workers=())
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-123456")
    done = stage.ok("pools", "add", "published")
    assert list(settings(stage)["workers"]) == settings(stage)["pools"]["published"]["workers"] == ["gpt-5"]
    assert settings(stage)["workers"]["gpt-5"] == {
        "kind": "openai", "model": "gpt-5", "max_tokens": 4096, "reasoning_effort": "minimal",
    }  # fmt: skip
    assert "left out gemini-2.5-pro, which has no key: conductor keys set gemini" in done.err
    assert done.err.count("left out") == 6
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test-123456")
    done = stage.inside("pools", "add", "published")
    assert "gpt-5 exists already" in done.err
    assert "claude-sonnet-4-6, replacing Claude Sonnet 4" in done.err
    assert settings(stage)["pools"]["published"]["workers"] == ["claude-sonnet-4-6", "gpt-5"]


@pytest.mark.parametrize("pool", ["published", "published-full"])
def test_a_shipped_pool_may_be_added_without_keys(stage: Stage, pool: str) -> None:
    stage.configure(workers=())
    assert stage.inside("pools", "add", pool, "--all").code == 0
    rows = stage.inside("pools", "list", pool, "--json").json["workers"]
    assert (len(rows), {row["key"] for row in rows}) == (7, {"missing"})
    assert all(not row["card"]["measured"] for row in rows)


def test_a_shipped_pool_is_shown_with_its_sources(stage: Stage) -> None:
    data = stage.inside("pools", "list", "published", "--json").json
    assert len(data["workers"]) == 7
    shown = stage.inside("pools", "list", "published").out
    assert shown.count("source: ") == 7
    assert "claude-sonnet-4-6: source: replaces Claude Sonnet 4; " in shown


# workers by several names, tags, settings


def test_a_pool_without_an_enabled_worker_is_refused(stage: Stage) -> None:
    own(stage, "alpha", "beta", "gamma")
    stage.inside("pools", "add", "two", "beta", "gamma")
    text = stage.own.read_text()
    stage.own.write_text(text.replace("[workers.beta]", "[workers.beta]\nenabled = false"))
    stage.plan = "gamma | - | Answer it."
    assert stage.inside("ask", "hi", "--pool", "two").out == "gamma answers\n"
    stage.own.write_text(re.sub(r"\[workers\.(beta|gamma)\]", r"[workers.\1]\nenabled = false", text))
    stage.ends(3, "ask", "hi", "--pool", "two", told="all workers of pool 'two' are disabled")
    assert stage.inside("workers", "add", "gamma").code == 0
    assert stage.inside("ask", "hi", "--pool", "two").out == "gamma answers\n"


def test_a_worker_of_a_pool_is_not_removed(stage: Stage) -> None:
    own(stage, "alpha", "beta")
    stage.inside("pools", "add", "both", "alpha", "beta")
    stage.fails(2, "workers", "rm", "alpha", told="worker 'alpha' is in pool 'both'")
    stage.inside("pools", "add", "both", "beta")
    assert stage.inside("workers", "rm", "alpha").out == "removed alpha\n"
    assert settings(stage)["pools"] == {"both": {"workers": ["beta"]}}


def test_tags_and_settings_are_added_shown_and_taken_out(stage: Stage) -> None:
    add = ("workers", "add", "g", "-k", "gemini", "-m", "gemini-2.5-pro")
    stage.ok(*add, "--set", "thinking_budget=128", "--set", "tags=eu,cheap", "--set", "temperature=0.9")
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
    assert "temperature" not in settings(stage)["workers"]["g"]
    for wrong in (("--set", "kind="), ("--set", "reasoning_effort=low"), ("--set", "tags=a b")):
        stage.fails(2, "workers", "add", "g", *wrong)


def test_a_changed_worker_says_what_was_there_before(stage: Stage) -> None:
    assert stage.inside("workers", "add", "fast", "-k", "ollama", "-m", "llama3.2").out.startswith("added fast;")
    again = stage.inside("workers", "add", "fast", "-k", "openai", "-m", "m", "--set", "tags=eu,us").out
    assert again.startswith("changed fast: kind ollama is now openai, model llama3.2 is now m, tags is now eu us;")
    assert stage.inside("workers", "add", "fast", "-m", "m").out.startswith("changed fast: nothing, ")
    assert stage.inside("workers", "add", "fast", "--set", "tags=").out.startswith("changed fast: tags removed;")
    stage.ends(2, "workers", "add", "fast", "--set", "modle=", told="did you mean model?")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("--model", "m"), "for example: --kind openai"),
        (("--kind", "opnai"), "did you mean openai?"),
        (("--kind", "openai-compatible"), "for example: --base-url http://127.0.0.1:8080/v1"),
        (("--kind", "openai-compatible", "--base-url", "127.0.0.1:8080/v1"), "did you mean http://127.0.0.1:8080/v1?"),
        (("--kind", "llama"), "for example: --model /models/some.gguf"),
        (("--kind", "command"), "for example: conductor workers add NAME --kind command -- tac"),
        (("--kind", "openai", "--set", "price=3"), "input and output: price=1.25,10"),
    ],
)
def test_what_a_new_worker_lacks_is_named_as_an_option(stage: Stage, words: tuple[str, ...], hint: str) -> None:
    done = stage.fails(2, "workers", "add", "new", *words)
    assert done.err.splitlines()[1].strip() == hint
    assert "base_url" not in done.err


def test_who_reads_a_worker_and_what_it_costs_is_shown(stage: Stage) -> None:
    shown = stage.inside("workers", "show", "alpha").out
    assert "this machine" in shown
    assert "unknown" in shown
    stage.fails(2, "workers", "show", "nobody")


# workers test


def test_a_test_is_one_token_with_the_workers_own_settings(stage: Stage) -> None:
    thinking = stage.worker("beta", 'reasoning_effort = "low"')
    stage.configure(f"[limits]\nattempts = 1\n{thinking}", workers=("alpha",))
    stage.models["alpha"] = stalls("re")
    rows = stage.inside("workers", "test", "--json").json
    assert [(row["name"], row["state"]) for row in rows] == [("beta", "ok"), ("alpha", "ok")]
    assert next(row["text"] for row in rows if row["name"] == "alpha") == "re"
    assert stage.asked("alpha")[0].json["max_tokens"] == 16
    sent = stage.asked("beta")[0].json
    assert (sent["reasoning_effort"], sent["max_tokens"]) == ("low", 16 + 16_384)


def test_thinking_is_a_token_too(stage: Stage) -> None:
    async def thinks(seen: SeenStep, wire: Wire) -> None:
        await wire.head()
        await wire.frames(delta(reasoning_content="Hm."))
        await wire.stall()

    stage.models = {"alpha": thinks, "beta": says(finish="length")}
    done = stage.inside("workers", "test")
    assert (done.code, "(thinking)" in done.out, "(no text within 16 tokens)" in done.out) == (0, True, True)


def test_a_refused_setting_is_named(stage: Stage) -> None:
    cool = stage.worker("beta", "temperature = 0.2")
    stage.configure(f"[limits]\nattempts = 1\n{cool}", workers=("alpha",))
    stage.models["beta"] = refuses(400, "Unsupported value: 'temperature' does not support 0.2 with this model.")
    done = stage.ends(1, "workers", "test")
    assert "beta does not accept temperature = 0.2" in done.out
    assert "--set temperature=" in done.out
    assert [line.split()[0] for line in done.out.splitlines() if " alpha: " in line] == ["ok"]


def test_workers_are_tested_at_the_same_time(stage: Stage) -> None:
    both = asyncio.Barrier(2)

    async def waits(seen: SeenStep, wire: Wire) -> None:
        await both.wait()
        await says("Yes.")(seen, wire)

    stage.models = {"alpha": waits, "beta": waits}
    assert stage.inside("workers", "test").code == 0


def test_each_result_comes_as_soon_as_it_is_known(stage: Stage) -> None:
    release = threading.Event()

    async def waits(seen: SeenStep, wire: Wire) -> None:
        await asyncio.to_thread(release.wait, 20)
        await says("late")(seen, wire)

    stage.models["alpha"] = waits
    with stage.start("workers", "test") as process:
        assert process.stdout is not None
        assert process.stdout.readline().split()[:2] == [b"ok", b"beta:"]
        release.set()
        assert process.stdout.readline().split()[:2] == [b"ok", b"alpha:"]
        assert finished(process).code == 0
    rows = stage.inside("workers", "test", "--json").json
    assert [row["name"] for row in rows] == ["alpha", "beta"]


@pytest.mark.parametrize("command", [("workers", "test"), ("doctor",)], ids=["workers test", "doctor"])
def test_a_terminal_shows_what_still_runs(stage: Stage, command: tuple[str, ...]) -> None:
    release = threading.Event()

    async def waits(seen: SeenStep, wire: Wire) -> None:
        await asyncio.to_thread(release.wait, 20)
        await says("late")(seen, wire)

    stage.models["alpha"] = waits
    with terminal(stage, *command) as screen:
        shown = screen.until("alpha 1 s")
        assert shown.splitlines()[-1].startswith("waiting for ")
        assert "beta" in shown
        release.set()
        assert screen.end() == 0
        assert "waiting for" not in screen.scrolled


def test_a_pool_is_tested(stage: Stage) -> None:
    """`--pool` names whom to ask."""
    stage.inside("pools", "add", "small", "beta")
    rows = stage.inside("workers", "test", "--pool", "small", "--json").json
    assert [row["name"] for row in rows] == ["beta"]
    assert stage.asked("alpha") == []
