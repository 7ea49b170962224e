"""Decodes one reply in the form of OpenAI's chat completions, while it arrives.

Pure; no server is trusted.

Thinking comes as `reasoning_content`, as `reasoning`, each a text or an object with one, as parts
of a content list, or between `<think>` and `</think>`. Tool calls are those of `tool_call_decoder`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from conductor_cli.core.chat import (
    CLOSE,
    Chunk,
    Finish,
    HalfCharacters,
    Request,
    ThinkingSplitter,
    closes_alone,
)
from conductor_cli.core.errors import ModelError
from conductor_cli.core.estimate import byte_length, conversation_tokens, tokens_in_bytes
from conductor_cli.core.redact import Secrets, StreamRedactor
from conductor_cli.core.terminal_text import is_blank
from conductor_cli.core.usage import CHARS_PER_TOKEN, ONE_CALL, Usage
from conductor_cli.models.api_errors import error_in_body
from conductor_cli.models.base import table_of, tables_in, text_of
from conductor_cli.models.chat_body import KEPT, PROVIDER_DATA, STOP_SEQUENCE
from conductor_cli.models.chat_usage import stated_cost, usage_of
from conductor_cli.models.end_words import NO_END_WORD, finish_of, note_of
from conductor_cli.models.presets import CostSource
from conductor_cli.models.tool_call_decoder import ToolCallDecoder
from conductor_cli.models.tool_schemas import original_keys, original_names

# Tokens of a reply where none were asked for: the most that a model writes at once
UNLIMITED_TOKENS: Final = 128_000
MAX_KEPT: Final = 4 * 1024 * 1024
"""The most characters of thinking, signed or encrypted, that are kept in lists for a server."""

_KEPT_NAMES: Final = frozenset(KEPT)
MAX_ITEMS: Final = 1024  # the most items that are kept for a server that wants them back
ESTIMATED: Final = f"does not count tokens; estimated at {CHARS_PER_TOKEN} bytes per token"
"""The notice about such a server."""

UNMARKED_THINKING: Final = (
    "does not mark where thinking begins, so this answer has it up to </think>; "
    "the next ones will not"
)
"""The notice about the first reply of a server whose prompt opens the thinking."""


class ChatReplyDecoder:
    """What has arrived of one reply.

    `secrets` are redacted from it: a server may repeat the key that it was sent. `most_tokens` were
    asked for, thinking included. `server` is its name in what the user is told. `replied` is
    whether anything that looks like a reply has arrived, `estimated` whether the tokens of the last
    chunk were not counted by the server. With `opens_thinking` the reply is expected to begin
    inside of thinking, and to close it.
    """

    def __init__(  # noqa: PLR0913 - what is known of a reply before it comes
        self,
        request: Request,
        secrets: Secrets,
        cost: CostSource = "unknown",
        most_tokens: int | None = None,
        server: str = "the server",
        *,
        opens_thinking: bool = False,
    ) -> None:
        self.finish: Finish | None = None
        self.replied = False
        self.estimated = False
        self.opens_thinking = opens_thinking
        """Whether the prompt opens the thinking, as far as this reply has shown."""
        self._request = request
        self._stops = request.stop
        self._secrets = secrets
        self._server = server
        self._states_cost = cost == "stated"
        self._most = reply_limit(most_tokens)
        self._expected_thinking = opens_thinking
        # What the server says of the reply
        self._choice_index: object = None
        self._others = 0  # pieces of other answers
        self._usage = ONE_CALL
        self._end_word = ""
        self._stop_sequence = ""
        self._refused = False
        # What has arrived, the first two in bytes
        self._said = 0
        self._thought = 0
        self._has_begun = False
        self._blank = True
        tools = [tool.name for tool in request.tools]
        self._calls = ToolCallDecoder(
            secrets,
            turn=len(request.messages),
            names=original_names(tools),
            tools=tools,
            keys=original_keys(request.tools),
        )
        self._kept = _Kept()
        # What content passes: half characters wait, thinking is separated, keys are redacted
        self._text_halves = HalfCharacters()
        self._thought_halves = HalfCharacters()
        self._splitter = ThinkingSplitter(inside=opens_thinking)
        self._guessed: list[str] | None = [] if opens_thinking else None
        self._texts = StreamRedactor(secrets)
        self._thoughts = StreamRedactor(secrets)

    def frame(self, frame: Mapping[str, Any]) -> list[Chunk]:
        """Return what one frame of a stream, or a whole JSON answer, adds."""
        # Most frames have neither, and to ask whether a value is a `Mapping` takes long.
        if frame.get("usage") is not None:
            self.count(frame)
        provider_data = frame.get(PROVIDER_DATA)
        if provider_data is not None and isinstance(provider_data, Mapping):
            self._kept.data |= provider_data
        choices = frame.get("choices")
        choice = None
        if isinstance(choices, list) and choices:
            choice = choices[0]
        if not isinstance(choice, dict):
            return []
        if choice.get("index") != self._choice_index and not self._is_own(choice):
            return []
        self.replied = True
        if problem := choice.get("error"):
            raise error_in_body(self._server, {"error": problem}, self._secrets)
        if reason := choice.get("finish_reason"):
            self.finish = finish_of(str(reason))
            self._end_word = str(reason)
            # Moonshot counts here, also where it is not asked to count in a frame of its own
            if self._usage is ONE_CALL:
                self.count(choice)
        if self._stops:
            self._note_stop(frame, choice)
        delta = choice.get("delta")
        # The last frame of some servers, and a whole answer of Perplexity's, has the message beside
        # an empty delta.
        if not self._has_begun and (not delta or (reason and _is_silent(delta))):
            delta = choice.get("message") or delta
        if isinstance(delta, dict):
            return self._delta(delta)
        return []

    def count(self, frame: Mapping[str, Any]) -> None:
        """Take the tokens that a frame counts, if it does."""
        usage = frame.get("usage")
        if not isinstance(usage, Mapping):
            return
        self._usage = usage_of(usage)
        if self._states_cost:
            self._usage = replace(self._usage, cost=stated_cost(usage))

    def used_by_now(self) -> Usage | None:
        """Return what a reply that failed has used as far as its server has counted.

        None where it has not. Many count what was written at the end alone, so what has arrived
        counts as well.
        """
        if not self._usage.tokens:
            return None
        thought = tokens_in_bytes(self._thought)
        written = tokens_in_bytes(self._said + self._calls.length) + thought
        if written <= self._usage.tokens_out:
            return self._usage
        reasoning = max(thought, self._usage.tokens_reasoning)
        return replace(self._usage, tokens_out=written, tokens_reasoning=reasoning)

    def text_alone(self, frame: Mapping[str, Any]) -> str | None:
        """Return the text of a frame that says nothing else of the reply, as most do; else None."""
        choices = frame.get("choices")
        if type(choices) is not list or len(choices) != 1 or type(choices[0]) is not dict:
            return None
        if frame.get("usage") is not None or frame.get(PROVIDER_DATA) is not None or self._stops:
            return None
        if frame.get("error") or frame.get("object") == "error":
            return None
        choice = choices[0]
        if choice.get("error") or choice.get("finish_reason"):
            return None
        delta = choice.get("delta")
        if self._choice_index is None or choice.get("index") != self._choice_index:
            return None
        if type(delta) is not dict or len(delta) != 1:
            return None
        content = delta.get("content")
        return content if type(content) is str else None

    def _is_own(self, choice: Mapping[str, Any]) -> bool:
        """Return whether a choice is the one that was asked for, of several with numbers."""
        index = choice.get("index")
        if self._choice_index == 0 and type(index) is int:
            self._others += 1
            return False
        self._choice_index = index
        return True

    def _delta(self, delta: Mapping[str, Any]) -> list[Chunk]:
        content = delta.get("content")
        if len(delta) == 1 and type(content) is str:  # the usual case
            answer_text, thinking = self.add_text(content)
            return [Chunk(text=answer_text, thinking=thinking)] if answer_text or thinking else []
        spoken, thought = _parts(content)
        thought = (
            thought
            or _thought_of(delta.get("reasoning_content"))
            or _thought_of(delta.get("reasoning"))
        )
        if refusal := text_of(delta.get("refusal")):
            self._refused = True
            spoken += refusal
        if not _KEPT_NAMES.isdisjoint(delta):
            self._kept.add(delta)
        text = ""
        if spoken:
            text, split_thought = self._split(
                self._text_halves.feed(spoken), is_marked=bool(thought)
            )
            thought += split_thought
        thinking = ""
        if thought:
            thinking = self._thoughts.feed(self._thought_halves.feed(thought))
        chunk = self._chunk(text and self._texts.feed(text), thinking)
        pieces = delta.get("tool_calls")
        self._has_begun = self._has_begun or bool(spoken or thought or pieces)
        if not pieces:
            return [chunk] if chunk else []
        calls = [Chunk(tool_call=piece) for piece in self._calls.feed(pieces)]
        return [chunk, *calls] if chunk else calls

    def add_text(self, content: str) -> tuple[str, str]:
        """Return the text and the thinking that a delta adds which has nothing but text."""
        if not content:
            return "", ""
        text, thinking = self._split(self._text_halves.feed(content), is_marked=False)
        if text:
            text = self._texts.feed(text)
        if thinking:
            thinking = self._thoughts.feed(self._thought_halves.feed(thinking))
        self._count(text, thinking)
        self._has_begun = True
        return text, thinking

    def _split(self, content: str, *, is_marked: bool) -> tuple[str, str]:
        """Return the text and the thinking in what was said as content.

        `is_marked` says that the server marks thinking itself.
        """
        if self._guessed is not None:
            return self._split_guessed(content, is_marked=is_marked)
        if CLOSE in content and closes_alone(content):
            if not self._has_begun:  # All of the thinking, and it is not too late
                self._splitter = ThinkingSplitter(inside=True)
            elif not self._splitter.inside:
                self.opens_thinking = True
        return self._splitter.feed(content)

    def _split_guessed(self, content: str, *, is_marked: bool) -> tuple[str, str]:
        """Return the same where the reply is expected to begin inside of thinking."""
        begins_with_tag = not self._guessed and content.lstrip().startswith("<")
        if is_marked or begins_with_tag:
            self._end_guess()
            return self._splitter.feed(content)
        text, thinking = self._splitter.feed(content)
        if self._splitter.inside and self._guessed is not None:
            self._guessed.append(thinking)
        else:
            self._guessed = None
        return text, thinking

    def _end_guess(self) -> None:
        """Take what comes for text: it does not begin inside of thinking."""
        self._guessed = None
        self.opens_thinking = False
        self._splitter = ThinkingSplitter()

    def end(self) -> Iterator[Chunk]:
        """Yield what was held back, then the last chunk.

        A reply without text and tool calls is a `ModelError`. One that was cut off inside a call
        ends for that reason, and its calls do not count.
        """
        if rest := self._rest():
            yield rest
        for note in self._notes():
            yield Chunk(note=f"{self._server} {note}")
        usage = self._whole_usage()
        finish: Finish = "refusal" if self._refused else self.finish or "other"
        for piece in self._calls.end(complete=finish in ("stop", "tool", "other")):
            yield Chunk(tool_call=piece)
        finish = self._finish_with_calls(finish)
        self._require_words(finish, usage)
        kept_fields = self._secrets.redact_data(self._kept.all() | self._calls.extras())
        yield Chunk(
            usage=usage,
            finish=finish,
            stop_sequence=self._stop_sequence if finish == "stop" else "",
            provider_data=kept_fields,
        )

    def _rest(self) -> Chunk | None:
        """Return the text and the thinking that were held back."""
        text, thinking = self._splitter.feed(self._text_halves.end())
        last_text, last_thinking = self._splitter.end()
        text += last_text
        thinking += last_thinking
        if self._guessed is not None:  # The thinking was never closed, so it was the answer
            text = "".join([*self._guessed, text, thinking])
            thinking = ""
            self.opens_thinking = False
        text = self._texts.feed(text)
        thinking = self._thoughts.feed(thinking + self._thought_halves.end())
        return self._chunk(text + self._texts.close(), thinking + self._thoughts.close())

    def _whole_usage(self) -> Usage:
        """Return the usage of the reply. What the server did not count is estimated."""
        usage = self._usage
        if not usage.tokens_in:
            read = conversation_tokens(self._request.messages, self._request.tools)
            usage = replace(usage, tokens_in=read)
            self.estimated = self.estimated or read > 0
        said = self._said + self._calls.length
        if said + self._thought and not usage.tokens_out:
            thought = tokens_in_bytes(self._thought)
            written = tokens_in_bytes(said) + thought
            usage = replace(usage, tokens_out=written, tokens_reasoning=thought)
            self.estimated = True
        return usage

    def _finish_with_calls(self, finish: Finish) -> Finish:
        """Return how the reply ended, now that its calls are known."""
        # Calls that a filter has cut off are not to be made.
        has_calls = bool(self._calls) and not self._calls.cut_off and finish != "refusal"
        if has_calls or finish == "tool":
            return "tool" if self._calls else "other"
        return finish

    def _require_words(self, finish: Finish, usage: Usage) -> None:
        """Raise `ModelError` where the model ended by itself and has said nothing."""
        is_unexplained = finish == "other" and self.finish is None
        if self._blank and (finish == "stop" or (is_unexplained and not self._calls)):
            hint = "ask again, or ask another worker"
            raise ModelError(
                "empty_answer", "the model ended without a word", hint=hint, usage=usage
            )

    def _note_stop(self, frame: Mapping[str, Any], choice: Mapping[str, Any]) -> None:
        """Remember which stop text ended the reply.

        Anthropic says it, vLLM and SGLang as `stop_reason` and `matched_stop` of the choice.
        """
        named = (frame.get(STOP_SEQUENCE), choice.get("stop_reason"), choice.get("matched_stop"))
        for stop in named:
            if isinstance(stop, str) and stop in self._stops:
                self._stop_sequence = stop

    def _notes(self) -> list[str]:
        """Return what the user is told about this reply."""
        notes = [note_of(self._end_word) if self.finish is not None else NO_END_WORD]
        if self._others:
            notes.append(f"sent {self._others} pieces of other answers, which were left out")
        if self.opens_thinking and not self._expected_thinking:
            notes.append(UNMARKED_THINKING)
        return list(filter(None, notes))

    def _chunk(self, text: str, thinking: str) -> Chunk | None:
        if not text and not thinking:
            return None
        self._count(text, thinking)
        return Chunk(text=text, thinking=thinking)

    def _count(self, text: str, thinking: str) -> None:
        """Count what the reply has got. Raises `ModelError` where that is too much."""
        if text:
            self._said += byte_length(text)
        if thinking:
            self._thought += byte_length(thinking)
        if self._said + self._thought > self._most:
            message = (
                f"the reply is longer than {self._most:,} bytes, which is far more than was "
                "asked for"
            )
            raise ModelError("broken", message, retryable=False)
        self._blank = self._blank and is_blank(text)


class _Kept:
    """What the server wants back in this turn: `data` of translators, and what `KEPT` names."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}
        self._items: dict[str, list[_KeptItem]] = {}
        self._length = 0

    def add(self, delta: Mapping[str, Any]) -> None:
        """Take what a delta has of it.

        Texts are joined, and so are the texts of one item of a list, which come in pieces.
        """
        for name in KEPT:
            if not (value := delta.get(name)):
                continue
            if isinstance(value, str):
                self._texts.setdefault(name, []).append(value)
            for item in tables_in(value):
                self._length += sum(len(text) for text in item.values() if isinstance(text, str))
                if self._length > MAX_KEPT:
                    raise ModelError(
                        "broken",
                        f"the server sent more than {MAX_KEPT} characters of thinking to keep",
                    )
                items = self._items.setdefault(name, [])
                if items and items[-1].add(item):
                    continue
                if len(items) >= MAX_ITEMS:
                    raise ModelError(
                        "broken",
                        f"the server sent more than {MAX_ITEMS} pieces of thinking to keep",
                    )
                items.append(_KeptItem(item))

    def all(self) -> dict[str, Any]:
        """Return everything, by its key in a message."""
        texts = {name: "".join(pieces) for name, pieces in self._texts.items()}
        return {
            **self.data,
            **texts,
            **{name: [item.whole() for item in items] for name, items in self._items.items()},
        }


