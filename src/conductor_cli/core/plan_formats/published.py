"""The published plan format: reasoning, then three lists of equal length.

It is that of arXiv 2512.04388, figure 13.

    model_id = [0, 2]
    subtasks = ["Work out the sum.", "Check the sum and give the answer."]
    access_list = [[], ["all"]]

Workers are numbered from 0. An access entry is `[]`, `"all"`, `["all"]`, or positions from 0 as in
the paper's appendix B.8. This parser tolerates what the published one does: backticks, bullets,
other names of the lists, any order of them, typographic quotes, ids as strings, and strings with
stray quotes, as in the paper's own examples. Three empty lists mean *accept*. A step is complete as
soon as its access entry is closed.

The prompt has the order, roles and marks of arXiv 2512.04388 (section 3, figure 13, appendix A) and
of its supplement on OpenReview (docs/train.md lists its parts). The sentences are our own, because
the supplement has no licence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from conductor_cli.core.chat import Message
from conductor_cli.core.errors import PlanError
from conductor_cli.core.formatting import format_count
from conductor_cli.core.plan import (
    GIVEN,
    KeepAnswer,
    Plan,
    PlanRules,
    Step,
    check_step,
    example_plan,
)
from conductor_cli.core.plan_formats import base
from conductor_cli.core.plan_formats.base import (
    ParsedStep,
    PlanFormat,
    PlanFormatContext,
    PlanParser,
)
from conductor_cli.core.question import Question, fence, question_text, shorten

_LABEL = re.compile(
    r"(?:(?P<ids>model[_ ]ids?)|(?P<subtasks>subtasks?)|(?P<access>access(?:[_ ]list)?))"
    r"[\"'*]*\s*[:=]\s*(?=\[)",
    re.IGNORECASE,
)
_QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "`": None})
_BULLET = re.compile(r"^[ \t]*[-*•][ \t]+", re.MULTILINE)
# Spaces are taken possessively: else a thousand of them would be divided in every way.
# A quote with a backslash before it belongs to the text.
_STRAY = {
    sign: re.compile(rf"(?<!\\)(?:{sign}\s*+){{1,2}}\.\s*+{sign}?\s*+\.?\s*+$") for sign in "\"'"
}
_CLOSING = re.compile(r"\s*+\.?\s*+(?:\]|,\s*+[\"'\[\]]|,?\s*+$)")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([n\"'\\/]))")
# What the parser would change, as escapes so that it does not.
_SPELLED = str.maketrans({sign: f"\\u{ord(sign):04x}" for sign in "“”„‘’`"})
# Escapes that the parser leaves as they are, because a text that means `\theta` has them too.
_JSON_ESCAPE = re.compile(r"\\(.)")
_LONG_ESCAPES = {"b": r"\u0008", "f": r"\u000c", "r": r"\u000d", "t": r"\u0009"}


class PublishedParser(PlanParser):
    """See `base.PlanParser`."""

    def __init__(self, context: PlanFormatContext) -> None:
        super().__init__(context)
        self._raw = ""
        self._given = 0  # access entries that have been turned into steps
        self._whole = False

    def feed(self, text: str) -> Iterator[ParsedStep | KeepAnswer]:
        self._raw += text
        # Only these characters can complete an element, and reading starts from the beginning of
        # the text each time.
        if any(sign in text for sign in "],\"'”’"):
            yield from self._read()

    def end(self) -> Iterator[ParsedStep | KeepAnswer]:
        yield from self._read()
        if not self._whole:
            raise PlanError(
                "the text does not end with three whole lists",
                hint="expected model_id, subtasks and access_list",
                line=self._raw[-200:].strip(),
            )

    def _read(self) -> Iterator[ParsedStep | KeepAnswer]:
        if self._whole:
            return
        lists = self._lists()
        ids = lists.get("ids", _NOTHING_YET)
        subtasks = lists.get("subtasks", _NOTHING_YET)
        access = lists.get("access", _NOTHING_YET)
        if not ids.closed or not subtasks.closed:
            return
        workers = _worker_ids(ids.items)
        if len(workers) > self._context.rules.steps - self._context.first + 1:
            raise base.too_many(self._context, self._last_words())
        if len(workers) == len(subtasks.items):
            yield from self._steps(workers, subtasks.items, access.items)
        if not access.closed:
            return
        self._whole = True
        if not ids.items and not subtasks.items and not access.items:
            yield base.checked_accept(self._context, self.reasoning, self._last_words())
        elif not 0 < len(workers) == len(subtasks.items) == len(access.items):
            raise PlanError(
                "the three lists differ in length: "
                f"{len(workers)} ids, {len(subtasks.items)} subtasks, "
                f"{len(access.items)} access entries",
                line=self._last_words(),
            )

    def _last_words(self) -> str:
        return self._raw[-200:].strip()

    def _steps(
        self, ids: list[str], subtasks: list[str], access: list[str]
    ) -> Iterator[ParsedStep]:
        """Yield the steps whose access entries have been closed since the last look."""
        while self._given < min(len(access), len(ids)):
            index = self._given
            number = self._context.first + index
            step = Step(
                worker=self._context.labels.get(ids[index], ids[index]),
                subtask=_unescaped(_unquoted(subtasks[index])),
                access=base.parse_access(access[index], number, self._context, base=0),
            )
            line = f"{ids[index]} {access[index]} {subtasks[index]}"
            check_step(step, number, self._context.rules, line)
            self._given += 1
            yield ParsedStep(number=number, step=step, last=index == len(ids) - 1)

    def _lists(self) -> dict[str, _List]:
        """Return the lists by name, as far as they are written.

        The first of each name, each after the one before it.
        """
        text = _BULLET.sub("", self._raw.translate(_QUOTES))
        lists: dict[str, _List] = {}
        end = 0
        while label := _LABEL.search(text, end):
            name = label.lastgroup or ""
            if not lists:
                self.reasoning = text[: label.start()].strip()
            written = _read_list(text, label.end(), strings=name == "subtasks")
            lists.setdefault(name, written)
            end = written.end
        return lists


def _worker_ids(items: Iterable[str]) -> list[str]:
    """Return the ids that are numbers, without quotes and leading zeros."""
    ids = []
    for item in items:
        digits = item.strip("\"' ")
        if digits.isdecimal() and len(digits) < 5:
            ids.append(str(int(digits)))
    return ids


def _unquoted(text: str) -> str:
    """Return the text of a string, without its quotes and without stray ones at its end."""
    quote = text[0]
    if quote not in _STRAY:
        return text.strip("\"'")
    text = text[1:].removesuffix(quote)
    stray = _STRAY[quote].search(text)
    if stray is not None and text[: stray.start()].count(quote) % 2 == 0:
        return text[: stray.start()]
    return text


def _unescaped(text: str) -> str:
    r"""Return the text with what its escapes mean.

    Only those that a text can mean are read: `\frac` keeps its backslash.
    """
    text = _ESCAPE.sub(_escaped_character, text)
    # Two escapes may be the halves of one character; a half alone cannot be written anywhere.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").strip()


def _escaped_character(escape: re.Match[str]) -> str:
    digits, sign = escape.groups()
    if digits:
        return chr(int(digits, 16))
    if sign == "n":
        return "\n"
    return str(sign)


class _List(NamedTuple):
    """The complete elements of a list, where it ends, and whether it is closed."""

    items: list[str]
    end: int
    closed: bool


_NOTHING_YET: Final = _List([], 0, closed=False)


def _read_list(text: str, start: int, *, strings: bool) -> _List:
    """Return the list that opens at `start`.

    In a list of `strings`, a stray quote inside a string does not end it.
    """
    items: list[str] = []
    closed = False
    at = start + 1
    begin = start + 1
    depth = 0
    quote = ""
    while at < len(text) and not closed:
        sign = text[at]
        if quote:
            # A quote ends its string if a bracket follows it, or a comma and the first sign of
            # another element.
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
            begin = at + 1
            closed = sign == "]"
        at += 1
    return _List(list(filter(None, items)), at, closed)


class PublishedFormat(PlanFormat):
    """Three lists of equal length."""

    name = "published"
    parser = PublishedParser

    def render(self, plan: Plan | KeepAnswer, context: PlanFormatContext) -> str:
        """Return the three lists; access lists that hold everything before are written `["all"]`.

        The given text has no position: an access list that holds it and not everything cannot be
        written, and loses it.
        """
        steps: tuple[Step, ...] = ()
        if isinstance(plan, Plan):
            steps = plan.steps
        ids = []
        access: list[list[str] | list[int]] = []
        for number, step in enumerate(steps, start=1):
            ids.append(int(context.label(step.worker)))
            if step.access and set(step.access) == set(context.all_before(number)):
                access.append(["all"])
            else:
                access.append(_positions(step.access))
        subtasks = json.dumps([step.subtask for step in steps], ensure_ascii=False)
        subtasks = _JSON_ESCAPE.sub(_long_escape, subtasks.translate(_SPELLED))
        head = ""
        if plan.reasoning:
            head = f"{plan.reasoning.strip()}\n"
        return f"{head}model_id = {ids}\nsubtasks = {subtasks}\naccess_list = {json.dumps(access)}"

    def grammar(self, context: PlanFormatContext) -> str:
        """Return GBNF with one alternative for each number of steps.

        Nothing else holds three lists to one length. Reasoning lines hold no opening bracket, so
        that none of them can read like a list.
        """
        sizes = range(1, context.rules.steps - context.first + 2)
        options = [f"plan{size}" for size in sizes]
        if context.may_accept:
            options.append('"model_id = []\\nsubtasks = []\\naccess_list = []"')
        lines = [
            f"root ::= reasoning ({' | '.join(options)})",
            f"id ::= {base.alternatives(context.allowed)}",
            "reasoning ::= thought{0,8}",
            f'thought ::= {base.char_class_without("[")}{{0,300}} "\\n"',
        ]
        for size in sizes:
            ids = ' ", " '.join(["id"] * size)
            texts = ' ", " '.join(["text"] * size)
            entries = ' ", " '.join(f"access{context.first + index}" for index in range(size))
            lines.append(
                f'plan{size} ::= "model_id = [" {ids} "]\\nsubtasks = [" {texts} '
                f'"]\\naccess_list = [" {entries} "]"'
            )
        for number in range(context.first, context.rules.steps + 1):
            # The given text, which has no position, is seen through `"all"`.
            allowed = []
            for access in base.access_sets(number, context):
                if GIVEN not in access:
                    allowed.append(json.dumps(_positions(access)))
            allowed.append('["all"]')
            lines.append(f"access{number} ::= {base.alternatives(allowed)}")
        quotes = '"\\`“”„‘’'
        lines.append(f'text ::= "\\"" {base.text_without(quotes, context.subtask_chars)} "\\""')
        return "\n".join(lines)

    # They are always the same
    def instructions(self, context: PlanFormatContext) -> str:  # noqa: ARG002
        return (
            "Reason first, then write three lists of equal length: model_id (worker numbers), "
            'subtasks (texts) and access_list (an entry a step: [] for nothing, ["all"] for every '
            "earlier step, or positions from 0)."
        )


def _positions(access: Iterable[int]) -> list[int]:
    """Return the positions from 0 of steps on an access list; the given text has none."""
    return [number - 1 for number in access if number != GIVEN]


def _long_escape(escape: re.Match[str]) -> str:
    return _LONG_ESCAPES.get(escape[1], escape[0])


SYSTEM: Final = (
    "You are a helpful assistant. You think about how a team of models is best coordinated to "
    "answer the queries of users."
)

_THINK: Final = (
    "Let's think step by step about {}, and then write the subtasks, the models and "
    "the access list."
)
PREFILL: Final = _THINK.format("what this question needs")
# Where there is an answer
PREFILL_AGAIN: Final = _THINK.format("whether the earlier routing has to be changed")

_TASK: Final = """\
Your role is to obtain the answer to a user's question by asking powerful language models with \
different skills, one \
after another.

