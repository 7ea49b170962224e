"""How each worker of the rehearsal is trained: the settings of its course. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Final

from conductor_cli.core.errors import UsageError
from conductor_cli.rehearsal.normalize import Skill
from scripts.rehearsal.operations import SKILLS

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
    of it as a cosine. From step `loose` on, where that is not the first, there is a second, lower cosine, and lessons
    come in loose words; `missing` are words that may be left out there. `shares` says how often an operation comes, 1
    where it is not named. `whole` is the share of lessons that ask for a whole chain at once.
    """

    name: str
    skills: tuple[Skill, ...]
    steps: int
    loose: int = 0
    missing: tuple[str, ...] = ()
    rate: float = 2e-3
    warmup: int = 100
    batch: int = 64
    seed: int = 1
    shares: Mapping[str, float] = field(default_factory=dict)
    whole: float = 0.0
    size: Size = Size()

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, to tell one course from another."""
        return {**asdict(self), "skills": list(self.skills), "missing": list(self.missing), "shares": dict(self.shares)}


COURSES: Final[Mapping[str, Course]] = MappingProxyType({
    course.name: course
    for course in (
        Course(
            name="letters", skills=("letters",), steps=4000, loose=3000,
            shares={"reverse": 2.5, "sort": 2.5, "count": 1.0, "first": 0.5, "last": 0.5},
        ),
        Course(
            name="numbers", skills=("numbers",), steps=5600, loose=4000, missing=("from", "by", "than", "and"),
            rate=1.5e-3,
            shares={"add": 1.5, "subtract": 1.5, "multiply": 0.6},
        ),
        Course(name="facts", skills=("facts",), steps=1600, shares={"capital": 1.5, "opposite": 1.5, "number": 1.2}),
        Course(name="generalist", skills=SKILLS, steps=1100, whole=0.15),
    )
})  # fmt: skip
"""By the worker's name. The generalist's course is short on purpose, so that it is mediocre at everything."""


def course_of(name: str) -> Course:
    """Raises `UsageError` for a name that has no course."""
    if name not in COURSES:
        raise UsageError(f"there is no course for {name!r}", hint=f"known: {', '.join(COURSES)}")
    return COURSES[name]
