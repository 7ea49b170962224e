"""Planners in a file, by llama.cpp with random weights, and behind a server, by what that holds replies to."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.app.conductor_factory import open_conductor
from conductor_cli.config import load_settings
from tests.cli.stage import PLANNER, TWO, Done, Stage, explained, stopped, until
from tests.servers import SeenStep, Wire, aimock
from tests.tiny_gguf import lora, make


def test_a_local_model_plans_and_workers_answer(stage: Stage, tiny: Path) -> None:
    done = stage.inside("ask", "How many?", "--conductor", tiny, "--seed", "3", "--format", "json")
    assert (done.code, done.err) == (0, "")
    assert done.json["answer"] in ("alpha answers", "beta answers")
    assert 1 <= len(done.json["steps"]) <= 5
    assert done.json["conductor"].startswith("tiny.gguf ")
    assert all(step["worker"] in ("alpha", "beta") for step in done.json["steps"])


def test_a_local_model_plans_and_answers_alone(stage: Stage, tiny: Path) -> None:
    stage.configure("[limits]\nattempts = 1\nsteps = 1", workers=(), conductor=str(tiny))
    done = stage.inside("ask", "How many?", "--max-tokens", "3000", "--progress", "plain")
    assert done.code in (0, 7)
    assert "the planner answers too" in done.err
    assert "started: local" in done.err
    assert done.out.strip()


def test_ctrl_c_stops_a_local_model_while_it_writes(stage: Stage, tiny: Path) -> None:
    with stage.start("ask", "hi", "--mode", "ultra", "--conductor", tiny, "--format", "jsonl") as process:
        until(process.stdout, "plan_delta")
        done = stopped(process)
    assert done.code == 130
    assert done.events[-1]["kind"] in ("run_failed", "run_finished")
    explained(done)


def test_a_local_worker_and_a_remote_conductor(stage: Stage, tiny: Path) -> None:
    stage.configure(
        f'[limits]\nattempts = 1\n[workers.local]\nkind = "llama"\nmodel = "{tiny}"\nmax_tokens = 20', workers=()
    )
    stage.plan = "local | - | Answer."
    done = stage.inside("ask", "hi", "--format", "json")
    assert done.code in (0, 7)
    assert done.json["steps"][0]["usage"]["cost"] == "0"
    assert stage.inside("workers", "list", "--json").json[0]["key"] == "not needed"


def test_a_third_party_provider_mock_answers(stage: Stage, tiny: Path) -> None:
    with aimock() as address:
        worker = f'[workers.double]\nkind = "openai-compatible"\nbase_url = "{address}/v1"\nmodel = "gpt"'
        stage.configure(f"[limits]\nattempts = 1\nsteps = 1\n{worker}", workers=(), conductor=str(tiny))
        done = stage.inside("ask", "What is the capital of France?")
    assert (done.code, done.out) == (0, "The capital of France is Paris.\n")


def test_a_worker_does_not_share_the_conductors_adapter(stage: Stage, tmp_path: Path) -> None:
    model = make(tmp_path / "tiny.gguf")
    adapter = lora(tmp_path / "lora.gguf")
    stage.configure(f'[workers.plain]\nkind = "llama"\nmodel = "{model}"', workers=())
    flags = {"conductor.model": str(model), "conductor.adapter": str(adapter)}

    async def go() -> bool:
        opened = await open_conductor(load_settings(stage.environ(), flags))
        same = opened.conductor.workers["plain"] is opened.conductor.model
        await opened.close()
        return same

    assert not asyncio.run(go())


STEPS = [
    {"worker": "A", "access": [], "subtask": "Find it out."},
    {"worker": "B", "access": [1], "subtask": "Check it and answer."},
]
JSON = json.dumps({"steps": STEPS}, separators=(",", ":"))


def asked(stage: Stage, owner: str, *more: str) -> Done:
    """One question to a conductor whose server says that `owner` owns its models."""
    answer = stage.server.script

    async def script(seen: SeenStep, wire: Wire) -> None:
        if seen.path.endswith("/models"):
            await wire.json({"object": "list", "data": [{"id": PLANNER, "owned_by": owner}]})
        else:
            await answer(seen, wire)

    stage.server.script = script
    return stage.inside("ask", "Why?", "--format", "jsonl", *more)


def sent(stage: Stage) -> list[dict[str, Any]]:
    """The fields by which the conductor's server was told a form, request by request."""
    names = ("grammar", "response_format")
    return [{name: seen.json[name] for name in names if name in seen.json} for seen in stage.asked(PLANNER)]


@pytest.mark.parametrize("owner", ["library", "organization_owner"])
def test_a_server_that_takes_only_a_schema_is_asked_for_json(stage: Stage, owner: str) -> None:
    stage.plan = JSON
    done = asked(stage, owner)
    assert done.code == 0, done.err
    assert done.events[0]["profile"] == "prompted-json"
    assert done.events[-1]["answer"] == "beta answers"
    (form,) = sent(stage)
    steps = form["response_format"]["json_schema"]["schema"]["properties"]["steps"]
    assert steps["items"]["properties"]["worker"]["enum"] == ["A", "B"]
    assert [seen.path for seen in stage.server.requests].count("/v1/models") == 1


def test_a_server_that_takes_a_grammar_is_asked_for_lines(stage: Stage) -> None:
    stage.plan = TWO
    done = asked(stage, "llamacpp")
    assert done.code == 0, done.err
    assert done.events[0]["profile"] == "prompted"
    (form,) = sent(stage)
    assert list(form) == ["grammar"]
    assert '" | "' in form["grammar"]


def test_a_worker_of_a_provider_that_keeps_schemas_plans_in_json(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.plan = JSON
    own = f'[workers.boss]\nkind = "ollama"\nbase_url = "{stage.url}"\nmodel = "{PLANNER}"'
    stage.configure(own, conductor="boss")
    done = stage.ok("ask", "Why?", "--format", "jsonl", "--workers", "alpha,beta")
    assert done.events[0]["profile"] == "prompted-json"
    assert "/v1/models" not in [seen.path for seen in stage.server.requests]
