"""Messages -> the pieces of a prompt.

What the chat template wrote, and what people and models wrote.

Only the template's own text may hold special tokens. The template is given an unguessable mark for
each message's content, and what it writes is cut at the marks. So `<|im_end|>` in a question is
text and can never end a turn. Of tools and calls the template gets names of harmless characters,
and marks for descriptions, schemas and arguments.

A chat template is a Jinja program that comes with the model file, so it may be hostile. Jinja's
sandbox keeps it away from Python's internals and from files, but does not stop it from looping for
ever or from building a text of many gigabytes: a single comparison or multiplication can run for
hours in C. So a template runs in a bounded child process. That takes about a tenth of a second, so
`TRUSTED` templates, which people have read, run in this process.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from conductor_cli.core.chat import OPEN, Message, Tool
from conductor_cli.core.errors import ModelError
from conductor_cli.core.terminal_text import short_line
from conductor_cli.models.chat_body import INVALID, arguments_object
from conductor_cli.models.llama.tool_calls import form_of
from conductor_cli.models.tool_schemas import api_name, object_schema
from conductor_cli.programs.bounded_child import ChildLimits, ChildStopped, run_child

CHATML: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "<|im_start|>assistant\n"
)
"""The template for a model that has none."""

CONTENTS_ONLY: Final = "{% for message in messages %}{{ message.content }}{% endfor %}"
"""The template of models that were trained on prompts without roles, such as the rehearsal's."""

TRUSTED: Final = frozenset(
    {
        hashlib.sha256(CHATML.encode()).hexdigest(),
        hashlib.sha256(CONTENTS_ONLY.encode()).hexdigest(),
        # Qwen2.5-Coder-Instruct
        "d5495a1e5db0611132a97e46a65dbb64a642a499421228b9c8b93229097fa9a4",
        # Qwen2.5-Instruct, all sizes
        "cd8e9439f0570856fd70470bf8889ebd8b5d1107207f67a5efb46e342330527f",
    }
)
"""The SHA-256 of templates that run in this process."""

SANDBOX: Final = Path(__file__).with_name("template_sandbox.py")

CHILD_LIMITS: Final = ChildLimits(seconds=10, memory=512 << 20, cpu_seconds=2)
"""A slow machine needs half a second of processor time to start the child, and a busy one more time
than that.
"""

# How many results a template keeps. What it writes depends on the roles alone, so they recur
REMEMBERED: Final = 64


class ChatTemplateError(Exception):
    """Why a template cannot be used, or what it says against these messages.

    `stopped` means that it had to be stopped: it will not do better with other messages.
    """

    def __init__(self, message: str, *, stopped: bool = False) -> None:
        super().__init__(message)
        self.stopped = stopped


class ChatTemplate:
    """The template of the model named `owner`.

    `variables` are texts that it may use, such as `bos_token`.
    """

    def __init__(self, owner: str, source: str, variables: Mapping[str, str]) -> None:
        self.owner = owner
        self._source = source
        self._variables = dict(variables)
        self._trusted = hashlib.sha256(source.encode("utf-8", "replace")).hexdigest() in TRUSTED
        self._results: dict[str, str | ChatTemplateError] = {}
        self.tool_form = form_of(source)
        """How its model writes tool calls; None if it can be offered no tools."""

    def render(self, messages: Sequence[Mapping[str, Any]], **more: object) -> str:
        """Return the text for `messages`, up to where the model's turn begins.

        Raises `ChatTemplateError`.
        """
        variables = (
            {"messages": list(messages), "add_generation_prompt": True, "tools": None}
            | self._variables
            | more
        )
        key = json.dumps(variables)
        result = self._results.get(key)
        if result is None:
            result = self._try(variables)
            if len(self._results) >= REMEMBERED:
                self._results.clear()
            # A refusal is kept too: a template without a system turn would be asked again for every
            # prompt. One that was stopped may have been so by a busy machine, and gets another
            # chance.
            if isinstance(result, str) or not result.stopped:
                self._results[key] = result
        if isinstance(result, ChatTemplateError):
            raise result
        return result

    def _try(self, variables: Mapping[str, Any]) -> str | ChatTemplateError:
        try:
            if self._trusted:
                # Jinja is slow to import
                from conductor_cli.models.llama.template_sandbox import render_template

                return render_template(self._source, variables)
            job = json.dumps({"source": self._source, "variables": variables}).encode()
            (result,) = run_child(SANDBOX, job, CHILD_LIMITS)
            return (
                str(result["text"]) if "text" in result else ChatTemplateError(str(result["error"]))
            )
        except ValueError as error:
            return ChatTemplateError(str(error))
        except ChildStopped as error:
            if error.why == "start":
                return ChatTemplateError(f"no process could be started for it: {error}")
            return ChatTemplateError(
                "it took too much time or memory, and was stopped", stopped=True
            )


