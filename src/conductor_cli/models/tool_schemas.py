"""The schemas of tools, their names and the ids of their calls in a form that an API takes. Pure.

Servers of tools write schemas of every draft. What an API does not know is left out: a schema then
allows more than before, and the arguments of a call are checked against the whole schema by whoever
runs the tool.

OpenAI and Anthropic allow names of `[a-zA-Z0-9_-]{1,64}`, Google wants a letter or an underscore
first. Mistral's servers, and the chat templates of its open models, refuse any id that is not nine
letters and digits, OpenAI refuses long ones, Anthropic those with other marks. Kimi's models want
those of their own form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import Any, Final

from conductor_cli.core.chat import Tool
from conductor_cli.core.errors import ModelError
from conductor_cli.core.mappings import without_keys
from conductor_cli.models.base import table_of, tables_in

_BRANCHES: Final = ("allOf", "anyOf", "oneOf")

# How deep a schema may be once its references are replaced; those of people are below 15
_MAX_DEPTH: Final = 40
_MAX_CHAIN: Final = 10  # how many references in a row may lead to the schema of the arguments
_MAX_NODES: Final = 20_000
"""How many schemas one may have inside it once its references are replaced.

Ten lines can grow to millions.
"""


def object_schema(schema: Mapping[str, Any], *, with_items: bool = False) -> dict[str, Any]:
    """Return `schema` as that of an object with properties, which every API demands.

    It says nothing of its dialect, and is written in the newest one. Alternatives at the top become
    one object with the properties of all. Only what every one of them requires is required then.

    OpenAI wants to be told what an array holds: `with_items` says that it may be anything. To
    llama.cpp that is objects alone, and of an array that has both `items` and `prefixItems` it
    reads only the first.
    """
    return _in_newest_draft(_as_object(schema), with_items=with_items)


def _as_object(schema: Mapping[str, Any]) -> dict[str, Any]:
    for _ in range(_MAX_CHAIN):
        target = _named(schema, schema.get("$ref"))
        if target is None:
            break
        schema = {**target, **_without(schema, "$ref")}
        if "$ref" in target:
            schema["$ref"] = target["$ref"]
    plain = _without(schema, "$schema", "$id", *_BRANCHES)
    properties = dict(table_of(plain.get("properties")))
    required = set(_names(plain.get("required")))
    for keyword in _BRANCHES:
        branches = tables_in(schema.get(keyword))
        if not branches:
            continue
        for branch in branches:
            properties = {**table_of(branch.get("properties")), **properties}
        required_by_branch = [set(_names(branch.get("required"))) for branch in branches]
        if keyword == "allOf":
            required |= set.union(*required_by_branch)
        else:
            required |= set.intersection(*required_by_branch)
    plain |= {"type": "object", "properties": properties}
    if required:
        plain["required"] = sorted(required)
    return plain


_SCHEMAS_BY_NAME: Final = ("properties", "patternProperties", "$defs", "definitions")
_LISTED_SCHEMAS: Final = (*_BRANCHES, "prefixItems")
_INNER_SCHEMAS: Final = ("items", "additionalProperties", "contains", "propertyNames", "not")
_BOUNDS: Final = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}


def _in_newest_draft(
    schema: Mapping[str, Any], *, with_items: bool, depth: int = 0
) -> dict[str, Any]:
    """Return a schema of any draft as one of 2020-12, by which OpenAI and Anthropic check it.

    Below `_MAX_DEPTH` a schema stays as it is.
    """
    if depth > _MAX_DEPTH:
        return dict(schema)
    newest = {name: value for name, value in schema.items() if not _is_misplaced(name, value)}
    items = newest.get("items")
    if isinstance(items, list):
        newest["prefixItems"] = newest.pop("items")
        rest = newest.pop("additionalItems", {})
        if with_items or not (isinstance(rest, bool) or rest == {}):
            newest["items"] = rest
        elif rest is False:
            newest.setdefault("maxItems", len(items))
    kinds = newest.get("type")
    is_array = kinds == "array" or (isinstance(kinds, list) and "array" in kinds)
    if with_items and is_array and "items" not in newest:
        newest["items"] = {}
    for exclusive, bound in _BOUNDS.items():
        # A flag beside the bound, until draft 4
        if newest.get(exclusive) is True and bound in newest:
            newest[exclusive] = newest.pop(bound)
        elif isinstance(newest.get(exclusive), bool):
            del newest[exclusive]

    newest_part = partial(_newest_part, with_items=with_items, depth=depth)
    for name in _SCHEMAS_BY_NAME:
        if isinstance(named := newest.get(name), Mapping):
            newest[name] = {key: newest_part(part) for key, part in named.items()}
    for name in _LISTED_SCHEMAS:
        if isinstance(listed := newest.get(name), list):
            newest[name] = [newest_part(part) for part in listed]
    for name in _INNER_SCHEMAS:
        if name in newest:
            newest[name] = newest_part(newest[name])
    return newest


def _newest_part(part: object, *, with_items: bool, depth: int) -> object:
    if not isinstance(part, Mapping):
        return part
    return _in_newest_draft(part, with_items=with_items, depth=depth + 1)


def _is_misplaced(keyword: str, value: object) -> bool:
    """Return whether a keyword has a value that it never has, which fails the whole request.

    Until draft 3 a property said by itself that it is required.
    """
    if keyword == "required":
        return not isinstance(value, list)
    return value is None and keyword not in ("const", "default")


def simple_schema(
    schema: Mapping[str, Any], keywords: Collection[str], *, tool: str, api: str
) -> dict[str, Any]:
    """Return `schema` with only these keywords, and without references.

    What a reference names stands in its place. Where a schema holds itself, the inner one says only
    its type. A reference to another document is a `ModelError` that names `tool` and `api`.
    """
    return _Simplifier(schema, keywords, tool, api).simplify(schema)


class _Simplifier:
    """Rewrites the parts of `schema` for `simple_schema`."""

    def __init__(
        self, schema: Mapping[str, Any], keywords: Collection[str], tool: str, api: str
    ) -> None:
        self._schema = schema
        self._keywords = keywords
        self._tool = tool
        self._api = api
        self._count = 0

    def simplify(
        self, part: object, inside: tuple[str, ...] = (), depth: int = 0
    ) -> dict[str, Any]:
        """Return a part of the schema, to which the references `inside` lead."""
        self._count += 1
        if depth > _MAX_DEPTH or self._count > _MAX_NODES:
            raise self._refused("is too large")
        if not isinstance(part, Mapping):  # `true` allows everything
            return {}
        name = part.get("$ref")
        if isinstance(name, str):
            target = _named(self._schema, name)
            if target is None:
                raise self._refused(f"refers to {name!r:.80}, which is not in it")
            if name in inside:
                return _only_type(target)
            return self.simplify({**target, **_without(part, "$ref")}, (*inside, name), depth + 1)
        if "const" in part and "enum" not in part:
            part = {**part, "enum": [part["const"]]}
        kept = {}
        for keyword, value in part.items():
            if keyword in self._keywords:
                kept[keyword] = self._simple_value(keyword, value, inside, depth + 1)
        return kept

    def _simple_value(
        self, keyword: str, value: object, inside: tuple[str, ...], depth: int
    ) -> object:
        if keyword == "properties":
            properties = {}
            for name, part in table_of(value).items():
                if part is not False:  # `false` forbids a property, so it is not offered
                    properties[str(name)] = self.simplify(part, inside, depth)
            return properties
        if keyword in (*_BRANCHES, "prefixItems"):
            if not isinstance(value, list):
                return []
            return [self.simplify(part, inside, depth) for part in value]
        if keyword in ("items", "additionalProperties") and not isinstance(value, bool):
            return self.simplify(value, inside, depth)
        return value

    def _refused(self, why: str) -> ModelError:
        message = f"{self._api} cannot be sent the schema of the tool {self._tool!r:.80}: it {why}"
        return ModelError("refused", message, hint="leave the tool out, or use another worker")


def _without(schema: Mapping[str, Any], *keywords: str) -> dict[str, Any]:
    return without_keys(schema, keywords)


def _only_type(schema: Mapping[str, Any]) -> dict[str, Any]:
    kind = schema.get("type")
    if not isinstance(kind, str):
        return {}
    return {"type": kind}


def _named(root: Mapping[str, Any], name: object) -> Mapping[str, Any] | None:
    """Return what a JSON Pointer of this document names (RFC 6901).

    None for another document, or for nothing.
    """
    if not isinstance(name, str) or (name != "#" and not name.startswith("#/")):
        return None
    target: object = root
    for part in name[1:].split("/")[1:]:
        if not isinstance(target, Mapping):
            return None
        target = target.get(part.replace("~1", "/").replace("~0", "~"))
    if not isinstance(target, Mapping):
        return None
    return target


def _names(value: object) -> list[str]:
    if not isinstance(value, list):
        return []
    return [name for name in value if isinstance(name, str)]


MAX_NAME: Final = 64

_ALLOWED: Final = re.compile(rf"[A-Za-z_][A-Za-z0-9_-]{{0,{MAX_NAME - 1}}}")
_FORBIDDEN: Final = re.compile(r"[^A-Za-z0-9_-]+")
_DIGITS: Final = 8


def api_name(name: str) -> str:
    """Return the name under which a tool is offered to a model.

    It depends on `name` alone, so it is the same in every turn. A name that has to be changed gets
    digits of its hash, so that no two become one.
    """
    if _ALLOWED.fullmatch(name):
        return name
    readable = _FORBIDDEN.sub("_", name)[: MAX_NAME - _DIGITS - 2]
    mark = "" if re.match("[A-Za-z_]", readable) else "_"
    return f"{mark}{readable}_{sha256(name.encode('utf-8', 'replace')).hexdigest()[:_DIGITS]}"


_KEY: Final = re.compile(rf"[\w.-]{{1,{MAX_NAME}}}")
_ASCII_KEY: Final = re.compile(_KEY.pattern, re.ASCII)
_FORBIDDEN_IN_KEYS: Final = re.compile(r"[^\w.-]+")
_FORBIDDEN_IN_ASCII_KEYS: Final = re.compile(_FORBIDDEN_IN_KEYS.pattern, re.ASCII)
_CLAUDE: Final = re.compile("claude", re.IGNORECASE)
"""What the names of Anthropic's models contain, also those of others who serve them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaForm:
    """In which form a server takes the schemas of tools.

    With `ascii_keys` the names of arguments are of ASCII alone. With `distinct_keys` no two of a
    tool are the same but for letters of other scripts and marks. `with_items` is that of
    `object_schema`.
    """

    ascii_keys: bool = False
    distinct_keys: bool = False
    with_items: bool = False


