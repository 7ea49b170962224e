"""Questions and phrasings that were written by somebody else and are asked once.

A typed question is asked as a user asks it, by `conductor ask --rehearsal` in a process of its own. A file has one a
line: `{"id": …, "question": …, "answer": …, "inside": true}`. One outside the world has no answer, and should be
declined. A file of phrasings has one a line: `{"operation": "reverse", "form": "noun", "text": "…"}`, with `{x}` and
`{y}` as in `ways.txt`. They take the place of the held-out phrasings of their operations and forms. Nothing is drawn
again because the program does not know a word: such questions count, and their share is a row.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from conductor_cli.core.errors import UsageError
from conductor_cli.rehearsal.players import NAMES, REFUSAL, VARIABLE, clean_answer
from training.rehearsal.exercises import STRONG, RehearsalExercise, draw_exercises
from training.rehearsal.figures import Figure
from training.rehearsal.operations import OPERATIONS
from training.rehearsal.phrasings import WAYS
from training.rehearsal.worker_table import Row
from training.rehearsal.world import ProblemSettings, draw_problems
from training.stages import environment

Verdict = Literal["right", "wrong", "declined", "failed"]

PROBE: Final = "capital of france"  # a question that the files have to answer before the others are asked
_PATIENCE: Final = 120.0  # seconds for one question
DECLINED: Final = 2
"""The exit code of a question that is declined before a model is asked; here also where a worker declines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedQuestion:
    """What somebody typed. `inside`: the documented world covers it."""

    id: str
    question: str
    answer: str
    inside: bool


Ask = Callable[[str], tuple[int, str]]  # asks a question; returns the exit code and the answer


def read_questions(path: Path) -> tuple[TypedQuestion, ...]:
    """The questions of a file. Raises `UsageError`; no message quotes a question."""
    return tuple(_question(item, f"{path}:{number}") for number, item in enumerate(read_lines(path), start=1))


def read_lines(path: Path) -> list[Any]:
    """The JSON values of a file with one a line. Raises `UsageError`; no message quotes the file."""
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "a line is not JSON"
        raise UsageError(f"{path} cannot be read: {reason}") from None


def _question(item: Any, place: str) -> TypedQuestion:
    if not isinstance(item, dict) or not isinstance(item.get("question"), str) or "inside" not in item:
        raise UsageError(f"{place}: not a question", hint='{"id": …, "question": …, "answer": …, "inside": true}')
    answer = item.get("answer")
    return TypedQuestion(
        id=str(item.get("id", place)), question=item["question"], answer="" if answer is None else str(answer),
        inside=bool(item["inside"]),
    )  # fmt: skip


def asking(directory: Path | None, home: Path) -> Ask:
    """Asks with the files in a directory, or the shipped ones, and neither reads nor changes the user's settings."""
    environ = environment(home)
    if directory is None:
        del environ[VARIABLE]
    else:
        environ[VARIABLE] = str(directory.absolute())

    def ask(question: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "conductor_cli", "--quiet", "ask", "--rehearsal", "--no-trace"]
        command += ["--format", "json", "--", question]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environ, timeout=_PATIENCE, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        found = json.loads(done.stdout or "{}")
        declined = (found.get("error") or {}).get("reason") == "declined"
        return DECLINED if declined else done.returncode, (found.get("answer") or "").strip()

    return ask


def check_files(directory: Path | None, ask: Ask) -> None:
    """Raise `UsageError` if the files do not work together: a set that is asked once must not be asked in vain."""
    if directory is not None:
        wanted = [*(f"{name}.gguf" for name in (*NAMES, "conductor")), "cards.json"]
        if missing := [name for name in wanted if not (directory / name).is_file()]:
            hint = "cards.json: python -m training.rehearsal.train cards DIRECTORY"
            raise UsageError(f"{directory} lacks {', '.join(missing)}", hint=hint)
    code, text = ask(PROBE)
    if code or clean_answer(text) in {"", REFUSAL}:
        raise UsageError(
            f"the files cannot answer '{PROBE}', so no question was asked", hint="are the cards those of these workers?"
        )


def verdict_on(item: TypedQuestion, code: int, text: str) -> Verdict:
    """What an answer is worth."""
    if code not in {0, DECLINED}:
        return "failed"
    answer = clean_answer(text)
    if code == DECLINED or answer in {"", REFUSAL}:
        return "declined"
    return "right" if item.answer and answer == clean_answer(item.answer) else "wrong"


