"""Published suites on the command line: from the hub by name, and programs judged in the sandbox."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from conductor_cli.programs.sandbox import NoSandbox, find_engine
from tests.cli.stage import Stage
from tests.hub import Hub, Refusal, gated, hub, read_environment

MATH = "HuggingFaceH4/MATH-500"
ROWS = "\n".join(
    json.dumps({"problem": f"What is {n} + 1?", "answer": f"{n + 1}", "unique_id": f"q{n}"}) for n in range(60)
).encode()
LCB = "\n".join(
    json.dumps({
        "question_content": f"Add two numbers and {n}.", "question_id": f"q{n}", "platform": "x", "difficulty": "easy",
        "public_test_cases": json.dumps([{"input": "1 2\n", "output": f"{3 + n}\n"}]), "private_test_cases": "[]",
    })
    for n in range(2)
)  # fmt: skip


@pytest.fixture
def suites(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with one suite."""
    with hub() as server:
        server.commit(MATH, {"test.jsonl": ROWS})
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        read_environment()
        yield server


def test_a_suite_is_fetched_by_name_once(stage: Stage, suites: Hub) -> None:
    first = stage.inside("eval", "math500", "--n", "3", "--print-cases")
    assert (first.code, len(first.events), len(suites.fetched)) == (0, 3, 1), first.err
    suites.commit(MATH, {"test.jsonl": ROWS.replace(b"What", b"Tell")})
    assert (stage.inside("eval", "math500", "--n", "3", "--print-cases").out, len(suites.fetched)) == (first.out, 1)


def test_a_suite_that_was_changed_is_refused(stage: Stage, suites: Hub) -> None:
    assert stage.inside("eval", "math500", "--print-cases").code == 0
    (path,) = stage.home.rglob("suites/math500/test.jsonl")
    path.write_bytes(ROWS.replace(b"1", b"2"))
    stage.ends(5, "eval", "math500", "--print-cases", told="its hash has changed")
    path.unlink()
    (commit,) = suites.repos[MATH].commits
    suites.repos[MATH].commits[commit]["test.jsonl"] = ROWS.replace(b"1", b"3")
    stage.ends(5, "eval", "math500", "--print-cases", told="has another hash than before")
    assert not path.exists()


@pytest.mark.parametrize(
    ("refusal", "says"),
    [(Refusal(status=404), "math500"), (gated(), "is gated"), (Refusal(status=200, body=b"[]"), "like a model hub")],
)
def test_a_hub_that_refuses_is_an_error_that_says_how_to_go_on(
    refusal: Refusal, says: str, stage: Stage, suites: Hub
) -> None:
    suites.refusals = [refusal] * 8
    done = stage.inside("eval", "math500", "--print-cases")
    assert (done.code, done.out) == (5, ""), done.err
    assert says in done.err
    assert f"/datasets/{MATH}; with a file that you have: conductor eval math500 --from FILE" in done.err


def test_programs_are_judged_in_the_sandbox_or_nothing_is_called(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test6.jsonl").write_text(LCB)
    (tmp_path / "worker").write_text(
        f"#!/bin/sh\ntouch {tmp_path}/called\nprintf '```python\\nprint(sum(map(int, input().split())))\\n```\\n'\n"
    )
    (tmp_path / "worker").chmod(0o755)
    stage.config.write_text(f'[workers.one]\nkind = "command"\ncommand = ["{tmp_path}/worker"]\n')
    words = ("eval", "livecodebench", "--from", tmp_path / "test6.jsonl", "--systems", "alone", "--yes", "--json")
    none = stage.inside(*words, "--sandbox", "podman:none/such")
    assert (none.code, (tmp_path / "called").exists()) == (3, False)
    assert "code is run only in a sandbox, and there is none here: podman" in none.err
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    try:
        find_engine("bubblewrap", os.environ)
    except NoSandbox:
        return
    done = stage.ok(*words, "--sandbox", "bubblewrap")
    (system,) = done.json["systems"]
    assert (system["right"], system["n"]) == (1, 2)


def test_the_list_says_what_a_suite_needs_and_where_it_is_from(stage: Stage) -> None:
    listed = stage.inside("eval", "--list", "--json").json["suites"]
    (suite,) = [each for each in listed if each["name"] == "livecodebench"]
    assert (suite["needs"], suite["shareable"], suite["file"]) == (["sandbox"], False, "test6.jsonl")
