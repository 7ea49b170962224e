"""From a command line to a question: its words, stdin and files, in this order."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from conductor_cli.cli.output import print_notice
from conductor_cli.core.errors import UsageError
from conductor_cli.core.follow_up import continue_conversation
from conductor_cli.core.question import File, Question
from conductor_cli.core.trace import Trace

SILENCE: Final = 3.0
"""Seconds after which a command that waits for its input says so."""

LARGEST: Final = 16 * 1024 * 1024
"""Bytes of stdin or of one file. More is a mistake: no worker reads it."""

_TO_UTF8: Final = "convert it first, for example with: iconv -t utf-8"


def build_question(
    words: Sequence[str], files: Sequence[Path], system: str | None, schema: Path | None, earlier: Trace | None
) -> Question:
    """The question of a command line. Raises `UsageError` where there is none or a part cannot be read.

    Without words the question is what comes on stdin; with words, stdin is attached like a file.
    """
    # `-` only says that stdin is to be read; it is not part of the question.
    text = " ".join(decode_argument(word, "the question") for word in words if word != "-").strip()
    piped = _read_stdin(forced="-" in words)
    attached = [read_attachment(path) for path in files]
    if not text:
        text, piped = piped.strip(), ""
    if piped.strip():
        attached.insert(0, File(name="stdin", text=piped))
    if not text:
        raise UsageError("there is no question", hint='conductor ask "…", or pipe one: echo "…" | conductor ask -')
    question = Question(
        text=text,
        system=decode_argument(system or "", "--system"),
        files=tuple(attached),
        schema=None if schema is None else _read_schema(schema),
    )
    return question if earlier is None else continue_conversation(question, earlier, keep_system=system is None)


def decode_argument(text: str, what: str) -> str:
    """A word of the command line, as UTF-8 where Python could not decode it by the locale. Raises `UsageError`."""
    # Python keeps bytes of an argument that it cannot decode as lone surrogates.
    if text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text):
        return text
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeError:
        raise UsageError(f"{what} is not UTF-8 text", hint=_TO_UTF8) from None


def _read_stdin(*, forced: bool) -> str:
    """What is piped in. A terminal is read only when `-` asks for it."""
    if sys.stdin is None or (sys.stdin.isatty() and not forced):
        return ""
    # A script may have left stdin open with nothing to say: after some seconds a notice tells what is waited for.
    try:
        ready = select.select([sys.stdin.buffer], [], [], SILENCE)[0]
    except (OSError, ValueError):  # Windows can do this with sockets only
        ready = [sys.stdin.buffer]
    if not ready:
        print_notice("waiting for the end of standard input; to give none: conductor ask … < /dev/null")
    return read_text(sys.stdin.buffer, "stdin")


def read_attachment(path: Path) -> File:
    """A text file to attach. Raises `UsageError`."""
    return File(name=path.name, text=read_text_file(path.expanduser()))


def read_text_file(path: Path, hint: str = "check its name") -> str:
    """The text of a file. Raises `UsageError`, with `hint` where the file cannot be opened."""
    try:
        with path.open("rb") as file:
            return read_text(file, str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint=hint) from None


def read_text(stream: BinaryIO, source: str) -> str:
    """What a stream holds, as text. Raises `UsageError` where it is not UTF-8, holds NUL bytes, or is too large."""
    data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise UsageError(f"{source} is larger than {LARGEST >> 20} MiB", hint="attach only the part that matters")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        raise UsageError(f"{source} is not UTF-8 text: {place}", hint=_TO_UTF8) from None
    if "\x00" in text:
        raise UsageError(f"{source} holds NUL bytes, so it is not text", hint="attach text files only")
    return text


def _read_schema(path: Path) -> dict[str, Any]:
    try:
        schema = json.loads(read_text_file(path))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}", hint="--schema takes a JSON Schema") from None
    if not isinstance(schema, dict):
        raise UsageError(f"{path} is not a JSON object", hint="--schema takes a JSON Schema")
    return schema
