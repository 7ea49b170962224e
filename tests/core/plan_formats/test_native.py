from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.errors import PlanError
from conductor_cli.core.plan import KeepAnswer, Plan, PlanRules, Step
from conductor_cli.core.plan_formats import PLAN_FORMATS, ParsedStep, PlanFormatContext
from conductor_cli.core.plan_formats.base import BLANK, CONTROL, parse_access, parse_worker
from conductor_cli.core.profile import labels_of
from tests.core.plan_formats.reading import arrivals, plan_in, read
from tests.core.strategies import plans_for, terms_for_tests

NATIVE = PLAN_FORMATS["native"]
TERMS = PlanFormatContext(
    rules=PlanRules(workers=("ann", "bob", "cyd")), labels=labels_of(("ann", "bob", "cyd"), "letters")
)
EXACT = replace(TERMS, constrained=True)
GIVEN = replace(TERMS, rules=replace(TERMS.rules, given=True))
TWO = "A | - | one\nB | 1 | two"
WANTED = Plan(steps=(Step(worker="ann", subtask="one"), Step(worker="bob", subtask="two", access=(1,))))

one_line = st.text(min_size=1, max_size=30).map(lambda text: " ".join(text.split())).filter(bool)


def plan(text: str, context: PlanFormatContext = TERMS) -> Plan | KeepAnswer:
    return plan_in("native", text, context)


def steps(text: str, context: PlanFormatContext = TERMS) -> list[tuple[str, tuple[int, ...], str]]:
    found = plan(text, context)
    assert isinstance(found, Plan)
    return [(step.worker, step.access, step.subtask) for step in found.steps]


def fault(text: str, context: PlanFormatContext = TERMS) -> PlanError:
    _, error, _ = read("native", [text], context)
    assert error is not None
    return error


@given(st.data(), st.booleans())
def test_a_rendered_plan_parses_back(data: st.DataObject, exact: bool) -> None:
    """Over any pool, any order of columns, with reasoning or without, complete or after standing steps."""
    order: dict[str, Any] = {} if exact else {"order": ("worker", "access", "subtask")}
    context = data.draw(terms_for_tests(constrained=exact, **order))
    context = replace(context, first=data.draw(st.integers(1, context.rules.steps)))
    drawn = data.draw(plans_for(context.rules, one_line, context.first))
    reasoning = data.draw(st.sampled_from(["", "- because\n- of that"])) if context.reasons else ""
    drawn = replace(drawn, reasoning=reasoning)
    assert plan(NATIVE.render(drawn, context), context) == drawn


@given(terms_for_tests(single=True, reasoning=False))
def test_a_label_reads_back(context: PlanFormatContext) -> None:
    """In `mini` the worker is told to answer, and sees what was given."""
    access = (0,) if context.rules.given else ()
    for worker in context.rules.workers:
        drawn = Plan(steps=(Step(worker=worker, subtask="Answer the question.", access=access),))
        assert plan(NATIVE.render(drawn, context), context) == drawn


def test_accepts_read_back() -> None:
    """Also after reasoning."""
    reasoned = replace(GIVEN, reasoning=True)
    assert plan(NATIVE.render(KeepAnswer(), GIVEN), GIVEN) == KeepAnswer()
    assert plan(NATIVE.render(KeepAnswer(reasoning="- fine"), reasoned), reasoned) == KeepAnswer(reasoning="- fine")


def test_a_line_break_in_a_subtask_becomes_a_space() -> None:
    """A newline means another step."""
    assert NATIVE.render(Plan(steps=(Step(worker="ann", subtask="one\n  two"),)), TERMS) == "A | - | one two"


hostile = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(
            [
                "A",
                "B",
                "Z",
                "|",
                " | ",
                "-",
                "1",
                "2",
                "99",
                "all",
                "\n",
                "\n\n",
                "accept",
                "plan:",
                "```",
                "**",
                "- ",
                "1. ",
                "step 2:",
                "text",
                "[",
                "]",
                "ann",
                "\r",
                "\u2028",
                "٣",
                "²",
                "given",
                "none",
                "|||",
                "Accept.",
            ]
        ),
        max_size=30,
    ).map("".join),
)
any_terms = terms_for_tests(single=False) | terms_for_tests(single=True, reasoning=False)


