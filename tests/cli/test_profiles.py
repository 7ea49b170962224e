"""How a conductor behind a server is spoken to where the settings leave it open: by what that holds replies to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.stage import PLANNER, TWO, Done, Stage
from tests.servers import SeenStep, Wire

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
