"""The forms of a batch's input: a question a line, JSON Lines, and the batch format of OpenAI."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from pydantic_core import from_json

from conductor_cli.core.chat import Message
from conductor_cli.core.errors import UsageError, describe_system_error
from conductor_cli.core.formatting import format_size
from conductor_cli.core.media import conversion_command, describe_encoding, guess_encoding
from conductor_cli.core.question import Conversation, PastTurn, Question
from conductor_cli.programs.schema_check import quick_schema_fault

MAX_LINE_BYTES: Final = 16 << 20
MAX_ID_CHARACTERS: Final = 512
EXAMPLE: Final = 'a line looks like this: {"id": "1", "question": "…"}'
ONE_OBJECT_A_LINE: Final = (
    f"JSON Lines have an object on each line, with no comma or bracket around it; {EXAMPLE}"
)
JSON_SUFFIXES: Final = frozenset({".json", ".jsonl", ".ndjson"})
OTHER_SUFFIXES: Final = frozenset(
    {".csv", ".tsv", ".xml", ".html", ".htm", ".yaml", ".yml", ".toml", ".parquet", ".xlsx"}
)
"""Endings of files whose lines are no questions, though they may be text."""
FAILED: Final = ".failed"  # Before the ending of a file of failures, whatever that is
JSON_BEGINNINGS: Final = ('{"', "[{")
"""How a line of JSON begins that has a mistake. No question begins like that."""
GZIP_HEAD: Final = b"\x1f\x8b"  # How everything that gzip packed begins
GUESSED_BYTES: Final = 4096  # Of the beginning of a file, by which its encoding is guessed
UNPACK: Final = "it is packed by gzip; unpack it first: gunzip FILE"
OPENAI_URL: Final = "/v1/chat/completions"


class BatchItem(NamedTuple):
    """A line of the input: its id, and the fields of the line."""

    id: str
    fields: Mapping[str, Any]

    def question(self) -> Question:
        """Return the question of the line. Raises `UsageError` where the line has none."""
        if is_openai(self.fields):
            return _openai_question(self.fields)
        return Question(
            text=self.fields["question"],
            system=self.fields.get("system", ""),
            schema=self.fields.get("schema"),
        )


def read_items(path: Path, skip: int = 0) -> Iterator[BatchItem]:
    """Yield the questions of a file after the first `skip`.

    Raises `UsageError` with the line that cannot be read.
    """
    if path.suffix.lower() in OTHER_SUFFIXES and not path.stem.endswith(FAILED):
        message = f"{path} is neither a text with a question on each line nor JSON Lines"
        hint = f"convert it, or name it .txt where each line is a question; {EXAMPLE}"
        raise UsageError(message, hint=hint)
    parser = _Parser(path)
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(_raw_lines(file), start=1):
                try:
                    text = parser.text_of(raw, number)
                    if not text:
                        continue
                    if skip:
                        skip -= 1
                        continue
                    item = parser.parse(text, number)
                except UsageError as error:
                    message = f"{path}, line {number}: {error.message}"
                    raise UsageError(message, hint=error.hint or EXAMPLE) from None
                yield item
    except OSError as error:
        message = f"{path} cannot be read: {describe_system_error(error)}"
        raise UsageError(message, hint="check its name") from None
    if parser.is_json is None:
        raise UsageError(f"{path} has no questions", hint=EXAMPLE)


def _raw_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file, of one that is too long only so much that this is seen."""
    while raw := file.readline(MAX_LINE_BYTES + 1):
        yield raw