class _KeptItem:
    """One item of a list. The pieces of its text, which is under `name`, are joined at the end."""

    def __init__(self, item: Mapping[str, Any]) -> None:
        self._name = ""
        for name in ("text", "summary", "thinking"):
            if isinstance(item.get(name), str):
                self._name = name
                break
        self._fields = dict(item)
        self._pieces = [item[self._name]] if self._name else []

    def add(self, item: Mapping[str, Any]) -> bool:
        """Take `item` as the next piece of this one, if it is that. A signature ends an item."""
        same = all(item.get(name) == self._fields.get(name) for name in ("type", "index"))
        if (
            not self._name
            or not same
            or self._fields.get("signature")
            or not isinstance(item.get(self._name), str)
        ):
            return False
        self._fields |= item
        self._pieces.append(item[self._name])
        return True

    def whole(self) -> dict[str, Any]:
        return self._fields | ({self._name: "".join(self._pieces)} if self._name else {})


def reply_limit(max_tokens: int | None) -> int:
    """Return the most bytes of a reply, kept in memory, for which so many tokens were asked.

    A token has some four bytes, the longest ones of vocabularies 128. Besides, there is thinking
    that a server does not count, and what it says of the reply.
    """
    return (
        1024 * 1024
        + min(UNLIMITED_TOKENS, UNLIMITED_TOKENS if max_tokens is None else max_tokens) * 64
    )


def _is_silent(delta: object) -> bool:
    """Return whether a delta has nothing but who speaks."""
    return not any(value for name, value in table_of(delta).items() if name != "role")


def _thought_of(value: object) -> str:
    """Return thinking that is a text, or an object with one, as Envoy's gateway has it."""
    return text_of(value) or text_of(table_of(value).get("text"))


def _parts(content: object) -> tuple[str, str]:
    if isinstance(content, str):
        return content, ""
    text = ""
    thinking = ""
    for part in tables_in(content):  # of anything but a list, none
        text += text_of(part.get("text"))
        inner = part.get("thinking") or part.get("summary")  # Databricks has it in summaries
        thinking += text_of(inner) or _parts(inner if isinstance(inner, list) else None)[0]
    return text, thinking
