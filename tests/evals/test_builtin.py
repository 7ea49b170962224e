"""The built-in set is right, mixed, and the same for the same seed."""

from __future__ import annotations

import contextlib
import io
import re
from collections import Counter

import pytest

from conductor_cli.core.errors import UsageError
from conductor_cli.evals.cases import COUNT, MAX_COUNT, Case, check_case, is_correct, make_basics

MANY = make_basics(600, seed=3)


def of(tag: str, words: str = "") -> list[Case]:
    """The cases of a tag whose question has these words."""
    found = [case for case in MANY if case.tags == (tag,) and words in case.question]
    assert found
    return found


def test_every_case_is_unique_and_scores_its_own_answer_as_right() -> None:
    """Ids and questions are unique, and each expected answer is right by the case's scorer."""
    assert len({case.id for case in MANY}) == len({case.question for case in MANY}) == 600
    for case in MANY:
        check_case(case)
        assert is_correct(case.answer, case)
        assert not is_correct("I do not know.", case)


def test_the_seed_determines_the_cases() -> None:
    """The same seed gives the same cases, another one hardly any of them; a smaller set begins a larger one."""
    assert make_basics(seed=1) == make_basics(seed=1)
    assert make_basics(12, seed=1) == make_basics(seed=1)[:12]
    one, other = ({case.question for case in make_basics(seed=seed)} for seed in (1, 2))
    assert len(one & other) < 5


def test_every_kind_of_question_has_fifteen_cases() -> None:
    """The default set has fifteen cases of each kind."""
    assert Counter(tag for case in make_basics() for tag in case.tags) == {
        "math": 15, "letters": 15, "reasoning": 15, "code": 15,
    }  # fmt: skip
    assert len(make_basics()) == COUNT


def test_programs_print_the_expected_answer() -> None:
    """Each program is run."""
    for case in of("code"):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(case.question.partition("\n\n")[2])
        assert printed.getvalue().strip() == case.answer


def test_sums_have_the_right_answer() -> None:
    """The answer is computed again from the words of the question."""
    for case in of("math"):
        assert eval(re.findall(r"What is (.+)\?", case.question)[0]) == int(case.answer)


def test_orderings_have_one_answer() -> None:
    """The comparisons form one chain, and the answer has the position that the question asks for."""
    places = ("tallest", "second tallest", "third tallest", "second smallest", "smallest")
    for case in of("reasoning"):
        taller = dict(re.findall(r"(\w+) is taller than (\w+)\.", case.question))
        (name,) = set(taller) - set(taller.values())
        chain = [name]
        while chain[-1] in taller:
            chain.append(taller[chain[-1]])
        (place,) = re.findall(r"Who is the (.+) of the five", case.question)
        assert len(chain) == 5
        assert chain[places.index(place)] == case.answer


def test_letter_questions_have_the_right_answer() -> None:
    """The answer is computed again from the words of the question."""
    for case in of("letters"):
        quoted = re.findall(r'"([^"]+)"', case.question)
        if "backwards" in case.question:
            assert "".join(reversed(quoted[0])) == case.answer
        else:
            assert Counter(quoted[1])[quoted[0]] == int(case.answer)


def test_too_many_cases_are_an_error() -> None:
    """Up to the limit every question is different."""
    assert len(make_basics(MAX_COUNT)) == MAX_COUNT
    with pytest.raises(UsageError, match=r"has at most 4,000 cases"):
        make_basics(MAX_COUNT + 1)
