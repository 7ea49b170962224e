"""What every API of the HTTP server shares, over real HTTP on loopback.

Runs, streams, errors, models.
"""

from __future__ import annotations

import asyncio
import os
import re
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from conductor_cli.config.settings import load_settings
from conductor_cli.core.errors import StateUnavailable
from conductor_cli.server.api.request import RequestError
from conductor_cli.server.http import create_answer
from conductor_cli.server.http.answers import answering
from conductor_cli.server.runs.run_request import lowered
from conductor_cli.state.trace_store import TraceStore
from tests.cli.stage import PLANNER, TWO, Stage, breaks, refuses, says
from tests.server.plain_api import serving
from tests.servers import SeenRequest, Wire

pytestmark = pytest.mark.usefixtures("plain")


def test_an_answer_comes_whole_with_the_run_that_gave_it(stage: Stage) -> None:
    stage.plan = TWO
    with serving() as server:
        response = server.ask()
    answer = response.json()
    assert (response.status_code, answer["text"], answer["finish"]) == (200, "beta answers", "stop")
    assert response.headers["x-request-id"] == answer["run"]
    trace = TraceStore(stage.traces).ended(answer["run"])
    assert trace.answer == "beta answers"
    assert answer["answer_tokens"] == trace.steps[1].usage.tokens == 18
    assert (
        answer["answer_tokens"] + answer["other_tokens"] == answer["tokens"] == trace.usage.tokens
    )


def test_one_worker_answers_without_a_planner(stage: Stage) -> None:
    stage.configure(workers=("alpha",), conductor=None)
    with serving() as server:
        answers = [server.ask().json(), server.ask().json()]
        planned = server.ask(model="conductor-ultra")
    assert [answer["text"] for answer in answers] == ["alpha answers"] * 2
    assert planned.json()["error"]["code"] == "planner_unusable"
    assert len(stage.posts) == 2


def test_a_stream_tells_the_plan_and_then_the_answer_as_it_comes(stage: Stage) -> None:
    stage.plan = TWO
    stage.models["beta"] = says("It ", "is ", "so.")
    with serving() as server:
        pieces = server.stream()
    assert pieces[0] == ("begin", "")
    assert pieces[-1] == ("end", "It is so.")
    assert "".join(text for kind, text in pieces if kind == "text") == "It is so."
    reasoning = "".join(text for kind, text in pieces if kind == "reasoning")
    assert 'step 1 planned: alpha, "Find it out."' in reasoning
    assert "18 tokens" in reasoning
    assert '"alpha answers"' in reasoning
    assert '"It is so."' not in reasoning


def test_what_cannot_begin_is_an_error_status_also_for_a_stream(stage: Stage) -> None:
    with serving() as server:
        unknown = server.ask(model="gpt-9", stream=True)
        broken = httpx.post(f"{server.url}/v1/chat/completions", content=b"{")
        missing = httpx.post(f"{server.url}/v1/nothing", json={})
        assert server.ask().status_code == 200
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    assert "conductor-mini" in unknown.json()["error"]["message"]
    assert (broken.status_code, broken.json()["error"]["code"]) == (400, "invalid_json")
    assert missing.status_code == 404


@pytest.mark.parametrize(
    ("refused", "code", "status", "retry"),
    [
        (400, "workers_failed", 400, "false"),
        (401, "upstream_key", 400, "false"),
        (404, "workers_failed", 400, "false"),
        (500, "unreachable", 503, None),
    ],
)
def test_a_run_that_fails_says_in_the_stream_and_by_status_whether_to_try_again(
    stage: Stage, refused: int, code: str, status: int, retry: str | None
) -> None:
    stage.models["alpha"] = refuses(refused)
    stage.models["beta"] = refuses(refused)
    with serving() as server:
        pieces = server.stream()
        whole = server.ask("Why not?")
    assert pieces[0] == ("begin", "")
    assert pieces[-1] == ("failed", code)
    assert (whole.status_code, whole.headers.get("x-should-retry")) == (status, retry)


def test_a_fault_of_the_setup_is_no_503(stage: Stage) -> None:
    stage.configure(conductor=str(stage.home / "missing.gguf"))
    with serving() as server:
        answer = server.ask()
    assert (answer.status_code, answer.headers["x-should-retry"]) == (400, "false")


def test_a_worker_that_breaks_off_is_an_error_after_its_text(stage: Stage) -> None:
    stage.configure(tables="[limits]\nattempts = 3")
    stage.models["alpha"] = breaks("It is ")
    with serving() as server:
        pieces = server.stream()
    assert "".join(text for kind, text in pieces if kind == "text") == "It is "
    assert pieces[-1] == ("failed", "workers_failed")
    assert len(stage.asked("alpha")) == 1


