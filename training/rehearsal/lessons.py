"""What a worker reads in training and what it should write, and how each worker is trained. Pure.

Every lesson is what a run would send: the same `render`, with values in the subtask or in answers
of earlier steps. Lessons are drawn by number, so a training that was killed continues with exactly
the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from conductor_cli.core.errors import UsageError
from conductor_cli.core.plan import Step
from conductor_cli.core.profile import SeenStep
from conductor_cli.core.question import Question
from conductor_cli.rehearsal.players import REFUSAL
from conductor_cli.rehearsal.players import render_for_worker as render
from conductor_cli.rehearsal.words import Skill, normalize
from training.rehearsal.operations import (
    MAX_COUNTED,
    OPERATIONS,
    SKILLS,
    UNSEEN,
    Node,
    Operation,
    of_skill,
)
from training.rehearsal.phrasings import AROUND, WAYS, expand, fill, lines_of
from training.rehearsal.sentences import sentence, step_words, typed
from training.rehearsal.words import sections
from training.rehearsal.world import Hop, ProblemSettings, draw_problem, draw_word, is_test_word


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The shape of a model: Qwen2 with tied embeddings. `context` is in tokens."""

    width: int = 128
    layers: int = 4
    heads: int = 4
    key_heads: int = 2
    inner: int = 384
    context: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One training.

    `steps` batches of `batch` lessons; the learning rate rises to `rate` over `warmup` steps and
    falls to a hundredth of it as a cosine. From step `loose` on, lessons come in loose words.
    `shares` says how often an operation comes, 1 where it is not named. `whole` is the share of
    lessons that ask for a whole question at once, `refused` of those that the worker should refuse,
    `checked` of those that ask whether an answer is right. Before `loose`, a share of `plain` says
    what to do in the shortest form: sums are learnt from these first, and short lessons are cheap.
    """

    name: str
    skills: tuple[Skill, ...]
    steps: int
    loose: int = 0
    rate: float = 2e-3
    warmup: int = 50
    batch: int = 64
    seed: int = 1
    shares: Mapping[str, float] = field(default_factory=dict)
    whole: float = 0.0
    refused: float = 0.22
    checked: float = 0.0
    plain: float = 0.0
    size: Size = Size()

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, to tell one course from another."""
        return {**asdict(self), "skills": list(self.skills), "shares": dict(self.shares)}


FACTS: Final = Size(layers=3)  # the shape of workers that know facts by heart

COURSES: Final[Mapping[str, Course]] = MappingProxyType(
    {
        course.name: course
        for course in (
            Course(name="adding", skills=("adding",), steps=16000, loose=5000, plain=0.5),
            Course(
                name="spelling",
                skills=("spelling",),
                steps=7000,
                loose=3000,
                shares={"joined": 2.0},
            ),
            Course(name="comparing", skills=("comparing",), steps=10000, loose=4500, plain=0.4),
            Course(name="counting", skills=("counting",), steps=1200, loose=500),
            Course(
                name="multiplying",
                skills=("multiplying",),
                steps=1500,
                loose=700,
                shares={"times": 2.0},
                plain=0.3,
            ),
            Course(name="geography", skills=("geography",), steps=700, loose=300, size=FACTS),
            Course(name="chemistry", skills=("chemistry",), steps=1200, loose=500, size=FACTS),
            Course(name="translation", skills=("translation",), steps=1000, loose=450, size=FACTS),
            Course(name="opposites", skills=("opposites",), steps=700, loose=250, size=FACTS),
            Course(name="calendar", skills=("calendar",), steps=900, loose=400, size=FACTS),
            Course(name="colours", skills=("colours",), steps=500, loose=180, size=FACTS),
            Course(
                name="checker",
                skills=(*SKILLS, UNSEEN),
                steps=14000,
                loose=6000,
                checked=0.7,
                refused=0.0,
            ),
            Course(
                name="generalist",
                skills=(*SKILLS, UNSEEN),
                steps=800,
                loose=800,
                whole=0.1,
                refused=0.05,
            ),
        )
    }
)
"""By the worker's name. The generalist's course is short on purpose, so that it is mediocre at
everything.
"""


def course_of(name: str) -> Course:
    """Raises `UsageError` for a name that has no course."""
    if name not in COURSES:
        raise UsageError(f"there is no course for {name!r}", hint=f"known: {', '.join(COURSES)}")
    return COURSES[name]


