"""Jinja in its sandbox: the chat template of a model is rendered here, in this process or as a separate program.

As a program it limits its time and memory, reads a job from stdin and writes the result to stdout; see `template`. It
imports only the standard library and Jinja, so that it starts fast.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

if TYPE_CHECKING:
    from jinja2.parser import Parser

MAX_CHARACTERS: Final = 1 << 18
"""The longest template, and the longest text that one may write."""

MEMORY: Final = 512 << 20
"""Bytes that the program may use. The system holds it to that, so it cannot matter what the template does."""


def render(source: str, variables: Mapping[str, Any]) -> str:
    """What a template writes, in this process. Raises `ValueError` for all that can go wrong with it."""
    if len(source) > MAX_CHARACTERS:
        raise ValueError(f"it has {len(source)} characters")
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationTag]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    try:
        text = environment.from_string(source).render(variables)
    except MemoryError as error:
        raise ValueError("it needs too much memory") from error
    except Exception as error:  # a template may raise anything that Python can
        raise ValueError(str(error) or type(error).__name__) from error
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"it wrote more than {MAX_CHARACTERS} characters")
    return text


def main() -> None:
    """What the child does: limit itself, read a job from stdin, write the result to stdout."""
    job = json.load(sys.stdin)
    if sys.platform != "win32":
        import resource

        limits = {"RLIMIT_CPU": job["cpu_seconds"], "RLIMIT_AS": MEMORY, "RLIMIT_FSIZE": 0, "RLIMIT_CORE": 0}
        for name, most in limits.items():
            # There may be a stricter limit already, and not every system has each of them.
            with suppress(ValueError, OSError):
                resource.setrlimit(getattr(resource, name), (most, most))
    try:
        result = {"text": render(job["source"], job["variables"])}
    except ValueError as error:
        result = {"error": str(error)[:1000]}
    json.dump(result, sys.stdout)


class _GenerationTag(Extension):
    """`{% generation %}` marks, for training, what a model has written. Here only its content counts."""

    tags = {"generation"}  # noqa: RUF012 - Jinja declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(value: Any, *_: object, indent: int | None = None, **__: object) -> str:  # noqa: ANN401 - any JSON value
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: object) -> NoReturn:
    raise TemplateError(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


if __name__ == "__main__":
    main()
