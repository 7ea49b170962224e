"""The rehearsal's workers.

What they read, and what the shipped models answer through the ordinary adapter.
"""

from __future__ import annotations

import asyncio
from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.chat import Message
from conductor_cli.core.plan import Step
from conductor_cli.core.plan_formats.base import ANSWER_DIRECTLY
from conductor_cli.core.pool import Card, Worker
from conductor_cli.core.profile import SeenStep
from conductor_cli.core.question import Question
from conductor_cli.core.worker_prompts import worker_messages
from conductor_cli.models.catalog import open_model
from conductor_cli.models.llama.gguf import read_all_tensors
from conductor_cli.models.worker_options import check_options
from conductor_cli.rehearsal import players
from conductor_cli.rehearsal.players import (
    ANYTHING,
    CHECKER,
    CHECKING,
    NAMES,
    REFUSAL,
    clean_answer,
    model_path,
    read_worker_cards,
    rehearsal_workers,
)
from conductor_cli.rehearsal.players import WORKER_CONTEXT as CONTEXT
from conductor_cli.rehearsal.players import WORKER_MAX_TOKENS as MAX_TOKENS
from conductor_cli.rehearsal.players import WORKER_PROFILE as PROFILE
from conductor_cli.rehearsal.players import render_for_worker as render
from conductor_cli.rehearsal.words import Skill
from conductor_cli.run.planner import FINISH
from training.rehearsal.asking import Bank, reply
from training.rehearsal.exercises import GENERALIST
from training.rehearsal.lessons import prompt_of
from training.rehearsal.operations import SKILLS, UNSEEN
from training.rehearsal.world import Problem, draw_problems

ASKED = Question(text="Spell the capital of France backwards.")


def step(subtask: str, *access: int) -> Step:
    return Step(worker="spelling", subtask=subtask, access=access)


def seen_step(answer: str | None, subtask: str = "capital of FRANCE", number: int = 1) -> SeenStep:
    return SeenStep(number=number, worker="geography", subtask=subtask, answer=answer)


ASK = "s: spell the capital of FRANCE backwards\na:"
ANSWERED = SeenStep(number=1, worker="spelling", subtask=ANSWER_DIRECTLY, answer="Sirap.")


@pytest.mark.parametrize(
    ("subtask", "shown", "prompt"),
    [
        (
            "spell it backwards",
            seen_step("Paris."),
            "s: capital of FRANCE\na: PARIS\ns: spell it backwards\na:",
        ),
        *(
            (f"{subtask}", None, ASK)
            for subtask in (ASKED.text, "spell the capital of 'france' backwards", FINISH)
        ),
        *(
            (subtask, None, f"s: {subtask}\na:")
            for subtask in ("check it", "count its letters", "double the result")
        ),
        (FINISH, ANSWERED, f"{ASK} SIRAP\n{ASK}"),
        ("reverse PARIS", seen_step(None), "s: reverse PARIS\na:"),
    ],
)
def test_a_prompt_shows_answers_and_the_subtask(
    subtask: str, shown: SeenStep | None, prompt: str
) -> None:
    """A subtask that names nothing to do means the question; a step that failed is not shown."""
    assert render(ASKED, step(subtask, 1), (shown,) if shown else ()) == prompt


@given(
    question=st.text(max_size=2000),
    subtask=st.text(max_size=2000),
    answers=st.lists(st.text(max_size=500), max_size=6),
)
def test_a_prompt_always_fits_the_context(question: str, subtask: str, answers: list[str]) -> None:
    items = [seen_step(answer, subtask, number) for number, answer in enumerate(answers, start=1)]
    text = render(Question(text=question), step(subtask), items)
    assert text.isascii()
    assert len(text) < CONTEXT - MAX_TOKENS
    worker = next(iter(rehearsal_workers()))
    messages, notice = worker_messages(
        Question(text=question), step(subtask), items, worker, PROFILE, final=True
    )
    assert (messages, notice) == ((Message(role="user", content=text),), "")


