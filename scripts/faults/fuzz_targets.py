"""The fuzz targets by name.

What each checks, the inputs it begins with, and the words that its format has.

A check raises where a promise breaks: of what reads plans, streams of replies, settings, traces,
models, attachments, and the requests of other programs.
"""

from __future__ import annotations

import asyncio
import json
import resource
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from io import BytesIO
from operator import eq
from pathlib import Path
from typing import Any, AnyStr, Final, NamedTuple
from xml.etree.ElementTree import ParseError, fromstring
from zipfile import ZipFile

from pydantic_core import PydanticCustomError

from conductor_cli.app.documents import DOCUMENT_LIMITS, read_pdf
from conductor_cli.app.file_tree import list_files
from conductor_cli.app.page_markdown import decode_page, to_markdown
from conductor_cli.app.word_parts import prepare
from conductor_cli.config.settings import Settings, load_settings
from conductor_cli.core import events as ev
from conductor_cli.core.bounded_parsing import parse_toml
from conductor_cli.core.chat import Attachment, Message, Request, Tool, ToolCall
from conductor_cli.core.errors import ConfigError, ModelError, PolicyError, UsageError
from conductor_cli.core.media import PDF, describe_refused, image_size, media_type_of
from conductor_cli.core.plan import Plan, PlanRules, check_plan
from conductor_cli.core.plan_file import PlanFile, format_plan_file, parse_plan_file
from conductor_cli.core.plan_formats import PLAN_FORMATS, ParsedStep, PlanFormatContext
from conductor_cli.core.pool import Limits
from conductor_cli.core.profile import labels_of
from conductor_cli.core.redact import Secrets
from conductor_cli.core.serialization import DecodeError
from conductor_cli.core.trace import Trace, apply_event
from conductor_cli.models.chat_apis import CHAT_APIS
from conductor_cli.models.chat_body import request_body, with_texts
from conductor_cli.models.http import DONE, SseParser, parse_frames
from conductor_cli.models.llama.gguf import check_model_file, read_header
from conductor_cli.models.stream_decoder import ChatReplyDecoder
from conductor_cli.server.api.apis import APIS
from conductor_cli.server.api.body_models import AttachmentCollector
from conductor_cli.server.api.errors import error_body
from conductor_cli.server.api.request import RequestError
from conductor_cli.server.api.uploads import read_document
from conductor_cli.server.http.body import read_json_body
from conductor_cli.server.mcp.tools import TOOLS, narrowed, read_arguments, read_plan, read_question
from conductor_cli.state.run_summary import summarize_run
from conductor_cli.state.trace_file import read_events
from conductor_cli.views.trace_text import page_text, trace_lines
from scripts.faults.wire import Recorder
from tests import media_files, tiny_gguf
from tests.core.plan_formats.reading import read
from tests.servers import SeenRequest, Speaker

