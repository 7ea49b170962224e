"""The usual kinds of work, and which workers are the best for each by their cards.

People write cards in their own words: `prose`, `writing`, `emails`. A small planner that has to
find the word that is nearest to a step takes the wrong one too often. So it names one of these
kinds, and whom the cards recommend for that kind is looked up here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from conductor_cli.core.pool import RATED, Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOfWork:
    """What cards say of a kind of work.

    `tags` mean it, `near_tags` stand in for them, the nearest first. `words` are found in the
    description, the card or the model's name of a worker that is good at it, the surest first.
    """

    tags: tuple[str, ...]
    near_tags: tuple[str, ...]
    words: tuple[str, ...]


def _kind(tags: str, near_tags: str, words: str) -> KindOfWork:
    return KindOfWork(
        tags=tuple(tags.split(", ")),
        near_tags=tuple(near_tags.split(", ")),
        words=tuple(words.split(", ")),
    )


KINDS: Final[Mapping[str, KindOfWork]] = {
    "code": _kind(
        "code, coding, programming, python, algorithms, refactoring",
        "software, debugging, bugs, review, testing, tests, scripting, frontend, shell, bash, sql, "
        "reasoning, logic",
        "code, coder, coding, programming",
    ),
    "debugging": _kind(
        "debugging, bugs, stacktraces",
        "code, coding, programming, python, software, refactoring, review, "
        "testing, tests, devops, operations",
        "debugging, code, coder, coding",
    ),
    "review": _kind(
        "review, critique, feedback",
        "code, coding, programming, python, refactoring, testing, debugging, bugs, audits, "
        "reasoning, logic, analysis",
        "review, code, coder, coding",
    ),
    "testing": _kind(
        "testing, tests, coverage",
        "review, code, coding, programming, python, debugging, bugs",
        "testing, review, code, coder",
    ),
    "sql": _kind(
        "sql, databases, postgres, queries",
        "data, modelling, code, coding, programming, python, analysis, statistics",
        "SQL, databases, data, code, coder",
    ),
    "shell": _kind(
        "shell, bash, linux, terminal, scripting",
        "devops, operations, docker, code, coding, programming, python",
        "shell, Linux, devops, code, coder",
    ),
    "regex": _kind(
        "regex",
        "code, coding, programming, python, scripting, shell, bash, linux, debugging, bugs",
        "code, coder, coding, programming",
    ),
    "git": _kind(
        "git, versioning",
        "devops, operations, shell, bash, terminal, linux, code, coding, programming",
        "devops, code, coder, coding",
    ),
    "devops": _kind(
        "devops, operations, kubernetes, docker, cloud",
        "linux, networking, shell, bash, terminal, scripting, code, coding, programming",
        "devops, operations, Linux, code",
    ),
    "frontend": _kind(
        "frontend, css, html, ux, accessibility, design",
        "typescript, code, coding, programming, debugging, bugs",
        "front end, design, code, coder",
    ),
    "security": _kind(
        "security, pentesting, cryptography, audits, privacy",
        "review, compliance, networking, devops, operations, code, coding, programming",
        "security, review, code, coder",
    ),
    "architecture": _kind(
        "architecture, modelling",
        "reasoning, planning, strategy, cloud, devops, operations, code, coding, algorithms, "
        "science",
        "architecture, reasoning",
    ),
    "data": _kind(
        "data, analysis, statistics, spreadsheets, forecasting",
        "math, arithmetic, calculation, estimation, sql, databases, queries, code, coding",
        "data, analysis, math",
    ),
    "math": _kind(
        "math, arithmetic, calculation, algebra, proofs",
        "estimation, statistics, reasoning, logic, puzzles, data, analysis, physics, science, "
        "ordering, code, coding",
        "math, proofs, arithmetic, reasoning",
    ),
    "science": _kind(
        "science, physics, chemistry, biology, medicine",
        "facts, knowledge, trivia, explanations, reading, math, reasoning",
        "science, knowledge, facts",
    ),
    "facts": _kind(
        "facts, knowledge, trivia",
        "history, geography, news, general, chat, explanations, science, reading, reasoning",
        "knowledge, facts, general",
    ),
    "law": _kind(
        "law, legal, compliance",
        "privacy, facts, knowledge, reading, writing, prose, reasoning",
        "law, policy, knowledge",
    ),
    "reasoning": _kind(
        "reasoning, analysis, logic, puzzles, judgement",
        "strategy, planning, architecture, science, proofs, math, estimation, statistics, "
        "ordering, facts, knowledge, review, critique, general",
        "reasoning, analysis, thorough",
    ),
    "writing": _kind(
        "writing, prose, text, editing, emails, storytelling, marketing",
        "grammar, docs, translation, languages, summaries, reading, letters, facts, knowledge",
        "prose, writing, texts",
    ),
    "docs": _kind(
        "docs, manuals, tutorials, explanations",
        "writing, prose, text, editing, summaries, reading, code, coding",
        "documentation, prose, writing, texts",
    ),
    "translation": _kind(
        "translation, languages, multilingual, localisation",
        "grammar, writing, prose, text, editing, letters, reading, facts, knowledge",
        "translation, languages, writing",
    ),
    "summary": _kind(
        "summaries, reading, abstracts, extraction",
        "writing, prose, text, editing, docs, facts, knowledge",
        "summaries, long texts, texts",
    ),
    "reading": _kind(
        "reading, comprehension, extraction, summaries, abstracts",
        "facts, knowledge, analysis, reasoning, writing, prose, text, docs",
        "long texts, summaries, texts",
    ),
    "planning": _kind(
        "planning, scheduling, agendas, strategy, brainstorming",
        "reasoning, analysis, estimation, architecture, ordering, general, writing, prose",
        "planning, reasoning",
    ),
    "general": _kind(
        "general, everyday, chat",
        "facts, knowledge, trivia, reasoning, writing, prose",
        "general",
    ),
}

COMMON_TAGS: Final = (
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
"""Tags that stand in where cards have none of a kind's."""