SECRET: Final = secrets.token_hex(8)  # Part of each mark; nothing that a prompt could hold knows it

MAX_SLICE: Final = 2000
"""The most characters given to the tokenizer at once.

llama.cpp splits text with `std::regex` for many kinds of vocabulary; it calls itself once a
character of an unbroken run, and some 26,000 of them overflow a stack of 8 MiB (llama.cpp issue
27783): the process dies.
"""


class PromptPiece(NamedTuple):
    """Text, whether special tokens that are spelled in it count, and whether a fixed prefix ends
    after it.
    """

    text: str
    control: bool
    cut: bool = False


def render_messages(
    template: ChatTemplate,
    messages: Sequence[Message],
    *,
    thinking: bool,
    cuts: Sequence[int] = (),
    tools: Sequence[Tool] = (),
) -> tuple[PromptPiece, ...]:
    """Return the prompt for `messages`.

    `thinking` false asks a template that supports it to leave thinking out.

    `cuts` are character offsets into the first message, as in a `Request`; `tools` are those that
    are offered.

    A template that refuses or drops a system message, or a second message in a row from one side,
    gets these words in the next user message. Raises `ModelError` of kind `file`.
    """
    try:
        try:
            return _render(template, messages, cuts, thinking=thinking, tools=tools)
        except ChatTemplateError as error:
            # The same words without a system message and without two messages in a row from one
            # side.
            sides = [
                ("assistant" if message.role == "assistant" else "user", message)
                for message in messages
            ]
            folded = tuple(
                Message(
                    role="assistant" if side == "assistant" else "user",
                    content="\n\n".join(message.content for _, message in turn),
                )
                for side, turn in groupby(sides, key=lambda each: each[0])
            )
            calls = any(message.tool_calls or message.role == "tool" for message in messages)
            if error.stopped or calls or folded == tuple(messages):
                raise
            return _render(template, folded, cuts, thinking=thinking, tools=tools)
    except ChatTemplateError as error:
        problem = f"the chat template in {template.owner} cannot be used: {short_line(str(error))}"
        hint = "use another GGUF of this model, or one without a chat template"
        raise ModelError("file", problem, hint=hint) from error


def opens_thinking(prompt: Sequence[PromptPiece]) -> bool:
    """Return whether the prompt's last words open the model's thinking."""
    return bool(prompt) and prompt[-1].control and prompt[-1].text.rstrip().endswith(OPEN)


def split_for_tokenizer(text: str) -> list[str]:
    """`text` in parts short enough for any tokenizer, cut before a word if there is one."""
    parts = list[str]()
    start = 0
    while len(text) - start > MAX_SLICE:
        cut = text.rfind(" ", start + 1, start + MAX_SLICE)
        end = cut if cut > start else start + MAX_SLICE
        parts.append(text[start:end])
        start = end
    return [*parts, text[start:]]


