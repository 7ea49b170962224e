"""A reply of a local model that may hold tool calls: its text without them, and the calls. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from conductor_cli.core.chat import Chunk, Finish, Request, Tool
from conductor_cli.core.errors import ModelError
from conductor_cli.core.redact import Secrets
from conductor_cli.core.thinking import held_back
from conductor_cli.models.llama.tool_format import ToolFormat, call_with_invalid_arguments, calls_in, grammar_of
from conductor_cli.models.llama.vocabulary import ReplyDecoder
from conductor_cli.models.tool_call_decoder import LONGEST_ARGUMENTS, ToolCallDecoder
from conductor_cli.models.tool_names import api_name, original_names


class ToolUse(NamedTuple):
    """How a reply may use tools. `forced` means that the prompt opens a call, `grammar` is of what follows that."""

    form: ToolFormat
    forced: bool = False
    grammar: str | None = None


def tool_use(form: ToolFormat | None, request: Request) -> ToolUse | None:
    """How the reply to a request may use tools, with a model of this format; None if it may not."""
    if form is None or not request.tools or request.tool_choice == "none":
        return None
    forced = request.tool_choice != "auto"
    offered = (request.tool_choice,) if isinstance(request.tool_choice, Tool) else request.tools
    # Without an opening nothing shows where a call begins, unless it is the whole reply.
    constrained = forced or form.opening
    grammar = grammar_of(form, [api_name(tool.name) for tool in offered]) if constrained else None
    return ToolUse(form, forced=forced, grammar=grammar)


class ToolReply(ReplyDecoder):
    """The bytes of tokens -> text and calls. The calls are given by `calls`, once the reply has ended."""

    def __init__(self, request: Request, use: ToolUse, *, thinking: bool | None) -> None:
        super().__init__(stop=request.stop, thinking=thinking)
        names = original_names(tool.name for tool in request.tools)
        self._decoder = ToolCallDecoder(Secrets(), turn=len(request.messages), names=names)
        self._most = None if request.parallel_tool_calls else 1
        self._form = use.form
        self._inside = use.forced
        self._begun = False
        self._waiting = ""
        self._found: list[dict[str, Any]] = []

    @property
    def has_opened(self) -> bool:
        """Whether a call has been opened, and nothing of it written."""
        return self._inside and not self._waiting

    def feed(self, data: bytes) -> Chunk:
        chunk = super().feed(data)
        return Chunk(text=self._without_calls(chunk.text), thinking=chunk.thinking)

    def end(self) -> Chunk:
        chunk = super().end()
        text = self._without_calls(chunk.text)
        if not self._inside:
            text, self._waiting = text + self._waiting, ""
        elif calls := calls_in(self._waiting, self._form):
            self._found += calls
            self._waiting = ""
        elif not self._form.opening:
            text, self._waiting = text + self._waiting, ""  # it only began like a call
        return Chunk(text=text if not self._found or text.strip() else "", thinking=chunk.thinking)

    def calls(self, finish: Finish) -> Iterator[Chunk]:
        """The calls, after `end`. Raises `ModelError` for a reply that was cut off inside one."""
        if self._waiting:
            invalid = call_with_invalid_arguments(self._waiting, self._form)
            if finish == "length" or not invalid:
                message = "the reply was cut off in the middle of a tool call" if finish == "length" else ""
                raise ModelError("broken", message or "the model wrote a tool call that cannot be read")
            self._found.append(invalid)
        pieces = [{"index": index} | call for index, call in enumerate(self._found[: self._most])]
        for delta in (*self._decoder.feed(pieces), *self._decoder.end(complete=True)):
            yield Chunk(tool_call=delta)

    def _without_calls(self, text: str) -> str:
        """What is certainly text. What is certainly a call is kept, and so is what may become one."""
        self._waiting += text
        shown = ""
        while True:
            if self._inside:
                if not self._read_call():
                    return shown
                continue
            before = self._text_before_call()
            shown += before
            if not self._inside:
                return shown

    def _read_call(self) -> bool:
        """Whether a call that has begun is complete; it is kept then."""
        if len(self._waiting) > LONGEST_ARGUMENTS:
            raise ModelError("broken", f"the model wrote a tool call of more than {LONGEST_ARGUMENTS} characters")
        written, closed, rest = self._waiting.partition(self._form.closing) if self._form.closing else ("", "", "")
        if not closed:
            return False
        invalid = call_with_invalid_arguments(written, self._form)
        calls = calls_in(written, self._form) or ([invalid] if invalid else None)
        if calls is None:
            raise ModelError("broken", "the model wrote a tool call that cannot be read")
        self._found += calls
        self._inside, self._waiting = False, rest
        return True

    def _text_before_call(self) -> str:
        """What is shown before the next call; `_inside` is set if one begins there."""
        opening = self._form.opening
        if not opening:
            # Only a whole reply is a call, so its first character decides.
            self._inside = not self._begun and self._waiting.lstrip()[:1] == "{"
            self._begun = self._begun or bool(self._waiting.strip())
            text, self._waiting = ("", self._waiting) if self._inside or not self._begun else (self._waiting, "")
            return text
        text, found, rest = self._waiting.partition(opening)
        if found:
            self._inside, self._waiting = True, rest
        else:
            # White space before a call is no text, so it waits too.
            length = len((text[: len(text) - held_back(text, (opening,))]).rstrip())
            text, self._waiting = text[:length], text[length:]
        return text.rstrip() if found else text
