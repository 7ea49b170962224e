"""The benchmark of the local conductor: its files of random weights, and that it forces what it says it forces."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from conductor_cli.core.chat import Message, Request
from conductor_cli.models.llama import Llama, LlamaOptions, read_model_info
from tests.tiny_gguf import CHATML, SPECIAL, Shape, make, vocabulary

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
LONG = Shape(merges=220)
"""Reads the benchmark's prompt in fewer tokens than its context holds."""


@pytest.fixture(scope="module")
def load() -> Any:
    """Imports a file of the benchmarks, which import each other by their bare names."""
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def shapes(load: Any) -> ModuleType:
    found: ModuleType = load("shapes")
    return found


def small(load: Any, **more: int) -> tuple[Any, Any]:
    """A model with every kind of tensor, and a vocabulary for it."""
    tokens, merges = vocabulary(100)
    kinds = [3 if token in SPECIAL else 1 for token in tokens]
    words = load("shapes").Vocabulary(tokens=tokens, kinds=kinds, merges=merges, template=CHATML)
    size = {"layers": 8, "width": 256, "heads": 4, "key_heads": 2, "inner": 512, "tokens": 512, **more}
    return load("shapes").Shape(name="small", tied=False, **size), words


@pytest.mark.parametrize(
    ("name", "tensors", "parameters", "size"),
    [
        ("0.5b", 290, 494_032_768, 397_808_192),
        ("1.5b", 338, 1_543_714_304, None),
        ("3b", 434, 3_085_938_688, None),
        ("7b", 339, 7_615_616_512, 4_683_074_240),
    ],
)
def test_a_shape_is_that_of_the_real_model(
    shapes: ModuleType, name: str, tensors: int, parameters: int, size: int | None
) -> None:
    """As many tensors and weights as Qwen2.5 has, in the bytes of its Q4_K_M but for the vocabulary and the keys."""
    found = list(shapes.tensors(shapes.SHAPES[name]))
    assert (len(found), sum(tensor.rows * tensor.columns for tensor in found)) == (tensors, parameters)
    if size is not None:
        assert 0 < size - sum(tensor.size for tensor in found) < 7_000_000


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K", "Q5_0", "Q8_0"])
def test_random_weights_neither_grow_nor_shrink(shapes: ModuleType, kind: str) -> None:
    """Every type has a mean of about zero and a deviation that keeps the size of what passes through."""
    import gguf
    import numpy as np

    tensor = shapes.Tensor(name="some.weight", rows=64, columns=1024, kind=kind)
    data = shapes.drawn(tensor, np.random.default_rng(3))
    weights = gguf.quants.dequantize(data, getattr(gguf.GGMLQuantizationType, kind))
    assert weights.shape == (64, 1024)
    assert abs(float(weights.mean())) < 0.06 / 32  # half a step of the five bits
    assert float(weights.std()) == pytest.approx(1 / 32, rel=0.02)


@pytest.mark.parametrize("width", [256, 320])
def test_llama_cpp_loads_it_and_writes(load: Any, shapes: ModuleType, tmp_path: Path, width: int) -> None:
    """What is made is a model: it loads, its logits are numbers, and it says what it is."""
    shape, words = small(load, width=width)
    shapes._write(shape, tmp_path / "small.gguf", words)

    async def go() -> int:
        model = Llama(tmp_path / "small.gguf", LlamaOptions(context=256, threads=1))
        try:
            asked = Request(messages=(Message(role="user", content="Check the sum"),), max_tokens=8)
            usages = [chunk.usage async for chunk in model.stream(asked)]
            return usages[-1].tokens_out if usages[-1] else 0
        finally:
            await model.close()

    assert 0 < asyncio.run(go()) <= 8
    assert read_model_info(tmp_path / "small.gguf").name == "Qwen2.5 small shape, random weights"


