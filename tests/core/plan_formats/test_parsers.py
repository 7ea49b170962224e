"""How plans are read in each format, and written so that they are read back."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from itertools import chain, product
from string import ascii_lowercase
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.errors import PlanError
from conductor_cli.core.plan import KeepAnswer, Plan, PlanRules, Step
from conductor_cli.core.plan_formats import PLAN_FORMATS, ParsedStep, PlanFormatContext
from conductor_cli.core.plan_formats.base import (
    ANSWER_DIRECTLY,
    BLANK,
    CONTROL,
    parse_access,
    parse_worker,
)
from conductor_cli.core.profile import labels_of
from tests.core.plan_formats.gbnf import Grammar
from tests.core.plan_formats.reading import arrivals, plan_in, read
from tests.core.strategies import json_values, plans_for, terms_for_tests
from tests.growth import assert_grows_linearly

NATIVE, JSON, PUBLISHED = (PLAN_FORMATS[name] for name in ("native", "json", "published"))
RULES = PlanRules(workers=("ann", "bob", "cyd"))
TERMS = PlanFormatContext(rules=RULES, labels=labels_of(RULES.workers, "letters"))
EXACT = replace(TERMS, constrained=True)
GIVEN_TERMS = replace(TERMS, rules=replace(RULES, given=True))
NUMBERED = replace(TERMS, labels=labels_of(RULES.workers, "numbers"))
CONTEXTS = {"native": TERMS, "json": TERMS, "published": NUMBERED}

WANTED = Plan(
    steps=(Step(worker="ann", subtask="one"), Step(worker="bob", subtask="two", access=(1,)))
)
LINES = "A | - | one\nB | 1 | two"
ONE = '{"worker":"A","access":[],"subtask":"one"}'
OTHER = '{"worker":"B","access":[1],"subtask":"two"}'
TWO = f'{{"steps":[{ONE},{OTHER}]}}'
LISTS = 'model_id = [0, 1]\nsubtasks = ["one", "two"]\naccess_list = [[], ["all"]]'


def lists(ids: str, texts: str, access: str) -> str:
    return f"model_id = {ids}\nsubtasks = {texts}\naccess_list = {access}"


def plan(text: str, context: PlanFormatContext = TERMS) -> Plan | KeepAnswer:
    return plan_in("native", text, context)


def steps(text: str, context: PlanFormatContext = TERMS) -> list[tuple[str, tuple[int, ...], str]]:
    parsed = plan(text, context)
    assert isinstance(parsed, Plan)
    return [(step.worker, step.access, step.subtask) for step in parsed.steps]


def published(text: str, context: PlanFormatContext = NUMBERED) -> Plan:
    parsed = plan_in("published", text, context)
    assert isinstance(parsed, Plan)
    return parsed


def fault(text: str, context: PlanFormatContext = TERMS, name: str = "native") -> PlanError:
    _, error, _ = read(name, [text], context)
    assert error is not None
    return error


plain = (
    st.text(st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from("\n"), min_size=1)
    .map(str.strip)
    .filter(bool)
)
SUBTASKS = {
    "native": st.text(min_size=1, max_size=30)
    .map(lambda text: " ".join(text.split()))
    .filter(bool),
    "json": st.text(min_size=1).map(str.strip).filter(bool),
    "published": plain,
}


@pytest.mark.parametrize("name", PLAN_FORMATS)
@given(st.data(), st.booleans())
def test_a_rendered_plan_parses_back(name: str, data: st.DataObject, exact: bool) -> None:
    exact = exact and name == "native"
    order: dict[str, Any] = (
        {} if exact or name != "native" else {"order": ("worker", "access", "subtask")}
    )
    context = data.draw(
        terms_for_tests("numbers" if name == "published" else "letters", constrained=exact, **order)
    )
    context = replace(context, first=data.draw(st.integers(1, context.rules.steps)))
    drawn = data.draw(plans_for(context.rules, SUBTASKS[name], context.first))
    if name == "published":
        text = (
            spelled_behind(drawn, context)
            if context.first > 1
            else PUBLISHED.render(drawn, context)
        )
        # The given text has no position: it is seen through "all" or not at all.
        expressible = [
            step
            if step.access == context.all_before(number)
            else replace(step, access=tuple(filter(None, step.access)))
            for number, step in enumerate(drawn.steps, start=context.first)
        ]
        assert published(text, context) == Plan(steps=tuple(expressible))
        return
    reasonings = (
        st.text().map(str.strip)
        if name == "json"
        else st.sampled_from(["", "- because\n- of that"])
    )
    drawn = replace(drawn, reasoning=data.draw(reasonings) if context.reasons else "")
    assert plan_in(name, PLAN_FORMATS[name].render(drawn, context), context) == drawn


def spelled_behind(drawn: Plan, context: PlanFormatContext) -> str:
    """The lists of the steps that come after those that stand."""
    blank = tuple(
        Step(worker=context.rules.workers[0], subtask="x") for _ in range(context.first - 1)
    )
    whole = PUBLISHED.render(Plan(steps=(*blank, *drawn.steps)), context)
    texts = [json.loads(line.split(" = ", 1)[1]) for line in whole.split("\n")]
    return lists(
        *(json.dumps(items[context.first - 1 :]).replace("`", "\\u0060") for items in texts)
    )


@pytest.mark.parametrize("name", PLAN_FORMATS)
def test_a_kept_answer_reads_back_also_after_reasoning(name: str) -> None:
    context = replace(CONTEXTS[name], rules=GIVEN_TERMS.rules)
    assert plan_in(name, PLAN_FORMATS[name].render(KeepAnswer(), context), context) == KeepAnswer()
    reasoned = replace(context, reasoning=True)
    kept = KeepAnswer(reasoning="{fine}")
    assert plan_in(name, PLAN_FORMATS[name].render(kept, reasoned), reasoned) == kept


def pieces(text: str, most: int) -> st.SearchStrategy[str]:
    """Texts made of these pieces, which a tilde divides."""
    return st.lists(st.sampled_from(text.split("~")), max_size=most).map("".join)


HOSTILE = {
    "native": st.text()
    | pieces(
        "A~B~Z~|~ | ~-~1~2~99~all~\n~\n\n~accept~plan:~```~**~- ~1. ~step "
        "2:~text~[~]~ann~\r~\u2028~٣~²~given~none~|||"
        "~Accept.",
        30,
    ),
    "json": st.text()
    | json_values.map(json.dumps)
    | pieces(
        f'{{"steps":[~"steps"~{ONE}~{OTHER}~,~]~}}~[~{{~"~{{"accept":true}}~"reasoning":"~\\~1e~null~{{"worker":'
        '~"subtask":3~ ~\n~```~x~"access":"all"~[[[[',
        20,
    ),
    "published": st.text()
    | pieces(
        'model_id~subtasks~access_list~access~ = ~: ~[~]~[]~[0]~["all"]~0~1~7~, '
        '~,~"~\'~"Add."~“~”~`~\n~- ~\\~all~.'
        '~".".~ ~x~model id = [0]\n~[[]]~["a"]',
        40,
    ),
}
ANY_TERMS = {
    "native": terms_for_tests(single=False) | terms_for_tests(single=True, reasoning=False),
    "json": terms_for_tests(),
    "published": terms_for_tests("numbers"),
}


@pytest.mark.parametrize("name", PLAN_FORMATS)
@given(st.data())
def test_any_text_in_any_pieces_gives_steps_or_a_plan_error(name: str, data: st.DataObject) -> None:
    text = data.draw(HOSTILE[name])
    context = data.draw(ANY_TERMS[name])
    context = replace(context, first=data.draw(st.integers(1, context.rules.steps)))
    whole, error, reasoning = read(name, [text], context)
    by_sign = read(name, list(text), context)
    assert (by_sign[0], type(by_sign[1]), by_sign[2]) == (whole, type(error), reasoning)
    cut = data.draw(st.integers(0, len(text)))
    assert read(name, [text[:cut], text[cut:]], context)[0] == whole
    for number, item in enumerate(whole, start=context.first):
        if isinstance(item, KeepAnswer):
            assert context.may_accept
        else:
            assert item.number == number <= context.rules.steps
            assert item.step.worker in context.rules.workers
            assert item.step.subtask.strip()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("native", "A | - | one\nB | 1 | two\nZ | - | three"),
        ("json", f'{{"steps":[{ONE},{OTHER},{{"worker":"Z","subtask":"x"}}]}}'),
        ("published", lists("[0, 1, 2]", '["one", "two", "c"]', '[[], "all", [2]]')),
    ],
)
def test_steps_before_a_fault_stand(name: str, text: str) -> None:
    items, error, _ = read(name, [text], CONTEXTS[name])
    assert [item.step for item in items if isinstance(item, ParsedStep)] == list(WANTED.steps)
    assert error is not None


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("native", LINES, ["A | - | one\nB | 1 |", LINES + "<end>"]),
        ("native exact", LINES, ["A | - | one\n", LINES + "<end>"]),
        (
            "native",
            "A | - | one\nmore\n\n**Step 2:** B | 1 | two",
            ["A | - | one\nmore\n\n**Step 2:** B | 1 |", None],
        ),
        (
            "native subtask first",
            "one | A | -\ntwo | B | 1\n",
            ["one | A | -\ntwo | B | 1\n", None],
        ),
        ("json", TWO, [f'{{"steps":[{ONE},{{', f'{{"steps":[{ONE},{OTHER}]']),
        ("published", LISTS, [LISTS[:-10], LISTS[:-1]]),
        (
            "published",
            LISTS.replace('[[], ["all"]]', '[none, "all"]'),
            [LISTS[:-13] + "[none,", None],
        ),
    ],
)
def test_a_step_arrives_as_soon_as_it_is_complete(
    name: str, text: str, expected: list[str | None]
) -> None:
    name, _, way = name.partition(" ")
    context = replace(CONTEXTS[name], constrained=way == "exact")
    if way == "subtask first":
        context = replace(context, order=("subtask", "worker", "access"))
    steps_by_piece = arrivals(name, text, context)
    for (_, there), wanted in zip(steps_by_piece, expected, strict=True):
        assert wanted in (there, None)


TOLERATED = {
    "native": [
        f"Here is the plan:\n\n```text\n{LINES}\n```\n",
        "`A | - | one`\n`B | 1 | two`",
        "* A | - | one\n• B | 1 | two",
        "1. A | - | one\n2) B | 1 | two",
        "## A | - | one\n## B | 1 | two",
        "Step 1: A | - | one\n**Step 2:** B | 1 | two",
        "| worker | access | subtask |\n|---|---|---|\n| A | - | one |\n| B | 1 | two |",
        f"worker | access | subtask\n---|---|---\n{LINES}",
        "a|none|one\nb|1|two",
        "Worker A | [] | one\nWorker B | [1] | two",
        "`A` | – | one\n**B** | step 1 | two",
        "ann | — | one\nBOB | 1. | two",
        "A ann | n/a | one\nB: bob | #1 | two",
        "A (the quick one) | nothing | one\nbob (careful) | steps 1 | two",
        "A | - | one\r\n\n\nB | all | two\r\n",
    ],
    "json": [
        f"```json\n{TWO}\n```",
        f"Here is my plan:\n\n{TWO}\n\nI hope [this] helps.",
        f"[{ONE}, {OTHER}]",
        f'{{"plan": {TWO}}}',
        TWO.replace('"A"', '"ann"').replace('"B"', '"Worker B"'),
        *(TWO.replace("[1]", access) for access in ('"all"', '["1"]', "1")),
        TWO.replace('"access":[],', ""),
        TWO.replace('"access":[]', '"access":null'),
        TWO.replace("},{", "}\n{"),
        TWO.replace("]}", ",\n]}"),
        '{"reasoning":"use [] and {\\"steps\\": [1]} and [{\\"worker\\":1}]",' + TWO[1:],
    ],
    "published": [
        f"I will use two models.\n\n{LISTS}\n",
        f"```python\n{LISTS}\n```",
        LISTS.replace("model_id = [0, 1]", "`model_id` = `[0, 1]`"),
        "- " + LISTS.replace("\n", "\n- "),
        "* " + LISTS.replace("\n", "\n• "),
        LISTS.replace("model_id", "Model ID")
        .replace("subtasks", "Subtask")
        .replace("access_list", "ACCESS LIST"),
        LISTS.replace("model_id", "model ids").replace("access_list", "access"),
        LISTS.replace(" =", ":"),
        LISTS.replace(" = ", "="),
        LISTS.replace("model_id =", "**model_id**:").replace("subtasks", "**subtasks**"),
        LISTS.replace('"', "'"),
        LISTS.replace('"one"', "“one”").replace('"two"', "„two”"),
        LISTS.replace('"all"', "‘all’"),
        *(LISTS.replace("[0, 1]", ids) for ids in ('["0", "1"]', "['0', 1,]")),
        *(LISTS.replace('["all"]', access) for access in ('"all"', "['ALL']", "[0]", '["0"]')),
        LISTS.replace("[[], ", '["none", '),
        *(LISTS.replace("\n", sign) for sign in (" ", "", "  ")),
        LISTS.replace('", "', '",\n    "').replace("], [", "],\n    ["),
        LISTS.replace('two"]', 'two",]'),
        '{"model_id": [0, 1], "subtasks": ["one", "two"], "access_list": [[], ["all"]]}',
        (
            '{\n  "model_id": ["0", "1"],\n  "subtasks": ["one", "two"],\n  "access_list": [[], '
            '"all"]\n}'
        ),
        "\n".join(reversed(LISTS.split("\n"))),
        LISTS + "\nmodel_id = [2]\nsubtasks = []\n",
    ],
}


@pytest.mark.parametrize(
    ("name", "text"), [*chain.from_iterable(product([n], TOLERATED[n]) for n in TOLERATED)]
)
def test_what_models_write_around_a_plan_is_tolerated(name: str, text: str) -> None:
    items, error, _ = read(name, [text], CONTEXTS[name])
    assert error is None
    assert [item.step for item in items if isinstance(item, ParsedStep)] == list(WANTED.steps)


NO_JSON = "there is no complete JSON plan in the text"
NO_LISTS = "the text does not end with three whole lists"
NO_STEP = "step 1 is not an object with worker, access and subtask"
FAULTS = {
    "native": [
        ("Z | - | one", "step 1 names a worker that is not in the pool: 'Z'"),
        ("A | 1 | one", "step 1 cannot see itself or a later step: 1"),
        ("A | 0 | one", "step 1 cannot see a step that does not exist: 0"),
        ("A | - | ", "step 1 has an empty subtask"),
        ("A | x | one", "step 1 has no readable access list: 'x'"),
        ("A | 1000 | one", "step 1 cannot see a step that does not exist: 1000"),
        ("", "there is no plan in the text"),
        ("I cannot do that.", "there is no plan in the text"),
        ("accept", "accept needs an existing answer, and there is none"),
        ("\n".join(["A | - | x"] * 6), "the plan has more than 5 steps"),
    ],
    "json": [
        *((text, NO_JSON) for text in ("no plan", '{"steps":[]}')),
        *(('{"steps":[' + text, NO_JSON) for text in (ONE, ONE + ", x]}", "[" * 100_000)),
        ('{"reasoning":' + "[" * 100_000 + '"steps":[', NO_JSON),
        ('{"steps":[3]}', NO_STEP),
        ('{"steps":[{"subtask":"x"}]}', NO_STEP),
        ('{"steps":[{"worker":"A","subtask":["x"]}]}', NO_STEP),
        ('{"steps":[{"worker":"A"}]}', "step 1 has an empty subtask"),
        (
            '{"steps":[{"worker":["A","B"],"subtask":"x"}]}',
            "step 1 names a worker that is not in the pool: \"['A', 'B']\"",
        ),
        (
            '{"steps":[{"worker":"A","subtask":"x","access":[1.5]}]}',
            "step 1 has no readable access list: '1.5'",
        ),
        ('{"steps":[' + ",".join([ONE] * 6) + "]}", "the plan has more than 5 steps"),
        ('{"accept":true,"steps":[]}', "accept needs an existing answer, and there is none"),
    ],
    "published": [
        *(
            (text, NO_LISTS)
            for text in (
                "I would ask model 2.",
                'model_id = [0]\nsubtasks = ["a"]\naccess_list = [[',
            )
        ),
        *(
            (
                lists(*texts),
                (
                    f"the three lists differ in length: {counts[0]} ids, {counts[1]} subtasks, "
                    f"{counts[2]} access entries"
                ),
            )
            for *texts, counts in (
                ("[0, 1]", '["a"]', "[[], []]", (2, 1, 2)),
                ("[0, 1.5]", '["a", "b"]', "[[], []]", (1, 2, 2)),
                ("[-1]", '["a"]', "[[]]", (0, 1, 1)),
                ("[99999]", '["a"]', "[[]]", (0, 1, 1)),
                ("[x]", "[]", "[]", (0, 0, 0)),
            )
        ),
        (lists("[7]", '["a"]', "[[]]"), "step 1 names a worker that is not in the pool: '7'"),
        (lists("[0]", '[" "]', "[[]]"), "step 1 has an empty subtask"),
        (lists("[0]", '["a"]', "[[0]]"), "step 1 cannot see itself or a later step: 1"),
        (lists("[0]", '["a"]', "[[some]]"), "step 1 has no readable access list: '[some]'"),
        (
            lists(str([0] * 6), json.dumps(["a"] * 6), json.dumps([[]] * 6)),
            "the plan has more than 5 steps",
        ),
        (lists("[]", "[]", "[]"), "accept needs an existing answer, and there is none"),
    ],
}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [(name, *case) for name, case in chain.from_iterable(product([n], FAULTS[n]) for n in FAULTS)],
    ids=str,
)
def test_a_fault_names_what_is_wrong(name: str, text: str, message: str) -> None:
    error = fault(text, CONTEXTS[name], name)
    assert error.message == message
    assert len(error.line) <= 300


def test_a_fault_says_where_it_is_and_what_was_expected() -> None:
    assert [fault(text).line for text in ("Z | - | one", "A | x | one", "accept")] == [
        "Z | - | one",
        " x ",
        "accept",
    ]
    assert (fault("hm").line, fault("hm").hint) == ("hm", "expected a line like A | - | subtask")
    assert (
        fault("hm", replace(TERMS, reasoning=True)).hint
        == "expected a line 'plan:' and a plan after it"
    )


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
    context = replace(TERMS, order=order)  # type: ignore[arg-type]
    drawn = Plan(steps=(Step(worker="ann", subtask="use a | b || c"),))
    assert plan(NATIVE.render(drawn, context), context) == drawn


@pytest.mark.timeout(60)  # work that grows with the square takes longer
@pytest.mark.parametrize(
    ("name", "text", "signs"),
    [
        *(("native", cells, " ._1(") for cells in ("a | {}x | y", "{}x | - | y", "a{} b | - | y")),
        *(("published", lists("[0]", f'["Add{end}"]', "[[]]"), " ") for end in ('".{}x', "{}x")),
    ],
)
def test_the_time_to_read_a_line_of_one_sign_grows_with_its_length(
    name: str, text: str, signs: str
) -> None:
    for sign in signs:
        assert_grows_linearly(
            lambda line: read(name, [line], CONTEXTS[name]),
            lambda size, sign=sign: text.replace("{}", sign * size),  # type: ignore[misc]
            100_000,
        )


def test_a_subtask_may_go_on_over_lines() -> None:
    assert steps("A | - | one:\n- a\n- b\n---\n\nB | 1 | two") == [
        ("ann", (), "one:\n- a\n- b"),
        ("bob", (1,), "two"),
    ]


def test_a_table_in_a_subtask_is_not_a_step() -> None:
    assert steps("A | - | Fill this in:\nname | age | city") == [
        ("ann", (), "Fill this in:\nname | age | city")
    ]


def test_a_step_beyond_the_limit_takes_the_one_before_it_along() -> None:
    context = replace(TERMS, rules=replace(TERMS.rules, steps=2))
    for exact in (False, True):
        items, error, _ = read(
            "native", [LINES + "\nC | 2 | three"], replace(context, constrained=exact)
        )
        assert [item.number for item in items if isinstance(item, ParsedStep)] == [1]
        assert error is not None
        assert error.message == "the plan has more than 2 steps"


def test_with_a_grammar_nothing_is_tolerated() -> None:
    assert fault("A | - | one\nand more", EXACT).message == "a line is not a step of a plan"
    assert fault("1. A | - | one", EXACT).message.startswith(
        "step 1 names a worker that is not in the pool"
    )
    assert fault("A | - | one\n\n", EXACT).message == "the last step is missing"


@pytest.mark.parametrize(
    "word", ["accept", "Accept.", "**accept**", " ACCEPT! ", "`accept`", "- accept"]
)
def test_accept_is_a_line_of_its_own(word: str) -> None:
    assert plan(f"It is right.\n{word}\nA | - | one", GIVEN_TERMS) == KeepAnswer(
        reasoning="It is right."
    )


def test_reasoning_ends_with_its_line() -> None:
    context = replace(TERMS, reasoning=True)
    for header in ("plan:", "Plan:", "**Plan:**", "## plan", "**Plan**:"):
        assert plan(f"A | - | no\nhm\n{header}\n{LINES}", context) == replace(
            WANTED, reasoning="A | - | no\nhm"
        )
    assert fault("plan: A | - | one", context).message == "there is no plan in the text"
    exact = replace(context, constrained=True)
    assert plan(f"- hm\nplan:\n{LINES}", exact).reasoning == "- hm"
    assert fault(f"- hm\nPlan:\n{LINES}", exact).message == "there is no plan in the text"


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
    assert steps(text, replace(TERMS, single=True)) == [(worker, (), "Answer the question.")]


@pytest.mark.parametrize("text", ["B\n", "B\nC", "B\nA\nC\n"])
def test_one_label_is_one_step_under_a_grammar_too(text: str) -> None:
    assert steps(text, replace(EXACT, single=True)) == [("bob", (), "Answer the question.")]


@pytest.mark.parametrize("text", ["", "A good choice is bob", "nobody", "accept"])
def test_a_sentence_names_no_worker(text: str) -> None:
    assert fault(text, replace(TERMS, single=True)).message in (
        "there is no plan in the text",
        "accept needs an existing answer, and there is none",
    )


def test_labels_win_over_names_that_look_like_them() -> None:
    context = PlanFormatContext(rules=PlanRules(workers=("b", "a")), labels={"A": "b", "B": "a"})
    assert (
        parse_worker("B", context),
        parse_worker("a", context),
        parse_worker("A b", context),
    ) == ("a", "b", "b")


def test_a_skill_may_stand_before_a_label() -> None:
    context = replace(
        TERMS, skills=("history", "creative writing"), order=("subtask", "access", "worker")
    )
    assert steps("Find it. | - | history B\nRhyme. | 1 | Creative Writing cyd", context) == [
        ("bob", (), "Find it."),
        ("cyd", (1,), "Rhyme."),
    ]
    assert steps("Find it. | - | A", context) == [("ann", (), "Find it.")]
    assert parse_worker("history D", context) is None
    assert parse_worker("botany B", context) is None
    assert "subtask | access | skill and worker" in NATIVE.instructions(context)


CLOSING = replace(
    TERMS,
    skills=("code", "docs"),
    order=("subtask", "access", "worker"),
    closing="Answer from these results.",
)


@pytest.mark.parametrize("constrained", [False, True])
def test_a_line_of_a_skill_and_a_label_closes_a_plan(constrained: bool) -> None:
    context = replace(CLOSING, constrained=constrained)
    assert steps("Find it. | - | code B\nName it. | - | docs A\ncode C", context) == [
        ("bob", (), "Find it."),
        ("ann", (), "Name it."),
        ("cyd", (1, 2), "Answer from these results."),
    ]


def test_a_closing_line_alone_asks_a_worker_the_whole_question() -> None:
    assert steps("docs B", CLOSING) == [("bob", (), ANSWER_DIRECTLY)]


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_closing_line_joins_a_step_of_its_worker_that_reads_all(
    constrained: bool, size: int
) -> None:
    context = replace(CLOSING, constrained=constrained)
    text = "Find it. | - | code B\nName it. | 1 | docs A\ncode A"
    parser = NATIVE.parser(context)
    parsed: list[ParsedStep | KeepAnswer] = []
    for start in range(0, len(text), size):
        parsed += parser.feed(text[start : start + size])
    parsed += parser.end()
    joined = Step(worker="ann", subtask="Name it. Then answer from these results.", access=(1,))
    assert parsed == [
        ParsedStep(number=1, step=Step(worker="bob", subtask="Find it."), last=False),
        ParsedStep(number=2, step=joined, last=True),
    ]
    assert parser.joined


def test_a_closing_line_joins_no_step_that_leaves_a_result_out() -> None:
    text = "Find it. | - | code B\nCount it. | - | code B\nName it. | 2 | docs A\ncode A"
    assert [access for _, access, _ in steps(text, CLOSING)] == [(), (), (2,), (1, 2, 3)]
    assert [worker for worker, _, _ in steps("Find it. | - | code B\ndocs C", CLOSING)] == [
        "bob",
        "cyd",
    ]


def test_the_only_step_and_a_closing_line_of_its_worker_ask_the_whole_question() -> None:
    assert steps("Find it. | - | code B\ndocs B", CLOSING) == [("bob", (), ANSWER_DIRECTLY)]


def test_a_step_starts_when_the_line_behind_it_cannot_close_the_plan() -> None:
    parser = NATIVE.parser(replace(CLOSING, constrained=True))
    assert not list(parser.feed("Find it. | - | code B\n"))
    assert not list(parser.feed("B"))
    assert len(list(parser.feed("o"))) == 1


def test_what_follows_a_closing_line_is_a_comment() -> None:
    assert steps("docs B\ncode A\nThat is all.", CLOSING) == [("bob", (), ANSWER_DIRECTLY)]


def test_a_step_behind_a_closing_line_is_a_fault_and_not_lost() -> None:
    error = fault("Find it. | - | code A\ndocs B\nName it. | 1 | docs C", CLOSING)
    assert error.message == "a step follows the line that ends the plan"


def test_a_grammar_with_a_closing_line_admits_no_other_end() -> None:
    context = replace(CLOSING, rules=replace(CLOSING.rules, steps=3), constrained=True)
    grammar = Grammar(NATIVE.grammar(context))
    lengths = set()
    for seed in range(60):
        text = grammar.draw(random.Random(seed))
        *_, (_, access, subtask) = steps(text, context)
        lengths.add(len(text.split("\n")))
        *step_lines, last = text.split("\n")
        assert "|" not in last
        assert not [line for line in step_lines if line[0] in ascii_lowercase]
        is_joined = not subtask.startswith(context.closing)
        number = len(step_lines) if is_joined and step_lines else len(step_lines) + 1
        assert access == context.all_before(number)
    assert lengths == {1, 2, 3}
    assert "is skill and worker alone" in NATIVE.instructions(context)


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
    assert parse_access(cell, 4, GIVEN_TERMS) == wanted


@pytest.mark.parametrize("cell", ["some", "1-2", "x1", "1/2", "-1", "one", "[[1], x]", "٣"])
def test_an_unreadable_access_list_is_an_error(cell: str) -> None:
    with pytest.raises(PlanError, match="step 4 has no readable access list"):
        parse_access(cell, 4, GIVEN_TERMS)


def test_blank_is_what_python_strips() -> None:
    space = {chr(point) for point in range(sys.maxunicode + 1) if chr(point).isspace()}
    assert space <= set(BLANK + CONTROL)
    assert all(sign.isspace() for sign in BLANK)


def test_reasoning_is_read_from_the_object_or_before_it() -> None:
    assert (
        plan_in("json", '{"reasoning":"a \\"b\\"","steps":[' + ONE + "]}", TERMS).reasoning
        == 'a "b"'
    )
    assert plan_in("json", f"Let me see.\n```\n{TWO}", TERMS).reasoning == "Let me see."
    assert plan_in("json", '{"reasoning":bad,"steps":[' + ONE + "]}", TERMS).reasoning == ""


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        *(
            (text, True)
            for text in (
                '{"accept":true}',
                '```json\n{ "accept" : true }\n```',
                'Fine.\n{"accept": true}',
                '{"reasoning":"a {b}","accept":true}.',
            )
        ),
        *(
            (text, False)
            for text in (
                'I would not write {"accept": true} here.',
                '{"accept": false}',
                '{"accept": 1}',
                "accept",
                '{"accept": true',
                '["accept", true]',
                '{"accept": "true"}',
            )
        ),
    ],
)
def test_an_object_that_says_so_accepts_and_mere_mention_does_not(
    text: str, accepted: bool
) -> None:
    items, error, _ = read("json", [text], GIVEN_TERMS)
    assert [isinstance(item, KeepAnswer) for item in items] == [True] * accepted
    assert (error is None) is accepted
    assert error is None or error.message == NO_JSON


def test_a_plan_goes_before_an_accept_and_standing_steps_too() -> None:
    both: Any = {"accept": True, **json.loads(TWO)}
    assert plan_in("json", json.dumps(both), GIVEN_TERMS) == WANTED
    begun = fault('{"accept":true}', replace(GIVEN_TERMS, first=2), "json")
    assert begun.message == "accept needs an existing answer, and a plan has begun"


def as_schema(text: str, context: PlanFormatContext) -> str:
    """A text that the grammar admits, with both ways of answering where the schema has both."""
    value: Any = json.loads(text)
    if context.may_accept:
        reasoning = {"reasoning": value["reasoning"]} if context.reasons else {}
        value = {**reasoning, "accept": "accept" in value, "steps": value.get("steps", [])}
    return json.dumps(value)


@given(st.data(), st.integers(0, 2**32).map(random.Random))
def test_what_the_grammar_admits_the_schema_admits_and_the_parser_reads(
    data: st.DataObject, chance: random.Random
) -> None:
    context = data.draw(terms_for_tests(constrained=True))
    context = replace(context, first=data.draw(st.integers(1, context.rules.steps)))
    schema = JSON.schema(context)
    jsonschema.Draft202012Validator.check_schema(schema)
    text = Grammar(JSON.grammar(context)).draw(chance)
    written = as_schema(text, context)
    jsonschema.validate(json.loads(written), schema)
    assert plan_in("json", written, context) == plan_in("json", text, context)


@pytest.mark.parametrize(
    "text",
    [
        '{"steps":[]}',
        '{"steps":[{"worker":"Z","access":[],"subtask":"x"}]}',
        '{"steps":[{"worker":"A","access":[0],"subtask":"x"}]}',
        '{"steps":[{"worker":"A","access":[3],"subtask":"x"}]}',
        '{"steps":[{"worker":"A","access":[1,2,1],"subtask":"x"}]}',
        '{"steps":[{"worker":"A","access":["1"],"subtask":"x"}]}',
        '{"steps":[{"worker":"A","subtask":"x"}]}',
        '{"steps":[{"worker":"A","access":[],"subtask":"x","why":"y"}]}',
        '{"steps":[' + ",".join([ONE] * 4) + "]}",
        '{"accept":true,"steps":[]}',
    ],
)
def test_the_schema_refuses_what_breaks_a_rule(text: str) -> None:
    context = replace(TERMS, rules=replace(TERMS.rules, steps=3))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(text), JSON.schema(context))


def test_the_schema_keeps_to_what_every_server_takes() -> None:
    keywords = {
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "minItems",
        "maxItems",
    }
    context = replace(GIVEN_TERMS, reasoning=True)

    def check(part: Any) -> None:
        assert set(part) <= keywords
        if part["type"] == "object":
            assert part["required"] == list(part["properties"])
            assert part["additionalProperties"] is False
        for inner in (
            *part.get("properties", {}).values(),
            *([part["items"]] if "items" in part else []),
        ):
            check(inner)

    schema = JSON.schema(context)
    assert schema is not None
    check(schema)
    assert list(schema["properties"]) == ["reasoning", "accept", "steps"]


def test_only_the_json_format_has_a_schema() -> None:
    assert [
        name for name, spelling in PLAN_FORMATS.items() if spelling.schema(TERMS) is not None
    ] == ["json"]
    assert JSON.schema(replace(TERMS, single=True)) is None


@pytest.mark.parametrize("reasoning", [False, True])
def test_the_json_format_asks_for_reasoning_where_it_is_wanted(reasoning: bool) -> None:
    assert ('"reasoning"' in JSON.instructions(replace(TERMS, reasoning=reasoning))) == reasoning


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
    text = lists("[0, 1]", f'[{first}, "Then stop."]', "[[], []]")
    if wanted.endswith("stop."):
        assert "differ in length" in fault(text, NUMBERED, "published").message
    else:
        assert [step.subtask for step in published(text).steps] == [wanted, "Then stop."]