IN_ROW: Final = 3  # Workers of a row of the table of kinds, where there are so many
NEARLY_AS_GOOD: Final = 0.8  # The share of the best figure that another worker of a row needs


def other_tags(workers: Sequence[Worker]) -> tuple[str, ...]:
    """Return the tags of cards that belong to no kind, in the order of the cards."""
    tags = dict[str, None]()
    for worker in workers:
        tags.update(dict.fromkeys(worker.card.strengths))
    return tuple(tag for tag in tags if tag.lower() not in _TAGS_OF_KINDS and tag != RATED)


def row_for(kind_or_tag: str, workers: Sequence[Worker]) -> list[Worker]:
    """Return the workers to choose from for a kind of work or a tag of cards, the best one first.

    They are `IN_ROW`, and as far as possible none is much worse than the best: a check by a far
    weaker worker is worth less than one by a good one. Where fewer are as good, the row has the
    next best all the same: a question may ask for three people who work apart.
    """
    if kind_or_tag in KINDS:
        ranked = rank_by_kind(kind_or_tag, workers)
    else:
        ranked = dict(_figures((kind_or_tag,), workers))
    best = next(iter(ranked.values()), None)
    row = []
    for name, figure in ranked.items():
        if best is None or figure is None or figure >= NEARLY_AS_GOOD * best:
            row.append(name)
    others = {name: figure for name, figure in ranked.items() if name not in row}
    row += _next_best(others, IN_ROW - len(row))
    by_name = {worker.name: worker for worker in workers}
    return [by_name[name] for name in row[:IN_ROW]]


def _next_best(others: Mapping[str, float | None], count: int) -> list[str]:
    """Return the names of at most `count` others with the highest figures, whatever they are for.

    A poor figure for a kind says more against a worker than a good one for what is common to all.
    """
    by_figure = sorted(others.items(), key=lambda item: item[1] or 0.0, reverse=True)
    return [name for name, _ in by_figure[: max(0, count)]]


def rank_by_kind(kind: str, workers: Sequence[Worker]) -> dict[str, float | None]:
    """Return the names of all workers, the best one first, with the figures that decided, if any.

    Those with a figure for the kind come first, then those with one for a tag near to it, those
    whose words tell the kind, and those with a figure for what is common to all kinds. What nothing
    tells apart keeps its order, which is the user's.
    """
    work = KINDS[kind]
    ranked = dict[str, float | None]()
    for name, figure in chain(
        _figures((*work.tags, *work.near_tags), workers),
        _by_words(work, workers),
        _figures((*COMMON_TAGS, RATED), workers),
        ((worker.name, None) for worker in workers),
    ):
        ranked.setdefault(name, figure)
    return ranked


def _figures(tags: Sequence[str], workers: Sequence[Worker]) -> Iterator[tuple[str, float]]:
    """Yield names of workers with their figures, tag by tag, the largest figure first."""
    figures_of_tag = dict[str, dict[str, float]]()
    for worker in workers:
        for name, value in worker.card.strengths.items():
            figures_of_tag.setdefault(name.lower(), {})[worker.name] = value
    for tag in tags:
        figures = figures_of_tag.get(tag.lower(), {})
        yield from sorted(figures.items(), key=lambda item: -item[1])


def _by_words(work: KindOfWork, workers: Sequence[Worker]) -> Iterator[tuple[str, None]]:
    for word in work.words:
        for worker in workers:
            if word.lower() in _description(worker):
                yield worker.name, None


def _description(worker: Worker) -> str:
    """Return the words by which a worker is described, in lower case."""
    return f"{worker.model_name} {worker.about} {worker.card.words}".lower()


def _all_tags() -> frozenset[str]:
    tags = set(COMMON_TAGS)
    for work in KINDS.values():
        tags.update(work.tags, work.near_tags)
    return frozenset(tags)


_TAGS_OF_KINDS: Final = _all_tags()
