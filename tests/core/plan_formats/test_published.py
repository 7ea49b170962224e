from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.errors import PlanError
from conductor_cli.core.plan import KeepAnswer, Plan, PlanRules, Step
from conductor_cli.core.plan_formats import PLAN_FORMATS, ParsedStep, PlanFormatContext
from conductor_cli.core.profile import labels_of
from tests.core.plan_formats.reading import arrivals, plan_in, read
from tests.core.strategies import plans_for, terms_for_tests

PUBLISHED = PLAN_FORMATS["published"]
TERMS = PlanFormatContext(
    rules=PlanRules(workers=("ann", "bob", "cyd")), labels=labels_of(("ann", "bob", "cyd"), "numbers")
)
GIVEN = replace(TERMS, rules=replace(TERMS.rules, given=True))
TWO = 'model_id = [0, 1]\nsubtasks = ["Add the numbers.", "Check the sum."]\naccess_list = [[], ["all"]]'
IDS, SUBTASKS, ACCESS = TWO.split("\n")
WANTED = Plan(
    steps=(Step(worker="ann", subtask="Add the numbers."), Step(worker="bob", subtask="Check the sum.", access=(1,)))
)


def plan(text: str, context: PlanFormatContext = TERMS) -> Plan | KeepAnswer:
    return plan_in("published", text, context)


def subtasks(text: str) -> list[str]:
    found = plan(text)
    assert isinstance(found, Plan)
    return [step.subtask for step in found.steps]


def fault(text: str, context: PlanFormatContext = TERMS) -> PlanError:
    _, error, _ = read("published", [text], context)
    assert error is not None
    return error


def lists(ids: str, texts: str, access: str) -> str:
    return f"model_id = {ids}\nsubtasks = {texts}\naccess_list = {access}"


plain = (
    st.text(st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from("\n"), min_size=1)
    .map(str.strip)
    .filter(bool)
)


@given(st.data())
def test_a_rendered_plan_parses_back(data: st.DataObject) -> None:
    """Over any pool and any subtask, quotes, backticks and brackets in it too, complete or after standing steps."""
    context = data.draw(terms_for_tests("numbers"))
    context = replace(context, first=data.draw(st.integers(1, context.rules.steps)))
    drawn = data.draw(plans_for(context.rules, plain, context.first))
    text = PUBLISHED.render(drawn, replace(context, rules=replace(context.rules)))
    if context.first > 1:
        text = spelled_behind(drawn, context)
    # The given text has no position: it is seen through "all" or not at all.
    expressible = [
        replace(step, access=step.access if step.access == context.all_before(number) else without_given(step))
        for number, step in enumerate(drawn.steps, start=context.first)
    ]
    assert plan(text, context) == Plan(steps=tuple(expressible))


def without_given(step: Step) -> tuple[int, ...]:
    return tuple(item for item in step.access if item)


def spelled_behind(drawn: Plan, context: PlanFormatContext) -> str:
    """The lists of the steps that come after those that stand."""
    blank = tuple(Step(worker=context.rules.workers[0], subtask="x") for _ in range(context.first - 1))
    whole = PUBLISHED.render(Plan(steps=(*blank, *drawn.steps)), context)
    texts = [json.loads(line.split(" = ", 1)[1]) for line in whole.split("\n")]
    return lists(*(json.dumps(items[context.first - 1 :]).replace("`", "\\u0060") for items in texts))


@pytest.mark.parametrize("subtask", ["a\tb", "a\r\nb", "a\bb\fc", "a\x00b", r"\theta \\frac \r", '"a".".'])
def test_special_characters_read_back(subtask: str) -> None:
    """A subtask with control characters or quotes is written so that it reads as the same; a backslash stays one."""
    drawn = Plan(steps=(Step(worker=TERMS.rules.workers[0], subtask=subtask),))
    assert plan(PUBLISHED.render(drawn, TERMS), TERMS) == drawn


@pytest.mark.timeout(60)  # work that grows with the square takes longer
@pytest.mark.parametrize("subtask", ['".{}x', "{}x"])
def test_many_spaces_are_read_at_once(subtask: str) -> None:
    """A planner that writes nothing but spaces behind a quote does not stop the program."""
    plan(lists("[0]", f'["Add{subtask.format(" " * 200_000)}"]', "[[]]"))


