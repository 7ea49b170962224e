"""What a bounded child process does that reads a PDF, a Word document or a web page.

All of them are untrusted.

Of a PDF it gives `{"pages": N}`, then `{"text": …}` for each page in order, with `"drawn": true`
where a page has no text and shows something all the same; of the others, as Markdown, `{"text": …,
"left_out": {WHAT: HOW MANY}, "guessed": …}`, which says whether the encoding is a guess. Then it
gives `{"end": REASON}`. `REASON` is empty, or `damaged`, `encrypted`, `memory`, `length` or
`missing` (a library is not installed).

Pictures of a document are counted and never opened, since a document can name any file.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pypdf import PageObject

# The most characters of text: about a million tokens, more than any worker reads
MAX_TEXT: Final = 4_000_000
# For the text of a page: what was read until then is given, before the parent gives up
PAGE_SECONDS: Final = 12.0

# The operators of a PDF that leave something on its page, other than those of text
_PAINTING: Final = re.compile(rb"(?:^|\s)(?:Do|EI|sh|[BbFfSs]\*?)(?=\s|$)")


def answer(content: bytes) -> Iterator[dict[str, Any]]:
    """Give the text of one document, and why it is not all of it."""
    try:
        # As `media_type_of` in core/media.py, which is not imported here.
        is_pdf = b"%PDF-" in content[:1024] and not content.lstrip()[:1].isalpha()
        reader = _read_page
        if is_pdf:
            reader = _read_pages
        reason = yield from reader(content)
    except ModuleNotFoundError:
        reason = "missing"
    except MemoryError:
        reason = "memory"
    except Exception as error:  # noqa: BLE001
        # The libraries raise whatever a damaged document leads to. pypdf has limits of its own, for
        # what one stream may unpack to.
        reason = "damaged"
        if type(error).__name__ == "LimitReachedError":
            reason = "memory"
    yield {"end": reason}


def _read_pages(content: bytes) -> Generator[dict[str, Any], None, str]:
    """Give each page of a PDF, and return why not all of them were given.

    Raises whatever pypdf does.
    """
    from pypdf import PdfReader

    reader = PdfReader(BytesIO(content))
    # Many documents are encrypted with an empty password, which only asks readers not to print or
    # copy.
    if reader.is_encrypted and not reader.decrypt(""):
        return "encrypted"
    yield {"pages": len(reader.pages)}
    length = 0
    for page in reader.pages:
        text = page.extract_text()
        length += len(text)
        if length > MAX_TEXT:
            return "length"
        given: dict[str, Any] = {"text": text}
        if not text.strip() and _draws(page):
            given["drawn"] = True
        yield given
    return ""


def _draws(page: PageObject) -> bool:
    """Return whether a page paints anything: a picture, as a scan does, or lines and surfaces."""
    content = page.get_contents()
    return content is not None and _PAINTING.search(content.get_data()) is not None


def _read_page(content: bytes) -> Generator[dict[str, Any], None, str]:
    """Give a Word document or a web page as Markdown. Raises whatever the libraries do."""
    from conductor_cli.app.page_markdown import decode_page, to_markdown

    left_out: dict[str, int] = {}
    is_cut = False
    is_guess = False
    if content.startswith(b"PK"):
        import gc

        from mammoth import convert_to_html, images

        from conductor_cli.app.word_parts import prepare

        # It took half the time of mammoth's many small objects; the memory of this process is
        # bounded
        gc.disable()
        document, left_out, is_cut = prepare(content, MAX_TEXT)
        # An image is only counted, and never opened: it may be a link to a file.
        unread = images.img_element(lambda _: {"src": ""})
        page = convert_to_html(BytesIO(document), convert_image=unread).value
    else:
        page, is_guess = decode_page(content)
    text, page_left_out, end = to_markdown(page, MAX_TEXT, PAGE_SECONDS)
    for kind, count in page_left_out.items():
        left_out[kind] = left_out.get(kind, 0) + count
    yield {"text": text, "left_out": left_out, "guessed": is_guess}
    if not end and is_cut:
        return "length"
    return end
