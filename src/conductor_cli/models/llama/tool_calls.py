"""How families of models write a tool call as text, and which parts of a reply are calls. Pure.

The chat template says which family it is: it has the words that a call is written with. From the
templates of Qwen2.5, Qwen3, Hermes and Llama 3 and llama.cpp's `common/chat.cpp`, November 2026.
A template with other words (Mistral's `[TOOL_CALLS]`, Qwen3-Coder's `<function=`) has no form
here, and its model is offered no tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from conductor_cli.core.chat import Chunk, Finish, Message, Request, Tool, held_back
from conductor_cli.core.errors import ModelError
from conductor_cli.core.redact import Secrets
from conductor_cli.models.tool_call_decoder import MAX_ARGUMENTS, ToolCallDecoder
from conductor_cli.models.tool_schemas import api_name, original_names


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolForm:
    """One way to write calls. Its family's templates have all of `markers`.

    A call is a JSON object with `name` and the field `arguments`, between `opening` and
    `closing`. Without them a call is all of a reply. `alone` says that the template refuses
    several calls in one turn.
    """

    markers: tuple[str, ...]
    opening: str = ""
    closing: str = ""
    arguments: str = "arguments"
    alone: bool = False


HERMES: Final = ToolForm(
    markers=("<tool_call>", "</tool_call>"), opening="<tool_call>", closing="</tool_call>"
)
LLAMA_3: Final = ToolForm(
    markers=("<|start_header_id|>", '"parameters"'), arguments="parameters", alone=True
)
FORMS: Final = (HERMES, LLAMA_3)

_STATEMENT: Final = re.compile(r"\{[%{]")  # how a statement or an expression of a template begins
_TOOLS: Final = re.compile(r"\btools\b")
_UNREAD_MARKERS: Final = ("<function=", "<arg_key>", "[TOOL_CALLS]")
"""Words of families whose calls are written in ways that are not read here."""

UNREADABLE: Final = "unreadable_call"
"""The name of a call whose name cannot be read: no tool has it, and so the model is told."""

_DECODER: Final = json.JSONDecoder()
_BETWEEN_CALLS: Final = " \t\r\n;"
_FENCE: Final = re.compile(r"```(?:json)?\s*(\{.*\})\s*```", re.DOTALL)


def form_of(template: str) -> ToolForm | None:
    """Return how the models of a chat template write calls; None where it is not known here."""
    # One search for all of a statement would take hours for a hostile template.
    statements = (part.partition("}")[0] for part in _STATEMENT.split(template)[1:])
    has_place = any(_TOOLS.search(statement) for statement in statements)
    is_of_other_family = any(marker in template for marker in _UNREAD_MARKERS)
    if not has_place or is_of_other_family:
        return None
    for form in FORMS:
        if all(marker in template for marker in form.markers):
            return form
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """How a reply may use tools.

    `offered` are the tools that the prompt has. `begun` is the beginning of a call that the model
    has to make, and is the end of the prompt. `silent` means that no call may be made.
    """

    form: ToolForm
    offered: tuple[Tool, ...]
    begun: str = ""
    silent: bool = False


def tool_use(form: ToolForm | None, request: Request) -> ToolUse | None:
    """Return how the reply to a request may use tools, with a model of this form; None if not."""
    if form is None or not request.tools:
        return None
    use = ToolUse(form=form, offered=request.tools)
    start = f'{form.opening}\n{{"name": "'.removeprefix("\n")
    match request.tool_choice:
        case Tool(name=name):
            return replace(use, begun=f'{start}{api_name(name)}", "{form.arguments}": ')
        case "required":
            return replace(use, begun=start)
        case "none":
            return replace(use, offered=(), silent=True)
    return use


def told_as_text(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return messages with calls and results in plain words, for a reply that may make no call.

    A small model that sees calls in their form makes another one, or will not answer without tools.
    """
    texts: list[Message] = []
    names: dict[str, str] = {}  # the tool of each call, by the call's id
    for message in messages:
        for call in message.tool_calls:
            names[call.id] = call.name
        if message.role == "tool":
            name = names.get(message.tool_call_id, "the tool")
            texts.append(_result_as_text(message, name))
        elif message.tool_calls:
            texts.append(_calls_as_text(message))
        else:
            texts.append(message)
    return tuple(texts)