PLAIN_FORM: Final = SchemaForm()


def is_claude(model: str) -> bool:
    """Return whether a model is one of Anthropic's, as far as its name says."""
    return _CLAUDE.search(model) is not None


def api_key(name: str, *, is_ascii: bool = False) -> str:
    """Return the name under which an argument of a tool is offered to a model.

    Anthropic refuses the whole request for one such as `$top` or `filter[id]`. It also refuses
    letters with accents and those of other scripts, which a model understands and others take: they
    are changed for those alone who want names that are `is_ascii`.
    """
    allowed = _ASCII_KEY if is_ascii else _KEY
    if allowed.fullmatch(name):
        return name
    return _hashed_key(name, _FORBIDDEN_IN_ASCII_KEYS if is_ascii else _FORBIDDEN_IN_KEYS)


def _hashed_key(name: str, forbidden: re.Pattern[str] = _FORBIDDEN_IN_ASCII_KEYS) -> str:
    readable = forbidden.sub("_", name)[: MAX_NAME - _DIGITS - 1]
    return f"{readable}_{sha256(name.encode('utf-8', 'replace')).hexdigest()[:_DIGITS]}"


_NOT_IN_RULES: Final = re.compile("[^A-Za-z0-9-]+")
"""What stands in no name of a rule of llama.cpp's grammars: each such run is a dash there."""


