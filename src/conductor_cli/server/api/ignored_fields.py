"""Which fields of a request have no effect here, wherever in its body they are. Pure.

An answer names them in `conductor.ignored`, so that a client knows what it cannot rely on. A field
is named by the way to it, as `messages[].content[].cache_control`: once for all entries of a list.

A body is compared with the model that was read from it. What the model does not declare has no
effect. Of what it declares, `Body.without_effect` says which values have none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from conductor_cli.server.api.body_faults import shown_word
from conductor_cli.server.api.body_models import Body
from conductor_cli.server.api.uploads import Upload, is_unknown_detail

MAX_NAMES: Final = 20  # Names in an answer; how many more there are is told

_OF_THIS_SERVER: Final = frozenset({"id", "index", "status", "type"})
"""Labels that the answers of this server have, so that clients send them back with the turn.

Its reasoning comes back, too. It is named: a client may expect that the thoughts of one turn reach
the next, and those of one worker are sent to no other.
"""

_UPLOAD_FIELDS: Final = frozenset({"data", "detail", "media_type", "type", "url"})
"""Fields of the object that an image or a document is in. What its bytes are is read from them."""

DEFAULT_TIERS: Final = ("auto", "default")
"""Values of `service_tier` that ask for nothing."""


def ignored_fields(
    parsed: Body, body: Mapping[str, Any], left_out: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the names of the fields of a body that have no effect here, with those `left_out`."""
    names = set(left_out)
    _add_ignored(names, parsed, body, "")
    # Responses puts a function into no object of its own.
    return listed(name.replace("tools[].function.", "tools[].") for name in names)


def unread_fields(body: Mapping[str, Any], read: Collection[str]) -> tuple[str, ...]:
    """Return the names of the fields of a body that are not among those that are `read`."""
    return listed(
        shown_word(name) for name, value in body.items() if value is not None and name not in read
    )


def listed(names: Iterable[str]) -> tuple[str, ...]:
    """Return the first names in order, and how many more there are."""
    in_order = sorted(set(names))
    if len(in_order) > MAX_NAMES:
        return (*in_order[:MAX_NAMES], f"and {len(in_order) - MAX_NAMES} more")
    return tuple(in_order)


def asks(value: object) -> bool:
    """Return whether a value asks for anything: clients write out what they leave as it is."""
    return value is not None and value is not False and value not in ("", [], {})


def _add_ignored(names: set[str], parsed: object, sent: object, where: str) -> None:
    """Add the fields without effect of what was read from a JSON value at a place.

    A set is filled: a conversation has many thousands of places, and few names.
    """
    if isinstance(parsed, list):
        if isinstance(sent, list):  # else it is one text that was read as a list
            for item, sent_item in zip(parsed, sent, strict=True):
                _add_ignored(names, item, sent_item, f"{where}[]")
    elif not isinstance(sent, dict):
        return
    elif isinstance(parsed, Upload):
        names.update(_ignored_of_upload(sent, where))
    elif isinstance(parsed, Body):
        _add_ignored_of_body(names, parsed, sent, where)


def _add_ignored_of_body(names: set[str], parsed: Body, sent: dict[str, Any], where: str) -> None:
    prefix = f"{where}." if where else ""
    for name in parsed.without_effect():
        names.add(prefix + name)
    if parsed.is_left_out:
        return
    attributes = _attributes(type(parsed))
    for name, value in sent.items():
        if name not in attributes:
            if _is_asked(name, value, where):
                names.add(prefix + shown_word(name))
        elif isinstance(value, dict | list):
            _add_ignored(names, getattr(parsed, attributes[name]), value, prefix + name)


def _ignored_of_upload(sent: Mapping[str, Any], where: str) -> Iterator[str]:
    for name, value in sent.items():
        if name not in _UPLOAD_FIELDS and asks(value):
            yield f"{where}.{shown_word(name)}"
    if is_unknown_detail(sent.get("detail")):
        yield f"{where}.detail"


def _is_asked(name: str, value: object, where: str) -> bool:
    """Return whether a field that nothing reads is missed. At the top, `false` may ask for much."""
    if name == "service_tier" and value in DEFAULT_TIERS:
        return False
    if where:
        return name not in _OF_THIS_SERVER and asks(value)
    return name != "type" and value is not None


@cache
def _attributes(model: type[Body]) -> Mapping[str, str]:
    """Return the attributes of a model by the names that its fields have in a body."""
    return {field.alias or name: name for name, field in model.model_fields.items()}
