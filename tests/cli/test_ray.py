"""`--ray`: an actor of Ray Data asks, and what is written is that of any batch and of any evaluation."""

from __future__ import annotations

import json
import os
import pickle
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.app import evaluation, ray_jobs
from tests.cli.stage import Stage, says
from tests.cli.test_batch import numbers, one, read

pytest.importorskip("ray", reason="ray is not installed: make train-setup")
__all__ = ["one"]


@pytest.mark.timeout(600)
def test_a_batch_on_ray_asks_each_question_once_and_goes_on_without_it(one: Stage, tmp_path: Path) -> None:
    """One that fails costs only itself; the same command, here without Ray, asks nothing again."""
    # Ray imports jsonschema in each of its processes, which takes seconds where this library is there too.
    (tmp_path / "rfc3987_syntax.py").write_text("raise ImportError\n")
    path = f"{tmp_path}{os.pathsep}{one.environ()['PYTHONPATH']}"
    questions, out = numbers(tmp_path / "q.jsonl", 40), tmp_path / "a.jsonl"
    words = ("batch", questions, "-o", out, "--yes", "--no-trace")
    with one.start(*words, "--ray", "auto", env={"PYTHONPATH": path}) as process:
        _, err = process.communicate(timeout=500)
    assert process.returncode == 7, err.decode()
    assert Counter(line["id"] for line in read(out)) == Counter({f"q{n}": 1 for n in range(40) if n != 13})
    assert [line["id"] for line in read(tmp_path / "a.failed.jsonl")] == ["q13"]
    asked = len(one.asked("alpha"))
    assert one.inside(*words).code == 7
    assert len(one.asked("alpha")) == asked


def test_an_evaluation_on_nodes_runs_cases_once(one: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that no worker answers is counted as failed; the same command, here without Ray, runs only that again.

    The node is one of this process, to which everything goes as bytes, as to an actor of Ray.
    """

    async def on_a_node(rows: Iterable[Any], *, opener: Any, **_: object) -> AsyncIterator[tuple[Any, Any]]:
        node = ray_jobs._Node(pickle.loads(pickle.dumps(opener)), None)
        for row in rows:
            batch = await node({"number": [0], "row": [pickle.dumps(row)]})
            yield row, pickle.loads(batch["result"][0])
        await node._open.aclose()
        node._ask = None  # nothing is left to close

    monkeypatch.setattr(evaluation, "ask_over_nodes", on_a_node)
    monkeypatch.setattr("conductor_cli.cli.eval.ray_cluster", lambda _: nullcontext("this one"))
    rows = [{"id": f"c{n}", "question": f"What is number {n}?", "answer": str(n)} for n in range(10, 16)]
    cases = tmp_path / "cases.jsonl"
    cases.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("eval", cases, "--systems", "alone", "--yes", "--json")
    first = one.ok(*words, "--ray", "auto").json["systems"]
    assert [(system["right"], system["failed"]) for system in first] == [(5, 1)]
    asked = len(one.asked("alpha"))
    one.models["alpha"] = says("13")
    again = one.ok(*words).json["systems"]
    assert [(system["right"], system["failed"]) for system in again] == [(6, 0)]
    assert len(one.asked("alpha")) == asked + 1
