"""Tells which model is sent which texts: of a run by the prompts in its events, of a plan ahead.

`disclosures_of` lists what was really sent, failed attempts and nested runs included;
`expected_disclosures` lists it before the run. A prompt is searched for the known texts: the
question, the system text, earlier turns, files, the schema, and the answers on the step's access
list. Not listed are a worker's own subtask, and the names and strengths of workers that the planner
is shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Message
from conductor_cli.core.plan import GIVEN, SELF, Step
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.question import Question
from conductor_cli.core.tools import tool_selector

HEAD_CHARS: Final = 40  # As many identify a text whose middle or end was left out
PLANNER: Final = "planner"
UNKNOWN: Final = "unknown"  # The recipient if the trace does not say it


@dataclass(frozen=True, slots=True, kw_only=True)
class Disclosure:
    """One call: which model received it, for which step, with which texts."""

    # The numbers of the steps that it is nested in, then its own; 0 is planning
    step: tuple[int, ...]
    worker: str
    recipient: str
    texts: tuple[str, ...]
    attempt: int = 1


def disclosures_of(
    events: Iterable[ev.Event], recipient_of: Callable[[Worker], str]
) -> tuple[Disclosure, ...]:
    """Return every call of a run, in the order in which they began."""
    run = _RunReader(recipient_of)
    for event in events:
        run.follow(event)
    return tuple(run.sent.values())


def expected_disclosures(
    steps: Sequence[Step],
    question_for: Callable[[str], Question],
    recipients: Mapping[str, Iterable[str]],
    tools_of: Callable[[int], Iterable[str]] = lambda _: (),
) -> list[Disclosure]:
    """Return the calls that a plan makes.

    A step on the planner itself has one for each recipient it may reach. `question_for` is the
    question as a worker is sent it, by its name: without images that it does not accept. `tools_of`
    are the servers of the tools that a step may call, by its number: their arguments may quote all
    that the step's worker reads.
    """
    disclosures = []
    for number, step in enumerate(steps, start=1):
        answers = [f"the answer of step {earlier}" for earlier in step.access]
        texts = (*_names_of(question_for(step.worker)), *answers)
        readers = [(step.worker, recipient) for recipient in recipients[step.worker]]
        for selector in map(tool_selector, tools_of(number)):
            readers.append((selector, selector))
        for worker, recipient in readers:
            disclosures.append(
                Disclosure(step=(number,), worker=worker, recipient=recipient, texts=texts)
            )
    return disclosures


def planning_disclosure(question: Question, recipient: str) -> Disclosure:
    """Return the call of the planner, as it is before its prompt is known."""
    for_workers = ("the system text", "the schema", "the client's context")
    texts = tuple(name for name in _names_of(question.as_sent_to(())) if name not in for_workers)
    return Disclosure(step=(0,), worker=PLANNER, recipient=recipient, texts=texts)


def _names_of(question: Question) -> tuple[str, ...]:
    attached = {f"file {file.name}" for file in question.files if file.attachment is not None}
    names = []
    for name, text in _texts_of(question):
        if text or name in attached:
            names.append(name)
    return tuple(dict.fromkeys(names))


def _texts_of(question: Question) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each part of a question; a name may come twice."""
    yield "the question", question.text
    yield "the system text", question.system
    for text in question.context:
        yield "the client's context", text
    for turn in question.history:
        yield "earlier turns", turn.question
        yield "earlier turns", turn.answer
    for file in question.files:
        yield f"file {file.name}", file.text
    if question.schema is not None:
        yield "the schema", json.dumps(question.schema, ensure_ascii=False)
    for given in question.given:
        yield f"the given answer of {given.worker}", given.answer


def _normalized(text: str) -> str:
    """Return a text without what a prompt may change: spaces, capitals, the final full stop."""
    return " ".join(text.casefold().split()).strip(".?!")


