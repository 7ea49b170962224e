"""The child process that reads the text of a PDF: a document is untrusted, and a small one can ask for gigabytes.

Run as `python -P -m conductor_cli.app.pdf_process` with the document on stdin. It limits its own memory and processor
time, and writes JSON lines: `{"pages": N}`, then `{"text": …}` for each page in order, then `{"end": REASON}`.
`REASON` is empty, or `damaged`, `encrypted`, `memory` or `length`.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from io import BytesIO
from typing import Any, Final, TextIO

MEMORY: Final = 1 << 30
"""The most address space, in bytes: a PDF of 32 MB takes about 200 MB."""

PROCESSOR_SECONDS: Final = 30

TEXT_LIMIT: Final = 4_000_000
"""The most characters of text: about a million tokens, more than any worker reads."""


def main() -> None:
    """Read one document."""
    # pypdf warns of every fault that it works around. Only our answer may reach the parent.
    with os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace") as out:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        _limit_resources()
        try:
            reason = _write_pages(sys.stdin.buffer.read(), out)
        except MemoryError:
            reason = "memory"
        except Exception as error:  # noqa: BLE001 - pypdf raises whatever a damaged document leads to
            # pypdf has limits of its own, for what one stream may unpack to.
            reason = "memory" if type(error).__name__ == "LimitReachedError" else "damaged"
        _write(out, end=reason)


def _limit_resources() -> None:
    with suppress(ImportError, OSError, ValueError):
        import resource  # POSIX only

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS))


def _write_pages(data: bytes, out: TextIO) -> str:
    """Write the text of each page, and return why not all of it was written. Raises whatever pypdf does."""
    from pypdf import PdfReader

    reader = PdfReader(BytesIO(data))
    # Many documents are encrypted with an empty password, which only asks readers not to print or copy.
    if reader.is_encrypted and not reader.decrypt(""):
        return "encrypted"
    _write(out, pages=len(reader.pages))
    length = 0
    for page in reader.pages:
        text = page.extract_text()
        length += len(text)
        if length > TEXT_LIMIT:
            return "length"
        _write(out, text=text)
    return ""


def _write(out: TextIO, **line: Any) -> None:  # noqa: ANN401 - any JSON value
    out.write(json.dumps(line) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
