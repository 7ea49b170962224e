"""Messages -> the pieces of a prompt: what the chat template wrote, and what people and models did.

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
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from conductor_cli.core.chat import CLOSE, OPEN, Message, Tool
from conductor_cli.core.errors import ModelError
from conductor_cli.core.terminal_text import short_line
from conductor_cli.models.base import has_tool_calls
from conductor_cli.models.chat_body import INVALID, arguments_object
from conductor_cli.models.llama.channels import OPENS_ANSWER, has_channels, opens_message
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
"""A slow machine takes half a second of processor time to start the child, a busy one longer."""

# How many results a template keeps. What it writes depends on the roles alone, so they recur
MAX_KEPT_RESULTS: Final = 64


_PART_TEXT: Final = re.compile(r"""\.text\b|\[\s*['"]text['"]\s*\]""")
"""What a template has that goes over the parts of a content."""


_TOOLS_DEFINED: Final = re.compile(r"\btools\s+is\s+defined\b")
"""What a template has that may take tools for a list wherever the variable is there."""


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
        self.has_channels = has_channels(source)
        """Whether its model writes its thinking and its answer in channels."""
        self.may_want_parts = _PART_TEXT.search(source) is not None
        """Whether it may take no content but a list of parts."""
        self._may_want_no_variable = _TOOLS_DEFINED.search(source) is not None

    def render(self, messages: Sequence[Mapping[str, Any]], **options: object) -> str:
        """Return the text for `messages`, up to where the model's turn begins.

        `options` are further variables of the template. Raises `ChatTemplateError`.
        """
        variables = {
            "messages": list(messages),
            "add_generation_prompt": True,
            "tools": None,
            **self._variables,
            **options,
        }
        key = json.dumps(variables)
        result = self._results.get(key)
        if result is None:
            result = self._try(variables)
            is_refused = isinstance(result, ChatTemplateError) and not result.stopped
            if is_refused and self._may_want_no_variable and variables["tools"] is None:
                del variables["tools"]
                result = self._try(variables)
            if len(self._results) >= MAX_KEPT_RESULTS:
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
            if "text" not in result:
                return ChatTemplateError(str(result["error"]))
            return str(result["text"])
        except ValueError as error:
            return ChatTemplateError(str(error))
        except ChildStopped as error:
            if error.why == "start":
                return ChatTemplateError(f"no process could be started for it: {error}")
            problem = "it took too much time or memory, and was stopped"
            return ChatTemplateError(problem, stopped=True)


SECRET: Final = secrets.token_hex(8)  # Part of each mark; nothing that a prompt could hold knows it

MAX_SLICE: Final = 2000
"""The most characters given to the tokenizer at once.

llama.cpp splits text with `std::regex` for many kinds of vocabulary; it calls itself once a
character of an unbroken run, and some 26,000 of them overflow a stack of 8 MiB (llama.cpp issue
27783): the process dies.
"""


class PromptPiece(NamedTuple):
    """A part of a prompt.

    `control` says whether special tokens that are spelled in the text count, `cut` whether a fixed
    prefix ends after it.
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

    `thinking` false asks a template that supports it to leave thinking out, ends thinking that it
    opens nevertheless, as DeepSeek-R1's does, and opens the channel of the answer where there are
    channels, as those of gpt-oss. `cuts` are character offsets into the first
    message, as in a `Request`; `tools` are those that are offered.

    A template that refuses or drops a system message, or a second message in a row from one side,
    gets these words in the next user message; one that goes over the parts of a content gets each
    content as a list of one part. Raises `ModelError` of kind `file`.
    """
    problem = ChatTemplateError("it takes no messages")
    for form in _forms(template, messages):
        try:
            return _render(template, form, cuts, thinking=thinking, tools=tools)
        except ChatTemplateError as error:
            problem = error
            if error.stopped:
                break
    message = f"the chat template in {template.owner} cannot be used: {short_line(str(problem))}"
    hint = "use another GGUF of this model, or one without a chat template"
    raise ModelError("file", message, hint=hint) from problem


class _Form(NamedTuple):
    """Messages, and whether a template gets their contents as lists of parts."""

    messages: Sequence[Message]
    in_parts: bool


def _forms(template: ChatTemplate, messages: Sequence[Message]) -> Iterator[_Form]:
    """Yield the forms in which a template may take messages, the usual one first."""
    yield from _forms_of_content(template, messages)
    folded = _fold_turns(messages)
    if not has_tool_calls(messages) and folded != list(messages):
        yield from _forms_of_content(template, folded)


def _forms_of_content(template: ChatTemplate, messages: Sequence[Message]) -> Iterator[_Form]:
    yield _Form(messages, in_parts=False)
    if template.may_want_parts:
        yield _Form(messages, in_parts=True)


def _fold_turns(messages: Sequence[Message]) -> list[Message]:
    """Return the same words without a system message, and never two messages in a row from a side.

    A system message becomes a part of the user's.
    """
    folded = []
    for is_answer, turn in groupby(messages, key=lambda message: message.role == "assistant"):
        content = "\n\n".join(message.content for message in turn)
        if is_answer:
            folded.append(Message(role="assistant", content=content))
        else:
            folded.append(Message(role="user", content=content))
    return folded


def opens_thinking(prompt: Sequence[PromptPiece]) -> bool:
    """Return whether the prompt's last words open the model's thinking."""
    return bool(prompt) and prompt[-1].control and prompt[-1].text.rstrip().endswith(OPEN)


def split_for_tokenizer(text: str) -> list[str]:
    """Return a text in parts short enough for any tokenizer, cut before a word if there is one."""
    parts = list[str]()
    start = 0
    while len(text) - start > MAX_SLICE:
        end = text.rfind(" ", start + 1, start + MAX_SLICE)
        if end < 0:
            end = start + MAX_SLICE
        parts.append(text[start:end])
        start = end
    return [*parts, text[start:]]


def _render(
    template: ChatTemplate,
    form: _Form,
    cuts: Sequence[int],
    *,
    thinking: bool,
    tools: Sequence[Tool],
) -> tuple[PromptPiece, ...]:
    messages = form.messages
    contents = {_content_mark(number): _content(message) for number, message in enumerate(messages)}
    values: dict[str, str] = {}
    marked = _marked_messages(messages, tuple(contents), values)
    if form.in_parts:
        for entry in marked:
            entry["content"] = [{"type": "text", "text": entry["content"]}]
    options: dict[str, object] = {"tools": _marked_tools(tools, values) or None}
    if not thinking:
        # Passed only to disable thinking: some templates take the variable itself as a request for
        # more of it.
        options["enable_thinking"] = False
    text = template.render(marked, **options)
    _check_nothing_is_lost(text, messages, values)
    # A space before a content is part of the content's first token in every vocabulary. A value is
    # JSON, which a template puts into quotes because it knows only the mark.
    parts = re.split(f'( ?m{SECRET}n[0-9]+e|"?v{SECRET}n[0-9]+e"?)', text)
    pieces: list[PromptPiece] = []
    for part in parts:
        value_mark = part.strip('"')
        content_mark = part.removeprefix(" ")
        if value_mark in values:
            pieces += _value_pieces(part, value_mark, values[value_mark])
        elif content_mark == _content_mark(0):
            pieces += _content_pieces(part, content_mark, contents[content_mark], cuts)
        elif content_mark in contents:
            pieces += _content_pieces(part, content_mark, contents[content_mark], ())
        else:
            pieces.append(PromptPiece(text=part, control=True))
    written = tuple(piece for piece in pieces if piece.text)
    if not thinking and opens_thinking(written):
        written = (*written, _end_of_thinking(written[-1].text))
    if not thinking and template.has_channels and opens_message(written[-1].text):
        written = (*written, PromptPiece(text=OPENS_ANSWER, control=True))
    return written


def _end_of_thinking(opening: str) -> PromptPiece:
    """Return what ends thinking that has no words, after the text that opens it."""
    text = f"\n{CLOSE}\n\n"
    if not opening.endswith("\n"):
        text = f"\n{text}"
    return PromptPiece(text=text, control=True)


def _content_mark(number: int) -> str:
    """Return what stands for the content of a message of this number, counted from 0."""
    return f"m{SECRET}n{number}e"


def _content(message: Message) -> str:
    if message.role == "tool" and message.is_error:
        return f"Error: {message.content}"
    return message.content


def _check_nothing_is_lost(
    text: str, messages: Sequence[Message], values: Mapping[str, str]
) -> None:
    """Raise `ChatTemplateError` if a mark is not in the text of a template."""
    needed = 0
    for number, message in enumerate(messages):
        if message.tool_calls:  # some templates leave out what a model said beside its calls
            continue
        needed += 1
        if _content_mark(number) not in text:
            raise ChatTemplateError(f"it leaves out message {needed}")
    if any(mark not in text for mark in values):
        raise ChatTemplateError("it leaves out a part of the tools")


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
            if arguments is None:
                arguments = {INVALID: call.arguments}
            function = {"name": names[call.id], "arguments": _mark_value(arguments, values)}
            entry["tool_calls"].append({"id": call.id, "type": "function", "function": function})
        if message.role == "tool":
            entry["tool_call_id"] = message.tool_call_id
            entry["name"] = names.get(message.tool_call_id, "")
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
    before, after = part.split(mark)
    if before == '"' and after == '"':
        return [PromptPiece(text=value, control=False)]
    return [
        PromptPiece(text=before, control=True),
        PromptPiece(text=value, control=False),
        PromptPiece(text=after, control=True),
    ]


def _content_pieces(part: str, mark: str, content: str, cuts: Sequence[int]) -> list[PromptPiece]:
    """Return a content in the place of its mark, divided where a fixed prefix ends."""
    pieces = []
    start = 0
    for end in sorted(set(cuts)):
        if 0 < end <= len(content):
            pieces.append(PromptPiece(text=content[start:end], control=False, cut=True))
            start = end
    pieces.append(PromptPiece(text=content[start:], control=False))
    space = part.removesuffix(mark)
    pieces[0] = pieces[0]._replace(text=space + pieces[0].text)
    return pieces
