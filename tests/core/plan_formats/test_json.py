from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.errors import PlanError
from conductor_cli.core.plan import KeepAnswer, Plan, PlanRules, Step
from conductor_cli.core.plan_formats import PLAN_FORMATS, ParsedStep, PlanFormatContext
from conductor_cli.core.profile import labels_of
from tests.core.plan_formats.gbnf import Grammar
from tests.core.plan_formats.reading import arrivals, plan_in, read
from tests.core.strategies import json_values, plans_for, terms_for_tests

JSON = PLAN_FORMATS["json"]
TERMS = PlanFormatContext(rules=PlanRules(workers=("ann", "bob")), labels=labels_of(("ann", "bob"), "letters"))
GIVEN = replace(TERMS, rules=replace(TERMS.rules, given=True))
ONE = '{"worker":"A","access":[],"subtask":"one"}'
OTHER = '{"worker":"B","access":[1],"subtask":"two"}'
TWO = f'{{"steps":[{ONE},{OTHER}]}}'
WANTED = Plan(steps=(Step(worker="ann", subtask="one"), Step(worker="bob", subtask="two", access=(1,))))


def fault(text: str, context: PlanFormatContext = TERMS) -> PlanError:
    _, error, _ = read("json", [text], context)
    assert error is not None
    return error


@given(st.data())
def test_a_rendered_plan_parses_back(data: st.DataObject) -> None:
    """Over any pool, with any reasoning and any subtask, complete or after standing steps."""
    context = data.draw(terms_for_tests())
    context = replace(context, first=data.draw(st.integers(1, context.rules.steps)))
    subtask = st.text(min_size=1).map(str.strip).filter(bool)
    drawn = data.draw(plans_for(context.rules, subtask, context.first))
    drawn = replace(drawn, reasoning=data.draw(st.text()).strip() if context.reasons else "")
    assert plan_in("json", JSON.render(drawn, context), context) == drawn


def test_accepts_read_back() -> None:
    """Also after reasoning."""
    assert plan_in("json", JSON.render(KeepAnswer(), GIVEN), GIVEN) == KeepAnswer()
    context = replace(GIVEN, reasoning=True)
    assert plan_in("json", JSON.render(KeepAnswer(reasoning="{fine}"), context), context) == KeepAnswer(
        reasoning="{fine}"
    )


hostile = st.one_of(
    st.text(),
    json_values.map(json.dumps),
    st.lists(
        st.sampled_from(
            [
                '{"steps":[',
                '"steps"',
                ONE,
                OTHER,
                ",",
                "]",
                "}",
                "[",
                "{",
                '"',
                '{"accept":true}',
                '"reasoning":"',
                "\\",
                "1e",
                "null",
                '{"worker":',
                '"subtask":3',
                " ",
                "\n",
                "```",
                "x",
                '"access":"all"',
                "[[[[",
            ]
        ),
        max_size=20,
    ).map("".join),
)


@given(hostile, terms_for_tests(), st.data())
def test_any_text_in_any_pieces_gives_steps_or_a_plan_error(
    text: str, context: PlanFormatContext, data: st.DataObject
) -> None:
    """Nothing else comes out; what comes out before a fault obeys the rules; pieces make no difference."""
    context = replace(context, first=data.draw(st.integers(1, context.rules.steps)))
    whole, error, reasoning = read("json", [text], context)
    by_sign = read("json", list(text), context)
    assert (by_sign[0], type(by_sign[1]), by_sign[2]) == (whole, type(error), reasoning)
    for number, item in enumerate(whole, start=context.first):
        if isinstance(item, KeepAnswer):
            assert context.may_accept
        else:
            assert item.number == number <= context.rules.steps
            assert item.step.worker in context.rules.workers


def test_endless_nesting_is_not_a_plan() -> None:
    """A hostile text does not crash the parser."""
    assert fault('{"steps":[' + "[" * 100_000).message == "there is no complete JSON plan in the text"
    assert fault('{"reasoning":' + "[" * 100_000 + '"steps":[').message == "there is no complete JSON plan in the text"
    assert fault("{" * 100_000 + '"accept":true}', GIVEN).message == "there is no complete JSON plan in the text"


