"""Training on the real path, with a model small enough for seconds.

It learns, survives a kill, and is exported.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None:
    pytest.skip(
        "torch is not installed: pip install 'conductor-llm[train]'", allow_module_level=True
    )

import torch
from typer.testing import CliRunner

from conductor_cli.core.errors import ConfigError
from conductor_cli.models.llama.adapter import Llama
from conductor_cli.models.llama.loading import LlamaOptions
from conductor_cli.rehearsal.players import WORKER_CONTEXT, WORKER_MAX_TOKENS
from training.rehearsal.asking import END, PAD, build, reply
from training.rehearsal.lessons import Course, Lesson, Size, lesson
from training.rehearsal.supervised import (
    Training,
    advance,
    begin,
    encoded,
    export,
    keep,
    resume,
    rounded,
    tensors,
)
from training.rehearsal.train import app
from training.stages import UNFINISHED

SMALL = Course(
    name="small",
    skills=("geography",),
    steps=30,
    batch=16,
    warmup=5,
    size=Size(width=32, layers=2, heads=2, key_heads=1, inner=64),
)

FOR_EVER = 1e9


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build()


@pytest.fixture(scope="module")
def trained(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Training:
    """The small course to its end, in one go."""
    torch.set_num_threads(1)
    training = begin(SMALL, tokenizer)
    advance(
        training,
        tmp_path_factory.mktemp("whole") / "small.state",
        seconds=FOR_EVER,
        say=lambda _: None,
    )
    return training


def ticking() -> Callable[[], float]:
    """A clock that goes on by a second whenever somebody looks."""
    ticks = itertools.count()
    return lambda: float(next(ticks))


def test_the_loss_goes_down(trained: Training) -> None:
    """In thirty steps a model of two small layers learns which tokens answers are made of."""
    assert trained.ended
    assert len(trained.losses) == SMALL.steps
    assert sum(trained.losses[-5:]) < 0.8 * sum(trained.losses[:5])


def test_a_killed_training_resumes_to_the_same_weights(
    trained: Training, tokenizer: Any, tmp_path: Path
) -> None:
    path = tmp_path / "deep" / "small.state"
    advance(begin(SMALL, tokenizer), path, seconds=20, say=lambda _: None, clock=ticking())
    killed = resume(SMALL, tokenizer, path)
    assert 0 < killed.step < SMALL.steps
    advance(killed, tmp_path / "lost.state", seconds=8, say=lambda _: None, clock=ticking())
    again = resume(SMALL, tokenizer, path)
    assert again.step < killed.step
    advance(again, path, seconds=FOR_EVER, say=lambda _: None)
    assert again.losses == trained.losses
    theirs = again.model.state_dict()
    assert all(
        torch.equal(weight, theirs[name]) for name, weight in trained.model.state_dict().items()
    )
    assert [file.name for file in path.parent.iterdir()] == ["small.state"]


def test_the_state_is_saved_during_training(tokenizer: Any, tmp_path: Path) -> None:
    path = tmp_path / "small.state"
    steps: list[int] = []
    tick = ticking()

    def clock() -> float:
        if path.exists() and not steps:
            steps.append(resume(SMALL, tokenizer, path).step)
        return 20 * tick()

    advance(begin(SMALL, tokenizer), path, seconds=400, say=lambda _: None, clock=clock)
    assert 0 < steps[0] < resume(SMALL, tokenizer, path).step


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-2000]),
        lambda path: path.write_bytes(b"no state at all"),
        lambda path: torch.save([1, 2, 3], path),
        lambda path: torch.save(
            {name: value for name, value in torch.load(path).items() if name != "step"}, path
        ),
    ],
    ids=["cut off", "garbage", "another thing", "no step"],
)
def test_a_damaged_state_is_refused(
    spoil: Callable[[Path], Any], tokenizer: Any, tmp_path: Path
) -> None:
    path = tmp_path / "small.state"
    keep(begin(SMALL, tokenizer), path)
    spoil(path)
    with pytest.raises(ConfigError, match=r"small\.state is damaged: ") as error:
        resume(SMALL, tokenizer, path)
    assert error.value.hint == "remove it to start over"
    assert "\n" not in error.value.message


def test_the_state_of_another_training_is_refused(tokenizer: Any, tmp_path: Path) -> None:
    path = tmp_path / "small.state"
    keep(begin(SMALL, tokenizer), path)
    with pytest.raises(ConfigError, match="was made with another course"):
        resume(replace(SMALL, rate=1e-3), tokenizer, path)
    torch.save({**torch.load(path), "tokenizer": "0" * 64}, path)
    with pytest.raises(ConfigError, match="was made with another tokenizer"):
        resume(SMALL, tokenizer, path)


def greedy(model: Any, tokenizer: Any, prompt: str) -> str:
    """What torch writes after a prompt, always the likeliest token."""
    end = tokenizer.token_to_id(END)
    tokens = tokenizer.encode(prompt).ids
    start = len(tokens)
    with torch.inference_mode():
        while len(tokens) - start < WORKER_MAX_TOKENS:
            hidden = model.model(input_ids=torch.tensor([tokens])).last_hidden_state[0, -1]
            token = int(model.lm_head(hidden).argmax())
            if token == end:
                break
            tokens.append(token)
    return str(tokenizer.decode(tokens[start:]))


async def written(path: Path, prompts: list[str]) -> list[str]:
    """What llama.cpp writes after each of these prompts."""
    model = Llama(path, LlamaOptions(context=WORKER_CONTEXT, threads=1, gpu_layers=0))
    try:
        return [(await reply(model, prompt)).text for prompt in prompts]
    finally:
        await model.close()


def test_torch_and_llama_cpp_write_the_same(trained: Training, tmp_path: Path) -> None:
    """The exported file, through the adapter that runs use, gives torch's text.

    A damaged comparison would show.
    """
    path = tmp_path / "small.gguf"
    model = rounded(trained.model)
    export(model, trained.tokenizer, path, name="small")
    random = Random("compare")
    prompts = [lesson(random, SMALL).prompt for _ in range(50)]
    theirs = asyncio.run(written(path, prompts))
    same = sum(
        greedy(model, trained.tokenizer, prompt) == text
        for prompt, text in zip(prompts, theirs, strict=True)
    )
    assert same >= 49  # two tokens may be equally likely after so short a training
    other = begin(replace(SMALL, seed=2), trained.tokenizer).model
    assert all(greedy(other, trained.tokenizer, prompts[at]) != theirs[at] for at in range(4))


def test_the_loss_counts_only_answers(tokenizer: Any) -> None:
    """The target of a place is the next token.

    There is one only where the answer or its end follows.
    """
    end = tokenizer.token_to_id(END)
    pad = tokenizer.token_to_id(PAD)
    given = encoded(
        [Lesson("s: reverse AB\na:", "BA"), Lesson("s: first letter of ABC\na:", "A")], tokenizer
    )
    tokens, targets = tensors(given, pad)
    for item, row, target in zip(given, tokens.tolist(), targets.tolist(), strict=True):
        before = len(item.prompt) - 1
        assert item.answer[-1] == end
        assert row[: before + len(item.answer)] == (item.prompt + item.answer)[:-1]
        assert target[before : before + len(item.answer)] == item.answer
        assert {*target[:before], *target[before + len(item.answer) :]} == {-1}
        assert set(row[before + len(item.answer) :]) <= {pad}


def test_an_unfinished_stage_exits_with_3(tmp_path: Path) -> None:
    command = ["worker", "spelling", "--out", str(tmp_path), "--minutes", "0"]
    first = CliRunner().invoke(app, command)
    assert first.exit_code == UNFINISHED == 3
    assert "run the same command again" in first.output
    assert (tmp_path / "spelling.state").is_file()
    assert not (tmp_path / "spelling.gguf").exists()