def test_the_models_are_listed_in_the_form_of_each_api(stage: Stage) -> None:
    stage.configure(tables='[limits]\nattempts = 1\n[pools.cheap]\nworkers = ["beta"]')
    stage.plan = "beta | - | Answer it."
    with serving() as server:
        openai = httpx.get(f"{server.url}/v1/models").json()
        anthropic = httpx.get(
            f"{server.url}/v1/models", headers={"anthropic-version": "2023-06-01"}
        ).json()
        cheap = httpx.get(
            f"{server.url}/v1/models/cheap", headers={"anthropic-version": "2023-06-01"}
        ).json()
        same = httpx.get(f"{server.url}/v1/models/cheap").json()
        missing = httpx.get(f"{server.url}/v1/models/gpt-9")
        answer = server.ask(model="cheap").json()
    names = ["conductor", "conductor-mini", "conductor-ultra", "cheap"]
    assert [model["id"] for model in openai["data"]] == names
    assert [model["id"] for model in anthropic["data"]] == names
    assert (anthropic["data"][0]["type"], cheap["lifecycle"]) == ("model", "active")
    assert (same, cheap, missing.status_code) == (openai["data"][3], anthropic["data"][3], 404)
    assert [worker.name for worker in TraceStore(stage.traces).ended(answer["run"]).pool] == [
        "beta"
    ]


def test_an_error_at_an_address_of_both_apis_has_the_form_of_the_clients_own(stage: Stage) -> None:
    """The SDK of Anthropic reads the type and the id of an error from its body."""
    version = {"anthropic-version": "2023-06-01"}
    with serving() as server:
        missing = httpx.get(f"{server.url}/v1/models/gpt-9", headers=version)
        unknown = httpx.get(f"{server.url}/v1/skills", headers=version)
        file = httpx.get(f"{server.url}/v1/files/file_1", headers=version)
        foreign = httpx.get(f"{server.url}/v1/models", headers={**version, "host": "evil.example"})
        openai = httpx.get(f"{server.url}/v1/models/gpt-9")
        chat = httpx.post(f"{server.url}/v1/chat/completions", json={}, headers=version)
    for refused in (missing, unknown, file):
        body = refused.json()
        assert (refused.status_code, body["type"]) == (404, "error")
        assert body["error"]["type"] == "not_found_error"
        assert body["request_id"] == refused.headers["request-id"]
    assert foreign.json()["error"]["type"] == "permission_error"
    assert foreign.json()["request_id"] == foreign.headers["request-id"]
    assert openai.json()["error"]["code"] == "not_found"
    assert chat.json()["error"]["code"] == "missing"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (StateUnavailable("the database is away", reason="state"), {"retry-after": "2"}),
        (RequestError(429, "busy", "too many requests", retry_after=5.0), {"retry-after": "5"}),
        (RequestError(409, "taken", "it is taken"), {"x-should-retry": "false"}),
    ],
    ids=["state", "busy", "final"],
)
def test_an_error_of_any_address_says_whether_to_ask_again(
    error: Exception, told: dict[str, str]
) -> None:
    async def act(_: object) -> dict[str, Any]:
        raise error

    async def ask() -> httpx.Response:
        app = Starlette(routes=[Route("/v1/batches", answering(act))])
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/v1/batches")

    headers = asyncio.run(ask()).headers
    names = ("retry-after", "x-should-retry")
    assert {name: headers[name] for name in names if name in headers} == told


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("//v1/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/messages", "/v1/messages"),
        ("/v1/v1/messages/count_tokens", "/v1/messages/count_tokens"),
        ("/responses/compact/", "/v1/responses/compact"),
        ("/v1/completions", ""),
    ],
)
def test_an_address_that_is_wrong_by_its_base_names_the_right_one(
    stage: Stage, path: str, meant: str
) -> None:
    del stage
    with serving() as server:
        refused = httpx.post(f"{server.url}{path}", json={"question": "Why?"})
    message = refused.json()["error"]["message"]
    assert (refused.status_code, "the address is" in message) == (404, bool(meant))
    assert f"{meant}: a base URL" in message or not meant


def test_an_address_with_a_slash_at_its_end_is_answered_and_not_redirected(stage: Stage) -> None:
    """Behind a proxy with TLS, a redirect leads to the address without it."""
    stage.models["alpha"] = says("Yes.")
    with serving() as server:
        address = f"{server.url}/v1/chat/completions/"
        answer = httpx.post(address, json={"question": "Why?"}, timeout=30)
        models = httpx.get(f"{server.url}/v1/models/")
        page = httpx.get(f"{server.url}/")
    assert answer.json()["text"] == "Yes."
    assert models.json()["data"][0]["id"] == "conductor"
    assert page.headers["content-type"].startswith("text/html")


def test_model_and_effort_choose_the_mode(stage: Stage) -> None:
    chosen = {
        ("conductor", ""): "auto",
        ("conductor", "low"): "mini",
        ("conductor", "strange"): "auto",
        ("conductor-mini", "max"): "mini",
    }
    with serving() as server:
        runs = {
            (model, effort): server.ask(model=model, effort=effort).json()["run"]
            for model, effort in chosen
        }
    assert {
        question: TraceStore(stage.traces).ended(run).mode for question, run in runs.items()
    } == chosen


def test_a_request_can_only_lower_the_limit_on_money(stage: Stage) -> None:
    stage.configure(tables="[limits]\nattempts = 1\ncost = 0.5")
    settings = load_settings(os.environ)
    amounts = [
        lowered(settings, {"limits.cost": cost}, "the request")["limits.cost"]
        for cost in ("0.1", "9")
    ]
    assert amounts == [Decimal("0.1"), Decimal("0.5")]


