"""From the command line to a question: words, stdin and files, in this order."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from conductor_cli.cli.output import print_notice
from conductor_cli.core.errors import UsageError
from conductor_cli.core.question import File, Question, Turn
from conductor_cli.core.trace import Trace

SILENCE: Final = 3.0
"""Seconds after which a command that waits for its input says so."""

LARGEST: Final = 16 * 1024 * 1024
"""Bytes of stdin or of one file. More is a mistake: no worker reads it."""


def build_question(
    words: Sequence[str], files: Sequence[Path], system: str | None, schema: Path | None, earlier: Trace | None
) -> Question:
    """The question that a command line asks. Raises `UsageError` when there is none or a part cannot be read.

    Without words the question is what comes on stdin; with words, stdin is attached like a file.
    """
    plain = [_written(word, "the question") for word in words if word != "-"]
    piped = _stdin(forced="-" in words)
    text = " ".join(plain).strip()
    attached = [read_attachment(path) for path in files]
    if not text:
        text, piped = piped.strip(), ""
    if piped.strip():
        attached.insert(0, File(name="stdin", text=piped))
    if not text:
        raise UsageError("there is no question", hint='conductor ask "…", or pipe one: echo "…" | conductor ask -')
    asked = Question(
        text=text, system=_written(system or "", "--system"), files=tuple(attached),
        schema=None if schema is None else _schema(schema),
    )  # fmt: skip
    return asked if earlier is None else continue_conversation(asked, earlier, keep_system=system is None)


def continue_conversation(asked: Question, earlier: Trace, *, keep_system: bool) -> Question:
    """`asked` as the next question of a conversation: what came with the earlier ones is still there."""
    before = earlier.question
    turn = Turn(question=before.text, answer=earlier.answer)
    files = tuple(dict.fromkeys((*before.files, *asked.files)))
    system = before.system if keep_system else asked.system
    return replace(asked, history=(*before.history, turn), files=files, system=system, parent=earlier.run)


def _written(text: str, what: str) -> str:
    """A word of the command line. What Python could not decode by the locale is UTF-8, or no text at all."""
    if text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text):
        return text
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeError:
        hint = "convert it first, for example with: iconv -t utf-8"
        raise UsageError(f"{what} is not UTF-8 text", hint=hint) from None


def _stdin(*, forced: bool) -> str:
    """What is piped in. A terminal is read only when `-` asks for it."""
    if sys.stdin is None or (sys.stdin.isatty() and not forced):
        return ""
    if not _readable(SILENCE):
        print_notice("waiting for the end of standard input; without any: conductor ask … < /dev/null")
    return decode_text(sys.stdin.buffer.read(LARGEST + 1), "stdin")


def _readable(seconds: float) -> bool:
    """Whether standard input says something, be it its end, within so many seconds."""
    try:
        return bool(select.select([sys.stdin.buffer], [], [], seconds)[0])
    except (OSError, ValueError):  # Windows knows this for sockets only
        return True


def read_attachment(path: Path) -> File:
    """A text file to attach. Raises `UsageError`."""
    try:
        with path.open("rb") as file:
            return File(name=path.name, text=decode_text(file.read(LARGEST + 1), str(path)))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint="check its name") from None


def decode_text(data: bytes, source: str) -> str:
    """`data` as text. Raises `UsageError` for what is not UTF-8, holds NUL bytes, or is too large."""
    if len(data) > LARGEST:
        raise UsageError(f"{source} is larger than {LARGEST >> 20} MiB", hint="give the part that matters")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{source} is not UTF-8 text: byte 0x{data[error.start]:02x} at offset {error.start}",
            hint="convert it first, for example with: iconv -t utf-8",
        ) from None
    if "\x00" in text:
        raise UsageError(f"{source} holds NUL bytes, so it is no text", hint="attach text files only")
    return text


def _schema(path: Path) -> dict[str, Any]:
    try:
        schema = json.loads(read_attachment(path).text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}", hint="--schema takes a JSON Schema") from None
    if not isinstance(schema, dict):
        raise UsageError(f"{path} holds no JSON object", hint="--schema takes a JSON Schema")
    return schema
