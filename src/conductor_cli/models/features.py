"""What a request needs besides text, and the refusal of what an adapter cannot carry. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, get_args

from conductor_cli.core.chat import Attachment, Feature, Request
from conductor_cli.core.errors import ModelError

Features = frozenset[Feature]

ALL_FEATURES: Final[Features] = frozenset(get_args(Feature))

NO_FEATURES: Final[Features] = frozenset()

IMAGE_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The images that every provider with images takes."""

PDF: Final = "application/pdf"

_WORDS: Final[dict[Feature, str]] = {"tools": "tools", "image": "images", "pdf": "PDF files"}


def feature_of(attachment: Attachment) -> Feature | None:
    """What a model must take to be sent this attachment; None for what none takes."""
    if attachment.media_type in IMAGE_TYPES:
        return "image"
    return "pdf" if attachment.media_type == PDF else None


def needs_features(request: Request) -> bool:
    """Whether a request holds anything besides text."""
    return bool(request.tools) or any(
        message.attachments or message.tool_calls or message.role == "tool" for message in request.messages
    )


def check_features(name: str, features: Collection[Feature], request: Request) -> None:
    """Refuse, before anything is sent, a request that needs what the model called `name` cannot be sent.

    The `ModelError` is not worth another attempt, and another worker may take the step.
    """
    attachments = [attachment for message in request.messages for attachment in message.attachments]
    for attachment in attachments:
        feature = feature_of(attachment)
        if feature is None or feature not in features:
            what = _WORDS[feature] if feature else f"files of type {attachment.media_type}"
            hint = f"use a worker that takes {what}"
            raise ModelError("refused", f"{name} cannot be sent {what}: {attachment.name}", hint=hint)
    calls = any(message.tool_calls or message.role == "tool" for message in request.messages)
    if (request.tools or calls) and "tools" not in features:
        raise ModelError("refused", f"{name} cannot be sent tools", hint="use a worker that takes tools")
    if attachments and request.read_attachment is None:
        raise ModelError("file", f"{name}: the content of {attachments[0].name} is not at hand")
