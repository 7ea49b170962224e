"""How one kind of model is prompted: a profile for the conductor, and one for workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Final, Literal

from conductor_cli.core.plan import Step
from conductor_cli.core.plan_formats.base import Column, PlanFormatContext
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.core.question import Question

Labels = Literal["letters", "numbers", "cards"]

Template = Literal["plain", "published"]

Cards = Literal["lines", "table"]

GOOD: Final = 0.85
"""A strength of at least this on a card means that a worker is good at something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How a conductor's text is sampled, and how many tokens it may have."""

    temperature: float = 0.0
    max_tokens: int = 1200


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How a conductor reads and writes.

    `plan_format` is a key of `PLAN_FORMATS`. `order` and `bar` are the columns of the native one and what separates
    them. `labels` is how workers are called; `names` says whether the conductor is also shown their names, descriptions
    and strengths; `cards` whether strengths stand on the worker's line, or in a table with a row for each skill, the
    best worker first, where a row begins as the worker column of a plan does; `fewshots` and `rules` whether the prompt
    has examples, and says how a team works. `template` is the text around them: plain English (`prompts.py`), or that
    of the published recipe (`published_prompt.py`), whose reply reasons first.

    `render` writes the whole message from the question, the pool and the format context. It is for a conductor that was
    trained on prompts of its own, and only to plan: it is never asked to reason first. With None,
    `prompts.conductor_request` writes plain English.
    """

    name: str
    plan_format: str = "native"
    order: tuple[Column, Column, Column] = ("worker", "access", "subtask")
    bar: str = " | "
    labels: Labels = "letters"
    names: bool = True
    cards: Cards = "lines"
    fewshots: bool = True
    rules: bool = True
    template: Template = "plain"
    sampling: Sampling = Sampling()
    render: Callable[[Question, Pool, PlanFormatContext], str] | None = None


PROMPTED: Final = Profile(name="prompted")
"""Any instruction-tuned model that was not trained to conduct: the stock Qwen2.5-7B, or a model behind an API."""

PUBLISHED: Final = Profile(
    name="published", plan_format="published", labels="numbers", names=False, template="published",
    sampling=Sampling(temperature=0.7, max_tokens=1024),
)  # fmt: skip
"""A checkpoint trained by the published recipe (arXiv 2512.04388): its template, three lists, workers by number only.

A reply has the 1024 tokens of the recipe.
"""

BRIEF: Final = Profile(
    name="brief",
    order=("subtask", "access", "worker"),
    cards="table",
    fewshots=False,
    rules=False,
    sampling=Sampling(max_tokens=400),
)
"""A model that was trained on short prompts: the form of a plan, the workers with their cards, the question.

It knows the rules from its training. It names the worker last, when the subtask is known, and before it the skill that
the step needs: whom to choose is then what follows the same word in the table, and no figures have to be compared.
"""

PROMPTED_JSON: Final = Profile(name="prompted-json", plan_format="json")
"""A model that writes JSON more reliably than lines."""

PROFILES: Final[dict[str, Profile]] = {profile.name: profile for profile in (PROMPTED, PUBLISHED, BRIEF, PROMPTED_JSON)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenStep:
    """An earlier step as a later one sees it. `answer` is None for a step that failed."""

    number: int
    worker: str
    subtask: str
    answer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProfile:
    """How workers are prompted. `context` is assumed for a worker whose number of tokens is not configured.

    `render` writes the whole message from the question, the step and what the step sees, for workers that were trained
    on prompts of their own. With None, `prompts.worker_messages` writes plain English.
    """

    name: str = "plain"
    max_tokens: int = 4096
    context: int = 32_768
    render: Callable[[Question, Step, Sequence[SeenStep]], str] | None = None


def labels_for(workers: Sequence[Worker], style: Labels) -> dict[str, str]:
    """A label for each worker's name, in order.

    With `cards` it is the first letter of what the worker is good at, then its number: l0, n1, a2. So a conductor must
    read the labels from the pool and cannot know them by heart.
    """
    if style == "cards":
        return {f"{speciality(worker.card)[:1]}{index}": worker.name for index, worker in enumerate(workers)}
    return labels_of([worker.name for worker in workers], style)


def speciality(card: Card) -> str:
    """The one tag at which a worker is good, and at least twice as good as at any other; else `any`."""
    best, *others = sorted(card.strengths.items(), key=lambda item: -item[1]) or [("any", 0.0)]
    alone = best[1] >= GOOD and all(strength <= best[1] / 2 for _, strength in others)
    return best[0] if alone else "any"


def labels_of(names: Sequence[str], style: Literal["letters", "numbers"]) -> dict[str, str]:
    """A label for each worker name, in order: A, B, … Z, AA, AB and so on, or 0, 1, 2 and so on."""
    if style == "numbers":
        return {str(index): name for index, name in enumerate(names)}
    return {_letters(index): name for index, name in enumerate(names)}


def _letters(index: int) -> str:
    head, tail = divmod(index, len(ascii_uppercase))
    return (_letters(head - 1) if head else "") + ascii_uppercase[tail]