@given(hostile, any_terms, st.data())
def test_any_text_in_any_pieces_gives_steps_or_a_plan_error(
    text: str, context: PlanFormatContext, data: st.DataObject
) -> None:
    """Nothing else comes out; what comes out before a fault obeys the rules; pieces make no difference."""
    context = replace(context, first=data.draw(st.integers(1, context.rules.steps)))
    whole, error, reasoning = read("native", [text], context)
    by_sign = read("native", list(text), context)
    assert (by_sign[0], type(by_sign[1]), by_sign[2]) == (whole, type(error), reasoning)
    cut = data.draw(st.integers(0, len(text)))
    assert read("native", [text[:cut], text[cut:]], context)[0] == whole
    for number, item in enumerate(whole, start=context.first):
        if isinstance(item, KeepAnswer):
            assert context.may_accept
        else:
            assert item.number == number <= context.rules.steps
            assert item.step.worker in context.rules.workers
            assert item.step.subtask.strip()


def test_with_a_grammar_a_step_arrives_at_its_newline() -> None:
    """The last one at the end of the text."""
    assert arrivals("native", TWO, EXACT) == [(1, "A | - | one\n"), (2, TWO + "<end>")]


def test_without_a_grammar_a_step_arrives_when_the_next_line_shows_itself() -> None:
    """With the bar after its access list."""
    assert arrivals("native", TWO, TERMS) == [(1, "A | - | one\nB | 1 |"), (2, TWO + "<end>")]
    text = "A | - | one\nmore of it\n\n**Step 2:** B | 1 | two"
    assert arrivals("native", text, TERMS)[0] == (1, "A | - | one\nmore of it\n\n**Step 2:** B | 1 |")


def test_where_the_subtask_comes_first_a_step_arrives_with_the_whole_next_line() -> None:
    """Before its end the line might still be text of any kind."""
    context = replace(TERMS, order=("subtask", "worker", "access"))
    assert arrivals("native", "one | A | -\ntwo | B | 1\n", context)[0] == (1, "one | A | -\ntwo | B | 1\n")


@pytest.mark.parametrize(
    "order",
    [
        ("worker", "access", "subtask"),
        ("subtask", "worker", "access"),
        ("access", "subtask", "worker"),
        ("worker", "subtask", "access"),
    ],
)
def test_bars_inside_a_subtask_stay_in_it(order: tuple[str, str, str]) -> None:
    """Whatever the order of the columns."""
    context = replace(TERMS, order=order)  # type: ignore[arg-type]
    drawn = Plan(steps=(Step(worker="ann", subtask="use a | b || c"),))
    assert plan(NATIVE.render(drawn, context), context) == drawn


@pytest.mark.parametrize(
    "text",
    [
        "```\nA | - | one\nB | 1 | two\n```",
        "```text\nA | - | one\nB | 1 | two\n```\n",
        "`A | - | one`\n`B | 1 | two`",
        "Here is the plan:\n\nA | - | one\nB | 1 | two",
        "- A | - | one\n- B | 1 | two",
        "* A | - | one\n• B | 1 | two",
        "1. A | - | one\n2) B | 1 | two",
        "## A | - | one\n## B | 1 | two",
        "Step 1: A | - | one\n**Step 2:** B | 1 | two",
        "| A | - | one |\n| B | 1 | two |",
        "| worker | access | subtask |\n|---|---|---|\n| A | - | one |\n| B | 1 | two |",
        "worker | access | subtask\n---|---|---\nA | - | one\nB | 1 | two",
        "a|none|one\nb|1|two",
        "Worker A | [] | one\nWorker B | [1] | two",
        "**A** | - | one\n**B** | step 1 | two",
        "`A` | – | one\n(B) | (1) | two",
        "ann | — | one\nBOB | 1. | two",
        "A ann | n/a | one\nB: bob | #1 | two",
        "A (the quick one) | nothing | one\nbob (careful) | steps 1 | two",
        "A | - | one\n\n\nB | all | two",
        "A | - | one\r\nB | 1 | two\r\n",
        "A | - | one\nB | 1, 1 | two",
    ],
)
def test_what_models_write_around_a_plan_is_tolerated(text: str) -> None:
    """Fences, bullets, numbers, headings, tables, names in place of labels, many ways to say nothing."""
    items, error, _ = read("native", [text], TERMS)
    assert error is None
    assert [item.step for item in items if isinstance(item, ParsedStep)] == list(WANTED.steps)


