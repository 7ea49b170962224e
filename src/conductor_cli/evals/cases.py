"""Cases: questions whose answers can be checked, as JSON Lines with one case a line.

    {"id": "7", "question": "What is 2 + 2?", "answer": "4", "scorer": "number", "tags": ["sums"]}

`scorer`, `tags`, `choices` and `steps` are optional. People write such files by hand, so errors
name file and line.

The small built-in set measures workers at four skills, with answers computed by the code that
writes the questions. It tells them apart by kind of work and costs little. It is not a benchmark,
and has no long or open questions.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice, pairwise
from pathlib import Path
from random import Random
from typing import Any, Final

from conductor_cli.core.errors import UsageError, describe_system_error
from conductor_cli.core.formatting import format_size
from conductor_cli.core.media import conversion_command, describe_encoding, guess_encoding
from conductor_cli.core.serialization import DecodeError, dump, encode_line, load
from conductor_cli.core.terminal_text import one_line
from conductor_cli.evals.mathematics import require_math_verify
from conductor_cli.evals.score import Score
from conductor_cli.evals.scorers import SCORERS
from conductor_cli.system.disk import open_finite
from conductor_cli.system.user_functions import UserFunction

MAX_FILE_SIZE: Final = 256_000_000  # Bytes of a file of cases
GZIP_HEAD: Final = b"\x1f\x8b"  # How everything that gzip packed begins
MAX_TAG: Final = 48  # Characters of a tag. Tags become strengths on cards, which planners read.
EXAMPLE: Final = (
    'a line looks like this: {"id": "1", "question": "…", "answer": "…", "scorer": '
    '"exact", "tags": []}'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldStep:
    """One step of a case's known decomposition.

    Its skill, its subtask, and the earlier steps that it needs.
    """

    skill: str
    subtask: str
    access: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A question whose answer can be checked.

    `scorer` is a key of `scorers.SCORERS`, `tags` are the kinds of question that it is, `choices`
    are the texts of a multiple choice in the order of their letters, `steps` is a decomposition
    that is known to lead to the answer.
    """

    id: str
    question: str
    answer: str
    scorer: str = "exact"
    tags: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    steps: tuple[GoldStep, ...] = ()


def read_cases(path: Path) -> tuple[Case, ...]:
    """Return the cases of a JSON Lines file.

    Raises `UsageError` with the file, the line and what was expected.
    """
    cases: dict[str, Case] = {}
    for number, line in enumerate(read_case_file(path).split("\n"), start=1):
        if not line.strip():
            continue
        case = parse_case(line, f"{path}, line {number}")
        if case.id in cases:
            message = f"{path}, line {number}: another line has the same id {case.id!r}"
            raise UsageError(message, hint="give each case its own id")
        cases[case.id] = case
    if not cases:
        raise UsageError(f"{path} contains no cases", hint=EXAMPLE)
    return tuple(cases.values())


def write_cases(cases: Iterable[Case]) -> str:
    """Return the text of a JSON Lines file that `read_cases` reads. Defaults are left out."""
    lines = []
    for case in cases:
        fields = {}
        for name, value in dump(case).items():
            if value != _DEFAULTS.get(name):
                fields[name] = value
        lines.append(encode_line(fields) + "\n")
    return "".join(lines)


_DEFAULTS: Final[dict[str, Any]] = {"scorer": "exact", "tags": [], "choices": [], "steps": []}


def hash_cases(cases: Sequence[Case]) -> str:
    """SHA-256 of the cases and their order: sets with the same hash are the same set."""
    return hashlib.sha256(write_cases(cases).encode("utf-8", "backslashreplace")).hexdigest()


def check_case(case: Case) -> None:
    """Raise `UsageError` unless the case can be scored: its scorer exists and can match its answer.

    Raises `ConfigError` if the library of the scorer is missing, so that the user learns it before
    anything runs.
    """
    for name in ("id", "question", "answer"):
        if not getattr(case, name).strip():
            raise UsageError(f"{name!r} is empty")
    scorer = SCORERS.get(case.scorer)
    if scorer is None:
        raise UsageError(f"unknown scorer {case.scorer!r}", hint=f"known: {', '.join(SCORERS)}")
    if scorer.needs == "math-verify":
        require_math_verify()
    if not scorer.can_match(case.answer, case.choices):
        raise UsageError(f"the answer {case.answer!r:.60} does not fit the scorer {case.scorer}")
    for tag in case.tags:
        if one_line(tag) != tag or not 0 < len(tag) <= MAX_TAG:
            raise UsageError(f"the tag {tag!r:.60} is not one line of 1 to {MAX_TAG} characters")
    for number, step in enumerate(case.steps, start=1):
        if not (step.skill.strip() and step.subtask.strip()):
            raise UsageError(f"step {number} needs a skill and a subtask")
        if len(set(step.access)) != len(step.access) or not set(step.access) <= set(
            range(1, number)
        ):
            raise UsageError(
                f"step {number} may access each earlier step once, but has {list(step.access)}"
            )


