"""Lessons.

Questions over drawn pools with plans that are right by construction, as the product writes both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

from conductor_cli.core.chat import Request
from conductor_cli.core.plan import MAX_STEPS, Plan, PlanRules, Step
from conductor_cli.core.plan_formats import PLAN_FORMATS
from conductor_cli.core.plan_formats.base import ANSWER_DIRECTLY, PlanFormatContext
from conductor_cli.core.pool import Pool
from conductor_cli.core.profile import BRIEF_PROFILE
from conductor_cli.core.prompts import plan_format_context, planner_request
from conductor_cli.core.question import File, PastTurn, Question
from training.planner.pools import Choice, choose, draw_pool

HERE: Final = Path(__file__).parent
MINI: Final = 0.06  # The share of groups that name one worker alone
WITHHELD: Final = 0.15  # The share of questions with files that one worker may not see
IN_CONTEXT: Final = 0.08  # The share of technical questions that begin with who asks, or with what
MISTYPED: Final = 0.07  # The share of questions with typing errors


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """A step of a shape. `other_than` and `same_as` are numbers of earlier steps, 0 for none."""

    skill: str
    access: tuple[int, ...]
    subtask: str
    other_than: int = 0
    same_as: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A kind of question. Without `steps` it is answered in one."""

    name: str
    skill: str
    easy: bool = False
    held: bool = False
    asked: tuple[str, ...] = ()
    order: str = ""
    files: tuple[str, ...] = ()
    steps: tuple[StepShape, ...] = ()

    @property
    def follows_up(self) -> bool:
        """Whether its questions go on from an earlier one."""
        return self.name.startswith("follow up")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A question with the steps of its plan; none for one step.

    `kind` names the shape or the composition.
    """

    kind: str
    question: Question
    skill: str
    steps: tuple[StepShape, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What the planner is sent, and what it should write."""

    kind: str
    request: Request
    text: str
    steps: int


# Reading the files

LINE_BREAK: Final = "¶"  # How the files write a line break within a line of theirs
_SLOT: Final = re.compile(r"\{\{|\}\}|\{(\w+)(?:\.(\d))?\}")
_EITHER: Final = re.compile(r"\[([^\[\]\n]*~[^\[\]\n]*)\]")


@cache
def read_fillers() -> Mapping[str, tuple[str, ...]]:
    """The values of each slot."""
    lines = (HERE / "fillers.txt").read_text().splitlines()
    parts = [line.partition(":") for line in lines if line and not line.startswith("#")]
    return {
        name: tuple(value.strip() for value in values.split(" ; ")) for name, _, values in parts
    }


@cache
def read_shapes() -> tuple[Shape, ...]:
    """All shapes of shapes.txt."""
    shapes = list[Shape]()
    for line in (HERE / "shapes.txt").read_text().splitlines():
        mark, _, rest = line.partition(" ")
        if mark == "=":
            name, skill, *flags = (part.strip() for part in rest.split("|"))
            shapes.append(Shape(name=name, skill=skill, easy="easy" in flags, held="held" in flags))
        elif mark == "?":
            shapes[-1] = replace(shapes[-1], asked=(*shapes[-1].asked, rest))
        elif mark == "do":
            shapes[-1] = replace(shapes[-1], order=rest)
        elif mark == "@":
            shapes[-1] = replace(shapes[-1], files=tuple(rest.split()))
        elif mark == ">":
            shapes[-1] = replace(
                shapes[-1], steps=(*shapes[-1].steps, _read_step(rest, shapes[-1].steps))
            )
        elif line and mark != "#":
            raise ValueError(f"shapes.txt: {line}")
    return tuple(shapes)


def _read_step(line: str, before: Sequence[StepShape]) -> StepShape:
    whom, access, subtask = (part.strip() for part in line.split("|", 2))
    skill, *relation = whom.split()
    numbers = tuple(int(number) for number in access.split()) if access != "-" else ()
    step = StepShape(skill=skill, access=numbers, subtask=subtask)
    if not relation:
        return step
    word = relation[0]
    number = int(relation[1])
    if not 0 < number <= len(before):
        raise ValueError(f"shapes.txt: {line}")
    if word == "other":
        return replace(step, other_than=number)
    return replace(step, same_as=number)


