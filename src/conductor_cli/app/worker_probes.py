"""Live tests of workers, for `workers test` and `doctor`: one small question each, on demand files and a tool.

A model that is sent a file it cannot read often answers all the same, so a test asks for what only the file says.
"""

from __future__ import annotations

import asyncio
import base64
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from hashlib import sha256
from typing import Final, Literal, NamedTuple

from conductor_cli.app.check_results import CheckResult
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

IMAGE_NUMBER, PDF_NUMBER, TOOL_NUMBER = "4817", "6035", "2914"

IMAGE: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAlgAAADYAQAAAAAfMqCAAAAAkElEQVR42u3YMQ6AMAgAQP7/aR00pkGsTXQix0QbuI6ExvZfBIvFYrFYHa2IGPMj"
    "XguuMhaLxWKx+lljZ+q5F+Qpy2KxWCxWR+s8TK2UF4+xWCwWi9XIeiLmu2jRwmKxWCxWLyv/uq7N2nxksVgsFquRVX7LslgsFovFWtlFyxsWi8Vi"
    "sdpbH4PFYrFYrC7WDlITeimSnQUMAAAAAElFTkSuQmCC"
)
"""A PNG of 600 by 216 pixels with the digits of `IMAGE_NUMBER`: models shrink larger ones and do not see small ones."""

PDF: Final = b"""%PDF-1.4
1 0 obj
<< /Type /Catalog /Pages 2 0 R >>
endobj
2 0 obj
<< /Type /Pages /Kids [3 0 R] /Count 1 >>
endobj
3 0 obj
<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font 6 0 R >> >>
endobj
4 0 obj
<< /Length 50 >>
stream
BT /F1 48 Tf 72 700 Td (The number is 6035.) Tj ET
endstream
endobj
5 0 obj
<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>
endobj
6 0 obj
<< /F1 5 0 R >>
endobj
xref
0 7
0000000000 65535 f\x20
0000000009 00000 n\x20
0000000058 00000 n\x20
0000000115 00000 n\x20
0000000231 00000 n\x20
0000000331 00000 n\x20
0000000401 00000 n\x20
trailer
<< /Size 7 /Root 1 0 R >>
startxref
432
%%EOF
"""
"""A page that says `PDF_NUMBER` in large letters."""

Takes = Literal["yes", "no", "unknown"]
"""Whether a worker takes something; `unknown` if its server failed for another reason."""

FEATURE_ANSWER_TOKENS: Final = 1024
"""Tokens of the answer. A number needs five, but many models think before they answer, whatever they are told."""

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


class FeatureTest(NamedTuple):
    """Whether a worker takes something besides text, and why that is `no` or `unknown`."""

    takes: Takes
    why: str = ""

    def __str__(self) -> str:
        return f"{self.takes} ({self.why})" if self.why else self.takes


async def run_feature_tests(model: Model, settings: Request, seconds: float) -> dict[Feature, FeatureTest]:
    """Test a model that answers plain questions: one small call for each feature, one after the other.

    `settings` is a request with the worker's settings and no message; each call may take so many seconds.
    """
    return {
        feature: await _outcome(feature, model, request, number, seconds)
        for feature, request, number in _requests(settings)
    }


_FILES: Final[dict[MediaKind, tuple[str, bytes, str]]] = {
    "image": ("image/png", IMAGE, IMAGE_NUMBER), "pdf": ("application/pdf", PDF, PDF_NUMBER),
}  # fmt: skip
"""The type, the bytes and the number of the file for each kind."""


def _requests(settings: Request) -> list[tuple[Feature, Request, str]]:
    """The request for each feature, and the number that the reply must have."""
    found: list[tuple[Feature, Request, str]] = []
    for kind, (media_type, data, number) in _FILES.items():
        digest = sha256(data).hexdigest()
        attachment = Attachment(name=f"number.{kind}", media_type=media_type, sha256=digest, size=len(data))
        text = "Which number does the attached file show? Reply with the number alone."
        message = Message(role="user", content=text, attachments=(attachment,))
        found.append(
            (kind, replace(settings, messages=(message,), read_attachment=lambda file: _FILES[file.kind][1]), number)
        )
    message = Message(role="user", content=f"Store the number {TOOL_NUMBER} with the tool {_TOOL.name}.")
    return [*found, ("tools", replace(settings, messages=(message,), tools=(_TOOL,)), TOOL_NUMBER)]


