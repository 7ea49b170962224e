"""The models behind the table of the suites: each tells its processor time, and some run programs.

A worker with the tag `program` answers with what the Python program prints that its model writes.
One with the tag `tests` writes Python, runs the tests that its task states, and repairs what fails.
"""

from __future__ import annotations

import ast
import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from conductor_cli.core.chat import Chunk, Message, Request
from conductor_cli.core.errors import ConfigError
from conductor_cli.core.usage import Usage
from conductor_cli.evals.program_text import find_program
from conductor_cli.models.base import Features, Model
from conductor_cli.models.response_cache import model_identity
from conductor_cli.run import Orchestra
from training.planner.world.models import PROGRAM_RULE, find_program_text
from training.planner.world.programs import run_program

PROGRAM_TAG: Final = "program"
NOTHING_PRINTED: Final = "The program printed nothing."

TESTS_TAG: Final = "tests"
CODE_RULE: Final = "Answer with Python code alone, in one block."
NO_TESTS: Final = "The task states no tests, so no code was written."
ATTEMPTS: Final = 4  # The first one, and three repairs
REPAIR_TEMPERATURE: Final = 0.7  # A greedy repair is often the same code
PASSED: Final = "the test passes"  # Printed behind a test that raises nothing


class WrappedModel:
    """Another model, for a class that changes its replies."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def features(self) -> Features:
        return self._model.features

    async def close(self) -> None:
        await self._model.close()


class ProcessorTimed(WrappedModel):
    """A model whose replies say how many seconds of processors they took, not of a clock.

    Calls are made one after the other, so what this process takes meanwhile, with the programs that
    it starts, is the call's.
    """

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        before = processor_seconds()
        async with aclosing(self._model.stream(request)) as chunks:
            async for chunk in chunks:
                if chunk.usage is None:
                    yield chunk
                    continue
                # A call without seconds would be given those of the clock
                seconds = max(processor_seconds() - before, 0.001)
                yield replace(chunk, usage=replace(chunk.usage, seconds=round(seconds, 3)))


def processor_seconds() -> float:
    """Return what this process and the programs that it has started took of processors."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def with_rule(request: Request, rule: str) -> Request:
    """Return a request whose last message ends with a rule."""
    *before, last = request.messages
    task = Message(role=last.role, content=f"{last.content}\n\n{rule}")
    return replace(request, messages=(*before, task))


class ProgramWriter(WrappedModel):
    """A model that is asked for a Python program, and answers with what that prints."""

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        written = ""
        async with aclosing(self._model.stream(with_rule(request, PROGRAM_RULE))) as chunks:
            async for chunk in chunks:
                written += chunk.text
                if chunk.usage is None:
                    yield Chunk()  # a sign of life
                    continue
                printed = await asyncio.to_thread(run_program, find_program_text(written))
                yield replace(chunk, text=printed or NOTHING_PRINTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Code that a model wrote: the text around it, how many tests it passes, and what fails."""

    text: str
    passed: int
    failure: str = ""


class RepairingWriter(WrappedModel):
    """A model that writes Python, runs the tests that its task states, and repairs what fails.

    It answers with the attempt that passes most tests, the first of equals. It is for tasks that
    state tests, and says so of any other without a call of its model.
    """

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        tests = stated_tests(request.messages[-1].content)
        if not tests:
            yield Chunk(text=NO_TESTS, usage=Usage(cost=Decimal(0)), finish="stop")
            return
        wanted = with_rule(request, CODE_RULE)
        asked = wanted
        usage = Usage()
        attempts = list[Attempt]()
        for number in range(ATTEMPTS):
            written = ""
            async with aclosing(self._model.stream(asked)) as chunks:
                async for chunk in chunks:
                    written += chunk.text
                    if chunk.usage is None:
                        yield Chunk()  # a sign of life
                        continue
                    usage += chunk.usage
                    last = chunk
            attempt = await asyncio.to_thread(try_code, written, tests)
            attempts.append(attempt)
            if not attempt.failure:
                break
            asked = repair_request(wanted, attempt, number)
        best = max(attempts, key=lambda attempt: attempt.passed)
        yield replace(last, text=best.text, usage=usage)


def stated_tests(task: str) -> list[str]:
    """Return the lines of a task that are tests: `assert add(1) == 2`."""
    tests = list[str]()
    for line in task.splitlines():
        if line.startswith("assert ") and _is_statement(line):
            tests.append(line)
    return tests


def _is_statement(line: str) -> bool:
    try:
        ast.parse(line)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True


def try_code(text: str, tests: Sequence[str]) -> Attempt:
    """Run tests against the code in a text, in a sandbox, and say the first thing that fails."""
    code = find_program(text).code
    passed = 0
    failure = ""
    for test in tests:
        output = run_program(f"{code}\n{test}\nprint({PASSED!r})").splitlines()
        if output and output[-1] == PASSED:
            passed += 1
        elif not failure:
            failure = describe_failure(code, test, output[-1] if output else "")
    return Attempt(text=text, passed=passed, failure=failure)


def describe_failure(code: str, test: str, error: str) -> str:
    """Return why a test fails: what its left side gives instead, or the error that it raises."""
    condition = ast.parse(test).body[0]
    if error.startswith("AssertionError") and isinstance(condition, ast.Assert):
        compared = condition.test
        if isinstance(compared, ast.Compare):
            left = ast.unparse(compared.left)
            given = run_program(f"{code}\nprint(repr({left}))").splitlines()
            return f"`{test}` fails: `{left}` gives `{given[-1] if given else ''}`."
    return f"`{test}` fails: {error}"


def repair_request(wanted: Request, attempt: Attempt, number: int) -> Request:
    """Return the request for the next attempt, which sees the one before it and its failure."""
    told = f"{attempt.failure}\nWrite the whole code again so that all tests pass."
    messages = (
        *wanted.messages,
        Message(role="assistant", content=attempt.text),
        Message(role="user", content=told),
    )
    return replace(wanted, messages=messages, temperature=REPAIR_TEMPERATURE, seed=number)


def with_measured_models(orchestra: Orchestra) -> Orchestra:
    """Return an orchestra whose models tell processor time, and whose writers run programs.

    Raises `ConfigError` where a worker cannot be opened: the table would be of others. And where
    two workers with other tags have the same model and options: equal requests are answered once,
    so one would have the other's answers.
    """
    team = orchestra.team
    for name, failure in team.unavailable.items():
        raise ConfigError(f"{name} cannot be asked: {failure.message}", hint=failure.hint)
    models = dict[str, Model]()
    tags_of = dict[str, frozenset[str]]()
    for worker in team.pool:
        tags = frozenset(worker.tags)
        if tags_of.setdefault(model_identity(worker), tags) != tags:
            problem = f"{worker.name} has the model and the options of a worker with other tags"
            raise ConfigError(problem, hint="give it another max_tokens")
        models[worker.name] = ProcessorTimed(_with_programs(team.workers[worker.name], tags))
    planner = None
    if team.model is not None:
        planner = ProcessorTimed(team.model)
    return replace(orchestra, team=replace(team, workers=models, model=planner))


def _with_programs(model: Model, tags: frozenset[str]) -> Model:
    """Return a model that runs programs as its worker's tags say."""
    if PROGRAM_TAG in tags:
        return ProgramWriter(model)
    if TESTS_TAG in tags:
        return RepairingWriter(model)
    return model
