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
        "software, debugging, review, testing, frontend, shell, sql, reasoning",
        "code, coder, coding, programming",
    ),
    "debugging": _skill(
        "debugging",
        "code, coding, programming, python, software, review, testing, devops, operations",
        "debugging, code, coder, coding",
    ),
    "review": _skill(
        "review",
        "code, coding, programming, python, testing, debugging, reasoning",
        "review, code, coder, coding",
    ),
    "testing": _skill(
        "testing",
        "review, code, coding, programming, python, debugging",
        "testing, review, code, coder",
    ),
    "sql": _skill(
        "sql, databases",
        "data, code, coding, programming, python, analysis",
        "SQL, databases, data, code, coder",
    ),
    "shell": _skill(
        "shell, linux",
        "devops, operations, code, coding, programming, python",
        "shell, Linux, devops, code, coder",
    ),
    "regex": _skill(
        "regex",
        "code, coding, programming, python, shell, linux, debugging",
        "code, coder, coding, programming",
    ),
    "git": _skill(
        "git",
        "devops, operations, shell, linux, code, coding, programming",
        "devops, code, coder, coding",
    ),
    "devops": _skill(
        "devops, operations",
        "linux, shell, code, coding, programming",
        "devops, operations, Linux, code",
    ),
    "config": _skill(
        "devops, operations",
        "linux, shell, code, coding, programming",
        "devops, operations, Linux, code",
    ),
    "frontend": _skill(
        "frontend, design",
        "code, coding, programming, debugging",
        "front end, design, code, coder",
    ),
    "security": _skill(
        "security",
        "review, devops, operations, code, coding, programming",
        "security, review, code, coder",
    ),
    "architecture": _skill(
        "architecture",
        "reasoning, planning, devops, operations, code, coding, science",
        "architecture, reasoning",
    ),
    "data": _skill(
        "data, analysis", "math, arithmetic, sql, databases, code, coding", "data, analysis, math"
    ),
    "math": _skill(
        "math, arithmetic",
        "reasoning, data, analysis, science, ordering, code, coding",
        "math, proofs, arithmetic, reasoning",
    ),
    "science": _skill(
        "science", "facts, knowledge, reading, math, reasoning", "science, knowledge, facts"
    ),
    "facts": _skill(
        "facts, knowledge", "general, science, reading, reasoning", "knowledge, facts, general"
    ),
    "law": _skill(
        "law", "facts, knowledge, reading, writing, prose, reasoning", "law, policy, knowledge"
    ),
    "writing": _skill(
        "writing, prose, text",
        "docs, translation, languages, summaries, reading, letters, facts, knowledge",
        "prose, writing, texts",
    ),
    "docs": _skill(
        "docs",
        "writing, prose, text, summaries, reading, code, coding",
        "documentation, prose, writing, texts",
    ),
    "translation": _skill(
        "translation, languages",
        "writing, prose, text, letters, reading, facts, knowledge",
        "translation, languages, writing",
    ),
    "summary": _skill(
        "summaries, reading",
        "writing, prose, text, docs, facts, knowledge",
        "summaries, long texts, texts",
    ),
    "planning": _skill(
        "planning",
        "reasoning, architecture, ordering, general, writing, prose",
        "planning, reasoning",
    ),
    "general": _skill(
        "general, everyday", "facts, knowledge, reasoning, writing, prose", "general"
    ),
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
