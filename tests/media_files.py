"""Images and documents for tests, made from scratch.

Small, valid, and as large or as broken as a test wants them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence


def png(width: int = 8, height: int = 6, padding: int = 0) -> bytes:
    """A PNG image, grey; `padding` bytes of a private chunk make it larger."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    pixels = zlib.compress((b"\x00" + b"\x7f" * width) * height)
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    padding_chunk = chunk(b"teSt", b"\x01" * padding) if padding else b""
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + padding_chunk
        + chunk(b"IDAT", pixels)
        + chunk(b"IEND", b"")
    )


def jpeg(width: int = 8, height: int = 6) -> bytes:
    """The segments of a JPEG image that a reader of its size looks at.

    Its scan is not a picture.
    """
    app = b"\xff\xe0" + struct.pack(">H", 16) + b"JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\x01\x11\x00"
    scan = b"\xff\xda" + struct.pack(">H", 8) + b"\x01\x01\x00\x00\x3f\x00" + b"\x00\x10\x20"
    return b"\xff\xd8" + app + frame + scan + b"\xff\xd9"


def gif(width: int = 8, height: int = 6) -> bytes:
    """A GIF image without a colour table."""
    return (
        b"GIF89a"
        + struct.pack("<HHBBB", width, height, 0, 0, 0)
        + b"\x2c"
        + bytes(9)
        + b"\x02\x00;"
    )


def webp(width: int = 8, height: int = 6) -> bytes:
    """A lossless WebP image as far as its size goes."""
    bits = (width - 1) | (height - 1) << 14
    body = b"VP8L" + struct.pack("<I", 10) + b"\x2f" + struct.pack("<I", bits) + bytes(5)
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def pdf(*pages: str) -> bytes:
    """A PDF document with one line of text on each page."""
    contents = [f"BT /F1 24 Tf 72 700 Td ({text}) Tj ET".encode() for text in pages]
    return pdf_of([stream(content) for content in contents])


def stream(content: bytes, filters: str = "") -> bytes:
    """A content stream, whose `content` is already encoded."""
    named = f"/Filter {filters} " if filters else ""
    return f"<< {named}/Length {len(content)} >>\nstream\n".encode() + content + b"\nendstream"


def pdf_of(contents: Sequence[bytes]) -> bytes:
    """A PDF document with one page for each content stream."""
    count = len(contents)
    kids = " ".join(f"{4 + 2 * index} 0 R" for index in range(count))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for index, content in enumerate(contents):
        page = (
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * index} 0 R >>"
        )
        objects += [page.encode(), content]
    written = b"%PDF-1.4\n"
    offsets = []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(written))
        written += f"{number} 0 obj\n".encode() + content + b"\nendobj\n"
    table = b"".join(f"{offset:010} 00000 n \n".encode() for offset in offsets)
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    return (
        written
        + head
        + table
        + (
            (
                f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(written)}\n"
                "%%EOF\n"
            ).encode()
        )
    )