def _result_as_text(message: Message, name: str) -> Message:
    title = f"The result of {name}"
    if message.is_error:
        title = f"The error of {name}"
    return Message(role="user", content=f"{title}:\n\n{message.content}")


def _calls_as_text(message: Message) -> Message:
    lines = []
    if message.content.strip():
        lines.append(message.content)
    lines += [f"I call {call.name} with {call.arguments}." for call in message.tool_calls]
    return Message(role="assistant", content="\n".join(lines))


def without_calls(chunks: Iterator[Chunk], request: Request, use: ToolUse) -> Iterator[Chunk]:
    """Yield a reply's chunks with its calls taken out of the text, each call where it ended.

    A call that cannot be read goes on as it was written: whoever makes it tells the model so.
    Raises `ModelError` for a reply that is a call where none may be made.
    """
    reader = CallReader(use, [api_name(tool.name) for tool in request.tools])
    decoder = ToolCallDecoder(
        Secrets(), turn=len(request.messages), names=original_names(t.name for t in request.tools)
    )
    only_first = use.form.alone or not request.parallel_tool_calls
    made = 0
    has_text = False
    for chunk, calls in _parted(chunks, reader):
        pieces = [{"index": made + number} | call for number, call in enumerate(calls)]
        made += len(pieces)
        text = chunk.text
        if made and not text.strip():  # white space beside calls is no text
            text = ""
        has_text = has_text or bool(text.strip())
        if chunk.finish is None and (text or chunk.thinking):
            yield replace(chunk, text=text)
        if only_first:
            pieces = [piece for piece in pieces if piece["index"] == 0]
        if use.silent:
            pieces = []
        for delta in decoder.feed(pieces):
            yield Chunk(tool_call=delta)
        if chunk.finish is None:
            continue
        if use.silent:
            if made and not has_text:
                message = "the model called a tool again, where it had to answer"
                raise ModelError("empty_answer", message, usage=chunk.usage)
            yield replace(chunk, text=text)
            return
        for delta in decoder.end(complete=True):
            yield Chunk(tool_call=delta)
        if only_first and made > 1:
            yield Chunk(note=f"the model called {made} tools at once; only the first is called")
        finish: Finish | None = chunk.finish
        if made:
            finish = "tool"
        yield replace(chunk, text=text, finish=finish)


def _parted(
    chunks: Iterator[Chunk], reader: CallReader
) -> Iterator[tuple[Chunk, list[dict[str, Any]]]]:
    """Yield each chunk with the text that is certain after it, and the calls that are."""
    for chunk in chunks:
        text, calls = reader.feed(chunk.text)
        if chunk.finish is not None:
            last_text, last_calls = reader.end(is_cut_off=chunk.finish == "length")
            text += last_text
            calls += last_calls
        yield replace(chunk, text=text), calls


class CallReader:
    """Parts the text of a reply from its calls, while it arrives.

    White space before a call is no text, so it waits until it is known what follows. So does a
    reply that begins with a brace or a fence: it may be a call without its marks, as small models
    write it. It is one if it names a tool that there is.
    """

    def __init__(self, use: ToolUse, names: Collection[str]) -> None:
        self._form = use.form
        self._names = frozenset(names)
        self._waiting = use.begun.removeprefix(use.form.opening)
        self._inside = bool(use.begun)
        self._searched = 0
        """How many of the waiting characters hold no end of a call."""
        self._is_start = not use.begun
        """Whether nothing but white space has come."""

    def feed(self, piece: str) -> tuple[str, list[dict[str, Any]]]:
        """Return the text and the calls that are certain after `piece`."""
        self._waiting += piece
        shown = ""
        calls: list[dict[str, Any]] = []
        while True:
            if not self._inside:
                shown += self._text_before_call()
            written = self._next_call() if self._inside else None
            if written is None:
                return shown, calls
            calls += read_calls(written, self._form)

    def end(self, *, is_cut_off: bool) -> tuple[str, list[dict[str, Any]]]:
        """Return what waited, now that nothing more comes. A call that was cut off is no call."""
        rest = self._waiting
        self._waiting = ""
        if self._inside and is_cut_off:
            return "", []
        if self._inside:
            return "", read_calls(rest, self._form)
        if self._is_start:
            bare = _bare_calls(rest, self._form, self._names)
            if bare:
                return "", bare
        return rest, []

    def _text_before_call(self) -> str:
        """Return the text before the next call. `_inside` is set if one begins there."""
        opening = self._form.opening
        if opening and opening in self._waiting:
            text, _, self._waiting = self._waiting.partition(opening)
            self._inside = True
            self._is_start = False
            self._searched = 0
            return text.rstrip()
        begun = self._waiting.lstrip()
        may_be_call = begun.startswith("{") or "```json".startswith(begun[:7])
        if self._is_start and may_be_call and len(begun) <= MAX_ARGUMENTS:
            return ""
        self._is_start = self._is_start and not begun
        certain = len(self._waiting)
        if opening:
            certain -= held_back(self._waiting, (opening,))
        text = self._waiting[:certain].rstrip()
        self._waiting = self._waiting[len(text) :]
        return text

    def _next_call(self) -> str | None:
        """Return the call that has begun; None where its end has not come."""
        closing = self._form.closing
        if len(self._waiting) > MAX_ARGUMENTS:
            message = f"the model wrote a tool call of more than {MAX_ARGUMENTS} characters"
            raise ModelError("broken", message)
        if not closing:  # a call is all of a reply
            return None
        at = self._waiting.find(closing, self._searched)
        if at < 0:
            self._searched = max(0, len(self._waiting) - len(closing))
            return None
        written = self._waiting[:at]
        self._waiting = self._waiting[at + len(closing) :]
        self._inside = False
        return written


