"""Live tests of what a worker takes besides text, for `workers test --features`: an image, a PDF and a tool."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from typing import Final, Literal

from conductor_cli.app.feature_samples import pdf_of_number, png_of_number
from conductor_cli.core.chat import Attachment, Feature, MediaKind, Message, Request, Tool
from conductor_cli.core.errors import ModelError
from conductor_cli.core.formatting import format_duration
from conductor_cli.models.base import Model

Takes = Literal["yes", "no", "unknown"]
"""Whether a worker takes something; `unknown` if its server failed for another reason."""

ANSWER_TOKENS: Final = 1024
"""Tokens of the answer. A number needs five, but many models think before they answer, whatever they are told."""

_IMAGE_NUMBER, _PDF_NUMBER, _TOOL_NUMBER = "4817", "6035", "2914"

_TOOL: Final = Tool(
    name="store_number", description="Stores a number.",
    parameters={"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
)  # fmt: skip

_WORDS: Final[dict[Feature, str]] = {
    "image": r"image|vision|multi-?modal|mmproj",
    "pdf": r"pdf|document|file|image|vision|mime|media",
    "tools": r"tool|function",
}
"""How servers speak of what they do not take, also with statuses that mean something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureTest:
    """Whether a worker takes something besides text, and why that is `no` or `unknown`."""

    feature: Feature
    takes: Takes
    why: str = ""

    def __str__(self) -> str:
        return f"{self.feature}: {self.takes}{f' ({self.why})' if self.why else ''}"


async def run_feature_tests(model: Model, settings: Request, seconds: float) -> tuple[FeatureTest, ...]:
    """Test a model that answers plain questions: one small call for each feature, one after the other.

    `settings` is a request with the worker's settings and no message; each call may take so many seconds.
    """
    return tuple(
        [
            await _outcome(feature, model, request, number, seconds)
            for feature, request, number in _requests(settings)
        ]
    )  # fmt: skip


def _requests(settings: Request) -> list[tuple[Feature, Request, str]]:
    """The request for each feature, and the number that the reply must have."""
    found: list[tuple[Feature, Request, str]] = []
    for kind, (media_type, data, number) in _files().items():
        digest = sha256(data).hexdigest()
        attachment = Attachment(name=f"number.{kind}", media_type=media_type, sha256=digest, size=len(data))
        text = "Which number does the attached file show? Reply with the number alone."
        message = Message(role="user", content=text, attachments=(attachment,))
        found.append((kind, replace(settings, messages=(message,), read_attachment=_read), number))
    message = Message(role="user", content=f"Store the number {_TOOL_NUMBER} with the tool {_TOOL.name}.")
    return [*found, ("tools", replace(settings, messages=(message,), tools=(_TOOL,)), _TOOL_NUMBER)]


def _read(attachment: Attachment) -> bytes:
    return _files()[attachment.kind][1]


@cache
def _files() -> dict[MediaKind, tuple[str, bytes, str]]:
    """The type, the bytes and the number of the file for each kind."""
    return {
        "image": ("image/png", png_of_number(_IMAGE_NUMBER), _IMAGE_NUMBER),
        "pdf": ("application/pdf", pdf_of_number(_PDF_NUMBER), _PDF_NUMBER),
    }


async def _outcome(feature: Feature, model: Model, request: Request, number: str, seconds: float) -> FeatureTest:
    """What one call shows."""
    try:
        async with asyncio.timeout(seconds):
            said, finish = await _reply(model, request, calls=feature == "tools")
    except TimeoutError:
        return FeatureTest(feature=feature, takes="unknown", why=f"no answer within {format_duration(seconds)}")
    except ModelError as error:
        refused = error.reason in ("refused", "missing") or re.search(_WORDS[feature], error.message, re.IGNORECASE)
        return FeatureTest(feature=feature, takes="no" if refused else "unknown", why=error.message)
    if number in re.sub(r"\D", "", said):
        return FeatureTest(feature=feature, takes="yes")
    if finish == "length":
        return FeatureTest(feature=feature, takes="unknown", why=f"no answer within {ANSWER_TOKENS} tokens")
    what = "it did not call the tool" if feature == "tools" else f"it answered {' '.join(said.split())[:40]!r}"
    return FeatureTest(feature=feature, takes="no", why=what)


async def _reply(model: Model, request: Request, *, calls: bool) -> tuple[str, str]:
    """The text of a reply, or the arguments of its tool calls, and why it ended."""
    said, finish = "", ""
    async with aclosing(model.stream(request)) as chunks:
        async for chunk in chunks:
            if not calls:
                said += chunk.text
            elif chunk.tool_call is not None:
                said += chunk.tool_call.arguments
            finish = chunk.finish or finish
    return said, finish
