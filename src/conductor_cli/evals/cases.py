"""Cases: questions whose answers can be checked, as JSON Lines, one case a line.

    {"id": "7", "question": "What is 2 + 2?", "answer": "4", "scorer": "number", "tags": ["numbers"]}

`scorer`, `tags`, `choices` and `steps` may be left out. Whoever writes such a file by hand is told file and line of
what is wrong in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import UsageError
from conductor_cli.core.sanitize import escape_json, one_line
from conductor_cli.core.serialization import DecodeError, dump, load
from conductor_cli.evals.scorers import SCORERS

LARGEST: Final = 256 * 1024 * 1024
"""Bytes that a file of cases may have."""
LONGEST: Final = 1024 * 1024
"""Characters that one line of it may have."""

LONGEST_TAG: Final = 48
"""Characters: tags become strengths on cards, which conductors read."""

SHAPE: Final = '{"id": "1", "question": "…", "answer": "…", "scorer": "exact", "tags": []}'


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldStep:
    """One step of a case's known decomposition: the skill it takes, the subtask, and the earlier steps it needs."""

    skill: str
    subtask: str
    access: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A question whose answer can be checked.

    `scorer` is a key of `scorers.SCORERS`, `tags` say what kind of question it is, `choices` are the texts of a
    multiple choice in the order of their letters, `steps` the decomposition that is known to lead to the answer.
    """

    id: str
    question: str
    answer: str
    scorer: str = "exact"
    tags: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    steps: tuple[GoldStep, ...] = ()


def read_cases(path: Path) -> tuple[Case, ...]:
    """The cases of a JSON Lines file. Raises `UsageError` that names the file, the line and what was expected."""
    cases: dict[str, Case] = {}
    lines: dict[str, int] = {}
    for number, line in _lines(path):
        case = _case(line, f"{path}, line {number}")
        if case.id in cases:
            raise UsageError(
                f"{path}: lines {lines[case.id]} and {number} have the same id {case.id!r}",
                hint="each case needs an id of its own",
            )
        cases[case.id], lines[case.id] = case, number
    if not cases:
        raise UsageError(f"{path} holds no case", hint=f"a line is a case: {SHAPE}")
    return tuple(cases.values())


def write_cases(cases: Iterable[Case]) -> str:
    """The text of a JSON Lines file that `read_cases` reads. What a case leaves at its default is left out."""
    return "".join(case_to_json(case) + "\n" for case in cases)


def case_to_json(case: Case) -> str:
    """One case as one line of JSON, without the newline."""
    data = {name: value for name, value in dump(case).items() if value != _DEFAULTS.get(name)}
    return escape_json(json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def hash_cases(cases: Sequence[Case]) -> str:
    """SHA-256 of what the cases say, their order included: two sets with the same one are the same set."""
    return hashlib.sha256(write_cases(cases).encode("utf-8", "backslashreplace")).hexdigest()


def check_case(case: Case) -> None:
    """Raise `UsageError` unless the case can be scored: a known scorer, and an answer that suits it."""
    for name in ("id", "question", "answer"):
        if not getattr(case, name).strip():
            raise UsageError(f"{name!r} is empty")
    scorer = SCORERS.get(case.scorer)
    if scorer is None:
        raise UsageError(f"no scorer is called {case.scorer!r}", hint=f"known: {', '.join(SCORERS)}")
    fault = scorer.fault(case.answer, case.choices)
    if fault:
        raise UsageError(f"the answer {case.answer!r:.60} does not suit the scorer {case.scorer}: {fault}")
    for tag in case.tags:
        if one_line(tag) != tag or not 0 < len(tag) <= LONGEST_TAG:
            raise UsageError(f"the tag {tag!r:.60} is not one line of 1 to {LONGEST_TAG} characters")
    for number, step in enumerate(case.steps, start=1):
        if not (step.skill.strip() and step.subtask.strip()):
            raise UsageError(f"step {number} needs a skill and a subtask")
        if len(set(step.access)) != len(step.access) or not set(step.access) <= set(range(1, number)):
            raise UsageError(f"step {number} may see earlier steps only, each once, not {list(step.access)}")


def is_correct(text: str, case: Case) -> bool:
    """Whether `text` gives the case's answer, by its scorer."""
    return SCORERS[case.scorer].right(text, case.answer, case.choices)


def extract_answer(text: str, case: Case) -> str:
    """What the case's scorer takes for the answer in `text`, in a normal form; empty where it finds none."""
    return SCORERS[case.scorer].said(text, case.choices)


def _lines(path: Path) -> Iterable[tuple[int, str]]:
    """The lines that are not blank, with their numbers from 1."""
    try:
        if path.stat().st_size > LARGEST:
            raise UsageError(f"{path} is larger than {LARGEST >> 20} MB", hint="cut it into several sets")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint="name a file of cases") from None
    except UnicodeDecodeError as error:
        number = path.read_bytes()[: error.start].count(b"\n") + 1
        raise UsageError(f"{path}, line {number}: not UTF-8 text", hint="cases are JSON Lines in UTF-8") from None
    return [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]


def _case(text: str, where: str) -> Case:
    """One line's case. Raises `UsageError` that says where."""
    if len(text) > LONGEST:
        raise UsageError(f"{where}: longer than {LONGEST} characters", hint="one case a line")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON ({error})", hint=f"a line is a case: {SHAPE}") from None
    try:
        case = load(Case, _known(data), "")
        check_case(case)
    except (DecodeError, UsageError) as error:
        hint = error.hint if isinstance(error, UsageError) else ""
        raise UsageError(f"{where}: {error}", hint=hint or f"a line is a case: {SHAPE}") from None
    return case


def _known(data: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The same object; a field that no case has is a mistake in writing, not something to read over."""
    if isinstance(data, Mapping):
        _refuse(data, Case, "")
        for number, step in enumerate(data["steps"] if isinstance(data.get("steps"), list) else (), start=1):
            if isinstance(step, Mapping):
                _refuse(step, GoldStep, f"step {number}: ")
    return data


def _refuse(data: Mapping[str, Any], kind: type[Case | GoldStep], where: str) -> None:
    known = kind.__dataclass_fields__
    unknown = [name for name in data if name not in known]
    if unknown:
        raise DecodeError(f"{where}unknown field {unknown[0]!r:.40}; known: {', '.join(known)}")


_DEFAULTS: Final[dict[str, Any]] = {"scorer": "exact", "tags": [], "choices": [], "steps": []}
