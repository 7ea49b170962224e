"""The text of a PDF, read by a child process that may neither take long nor grow large."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

SECONDS: Final = 20.0
"""How long reading one document may take: 32 MB of ordinary text take about 10 s."""

_ENVIRONMENT: Final = ("PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "SYSTEMROOT", "TMPDIR", "TEMP", "LANG")
"""The variables that the child gets: no keys."""

PdfProblem = Literal["", "damaged", "encrypted", "memory", "length", "time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PdfText:
    """The text of a document with a line before each page, and how many pages there are.

    `read` pages of them were read; `problem` says why not all of them.
    """

    text: str = ""
    pages: int = 0
    read: int = 0
    problem: PdfProblem = ""


def read_pdf(data: bytes, *, seconds: float = SECONDS) -> PdfText:
    """The text of a PDF. Never raises: what cannot be read is a `problem`."""
    command = [sys.executable, "-P", "-m", "conductor_cli.app.pdf_process"]
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    with subprocess.Popen(  # noqa: S603 - our own module
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as child:
        problem: PdfProblem = ""
        try:
            written, _ = child.communicate(data, timeout=seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            written, _ = child.communicate()
            problem = "time"
        except BaseException:
            child.kill()
            raise
    return _read_lines(written, problem)


def _read_lines(written: bytes, problem: PdfProblem) -> PdfText:
    pages, texts, end = 0, [], None
    for line in _json_lines(written):
        pages = line.get("pages", pages)
        end = line.get("end", end)
        if "text" in line:
            texts.append(line["text"])
    text = "\n".join(f"[page {number}]\n{text}" for number, text in enumerate(texts, start=1))
    # A child without an end was killed: by the clock, or because it needed more memory or processor time than allowed.
    found = problem or ("memory" if end is None else end)
    return PdfText(text=text if any(map(str.strip, texts)) else "", pages=pages, read=len(texts), problem=found)


def _json_lines(written: bytes) -> Iterator[Mapping[str, Any]]:
    for line in written.splitlines():
        with suppress(ValueError):
            yield json.loads(line)
