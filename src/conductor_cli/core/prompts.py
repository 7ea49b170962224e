"""Writes prompts of planners, from a question, a pool and a profile.

A prompt begins with what never changes. Two cut points let a local model keep its key/value state:
after the rules and examples (the same for every pool), and after the pool. What changes, limit and
question, comes last.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, NamedTuple

from conductor_cli.core.chat import Habit, Message, Request
from conductor_cli.core.events import Mode
from conductor_cli.core.kinds_of_work import row_for
from conductor_cli.core.outline import as_outline, directories_of, has_directory
from conductor_cli.core.plan import (
    MAX_STEPS,
    KeepAnswer,
    Plan,
    PlanRules,
    RejectedPlan,
    Revision,
    Step,
    example_plan,
)
from conductor_cli.core.plan_formats import PLAN_FORMATS, PlanFormat, PlanFormatContext
from conductor_cli.core.plan_formats.base import ANSWER_DIRECTLY
from conductor_cli.core.plan_formats.published import published_messages
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.core.profile import Profile, labels_for
from conductor_cli.core.question import (
    Question,
    fence,
    question_text,
    shorten,
)
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.worker_lines import (
    are_cards_close,
    listed_workers,
    skills_for,
    worker_lines,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A pool with cards, a question, and a good plan for it."""

    workers: tuple[Worker, ...]
    question: str
    plan: Plan


def _worker(name: str, about: str, **strengths: float) -> Worker:
    return Worker(name=name, kind="example", about=about, card=Card(strengths=strengths))


_FORGE: Final = _worker("forge", "code in any language", code=0.88, math=0.71)
_ABACUS: Final = _worker("abacus", "arithmetic, proofs", math=0.93, code=0.52)
_QUILL: Final = _worker("quill", "fluent prose, summaries", facts=0.84, math=0.35)
_LEXIS: Final = _worker("lexis", "law and policy", facts=0.90, code=0.21)
_PROBE: Final = _worker("probe", "careful review, testing", code=0.79, math=0.74)

# The small pools of the examples differ, so that labels mean nothing by themselves. Their subtasks
# are general: small models wrote the words of concrete ones in place of a plan for the question.
FEWSHOTS: Final = (
    Example(
        workers=(_QUILL, _ABACUS, _FORGE),
        question="What is the capital of Mongolia?",
        plan=example_plan("- One fact: one step is enough.", ("quill", (), ANSWER_DIRECTLY)),
    ),
    Example(
        workers=(_FORGE, _ABACUS, _QUILL),
        question=(
            "A tank fills in 3 hours through one pipe and in 5 through another, and empties in 4 "
            "through a leak. How long until it is full with all three open?"
        ),
        plan=example_plan(
            "- Easy to get wrong by a sign. Two independent solutions, then a comparison.",
            ("abacus", (), "Solve it exactly."),
            ("forge", (), "Solve it in another way."),
            ("abacus", (1, 2), "Compare both results, settle any difference, and answer."),
        ),
    ),
    Example(
        workers=(_LEXIS, _FORGE, _PROBE),
        question="Merge overlapping intervals in Python, and test it well.",
        plan=example_plan(
            "- Write first, then a review by another worker, then the corrected version.",
            ("forge", (), "Write what is asked for."),
            ("probe", (1,), "Test this with usual and unusual input; list each fault."),
            ("forge", (1, 2), "Give the final version with every listed fault mended."),
        ),
    ),
)

COPIED_WORDS: Final = 6
"""So many words in a row of an example, which the question lacks, are a copy."""


def copies_example(subtask: str, question: str, profile: Profile) -> bool:
    """Return whether a subtask repeats an example of the prompt instead of planning the question.

    It does where it is the question of one, or has `COPIED_WORDS` words in a row of it, that are
    not in the question as well. The subtasks of examples are general, so they may fit any question.
    """
    if not profile.fewshots or profile.template != "plain" or profile.render is not None:
        return False
    written = _words(subtask)
    sentences = _example_sentences()
    runs: set[tuple[str, ...]] = set()
    if written in sentences:
        runs.add(written)
    for sentence in sentences:
        runs |= _word_runs(written) & _word_runs(sentence)
    spaced = f" {' '.join(_words(question))} "
    return any(f" {' '.join(run)} " not in spaced for run in runs)


