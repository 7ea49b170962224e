"""Text on its way to a model and back.

Messages, chat templates and their bounds, and the bytes of a reply.
"""

from __future__ import annotations

import resource
import subprocess
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.chat import Message
from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama import prompt as template
from conductor_cli.models.llama.prompt import (
    CHILD_LIMITS,
    ChatTemplate,
    PromptPiece,
    opens_thinking,
    render_messages,
)
from conductor_cli.models.llama.vocabulary import TokenDecoder
from tests import fork_server

NAMES = {"bos_token": "<s>", "eos_token": "</s>"}
USER = Message(role="user", content="U1")
SYSTEM = Message(role="system", content="S")
TALK = (SYSTEM, USER, Message(role="assistant", content="A1"), Message(role="user", content="U2"))

STRICT = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('must "
    "alternate') }}{% endif %}"
    "[{{ message.role }}]{{ message['content'] | trim }}{% endfor %}"
)


def prompt(source: str, messages: tuple[Message, ...] = (USER,), *, thinking: bool = True) -> str:
    rendered = render_messages(ChatTemplate("m.gguf", source, NAMES), messages, thinking=thinking)
    return "".join(piece.text for piece in rendered)


@pytest.fixture
def _forked_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """A template is rendered in a fork, for tests of what it writes."""
    monkeypatch.setattr(subprocess, "Popen", fork_server.ChildOrOther)


def test_message_contents_are_pieces_of_their_own() -> None:
    content = " <s> {{ 7 * 7 }} {% if %} </s>\n"
    prompt = render_messages(
        ChatTemplate("m.gguf", STRICT, NAMES),
        (Message(role="user", content=content),),
        thinking=True,
    )
    assert prompt == (PromptPiece("<s>[user]", control=True), PromptPiece(content, control=False))


@pytest.mark.usefixtures("_forked_children")
def test_a_space_before_a_content_belongs_to_it() -> None:
    template = ChatTemplate("m.gguf", "[I] {{ messages[0].content }} [/I]", {})
    prompt = render_messages(template, (USER,), thinking=True)
    assert [piece.text for piece in prompt] == ["[I]", " U1", " [/I]"]


@pytest.mark.usefixtures("_forked_children")
@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ((SYSTEM, USER), "<s>[user]S\n\nU1"),
        (TALK, "<s>[user]S\n\nU1[assistant]A1[user]U2"),
        ((USER, USER), "<s>[user]U1\n\nU1"),
    ],
)
def test_messages_that_a_template_refuses_move_into_user_messages(
    messages: tuple[Message, ...], expected: str
) -> None:
    assert prompt(STRICT, messages) == expected


@pytest.mark.usefixtures("_forked_children")
def test_a_system_message_that_a_template_drops_is_not_lost() -> None:
    forgets = (
        "{% for message in messages if message.role != 'system' %}[{{ message.content }}]{% "
        "endfor %}"
    )
    assert prompt(forgets, (SYSTEM, USER)) == "[S\n\nU1]"


PARTS = (
    "{% for message in messages %}[{{ message.role }}]"
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
    "{% endif %}{% endfor %}{% endfor %}"
)
"""A template that takes a list of parts for a content, as those of models with images do."""


@pytest.mark.usefixtures("_forked_children")
@pytest.mark.parametrize(
    ("source", "messages", "expected"),
    [
        (PARTS, (SYSTEM, USER), "[system]S[user]U1"),
        ("{{ messages[-1].content[0].text }}", (USER,), "U1"),
        (PARTS, TALK, "[system]S[user]U1[assistant]A1[user]U2"),
        (
            "{% if messages[0].role == 'system' %}{{ raise_exception('none') }}{% endif %}" + PARTS,
            (SYSTEM, USER),
            "[user]S\n\nU1",
        ),
    ],
)
def test_a_template_that_goes_over_the_parts_of_a_content_gets_parts(
    source: str, messages: tuple[Message, ...], expected: str
) -> None:
    assert prompt(source, messages) == expected


@pytest.mark.usefixtures("_forked_children")
def test_a_template_that_takes_texts_and_parts_gets_texts() -> None:
    both = (
        "{% if messages[0].content is string %}{{ messages[0].content }}"
        "{% else %}{{ messages[0].content[0].text }} in parts{% endif %}"
    )
    assert prompt(both) == "U1"


@pytest.mark.usefixtures("_forked_children")
def test_a_template_that_asks_only_whether_tools_are_defined_has_none() -> None:
    """As the one that llama.cpp has for Phi-4-mini."""
    source = (
        "{% if tools is defined %}{% for tool in tools %}<tool>{% endfor %}{% endif %}"
        "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}"
    )
    assert prompt(source, TALK) == "<system>S<user>U1<assistant>A1<user>U2"


