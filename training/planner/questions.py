"""Sixty questions that no lesson has, written apart from the shapes.

Easy ones, of several steps, with files, odd ones.

Each has the skill that its first step asks for. The examination asks them over pools that no lesson
has.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.question import File, Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """A question, its kind, and the skill that a plan for it begins with.

    `several`: more than one step helps.

    The kinds are `easy`, `several`, `file` and `odd`.
    """

    kind: str
    skill: str
    question: Question
    several: bool = False


def _examined(line: dict[str, Any]) -> Examined:
    files = tuple(File(name=name, text=text) for name, text in line.get("files", {}).items())
    question = Question(text=line["text"], files=files)
    return Examined(
        kind=line["kind"],
        skill=line["skill"],
        question=question,
        several=line.get("several", False),
    )


def read_questions(path: Path) -> tuple[Examined, ...]:
    """Return the questions of a file, a JSON object a line."""
    return tuple(_examined(json.loads(line)) for line in path.read_text().splitlines())


QUESTIONS: Final = read_questions(Path(__file__).with_name("questions.jsonl"))

LATER_QUESTIONS: Final = read_questions(Path(__file__).with_name("questions_later.jsonl"))
"""Sixty more of the same kinds, which a language model wrote that had seen no lesson.

It wrote them before the eighth training. Lessons were changed by their plans from the eleventh on.
"""

THIRD_QUESTIONS: Final = read_questions(Path(__file__).with_name("questions_third.jsonl"))
"""Sixty more, written in the same way before the eleventh training. No lesson was changed by their
plans.
"""

FOURTH_QUESTIONS: Final = read_questions(Path(__file__).with_name("questions_fourth.jsonl"))
"""Sixty more, written in the same way before the thirteenth training.

They are more like what people ask: with their circumstances, in several languages, and with parts
that different people shall do without seeing each other's work. No lesson was changed by their
plans before the fifteenth training (below).
"""

FIFTH_QUESTIONS: Final = read_questions(Path(__file__).with_name("questions_fifth.jsonl"))
"""Sixty more, written in the same way before the fourteenth training, by one that saw no lesson.

What failed in their plans and those of the fourth told the writers of the fifteenth training's
lessons what to write against, in general words.
"""

SIXTH_QUESTIONS: Final = read_questions(Path(__file__).with_name("questions_sixth.jsonl"))
"""Sixty more, written in the same way before the fifteenth training, by one that saw no lesson."""

SEVENTH_QUESTIONS: Final = read_questions(Path(__file__).with_name("questions_seventh.jsonl"))
"""Sixty more, written before the sixteenth training by one that saw no lesson and no examination.

Half of them are shorter than 120 characters, as most of what is typed.
"""

EIGHTH_QUESTIONS: Final = read_questions(Path(__file__).with_name("questions_eighth.jsonl"))
"""Sixty more, written after the sixteenth training by one that saw no lesson.

It saw eight of the seventh, for their form.
"""

NINTH_QUESTIONS: Final = read_questions(Path(__file__).with_name("questions_ninth.jsonl"))
"""Sixty more, written before the seventeenth training by one that saw no lesson and no examination.

What failed in the plans of the seventh and the eighth told the writers of that training's lessons
what to write about, in general words.
"""