@cache
def _example_sentences() -> frozenset[tuple[str, ...]]:
    return frozenset(_words(example.question) for example in FEWSHOTS)


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", text.lower()))


def _word_runs(words: tuple[str, ...]) -> set[tuple[str, ...]]:
    """Return each `COPIED_WORDS` words in a row."""
    starts = range(len(words) - COPIED_WORDS + 1)
    return {words[start : start + COPIED_WORDS] for start in starts}


CONDUCTOR_CHARS = 6000
"""Characters of a question, and of an existing answer, that the planner itself is shown.

Workers get all of it.
"""

NO_QUESTION: Final = "-"
"""A question that says nothing: what a planner prefers here is its habit (Zhao et al. 2021, arXiv
2102.09690).
"""

TYPICAL_QUESTIONS: Final = (
    "Write a function that merges two sorted lists.",
    "My loop never ends. Why?",
    "Review the code of this pull request.",
    "Write unit tests for the parser.",
    "Write an SQL query for all customers without an order.",
    "Which command lists the open ports?",
    "I need a regular expression for dates like 2026-01-31.",
    "How do I undo my last commit?",
    "Our pods restart all the time.",
    "Set up a reverse proxy with TLS.",
    "How do I centre a box on a web page?",
    "Is this login form safe against injection?",
    "Should we split the monolith into services?",
    "Which trend do these sales figures show?",
    "What is 15 % of 2,480?",
    "Why is the sky blue?",
    "Who painted The Night Watch?",
    "May an employer read private e-mails?",
    "Write a short apology to a customer.",
    "Write the manual of a small library.",
    "Translate this sentence into French.",
    "Summarise the minutes of the meeting.",
    "Plan a release for the end of March.",
    "Hello, what can you do?",
)
"""A question for each usual kind of work. What a planner prefers over all of them is its habit."""

_RULES = f"""\
You conduct a team of language models. You never answer the question; you write the plan by which \
the team answers it.
A plan has one to {MAX_STEPS} steps. A step has a worker, an access list and a subtask.
The worker gets the whole question, its subtask, and the subtasks and answers of the earlier steps \
on its access list.
Steps that do not see each other run at the same time. The last step's answer goes to the user.
Choose each worker for what it is good at. Take one step for an easy question, more only where \
they make the answer
better: solve in parts, solve twice and compare, or write and then review. Say in the subtask what \
to do and what to
deliver."""


def plan_format_context(
    profile: Profile, pool: Pool, rules: PlanRules, mode: Mode, *, constrained: bool
) -> PlanFormatContext:
    """Return how a planner with this profile writes.

    `constrained` where a grammar constrains its text.
    """
    labels = labels_for(listed_workers(pool, profile), profile.labels)
    skills = skills_for(pool.workers, profile)
    rows = dict[str, tuple[str, ...]]()
    spare_rows = dict[str, tuple[str, ...]]()
    if profile.cards == "kinds":
        # The prompt shows the rows of all workers, so that its cached prefix stays valid whoever is
        # not available. What a plan may have is made of those who are.
        rows = _rows_of_kinds(skills, pool.workers, labels)
        available = [worker for worker in pool.workers if worker.name in rules.workers]
        if len(available) < len(pool.workers):
            spare_rows = _rows_of_kinds(skills, available, labels)
    return PlanFormatContext(
        rules=rules,
        labels=labels,
        skills=skills,
        rows=rows,
        spare_rows=spare_rows,
        order=profile.order,
        bar=profile.bar,
        constrained=constrained,
        reasoning=mode == "ultra" and profile.reasons and profile.render is None,
        single=mode == "mini",
        lead=_lead(profile, mode),
        closing=profile.closing,
    )


