"""How a server with OpenAI's API is told to hold a reply to a grammar, a schema or first words.

Pure. All take one field beside the messages, whose name and content differ. This is from the
sources of llama.cpp (`tools/server`), vLLM (`entrypoints/openai`), SGLang
(`srt/entrypoints/openai`) and llama-cpp-python 0.3.36. vLLM and SGLang read a grammar with
xgrammar, which understands all of ours since version 0.1.32.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol

from conductor_cli.core.chat import Request
from conductor_cli.models.base import table_of, tables_in, text_of

Form = Literal["grammar", "structured_outputs", "ebnf", "response_format", "ask"]
"""The field by which a server takes a constraint; `ask` if the server has to be identified
first.
"""

Constraint = Literal["grammar", "schema", "nothing"]
"""What a server holds a reply to: a grammar, a JSON Schema only, or nothing as far as is known."""


class SupportsConstraints(Protocol):
    """A model that can say what it holds its replies to."""

    async def constraint_support(self) -> Constraint:
        """Return it as far as is known; a server of unknown kind is asked. Raises nothing."""


OWNERS: Final[dict[str, Form]] = {
    "llamacpp": "grammar",
    "me": "grammar",  # llama-cpp-python's own server
    # Since 0.11; before 0.12 also under other names, which are not sent
    "vllm": "structured_outputs",
    "sglang": "ebnf",
}
"""Who a server says owns its models, and the field by which it takes a grammar."""

SCHEMA_OWNERS: Final = frozenset({"library", "organization_owner"})
"""The owners of models whose servers are known to enforce a schema: Ollama and LM Studio."""


def form_of(listed: object, model: str) -> tuple[Form, bool]:
    """Return the field of a server, and whether it is known to enforce a schema.

    Its list of models tells it: the owner of `model`, or that of the first model if it is not
    listed.
    """
    entries = tables_in(table_of(listed).get("data"))
    named = [entry for entry in entries if entry.get("id") == model]
    owner = str(next((entry.get("owned_by") for entry in (*named, *entries)), None))
    return OWNERS.get(owner, "response_format"), owner in SCHEMA_OWNERS and not is_cloud_model(
        model
    )


def is_cloud_model(model: str) -> bool:
    """Return whether Ollama sends this model's questions to its cloud.

    The cloud accepts schemas and enforces none.
    """
    return model.strip().lower().endswith("cloud")


_NO_CHAT: Final = re.compile(
    r"whisper|tts|transcri|moderation|dall-e|image|imagen|veo|sora|realtime|audio|rerank|aqa|embed"
    r"|(?:^|[/_-])(?:bge|e5|gte|clip|flux|stable-diffusion|sdxl|colbert|parakeet|kokoro)(?:[-_.:]|$)",
    re.IGNORECASE,
)
"""Words in the names of models that answer no questions."""


_NO_CHAT_TYPES: Final = ("embedding", "image", "rerank", "audio", "moderation", "transcri")
"""How the types of such models begin, where a list gives types."""


def answers_questions(model: str) -> bool:
    """Return whether a model of this name may be one that answers questions.

    Models of embeddings, of speech and of images do not. Of a path only its end counts.
    """
    return bool(model) and _NO_CHAT.search(model.rstrip("/").rpartition("/")[2]) is None


def is_local_chat_model(model: str) -> bool:
    """Return whether a model of this name answers questions on the server that lists it.

    One in a cloud does not.
    """
    return answers_questions(model) and not is_cloud_model(model)


def first_chat_model(listed: object) -> str:
    """Return the first chat model in a server's list (`GET /models`); empty for none.

    Where all have names of other models, it is the first that is neither one of embeddings nor in
    a cloud.
    """
    names = []
    for entry in tables_in(table_of(listed).get("data")):
        name = entry.get("id")
        has_other_type = text_of(entry.get("type")).lower().startswith(_NO_CHAT_TYPES)
        if isinstance(name, str) and name and not has_other_type and not is_cloud_model(name):
            names.append(name)
    chat_models = [name for name in names if answers_questions(name)]
    others = [name for name in names if "embed" not in name.lower()]
    return [*chat_models, *others, ""][0]


def constraint_of(form: Form, dropped: frozenset[str], *, schemas: bool) -> Constraint:
    """Return what a server holds a reply to, once it has refused `dropped`.

    `schemas` says that it enforces those.
    """
    if form not in ("ask", "response_format") and form not in dropped:
        return "grammar"
    return "schema" if schemas and "response_format" not in dropped else "nothing"


def constraint_fields(request: Request, form: Form, dropped: frozenset[str]) -> dict[str, Any]:
    """Return the one field that constrains the reply, a grammar before a schema.

    Empty if none may be sent.
    """
    fields: dict[str, Any] = {}
    if request.schema and form == "grammar":
        # llama-server takes either form, llama-cpp-python's server only this one
        fields["response_format"] = {"type": "json_object", "schema": request.schema}
    elif request.schema:
        fields["response_format"] = response_format(request.schema)
    if request.grammar and form in ("grammar", "ebnf"):
        fields[form] = request.grammar
    elif form == "structured_outputs" and (request.choices or request.grammar):
        fields[form] = (
            {"choice": list(request.choices)} if request.choices else {"grammar": request.grammar}
        )
    usable = [name for name in (form, "response_format") if name in fields and name not in dropped]
    name = usable[0] if usable else None
    # llama-server applies the grammar from the first token, also to thinking; so templates are told
    # to leave it out.
    unthinking = {"chat_template_kwargs": {"enable_thinking": False}} if name == "grammar" else {}
    return {} if name is None else {name: fields[name], **unthinking}


def prefill_fields(request: Request, form: Form, dropped: frozenset[str]) -> dict[str, Any]:
    """Return what makes a server continue the beginning of the reply.

    One more message, and fields that say so.

    llama-server continues a last message of the assistant by itself. Empty for a server of another
    kind, which would take it for an earlier turn.
    """
    fields: dict[Form, dict[str, Any]] = {
        "grammar": {},
        "ebnf": {"continue_final_message": True},
        "structured_outputs": {"continue_final_message": True, "add_generation_prompt": False},
    }
    if not request.prefill or form not in fields or dropped & fields[form].keys():
        return {}
    return {"messages": [{"role": "assistant", "content": request.prefill}], **fields[form]}


def response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema in OpenAI's form.

    `strict` is true where OpenAI would take it as strict; it refuses other schemas then.
    """
    strict = is_strict(schema)
    return {
        "type": "json_schema",
        "json_schema": {"name": "reply", "strict": strict, "schema": schema},
    }


