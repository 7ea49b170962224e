"""How one kind of model is prompted: a profile for the planner, and one for workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import ascii_uppercase
from typing import Final, Literal

from conductor_cli.core.mappings import names_of
from conductor_cli.core.plan import FindOperands, Plan, Step
from conductor_cli.core.plan_formats.base import Column, PlanFormatContext
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.question import Question

Labels = Literal["letters", "numbers", "entries"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How a planner's text is sampled."""

    temperature: float = 0.0
    max_tokens: int = 1200
    # The temperature after a fault, for one that is not told of it and would write the same again
    again: float = 0.0
    tries: int = 2  # How often it may write: once, and again after each fault
    search: bool = False  # It writes its next likeliest text instead


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedQuestion:
    """A question and a good plan for it, over workers of the user."""

    question: str
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Guide:
    """What a prompted planner reads besides.

    Advice after the rules, a text for some workers, and plans that worked.

    `conductor tune` writes it from the user's cases, for a `planner` that is named as in the
    settings. `proof` says how it did on other cases.
    """

    format: int = 1
    planner: str = ""
    proof: str = ""
    advice: str = ""
    workers: Mapping[str, str] = field(default_factory=dict, hash=False)
    plans: tuple[PlannedQuestion, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How a planner reads and writes.

    An answer that ends with one of the `verdicts` only judges the answer before it: a plan may end
    with a check, and the answer of the run is then the one that was checked. No step of a plan that
    `find_fault` checks starts early.
    """

    name: str
    plan_format: str = "native"  # A key of `PLAN_FORMATS`
    # The columns of the native format
    order: tuple[Column, Column, Column] = ("worker", "access", "subtask")
    bar: str = " | "  # What separates them
    labels: Labels = "letters"  # How workers are called
    names: bool = True  # The planner is also shown their names, descriptions and strengths
    cards: Literal["lines", "table", "kinds"] = "lines"
    """Strengths stand on the worker's line; or in a table with a row for each tag of the cards, the
    best worker first, which begins as the worker column of a plan does; or in one with a row for
    each usual kind of work (`kinds_of_work.py`), without figures.
    """
    closing: str = ""
    """The subtask of the last of several steps, which the planner writes as skill and worker only.
    It reads all before it.
    """
    untrained: bool = False
    """The model was not trained to conduct. Small ones choose the first label nearly always, so the
    worker with the best card has it. Where the best cards are about equal, the shares of a choice
    of one are divided by those for a question that says nothing.
    """
    fewshots: bool = True  # The prompt has examples
    rules: bool = True  # It says how a team works
    reasons: bool = True  # In mode ultra the planner reasons first
    template: Literal["plain", "published"] = "plain"
    """Plain English (`prompts.py`), or that of the published recipe (`plan_formats/published.py`):
    it reasons first.
    """
    sampling: Sampling = Sampling()
    render: Callable[[Question, Pool, PlanFormatContext], str] | None = None
    """Writes the whole message, for a planner that was trained on prompts of its own; it never
    reasons first.
    """
    verdicts: tuple[str, ...] = ()  # Words such as YES and NO
    # The best worker answers where no plan was valid; not one that can do only single steps
    fallback: bool = True
    find_fault: Callable[[Question, Sequence[Step], Pool], str] | None = None
    """What is wrong with a whole plan, empty if nothing is, where questions are so narrow that a
    program can tell.
    """
    guide: Guide = Guide()  # What plain English has besides


PROMPTED: Final = Profile(name="prompted", untrained=True)
"""Any instruction-tuned model that was not trained to conduct: the stock Qwen2.5-7B, or a model
behind an API.
"""

PUBLISHED: Final = Profile(
    name="published",
    plan_format="published",
    labels="numbers",
    names=False,
    template="published",
    sampling=Sampling(temperature=0.7, max_tokens=1024),
)
"""A checkpoint trained by the published recipe (arXiv 2512.04388): its template, three lists,
workers by number.
"""

BRIEF_PROFILE: Final = Profile(
    name="brief",
    order=("subtask", "access", "worker"),
    cards="table",
    fewshots=False,
    rules=False,
    reasons=False,
    sampling=Sampling(max_tokens=400),
)
"""A model that was trained on short prompts: the form of a plan, the workers with their cards, the
question.

It knows the rules from its training. It names the worker last, when the subtask is known, and
before it the skill that the step needs: whom to choose is then what follows the same word in the
table, and no figures have to be compared.
"""

KINDS_PROFILE: Final = replace(
    BRIEF_PROFILE,
    name="kinds",
    cards="kinds",
    closing="Answer the whole question from these results, and add what they lack.",
)
"""A model that was trained on short prompts and names the kind of work of each step.

The kinds are the same over all pools, so it has to learn no words of anybody's cards. Nor does it
word the last step: it would leave out a part of what was asked.
"""

PROMPTED_JSON: Final = Profile(name="prompted-json", plan_format="json", untrained=True)
"""A model that writes JSON more reliably than lines."""


def render_for_router(question: Question, _: Pool, context: PlanFormatContext) -> str:
    """Return what a router reads, as JSON.

    The question, and the worker's name for each label that may be chosen.
    """
    workers = {label: context.labels[label] for label in context.allowed}
    return json.dumps({"question": question.text, "workers": workers}, ensure_ascii=False)


ROUTED: Final = Profile(name="routed", sampling=Sampling(tries=1), render=render_for_router)
"""A router (`conductor tune`): it is no model of language, and names the one worker that
answers.
"""

PROFILES: Final[dict[str, Profile]] = {
    profile.name: profile
    for profile in (PROMPTED, PUBLISHED, BRIEF_PROFILE, KINDS_PROFILE, PROMPTED_JSON)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenStep:
    """An earlier step as a later one sees it. `answer` is None for a step that failed."""

    number: int
    worker: str
    subtask: str
    answer: str | None


LONG_REPLY_TOKENS: Final = 32_000
"""Tokens of a reply where neither the user nor the table of models says how many its model writes:
what coding programs ask for.
"""


USUAL_REPLY_TOKENS: Final = 500  # Of a worker that was not asked before: about a page


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProfile:
    """How workers are prompted."""

    name: str = "plain"
    # Tokens for which a prompt leaves room, and the most of a model file in this process, which is
    # given memory for all that is asked for
    max_tokens: int = 4096
    # A reply without a limit of its own may be as long as its model writes; else `max_tokens` count
    writes_long: bool = True
    context: int = 32_768  # Tokens of a worker of which nobody says how many it reads
    # A question with files that is too long for a worker is shortened for it
    fits_files: bool = False
    # Of a directory that is too long a worker gets the outline, and tools that read it
    reads_directories: bool = True
    render: Callable[[Question, Step, Sequence[SeenStep]], str] | None = None
    """Writes the whole message, for workers that were trained on prompts of their own; None is
    plain English.
    """
    # What of a question a plan must name for workers that are not shown it
    operands: FindOperands | None = None
    # What a worker writes that cannot do its step: a run that ends with it has no answer
    refusal: str = ""

    usual_replies: Callable[[], Mapping[str, int]] = dict
    """Returns the tokens of a usual reply of the workers that were asked before, by their names."""

    def usual_tokens(self, worker: Worker) -> int:
        """Return the tokens of a usual reply: as before, else as of a page of text."""
        usual = self.usual_replies().get(worker.name, USUAL_REPLY_TOKENS)
        return min(usual, self.reply_tokens(worker))

    def reply_tokens(self, worker: Worker) -> int:
        """Return the most tokens of a reply: as set, else as many as its model writes."""
        configured = worker.options.get("max_tokens")
        if configured:
            return int(configured)
        if worker.kind == "llama" or not self.writes_long:
            return self.max_tokens
        return worker.max_output or LONG_REPLY_TOKENS


def labels_for(workers: Sequence[Worker], style: Labels) -> dict[str, str]:
    """Return a label for each worker's name, in order.

    With `entries` a worker has one for each entry of its card, the tag and its letter: mathA,
    codeA, mathB. So whoever writes a label says what it wants from the worker, too.
    """
    if style != "entries":
        return labels_of(names_of(workers), style)
    labels: dict[str, str] = {}
    for index, worker in enumerate(workers):
        for tag in worker.card.strengths or ("",):
            labels[f"{tag}{_letters(index)}"] = worker.name
    return labels


def labels_of(names: Sequence[str], style: Literal["letters", "numbers"]) -> dict[str, str]:
    """Return a label for each worker name, in order.

    A, B, … Z, AA, AB and so on, or 0, 1, 2 and so on.
    """
    if style == "letters":
        return {_letters(index): name for index, name in enumerate(names)}
    return {str(index): name for index, name in enumerate(names)}


def _letters(index: int) -> str:
    head, tail = divmod(index, len(ascii_uppercase))
    if head == 0:
        return ascii_uppercase[tail]
    return _letters(head - 1) + ascii_uppercase[tail]