def ask_all(questions: Sequence[TypedQuestion], directory: Path | None) -> tuple[Verdict, ...]:
    """The verdict on each question. Raises as `check_files` before any is asked."""
    with tempfile.TemporaryDirectory() as home:
        ask = asking(directory, Path(home))
        check_files(directory, ask)
        return tuple(verdict_on(item, *ask(item.question)) for item in questions)


def rows_of(questions: Sequence[TypedQuestion], verdicts: Sequence[Verdict]) -> list[Row]:
    """The table: shares of all questions and of each class."""
    pairs = list(zip(questions, verdicts, strict=True))
    inside = [verdict for item, verdict in pairs if item.inside]
    outside = [verdict for item, verdict in pairs if not item.inside]
    return [
        Row("wrong answers, of all", _share(verdicts, "wrong"), most=0.03, note=_counts(verdicts)),
        Row("within the world: right", _share(inside, "right"), note=_counts(inside)),
        Row("within the world: wrong", _share(inside, "wrong")),
        Row("within the world: declined", _share(inside, "declined"), most=0.15),
        Row("outside: declined", _share(outside, "declined"), note=_counts(outside)),
        Row("outside: answered", _share(outside, "wrong") + _share(outside, "right")),
        Row("runs that failed", _share(verdicts, "failed"), most=0.0),
    ]


def _share(verdicts: Sequence[Verdict], which: Verdict) -> float:
    return verdicts.count(which) / max(len(verdicts), 1)


def _counts(verdicts: Sequence[Verdict]) -> str:
    kinds: tuple[Verdict, ...] = ("right", "wrong", "declined", "failed")
    return ", ".join(f"{kind} {verdicts.count(kind)}" for kind in kinds) + f" of {len(verdicts)}"


FORMS: Final[Mapping[str, str]] = {"noun": "n", "ask": "a", "order": "o", "then": "t"}


class Phrasings(NamedTuple):
    """The lines of each operation as `ways.txt` writes them, and how many lines of a file were none."""

    lines: Mapping[str, str]
    unused: int


def read_phrasings(path: Path) -> Phrasings:
    """The phrasings of a file. Raises `UsageError`; no message quotes one."""
    lines: dict[str, list[str]] = {}
    unused = 0
    for item in read_lines(path):
        fields = item if isinstance(item, dict) else {}
        operation, form, text = (str(fields.get(name, "")) for name in ("operation", "form", "text"))
        mark = FORMS.get(form, form if form in FORMS.values() else "")
        slots = ("{x}", "{y}")[: OPERATIONS[operation].arity] if operation in WAYS and mark != "t" else ()
        if operation in WAYS and mark and text and all(slot in text for slot in slots):
            lines.setdefault(operation, []).append(f"!{mark} {text}")
        else:
            unused += 1
    if not lines:
        raise UsageError(f"{path}: no line is a phrasing of an operation")
    return Phrasings({name: "\n".join(found) for name, found in lines.items()}, unused)


@contextmanager
def in_place_of_held_out(phrasings: Phrasings) -> Iterator[None]:
    """While this is open, questions in held-out phrasings are drawn from these."""
    assert isinstance(WAYS, dict)
    before = dict(WAYS)
    for name, lines in phrasings.lines.items():
        forms = {line[1] for line in lines.splitlines()}
        kept = [line for line in map(str.strip, before[name].splitlines()) if line[:2] not in {f"!{f}" for f in forms}]
        WAYS[name] = "\n".join([*kept, lines])
    try:
        yield
    finally:
        WAYS.update(before)


def draw_phrased(phrasings: Phrasings, count: int, seed: int) -> tuple[RehearsalExercise, ...]:
    """Questions in these phrasings, with pools as in the main table."""
    settings = ProblemSettings(split="test", phrasings="held", checked=0.0, known_words=False)
    with in_place_of_held_out(phrasings):
        return draw_exercises(draw_problems(count, seed, settings), STRONG, seed)


FINAL: Final[Sequence[Figure]] = (
    Figure(what="final phrasings", of=lambda m: m["conductor"], least=0.80, each=0.76),
    Figure(what="  questions without an unknown word", of=lambda m: m["readable"]),
    Figure(what="  right, of those", of=lambda m: m["right, readable"]),
    Figure(what="  valid plans", of=lambda m: m["valid"]),
    Figure(what="  split right, word for word", of=lambda m: m["split"]),
    Figure(what="  shape right", of=lambda m: m["shape"]),
    Figure(what="  every step to one of the best", of=lambda m: m["routed"]),
    Figure(what="  best routing (oracle)", of=lambda m: m["oracle"]),
    Figure(what="  plans checked as in the demo", of=lambda m: m["plans checked"]),
)