def test_counters_and_health_say_what_was_done(stage: Stage) -> None:
    prices = "price = { input = 2, output = 8 }\n"
    stage.configure(workers={"planner": prices, "alpha": prices, "beta": prices})
    with serving() as server:
        server.ask()
        counters = httpx.get(f"{server.url}/metrics").text
        health = httpx.get(f"{server.url}/health").json()
        head = httpx.head(server.url)
    assert 'conductor_requests_total{api="chat_completions"} 1.0' in counters
    assert 'conductor_runs_total{end="stop"} 1.0' in counters
    assert 'conductor_tokens_total{kind="output",part="answer"} 7.0' in counters
    assert re.search(r"conductor_cost_dollars_total [\d.e-]*[1-9]", counters)
    assert health == {"status": "ok", "running": 0}
    assert head.status_code == 200


def test_runs_share_what_they_know_of_a_failing_worker(stage: Stage) -> None:
    stage.configure(tables="[limits]\nattempts = 3")
    stage.models["alpha"] = refuses(500)
    stage.plan = "alpha | - | Answer it."
    with serving() as server:
        texts = [
            server.ask(text).json()["text"] for text in ("What is 6 times 7?", "What is 7 times 7?")
        ]
        counters = httpx.get(f"{server.url}/metrics").text
        skipped = httpx.get(f"{server.url}/v1/conductor/runs").json()["skipped"]
    assert texts == ["beta answers"] * 2
    assert len(stage.asked("alpha")) == 3
    assert 'conductor_circuit_open{kind="worker",name="alpha"} 1.0' in counters
    assert 'conductor_circuit_openings_total{kind="worker",name="alpha"} 1.0' in counters
    (why,) = skipped
    assert why.startswith("alpha: skipped for ")
    assert why.endswith(" s, because it failed 3 times in a row, the last time by a server error")


def test_a_client_is_streamed_the_answer_of_the_revised_plan_alone(stage: Stage) -> None:
    async def plans(request: SeenRequest, wire: Wire) -> None:
        revises = "could not be done" in str(request.json["messages"])
        await says("alpha | 1 | Answer it otherwise." if revises else TWO)(request, wire)

    async def refuses_to_check(request: SeenRequest, wire: Wire) -> None:
        checks = "Check it" in str(request.json["messages"])
        await (refuses(400) if checks else says("It ", "is ", "so."))(request, wire)

    stage.models = {PLANNER: plans, "alpha": refuses_to_check, "beta": refuses_to_check}
    with serving() as server:
        pieces = server.stream()
    assert "".join(text for kind, text in pieces if kind == "text") == "It is so."
    assert pieces[-1][0] == "end"
    reasoning = "".join(text for kind, text in pieces if kind == "reasoning")
    assert "step 2 could not be done by beta or alpha: beta failed: " in reasoning


def test_runs_share_the_turns_of_a_provider(stage: Stage) -> None:
    open_now = 0
    most = 0

    async def slow(request: SeenRequest, wire: Wire) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await asyncio.sleep(0.05)
        open_now -= 1
        await says("done")(request, wire)

    stage.models = {"alpha": slow, "beta": slow}
    stage.plan = TWO
    stage.configure(tables="[providers.local]\nparallel = 1")
    with serving() as server, ThreadPoolExecutor() as threads:
        answers = list(threads.map(server.ask, ["What is 1?", "What is 2?", "What is 3?"]))
    assert [answer.json()["text"] for answer in answers] == ["done"] * 3
    assert (most, len(stage.asked("alpha"))) == (1, 3)


@pytest.fixture
def titles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request is taken for one of a title."""
    monkeypatch.setattr(create_answer, "classify_utility_request", lambda *_: "title")


def test_a_background_request_is_done_by_the_cheapest_worker_without_a_plan(
    stage: Stage, titles: None
) -> None:
    prices = {"alpha": "input = 2, output = 8", "beta": "input = 1, output = 2"}
    stage.configure(workers={name: f"price = {{ {price} }}" for name, price in prices.items()})
    with serving() as server:
        answer = server.ask("Write a title.").json()
    assert answer["text"] == "beta answers"
    assert not stage.asked(PLANNER)
    assert (
        TraceStore(stage.traces).ended(answer["run"]).steps[0].step.subtask
        == "Write a title of the conversation."
    )


@pytest.mark.parametrize(("recognised", "did"), [(True, ("mini", 1, 2)), (False, ("ultra", 2, 6))])
def test_a_background_request_without_prices_is_one_call_of_a_chosen_worker(
    stage: Stage, titles: None, recognised: bool, did: tuple[str, int, int]
) -> None:
    """A setting switches the recognition off."""
    stage.configure(f"[serve]\nbackground = {str(recognised).lower()}")
    stage.plan = TWO
    with serving() as server:
        run = server.ask("Write a title.", effort="max").json()["run"]
    trace = TraceStore(stage.traces).ended(run)
    assert (trace.mode, len(trace.steps), trace.usage.calls) == did
