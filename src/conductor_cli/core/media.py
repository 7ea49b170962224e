"""What bytes are, judged by their content and never by a name.

Images with their size, PDF, the encoding of texts, and what is refused. Pure.

The formats are those that the large providers read: PNG, JPEG, GIF, WebP, PDF. The head of an image
is read here, not its pixels: that is enough to tell how large it is, and whether its end is
missing.

One figure estimates the tokens of an image for all providers, whose own rules change with each
model.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

from conductor_cli.core.chat import Attachment
from conductor_cli.core.formatting import format_count, format_size
from conductor_cli.core.terminal_text import shell_word

PDF: Final = "application/pdf"

NAMES: Final = {
    "image/png": "PNG image",
    "image/jpeg": "JPEG image",
    "image/gif": "GIF image",
    "image/webp": "WebP image",
    PDF: "PDF document",
}
"""The media types that can be attached, in words."""

SUFFIXES: Final = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "pdf": PDF,
}
"""What a file claims to be by the end of its name, in small letters."""

_PDF_HEAD: Final = 1024  # Bytes in which a PDF's first line may stand (ISO 32000-2, annex I.2)

_REFUSED: Final = (
    (b"PK\x03\x04", 0, "a ZIP archive, as .xlsx and .pptx files are"),
    (b"\xd0\xcf\x11\xe0", 0, "an old Microsoft Office file"),
    (b"\x1f\x8b", 0, "a gzip archive"),
    (b"\x7fELF", 0, "a program"),
    (b"MZ", 0, "a program"),
    (b"II*\x00", 0, "a TIFF image"),
    (b"MM\x00*", 0, "a TIFF image"),
    (b"ftypheic", 4, "a HEIC image"),
    (b"ftyp", 4, "an MP4 video or sound"),
)
"""What people try to attach and cannot: the bytes at a place, and what they are. The first that
fits counts.
"""


def media_type_of(content: bytes) -> str:
    """Return the media type of an image or a PDF; empty for anything else, text included."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "image/webp"
    if b"%PDF-" in content[:_PDF_HEAD] and not content.lstrip()[:1].isalpha():
        return PDF
    return ""


def describe_refused(content: bytes) -> str:
    """Return what bytes are that cannot be attached, as far as their beginning says it.

    Empty where it does not.
    """
    for head, start, words in _REFUSED:
        if content[start : start + len(head)] == head:
            return words
    return ""


_HEAD_BYTES: Final = 4096  # By which UTF-16 without a byte order mark is found

_CONTROL_BYTES: Final = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")
"""Control characters that no text has, in whatever 8-bit encoding."""

_NOT_CP1252_BYTES: Final = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
"""Bytes that mean nothing in Windows-1252."""

_RARE_CP1252_BYTES: Final = re.compile(rb"[\x81-\x83\x86-\x90\x98\x9d]")
"""Bytes that are hardly ever in a text in Windows-1252, and often in one in Shift-JIS."""

_OTHER_BYTES: Final = re.compile(rb"[\x80-\xff]")
_RUNS_OF_OTHER_BYTES: Final = re.compile(rb"[\x80-\xff]{3,}")
_LETTERS: Final = re.compile(rb"[A-Za-z]")

UNKNOWN_ENCODING: Final = "ENCODING"  # What stands for its name in a command


_SAMPLE_BYTES: Final = 64 * 1024  # By which an encoding is guessed


