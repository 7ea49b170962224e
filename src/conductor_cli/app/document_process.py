"""What a bounded child process does that reads a Word document or a web page as Markdown: both are untrusted.

It gives `{"text": …, "left_out": {WHAT: HOW MANY}}`, then `{"end": REASON}`. `REASON` is empty, or `damaged`, `memory`,
`length` or `missing` (a library is not installed).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BytesIO
from typing import Any, Final

MAX_TEXT: Final = 4_000_000
"""The most characters of text: about a million tokens, more than any worker reads."""

LEFT_OUT: Final = {
    "script": "scripts", "style": "style sheets", "img": "images", "svg": "images", "iframe": "frames", "form": "forms",
    "template": "templates", "noscript": "scripts", "head": "",
}  # fmt: skip
"""The elements that say nothing to a reader of the text, and what they are called; the head is not mentioned."""


def answer(data: bytes) -> Iterator[dict[str, Any]]:
    """Give the text of one document, and why it is not all of it."""
    reason = ""
    try:
        text, left_out = _read(data)
        reason = "length" if len(text) > MAX_TEXT else ""
        yield {"text": text[:MAX_TEXT], "left_out": left_out}
    except ModuleNotFoundError:
        reason = "missing"
    except MemoryError:
        reason = "memory"
    except Exception:  # noqa: BLE001 - the libraries raise whatever a damaged document leads to
        reason = "damaged"
    yield {"end": reason}


def _read(data: bytes) -> tuple[str, dict[str, int]]:
    """Return the text as Markdown, and how much of what was left out. Raises whatever the libraries do."""
    from bs4 import BeautifulSoup
    from markdownify import MarkdownConverter

    if data.startswith(b"PK"):
        from mammoth import convert_to_html, images

        # An image is only counted, and never opened: it may be a link to a file.
        unread = images.img_element(lambda _: {"src": ""})
        data = convert_to_html(BytesIO(data), convert_image=unread).value.encode()
    page = BeautifulSoup(data, "html.parser")
    left_out = dict[str, int]()
    for element in page.find_all(list(LEFT_OUT)):
        if element.decomposed:  # it was inside another one
            continue
        if what := LEFT_OUT[element.name]:
            left_out[what] = left_out.get(what, 0) + 1
        element.decompose()
    text = MarkdownConverter(heading_style="ATX").convert_soup(page)
    return re.sub(r"[ \t]*\n(?:[ \t]*\n)+", "\n\n", text).strip() + "\n", left_out
