"""What is wrong with the body of a request, told with the name of the field. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pydantic_core import PydanticCustomError

from conductor_cli.core.terminal_text import one_line
from conductor_cli.server.api.request import RequestError

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

MISSING: Final = "missing_required_parameter"

_PROBLEMS: Final = {
    "missing": "is missing",
    "union_tag_not_found": "is missing",
    "string_type": "must be a string",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be an array",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "too_short": "is empty",
    "string_too_short": "is empty",
    "too_long": "has more than {max_length} entries",
    "string_too_long": "is longer than {max_length} characters",
    "literal_error": "is {input}, which is not known: it can be {expected}",
    "union_tag_invalid": "is {input}, which cannot be served: it can be {expected_tags}",
    "extra_forbidden": "is not known: there are {known}",
    "string_unicode": "is not text",
}
"""What is wrong with a field, by pydantic's word for it."""

_CODES_OF_PROBLEMS: Final = {
    "union_tag_invalid": "unsupported_content",
    "missing": MISSING,
    "union_tag_not_found": MISSING,
}
"""The codes of these problems that say more than that a value or its type is not valid."""

_CODES: Final = frozenset(
    {
        "empty_image_file",
        "invalid_base64_image",
        "invalid_image",
        "invalid_image_url",
        "invalid_type",
        "unknown_parameter",
        "unsupported_content",
        "unsupported_file",
        "unsupported_image_media_type",
        "unsupported_parameter",
    }
)


def describe_fault(
    error: ValidationError, model: type[BaseModel], body: object
) -> tuple[str, str, str]:
    """Return the field of the first fault, what is wrong with it, and a code.

    The value itself may be megabytes.
    """
    first = error.errors(include_url=False)[0]
    kind = first["type"]
    values = dict(first.get("ctx", {}))
    param, value = _find_field(body, first["loc"], is_missing=kind == "missing")
    if kind.startswith("union_tag"):
        param = f"{param}.type"
        value = values.get("tag")
    param = one_line(param.removeprefix("."))[:200]
    if first["input"] is None and kind.endswith("_type"):
        kind = "missing"  # null counts as left out
    if kind not in _PROBLEMS:
        return param, first["msg"], kind if kind in _CODES else "invalid_value"
    values["input"] = quoted(value) if isinstance(value, str) else "of another type"
    values["known"] = ", ".join(model.model_fields)
    if "expected_tags" in values:  # one of them is a name of our own, which nobody can send
        values["expected_tags"] = values["expected_tags"].replace(", 'dropped'", "")
    usual_code = "invalid_type" if "_type" in kind else "invalid_value"
    return param, _PROBLEMS[kind].format_map(values), _CODES_OF_PROBLEMS.get(kind, usual_code)


def _find_field(
    body: object, location: Sequence[int | str], *, is_missing: bool
) -> tuple[str, object]:
    """Return the way to a field, such as `.messages[0].content`, and the value there.

    What is not in the body is the name of a member of a union, unless it is what is missing.
    """
    way = ""
    value = body
    for depth, part in enumerate(location):
        if isinstance(part, int) and isinstance(value, list):
            way = f"{way}[{part}]"
            value = value[part]
        elif isinstance(value, dict) and part in value:
            way = f"{way}.{part}"
            value = value[part]
        elif is_missing and depth == len(location) - 1:
            way = f"{way}.{part}"
    return way, value


def refused(param: str, message: str, code: str = "invalid_value") -> RequestError:
    """Return the error for a field that cannot be served. `message` goes on after its name."""
    return RequestError(400, code, f"{param} {message}", param=param)


def quoted(value: str) -> str:
    """Return the beginning of a client's own word, fit for an error message."""
    return f"'{shown_word(value)}'"


def shown_word(value: str) -> str:
    """Return the beginning of a client's own word, such as the name of a field, on one line."""
    return one_line(value[:200])[:60]


def fault(message: str, code: str = "invalid_value") -> PydanticCustomError:
    """Return the error for a value that cannot be served.

    `message` goes on after the name of the field.
    """
    assert code == "invalid_value" or code in _CODES
    return PydanticCustomError(code, "{message}", {"message": message})
