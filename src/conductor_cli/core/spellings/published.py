"""The published spelling: reasoning, then three lists of equal length (arXiv 2512.04388, figure 13).

    model_id = [0, 2]
    subtasks = ["Work out the sum.", "Check the sum and give the answer."]
    access_list = [[], ["all"]]

Workers are numbered from 0. An access entry is `[]`, `"all"`, `["all"]`, or positions from 0 as in the paper's
appendix B.8. What the published parser tolerates is tolerated: backticks, bullets, other names and signs of the labels,
typographic quotes, ids as strings, strings with stray quotes, as in the lists of its own examples. Three empty lists
mean *accept*. A step is complete as soon as its access entry is.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator

from conductor_cli.core.errors import PlanError
from conductor_cli.core.plan import Accept, Plan, Step
from conductor_cli.core.spellings.terms import (
    Parsed,
    Spelling,
    Terms,
    access_of,
    access_sets,
    checked,
    either,
)

_IDS = re.compile(r"model[_ ]ids?\s*[:=]\s*(?=\[)", re.IGNORECASE)
_SUBTASKS = re.compile(r"subtasks?\s*[:=]\s*(?=\[)", re.IGNORECASE)
_ACCESS = re.compile(r"access(?:[_ ]list)?\s*[:=]\s*(?=\[)", re.IGNORECASE)
_QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "`": None})
_BULLET = re.compile(r"^[ \t]*[-*•][ \t]+", re.MULTILINE)
_STRAY = re.compile(r"[\"']\s*\.?\s*$")


class PublishedParser:
    """See `terms.Parser`."""

    def __init__(self, terms: Terms) -> None:
        self.reasoning = ""
        self._terms = terms
        self._raw = ""
        self._given = 0  # access entries that have been turned into steps

    def feed(self, text: str) -> Iterator[Parsed | Accept]:
        self._raw += text
        if "]" in text or '"' in text or "'" in text:
            yield from self._read()

    def end(self) -> Iterator[Parsed | Accept]:
        ids, subtasks, access, closed = self._lists()
        if closed and not ids and not subtasks and not access:
            if not self._terms.rules.given:
                raise PlanError("empty lists accept an answer at hand, and there is none", line=self._tail())
            yield Accept(reasoning=self.reasoning)
            return
        yield from self._read()
        if not closed:
            raise PlanError("the text does not end with three whole lists", hint="model_id, subtasks, access_list",
                            line=self._tail())  # fmt: skip
        if not len(ids) == len(subtasks) == len(access):
            counts = f"{len(ids)} ids, {len(subtasks)} subtasks, {len(access)} access entries"
            raise PlanError(f"the three lists differ in length: {counts}", line=self._tail())

    def _tail(self) -> str:
        return self._raw[-200:].strip()

    def _read(self) -> Iterator[Parsed]:
        ids, subtasks, access, _ = self._lists()
        count = len(ids)
        if not ids or count != len(subtasks):
            return
        first = self._terms.first
        if count > self._terms.rules.steps - first + 1:
            raise PlanError(f"the plan has more than {self._terms.rules.steps} steps", line=self._tail())
        while self._given < min(len(access), count):
            index = self._given
            number = first + index
            line = f"{ids[index]} {access[index]} {subtasks[index]}"
            step = Step(
                worker=self._worker(ids[index]), subtask=subtasks[index], access=self._entry(access[index], number)
            )
            step = checked(step, number, self._terms, line)
            self._given += 1
            yield Parsed(number=number, step=step, last=index == count - 1)

    def _worker(self, text: str) -> str:
        return self._terms.labels.get(text.strip().strip("\"'"), text)

    def _entry(self, text: str, number: int) -> tuple[int, ...]:
        """Positions from 0 become step numbers from 1."""
        if "all" in text.lower():
            return self._terms.everything_before(number)
        return tuple(item + 1 for item in access_of(text, number, self._terms))

    def _lists(self) -> tuple[list[str], list[str], list[str], bool]:
        """The elements of the three lists as far as they are written, and whether the third one is closed."""
        text = _BULLET.sub("", self._raw.translate(_QUOTES))
        found = _IDS.search(text)
        if found is None:
            return [], [], [], False
        self.reasoning = text[: found.start()].strip()
        ids, ids_end = _elements(text, found.end())
        subtasks_at = _SUBTASKS.search(text, ids_end)
        if subtasks_at is None:
            return ids, [], [], False
        subtasks, subtasks_end = _elements(text, subtasks_at.end())
        access_at = _ACCESS.search(text, subtasks_end)
        if access_at is None:
            return ids, [], [], False
        access, access_end = _elements(text, access_at.end())
        closed = text[access_end - 1 : access_end] == "]"
        return _digits(ids), [_unquoted(item) for item in subtasks], access, closed


def _digits(ids: list[str]) -> list[str]:
    """Ids that are whole numbers, as the published parser keeps them; what it drops shows as a length that differs."""
    plain = [item.strip("\"' ") for item in ids]
    return [item for item in plain if item.isdigit()]


def _elements(text: str, start: int) -> tuple[list[str], int]:
    """The complete elements of the list that opens at `start`, and where the reading ended.

    A quote closes a string only where a comma with another quote behind it, or a bracket, follows: quotes that stray
    into a string do not end it.
    """
    items: list[str] = []
    at, begin, depth, quote = start + 1, start + 1, 0, ""
    while at < len(text):
        sign = text[at]
        if quote:
            quote = "" if sign == quote and _closes(text, at) else quote
            at += sign == "\\"
        elif sign in "\"'" and not text[begin:at].strip(" [\n\t"):
            quote = sign
        elif sign == "[":
            depth += 1
        elif sign == "]" and depth:
            depth -= 1
        elif sign in ",]" and not depth:
            items += [text[begin:at].strip()] if text[begin:at].strip() else []
            begin = at + 1
            if sign == "]":
                return items, at + 1
        at += 1
    return items, at


def _closes(text: str, at: int) -> bool:
    return re.match(r"\s*(?:\]|,\s*[\"'\[\]]|,\s*$|$)", text[at + 1 :]) is not None


def _unquoted(item: str) -> str:
    try:
        value = ast.literal_eval(item)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = None
    if isinstance(value, str):
        return value.strip()
    return _STRAY.sub("", item.strip().strip("\"'")).strip()


def spell(plan: Plan | Accept, terms: Terms) -> str:
    """The three lists; access lists that hold everything before are written `["all"]`."""
    steps = () if isinstance(plan, Accept) else plan.steps
    ids, access = [], []
    for number, step in enumerate(steps, start=1):
        ids.append(int(terms.label(step.worker)))
        everything = step.access and set(step.access) == set(terms.everything_before(number))
        access.append(["all"] if everything else [item - 1 for item in step.access])
    subtasks = json.dumps([step.subtask for step in steps], ensure_ascii=False)
    head = f"{plan.reasoning.strip()}\n" if plan.reasoning else ""
    return f"{head}model_id = {ids}\nsubtasks = {subtasks}\naccess_list = {json.dumps(access)}"


def grammar(terms: Terms) -> str:
    """GBNF with one alternative for each number of steps, which is the only way to hold three lists to one length."""
    count = terms.rules.steps - terms.first + 1
    options = [f"plan{size}" for size in range(1, count + 1)]
    accept = terms.rules.given and terms.first == 1
    options += ['"model_id = []\\nsubtasks = []\\naccess_list = []"'] if accept else []
    lines = [f"root ::= reasoning ({' | '.join(options)})", f"id ::= {either(list(terms.labels))}"]
    lines.append('reasoning ::= ([^\\x00-\\x1f\\x7f=:\\[]{1,300} "\\n"){0,8}')
    for size in range(1, count + 1):
        ids = ' ", " '.join(["id"] * size)
        texts = ' ", " '.join(["text"] * size)
        entries = ' ", " '.join(f"access{terms.first + index}" for index in range(size))
        lines.append(
            f'plan{size} ::= "model_id = [" {ids} "]\\nsubtasks = [" {texts} "]\\naccess_list = [" {entries} "]"'
        )
    for number in range(terms.first, terms.rules.steps + 1):
        lines.append(f"access{number} ::= {either(_entries(number, terms))}")
    lines.append(f'text ::= "\\"" [^\\x00-\\x20\\x7f"\\\\] [^\\x00-\\x1f\\x7f"\\\\]{{0,{terms.subtask_chars - 1}}} "\\""')
    return "\n".join(lines)


def _entries(number: int, terms: Terms) -> list[str]:
    """Every access entry step `number` may have; the given text, which has no position, is seen through `"all"`."""
    positions = [chosen for chosen in access_sets(number, terms) if 0 not in chosen]
    entries = [json.dumps([item - 1 for item in chosen]) for chosen in positions]
    return [*entries, '["all"]']


def explain(terms: Terms) -> str:
    """How to write a plan, told to a conductor."""
    del terms
    return (
        "Reason first, then write three lists of equal length: model_id (worker numbers), subtasks (texts) and "
        'access_list (an entry a step: [] for nothing, ["all"] for every earlier step, or positions from 0).'
    )


PUBLISHED = Spelling(name="published", parser=PublishedParser, spell=spell, grammar=grammar, explain=explain)
