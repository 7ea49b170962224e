"""The table of published questions: what is asked, shared and counted, and when a bound is kept."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from conductor_cli.core.chat import Chunk, Message, Request
from conductor_cli.core.plan import Step
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.usage import Usage
from conductor_cli.evals.outcomes import CaseOutcome, Evaluation
from conductor_cli.models.base import ScriptedModel, ScriptItem
from tests.cli.stage import says
from tests.evals.sample_outcomes import VERDICTS, used
from tests.servers import Loopback, SeenRequest, Wire, loopback
from training.planner import suites, suites_models, suites_table

SYSTEMS: Final = (
    "alone:larger",
    "alone:smaller",
    "alone:calculator",
    "by-suite",
    "vote",
    "moa",
    "conductor",
)
NUMBERS: Final = range(11, 17)  # Of the questions of each suite
needs_sandbox = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="bubblewrap is not installed"
)


def mbpp_row(number: int) -> dict[str, Any]:
    return {
        "text": f"Write a function that adds {number}.",
        "code": f"def add(x):\n    return x + {number}",
        "task_id": number,
        "test_setup_code": "",
        "test_list": [f"assert add(1) == {number + 1}"],
    }


ROWS: Final[dict[str, Callable[[int], dict[str, Any]]]] = {
    "gsm8k": lambda number: {"question": f"Apples: {number}?", "answer": f"#### {number}"},
    "mbpp": mbpp_row,
    "math500": lambda number: {
        "problem": f"Solve for {number}.",
        "answer": f"{number}",
        "unique_id": f"algebra/{number}",
    },
    "mmlu-pro": lambda number: {
        "question_id": number,
        "question": f"Which one is {number}?",
        "options": [f"number {number}", "none"],
        "answer": "A",
    },
}


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """Six questions of each suite, and one of MBPP that is not of its test split."""
    directory = tmp_path / "questions"
    directory.mkdir()
    for suite, row in ROWS.items():
        rows = [row(number) for number in NUMBERS]
        if suite == "mbpp":
            rows.append(row(600))
        lines = [json.dumps(fields) + "\n" for fields in rows]
        (directory / f"{suite}.jsonl").write_text("".join(lines))
    return directory


def right_answer(text: str) -> str:
    """What a good worker answers to a prompt with one of the questions."""
    if "adds" in text:
        number = re.findall(r"adds (\d+)", text)[0]
        return f"```python\ndef add(x):\n    return x + {number}\n```"
    if "Which one" in text:
        return "Answer: A"
    number = re.findall(r"(?:Apples: |Solve for )(\d+)", text)[0]
    return f"\\boxed{{{number}}}"


async def script(request: SeenRequest, wire: Wire) -> None:
    """The planner takes the first worker; the smaller one is always wrong."""
    model = request.json["model"]
    text = request.json["messages"][-1]["content"]
    answers = {
        "planner": "A | - | Answer it.",
        "larger": right_answer(text) if model == "larger" else "",
        "smaller": "\\boxed{-1}",
        "calculator": "```python\nprint(40 + 2)\n```",
    }
    await says(answers[model])(request, wire)


@pytest.fixture
def server() -> Iterator[Loopback]:
    with loopback(script) as opened:
        yield opened


@pytest.fixture
def table(
    tmp_path: Path, questions: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., int]:
    """The command, with workers behind a server."""
    lines = [f'[planner]\nmodel = "{server.url}/v1#planner"', "[limits]\nparallel = 1"]
    workers = (("larger", 512, ""), ("smaller", 512, ""), ("calculator", 384, 'tags = ["program"]'))
    for name, limit, extra_keys in workers:
        lines.append(
            f'[workers.{name}]\nkind = "openai-compatible"\nbase_url = "{server.url}/v1"\n'
            f'model = "{name}"\ntemperature = 0.0\nmax_tokens = {limit}\nprice = {{ input = 0, output = 0 }}\n{extra_keys}'
        )
    settings = tmp_path / "settings.toml"
    settings.write_text("\n".join(lines) + "\n")

    def run(count: int, *words: str) -> int:
        paths = {"models": tmp_path, "questions": questions, "settings": settings}
        paths |= {"out": tmp_path / "out", "page": tmp_path / "page.md"}
        given = [f"--{name}={path}" for name, path in paths.items()]
        options = [f"--n={count}", "--calibration=2", *words]
        monkeypatch.setattr(sys, "argv", ["suites", *given, *options])
        return suites.main()

    return run


def posts(server: Loopback) -> int:
    return sum(request.method == "POST" for request in server.requests)


def prompts_of(server: Loopback, model: str) -> list[str]:
    """The prompts that a model got in chat requests."""
    prompts = []
    for request in server.requests:
        if request.method == "POST" and request.json["model"] == model:
            prompts.append(request.json["messages"][-1]["content"])
    return prompts


def answers_in(directory: Path) -> list[CaseOutcome]:
    return list(Evaluation(directory / "out/answers").outcomes())


@needs_sandbox
def test_a_question_that_was_answered_is_never_asked_again(
    table: Callable[..., int], server: Loopback, tmp_path: Path
) -> None:
    assert table(1) == 0
    once = posts(server)
    assert table(1) == 0
    assert posts(server) == once
    before = answers_in(tmp_path)
    assert table(2) == 0
    assert answers_in(tmp_path)[: len(before)] == before
    assert len(answers_in(tmp_path)) == 2 * len(before) == 2 * 4 * len(SYSTEMS)
    first = [outcome.system for outcome in answers_in(tmp_path)[: 4 * 5]]
    assert not {"vote", "moa"} & set(first), "the dearest ways come last"


@needs_sandbox
def test_systems_share_the_answer_to_the_bare_question(
    table: Callable[..., int], server: Loopback, tmp_path: Path
) -> None:
    """`alone`, the worker by card, the proposal of a mixture and a plan of one step ask once."""
    assert table(1) == 0
    case = Evaluation(tmp_path / "out/answers").cases()[0]
    bare = [prompt for prompt in prompts_of(server, "larger") if prompt == case.question]
    assert len(bare) == 1 + 5, "one greedy answer and five samples"
    by_system = {
        outcome.system: outcome for outcome in answers_in(tmp_path) if outcome.case == case.id
    }
    assert by_system["conductor"].answer == by_system["alone:larger"].answer
    assert by_system["conductor"].usage.tokens > by_system["alone:larger"].usage.tokens


@needs_sandbox
def test_cards_come_from_questions_that_are_in_no_table(
    table: Callable[..., int], tmp_path: Path
) -> None:
    assert table(4) == 0
    calibration = Evaluation(tmp_path / "out/calibration")
    measured = {outcome.case for outcome in calibration.outcomes()}
    assert len(measured) == 2 * 4
    assert not measured & {outcome.case for outcome in answers_in(tmp_path)}
    page = (tmp_path / "page.md").read_text()
    assert "`larger`: larger, 512 tokens an answer; card: math 1.00, code 1.00" in page
    assert "`smaller`: smaller, 512 tokens an answer; card: math 0.00, code 0.00" in page


@needs_sandbox
def test_a_program_writer_answers_with_what_its_program_prints(
    table: Callable[..., int], tmp_path: Path
) -> None:
    assert table(1) == 0
    answers = {
        outcome.answer for outcome in answers_in(tmp_path) if outcome.system == "alone:calculator"
    }
    assert answers == {"42"}


@needs_sandbox
def test_the_table_of_what_is_stored_is_written_without_a_question(
    table: Callable[..., int], server: Loopback, tmp_path: Path
) -> None:
    assert table(1) == 0
    once = posts(server)
    page = tmp_path / "page.md"
    written = page.read_text()
    page.unlink()
    assert table(0) == 0
    assert posts(server) == once
    assert page.read_text() == written


@pytest.mark.parametrize("count", [-1, 26])
def test_no_more_questions_are_asked_than_the_verdict_takes(
    count: int, table: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert table(count) == 1
    assert f"--n {count} is not from 0 to 25" in capsys.readouterr().err


@needs_sandbox
def test_other_workers_need_another_directory(
    table: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert table(1) == 0
    settings = tmp_path / "settings.toml"
    settings.write_text(settings.read_text().replace("temperature = 0.0", "temperature = 0.1"))
    assert table(1) == 1
    assert "name another directory: --out DIR" in capsys.readouterr().err


def test_a_missing_file_is_named_with_where_it_is(
    table: Callable[..., int], questions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (questions / "math500.jsonl").unlink()
    assert table(1) == 1
    problem = capsys.readouterr().err
    assert f"{questions} has no math500.jsonl or math500.parquet" in problem
    assert "HuggingFaceH4/MATH-500" in problem


def test_only_the_test_split_of_mbpp_is_asked(questions: Path) -> None:
    drawn = suites.draw_questions(questions, 1, 2)
    names = [case.id for case in (*drawn.calibration, *drawn.asked) if case.id.startswith("mbpp")]
    assert sorted(names) == [f"mbpp/{number}" for number in NUMBERS]


def test_the_first_questions_are_the_same_however_many_are_asked(questions: Path) -> None:
    drawn = suites.draw_questions(questions, 1, 2)
    kinds = [case.id.partition("/")[0] for case in drawn.asked]
    assert kinds == [*suites.SLICES] * 4
    assert suites.draw_questions(questions, 1, 2) == drawn
    assert suites.draw_questions(questions, 2, 2) != drawn


def test_more_questions_for_the_cards_leave_those_of_the_table(
    questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suites, "CALIBRATION", 1)
    monkeypatch.setattr(suites, "QUESTIONS", 2)
    few = suites.draw_questions(questions, 1, 1)
    more = suites.draw_questions(questions, 1, 3)
    assert more.asked == few.asked
    assert len(more.calibration) == 3 * len(few.calibration)
    assert set(few.calibration) < set(more.calibration)
    assert not set(more.calibration) & set(more.asked)


REQUEST: Final = Request(messages=(Message(role="user", content="How many?"),))


async def chunks_from(model: Any, request: Request) -> list[Chunk]:
    return [chunk async for chunk in model.stream(request)]


@needs_sandbox
def test_a_program_that_prints_nothing_says_so_and_keeps_its_tokens() -> None:
    inner = ScriptedModel([["```python\nx = 1\n```"]])
    chunks = asyncio.run(chunks_from(suites_models.ProgramWriter(inner), REQUEST))
    assert "".join(chunk.text for chunk in chunks) == suites_models.NOTHING_PRINTED
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.tokens_out == 1
    assert inner.requests[0].messages[-1].content.startswith("How many?\n\nWrite a Python program")


ADDING: Final = (
    "Write a function that adds 2.\n\nassert add(1) == 3\nassert add(2) == 4\nassert that it works"
)


def code_block(value: str) -> str:
    return f"```python\ndef add(x):\n    return {value}\n```"


@needs_sandbox
def test_a_writer_of_code_repairs_it_until_the_stated_tests_pass() -> None:
    inner = ScriptedModel([[code_block("1 + 2")], [code_block("x + 2")]])
    request = Request(messages=(Message(role="user", content=ADDING),), temperature=0.0)
    chunks = asyncio.run(chunks_from(suites_models.RepairingWriter(inner), request))
    assert "".join(chunk.text for chunk in chunks) == code_block("x + 2")
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.tokens_out == 2
    first, second = inner.requests
    assert first.messages[-1].content == f"{ADDING}\n\n{suites_models.CODE_RULE}"
    told = second.messages[-1].content
    assert told.startswith("`assert add(2) == 4` fails: `add(2)` gives `3`.\nWrite the whole code")
    assert second.messages[-2].content == code_block("1 + 2")


@needs_sandbox
def test_a_writer_of_code_answers_with_what_passes_most_tests() -> None:
    values = ("1 / 0", "3", "x + 1 / 0", "4 - x / 0")
    inner = ScriptedModel([[code_block(value)] for value in values])
    request = Request(messages=(Message(role="user", content=ADDING),))
    chunks = asyncio.run(chunks_from(suites_models.RepairingWriter(inner), request))
    assert "".join(chunk.text for chunk in chunks) == code_block("3")
    assert len(inner.requests) == suites_models.ATTEMPTS
    told = [request.messages[-1].content for request in inner.requests[1:]]
    assert told[0].startswith("`assert add(1) == 3` fails: ZeroDivisionError: division by zero")


def test_a_writer_of_code_declines_a_task_without_tests() -> None:
    inner = ScriptedModel([])
    chunks = asyncio.run(chunks_from(suites_models.RepairingWriter(inner), REQUEST))
    assert [chunk.text for chunk in chunks] == [suites_models.NO_TESTS]
    assert not inner.requests


@needs_sandbox
def test_workers_that_would_share_answers_are_refused(
    table: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "settings.toml"
    text = settings.read_text()
    larger = text[text.index("[workers.larger]") : text.index("[workers.smaller]")]
    coder = larger.replace("workers.larger", "workers.coder") + 'tags = ["tests"]\n'
    settings.write_text(text + coder)
    assert table(1) == 1
    assert (
        "coder has the model and the options of a worker with other tags" in capsys.readouterr().err
    )


def test_a_reply_tells_processor_time_whatever_the_clock_says() -> None:
    script: list[ScriptItem] = [
        "It is ",
        0.2,
        Chunk(text="4", usage=Usage(calls=1, seconds=9.0), finish="stop"),
    ]
    chunks = asyncio.run(
        chunks_from(suites_models.ProcessorTimed(ScriptedModel([script])), REQUEST)
    )
    assert "".join(chunk.text for chunk in chunks) == "It is 4"
    assert chunks[-1].usage is not None
    assert 0 < chunks[-1].usage.seconds < 0.2


# The table and its verdict


def outcomes_of(suite: str, signs: Mapping[str, str], tokens: int = 10) -> list[CaseOutcome]:
    """Outcomes of each system, `+` for a right answer, `-` for a wrong and `!` for a failed one."""
    made = []
    for system in SYSTEMS:
        marks = signs.get(system.rpartition(":")[2], signs["others"])
        used_tokens = tokens if system == "conductor" else 100
        for number, mark in enumerate(marks):
            made.append(
                CaseOutcome(
                    system=system,
                    case=f"{suite}/{number}",
                    verdict=VERDICTS[mark],
                    usage=used(used_tokens),
                    plan=(Step(worker="larger", subtask="Do it."),),
                    steps=1,
                )
            )
    return made


def made_table(wanted: int, made: list[CaseOutcome], rivals: int | None = None) -> str:
    digests = dict.fromkeys(("gsm8k", "mbpp"), "1" * 64)
    needed = suites_table.Needed(answers=wanted, rivals=wanted if rivals is None else rivals)
    return suites_table.table_text(made, SYSTEMS, digests, needed, ["a note"])


GAIN: Final = {"conductor": "+" * 12, "others": "+" * 6 + "-" * 6}


def test_a_bound_is_kept_where_all_of_its_conditions_hold() -> None:
    made = [*outcomes_of("gsm8k", GAIN), *outcomes_of("mbpp", GAIN)]
    text = made_table(12, made)
    assert "**The bound is kept.**" in text
    assert "| gsm8k | `alone:larger` | 6 of 12 | 12 | +50.0 |" in text
    assert ": **no**" not in text


@pytest.mark.parametrize(
    ("worse", "tokens", "condition"),
    [
        ({"conductor": "-" * 12, "others": "+" + "-" * 11}, 10, "mbpp: at least the best worker"),
        (GAIN, 100, "all: fewer tokens than moa: 100 and 100 a question"),
    ],
    ids=["one suite is below", "not fewer tokens"],
)
def test_a_bound_is_not_kept_where_one_condition_fails(
    worse: dict[str, str], tokens: int, condition: str
) -> None:
    made = [*outcomes_of("gsm8k", GAIN, tokens), *outcomes_of("mbpp", worse, tokens)]
    text = made_table(12, made)
    assert "**The bound is not kept.**" in text
    [line] = [line for line in text.splitlines() if line.startswith(f"- {condition}")]
    assert line.endswith(": **no**")


def test_a_gain_that_may_be_chance_keeps_no_bound() -> None:
    small = {"conductor": "++-", "others": "+--"}
    made = [*outcomes_of("gsm8k", small), *outcomes_of("mbpp", small)]
    assert "**The bound is not kept.**" in made_table(3, made)


def test_there_is_no_verdict_before_the_number_of_questions_that_was_fixed() -> None:
    made = [*outcomes_of("gsm8k", GAIN), *outcomes_of("mbpp", GAIN)]
    text = made_table(25, made)
    assert "**No verdict yet**: 12 of the 25 questions of each suite" in text
    assert "The bound is" not in text
    assert "a suite has no question" in made_table(25, outcomes_of("gsm8k", GAIN))


def test_a_question_counts_only_where_every_system_has_answered_it() -> None:
    made = [
        *outcomes_of("gsm8k", {**GAIN, "vote": "+" * 11 + "!"}),
        *outcomes_of("mbpp", GAIN),
    ]
    text = made_table(12, made)
    assert "### gsm8k: 11 questions" in text
    assert "### all: 23 questions" in text
    assert "runs that failed and are in no figure: 1" in text


def test_plans_are_compared_before_votes_are_made() -> None:
    rivals = {"vote": "!" * 12, "moa": "!" * 12}
    made = [*outcomes_of("gsm8k", {**GAIN, **rivals}), *outcomes_of("mbpp", {**GAIN, **rivals})]
    text = made_table(12, made)
    assert "**No verdict yet**: a suite has no question that every system has answered." in text
    assert "| all | `alone:larger` | 12 of 24 | 24 | +50.0 |" in text
    assert "### gsm8k: 12 questions" in text.partition("## Without the vote")[2]


def test_a_bound_that_right_answers_break_is_not_kept_whatever_a_vote_would_answer() -> None:
    """The vote and the mixture take most of the time, and count by their tokens alone."""
    rivals = {"vote": "+" + "!" * 11, "moa": "+" + "!" * 11}
    even = {"conductor": "+" * 6 + "-" * 6, "others": "+" * 6 + "-" * 6, **rivals}
    made = [*outcomes_of("gsm8k", even), *outcomes_of("mbpp", even)]
    text = made_table(12, made)
    assert "**The bound is not kept.** At 12 questions of each suite" in text
    assert "They have answered 2 of the 24 questions" in text
    assert "- gsm8k: at least the best worker alone: 6 and 6 of 12 (alone:larger): **yes**" in text
    assert "- all: fewer tokens than vote: 10 and 100 a question: **yes**" in text
    assert "**No verdict yet**" in made_table(25, made)


def test_tokens_are_not_compared_before_a_vote_is_made() -> None:
    rivals = {"vote": "!" * 12, "moa": "!" * 12}
    even = {"conductor": "+" * 6 + "-" * 6, "others": "+" * 6 + "-" * 6, **rivals}
    text = made_table(12, [*outcomes_of("gsm8k", even), *outcomes_of("mbpp", even)])
    assert "**The bound is not kept.** At 12 questions of each suite" in text
    assert "They have not answered questions of each suite, so tokens are not compared." in text
    assert "fewer tokens" not in text.partition("## Plans")[0]


def test_tokens_may_be_compared_on_fewer_questions() -> None:
    rivals = {"vote": "++" + "!" * 10, "moa": "++" + "!" * 10}
    made = [*outcomes_of("gsm8k", {**GAIN, **rivals}), *outcomes_of("mbpp", {**GAIN, **rivals})]
    text = made_table(12, made, rivals=2)
    assert "**The bound is kept.**\nTokens are compared on 4 questions.\n" in text
    assert "- gsm8k: at least the best worker alone: 12 and 6 of 12 (alone:larger)" in text
    few = made_table(12, made, rivals=3)
    assert "**No verdict yet**: the vote and the mixture have answered 2 of the 3 questions" in few


def test_the_best_worker_of_each_suite_is_the_one_that_calibration_found() -> None:
    pool = Pool(workers=tuple(Worker(name=name, kind="command") for name in ("ann", "bob")))
    calibrated = []
    for suite, right in (("gsm8k", "ann"), ("mbpp", "bob"), ("math500", "bob")):
        for name in pool.names:
            verdict = VERDICTS["+" if name == right else "-"]
            calibrated.append(
                CaseOutcome(system=f"alone:{name}", case=f"{suite}/1", verdict=verdict)
            )
    best = suites.best_by_suite(pool, calibrated)
    names = {suite: worker.name for suite, worker in best.items()}
    # Nobody was asked MMLU-Pro, so the one that is right more often answers it
    assert names == {"gsm8k": "ann", "mbpp": "bob", "math500": "bob", "mmlu-pro": "bob"}


def test_the_table_takes_the_place_between_its_marks() -> None:
    page = f"# Title\n\n{suites_table.BEGIN}\nold\n{suites_table.END}\n\nAfter.\n"
    updated = suites_table.insert_table(page, "new\n")
    assert updated.startswith(f"# Title\n\n{suites_table.BEGIN}\n\nnew\n")
    assert updated.endswith(f"{suites_table.END}\n\nAfter.\n")
    assert suites_table.insert_table(updated, "new\n") == updated
    assert "old" not in updated


def test_a_cut_answer_is_counted() -> None:
    made = [replace(outcome, cut_off=True) for outcome in outcomes_of("gsm8k", GAIN)]
    text = made_table(12, [*made, *outcomes_of("mbpp", GAIN)])
    assert "| `vote` | 6 | 25.4-74.6 | 100 | 0.0 | 1.0 | 12 |" in text
