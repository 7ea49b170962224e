"""Tools as they are offered to workers, and what a call gave, in the form of `core`. Pure.

Names are such as every provider takes, descriptions and schemas are bounded; of a result there are
text, images, and a line for whatever is neither.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from conductor_cli.core.chat import Attachment, Tool
from conductor_cli.core.media import SUFFIXES, image_size, media_type_of
from conductor_cli.core.terminal_text import one_line, sanitize
from conductor_cli.core.tools import OfferedTool, ToolResult
from conductor_cli.tools.servers import EVERY_TOOL, ToolServer

if TYPE_CHECKING:
    from mcp.types import CallToolResult, ContentBlock, ImageContent
    from mcp.types import Tool as ListedTool


MAX_TOOLS: Final = 100
"""Tools of one server that are offered. Providers take 128 tools in a request, and a model chooses
badly among many.
"""
MAX_OFFERED_NAME: Final = 64
MAX_DESCRIPTION: Final = 2000
MAX_SCHEMA: Final = 20_000
"""Characters of the JSON Schema of a tool's arguments; one with a larger schema takes any
object.
"""

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")


def offer_tools(lists: Iterable[Iterable[OfferedTool]]) -> tuple[OfferedTool, ...]:
    """Return the tools of several servers, each under a name of its own.

    A name that two of them have gets the server's name before it.
    """
    tools_by_name: dict[str, OfferedTool] = {}
    for offered in chain.from_iterable(lists):
        name = offered.tool.name
        if name in tools_by_name:
            name = _fit(f"{offered.server}_{offered.own_name}")
        if name in tools_by_name:
            name = _with_digest(name, f"{offered.server}/{offered.own_name}/{len(tools_by_name)}")
        tools_by_name[name] = replace(offered, tool=replace(offered.tool, name=name))
    return tuple(tools_by_name.values())


def read_tool(server: ToolServer, listed: ListedTool) -> OfferedTool:
    """Return a tool that a server lists. A name that is not allowed in requests is changed."""
    parameters = dict(listed.input_schema)
    if len(json.dumps(parameters, default=str)) > MAX_SCHEMA:
        parameters = {"type": "object"}
    hint = listed.annotations is not None and bool(listed.annotations.read_only_hint)
    return OfferedTool(
        tool=Tool(
            name=_fit(listed.name),
            description=sanitize(listed.description or "")[:MAX_DESCRIPTION],
            parameters={"type": "object", "properties": {}} | parameters,
        ),
        server=server.name,
        own_name=listed.name,
        read_only=not {listed.name, EVERY_TOOL}.isdisjoint(server.read_only)
        or (hint and server.trust),
        allowed=not {listed.name, EVERY_TOOL}.isdisjoint(server.allow),
    )


def _fit(name: str) -> str:
    """Return a name that every provider takes.

    It has letters, digits, dashes and underscores, and a bounded length.
    """
    fitting = _NOT_IN_NAMES.sub("_", name).strip("_") or "tool"
    if len(fitting) <= MAX_OFFERED_NAME:
        return fitting
    return _with_digest(fitting, name)


def _with_digest(name: str, unique: str) -> str:
    digest = hashlib.sha256(unique.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name[: MAX_OFFERED_NAME - 9]}_{digest}"


Keep = Callable[[bytes], str]
"""Keeps the bytes of an attachment and returns their SHA-256 in hexadecimal digits."""

MAX_IMAGES: Final = 8
MAX_IMAGE: Final = 5 << 20  # Bytes of an image: what every provider takes


def read_result(result: CallToolResult, name: str, keep: Keep | None) -> ToolResult:
    """Return the result of the tool `name`.

    The text of all its parts, and its images if somebody keeps their bytes.

    Structured content counts where there is no other.
    """
    lines = []
    images = list[Attachment]()
    for part in result.content:
        image = None
        if part.type == "image":
            image = _read_image(part, name, len(images), keep)
        if image is not None:
            images.append(image)
        lines.append(_part_text(part) if image is None else f"[image {image.name}]")
    if not lines and result.structured_content is not None:
        lines = [json.dumps(result.structured_content, ensure_ascii=False, default=str)]
    text = "\n".join(filter(None, lines))
    return ToolResult(
        text=text or "(no output)", error=bool(result.is_error), attachments=tuple(images)
    )


def _read_image(part: ImageContent, name: str, before: int, keep: Keep | None) -> Attachment | None:
    """Return an image with its bytes kept.

    None for one that is damaged, too large or one too many.
    """
    if keep is None or before >= MAX_IMAGES or len(part.data) > MAX_IMAGE * 4 // 3 + 4:
        return None
    try:
        content = base64.b64decode(part.data, validate=True)
    except (binascii.Error, ValueError):
        return None
    # What the server says of it does not count.
    media_type = media_type_of(content)
    size = None
    if media_type.startswith("image/"):
        size = image_size(content, media_type)
    if size is None:
        return None
    suffix = next(end for end, kind in SUFFIXES.items() if kind == media_type)
    return Attachment(
        name=f"{one_line(name)[:40]}-{before + 1}.{suffix}",
        media_type=media_type,
        sha256=keep(content),
        size=len(content),
        width=size[0],
        height=size[1],
    )


def _part_text(part: ContentBlock) -> str:
    match part.type:
        case "text":
            return part.text
        case "image" | "audio":
            kib = len(part.data) * 3 // 4 / 1024
            return (
                f"[{part.type}, {one_line(part.mime_type):.60}, {kib:.0f} KiB, which cannot be "
                "passed on]"
            )
        case "resource_link":
            return f"[resource {one_line(part.name):.100}: {one_line(str(part.uri)):.500}]"
        case "resource":
            text = getattr(part.resource, "text", None)
            if isinstance(text, str):
                return text
            return f"[resource {one_line(str(part.resource.uri)):.500}, not text]"
