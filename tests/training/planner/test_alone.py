"""One model without a planner on the questions of the world: one call, a vote, and a program."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import ConfigError
from conductor_cli.models.llama.bindings import CancelToken
from conductor_cli.models.llama.engine import LlamaEngine
from tests import tiny_gguf
from training.planner.world import alone
from training.planner.world.models import PROGRAM_RULE

needs_programs = pytest.mark.skipif(
    shutil.which("bwrap") is None or shutil.which("bc") is None,
    reason="bubblewrap or bc is not installed",
)


class Scripted:
    """An engine that writes these texts, one a call, in two pieces each."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.requests = list[Request]()

    def generate(self, request: Request, _cancel: CancelToken) -> Iterator[Chunk]:
        self.requests.append(request)
        text = self.texts[len(self.requests) - 1]
        yield Chunk(text=text[:3])
        yield Chunk(text=text[3:])


def test_one_call_is_greedy_and_sends_the_question_as_it_is() -> None:
    engine = Scripted("It is 7.")
    assert alone.answer_by_one_call(cast("LlamaEngine", engine), "What is 3 + 4?") == "It is 7."
    [request] = engine.requests
    assert request.messages[-1].content == "What is 3 + 4?"
    assert request.temperature == 0.0


def test_the_number_that_most_draws_have_wins_the_vote() -> None:
    engine = Scripted("It is 8.", "7", "The answer: 7.")
    assert alone.answer_by_votes(cast("LlamaEngine", engine), "What is 3 + 4?", 3) == "7"
    assert [request.seed for request in engine.requests] == [0, 1, 2]
    assert {request.temperature for request in engine.requests} == {alone.VOTE_TEMPERATURE}


def test_of_equal_votes_the_first_answer_wins() -> None:
    engine = Scripted("It is 8.", "It is 7.")
    assert alone.answer_by_votes(cast("LlamaEngine", engine), "What is 3 + 4?", 2) == "It is 8."


@needs_programs
def test_a_program_answers_with_what_it_prints() -> None:
    engine = Scripted("Here it is:\n```python\nprint(3 + 4)\n```")
    assert alone.answer_by_program(cast("LlamaEngine", engine), "What is 3 + 4?") == "7"
    assert engine.requests[0].messages[-1].content.endswith(PROGRAM_RULE)


@needs_programs
@pytest.mark.parametrize("form", [(), ("--votes", "2"), ("--program",)], ids=["one", "vote", "run"])
def test_the_same_call_goes_on_and_another_form_is_refused(
    form: tuple[str, ...],
    tables: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = tiny_gguf.make(tmp_path / "model.gguf")
    out = tmp_path / "answers.jsonl"

    def call(count: int, *words: str) -> list[str]:
        given = ["--model", model, "--world", tables["new"].parent, "--out", out, "--seed", "s"]
        monkeypatch.setattr(sys, "argv", ["alone", *map(str, given), "--n", str(count), *words])
        assert alone.main() == 0
        return out.read_text().splitlines()

    first = call(1, *form)
    both = call(2, *form)
    assert both[:1] == first
    lines = [json.loads(line) for line in both]
    assert [line["number"] for line in lines] == [0, 1]
    assert [line["held_out"] for line in lines] == [False, True]
    assert '"questions": 1' in capsys.readouterr().out
    with pytest.raises(ConfigError):
        call(3, *form, "--no-dates")
