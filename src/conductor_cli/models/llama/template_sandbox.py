"""Jinja in its sandbox.

The chat template of a model is rendered here, in this process or in a bounded child.

It imports only the standard library and Jinja, so that the child starts fast.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

if TYPE_CHECKING:
    from jinja2.parser import Parser

MAX_CHARACTERS: Final = 1 << 18  # The longest template, and the longest text that one may write


def render_template(source: str, variables: Mapping[str, Any]) -> str:
    """Return what a template writes, in this process.

    Raises `ValueError` for all that can go wrong with it.
    """
    if len(source) > MAX_CHARACTERS:
        raise ValueError(f"it has {len(source)} characters")
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationTag]
    )
    environment.filters["tojson"] = lambda value, *_, indent=None, **__: json.dumps(
        value, ensure_ascii=False, indent=indent
    )
    environment.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": lambda form: datetime.now().astimezone().strftime(str(form)),
    }
    try:
        text = environment.from_string(source).render(variables)
    except MemoryError as error:
        raise ValueError("it needs too much memory") from error
    except Exception as error:  # a template may raise anything that Python can
        raise ValueError(str(error) or type(error).__name__) from error
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"it wrote more than {MAX_CHARACTERS} characters")
    return text


def answer(job_bytes: bytes) -> Iterator[dict[str, str]]:
    """Yield the `text` of a template, or the `error`, for a job of its `source` and `variables`."""
    job = json.loads(job_bytes)
    try:
        yield {"text": render_template(job["source"], job["variables"])}
    except ValueError as error:
        yield {"error": str(error)[:1000]}


class _GenerationTag(Extension):
    """`{% generation %}` marks, for training, what a model has written.

    Here only its content counts.
    """

    tags = {"generation"}  # noqa: RUF012 - Jinja declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: object) -> NoReturn:
    raise TemplateError(str(message))
