"""Live tests of workers, for `workers test` and `doctor`: one small question each, on demand files and a tool.

Live tests of what a worker takes besides text, for `workers test --features`: an image, a PDF and a tool.

An image and a PDF that show a number, made in code. Pure.

A model that is sent a file it cannot read often answers all the same, so a test asks for what only the file says.
"""

from __future__ import annotations

import asyncio
import re
import struct
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from typing import Any, Final, Literal

from conductor_cli.app.keys import open_key_store
from conductor_cli.app.worker_selection import discovered_workers
from conductor_cli.config import Settings
from conductor_cli.core.chat import Attachment, Feature, MediaKind, Message, Request, Tool
from conductor_cli.core.errors import ConductorError, Failure, ModelError, PolicyError
from conductor_cli.core.formatting import format_duration
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.serialization import dump
from conductor_cli.models.base import Model
from conductor_cli.models.catalog import StoredKeys, open_model
from conductor_cli.models.known_secrets import KNOWN_SECRETS
from conductor_cli.models.presets import with_key_hint

_DIGITS: Final = (
    "01110 10001 10011 10101 11001 10001 01110", "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00010 00100 01000 11111", "11111 00010 00100 00010 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010", "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110", "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110", "01110 10001 10001 01111 00001 00010 01100",
)  # fmt: skip
"""The digits 0 to 9: seven rows of five dots each."""

_SCALE: Final = 24
"""Pixels of a dot. Four digits make 600 by 216 pixels: models shrink larger images and do not see very small ones."""


def png_of_number(number: str) -> bytes:
    """The digits of `number` in black on white, as a PNG of some hundred bytes (RFC 2083, 8 bits of grey)."""
    rows = ["0".join(_DIGITS[int(digit)].split()[line] for digit in number) for line in range(7)]
    blank = "0" * (len(rows[0]) + 2)
    lines = [blank, *(f"0{row}0" for row in rows), blank]
    width, height = len(blank) * _SCALE, len(lines) * _SCALE
    pixels = (
        b"\0" + b"".join((b"\0" if dot == "1" else b"\xff") * _SCALE for dot in line)
        for line in lines for _ in range(_SCALE)
    )  # fmt: skip
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"".join(pixels), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def pdf_of_number(number: str) -> bytes:
    """A page that says `number` in large letters, as a PDF of some hundred bytes (ISO 32000-1)."""
    page = f"BT /F1 48 Tf 72 700 Td (The number is {number}.) Tj ET".encode()
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font 6 0 R >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(page), page),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /F1 5 0 R >>",
    )
    pdf, offsets = b"%PDF-1.4\n", []
    for number_of_object, content in enumerate(objects, 1):
        offsets.append(len(pdf))
        pdf += b"%d 0 obj\n%s\nendobj\n" % (number_of_object, content)
    entries = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    table = b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, entries)
    return pdf + table + b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (size, len(pdf))


Takes = Literal["yes", "no", "unknown"]
"""Whether a worker takes something; `unknown` if its server failed for another reason."""

FEATURE_ANSWER_TOKENS: Final = 1024
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
        return FeatureTest(feature=feature, takes="unknown", why=f"no answer within {FEATURE_ANSWER_TOKENS} tokens")
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


SECONDS: Final = 60.0
"""How long a worker under test may take."""

ANSWER_TOKENS: Final = 16
"""Tokens of the answer: the least that all providers accept."""

