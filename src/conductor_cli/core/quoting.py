"""Texts of others inside a prompt: fenced, so that none passes for anything else, and shortened where they must be."""

from __future__ import annotations

import hashlib
import json
from typing import Final

_QUOTED: Final = json.JSONEncoder(ensure_ascii=False).encode

FENCE: Final = 300
"""Characters that the tags around one block of a prompt may take."""


def fence(tag: str, text: str, **origin: str) -> str:
    """`text` between tags that it cannot contain, with where it came from."""
    mark = _mark(tag, text)
    attributes = "".join(f" {key}={_QUOTED(value)}" for key, value in origin.items())
    return f"<{mark}{attributes}>\n{text}\n</{mark}>"


def _mark(tag: str, text: str) -> str:
    """A tag that `text` does not contain."""
    digest = text
    while (mark := f"{tag}-{hashlib.sha256(digest.encode('utf-8', 'replace')).hexdigest()[:8]}") in text:
        digest += mark  # someone searched for a text that holds its own mark
    return mark


def shorten(text: str, limit: int) -> str:
    """`text` with its middle left out where it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    keep = min(max(limit - 60, 0), len(text))
    head = text[: keep * 2 // 3]
    tail = text[len(text) - (keep - len(head)) :]
    return f"{head}\n[… {len(text) - len(head) - len(tail)} characters left out …]\n{tail}"