def test_accepts_read_back() -> None:
    """Three empty lists, with the reasoning in front."""
    assert PUBLISHED.render(KeepAnswer(), GIVEN) == lists("[]", "[]", "[]")
    assert plan(PUBLISHED.render(KeepAnswer(reasoning="Fine."), GIVEN), GIVEN) == KeepAnswer(reasoning="Fine.")


hostile = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(
            [
                "model_id",
                "subtasks",
                "access_list",
                "access",
                " = ",
                ": ",
                "[",
                "]",
                "[]",
                "[0]",
                '["all"]',
                "0",
                "1",
                "7",
                ", ",
                ",",
                '"',
                "'",
                '"Add."',
                "“",
                "”",
                "`",
                "\n",
                "- ",
                "\\",
                "all",
                ".",
                '".".',
                " ",
                "x",
                "model id = [0]\n",
                "[[]]",
                '["a"]',
            ]
        ),
        max_size=40,
    ).map("".join),
)


@given(hostile, terms_for_tests("numbers"), st.data())
def test_any_text_in_any_pieces_gives_steps_or_a_plan_error(
    text: str, context: PlanFormatContext, data: st.DataObject
) -> None:
    """Nothing else comes out; what comes out before a fault obeys the rules; pieces make no difference."""
    context = replace(context, first=data.draw(st.integers(1, context.rules.steps)))
    whole, error, reasoning = read("published", [text], context)
    by_sign = read("published", list(text), context)
    assert (by_sign[0], type(by_sign[1]), by_sign[2]) == (whole, type(error), reasoning)
    cut = data.draw(st.integers(0, len(text)))
    assert read("published", [text[:cut], text[cut:]], context)[0] == whole
    for number, item in enumerate(whole, start=context.first):
        if isinstance(item, KeepAnswer):
            assert context.may_accept
        else:
            assert item.number == number <= context.rules.steps
            assert item.step.worker in context.rules.workers
            assert item.step.subtask.strip()


damage = st.lists(
    st.tuples(st.integers(0, 200), st.sampled_from(['"', "'", ".", "]", "[", ",", "`", "”", "\\", "\n", ""])),
    max_size=3,
)


@given(damage)
def test_a_damaged_plan_in_any_pieces_gives_the_same(changes: list[tuple[int, str]]) -> None:
    """Near a valid text, where a reader could change its mind, it does not."""
    text = lists("[0, 1, 2]", '["Say "hi", then go.", \'It is\', "Use [x], y"]', '[[], "all", [0, 1]]')
    for place, sign in changes:
        text = text[:place] + sign + text[place + (sign != "") :] if sign else text[:place] + text[place + 1 :]
    whole, error, _ = read("published", [text], TERMS)
    by_sign = read("published", list(text), TERMS)
    assert (by_sign[0], type(by_sign[1])) == (whole, type(error))


def test_a_step_arrives_when_its_access_entry_is_closed() -> None:
    """A bracket closes it, or the character after a bare word."""
    seen = [text.partition("access_list = ")[2] for _, text in arrivals("published", TWO, TERMS)]
    assert seen == ["[[]", '[[], ["all"]']
    bare = TWO.replace('[[], ["all"]]', '[none, "all"]')
    assert [text.rpartition("= ")[2] for _, text in arrivals("published", bare, TERMS)] == ["[none,", '[none, "all"]']


