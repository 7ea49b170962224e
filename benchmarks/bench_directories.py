"""Whether the tools over an attached directory find what stands in one place of it.

`bench_directories.py UNPACKED [--model FILE.gguf] [--questions N]` asks ten questions about each
repository of `directory_questions.toml`. UNPACKED has the unpacked sources that it names, as `pip
download --no-deps --no-binary :all:` and `tar` make them. Without a model a script plays the
worker: it searches for the question as it is, reads around the first six passages that are found,
searches for the constants in them that something is set to, and answers with what it has read. So
it measures the tools, not a model. With a model the answer is held to a regular expression.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conductor_cli.app.attach import Attacher
from conductor_cli.config.settings import load_settings
from conductor_cli.core.chat import Chunk, Request, ToolCallDelta
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.pool import Limits, Pool, Timeouts, Worker
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import File, Question, shorten
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import Usage
from conductor_cli.models.base import Model, ScriptedModel
from conductor_cli.models.catalog import open_model
from conductor_cli.run import Orchestra, RunSpec, Team, start_run
from conductor_cli.state.opening import open_state
from conductor_cli.system.known_secrets import KNOWN_SECRETS

REPOSITORIES: Final = Path(__file__).with_name("directory_questions.toml")
HOME: Final = Path(__file__).resolve().parents[1]
CONTEXT: Final = 8192  # Tokens of a model that is measured
DOUBLE_CONTEXT: Final = 32_768
MAX_SHOWN: Final = 300  # Characters of a call and of an answer that are printed
SECONDS: Final = 3600.0  # For one answer: a busy machine is slow

MAX_READS: Final = 6  # Places that the script reads
MAX_CONSTANTS: Final = 3  # Constants that it then searches for
READ_LINES: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one question was answered."""

    is_right: bool
    calls: int
    tokens: int
    seconds: float
    answer: str


