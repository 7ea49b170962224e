"""Servers that speak OpenAI's API, by how each is told to hold a reply to a form. Pure.

All take one field beside the messages; what stands in it, and its name, differ. Read in the sources of llama.cpp
(`tools/server`), vLLM (`entrypoints/openai`), SGLang (`srt/entrypoints/openai`), llama-cpp-python 0.3.36 and xgrammar
0.1.25 to 0.2.8, which vLLM and SGLang read a grammar with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, Protocol, runtime_checkable

from conductor_cli.core.chat import Request

Form = Literal["grammar", "structured_outputs", "ebnf", "response_format", "ask"]
"""The field by which a server is told a form; `ask` where the server has to be known first."""

Constraint = Literal["grammar", "schema", "nothing"]
"""What a server holds a reply to: a grammar, a JSON Schema only, or as far as is known nothing."""


@runtime_checkable
class SupportsConstraints(Protocol):
    """A model that can say what its replies are held to."""

    async def holds(self) -> Constraint:
        """As far as is known; a server of unknown kind is asked. Raises nothing."""
        ...


OWNERS: Final[dict[str, Form]] = {
    "llamacpp": "grammar",
    "me": "grammar",  # llama-cpp-python's own server
    "vllm": "structured_outputs",  # since 0.11; before 0.12 also under other names, which are not sent
    "sglang": "ebnf",
}
"""Who a server says owns its models, and the field that it takes a grammar by."""

KEEPERS: Final = frozenset({"library", "organization_owner"})
"""The owners of models whose servers are known to hold replies to a schema: Ollama and LM Studio."""

_POINT: Final = r"\\(?:x([0-9A-F]{2})|U([0-9A-F]{8}))"
_RANGE: Final = re.compile(f"{_POINT}-{_POINT}")
_SIGNS: Final = re.compile(rf"\[(?:{_POINT}-{_POINT})+\]")
_LAST: Final = 0x10FFFF


def form_of(listed: object, model: str) -> Form:
    """The field of the server that lists its models so: by the owner of `model`, or of the first if it is not there."""
    return OWNERS.get(_owner(listed, model), "response_format")


def enforces_schemas(listed: object, model: str) -> bool:
    """Whether the server that lists its models so is known to hold replies to a schema. Others may ignore one."""
    return _owner(listed, model) in KEEPERS and not is_cloud_model(model)


def is_cloud_model(model: str) -> bool:
    """Whether Ollama sends what this model is asked on to its cloud, which takes a schema and holds nothing to it."""
    return model.strip().lower().endswith("cloud")


def is_local_chat_model(model: str) -> bool:
    """Whether a model of this name answers questions on the server that lists it: no cloud's, none of embeddings."""
    return bool(model) and not is_cloud_model(model) and "embed" not in model.lower()


def first_chat_model(listed: object) -> str:
    """The first of the models that a server lists (`GET /models`) that may be asked unnamed; empty for none."""
    names = (entry.get("id") for entry in _entries(listed))
    return next((name for name in names if isinstance(name, str) and is_local_chat_model(name)), "")


def constraint_of(form: Form, dropped: frozenset[str], *, schemas: bool) -> Constraint:
    """What a server with this field holds a reply to, once it has refused `dropped`; `schemas` if it keeps those."""
    if form not in ("ask", "response_format") and form not in dropped:
        return "grammar"
    return "schema" if schemas and "response_format" not in dropped else "nothing"


def is_constrained(request: Request) -> bool:
    """Whether a request wants its reply in a form."""
    return bool(request.grammar or request.choices or request.schema)


def constraint_fields(request: Request, form: Form, dropped: frozenset[str]) -> dict[str, Any]:
    """The one field that holds the reply to its form, nothing where none may be sent: a grammar before a schema.

    llama-server begins with the grammar where a model would think, and reads what was written so as thinking: so a
    template that can leave the thinking out is told to.
    """
    fields: dict[str, Any] = {}
    if request.schema:
        fields["response_format"] = response_format(request.schema)
    if request.grammar and form == "grammar":
        fields[form] = request.grammar
    elif request.grammar and form == "ebnf":
        fields[form] = for_xgrammar(request.grammar)
    elif request.choices and form == "structured_outputs":
        fields[form] = {"choice": list(request.choices)}
    elif request.grammar and form == "structured_outputs":
        fields[form] = {"grammar": for_xgrammar(request.grammar)}
    name = next((name for name in (form, "response_format") if name in fields and name not in dropped), None)
    unthinking = {"chat_template_kwargs": {"enable_thinking": False}} if name == "grammar" else {}
    return {} if name is None else {name: fields[name], **unthinking}


def response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema as OpenAI wants it."""
    return {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": schema}}


def for_xgrammar(grammar: str) -> str:
    """The same GBNF with each class of nearly all signs by the ASCII signs that it leaves out.

    xgrammar before 0.1.32 admits no sign beyond ASCII by a range, and breaks on a class that excludes one: without
    this a plan could hold no é. What is lost: a class that leaves out signs beyond ASCII now admits those.
    """
    return _SIGNS.sub(_without, grammar)


def _entries(listed: object) -> list[Mapping[str, Any]]:
    data = listed.get("data") if isinstance(listed, Mapping) else None
    return [entry for entry in data if isinstance(entry, Mapping)] if isinstance(data, list) else []


def _owner(listed: object, model: str) -> str:
    entries = _entries(listed)
    named = [entry for entry in entries if entry.get("id") == model]
    return str(next((entry.get("owned_by") for entry in (*named, *entries)), None))


def _without(signs: re.Match[str]) -> str:
    ranges = [(_point(found, 1), _point(found, 3)) for found in _RANGE.finditer(signs[0])]
    if ranges[-1][1] != _LAST:
        return signs[0]
    return f"[^{''.join(_gaps(ranges))}]"


def _gaps(ranges: list[tuple[int, int]]) -> Iterator[str]:
    """What lies before and between the ranges, as far as it is ASCII."""
    begin = 0
    for first, last in ranges:
        if begin < first and begin < 0x80:
            yield f"\\x{begin:02X}-\\x{min(first - 1, 0x7F):02X}"
        begin = last + 1


def _point(found: re.Match[str], group: int) -> int:
    return int(found[group] or found[group + 1], 16)
