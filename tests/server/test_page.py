"""The page and its routes over real HTTP.

What they show of stored and running runs, and to whom.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette

from conductor_cli.core import events as ev
from conductor_cli.core.chat import ToolCall
from conductor_cli.core.policy import Policy
from conductor_cli.core.pool import Pool
from conductor_cli.core.question import Question
from conductor_cli.core.usage import Price
from conductor_cli.server.client_keys import ClientKey
from conductor_cli.server.http.access import CLIENT_KEY
from conductor_cli.server.http.page import page_routes
from conductor_cli.server.http.page_data import offer_data
from conductor_cli.server.http.page_streams import TICK_SECONDS
from conductor_cli.state.trace_store import TraceStore
from tests.cli.stage import TWO, Stage, stalls
from tests.server.chromium import AXE, chromium
from tests.server.plain_api import serving, until
from tests.traces import make
from tests.traces.stored import begin_run
from tests.views.terminals import trace_of

RUNS = "/v1/conductor/runs"
RUN = "20260201-100000-00000a"


@pytest.fixture
def store(tmp_path: Path) -> TraceStore:
    return TraceStore(tmp_path / "traces")


@pytest.fixture
def client(store: TraceStore) -> Iterator[httpx.Client]:
    """A client of the page alone. The header `x-key` says whose request it is."""
    loaded = SimpleNamespace(circuits=SimpleNamespace(reports=list))
    settings = {"serve.origins": ("none",), "serve.approvals": False}
    starter = SimpleNamespace(loaded=loaded, settings=lambda: settings)
    registry: Any = SimpleNamespace(starter=starter)  # nothing runs behind it
    app = Starlette(routes=page_routes(lambda: store, registry))

    async def with_key(scope: Any, receive: Any, send: Any) -> None:
        parts = dict(scope["headers"]).get(b"x-key", b"").decode().split()
        key = (
            ClientKey(**dict(zip(("name", "hash", "since"), parts, strict=False)))
            if parts
            else None
        )
        await app({**scope, CLIENT_KEY: key}, receive, send)

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        http = uvicorn.Server(
            uvicorn.Config(with_key, log_level="critical", ws="none", lifespan="off")
        )
        thread = threading.Thread(target=http.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not http.started:
            time.sleep(0.01)
        with httpx.Client(
            base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=60
        ) as client:
            yield client
        http.should_exit = True
        thread.join(30)


def put(store: TraceStore, events: list[ev.Event], run: str = RUN, **first: Any) -> list[ev.Event]:
    """Store a run; `first` are other fields of its first event."""
    begun, *others = events
    assert isinstance(begun, ev.RunStarted)
    time = f"{run[:4]}-{run[4:6]}-{run[6:8]}T10:00:00.000+00:00"
    stored: list[ev.Event] = [replace(begun, **{"run": run, "time": time} | first), *others]
    begin_run(store, run, stored).close()
    return stored


def changed(events: list[ev.Event], fields: dict[type[ev.Event], Any]) -> list[ev.Event]:
    """The events with other fields, by their type."""
    return [replace(event, **fields.get(type(event), {})) for event in events]


def messages(text: str) -> list[tuple[str, str, Any]]:
    received = []
    for part in text.split("\n\n"):
        fields = dict(
            line.split(": ", 1) for line in part.split("\n") if ": " in line and line[0] != ":"
        )
        if fields:
            received.append((fields["event"], fields.get("id", ""), json.loads(fields["data"])))
    return received


def nodes(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield tree
    for child in tree["children"]:
        yield from nodes(child)


def test_the_page_runs_its_own_script_alone(client: httpx.Client) -> None:
    reply = client.get("/")
    policy = reply.headers["content-security-policy"]
    for name in ("script", "style"):
        (text,) = re.findall(rf"<{name}>(.*?)</{name}>", reply.text, re.DOTALL)
        assert (
            f"{name}-src 'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
            in policy
        )
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert reply.headers["referrer-policy"] == "no-referrer"
    markup = re.sub(r"<(script|style)>.*?</\1>", "", reply.text, flags=re.DOTALL)
    assert re.findall(r"\son\w+=|\sstyle=|\ssrc=|https?://(?!www\.w3\.org/2000/svg)", markup) == []
    again = client.get("/", headers={"if-none-match": reply.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    # It writes HTML in one place.
    writes = re.findall(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", reply.text
    )
    assert writes == ["innerHTML"]
    assert "body.innerHTML = policy.createHTML(section.html)" in reply.text


def test_the_list_is_paged_and_searched(client: httpx.Client, store: TraceStore) -> None:
    for day in (1, 2, 3):
        put(store, make.parallel(), f"202601{day:02}-100000-00000a")
    put(store, make.tools(), "20260104-100000-00000a")
    first = client.get(RUNS, params={"count": 2}).json()
    assert [row["run"][:8] for row in first["runs"]] == ["20260104", "20260103"]
    assert (first["more"], first["runs"][1]["cost"]) == (True, "0.0042")
    second = client.get(RUNS, params={"count": 2, "before": first["last"]}).json()
    assert ([row["run"][:8] for row in second["runs"]], second["more"]) == (
        ["20260102", "20260101"],
        False,
    )
    assert [
        row["run"][:8] for row in client.get(RUNS, params={"search": "schema"}).json()["runs"]
    ] == ["20260104"]
    assert client.get(RUNS, params={"state": "odd"}).status_code == 400
    assert client.get(RUNS, params={"count": "nan"}).status_code == 400


def test_a_run_is_its_json_and_its_tree(client: httpx.Client, store: TraceStore) -> None:
    put(store, make.tools())
    report = client.get(f"{RUNS}/{RUN}").json()
    assert (report["state"], report["answer"], len(report["steps"])) == ("finished", "Schema B.", 2)
    kinds = [(node["kind"], node["name"], node["state"]) for node in nodes(report["tree"])]
    assert kinds[:3] == [
        ("question", "", "done"),
        ("step", "gpt", "done"),
        ("tool", "files.list", "stopped"),
    ]
    missing = client.get(f"{RUNS}/20260201-100000-nobody")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "run_not_found")
    assert client.get(f"{RUNS}/..%2f..%2fetc%2fpasswd").status_code == 404


def test_a_step_has_prompt_response_tools_and_failures(
    client: httpx.Client, store: TraceStore
) -> None:
    put(store, make.tools())
    step = client.get(f"{RUNS}/{RUN}/steps/1").json()
    titles = [section["title"] for section in step["sections"]]
    assert (titles[0], titles[1][:16], titles[-1]) == (
        "Prompt (user)",
        "Failed attempt 1",
        "Response",
    )
    assert any(title.startswith("Tool call files.read_file") for title in titles)
    whole = client.get(f"{RUNS}/{RUN}/steps/0").json()
    assert whole["answer"]["html"] == "<p>Schema B.</p>\n"
    texts = {section["title"]: section.get("text", "") for section in whole["sections"]}
    assert "2. claude (reads 1): Write the answer." in texts["Plan"]
    assert client.get(f"{RUNS}/{RUN}/steps/9").status_code == 404
    put(store, make.nested(), other := "20260203-100000-00000a")
    assert client.get(f"{RUNS}/{other}/steps/2.1").json()["number"] == "2.1"


def test_events_go_on_after_the_last_one_seen(client: httpx.Client, store: TraceStore) -> None:
    events = put(store, make.retry())
    reply = client.get(f"{RUNS}/{RUN}/events")
    assert reply.headers["content-type"].startswith("text/event-stream")
    *frames, end = messages(reply.text)
    assert [kind for kind, _, _ in frames] == [event.kind for event in events]
    assert [number for _, number, _ in frames] == [
        f"{RUN}:{number}" for number in range(1, len(events) + 1)
    ]
    assert [ev.from_json(event) for _, _, event in frames] == events
    assert not any("hash" in event for _, _, event in frames)  # it belongs to the file
    assert end == ("end", "", {"state": "finished"})
    rest = messages(
        client.get(f"{RUNS}/{RUN}/events", headers={"last-event-id": frames[-2][1]}).text
    )
    assert [kind for kind, _, _ in rest] == ["run_finished", "end"]
    every = messages(client.get(f"{RUNS}/{RUN}/events", headers={"last-event-id": "9" * 5000}).text)
    assert [kind for kind, _, _ in every[:-1]] == [event.kind for event in events]


@pytest.mark.parametrize("view", ["events", "frames"])
def test_a_run_is_shown_while_it_is_written(
    client: httpx.Client, store: TraceStore, view: str
) -> None:
    *events, last_event = make.parallel()
    writer = begin_run(store, RUN, changed(events, {ev.RunStarted: {"run": RUN}}))
    with client.stream("GET", f"{RUNS}/{RUN}/{view}") as reply:
        text = ""
        chunks = reply.iter_text()
        while '"compare both counts' not in text.lower():
            text += next(chunks)
        assert "event: end" not in text
        writer.write(last_event)
        text += "".join(chunks)
    writer.close()
    *_, last, end = messages(text)
    assert end == ("end", "", {"state": "finished"})
    assert last[0] == ("run_finished" if view == "events" else "frame")


def test_a_run_whose_process_is_gone_is_interrupted(
    client: httpx.Client, store: TraceStore
) -> None:
    put(store, make.parallel()[:12])
    assert messages(client.get(f"{RUNS}/{RUN}/events").text)[-1][2] == {"state": "interrupted"}
    *_, frame, end = messages(client.get(f"{RUNS}/{RUN}/frames").text)
    assert (frame[2]["state"], end[2]) == ("interrupted", {"state": "interrupted"})
    going = [node for node in nodes(frame[2]["tree"]) if node["status"] == "interrupted"]
    assert {node["state"] for node in going} == {"stopped"}
    assert frame[2]["tree"] in going
    described = client.get(f"{RUNS}/{RUN}").json()["tree"]
    assert "running" not in {node["state"] for node in nodes(described)}


def test_a_replay_begins_anywhere_and_ends_as_the_run_did(
    client: httpx.Client, store: TraceStore
) -> None:
    put(store, make.parallel())
    *frames, end = messages(
        client.get(f"{RUNS}/{RUN}/frames", params={"speed": 16, "from": 1}).text
    )
    assert 1 < len(frames) <= 1 / TICK_SECONDS
    times = [frame["at"] for _, _, frame in frames]
    assert (times == sorted(times), times[0] < 2, times[-1]) == (True, True, 10.75)
    assert frames[0][2]["state"] == "planning"
    assert (frames[-1][2]["state"], end[2]) == ("finished", {"state": "finished"})
    assert frames[-1][2]["tree"] == messages(client.get(f"{RUNS}/{RUN}/frames").text)[0][2]["tree"]
    for wrong in ("-1", "65", "nan", "fast"):
        assert client.get(f"{RUNS}/{RUN}/frames", params={"speed": wrong}).status_code == 400


def test_a_key_sees_its_own_runs_alone(client: httpx.Client, store: TraceStore) -> None:
    mine = "20260501-100000-mine00"
    named = "20260501-100001-named0"
    others = ("20260501-100002-other0", "20260401-100000-old000", "20260501-100003-other1")
    put(store, make.retry(), mine, origin="key anna 123456789abc")
    put(store, make.retry(), named, origin="key anna")  # as an older version wrote it
    # Another client; and, with the name that this one has now, one before it and one after it.
    for run, origin in zip(others, ("key bob 0", "key anna", "key anna 0"), strict=True):
        put(store, make.retry(), run, origin=origin)
    anna = {"x-key": "anna 123456789abcdef 2026-04-15T00:00:00+00:00"}
    assert [row["run"] for row in client.get(RUNS, headers=anna).json()["runs"]] == [named, mine]
    for path in ("", "/events", "/frames", "/steps/1"):
        assert client.get(f"{RUNS}/{mine}{path}", headers=anna).status_code == 200
        for other in others:
            refused = client.get(f"{RUNS}/{other}{path}", headers=anna)
            assert (refused.status_code, "bob" in refused.text) == (404, False)
    assert client.get(f"{RUNS}/{others[0]}").status_code == 200
    # The beginning of an id is looked for, and counted, among the client's own runs alone.
    assert client.get(f"{RUNS}/{mine[:16]}", headers=anna).json()["run"] == mine
    assert "2 runs begin" in client.get(f"{RUNS}/2026", headers=anna).json()["error"]["message"]
    assert (
        "no run" in client.get(f"{RUNS}/{others[0][:16]}", headers=anna).json()["error"]["message"]
    )


def test_one_client_cannot_take_every_stream(client: httpx.Client, store: TraceStore) -> None:
    """One that holds streams for ever has three quarters of the places, so others have some."""
    put(store, make.retry(), origin="key anna 1")
    put(store, make.retry(), other := "20260501-100001-mine00", origin="key bob 2")
    readers = list[Iterator[bytes]]()
    with ExitStack() as held:

        def follow(run: str, key: str) -> int:
            streamed = client.stream(
                "GET", f"{RUNS}/{run}/frames?speed=0.0001", headers={"x-key": key}
            )
            reply = held.enter_context(streamed)
            readers.append(reply.iter_raw())  # without a reader the stream would end
            next(readers[-1])
            return reply.status_code

        statuses = [follow(RUN, "anna 1") for _ in range(50)]
        assert (statuses.count(200), statuses[-1]) == (48, 503)
        assert follow(other, "bob 2") == 200


def test_a_run_with_rules_about_its_texts_is_not_shown(
    client: httpx.Client, store: TraceStore
) -> None:
    secret = "20260502-100000-secret"
    own_run = "20260502-100001-own000"
    put(store, make.retry(), secret, policy=Policy(local_only=True))
    put(store, make.retry(), own_run, policy=Policy(local_only=True), origin="serve")
    rows = {row["run"]: row for row in client.get(RUNS).json()["runs"]}
    assert (rows[secret]["shown"], "primes" in rows[secret]["question"]) == (False, False)
    assert (rows[own_run]["shown"], "primes" in rows[own_run]["question"]) == (True, True)
    assert client.get(f"{RUNS}/{secret}").status_code == 403
    assert client.get(f"{RUNS}/{own_run}").status_code == 200


EVIL = (
    '<script>owned()</script><img src=x onerror="owned()">[x](javascript:owned()) \u202eevil '
    "&#x202e; \x1b[2J"
)


def test_hostile_texts_are_harmless(client: httpx.Client, store: TraceStore) -> None:
    """Markup arrives as text, in rendered answers too.

    Marks that reverse the reading order do not arrive at all.
    """
    texts: dict[type[ev.Event], Any] = {
        ev.StepPlanned: {"subtask": EVIL},
        ev.StepFinished: {"text": EVIL},
        ev.RunFinished: {"answer": EVIL},
    }
    put(store, changed(make.retry(), texts), question=Question(text=EVIL))
    whole = client.get(f"{RUNS}/{RUN}/steps/0").json()
    step = client.get(f"{RUNS}/{RUN}/steps/1").json()
    for section in (*whole["sections"], *step["sections"], whole["answer"]):
        tags = set(re.findall(r"</?([a-z0-9]+)[^>]*>", section.get("html", "")))
        assert tags <= {"p", "br", "pre", "code"}
        assert not re.search(r"<[^>]*=", section.get("html", ""))
    (frame,) = (
        content
        for kind, _, content in messages(client.get(f"{RUNS}/{RUN}/frames").text)
        if kind == "frame"
    )
    for payload in (whole, step, frame):
        assert not re.search(
            "[\u202a-\u202e\u2066-\u2069\x1b]", json.dumps(payload, ensure_ascii=False)
        )
    # No line of the streams is broken by what is in them.
    raw = client.get(f"{RUNS}/{RUN}/events").content
    assert all(
        line.split(b": ")[0] in (b"", b"id", b"event", b"data")
        for line in re.split(rb"[\r\n]", raw)
    )


def test_a_text_of_a_megabyte_is_bounded(client: httpx.Client, store: TraceStore) -> None:
    put(store, changed(make.retry(), {ev.StepFinished: {"text": "x" * 1_000_000}}))
    assert len(client.get(f"{RUNS}/{RUN}/frames").content) < 20_000
    response = client.get(f"{RUNS}/{RUN}/steps/1").json()["sections"][-1]
    assert (len(response["html"]) < 250_000, response["more"]) == (True, "800,000 more characters")


def test_what_the_page_leaves_out_is_told(client: httpx.Client, store: TraceStore) -> None:
    """Of texts that it cuts at their end, also with the command that prints all of them."""
    text = "x" * 300_000
    first = make.POOL.workers[0]
    pool = Pool(workers=tuple(replace(first, name=f"w{number}") for number in range(120)))
    events = changed(make.retry(), {ev.StepFinished: {"text": text}})
    put(store, events, pool=pool, question=Question(text="why " * 2000))
    *_, (_, _, frame), _ = messages(client.get(f"{RUNS}/{RUN}/frames").text)
    label = frame["tree"]["label"]
    assert (len(label), label[-1]) == (1000, "…")
    assert (len(frame["workers"]), frame["more_workers"]) == (100, "20 more workers")
    whole = [
        client.get(f"{RUNS}/{RUN}/steps/{number}").json()["sections"][-1]["whole"]
        for number in (0, 1)
    ]
    assert whole == [
        f"conductor trace replay {RUN} --speed 0 --format jsonl",
        f"conductor trace show {RUN} --step 1",
    ]
    call = ToolCall(id="1", name="write", arguments=text)
    offered = ev.ToolOffered(at=1.0, step=1, attempt=1, turn=1, call=call, server="disk")
    offer = offer_data(replace(trace_of(events[:2]), offer=offered))
    assert offer is not None
    assert "characters left out" in offer["detail"]


def test_a_page_that_is_closed_gives_its_place_back(
    client: httpx.Client, store: TraceStore
) -> None:
    with closing(begin_run(store, RUN, make.parallel()[:5])):
        for _ in range(70):
            with client.stream("GET", f"{RUNS}/{RUN}/frames") as reply:
                assert reply.status_code == 200
                next(reply.iter_text())


def test_a_frame_lists_the_workers_with_their_prices(
    client: httpx.Client, store: TraceStore
) -> None:
    first, second = make.POOL.workers[:2]
    longer_price = Price(input=Decimal(4), output=Decimal(8), above=1000)
    workers = (
        replace(first, price=Price(input=Decimal("1.25"), output=Decimal(10))),
        replace(second, price=None),
        replace(first, name="free", price=Price(input=Decimal(0), output=Decimal(0))),
        replace(
            first,
            name="long",
            price=Price(input=Decimal(2), output=Decimal(4), longer=(longer_price,)),
        ),
    )
    put(store, make.parallel(), pool=Pool(workers=workers))
    *_, (_, _, frame), _ = messages(client.get(f"{RUNS}/{RUN}/frames").text)
    assert [row[0] for row in frame["workers"]] == [first.name, second.name, "free", "long"]
    assert [row[-2:] for row in frame["workers"]] == [
        ["$1.25", "$10.00"],
        ["unknown", "unknown"],
        ["free", "free"],
        ["from $2.00", "from $4.00"],
    ]


def test_a_run_is_rated_and_run_again_by_another_worker(stage: Stage) -> None:
    stage.plan = TWO
    with serving() as server, httpx.Client(base_url=server.url, timeout=30) as client:
        request_body = {"model": "conductor", "input": "Why?"}
        run = client.post("/v1/responses", json=request_body).json()["id"].removeprefix("resp_")
        url = f"{RUNS}/{run}"
        rated = client.post(f"{url}/rating", json={"verdict": "good"}).json()["rated"]
        again = client.post(f"{url}/rerun", json={"step": 2, "worker": "alpha"}).json()["run"]
        until(lambda: client.get(f"{RUNS}/{again}").json()["state"] == "finished")
        steps = client.get(f"{RUNS}/{again}").json()["steps"]
        wrong: dict[str, list[dict[str, Any]]] = {
            "rating": [{"verdict": "fine"}, {"verdict": "good", "step": 9}, {"step": "1"}],
            "rerun": [{"step": 7}, {"step": 1, "worker": "nobody"}, {"worker": "x" * 5000}],
        }
        refused = []
        for act, bodies in wrong.items():
            replies = [client.post(f"{url}/{act}", json=body) for body in bodies]
            refused += [reply.status_code for reply in replies]
    assert "credit: alpha" in rated
    assert [(step["worker"], step["text"]) for step in steps] == [("alpha", "alpha answers")] * 2
    assert refused == [400, 400, 400, 400, 400, 413]
    assert len(stage.asked("beta")) == 1
    assert stage.ok("trace", "list").out.count("Why?") == 2


def test_a_key_runs_again_within_its_pool(stage: Stage) -> None:
    """Also where the pool of the key has become smaller since the run."""
    stage.plan = TWO
    stage.pool("both", "alpha", "beta")
    key = stage.ok("serve", "keys", "add", "bob", "--pool", "both").out.split()[-1]
    with (
        serving() as server,
        httpx.Client(base_url=server.url, headers={"x-api-key": key}, timeout=30) as client,
    ):
        run = client.post("/v1/responses", json={"model": "conductor", "input": "Why?"}).json()[
            "id"
        ][5:]
        assert client.post(f"{RUNS}/{run}/rerun", json={"step": 2}).status_code == 200
        until(lambda: len(stage.asked("beta")) == 2)
        stage.config.write_text(stage.config.read_text().replace("['alpha', 'beta']", "['alpha']"))
        again = client.post(f"{RUNS}/{run}/rerun", json={"step": 2}).json()["run"]
        until(lambda: client.get(f"{RUNS}/{again}").json()["state"] == "finished")
        assert [step["worker"] for step in client.get(f"{RUNS}/{again}").json()["steps"]] == [
            "alpha",
            "alpha",
        ]
    assert len(stage.asked("beta")) == 2


def test_no_other_page_and_no_other_client_acts(stage: Stage) -> None:
    """Each act is behind the same checks as the APIs.

    With `none` the server's own page cannot act either.
    """
    stage.ok("ask", "Why?")
    (run,) = (path.stem for path in stage.traces.glob("*.jsonl"))
    acts = [(f"{RUNS}/{run}/rating", {"verdict": "bad"}), (f"{RUNS}/{run}/rerun", {"step": 1})]

    def statuses(url: str, **headers: str) -> list[int]:
        return [
            httpx.post(f"{url}{path}", json=body, headers=headers, timeout=30).status_code
            for path, body in acts
        ]

    with serving() as server:
        assert statuses(server.url, origin="https://evil.example") == [403, 403]
        assert statuses(server.url, origin="null") == [403, 403]
        assert statuses(server.url, host="evil.example") == [403, 403]
        assert statuses(server.url, origin=server.url) == [200, 200]
        assert httpx.get(f"{server.url}{RUNS}").json()["acts"] is True
    stage.ok("config", "set", "serve.origins", "none")
    with serving() as server:
        assert httpx.get(f"{server.url}{RUNS}", timeout=30).json()["acts"] is False
        assert statuses(server.url, origin=server.url) == [403, 403]
    stage.ok("config", "set", "serve.origins", "default")
    key = stage.ok("serve", "keys", "add", "ann").out.split()[-1]
    with serving() as server:
        assert statuses(server.url) == [401, 401]
        # A run of somebody else
        assert statuses(server.url, authorization=f"Bearer {key}") == [404, 404]
    assert len(stage.asked("alpha")) == 2


def test_the_page_is_used_by_the_keyboard_alone(stage: Stage, tmp_path: Path) -> None:
    """It opens on the newest run.

    A question is asked, an answer rated, a step run again elsewhere, a run stopped.
    """
    stage.plan = TWO
    stage.ok("ask", "An earlier question")
    with serving() as server, chromium(tmp_path) as page:
        page.open(server.url)
        page.wait("at('title').textContent === 'An earlier question'")
        page.wait("at('model').value === 'conductor'")

        def reach(selector: str) -> None:
            """Press Tab until an element has the focus."""
            for _ in range(60):
                if page.value(f"document.activeElement?.matches({selector!r}) ?? false"):
                    return
                page.press("Tab")
            pytest.fail(f"Tab never reaches {selector}")

        reach("#question")
        page.press("What is new?")
        page.press("Enter", control=True)
        page.wait(
            "at('title').textContent === 'What is new?' && "
            "at('answer').textContent.includes('beta "
            "answers')"
        )
        page.wait("!at('rating').hidden")
        reach("[data-verdict=good]")
        page.press("Enter")
        page.wait("at('rated').textContent.includes('credit: alpha')")
        reach("[role=treeitem]")
        page.press("ArrowDown", "ArrowDown", "Enter")
        page.wait("at('opened').textContent.startsWith('2. ')")
        reach("#again button")
        page.press("Enter")
        page.wait("at('runs').childElementCount === 3 && !at('tree').textContent.includes('beta')")
        stage.models["alpha"] = stalls("Never")
        reach("#question")
        page.press("Take long")
        page.press("Enter", control=True)
        page.wait("!at('stop').hidden && at('tree').textContent.includes('Never')")
        before = page.value("at('runs').children[0].textContent")
        # The figures of a running run move
        page.wait(f"at('runs').children[0].textContent !== {before!r}")
        reach("#stop")
        page.press("Enter")
        page.wait("at('outcome').textContent.includes('cancelled')")


def test_a_conversation_goes_on_with_files_below_its_answer(stage: Stage, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("the pears are blue")
    with serving() as server, chromium(tmp_path) as page:
        page.open(server.url)
        page.wait("at('model').value === 'conductor'")
        page.choose_files("#files", notes)
        page.value("at('question').value = 'Which colour?'; at('asking').requestSubmit()")
        page.wait("!at('asking-on').hidden")
        page.wait("at('files').files.length === 0")
        first = page.value("run.id")
        is_above = "at('answer').compareDocumentPosition(at('beside')) & 4"
        assert page.value(is_above), "the answer stands before the steps"
        page.value("at('next').value = 'And the apples?'; at('asking-on').requestSubmit()")
        page.wait("at('title').textContent === 'And the apples?' && !at('asking-on').hidden")
        assert page.value("at('parent').getAttribute('href')") == f"#/run/{first}"
        assert not page.value("at('earlier').hidden")
    with_file, continued = stage.asked("alpha")
    assert "the pears are blue" in with_file.body.decode()
    assert "Which colour?" in continued.body.decode()


def test_a_run_of_another_program_is_stopped_only_where_it_is_allowed(
    stage: Stage, tmp_path: Path
) -> None:
    """So is what it waits for decided about; elsewhere the page names the command."""
    run = stage.run("ask", "--bg", "--approve", "May it?").out.strip()
    url = f"{RUNS}/{run}/decision"
    with serving() as server, chromium(tmp_path) as page:
        page.open(server.url)
        page.wait("at('outcome').textContent === '○ waits for approval'")
        assert page.value("at('decisions').hidden && at('stop').hidden")
        assert f"conductor trace attach {run}" in page.value("at('elsewhere').textContent")
        page.wait("at('runs').textContent.includes('waits for approval of the plan')")
        refused = httpx.post(f"{server.url}{url}", json={"act": "approve"})
        assert refused.status_code == 403
        assert "serve.approvals" in refused.json()["error"]["message"]
    stage.ok("config", "set", "serve.approvals", "true")
    with serving() as server, chromium(tmp_path) as page:
        for body in ({"act": "run"}, {"act": "once", "offered_at": "now"}, {}):
            assert httpx.post(f"{server.url}{url}", json=body).status_code == 400
        foreign = {"origin": "https://evil.example"}
        assert httpx.post(f"{server.url}{url}", json={}, headers=foreign).status_code == 403
        page.open(server.url)
        page.wait("!at('decisions').hidden && !at('stop').hidden")
        assert stage.asked("alpha") == []
        page.value("at('decisions').querySelector('button').focus()")
        # What comes later of the offer takes the focus from no button
        page.wait("at('decisions').textContent.includes('Plan again')")
        page.press("Enter")
        page.wait("at('answer').textContent.includes('alpha answers')")
        assert page.value("at('waits').hidden && at('stop').hidden && at('asking-on').hidden")
        over = httpx.post(f"{server.url}{url}", json={"act": "approve"})
        assert over.status_code == 409
    key = stage.ok("serve", "keys", "add", "ann").out.split()[-1]
    with serving() as server:
        headers = {"authorization": f"Bearer {key}"}
        sent = httpx.post(f"{server.url}{url}", json={"act": "cancel"}, headers=headers)
        assert sent.status_code == 404


def test_a_plan_is_planned_again_edited_and_run_on_the_page(stage: Stage, tmp_path: Path) -> None:
    """What it costs and who reads what stands there before, and an error names the step."""
    stage.plan = TWO
    stage.ok("config", "set", "serve.approvals", "true")
    run = stage.run("ask", "--bg", "--approve", "May it?").out.strip()
    with serving() as server, chromium(tmp_path) as page:
        page.open(server.url)
        page.wait("at('plan-offered').textContent.includes('estimate: 2 calls')")
        page.value("at('flow').open = true")
        assert "step 2: beta" in page.value("at('flow-text').textContent")
        assert "the answer of step 1" in page.value("at('flow-text').textContent")
        offer = httpx.get(f"{server.url}{RUNS}/{run}/offer").json()
        assert [step["worker"] for step in offer["steps"]] == ["alpha", "beta"]
        page.wait("at('decisions').querySelectorAll('button').length === 4")
        stage.plan = "alpha | - | Answer it shortly."
        button = "Array.from(at('decisions').children).find(made => made.textContent === '{}')"
        page.value(button.format("Plan again") + ".focus()")
        page.press("Enter", "Shorter, please.", "Enter")
        page.wait("at('plan-offered').textContent.includes('estimate: 1 call,')")
        assert "Shorter, please." in stage.asked("planner")[1].json["messages"][-1]["content"]
        page.wait("at('replanning').hidden && at('decisions').childElementCount === 4")
        page.value(button.format("Edit it") + ".click()")
        page.value("at('edited').querySelector('textarea').value = ''")
        page.value("at('editing').requestSubmit()")
        page.wait("at('refused').textContent.includes('step 1 has an empty subtask')")
        page.value("at('edited').querySelector('textarea').value = 'Say it loudly.'")
        page.value("at('edited').querySelector('select').value = 'beta'")
        page.value("at('add-step').click()")
        page.value("at('edited').lastChild.querySelector('textarea').value = 'Sum it up.'")
        page.value("at('edited').lastChild.querySelectorAll('input')[0].value = '1'")
        page.value("at('editing').requestSubmit()")
        page.wait("at('plan-offered').textContent.includes('estimate: 2 calls')")
        assert stage.asked("alpha") == stage.asked("beta") == []
        page.wait("at('editing').hidden && at('decisions').childElementCount === 4")
        page.value(button.format("Run it") + ".click()")
        page.wait("at('answer').textContent.includes('alpha answers')")
        gone = httpx.get(f"{server.url}{RUNS}/{run}/offer")
        assert gone.status_code == 404
    (loud,) = stage.asked("beta")
    assert "Say it loudly." in loud.json["messages"][-1]["content"]


def test_a_decision_with_a_text_that_means_nothing_is_refused(stage: Stage) -> None:
    stage.ok("config", "set", "serve.approvals", "true")
    run = stage.run("ask", "--bg", "--approve", "May it?").out.strip()
    with serving() as server:
        url = f"{server.url}{RUNS}/{run}/decision"
        for body in (
            {"act": "edit"},
            {"act": "replan", "text": "  "},
            {"act": "approve", "text": "yes"},
            {"act": "edit", "text": "{}"},
            {"act": "replan", "text": 3},
        ):
            refused = httpx.post(url, json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_value")
        nobody = {"format": 1, "question": "", "steps": [{"worker": "nobody", "subtask": "Do it."}]}
        refused = httpx.post(url, json={"act": "edit", "text": json.dumps(nobody)})
        assert "'nobody'" in refused.json()["error"]["message"]
        long = {"act": "replan", "text": "x" * 100_001}
        assert httpx.post(url, json=long).status_code == 413
    stage.ok("trace", "cancel", run)


def test_axe_finds_nothing_serious_on_the_page(stage: Stage, tmp_path: Path) -> None:
    """Wide and bright, at 400 pixels and dark, with an opened step.

    And nothing is wider than the window.
    """
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm ci --prefix tests/aimock")
    stage.plan = TWO
    stage.ok("config", "set", "serve.approvals", "true")
    waiting = stage.run("ask", "--bg", "--approve", "May it?").out.strip()
    with serving() as server, chromium(tmp_path) as page:
        body = {"model": "conductor", "input": "How?"}
        reply = httpx.post(f"{server.url}/v1/responses", json=body, timeout=30).json()
        answered = reply["id"].removeprefix("resp_")
        for width, dark in ((1200, False), (400, True)):
            page.open(f"{server.url}/?{width}{dark}#/run/{waiting}", width=width, dark=dark)
            page.wait("at('decisions').childElementCount === 4 && !!at('model').value")
            for part in range(2, 4):
                page.value(f"at('decisions').children[{part}].click()")
                page.value("at('flow').open = true")
                assert page.problems() == []
                assert page.value("document.documentElement.scrollWidth") <= width
            page.open(f"{server.url}/?{width}{dark}#/run/{answered}", width=width, dark=dark)
            page.wait("run.id !== '' && !at('asking-on').hidden")
            page.wait("!at('rating').hidden && !at('asking').hidden && !!at('model').value")
            page.value("at('tree').querySelectorAll('[role=treeitem]')[1].click()")
            page.wait("!at('step').hidden && !at('again').hidden")
            assert page.problems() == []
            assert page.value("document.documentElement.scrollWidth") <= width
    stage.ok("trace", "cancel", waiting)
