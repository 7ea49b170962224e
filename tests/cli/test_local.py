"""Planners in a file, by llama.cpp with random weights.

Behind a server, by what that holds replies to; the demo.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest

from conductor_cli.app.opening import OpeningRequest, open_orchestra
from conductor_cli.config.settings import load_settings
from tests.cli.stage import PLANNER, TWO, Done, Stage, explained, says, stopped, until
from tests.servers import SeenRequest, Wire, aimock
from tests.tiny_gguf import lora, make


def test_a_local_model_plans_and_workers_answer(stage: Stage, tiny: Path) -> None:
    options = ("--planner", tiny, "--max-steps", "2", "--seed", "3", "--format", "json")
    done = stage.inside("ask", "How many?", *options)
    assert (done.code, done.err) == (0, "")
    assert done.json["answer"] in ("alpha answers", "beta answers")
    assert 1 <= len(done.json["steps"]) <= 5
    assert done.json["conductor"].startswith("tiny.gguf ")
    assert all(step["worker"] in ("alpha", "beta") for step in done.json["steps"])


def test_a_local_model_plans_and_answers_alone(stage: Stage, tiny: Path) -> None:
    stage.configure("[limits]\nattempts = 1\nsteps = 1", workers=(), conductor=str(tiny))
    done = stage.inside("ask", "How many?", "--max-tokens", "1000", "--progress", "plain")
    assert done.code in (0, 7)
    assert "the planner answers too" in done.err
    assert "started: local" in done.err
    assert done.out.strip()


def test_ctrl_c_stops_a_local_model_while_it_writes(stage: Stage, tiny: Path) -> None:
    with stage.start(
        "ask", "hi", "--mode", "ultra", "--planner", tiny, "--format", "jsonl"
    ) as process:
        until(process.stdout, "plan_delta")
        done = stopped(process)
    assert done.code == 130
    assert done.events[-1]["kind"] in ("run_failed", "run_finished")
    explained(done)


def test_a_remote_planner_plans_for_a_local_worker_that_costs_nothing(
    stage: Stage, tiny: Path
) -> None:
    stage.configure(
        (
            f'[limits]\nattempts = 1\n[workers.local]\nkind = "llama"\nmodel = "{tiny}"\n'
            "max_tokens "
            "= 20"
        ),
        workers=(),
    )
    stage.plan = "local | - | Answer."
    done = stage.inside("ask", "hi", "--format", "json")
    assert done.code in (0, 7)
    assert done.json["steps"][0]["usage"]["cost"] == "0"
    assert stage.inside("workers", "list", "--json").json[0]["key"] == "not needed"


def test_a_third_party_provider_mock_answers(stage: Stage, tiny: Path) -> None:
    with aimock() as address:
        worker = (
            f'[workers.double]\nkind = "openai-compatible"\nbase_url = "{address}/v1"\nmodel '
            '= "gpt"'
        )
        stage.configure(
            f"[limits]\nattempts = 1\nsteps = 1\n{worker}", workers=(), conductor=str(tiny)
        )
        done = stage.inside("ask", "What is the capital of France?")
    assert (done.code, done.out) == (0, "The capital of France is Paris.\n")


def test_a_worker_does_not_share_the_conductors_adapter(stage: Stage, tmp_path: Path) -> None:
    model = make(tmp_path / "tiny.gguf")
    adapter = lora(tmp_path / "lora.gguf")
    stage.configure(f'[workers.plain]\nkind = "llama"\nmodel = "{model}"', workers=())
    flags = {"planner.model": str(model), "planner.adapter": str(adapter)}

    async def go() -> bool:
        opened = await open_orchestra(
            OpeningRequest(settings=load_settings(stage.environ(), flags))
        )
        same = opened.orchestra.team.workers["plain"] is opened.orchestra.team.model
        await opened.close()
        return same

    assert not asyncio.run(go())


STEPS = [
    {"worker": "A", "access": [], "subtask": "Find it out."},
    {"worker": "B", "access": [1], "subtask": "Check it and answer."},
]
JSON = json.dumps({"steps": STEPS}, separators=(",", ":"))


def ask_owned(stage: Stage, owner: str, *options: str) -> Done:
    """One question to a conductor whose server says that `owner` owns its models."""
    answer = stage.server.script

    async def script(request: SeenRequest, wire: Wire) -> None:
        if request.path.endswith("/models"):
            await wire.json({"object": "list", "data": [{"id": PLANNER, "owned_by": owner}]})
        else:
            await answer(request, wire)

    stage.server.script = script
    return stage.inside("ask", "Why?", "--format", "jsonl", *options)


def sent(stage: Stage) -> list[dict[str, Any]]:
    """The fields by which the conductor's server was told a form, request by request."""
    names = ("grammar", "response_format")
    return [
        {name: request.json[name] for name in names if name in request.json}
        for request in stage.asked(PLANNER)
    ]