async def _outcome(feature: Feature, model: Model, request: Request, number: str, seconds: float) -> FeatureTest:
    """What one call shows."""
    try:
        async with asyncio.timeout(seconds):
            said, finish = await _reply(model, request, calls=feature == "tools")
    except TimeoutError:
        return FeatureTest("unknown", f"no answer within {format_duration(seconds)}")
    except ModelError as error:
        refused = error.reason in ("refused", "missing") or re.search(_WORDS[feature], error.message, re.IGNORECASE)
        return FeatureTest("no" if refused else "unknown", error.message)
    if number in re.sub(r"\D", "", said):
        return FeatureTest("yes")
    if finish == "length":
        return FeatureTest("unknown", f"no answer within {FEATURE_ANSWER_TOKENS} tokens")
    what = "it did not call the tool" if feature == "tools" else f"it answered {' '.join(said.split())[:40]!r}"
    return FeatureTest("no", what)


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


def accepts_seen(result: CheckResult) -> list[MediaKind] | None:
    """The kinds of attachments that a worker was seen to read; None if one of them is not known."""
    tested = result.data.get("features", {})
    takes: dict[MediaKind, Takes] = {kind: tested[kind]["takes"] for kind in _FILES if kind in tested}
    known = bool(takes) and "unknown" not in takes.values()
    return [kind for kind, answer in takes.items() if answer == "yes"] if known else None


Report = Callable[[CheckResult], None]


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
) -> list[CheckResult]:
    """Test the workers at the same time; each result goes to `report` as soon as it is known.

    With `features` it is also tested what each takes besides text: three more calls.
    """
    stored = open_key_store(settings)

    async def run_one(worker: Worker) -> CheckResult:
        result = await run_worker_test(worker, settings.environ, stored, features=features)
        report(result)
        return result

    async def run_all() -> list[CheckResult]:
        return list(await asyncio.gather(*map(run_one, workers)))

    return asyncio.run(run_all())


async def run_worker_test(
    worker: Worker, environ: Mapping[str, str], stored: StoredKeys, *, features: bool = False
) -> CheckResult:
    """Ask for one word, with the worker's own settings; any token will do, and the first one ends the test.

    With `features` a worker that answers is also tested for what it takes besides text.
    """
    started = time.monotonic()
    text, failure, tested = "", None, dict[Feature, FeatureTest]()
    try:
        model = open_model(worker, environ=environ, stored=stored, secrets=KNOWN_SECRETS)
        try:
            question = Message(role="user", content="Reply with the one word: ready")
            request = replace(_request(worker, ANSWER_TOKENS), messages=(question,))
            text = f"(no text within {ANSWER_TOKENS} tokens)"
            async with asyncio.timeout(SECONDS), aclosing(model.stream(request)) as chunks:
                async for chunk in chunks:
                    if chunk.text or chunk.thinking:
                        text = " ".join(chunk.text.split())[:40] or "(thinking)"
                        break
            if features:
                tested = await run_feature_tests(model, _request(worker, FEATURE_ANSWER_TOKENS), SECONDS)
        finally:
            await model.close()
    except ConductorError as error:
        failure = with_key_hint(worker, error.failure)
    except TimeoutError:
        failure = Failure(kind="unreachable", message=f"no answer within {format_duration(SECONDS)}")
    seconds, data = time.monotonic() - started, {"text": text, "error": dump(failure)}
    if tested:
        data["features"] = {feature: {"takes": test.takes, "why": test.why} for feature, test in tested.items()}
    if failure is not None:
        return replace(CheckResult.failed(worker.name, failure, seconds=seconds), data=data)
    told = "; ".join(f"{feature}: {test}" for feature, test in tested.items())
    return CheckResult(name=worker.name, text=told or text, seconds=seconds, data=data)


def _request(worker: Worker, tokens: int) -> Request:
    """A request without messages whose answer may have so many tokens, with the worker's settings."""
    option = worker.options.get
    thinks = option("reasoning_effort") not in (None, "none")
    # A bound below the thinking budget would be refused, so the budget is added to it.
    thinking = option("thinking_budget") or (THINKING_TOKENS if thinks else 0)
    return Request(messages=(), max_tokens=tokens + thinking, temperature=option("temperature"))
