"""Quoting texts inside a prompt: between tags, so that none passes for anything else, and shortened where needed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from typing import Final

from conductor_cli.core.chat import MediaKind
from conductor_cli.core.media import describe_media
from conductor_cli.core.question import File, Question

_QUOTED: Final = json.JSONEncoder(ensure_ascii=False).encode

TAG_CHARS: Final = 300  # Characters that the tags around one quoted text may take


def fence(tag: str, text: str, **origin: str) -> str:
    """Return `text` between tags that it cannot contain, with where it came from."""
    digest = text
    # Derived from the text rather than drawn at random, so that the same prompt is the same text and can be cached.
    while (mark := f"{tag}-{hashlib.sha256(digest.encode('utf-8', 'replace')).hexdigest()[:8]}") in text:
        digest += mark  # the text was made to contain its own tag
    attributes = "".join(f" {key}={_QUOTED(value)}" for key, value in origin.items())
    return f"<{mark}{attributes}>\n{text}\n</{mark}>"


def shorten(text: str, limit: int) -> str:
    """Return `text` with its middle left out where it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    # 60 characters are for the note in the middle. The head gets two thirds: questions tend to begin with the task.
    keep = min(max(limit - 60, 0), len(text))
    head = text[: keep * 2 // 3]
    tail = text[len(text) - (keep - len(head)) :]
    return f"{head}\n[… {len(text) - len(head) - len(tail)} characters left out …]\n{tail}"


def question_text(question: Question, room: int | None = None, accepts: Collection[MediaKind] = ()) -> str:
    """Return the whole question as one text: earlier turns, the question, each file between tags with its name.

    A file that goes along as an attachment, because the reader accepts its kind, is only named; so is an image that
    the reader cannot see.

    A later turn's text begins with that of the turn before it, so a model with a prefix cache reads only the rest.

    With `room`, in characters, what came with the question is shortened first: of the earlier turns the oldest are left
    out, the files are shortened to equal shares; the question itself only where it alone is longer.
    """
    asked_before = [f"Question:\n{turn.question}\n\n" if turn.question else "" for turn in question.history]
    history = [f"{asked}Answer:\n{turn.answer}" for asked, turn in zip(asked_before, question.history, strict=True)]
    asked, files = question.text, ["" if _is_only_named(file, accepts) else file.text for file in question.files]
    if room is not None and len(asked) + sum(map(len, [*history, *files])) > room:
        asked = shorten(asked, room)
        left = max(room - len(asked), 0)
        # The latest turns: the last one shortened if needed, older ones whole or left out.
        space = left // 2 if files else left
        kept = [shorten(turn, space) for turn in history[-1:]]
        for turn in reversed(history[:-1]):
            if sum(map(len, kept)) + len(turn) > space:
                kept.insert(0, f"[… {len(history) - len(kept)} earlier turns left out …]")
                break
            kept.insert(0, turn)
        history = kept
        share = max(left - sum(map(len, history)), 0) // max(len(files), 1)
        files = [shorten(text, share) for text in files]
    named = [
        f"The file {_QUOTED(file.name)} ({describe_media(file.attachment)}) "
        + (
            "is attached to this message."
            if file.is_sent_to(accepts)
            else "belongs to the question, but you cannot see it."
        )
        if file.attachment is not None and _is_only_named(file, accepts)
        else fence("file", text, name=file.name)
        for file, text in zip(question.files, files, strict=True)
    ]
    heading = "Question:\n" if history else ""
    return "\n\n".join([*history, heading + asked, *named])


def _is_only_named(file: File, accepts: Collection[MediaKind]) -> bool:
    return file.is_sent_to(accepts) or file.kind_without_text is not None
