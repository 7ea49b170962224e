"""Fuzz targets: what reads plans, streams of replies and settings. Each raises where a promise breaks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from conductor_cli.config import load_settings
from conductor_cli.core.bounded import parse_toml
from conductor_cli.core.chat import Message, Request
from conductor_cli.core.errors import ConfigError, ModelError, PlanError, UsageError
from conductor_cli.core.plan import KeepAnswer, Plan, PlanRules, check_plan
from conductor_cli.core.plan_file import PlanFile, format_plan_file, parse_plan_file
from conductor_cli.core.plan_formats import PLAN_FORMATS, ParsedStep, PlanFormatContext
from conductor_cli.core.pool import Limits
from conductor_cli.core.profile import labels_of
from conductor_cli.core.redact import Secrets
from conductor_cli.models.api_errors import parse_frame
from conductor_cli.models.chat_apis import CHAT_APIS
from conductor_cli.models.http import DONE, Parser
from conductor_cli.models.stream_decoder import ReplyDecoder

WORKERS: Final = ("alpha", "beta", "gamma")

SMALL: Final = 4096
"""Bytes of an event that the parser of streams takes here."""

Parsed = tuple[tuple[ParsedStep | KeepAnswer, ...], bool]
"""What was read of a plan, and whether it was read to its end."""


def pieces(data: bytes, seed: int) -> Iterator[bytes]:
    """The bytes, cut somewhere: where depends on `seed` alone."""
    at = 0
    while at < len(data):
        seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
        size = 1 + seed % 17
        yield data[at : at + size]
        at += size


def check_plan_format(name: str, data: bytes) -> None:
    """A plan is read the same way whole and in pieces, obeys its rules, and reads again as it was written."""
    context = _context(name, data[:1])
    text = data[1:].decode("utf-8", "replace")
    whole, ended = _parse(name, context, [text])
    cut = _parse(name, context, [piece.decode() for piece in _letters(text, len(data))])
    steps = [item.step for item in whole if isinstance(item, ParsedStep)]
    if not ended:
        # In pieces a step may be released before the fault is seen, and whole as well: both have the same beginning.
        assert all(one == other for one, other in zip(whole, cut[0], strict=False)), f"whole {whole}, cut {cut[0]}"
        return
    assert cut == (whole, ended), f"whole {whole}, in pieces {cut}"
    if not steps:
        return
    plan = Plan(steps=tuple(steps))
    check_plan(plan, context.rules)
    written = PLAN_FORMATS[name].render(plan, context)
    again, complete = _parse(name, context, [written])
    assert complete, f"what was written does not read: {written!r}"
    second = Plan(steps=tuple(item.step for item in again if isinstance(item, ParsedStep)))
    assert PLAN_FORMATS[name].render(second, context) == written, f"{written!r} reads as {second}"


def _context(name: str, head: bytes) -> PlanFormatContext:
    bits = head[0] if head else 0
    single = bits & 192 == 192 and name == "native"  # in the mode mini, which never reasons
    rules = PlanRules(workers=WORKERS, steps=1 + (bits & 7) % 5, given=bool(bits & 8))
    labels = labels_of(WORKERS, "numbers" if name == "published" else "letters")
    return PlanFormatContext(
        rules=rules, labels=labels, constrained=bool(bits & 16), reasoning=bool(bits & 32) and not single,
        single=single,
    )  # fmt: skip


def _letters(text: str, seed: int) -> Iterator[bytes]:
    at = 0
    for piece in pieces(bytes(len(text)), seed):
        yield text[at : at + len(piece)].encode("utf-8", "replace")
        at += len(piece)


def _parse(name: str, context: PlanFormatContext, texts: list[str]) -> Parsed:
    parser = PLAN_FORMATS[name].parser(context)
    found: list[ParsedStep | KeepAnswer] = []
    try:
        for text in texts:
            found += parser.feed(text)
        found += parser.end()
    except PlanError:
        return tuple(found), False
    return tuple(found), True


def check_plan_file(data: bytes) -> None:
    """A plan file reads, or is an error with a place; what reads is written and reads as the same."""
    try:
        found = parse_plan_file(data.decode("utf-8", "replace"), "plan.json")
    except UsageError:
        return
    limits = replace(Limits(), **{name.partition(".")[2]: value for name, value in found.limits.items()})
    again = parse_plan_file(format_plan_file(found.question, found.plan, limits), "plan.json")
    assert again.question == found.question, "another question"
    assert again.plan.steps == found.plan.steps, "other steps"
    assert _limits(again) == _limits(found), "other limits"


def _limits(file: PlanFile) -> Limits:
    return replace(Limits(), **{name.partition(".")[2]: value for name, value in file.limits.items()})


def check_sse(data: bytes) -> None:
    """A stream gives the same events however it is cut, and the events read again as they were."""
    whole, cut = _events([data]), _events(pieces(data, len(data)))
    assert whole == cut, f"whole {whole!r:.200}, in pieces {cut!r:.200}"
    text = "".join("data: " + event.replace("\n", "\ndata: ") + "\n\n" for event in whole or ())
    if "\r" not in text and len(text) < SMALL:
        assert _events([text.encode()]) == (whole or []), f"{whole!r:.200} reads as other events"


def _events(parts: Iterator[bytes] | list[bytes]) -> list[str] | None:
    parser, found = Parser(limit=SMALL), list[str]()
    try:
        for part in parts:
            found += parser.feed(part)
    except ModelError:
        return None
    return found


def check_reply(api: str, data: bytes) -> None:
    """A reply of a server is read, or refused with an error of our own; it never says more than was sent."""
    request = Request(messages=(Message(role="user", content="Which?"),), max_tokens=100)
    secrets = Secrets()
    translate, decoder = CHAT_APIS[api].translator(), ReplyDecoder(request, secrets, most_tokens=100)
    parser, said = Parser(), 0
    try:
        for part in pieces(data, len(data)):
            for event in parser.feed(part):
                if event.strip() == DONE:
                    continue
                frame = parse_frame(event, api, secrets)
                said += sum(len(chunk.text) + len(chunk.thinking) for chunk in decoder.frame(translate(frame)))
                CHAT_APIS[api].is_last(frame)
        said += sum(len(chunk.text) + len(chunk.thinking) for chunk in decoder.end())
    except ModelError:
        return
    assert said <= len(data), f"{said} characters of {len(data)} bytes"


def check_settings(data: bytes, file: Path) -> None:
    """A settings file is used or refused with a place; what parses as TOML is written and parses as the same."""
    import tomli_w

    file.write_bytes(data)
    with suppress(ConfigError):
        load_settings({"HOME": str(file.parent), "CONDUCTOR_LLM_CONFIG_DIR": str(file.parent)}, None, str(file))
    try:
        values = parse_toml(data)
    except ValueError:
        return
    again = parse_toml(tomli_w.dumps(values).encode())
    assert _sorted(again) == _sorted(values), "what was written reads as other values"


def _sorted(values: object) -> str:
    return json.dumps(values, default=str, sort_keys=True)
