"""From a command line to a question: its words, stdin and files, in this order."""

from __future__ import annotations

import json
import os
import select
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from conductor_cli.app.attach import SILENCE, TEXT_LIMIT, TO_UTF8, Attacher, decode_text
from conductor_cli.cli.output import print_notice
from conductor_cli.core.errors import UsageError
from conductor_cli.core.follow_up import continue_conversation
from conductor_cli.core.media import SUFFIXES
from conductor_cli.core.question import File, Question
from conductor_cli.core.trace import Trace

STDIN: Final = Path("-")
"""The file that means stdin."""

STDIN_NAME: Final = "stdin"
"""What stdin is called among the attached files."""


def build_question(
    words: Sequence[str], files: Sequence[Path], system: str | None, schema: Path | None, earlier: Trace | None,
    attacher: Attacher, urls: Sequence[str] = (),
) -> Question:  # fmt: skip
    """The question of a command line. Raises `UsageError` where there is none or a part cannot be read.

    Without words the question is what comes on stdin; with words, stdin is attached like a file.
    """
    # `-` only says that stdin is to be read; it is not part of the question.
    text = " ".join(decode_argument(word, "the question") for word in words if word != "-").strip()
    piped = _read_stdin(attacher, forced="-" in words or STDIN in files)
    attached = [attacher.attach(path) for path in files if path != STDIN]
    attached += [attacher.fetch(url) for url in urls]
    if not text and piped is not None and piped.attachment is None:
        text, piped = piped.text.strip(), None
    if piped is not None and (piped.text.strip() or piped.attachment is not None):
        attached.insert(0, piped)
    if not text:
        raise UsageError("there is no question", hint='conductor ask "…", or pipe one: echo "…" | conductor ask -')
    question = Question(
        text=text,
        system=decode_argument(system or "", "--system"),
        files=tuple(attached),
        schema=None if schema is None else _read_schema(schema),
    )
    return question if earlier is None else continue_conversation(question, earlier, keep_system=system is None)


def pasted_file(line: str) -> str | None:
    """The path that a line consists of, as terminals paste a file that is dropped on them; None for any other line.

    A path has a slash or the ending of an image or a PDF, and names a file; so a word is never taken for one.
    """
    text = line.strip()
    with suppress(ValueError):  # an apostrophe, as in a question
        words: list[str] = shlex.split(text)
        for path in [text, *words[: len(words) == 1]]:
            with suppress(OSError):  # longer than a name may be
                named = "/" in path or path.rpartition(".")[2].lower() in SUFFIXES
                if named and Path(path).expanduser().is_file():
                    return path
    return None


def decode_argument(text: str, what: str) -> str:
    """A word of the command line, as UTF-8 where Python could not decode it by the locale. Raises `UsageError`."""
    # Python keeps bytes of an argument that it cannot decode as lone surrogates.
    if text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text):
        return text
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeError:
        raise UsageError(f"{what} is not UTF-8 text", hint=TO_UTF8) from None


def _read_stdin(attacher: Attacher, *, forced: bool) -> File | None:
    """What is piped in. A terminal is read only when `-` asks for it."""
    if sys.stdin is None or (sys.stdin.isatty() and not forced):
        return None
    # A script may have left stdin open with nothing to say: after some seconds a notice tells what is waited for.
    try:
        ready = select.select([sys.stdin.buffer], [], [], SILENCE)[0]
    except (OSError, ValueError):  # Windows can do this with sockets only
        ready = [sys.stdin.buffer]
    if not ready:
        print_notice("waiting for the end of standard input; to give none: conductor ask … < /dev/null")
    return attacher.attach_stream(sys.stdin.buffer, STDIN_NAME)


def read_text_file(path: Path, hint: str = "check its name") -> str:
    """The text of a file. Raises `UsageError`, with `hint` where the file cannot be opened."""
    try:
        with path.open("rb") as file:
            return read_text(file, str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint=hint) from None


def read_text(stream: BinaryIO, source: str) -> str:
    """What a stream holds, as text. Raises `UsageError` where it is not UTF-8, holds NUL bytes, or is too large."""
    data = stream.read(TEXT_LIMIT + 1)
    if len(data) > TEXT_LIMIT:
        raise UsageError(f"{source} is larger than {TEXT_LIMIT >> 20} MiB", hint="attach only the part that matters")
    return decode_text(data, source)


def _read_schema(path: Path) -> dict[str, Any]:
    try:
        schema = json.loads(read_text_file(path))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}", hint="--schema takes a JSON Schema") from None
    if not isinstance(schema, dict):
        raise UsageError(f"{path} is not a JSON object", hint="--schema takes a JSON Schema")
    return schema
