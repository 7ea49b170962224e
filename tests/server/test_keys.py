"""`conductor serve keys`, and what a key may do at a server that runs."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest

from conductor_cli.state.trace_store import TraceStore
from tests.cli.stage import Stage
from tests.server.plain_api import Serving, serving
from tests.traces.stored import trace_bytes

PRICE = "price = { input = 1000, output = 1000 }\n"


def add(stage: Stage, name: str, *options: str) -> str:
    return stage.ok("serve", "keys", "add", name, *options).out.strip()


def ask(served: Serving, key: str, model: str = "conductor", **more: Any) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "Why?"}], **more}
    headers = {"authorization": f"Bearer {key}"}
    return httpx.post(f"{served.url}/v1/chat/completions", json=body, headers=headers, timeout=30)


def test_a_key_is_shown_once_and_listed_without_it(stage: Stage) -> None:
    key = add(stage, "phone", "--max-cost-day", "$5", "--max-cost", "0.5")
    assert key.startswith("ck-")
    assert "phone" in stage.inside("serve", "keys", "list").out
    (row,) = stage.inside("serve", "keys", "list", "--json").json
    assert (row["name"], row["max_cost_day"], row["max_cost"]) == ("phone", "5", "0.5")
    found = [path for path in stage.config.parent.rglob("*") if path.is_file() and key in path.read_text()]
    assert found == []


@pytest.mark.parametrize(
    "arguments", [("add", "a b"), ("add", "x", "--max-cost-day", "-1"), ("add", "x", "--pool", "nope"), ("rm", "nope")]
)
def test_what_cannot_be_a_key_is_explained(stage: Stage, arguments: tuple[str, ...]) -> None:
    stage.fails(2, "serve", "keys", *arguments)
    assert stage.inside("serve", "keys", "list", "--json").json == []


def test_other_machines_need_a_key(stage: Stage) -> None:
    stage.ends(3, "serve", "--host", "0.0.0.0", "--port", "0", told="conductor serve keys add NAME")


def test_a_key_opens_the_server_until_it_is_removed(stage: Stage) -> None:
    key = add(stage, "phone")
    with serving() as served:
        answer = ask(served, key)
        assert answer.status_code == 200
        assert ask(served, "ck-wrong").status_code == 401
        run = answer.headers["x-request-id"]
        stored = TraceStore(stage.traces).ended(run)
        assert stored.origin.rpartition(" ")[0] == "key phone"
        assert all(key.encode() not in trace_bytes(path) for path in stage.traces.rglob("*.jsonl"))
        time.sleep(0.01)  # a file system that counts in milliseconds
        stage.ok("serve", "keys", "rm", "phone")
        assert ask(served, key).json()["error"]["code"] == "invalid_api_key"


def test_a_keys_pool_holds_for_its_requests(stage: Stage) -> None:
    stage.configure(more='[pools.cheap]\nworkers = ["beta"]\n[pools.dear]\nworkers = ["alpha"]')
    stage.plan = "beta | - | Answer it."
    key = add(stage, "phone", "--pool", "cheap")
    with serving() as served:
        run = ask(served, key).headers["x-request-id"]
        assert TraceStore(stage.traces).ended(run).pool.names == ("beta",)
        assert ask(served, key, model="dear").json()["error"]["code"] == "pool_not_allowed"


def test_a_keys_day_ends_with_its_money(stage: Stage) -> None:
    stage.configure(workers=dict.fromkeys(("alpha", "beta", "planner"), PRICE), conductor="planner")
    poor, rich = add(stage, "poor", "--max-cost-day", "0.01"), add(stage, "rich", "--max-cost-day", "10000")
    with serving() as served:
        refused = ask(served, poor, max_tokens=300)
        assert refused.status_code == 429, refused.text
        assert ask(served, rich, max_tokens=300).status_code == 200
    assert "today's limit" in json.dumps(refused.json())
