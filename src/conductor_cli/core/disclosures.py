"""Who was sent what: in a run by the prompts in its events, in a plan by what its steps will be shown. Pure.

`disclosures_of` lists what was really sent, failed attempts and nested runs included; `expected_disclosures` lists it
before the run. A prompt is searched for the known texts: the question, the system text, earlier turns, files, the
schema, and the answers on the step's access list. Not listed are a worker's own subtask, and the names and strengths of
workers that the conductor is shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Message
from conductor_cli.core.data_flow import StepInputs
from conductor_cli.core.plan import GIVEN, SELF
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.prompts import CONDUCTOR_CHARS
from conductor_cli.core.question import Question
from conductor_cli.core.quoting import question_text, shorten

Kind = Literal["question", "system", "history", "file", "schema", "answer", "given", "feedback"]

HEAD: Final = 40
"""How many characters identify a text whose middle was left out."""
CONDUCTOR: Final = "conductor"
UNKNOWN: Final = "unknown"
"""The recipient if the trace does not say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisclosedText:
    """One text that was sent: `name` of a file, `step` of an answer, and its length in `chars` if that is known.

    `whole` is false if its middle was left out. `carries` are the other parts of the question that an answer may hold.
    """

    kind: Kind
    name: str = ""
    step: int | None = None
    chars: int | None = None
    whole: bool = True
    carries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Disclosure:
    """One call: who received it, for which step, with which texts.

    `step` holds the numbers of the steps that it is nested in, then its own; 0 is planning. `outcome` is empty before
    the run.
    """

    step: tuple[int, ...]
    worker: str
    recipient: str
    parts: tuple[DisclosedText, ...]
    attempt: int = 1
    chars: int | None = None
    outcome: str = ""


RecipientOf = Callable[[Worker], str]
"""The recipient of what a worker is sent."""


def disclosures_of(events: Iterable[ev.Event], recipient_of: RecipientOf) -> tuple[Disclosure, ...]:
    """Every call of a run: those that planned, then those for steps, in the order in which they began."""
    run = _RunReader(recipient_of, ())
    for event in events:
        run.follow(event)
    return tuple(run.sent())


def expected_disclosures(steps: Iterable[StepInputs], question: Question) -> tuple[Disclosure, ...]:
    """The calls that a plan makes; for a step on the conductor itself, one for each recipient it may reach."""
    sizes = {file.name: len(file.text) for file in question.files}
    calls: list[Disclosure] = []
    for inputs in steps:
        parts = [DisclosedText(kind="question", chars=len(question.text))] if inputs.question else []
        parts += [DisclosedText(kind="system", chars=len(question.system))] if question.system else []
        parts += [DisclosedText(kind="history", chars=_length(question))] if inputs.history else []
        parts += [DisclosedText(kind="file", name=name, chars=sizes.get(name)) for name in inputs.files]
        # A part that is in the prompt itself need not be listed for the answers again.
        shown = {"question": inputs.question, "history": inputs.history, "files": bool(inputs.files)}
        carried = tuple(what for what, here in shown.items() if getattr(inputs.provenance, what) and not here)
        answers = [number for number in inputs.answers if number != GIVEN]
        parts += [DisclosedText(kind="answer", step=number, carries=carried) for number in answers]
        calls += [
            Disclosure(step=(inputs.number,), worker=inputs.workers[0], recipient=recipient, parts=tuple(parts))
            for recipient in inputs.recipients
        ]
    return tuple(calls)


def planning_disclosure(question: Question, recipient: str, path: tuple[int, ...] = ()) -> Disclosure:
    """The call of the conductor without its prompt: the question, shortened as usual, and no system text or schema."""
    shown = question_text(question, CONDUCTOR_CHARS)
    parts = [part for part in _of_question(question, shown) if part.kind not in ("system", "schema")]
    if question.given:
        answer = question.given[-1].answer
        seen = shorten(answer, CONDUCTOR_CHARS)
        parts.append(
            DisclosedText(kind="given", name=question.given[-1].worker, chars=len(answer), whole=seen == answer)
        )
    return Disclosure(step=(*path, 0), worker=CONDUCTOR, recipient=recipient, parts=tuple(parts))


def _of_question(question: Question, prompt: str) -> Iterator[DisclosedText]:
    """The texts of a question that a prompt holds."""
    texts: list[tuple[Kind, str, str]] = [("question", "", question.text), ("system", "", question.system)]
    texts += [("file", file.name, file.text) for file in question.files]
    texts += [("schema", "", json.dumps(question.schema, ensure_ascii=False))] if question.schema is not None else []
    for kind, name, text in texts:
        whole = _holds(prompt, text)
        if whole is not None:
            yield DisclosedText(kind=kind, name=name, chars=len(text), whole=whole)
    turns = [_holds(prompt, text) for turn in question.history for text in (turn.question, turn.answer)]
    if any(turn is not None for turn in turns):
        yield DisclosedText(kind="history", chars=_length(question), whole=all(turns))


def _of_given(question: Question, prompt: str) -> Iterator[DisclosedText]:
    """What a nested run was given, as far as a prompt holds it."""
    for given in question.given:
        whole = _holds(prompt, given.answer)
        if whole is not None:
            yield DisclosedText(kind="given", name=given.worker, chars=len(given.answer), whole=whole)


def _text_of(messages: Iterable[Message]) -> str:
    return "\n\n".join(message.content for message in messages)


