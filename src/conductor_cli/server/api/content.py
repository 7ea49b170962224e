"""What the messages of a client carry besides text: images and documents out of data URLs and base64. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from typing import Final

from conductor_cli.core.chat import Attachment
from conductor_cli.core.media import PDF, SUFFIXES, describe_refused, image_size, media_type_of
from conductor_cli.core.quoting import fence
from conductor_cli.core.sanitize import one_line
from conductor_cli.server.api.fields import refused

_DATA_URL: Final = re.compile(r"data:[^,]{0,200},", re.IGNORECASE)

_ENDINGS: Final[Mapping[str, str]] = {kind: suffix for suffix, kind in SUFFIXES.items() if suffix != "jpeg"}


class Carried:
    """Collects what the messages of one request carry. `blobs` are the bytes by their SHA-256.

    What is sent twice, as in each turn of a conversation, is one attachment with one name.
    """

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self._known: dict[str, Attachment] = {}

    def image(self, data: bytes, param: str, name: str = "") -> Attachment:
        """An image. Raises `RequestError` for anything else."""
        found = media_type_of(data)
        if not found.startswith("image/"):
            what = describe_refused(data) or ("a PDF document" if found == PDF else "not an image")
            raise refused(param, f"is {what}; images are PNG, JPEG, GIF or WebP", "unsupported_image_media_type")
        size = image_size(data, found)
        if size is None:
            raise refused(param, "is a damaged or truncated image", "invalid_image")
        return self._keep(data, found, name, width=size[0], height=size[1])

    def document(self, data: bytes, param: str, name: str = "") -> Attachment | str:
        """A file: an attachment for a PDF or an image, for a text the quoted text. Raises `RequestError`."""
        found = media_type_of(data)
        if found.startswith("image/"):
            return self.image(data, param, name)
        if found == PDF:
            return self._keep(data, found, name)
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            what = describe_refused(data) or "neither a PDF document, an image, nor a text in UTF-8"
            raise refused(param, f"is {what}", "unsupported_file")
        return fence("file", text, name=one_line(name) or "file")

    def _keep(self, data: bytes, media_type: str, name: str, *, width: int = 0, height: int = 0) -> Attachment:
        sha256 = hashlib.sha256(data).hexdigest()
        if sha256 not in self._known:
            kind = "document" if media_type == PDF else "image"
            own = f"{kind}-{len(self._known) + 1}.{_ENDINGS[media_type]}"
            self.blobs[sha256] = data
            self._known[sha256] = Attachment(
                name=one_line(name)[:200] or own, media_type=media_type, sha256=sha256, size=len(data), width=width,
                height=height,
            )  # fmt: skip
        return self._known[sha256]


def bytes_of_url(url: str, param: str) -> bytes:
    """The bytes of a data URL (RFC 2397) in base64. Raises `RequestError`: links are not fetched."""
    head = _DATA_URL.match(url)
    if head is None:
        is_link = url[:8].lower().startswith(("http:", "https:"))
        what = "is a link, and this server fetches none" if is_link else "is not a data URL"
        raise refused(param, f"{what}: send data:image/png;base64,…", "invalid_image_url")
    if not head[0].lower().endswith(";base64,"):
        raise refused(param, "must be in base64: data:image/png;base64,…", "invalid_base64_image")
    return bytes_of_base64(url[head.end() :], param)


def bytes_of_base64(text: str, param: str) -> bytes:
    """The bytes of a base64 text, which may be broken into lines. Raises `RequestError`."""
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise refused(param, "is not valid base64", "invalid_base64_image") from None
    if not data:
        raise refused(param, "is empty", "empty_image_file")
    return data