def read_calls(written: str, form: ToolForm) -> list[dict[str, Any]]:
    """Return the calls in the text of one, in the form of chat completions.

    It should be one JSON object; a list of them is read, too, and several one after another. Of a
    text that is none of these, the call is what can be read of it: its name, and its arguments as
    the model wrote them.
    """
    values = _json_values(written)
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    calls = []
    for item in values:
        call = _call(item, form)
        if call is None:
            return [_broken_call(written, form)]
        calls.append(call)
    return calls or [_broken_call(written, form)]


def _bare_calls(text: str, form: ToolForm, names: Collection[str]) -> list[dict[str, Any]]:
    """Return the calls that are all of a reply, without marks; none if the reply is text."""
    fenced = _FENCE.fullmatch(text.strip())
    if fenced:
        text = fenced[1]
    calls = []
    for value in _json_values(text):
        call = _call(value, form)
        if call is None or not isinstance(value, dict):
            return []
        is_offered = call["function"]["name"] in names
        has_arguments = "arguments" in value or "parameters" in value
        if not (is_offered and has_arguments):
            return []
        calls.append(call)
    return calls


def _json_values(written: str) -> list[Any]:
    """Return the JSON values that a text consists of; none for another text.

    Llama 3 divides several calls by semicolons, other models by new lines. Qwen2.5-Coder's template
    shows a call in two pairs of braces, and its models write it so.
    """
    written = written.strip()
    if written.startswith("{{") and written.endswith("}}"):
        written = written[1:-1]
    values = []
    at = 0
    while at < len(written):
        try:
            value, at = _DECODER.raw_decode(written, at)
        except (ValueError, RecursionError):
            return []
        values.append(value)
        while at < len(written) and written[at] in _BETWEEN_CALLS:
            at += 1
    return values


def _call(value: object, form: ToolForm) -> dict[str, Any] | None:
    """Return a call from its JSON object; None if it is none."""
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        return None
    arguments = _arguments_of(value, form)
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {"function": {"name": value["name"] or UNREADABLE, "arguments": arguments}}


def _arguments_of(value: Mapping[str, object], form: ToolForm) -> object:
    # Models mix up the two names for the arguments.
    for field in (form.arguments, "arguments", "parameters"):
        if field in value:
            return value[field]
    return {}


def _broken_call(written: str, form: ToolForm) -> dict[str, Any]:
    name = re.match(r'\s*\{{1,2}\s*"name"\s*:\s*"([A-Za-z0-9_-]{1,64})"\s*,?', written)
    if name is None:
        return {"function": {"name": UNREADABLE, "arguments": written.strip() or "?"}}
    rest = re.sub(rf'^\s*"{form.arguments}"\s*:\s*', "", written[name.end() :]).strip()
    return {"function": {"name": name[1], "arguments": rest.removesuffix("}") or "{"}}
