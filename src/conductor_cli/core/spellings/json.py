"""Plans as JSON: `{"steps": [{"worker": "A", "access": [1], "subtask": "…"}]}`, or `{"accept": true}`.

A step is complete when the sign behind its object (a comma or a bracket) has come, which also tells whether it is the
last. Text around the JSON, fences, a bare list, `"all"`, and worker names in place of labels are tolerated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from conductor_cli.core.errors import PlanError
from conductor_cli.core.plan import Accept, Plan, Step
from conductor_cli.core.spellings.terms import (
    DIRECT,
    Parsed,
    Spelling,
    Terms,
    access_of,
    access_sets,
    checked,
    either,
    literal,
    worker_of,
)

_DECODER = json.JSONDecoder()
_LIST = re.compile(r"\[(?=\s*(?:\{|\]|$))")
_ACCEPT = re.compile(r'\{\s*"accept"\s*:\s*true\s*\}')


class JsonParser:
    """See `terms.Parser`."""

    def __init__(self, terms: Terms) -> None:
        self.reasoning = ""
        self._terms = terms
        self._text = ""
        self._at: int | None = None  # behind the list's opening bracket, or behind the last object that was read
        self._number = terms.first
        self._ended = False

    def feed(self, text: str) -> Iterator[Parsed | Accept]:
        self._text += text
        if self._at is None:
            found = _LIST.search(self._text)
            # An opening bracket at the very end may still turn out to be prose.
            if found is None or not self._text[found.end() :].strip():
                return
            self._at = found.end()
            self.reasoning = _reasoning(self._text[: found.start()])
        while not self._ended and (parsed := self._next()) is not None:
            yield parsed

    def _next(self) -> Parsed | None:
        """The next object, once the sign behind it is there."""
        at = _skip(self._text, self._at or 0, ", \t\r\n")
        if self._text[at : at + 1] == "]":
            self._ended = True
            return None
        try:
            data, end = _DECODER.raw_decode(self._text, at)
        except ValueError:
            return None
        behind = _skip(self._text, end, " \t\r\n")
        sign = self._text[behind : behind + 1]
        if not sign:
            return None
        last = sign == "]"
        step = self._step(data)
        if self._number >= self._terms.rules.steps and not last:
            raise PlanError(f"the plan has more than {self._terms.rules.steps} steps", line=self._text[behind:].strip())
        self._at, self._ended = behind, last
        self._number += 1
        return Parsed(number=self._number - 1, step=step, last=last)

    def _step(self, data: Any) -> Step:  # noqa: ANN401 - any JSON value
        line = json.dumps(data, ensure_ascii=False)
        if not isinstance(data, dict) or "worker" not in data:
            raise PlanError(f"step {self._number} is no object with worker, access and subtask", line=line)
        worker = str(data["worker"])
        access = data.get("access", [])
        cell = " ".join(map(str, access)) if isinstance(access, list) else str(access)
        step = Step(
            worker=worker_of(worker, self._terms) or worker,
            subtask=str(data.get("subtask", DIRECT if self._terms.single else "")).strip(),
            access=access_of(cell, self._number, self._terms),
        )
        return checked(step, self._number, self._terms, line)

    def end(self) -> Iterator[Parsed | Accept]:
        if _ACCEPT.search(self._text) and self._number == 1:
            if not self._terms.rules.given:
                raise PlanError("accept needs an answer at hand, and there is none", line=self._text.strip()[:200])
            yield Accept(reasoning=self.reasoning)
        elif not self._ended or self._number == self._terms.first:
            rest = self._text[self._at or 0 :].strip()
            raise PlanError("the text holds no complete JSON plan", hint='expected {"steps": [...]}', line=rest[:200])


def _skip(text: str, at: int, signs: str) -> int:
    while at < len(text) and text[at] in signs:
        at += 1
    return at


def _reasoning(head: str) -> str:
    found = re.search(r'"reasoning"\s*:\s*', head)
    if found is None:
        return head.strip().strip("{`").strip()
    try:
        return str(_DECODER.raw_decode(head, found.end())[0])
    except ValueError:
        return ""


def spell(plan: Plan | Accept, terms: Terms) -> str:
    """Compact JSON."""
    if isinstance(plan, Accept):
        return '{"accept":true}'
    steps = [
        {"worker": terms.label(step.worker), "access": list(step.access), "subtask": step.subtask} for step in plan.steps
    ]
    head = {"reasoning": plan.reasoning} if terms.reasoning else {}
    return json.dumps({**head, "steps": steps}, ensure_ascii=False, separators=(",", ":"))


def grammar(terms: Terms) -> str:
    """GBNF for compact JSON under the rules; a subtask holds no control characters."""
    last = 1 if terms.single else terms.rules.steps
    head = '"{\\"reasoning\\":\\"" char{0,600} "\\",\\"steps\\":["' if terms.reasoning else '"{\\"steps\\":["'
    accept = literal('{"accept":true}') + " | " if terms.rules.given and terms.first == 1 else ""
    lines = [f'root ::= {accept}{head} step{terms.first} "]}}"', f"label ::= {either(list(terms.labels))}"]
    for number in range(terms.first, last + 1):
        follows = f' ("," step{number + 1})?' if number < last else ""
        access = either([",".join(map(str, chosen)) for chosen in access_sets(number, terms)])
        lines.append(
            f'step{number} ::= "{{\\"worker\\":\\"" label "\\",\\"access\\":[" access{number} "],\\"subtask\\":\\"" '
            f'text "\\"}}"{follows}'
        )
        lines.append(f"access{number} ::= {access}")
    lines.append(f"text ::= [^\\x00-\\x20\\x7f\"\\\\] char{{0,{terms.subtask_chars - 1}}}")
    lines.append("char ::= [^\\x00-\\x1f\\x7f\"\\\\] | \"\\\\\" [\"\\\\/nt]")
    return "\n".join(lines)


def explain(terms: Terms) -> str:
    """How to write a plan, told to a conductor."""
    first = '"reasoning": "…", ' if terms.reasoning else ""
    return (
        f'Write one JSON object: {{{first}"steps": [{{"worker": "A", "access": [1], "subtask": "…"}}]}}. '
        "The access list holds the numbers of earlier steps. Write nothing else."
    )


JSON = Spelling(name="json", parser=JsonParser, spell=spell, grammar=grammar, explain=explain)
