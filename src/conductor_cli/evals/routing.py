"""Choose a worker for a question by its words and by the workers' cards. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from conductor_cli.core.pool import Pool, Worker

Keywords = Mapping[str, Sequence[str]]
"""For each tag, the words that indicate a question of its kind."""

GENERAL: Final[Keywords] = {
    "code": (
        "code", "function", "program", "python", "javascript", "typescript", "java", "rust", "sql", "bash", "regex",
        "script", "bug", "compile", "algorithm", "class", "method", "api", "json", "stack trace", "unit test",
    ),
    "math": (
        "calculate", "compute", "solve", "equation", "integral", "derivative", "probability", "prove", "proof", "sum",
        "product", "triangle", "polynomial", "matrix", "integer", "fraction", "percent", "how many", "remainder",
    ),
    "science": (
        "physics", "chemistry", "biology", "molecule", "reaction", "energy", "force", "electron", "atom", "cell",
        "gene", "protein", "enzyme", "acid", "quantum", "velocity", "experiment", "species",
    ),
    "writing": (
        "write", "rewrite", "essay", "letter", "email", "poem", "story", "summarise", "summarize", "summary",
        "translate", "tone", "paragraph", "article", "headline", "proofread",
    ),
    "reasoning": (
        "why", "explain", "compare", "argue", "deduce", "infer", "puzzle", "riddle", "logic", "step by step",
        "strategy", "trade-off", "plan",
    ),
    "facts": (
        "who", "when", "where", "capital", "history", "president", "year", "country", "author", "law", "war", "founded",
    ),
}  # fmt: skip
"""The default. A tag that is on no card leads to the best worker overall."""


def best_worker(workers: Sequence[Worker]) -> Worker:
    """The worker with the highest mean strength on its card; the first one if no card says anything."""
    return Pool(workers=tuple(workers)).best()


def best_worker_on(workers: Sequence[Worker], tag: str) -> Worker:
    """The strongest worker on `tag`; the best overall if the tag is empty or on no card."""
    known = [worker for worker in workers if tag in worker.card.strengths]
    return max(known, key=lambda worker: worker.card.strengths[tag]) if known else best_worker(workers)


def find_tag(text: str, keywords: Keywords) -> str:
    """The tag whose words occur most often in `text`, the first one in a tie; empty if no word occurs."""
    hits = {tag: len(_pattern(tuple(words)).findall(text)) for tag, words in keywords.items() if words}
    best = max(hits, key=lambda tag: hits[tag], default="")
    return best if hits.get(best) else ""


@lru_cache(maxsize=256)
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)", re.IGNORECASE)


def worker_by_keyword(text: str, workers: Sequence[Worker], keywords: Keywords) -> Worker:
    """The best worker by card for the tag that the words of a question indicate."""
    return best_worker_on(workers, find_tag(text, keywords))
