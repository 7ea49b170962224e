"""How each worker of the rehearsal is trained: the settings of its course. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Final

from conductor_cli.core.errors import UsageError
from conductor_cli.rehearsal.words import Skill
from scripts.rehearsal.operations import SKILLS, UNSEEN

UNFINISHED: Final = 3
"""The exit code of a stage whose minutes are over before its course is done: run it again to continue."""


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

    `steps` batches of `batch` lessons; the learning rate rises to `rate` over `warmup` steps and falls to a hundredth
    of it as a cosine. From step `loose` on, lessons come in loose words. `shares` says how often an operation comes, 1
    where it is not named. `whole` is the share of lessons that ask for a whole question at once, `refused` of those
    that the worker should refuse, `checked` of those that ask whether an answer is right. Before `loose`, a share of
    `plain` says what to do in the shortest form: sums are learnt from these first, and short lessons are cheap.
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


FACTS: Final = Size(layers=3)
"""The shape of workers that know facts by heart."""

COURSES: Final[Mapping[str, Course]] = MappingProxyType({
    course.name: course
    for course in (
        Course(name="adding", skills=("adding",), steps=16000, loose=5000, plain=0.5),
        Course(name="spelling", skills=("spelling",), steps=7000, loose=3000, shares={"joined": 2.0}),
        Course(name="comparing", skills=("comparing",), steps=10000, loose=4500, plain=0.4),
        Course(name="counting", skills=("counting",), steps=1200, loose=500),
        Course(name="multiplying", skills=("multiplying",), steps=1500, loose=700, shares={"times": 2.0}, plain=0.3),
        Course(name="geography", skills=("geography",), steps=700, loose=300, size=FACTS),
        Course(name="chemistry", skills=("chemistry",), steps=1200, loose=500, size=FACTS),
        Course(name="translation", skills=("translation",), steps=1000, loose=450, size=FACTS),
        Course(name="opposites", skills=("opposites",), steps=700, loose=250, size=FACTS),
        Course(name="calendar", skills=("calendar",), steps=900, loose=400, size=FACTS),
        Course(name="colours", skills=("colours",), steps=500, loose=180, size=FACTS),
        Course(name="checker", skills=(*SKILLS, UNSEEN), steps=14000, loose=6000, checked=0.7, refused=0.0),
        Course(name="generalist", skills=(*SKILLS, UNSEEN), steps=800, loose=800, whole=0.1, refused=0.05),
    )
})  # fmt: skip
"""By the worker's name. The generalist's course is short on purpose, so that it is mediocre at everything."""


def course_of(name: str) -> Course:
    """Raises `UsageError` for a name that has no course."""
    if name not in COURSES:
        raise UsageError(f"there is no course for {name!r}", hint=f"known: {', '.join(COURSES)}")
    return COURSES[name]