class _Parser:
    """Reads the lines of one input, whose first line with text says in which form it is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_named_json = path.suffix.lower() in JSON_SUFFIXES
        self.is_json: bool | None = None  # None until a line with text was read

    def text_of(self, raw: bytes, number: int) -> str:
        """Return the text of a line, empty for a blank one.

        Raises `UsageError` for a line that is not of the form of this input.
        """
        if len(raw) > MAX_LINE_BYTES:
            raise UsageError(f"it is longer than {format_size(MAX_LINE_BYTES)}")
        try:
            encoding = "utf-8"
            if number == 1:
                encoding = "utf-8-sig"
            text = raw.decode(encoding).strip()
        except UnicodeDecodeError:
            raise self._not_utf8(raw) from None
        if "\0" in text:
            raise self._not_utf8(raw)
        if not text:
            return ""
        if self.is_json is None:
            self.is_json = self._begins_json(text)
        # The first line had a mistake, or was a bracket
        if not self.is_json and _is_object(text.rstrip(",")):
            message = "it is JSON, and the first line is not a JSON object"
            raise UsageError(message, hint=ONE_OBJECT_A_LINE)
        return text

    def _not_utf8(self, raw: bytes) -> UsageError:
        """Return the error of a line that is no text in UTF-8, with the command that converts it.

        The beginning of the file says more than one line: a line of UTF-16 ends in half a letter.
        """
        if raw.startswith(GZIP_HEAD):
            return UsageError("it is not UTF-8 text", hint=UNPACK)
        with self._path.open("rb") as file:
            encoding = guess_encoding(file.read(GUESSED_BYTES))
        if not encoding.startswith("UTF-"):
            encoding = guess_encoding(raw)
        message = f"it is not UTF-8 text; {describe_encoding(encoding)}"
        if not encoding:
            return UsageError(message)
        command, converted = conversion_command(str(self._path), encoding)
        return UsageError(message, hint=f"{command}; then give {converted} instead")

    def _begins_json(self, text: str) -> bool:
        """Return whether the first line says that this input is JSON Lines. Raises `UsageError`."""
        if _is_object(text):
            return True
        if self._is_named_json or text.startswith(JSON_BEGINNINGS):
            raise UsageError("it is not a JSON object", hint=ONE_OBJECT_A_LINE)
        return False

    def parse(self, text: str, number: int) -> BatchItem:
        """Return the question of a line. Raises `UsageError` where it has none."""
        if self.is_json:
            return _parse_object(text, number)
        return BatchItem(str(number), {"id": str(number), "question": text})


def _is_object(text: str) -> bool:
    """Return whether a line is a JSON object; a text may begin with a brace, too."""
    if not text.startswith("{"):
        return False
    with suppress(ValueError, RecursionError):
        return isinstance(read_json(text), dict)
    return False


def _parse_object(text: str, number: int) -> BatchItem:
    """Return the question of a line of JSON. Raises `UsageError` where it has none."""
    try:
        fields = read_json(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"it is not JSON: {describe_system_error(error)}") from None
    if not isinstance(fields, dict):
        raise UsageError("it is not a JSON object")
    if is_openai(fields):
        name = _check_id(fields.get("custom_id"))
        item = BatchItem(name, {**fields, "custom_id": name})
        item.question()
        return item
    name = _check_id(fields.get("id", str(number)))
    _check_fields(fields)
    return BatchItem(name, {**fields, "id": name})


def _check_id(value: object) -> str:
    """Return an id as a text; a whole number is one, too. Raises `UsageError`."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID_CHARACTERS:
        raise UsageError(f"its id is not a text of 1 to {MAX_ID_CHARACTERS} characters")
    return value


def _check_fields(fields: Mapping[str, Any]) -> None:
    """Raise `UsageError` where a line of our own form has a wrong field."""
    question = fields.get("question")
    schema = fields.get("schema")
    if not isinstance(question, str) or not question.strip():
        raise UsageError("it has no question")
    if not isinstance(fields.get("system", ""), str):
        raise UsageError("its system is not a text")
    if schema is not None and not isinstance(schema, dict):
        raise UsageError("its schema is not a JSON object")
    if schema is not None and (fault := quick_schema_fault(schema)):
        raise UsageError(f"its schema cannot be used: {fault}")


