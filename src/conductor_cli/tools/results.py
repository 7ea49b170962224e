"""What a call of a tool gave, in the form of `core`: text, with a line for whatever is not text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from conductor_cli.core.sanitize import one_line
from conductor_cli.core.toolbox import ToolResult

if TYPE_CHECKING:
    from mcp.types import CallToolResult, ContentBlock


def read_result(result: CallToolResult) -> ToolResult:
    """The result with the text of all its parts. Structured content counts where there is no text."""
    parts = [_part_text(part) for part in result.content]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False, default=str)]
    text = "\n".join(part for part in parts if part)
    return ToolResult(text=text or "(no output)", error=bool(result.is_error))


def _part_text(part: ContentBlock) -> str:
    match part.type:
        case "text":
            return part.text
        case "image" | "audio":
            kib = len(part.data) * 3 // 4 / 1024
            return f"[{part.type}, {one_line(part.mime_type):.60}, {kib:.0f} KiB; it is not passed on]"
        case "resource_link":
            return f"[resource {one_line(part.name):.100}: {one_line(str(part.uri)):.500}]"
        case "resource":
            text = getattr(part.resource, "text", None)
            return text if isinstance(text, str) else f"[resource {one_line(str(part.resource.uri)):.500}, not text]"