@pytest.mark.usefixtures("_forked_children")
def test_thinking_is_mentioned_only_to_disable_it() -> None:
    asks = "{{ messages[0].content }}{{ enable_thinking is defined and enable_thinking == false }}"
    assert [prompt(asks, thinking=True), prompt(asks, thinking=False)] == ["U1False", "U1True"]


@pytest.mark.usefixtures("_forked_children")
@pytest.mark.parametrize("end", ["<think>", "{{ '<think>\\n' }}"])
def test_thinking_that_a_template_opens_is_ended_where_there_is_none(end: str) -> None:
    source = "{{ messages[0].content }}" + end
    assert prompt(source, thinking=True).rstrip() == "U1<think>"
    assert prompt(source, thinking=False) == "U1<think>\n\n</think>\n\n"


@pytest.mark.usefixtures("_forked_children")
@pytest.mark.parametrize(
    ("end", "opens"), [("<think>\n", True), ("<think>", True), ("<think></think>", False)]
)
def test_a_prompt_that_opens_thinking_is_recognized(end: str, opens: bool) -> None:
    source = "{{ messages[0].content }}" + end
    assert (
        opens_thinking(render_messages(ChatTemplate("m.gguf", source, {}), (USER,), thinking=True))
        is opens
    )
    messages = (Message(role="user", content="<think>"),)
    assert not opens_thinking(
        render_messages(
            ChatTemplate("m.gguf", "{{ messages[0].content }}", {}), messages, thinking=True
        )
    )


@pytest.mark.usefixtures("_forked_children")
@pytest.mark.parametrize(
    "source",
    [
        (
            "{%- set ns = namespace(n=0) -%}{%- for m in messages[::-1] -%}{%- set ns.n = ns.n + 1 "
            "-%}{%- endfor -%}"
        ),
        (
            "{% set all = [] %}{% for m in messages %}{% set all = all + [m] %}{% endfor %}{{ "
            "all | "
            "length }}"
        ),
        "{% macro f(text) %}{{ text | trim }}{% endmacro %}{{ f('a ') ~ 'b' }}",
        "{% generation %}{{ 'x'.split('y')[-1].lstrip('\\n') }}{% endgeneration %}",
        (
            "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ "
            "strftime_now('%Y') }}"
        ),
        (
            "{{ {'a': [1, 2]} | tojson(indent=4) }}{{ 'abc'[1:] | upper }}{{ tools is none }}{% "
            "break %}"
        ),
    ],
)
def test_features_that_chat_templates_use_work(source: str) -> None:
    loop = source if "break" not in source else "{% for m in messages %}" + source + "{% endfor %}"
    assert "U1" in prompt(loop + "{{ messages[0].content }}")


GROWING = (
    "{% set n = namespace(s='aa', m=9, l=[1], d={}) %}{% for i in range(99) %}{% set GROW "
    "%}{% endfor %}"
)