def _alike(names: Iterable[str]) -> frozenset[str]:
    """Return the names of arguments that llama-server takes for one.

    Of these it offers a model the last alone, which then gives it twice
    (https://github.com/ggml-org/llama.cpp/issues/28429).
    """
    by_rule: dict[str, list[str]] = {}
    for name in names:
        by_rule.setdefault(_NOT_IN_RULES.sub("-", name), []).append(name)
    return frozenset(chain.from_iterable(alike for alike in by_rule.values() if len(alike) > 1))


def with_api_keys(schema: Mapping[str, Any], form: SchemaForm = PLAIN_FORM) -> Mapping[str, Any]:
    """Return the schema of a tool's arguments with the names that are offered.

    The title of an argument says its own name where another is offered.
    """
    properties = table_of(schema.get("properties"))
    alike = _alike(properties) if form.distinct_keys else frozenset()
    offered = {}
    for name in properties:
        is_alike = name in alike
        offered[name] = _hashed_key(name) if is_alike else api_key(name, is_ascii=form.ascii_keys)
    if all(name == key for name, key in offered.items()):
        return schema
    renamed = {}
    for name, part in properties.items():
        renamed[offered[name]] = part
        if offered[name] != name and isinstance(part, Mapping):
            renamed[offered[name]] = {"title": name, **part}
    changed = {**schema, "properties": renamed}
    if "required" in schema:
        required = _names(schema["required"])
        changed["required"] = [offered.get(name, name) for name in required]
    return changed


