"""Reads the text of PDFs, Word documents and web pages, in a child process of each.

That process may neither take long nor grow large, because all of them are untrusted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from conductor_cli.core.errors import UsageError
from conductor_cli.core.formatting import format_count, format_names
from conductor_cli.programs.bounded_child import ChildLimits, ChildStopped, run_child

DOCUMENT_LIMITS: Final = ChildLimits(seconds=20, memory=1 << 30, cpu_seconds=30)
"""Of reading one document: 32 MB of ordinary text take about 10 s and 200 MB."""

_REASONS: Final = {
    "time": "reading it took too long",
    "memory": "reading it took too much memory or time",
    "damaged": "it is damaged",
    "length": "it is very long",
}


class DocumentUnread(UsageError):
    """A document could not be read within the limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PdfText:
    """The text of a document with a line before each page, and how many pages there are.

    `read` pages of them were read; `problem` says why not all of them. `drawn` are the numbers of
    those that hold no text and show something all the same, such as a scan.
    """

    text: str = ""
    pages: int = 0
    read: int = 0
    drawn: tuple[int, ...] = ()
    problem: Literal["", "damaged", "encrypted", "memory", "length", "time"] = ""


def read_pdf(content: bytes, limits: ChildLimits | None = None) -> PdfText:
    """Return the text of a PDF. Never raises: what cannot be read is a `problem`."""
    lines = _read_in_child(content, limits)
    fields = _merge(lines)
    pages = [line for line in lines if "text" in line]
    texts = [page["text"] for page in pages]
    text = ""
    if any(map(str.strip, texts)):
        text = "\n".join(f"[page {number}]\n{page}" for number, page in enumerate(texts, start=1))
    return PdfText(
        text=text,
        pages=fields.get("pages", 0),
        read=len(texts),
        drawn=tuple(number for number, page in enumerate(pages, start=1) if "drawn" in page),
        problem=fields["end"],
    )


def _read_in_child(content: bytes, limits: ChildLimits | None = None) -> list[dict[str, Any]]:
    """Return what the child process says of a document; the last line has the `end`."""
    limits = limits or DOCUMENT_LIMITS
    if limits.seconds <= 0:
        return [{"end": "time"}]
    try:
        lines = run_child(Path(__file__).with_name("document_process.py"), content, limits)
    except ChildStopped as stopped:
        # By the clock, or because it needed more memory or processor time than allowed
        end = "memory"
        if stopped.why == "time":
            end = "time"
        return [*stopped.values, {"end": end}]
    if not lines or "end" not in lines[-1]:
        lines.append({"end": "memory"})
    return lines


def _merge(lines: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the fields of all lines; of one that several have, the last value."""
    fields: dict[str, Any] = {}
    for line in lines:
        fields.update(line)
    return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentText:
    """The text of a Word document or a web page.

    `left_out` says what of the document is not in it, with numbers. `guessed`: its encoding is a
    guess.
    """

    text: str
    left_out: tuple[str, ...]
    guessed: bool


def limits_within(seconds: float) -> ChildLimits:
    """Return the limits of one of several documents, which have so many seconds left together."""
    return DOCUMENT_LIMITS._replace(seconds=min(DOCUMENT_LIMITS.seconds, seconds))


def read_document(content: bytes, name: str, limits: ChildLimits | None = None) -> DocumentText:
    """Return the text of a Word document or a web page. Raises `UsageError` where none is read."""
    fields = _merge(_read_in_child(content, limits))
    text = fields.get("text", "")
    end = fields["end"]
    if not text.strip():
        raise _unread_document(name, end)
    left_out = [f"{count:,} {kind}" for kind, count in fields["left_out"].items()]
    if end:
        left_out.append(f"the end, because {_REASONS[end]}")
    return DocumentText(text=text, left_out=tuple(left_out), guessed=bool(fields.get("guessed")))


def describe_unread(document: PdfText) -> str:
    """Return what could not be read of a PDF, and why; empty where all was."""
    pages = format_count(document.pages, "page")
    why = _REASONS.get(document.problem, document.problem)
    if why and not document.read:
        return f"its text cannot be read: {why}"
    if not why and not document.text:
        return (
            "it holds no text, as scanned documents do; only workers that accept PDFs can read it"
        )
    told = []
    if why:
        told.append(f"only the text of {document.read} of {pages} was read: {why}")
    if document.drawn:
        numbers = format_names([*map(str, document.drawn)])
        told.append(
            f"{len(document.drawn)} of {pages} without text, as in scans ({numbers}); only "
            "workers that accept PDFs can read these"
        )
    return "; ".join(told)


def _unread_document(name: str, end: str) -> UsageError:
    """Return the error of a document of which no text was read; `end` says why."""
    if end == "missing":
        message = f"{name} needs two libraries"
        return UsageError(message, hint="pip install mammoth selectolax")
    message = f"{name} cannot be read: {_REASONS.get(end, 'it holds no text')}"
    if end in {"time", "memory"}:
        return DocumentUnread(message, hint="save it as text")
    return UsageError(message, hint="save it as text")
