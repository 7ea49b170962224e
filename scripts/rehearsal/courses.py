"""How each worker of the rehearsal is trained: the settings of its course. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Final

from conductor_cli.core.errors import UsageError
from conductor_cli.rehearsal.normalize import Skill
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
        Course(name="adding", skills=("adding",), steps=11000, loose=4000, plain=0.5),
        Course(name="spelling", skills=("spelling",), steps=2800, loose=1600, shares={"joined": 2.0}),
        Course(name="comparing", skills=("comparing",), steps=6000, loose=3000, plain=0.4),
        Course(name="counting", skills=("counting",), steps=500, loose=300),
        Course(name="multiplying", skills=("multiplying",), steps=700, loose=400, shares={"times": 2.0}, plain=0.3),
        Course(name="geography", skills=("geography",), steps=500, loose=300, size=FACTS),
        Course(name="chemistry", skills=("chemistry",), steps=600, loose=300, size=FACTS),
        Course(name="translation", skills=("translation",), steps=700, loose=450, size=FACTS),
        Course(name="opposites", skills=("opposites",), steps=400, loose=250, size=FACTS),
        Course(name="calendar", skills=("calendar",), steps=400, loose=250, size=FACTS),
        Course(name="colours", skills=("colours",), steps=300, loose=180, size=FACTS),
        Course(name="checker", skills=(*SKILLS, UNSEEN), steps=5000, loose=5000, checked=0.6, refused=0.0),
        Course(name="generalist", skills=(*SKILLS, UNSEEN), steps=500, loose=500, whole=0.1, refused=0.05),
    )
})  # fmt: skip
"""By the worker's name. The generalist's course is short on purpose, so that it is mediocre at everything."""


def course_of(name: str) -> Course:
    """Raises `UsageError` for a name that has no course."""
    if name not in COURSES:
        raise UsageError(f"there is no course for {name!r}", hint=f"known: {', '.join(COURSES)}")
    return COURSES[name]
