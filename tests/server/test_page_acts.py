"""What the page does beside showing: asking, stopping, rating, running a step again; by HTTP and in a browser."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.cli.stage import TWO, Stage, stalls
from tests.server.chromium import AXE, chromium
from tests.server.plain_api import serving
from tests.server.test_run_registry import until

RUNS = "/v1/conductor/runs"


def test_a_run_is_rated_and_run_again_by_another_worker(stage: Stage) -> None:
    stage.plan = TWO
    with serving() as server, httpx.Client(base_url=server.url, timeout=30) as client:
        asked = {"model": "conductor", "input": "Why?"}
        run = client.post("/v1/responses", json=asked).json()["id"].removeprefix("resp_")
        place = f"{RUNS}/{run}"
        rated = client.post(f"{place}/rating", json={"verdict": "good"}).json()["rated"]
        again = client.post(f"{place}/rerun", json={"step": 2, "worker": "alpha"}).json()["run"]
        until(lambda: client.get(f"{RUNS}/{again}").json()["state"] == "finished")
        steps = client.get(f"{RUNS}/{again}").json()["steps"]
        refused = [
            client.post(f"{place}/{act}", json=body).status_code
            for act, body in (
                ("rating", {"verdict": "fine"}),
                ("rating", {"verdict": "good", "step": 9}),
                ("rating", {"step": "1"}),
                ("rerun", {"step": 7}),
                ("rerun", {"step": 1, "worker": "nobody"}),
                ("rerun", {"worker": "x" * 5000}),
            )
        ]
    assert "credit: alpha" in rated
    assert [(step["worker"], step["text"]) for step in steps] == [
        ("alpha", "alpha answers"),
        ("alpha", "alpha answers"),
    ]
    assert refused == [400, 400, 400, 400, 400, 413]
    assert len(stage.asked("beta")) == 1
    assert stage.ok("trace", "list").out.count("Why?") == 2


def test_a_key_runs_again_within_its_pool(stage: Stage) -> None:
    """Also where the pool of the key has become smaller since the run."""
    stage.plan = TWO
    stage.pool("both", "alpha", "beta")
    key = stage.ok("serve", "keys", "add", "bob", "--pool", "both").out.split()[-1]
    with serving() as server, httpx.Client(base_url=server.url, headers={"x-api-key": key}, timeout=30) as client:
        run = client.post("/v1/responses", json={"model": "conductor", "input": "Why?"}).json()["id"][5:]
        assert client.post(f"{RUNS}/{run}/rerun", json={"step": 2}).status_code == 200
        until(lambda: len(stage.asked("beta")) == 2)
        stage.config.write_text(stage.config.read_text().replace("['alpha', 'beta']", "['alpha']"))
        again = client.post(f"{RUNS}/{run}/rerun", json={"step": 2}).json()["run"]
        until(lambda: client.get(f"{RUNS}/{again}").json()["state"] == "finished")
        assert [step["worker"] for step in client.get(f"{RUNS}/{again}").json()["steps"]] == ["alpha", "alpha"]
    assert len(stage.asked("beta")) == 2


def test_no_other_page_and_no_other_client_acts(stage: Stage) -> None:
    """Each act is behind the same checks as the APIs; with `none` the server's own page cannot act either."""
    stage.ok("ask", "Why?")
    (run,) = (path.stem for path in stage.traces.glob("*.jsonl"))
    acts = [(f"{RUNS}/{run}/rating", {"verdict": "bad"}), (f"{RUNS}/{run}/rerun", {"step": 1})]

    def statuses(url: str, **headers: str) -> list[int]:
        return [httpx.post(f"{url}{path}", json=body, headers=headers, timeout=30).status_code for path, body in acts]

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
        assert statuses(server.url, authorization=f"Bearer {key}") == [404, 404]  # a run of somebody else
    assert len(stage.asked("alpha")) == 2


def test_the_page_is_used_by_the_keyboard_alone(stage: Stage, tmp_path: Path) -> None:
    """It opens on the newest run; a question is asked, an answer rated, a step run again elsewhere, a run stopped."""
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
        page.wait("at('title').textContent === 'What is new?' && at('answer').textContent.includes('beta answers')")
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
        page.wait(f"at('runs').children[0].textContent !== {before!r}")  # the figures of a running run move
        reach("#stop")
        page.press("Enter")
        page.wait("at('outcome').textContent.includes('cancelled')")


def test_axe_finds_nothing_serious_on_the_page(stage: Stage, tmp_path: Path) -> None:
    """Wide and bright, at 400 pixels and dark, with an opened step; and nothing is wider than the window."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm ci --prefix tests/aimock")
    stage.plan = TWO
    stage.ok("ask", "How?")
    with serving() as server, chromium(tmp_path) as page:
        for width, dark in ((1200, False), (400, True)):
            page.open(f"{server.url}/?{width}{dark}", width=width, dark=dark)
            page.wait("!at('rating').hidden && !at('asking').hidden && !!at('model').value")
            page.value("at('tree').querySelectorAll('[role=treeitem]')[1].click()")
            page.wait("!at('step').hidden && !at('again').hidden")
            assert page.problems() == []
            assert page.value("document.documentElement.scrollWidth") <= width