THINKING_TOKENS: Final = 16_384
"""More tokens for a worker that is set to think and has no budget: as many as litellm allows for the highest effort.

A provider that streams its thinking is stopped at the first token of it; others would think without a bound.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTest:
    """What one worker did with one small question: its first words, or why there are none, after how many seconds.

    `features` is what it takes besides text, if that was tested.
    """

    name: str
    seconds: float = 0.0
    text: str = ""
    failure: Failure | None = None
    features: tuple[FeatureTest, ...] = ()

    @property
    def state(self) -> str:
        return "ok" if self.failure is None else "failed"

    @property
    def message(self) -> str:
        """What it takes or the first words of its answer, or what went wrong and what to do."""
        if self.failure is None:
            return "; ".join(map(str, self.features)) or self.text
        return "; ".join(filter(None, (self.failure.message, self.failure.hint)))

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        seconds, error = round(self.seconds, 3), dump(self.failure)
        data = {"name": self.name, "state": self.state, "seconds": seconds, "text": self.text, "error": error}
        tested = {test.feature: {"takes": test.takes, "why": test.why} for test in self.features}
        return data | ({"features": tested} if tested else {})

    @property
    def accepts(self) -> list[MediaKind] | None:
        """The kinds of attachments that it was seen to read; None if one of them is not known."""
        media = {test.feature: test.takes for test in self.features if test.feature != "tools"}
        known = bool(media) and "unknown" not in media.values()
        return [kind for kind, takes in media.items() if takes == "yes"] if known else None


Report = Callable[[WorkerTest], None]


def workers_to_test(settings: Settings, names: Sequence[str]) -> list[Worker]:
    """The named workers, or all that are enabled. Raises `UsageError` for an unknown name, `PolicyError` for none."""
    configured = settings.workers or discovered_workers(settings)
    pool = Pool(workers=tuple(item.worker for item in configured if item.enabled or item.worker.name in names))
    pool = pool.subset(names) if names else pool
    workers = [worker for worker in pool if worker.kind != SELF]
    if not workers:
        raise PolicyError(
            "there is no worker to test",
            hint="find some: conductor setup, or add one: conductor workers add NAME --kind KIND",
        )
    return workers


def run_worker_tests(
    settings: Settings, workers: Sequence[Worker], report: Report, *, features: bool = False
) -> list[WorkerTest]:
    """Test the workers at the same time; each result goes to `report` as soon as it is known.

    With `features` it is also tested what each takes besides text: three more calls.
    """
    stored = open_key_store(settings)

    async def run_one(worker: Worker) -> WorkerTest:
        result = await run_worker_test(worker, settings.environ, stored, features=features)
        report(result)
        return result

    async def run_all() -> list[WorkerTest]:
        return list(await asyncio.gather(*map(run_one, workers)))

    return asyncio.run(run_all())


async def run_worker_test(
    worker: Worker, environ: Mapping[str, str], stored: StoredKeys, *, features: bool = False
) -> WorkerTest:
    """Ask for one word, with the worker's own settings; any token will do, and the first one ends the test.

    With `features` a worker that answers is also tested for what it takes besides text.
    """
    started = time.monotonic()
    result = WorkerTest(name=worker.name)
    try:
        model = open_model(worker, environ=environ, stored=stored, secrets=KNOWN_SECRETS)
        try:
            result = replace(result, text=await _first_words(worker, model))
            if features:
                settings = _request(worker, FEATURE_ANSWER_TOKENS)
                result = replace(result, features=await run_feature_tests(model, settings, SECONDS))
        finally:
            await model.close()
    except ConductorError as error:
        result = replace(result, failure=with_key_hint(worker, error.failure))
    except TimeoutError:
        failure = Failure(kind="unreachable", message=f"no answer within {format_duration(SECONDS)}")
        result = replace(result, failure=failure)
    return replace(result, seconds=time.monotonic() - started)


async def _first_words(worker: Worker, model: Model) -> str:
    """What a worker writes first. Raises `ConductorError` and `TimeoutError`."""
    question = Message(role="user", content="Reply with the one word: ready")
    request = replace(_request(worker, ANSWER_TOKENS), messages=(question,))
    async with asyncio.timeout(SECONDS), aclosing(model.stream(request)) as chunks:
        async for chunk in chunks:
            if chunk.text or chunk.thinking:
                return " ".join(chunk.text.split())[:40] or "(thinking)"
    return f"(no text within {ANSWER_TOKENS} tokens)"


def _request(worker: Worker, tokens: int) -> Request:
    """A request without messages whose answer may have so many tokens, with the worker's settings."""
    option = worker.options.get
    thinks = option("reasoning_effort") not in (None, "none")
    # A bound below the thinking budget would be refused, so the budget is added to it.
    thinking = option("thinking_budget") or (THINKING_TOKENS if thinks else 0)
    return Request(messages=(), max_tokens=tokens + thinking, temperature=option("temperature"))
