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
        "code, coding, programming, python, algorithms, refactoring",
        "software, debugging, bugs, review, testing, tests, scripting, frontend, shell, bash, sql, "
        "reasoning, logic",
        "code, coder, coding, programming",
    ),
    "debugging": _skill(
        "debugging, bugs, stacktraces",
        "code, coding, programming, python, software, refactoring, review, "
        "testing, tests, devops, operations",
        "debugging, code, coder, coding",
    ),
    "review": _skill(
        "review, critique, feedback",
        "code, coding, programming, python, refactoring, testing, debugging, bugs, audits, "
        "reasoning, logic",
        "review, code, coder, coding",
    ),
    "testing": _skill(
        "testing, tests, coverage",
        "review, code, coding, programming, python, debugging, bugs",
        "testing, review, code, coder",
    ),
    "sql": _skill(
        "sql, databases, postgres, queries",
        "data, modelling, code, coding, programming, python, analysis, statistics",
        "SQL, databases, data, code, coder",
    ),
    "shell": _skill(
        "shell, bash, linux, terminal, scripting",
        "devops, operations, docker, code, coding, programming, python",
        "shell, Linux, devops, code, coder",
    ),
    "regex": _skill(
        "regex",
        "code, coding, programming, python, scripting, shell, bash, linux, debugging, bugs",
        "code, coder, coding, programming",
    ),
    "git": _skill(
        "git, versioning",
        "devops, operations, shell, bash, terminal, linux, code, coding, programming",
        "devops, code, coder, coding",
    ),
    "devops": _skill(
        "devops, operations, kubernetes, docker, cloud",
        "linux, networking, shell, bash, terminal, scripting, code, coding, programming",
        "devops, operations, Linux, code",
    ),
    "config": _skill(
        "devops, operations, kubernetes, docker, cloud",
        "linux, networking, shell, bash, terminal, scripting, code, coding, programming",
        "devops, operations, Linux, code",
    ),
    "frontend": _skill(
        "frontend, css, html, ux, accessibility, design",
        "typescript, code, coding, programming, debugging, bugs",
        "front end, design, code, coder",
    ),
    "security": _skill(
        "security, pentesting, cryptography, audits, privacy",
        "review, compliance, networking, devops, operations, code, coding, programming",
        "security, review, code, coder",
    ),
    "architecture": _skill(
        "architecture, modelling",
        "reasoning, planning, strategy, cloud, devops, operations, code, coding, algorithms, "
        "science",
        "architecture, reasoning",
    ),
    "data": _skill(
        "data, analysis, statistics, spreadsheets, forecasting",
        "math, arithmetic, calculation, estimation, sql, databases, queries, code, coding",
        "data, analysis, math",
    ),
    "math": _skill(
        "math, arithmetic, calculation, algebra, proofs",
        "estimation, statistics, reasoning, logic, puzzles, data, analysis, physics, science, "
        "ordering, code, coding",
        "math, proofs, arithmetic, reasoning",
    ),
    "science": _skill(
        "science, physics, chemistry, biology, medicine",
        "facts, knowledge, trivia, explanations, reading, math, reasoning",
        "science, knowledge, facts",
    ),
    "facts": _skill(
        "facts, knowledge, trivia",
        "history, geography, news, general, chat, explanations, science, reading, reasoning",
        "knowledge, facts, general",
    ),
    "law": _skill(
        "law, legal, compliance",
        "privacy, facts, knowledge, reading, writing, prose, reasoning",
        "law, policy, knowledge",
    ),
    "writing": _skill(
        "writing, prose, text, editing, emails, storytelling, marketing",
        "grammar, docs, translation, languages, summaries, reading, letters, facts, knowledge",
        "prose, writing, texts",
    ),
    "docs": _skill(
        "docs, manuals, tutorials, explanations",
        "writing, prose, text, editing, summaries, reading, code, coding",
        "documentation, prose, writing, texts",
    ),
    "translation": _skill(
        "translation, languages, multilingual, localisation",
        "grammar, writing, prose, text, editing, letters, reading, facts, knowledge",
        "translation, languages, writing",
    ),
    "summary": _skill(
        "summaries, reading, abstracts, extraction",
        "writing, prose, text, editing, docs, facts, knowledge",
        "summaries, long texts, texts",
    ),
    "planning": _skill(
        "planning, scheduling, agendas, strategy, brainstorming",
        "reasoning, estimation, architecture, ordering, general, writing, prose",
        "planning, reasoning",
    ),
    "general": _skill(
        "general, everyday, chat",
        "facts, knowledge, trivia, reasoning, writing, prose",
        "general",
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
