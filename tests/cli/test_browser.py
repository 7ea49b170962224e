"""`trace show --open` and `serve --open`: what a browser is shown, and what is said where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cli.stage import Stage

PAGE = "import pathlib, sys, urllib.request as r; pathlib.Path(sys.argv[1]).write_bytes(r.urlopen(sys.argv[2]).read())"


@pytest.fixture
def browser(stage: Stage) -> tuple[dict[str, str], Path]:
    """Variables by which a browser is found that stores the page in the file."""
    script, page = stage.home / "browser.py", stage.home / "page.html"
    script.write_text(PAGE)
    return {"BROWSER": f"{sys.executable} {script} {page} %s"}, page


def test_a_run_is_shown_in_the_browser(stage: Stage, browser: tuple[dict[str, str], Path]) -> None:
    variables, page = browser
    stage.ok("ask", "How are you?")
    done = stage.run("trace", "show", "--open", env=variables)  # its end waits for that of the browser
    assert (done.code, done.out, done.err) == (0, "", "")
    assert "alpha answers" in page.read_text()


def test_without_a_browser_the_file_is_named(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(stage.home))
    stage.ok("ask", "How are you?")
    file = Path(stage.ok("trace", "show", "last", "--open").out.strip())
    assert "alpha answers" in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


def test_serve_prints_the_address_of_its_page_and_opens_it(stage: Stage, browser: tuple[dict[str, str], Path]) -> None:
    variables, page = browser
    os.mkfifo(page)  # what reads it waits for the browser
    with stage.start("serve", "--port", "0", "--open", env=variables, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            lines = [server.stdout.readline().decode() for _ in range(5)]
            address = lines[0].split()[-1]
            assert f"  the page, to ask and to look at runs: {address}/\n" in lines
            assert "<title>conductor</title>" in page.read_text()
        finally:
            server.terminate()
