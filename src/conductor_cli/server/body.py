"""The JSON of a request's body, bounded before anything reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from conductor_cli.server.api.request import RequestError

MOST_MESSAGES: Final = 10_000
"""Messages or items of one conversation."""

MOST_DEPTH: Final = 200
"""How deep lists and objects may be nested. A JSON Schema of a tool needs about 30."""

_LISTS: Final = ("messages", "input", "tools")


def read_json(data: bytes) -> Mapping[str, Any]:
    """The JSON object of a body. Raises `RequestError`.

    What is no text (half of a surrogate pair) is replaced, because nothing could be stored or sent on.
    """
    try:
        body = json.loads(data, parse_constant=_refuse_constant)
    except RecursionError:
        raise _too_deep() from None
    except UnicodeDecodeError:
        raise _not_json("it is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        # The message of the library names what was expected, and quotes nothing.
        raise _not_json(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except ValueError as error:  # also a number of thousands of digits
        raise _not_json(str(error)[:100]) from None
    if not isinstance(body, dict):
        raise RequestError(400, "invalid_json", "the body must be a JSON object")
    for name in _LISTS:
        if isinstance(body.get(name), list) and len(body[name]) > MOST_MESSAGES:
            raise RequestError(400, "too_many_items", f"{name} has more than {MOST_MESSAGES:,} entries", param=name)
    _check_depth(body)
    # In JSON a lone surrogate can only be written as an escape.
    return body if b"\\u" not in data else _with_whole_characters(body)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _not_json(why: str) -> RequestError:
    return RequestError(400, "invalid_json", f"the body is not valid JSON: {why}")


def _too_deep() -> RequestError:
    return RequestError(400, "invalid_json", f"the body is nested more than {MOST_DEPTH} levels deep")


def _check_depth(body: dict[str, Any]) -> None:
    level: list[Any] = [body]
    for _ in range(MOST_DEPTH):
        level = [
            item
            for value in level
            for item in (value.values() if isinstance(value, dict) else value)
            if isinstance(item, (dict, list))
        ]
        if not level:
            return
    raise _too_deep()


def _with_whole_characters(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_with_whole_characters(name): _with_whole_characters(item) for name, item in value.items()}
    return [_with_whole_characters(item) for item in value] if isinstance(value, list) else value