@pytest.mark.timeout(60)  # work that grows with the square takes longer
@pytest.mark.parametrize("cells", ["a | {}x | y", "{}x | - | y", "a{} b | - | y"])
@pytest.mark.parametrize("sign", [" ", ".", "_", "1", "("])
def test_a_line_of_one_sign_is_read_at_once(cells: str, sign: str) -> None:
    """A planner that repeats a sign without end does not stop the program."""
    read("native", [cells.format(sign * 200_000)], TERMS)


def test_a_subtask_may_go_on_over_lines() -> None:
    """Until the next step shows itself; rules and blank lines are dropped."""
    assert steps("A | - | one:\n- a\n- b\n---\n\nB | 1 | two") == [("ann", (), "one:\n- a\n- b"), ("bob", (1,), "two")]


def test_code_marks_inside_a_subtask_stay() -> None:
    """Only what encloses a line is dropped."""
    assert steps("A | - | Run `ls` and `pwd`") == [("ann", (), "Run `ls` and `pwd`")]


def test_text_before_the_plan_is_reasoning() -> None:
    """They are not part of any step."""
    found = plan("First things first.\nA | - | one")
    assert found.reasoning == "First things first."


def test_a_table_in_a_subtask_is_not_a_step() -> None:
    """Unknown words with no readable access list are text."""
    assert steps("A | - | Fill this in:\nname | age | city") == [("ann", (), "Fill this in:\nname | age | city")]


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("Z | - | one", "step 1 names a worker that is not in the pool: 'Z'", "Z | - | one"),
        ("A | 1 | one", "step 1 cannot see itself or a later step: 1", "A | 1 | one"),
        ("A | 0 | one", "step 1 cannot see a step that does not exist: 0", "A | 0 | one"),
        ("A | - | ", "step 1 has an empty subtask", "A | - | "),
        ("A | x | one", "step 1 has no readable access list: 'x'", " x "),
        ("A | 1000 | one", "step 1 cannot see a step that does not exist: 1000", " 1000 "),
        ("", "there is no plan in the text", ""),
        ("I cannot do that.", "there is no plan in the text", "I cannot do that."),
        ("accept", "accept needs an existing answer, and there is none", "accept"),
        (
            "A | - | 1\nA | - | 2\nA | - | 3\nA | - | 4\nA | - | 5\nA | - | 6",
            "the plan has more than 5 steps",
            "A | - | 6",
        ),
    ],
)
def test_a_fault_names_what_is_wrong_and_where(text: str, said: str, line: str) -> None:
    """With the line that is shown back to the conductor."""
    error = fault(text)
    assert (error.message, error.line) == (said, line)


def test_a_fault_says_what_was_expected() -> None:
    """A plan, or the line that opens it."""
    assert fault("hm").hint == "expected a line like A | - | subtask"
    assert fault("hm", replace(TERMS, reasoning=True)).hint == "expected a line 'plan:' and a plan after it"


def test_steps_before_a_fault_stand() -> None:
    """They were yielded and may be running."""
    items, error, _ = read("native", ["A | - | one\nB | 1 | two\nZ | - | three"], TERMS)
    assert [item.number for item in items if isinstance(item, ParsedStep)] == [1, 2]
    assert error is not None


