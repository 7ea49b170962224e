"""Real models of the planner's family, where a directory has them; `make real` runs these tests.

`REAL_MODELS` names the directory; CONTRIBUTING.md says which files.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from conductor_cli.app.opening import OpeningRequest, open_orchestra
from conductor_cli.core.chat import Chunk, Message, Request, Tool
from conductor_cli.core.errors import PlanError
from conductor_cli.core.events import Mode
from conductor_cli.core.plan import Plan, PlanRules, check_plan, unread_steps
from conductor_cli.core.pool import Card, Limits, Pool, Worker
from conductor_cli.core.profile import BRIEF_PROFILE, PROMPTED, Profile
from conductor_cli.core.prompts import plan_format_context, planner_request
from conductor_cli.core.question import Question
from conductor_cli.core.trace import Trace
from conductor_cli.models.base import NO_FEATURES
from conductor_cli.models.llama.adapter import Llama
from conductor_cli.models.llama.loading import LlamaOptions
from conductor_cli.run import Orchestra, RunSpec, Team, start_run
from tests.core.plan_formats.reading import plan_in
from tests.models.kit import calls, chunks_of, text, used
from training.planner import suites, suites_models


class RealModel(NamedTuple):
    """A file that its makers publish on the hub, by its repository there."""

    repository: str
    file: str
    sha256: str


SMALL: Final = RealModel(
    "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
)
LARGER: Final = RealModel(
    "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
    "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
)
DIRECTORY: Final = os.environ["REAL_MODELS"]
pytestmark = pytest.mark.timeout(1800)
BOTH = pytest.mark.parametrize("model", [SMALL, LARGER], ids=["0.5B", "1.5B"])

POOL: Final = Pool(
    workers=(
        Worker(name="otter", kind="openai", card=Card(strengths={"code": 0.4, "facts": 0.9})),
        Worker(name="heron", kind="openai", card=Card(strengths={"code": 0.9, "facts": 0.3})),
        Worker(name="raven", kind="openai", card=Card(strengths={"code": 0.5, "facts": 0.5})),
    )
)
EASY: Final = ("Which port does HTTPS use?", "What is 19 * 43?", "Who wrote Hamlet?")


def path_of(model: RealModel) -> Path:
    path = Path(DIRECTORY) / model.file
    if not path.is_file():
        pytest.skip(f"{model.file} of {model.repository} is not in {DIRECTORY}")
    return path


def request_for(
    question: str, profile: Profile, mode: Mode = "auto", pool: Pool = POOL, steps: int = 5
) -> Request:
    rules = PlanRules(workers=pool.names, steps=steps)
    context = plan_format_context(profile, pool, rules, mode, constrained=True)
    return planner_request(Question(text=question), pool, profile, context)


def answers(model: RealModel, *requests: Request, **options: object) -> list[list[Chunk]]:
    """The replies to requests, asked one after the other of one loaded model."""

    async def go() -> list[list[Chunk]]:
        llama = Llama(path_of(model), LlamaOptions(context=4096, **options))  # type: ignore[arg-type]
        try:
            return [await chunks_of(llama, request) for request in requests]
        finally:
            await llama.close()

    return asyncio.run(go())


@BOTH
def test_the_file_is_the_published_one(model: RealModel) -> None:
    with path_of(model).open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == model.sha256


@BOTH
@pytest.mark.parametrize("profile", [PROMPTED, BRIEF_PROFILE], ids=["prompted", "brief"])
def test_every_plan_under_the_grammar_is_valid(model: RealModel, profile: Profile) -> None:
    """A model that was not trained for a profile may write on until its limit of tokens.

    What is read of that is no plan, and never a shorter one.
    """
    questions = ("Which port does HTTPS use?", "Write a CSV parser in Go, and have it reviewed.")
    for question in questions:
        (chunks,) = answers(model, request_for(question, profile))
        rules = PlanRules(workers=POOL.names)
        context = plan_format_context(profile, POOL, rules, "auto", constrained=True)
        if chunks[-1].finish == "length":
            with pytest.raises(PlanError):
                plan_in("native", text(chunks), context)
            continue
        plan = plan_in("native", text(chunks), context)
        assert isinstance(plan, Plan)
        check_plan(plan, rules)
        assert chunks[-1].finish == "stop"


def test_easy_questions_take_one_step() -> None:
    replies = answers(LARGER, *(request_for(question, PROMPTED) for question in EASY))
    one_step = [text(chunks).count("\n") == 0 for chunks in replies]
    assert sum(one_step) >= 2, [text(chunks) for chunks in replies]


@BOTH
def test_a_prefix_on_disk_gives_the_same_plan(model: RealModel, tmp_path: Path) -> None:
    request = request_for("Name a sorting algorithm that is stable.", PROMPTED)
    (first,) = answers(model, request, cache=tmp_path)
    (again,) = answers(model, request, cache=tmp_path)
    assert used(first).tokens_cached == 0
    assert used(again).tokens_cached > used(again).tokens_in / 2
    assert text(again) == text(first)


@BOTH
def test_mini_names_a_worker_by_shares_without_a_habit(model: RealModel) -> None:
    (chunks, empty) = answers(
        model,
        request_for("Write a Rust function that reverses a list.", PROMPTED, "mini"),
        request_for("-", PROMPTED, "mini"),
    )
    shares = chunks[-1].choice_shares
    even = empty[-1].choice_shares
    assert shares is not None
    assert even is not None
    assert sum(shares.values()) == pytest.approx(1.0)
    assert list(even.values()) == pytest.approx([1 / 3] * 3, abs=0.03)


@BOTH
def test_an_answer_keeps_to_a_grammar(model: RealModel) -> None:
    grammar = r'root ::= "{\"port\": " [0-9]{1,5} "}"'
    (chunks,) = answers(
        model,
        Request(
            messages=(Message(role="user", content="Which port does HTTPS use? Answer as JSON."),),
            max_tokens=24,
            grammar=grammar,
        ),
    )
    assert text(chunks).startswith('{"port": ')
    assert text(chunks).endswith("}")


@BOTH
def test_a_tool_is_called_with_arguments_or_the_question_is_answered(model: RealModel) -> None:
    weather = Tool(
        name="weather",
        description="The weather of a city now.",
        parameters={
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    )
    question = Message(role="user", content="Call the tool weather for the city of Oslo.")
    (chunks,) = answers(model, Request(messages=(question,), max_tokens=80, tools=(weather,)))
    assert text(chunks).strip() or calls(chunks)
    assert {call.name for call in calls(chunks)} <= {"weather"}


class Answering:
    """A worker that answers without a model, so that only planning takes time."""

    features = NO_FEATURES

    async def stream(self, _: Request) -> AsyncGenerator[Chunk, None]:
        yield Chunk(text="Done.", finish="stop")

    async def close(self) -> None:
        """Nothing is open."""


def test_a_run_pays_for_no_step_that_the_answer_does_not_read() -> None:
    async def go() -> Trace:
        llama = Llama(path_of(LARGER), LlamaOptions(context=4096))
        team = Team(
            model=llama,
            pool=POOL,
            workers={name: Answering() for name in POOL.names},
            constrained=True,
        )
        question = Question(text="Compare Redis, Memcached and Valkey, and recommend one.")
        run = start_run(Orchestra(team=team, limits=Limits(steps=5)), RunSpec(question=question))
        try:
            async for _ in run:
                pass
        finally:
            await llama.close()
        return run.trace

    trace = asyncio.run(go())
    assert unread_steps([record.step for record in trace.steps]) == ()
    assert trace.answer == "Done."


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_the_table_of_suites_has_the_planner_of_this_package_and_a_writer_of_programs(
    tmp_path: Path,
) -> None:
    for model in (SMALL, LARGER):
        path_of(model)
    settings = suites.settings_of(suites.SETTINGS, Path(DIRECTORY), tmp_path)
    suites.install_planner(settings, Path(DIRECTORY))
    question = Message(role="user", content="What is 1,234 times 5,678?")

    async def go() -> tuple[Team, list[Chunk]]:
        opened = await open_orchestra(OpeningRequest(settings=settings))
        try:
            team = suites_models.with_measured_models(opened.orchestra).team
            request = Request(messages=(question,), max_tokens=96, temperature=0.0)
            return team, await chunks_of(team.workers["calculator"], request)
        finally:
            await opened.close()

    team, chunks = asyncio.run(go())
    assert team.name.startswith("qwen2.5-coder-0.5b-q4_k_m")
    assert "conductor-0.5b" in team.name
    assert team.profile.name == "kinds"
    assert text(chunks).replace(",", "") == "7006652"
    assert used(chunks).seconds > 0
