"""The native plan format.

One line for each step, `worker | access | subtask`, workers by label, steps by number.

    A | - | Work out the sum.
    B | 1 | Check the sum and give the answer.

A newline means that another step follows and the end of the text ends the plan, so it is known
whether a step is the last the moment its line ends. With `reasoning`, free text comes first and
ends with a line `plan:`. A line `accept` keeps the existing answer. The profile may order the
columns otherwise, and put a bare bar between them. It may have a closing line: `code B` at the end
of a plan answers the question from all results.

Where no grammar constrains the text, it is read as people and models write: fences, bullets,
numbering, table rows, names instead of labels, subtasks over several lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from string import ascii_lowercase

from conductor_cli.core.errors import PlanError
from conductor_cli.core.plan import KeepAnswer, Plan, Step, check_step
from conductor_cli.core.plan_formats import base
from conductor_cli.core.plan_formats.base import (
    ParsedStep,
    PlanFormat,
    PlanFormatContext,
    PlanParser,
)

ACCEPT = "accept"
PLAN = "plan:"

_DECORATION = re.compile(
    r"^\s*(?:[-*•]\s+(?=[^\s|])|\d+[.)]\s+|#+\s+|(?:\*\*)?step\s+\d+\s*[:.)](?:\*\*)?\s*)",
    re.IGNORECASE,
)
_RULE = re.compile(r"^[\s|:\-–—=`~]*$")
_WORD = re.compile(r"^[\W_]*[\w.:/-]{1,60}\W*$")
_NUMBERS = re.compile(r"[\d\s,]*")
_MAX_WORD = 200
"""Characters of a cell that may name a worker. A pattern that tries every end of a longer one would
take seconds.
"""


class NativeParser(PlanParser):
    """See `base.PlanParser`."""

    def __init__(self, context: PlanFormatContext) -> None:
        super().__init__(context)
        self._rest = ""
        self._held: ParsedStep | None = None
        self._open = not context.reasons
        self._accepted = False
        self._closed = False

    def feed(self, text: str) -> Iterator[ParsedStep | KeepAnswer]:
        self._rest += text
        while "\n" in self._rest:
            line, self._rest = self._rest.split("\n", 1)
            yield from self._read(line)
            if self._has_next_step():
                yield from self._release(line)
        if self._has_next_step():
            yield from self._release(self._rest)
        # Without a grammar a line may be followed by more of its subtask. Once the next line looks
        # like a step, the one before it is complete and can start, long before that next line ends.
        may_begin = self._open and not self._context.constrained and not self._context.single
        if (
            may_begin
            and self._context.order[-1] == "subtask"
            and self._is_step(_undecorated(self._rest))
        ):
            yield from self._release(self._rest)

    def end(self) -> Iterator[ParsedStep | KeepAnswer]:
        line = self._rest
        self._rest = ""
        yield from self._read(line)
        if self._held is not None:
            held = self._held
            self._held = None
            yield ParsedStep(number=held.number, step=held.step, last=True)
        elif not self._accepted:
            wanted = "a line like A | - | subtask"
            if not self._open:
                wanted = f"a line {PLAN!r} and a plan after it"
            problem = "the last step is missing"
            if self._number == self._context.first:
                problem = "there is no plan in the text"
            raise PlanError(problem, hint=f"expected {wanted}", line=self.reasoning[-200:].strip())

    def _release(self, line: str) -> Iterator[ParsedStep]:
        """Yield the held step, which is complete: another one follows it, as `line` shows."""
        held = self._held
        self._held = None
        if held is None:
            return
        if held.number >= self._context.rules.steps:
            # The step that was held back is not the last one the plan means, so it is not kept.
            raise base.too_many(self._context, line)
        yield held

    def _read(self, line: str) -> Iterator[ParsedStep | KeepAnswer]:
        if self._accepted:
            return
        if not self._open:
            self._read_reasoning(line)
            return
        clean = line
        if not self._context.constrained:
            clean = _undecorated(line)
        if self._is_accept(clean):
            self._accepted = True
            yield base.checked_accept(self._context, self.reasoning, line)
        elif self._context.single:
            self._read_single(clean)
        elif self._closed:
            self._read_after_closing(line, clean)
        elif (worker := self._closing_worker(clean)) is not None:
            yield from self._close(worker, line)
        elif self._is_step(clean):
            yield from self._release(line)
            self._hold(self._parse_step(clean), line)
        elif line.strip() and not _RULE.match(line):
            self._read_more_words(line)

    def _read_reasoning(self, line: str) -> None:
        """Read a line of the text before the plan, up to the one that opens it."""
        if self._context.constrained:
            self._open = line == PLAN
        else:
            # Models like to emphasise the line, or to leave out its colon.
            plain = re.sub(r"[*#`_\s]", "", line).lower()
            self._open = plain in (PLAN, "plan")
        if not self._open:
            self.reasoning += f"{line}\n"

    def _is_accept(self, line: str) -> bool:
        """Return whether a line keeps the existing answer.

        Only before the first step: a later line belongs to a subtask, which may mention the word.
        """
        word = line.strip().strip(".!*\"'").lower()
        return word == ACCEPT and self._held is None and self._number == 1

    def _read_single(self, line: str) -> None:
        """Read a line of a plan that is one label.

        The first one that names a worker is the plan; the text around it is a comment.
        """
        worker = base.parse_worker(line.partition("|")[0], self._context)
        if worker is None or self._held is not None:
            self.reasoning += line + "\n"
            return
        access = self._context.all_before(self._number)
        self._hold(Step(worker=worker, subtask=base.ANSWER_DIRECTLY, access=access), line)

    def _read_after_closing(self, line: str, clean: str) -> None:
        """Read a comment after the line that ends the plan."""
        if self._is_step(clean):
            raise PlanError("a step follows the line that ends the plan", line=line)
        self.reasoning += line + "\n"

    def _close(self, worker: str, line: str) -> Iterator[ParsedStep]:
        """End the plan with an answer of `worker` from all results."""
        self._closed = True
        if self._held is not None and self._may_join(self._held, worker):
            self._held = self._joined(self._held)
            return
        yield from self._release(line)
        access = self._context.all_before(self._number)
        subtask = self._context.closing_subtask(self._number)
        self._hold(Step(worker=worker, subtask=subtask, access=access), line)

    def _parse_step(self, line: str) -> Step:
        cells = dict(zip(self._context.order, _cells(line, self._context), strict=True))
        worker = base.parse_worker(cells["worker"], self._context) or cells["worker"].strip()
        access = base.parse_access(cells["access"], self._number, self._context)
        return Step(worker=worker, subtask=cells["subtask"].strip(), access=access)

    def _read_more_words(self, line: str) -> None:
        """Read a line that is no step: before the plan a comment, after a step more of its subtask.

        A grammar admits no such line.
        """
        if self._context.constrained:
            raise PlanError("a line is not a step of a plan", line=line)
        if self._held is None:
            self.reasoning += line + "\n"
            return
        step = self._held.step
        step = replace(step, subtask=f"{step.subtask}\n{line.rstrip()}")
        self._held = replace(self._held, step=step)

    def _closing_worker(self, line: str) -> str | None:
        """Return the worker that a closing line names, None for any other line."""
        if not self._context.closing or "|" in line or not line.strip():
            return None
        return base.parse_worker(line, self._context)

    def _may_join(self, held: ParsedStep, worker: str) -> bool:
        """Return whether a step can also give the answer that is wanted from a worker.

        It is that worker's, and it has read all other results.
        """
        has_read_all = held.step.access == self._context.all_before(held.number)
        return has_read_all and held.step.worker == worker

    def _joined(self, held: ParsedStep) -> ParsedStep:
        """Return a step that also does what the closing line asks for."""
        self.joined = True
        subtask = self._context.joined_subtask(held.number, held.step.subtask)
        return replace(held, step=replace(held.step, subtask=subtask))

    def _has_next_step(self) -> bool:
        """Return whether another step follows the held one, where a grammar says how lines begin.

        A closing line begins with a small letter or is a label, and may belong to the held step.
        """
        # A plan that is one label has no further step, whatever a server writes that ignores its
        # grammar.
        if not self._context.constrained or self._context.single:
            return False
        if not self._context.closing:
            return True
        if not self._rest or self._rest in self._context.labels:
            return False
        return self._rest[0] not in ascii_lowercase

    def _hold(self, step: Step, line: str) -> None:
        """Hold the next step until it is known whether another one follows it."""
        check_step(step, self._number, self._context.rules, line)
        self._held = ParsedStep(number=self._number, step=step, last=False)
        self._number += 1

    def _is_step(self, line: str) -> bool:
        """Return whether a line is meant as a step.

        An unknown worker counts only beside a readable access list.
        """
        if line.count("|") < 2 or _RULE.match(line):
            return False
        cells = dict(zip(self._context.order, _cells(line, self._context), strict=True))
        if (
            self._context.constrained
            or base.parse_worker(cells["worker"], self._context) is not None
        ):
            return True
        worker = cells["worker"].strip()
        access = cells["access"].strip().lstrip("[(").rstrip("])").strip().lower()
        if not cells["access"] or len(worker) > _MAX_WORD or not _WORD.match(worker):
            return False
        return access in {"-", "–", "—", "none", "all"} or _NUMBERS.fullmatch(access) is not None


def _undecorated(line: str) -> str:
    stripped = line.strip()
    if stripped.startswith("`"):
        line = stripped.strip("`")
    line = _DECORATION.sub("", line, count=1)
    stripped = line.strip()
    if stripped.startswith("|") and stripped.count("|") > 2:
        line = stripped.removeprefix("|").removesuffix("|")
    return line


def _cells(line: str, context: PlanFormatContext) -> list[str]:
    column = context.order.index("subtask")
    head = line.split("|", column)
    tail = head.pop().rsplit("|", 2 - column)
    return [*head, *tail]


class NativeFormat(PlanFormat):
    """One line for each step."""

    name = "native"
    parser = NativeParser

    def render(self, plan: Plan | KeepAnswer, context: PlanFormatContext) -> str:
        """Return the plan as text. Line breaks inside a subtask become spaces."""
        head = ""
        if context.reasons:
            head = f"{plan.reasoning.strip()}\n{PLAN}\n"
        if isinstance(plan, KeepAnswer):
            return head + ACCEPT
        if context.single:
            return context.label(plan.steps[0].worker)
        lines = []
        for number, step in enumerate(plan.steps, start=context.first):
            if step is plan.steps[-1] and _is_closing(step, number, context):
                lines.append(context.label(step.worker))
                continue
            cells = {
                "worker": context.label(step.worker),
                "access": " ".join(map(str, step.access)) or "-",
                "subtask": " ".join(step.subtask.split()),
            }
            lines.append(context.bar.join(cells[column] for column in context.order))
        return head + "\n".join(lines)

    def grammar(self, context: PlanFormatContext) -> str:
        """Return GBNF that admits exactly the plans that the rules allow.

        A subtask has at most `subtask_chars` characters. Reasoning lines start with a dash, so that
        none of them can read `plan:`.
        """
        if context.single:
            chosen = base.alternatives([context.lead + label for label in context.allowed])
            root = f"root ::= {chosen}"
            if context.may_accept:
                root += f" | {base.literal(ACCEPT)}"
            return root
        root = f"step{context.first}"
        if context.may_accept:
            root = f"({base.literal(ACCEPT)} | {root})"
        if context.reasons:
            root = f'thought{{0,8}} "plan:\\n" {root}'
        lines = [f"root ::= {root}", f"label ::= {_named_label(context)}"]
        for number in range(context.first, context.rules.steps + 1):
            lines += _step_rules(number, context)
        # Kinds of work begin with a small letter, so the first one says which line it is.
        small = ascii_lowercase if context.closing else ""
        subtask = base.text_without("|", context.subtask_chars, at_first=small)
        lines.append(f"subtask ::= {subtask}")
        if context.reasons:
            lines.append(f'thought ::= "- " {base.char_class_without("")}{{1,300}} "\\n"')
        return "\n".join(lines)

    def instructions(self, context: PlanFormatContext) -> str:
        names = {}
        if context.skills:
            names = {"worker": "skill and worker"}
        columns = context.bar.join(names.get(column, column) for column in context.order)
        text = (
            f"Write one line a step: {columns}. The access list is - for nothing, or step "
            "numbers such as 1 2."
        )
        if context.closing:
            text += (
                f" The last line, or the only one, is {names.get('worker', 'worker')} alone: "
                "the answer from all results."
            )
        if context.reasons:
            text += (
                " First reason in a few short lines that start with a dash, then write a line "
                f"{PLAN} and the steps."
            )
        return text + " Write nothing else."


def _is_closing(step: Step, number: int, context: PlanFormatContext) -> bool:
    """Return whether a step is what a closing line says."""
    if not context.closing or step.subtask != context.closing_subtask(number):
        return False
    return step.access == context.all_before(number)


def _step_rules(number: int, context: PlanFormatContext) -> list[str]:
    """Return the rules of the line of step `number`, and of what may follow it."""
    is_last = number == context.rules.steps
    if is_last and context.closing:
        return [f"step{number} ::= label"]
    follows = ""
    if context.closing:
        follows = f' "\\n" step{number + 1} | label'
    elif not is_last:
        follows = f' ("\\n" step{number + 1})?'
    rules = {"worker": "label", "access": f"access{number}", "subtask": "subtask"}
    columns = [rules[column] for column in context.order]
    cells = f" {base.literal(context.bar)} ".join(columns)
    access = [" ".join(map(str, numbers)) or "-" for numbers in base.access_sets(number, context)]
    return [
        f"step{number} ::= {cells}{follows}",
        f"access{number} ::= {base.alternatives(access)}",
    ]


def _named_label(context: PlanFormatContext) -> str:
    """Return the GBNF of a label, with a skill before it or not."""
    labels = base.alternatives(context.allowed)
    if not context.skills:
        return labels
    if not context.rows:
        skills = base.alternatives([f"{skill} " for skill in context.skills])
        return f"({skills})? ({labels})"
    named = [
        f"{base.literal(f'{skill} ')} ({base.alternatives(context.allowed_for(skill))})"
        for skill in context.skills
    ]
    return " | ".join([*named, labels])