_INVALID_SCHEMA: Final = re.compile(
    r"""
    \binvalid\ (?:json\ )?schema\b | \bnot\ a\ valid\b.{0,40}\bschema\b
    | \bschema\b.{0,60}\b(?:is\ invalid|not\ valid|too\ complex|produces|contains)\b
    | \bschema\ conversion\ failed\b | \bformat\.schema\b | \bfor\ '\w+'\ type\b
    | \bunimplemented\ keys\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""How servers refuse one schema, and not the field that it is in.

OpenAI, Groq, Moonshot, Google, vLLM, SGLang, llama-server, and Anthropic, which names the place in
the schema.
"""


def is_invalid_schema(message: str) -> bool:
    """Return whether a server refused a schema for what is in it, so that it may take others."""
    return _INVALID_SCHEMA.search(message) is not None


_NOT_STRICT: Final = frozenset(
    {
        "allOf",
        "not",
        "dependentRequired",
        "dependentSchemas",
        "if",
        "then",
        "else",
        "oneOf",
        "patternProperties",
        "prefixItems",
        "contains",
    }
)
"""Keywords that OpenAI does not take in a strict schema.

From platform.openai.com/docs/guides/structured-outputs, November 2026.
"""


def is_strict(schema: object, depth: int = 0) -> bool:
    """Return whether each object of a schema is closed and demands all of its properties."""
    if depth > 40:
        return False
    if isinstance(schema, (list, tuple)):
        return all(is_strict(item, depth + 1) for item in schema)
    if not isinstance(schema, Mapping):
        return True
    if not _NOT_STRICT.isdisjoint(schema):
        return False
    properties = schema.get("properties")
    is_object = schema.get("type") == "object" or isinstance(properties, Mapping)
    if is_object and not _is_closed(schema):
        return False
    below = [*properties.values()] if isinstance(properties, Mapping) else []
    for name in ("$defs", "definitions"):
        definitions = schema.get(name)
        below += definitions.values() if isinstance(definitions, Mapping) else []
    below += [schema[name] for name in ("items", "anyOf") if name in schema]
    return is_strict(below, depth + 1)


def _is_closed(schema: Mapping[str, Any]) -> bool:
    properties = schema.get("properties", {})
    required = schema.get("required", ())
    if not isinstance(properties, Mapping) or not isinstance(required, (list, tuple)):
        return False
    return schema.get("additionalProperties") is False and properties.keys() <= {*required}
