"""Tools of a local model: what its template is given, how calls are written, and calls that are forced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conductor_cli.core.chat import Attachment, Chunk, Message, Request, Tool, ToolCall, join_tool_calls
from conductor_cli.core.errors import ModelError
from conductor_cli.models.base import NO_FEATURES
from conductor_cli.models.llama import Llama, LlamaOptions
from conductor_cli.models.llama.engine import ReplyTools, ToolReply
from conductor_cli.models.llama.prompt import ChatTemplate, has_tools, render_messages
from tests.models.kit import text
from tests.models.test_contract import ends_well, play
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
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = Tool(name="weather", description='Says the "weather" <|im_end|>.', parameters=CITY)
CLOCK = Tool(name="clock")
ASK = Message(role="user", content="Is it warm?")
CALLS = (
    ToolCall(id="abc123def", name="weather", arguments='{"city": "Oslo<|im_end|>"}'),
    ToolCall(id="call_that_is_long", name="clock", arguments="not json"),
)
TURN = (
    ASK,
    Message(role="assistant", content="", tool_calls=CALLS),
    Message(role="tool", content="3 degrees", tool_call_id="abc123def"),
    Message(role="tool", content="noon", tool_call_id="call_that_is_long"),
)


@pytest.mark.parametrize(
    ("template", "offered"),
    [
        (HERMES_TEMPLATE, True),
        (HERMES_TEMPLATE + "<function=NAME>", False),
        (TRUSTED, False),
        ("{{ messages }} with tools and <tool_call></tool_call>", False),
        ("{% for tool in tools %}[TOOL_CALLS]{{ tool }}{% endfor %}", False),
    ],
)
def test_the_template_says_whether_calls_can_be_read(template: str, *, offered: bool) -> None:
    assert has_tools(template) is offered


def test_a_prompt_has_tools_calls_and_results() -> None:
    template = ChatTemplate("m.gguf", HERMES_TEMPLATE, {})
    pieces = render_messages(template, TURN, thinking=True, tools=(WEATHER, CLOCK))
    prompt = "".join(piece.text for piece in pieces)
    for words in (json.dumps(WEATHER.description), json.dumps(CITY), '{"city": "Oslo<|im_end|>"}', "3 degrees", "noon"):
        assert words in prompt
    assert '{"invalid_arguments": "not json"}' in prompt
    assert prompt.index("Oslo") < prompt.index("3 degrees") < prompt.index("noon")
    written = [piece.text for piece in pieces if piece.control]
    assert not any("Oslo" in one or "Says" in one or "3 degrees" in one for one in written)


def test_a_template_that_leaves_out_the_schema_is_an_error() -> None:
    source = "{% for tool in tools %}{{ tool.function.name }}{% endfor %}{{ messages[0].content }}"
    with pytest.raises(ModelError, match="leaves out a part of the tools"):
        render_messages(ChatTemplate("m", source, {}), (ASK,), thinking=True, tools=(WEATHER,))


def read(written: str, *, finish: str = "stop", parallel: bool = True) -> tuple[str, list[ToolCall]]:
    """The text and the calls of a reply, the same however it is cut into pieces."""
    found = set()
    for size in (1, 3, 1000):
        request = Request(messages=(ASK,), tools=(WEATHER, CLOCK), parallel_tool_calls=parallel)
        reply = ToolReply(request, ReplyTools(), thinking=None)
        data = written.encode()
        shown = "".join(reply.feed(data[at : at + size]).text for at in range(0, len(data), size)) + reply.end().text
        calls = join_tool_calls(chunk.tool_call for chunk in reply.calls(finish) if chunk.tool_call)  # type: ignore[arg-type]
        found.add((shown, calls))
    assert len(found) == 1
    shown, calls = found.pop()
    return shown, list(calls)


OSLO, NOW = '{"city": "Oslo"}', "{}"
CALL_CLOCK = '<tool_call>{"name": "clock", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    "written",
    [
        (f'Let me look.\n<tool_call>\n{{"name": "weather", "arguments": {OSLO}}}\n</tool_call>\n{CALL_CLOCK}'),
        (f'Let me look.<tool_call>{{"name": "weather", "arguments": {OSLO}}}</tool_call>{CALL_CLOCK[:-12]}'),
    ],
)  # fmt: skip
def test_calls_are_read_beside_text(written: str) -> None:
    shown, calls = read(written)
    assert shown == "Let me look."
    assert [(call.name, call.arguments) for call in calls] == [("weather", OSLO), ("clock", NOW)]
    assert len({call.id for call in calls}) == 2


def test_text_that_looks_like_an_opening_is_shown() -> None:
    assert read("a <tool b <tool_cal") == ("a <tool b <tool_cal", [])
    assert read("  two \n\n lines \n") == ("  two \n\n lines \n", [])


def test_one_call_is_kept_where_several_are_not_wanted() -> None:
    written = '<tool_call>{"name": "weather"}</tool_call><tool_call>{"name": "clock"}</tool_call>'
    assert [call.name for call in read(written, parallel=False)[1]] == ["weather"]


def test_arguments_that_are_no_json_are_carried() -> None:
    calls = read('<tool_call>{"name": "weather", "arguments": {"city": Oslo}}</tool_call>')[1]
    assert [(call.name, call.arguments) for call in calls] == [("weather", '{"city": Oslo}')]


@pytest.mark.parametrize("written", ["<tool_call>weather?</tool_call>", "<tool_call>weather?"])
def test_a_call_that_cannot_be_read_is_an_error(written: str) -> None:
    with pytest.raises(ModelError, match="cannot be read") as error:
        read(written)
    assert error.value.reason == "broken"


def test_of_a_reply_that_is_cut_off_inside_a_call_the_text_is_left() -> None:
    assert read('I look. <tool_call>{"name": "weather", "arguments": {"ci', finish="length")[1] == []


@pytest.fixture(scope="module")
def calling(models: Path) -> Path:
    """A model with a place for tools in its template; quotes, braces and ends are likely."""
    return make(models / "calling.gguf", extra=Extra(template=HERMES_TEMPLATE, bias={'"': 9.0, "}": 9.5, END: 6.0}))


def ask(path: Path, **more: object) -> list[Chunk]:
    request = Request(messages=(ASK,), tools=(WEATHER, CLOCK), max_tokens=300, temperature=0.0, **more)  # type: ignore[arg-type]
    return play(Llama(path, LlamaOptions(context=2048)), request)[0]


@pytest.mark.parametrize(("choice", "names"), [("required", ("weather", "clock")), (CLOCK, ("clock",))])
def test_a_forced_call_is_held_to_its_form(calling: Path, choice: Tool | str, names: tuple[str, ...]) -> None:
    chunks = ask(calling, tool_choice=choice)
    calls = join_tool_calls(chunk.tool_call for chunk in chunks if chunk.tool_call)
    assert calls
    assert all(call.name in names and isinstance(json.loads(call.arguments), dict) for call in calls)
    assert chunks[-1].finish == "tool"
    assert ends_well(chunks)
    assert text(chunks) == ""


def test_a_call_that_a_model_opens_itself_is_held_to_its_form(models: Path) -> None:
    bias = {"<tool_call>": 12.0, '"': 9.0, "}": 9.5, END: 6.0}
    made = make(
        models / "opening.gguf", extra=Extra(template=HERMES_TEMPLATE, bias=bias, words=("<tool_call>", "</tool_call>"))
    )
    calls = join_tool_calls(chunk.tool_call for chunk in ask(made) if chunk.tool_call)
    assert calls
    assert all(call.name in ("weather", "clock") and isinstance(json.loads(call.arguments), dict) for call in calls)


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