def _rows_of_kinds(
    skills: Sequence[str], workers: Sequence[Worker], labels: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """Return the labels of the workers to choose from for each kind of work."""
    label_of = {name: label for label, name in labels.items()}
    return {
        skill: tuple(label_of[worker.name] for worker in row_for(skill, workers))
        for skill in skills
    }


def _lead(profile: Profile, mode: Mode) -> str:
    """Return what stands before a single label.

    A prompt of its own begins the plan, and stops before what follows a bar: a blank is part of the
    next token.
    """
    if mode != "mini" or profile.render is None:
        return ""
    return profile.bar[len(profile.bar.rstrip()) :]


def plan_format_for(profile: Profile, context: PlanFormatContext) -> PlanFormat:
    """Return how a planner with this profile writes.

    A single label looks the same in every plan format.
    """
    return PLAN_FORMATS["native" if context.single else profile.plan_format]


def planner_request(  # noqa: PLR0913 - all parts of a prompt
    question: Question,
    pool: Pool,
    profile: Profile,
    context: PlanFormatContext,
    *,
    standing: Sequence[Step] = (),
    fault: str = "",
    rejected: Sequence[RejectedPlan] = (),
    revision: Revision | None = None,
    rules: Sequence[str] = (),
) -> Request:
    """Return the request for a plan; with `standing`, for the rest of one.

    With `rejected`, for a plan other than those. With `revision` the rest is wanted because a step
    could not be done. `rules`: who may see what (`DataPolicy.rules_for_planner`).
    """
    plan_format = plan_format_for(profile, context)
    follow_up: list[Message] = []
    for rejection in rejected:
        follow_up += _after_rejection(rejection, plan_format, context)
    if revision is not None:
        follow_up += _after_failed_step(revision, standing, fault, plan_format, context)
    elif standing or fault:
        follow_up += _after_fault(standing, fault, plan_format, context)
    template_class = _template_class(profile, context)
    template = template_class(
        question=planner_question(question),
        pool=pool,
        profile=profile,
        context=context,
        plan_format=plan_format,
        standing=standing,
        follow_up=follow_up,
        rules=rules,
    )
    prompt = template.prompt()
    choices: tuple[str, ...] = ()
    if context.single:
        choices = _single_choices(plan_format, context)
    return Request(
        messages=tuple(prompt.messages),
        max_tokens=profile.sampling.max_tokens,
        temperature=_temperature(profile, fault),
        grammar=plan_format.grammar(context),
        schema=plan_format.schema(context),
        prefill=prompt.prefill,
        cuts=prompt.cuts,
        choices=choices,
        habit=_habit(template, choices),
    )


def _habit(template: _Template, choices: tuple[str, ...]) -> Habit | None:
    """Return what shows the planner's habit in choosing, where dividing by it was found to help."""
    context = template.context
    if choices:
        if not template.profile.untrained or not are_cards_close(template.pool):
            return None
        return Habit(prompts=(_prompt_that_asks(NO_QUESTION, template),), words=choices)
    if len(context.skills) < 2 or not context.constrained or context.closing:
        return None
    bar = context.bar.rstrip()
    blank = context.bar[len(bar) :]
    return Habit(
        prompts=tuple(_prompt_that_asks(question, template) for question in TYPICAL_QUESTIONS),
        words=tuple(blank + skill for skill in context.skills),
        bar=bar.strip(),
        reply=f"{ANSWER_DIRECTLY}{context.bar}-{bar}",
    )


def _prompt_that_asks(question: str, template: _Template) -> tuple[Message, ...]:
    """Return the first request of a planner with another question."""
    fresh = replace(template, question=Question(text=question), standing=(), follow_up=(), rules=())
    return tuple(fresh.prompt().messages)


def _temperature(profile: Profile, fault: str) -> float:
    is_told_of_faults = profile.render is None
    if fault and not is_told_of_faults:
        return profile.sampling.again
    return profile.sampling.temperature


def _single_choices(plan_format: PlanFormat, context: PlanFormatContext) -> tuple[str, ...]:
    """Return all replies of a planner that names one worker."""
    choices = [f"{context.lead}{label}" for label in context.allowed]
    if context.may_accept:
        choices.append(plan_format.render(KeepAnswer(), context))
    return tuple(choices)


def _turn(written: str, request: str) -> list[Message]:
    """Return what the planner wrote, and what it is asked for next."""
    return [Message(role="assistant", content=written), Message(role="user", content=request)]


def _after_rejection(
    rejection: RejectedPlan, plan_format: PlanFormat, context: PlanFormatContext
) -> list[Message]:
    """Return the plan that the user did not take, and a request for another one."""
    # A plan that was edited by hand may name the planner itself.
    written = plan_format.render(rejection.plan, _with_all_labels(context, rejection.plan.steps))
    request = (
        f"The user does not take this plan and says:\n{rejection.feedback}\nWrite another plan. "
        f"{_form(plan_format, context)}"
    )
    return _turn(written, request)


def _after_failed_step(
    revision: Revision,
    standing: Sequence[Step],
    fault: str,
    plan_format: PlanFormat,
    context: PlanFormatContext,
) -> list[Message]:
    """Return the plan so far, which step nobody could do, and a request for the steps that follow.

    A worker's own words are not shown: it may have failed because of a text that the planner may
    not see.
    """
    labelled = _with_all_labels(context, standing)
    first = len(standing) + 1
    failed = ", ".join(f"{labelled.label(name)} ({why})" for name, why in revision.why.items())
    kept = [str(number) for number in range(1, first) if number not in revision.hidden]
    dropped = list(map(str, revision.left_out))
    most = revision.first + revision.most - first
    sentences = []
    if failed:
        sentences.append(
            f"Step {revision.step} could not be done. These workers failed at it: {failed}."
        )
    if dropped:
        sentences.append(f"Given up with it: {_step_word(dropped)} {', '.join(dropped)}.")
    if kept:
        sentences.append(f"Only {_step_word(kept)} {', '.join(kept)} can be seen by others.")
    if fault:
        sentences.append(f"What you wrote then is not valid: {fault}.")
    sentences += [
        f"Write only the steps that follow, from step {first} on, at most {most}.",
        "They take the place of what was not done, and the last one gives the answer.",
        _form(plan_format, context),
    ]
    written = plan_format.render(Plan(steps=tuple(standing)), labelled)
    return _turn(written, " ".join(sentences))


def _with_all_labels(context: PlanFormatContext, steps: Iterable[Step]) -> PlanFormatContext:
    """Return the context with a label for each worker that these steps name.

    They may name the planner itself, or, in a run that is resumed, workers that the pool has no
    more. No new step can.
    """
    labels = dict(context.labels)
    named = dict.fromkeys(step.worker for step in steps)
    for name in named:
        if name in labels.values():
            continue
        numbers = [int(label) for label in labels if label.isdecimal()]
        label = str(max(numbers) + 1) if numbers else name
        if label in labels:  # a worker may be called like the label of another
            label = f"{name} (gone)"
        labels[label] = name
    if len(labels) == len(context.labels):
        return context
    return replace(context, labels=labels)


def _step_word(numbers: Sequence[str]) -> str:
    return "steps" if len(numbers) > 1 else "step"


def _after_fault(
    standing: Sequence[Step],
    fault: str,
    plan_format: PlanFormat,
    context: PlanFormatContext,
) -> list[Message]:
    """Return the steps that stand, if any do, and a request for the rest."""
    written = "(nothing that can be read)"
    sentences = []
    if fault:
        sentences.append(f"That is not a valid plan: {fault}.")
    if standing:
        labelled = _with_all_labels(context, standing)
        written = plan_format.render(Plan(steps=tuple(standing)), labelled)
        left = context.rules.steps - len(standing)
        sentences.append(
            f"Steps 1 to {len(standing)} stand. Write only what follows, at most {left} more."
        )
    sentences.append(_form(plan_format, context))
    return _turn(written, " ".join(sentences))


class _Prompt(NamedTuple):
    """The whole conversation, how the reply begins, and where its fixed parts end (`Request`)."""

    messages: list[Message]
    prefill: str = ""
    cuts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Template(ABC):
    """How one kind of planner is asked; `follow_up` are the turns after its first request."""

    question: Question
    pool: Pool
    profile: Profile
    context: PlanFormatContext
    plan_format: PlanFormat
    standing: Sequence[Step]
    follow_up: Sequence[Message]
    rules: Sequence[str]

    @abstractmethod
    def prompt(self) -> _Prompt:
        """Return what the planner is sent."""


def _template_class(profile: Profile, context: PlanFormatContext) -> type[_Template]:
    if profile.template == "published" and not context.single:
        return _PublishedTemplate
    if profile.render is None:
        return _PlainTemplate
    return _OwnTemplate


class _PublishedTemplate(_Template):
    """That of the published recipe (`plan_formats/published.py`)."""

    __slots__ = ()

    def prompt(self) -> _Prompt:
        messages, prefill = published_messages(
            self.question,
            self.context,
            pool_size=len(self.context.labels),
            characters=CONDUCTOR_CHARS,
            examples=self.profile.fewshots,
            rules=self.rules,
        )
        # In a later turn, the model is asked for the lists only.
        if self.follow_up:
            return _Prompt([*messages, *self.follow_up])
        return _Prompt(messages, prefill=prefill)


class _OwnTemplate(_Template):
    """That of a planner which was trained on prompts of its own."""

    __slots__ = ()

    def prompt(self) -> _Prompt:
        assert self.profile.render is not None
        text = self.profile.render(self.question, self.pool, self.context)
        # It continues the steps that stand: such a model was not trained to be told of faults.
        if self.standing:
            text += self.plan_format.render(Plan(steps=tuple(self.standing)), self.context) + "\n"
        return _Prompt([Message(role="user", content=text)])


class _PlainTemplate(_Template):
    """Plain English: what is fixed, the workers, and then what changes."""

    __slots__ = ()

    def prompt(self) -> _Prompt:
        fixed = self._fixed_part()
        listed = listed_workers(self.pool, self.profile)
        workers = "\n".join(worker_lines(listed, self.profile, self.context))
        prefix = f"{fixed}The workers:\n{workers}"
        messages = [
            Message(role="system", content=prefix),
            Message(role="user", content=self._changing_part()),
            *self.follow_up,
        ]
        return _Prompt(messages, cuts=(len(fixed), len(prefix)))

    def _fixed_part(self) -> str:
        """Return the rules and examples, which are the same for every pool."""
        parts = []
        if self.profile.rules:
            parts.append(_RULES)
        if self.profile.guide.advice:
            parts.append(self.profile.guide.advice)
        whole = self.context
        if whole.first != 1:
            whole = replace(whole, first=1)
        parts.append(_form(self.plan_format, whole))
        if self.profile.fewshots:
            parts += _examples(self.profile, self.context.reasoning, self.context.single)
        # They are shown without reasoning, so they would teach a planner that reasons not to.
        if not self.context.reasoning:
            parts += self._guide_examples()
        return "\n\n".join(parts) + "\n\n"

    def _guide_examples(self) -> list[str]:
        """Return the user's plans that worked, as far as the pool has their workers."""
        examples = []
        for planned in self.profile.guide.plans:
            names = dict.fromkeys(step.worker for step in planned.plan.steps)
            if not all(name in self.pool for name in names):
                continue
            example = Example(
                workers=tuple(self.pool[name] for name in names),
                question=planned.question,
                plan=planned.plan,
            )
            examples.append(
                _example(example, self.profile, reasoning=False, single=self.context.single)
            )
        return examples

    def _changing_part(self) -> str:
        """Return who is down, who may see what, the limit, and the question."""
        lines = []
        # All workers are listed in the fixed part, so that the cached prefix stays valid; who is
        # down comes here.
        absent = [name for name in self.pool.names if name not in self.context.rules.workers]
        if absent:
            labels = ", ".join(map(self.context.label, absent))
            lines.append(f"Not available now: {labels}.")
        lines += self.rules
        if self.question.context:
            length = sum(map(len, self.question.context))
            lines.append(
                f"The client's program adds {length} characters of its own, which you need not see."
            )
        if self.question.given:
            lines += self._given_lines()
        if not self.context.single:
            lines.append(self._limit_line())
        lines.append("")
        if not self.question.history:
            lines.append("Question:")
        lines.append(question_text(self.question, CONDUCTOR_CHARS))
        return "\n".join(lines).strip()

    def _limit_line(self) -> str:
        """Return how many steps there may be, which stands last before the question.

        A model of 1.5 billion weights takes a bare limit for the number that is wanted.
        """
        limit = self.context.rules.steps
        if limit == 1:
            return "At most 1 step."
        if not self.profile.rules:
            return f"At most {limit} steps."
        return f"One step if one worker can answer it well alone, else at most {limit} steps."

    def _given_lines(self) -> list[str]:
        """Return the answer at hand, and how it is kept."""
        accept = self.plan_format.render(KeepAnswer(), replace(self.context, reasoning=False))
        return [
            "There is an answer at hand, item 0, which workers may see through their access list.",
            f"If it stands, write this in place of a plan:\n{accept}",
            fence("answer", shorten(self.question.given[-1].answer, CONDUCTOR_CHARS)),
        ]


def planner_question(question: Question) -> Question:
    """Return the question as the planner reads it.

    Of directories that are too long for it, it is given the outline.
    """
    is_too_long = len(question_text(question)) > CONDUCTOR_CHARS
    if not is_too_long or not has_directory(question):
        return question
    return as_outline(question, CONDUCTOR_CHARS // 2, OUTLINE_FOR_PLANNER)


OUTLINE_FOR_PLANNER: Final = "Workers can read this directory. You are shown its outline."


def planner_notice(question: Question) -> str:
    """Return a notice that the planner is shown only part of the question.

    Empty where it sees all of it.
    """
    shortened = "question"
    shown = planner_question(question)
    length = len(question_text(shown))
    if question.given and len(question.given[-1].answer) > length:
        shortened = "existing answer"
        length = len(question.given[-1].answer)
    if length <= CONDUCTOR_CHARS and shown is not question:
        names = one_line(", ".join(directories_of(question)))
        return f"the planner reads the outline of {names}, not the files"
    if length <= CONDUCTOR_CHARS:
        return ""
    return (
        f"the planner reads {CONDUCTOR_CHARS:,} of {length:,} characters of the {shortened}; "
        "workers get all that fits them"
    )


def _form(plan_format: PlanFormat, context: PlanFormatContext) -> str:
    if context.single:
        return "Write only the label of the one worker that should answer."
    return plan_format.instructions(context)


@cache
# A key of the cache
def _examples(profile: Profile, reasoning: bool, single: bool) -> list[str]:  # noqa: FBT001
    return [_example(example, profile, reasoning=reasoning, single=single) for example in FEWSHOTS]


def _example(example: Example, profile: Profile, *, reasoning: bool, single: bool) -> str:
    names = tuple(worker.name for worker in example.workers)
    context = PlanFormatContext(
        rules=PlanRules(workers=names),
        order=profile.order,
        bar=profile.bar,
        reasoning=reasoning,
        single=single,
        labels=labels_for(example.workers, profile.labels),
        skills=skills_for(example.workers, profile),
    )
    plan = example.plan if reasoning else Plan(steps=example.plan.steps)
    workers = "\n".join(worker_lines(example.workers, profile, context))
    text = plan_format_for(profile, context).render(plan, context)
    return f"Example. The workers:\n{workers}\nQuestion: {example.question}\nPlan:\n{text}"
