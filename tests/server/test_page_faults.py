"""The page in a browser where something fails, is refused, or is more than fits.

What it says then, and that nothing typed is lost.
"""

from __future__ import annotations

from pathlib import Path

from tests.cli.stage import Stage, refuses
from tests.server.chromium import Page, chromium
from tests.server.plain_api import Serving, serving

LISTED = "Array.from(at('runs').children, item => item.dataset.run)"


def open_page(page: Page, server: Serving, run: str = "") -> None:
    """Open the page, on a run where one is named, once it can act."""
    page.open(f"{server.url}/#/run/{run}" if run else server.url)
    page.wait("!!at('model').value")


def fail_at_first(page: Page, part: str, times: int) -> None:
    """Have the first requests whose address has a part find no server."""
    page.value(
        f"window.left = {times}; window.real = fetch; fetch = (path, ...rest) => "
        f"path.includes('{part}') && left-- > 0 ? Promise.reject(new TypeError()) : "
        "real(path, ...rest)"
    )


def test_the_answer_of_one_run_is_not_shown_with_another(stage: Stage, tmp_path: Path) -> None:
    stage.ok("ask", "The good one")
    stage.models["alpha"] = stage.models["beta"] = refuses(400)
    stage.inside("ask", "The bad one")
    runs = {row["question"]: row["run"] for row in stage.ok("trace", "list", "--json").json}
    with serving() as server, chromium(tmp_path) as page:
        open_page(page, server, runs["The good one"])
        page.wait("!at('answer').hidden && at('answer').textContent.includes('alpha answers')")
        page.value(f"location.hash = '#/run/{runs['The bad one']}'")
        page.wait("at('title').textContent === 'The bad one' && run.total > 0")
        assert page.value("at('answer').hidden && at('answer').textContent === ''")


def test_an_answer_is_asked_for_until_the_server_is_back(stage: Stage, tmp_path: Path) -> None:
    stage.ok("ask", "Why?")
    with serving() as server, chromium(tmp_path) as page:
        open_page(page, server, "1")  # there is no such run
        fail_at_first(page, "/steps/0", 2)
        page.value(f"location.hash = `#/run/${{{LISTED}[0]}}`")
        page.wait("at('problem').textContent === 'The server does not answer.'")
        page.wait("!at('answer').hidden && !at('rating').hidden && at('problem').hidden")