def test_a_step_beyond_the_limit_takes_the_one_before_it_along() -> None:
    """The step at the limit is not the last of the plan as meant, so it does not stand."""
    context = replace(TERMS, rules=replace(TERMS.rules, steps=2))
    for exact in (False, True):
        items, error, _ = read("native", [TWO + "\nC | 2 | three"], replace(context, constrained=exact))
        assert [item.number for item in items if isinstance(item, ParsedStep)] == [1]
        assert error is not None
        assert error.message == "the plan has more than 2 steps"


def test_with_a_grammar_nothing_is_tolerated() -> None:
    """A line that is no step can only be the sign that the grammar was not obeyed."""
    assert fault("A | - | one\nand more", EXACT).message == "a line is not a step of a plan"
    assert fault("1. A | - | one", EXACT).message.startswith("step 1 names a worker that is not in the pool")
    assert fault("A | - | one\n\n", EXACT).message == "the last step is missing"


@pytest.mark.parametrize("word", ["accept", "Accept.", "**accept**", " ACCEPT! ", "`accept`", "- accept"])
def test_accept_is_a_line_of_its_own(word: str) -> None:
    """However decorated; what follows does not matter any more."""
    assert plan(f"It is right.\n{word}\nA | - | one", GIVEN) == KeepAnswer(reasoning="It is right.")


def test_accept_inside_a_sentence_is_ignored() -> None:
    """Garbage is never an accept, and a plan that has begun is not taken back."""
    assert fault("I accept this.", GIVEN).message == "there is no plan in the text"
    assert steps("A | - | one\naccept", GIVEN) == [("ann", (), "one\naccept")]
    assert fault("accept", replace(GIVEN, first=2)).message == "there is no plan in the text"


def test_reasoning_ends_with_its_line() -> None:
    """Nothing before `plan:` is read as a step, and nothing after it as reasoning."""
    context = replace(TERMS, reasoning=True)
    for header in ("plan:", "Plan:", "**Plan:**", "## plan", "**Plan**:"):
        assert plan(f"A | - | no\nhm\n{header}\n{TWO}", context) == replace(WANTED, reasoning="A | - | no\nhm")
    assert fault("plan: A | - | one", context).message == "there is no plan in the text"
    exact = replace(context, constrained=True)
    assert plan(f"- hm\nplan:\n{TWO}", exact).reasoning == "- hm"
    assert fault(f"- hm\nPlan:\n{TWO}", exact).message == "there is no plan in the text"


def test_numbers_continue_after_standing_steps() -> None:
    """A repair may see what stands, and needs no reasoning."""
    context = replace(TERMS, first=3, reasoning=True)
    items, _, _ = read("native", ["C | 1 2 | three"], context)
    assert [(item.number, item.step.access, item.last) for item in items if isinstance(item, ParsedStep)] == [
        (3, (1, 2), True)
    ]


@pytest.mark.parametrize(
    ("text", "worker"),
    [
        ("B", "bob"),
        ("b.", "bob"),
        ("bob", "bob"),
        ("**B**", "bob"),
        ("Worker B", "bob"),
        ("B | because", "bob"),
        ("B\nIt is best.", "bob"),
        ("Let me think.\nC", "cyd"),
        ("bob is best", "bob"),
        ("B - bob", "bob"),
        ("B\nC", "bob"),
    ],
)
def test_one_label_is_read_from_what_models_write(text: str, worker: str) -> None:
    """The first line that names a worker decides."""
    assert steps(text, replace(TERMS, single=True)) == [(worker, (), "Answer the question.")]


@pytest.mark.parametrize("text", ["B\n", "B\nC", "B\nA\nC\n"])
def test_one_label_is_one_step_under_a_grammar_too(text: str) -> None:
    """A server that ignores its grammar and writes more lines gives no second step."""
    assert steps(text, replace(EXACT, single=True)) == [("bob", (), "Answer the question.")]


