"""Which answer each scorer finds, also in texts that were written to mislead it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.evals import scorers
from conductor_cli.evals.published_answers import mmlu_pro_letter
from conductor_cli.evals.scorers import SCORERS
from tests.evals.kit import longer_than_searched
from tests.growth import assert_grows_linearly

FOUR = ("red", "green", "a cat", "none of them")


def right(scorer: str, text: str, answer: str, choices: Sequence[str] = ()) -> bool:
    return SCORERS[scorer].is_correct(text, answer, choices)


def extracted(scorer: str, text: str, choices: Sequence[str] = ()) -> str:
    return SCORERS[scorer].extract(text, choices)


@pytest.mark.parametrize(
    "text",
    [
        " PARIS\n",
        "'Paris.'",
        "“Paris”.",
        "**Paris**",
        "`Paris`",
        "The answer is Paris.",
        "**Answer:** Paris",
        "Let me think.\nIt is a capital.\n\nFinal answer: Paris.",
        "therefore, the final answer is **Paris**.",
    ],
)
def test_exact_ignores_case_quotes_and_announcements(text: str) -> None:
    assert right("exact", text, "Paris")
    assert extracted("exact", text) == "paris"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It is Paris",
        "Pariss",
        "Par is",
        "Answer: Paris\nor Lyon",
        "The answer is not Paris",
        "Paris?",
        "Answer:",
    ],
)
def test_exact_needs_the_whole_answer(text: str) -> None:
    assert not right("exact", text, "Paris")


def test_exact_compares_the_remaining_text() -> None:
    assert right("exact", "New\n  York", "new york")
    assert right("exact", "The answer is blowing in the wind.", "the answer is blowing in the wind")


@pytest.mark.parametrize(
    ("scorer", "text", "answer", "is_right"),
    [
        ("contains", "It is **New\n York**, of course.", "new york", True),
        ("contains", "Newark", "New", False),
        ("contains", "It is not Paris.", "Paris", False),
        ("contains", "Not Lyon but Paris", "Paris", True),
        ("contains", "C++ (2011)", "C++", True),
        ("regex", "see\nissue #42", r"^issue #\d+$", True),
        ("regex", "see issue 42", r"#\d+", False),
        ("regex", "a" * 5_000, "(a|a)*b", False),
    ],
)
def test_a_text_may_contain_or_match_what_is_expected(
    scorer: str, text: str, answer: str, is_right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scorers, "REGEX_LIMITS", scorers.REGEX_LIMITS._replace(cpu_seconds=1))
    assert right(scorer, text, answer) == is_right


def test_a_pattern_must_be_one_and_a_text_must_not_be_empty() -> None:
    assert [SCORERS["regex"].can_match(answer, ()) for answer in ("a+", "(", "")] == [
        True,
        False,
        False,
    ]
    assert [SCORERS["contains"].can_match(answer, ()) for answer in ("a", "**")] == [True, False]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("6 times 7 is 42", "42"),
        ("42.0", "42"),
        ("$1,234.50.", "1234.5"),
        ("minus sign: \u22125", "-5"),
        ("x = -5", "-5"),
        ("4.2e1", "42"),
        (".5", "0.5"),
        ("50 %", "50%"),
        ("0.3333333", "0.33333333"),
        ("007", "7"),
        ("1'000", "1000"),
        ("1\u202f000", "1000"),
        ("**42**", "42"),
        ("12,34", "12.34"),
        ("1,2345", "1.2345"),
        ("٤", "4"),
        (r"\boxed{x} is 42", "42"),
        ("12345678901234567890123", "12345678901234567890123"),
        ("v2 has 3", "3"),
        (r"\boxed{\text{42}}, in 3 steps", "42"),
        (r"\boxed{41}, no: \boxed{42^{\circ}} in 3 steps", "42"),
        (r"\fbox{42} by lemma 3", "42"),
        ("6*7 = 42", "42"),
        ("42 m/s", "42"),
        ("Answer: 42 (not 43)", "42"),
    ],
)
def test_number_takes_the_last_number(text: str, answer: str) -> None:
    assert right("number", text, answer)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", "0"),
        ("4 2", "42"),
        ("0.33", "0.3333"),
        ("-5", "5"),
        ("100001", "100000"),
        ("A4", "4"),
        ("1e999", "1"),
        ("12345678901234567890123", "12345678901234567890124"),
        ("3-4", "4"),
        ("9" * 5000, "9"),
        ("1e-400", "0.1"),
        *(
            (text, "70")
            for text in (
                r"\boxed{71, 70}",
                "70 or 71",
                "71 and/or 70",
                "-(70)",
                "q+70",
                "70 + q",
                "70/3",
                "The answer isn't 70",
                r"70\pi",
                r"\sqrt{70}",
                r"\pm 70",
                "70x",
                "between 71 and 70",
                r"not \boxed{70}",
            )
        ),
    ],
)
def test_other_numbers_are_wrong(text: str, answer: str) -> None:
    """Whole numbers are compared exactly, others to six digits.

    Letters with digits are not numbers.
    """
    assert not right("number", text, answer)


@pytest.mark.parametrize(
    "answer",
    [
        "-4",
        "1,000",
        "$5",
        "50%",
        "1e6",
        ".5",
        " 7 ",
        "2/6",
        "-3/4",
        "1 1/2",
        "½",
        "3 million",
        r"\frac{2}{6}",
        r"$\frac{1}{2}$",
        "so: #### 2/6",
    ],
)
def test_an_expected_number_may_be_in_any_form_of_an_answer(answer: str) -> None:
    assert SCORERS["number"].can_match(answer, ())
    assert right("number", f"The answer is {answer.removeprefix('so: #### ')}.", answer)


@pytest.mark.parametrize(
    "answer",
    ["", "four", "4 apples", "4 5", "1/2 cup", "1/0", "9/11/2001", "1/2 or 3", "--4", "9" * 5000],
)
def test_an_expected_number_is_nothing_but_one_number(answer: str) -> None:
    assert not SCORERS["number"].can_match(answer, ())


def test_an_expected_fraction_is_the_same_number_in_other_words() -> None:
    assert right("number", "It is 1/3.", "2/6")
    assert right("number", "It is 0.33333333.", "2/6")
    assert not right("number", "It is 2.", "2/6")


@pytest.mark.parametrize(
    "text",
    [
        "c",
        "(C)",
        "C)",
        "**C**",
        "C. a cat",
        "ANSWER: C",
        "**Answer:** C",
        "Answer: C) a cat",
        "the correct answer is C because of B",
        r"\boxed{\text{C}}",
        r"so it is $\boxed{(C)}$.",
        "Answer: A\nNo, wait.\nAnswer: C",
        "I think so.\n\nC",
        "C\n\nA cat, since",
        "Answer: c.",
        "Answer: (c) a cat",
        "Answer: c\nsince it purrs",
        "Answer:\nc",
        "Answer: I believe it is (C)",
        "Answer: I think the answer is C",
        "Answer: C\nThe final answer: I am sure.",
        "I\n\nAnswer: z\n\nC",
        r"\boxed{x} so the answer is C",
        "A cat.",
        "Option (C) it is",
        "Answer: C (not D)",
        r"Answer: \mathbf{C}",
        r"Answer: \(C\)",
        "Answer: ${C}$",
        "Answer: C</s>",
        "Answer: **letter C**",
        r"$\boxed{\text{(C) a cat}}$",
        r"\boxed{{C}}",
        "**Option C**",
        "## Final Answer\n\nC) a cat",
        "Option C is correct.",
        '{"answer": "C", "why": "it purrs"}',
        "Answer - C",
        "I would go with C.",
        "Eliminating (D), it is C.",
        "C) a cat\n\nExplanation: (D) is wrong",
        "Some text.\n\n**C) a cat**\n\nbecause it purrs",
        "The answer is C, D is wrong.",
        "Option D isn't right. Option C is the best answer.",
        "Not (A), not (B). (C).",
        "A is wrong; B is wrong; so C.",
        "It is C, not D",
        "(C) a cat because (A) is false",
        "The correct option is: C",
        "So the answer must be (C).",
        "Correct answer – C",
        r"The speed is \(\boxed{80 \text{ m/h}}\). The correct choice is \(\boxed{C}\).",
        r"\[\boxed{25\%}\] The answer is $\boxed{\text{(C)}}$.",
        r"The limit is \(\boxed{k}\). The correct choice is \(\boxed{C}\).",
    ],
)
def test_choice_finds_the_letter(text: str) -> None:
    """The letter after "Answer:", in a box, alone, in brackets, or the choice itself."""
    assert extracted("choice", text, FOUR) == "C"
    assert right("choice", text, "C", FOUR)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A cat is an animal",
        "Answer: E",
        "Answer: Cats",
        "red and green",
        "Answer: none of these",
        "Answer: a triangle has three",
        "Answer: b or so",
        "Answer: I see",
        "A) wrong\nB) right",
        "D or so",
        r"\boxed{A and B}",
        r"It is \boxed{5}, and \boxed{B} or \boxed{C}.",
        r"\boxed{d(x)}",
        r"\boxed{\text{A cat or none}}",
        r"Answer: $A\cdot B$",
        "Answer: A<B",
        "It cannot be (C).",
        "Answer: C or D",
        "Either (C) or (D)",
        "A) a dog\nB) a bird\nC) a cat\nD) a fish",
        "A) a dog B) a bird C) a cat D) a fish",
        "Options: (A), (B), (C), (D)",
        "The answer isn't C.",
        "The answer is definitely not C",
        "C is incorrect",
        "I would not choose C",
        "Answer: C, D",
        "The answer is A, B, C or D",
        "rule out C",
        "Answer: A difficult one",
    ],
)
def test_a_choice_is_not_guessed(text: str) -> None:
    assert extracted("choice", text, FOUR) == ""
    assert not any(right("choice", text, letter, FOUR) for letter in "ABCD")


def test_an_expected_choice_must_be_offered() -> None:
    can_match = SCORERS["choice"].can_match
    assert [can_match(answer, FOUR) for answer in ("E", "a cat", "d")] == [False, False, True]
    assert can_match("E", ())


@given(
    st.sampled_from(["exact", "number", "choice"]),
    st.text(),
    st.text(min_size=1),
    st.lists(st.text()),
)
def test_no_text_crashes_a_scorer(scorer: str, text: str, answer: str, choices: list[str]) -> None:
    assert right(scorer, text, answer, choices) in (True, False)
    extracted(scorer, text, choices)


@given(st.sampled_from(["exact", "number"]), st.text(min_size=1))
def test_a_valid_expected_answer_is_itself_right(scorer: str, answer: str) -> None:
    if SCORERS[scorer].can_match(answer, ()):
        assert right(scorer, answer, answer)


@pytest.mark.parametrize(
    ("message", "answer", "same"),
    [
        ("50400  n", "50400 N", True),
        ("50%", "0.5", True),
        ("51%", "0.5", False),
        ("1,000", "1000", True),
        ("1000.9", "1000", True),
        ("1002", "1000", False),
        ("50400 kg", "50400 N", True),
        ("1e3 m", "1000", True),
        ("$3k", "$3000", False),
        ("x", "y", False),
        ("nan", "1", False),
        ("", "", False),
        ("1" * 3000, "1", False),
    ],
)
def test_the_rule_of_rlpr_compares_texts_then_numbers(
    message: str, answer: str, same: bool
) -> None:
    """The first way in which both are numbers decides; without the tags nothing was said."""
    assert right("rlpr", f"So <answer>{message}</answer>, not <answer>7</answer>", answer) is same
    assert not right("rlpr", message, answer)


@pytest.mark.timeout(60)  # work that grows with the square takes longer
@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("1,", 50_000),
        ("9", 500_000),
        ("answer:", 50_000),
        ("(", 250_000),
        ("*_", 150_000),
        ("the answer is ", 25_000),
        ("\\boxed{", 50_000),
        ("1,111", 50_000),
        ("-", 250_000),
        ("A) ", 33_000),
        ("\n", 250_000),
        ("so ", 100_000),
        ("1e1", 100_000),
        ("'", 250_000),
        (".", 250_000),
    ],
)
@pytest.mark.parametrize("scorer", ["exact", "number", "choice"])
def test_the_time_to_score_a_text_grows_with_its_length(
    scorer: str, pattern: str, size: int
) -> None:
    answer = "4" if scorer == "number" else "A"
    assert_grows_linearly(
        lambda text: right(scorer, text, answer, FOUR), longer_than_searched(pattern, size), size
    )


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("begin", "pattern"), [("\\boxed{ ", " "), ("answer is", " *")])
@pytest.mark.parametrize("scorer", ["exact", "number", "choice"])
def test_the_time_to_score_a_text_after_an_announcement_grows_with_its_length(
    scorer: str, begin: str, pattern: str
) -> None:
    answer = "4" if scorer == "number" else "A"
    assert_grows_linearly(
        lambda text: right(scorer, text, answer, FOUR), lambda size: begin + pattern * size, 150_000
    )


def test_choices_that_differ_by_case_alone_are_told_apart() -> None:
    assert extracted("choice", "q/l^2", ("q/L^2", "q/l^2", "q", "l")) == "B"


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("So the answer is (J).", "J"),
        ("The answer is **C**", "C"),
        ("the answer is (A). No, the answer is (B).", "A"),
        ("Answer: D, or rather Answer: E\nAnswer: F", "E"),
        ("**Answer: Answer: B**", "B"),
        ("So B, not A.", "A"),
        ("no letter at all", ""),
        ("The answer is (K)", ""),
    ],
)
def test_the_letter_of_mmlu_pro_is_found_by_the_rules_of_its_authors(
    text: str, letter: str
) -> None:
    assert mmlu_pro_letter(text) == letter