@pytest.mark.parametrize(
    ("answer", "read"),
    [("paris", "PARIS"), (" Paris.\n", "PARIS"), ("12", "12"), ("", ""), ("é", ""), ("a b", "A B")],
)
def test_an_answer_is_normalized_to_one_line_in_upper_case(answer: str, read: str) -> None:
    assert clean_answer(answer) == read


def test_the_pool_contains_the_workers_with_their_cards() -> None:
    card = Card(strengths={"spelling": 0.97}, measured=True)
    workers = rehearsal_workers({"spelling": card})
    assert workers.names == NAMES
    assert workers["spelling"].card == card
    assert workers["geography"].card == Card()
    elsewhere = [worker.model for worker in rehearsal_workers(directory=Path("/d"))]
    assert elsewhere == [f"/d/{name}.gguf" for name in NAMES]
    for worker in workers:
        check_options(worker)
        assert worker.kind == "llama"
        assert worker.options["temperature"] == 0
        assert worker.price is not None
        assert worker.price.input == 0


def test_the_shipped_files_are_small() -> None:
    for name in NAMES:
        count = sum(prod(weight.shape) for weight in read_all_tensors(model_path(name)).values())
        assert count <= 2_000_000
    assert sum(model_path(name).stat().st_size for name in NAMES) <= 24e6


def test_an_environment_variable_replaces_the_shipped_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = (model_path("spelling"), players.model_path("conductor"))
    cards = read_worker_cards()
    monkeypatch.setenv("CONDUCTOR_LLM_REHEARSAL_DIR", "fresh")
    monkeypatch.chdir(tmp_path)
    paths = Path(rehearsal_workers()["spelling"].model), players.model_path("conductor")
    assert paths == tuple(tmp_path / "fresh" / name for name in ("spelling.gguf", "conductor.gguf"))
    assert read_worker_cards() == cards
    (tmp_path / "fresh").mkdir()
    (tmp_path / "fresh" / "cards.json").write_text('{"spelling": {"spelling": 0.5}}')
    assert read_worker_cards() == {"spelling": Card(strengths={"spelling": 0.5}, measured=True)}
    assert all(path.is_file() for path in shipped)
    monkeypatch.setenv("CONDUCTOR_LLM_REHEARSAL_DIR", "")
    assert (model_path("spelling"), players.model_path("conductor")) == shipped


def test_each_shipped_card_says_one_skill() -> None:
    named = {**{name: name for name in NAMES}, CHECKER: CHECKING, GENERALIST: ANYTHING}
    assert {name: tuple(card.strengths) for name, card in read_worker_cards().items()} == {
        name: (skill,) for name, skill in named.items()
    }


async def share_right(name: str, problems: tuple[Problem, ...]) -> float:
    """Return how many questions of one step a shipped worker answers rightly by itself.

    It is a share, and right is what is right to the letter.
    """
    async with Bank(model_path(name).parent) as bank:
        answers = [
            (await bank.ask(name, prompt_of(problem.question, ()))).text for problem in problems
        ]
    return sum(
        text == problem.answer for text, problem in zip(answers, problems, strict=True)
    ) / len(problems)


def single(seed: int, *skills: Skill) -> tuple[Problem, ...]:
    return draw_problems(60, seed, split="test", shapes={"single": 1.0}, checked=0.0, skills=skills)


@pytest.mark.parametrize("skill", [*SKILLS, UNSEEN])
def test_a_shipped_specialist_knows_its_skill(skill: Skill) -> None:
    assert asyncio.run(share_right(skill, single(11, skill))) >= 0.5


def test_the_shipped_generalist_is_mediocre() -> None:
    assert 0 < asyncio.run(share_right("generalist", single(12, *SKILLS))) <= 0.8


def test_a_shipped_specialist_refuses_what_it_cannot_do() -> None:
    worker = rehearsal_workers()["geography"]
    assert asyncio.run(refusals(worker, single(13, "chemistry", "spelling"))) >= 57


async def refusals(worker: Worker, problems: tuple[Problem, ...]) -> int:
    model = open_model(worker, environ={})
    try:
        answers = [
            (await reply(model, prompt_of(problem.question, ()))).text for problem in problems
        ]
    finally:
        await model.close()
    return answers.count(REFUSAL)
