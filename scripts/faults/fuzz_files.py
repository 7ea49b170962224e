"""Fuzz targets: what reads traces, models, attachments, and the requests of other programs."""

from __future__ import annotations

import json
import resource
from functools import cache
from pathlib import Path
from typing import Any, Final

from conductor_cli.app.attach import read_pdf
from conductor_cli.config import Settings, load_settings
from conductor_cli.core import events as ev
from conductor_cli.core.errors import ConfigError, ModelError, PolicyError, UsageError
from conductor_cli.core.media import describe_refused, image_size, media_type_of
from conductor_cli.core.serialization import DecodeError
from conductor_cli.core.trace import Trace, apply_event
from conductor_cli.models.llama.gguf import check_model_file, read_header
from conductor_cli.server.access import read_json
from conductor_cli.server.api.fields import Carried
from conductor_cli.server.api.request import RequestError
from conductor_cli.server.http import CLASSES, load_api
from conductor_cli.server.mcp.tool_schemas import TOOLS_BY_NAME, check_arguments, narrowed, read_plan, read_question
from conductor_cli.state.run_summary import summarize_run
from conductor_cli.state.trace_file import read_events
from conductor_cli.views.trace_text import page_text, trace_lines

LONGEST: Final = 4000
"""Characters of an error message; what is wrong may be megabytes long, and is never repeated."""

PDF_SECONDS: Final = 12.0
"""Seconds of a processor that reading one document of at most 64 KiB may take."""

HEADERS: Final = {"user-agent": "fuzz", "anthropic-version": "2023-06-01"}


def check_trace(data: bytes, file: Path) -> None:
    """Any file can be listed; an event that reads is written and reads as the same; what folds can be shown."""
    file.write_bytes(data)
    row = summarize_run(str(file.parent), file.stem)
    assert " cannot be read: " not in row.problem, row.problem
    for line in data.split(b"\n"):
        _check_event(line.decode("utf-8", "replace"))
    trace = Trace()
    try:
        for event in read_events(file):
            trace = apply_event(trace, event)
    except UsageError:
        pass
    page_text(trace_lines(trace, prompts=True, answers=True))


def _check_event(line: str) -> None:
    try:
        event = ev.from_line(line)
    except DecodeError:
        return
    written = ev.to_line(event)
    assert ev.to_line(ev.from_line(written)) == written, f"{written!r:.200} reads as another event"


def check_gguf(data: bytes, file: Path) -> None:
    """A model file is accepted or refused with a reason, and its overview agrees with its whole header."""
    file.write_bytes(data)
    try:
        header = check_model_file(file)
    except ModelError:
        return
    brief = read_header(file, brief=True)
    assert brief.architecture == header.architecture, f"{brief.architecture!r} is {header.architecture!r}"
    assert all(header.values[name] == value or value != value for name, value in brief.values.items()), "other values"  # noqa: PLR0124 - NaN


def check_media(data: bytes) -> None:
    """Bytes are an image with a size, a document, a text, or refused; all doors agree which."""
    kind = media_type_of(data)
    size = image_size(data, kind) if kind.startswith("image/") else None
    describe_refused(data)
    assert size is None or min(size) > 0, f"an image of {size}"
    carried = Carried()
    try:
        found = carried.document(data, "file", "a name")
    except RequestError:
        return
    assert isinstance(found, str) or found.sha256 in carried.blobs, "an attachment without bytes"


def check_pdf(data: bytes) -> None:
    """The text of a document, or why it cannot be read. Only time of a processor counts: the machine may be busy."""
    before = _children_seconds()
    found = read_pdf(data, seconds=120)
    assert found.problem != "time", "it was read for two minutes"
    assert (took := _children_seconds() - before) < PDF_SECONDS, f"it was read for {took:.1f} seconds"
    assert found.read <= max(found.pages, 0), f"{found.read} of {found.pages} pages"


def _children_seconds() -> float:
    """Seconds of a processor that all child processes have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check_body(api: str, data: bytes) -> None:
    """A request becomes one of ours or an error of its API, which can be sent."""
    door = load_api(api)
    assert door is not None, f"no module {api}"
    assert door.name in api or api in CLASSES, api
    try:
        request = door.parse(read_json(data), HEADERS)
    except RequestError as error:
        json.dumps(door.error(error)).encode()
        _require(400 <= error.status < 500, f"status {error.status}: {error.message}")
        _require(len(error.message) < LONGEST, f"a message of {len(error.message)} characters")
        return
    encoder = door.encoder(request, "20261122-201500-abcd", 0)
    encoder.begin() + encoder.text("x").replace(b"\r", b"")
    for message in request.messages:
        message.content.encode()


def check_mcp(data: bytes) -> None:
    """A message is JSON-RPC or refused; the arguments of a call are checked before anything reads them."""
    from mcp_types import jsonrpc_message_adapter

    for line in data.split(b"\n"):
        try:
            message: Any = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            continue
        params = getattr(message, "params", None) or {}
        tool = TOOLS_BY_NAME.get(str(params.get("name")))
        arguments = params.get("arguments") or {}
        if tool is not None and isinstance(arguments, dict):
            _check_call(tool, arguments)


def _check_call(tool: Any, arguments: dict[str, Any]) -> None:  # noqa: ANN401 - a `ToolSpec`, of a heavy module
    try:
        check_arguments(tool, arguments)
        if "question" in arguments:
            read_question(arguments)
        planned = read_plan(arguments["plan"]) if "plan" in arguments else None
        narrowed(_settings(), arguments, planned)
    except (UsageError, PolicyError, ConfigError) as error:
        _require(len(error.message) < LONGEST, f"a message of {len(error.message)} characters")


def _require(condition: bool, what: str) -> None:  # noqa: FBT001 - as an assertion has it
    if not condition:
        raise AssertionError(what)


@cache
def _settings() -> Settings:
    return load_settings({"HOME": "/nonexistent", "CONDUCTOR_LLM_CONFIG_DIR": "/nonexistent"})