def test_a_step_arrives_with_the_character_after_it() -> None:
    """A comma says that another follows, a bracket that it was the last."""
    assert arrivals("json", TWO, TERMS) == [(1, f'{{"steps":[{ONE},'), (2, f'{{"steps":[{ONE},{OTHER}]')]
    spaced = json.dumps(json.loads(TWO), indent=2)
    assert [text[-1] for _, text in arrivals("json", spaced, TERMS)] == [",", "]"]


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{TWO}\n```",
        f"Here is my plan:\n\n{TWO}\n\nI hope [this] helps.",
        f"[{ONE}, {OTHER}]",
        f'{{"plan": {TWO}}}',
        TWO.replace('"A"', '"ann"').replace('"B"', '"Worker B"'),
        TWO.replace("[1]", '"all"'),
        TWO.replace("[1]", '["1"]'),
        TWO.replace("[1]", "1"),
        TWO.replace('"access":[],', ""),
        TWO.replace('"access":[]', '"access":null'),
        TWO.replace("},{", "}\n{"),
        '{"reasoning":"use [] and {\\"steps\\": [1]} and [{\\"worker\\":1}]",' + TWO[1:],
    ],
)
def test_what_models_write_around_a_plan_is_tolerated(text: str) -> None:
    """Fences, prose, a bare list, names, loose access lists, reasoning that holds anything."""
    items, error, _ = read("json", [text], TERMS)
    assert error is None
    assert [item.step for item in items if isinstance(item, ParsedStep)] == list(WANTED.steps)


def test_reasoning_is_read_from_the_object_or_before_it() -> None:
    """Inside the object its value, else the prose in front of it."""
    assert plan_in("json", '{"reasoning":"a \\"b\\"","steps":[' + ONE + "]}", TERMS).reasoning == 'a "b"'
    assert plan_in("json", f"Let me see.\n```\n{TWO}", TERMS).reasoning == "Let me see."
    assert plan_in("json", '{"reasoning":bad,"steps":[' + ONE + "]}", TERMS).reasoning == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no complete JSON plan in the text"),
        ("no plan", "there is no complete JSON plan in the text"),
        ('{"steps":[]}', "there is no complete JSON plan in the text"),
        ('{"steps":[' + ONE, "there is no complete JSON plan in the text"),
        ('{"steps":[' + ONE + ",", "there is no complete JSON plan in the text"),
        ('{"steps":[' + ONE + ", x]}", "there is no complete JSON plan in the text"),
        ('{"steps":[3]}', "step 1 is not an object with worker, access and subtask"),
        ('{"steps":[{"subtask":"x"}]}', "step 1 is not an object with worker, access and subtask"),
        ('{"steps":[{"worker":"A","subtask":["x"]}]}', "step 1 is not an object with worker, access and subtask"),
        ('{"steps":[{"worker":"A"}]}', "step 1 has an empty subtask"),
        (
            '{"steps":[{"worker":["A","B"],"subtask":"x"}]}',
            "step 1 names a worker that is not in the pool: \"['A', 'B']\"",
        ),
        ('{"steps":[{"worker":"A","subtask":"x","access":[1.5]}]}', "step 1 has no readable access list: '1.5'"),
        ('{"steps":[{"worker":"A","subtask":"x","access":[true]}]}', "step 1 has no readable access list: 'True'"),
        ('{"steps":[{"worker":"A","subtask":"x","access":[1]}]}', "step 1 cannot see itself or a later step: 1"),
        ('{"steps":[' + ",".join([ONE] * 6) + "]}", "the plan has more than 5 steps"),
        ('{"accept":true}', "accept needs an existing answer, and there is none"),
    ],
)
def test_a_fault_names_what_is_wrong(text: str, said: str) -> None:
    """And the text at fault is there to be shown back."""
    error = fault(text)
    assert error.message == said
    assert len(error.line) <= 300


def test_steps_before_a_fault_stand_and_the_step_at_the_limit_does_not() -> None:
    """As in every plan format."""
    items, error, _ = read("json", ['{"steps":[' + ONE + ',{"worker":"Z","subtask":"x"}]}'], TERMS)
    assert (len(items), error is None) == (1, False)
    context = replace(TERMS, rules=replace(TERMS.rules, steps=2))
    items, error, _ = read("json", ['{"steps":[' + ",".join([ONE] * 3) + "]}"], context)
    assert (len(items), error is None) == (1, False)


@pytest.mark.parametrize(
    "text",
    [
        '{"accept":true}',
        '```json\n{ "accept" : true }\n```',
        'Fine.\n{"accept": true}',
        '{"reasoning":"a {b}","accept":true}.',
    ],
)
def test_an_object_that_says_so_accepts(text: str) -> None:
    """With prose in front and a fence around it."""
    assert isinstance(plan_in("json", text, GIVEN), KeepAnswer)


@pytest.mark.parametrize(
    "text",
    [
        'I would not write {"accept": true} here.',
        '{"accept": false}',
        '{"accept": 1}',
        "accept",
        '{"accept": true',
        '["accept", true]',
        '{"accept": "true"}',
    ],
)
def test_mere_mention_accepts_nothing(text: str) -> None:
    """Garbage is never an accept."""
    assert fault(text, GIVEN).message == "there is no complete JSON plan in the text"