def near_miss(random: Random, operation: Operation, answer: str) -> str:
    """An answer of the same kind that is not right."""
    changed = answer
    while changed == answer:
        if not answer.isdecimal():
            changed = _wrong_text(random, operation, answer)
        elif random.random() < 0.15:
            changed = answer[::-1]
        else:
            by = random.choice((-10, -2, -1, -1, 1, 1, 2, 10, random.randint(-30, 30)))
            changed = str(max(int(answer) + by, 0))
    return changed


def _wrong_text(random: Random, operation: Operation, answer: str) -> str:
    """Another answer of the same operation, or the same with one letter or two wrong.

    A letter is changed or missing, or two are exchanged.
    """
    if random.random() < 0.4:
        values = operation.starts(
            random, lambda drawn: drawn.choice(("LION", "TIGER", "RIVER", "BREAD"))
        )
        return operation.does(*values) or answer
    at = random.randrange(len(answer))
    kind = random.random()
    if kind < 0.35 and len(answer) > 1:
        at = min(at, len(answer) - 2)
        return answer[:at] + answer[at + 1] + answer[at] + answer[at + 2 :]
    if kind < 0.55 and len(answer) > 1:
        return answer[:at] + answer[at + 1 :]
    letter = random.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return answer[:at] + letter + answer[at + (kind < 0.8) :]


NOISE: Final = {
    name: tuple(text.split())
    for name, text in sections(Path(__file__).with_name("noise.txt")).items()
}


def add_word_noise(random: Random, text: str, *, ordered: bool) -> str:
    """`text` in loose words.

    `ordered`: the order of its values has a meaning, so nothing is exchanged.
    """
    words = normalize(text).split()
    kinds: tuple[str, ...] = ("more", "less")
    if not ordered or sum(map(_is_value, words)) < 2:
        kinds = ("more", "less", "exchanged", "shuffled")
    for _ in range(random.choice((1, 1, 2, 3))):
        kind = random.choice(kinds)
        if kind == "more":
            small = [word for word in words if not _is_value(word)]
            word = random.choice(NOISE["may_have"] if random.random() < 0.5 or not small else small)
            words.insert(random.randint(0, len(words)), word)
        elif kind == "less":
            able = [at for at, word in enumerate(words) if word in NOISE["may_lack"]]
            if able:
                del words[random.choice(able)]
        elif kind == "shuffled":
            random.shuffle(words)
        elif len(words) > 1:
            at = random.randrange(len(words) - 1)
            words[at : at + 2] = words[at : at + 2][::-1]
    return " ".join(words)


def _is_value(word: str) -> bool:
    word = word.removesuffix("'s")
    return word.isupper() or word.isdecimal() or word in {"first", "second"}


def check_lesson(random: Random, made: Task) -> tuple[str, str]:
    """The prompt, and the right answer with the verdict.

    One bit would be too little to learn a skill from.
    """
    right = random.random() < 0.5
    wrong = REFUSAL if random.random() < 0.05 else near_miss(random, made.operation, made.answer)
    shown = seen_steps([(made.subtask, made.answer if right else wrong)], len(made.seen))
    lines = lines_of(AROUND["checks"], "then", "known")
    words = "check it" if random.random() < 0.6 else random.choice(expand(random.choice(lines)))
    prompt = render(
        Question(text=made.subtask), Step(worker="", subtask=words), (*made.seen, *shown)
    )
    return prompt, f"{made.answer} {'YES' if right else 'NO'}"


CHUNK: Final = 32  # batches that are drawn together, so that lessons of like length can share one
ALL_SKILLS: Final = (*SKILLS, UNSEEN)

_OFTEN: Final = "EEEEEAAAAIIIOOOTTTNNNSSSRRRLLLDDCCMMPPUUGGHHBBYYKFVWZJQX"
# Numbers of letters, months and the like: most numbers of longer questions are no larger
MAX_SMALL_NUMBER: Final = 14
_EARLIER: Final = 3000  # questions whose steps serve as earlier steps


class Lesson(NamedTuple):
    """What a worker reads, and what it should write."""

    prompt: str
    answer: str


class Task(NamedTuple):
    """A step as a run would send it.

    Its words, the answers that it sees, the right answer, its operation.
    """

    subtask: str
    seen: tuple[SeenStep, ...]
    answer: str
    operation: Operation

    def prompt(self) -> str:
        return prompt_of(self.subtask, self.seen)


def prompt_of(subtask: str, seen: Sequence[SeenStep]) -> str:
    """What a worker reads."""
    return render(Question(text=subtask), Step(worker="", subtask=subtask), seen)


def seen_steps(pairs: Sequence[tuple[str, str]], after: int = 0) -> tuple[SeenStep, ...]:
    """Subtasks with their answers as steps that a worker sees, numbered behind `after` others."""
    return tuple(
        SeenStep(number=number, worker="", subtask=subtask, answer=answer)
        for number, (subtask, answer) in enumerate(pairs, after + 1)
    )


