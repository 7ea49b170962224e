"""Messages -> the pieces of a prompt: what the chat template wrote, and what people and models wrote.

Only the template's own text may hold special tokens. The template is given an unguessable mark for each message's
content, and what it writes is cut at the marks. So `<|im_end|>` in a question is text and can never end a turn. Of
tools and calls the template gets names of harmless characters, and marks for descriptions, schemas and arguments.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Final, NamedTuple

from conductor_cli.core.chat import Message, Tool
from conductor_cli.core.errors import ModelError
from conductor_cli.core.thinking import OPEN
from conductor_cli.models.llama.gguf import short_line
from conductor_cli.models.llama.template import ChatTemplate, ChatTemplateError
from conductor_cli.models.llama.template_tools import mark_tools, one_call_each_turn

SECRET: Final = secrets.token_hex(8)
"""Part of each mark; nothing that a prompt could hold knows it."""

MAX_SLICE: Final = 2000
"""The most characters given to the tokenizer at once.

llama.cpp splits text with `std::regex` for many kinds of vocabulary; it calls itself once a character of an unbroken
run, and some 26,000 of them overflow a stack of 8 MiB (llama.cpp issue 27783): the process dies.
"""


class Piece(NamedTuple):
    """Text, whether special tokens that are spelled in it count, and whether a fixed prefix ends after it."""

    text: str
    control: bool
    cut: bool = False


def render_prompt(
    template: ChatTemplate,
    messages: Sequence[Message],
    *,
    thinking: bool,
    cuts: Sequence[int] = (),
    tools: Sequence[Tool] = (),
) -> tuple[Piece, ...]:
    """The prompt for `messages`. `thinking` false asks a template that supports it to leave thinking out.

    `cuts` are character offsets into the first message, as in a `Request`.

    A template that refuses or drops a system message, or a second message in a row from one side, gets these words in
    the next user message. Raises `ModelError` of kind `file`.
    """
    form = template.tool_format
    if form is not None and form.one_each_turn:
        messages = tuple(one_call_each_turn(messages))
    try:
        try:
            return _render(template, messages, cuts, thinking=thinking, tools=tools)
        except ChatTemplateError as error:
            folded = _fold_messages(messages)
            with_calls = any(message.tool_calls or message.role == "tool" for message in messages)
            if error.stopped or with_calls or folded == tuple(messages):
                raise
            return _render(template, folded, cuts, thinking=thinking, tools=tools)
    except ChatTemplateError as error:
        raise ModelError(
            "file",
            f"the chat template in {template.owner} cannot be used: {short_line(str(error))}",
            hint="use another GGUF of this model, or one without a chat template",
        ) from error


def opens_thinking(prompt: Sequence[Piece]) -> bool:
    """Whether the prompt's last words open the model's thinking."""
    return bool(prompt) and prompt[-1].control and prompt[-1].text.rstrip().endswith(OPEN)


def split_for_tokenizer(text: str) -> list[str]:
    """`text` in parts short enough for any tokenizer, cut before a word if there is one."""
    parts, start = [], 0
    while len(text) - start > MAX_SLICE:
        cut = text.rfind(" ", start + 1, start + MAX_SLICE)
        end = cut if cut > start else start + MAX_SLICE
        parts.append(text[start:end])
        start = end
    return [*parts, text[start:]]


def _render(
    template: ChatTemplate, messages: Sequence[Message], cuts: Sequence[int], *, thinking: bool, tools: Sequence[Tool]
) -> tuple[Piece, ...]:
    texts = {f"m{SECRET}n{at}e": message.content for at, message in enumerate(messages)}
    marked, values = mark_tools(messages, tuple(texts), tools, SECRET)
    # Passed only to disable thinking: some templates take the variable itself as a request for more of it.
    more: dict[str, object] = {} if thinking else {"enable_thinking": False}
    text = template.render(marked.messages, **more, **({"tools": marked.tools} if tools else {}))
    # Templates leave out what a model says beside its calls.
    needed = [mark for mark, message in zip(texts, messages, strict=True) if not message.tool_calls]
    lost = next((at for at, mark in enumerate(needed, start=1) if mark not in text), None)
    if lost is not None:
        raise ChatTemplateError(f"it leaves out message {lost}")
    if any(mark not in text for mark in values):
        raise ChatTemplateError("it leaves out a part of the tools")
    # A space before a content is part of the content's first token in every vocabulary. A value is JSON, which a
    # template puts into quotes because it knows only the mark.
    parts = re.split(f'( ?m{SECRET}n[0-9]+e|"?v{SECRET}n[0-9]+e"?)', text)
    first = next(iter(texts), "")
    found = (piece for part in parts for piece in _pieces(part, texts, values, cuts if part.endswith(first) else ()))
    return tuple(piece for piece in found if piece.text)


def _pieces(part: str, content: Mapping[str, str], values: Mapping[str, str], cuts: Sequence[int]) -> list[Piece]:
    """A part of the template's text, a value, or a message's content divided where a fixed prefix ends."""
    if (value := part.strip('"')) in values:
        quoted = part[:1] == part[-1:] == '"'
        before, after = ("", "") if quoted else part.split(value)
        return [
            Piece(text=before, control=True), Piece(text=values[value], control=False), Piece(text=after, control=True)
        ]  # fmt: skip
    mark = part.removeprefix(" ")
    if mark not in content:
        return [Piece(text=part, control=True)]
    space, text = part.removesuffix(mark), content[mark]
    ends = sorted({cut for cut in cuts if 0 < cut <= len(text)})
    cut = [Piece(text=text[start:end], control=False, cut=True) for start, end in pairwise((0, *ends))]
    cut.append(Piece(text=text[ends[-1] if ends else 0 :], control=False))
    return [cut[0]._replace(text=space + cut[0].text), *cut[1:]]


def _fold_messages(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The same words without a system message and without two messages in a row from one side."""
    sides = [("assistant" if message.role == "assistant" else "user", message.content) for message in messages]
    return tuple(
        Message(role="assistant" if role == "assistant" else "user", content="\n\n".join(text for _, text in turn))
        for role, turn in groupby(sides, key=lambda side: side[0])
    )