def guess_encoding(content: bytes) -> str:
    """Return in what encoding text probably is that is no UTF-8, as iconv calls it.

    The name is empty where the bytes are no text. A byte order mark says it. Without one, UTF-16 of
    a text in Latin letters has a zero in every second byte. Other bytes may be of any encoding of 8
    bits: Windows-1252 is the commonest one, and holds Latin-1. In a text of Western Europe letters
    with accents stand among others; where they do not, the encoding is not known.
    """
    if content.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "UTF-32"
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    if len(content) % 2 == 0:
        head = content[: _HEAD_BYTES // 2 * 2]
        if _is_latin_utf16(letters=head[0::2], zeros=head[1::2]):
            return "UTF-16LE"
        if _is_latin_utf16(letters=head[1::2], zeros=head[0::2]):
            return "UTF-16BE"
    # A guess needs no more, and counting in megabytes would hold up a server
    sample = content[:_SAMPLE_BYTES]
    if _CONTROL_BYTES.search(sample):
        return ""
    others = len(_OTHER_BYTES.findall(sample))
    in_runs = sum(map(len, _RUNS_OF_OTHER_BYTES.findall(sample)))
    rare = len(_RARE_CP1252_BYTES.findall(sample))
    is_western = others <= len(_LETTERS.findall(sample)) and 2 * in_runs <= others
    if not is_western or 4 * rare > others or _NOT_CP1252_BYTES.search(sample):
        return UNKNOWN_ENCODING
    return "CP1252"


def _is_latin_utf16(*, letters: bytes, zeros: bytes) -> bool:
    """Return whether these halves of a text's bytes are letters, most of them Latin, and zeros."""
    controls = len(_CONTROL_BYTES.findall(letters))
    is_text = 0 not in letters and controls * 4 < len(letters)
    return is_text and zeros.count(0) * 2 > len(zeros)


def describe_encoding(encoding: str) -> str:
    """Return what `guess_encoding` says of a text, as a part of a sentence."""
    if not encoding:
        return "it is not text in any encoding"
    if encoding == UNKNOWN_ENCODING:
        return "its encoding is not known, as of CP1251, GB18030 or SHIFT_JIS"
    return f"it may be {encoding}"


def conversion_command(path: str, encoding: str) -> tuple[str, str]:
    """Return the command that converts a file to UTF-8, and how a shell names what it writes."""
    directory, slash, name = path.rpartition("/")
    stem, dot, ending = name.rpartition(".")
    if not stem:  # a name without an ending, or a hidden one
        stem = name
        dot = ""
        ending = ""
    converted = shell_word(f"{directory}{slash}{stem}.utf8{dot}{ending}")
    return f"iconv -f {encoding} -t UTF-8 {shell_word(path)} > {converted}", converted


def image_size(content: bytes, media_type: str) -> tuple[int, int] | None:
    """Return width and height of an image in pixels.

    None where it is damaged or its end is missing.
    """
    try:
        if media_type == "image/gif":
            # Its screen descriptor (GIF89a, section 18); the trailer ends the file, which some
            # programs pad.
            whole = len(content) > 13 and content.rstrip(b"\x00").endswith(b";")
            size = None
            if whole:
                size = (
                    int.from_bytes(content[6:8], "little"),
                    int.from_bytes(content[8:10], "little"),
                )
        else:
            size = {"image/png": _png_size, "image/jpeg": _jpeg_size, "image/webp": _webp_size}[
                media_type
            ](content)
    except IndexError:
        return None
    if size is not None and min(size) > 0:
        return size
    return None


def _png_size(content: bytes) -> tuple[int, int] | None:
    """Return by its chunks (PNG, third edition, section 5): IHDR is the first, IEND the last."""
    at = 8
    while content[at + 4 : at + 8] != b"IEND":
        if at + 8 > len(content):
            return None
        at += 12 + int.from_bytes(content[at : at + 4], "big")
    if at + 12 > len(content) or content[12:16] != b"IHDR":
        return None
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


def _jpeg_size(content: bytes) -> tuple[int, int] | None:
    """Return the size in the frame header, found by the segments (ITU T.81, annex B).

    The end marker comes after the last scan.
    """
    at = 2
    size = None
    while content[at] == 0xFF:
        marker = content[at + 1]
        if marker == 0xFF:  # a filling byte
            at += 1
            continue
        if marker == 0xDA:  # the scan: from here on there are compressed data
            if content.rfind(b"\xff\xd9") > at:
                return size
            return None
        length = int.from_bytes(content[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            size = (
                int.from_bytes(content[at + 7 : at + 9], "big"),
                int.from_bytes(content[at + 5 : at + 7], "big"),
            )
        at += 2 + max(length, 2)
    return None


def _webp_size(content: bytes) -> tuple[int, int] | None:
    """Return by its first chunk (RFC 9649, section 2): VP8X, VP8L or VP8."""
    if int.from_bytes(content[4:8], "little") + 8 > len(content) or len(content) < 30:
        return None
    kind = content[12:16]
    if kind == b"VP8X":
        return int.from_bytes(content[24:27], "little") + 1, int.from_bytes(
            content[27:30], "little"
        ) + 1
    if kind == b"VP8L" and content[20] == 0x2F:
        bits = int.from_bytes(content[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 " and content[23:26] == b"\x9d\x01\x2a":
        return int.from_bytes(content[26:28], "little") & 0x3FFF, int.from_bytes(
            content[28:30], "little"
        ) & 0x3FFF
    return None


def describe_media(attachment: Attachment) -> str:
    """Return what an attachment is, in words: `PNG image, 800 x 600 pixels, 1.2 MB`."""
    facts = [NAMES.get(attachment.media_type, attachment.media_type)]
    if attachment.width:
        facts.append(f"{attachment.width} x {attachment.height} pixels")
    if attachment.pages:
        facts.append(format_count(attachment.pages, "page"))
    return ", ".join([*facts, format_size(attachment.size)])


IMAGE_TOKENS: Final = 1600
PIXELS_PER_TOKEN: Final = 750
PAGE_TOKENS: Final = 3000


def attachment_tokens(attachment: Attachment) -> int:
    """Return about how many tokens a model reads of an attachment.

    One figure for all providers, rather too high.

    Anthropic counts width x height / 750 and scales an image down to about 1,600 tokens
    (docs.claude.com, "Vision"); Gemini counts 258 per tile of 768 x 768 pixels, up to 1,120 for a
    whole image; OpenAI's larger models count 70 to 170 per tile of 512 x 512 pixels, at most about
    1,500, its small ones count the same image up to 20 times higher. Of a PDF each provider reads
    the text and a picture of each page: 1,500 to 3,000 tokens a page at Anthropic, fewer at the
    others. As of November 2026.
    """
    if attachment.kind == "pdf":
        return max(attachment.pages, 1) * PAGE_TOKENS
    by_area = -(-attachment.width * attachment.height // PIXELS_PER_TOKEN)
    if not by_area:
        return IMAGE_TOKENS
    return min(by_area, IMAGE_TOKENS)
