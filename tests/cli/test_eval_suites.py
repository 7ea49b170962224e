"""Published suites on the command line from the hub, by name."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cli.stage import Stage
from tests.hub import Hub, Refusal, gated, hub, read_environment

MATH = "HuggingFaceH4/MATH-500"
ROWS = "\n".join(
    json.dumps({"problem": f"What is {n} + 1?", "answer": f"{n + 1}", "unique_id": f"q{n}"}) for n in range(60)
).encode()


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