def test_a_plan_goes_before_an_accept_and_standing_steps_too() -> None:
    """Who writes steps has not accepted; who has steps standing cannot."""
    both: Any = {"accept": True, **json.loads(TWO)}
    assert plan_in("json", json.dumps(both), GIVEN) == replace(WANTED)
    assert (
        fault('{"accept":true}', replace(GIVEN, first=2)).message
        == "accept needs an existing answer, and a plan has begun"
    )


def test_numbers_continue_after_standing_steps() -> None:
    """The list then begins with the next step."""
    items, _, _ = read("json", ['{"steps":[{"worker":"B","access":[1,2],"subtask":"x"}]}'], replace(TERMS, first=3))
    assert [(item.number, item.step.access) for item in items if isinstance(item, ParsedStep)] == [(3, (1, 2))]


def test_the_form_is_explained_with_reasoning_where_it_is_asked_for() -> None:
    """And the example is itself JSON."""
    assert '"reasoning"' not in JSON.instructions(TERMS)
    assert '"reasoning"' in JSON.instructions(replace(TERMS, reasoning=True))
    shown = JSON.instructions(TERMS).removeprefix("Write one JSON object: ").split(". The access")[0]
    assert json.loads(shown)["steps"][0]["worker"] == "A"


def as_schema(text: str, context: PlanFormatContext) -> str:
    """A text that the grammar admits, with both ways of answering in it where the schema has both."""
    data: Any = json.loads(text)
    if context.may_accept:
        reasoning = {"reasoning": data["reasoning"]} if context.reasons else {}
        data = {**reasoning, "accept": "accept" in data, "steps": data.get("steps", [])}
    return json.dumps(data)


@given(st.data(), st.integers(0, 2**32).map(random.Random))
def test_what_the_grammar_admits_the_schema_admits_and_the_parser_reads(
    data: st.DataObject, chance: random.Random
) -> None:
    """Over any terms: the same plan comes of it, an accept too; the schema itself is a valid one."""
    jsonschema = pytest.importorskip("jsonschema")
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
        '{"steps":[{"worker":"C","access":[],"subtask":"x"}]}',
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
    """Workers that are not there, steps that never come earlier, more steps than allowed, other shapes."""
    jsonschema = pytest.importorskip("jsonschema")
    context = replace(TERMS, rules=replace(TERMS.rules, steps=3))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(text), JSON.schema(context))


def test_the_schema_keeps_to_what_every_server_takes() -> None:
    """Closed objects with all their properties required, an object at the root, and no word beyond these."""
    known = {"type", "properties", "required", "additionalProperties", "items", "enum", "minItems", "maxItems"}
    context = replace(GIVEN, reasoning=True)

    def check(part: Any) -> None:
        assert set(part) <= known
        if part["type"] == "object":
            assert part["required"] == list(part["properties"])
            assert part["additionalProperties"] is False
        for inner in (*part.get("properties", {}).values(), *([part["items"]] if "items" in part else [])):
            check(inner)

    schema = JSON.schema(context)
    assert schema is not None
    check(schema)
    assert list(schema["properties"]) == ["reasoning", "accept", "steps"]


@pytest.mark.parametrize("text", ['{"accept":true,"steps":[]}', '{"reasoning":"fine","accept":true,"steps":[ ]}'])
def test_an_accept_beside_an_empty_list_accepts(text: str) -> None:
    """So a conductor under the schema keeps the existing answer; an empty list alone is a fault."""
    assert isinstance(plan_in("json", text, GIVEN), KeepAnswer)
    assert fault('{"accept":false,"steps":[]}', GIVEN).message == "there is no complete JSON plan in the text"
    assert fault(text).message == "accept needs an existing answer, and there is none"


def test_only_the_json_format_has_a_schema() -> None:
    """Lines and lists have none, and neither has one label."""
    assert [name for name, spelling in PLAN_FORMATS.items() if spelling.schema(TERMS) is not None] == ["json"]
    assert JSON.schema(replace(TERMS, single=True)) is None


def test_llama_cpp_makes_a_grammar_of_the_schema_that_keeps_to_it() -> None:
    """Its converter, here the one in Python: every text of that grammar fits the schema."""
    gbnf = pytest.importorskip("llama_cpp.llama_grammar")
    jsonschema = pytest.importorskip("jsonschema")
    chance = random.Random(5)
    for context in (TERMS, GIVEN, replace(GIVEN, reasoning=True), replace(TERMS, rules=replace(TERMS.rules, steps=1))):
        schema = JSON.schema(context)
        grammar = Grammar(gbnf.json_schema_to_gbnf(json.dumps(schema)))
        for _ in range(20):
            jsonschema.validate(json.loads(grammar.draw(chance), strict=False), schema)