class ScriptedReader:
    """A worker without a model: it searches, reads, and answers with what it has read."""

    def __init__(self, question: str) -> None:
        self._question = question

    def reply(self, request: Request) -> list[Any]:
        """Return the next reply of the script."""
        results = [message.content for message in request.messages if message.role == "tool"]
        if not results:
            return _call("search_text", {"pattern": self._question}, 0)
        places = _passages(results[0])[:MAX_READS]
        if len(results) <= len(places):
            path, line = places[len(results) - 1]
            start = max(line - READ_LINES // 2, 1)
            arguments = {"path": path, "start": start, "lines": READ_LINES}
            return _call("read_file", arguments, len(results))
        constants = _constants("\n".join(results[: len(places) + 1]))[:MAX_CONSTANTS]
        followed = len(results) - len(places) - 1
        if followed < len(constants):
            return _call("search_text", {"pattern": constants[followed]}, len(results))
        return ["\n".join(results[1:])]


def _constants(text: str) -> list[str]:
    """Return the constants that something is set to, the most frequent first."""
    names = Counter(re.findall(r"= ([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b", text))
    return [name for name, _ in names.most_common()]


def _passages(result: str) -> list[tuple[str, int]]:
    """Return the middle of each passage that a search has found."""
    middles = []
    for passage in result.split("\n--\n"):
        lines = re.findall(r"^(.+?):(\d+): ", passage, re.MULTILINE)
        path, number = lines[len(lines) // 2]
        middles.append((path, int(number)))
    return middles


def _call(name: str, arguments: Mapping[str, Any], number: int) -> list[Any]:
    call = ToolCallDelta(index=0, id=f"c{number}", name=name, arguments=json.dumps(arguments))
    return [Chunk(tool_call=call), Chunk(usage=Usage(calls=1), finish="tool")]


def attach_directory(directory: Path) -> list[File]:
    """Return the files of a directory, named from there."""
    with tempfile.TemporaryDirectory() as home:
        environ = {"CONDUCTOR_LLM_STATE_DIR": home, "CONDUCTOR_LLM_CONFIG_DIR": home}
        settings = load_settings(environ, {}, None)
        store = open_state(settings.paths).attachments()
        return Attacher(store, settings, print).attach_all(str(directory))


async def ask(text: str, files: Sequence[File], worker: Worker, model: Model) -> Trace:
    """Ask one question of one worker, and return the trace of the run."""
    step = Step(worker=worker.name, subtask="Answer the question in one sentence.")
    team = Team(
        model=None,
        pool=Pool(workers=(worker,)),
        workers={worker.name: model},
        worker_profile=WorkerProfile(),
    )
    timeouts = Timeouts(first_token=SECONDS, idle=SECONDS, total=SECONDS)
    orchestra = Orchestra(team=team, limits=Limits(attempts=1), timeouts=timeouts)
    question = Question(text=text, files=tuple(files))
    run = start_run(orchestra, RunSpec(question=question, plan=Plan(steps=(step,))))
    async for _ in run:
        pass
    return run.trace


async def measure(
    files: Sequence[File], questions: Sequence[Mapping[str, str]], model_file: Path | None
) -> list[Outcome]:
    """Return the outcome of each question about some files."""
    outcomes = []
    for question in questions:
        reader = ScriptedReader(question["ask"])
        model: Model = ScriptedModel(reply=reader.reply)
        worker = Worker(name="reader", kind="scripted", options={"context": DOUBLE_CONTEXT})
        pattern = re.escape(question["line"])
        if model_file is not None:
            options = {"context": CONTEXT, "temperature": 0.0}
            worker = Worker(name="reader", kind="llama", model=str(model_file), options=options)
            model = open_model(worker, environ={}, secrets=KNOWN_SECRETS)
            pattern = question["answer"]
        began = time.monotonic()
        trace = await ask(question["ask"], files, worker, model)
        await model.close()
        record = trace.steps[0]
        outcome = Outcome(
            is_right=re.search(pattern, trace.answer) is not None,
            calls=len(record.tools),
            tokens=trace.usage.tokens,
            seconds=time.monotonic() - began,
            answer=trace.answer or (trace.error.message if trace.error is not None else ""),
        )
        outcomes.append(outcome)
        calls = [f"{use.call.name} {use.call.arguments}" for use in record.tools]
        print(_line(question, outcome, calls), flush=True)
    return outcomes


def _line(question: Mapping[str, str], outcome: Outcome, calls: Sequence[str]) -> str:
    mark = "right" if outcome.is_right else "WRONG"
    lines = [f"  {mark}  {question['ask']}  ({outcome.seconds:.0f} s)"]
    lines += [f"         {shorten(call, MAX_SHOWN)}" for call in calls]
    lines.append(f"         {shorten(' '.join(outcome.answer.split()), MAX_SHOWN)}")
    return "\n".join(lines)


def directories(unpacked: Path) -> Iterator[tuple[str, Path, Sequence[Mapping[str, str]]]]:
    """Yield the name, the directory and the questions of each repository."""
    table = tomllib.loads(REPOSITORIES.read_text("utf-8"))
    for repository in table["repository"]:
        top = HOME
        if repository["source"]:
            top = unpacked / repository["source"].replace("==", "-")
        yield repository["name"], top / repository["directory"], repository["questions"]


def main() -> int:
    """Print each outcome, and a line for each repository; 1 where fewer than 9 of 10 are found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("unpacked", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--questions", type=int, default=10)
    arguments = parser.parse_args()
    is_enough = True
    for name, directory, questions in directories(arguments.unpacked):
        print(f"{name}", flush=True)
        files = attach_directory(directory)
        outcomes = asyncio.run(measure(files, questions[: arguments.questions], arguments.model))
        right = sum(outcome.is_right for outcome in outcomes)
        calls = sum(outcome.calls for outcome in outcomes) / len(outcomes)
        print(f"{name}: {right} of {len(outcomes)}, {calls:.1f} calls a question\n", flush=True)
        is_enough = is_enough and 10 * right >= 9 * len(outcomes)
    return 0 if is_enough else 1


if __name__ == "__main__":
    sys.exit(main())
