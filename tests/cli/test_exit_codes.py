"""Every exit code but those of signals, reached with a server or a model file, and the lines that explain it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.stage import PLANNER, THREE, TWO, Stage, breaks, explained, refuses, says, stalls
from tests.tiny_gguf import Extra, make


def test_3_for_a_setting_that_cannot_be_used(stage: Stage) -> None:
    stage.configure("[limits]\nsteps = 'many'")
    done = stage.fails(3, "ask", "hi")
    assert f"{stage.config}, line 4: limits.steps is 'many'; expected a whole number from 1 to 5" in done.err


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_4_for_a_missing_key(stage: Stage, kind: str) -> None:
    stage.configure(f'[workers.remote]\nkind = "{kind}"', workers=())
    stage.fails(4, "ask", "hi", told=(f"{kind.upper()}_API_KEY", f"conductor keys set {kind}"))


def test_4_for_a_refused_key(stage: Stage) -> None:
    stage.models = {"alpha": refuses(401, "bad key"), "beta": refuses(401, "bad key")}
    stage.fails(4, "ask", "hi")


def test_5_without_a_conductor_model(stage: Stage) -> None:
    done = stage.fails(5, "ask", "hi", env={"CONDUCTOR_LLM_CONFIG_DIR": str(stage.home / "empty")})
    for command in ("conductor model use", "conductor setup", "conductor ask --rehearsal"):
        assert command in done.err


@pytest.mark.parametrize("damage", ["truncated", "architecture", "vanished", "folder"])
def test_5_for_a_model_file_that_cannot_be_used(stage: Stage, tiny: Path, tmp_path: Path, damage: str) -> None:
    file = tmp_path / "model.gguf"
    match damage:
        case "truncated":
            file.write_bytes(tiny.read_bytes()[:-1000])
        case "architecture":
            make(file, extra=Extra(architecture="tortoise"))
        case "folder":
            file.mkdir()
    stage.fails(5, "ask", "hi", "--conductor", file, told="model.gguf")


@pytest.mark.parametrize(("flag", "value"), [("--max-calls", "2"), ("--max-tokens", "2000"), ("--max-cost", "0.002")])
def test_6_when_a_limit_is_reached(stage: Stage, flag: str, value: str) -> None:
    price = "price = { input = 1, output = 1 }\n"
    workers = dict.fromkeys(("alpha", "beta"), f"{price}max_tokens = 1000") | {PLANNER: f"{price}enabled = false"}
    stage.configure("[limits]\nattempts = 1\nparallel = 1", workers=workers, conductor=PLANNER)
    stage.plan = THREE
    stage.models = {name: says(f"{name} answers", read=300, written=900) for name in ("alpha", "beta")}
    done = stage.inside("ask", "hi", flag, value)
    assert (done.code, done.out) == (6, "beta answers\n")
    explained(done)
    assert "limit" in done.err


def test_6_when_time_is_up(stage: Stage) -> None:
    stage.plan = TWO
    stage.models["beta"] = stalls("not whole")
    done = stage.ends(6, "ask", "hi", "--max-time", "2")
    assert done.out.strip()
    explained(done)


def test_7_when_the_last_worker_dies_in_mid_stream(stage: Stage) -> None:
    stage.configure(workers=("alpha",))
    stage.models["alpha"] = breaks("The first half")
    done = stage.inside("ask", "hi")
    assert (done.code, done.out) == (7, "The first half\n")
    explained(done)
    assert "partial" in done.err


def test_7_when_the_answer_is_cut_by_its_token_limit(stage: Stage) -> None:
    stage.models["alpha"] = says("It goes on and", finish="length")
    done = stage.inside("ask", "hi")
    assert (done.code, done.out) == (7, "It goes on and\n")
    explained(done)


def test_8_when_no_worker_can_be_reached(stage: Stage) -> None:
    dead = '[workers.{0}]\nkind = "openai-compatible"\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"\n'
    stage.configure("[limits]\nattempts = 1\n" + dead.format("alpha") + dead.format("beta"), workers=())
    stage.fails(8, "ask", "hi")
