"""Reading the fields of a request: each has the right type, or the error names it. Pure.

What the messages of a client carry besides text: images and documents out of data URLs and base64. Pure.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import re
from collections.abc import Collection, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeVar

from conductor_cli.core.chat import Attachment
from conductor_cli.core.media import PDF, SUFFIXES, describe_refused, image_size, media_type_of
from conductor_cli.core.quoting import fence
from conductor_cli.core.terminal_text import one_line
from conductor_cli.server.api.request import RequestError

T = TypeVar("T")

_TYPES: Final[Mapping[type, str]] = {
    str: "a string", int: "a whole number", float: "a number", bool: "true or false", list: "an array",
    dict: "an object",
}  # fmt: skip

_MOST_IGNORED: Final = 20


def refused(param: str, message: str, code: str = "invalid_value") -> RequestError:
    """The error for a field that cannot be served. `message` goes on after its name."""
    return RequestError(400, code, f"{param} {message}", param=param)


def quoted(value: str) -> str:
    """The beginning of a client's own word, fit for an error message."""
    return f"'{one_line(value)[:60]}'"


def optional(body: Mapping[str, Any], name: str, kind: type[T], where: str = "") -> T | None:
    """The field of this type; None where it is left out or null. Raises `RequestError`."""
    value = body.get(name)
    return None if value is None else typed(value, kind, f"{where}.{name}" if where else name)


def required(body: Mapping[str, Any], name: str, kind: type[T], where: str = "") -> T:
    """The field of this type, which must be there. Raises `RequestError`."""
    value = optional(body, name, kind, where)
    if value is None:
        raise refused(f"{where}.{name}" if where else name, "is missing", "missing_required_parameter")
    return value


def typed(value: object, kind: type[T], param: str) -> T:
    """A value that is of this type as JSON has it: true is no number, and 1 is a float. Raises `RequestError`."""
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 2**53 else math.inf
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise refused(param, f"must be {_TYPES[kind]}", "invalid_type")
    return value


def whole_number(body: Mapping[str, Any], name: str, least: int, most: int = 2**63 - 1) -> int | None:
    """The field as a whole number within its bounds. Raises `RequestError`."""
    value = optional(body, name, int)
    if value is not None and not least <= value <= most:
        raise refused(name, f"must be a whole number from {least} to {most}")
    return value


def number(body: Mapping[str, Any], name: str, least: float, most: float) -> float | None:
    """The field as a number within its bounds. Raises `RequestError`."""
    value = optional(body, name, float)
    if value is not None and not least <= value <= most:
        raise refused(name, f"must be a number from {least:g} to {most:g}")
    return value


def read_stop(body: Mapping[str, Any], name: str = "stop", most: int = 16) -> tuple[str, ...]:
    """Stop sequences: one string or several. Raises `RequestError`."""
    value = body.get(name)
    values = [value] if isinstance(value, str) else optional(body, name, list) or []
    if len(values) > most:
        raise refused(name, f"must have at most {most} entries")
    return tuple(dict.fromkeys(text for n, each in enumerate(values) if (text := typed(each, str, f"{name}[{n}]"))))


def read_max_cost(body: Mapping[str, Any]) -> Decimal | None:
    """`conductor.max_cost`: a number of dollars, or a string of one. Raises `RequestError`.

    The object is this server's own, so a field that it does not have is refused: a misspelt limit would be none.
    """
    own = optional(body, "conductor", dict) or {}
    if unknown := sorted(set(map(str, own)) - {"max_cost"}):
        raise refused("conductor", f"has no field {quoted(unknown[0])}; it has max_cost", "unknown_parameter")
    value = own.get("max_cost")
    if value is None:
        return None
    try:
        cost = Decimal(str(value)) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else None
    except InvalidOperation:
        cost = None
    if cost is None or not cost.is_finite() or cost <= 0:
        raise refused("conductor.max_cost", "must be an amount of US dollars above 0")
    return cost


def ignored_fields(body: Mapping[str, Any], known: Collection[str]) -> tuple[str, ...]:
    """The names of the fields that are not read, for the log."""
    return tuple(one_line(name)[:60] for name in sorted(set(map(str, body)) - set(known))[:_MOST_IGNORED])


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
