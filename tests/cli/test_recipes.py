"""The recipes of docs/recipes.md: each template that ships runs as its page says, over stand-ins for its workers."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import pytest

from conductor_cli.app.templates import SHIPPED
from tests.cli.stage import COMMAND, Stage, says
from tests.test_links import ROOT

RECIPES: Final = ROOT / "docs/recipes"
WORKERS: Final = ("gpt", "claude", "gemini", "local")
FINDING: Final = {"file": "a.py", "line": 3, "problem": "divides by zero"}
PRICE: Final = "price = { input = 1, output = 1 }"


@pytest.fixture
def pool(stage: Stage) -> Stage:
    """The four workers of the recipes, with a price, since the templates limit their cost."""
    stage.configure(workers=dict.fromkeys(WORKERS, PRICE))
    for name in WORKERS:
        stage.models[name] = says(json.dumps({"block": True, "findings": [FINDING]}))
    return stage


@pytest.mark.parametrize("file", sorted(SHIPPED.glob("*.toml")), ids=lambda file: file.stem)
def test_a_recipe_runs_as_its_page_says(pool: Stage, tmp_path: Path, file: Path) -> None:
    said = tomllib.loads(file.read_text())
    (tmp_path / "input.txt").write_text("text of the attached file")
    words = ["Why?"] if "$question" in said["question"] else []
    done = pool.ok("ask", "-t", file.stem, *words, "-f", tmp_path / "input.txt", "--format", "json")
    workers = [said["params"][step["worker"].removeprefix("$")] for step in said["steps"]]
    assert [step["worker"] for step in done.json["steps"]] == workers
    page = " ".join((ROOT / "docs/recipes.md").read_text().split())
    assert [step["subtask"] for step in said["steps"] if step["subtask"] not in page] == []
    first = pool.asked(workers[0])[0]
    assert "text of the attached file" in json.dumps(first.json["messages"])


def test_the_private_file_stays_on_this_machine(pool: Stage, tmp_path: Path) -> None:
    local = f'files_only = ["local"]\n[workers.local]\n{pool.worker("local", PRICE).partition(chr(10))[2]}'
    tables = [pool.worker(name, PRICE) for name in WORKERS if name != "local"]
    pool.configure(workers=(), more="\n".join(["[policy]", local, *tables]))
    (tmp_path / "contract.txt").write_text("secret clause")
    pool.ok("ask", "-t", "private", "-f", tmp_path / "contract.txt")
    assert "secret clause" not in json.dumps([seen.json for seen in pool.asked("gpt")])
    assert len(pool.asked("gpt")) == 1


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    settings = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    return subprocess.run(["git", *settings, *words], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("blocks", [True, False])
def test_the_hook_stops_a_push_that_the_judge_blocks(pool: Stage, tmp_path: Path, blocks: bool) -> None:
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    pool.models["gpt"] = says(json.dumps({"block": blocks, "findings": [FINDING]}))
    conductor = tmp_path / "bin/conductor"
    conductor.parent.mkdir()
    conductor.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    conductor.chmod(0o755)
    origin, work = tmp_path / "origin", tmp_path / "work"
    _git(tmp_path, "init", "-q", "--bare", str(origin))
    _git(tmp_path, "clone", "-q", str(origin), str(work))
    for text in ("one\n", "two\n"):
        (work / "a.py").write_text(text)
        _git(work, "add", "a.py")
        _git(work, "commit", "-qm", "change")
        if text == "one\n":
            _git(work, "push", "-q", "-u", "origin", "HEAD")
    hook = work / ".git/hooks/pre-push"
    hook.write_bytes((RECIPES / "pre-push").read_bytes())
    hook.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in pool.environ().items():
            patch.setenv(name, value)
        patch.setenv("PATH", f"{conductor.parent}:{pool.environ()['PATH']}")
        pushed = _git(work, "push", "-q")
    assert (pushed.returncode != 0) is blocks, pushed.stderr
    assert "a.py:3: divides by zero" in pushed.stderr
    assert ("stopped by the review" in pushed.stderr) is blocks
    assert "+two" in json.dumps(pool.asked("gpt")[0].json["messages"])
