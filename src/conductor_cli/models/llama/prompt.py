"""Messages -> the pieces of a prompt: what the chat template wrote, and what people and models wrote.

Only the template's own text may hold special tokens. The template is given an unguessable mark for each message's
content; what it writes is cut at the marks. So `<|im_end|>` in a question is text and can never end a turn.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from conductor_cli.core.chat import Message
from conductor_cli.core.errors import ModelError
from conductor_cli.core.thinking import OPEN
from conductor_cli.models.llama.gguf import one_line

if TYPE_CHECKING:
    from conductor_cli.models.llama.template import Template

CHATML: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
)
"""The template for a model that has none."""

SLICE: Final = 2000
"""The most characters given to the tokenizer at once.

llama.cpp splits text with `std::regex` for many kinds of vocabulary; it calls itself once a character of an unbroken
run, and some 26,000 of them overflow a stack of 8 MiB (llama.cpp issue 27783): the process dies.
"""


class Piece(NamedTuple):
    """Text, whether special tokens that are spelled in it count, and whether a fixed prefix ends behind it."""

    text: str
    control: bool
    cut: bool = False


def open_template(owner: str, source: str | None, names: Mapping[str, str]) -> Template:
    """The template of the model named `owner`. Raises `ModelError` of kind `file` for one that cannot be used."""
    from conductor_cli.models.llama.template import Template, TemplateFault

    try:
        return Template(owner, CHATML if source is None else source, names)
    except TemplateFault as fault:
        raise _unusable(owner, fault) from fault


def pieces(
    template: Template, messages: Sequence[Message], *, thinking: bool, cuts: Sequence[int] = ()
) -> tuple[Piece, ...]:
    """The prompt for `messages`. `thinking` false asks a template that knows the word to leave thinking out.

    `cuts` are character offsets into the first message, as in a `Request`.

    A template that refuses or forgets the system's words, or a second turn of one side, gets them in the next turn of
    the user. Raises `ModelError` of kind `file`.
    """
    from conductor_cli.models.llama.template import TemplateFault

    try:
        return _render(template, messages, cuts, thinking=thinking)
    except TemplateFault as fault:
        folded = _folded(messages)
        if folded == tuple(messages):
            raise _unusable(template.owner, fault) from fault
    try:
        return _render(template, folded, cuts, thinking=thinking)
    except TemplateFault as fault:
        raise _unusable(template.owner, fault) from fault


def opens_thinking(prompt: Sequence[Piece]) -> bool:
    """Whether the prompt's last words open the model's thinking."""
    return bool(prompt) and prompt[-1].control and prompt[-1].text.rstrip().endswith(OPEN)


def slices(text: str) -> list[str]:
    """`text` in parts short enough for any tokenizer, cut before a word where there is one."""
    parts, start = [], 0
    while len(text) - start > SLICE:
        cut = text.rfind(" ", start + 1, start + SLICE)
        end = cut if cut > start else start + SLICE
        parts.append(text[start:end])
        start = end
    return [*parts, text[start:]]


def _render(
    template: Template, messages: Sequence[Message], cuts: Sequence[int], *, thinking: bool
) -> tuple[Piece, ...]:
    from conductor_cli.models.llama.template import TemplateFault

    secret = secrets.token_hex(8)
    content = {f"m{secret}n{at}e": message.content for at, message in enumerate(messages)}
    shown = [{"role": message.role, "content": mark} for message, mark in zip(messages, content, strict=True)]
    # Said only when it is to be left out: some templates take the word as a wish for more of it.
    text = template.render(shown, **({} if thinking else {"enable_thinking": False}))
    lost = [mark for mark in content if mark not in text]
    if lost:
        raise TemplateFault(f"it leaves out message {list(content).index(lost[0]) + 1}")
    # A space before a content is part of the content's first token in every vocabulary.
    parts = re.split(f"( ?m{secret}n[0-9]+e)", text)
    first = next(iter(content), "")
    found = (piece for part in parts for piece in _pieces(part, content, cuts if part.endswith(first) else ()))
    return tuple(piece for piece in found if piece.text)


def _pieces(part: str, content: Mapping[str, str], cuts: Sequence[int]) -> list[Piece]:
    """A part of the template's text, or a message's content, parted where a fixed prefix ends."""
    mark = part.removeprefix(" ")
    if mark not in content:
        return [Piece(text=part, control=True)]
    space, text = part.removesuffix(mark), content[mark]
    ends = sorted({cut for cut in cuts if 0 < cut <= len(text)})
    cut = [Piece(text=text[start:end], control=False, cut=True) for start, end in pairwise((0, *ends))]
    cut.append(Piece(text=text[ends[-1] if ends else 0 :], control=False))
    return [cut[0]._replace(text=space + cut[0].text), *cut[1:]]


def _folded(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The same words without a system turn and without two turns of one side in a row."""
    sides = [("assistant" if message.role == "assistant" else "user", message.content) for message in messages]
    turns = groupby(sides, key=lambda side: side[0])
    return tuple(
        Message(role="assistant" if role == "assistant" else "user", content="\n\n".join(said for _, said in turn))
        for role, turn in turns
    )


def _unusable(owner: str, fault: Exception) -> ModelError:
    return ModelError(
        "file",
        f"the chat template in {owner} cannot be used: {one_line(str(fault))}",
        hint="use another GGUF of this model, or one without a chat template",
    )
