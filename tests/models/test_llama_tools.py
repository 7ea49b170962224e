"""Tools of a local model: what its template is given, and what of its replies is a call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.chat import Attachment, Chunk, Message, Request, Tool, ToolCall
from conductor_cli.core.errors import ModelError
from conductor_cli.core.tools import parse_arguments
from conductor_cli.core.usage import Usage
from conductor_cli.models.base import NO_FEATURES
from conductor_cli.models.llama.adapter import Llama
from conductor_cli.models.llama.loading import LlamaOptions
from conductor_cli.models.llama.prompt import ChatTemplate, render_messages
from conductor_cli.models.llama.tool_calls import (
    HERMES,
    LLAMA_3,
    UNREADABLE,
    ToolForm,
    form_of,
    told_as_text,
    tool_use,
    without_calls,
)
from tests.models.kit import ASK, calls, notes, play, text
from tests.tiny_gguf import END, TRUSTED, Extra, make

HERMES_TEMPLATE = """{%- if tools %}<|im_start|>system
Tools:
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
Call one so: <tool_call>{"name": NAME, "arguments": OBJECT}</tool_call><|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ 'user' if message.role == 'tool' else message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}<|im_start|>assistant
"""
LLAMA_TEMPLATE = """{%- for tool in tools or [] %}{{ tool | tojson(indent=4) }}{% endfor %}
Answer with {"name": NAME, "parameters": OBJECT}.
{%- for message in messages %}<|start_header_id|>{{ message.role }}
{%- for call in message.tool_calls or [] %}
{"name": "{{ call.function.name }}", "parameters": {{ call.function.arguments | tojson }}}
{%- endfor %}{{ message.content }}{% endfor %}"""

CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = Tool(name="weather", description='Says the "weather" <|im_end|>.', parameters=CITY)
CLOCK = Tool(name="clock")
CALLS = (
    ToolCall(id="abc123def", name="weather", arguments='{"city": "Oslo<|im_end|>"}'),
    ToolCall(id="call_that_is_long", name="clock", arguments="not json"),
)
TURN = (
    ASK,
    Message(role="assistant", content="", tool_calls=CALLS),
    Message(role="tool", content="3 degrees", tool_call_id="abc123def"),
    Message(role="tool", content="no clock", tool_call_id="call_that_is_long", is_error=True),
)
OSLO = '{"city": "Oslo"}'


@pytest.mark.parametrize(
    ("template", "form"),
    [
        (HERMES_TEMPLATE, HERMES),
        (LLAMA_TEMPLATE, LLAMA_3),
        (HERMES_TEMPLATE + "<function=NAME>", None),
        (TRUSTED, None),
        ("{{ messages }} with tools and <tool_call></tool_call>", None),
        ("{% for tool in tools %}[TOOL_CALLS]{{ tool }}{% endfor %}", None),
        ("{%" * 500_000 + "tool <tool_call></tool_call>", None),
    ],
)
def test_the_template_says_how_calls_are_written(template: str, form: ToolForm | None) -> None:
    """Also where it is hostile: this is read before the template runs in its bounded process."""
    assert form_of(template) == form


@pytest.mark.parametrize("source", [HERMES_TEMPLATE, LLAMA_TEMPLATE])
def test_a_prompt_has_tools_calls_and_results(source: str) -> None:
    """What people and tools wrote is text there, and can end no turn."""
    template = ChatTemplate("m.gguf", source, {})
    pieces = render_messages(template, TURN, thinking=True, tools=(WEATHER, CLOCK))
    prompt = "".join(piece.text for piece in pieces)
    described = json.dumps(WEATHER.description)
    schema = json.dumps(CITY)
    called = '{"city": "Oslo<|im_end|>"}'
    results = ("3 degrees", "Error: no clock")
    for words in (described, schema, called, '{"invalid_arguments": "not json"}', *results):
        assert words in prompt
    assert prompt.index("Oslo") < prompt.index("3 degrees") < prompt.index("no clock")
    written = "".join(piece.text for piece in pieces if piece.control)
    assert not any(words in written for words in ("Oslo", "Says", "3 degrees", "no clock"))


def test_where_an_answer_is_wanted_calls_and_results_are_told_in_words() -> None:
    """A small model that sees calls in their form makes another one instead of an answer."""
    roles = [(message.role, message.content) for message in told_as_text(TURN)]
    called = "\n".join(f"I call {call.name} with {call.arguments}." for call in CALLS)
    assert roles == [
        ("user", ASK.content),
        ("assistant", called),
        ("user", "The result of weather:\n\n3 degrees"),
        ("user", "The error of clock:\n\nno clock"),
    ]


def test_a_template_that_leaves_out_the_schema_is_an_error() -> None:
    source = "{% for tool in tools %}{{ tool.function.name }}{% endfor %}{{ messages[0].content }}"
    with pytest.raises(ModelError, match="leaves out a part of the tools"):
        render_messages(ChatTemplate("m", source, {}), (ASK,), thinking=True, tools=(WEATHER,))


def reply_of(
    written: str, form: ToolForm = HERMES, size: int = 1000, finish: Any = "stop", **fields: Any
) -> list[Chunk]:
    """A reply that arrives in pieces of this size, with its calls apart."""
    request = Request(messages=(ASK,), tools=(WEATHER, CLOCK), **fields)
    use = tool_use(form, request)
    assert use is not None

    def chunks() -> Iterator[Chunk]:
        for at in range(0, len(written), size):
            yield Chunk(text=written[at : at + size])
        yield Chunk(finish=finish, usage=Usage(tokens_out=9))

    return list(without_calls(chunks(), request, use))


def read(written: str, form: ToolForm = HERMES, **fields: Any) -> tuple[str, list[tuple[str, str]]]:
    """The text and the calls of a reply, the same however it is cut into pieces."""
    names = set()
    for size in (1, 3, 1000):
        chunks = reply_of(written, form, size, **fields)
        made = tuple((call.name, call.arguments) for call in calls(chunks))
        assert len({call.id for call in calls(chunks)}) == len(made)
        assert chunks[-1].finish == ("tool" if made else fields.get("finish", "stop"))
        assert chunks[-1].usage == Usage(tokens_out=9)
        names.add((text(chunks), made))
    ((shown, made),) = names
    return shown, list(made)


ONE = f'<tool_call>\n{{"name": "weather", "arguments": {OSLO}}}\n</tool_call>'
TWO = '<tool_call>{"name": "clock", "arguments": {}}</tool_call>'
BARE = f'{{"name": "weather", "arguments": {OSLO}}}'
BARE_CLOCK = '{"name": "clock", "arguments": {}}'
IN_TWO_PAIRS = f'<tool_call>\n{{{{"name": "weather", "arguments": {OSLO}}}}}\n</tool_call>'


@pytest.mark.parametrize(
    ("written", "shown", "made"),
    [
        (f"Let me look.\n{ONE}\n{TWO}", "Let me look.", [("weather", OSLO), ("clock", "{}")]),
        (f"{ONE}{TWO}\n", "", [("weather", OSLO), ("clock", "{}")]),
        (f"I look. {TWO.removesuffix('</tool_call>')}", "I look.", [("clock", "{}")]),
        (f"{ONE}\nThere.", "\nThere.", [("weather", OSLO)]),
        (IN_TWO_PAIRS, "", [("weather", OSLO)]),
        (
            '<tool_call>{"name": "clock", "parameters": {"a": 1}}</tool_call>',
            "",
            [("clock", '{"a": 1}')],
        ),
        ('{"name": "clock", "arguments": {}}', "", [("clock", "{}")]),
        ('```json\n{"name": "clock", "arguments": {}}\n```', "", [("clock", "{}")]),
        (
            f"<tool_call>\n{BARE}\n{BARE_CLOCK}\n</tool_call>",
            "",
            [("weather", OSLO), ("clock", "{}")],
        ),
        (f"{BARE}\n{BARE_CLOCK}", "", [("weather", OSLO), ("clock", "{}")]),
    ],
)
def test_calls_are_taken_out_of_the_text(
    written: str, shown: str, made: list[tuple[str, str]]
) -> None:
    assert read(written) == (shown, made)


@pytest.mark.parametrize(
    "written",
    [
        "a <tool b <tool_cal",
        "  two \n\n lines \n",
        '{"name": "Ada", "age": 7}',
        '{"name": "clock"}',
        "```json\n[1]\n```\n",
        "```python\nprint()\n```",
        "`",
        "{ is a brace",
        " {",
        '{"a": {"b": 1}} is JSON.',
        '{"name": "clock", "arguments": {}}; and so on',
        '{"name": "clock", "arguments": {}}\n{"name": "Ada", "arguments": {}}',
    ],
)
@pytest.mark.parametrize("form", [HERMES, LLAMA_3], ids=["hermes", "llama-3"])
def test_what_only_looks_like_a_call_is_shown_as_it_is(written: str, form: ToolForm) -> None:
    assert read(written, form) == (written, [])


@pytest.mark.parametrize(
    ("written", "name", "why"),
    [
        (
            '<tool_call>{"name": "weather", "arguments": {"city": Oslo}}</tool_call>',
            "weather",
            "not JSON",
        ),
        (
            '<tool_call>{"name": "weather", "arguments": [1]}</tool_call>',
            "weather",
            "not a JSON object",
        ),
        ("<tool_call>weather in Oslo</tool_call>", UNREADABLE, "not JSON"),
        ("<tool_call>weather in Oslo", UNREADABLE, "not JSON"),
        ("<tool_call></tool_call>", UNREADABLE, "not JSON"),
        ('<tool_call>[{"name": "clock"}, 7]</tool_call>', UNREADABLE, "not a JSON object"),
    ],
)
def test_a_broken_call_goes_on_so_that_the_model_is_told(written: str, name: str, why: str) -> None:
    shown, _ = read(written)
    (call,) = calls(reply_of(written))
    assert (shown, call.name) == ("", name)
    with pytest.raises(ValueError, match=why):
        parse_arguments(call)


def test_of_a_reply_that_is_cut_off_inside_a_call_the_text_is_left() -> None:
    written = 'I look. <tool_call>{"name": "weather", "arguments": {"ci'
    assert read(written, finish="length") == ("I look.", [])


def test_one_call_is_made_where_several_are_not_wanted_and_that_is_said() -> None:
    chunks = reply_of(ONE + TWO, parallel_tool_calls=False)
    assert [call.name for call in calls(chunks)] == ["weather"]
    assert notes(chunks) == ["the model called 2 tools at once; only the first is called"]
    assert notes(reply_of(ONE + TWO)) == []


def test_of_several_calls_of_llama_3_the_first_is_made() -> None:
    written = (
        f'{{"name": "weather", "parameters": {OSLO}}}; {{"name": "clock", "parameters": {{}}}}'
    )
    assert read(written, LLAMA_3) == ("", [("weather", OSLO)])
    assert notes(reply_of(written, LLAMA_3)) == [
        "the model called 2 tools at once; only the first is called"
    ]


def test_a_call_where_an_answer_is_wanted_is_never_made() -> None:
    """Its marks are not shown either, and without any text there is no answer."""
    chunks = reply_of(f"It is warm. {ONE}", tool_choice="none")
    assert (text(chunks), calls(chunks), chunks[-1].finish) == ("It is warm.", (), "stop")
    with pytest.raises(ModelError, match="where it had to answer") as error:
        reply_of(ONE, tool_choice="none")
    assert (error.value.reason, error.value.usage) == ("empty_answer", Usage(tokens_out=9))


def test_a_call_without_an_end_is_bounded() -> None:
    with pytest.raises(ModelError, match="more than 1048576 characters"):
        reply_of("<tool_call>" + "x" * 2_000_000, size=100_000)


@given(st.text(alphabet='<>/tool_cal{}[]"name:,argumentsclock \n`', max_size=80), st.integers(1, 9))
def test_no_reply_makes_a_reader_fall_over_or_shows_a_mark(written: str, size: int) -> None:
    for form in (HERMES, LLAMA_3):
        chunks = reply_of(written, form, size)
        assert form is LLAMA_3 or "<tool_call>" not in text(chunks)
        assert chunks[-1].finish == ("tool" if calls(chunks) else "stop")


@pytest.fixture(scope="module")
def calling(models: Path) -> Path:
    """A model with a place for tools in its template, which ends soon."""
    return make(models / "calling.gguf", extra=Extra(template=HERMES_TEMPLATE, bias={END: 6.0}))


def ask(path: Path, **fields: Any) -> list[Chunk]:
    request = Request(
        messages=(ASK,), tools=(WEATHER, CLOCK), max_tokens=300, temperature=0.0, **fields
    )
    return play(Llama(path, LlamaOptions(context=2048)), request)[0]


@pytest.mark.parametrize(("choice", "name"), [("required", ""), (CLOCK, "clock")])
def test_a_call_that_is_demanded_is_opened_by_the_prompt(
    calling: Path, choice: Any, name: str
) -> None:
    chunks = ask(calling, tool_choice=choice)
    (call,) = calls(chunks)
    assert call.name.startswith(name)
    assert (text(chunks), chunks[-1].finish) == ("", "tool")


def test_a_reply_without_a_call_is_text(calling: Path) -> None:
    chunks = ask(calling)
    assert calls(chunks) == ()
    assert chunks[-1].finish in ("stop", "length")


def test_a_model_says_whether_it_takes_tools(calling: Path, tiny: Path) -> None:
    assert Llama(calling).features == {"tools"}
    assert Llama(tiny).features == NO_FEATURES
    assert Llama(calling.with_name("gone.gguf")).features == NO_FEATURES


def test_what_a_model_file_cannot_take_is_refused_by_name(calling: Path, tiny: Path) -> None:
    with pytest.raises(ModelError, match=r"tiny\.gguf cannot be sent tools"):
        ask(tiny)
    chart = Attachment(name="chart.png", media_type="image/png", sha256="0" * 64, size=1)
    message = Message(role="user", content="?", attachments=(chart,))
    with pytest.raises(ModelError, match=r"calling\.gguf cannot be sent images: chart\.png"):
        play(Llama(calling), Request(messages=(message,), read_attachment=lambda _: b"x"))