You are given the user's question, and a list of numbered language models with their metadata.

Your objective is a good answer in up to {steps}. A routing step is a model, a subtask for it, and \
an access list.

A subtask may be to solve the question from scratch, to refine the solution before it, or anything \
else that helps the \
models after it.

The first model is shown the question and the first subtask. Each later model is shown the \
question, its own subtask, \
and the earlier subtasks and responses that its access list gives it. The response of the last \
model goes to the user.

Reason first. Then write three Python lists of equal length:
model_id: the integer id of the model of each step.
subtasks: the subtask of each step, a string.
access_list: for each step, [] if its model sees no earlier step, or ["all"] if it sees all \
earlier subtasks and \
responses."""


_EXAMPLES: Final = (
    (
        "Reach 428 with +, -, * and / from the numbers 3, 8, 25 and 50, each used at most once.",
        example_plan(
            "A search by hand is easy to get wrong, so one model should look for products near the "
            "target, another should test what it found, and the first should write the "
            "expression.",
            (
                "0",
                (),
                (
                    "List products of two of the numbers that come close to the target, with what "
                    "remains."
                ),
            ),
            (
                "2",
                (1,),
                (
                    "Test each candidate by computing it step by step, and look for others if none "
                    "reaches the target."
                ),
            ),
            (
                "0",
                (1, 2),
                (
                    "Write one expression that reaches the target exactly, after checking which "
                    "numbers it uses."
                ),
            ),
        ),
    ),
    (
        (
            "Do beta blockers lower the risk of death in heart failure with reduced ejection "
            "fraction? Yes or no?"
        ),
        example_plan(
            "This is a matter of evidence. Two models should recall it without seeing each other, "
            "so that they do not repeat one mistake, and a third should weigh both.",
            ("1", (), "Name the main trials on this question and what each of them found."),
            ("0", (), "Answer from guidelines and reviews, and say how sure you are."),
            (
                "2",
                (1, 2),
                "Compare both responses, settle what they disagree on, and answer with yes or no.",
            ),
        ),
    ),
)
"""Questions, and a routing of each by the numbers of models."""


def published_messages(  # noqa: PLR0913 - the parts of the template
    question: Question,
    context: PlanFormatContext,
    *,
    pool_size: int,
    characters: int,
    examples: bool = True,
    rules: Sequence[str] = (),
) -> tuple[list[Message], str]:
    """Return the two messages, and how the reply begins.

    The question and an existing answer are shortened to `characters` each. `pool_size` counts all
    workers; only those that may be asked now are listed, under their own numbers. `rules` say who
    may see what, and follow the list.
    """
    steps = format_count(context.rules.steps, "routing step")
    parts = [_TASK.format(steps=steps)]
    if examples:
        parts[0] += "\n\nFor instance:"
        parts += _example_parts(pool_size)
    models = "\n".join(f"Model id {label}" for label in context.allowed)
    parts += [
        f"USER QUESTION:\n{question_text(question, characters)}\nEND OF USER QUESTION",
        f"AVAILABLE LANGUAGE MODELS:\n{models}",
        *rules,
    ]
    prefill = PREFILL
    if question.given:
        answer = shorten(question.given[-1].answer, characters)
        parts.append(
            f"There is a response to this question already:\n{fence('answer', answer)}\n"
            f"You may correct or improve it with a new sequence of up to {steps}, in the same "
            'form; "all" shows this response too. To return it as it is, write three empty lists:\n'
            f"{PublishedFormat().render(KeepAnswer(), context)}"
        )
        prefill = PREFILL_AGAIN
    messages = [
        Message(role="system", content=SYSTEM),
        Message(role="user", content="\n\n".join(parts)),
    ]
    return messages, prefill


def _example_parts(pool_size: int) -> list[str]:
    names = tuple(map(str, range(pool_size)))
    context = PlanFormatContext(
        rules=PlanRules(workers=names), labels=dict(zip(names, names, strict=True))
    )
    parts = []
    for question, plan in _EXAMPLES:
        # The ids are wrapped to the size of the pool, so that none of them is invalid.
        wrapped = []
        for step in plan.steps:
            wrapped.append(replace(step, worker=str(int(step.worker) % pool_size)))
        text = PublishedFormat().render(replace(plan, steps=tuple(wrapped)), context)
        parts.append(f"Question: {question}\nAssistant Response: {text}")
    return parts