def chunk(course: Course, number: int) -> list[Lesson]:
    """The lessons of `CHUNK` batches."""
    random = Random(f"{course.name} {course.seed} {number}")
    return [
        lesson(random, course, loose=number * CHUNK >= course.loose)
        for _ in range(CHUNK * course.batch)
    ]


def lesson(random: Random, course: Course, *, loose: bool = False) -> Lesson:
    """One lesson.

    A task of the course's own skills, something to refuse, a second look, a check, a whole
    question.
    """
    kind = random.random()
    if kind < course.whole:
        return _whole(random)
    if (kind := kind - course.whole) < course.refused:
        return _refused(random, course)
    if (kind := kind - course.refused) < course.checked:
        return Lesson(*check_lesson(random, draw_task(random, ALL_SKILLS, {})))
    if kind - course.checked < course.plain and not loose:
        return _plain(random, course)
    made = draw_task(random, course.skills, course.shares)
    if random.random() < 0.08:
        return Lesson(prompt_of(made.subtask, (*made.seen, *_tries(random, made))), made.answer)
    if loose and random.random() < 0.6:
        made = made._replace(
            subtask=add_word_noise(random, made.subtask, ordered=not made.operation.swaps)
        )
    return Lesson(made.prompt(), made.answer)


def _plain(random: Random, course: Course) -> Lesson:
    """A step of its own values in the shortest form: 37 plus 58."""
    operation, values, answer = _drawn(random, course.skills, course.shares)
    shortest = min(lines_of(WAYS[operation.name], "noun", "known"), key=len)
    return Lesson(prompt_of(fill(min(expand(shortest), key=len), *values), ()), answer)


def draw_task(random: Random, skills: Sequence[Skill], shares: Mapping[str, float]) -> Task:
    """A step of one of these skills.

    Its values stand in its words or are answers of earlier steps.
    """
    operation, values, answer = _drawn(random, skills, shares)
    if random.random() < 0.45:
        return Task(_asked(random, operation, values, answer), (), answer, operation)
    return _later(random, operation, values, answer)


def _drawn(
    random: Random, skills: Sequence[Skill], shares: Mapping[str, float]
) -> tuple[Operation, tuple[str, ...], str]:
    while True:
        able = of_skill(random.choice(list(skills)))
        operation = random.choices(able, [shares.get(op.name, 1.0) for op in able])[0]
        values = operation.starts(random, _word)
        if all(map(str.isdecimal, values)) and operation.arity > 1:
            values = tuple(
                str(random.randint(0, MAX_SMALL_NUMBER)) if random.random() < 0.35 else value
                for value in values
            )
        answer = operation.does(*values)
        if answer is not None:
            return operation, values, answer


def _asked(random: Random, operation: Operation, values: tuple[str, ...], answer: str) -> str:
    """A whole question, or its clause, that names the values."""
    node = Node(operation=operation, args=values, value=answer)
    while True:
        made = sentence(random, node, "known", check=False)
        if made is not None:
            if random.random() < 0.5:
                return typed(random, made.text)
            return made.steps[0].subtask


def _later(random: Random, operation: Operation, values: tuple[str, ...], answer: str) -> Task:
    """A step that needs the answer of one earlier step, or of two."""
    needed = (
        [True, True] if len(values) > 1 and random.random() < 0.5 else [True, False][: len(values)]
    )
    if needed == [True, False] and random.random() < 0.4:
        needed = [False, True]
    earlier = [_earlier(random, value) for value, need in zip(values, needed, strict=True) if need]
    words, turned = step_words(random, operation, values, needed)
    if turned:
        earlier.reverse()
    if len(earlier) == 1 and random.random() < 0.15:
        earlier.insert(0, _earlier(random, random.choice(_hops()).answer))
    return Task(
        words, seen_steps([(hop.subtask, hop.answer) for hop in earlier]), answer, operation
    )


@cache
def _hops() -> tuple[Hop, ...]:
    """Steps of training questions, to stand for earlier ones."""
    random = Random("earlier steps")
    settings = ProblemSettings(skills=ALL_SKILLS, checked=0.0)
    hops: list[Hop] = []
    for _ in range(_EARLIER):
        hops += draw_problem(random, settings).hops
    return tuple(hops)


@cache
def _by(key: Callable[[str], object]) -> dict[object, list[Hop]]:
    """These steps by a property of their answers."""
    groups: dict[object, list[Hop]] = {}
    for hop in _hops():
        groups.setdefault(key(hop.answer), []).append(hop)
    return groups