def read_json(text: str | bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value of a JSON text, in a fifth of the time that Python's own reader needs.

    Python's reader decides about what the quick one refuses. Raises `ValueError`.
    """
    try:
        return from_json(text)
    except ValueError:
        return json.loads(text)


def is_openai(fields: Mapping[str, Any]) -> bool:
    """Return whether a line is in the batch format of OpenAI."""
    return "custom_id" in fields or "body" in fields


_HASH: Final = re.compile(r"[0-9a-f]{16}")
_HASHED_FORM: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def input_hash(fields: Mapping[str, Any]) -> str:
    """Return a hash of all that the answer to a line depends on.

    The line of the answer has it as `input`.
    """
    relevant: object
    if is_openai(fields):
        relevant = fields.get("body")
    else:
        relevant = [fields.get(name) for name in ("question", "system", "schema")]
    text = _HASHED_FORM.encode(relevant)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


# The batch format of OpenAI


def _openai_question(fields: Mapping[str, Any]) -> Question:
    """Return the question of a request for chat completions.

    Its messages are texts, and the last one is the user's. Raises `UsageError`.
    """
    body = fields.get("body")
    if fields.get("url", OPENAI_URL) != OPENAI_URL or not isinstance(body, dict):
        raise UsageError(f"it is not a request for {OPENAI_URL}")
    for name, reason in _UNSERVED.items():
        if body.get(name):
            raise UsageError(f"{name} {reason}")
    if body.get("n") not in (None, 1):
        raise UsageError("n must be 1: each request is answered once")
    if "audio" in (body.get("modalities") or ()):
        raise UsageError("modalities cannot have audio: the answer is text")
    caching = body.get("prompt_cache_options")
    if isinstance(caching, Mapping) and caching.get("prewarm"):
        raise UsageError("prompt_cache_options cannot have prewarm: it asks for no answer")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise UsageError("it has no messages")
    schema = _schema_of(body.get("response_format"))
    question = _question_of_messages(messages, schema=schema)
    wishes = _wishes_of(body)
    if not wishes:
        return question
    # As `serve` has it: the worker that answers is sent the conversation, and what it is asked with
    talk = list[Message]()
    for turn in question.history:
        talk.append(Message(role="user", content=turn.question))
        talk.append(Message(role="assistant", content=turn.answer))
    talk.append(Message(role="user", content=question.text))
    return replace(question, conversation=Conversation(messages=tuple(talk), **wishes))


_UNSERVED: Final[Mapping[str, str]] = {
    "tools": "cannot be called in a batch",
    "functions": "cannot be called in a batch",
    "function_call": "cannot be had: no function is called in a batch",
    "stream": "cannot be asked for in a batch",
    "logprobs": "cannot be had: the answer may come from any worker",
    "audio": "cannot be had: the answer is text",
    "moderation": "cannot be had: nothing is moderated here",
    "prediction": "cannot be had: no worker takes a predicted answer",
    "web_search_options": "cannot be had: give a worker tools, conductor tools add",
}
"""Fields of a request whose effect would be missed, and why they have none, as in `serve`."""

_SAMPLING: Final[Mapping[str, tuple[float, float]]] = {
    "top_p": (0, 1),
    "top_k": (0, 2**31 - 1),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
}
"""Numbers that are sent on to the worker's server as they are, and their least and most."""

_EFFECTIVE: Final = frozenset(
    {*_UNSERVED, *_SAMPLING, "logit_bias", "n", "messages", "response_format", "modalities", "seed"}
    | {"max_tokens", "max_completion_tokens", "temperature", "stop"}
    | {"model", "store", "stream_options", "tool_choice", "parallel_tool_calls"}
    | {"metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier"}
    | {"service_tier", "user"}
)
"""The fields of a request that are read, and those without which no answer is missed."""


_OWN_FIELDS: Final = frozenset({"id", "question", "system", "schema"})
"""The fields of a line in our own form that are read."""

_WRITTEN_FIELDS: Final = _OWN_FIELDS | (
    {"error", "answer", "tokens", "cost", "unpriced", "input", "run"}
)
"""Those, and the fields of answers and failures, which may be asked again."""


def is_failure(fields: Mapping[str, Any]) -> bool:
    """Return whether a line is one of failures: a line of an input, with the reason."""
    error = fields.get("error")
    return isinstance(error, dict) and "message" in error


def _is_answer(fields: Mapping[str, Any]) -> bool:
    """Return whether a line is one of answers, and not of an input that has some of its fields."""
    value = fields.get("input")
    return "answer" in fields and isinstance(value, str) and _HASH.fullmatch(value) is not None


def ignored_fields(fields: Mapping[str, Any]) -> list[str]:
    """Return the fields of a line that have no effect."""
    body: object = fields
    effective = _OWN_FIELDS
    if is_openai(fields):
        body = fields.get("body")
        effective = _EFFECTIVE
    elif is_failure(fields) or _is_answer(fields):
        effective = _WRITTEN_FIELDS
    if not isinstance(body, Mapping) or body.keys() <= effective:
        return []
    return [name for name in body if name not in effective and body[name] is not None]


def _wishes_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a request wants of its answer, as fields of `Conversation`.

    Raises `UsageError`.
    """
    wishes = dict[str, Any]()
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    if limit is not None:
        wishes["max_tokens"] = _number(limit, "max_tokens", whole=True, least=1)
    if body.get("temperature") is not None:
        wishes["temperature"] = _number(body["temperature"], "temperature", least=0, most=2)
    if body.get("seed") is not None:
        wishes["seed"] = _number(body["seed"], "seed", whole=True)
    stops = body.get("stop")
    if stops is not None:
        wishes["stop"] = _stop_texts(stops)
    sampling = {name: body[name] for name in _SAMPLING if body.get(name) is not None}
    for name, value in sampling.items():
        least, most = _SAMPLING[name]
        _number(value, name, whole=name == "top_k", least=least, most=most)
    if body.get("logit_bias") is not None:
        sampling["logit_bias"] = _biases(body["logit_bias"])
    if sampling:
        wishes["sampling"] = sampling
    return wishes


def _number(
    value: object,
    name: str,
    *,
    whole: bool = False,
    least: float = -math.inf,
    most: float = math.inf,
) -> float:
    """Return a number that a request has in this field. Raises `UsageError` for anything else."""
    is_number = isinstance(value, int) or (isinstance(value, float) and not whole)
    kind = "whole number" if whole else "number"
    if not is_number or isinstance(value, bool):
        raise UsageError(f"{name} must be a {kind}")
    assert isinstance(value, (int, float))
    if most < math.inf and not least <= value <= most:
        raise UsageError(f"{name} must be a {kind} from {least:g} to {most:,g}")
    if value < least:
        raise UsageError(f"{name} must be a {kind} of at least {least:g}")
    return value


def _biases(biases: object) -> dict[str, float]:
    """Return how much likelier each token is to be, by its number. Raises `UsageError`."""
    if not isinstance(biases, dict):
        raise UsageError("logit_bias must be an object of numbers")
    return {token: _number(bias, "each value of logit_bias") for token, bias in biases.items()}


def _stop_texts(stops: object) -> tuple[str, ...]:
    """Return the texts that end an answer: one, or a list. Raises `UsageError`."""
    texts = [stops] if isinstance(stops, str) else stops
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UsageError("stop must be a text, or a list of texts")
    return tuple(dict.fromkeys(filter(None, texts)))


def _question_of_messages(messages: Sequence[object], schema: dict[str, Any] | None) -> Question:
    """Return what a conversation asks at its end. Raises `UsageError` where it asks nothing."""
    system: list[str] = []
    turns: list[PastTurn] = []
    question: str | None = None  # The text of the user that has no answer yet
    for message in messages:
        if not isinstance(message, dict):
            raise _misplaced(None)
        role = message.get("role")
        text = _message_text(message.get("content"))
        if role in ("system", "developer"):
            system.append(text)
        elif role == "user":
            if question is not None:
                text = f"{question}\n\n{text}"
            question = text
        elif role == "assistant" and question is not None:
            turns.append(PastTurn(question=question, answer=text))
            question = None
        else:
            raise _misplaced(role)
    if not question or not question.strip():
        raise UsageError("its last message is not a question of the user")
    return Question(text=question, system="\n\n".join(system), history=tuple(turns), schema=schema)


def _misplaced(role: object) -> UsageError:
    return UsageError(f"a batch cannot take a message of the role {role!r:.40} there")


def _schema_of(response_format: object) -> dict[str, Any] | None:
    """Return the JSON Schema that a request demands of its answer. Raises `UsageError`."""
    if response_format is None:
        return None
    kinds = UsageError("response_format.type must be text, json_object or json_schema")
    if not isinstance(response_format, dict):
        raise kinds
    kind = response_format.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind != "json_schema":
        raise kinds
    form = response_format.get("json_schema")
    schema = None
    if isinstance(form, dict):
        schema = form.get("schema")
    if not isinstance(schema, dict):
        raise UsageError("response_format.json_schema.schema is missing or no object")
    if fault := quick_schema_fault(schema):
        raise UsageError(f"response_format.json_schema.schema cannot be used: {fault}")
    return schema


_TEXT_PARTS: Final = ("text", "input_text", "output_text")
"""The types of the parts of a message that are texts, in any API."""


def _message_text(content: object) -> str:
    """Return the text of a message. Raises `UsageError` where it has anything else."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _not_text()
    texts: list[str] = []
    for part in content:
        text = None
        if isinstance(part, dict) and part.get("type", "text") in _TEXT_PARTS:
            text = part.get("text")
        if not isinstance(text, str):
            raise _not_text()
        texts.append(text)
    return "\n".join(texts)


def _not_text() -> UsageError:
    return UsageError("only texts can be asked in a batch")