@pytest.mark.parametrize(
    "text",
    [
        f"I will use two models.\n\n{TWO}\n",
        f"```python\n{TWO}\n```",
        TWO.replace("model_id = [0, 1]", "`model_id` = `[0, 1]`"),
        "- " + TWO.replace("\n", "\n- "),
        "* " + TWO.replace("\n", "\n• "),
        TWO.replace("model_id", "Model ID").replace("subtasks", "Subtask").replace("access_list", "ACCESS LIST"),
        TWO.replace("model_id", "model ids").replace("access_list", "access"),
        TWO.replace(" =", ":"),
        TWO.replace(" = ", "="),
        TWO.replace("model_id =", "**model_id**:").replace("subtasks", "**subtasks**"),
        TWO.replace('"', "'"),
        TWO.replace('"Add the numbers."', "“Add the numbers.”").replace('"Check', "„Check").replace('sum."', "sum.”"),
        TWO.replace('"all"', "‘all’"),
        TWO.replace("[0, 1]", '["0", "1"]'),
        TWO.replace("[0, 1]", "['0', 1,]"),
        TWO.replace('["all"]', '"all"'),
        TWO.replace('["all"]', "['ALL']"),
        TWO.replace('["all"]', "[0]"),
        TWO.replace('["all"]', '["0"]'),
        TWO.replace("[[], ", '["none", '),
        TWO.replace("\n", " "),
        TWO.replace("\naccess_list", "access_list"),
        TWO.replace("\naccess_list", "  access_list"),
        TWO.replace('", "', '",\n    "').replace("], [", "],\n    ["),
        TWO.replace('sum."]', 'sum.",]'),
        json.dumps(
            {"model_id": [0, 1], "subtasks": ["Add the numbers.", "Check the sum."], "access_list": [[], ["all"]]}
        ),
        json.dumps(
            {"model_id": ["0", "1"], "subtasks": ["Add the numbers.", "Check the sum."], "access_list": [[], "all"]},
            indent=2,
        ),
        f"{ACCESS}\n{SUBTASKS}\n{IDS}",
        f"{IDS}\n{ACCESS}\n{SUBTASKS}",
        TWO + "\nmodel_id = [2]\nsubtasks = []\n",
    ],
)
def test_what_the_published_parser_tolerates_is_tolerated(text: str) -> None:
    """Backticks, bullets, other labels, signs and quotes, ids as text, JSON, any order of lists, lines run together."""
    items, error, _ = read("published", [text], TERMS)
    assert error is None
    assert [item.step for item in items if isinstance(item, ParsedStep)] == list(WANTED.steps)


@pytest.mark.parametrize(
    ("first", "wanted"),
    [
        ('"Take the limit.".".', "Take the limit."),
        ('"Take the limit".".', "Take the limit"),
        ('"Take the limit."."', "Take the limit."),
        ('"Take the limit." "."', "Take the limit."),
        ('"Take the limit.". ".', "Take the limit."),
        ("'Take the limit.'.'.", "Take the limit."),
        ('"Find "x" and "y" first."', 'Find "x" and "y" first.'),
        ('"Say "yes""', 'Say "yes"'),
        ('"Say "yes"."', 'Say "yes".'),
        ("'Don't stop'", "Don't stop"),
        ('"It’s \\"so\\""', 'It\'s "so"'),
        ('"a, b [c], d"', "a, b [c], d"),
        ('"Line one\\nline two"', "Line one\nline two"),
        ('"Show that \\frac{1}{2} < \\theta"', "Show that \\frac{1}{2} < \\theta"),
        ('"C:\\\\dir, caf\\u00e9, \\ud83d\\ude42, \\ud83d!"', "C:\\dir, café, 🙂, \ufffd!"),
        ("Take the limit", "Take the limit"),
        ('"Take the limit', 'Take the limit", "Then stop.'),
    ],
)
def test_strings_are_read_as_they_were_meant(first: str, wanted: str) -> None:
    """Stray quotes after a string, quotes inside it, escapes a text can mean, no quotes at all."""
    text = lists("[0, 1]", f'[{first}, "Then stop."]', "[[], []]")
    if wanted.endswith("stop."):
        assert "differ in length" in fault(text).message
    else:
        assert subtasks(text) == [wanted, "Then stop."]


def test_positions_count_from_0_and_name_earlier_steps() -> None:
    """The finer scheme of the paper's appendix."""
    text = lists("[0, 1, 2, 0]", '["a", "b", "c", "d"]', "[[], [], [1], [0, 2]]")
    found = plan(text)
    assert isinstance(found, Plan)
    assert [step.access for step in found.steps] == [(), (), (2,), (1, 3)]


