"""The text of a PDF: page by page, by a child process.

Bombs, damage and passwords end in a word, soon.
"""

from __future__ import annotations

import io
import zlib

import pytest

from conductor_cli.app.documents import read_pdf
from conductor_cli.programs.bounded_child import ChildLimits
from tests.media_files import pdf, pdf_of, stream


def test_each_page_has_a_line_before_it() -> None:
    pdf_text = read_pdf(pdf("One", "Two"))
    assert (pdf_text.text, pdf_text.pages, pdf_text.read, pdf_text.problem) == (
        "[page 1]\nOne\n[page 2]\nTwo",
        2,
        2,
        "",
    )


def test_a_document_without_text_has_none() -> None:
    pdf_text = read_pdf(pdf_of([b"<< /Length 0 >>\nstream\n\nendstream"]))
    assert (pdf_text.text, pdf_text.pages, pdf_text.problem) == ("", 1, "")


def _zeros(megabytes: int) -> bytes:
    compressor = zlib.compressobj(1)
    return (
        b"".join(compressor.compress(bytes(10**6)) for _ in range(megabytes)) + compressor.flush()
    )


@pytest.mark.parametrize("twice", [False, True])
def test_a_stream_that_unpacks_to_hundreds_of_megabytes_is_not_unpacked(twice: bool) -> None:
    """A bomb of a megabyte, or of kilobytes where it is packed twice, ends with a word for it."""
    content = _zeros(300)
    packed = stream(content, "/FlateDecode")
    if twice:
        packed = stream(zlib.compress(content, 9), "[/FlateDecode /FlateDecode]")
    pdf_text = read_pdf(pdf_of([packed]))
    assert (pdf_text.problem, pdf_text.text) == ("memory", "")


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        (b"/Type /Catalog", b"/Type /Catalog /X " + b"<< /A " * 5_000 + b"1" + b" >>" * 5_000),
        (b"/Kids [4 0 R]", b"/Kids [2 0 R]"),
    ],
    ids=["nested deeply", "pages in a loop"],
)
def test_a_structure_that_never_ends_is_damage(part: bytes, instead: bytes) -> None:
    assert read_pdf(pdf("x").replace(part, instead)).problem == "damaged"


def test_a_document_that_takes_too_long_is_given_up() -> None:
    assert read_pdf(pdf("x"), ChildLimits(0.01)).problem == "time"


@pytest.mark.parametrize(("password", "problem"), [("secret", "encrypted"), ("", "")])
def test_an_empty_password_opens_a_document_and_another_does_not(
    password: str, problem: str
) -> None:
    """Most encrypted documents only ask readers not to print."""
    from pypdf import PdfWriter

    writer = PdfWriter(clone_from=io.BytesIO(pdf("hidden words")))
    writer.encrypt(user_password=password, owner_password="owner", algorithm="AES-256")
    buffer = io.BytesIO()
    writer.write(buffer)
    pdf_text = read_pdf(buffer.getvalue())
    assert pdf_text.problem == problem
    assert ("hidden words" in pdf_text.text) == (problem == "")