MAX_EXACT: Final = 100
"""Characters of an expected answer that a model may well write word for word."""


def warn_of_long_answers(cases: Sequence[Case]) -> str:
    """Return a warning of expected answers that hardly any answer equals; empty without any.

    They are for the scorer `exact` and longer than a line, as whole solutions are.
    """
    exact = [case for case in cases if case.scorer == "exact"]
    long = []
    for case in exact:
        if "\n" in case.answer or len(case.answer) > MAX_EXACT:
            long.append(case)
    if not long:
        return ""
    return (
        f"{len(long):,} of {len(exact):,} expected answers of the scorer exact are longer than a "
        f"line (the first is that of {long[0].id!r:.60}), so hardly any answer will count as "
        "right; name another scorer, as in --fields …,scorer=number, or a column with the short "
        "answer"
    )


def score_answer(text: str, case: Case) -> Score:
    """Return what the case's scorer says of `text`.

    Evaluations and trainings ask this and nothing else.
    """
    scorer = SCORERS[case.scorer]
    if scorer.explain is not None:
        return scorer.explain(text, case.answer, case.choices)
    return Score(right=scorer.is_correct(text, case.answer, case.choices))


AnswerScorer = Callable[[str, Case], Score]
"""Says whether a text answers a case: `score_answer`, or `user_scorer`."""

RIGHT_FROM: Final = 0.5
"""The least number of a scorer of the user's own that counts as right."""


def user_scorer(function: UserFunction) -> AnswerScorer:
    """Return the scorer by a function of the user, which gets the answer and the case.

    It returns a number from 0 to 1. Raises `ConfigError` where it does not, or where it raises.
    """

    def score(text: str, case: Case) -> Score:
        number = function.call_for_number(text, case, least=0.0, most=1.0)
        return Score(right=number >= RIGHT_FROM, why=f"{function.name} gave {number:.4g}")

    return score


def is_correct(text: str, case: Case) -> bool:
    """Return whether `text` gives the case's answer, by its scorer."""
    return SCORERS[case.scorer].is_correct(text, case.answer, case.choices)


def extract_answer(text: str, case: Case) -> str:
    """Return the answer that the case's scorer finds in `text`, in a normal form.

    Empty if it finds none.
    """
    return SCORERS[case.scorer].extract(text, case.choices)


def read_case_file(path: Path) -> str:
    """Return the text of a file of cases, which gzip may have packed. Raises `UsageError`."""
    try:
        with open_finite(path) as file:
            content = file.read(MAX_FILE_SIZE + 1)
        if content.startswith(GZIP_HEAD):
            content = _unpacked(content, path)
        if len(content) > MAX_FILE_SIZE:
            raise UsageError(
                f"{path} is larger than {format_size(MAX_FILE_SIZE)}",
                hint="split it into several files",
            )
    except OSError as error:
        why = describe_system_error(error)
        raise UsageError(
            f"{path} cannot be read: {why}", hint="name a file of cases, in UTF-8"
        ) from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"byte 0x{content[error.start]:02x} at offset {error.start}"
        raise _not_utf8(content, path, where) from None
    if "\0" in text:
        raise _not_utf8(content, path, "it holds NUL bytes")
    return text


def _not_utf8(content: bytes, path: Path, where: str) -> UsageError:
    encoding = guess_encoding(content)
    message = f"{path} is not UTF-8 text: {where}; {describe_encoding(encoding)}"
    if not encoding:
        return UsageError(message, hint="name a file of cases, in UTF-8")
    command, converted = conversion_command(str(path), encoding)
    return UsageError(message, hint=f"{command}; then give {converted} instead")


def _unpacked(content: bytes, path: Path) -> bytes:
    """Return what gzip packed, one byte more than allowed at most. Raises `UsageError`."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            return file.read(MAX_FILE_SIZE + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(
            f"{path} cannot be unpacked: {error}", hint=f"unpack it yourself: gunzip {path}"
        ) from None


def parse_case(text: str, where: str) -> Case:
    """Return the case of one line. Raises `UsageError` that says where."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON ({error})", hint=EXAMPLE) from None
    if isinstance(fields, Mapping):
        # An unknown field is a typing error, which must not be ignored silently.
        unknown = set(fields) - set(Case.__dataclass_fields__)
        if unknown:
            raise UsageError(f"{where}: unknown field {min(unknown)!r:.40}", hint=EXAMPLE)
    try:
        case = load(Case, fields, "")
        check_case(case)
    except (DecodeError, UsageError) as error:
        hint = ""
        if isinstance(error, UsageError):
            hint = error.hint
        problem = str(error).removeprefix(f"{Case.__name__}: ")
        raise UsageError(f"{where}: {problem}", hint=hint or EXAMPLE) from None
    return case