def original_keys(tools: Iterable[Tool]) -> dict[str, dict[str, str]]:
    """Return the names of arguments by those that may be offered, where they differ, by tool."""
    keys_by_tool = {}
    for tool in tools:
        keys: dict[str, str] = {}
        names = _as_object(tool.parameters)["properties"]
        alike = _alike(names)
        for name in names:
            offered = {api_key(name), api_key(name, is_ascii=True)}
            if name in alike:
                offered.add(_hashed_key(name))
            keys |= dict.fromkeys(offered - {name}, name)
        if keys:
            keys_by_tool[tool.name] = keys
    return keys_by_tool


def original_names(names: Iterable[str]) -> dict[str, str]:
    """Return the names of tools by the names under which they are offered, where those differ."""
    names_by_offer = {}
    for name in names:
        if (offered := api_name(name)) != name:
            names_by_offer[offered] = name
    return names_by_offer


_SHORT: Final = re.compile("[A-Za-z0-9]{9}")

_MISTRAL: Final = re.compile(
    "mistral|mixtral|ministral|magistral|codestral|devstral|pixtral|voxtral", re.IGNORECASE
)
"""What the names of the models contain, also those of others who serve them."""

_KIMI: Final = re.compile("kimi|moonshot", re.IGNORECASE)
"""What the names of Moonshot's models contain, also those of others who serve them."""

MAX_CHAT_ID: Final = 40  # the most characters of a call's id in OpenAI's chat completions
MAX_ID: Final = 64  # the same in OpenAI's Responses, in Anthropic's API and at Bedrock

_PLAIN: Final = re.compile(f"[A-Za-z0-9_-]{{1,{MAX_ID}}}")
_SIGNATURE: Final = "__thought__"
"""Stands in an id where litellm hides the signature of Google's thinking, which it reads again."""


def is_kimi(model: str) -> bool:
    """Return whether a model is one of Moonshot's, as far as its name says."""
    return _KIMI.search(model) is not None


def id_of_chat(model: str) -> Callable[[str], str]:
    """Return what makes ids of calls such as chat completions takes them for a model.

    The ids of a conversation may be of this program, or of another server.
    """
    if is_kimi(model):
        return str
    return short_id if _MISTRAL.search(model) else _chat_id


def short_id(given: str) -> str:
    """Return an id of nine letters and digits, which Mistral's models want.

    One that has them stays; any other always becomes the same.
    """
    if _SHORT.fullmatch(given):
        return given
    return sha256(given.encode("utf-8", "replace")).hexdigest()[:9]


def _chat_id(given: str) -> str:
    return given if _SIGNATURE in given else bounded_id(given, MAX_CHAT_ID)


def bounded_id(given: str, most: int = MAX_ID) -> str:
    """Return an id of at most `most` characters; a longer one always becomes the same."""
    return given if len(given) <= most else _digest_id(given)


def plain_id(given: str) -> str:
    """Return an id of letters, digits, dashes and underscores; any other always becomes the same.

    Models write ids with other marks, such as Kimi's `functions.weather:0`.
    """
    return given if _PLAIN.fullmatch(given) else _digest_id(given)


def _digest_id(given: str) -> str:
    return f"call_{sha256(given.encode('utf-8', 'replace')).hexdigest()[:32]}"
