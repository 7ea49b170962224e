"""Lessons that share a prompt in one sequence: the loss is that of each lesson in a sequence of its own."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "peft")):
    pytest.skip("torch is not installed: pip install 'conductor-llm[train]'", allow_module_level=True)

import torch
from transformers import AutoModelForCausalLM

from conductor_cli.train.base_model import find_base_model
from tests.train import tiny
from training.smollm2.lessons import lessons
from training.smollm2.supervised import IGNORED, Course, loss_of, pack, train


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tiny.base(tmp_path_factory.mktemp("base"))


def test_packed_lessons_have_the_loss_of_separate_ones(base: Path) -> None:
    found = find_base_model(str(base))
    model = AutoModelForCausalLM.from_pretrained(base)
    items = lessons(2, 3)
    packed, alone = pack(items, found.tokenizer), [pack([item], found.tokenizer) for item in items]
    assert len(packed.tokens) < sum(len(one.tokens) for one in alone) - 2 * packed.owners.count(0) + 3
    counts = [sum(wanted != IGNORED for wanted in one.wanted) for one in alone]
    for item, one, count in zip(items, alone, counts, strict=True):
        assert count == len(found.tokenizer(item.plan)["input_ids"]) + 1
        assert one.wanted[-1] == found.tokenizer.eos_token_id
    with torch.no_grad():
        together = float(loss_of(model, packed))
        apart = sum(count * float(loss_of(model, one)) for one, count in zip(alone, counts, strict=True)) / sum(counts)
    assert together == pytest.approx(apart, rel=1e-4)


def test_a_supervised_start_that_was_stopped_goes_on_to_the_same_weights(base: Path, tmp_path: Path) -> None:
    course = Course(steps=4, questions=2, rate=1e-2, warmup=1, rank=2, alpha=4, first_layer=1)
    lines: list[str] = []
    assert train(base, tmp_path / "once", course, minutes=5, say=lines.append)
    for _ in range(4):
        train(base, tmp_path / "parts", course, minutes=5, say=lines.append, most=1)
    once, parts = (torch.load(tmp_path / name / "state.pt", weights_only=True) for name in ("once", "parts"))
    assert (once["step"], parts["step"]) == (4, 4)
    assert once["weights"].keys() == parts["weights"].keys()
    assert all(torch.equal(once["weights"][name], parts["weights"][name]) for name in once["weights"])
    assert all("layers.1." in name for name in once["weights"])
    assert not train(base, tmp_path / "late", course, minutes=0, say=lines.append)