def test_all_opens_what_was_given_too() -> None:
    """In a review the existing answer has no position of its own."""
    found = plan(TWO, GIVEN)
    assert isinstance(found, Plan)
    assert [step.access for step in found.steps] == [(), (0, 1)]
    found = plan(lists("[0]", '["a"]', '[["all"]]'), GIVEN)
    assert isinstance(found, Plan)
    assert found.steps[0].access == (0,)
    assert plan(lists("[0]", '["a"]', '[["all"]]')) == Plan(steps=(Step(worker="ann", subtask="a"),))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the text does not end with three whole lists"),
        ("I would ask model 2.", "the text does not end with three whole lists"),
        ("model_id = [0]", "the text does not end with three whole lists"),
        ('model_id = [0]\nsubtasks = ["a"]', "the text does not end with three whole lists"),
        ('model_id = [0]\nsubtasks = ["a"]\naccess_list = ', "the text does not end with three whole lists"),
        ('model_id = [0]\nsubtasks = ["a"]\naccess_list = [[', "the text does not end with three whole lists"),
        (lists("[0, 1]", '["a"]', "[[], []]"), "the three lists differ in length: 2 ids, 1 subtasks, 2 access entries"),
        (lists("[0]", '["a"]', "[[], []]"), "the three lists differ in length: 1 ids, 1 subtasks, 2 access entries"),
        (lists("[0]", '["a"]', "[]"), "the three lists differ in length: 1 ids, 1 subtasks, 0 access entries"),
        (
            lists("[0, x]", '["a", "b"]', "[[], []]"),
            "the three lists differ in length: 1 ids, 2 subtasks, 2 access entries",
        ),
        (
            lists("[0, 1.5]", '["a", "b"]', "[[], []]"),
            "the three lists differ in length: 1 ids, 2 subtasks, 2 access entries",
        ),
        (lists("[-1]", '["a"]', "[[]]"), "the three lists differ in length: 0 ids, 1 subtasks, 1 access entries"),
        (lists("[x]", "[]", "[]"), "the three lists differ in length: 0 ids, 0 subtasks, 0 access entries"),
        (lists("[7]", '["a"]', "[[]]"), "step 1 names a worker that is not in the pool: '7'"),
        (lists("[99999]", '["a"]', "[[]]"), "the three lists differ in length: 0 ids, 1 subtasks, 1 access entries"),
        (lists("[0]", '[" "]', "[[]]"), "step 1 has an empty subtask"),
        (lists("[0]", '["a"]', "[[0]]"), "step 1 cannot see itself or a later step: 1"),
        (lists("[0]", '["a"]', "[[some]]"), "step 1 has no readable access list: '[some]'"),
        (lists(str([0] * 6), json.dumps(["a"] * 6), json.dumps([[]] * 6)), "the plan has more than 5 steps"),
        (lists("[]", "[]", "[]"), "accept needs an existing answer, and there is none"),
    ],
)
def test_a_fault_names_what_is_wrong(text: str, said: str) -> None:
    """Nothing missing is made up."""
    assert fault(text).message == said


def test_three_empty_lists_accept_only_where_there_is_something_to_accept() -> None:
    """Garbage that empties the lists, missing lists and standing steps do not."""
    assert plan(lists("[]", "[ ]", "[]"), GIVEN) == KeepAnswer()
    assert "differ in length" in fault(lists("[none]", "[]", "[]"), GIVEN).message
    assert fault("model_id = []\nsubtasks = []", GIVEN).message == "the text does not end with three whole lists"
    assert fault(lists("[]", "[]", "[]"), replace(GIVEN, first=2)).message == (
        "accept needs an existing answer, and a plan has begun"
    )


def test_steps_before_a_fault_stand() -> None:
    """They were yielded when their entries were closed."""
    items, error, _ = read("published", [lists("[0, 1]", '["a", "b"]', "[[], [1]]")], TERMS)
    assert [item.number for item in items if isinstance(item, ParsedStep)] == [1]
    assert error is not None


def test_numbers_continue_after_standing_steps() -> None:
    """Positions still count from the plan's first step."""
    items, _, _ = read("published", [lists("[2]", '["c"]', "[[0, 1]]")], replace(TERMS, first=3))
    assert [(item.number, item.step.access, item.last) for item in items if isinstance(item, ParsedStep)] == [
        (3, (1, 2), True)
    ]
    limited = replace(TERMS, first=3, rules=replace(TERMS.rules, steps=3))
    assert fault(lists("[2, 2]", '["c", "d"]', "[[], []]"), limited).message == "the plan has more than 3 steps"


def test_text_before_the_lists_is_reasoning() -> None:
    """Without the marks that reading takes away."""
    found = plan(f"First `think`.\nThen act.\n{TWO}")
    assert found.reasoning == "First think.\nThen act."


def test_the_form_is_explained() -> None:
    """The three names stand in it."""
    assert all(name in PUBLISHED.instructions(TERMS) for name in ("model_id", "subtasks", "access_list"))
