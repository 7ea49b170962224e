"""The bodies of requests.

Bounded before anything reads them, and read beside the event loop where they are large.
"""

from __future__ import annotations

import re
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic_core import from_json

from conductor_cli.core.bounded_parsing import MAX_ESCAPES, has_more_values
from conductor_cli.core.terminal_text import one_line
from conductor_cli.server.api.request import RequestError
from conductor_cli.system.threads import VERY_LARGE_SIZE, run_in_thread_if_large

if TYPE_CHECKING:
    from starlette.requests import Request

MAX_ITEMS: Final = {"messages": 10_000, "input": 10_000, "tools": 1_000}
"""The most entries of a conversation and of its tools."""

MAX_VALUES: Final = 250_000
"""Values and names of one body. 10,000 messages of one text have 180,000; each takes some 200 bytes
of memory.
"""

_SURROGATE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""An escape of JSON. The group is there for one half of a surrogate pair without the other."""

T = TypeVar("T")


async def read_body(http: Request, work: Callable[[Mapping[str, Any]], T]) -> T:
    """Return what `work` makes of the body of a request. Raises `RequestError`, as `work` does."""
    encoding = http.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"", "identity"}:  # what is compressed has passed no bound on its size
        message = (
            f"a body is read as it is, not in {one_line(encoding)[:40]}: send it without "
            "Content-Encoding"
        )
        raise RequestError(415, "unsupported_encoding", message)
    # Which grows in place: to join megabytes at the end would hold up every stream
    content = bytearray()
    async for piece in http.stream():
        content += piece
    return await run_in_thread_if_large(len(content), lambda: work(read_json_body(content)))


def read_json_body(content: bytes | bytearray) -> Mapping[str, Any]:
    """Return the JSON object of a body. Raises `RequestError`.

    The parser reads bytes, up to 200 levels deep. What is no text (half of a surrogate pair) is
    replaced, because nothing could be stored or sent on. That is looked for only where the parser
    met one.
    """
    if has_more_values(content, MAX_VALUES):
        message = f"the body has more than {MAX_VALUES:,} values or {MAX_ESCAPES:,} escapes"
        raise RequestError(400, "invalid_json", message)
    _give_way(content)
    if content.startswith(BOM_UTF8):  # noqa: FURB188 - `removeprefix` copies what has none
        content = content[len(BOM_UTF8) :]
    try:
        try:
            body = from_json(content, allow_inf_nan=False)
        except ValueError as error:
            if "hex escape" not in str(error):
                raise
            body = from_json(
                _SURROGATE.sub(lambda match: b"?" if match[1] else match[0], content),
                allow_inf_nan=False,
            )
    except ValueError as error:  # the parser names what it expected and where, and quotes nothing
        raise RequestError(400, "invalid_json", f"the body is not valid JSON: {error}") from None
    _give_way(content)
    if not isinstance(body, dict):
        raise RequestError(400, "invalid_json", "the body must be a JSON object")
    for name, most in MAX_ITEMS.items():
        if isinstance(body.get(name), list) and len(body[name]) > most:
            raise RequestError(
                400, "too_many_items", f"{name} has more than {most:,} entries", param=name
            )
    return body


def _give_way(content: bytes | bytearray) -> None:
    """Let other threads work before the next call that reads megabytes.

    It holds them up until it has ended.
    """
    if len(content) > VERY_LARGE_SIZE:
        time.sleep(0.005)
