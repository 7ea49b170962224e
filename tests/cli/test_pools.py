"""`--pool`, and `workers` by several names, tags and settings."""

from __future__ import annotations

import asyncio
import re
import threading

import pytest

from tests.cli.stage import Stage, finished, refuses, says, stalls
from tests.cli.terminals import terminal
from tests.servers import Script, SeenStep, Wire, delta


def own(stage: Stage, *names: str) -> None:
    """Workers of this server that the tool itself wrote down, and none else."""
    stage.configure(workers=())
    for name in names:
        stage.inside("workers", "add", name, "-k", "openai-compatible", "--base-url", stage.url, "--model", name)


@pytest.mark.parametrize("command", ["ask", "plan"])
def test_a_pool_and_names_narrow_together(stage: Stage, command: str) -> None:
    stage.pool("both", "beta", "alpha")
    stage.pool("small", "beta")
    assert stage.inside(command, "hi", "--pool", "both", "--workers", "alpha").code == 0
    stage.fails(2, command, "hi", "--pool", "small", "--workers", "alpha", told="unknown worker 'alpha'")


def test_a_pool_in_use_is_that_of_every_run_that_names_none(stage: Stage) -> None:
    stage.pool("small", "beta")
    assert stage.inside("config", "set", "conductor.pool", "small").out == "conductor.pool = small\n"
    stage.plan = "beta | - | Answer it."
    assert stage.inside("ask", "hi").out == "beta answers\n"
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
    ("arguments", "told"),
    [
        (("ask", "hi", "--pool", "nope"), "no pool is named 'nope'"),
        (("workers", "test", "--pool", "nope"), "no pool is named 'nope'"),
        (("ask", "What is the capital of France?", "--rehearsal", "--pool", "nope"), "--rehearsal has its own workers"),
    ],
)
def test_a_wrong_pool_is_reported(stage: Stage, arguments: tuple[str, ...], told: str) -> None:
    stage.fails(2, *arguments, told=told)


def test_a_pool_without_an_enabled_worker_is_refused(stage: Stage) -> None:
    own(stage, "alpha", "beta", "gamma")
    stage.pool("two", "beta", "gamma")
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
    stage.own.write_text(stage.own.read_text() + '[pools.old]\nworkers = ["beta"]\n')  # as earlier versions wrote it
    stage.pool("both", "alpha", "beta")
    for name, pool in (("alpha", "both"), ("beta", "old")):
        stage.fails(2, "workers", "rm", name, told=f"worker '{name}' is in pool '{pool}'")


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
    assert "temperature" not in stage.own_settings["workers"]["g"]
    assert stage.inside("workers", "add", "g", "-m", "gemini-2.5-pro").out.startswith("changed g: nothing, ")
    assert stage.inside("workers", "add", "g", "--set", "tags=", "-m", "m").out.startswith("changed g: model, tags;")
    for wrong in (("--set", "kind="), ("--set", "reasoning_effort=low"), ("--set", "tags=a b")):
        stage.fails(2, "workers", "add", "g", *wrong)
    stage.ends(2, "workers", "add", "g", "--set", "modle=", told="did you mean model?")


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
    async def thinks(seen: SeenStep, wire: Wire) -> None:
        await wire.head()
        await wire.frames(delta(reasoning_content="Hm."))
        await wire.stall()

    stage.models = {"alpha": thinks, "beta": says(finish="length")}
    done = stage.inside("workers", "test")
    assert (done.code, "(thinking)" in done.out, "(no text within 16 tokens)" in done.out) == (0, True, True)


def test_a_refused_setting_is_named(stage: Stage) -> None:
    stage.configure(workers={"beta": "temperature = 0.2", "alpha": ""})
    stage.models["beta"] = refuses(400, "Unsupported value: 'temperature' does not support 0.2 with this model.")
    done = stage.ends(1, "workers", "test")
    assert "beta does not accept temperature = 0.2" in done.out
    assert "--set temperature=" in done.out
    assert [line.split()[0] for line in done.out.splitlines() if " alpha: " in line] == ["ok"]


def late(release: threading.Event) -> Script:
    """A model that answers once it is released."""

    async def script(seen: SeenStep, wire: Wire) -> None:
        await asyncio.to_thread(release.wait, 20)
        await says("late")(seen, wire)

    return script


def test_each_result_comes_as_soon_as_it_is_known(stage: Stage) -> None:
    release = threading.Event()
    stage.models["alpha"] = late(release)
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
    stage.models["alpha"] = late(release)
    with terminal(stage, *command) as screen:
        shown = screen.until("alpha 1 s")
        assert shown.splitlines()[-1].startswith("waiting for ")
        assert "beta" in shown
        release.set()
        assert screen.end() == 0
        assert "waiting for" not in screen.scrolled


def test_a_pool_is_tested(stage: Stage) -> None:
    stage.pool("small", "beta")
    rows = stage.inside("workers", "test", "--pool", "small", "--json").json
    assert [row["name"] for row in rows] == ["beta"]
    assert stage.asked("alpha") == []
