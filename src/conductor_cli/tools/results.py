"""What a call of a tool gave, in the form of `core`: text, images, and a line for whatever is neither."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from conductor_cli.core.chat import Attachment
from conductor_cli.core.media import SUFFIXES, image_size, media_type_of
from conductor_cli.core.sanitize import one_line
from conductor_cli.core.toolbox import ToolResult

if TYPE_CHECKING:
    from mcp.types import CallToolResult, ContentBlock, ImageContent

Keep = Callable[[bytes], str]
"""Keeps the bytes of an attachment and returns their SHA-256 in hexadecimal digits."""

MOST_IMAGES: Final = 8
LARGEST_IMAGE: Final = 5 << 20
"""Bytes of an image: what every provider takes."""


def read_result(result: CallToolResult, name: str, keep: Keep | None) -> ToolResult:
    """The result of the tool `name`: the text of all its parts, and its images if somebody keeps their bytes.

    Structured content counts where there is no other.
    """
    lines, images = [], list[Attachment]()
    for part in result.content:
        image = _read_image(part, name, len(images), keep) if part.type == "image" else None
        if image is not None:
            images.append(image)
        lines.append(_part_text(part) if image is None else f"[image {image.name}]")
    if not lines and result.structured_content is not None:
        lines = [json.dumps(result.structured_content, ensure_ascii=False, default=str)]
    text = "\n".join(line for line in lines if line)
    return ToolResult(text=text or "(no output)", error=bool(result.is_error), attachments=tuple(images))


def _read_image(part: ImageContent, name: str, before: int, keep: Keep | None) -> Attachment | None:
    """An image with its bytes kept; None for one that is damaged, too large or one too many."""
    if keep is None or before >= MOST_IMAGES or len(part.data) > LARGEST_IMAGE * 4 // 3 + 4:
        return None
    try:
        data = base64.b64decode(part.data, validate=True)
    except (binascii.Error, ValueError):
        return None
    # What the server says of it does not count.
    media_type = media_type_of(data)
    size = image_size(data, media_type) if media_type.startswith("image/") else None
    if size is None:
        return None
    suffix = next(end for end, kind in SUFFIXES.items() if kind == media_type)
    return Attachment(
        name=f"{one_line(name)[:40]}-{before + 1}.{suffix}", media_type=media_type, sha256=keep(data), size=len(data),
        width=size[0], height=size[1],
    )  # fmt: skip


def _part_text(part: ContentBlock) -> str:
    match part.type:
        case "text":
            return part.text
        case "image" | "audio":
            kib = len(part.data) * 3 // 4 / 1024
            return f"[{part.type}, {one_line(part.mime_type):.60}, {kib:.0f} KiB, which cannot be passed on]"
        case "resource_link":
            return f"[resource {one_line(part.name):.100}: {one_line(str(part.uri)):.500}]"
        case "resource":
            text = getattr(part.resource, "text", None)
            return text if isinstance(text, str) else f"[resource {one_line(str(part.resource.uri)):.500}, not text]"
