"""The training of the planner.

Rows that are read as single lessons are, and a state that goes on.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "peft")):
    pytest.skip(
        "torch is not installed: pip install 'conductor-llm[train]'", allow_module_level=True
    )

import torch
from transformers import AutoModelForCausalLM

from conductor_cli.models.llama.bindings import CancelToken
from conductor_cli.models.llama.engine import LlamaEngine
from conductor_cli.models.llama.loading import LlamaOptions
from conductor_cli.train.base_model import find_base_model
from tests import tiny_gguf
from training.planner import supervised
from training.planner.lessons import draw_group
from training.planner.packing import END, pack, plan_logits, prompt_text
from training.planner.world.cases import draw_world_group, lesson_texts, open_world


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("planner")
    extra = tiny_gguf.Extra(bias=None, template=tiny_gguf.CHATML)
    return tiny_gguf.make(directory / "base.gguf", extra=extra)


def test_a_lesson_of_a_row_is_computed_as_if_it_were_alone(file: Path) -> None:
    base = find_base_model(str(file))
    model = AutoModelForCausalLM.from_pretrained(base.directory, dtype=torch.float32).eval()
    lessons = draw_group("1 0", 4)
    with torch.inference_mode():
        row = pack(base.tokenizer, lessons, longest=4000)
        together = plan_logits(model.model, row, model.lm_head.weight)
        for number, lesson in enumerate(lessons):
            text = prompt_text(base.tokenizer, lesson.request) + lesson.text
            tokens = base.tokenizer(text, return_tensors="pt", add_special_tokens=False)[
                "input_ids"
            ]
            packed = together[row.lessons == number]
            alone = model(tokens).logits[0, -len(packed) :]
            assert torch.allclose(packed, alone, atol=1e-4)


def test_a_prompt_is_tokenised_as_in_a_run(file: Path) -> None:
    base = find_base_model(str(file))
    engine = LlamaEngine(file, LlamaOptions(context=4096, threads=1), CancelToken())
    try:
        for lesson in draw_group("1 2", 8):
            wanted = engine.tokenize(lesson.request).tokens
            tokenised = base.tokenizer(
                prompt_text(base.tokenizer, lesson.request), add_special_tokens=False
            )["input_ids"]
            assert list(wanted) == tokenised
    finally:
        engine.close()


def run(monkeypatch: pytest.MonkeyPatch, out: Path, file: Path, *options: str) -> int:
    threads = torch.get_num_threads()
    words = ["supervised", "--base", str(file), "--out", str(out), "--every", "3", *options]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(supervised, "CHECKED", 1)
    try:
        return supervised.main()
    finally:
        torch.set_num_threads(threads)


def weights(out: Path) -> dict[str, Any]:
    return dict(torch.load(out / "state.pt", weights_only=True)["mean"])


def test_a_training_that_was_stopped_goes_on_as_if_it_had_not_been(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: Path
) -> None:
    assert run(monkeypatch, tmp_path / "whole", file, "--steps", "3") == supervised.DONE
    monkeypatch.setattr(supervised, "KEEP_SECONDS", 0.0)
    ends = iter([False, True])

    def counted(training: supervised.Training) -> None:
        count(training)
        if next(ends, False):
            raise KeyboardInterrupt

    count = supervised.Training.count
    monkeypatch.setattr(supervised.Training, "count", counted)
    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, tmp_path / "parts", file, "--steps", "3")
    assert run(monkeypatch, tmp_path / "parts", file, "--steps", "3") == supervised.DONE
    whole = weights(tmp_path / "whole")
    parts = weights(tmp_path / "parts")
    assert whole.keys() == parts.keys()
    assert all(torch.equal(weight, parts[name]) for name, weight in whole.items())
    lines = [
        json.loads(line) for line in (tmp_path / "whole" / "log.jsonl").read_text().splitlines()
    ]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert {"held_begin", "held_label"} <= lines[-1].keys()


def test_the_exported_adapter_is_laid_over_its_base_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: Path
) -> None:
    run(monkeypatch, tmp_path, file, "--steps", "1")
    engine = LlamaEngine(
        file, LlamaOptions(adapter=tmp_path / "adapter.gguf", threads=1), CancelToken()
    )
    engine.close()


def test_a_training_begins_with_the_adapter_of_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: Path
) -> None:
    run(monkeypatch, tmp_path / "first", file, "--steps", "2")
    adapter = tmp_path / "first" / "adapter.gguf"
    base = find_base_model(str(file))
    continued = supervised.begin(base, rate=1e-4, seed=9, adapter=adapter)
    for name, weight in weights(tmp_path / "first").items():
        # The exported numbers have 16 bits.
        assert torch.allclose(continued.mean[name], weight, atol=1e-4, rtol=1e-3)


def test_every_second_step_is_of_the_world_and_every_token_of_it_counts(
    file: Path, tables: dict[str, Path]
) -> None:
    base = find_base_model(str(file))
    world = open_world(tables["new"].parent)
    tokenizer = base.tokenizer
    rows = [supervised.draw_row(tokenizer, world, 1, step) for step in range(2)]
    texts = [tokenizer.decode(row.tokens) for row in rows]
    assert ["SELECT population" in text for text in texts] == [False, True]
    alone = supervised.draw_row(tokenizer, world, 1, 0, world_every=1)
    assert "SELECT population" in tokenizer.decode(alone.tokens)
    even = supervised.draw_row(tokenizer, world, 1, 0, world_every=1, word=0.5)
    assert even.tokens.tolist() == alone.tokens.tolist()
    assert even.weights.min() >= min(0.5, END)
    matrix = torch.zeros(len(tokenizer), 1)
    head = supervised.Head(matrix, tokenizer, world)
    used = tokens_of(tokenizer, lesson_texts(world))
    lessons = draw_world_group(world, "9", 8)
    written = tokens_of(tokenizer, [lesson.text for lesson in lessons])
    assert written <= used
    assert (head.targets(rows[1]) >= 0).all()


def tokens_of(tokenizer: Any, texts: list[str]) -> set[int]:
    used = set[int]()
    for text in texts:
        used.update(tokenizer(text, add_special_tokens=False)["input_ids"])
    return used
