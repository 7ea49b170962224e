"""An image and a PDF that show a number, made in code. Pure.

A model that is sent a file it cannot read often answers all the same, so a test asks for what only the file says.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

_DIGITS: Final = (
    "01110 10001 10011 10101 11001 10001 01110", "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00010 00100 01000 11111", "11111 00010 00100 00010 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010", "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110", "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110", "01110 10001 10001 01111 00001 00010 01100",
)  # fmt: skip
"""The digits 0 to 9: seven rows of five dots each."""

_SCALE: Final = 24
"""Pixels of a dot. Four digits make 600 by 216 pixels: models shrink larger images and do not see very small ones."""


def png_of_number(number: str) -> bytes:
    """The digits of `number` in black on white, as a PNG of some hundred bytes (RFC 2083, 8 bits of grey)."""
    rows = ["0".join(_DIGITS[int(digit)].split()[line] for digit in number) for line in range(7)]
    blank = "0" * (len(rows[0]) + 2)
    lines = [blank, *(f"0{row}0" for row in rows), blank]
    width, height = len(blank) * _SCALE, len(lines) * _SCALE
    pixels = (
        b"\0" + b"".join((b"\0" if dot == "1" else b"\xff") * _SCALE for dot in line)
        for line in lines for _ in range(_SCALE)
    )  # fmt: skip
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"".join(pixels), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def pdf_of_number(number: str) -> bytes:
    """A page that says `number` in large letters, as a PDF of some hundred bytes (ISO 32000-1)."""
    page = f"BT /F1 48 Tf 72 700 Td (The number is {number}.) Tj ET".encode()
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font 6 0 R >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(page), page),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /F1 5 0 R >>",
    )
    pdf, offsets = b"%PDF-1.4\n", []
    for number_of_object, content in enumerate(objects, 1):
        offsets.append(len(pdf))
        pdf += b"%d 0 obj\n%s\nendobj\n" % (number_of_object, content)
    entries = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    table = b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, entries)
    return pdf + table + b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (size, len(pdf))