@pytest.mark.parametrize("text", ["", "A good choice is bob", "nobody", "accept"])
def test_a_sentence_names_no_worker(text: str) -> None:
    """A letter at the head of a sentence is no label."""
    assert fault(text, replace(TERMS, single=True)).message in (
        "there is no plan in the text", "accept needs an existing answer, and there is none",
    )  # fmt: skip


def test_labels_win_over_names_that_look_like_them() -> None:
    """A worker called b under label A is not what B means."""
    context = PlanFormatContext(rules=PlanRules(workers=("b", "a")), labels={"A": "b", "B": "a"})
    assert (parse_worker("B", context), parse_worker("a", context), parse_worker("A b", context)) == ("a", "b", "b")


def test_a_skill_may_stand_before_a_label() -> None:
    """One that the planner was shown, whatever its case; any other word is no skill."""
    context = replace(TERMS, skills=("history", "creative writing"), order=("subtask", "access", "worker"))
    assert steps("Find it. | - | history B\nRhyme. | 1 | Creative Writing cyd", context) == [
        ("bob", (), "Find it."), ("cyd", (1,), "Rhyme."),
    ]  # fmt: skip
    assert steps("Find it. | - | A", context) == [("ann", (), "Find it.")]
    assert parse_worker("history D", context) is None
    assert parse_worker("botany B", context) is None
    assert "subtask | access | skill and worker" in NATIVE.instructions(context)


def test_names_with_marks_of_their_own_are_found() -> None:
    """Decoration is taken off only where the name does not have it."""
    context = PlanFormatContext(rules=PlanRules(workers=("gpt (fast)", "o1.")), labels={"A": "gpt (fast)", "B": "o1."})
    assert tuple(parse_worker(cell, context) for cell in ("GPT (fast)", "o1.", "C", "")) == (
        "gpt (fast)", "o1.", None, None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cell", "wanted"),
    [
        ("-", ()),
        ("", ()),
        ("[]", ()),
        ("None", ()),
        ("1", (1,)),
        ("1 2", (1, 2)),
        ("1,2", (1, 2)),
        ("[1, 2]", (1, 2)),
        ("steps 1 and 2", (1, 2)),
        ("1 & 2", (1, 2)),
        ("#1; #3", (1, 3)),
        ("2 1 2", (2, 1)),
        ("all", (0, 1, 2, 3)),
        ('["all"]', (0, 1, 2, 3)),
        ("all steps", (0, 1, 2, 3)),
        ("given", (0,)),
        ("0", (0,)),
        ("given, 2", (0, 2)),
        ("1.", (1,)),
    ],
)
def test_access_lists_are_read_in_any_punctuation(cell: str, wanted: tuple[int, ...]) -> None:
    """Numbers, words and the ways to say nothing."""
    assert parse_access(cell, 4, GIVEN) == wanted


@pytest.mark.parametrize("cell", ["some", "1-2", "x1", "1/2", "-1", "one", "[[1], x]", "٣"])
def test_an_unreadable_access_list_is_an_error(cell: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(PlanError, match="step 4 has no readable access list"):
        parse_access(cell, 4, GIVEN)


def test_a_label_is_found_by_its_worker() -> None:
    """And a worker without one is an error of the caller."""
    assert TERMS.label("bob") == "B"
    with pytest.raises(KeyError):
        TERMS.label("eve")


def test_blank_is_what_python_strips() -> None:
    """A subtask that a grammar admits is never empty once it is stripped."""
    space = {chr(point) for point in range(sys.maxunicode + 1) if chr(point).isspace()}
    assert space <= set(BLANK + CONTROL)
    assert all(sign.isspace() for sign in BLANK)


def test_the_form_is_explained_in_the_profiles_own_order() -> None:
    """With the line `plan:` only where reasoning is asked for."""
    assert NATIVE.instructions(replace(TERMS, order=("subtask", "worker", "access"))).startswith(
        "Write one line a step: subtask | worker | access."
    )
    assert "plan:" not in NATIVE.instructions(TERMS)
    assert "plan:" in NATIVE.instructions(replace(TERMS, reasoning=True))
