"""Plans as JSON: `{"steps": [{"worker": "A", "access": [1], "subtask": "…"}]}`, or `{"accept".

True}`.

Under a schema, which has one form for both, keeping the answer is `{"accept": true, "steps": []}`.

A step is complete when the character after its object has come, and behind a comma the next one,
which shows whether it is the last. Text around the JSON, fences, a bare list, a comma before the
closing bracket, `"all"`, and worker names instead of labels are tolerated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from conductor_cli.core.errors import PlanError
from conductor_cli.core.plan import KeepAnswer, Plan, Step, check_step
from conductor_cli.core.plan_formats import base
from conductor_cli.core.plan_formats.base import (
    ParsedStep,
    PlanFormat,
    PlanFormatContext,
    PlanParser,
)

ACCEPT = '"accept":true'

_DECODER = json.JSONDecoder()
# Neither can stand inside a JSON string, where quotes are escaped: reasoning may hold anything.
_LIST = re.compile(r'"steps"\s*:\s*\[|\[(?=\s*\{\s*"(?:worker|access|subtask)"\s*:)')
_REASONING = re.compile(r'"reasoning"\s*:\s*')


class JsonParser(PlanParser):
    """See `base.PlanParser`."""

    def __init__(self, context: PlanFormatContext) -> None:
        super().__init__(context)
        self._text = ""
        # After the list's opening bracket, or after the last object that was read
        self._at: int | None = None
        self._ended = False

    def feed(self, text: str) -> Iterator[ParsedStep | KeepAnswer]:
        self._text += text
        if self._at is None:
            beginning = _LIST.search(self._text)
            if beginning is None:
                return
            self._at = beginning.end()
            self.reasoning = _reasoning(self._text[: beginning.start()])
        while not self._ended:
            at = self._behind(self._at, ", \t\r\n")
            if self._text[at : at + 1] == "]":
                self._ended = True
                return
            # The whole object is decoded again for each piece of text. It is short, and the decoder
            # is written in C.
            try:
                decoded, end = _DECODER.raw_decode(self._text, at)
            except (ValueError, RecursionError):
                return  # not complete yet, or never; `end` reports the latter
            behind = self._behind(end, ", \t\r\n")
            sign = self._text[behind : behind + 1]
            if not sign:
                return
            line = json.dumps(decoded, ensure_ascii=False)
            number = self._number
            if (
                not isinstance(decoded, dict)
                or "worker" not in decoded
                or not isinstance(decoded.get("subtask", ""), str)
            ):
                raise PlanError(
                    f"step {number} is not an object with worker, access and subtask", line=line
                )
            worker = str(decoded["worker"])
            access = decoded.get("access", [])
            if isinstance(access, list):
                access = " ".join(map(str, access))
            step = Step(
                worker=base.parse_worker(worker, self._context) or worker,
                subtask=decoded.get("subtask", "").strip(),
                access=base.parse_access(str(access), number, self._context),
            )
            check_step(step, number, self._context.rules, line)
            self._ended = sign == "]"
            if number >= self._context.rules.steps and not self._ended:
                raise base.too_many(self._context, self._text[behind:])
            self._at = behind
            self._number += 1
            yield ParsedStep(number=number, step=step, last=self._ended)

    def _behind(self, at: int, signs: str) -> int:
        while at < len(self._text) and self._text[at] in signs:
            at += 1
        return at

    def end(self) -> Iterator[ParsedStep | KeepAnswer]:
        try:
            decoded, end = _DECODER.raw_decode(self._text, max(self._text.find("{"), 0))
            # The text is an object that says accept, with at most a fence after it. A mention is
            # not enough.
            accepts = (
                isinstance(decoded, dict)
                and decoded.get("accept") is True
                and not self._text[end:].strip("` .\n\t\r")
            )
        except (ValueError, RecursionError):
            accepts = False
        if self._number == self._context.first and accepts:
            yield base.checked_accept(
                self._context, _reasoning(self._text), self._text.strip()[:200]
            )
        elif not self._ended or self._number == self._context.first:
            rest = self._text[self._at or 0 :].strip()
            raise PlanError(
                "there is no complete JSON plan in the text",
                hint='expected {"steps": [...]}',
                line=rest[:200],
            )


def _reasoning(head: str) -> str:
    beginning = _REASONING.search(head)
    if beginning is None:
        return head.partition("{")[0].strip().strip("`").strip()
    try:
        return str(_DECODER.raw_decode(head, beginning.end())[0])
    except (ValueError, RecursionError):
        return ""


class JsonFormat(PlanFormat):
    """One JSON object."""

    name = "json"
    parser = JsonParser

    def render(self, plan: Plan | KeepAnswer, context: PlanFormatContext) -> str:
        head = {}
        if context.reasons:
            head = {"reasoning": plan.reasoning}
        if isinstance(plan, KeepAnswer):
            return json.dumps({**head, "accept": True}, ensure_ascii=False, separators=(",", ":"))
        steps = []
        for step in plan.steps:
            step_fields = {
                "worker": context.label(step.worker),
                "access": list(step.access),
                "subtask": step.subtask,
            }
            steps.append(step_fields)
        return json.dumps({**head, "steps": steps}, ensure_ascii=False, separators=(",", ":"))

    def grammar(self, context: PlanFormatContext) -> str:
        """Return GBNF for compact JSON under the rules; a subtask holds no control characters."""
        head = ""
        if context.reasons:
            head = '"\\"reasoning\\":\\"" char{0,600} "\\"," '
        plan = f'"\\"steps\\":[" step{context.first} "]"'
        if context.may_accept:
            plan = f"({base.literal(ACCEPT)} | {plan})"
        lines = [
            f'root ::= "{{" {head}{plan} "}}"',
            f"label ::= {base.alternatives(context.allowed)}",
        ]
        for number in range(context.first, context.rules.steps + 1):
            follows = ""
            if number < context.rules.steps:
                follows = f' ("," step{number + 1})?'
            access_sets = base.access_sets(number, context)
            access = base.alternatives([",".join(map(str, numbers)) for numbers in access_sets])
            lines.append(
                f'step{number} ::= "{{\\"worker\\":\\"" label "\\",\\"access\\":[" access{number} '
                '"],'
                f'\\"subtask\\":\\"" text "\\"}}"{follows}'
            )
            lines.append(f"access{number} ::= {access}")
        quote = '"\\'
        lines.append(
            f"text ::= {base.char_class_without(base.BLANK + quote)} "
            f"char{{0,{context.subtask_chars - 1}}}"
        )
        lines.append(f'char ::= {base.char_class_without(quote)} | "\\\\" ["\\\\/nt]')
        return "\n".join(lines)

    def instructions(self, context: PlanFormatContext) -> str:
        first = ""
        if context.reasons:
            first = '"reasoning": "…", '
        return (
            f'Write one JSON object: {{{first}"steps": [{{"worker": "A", "access": [1], "subtask": '
            '"…"}]}. '
            "The access list holds the numbers of earlier steps. Write nothing else."
        )

    def schema(self, context: PlanFormatContext) -> Mapping[str, Any] | None:
        """Return a JSON Schema in the subset that all servers with schemas support.

        That is closed objects, enums and bounded lists. The parser checks what this subset cannot
        express: which steps come earlier, and that a subtask is neither empty nor long. Where there
        is an answer to keep, both ways of answering are in one object, since no server allows a
        choice at the root.
        """
        if context.single:
            return None

        def closed(properties: Mapping[str, Any]) -> dict[str, Any]:
            return {
                "type": "object",
                "properties": properties,
                "required": list(properties),
                "additionalProperties": False,
            }

        last = context.rules.steps
        visible = list(context.all_before(last))
        number = {"type": "integer", "enum": visible or [last]}
        step = {
            "worker": {"type": "string", "enum": context.allowed},
            "access": {"type": "array", "items": number, "maxItems": len(visible)},
            "subtask": {"type": "string"},
        }
        least = 1
        if context.may_accept:
            least = 0
        steps = {
            "type": "array",
            "items": closed(step),
            "minItems": least,
            "maxItems": last - context.first + 1,
        }
        reasoning = {}
        if context.reasons:
            reasoning = {"reasoning": {"type": "string"}}
        accept = {}
        if context.may_accept:
            accept = {"accept": {"type": "boolean"}}
        return closed({**reasoning, **accept, "steps": steps})
