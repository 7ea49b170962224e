"""The JSON Schema of a tool's arguments, in a form that an API takes. Pure.

Servers of tools write schemas of every draft. What an API does not know is left out: a schema then allows more than
before, and the arguments of a call are checked against the whole schema by whoever runs the tool.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from conductor_cli.core.errors import ModelError

_BRANCHES: Final = ("allOf", "anyOf", "oneOf")

_DEEPEST: Final = 40
"""How deep a schema may be once its references are replaced. Those that people write are below 15."""

_LONGEST_CHAIN: Final = 10
"""How many references in a row may lead to the schema of the arguments."""

_MOST_NODES: Final = 20_000
"""How many schemas one may have inside it once its references are replaced: ten lines can grow to millions."""


def object_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """`schema` as that of an object with properties, which every API demands of arguments, and without its dialect.

    Alternatives at the top become one object with the properties of all. Only what every one of them requires is
    required then.
    """
    for _ in range(_LONGEST_CHAIN):
        target = _named(schema, schema.get("$ref"))
        if target is None:
            break
        schema = {**target, **{name: value for name, value in schema.items() if name != "$ref"}}
        schema |= {"$ref": target["$ref"]} if "$ref" in target else {}
    plain = {name: value for name, value in schema.items() if name not in ("$schema", "$id", *_BRANCHES)}
    properties = dict(_mapping(plain.get("properties")))
    required = set(_names(plain.get("required")))
    for how in _BRANCHES:
        found = schema.get(how)
        branches = [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []
        for branch in branches:
            properties = {**_mapping(branch.get("properties")), **properties}
        demanded = [set(_names(branch.get("required"))) for branch in branches]
        if demanded:
            required |= set.union(*demanded) if how == "allOf" else set.intersection(*demanded)
    plain |= {"type": "object", "properties": properties}
    if required:
        plain["required"] = sorted(required)
    return plain


def simple_schema(schema: Mapping[str, Any], known: Collection[str], *, tool: str, api: str) -> dict[str, Any]:
    """`schema` with only the `known` keywords, and with what its references name in their place.

    Where a schema holds itself, the inner one says only its type. A reference to another document is a `ModelError`
    that names `tool` and `api`.
    """
    return _Simplifier(schema, frozenset(known), f"the schema of the tool {tool!r:.80}", api).simple(schema, ())


class _Simplifier:
    """Copies one schema."""

    def __init__(self, root: Mapping[str, Any], known: frozenset[str], what: str, api: str) -> None:
        self._root = root
        self._known = known
        self._what = what
        self._api = api
        self._nodes = 0

    def simple(self, schema: object, inside: tuple[str, ...], depth: int = 0) -> dict[str, Any]:
        """`inside` are the references that lead to this schema."""
        self._nodes += 1
        if depth > _DEEPEST or self._nodes > _MOST_NODES:
            raise self._refused("is too large")
        if not isinstance(schema, Mapping):  # `true` allows everything
            return {}
        if isinstance(name := schema.get("$ref"), str):
            return self._replaced(name, schema, inside, depth)
        return {
            own: self._value(own, value, inside, depth + 1)
            for own, value in _with_enum(schema).items() if own in self._known
        }  # fmt: skip

    def _replaced(self, name: str, schema: Mapping[str, Any], inside: tuple[str, ...], depth: int) -> dict[str, Any]:
        """What a reference names, with what stands beside the reference."""
        target = self._target(name)
        beside = {own: value for own, value in schema.items() if own != "$ref"}
        if name in inside:
            kind = target.get("type")
            return {"type": kind} if isinstance(kind, str) else {}
        return self.simple({**target, **beside}, (*inside, name), depth + 1)

    def _target(self, name: str) -> Mapping[str, Any]:
        target = _named(self._root, name)
        if target is None:
            raise self._refused(f"refers to {name!r:.80}, which is not in it")
        return target

    def _value(self, name: str, value: object, inside: tuple[str, ...], depth: int) -> object:
        """What a keyword says; where it holds schemas, those are simplified."""
        if name == "properties":
            # `false` forbids a property, so it is not offered.
            return {
                str(own): self.simple(item, inside, depth)
                for own, item in _mapping(value).items() if item is not False
            }  # fmt: skip
        if name in (*_BRANCHES, "prefixItems"):
            return [self.simple(item, inside, depth) for item in value] if isinstance(value, list) else []
        if name in ("items", "additionalProperties") and not isinstance(value, bool):
            return self.simple(value, inside, depth)
        return value

    def _refused(self, why: str) -> ModelError:
        hint = "leave the tool out, or use another worker"
        return ModelError("refused", f"{self._api} cannot be sent {self._what}: it {why}", hint=hint)


def _named(root: Mapping[str, Any], name: object) -> Mapping[str, Any] | None:
    """What a JSON Pointer of this document names (RFC 6901); None for another document, or for nothing."""
    if not isinstance(name, str) or (name != "#" and not name.startswith("#/")):
        return None
    found: object = root
    for part in name[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else None


def _with_enum(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A constant is an enumeration of one value, which more APIs know."""
    return {**schema, "enum": [schema["const"]]} if "const" in schema and "enum" not in schema else schema


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