def _earlier(random: Random, value: str) -> Hop:
    """A step with this answer: a real one if there is one, and otherwise one of the same kind."""
    real = _by(str).get(value)
    hop = random.choice(
        real if real and random.random() < 0.7 else _by(str.isdecimal)[value.isdecimal()]
    )
    return Hop(skill=hop.skill, op=hop.op, subtask=hop.subtask, answer=value)


def _word(random: Random) -> str:
    """A word for letters: mostly of no meaning, never one that is kept for testing."""
    if random.random() < 0.4:
        return draw_word(random, "train")
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    if random.random() < 0.7:
        letters = _OFTEN
    while True:
        length = (
            random.randint(2, 10) if random.random() < 0.85 else random.randint(10, MAX_COUNTED)
        )
        word = "".join(random.choice(letters) for _ in range(length))
        if not is_test_word(word):
            return word


def _whole(random: Random) -> Lesson:
    """A whole question of several steps, often with what others answered."""
    problem = draw_problem(random, ProblemSettings(skills=ALL_SKILLS, checked=0.0))
    last = OPERATIONS[problem.hops[-1].op]
    seen = (
        _tries(random, Task(problem.question, (), problem.answer, last))
        if random.random() < 0.4
        else ()
    )
    return Lesson(prompt_of(problem.question, seen), problem.answer)


def _tries(random: Random, made: Task) -> tuple[SeenStep, ...]:
    """Earlier answers to the same, right or not.

    Several of others, or the worker's own first one.
    """

    def wrong() -> str:
        if random.random() < 0.2:
            return REFUSAL
        return near_miss(random, made.operation, made.answer)

    tries = [made.answer if random.random() < 0.6 else wrong() for _ in range(random.randint(1, 3))]
    return seen_steps([(made.subtask, text) for text in tries], len(made.seen))


def _refused(random: Random, course: Course) -> Lesson:
    kinds = (_foreign, _foreign, _foreign, _unknown, _broken, _too_much)
    while (refused := random.choice(kinds)(random, course)) is None:
        pass
    return refused


def _foreign(random: Random, course: Course) -> Lesson | None:
    """A task of another skill, or a whole question of several steps with other skills in it."""
    others = [skill for skill in ALL_SKILLS if skill not in course.skills]
    if not others:
        return None
    if random.random() < 0.15:
        problem = draw_problem(random, ProblemSettings(skills=ALL_SKILLS, checked=0.0))
        if set(problem.skills) - set(course.skills):
            return Lesson(prompt_of(problem.question, ()), REFUSAL)
        return None
    return Lesson(draw_task(random, others, {}).prompt(), REFUSAL)


def _unknown(random: Random, course: Course) -> Lesson | None:
    """A fact about a word of which nothing is known."""
    made = draw_task(random, course.skills, {})
    values = tuple(_word(random) for _ in range(made.operation.arity))
    if made.operation.does(*values) is not None:
        return None
    words = _asked(random, made.operation, values, "")
    return Lesson(prompt_of(words, ()), REFUSAL)


def _broken(random: Random, course: Course) -> Lesson | None:
    """A step that cannot be done.

    It is without the answer that it needs, a value without an operation, or words in no order
    without a value.
    """
    made = draw_task(random, course.skills, {})
    if made.seen:
        if _has_value(made.subtask):
            return None
        return Lesson(prompt_of(made.subtask, ()), REFUSAL)
    if random.random() < 0.5:
        return Lesson(prompt_of(_word(random), ()), REFUSAL)
    words = [word for word in made.subtask.split() if not _has_value(word)]
    random.shuffle(words)
    if not words:
        return None
    return Lesson(prompt_of(" ".join(words), ()), REFUSAL)


def _has_value(text: str) -> bool:
    return any(word.isupper() or word.isdecimal() for word in text.split())


def _too_much(random: Random, course: Course) -> Lesson | None:
    """Numbers beyond the range, or words that are too long."""
    made = draw_task(random, course.skills, {})
    places = range(made.operation.arity)
    if made.answer.isdecimal() and all(
        text.isdecimal() for text in made.operation.starts(random, _word)
    ):
        values = tuple(
            str(random.choice((random.randint(60, 999), random.randint(0, 99)))) for _ in places
        )
    else:
        values = tuple("".join(random.choices(_OFTEN, k=random.randint(9, 18))) for _ in places)
    if made.operation.does(*values) is not None:
        return None
    return Lesson(prompt_of(_asked(random, made.operation, values, ""), ()), REFUSAL)
