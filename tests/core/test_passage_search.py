"""Passages that most words of a query stand in."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.passage_search import MAX_WORDS, best_lines, words_of
from tests.growth import assert_grows_linearly

CONFIG = "\n" * 40 + "# How often is tried again\nMAX_RETRIES = 7\n" + "\n" * 40
CLIENT = "    send(url, retries=MAX_RETRIES)\n    return url\n" * 20
PROSE = "The maximum is large, and of retries there may be some, as of many other things.\n" * 20


def test_words_of_a_question_lose_what_says_nothing() -> None:
    assert words_of("What is the maximum number of retries?") == ("max", "num", "retri")
    assert words_of("How many of these are there?") == ()
    assert len(words_of(" ".join(f"word{number}" for number in range(99)))) == MAX_WORDS


def test_the_line_that_defines_something_comes_before_those_that_use_it() -> None:
    texts = [PROSE, CLIENT, CONFIG]
    best = best_lines(texts, words_of("maximum number of retries"), 3, 8)
    assert best[0] == (2, 42)


def test_passages_of_one_text_are_apart() -> None:
    best = best_lines([CLIENT], words_of("send the url"), 10, 8)
    lines = sorted(line for _, line in best)
    assert len(lines) > 2
    assert all(after - before >= 8 for before, after in itertools.pairwise(lines))


def test_words_that_are_nowhere_find_nothing() -> None:
    assert best_lines([CLIENT, CONFIG], words_of("zebra giraffe"), 5, 8) == []


def test_a_text_is_divided_once_however_many_lines_have_a_word() -> None:
    """As those of a log have, each of which says `error`."""
    words = words_of("what is the first error")
    assert_grows_linearly(
        lambda text: best_lines([text], words, 3, 8),
        lambda size: "an error\n" * (size // 9),
        50_000,
    )


@given(st.lists(st.text(max_size=60), max_size=5), st.text(max_size=40), st.integers(1, 5))
def test_no_text_and_no_query_fails(texts: list[str], query: str, count: int) -> None:
    words = words_of(query)
    best = best_lines(texts, words, count, 4)
    assert len(best) <= count
    for position, line in best:
        assert any(word in texts[position].lower().split("\n")[line - 1] for word in words)
