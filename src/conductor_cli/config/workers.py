"""Workers in the files: `[workers.NAME]` tables, and changes to those in the tool's own file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from typing import Any, Final

from conductor_cli.config.files import AppPaths, Source, edit_settings_file, own_section
from conductor_cli.core.errors import ConfigError
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Card, Worker
from conductor_cli.core.serialization import DecodeError, load
from conductor_cli.core.usage import FREE, Price
from conductor_cli.models.presets import is_free
from conductor_cli.models.worker_options import OptionError, check_options

WORKER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
"""What a worker may be called: its name is used in plans, prompts and on command lines."""

KEY_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What a variable may be called. Most keys have a dash, so a key given instead of its variable is noticed."""

_CONTEXT: Final[dict[str, dict[str, Any]]] = {"llama": {"context": 8192}}
"""Default context, in tokens, of kinds whose own default is smaller than what prompts are shortened to."""

WORKER_FIELDS: Final[dict[str, tuple[type, ...]]] = {
    "kind": (str,), "model": (str,), "about": (str,), "parallel": (int,), "enabled": (bool,),
    "price": (dict,), "card": (dict,), "tags": (list,),
}  # fmt: skip
"""What a worker's table may hold besides the options of its kind, and the types."""

_TYPE_NAMES: Final = {
    str: "text in quotes",
    int: "a whole number",
    bool: "true or false",
    dict: "a table",
    list: "a list",
}
_MINIMUM: Final = {"parallel": 1, "max_tokens": 1, "context": 256, "temperature": 0, "threads": 1, "thinking_budget": 0}
_SECRET: Final = re.compile(r"(?i)key|token|password|.*(api[-_]?key|authorization|cookie|secret|auth[-_]?token)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredWorker:
    """A worker of the files, enabled or not. `source` is the last file that configures it."""

    worker: Worker
    enabled: bool
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """What the files say of one worker, later files over earlier ones."""

    name: str
    values: Mapping[str, Any]
    sources: tuple[Source, ...]

    def error(self, key: str, message: str, hint: str = "") -> ConfigError:
        """An error that names the file and line of `key`, or of the table."""
        section = f"workers.{self.name}"
        setting_it = [source for source in self.sources if key in source.values["workers"][self.name]]
        where = setting_it[-1].where(section, key) if setting_it else self.sources[-1].where(section)
        return ConfigError(f"{where}: {message}", hint=hint)


def workers_of(sources: Sequence[Source]) -> tuple[ConfiguredWorker, ...]:
    """The workers of all files, later files over earlier ones by name, in the order of their first mention.

    Raises `ConfigError` with file, line and what was expected.
    """
    tables: dict[str, _Table] = {}
    for source in sources:
        found = source.values.get("workers", {})
        if not isinstance(found, Mapping):
            raise ConfigError(f"{source.where('workers')}: workers must be tables [workers.NAME]")
        for name, table in found.items():
            if not isinstance(table, Mapping):
                raise ConfigError(f"{source.where('workers', name)}: {name!r} must be a table [workers.{name}]")
            before = tables.get(name, _Table(name=name, values={}, sources=()))
            tables[name] = _Table(name=name, values={**before.values, **table}, sources=(*before.sources, source))
    return tuple(_parse_worker(table) for table in tables.values())


def _parse_worker(table: _Table) -> ConfiguredWorker:
    _check_name(table)
    _check_values(table)
    values, kind = table.values, table.values["kind"]
    worker = Worker(
        name=table.name, kind=kind, model=values.get("model", ""), about=values.get("about", ""),
        options=_CONTEXT.get(kind, {}) | {key: value for key, value in values.items() if key not in WORKER_FIELDS},
        parallel=values.get("parallel", 1 if kind == "llama" else 4),
        card=_parse_card(table), price=_parse_price(table), tags=_parse_tags(table),
    )  # fmt: skip
    try:
        check_options(worker)
    except OptionError as error:
        raise table.error(error.option, error.message, error.hint) from None
    if worker.price is None and is_free(worker):
        worker = replace(worker, price=FREE)
    return ConfiguredWorker(worker=worker, enabled=values.get("enabled", True), source=str(table.sources[-1].path))


def _check_name(table: _Table) -> None:
    name, kind = table.name, table.values.get("kind")
    if not WORKER_NAME.fullmatch(name):
        raise table.error("", f"{name!r} is not a valid worker name", "letters, digits, dots and dashes, at most 40")
    if kind is None:
        raise table.error("", f"worker {name!r} has no kind", 'for example: kind = "openai"')
    # Plans use this name for the conductor itself, so no other worker may have it.
    if (name == SELF) != (kind == SELF):
        raise table.error("kind", f"worker {name!r} of kind {kind!r}: {SELF!r} means the conductor itself", "rename it")


def _check_values(table: _Table) -> None:
    """Check types and minimums, and that no API key is in the file."""
    for key, value in table.values.items():
        types = WORKER_FIELDS.get(key)
        if types is not None and (not isinstance(value, types) or (isinstance(value, bool) and bool not in types)):
            raise table.error(key, f"{key} is {value!r:.60}; expected {_TYPE_NAMES[types[0]]}")
        if isinstance(value, float | int) and not (math.isfinite(value) and value >= _MINIMUM.get(key, -math.inf)):
            raise table.error(key, f"{key} is {value!r:.60}; expected at least {_MINIMUM.get(key, 'a finite number')}")
        _refuse_secret(table, key, value)
    variable = table.values.get("key_env", "KEY")
    if isinstance(variable, str) and not KEY_VARIABLE.fullmatch(variable):
        raise table.error("key_env", "key_env is not the name of a variable", "name the variable that holds the key")


def _refuse_secret(table: _Table, key: str, value: object) -> None:
    """Refuse an API key in a settings file, where it would be shown and backed up."""
    names = [key, *(value if isinstance(value, Mapping) and key == "headers" else ())]
    has_password = isinstance(value, str) and key == "base_url" and "@" in value.partition("://")[2].partition("/")[0]
    if has_password or any(_SECRET.fullmatch(name) for name in names):
        raise table.error(key, f"{key}: keys do not belong in a file", 'name a variable: key_env = "MY_KEY"')


def _parse_card(table: _Table) -> Card:
    card: Card = _parse(Card, table, "card") or Card()
    for tag, strength in card.strengths.items():
        if not 0 <= strength <= 1:
            raise table.error("card", f"card: the strength of {tag!r:.40} must be between 0 and 1")
    return card


def _parse_price(table: _Table) -> Price | None:
    price: Price | None = _parse(Price, table, "price")
    if price is not None and min(price.amounts()) < 0:
        raise table.error("price", "price: an amount must be 0 or more")
    return price


def _parse_tags(table: _Table) -> tuple[str, ...]:
    """The tags, each once, in the order written."""
    tags = table.values.get("tags", [])
    for tag in tags:
        if not isinstance(tag, str) or not WORKER_NAME.fullmatch(tag):
            hint = "letters, digits, dots and dashes, at most 40"
            raise table.error("tags", f"tags: {tag!r:.60} is not a valid tag", hint)
    return tuple(dict.fromkeys(tags))


def _parse(kind: type[Any], table: _Table, key: str) -> Any:  # noqa: ANN401 - an instance of `kind`
    data = table.values.get(key)
    if data is None:
        return None
    known = [field.name for field in fields(kind)]
    for name in data:
        if name not in known:
            raise table.error(key, f"{key} has no {name!r:.40}", f"known: {', '.join(known)}")
    try:
        return load(kind, data, key)
    except DecodeError as error:
        raise table.error(key, str(error)) from None


# Changes to the tool's own file


def validate_worker(where: AppPaths, name: str, table: Mapping[str, Any]) -> Worker:
    """The worker that `update_worker` would make; nothing is written. Raises `ConfigError` that names no file."""
    merged = _merge(own_section(where, "workers").get(name), table)
    source = Source(path=where.own_file, values={"workers": {name: merged}})
    try:
        return workers_of([source])[0].worker
    except ConfigError as error:
        raise ConfigError(error.message.removeprefix(f"{where.own_file}: "), hint=error.hint) from None


def update_worker(where: AppPaths, name: str, table: Mapping[str, Any] | None) -> None:
    """Merge `table` into the worker's table in the tool's own file; None removes that. Raises `ConfigError`."""
    with edit_settings_file(where.own_file) as values:
        workers = values.setdefault("workers", {})
        if table is None:
            workers.pop(name, None)
        else:
            workers[name] = _merge(workers.get(name), table)


def _merge(old: object, new: Mapping[str, Any]) -> dict[str, Any]:
    """New values win, and None removes a value. Where the kind changes, nothing of the old table is kept."""
    same_kind = isinstance(old, Mapping) and new.get("kind", old.get("kind")) == old.get("kind")
    merged = {**old, **new} if same_kind and isinstance(old, Mapping) else new
    return {key: value for key, value in merged.items() if value is not None}


def set_value(where: AppPaths, name: str, value: Any) -> None:  # noqa: ANN401 - any TOML value
    """Write one setting into the tool's own file; None removes it. Raises `ConfigError`."""
    section, key = name.split(".")
    if isinstance(value, tuple):  # groups of selectors are written as one list
        value = [item for each in value for item in (each if isinstance(each, tuple) else (each,))]
    with edit_settings_file(where.own_file) as values:
        if value is None:
            values.get(section, {}).pop(key, None)
        else:
            values.setdefault(section, {})[key] = str(value) if isinstance(value, Decimal) else value
