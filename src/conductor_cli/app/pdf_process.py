"""What a bounded child process does that reads the text of a PDF: a document is untrusted, and may ask for gigabytes.

It gives `{"pages": N}`, then `{"text": …}` for each page in order, then `{"end": REASON}`. `REASON` is empty, or
`damaged`, `encrypted`, `memory` or `length`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from io import BytesIO
from typing import Any, Final

MAX_TEXT: Final = 4_000_000
"""The most characters of text: about a million tokens, more than any worker reads."""


def answer(data: bytes) -> Iterator[dict[str, Any]]:
    """Give the pages of one document."""
    try:
        reason = yield from _read_pages(data)
    except MemoryError:
        reason = "memory"
    except Exception as error:  # noqa: BLE001 - pypdf raises whatever a damaged document leads to
        # pypdf has limits of its own, for what one stream may unpack to.
        reason = "memory" if type(error).__name__ == "LimitReachedError" else "damaged"
    yield {"end": reason}


def _read_pages(data: bytes) -> Generator[dict[str, Any], None, str]:
    """Give each page, and return why not all of them were given. Raises whatever pypdf does."""
    from pypdf import PdfReader

    reader = PdfReader(BytesIO(data))
    # Many documents are encrypted with an empty password, which only asks readers not to print or copy.
    if reader.is_encrypted and not reader.decrypt(""):
        return "encrypted"
    yield {"pages": len(reader.pages)}
    length = 0
    for page in reader.pages:
        text = page.extract_text()
        length += len(text)
        if length > MAX_TEXT:
            return "length"
        yield {"text": text}
    return ""
