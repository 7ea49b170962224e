"""The files among the content parts of chat completions, for APIs that have another form for them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from conductor_cli.core.errors import ModelError
from conductor_cli.models.base64_file import Base64File, files_in


def file_of(part: Mapping[str, Any]) -> tuple[Base64File | None, str]:
    """The file of a content part without the beginning of a data URL, and its name; None for a text."""
    inner = part.get("image_url") or part.get("file") or {}
    found = inner.get("url") or inner.get("file_data")
    if not isinstance(found, Base64File):
        return None, ""
    return replace(found, prefix=""), found.attachment.name


def check_size(messages: object, api: str, most: int) -> None:
    """Refuse, before anything is sent, files that in base64 alone are longer than the `most` bytes of a request."""
    size = sum(file.length for file in files_in(messages))
    if size > most:
        message = f"the attached files need {size / 1e6:.0f} MB in base64; {api} takes {most / 1e6:.0f} MB at most"
        raise ModelError("refused", message, hint="attach fewer or smaller files")