HOSTILE = {
    "times": "{{ 'a' * 999999999 }}",
    "doubling": GROWING.replace("GROW", "n.s = n.s ~ n.s"),
    "nesting": GROWING.replace("GROW", "n.l = [n.l, n.l]"),
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "writing": "{% set x %}"
    + "{% for a in range(999) %}" * 2
    + "xxxxxxxx"
    + "{% endfor %}" * 2
    + "{% endset %}",
    "brackets": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "size": "x" * 300_000,
    "include": "{% include '/etc/passwd' %}",
    "attribute": "{{ messages.append(1) }}",
    "comparing": "{% set n = namespace(a=1, b=1) %}{% for i in range(60) %}{% set n.a = "
    "dict(p=n.a, q=n.a) %}"
    "{% set n.b = dict(p=n.b, q=n.b) %}{% endfor %}{{ n.a == n.b }}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_is_stopped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "CHILD_LIMITS", CHILD_LIMITS._replace(cpu_seconds=1))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # The largest child of any test before this one; a fork counts what it shares with this process
    earlier = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    with pytest.raises(ModelError, match=r"the chat template in m\.gguf cannot be used: ."):
        prompt(HOSTILE[name] + "{{ messages[0].content }}", TALK)
    own_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert own_peak - before < 100_000  # kilobytes
    assert largest < max(2 * CHILD_LIMITS.memory >> 10, earlier, own_peak) + 100_000


def test_the_child_process_gets_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, str]] = []
    start = subprocess.Popen

    def recorded(*arguments: Any, **options: Any) -> Any:
        given.append(options["env"])
        return start(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", recorded)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert prompt(STRICT) == "<s>[user]U1"
    assert ["OPENAI_API_KEY" in environ for environ in given] == [False]


def test_a_template_cannot_reach_into_the_process() -> None:
    for way in (
        "''.__class__",
        "messages.__class__",
        "raise_exception.__globals__",
        "range.__self__",
    ):
        with suppress(ModelError):
            assert prompt("{{ " + way + " }}{{ messages[0].content }}") == "U1"
    with pytest.raises(ModelError, match="unsafe"):
        prompt("{{ ''.__class__.__mro__ }}{{ messages[0].content }}")


@given(
    st.text(alphabet="ab \n字", max_size=50).flatmap(
        lambda unit: st.integers(1, 400).map(lambda times: unit * times)
    )
)
def test_parts_for_the_tokenizer_are_short_and_complete(text: str) -> None:
    parts = template.split_for_tokenizer(text)
    assert "".join(parts) == text
    assert max(map(len, parts)) <= template.MAX_SLICE


def test_parts_for_the_tokenizer_begin_before_a_word() -> None:
    assert {part[0] for part in template.split_for_tokenizer("word " * 2000)[1:]} == {" "}


TEXTS = st.text(alphabet="ab<>/é😀 \n", max_size=30)


def decoded(
    content: bytes, cuts: list[int], stop: tuple[str, ...], thinking: bool | None
) -> tuple[str, str, bool]:
    """Text, thinking and whether it stopped, for bytes that come in these pieces."""
    reply = TokenDecoder(stop=stop, thinking=thinking)
    chunks = []
    start = 0
    for cut in sorted({cut % (len(content) + 1) for cut in cuts} | {len(content)}):
        chunks.append(reply.feed(content[start:cut]))
        start = cut
    chunks.append(reply.end())
    return (
        "".join(chunk.text for chunk in chunks),
        "".join(chunk.thinking for chunk in chunks),
        reply.stopped,
    )


@given(TEXTS, st.lists(st.integers(0, 200), max_size=9), st.lists(TEXTS.filter(bool), max_size=2))
def test_the_division_of_bytes_changes_nothing(text: str, cuts: list[int], stop: list[str]) -> None:
    text_pieces, _, stopped = decoded(text.encode(), cuts, tuple(stop), None)
    ends = [text.index(mark) for mark in stop if mark in text]
    assert stopped is bool(ends)
    assert text.startswith(text_pieces)
    assert text_pieces == decoded(text.encode(), [], tuple(stop), None)[0] or stopped
    assert len(text_pieces) <= min([*ends, len(text)]) or len(ends) > 1


def test_the_first_of_two_stop_strings_to_come_ends_the_text() -> None:
    assert decoded(b"abcd", list(range(5)), ("bcde", "c"), None) == ("ab", "", True)
    assert decoded(b"abcd", [], ("d", "b"), None) == ("a", "", True)


@pytest.mark.parametrize(
    ("reply", "text", "thinking"),
    [
        (
            (
                "<|channel|>analysis<|message|>They ask.<|end|><|start|>assistant<|channel|>final"
                "<|message|>It is 42."
            ),
            "It is 42.",
            "They ask.",
        ),
        (
            (
                "<|channel|>analysis<|message|>a<|start|>assistant<|channel|>analysis<|message|>b"
                "<|channel|>final <|constrain|>json<|message|>{}<|return|>"
            ),
            "{}",
            "a\n\nb",
        ),
        (
            (
                "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>final"
                "<|message|>a < b <|"
            ),
            "I look.\n\na < b <|",
            "",
        ),
        (" to=functions.f<|channel|>commentary json<|message|>{}<|call|>", "", "{}"),
        ("Without a header", "Without a header", ""),
        ("to", "to", ""),
        ("<b>", "<b>", ""),
        ("<|channel|>" + "a" * 300, "a" * 300, ""),
        ("<|channel|>" * 300, "", ""),
        ("<|channel|>anal", "", ""),
        ("<|channel|>analysis<|message|>cut o", "", "cut o"),
    ],
)
@pytest.mark.parametrize("length", [1, 3, 1000])
def test_the_channels_of_a_reply_are_its_thinking_and_its_answer(
    reply: str, text: str, thinking: str, length: int
) -> None:
    decoder = TokenDecoder(thinking=False, channels=True)
    pieces = [reply[start : start + length] for start in range(0, len(reply), length)]
    chunks = [*(decoder.feed(piece.encode()) for piece in pieces), decoder.end()]
    read = "".join(chunk.text for chunk in chunks), "".join(chunk.thinking for chunk in chunks)
    assert read == (text, thinking)
    if length == 1:
        assert bool(decoder.thinking_tokens) == bool(thinking)


def test_stop_strings_do_not_apply_to_thinking() -> None:
    assert decoded(b"<think>a\nb</think>\nc\nd", [8, 12], ("\n",), False) == ("c", "a\nb", True)
    assert decoded(b"a\nb</think>c", [], (), True) == ("c", "a\nb", False)
    assert decoded(b"<think>a", [], (), None) == ("<think>a", "", False)


def test_an_incomplete_character_at_the_end_is_replaced() -> None:
    assert decoded("aé".encode()[:-1], [], (), None)[0] == "a"


def test_an_empty_stop_string_stops_nothing() -> None:
    assert decoded(b"ab", [1], ("",), None) == ("ab", "", False)