@dataclass
class _RunReader:
    """Collects the calls of one run from its events; `path` are the steps that it is nested in."""

    recipient_of: Callable[[Worker], str]
    path: tuple[int, ...] = ()
    sent: dict[tuple[int | str, ...], Disclosure] = field(default_factory=dict)
    """The calls by path, step and attempt, of tools by their server too.

    Those of nested runs are among them.
    """
    question: Question = Question(text="")
    pool: Pool = Pool(workers=())
    recipient: str = UNKNOWN
    access: dict[int, tuple[int, ...]] = field(default_factory=dict)
    answers: dict[int, str] = field(default_factory=dict)
    nested: dict[int, _RunReader] = field(default_factory=dict)
    feedback: list[tuple[str, str]] = field(default_factory=list)
    plans: int = 0
    planning: bool = False  # The planner is writing, and no event has reported the call yet

    def follow(self, event: ev.Event) -> None:
        match event:
            case ev.RunStarted():
                self.question = event.question
                self.pool = event.pool
                self.recipient = event.recipient or UNKNOWN
            case ev.PlanDelta():
                self._note_planning(planning_disclosure(self.question, self.recipient).texts)
                self.planning = True
            case ev.PlanRejected() | ev.PlanReady():
                if event.usage.calls or self.planning:
                    named_texts = [*_texts_of(self.question), *self.feedback]
                    self._note_planning(_names_in(named_texts, event.prompt))
                self.planning = False
            case ev.StepPlanned():
                self.access[event.step] = event.access
            case ev.PlanDecided(feedback=feedback) if feedback:
                self.feedback.append(("the feedback on a plan", feedback))
            case ev.StepStarted() if event.worker != SELF:
                self._note_attempt(event)
            case ev.ToolCalled() if event.server:
                self._note_tool_call(event, event.server)
            case ev.StepFinished():
                self.answers[event.step] = event.text
                # Without a call, an earlier run had done the step: nothing was sent.
                if not event.usage.calls:
                    self.sent.pop((*self.path, event.step, event.attempt), None)
            case ev.NestedEvent():
                self._nested_reader(event.step).follow(event.event)
            case _:
                pass

    def _note_planning(self, texts: tuple[str, ...]) -> None:
        """Note a call of the planner, once for all that it writes in one."""
        if not self.planning:
            self.plans += 1
        self._note(0, self.plans, PLANNER, self.recipient, texts)

    def _note_attempt(self, event: ev.StepStarted) -> None:
        recipient = UNKNOWN
        if event.worker in self.pool:
            recipient = self.recipient_of(self.pool[event.worker])
        named_texts = list(_texts_of(self.question))
        for number in self.access.get(event.step, ()):
            if number != GIVEN:
                named_texts.append((f"the answer of step {number}", self.answers.get(number, "")))
        texts = _names_in(named_texts, event.prompt)
        self._note(event.step, event.attempt, event.worker, recipient, texts)

    def _note(
        self, step: int, attempt: int, worker: str, recipient: str, texts: tuple[str, ...]
    ) -> None:
        path = (*self.path, step)
        self.sent[*path, attempt] = Disclosure(
            step=path, worker=worker, recipient=recipient, texts=texts, attempt=attempt
        )

    def _note_tool_call(self, event: ev.ToolCalled, server: str) -> None:
        """Note the arguments of a tool, which may quote all that its worker reads."""
        key: tuple[int | str, ...] = (*self.path, event.step, event.attempt, server)
        arguments = f"arguments of {event.call.name}"
        earlier: tuple[str, ...] = ()
        if key in self.sent:
            earlier = self.sent[key].texts
        self.sent[key] = Disclosure(
            step=(*self.path, event.step),
            worker=tool_selector(server),
            recipient=tool_selector(server),
            attempt=event.attempt,
            texts=tuple(dict.fromkeys((*earlier, arguments))),
        )

    def _nested_reader(self, step: int) -> _RunReader:
        if step not in self.nested:
            self.nested[step] = _RunReader(self.recipient_of, (*self.path, step), self.sent)
        return self.nested[step]


def _names_in(
    named_texts: Iterable[tuple[str, str]], messages: Sequence[Message]
) -> tuple[str, ...]:
    """Return the names of the texts that messages hold, in their prompt or attached."""
    prompt = _normalized("\n\n".join(message.content for message in messages))
    attached = set[str]()
    for message in messages:
        attached.update(f"file {attachment.name}" for attachment in message.attachments)
    names = dict[str, None]()
    for name, text in named_texts:
        head = _normalized(text)[:HEAD_CHARS]
        is_quoted = head != "" and head in prompt
        if is_quoted or name in attached:
            names[name] = None
    return tuple(names)
