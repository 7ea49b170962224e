"""The published plan format: reasoning, then three lists of equal length (arXiv 2512.04388, figure 13).

    model_id = [0, 2]
    subtasks = ["Work out the sum.", "Check the sum and give the answer."]
    access_list = [[], ["all"]]

Workers are numbered from 0. An access entry is `[]`, `"all"`, `["all"]`, or positions from 0 as in the paper's
appendix B.8. This parser tolerates what the published one does: backticks, bullets, other names of the lists, any order
of them, typographic quotes, ids as strings, and strings with stray quotes, as in the paper's own examples. Three empty
lists mean *accept*. A step is complete as soon as its access entry is closed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from conductor_cli.core.errors import PlanError
from conductor_cli.core.plan import GIVEN, KeepAnswer, Plan, Step
from conductor_cli.core.plan_formats import base
from conductor_cli.core.plan_formats.base import ParsedStep, PlanFormat, PlanFormatContext

_LABEL = re.compile(
    r"(?:(?P<ids>model[_ ]ids?)|(?P<subtasks>subtasks?)|(?P<access>access(?:[_ ]list)?))[\"'*]*\s*[:=]\s*(?=\[)",
    re.IGNORECASE,
)
_QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "`": None})
_BULLET = re.compile(r"^[ \t]*[-*•][ \t]+", re.MULTILINE)
# Spaces are taken possessively: else a thousand of them would be divided in every way.
# A quote with a backslash before it belongs to the text.
_STRAY = {sign: re.compile(rf"(?<!\\)(?:{sign}\s*+){{1,2}}\.\s*+{sign}?\s*+\.?\s*+$") for sign in "\"'"}
_CLOSING = re.compile(r"\s*+\.?\s*+(?:\]|,\s*+[\"'\[\]]|,?\s*+$)")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([n\"'\\/]))")
# What the parser would change, as escapes so that it does not.
_SPELLED = str.maketrans({sign: f"\\u{ord(sign):04x}" for sign in "“”„‘’`"})
# Escapes that the parser leaves as they are, because a text that means `\theta` has them too.
_JSON_ESCAPE = re.compile(r"\\(.)")
_LONG_ESCAPES = {"b": r"\u0008", "f": r"\u000c", "r": r"\u000d", "t": r"\u0009"}


class PublishedParser:
    """See `base.Parser`."""

    def __init__(self, context: PlanFormatContext) -> None:
        self.reasoning = ""
        self._context = context
        self._raw = ""
        self._given = 0  # access entries that have been turned into steps
        self._whole = False

    def feed(self, text: str) -> Iterator[ParsedStep | KeepAnswer]:
        self._raw += text
        # Only these characters can complete an element, and reading starts from the beginning of the text each time.
        if any(sign in text for sign in "],\"'”’"):
            yield from self._read()

    def end(self) -> Iterator[ParsedStep | KeepAnswer]:
        yield from self._read()
        if not self._whole:
            raise PlanError(
                "the text does not end with three whole lists",
                hint="expected model_id, subtasks and access_list",
                line=self._tail(),
            )

    def _tail(self) -> str:
        return self._raw[-200:].strip()

    def _read(self) -> Iterator[ParsedStep | KeepAnswer]:
        lists = {} if self._whole else self._lists()
        ids, subtasks, access = (lists.get(name, _List([], 0, closed=False)) for name in ("ids", "subtasks", "access"))
        if not ids.closed or not subtasks.closed:
            return
        known = _digits(ids.items)
        if len(known) > self._context.rules.steps - self._context.first + 1:
            raise base.too_many(self._context, self._tail())
        if len(known) == len(subtasks.items):
            yield from self._steps(known, subtasks.items, access.items)
        if access.closed:
            self._whole = True
            if not ids.items and not subtasks.items and not access.items:
                yield base.checked_accept(self._context, self.reasoning, self._tail())
            elif not 0 < len(known) == len(subtasks.items) == len(access.items):
                counts = f"{len(known)} ids, {len(subtasks.items)} subtasks, {len(access.items)} access entries"
                raise PlanError(f"the three lists differ in length: {counts}", line=self._tail())

    def _steps(self, ids: list[str], subtasks: list[str], access: list[str]) -> Iterator[ParsedStep]:
        """The steps whose access entries have been closed since the last look."""
        while self._given < min(len(access), len(ids)):
            index = self._given
            number = self._context.first + index
            step = Step(
                worker=self._context.labels.get(ids[index], ids[index]),
                subtask=_unquoted(subtasks[index]),
                access=base.parse_access(access[index], number, self._context, base=0),
            )
            step = base.checked(step, number, self._context, f"{ids[index]} {access[index]} {subtasks[index]}")
            self._given += 1
            yield ParsedStep(number=number, step=step, last=index == len(ids) - 1)

    def _lists(self) -> dict[str, _List]:
        """The lists by name, as far as they are written: the first of each name, each after the one before it."""
        text = _BULLET.sub("", self._raw.translate(_QUOTES))
        lists: dict[str, _List] = {}
        at = 0
        while found := _LABEL.search(text, at):
            name = found.lastgroup or ""
            if not lists:
                self.reasoning = text[: found.start()].strip()
            read = _read_list(text, found.end(), strings=name == "subtasks")
            lists.setdefault(name, read)
            at = read.end
        return lists


class _List(NamedTuple):
    """The complete elements of a list, where it ends, and whether it is closed."""

    items: list[str]
    end: int
    closed: bool


def _read_list(text: str, start: int, *, strings: bool) -> _List:
    """The list that opens at `start`. In a list of `strings`, a stray quote inside a string does not end it."""
    items: list[str] = []
    closed = False
    at, begin, depth, quote = start + 1, start + 1, 0, ""
    while at < len(text) and not closed:
        sign = text[at]
        if quote:
            # A quote ends its string if a bracket follows it, or a comma and the first sign of another element.
            if sign == quote and (not strings or _CLOSING.match(text, at + 1)):
                quote = ""
            at += sign == "\\"
        elif sign in "\"'" and not text[begin:at].strip(" [\n\t"):
            quote = sign
        elif sign == "[":
            depth += 1
        elif sign == "]" and depth:
            depth -= 1
            if not depth:
                items.append(text[begin : at + 1].strip())
                begin = at + 1
        elif sign in ",]" and not depth:
            items.append(text[begin:at].strip())
            begin, closed = at + 1, sign == "]"
        at += 1
    return _List([item for item in items if item], at, closed)


def _digits(ids: list[str]) -> list[str]:
    """Ids that are whole numbers, as the published parser keeps them; what it drops shows as a length that differs."""
    plain = [item.strip("\"' ") for item in ids]
    return [str(int(item)) for item in plain if item.isdecimal() and len(item) < 5]


def _unquoted(item: str) -> str:
    r"""The text of a string literal. Of the escapes only those that a text can mean: `\frac` keeps its backslash."""
    quote, text = item[0], item.strip("\"'")
    if quote in _STRAY:
        text = item[1:].removesuffix(quote)
        stray = _STRAY[quote].search(text)
        if stray is not None and text[: stray.start()].count(quote) % 2 == 0:
            text = text[: stray.start()]
    text = _ESCAPE.sub(_unescaped, text)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").strip()


def _unescaped(found: re.Match[str]) -> str:
    if found[1]:
        return chr(int(found[1], 16))
    return "\n" if found[2] == "n" else found[2]


def render(plan: Plan | KeepAnswer, context: PlanFormatContext) -> str:
    """The three lists; access lists that hold everything before are written `["all"]`.

    The given text has no position: an access list that holds it and not everything cannot be written, and loses it.
    """
    steps = () if isinstance(plan, KeepAnswer) else plan.steps
    ids, access = [], []
    for number, step in enumerate(steps, start=1):
        ids.append(int(context.label(step.worker)))
        everything = step.access and set(step.access) == set(context.all_before(number))
        access.append(["all"] if everything else [item - 1 for item in step.access if item != GIVEN])
    subtasks = json.dumps([step.subtask for step in steps], ensure_ascii=False).translate(_SPELLED)
    subtasks = _JSON_ESCAPE.sub(lambda found: _LONG_ESCAPES.get(found[1], found[0]), subtasks)
    head = f"{plan.reasoning.strip()}\n" if plan.reasoning else ""
    return f"{head}model_id = {ids}\nsubtasks = {subtasks}\naccess_list = {json.dumps(access)}"


def grammar(context: PlanFormatContext) -> str:
    """GBNF with one alternative for each number of steps, which is the only way to hold three lists to one length.

    Reasoning lines hold no opening bracket, so that none of them can read like a list.
    """
    sizes = range(1, context.rules.steps - context.first + 2)
    options = [f"plan{size}" for size in sizes]
    options += ['"model_id = []\\nsubtasks = []\\naccess_list = []"'] if context.may_accept else []
    lines = [f"root ::= reasoning ({' | '.join(options)})", f"id ::= {base.alternatives(context.allowed)}"]
    lines += ["reasoning ::= thought{0,8}", f'thought ::= {base.char_class_without("[")}{{0,300}} "\\n"']
    for size in sizes:
        ids, texts = (' ", " '.join([rule] * size) for rule in ("id", "text"))
        entries = ' ", " '.join(f"access{context.first + index}" for index in range(size))
        lines.append(
            f'plan{size} ::= "model_id = [" {ids} "]\\nsubtasks = [" {texts} "]\\naccess_list = [" {entries} "]"'
        )
    for number in range(context.first, context.rules.steps + 1):
        # The given text, which has no position, is seen through `"all"`.
        positions = [chosen for chosen in base.access_sets(number, context) if GIVEN not in chosen]
        allowed = [*(json.dumps([item - 1 for item in chosen]) for chosen in positions), '["all"]']
        lines.append(f"access{number} ::= {base.alternatives(allowed)}")
    quotes = '"\\`“”„‘’'
    lines.append(f'text ::= "\\"" {base.text_without(quotes, context.subtask_chars)} "\\""')
    return "\n".join(lines)


def instructions(context: PlanFormatContext) -> str:
    """Instructions for the conductor on how to write a plan."""
    del context
    return (
        "Reason first, then write three lists of equal length: model_id (worker numbers), subtasks (texts) and "
        'access_list (an entry a step: [] for nothing, ["all"] for every earlier step, or positions from 0).'
    )


PUBLISHED = PlanFormat(
    name="published", parser=PublishedParser, render=render, grammar=grammar, instructions=instructions
)