def test_a_model_is_made_once(
    load: Any, shapes: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second time it is only named, with its size; nothing but the file is left."""
    shape, words = small(load)
    monkeypatch.setitem(shapes.SHAPES, "small", shape)
    monkeypatch.setattr(shapes, "fetched", lambda place: ())
    monkeypatch.setattr(shapes, "read", lambda: words)
    path = shapes.model("small", tmp_path / "bench")
    told = capsys.readouterr().err
    made = path.stat().st_mtime_ns
    assert shapes.model("small", tmp_path / "bench").stat().st_mtime_ns == made
    assert capsys.readouterr().err == f"{path}: 0.00 GB\n"
    assert "making" in told
    assert [file.name for file in path.parent.iterdir()] == ["qwen2.5-small-shape-q4_k_m.gguf"]


def run(script: str, job: Path, *more: str) -> dict[str, Any]:
    """What a script of the benchmark found in a process of its own."""
    command = [sys.executable, str(BENCHMARKS / script), str(job), str(time.monotonic()), *more]
    source = str(BENCHMARKS.parent / "src")
    environ = os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, load: Any) -> Path:
    """What the scripts are given, with a tiny model."""
    place = tmp_path_factory.mktemp("job")
    forced = load("live_conductor")
    model = str(make(place / "tiny.gguf", shape=LONG))
    given = {"model": model, "cache": str(place / "cache"), "context": 2 * forced.CONTEXT, **forced.naive_job()}
    path = place / "job.json"
    path.write_text(json.dumps(given))
    return path


def test_a_second_process_takes_the_prefix_from_disk_and_writes_the_forced_plan(job: Path) -> None:
    """The whole prefix is remembered, the plan is the forced one, and the token that was to be refused was refused."""
    first, second = run("live_conductor.py", job, "plan", "40"), run("live_conductor.py", job, "plan", "40")
    assert first["cached"] == 0
    assert 0 < second["read"] - second["cached"] < 200 < second["cached"]
    assert (second["refusals"], first["draws"][40] > 0) == (1, True)
    assert 0 < second["took"]["import"] < second["took"]["load"] < second["took"]["step"] < second["took"]["plan"]


def test_many_questions_read_only_what_is_their_own(job: Path) -> None:
    found = run("live_conductor.py", job, "live", "4")
    assert len(found["resident"]) == 4
    assert all(0 < read <= own for read, own in zip(found["read"][1:], found["own"][1:], strict=True))


def test_decoding_is_measured_in_turns_and_a_prefix_both_ways(job: Path) -> None:
    """Every round has both; the whole prefix is computed once and taken from disk several times."""
    decoded = run("live_conductor.py", job, "decode", "2")
    assert [len(decoded[name]) for name in ("ours", "theirs")] == [2, 2]
    restored = run("live_conductor.py", job, "restore")
    assert restored["tokens"] > 200
    assert (type(restored["computed"]), len(restored["restored"])) == (float, 5)


def test_the_naive_script_writes_the_plan_in_json(job: Path) -> None:
    """It forces the same five steps through its grammar, and says how long each part took."""
    found = run("naive_conductor.py", job)
    assert found["steps"] == 5
    assert 0 < found["took"]["import"] < found["took"]["load"] < found["took"]["first token"] < found["took"]["plan"]


def test_a_naive_script_that_crashes_is_run_on_weights_as_they_are(
    load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table says which signal ended it; a script that fails otherwise ends the benchmark."""
    bench = load("bench_conductor")
    monkeypatch.setattr(bench, "HERE", tmp_path)
    script = tmp_path / "naive_conductor.py"
    crash = "import os, signal, sys\n'plain' in sys.argv or os.kill(os.getpid(), signal.SIGTERM)\n"
    script.write_text(crash + "print('{\"took\": {}}')\n")
    runs = bench.Runs(tmp_path / "some.gguf", tmp_path)
    assert runs.naive() == {"took": {}, "crash": -15}
    script.write_text("raise SystemExit(3)")
    with pytest.raises(SystemExit, match=r"naive_conductor\.py ended with 3"):
        runs.naive()
