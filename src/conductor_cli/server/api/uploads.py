"""The images, documents and files of text that a message carries, read from a request. Pure.

They come as data URLs or in base64: this server keeps no files for messages, and fetches none.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import BeforeValidator

from conductor_cli.core.chat import ImageDetail
from conductor_cli.core.media import (
    PDF,
    describe_encoding,
    describe_refused,
    guess_encoding,
    image_size,
    media_type_of,
)
from conductor_cli.server.api.body_faults import fault

KEEPS_NO_FILES: Final = "must be in the request itself: this server keeps no files and fetches none"


_DATA_URL: Final = re.compile(r"data:[^,]{0,200},", re.IGNORECASE)


@dataclass(frozen=True)
class Upload:
    """What a message carries: an image, a PDF document, or a file of `text`.

    `size` is that of an image in pixels, and `detail` what was asked for in the same object.
    """

    content: bytes
    media_type: str
    size: tuple[int, int] = (0, 0)
    text: str | None = None
    detail: ImageDetail | None = None


def uploaded(decode: Callable[[str], bytes], read: Callable[[bytes], Upload]) -> BeforeValidator:
    """Read a text, or the `url` of an object, as an upload."""

    def validate(value: object) -> Upload:
        text = value
        detail = None
        if isinstance(value, dict):
            text = value.get("url")
            detail = detail_of(value.get("detail"))
        if text is None:
            raise fault(KEEPS_NO_FILES, "unsupported_content")
        if not isinstance(text, str):
            raise fault("must be a string", "invalid_type")
        return replace(read(decode(text)), detail=detail)

    return BeforeValidator(validate, json_schema_input_type=str | dict[str, Any])


def read_image(content: bytes) -> Upload:
    """Return the bytes of an image with its size. Raises for anything else, as a validator does."""
    media_type = media_type_of(content)
    if not media_type.startswith("image/"):
        description = describe_refused(content) or (
            "a PDF document" if media_type == PDF else "not an image"
        )
        raise fault(
            f"is {description}; images are PNG, JPEG, GIF or WebP", "unsupported_image_media_type"
        )
    size = image_size(content, media_type)
    if size is None:
        raise fault("is a damaged or truncated image", "invalid_image")
    return Upload(content, media_type, size)


def read_document(content: bytes) -> Upload:
    """Return the bytes of a PDF, an image or a text.

    Raises for anything else, as a validator does.
    """
    media_type = media_type_of(content)
    if media_type.startswith("image/"):
        return read_image(content)
    if media_type == PDF:
        return Upload(content, media_type)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        description = (
            describe_refused(content) or "neither a PDF document, an image, nor a text in UTF-8"
        )
        encoding = guess_encoding(content)
        if encoding:
            description += f"; {describe_encoding(encoding)}"
        raise fault(f"is {description}", "unsupported_file")
    if not text:
        raise fault("is empty", "unsupported_file")
    return Upload(content, media_type, text=text)


def bytes_of_url(url: str) -> bytes:
    """Return the bytes of a data URL (RFC 2397) in base64: links are not fetched."""
    head = _DATA_URL.match(url)
    if head is None:
        is_link = url[:8].lower().startswith(("http:", "https:"))
        problem = "is a link, and this server fetches none" if is_link else "is not a data URL"
        raise fault(f"{problem}: send data:image/png;base64,…", "invalid_image_url")
    if not head[0].lower().endswith(";base64,"):
        raise fault("must be in base64: data:image/png;base64,…", "invalid_base64_image")
    return bytes_of_base64(url[head.end() :])


def bytes_of_base64(text: str) -> bytes:
    """Return the bytes of a base64 text, which may be broken into lines."""
    try:
        decoded = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise fault("is not valid base64", "invalid_base64_image") from None
    if not decoded:
        raise fault("is empty", "empty_image_file")
    return decoded


_DETAILS: Final[Mapping[str, ImageDetail]] = {"low": "low", "high": "high", "original": "original"}
"""The details that a client may ask for besides `auto`, which is what a provider does by itself."""


def detail_of(value: object) -> ImageDetail | None:
    """Return the detail of an image that a client asks for; None where it asks for none."""
    return _DETAILS.get(value) if isinstance(value, str) else None


def is_unknown_detail(value: object) -> bool:
    """Return whether a client asks for a detail that nobody here knows."""
    return value is not None and value != "auto" and detail_of(value) is None
