"""How the common families of models write a tool call as text. Pure.

The chat template says which: it has the words that a call is written with. From the templates of Qwen2.5 and Qwen3,
Hermes, Mistral and Llama 3, and llama.cpp's `common/chat.cpp`, November 2026. A template with other words (such as
Qwen3-Coder's `<function=`) has no format here, and its model takes no tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from conductor_cli.models.chat_body import arguments_object


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """One way to write calls.

    A call begins with `opening` and ends with `closing`, or with the reply if that is empty; without `opening` a reply
    is a call if it begins with a brace. `arguments` is the name of the field that holds them. `one_each_turn` says that
    the template refuses several calls in one turn.
    """

    name: Literal["hermes", "mistral", "mistral-names", "llama-3"]
    opening: str = ""
    closing: str = ""
    arguments: str = "arguments"
    one_each_turn: bool = False


HERMES: Final = ToolFormat(name="hermes", opening="<tool_call>", closing="</tool_call>")
MISTRAL: Final = ToolFormat(name="mistral", opening="[TOOL_CALLS]")
MISTRAL_NAMES: Final = ToolFormat(name="mistral-names", opening="[TOOL_CALLS]")
LLAMA_3: Final = ToolFormat(name="llama-3", arguments="parameters", one_each_turn=True)

SPELLED: Final = ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]")
"""Control tokens that a call is written with, and that have to be read as text for that."""

_USES_TOOLS: Final = re.compile(r"\{[%{][^}]*\btools\b")
_OTHERS: Final = ("<function=", "<arg_key>")
"""Words of families that open a call as others do and then write it in ways that are not read here."""


def format_of(template: str) -> ToolFormat | None:
    """The format of a model by its chat template; None for a template without tools, or of another family."""
    if not _USES_TOOLS.search(template) or any(words in template for words in _OTHERS):
        return None
    if "[TOOL_CALLS]" in template:
        return MISTRAL_NAMES if "[ARGS]" in template else MISTRAL
    if "<tool_call>" in template and "</tool_call>" in template:
        return HERMES
    return LLAMA_3 if "<|start_header_id|>" in template and '"parameters"' in template else None


def calls_in(text: str, form: ToolFormat) -> list[dict[str, Any]] | None:
    """The calls in the text after an opening, in the form of chat completions; None if the text is none."""
    if form is MISTRAL_NAMES:
        return _named_calls(text)
    values: list[Any] = []
    for part in re.split(r"\s*;\s*(?=\{)", text.strip()) if form is LLAMA_3 else [text]:
        try:
            found = json.loads(part)
        except (ValueError, RecursionError):
            return None
        values += found if isinstance(found, list) else [found]
    calls = [_call(value, form) for value in values]
    return [call for call in calls if call] if all(calls) else None


def call_with_invalid_arguments(text: str, form: ToolFormat) -> dict[str, Any] | None:
    """A call whose name can be read although the rest is no JSON: whoever calls the tool tells the model so."""
    found = re.match(r'\s*\{\s*"name"\s*:\s*"([A-Za-z0-9_-]{1,64})"\s*,?', text)
    if not found:
        return None
    arguments = re.sub(rf'^\s*"{form.arguments}"\s*:\s*', "", text[found.end() :]).strip()
    return {"function": {"name": found[1], "arguments": arguments.removesuffix("}") or "{"}}


def grammar_of(form: ToolFormat, names: Iterable[str]) -> str | None:
    """GBNF of what follows an opening: calls of these tools, whose arguments are any object. None if there is none."""
    if form is MISTRAL_NAMES:
        return None
    name = " | ".join(f'"{name}"' for name in names)
    call = rf'"{{\"name\": \"" name "\", \"{form.arguments}\": " object "}}"'
    root = {
        "hermes": r'"\n"? call "\n</tool_call>" ("\n<tool_call>\n" call "\n</tool_call>")*',
        "mistral": 'space "[" call (", " call)* "]"',
    }.get(form.name, "call")
    return "\n".join((f"root ::= {root}", f"call ::= {call}", f"name ::= {name}", _JSON))


_JSON: Final = r"""object ::= "{" space (pair ("," space pair)*)? "}"
pair ::= string ":" space value
value ::= object | array | string | number | "true" | "false" | "null"
array ::= "[" space (value ("," space value)*)? "]"
string ::= "\"" ([^"\\\x00-\x1f\x7f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F]))* "\""
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [-+]? [0-9] [0-9]?)?
space ::= " "?"""


def _call(value: object, form: ToolFormat) -> dict[str, Any] | None:
    if not isinstance(value, Mapping) or not isinstance(name := value.get("name"), str) or not name:
        return None
    # Models mix up the two names for the arguments.
    arguments = value.get(form.arguments, value.get("arguments", value.get("parameters", {})))
    if not isinstance(arguments, (dict, str)):
        return None
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"function": {"name": name, "arguments": written}}


def _named_calls(text: str) -> list[dict[str, Any]] | None:
    """Mistral's later form: `NAME[ARGS]{…}`, each after an opening; between them may be the id of the call."""
    calls = []
    for part in text.split(MISTRAL_NAMES.opening):
        name, mark, arguments = part.partition("[ARGS]")
        name = name.partition("[CALL_ID]")[0].strip()
        if not mark or not name or arguments_object(arguments) is None:
            return None
        calls.append({"function": {"name": name, "arguments": arguments.strip()}})
    return calls
