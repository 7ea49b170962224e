"""The grammar that a model file's reply is held to where a JSON Schema is given."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from conductor_cli.programs.bounded_child import ChildLimits, ChildStopped, run_child_beside

CHILD: Final = Path(__file__).with_name("grammar_process.py")
LIMITS: Final = ChildLimits(seconds=5.0, memory=384 << 20, cpu_seconds=6)
MAX_GRAMMAR_CHARACTERS: Final = 100_000  # llama.cpp parses it on the thread of the model
MAX_KEPT: Final = 32  # Grammars of the newest schemas that a model keeps


class SchemaGrammars:
    """Makes grammars of JSON Schemas, and keeps those of the newest."""

    def __init__(self) -> None:
        self._grammars = OrderedDict[str, str]()

    async def grammar_of(self, schema: Mapping[str, Any]) -> str:
        """Return the grammar of a schema; empty where none can be made of it."""
        key = json.dumps(schema, default=str)
        if key not in self._grammars:
            self._grammars[key] = await _convert(schema)
            if len(self._grammars) > MAX_KEPT:
                self._grammars.popitem(last=False)
        return self._grammars[key]


async def _convert(schema: Mapping[str, Any]) -> str:
    package = find_spec("llama_cpp")
    if package is None or package.origin is None:
        return ""
    converter = Path(package.origin).with_name("llama_grammar.py")
    job = {"schema": schema, "converter": str(converter)}
    try:
        values = await run_child_beside(CHILD, json.dumps(job, default=str).encode(), LIMITS)
    except (ChildStopped, ValueError, RecursionError):
        return ""
    grammar = str(values[0]) if values else ""
    return grammar if len(grammar) <= MAX_GRAMMAR_CHARACTERS else ""