EVERYDAY: Final = "everyday"
"""A set of 24 questions, everyday and hard ones, written for this project. Their answers were
computed.
"""
EVERYDAY_FILE: Final = Path(__file__).with_name("everyday.jsonl")

NAME: Final = "basics"  # The set's name on the command line
COUNT: Final = 60  # Default number of cases: fifteen of each kind
MAX_COUNT: Final = 4000  # More would take long to make and measure nothing better

_WORDS: Final = (
    "amber",
    "bridge",
    "cactus",
    "dolphin",
    "engine",
    "feather",
    "glacier",
    "harbour",
    "island",
    "jacket",
    "kettle",
    "lantern",
    "meadow",
    "needle",
    "orchard",
    "pepper",
    "quarry",
    "ribbon",
    "saddle",
    "timber",
    "umbrella",
    "velvet",
    "walnut",
    "yellow",
    "zipper",
)
_NAMES: Final = ("Ada", "Ben", "Cora", "Dan", "Eva", "Finn", "Gita", "Hugo", "Iris", "Jon")
QuestionParts = tuple[str, str, str]  # A question, its answer, and the scorer


def make_basics(count: int = COUNT, seed: int = 0) -> tuple[Case, ...]:
    """Return `count` cases, the kinds in turn, no question twice.

    Raises `UsageError` for more than `MAX_COUNT`.
    """
    if count > MAX_COUNT:
        raise UsageError(
            f"--n {count}: {NAME} has at most {MAX_COUNT:,} cases", hint="ask for fewer"
        )
    random = Random(seed)  # noqa: S311 - reproducible, no secret
    cases: dict[str, Case] = {}
    for tag, make_question in islice(cycle(SKILLS), count):
        question, answer, scorer = make_question(random)
        # Each kind has far more questions than are ever taken, so this ends.
        while question in cases:
            question, answer, scorer = make_question(random)
        name = f"{NAME}-{seed}-{len(cases) + 1}"
        cases[question] = Case(
            id=name, question=question, answer=answer, scorer=scorer, tags=(tag,)
        )
    return tuple(cases.values())


def _arithmetic(random: Random) -> QuestionParts:
    first = random.randint(12, 97)
    second = random.randint(12, 97)
    third = random.randint(100, 999)
    return (
        f"What is {first} * {second} - {third}? Reply with the number only.",
        str(first * second - third),
        "number",
    )


def _letters(random: Random) -> QuestionParts:
    word, other = random.sample(_WORDS, 2)
    if random.random() < 0.5:
        return (
            f'Spell the word "{word}{other}" backwards. Reply with the result only.',
            (word + other)[::-1],
            "exact",
        )
    question = (
        f'How many times does the letter "{word[1]}" occur in "{word} {other}"? Reply with '
        "the number only."
    )
    return question, str((word + other).count(word[1])), "number"


def _ordering(random: Random) -> QuestionParts:
    names = random.sample(_NAMES, 5)  # the tallest first
    facts = [f"{taller} is taller than {smaller}." for taller, smaller in pairwise(names)]
    random.shuffle(facts)
    rank = random.randrange(5)
    ordinal = ("tallest", "second tallest", "third tallest", "second smallest", "smallest")[rank]
    return (
        f"{' '.join(facts)} Who is the {ordinal} of the five? Reply with the name only.",
        names[rank],
        "exact",
    )


def _code(random: Random) -> QuestionParts:
    start = random.randint(2, 9)
    stop = random.randint(12, 20)
    factor = random.randint(3, 9)
    modulus = random.choice((3, 4, 5))
    total = start + sum(factor * number for number in range(start, stop) if number % modulus != 1)
    text = (
        f"total = {start}\nfor number in range({start}, {stop}):\n    if number % {modulus} == 1:\n"
        "        continue\n"
        f"    total += {factor} * number\nprint(total)"
    )
    return (
        f"What does this Python program print? Reply with the number only.\n\n{text}",
        str(total),
        "number",
    )


SKILLS: Final[tuple[tuple[str, Callable[[Random], QuestionParts]], ...]] = (
    ("math", _arithmetic),
    ("letters", _letters),
    ("reasoning", _ordering),
    ("code", _code),
)
"""Tags, and the function that makes a question."""
