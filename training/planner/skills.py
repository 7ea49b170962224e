"""Skills.

What a step asks for, the tags of cards that say it, and the words by which descriptions tell it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """A kind of work.

    `own` are tags of cards that mean it, `near` those that stand in for them, the nearest first.

    `words` are found in the description, the card or the model name of a worker that is good at it.
    """

    own: tuple[str, ...]
    near: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


def _skill(own: str, near: str = "", words: str = "") -> Skill:
    return Skill(
        own=tuple(own.split(", ")),
        near=tuple(filter(None, near.split(", "))),
        words=tuple(words.split(", ")),
    )


SKILLS: Final = {
    "code": _skill(
        "code, coding, programming, python",
        "software, reasoning",
        "code, coder, coding, programming",
    ),
    "debugging": _skill(
        "debugging", "code, coding, programming, python, software", "debugging, code, coder, coding"
    ),
    "review": _skill(
        "review", "code, coding, programming, python, testing", "review, code, coder, coding"
    ),
    "testing": _skill(
        "testing", "review, code, coding, programming, python", "testing, review, code, coder"
    ),
    "sql": _skill(
        "sql, databases",
        "data, code, coding, programming, python",
        "SQL, databases, data, code, coder",
    ),
    "shell": _skill(
        "shell, linux",
        "devops, code, coding, programming, python",
        "shell, Linux, devops, code, coder",
    ),
    "regex": _skill(
        "regex", "code, coding, programming, python", "code, coder, coding, programming"
    ),
    "git": _skill("git", "devops, code, coding, programming, shell", "devops, code, coder, coding"),
    "devops": _skill(
        "devops, operations", "shell, code, coding, programming", "devops, operations, Linux, code"
    ),
    "config": _skill(
        "devops, operations", "shell, code, coding, facts", "devops, operations, Linux, code"
    ),
    "frontend": _skill(
        "frontend, design", "code, coding, programming", "front end, design, code, coder"
    ),
    "security": _skill(
        "security", "review, code, coding, programming", "security, review, code, coder"
    ),
    "architecture": _skill(
        "architecture, planning", "reasoning, code, coding, science", "architecture, reasoning"
    ),
    "data": _skill("data, analysis", "math, sql, arithmetic, code", "data, analysis, math"),
    "math": _skill(
        "math, arithmetic",
        "reasoning, science, ordering, code",
        "math, proofs, arithmetic, reasoning",
    ),
    "science": _skill("science", "facts, knowledge, math, reasoning", "science, knowledge, facts"),
    "facts": _skill("facts, knowledge", "science, general, reasoning", "knowledge, facts, general"),
    "law": _skill("law", "facts, knowledge, writing, reasoning", "law, policy, knowledge"),
    "writing": _skill(
        "writing, prose, text",
        "docs, translation, facts, knowledge, letters",
        "prose, writing, texts",
    ),
    "docs": _skill(
        "docs", "writing, prose, text, code, facts", "documentation, prose, writing, texts"
    ),
    "translation": _skill(
        "translation, languages", "writing, prose, text, facts", "translation, languages, writing"
    ),
    "summary": _skill(
        "summaries, reading",
        "writing, prose, text, facts, knowledge",
        "summaries, long texts, texts",
    ),
    "planning": _skill(
        "planning, reasoning", "writing, facts, architecture, ordering", "planning, reasoning"
    ),
    "general": _skill("general, everyday", "facts, knowledge, reasoning, writing", "general"),
}

LAST: Final = (
    "general",
    "everyday",
    "reasoning",
    "hard",
    "facts",
    "knowledge",
    "writing",
    "science",
    "math",
    "code",
)
"""Tags that stand in where a table has none of a skill's."""