def _render(
    template: ChatTemplate,
    messages: Sequence[Message],
    cuts: Sequence[int],
    *,
    thinking: bool,
    tools: Sequence[Tool],
) -> tuple[PromptPiece, ...]:
    texts = {f"m{SECRET}n{at}e": _content(message) for at, message in enumerate(messages)}
    values: dict[str, str] = {}
    marked = _marked_messages(messages, tuple(texts), values)
    offered = _marked_tools(tools, values) or None
    # Passed only to disable thinking: some templates take the variable itself as a request for more
    # of it.
    more: dict[str, object] = {} if thinking else {"enable_thinking": False}
    text = template.render(marked, tools=offered, **more)
    # Some templates leave out what a model said beside its calls.
    needed = [mark for mark, message in zip(texts, messages, strict=True) if not message.tool_calls]
    lost = next((at for at, mark in enumerate(needed, start=1) if mark not in text), None)
    if lost is not None:
        raise ChatTemplateError(f"it leaves out message {lost}")
    if any(mark not in text for mark in values):
        raise ChatTemplateError("it leaves out a part of the tools")
    # A space before a content is part of the content's first token in every vocabulary. A value is
    # JSON, which a template puts into quotes because it knows only the mark.
    parts = re.split(f'( ?m{SECRET}n[0-9]+e|"?v{SECRET}n[0-9]+e"?)', text)
    first = next(iter(texts), "")
    pieces: list[PromptPiece] = []
    for part in parts:
        if (mark := part.strip('"')) in values:
            pieces += _value_pieces(part, mark, values[mark])
        else:
            pieces += _pieces(part, texts, cuts if part.endswith(first) else ())
    return tuple(piece for piece in pieces if piece.text)


def _content(message: Message) -> str:
    return (
        f"Error: {message.content}"
        if message.role == "tool" and message.is_error
        else message.content
    )


def _marked_messages(
    messages: Sequence[Message], contents: Sequence[str], values: dict[str, str]
) -> list[dict[str, Any]]:
    """Return messages in the form of chat completions, with these marks for their contents.

    The arguments of calls get marks, whose JSON texts are added to `values`.
    """
    marked: list[dict[str, Any]] = []
    names: dict[str, str] = {}  # the tool of each call, by the call's id
    for message, content in zip(messages, contents, strict=True):
        entry: dict[str, Any] = {"role": message.role, "content": content}
        if message.tool_calls:
            entry["content"] = content if message.content else ""
            entry["tool_calls"] = []
        for call in message.tool_calls:
            names[call.id] = api_name(call.name)
            arguments = arguments_object(call.arguments)
            given = {INVALID: call.arguments} if arguments is None else arguments
            function = {"name": names[call.id], "arguments": _mark_value(given, values)}
            entry["tool_calls"].append({"id": call.id, "type": "function", "function": function})
        if message.role == "tool":
            entry |= {
                "tool_call_id": message.tool_call_id,
                "name": names.get(message.tool_call_id, ""),
            }
        marked.append(entry)
    return marked


def _marked_tools(tools: Sequence[Tool], values: dict[str, str]) -> list[dict[str, Any]]:
    """Return tools in the form of chat completions.

    The JSON texts of their marks are added to `values`.
    """
    marked: list[dict[str, Any]] = []
    for tool in tools:
        function = {
            "name": api_name(tool.name),
            "description": _mark_value(tool.description, values),
            "parameters": _mark_value(object_schema(tool.parameters), values),
        }
        marked.append({"type": "function", "function": function})
    return marked


def _mark_value(value: object, values: dict[str, str]) -> str:
    """Return a new mark, which stands for the JSON text of `value`."""
    mark = f"v{SECRET}n{len(values)}e"
    values[mark] = json.dumps(value, ensure_ascii=False)
    return mark


def _value_pieces(part: str, mark: str, value: str) -> list[PromptPiece]:
    """Return a JSON text in the place of its mark, of which the quotes on both sides are a part."""
    before, after = ("", "") if part[:1] == part[-1:] == '"' else part.split(mark)
    return [
        PromptPiece(text=before, control=True),
        PromptPiece(text=value, control=False),
        PromptPiece(text=after, control=True),
    ]


def _pieces(part: str, content: Mapping[str, str], cuts: Sequence[int]) -> list[PromptPiece]:
    """Return a part of the template's text, or a message's content divided where a fixed prefix
    ends.
    """
    mark = part.removeprefix(" ")
    if mark not in content:
        return [PromptPiece(text=part, control=True)]
    space = part.removesuffix(mark)
    text = content[mark]
    ends = sorted({cut for cut in cuts if 0 < cut <= len(text)})
    cut = [
        PromptPiece(text=text[start:end], control=False, cut=True)
        for start, end in pairwise((0, *ends))
    ]
    cut.append(PromptPiece(text=text[ends[-1] if ends else 0 :], control=False))
    return [cut[0]._replace(text=space + cut[0].text), *cut[1:]]