@pytest.mark.parametrize("owner", ["library", "organization_owner"])
def test_a_server_that_takes_only_a_schema_is_asked_for_json(stage: Stage, owner: str) -> None:
    stage.plan = JSON
    done = ask_owned(stage, owner)
    assert done.code == 0, done.err
    assert done.events[0]["profile"] == "prompted-json"
    assert done.events[-1]["answer"] == "beta answers"
    (form,) = sent(stage)
    steps = form["response_format"]["json_schema"]["schema"]["properties"]["steps"]
    assert steps["items"]["properties"]["worker"]["enum"] == ["A", "B"]
    assert [request.path for request in stage.server.requests].count("/v1/models") == 1


def test_a_server_that_takes_a_grammar_is_asked_for_lines(stage: Stage) -> None:
    stage.plan = TWO
    done = ask_owned(stage, "llamacpp")
    assert done.code == 0, done.err
    assert done.events[0]["profile"] == "prompted"
    (form,) = sent(stage)
    assert list(form) == ["grammar"]
    assert '" | "' in form["grammar"]


def test_a_worker_of_a_provider_that_keeps_schemas_plans_in_json(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.plan = JSON
    boss = f'[workers.boss]\nkind = "ollama"\nbase_url = "{stage.url}"\nmodel = "{PLANNER}"'
    stage.configure(boss, conductor="boss")
    done = stage.ok("ask", "Why?", "--format", "jsonl", "--workers", "alpha,beta")
    assert done.events[0]["profile"] == "prompted-json"
    assert "/v1/models" not in [request.path for request in stage.server.requests]


QUESTION: Final = "Find the capital of Japan, then spell it backwards."


def test_the_demo_needs_no_configuration(stage: Stage) -> None:
    done = stage.ok("ask", "--demo", QUESTION, "--format", "json")
    reply = json.loads(done.out)
    assert reply["answer"] == "OYKOT"
    assert [(step["worker"], step["access"]) for step in reply["steps"]] == [
        ("geography", []),
        ("spelling", [1]),
    ]
    assert stage.server.requests == []


@pytest.mark.parametrize("command", ["ask", "plan"])
def test_other_questions_are_refused_with_what_the_demo_can_do(stage: Stage, command: str) -> None:
    done = stage.ends(2, command, "--demo", "Who wrote the Iliad?")
    assert "the demo models only handle letters" in done.err
    assert "conductor setup" in done.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-f", "notes.txt"], "read only the question"),
        (["--system", "Be brief."], "read only the question"),
        (["--mode", "ultra"], "trained to plan"),
    ],
)
def test_what_the_demo_models_cannot_do_is_refused(
    stage: Stage, tmp_path: Path, options: list[str], message: str
) -> None:
    (tmp_path / "notes.txt").write_text("Tokyo")
    stage.fails(2, "ask", "--demo", QUESTION, *options, cwd=tmp_path, told=message)


def test_a_stopped_demo_run_is_resumed_by_the_demo_models(stage: Stage) -> None:
    plan = stage.inside("plan", "--demo", QUESTION).out
    stopped = stage.inside("run", "-", "--demo", "--max-calls", "1", given=plan)
    assert (stopped.code, stopped.out.strip()) == (6, "TOKYO")
    assert stage.ok("ask", "--resume", "last").out.strip() == "OYKOT"
    assert stage.server.requests == []


def test_a_worker_that_cannot_do_its_step_says_so(stage: Stage) -> None:
    steps = [{"worker": "opposites", "subtask": "capital of FRANCE", "access": []}]
    plan = json.dumps({"format": 1, "question": "capital of France", "steps": steps})
    message = "no answer: opposites cannot do step 1, 'capital of FRANCE'"
    stage.fails(1, "run", "-", "--demo", given=plan, out="", told=message)


def test_another_conductor_can_plan_for_the_demo_workers(stage: Stage) -> None:
    stage.models["alpha"] = says(
        "geography | - | capital of Japan\nspelling | 1 | spell it backwards"
    )
    assert stage.ok("ask", "--demo", "--planner", f"{stage.url}", QUESTION).out.strip() == "OYKOT"