@cache
def read_files() -> Mapping[str, tuple[tuple[str, str], ...]]:
    """The names and texts of attached files by their kind."""
    texts = dict[str, list[tuple[str, str]]]()
    for part in ("\n" + (HERE / "files.txt").read_text()).split("\n= ")[1:]:
        head, _, text = part.partition("\n")
        kind, _, name = head.partition(" | ")
        texts.setdefault(kind, []).append((name, text.rstrip()))
    return {kind: tuple(files) for kind, files in texts.items()}


# Drawing a question


@dataclass(slots=True)
class Slots:
    """The values that fill one question: a slot has the same value wherever it stands in it."""

    random: Random
    held: bool
    orders: dict[str, list[int]] = field(default_factory=dict)

    def fill(self, text: str) -> str:
        """The text with an alternative chosen and all slots filled."""
        chosen = _EITHER.sub(lambda match: self.random.choice(match[1].split("~")), text)
        return _SLOT.sub(self._value, chosen).replace(LINE_BREAK, "\n")

    def _value(self, match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        name = match[1]
        number = int(match[2] or 1)
        values = _values(name, held=self.held)
        family = _FAMILIES.get(name, name)
        if family not in self.orders:
            self.orders[family] = self.random.sample(range(len(values)), len(values))
        return values[self.orders[family][number - 1]]


_FAMILIES: Final = {"toolb": "tool", "toolc": "tool"}
"""Slots whose values stand beside those of another one, so that like is compared with like."""


def _values(name: str, *, held: bool) -> tuple[str, ...]:
    """The values of a slot: every fifth is kept for validation, where there are many."""
    values = read_fillers()[name]
    if len(values) < 14:
        return values
    kept = values[::4]
    if held:
        return kept
    return tuple(value for value in values if value not in kept)


_PLURALS: Final = {2: "both", 3: "all three", 4: "all four"}

_JOINED: Final = {
    2: (
        "{0}, and {1}.",
        "{0}. Then {1}.",
        "Two things: {0}; and {1}.",
        "{0}. Also {1}.",
        "{0}. Besides, {1}",
        "(1) {0} (2) {1}",
        "Please {0}, and also {1}.",
        "{0} and {1}",
        "- {0}\n- {1}",
    ),
    3: (
        "{0}, {1}, and {2}.",
        "I need three things: (1) {0} (2) {1} (3) {2}.",
        "{0}. {1}. {2}.",
        "- {0}\n- {1}\n- {2}",
        "Please {0}. Then {1}, and finally {2}.",
        "1. {0}\n2. {1}\n3. {2}",
    ),
    4: (
        "1. {0}\n2. {1}\n3. {2}\n4. {3}",
        "{0}; {1}; {2}; and {3}.",
        "Four tasks: {0}. {1}. {2}. {3}.",
    ),
}
"""How the parts of a question are joined."""

_FORMS: Final = (
    "Answer in one line.",
    "Keep it short.",
    "As bullet points.",
    "Explain your steps.",
    "No explanations.",
    "Use at most 100 words.",
    "In a table, please.",
    "Give an example.",
    "Be precise.",
    "Thanks!",
    "thx",
    "As a numbered list.",
    "I have five minutes.",
    "Antworte bitte auf Deutsch.",
)
"""What is asked of the form of an answer: it needs no step of its own."""

_GREETINGS: Final = (
    "Hi! ",
    "Hello, ",
    "hey, ",
    "Please help: ",
    "Question: ",
    "Dear team, ",
    "Quick one: ",
    "pls: ",
    "Hallo, ",
    "Bonjour, ",
    "sorry for the dumb question, ",
)


_TECHNICAL: Final = ("code", "debugging", "sql", "devops", "security", "architecture", "testing")
_CONTEXTS: Final = (
    "I am {role}.",
    "We use {language} and {database}.",
    "Context: {system}, {count} users.",
    "We are {purpose}.",
    "I am new to this.",
    "This is for production.",
    "Our stack: {framework}, {database}, {cloud}.",
    "It is urgent.",
)
"""What stands before a question and changes nothing in its plan."""


def draw_task(random: Random, *, held: bool = False) -> Task:
    """A question with the steps of its plan.

    With `held` from what no lesson has, where there is such.
    """
    kind = random.choices(("shape", "parts", "then"), weights=(70, 20, 10))[0]
    if kind == "parts":
        return _draw_parts(random, held=held)
    if kind == "then":
        return _draw_then(random, held=held)
    pool = _shapes(random, held=held)
    return _draw_shape(random, random.choice(pool), held=held)


def _shapes(random: Random, *, held: bool) -> Sequence[Shape]:
    """Shapes of one kind: those of one step, of several, or odd ones.

    A held-out one half of the time it may be.
    """
    shapes = [shape for shape in read_shapes() if not shape.held]
    if held and random.random() < 0.5:
        return [shape for shape in read_shapes() if shape.held]
    kind = random.choices(("one", "easy", "several", "odd"), weights=(30, 14, 46, 10))[0]
    return [shape for shape in shapes if _kind(shape) == kind]


def _kind(shape: Shape) -> str:
    if shape.skill == "general" and (shape.easy or shape.follows_up):
        return "odd"
    if shape.steps:
        return "several"
    if shape.easy:
        return "easy"
    return "one"


def _draw_shape(random: Random, shape: Shape, *, held: bool) -> Task:
    slots = Slots(random, held)
    text = slots.fill(random.choice(shape.asked))
    steps = tuple(replace(step, subtask=slots.fill(step.subtask)) for step in shape.steps)
    if shape.follows_up:
        later = _follow_up(random, text, held=held)
        return Task(kind=shape.name, question=later, skill=shape.skill, steps=steps)
    files = tuple(_draw_file(slots, kind, number) for number, kind in enumerate(shape.files))
    if shape.skill in _TECHNICAL and random.random() < IN_CONTEXT:
        text = f"{slots.fill(random.choice(_CONTEXTS))} {text}"
    question = Question(text=_decorated(random, text, form=not steps and not files), files=files)
    return Task(kind=shape.name, question=question, skill=shape.skill, steps=steps)


def _follow_up(random: Random, text: str, *, held: bool) -> Question:
    """A question that goes on from an earlier one, whose answer is short here."""
    before = _draw_shape(random, random.choice(_singles()), held=held).question.text
    answer = Slots(random, held).fill("It is about {thing}: {text} See {tool}.")
    return Question(text=text, history=(PastTurn(question=before, answer=answer),))


def _singles() -> list[Shape]:
    return [shape for shape in read_shapes() if shape.order and not shape.held]


def _draw_file(slots: Slots, kind: str, number: int) -> File:
    name, text = slots.random.choice(read_files()[kind])
    # A second file of a kind has other values.
    own = slots
    if number != 0:
        own = Slots(slots.random, slots.held)
    stem, dot, ending = name.rpartition(".")
    if number and stem:
        name = f"{stem}{number + 1}{dot}{ending}"
    return File(name=name, text=own.fill(text))


def _decorated(random: Random, text: str, *, form: bool) -> str:
    """The text as people write it: with a greeting, in lower case, without its last point."""
    if random.random() < 0.08:
        text = random.choice(_GREETINGS) + text
    if form and random.random() < 0.12:
        text = f"{text} {random.choice(_FORMS)}"
    if random.random() < 0.12:
        text = text.lower()
    if random.random() < 0.1:
        text = text.rstrip(".?!")
    if random.random() < 0.3:
        text = text[:1].upper() + text[1:]
    if random.random() < MISTYPED:
        text = _mistyped(random, text)
    return text


_WORD: Final = re.compile(r"\b[a-z]{5,}\b")


def _mistyped(random: Random, text: str) -> str:
    """The text with two letters swapped, or one left out, in one or two of its longer words."""
    words = list(_WORD.finditer(text))
    for match in sorted(random.sample(words, min(2, len(words))), key=lambda word: -word.start()):
        cut = random.randrange(match.start() + 1, match.end() - 2)
        letters = text[cut : cut + 2]
        typed = random.choice((letters[::-1], letters[0]))
        text = text[:cut] + typed + text[cut + 2 :]
    return text


_ON_IT: Final = (
    "check it for {edges}",
    "test it on {edges} and {edges.2}",
    "make sure that it is right",
    "check it for mistakes",
    "review it",
    "list what could go wrong with it",
    "say what could be misunderstood in it",
    "have it reviewed",
    "check all of it twice",
    "verify the figures in it",
)
"""Parts of a question that are about the results of the other parts."""


def _draw_parts(random: Random, *, held: bool) -> Task:
    """A question of two to four parts.

    Easy ones are one step; else each is a step, and a last one reads all.
    """
    count = random.choices((2, 3, 4), weights=(5, 4, 1))[0]
    easy = random.random() < 0.25
    # The slots of all parts are drawn together, so that no two parts have the same value.
    fitting_shapes = [shape for shape in _singles() if shape.easy == easy]
    shapes = random.sample(fitting_shapes, count)
    orders = [Slots(random, held).fill(shape.order).rstrip(".") for shape in shapes]
    follows = not easy and count > 2 and random.random() < 0.5
    if follows:
        orders[-1] = Slots(random, held).fill(random.choice(_ON_IT))
    request = random.choice(_JOINED[count]).format(*orders)
    question = Question(text=_decorated(random, request[:1].upper() + request[1:], form=False))
    if easy:
        return Task(kind=f"{count} easy parts", question=question, skill=shapes[0].skill)
    steps = [
        StepShape(skill=shape.skill, access=(), subtask=order[:1].upper() + order[1:] + ".")
        for shape, order in zip(shapes, orders, strict=True)
    ]
    if follows:
        # The last part is about the results of the others, so it reads them, and is done by another
        # worker.
        before = tuple(range(1, count))
        steps[-1] = replace(steps[-1], skill="review", access=before, other_than=1)
    last = StepShape(
        skill="writing",
        access=tuple(range(1, count + 1)),
        subtask=(
            f"Put {_PLURALS[count]} answers together in the order of the question, each complete."
        ),
    )
    return Task(
        kind=f"{count} parts", question=question, skill=shapes[0].skill, steps=(*steps, last)
    )


_THEN: Final = (
    (
        "translation",
        "then translate the answer into {tongue}",
        "Translate this answer into {tongue}, and give it.",
    ),
    (
        "translation",
        "with the answer in {tongue} as well",
        "Translate the answer into {tongue}, and give both.",
    ),
    (
        "writing",
        "then turn it into an e-mail that {mail}",
        "Write an e-mail with this result that {mail}.",
    ),
    ("writing", "and explain the result {style}", "Explain this result {style}, and give both."),
    ("docs", "then write {doc} for it", "Write {doc} for this, and give both."),
    (
        "review",
        "and have it checked by a second pair of eyes",
        "Check this for mistakes, and give it corrected.",
    ),
    (
        "review",
        "this is critical, so verify it",
        "Verify this with an example, and give it corrected.",
    ),
    (
        "security",
        "and make sure that it is secure",
        "Look for weaknesses in this, and give it made secure.",
    ),
    ("testing", "with tests", "Write tests for this, and give both, corrected where a test fails."),
)
"""What follows on an answer: the skill, the words of the question, the subtask of the second
step.
"""


def _draw_then(random: Random, *, held: bool) -> Task:
    """A piece of work, and what is done with its result by another worker."""
    code = [
        shape for shape in _singles() if shape.skill in ("code", "sql", "shell", "regex", "devops")
    ]
    skill, words, subtask = random.choice(_THEN)
    shapes = code
    if skill not in ("docs", "review", "security", "testing"):
        shapes = _singles()
    shape = random.choice([shape for shape in shapes if not shape.easy])
    slots = Slots(random, held)
    order, words, subtask = (slots.fill(text) for text in (shape.order.rstrip("."), words, subtask))
    order = order[:1].upper() + order[1:]
    request = random.choice(("{0}, {1}.", "{0}. {1}", "{0}, {1}", "{0} - {1}")).format(order, words)
    first = StepShape(skill=shape.skill, access=(), subtask=f"{order}.")
    second = StepShape(skill=skill, access=(1,), subtask=subtask, other_than=1)
    question = Question(text=_decorated(random, request, form=False))
    return Task(kind=f"then {skill}", question=question, skill=shape.skill, steps=(first, second))


# From a task to a lesson


def plan_for(task: Task, pool: Pool, context: PlanFormatContext) -> list[tuple[Step, Choice]]:
    """The plan that is right over this pool, with the word by which each worker is chosen.

    One step where no other helps: by the question, with one worker only, or within the limit of
    steps.
    """
    alone = len(context.rules.workers) == 1
    if not task.steps or alone or len(task.steps) > context.rules.steps:
        chosen = choose(task.skill, pool, context)
        return [(Step(worker=chosen.worker, subtask=ANSWER_DIRECTLY), chosen)]
    plan = list[tuple[Step, Choice]]()
    for step in task.steps:
        if step.same_as:
            chosen = plan[step.same_as - 1][1]
        else:
            author = (plan[step.other_than - 1][0].worker,) if step.other_than else ()
            chosen = choose(step.skill, pool, context, other_than=author)
        plan.append((Step(worker=chosen.worker, subtask=step.subtask, access=step.access), chosen))
    return plan


def write_plan(plan: Sequence[tuple[Step, Choice]], context: PlanFormatContext) -> str:
    """The text of a plan as the profile has it, with the word of the table before each label."""
    text = PLAN_FORMATS[BRIEF_PROFILE.plan_format].render(
        Plan(steps=tuple(step for step, _ in plan)), context
    )
    if context.single:
        return text
    lines = []
    for line, (_, chosen) in zip(text.splitlines(), plan, strict=True):
        head, bar, label = line.rpartition(context.bar)
        lines.append(f"{head}{bar}{chosen.tag} {label}" if chosen.tag else line)
    return "\n".join(lines)


def draw_group(seed: str, count: int, *, held: bool = False) -> list[Lesson]:
    """`count` lessons over one pool, the same ones for the same seed.

    Mostly as `conductor ask` sends them; some groups name one worker alone, as `--mode mini` does.
    """
    random = Random(seed)
    tasks = [draw_task(random, held=held) for _ in range(count)]
    pool = draw_pool(random, skills=_skills_of(tasks), held=held)
    single = len(pool) > 1 and random.random() < MINI
    return [make_lesson(task, pool, random, single=single) for task in tasks]


def _skills_of(tasks: Sequence[Task]) -> list[str]:
    """The skills that tasks ask for, each question's own before those of its steps."""
    skills = [task.skill for task in tasks]
    for task in tasks:
        skills += [step.skill for step in task.steps]
    return skills


def make_lesson(task: Task, pool: Pool, random: Random, *, single: bool) -> Lesson:
    """The lesson of a task.

    Some have a lower limit of steps, a worker that is not available, or one without the files.
    """
    limit = MAX_STEPS if random.random() < 0.88 else random.randint(1, MAX_STEPS - 1)
    names = pool.names
    if len(pool) > 2 and random.random() < 0.06:
        absent = random.choice(names)
        names = tuple(name for name in names if name != absent)
    rules = PlanRules(workers=names, steps=limit)
    context = plan_format_context(
        BRIEF_PROFILE, pool, rules, "mini" if single else "auto", constrained=True
    )
    withheld = _withheld_worker(task, names, random)
    rules_of_files = (f"{context.label(withheld)} {_NOT_SHOWN}",) if withheld else ()
    request = planner_request(task.question, pool, BRIEF_PROFILE, context, rules=rules_of_files)
    offered = tuple(name for name in names if name != withheld)
    own = replace(context, rules=replace(rules, workers=offered))
    plan = plan_for(replace(task, steps=()) if single else task, pool, own)
    return Lesson(kind=task.kind, request=request, text=write_plan(plan, context), steps=len(plan))


_NOT_SHOWN: Final = "is not shown the attached files, nor answers that come from them."
"""What `DataPolicy.rules_for_planner` says of a worker."""


def _withheld_worker(task: Task, names: Sequence[str], random: Random) -> str:
    """The worker that may not see the files of a question, empty where all may."""
    if task.question.files and len(names) > 2 and random.random() < WITHHELD:
        return random.choice(names)
    return ""
