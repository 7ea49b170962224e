"""Messages -> the pieces of a prompt: what the chat template wrote, and what people and models wrote.

Only the template's own text may hold special tokens. The template is given an unguessable mark for each message's
content, and what it writes is cut at the marks. So `<|im_end|>` in a question is text and can never end a turn.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Final, NamedTuple

from conductor_cli.core.chat import Message
from conductor_cli.core.errors import ModelError
from conductor_cli.core.thinking import OPEN
from conductor_cli.models.llama.gguf import short_line
from conductor_cli.models.llama.template import ChatTemplate, ChatTemplateError

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
    template: ChatTemplate, messages: Sequence[Message], *, thinking: bool, cuts: Sequence[int] = ()
) -> tuple[Piece, ...]:
    """The prompt for `messages`. `thinking` false asks a template that supports it to leave thinking out.

    `cuts` are character offsets into the first message, as in a `Request`.

    A template that refuses or drops a system message, or a second message in a row from one side, gets these words in
    the next user message. Raises `ModelError` of kind `file`.
    """
    try:
        try:
            return _render(template, messages, cuts, thinking=thinking)
        except ChatTemplateError as error:
            folded = _fold_messages(messages)
            if error.stopped or folded == tuple(messages):
                raise
            return _render(template, folded, cuts, thinking=thinking)
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
    template: ChatTemplate, messages: Sequence[Message], cuts: Sequence[int], *, thinking: bool
) -> tuple[Piece, ...]:
    content = {f"m{SECRET}n{at}e": message.content for at, message in enumerate(messages)}
    marked = [{"role": message.role, "content": mark} for message, mark in zip(messages, content, strict=True)]
    # Passed only to disable thinking: some templates take the variable itself as a request for more of it.
    text = template.render(marked, **({} if thinking else {"enable_thinking": False}))
    lost = next((at for at, mark in enumerate(content, start=1) if mark not in text), None)
    if lost is not None:
        raise ChatTemplateError(f"it leaves out message {lost}")
    # A space before a content is part of the content's first token in every vocabulary.
    parts = re.split(f"( ?m{SECRET}n[0-9]+e)", text)
    first = next(iter(content), "")
    found = (piece for part in parts for piece in _pieces(part, content, cuts if part.endswith(first) else ()))
    return tuple(piece for piece in found if piece.text)


def _pieces(part: str, content: Mapping[str, str], cuts: Sequence[int]) -> list[Piece]:
    """A part of the template's text, or a message's content divided where a fixed prefix ends."""
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