WORKERS: Final = ("alpha", "beta", "gamma")
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - directories of our own are made in it
TRACE_NAME: Final = "20261122-201500-abcd.jsonl"
MAX_PAGE_TEXT: Final = 50_000  # Characters of a page or a document
TREE_FILES: Final = frozenset(
    {"a.txt", "aaaaaaaaaaaaaaaaaaaaaaaa.py", "src/b.py", "src/a/a/a/c.py"}
)
"""The files of a tree that are no secrets."""
WORD_NAMES: Final = {
    b"w": "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    b"m": "http://schemas.openxmlformats.org/officeDocument/2006/math",
}


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Give a new directory for the input of a target that reads files; it is removed afterwards.

    It is in memory where there is a directory for that.
    """
    parent = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="conductor-fuzz-", dir=parent) as name:
        yield Path(name)


def pieces(content: AnyStr, seed: int) -> Iterator[AnyStr]:
    """Bytes or a text, cut somewhere: where depends on `seed` alone."""
    at = 0
    while at < len(content):
        seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
        size = 1 + seed % 17
        yield content[at : at + size]
        at += size


def check_plan_format(name: str, content: bytes) -> None:
    """A plan is read the same whole and in pieces, obeys its rules, and reads again as written."""
    context = _context(name, content[:1])
    text = content[1:].decode("utf-8", "replace")
    whole, fault, _ = read(name, [text], context)
    cut, other_fault, _ = read(name, list(pieces(text, len(content))), context)
    steps = [item.step for item in whole if isinstance(item, ParsedStep)]
    if fault:
        # In pieces a step may be released before the fault is seen, and whole as well: both have
        # the same beginning.
        assert all(map(eq, whole, cut)), f"whole {whole}, cut {cut}"
        return
    assert (cut, other_fault) == (whole, None), f"whole {whole}, in pieces {cut}: {other_fault}"
    if not steps:
        return
    plan = Plan(steps=tuple(steps))
    check_plan(plan, context.rules)
    written = PLAN_FORMATS[name].render(plan, context)
    again, fault, _ = read(name, [written], context)
    assert fault is None, f"what was written does not read: {written!r}"
    second = Plan(steps=tuple(item.step for item in again if isinstance(item, ParsedStep)))
    assert PLAN_FORMATS[name].render(second, context) == written, f"{written!r} reads as {second}"


def _context(name: str, head: bytes) -> PlanFormatContext:
    bits = head[0] if head else 0
    single = bits & 192 == 192 and name == "native"  # in the mode mini, which never reasons
    rules = PlanRules(workers=WORKERS, steps=1 + (bits & 7) % 5, given=bool(bits & 8))
    labels = labels_of(WORKERS, "numbers" if name == "published" else "letters")
    return PlanFormatContext(
        rules=rules,
        labels=labels,
        constrained=bool(bits & 16),
        reasoning=bool(bits & 32) and not single,
        single=single,
    )


def check_plan_file(content: bytes) -> None:
    """A plan file reads, or is an error with a place.

    What reads is written and reads as the same.
    """
    try:
        plan_file = parse_plan_file(content.decode("utf-8", "replace"), "plan.json")
    except UsageError:
        return
    again = parse_plan_file(
        format_plan_file(plan_file.question, plan_file.plan, _limits(plan_file)), "plan.json"
    )
    assert again.question == plan_file.question, "another question"
    assert again.plan.steps == plan_file.plan.steps, "other steps"
    assert _limits(again) == _limits(plan_file), "other limits"


def _limits(file: PlanFile) -> Limits:
    return replace(
        Limits(), **{name.partition(".")[2]: value for name, value in file.limits.items()}
    )


def check_reply(api: str, content: bytes) -> None:
    """A reply of a server is read, or refused with an error of our own.

    It never says more than was sent.
    """
    request = Request(messages=(Message(role="user", content="Which?"),), max_tokens=100)
    secrets = Secrets()
    translate = CHAT_APIS[api].translator()
    decoder = ChatReplyDecoder(request, secrets, most_tokens=100)
    parser = SseParser()
    characters = 0
    try:
        for part in pieces(content, len(content)):
            for event in parser.feed(part):
                if event.strip() == DONE:
                    continue
                for frame in parse_frames(event, api, secrets):
                    translated = frame if translate is None else translate(frame)
                    characters += sum(
                        len(chunk.text) + len(chunk.thinking) for chunk in decoder.frame(translated)
                    )
        characters += sum(len(chunk.text) + len(chunk.thinking) for chunk in decoder.end())
    except ModelError:
        return
    assert characters <= len(content), f"{characters} characters of {len(content)} bytes"


def check_settings(content: bytes) -> None:
    """A settings file is used or refused with a place.

    What parses as TOML is written and parses as the same.
    """
    import tomli_w

    with scratch_directory() as directory:
        file = directory / "config.toml"
        file.write_bytes(content)
        environ = {"HOME": str(directory), "CONDUCTOR_LLM_CONFIG_DIR": str(directory)}
        with suppress(ConfigError):
            load_settings(environ, None, str(file))
    try:
        values = parse_toml(content)
    except ValueError:
        return
    again = parse_toml(tomli_w.dumps(values).encode())
    assert _sorted(again) == _sorted(values), "what was written reads as other values"


def _sorted(values: object) -> str:
    return json.dumps(values, default=str, sort_keys=True)


# Characters of an error message; what is wrong may be megabytes long, and is never repeated
LONGEST: Final = 4000
# Seconds of a processor that reading one document of at most 64 KiB may take
PDF_SECONDS: Final = 12.0


def check_trace(content: bytes) -> None:
    """Any file can be listed; an event that reads is written and reads as the same.

    What folds can be shown.
    """
    for line in content.split(b"\n"):
        _check_event(line.decode("utf-8", "replace"))
    trace = Trace()
    with scratch_directory() as directory:
        file = directory / TRACE_NAME
        file.write_bytes(content)
        row = summarize_run(str(directory), file.stem)
        assert " cannot be read: " not in row.problem, row.problem
        with suppress(UsageError):
            for event in read_events(file):
                trace = apply_event(trace, event)
    page_text(trace_lines(trace, prompts=True))


def _check_event(line: str) -> None:
    try:
        event = ev.from_line(line)
    except DecodeError:
        return
    written = ev.to_line(event)
    assert ev.to_line(ev.from_line(written)) == written, f"{written!r:.200} reads as another event"


def check_gguf(content: bytes) -> None:
    """A model file is accepted, or refused with a reason; its overview agrees with its header."""
    with scratch_directory() as directory:
        file = directory / "model.gguf"
        file.write_bytes(content)
        try:
            header = check_model_file(file)
        except ModelError:
            return
        brief = read_header(file, brief=True)
    assert brief.architecture == header.architecture, (
        f"{brief.architecture!r} is {header.architecture!r}"
    )
    # A value that is no number equals nothing, not even itself.
    assert all(
        header.values[name] == value or value != value  # noqa: PLR0124
        for name, value in brief.values.items()
    ), "other values"


def _models() -> list[bytes]:
    with scratch_directory() as directory:
        return [tiny_gguf.make(directory / "seed.gguf").read_bytes()]


def check_media(content: bytes) -> None:
    """Bytes are an image with a size, a document, a text, or refused; all doors agree which."""
    kind = media_type_of(content)
    size = image_size(content, kind) if kind.startswith("image/") else None
    describe_refused(content)
    assert size is None or min(size) > 0, f"an image of {size}"
    carried = AttachmentCollector()
    try:
        attachment = carried.keep(read_document(content), "a name")
    except PydanticCustomError:
        return
    assert isinstance(attachment, str) or attachment.sha256 in carried.blobs, (
        "an attachment without bytes"
    )


def check_pdf(content: bytes) -> None:
    """The text of a document, or why it cannot be read.

    Only time of a processor counts: the machine may be busy.
    """
    if media_type_of(content) != PDF:
        return
    before = _children_seconds()
    document = read_pdf(content, DOCUMENT_LIMITS._replace(seconds=120))
    assert document.problem != "time", "it was read for two minutes"
    assert (took := _children_seconds() - before) < PDF_SECONDS, (
        f"it was read for {took:.1f} seconds"
    )
    assert document.read <= max(document.pages, 0), f"{document.read} of {document.pages} pages"


def check_web_page(content: bytes) -> None:
    """A page is read whole or up to a bound, as text that its bytes may have."""
    page, _ = decode_page(content)
    text, left_out, end = to_markdown(page, MAX_PAGE_TEXT, 5.0)
    assert len(text) <= MAX_PAGE_TEXT, f"{len(text)} characters"
    assert end in {"", "length"}, f"it was not read to its end: {end}"
    assert all(count > 0 for count in left_out.values()), f"left out: {left_out}"


def check_word_document(content: bytes) -> None:
    """The main part of a document is made ready for reading, or refused as damaged."""
    with suppress(ParseError):
        document, left_out, _ = prepare(_word_file(content), MAX_PAGE_TEXT)
        assert all(count > 0 for count in left_out.values()), f"left out: {left_out}"
        with ZipFile(BytesIO(document)) as parts:
            fromstring(parts.read("word/document.xml"))  # noqa: S314 - it was written here


def _word_file(body: bytes) -> bytes:
    """Return a Word document with this body."""
    names = b" ".join(b'xmlns:%s="%s"' % (name, uri.encode()) for name, uri in WORD_NAMES.items())
    file = BytesIO()
    with ZipFile(file, "w") as parts:
        parts.writestr(
            "word/document.xml",
            b"<w:document %s><w:body>%s</w:body></w:document>" % (names, body),
        )
    return file.getvalue()


def check_ignore_file(content: bytes) -> None:
    """Whatever a `.gitignore` says, no link is followed and nothing secret is listed."""
    with scratch_directory() as directory, suppress(UsageError):
        tree = _make_tree(directory)
        (tree / ".gitignore").write_bytes(content)
        listed = list_files(tree).files
        names = {path.relative_to(tree).as_posix() for path in listed}
        assert names <= TREE_FILES, f"listed: {sorted(names - TREE_FILES)}"


def _make_tree(directory: Path) -> Path:
    """Return a directory with files, a secret, and links to a file and a directory outside."""
    outside = directory / "outside"
    tree = directory / "tree"
    (outside / "more").mkdir(parents=True)
    (outside / "private.txt").write_text("private")
    for name in (*TREE_FILES, "id_rsa", "prod.env"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("text")
    (tree / "linked.txt").symlink_to(outside / "private.txt")
    (tree / "linked").symlink_to(outside)
    return tree


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check_body(api: str, content: bytes) -> None:
    """A request becomes one of ours or an error of its API, which can be sent."""
    path, door = next((path, door) for path, door in APIS.items() if door.name == api)
    try:
        request = door.parse(read_json_body(content))
    except RequestError as error:
        json.dumps(error_body(error, path)).encode()
        status = error.status
        error_text = error.message
        assert 400 <= status < 500, f"status {status}: {error_text}"
        assert len(error_text) < LONGEST, f"a message of {len(error_text)} characters"
        return
    encoder = door.encoder(request, "20261122-201500-abcd", 0)
    encoder.begin() + encoder.text("x").replace(b"\r", b"")
    for message in request.messages:
        message.content.encode()


def check_mcp(content: bytes) -> None:
    """A message is JSON-RPC or refused.

    The arguments of a call are checked before anything reads them.
    """
    from mcp_types import jsonrpc_message_adapter

    for line in content.split(b"\n"):
        try:
            message: Any = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            continue
        params = getattr(message, "params", None) or {}
        name = str(params.get("name"))
        arguments = params.get("arguments") or {}
        if name in TOOLS and isinstance(arguments, dict):
            _check_call(name, arguments)


def _check_call(name: str, arguments: dict[str, Any]) -> None:
    try:
        arguments = read_arguments(name, arguments)
        if "question" in arguments:
            read_question(arguments)
        planned = read_plan(arguments["plan"], ()) if "plan" in arguments else None
        narrowed(_no_settings(), arguments, planned)
    except (UsageError, PolicyError, ConfigError) as error:
        message = error.message
        assert len(message) < LONGEST, f"a message of {len(message)} characters"


@cache
def _no_settings() -> Settings:
    return load_settings({"HOME": "/nonexistent", "CONDUCTOR_LLM_CONFIG_DIR": "/nonexistent"})


MARKS: Final = (
    b"\n",
    b"\r\n",
    b"\0",
    b"\\u0000",
    b"\\ud800",
    b"\xe2\x80\xa8",
    b"\x1b[31m",
    b"1e999",
    b"-1",
    b"null",
)
"""What breaks formats of any kind."""


class Target(NamedTuple):
    """`check` raises where a promise breaks. `inputs` is how many inputs one try has."""

    check: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]
    words: tuple[bytes, ...] = ()
    inputs: int = 500


SEEDS: Final = {
    name: [text.encode() for text in table["seeds"]]
    for name, table in tomllib.loads(
        Path(__file__).with_name("fuzz_seeds.toml").read_text("utf-8")
    ).items()
}


def _plans(name: str) -> list[bytes]:
    plans = []
    for head in (4, 12, 20, 36, 60, 196):
        plans += [bytes([head]) + body for body in SEEDS[f"plan {name}"]]
    return plans


async def _spoken(path: str) -> bytes:
    """Return a reply with thinking, text and a call, as a server says it at this path."""
    recorder = Recorder()
    speaker = Speaker(SeenRequest("POST", path, {}, b"", 0.0), recorder)
    await speaker.begin()
    await speaker.think("hm", "s")
    await speaker.say("Par")
    await speaker.say("is")
    await speaker.call("f", "{", "}")
    await speaker.end()
    return b"".join(recorder.events)


def _replies(api: str) -> list[bytes]:
    paths = {"responses": "/responses", "anthropic": "/messages"}
    paths["gemini"] = "/models/m:streamGenerateContent"
    path = paths.get(api, "/chat/completions")
    return [asyncio.run(_spoken(path)), *SEEDS["reply"]]


def _traces() -> list[bytes]:
    return [
        path.read_bytes()[:20_000]
        for path in sorted((Path(__file__).parents[2] / "tests/traces").glob("*.jsonl"))
    ]


def _media() -> list[bytes]:
    images = [media_files.png(), media_files.jpeg(), media_files.gif(), media_files.webp()]
    return [*images, media_files.pdf("one"), b"text", b"PK\x03\x04", media_files.png(9, 9, 40)]


def _bodies(api: str) -> list[bytes]:
    """Return requests as our own adapter for an API writes them.

    Without and with fields that other programs send.
    """
    name, extras = {
        "chat_completions": ("chat-completions", {"tool_choice": "auto", "n": 1}),
        "responses": (
            "responses",
            {"reasoning": {"effort": "low"}, "text": {"format": {"type": "text"}}},
        ),
        "messages": (
            "anthropic",
            {"system": [{"type": "text", "text": "s"}], "thinking": {"type": "enabled"}},
        ),
    }[api]
    picture = media_files.png()
    image = Attachment(name="i", media_type="image/png", sha256="0" * 64, size=len(picture))
    call = ToolCall(id="c", name="f", arguments="{}")
    question = Message(role="user", content="Hi", attachments=(image,))
    called = Message(role="assistant", content="Yes", tool_calls=(call,))
    result = Message(role="tool", content="3", tool_call_id="c")
    tool = Tool(
        name="f",
        description="d",
        parameters={"type": "object", "properties": {"a": {"type": "string"}}},
    )
    plain = Request(messages=(question,), max_tokens=5, read_attachment=lambda _: picture)
    request_of_tools = replace(
        plain, messages=(question, called, result), tools=(tool,), temperature=0.5, stop=("x",)
    )
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    bodies = []
    for request, options in ((plain, {"response_format": schema}), (request_of_tools, {})):
        fields = {"model": "conductor"} | request_body(request, {}, "") | options
        bodies.append(
            with_texts(
                CHAT_APIS[name].body(
                    {key: value for key, value in fields.items() if value is not None}
                )
            )
        )
    bodies += [body | extras | {"conductor": {"max_cost": "0.1"}} for body in bodies]
    return [json.dumps(body).encode() for body in bodies]


def _targets() -> Iterator[tuple[str, Target]]:
    plans = (
        b" | ",
        b"plan:",
        b"accept",
        b'"steps":[',
        b'"access"',
        b"model_id = [",
        b'["all"]',
        b"```",
    )
    for name in ("native", "published", "json"):
        yield f"plan {name}", Target(partial(check_plan_format, name), partial(_plans, name), plans)
    yield (
        "plan file",
        Target(
            check_plan_file, lambda: SEEDS["plan file"], (b'"given"', b'"conversation"', b'"cost"')
        ),
    )
    marks = (b"<think>", b"data: ", b"event: ")
    for api in ("chat-completions", "responses", "anthropic", "gemini", "gemini-chat"):
        yield f"reply {api}", Target(partial(check_reply, api), partial(_replies, api), marks)
    tables = (b"[[", b'"""', b"inf", b"nan", b"1979-05-27", b"0x", b"= {", b"policy.", b"self")
    yield "settings", Target(check_settings, lambda: SEEDS["settings"], tables, 200)
    yield "trace", Target(check_trace, _traces, (b'"kind":"nested_event"',), 100)
    yield "gguf", Target(check_gguf, _models, inputs=200)
    yield (
        "media",
        Target(check_media, _media, (b"IHDR", b"IEND", b"\xff\xd9", b"%PDF-", b"RIFF", b"VP8X")),
    )
    objects = (
        b"/Kids",
        b"/Parent",
        b"2 0 R",
        b"/FlateDecode",
        b"/Length 99999",
        b"/Encrypt",
        b"/Prev",
    )
    yield "pdf", Target(check_pdf, lambda: [media_files.pdf("one", "two")], objects, 5)
    for api in ("chat_completions", "responses", "messages"):
        yield f"body {api}", Target(partial(check_body, api), partial(_bodies, api))
    elements = (b"<form>", b"</form>", b"<td>", b"<p hidden>", b"<script>", b"&#0;", b"<!--")
    yield "web page", Target(check_web_page, lambda: SEEDS["web page"], elements, 100)
    parts = (b"<w:p>", b"</w:p>", b"<w:vanish/>", b"<m:oMath>", b"<w:tbl>", b"<!DOCTYPE x [")
    yield "word", Target(check_word_document, lambda: SEEDS["word"], parts, 50)
    patterns = (b"**/", b"*a*a*a*a*b", b"!", b"[a-", b"\\", b"/", b"{1,9}", b"\n!linked\n")
    yield "gitignore", Target(check_ignore_file, lambda: SEEDS["gitignore"], patterns, 100)
    yield "mcp", Target(check_mcp, lambda: SEEDS["mcp"], inputs=100)


TARGETS: Final = dict(_targets())