def _holds(prompt: str, text: str) -> bool | None:
    """Whether a prompt holds the whole of a text (true), its beginning (false), or nothing of it (None)."""
    if not text:
        return None
    for sought, place in ((text, prompt), (_normalized(text), _normalized(prompt))):
        if sought in place:
            return True
        if len(sought) > HEAD and sought[:HEAD] in place:
            return False
    return None


def _normalized(text: str) -> str:
    """A text without what a profile's own prompt may change: spaces, capitals, the final full stop."""
    return " ".join(text.casefold().split()).strip(".?!")


def _length(question: Question) -> int:
    return sum(len(turn.question) + len(turn.answer) for turn in question.history)


@dataclass
class _RunReader:
    """Collects the calls of one run from its events; `path` are the steps that it is nested in."""

    recipient_of: RecipientOf
    path: tuple[int, ...]
    question: Question = Question(text="")
    pool: Pool = Pool(workers=())
    recipient: str = UNKNOWN
    plans: list[Disclosure] = field(default_factory=list)
    calls: list[Disclosure | _RunReader | None] = field(default_factory=list)
    """The calls for steps, in the order in which they began; None for a step that an earlier run had done."""
    last: dict[int, int] = field(default_factory=dict)
    """The index in `calls` of the newest attempt at each step."""
    planned_steps: dict[int, ev.StepPlanned] = field(default_factory=dict)
    answers: dict[int, str] = field(default_factory=dict)
    nested: dict[int, _RunReader] = field(default_factory=dict)
    feedback_texts: list[str] = field(default_factory=list)
    writing: bool = False
    """The conductor is writing, and no event has reported the call yet."""

    def sent(self) -> Iterator[Disclosure]:
        yield from self.plans
        if self.writing:
            yield self._planning("not finished")
        for call in self.calls:
            if isinstance(call, _RunReader):
                yield from call.sent()
            elif call is not None:
                yield call

    def follow(self, event: ev.Event) -> None:
        match event:
            case ev.RunStarted():
                self.question, self.pool, self.recipient = event.question, event.pool, event.recipient or UNKNOWN
            case ev.PlanDelta():
                self.writing = True
            case ev.PlanRejected() | ev.PlanReady():
                if event.usage.calls or self.writing:
                    outcome = f"failed: {event.problem}" if isinstance(event, ev.PlanRejected) else "answered"
                    self.plans.append(self._planning(outcome, event.prompt))
                self.writing = False
            case ev.StepPlanned():
                self.planned_steps[event.step] = event
            case ev.PlanDecided(feedback=feedback) if feedback:
                self.feedback_texts.append(feedback)
            case ev.StepStarted():
                self._step_started(event)
            case ev.StepFailed() | ev.StepStopped() | ev.StepFinished():
                self._step_ended(event)
            case ev.NestedEvent():
                self.nested.setdefault(event.step, _RunReader(self.recipient_of, self.path)).follow(event.event)
            case _:
                pass

    def _planning(self, outcome: str, messages: tuple[Message, ...] = ()) -> Disclosure:
        """A call of the conductor; if its prompt is not known, what a conductor is sent in general."""
        attempt = len(self.plans) + 1
        made = planning_disclosure(self.question, self.recipient, self.path)
        prompt = _text_of(messages)
        if not messages:
            return replace(made, attempt=attempt, outcome=outcome)
        parts = [*_of_question(self.question, prompt), *_of_given(self.question, prompt)]
        parts += [
            DisclosedText(kind="feedback", chars=len(feedback))
            for feedback in self.feedback_texts
            if feedback in prompt
        ]
        return replace(made, parts=tuple(parts), attempt=attempt, chars=len(prompt), outcome=outcome)

    def _step_started(self, event: ev.StepStarted) -> None:
        self.last[event.step] = len(self.calls)
        if event.worker == SELF:
            self.nested[event.step] = _RunReader(self.recipient_of, (*self.path, event.step))
            self.calls.append(self.nested[event.step])
            return
        prompt = _text_of(event.prompt)
        recipient = self.recipient_of(self.pool[event.worker]) if event.worker in self.pool else UNKNOWN
        parts = (*_of_question(self.question, prompt), *self._seen(event.step, prompt))
        call = Disclosure(
            step=(*self.path, event.step), worker=event.worker, recipient=recipient, parts=parts, attempt=event.attempt,
            chars=len(prompt), outcome="not finished",
        )  # fmt: skip
        self.calls.append(call)

    def _seen(self, step: int, prompt: str) -> Iterator[DisclosedText]:
        """The answers on the step's access list that its prompt holds."""
        for number in self.planned_steps[step].access if step in self.planned_steps else ():
            if number == GIVEN:
                yield from _of_given(self.question, prompt)
            elif (whole := _holds(prompt, self.answers.get(number, ""))) is not None:
                yield DisclosedText(kind="answer", step=number, chars=len(self.answers[number]), whole=whole)

    def _step_ended(self, event: ev.StepFailed | ev.StepStopped | ev.StepFinished) -> None:
        if isinstance(event, ev.StepFinished):
            self.answers[event.step] = event.text
        place = self.last.pop(event.step, None)
        call = None if place is None else self.calls[place]
        if place is None or not isinstance(call, Disclosure):
            return
        if isinstance(event, ev.StepFinished):
            # Without a call, an earlier run had done the step: nothing was sent.
            self.calls[place] = replace(call, outcome="answered") if event.usage.calls else None
        else:
            outcome = f"failed: {event.error.message}" if isinstance(event, ev.StepFailed) else "stopped"
            self.calls[place] = replace(call, outcome=outcome)
