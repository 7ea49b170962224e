"""Workers in the files: `[workers.NAME]` tables, and changes to those in the tool's own file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from conductor_cli.config.files import AppPaths, Source
from conductor_cli.config.tables import NAME, Table, changed_table, tables_of
from conductor_cli.core.chat import MediaKind
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Card, Worker
from conductor_cli.core.usage import FREE, Price
from conductor_cli.models.command.programs import PROGRAMS
from conductor_cli.models.presets import is_free
from conductor_cli.models.worker_options import OptionError, check_options

KEY_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What a variable may be called. Most keys have a dash, so a key given instead of its variable is noticed."""

_CONTEXT: Final[dict[str, dict[str, Any]]] = {"llama": {"context": 8192}}
"""Default context, in tokens, of kinds whose own default is smaller than what prompts are shortened to."""

_LEAST: Final = {"parallel": 1, "max_tokens": 1, "context": 256, "temperature": 0, "threads": 1, "thinking_budget": 0}
_SECRET: Final = re.compile(r"(?i)key|token|password|.*(api[-_]?key|authorization|cookie|secret|auth[-_]?token)")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTable:
    """What a worker's table may hold besides the options of its kind. Without `parallel`, the kind decides."""

    kind: str = ""
    model: str = ""
    about: str = ""
    parallel: int | None = None
    enabled: bool = True
    price: Price | None = None
    card: Card = Card()
    tags: tuple[str, ...] = ()
    accepts: tuple[MediaKind, ...] | None = None
    tools: tuple[str, ...] = ()


WORKER_FIELDS: Final = tuple(field.name for field in fields(WorkerTable))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredWorker:
    """A worker of the files, enabled or not. `source` is the last file that configures it."""

    worker: Worker
    enabled: bool
    source: str


def workers_of(sources: Sequence[Source]) -> tuple[ConfiguredWorker, ...]:
    """The workers of all files, later files over earlier ones by name, in the order of their first mention.

    Raises `ConfigError` with file, line and what was expected.
    """
    return tuple(_parse_worker(table) for table in tables_of(sources, "workers"))


def validate_worker(paths: AppPaths, name: str, changes: Mapping[str, Any]) -> Worker:
    """The worker that `update_table` would make; nothing is written. Raises `ConfigError` that names no file."""
    return _parse_worker(changed_table(paths, "workers", name, changes)).worker


def _parse_worker(table: Table) -> ConfiguredWorker:
    options = {key: value for key, value in table.values.items() if key not in WORKER_FIELDS}
    found = table.read(WorkerTable, table.values)
    _check_values(table, found)
    worker = Worker(
        name=table.name, kind=found.kind, model=found.model, about=found.about,
        options=_CONTEXT.get(found.kind, {}) | options, card=found.card, price=found.price,
        parallel=found.parallel or _usual_parallel(found.kind, options), tags=tuple(dict.fromkeys(found.tags)),
        accepts=None if found.accepts is None else tuple(dict.fromkeys(found.accepts)),
        tools=tuple(dict.fromkeys(found.tools)),
    )  # fmt: skip
    try:
        check_options(worker)
    except OptionError as error:
        raise table.error(error.option, error.message, error.hint) from None
    if worker.price is None and is_free(worker):
        worker = replace(worker, price=FREE)
    return ConfiguredWorker(worker=worker, enabled=found.enabled, source=table.file_of(""))


def _usual_parallel(kind: str, options: Mapping[str, Any]) -> int:
    """How many steps a worker does at once: one where they would share a model file or a working directory."""
    return 1 if kind == "llama" or options.get("cwd") else 4


def _check_values(table: Table, found: WorkerTable) -> None:
    """Check what the types do not say, and that no API key is in the file."""
    if not found.kind:
        raise table.error("", f"worker {table.name!r} has no kind", 'for example: kind = "openai"')
    # Plans use this name for the conductor itself, so no other worker may have it.
    if (table.name == SELF) != (found.kind == SELF):
        message = f"worker {table.name!r} of kind {found.kind!r}: {SELF!r} means the conductor itself"
        raise table.error("kind", message, "rename it")
    for key, value in table.values.items():
        least = _LEAST.get(key, -math.inf)
        if isinstance(value, float | int) and not least <= value < math.inf:
            raise table.error(key, f"{key} is {value!r:.60}; expected at least {_LEAST.get(key, 'a finite number')}")
        _refuse_secret(table, key, value)
    variable = table.values.get("key_env", "KEY")
    if isinstance(variable, str) and not KEY_VARIABLE.fullmatch(variable):
        raise table.error("key_env", "key_env is not the name of a variable", "name the variable that holds the key")
    _check_parts(table, found)


def _check_parts(table: Table, found: WorkerTable) -> None:
    """Check the price, the card, what it accepts and the tags."""
    for key, kind in (("price", Price), ("card", Card)):
        table.refuse_unknown(key, [field.name for field in fields(kind)], table.values.get(key, {}))
    if any(not 0 <= strength <= 1 for strength in found.card.strengths.values()):
        raise table.error("card", "card: a strength must be between 0 and 1")
    if found.price is not None and min(found.price.amounts()) < 0:
        raise table.error("price", "price: an amount must be 0 or more")
    if found.kind == "llama" and found.accepts:
        raise table.error("accepts", "accepts: a model file reads text only", "serve it by llama-server, which can")
    if found.kind in PROGRAMS:
        for key, given in (("accepts", found.accepts), ("tools", found.tools)):
            if given:
                raise table.error(key, f"{key}: a program reads text only, and has tools of its own", "remove it")
    for tag in found.tags:
        if not NAME.fullmatch(tag):
            hint = "letters, digits, dots and dashes, at most 40"
            raise table.error("tags", f"tags: {tag!r:.60} is not a valid tag", hint)


def _refuse_secret(table: Table, key: str, value: object) -> None:
    """Refuse an API key in a settings file, where it would be shown and backed up."""
    names = [key, *(value if isinstance(value, Mapping) and key == "headers" else ())]
    has_password = isinstance(value, str) and key == "base_url" and "@" in value.partition("://")[2].partition("/")[0]
    if has_password or any(_SECRET.fullmatch(name) for name in names):
        raise table.error(key, f"{key}: keys do not belong in a file", 'name a variable: key_env = "MY_KEY"')
