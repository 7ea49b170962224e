"""Workers in the files: `[workers.NAME]` tables, and the tool's own changes to them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from conductor_cli.config.files import Places, Source, read, write
from conductor_cli.core.errors import ConfigError
from conductor_cli.core.pool import Card, Price, Worker
from conductor_cli.core.wire import WireError, load

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
"""What a worker may be called: it stands in plans, prompts and on command lines."""

_FIELDS: Final[dict[str, tuple[type, ...]]] = {
    "kind": (str,), "model": (str,), "about": (str,), "parallel": (int,), "enabled": (bool,), "price": (dict,), "card": (dict,),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A worker as a file lists it: enabled or not, and in which file."""

    worker: Worker
    enabled: bool
    source: str


def workers_of(sources: Sequence[Source]) -> tuple[Listed, ...]:
    """The workers of all files, later files over earlier ones by name, in the order of their first mention.

    Raises `ConfigError` with file, line and what was expected.
    """
    tables: dict[str, dict[str, Any]] = {}
    origin: dict[str, Source] = {}
    for source in sources:
        listed = source.values.get("workers", {})
        if not isinstance(listed, Mapping):
            raise ConfigError(f"{source.where('workers')}: workers must be tables [workers.NAME]")
        for name, table in listed.items():
            if not isinstance(table, Mapping):
                raise ConfigError(f"{source.where('workers', name)}: {name!r} must be a table [workers.{name}]")
            tables[name] = {**tables.get(name, {}), **table}
            origin[name] = source
    return tuple(_listed(name, table, origin[name]) for name, table in tables.items())


def _listed(name: str, table: Mapping[str, Any], source: Source) -> Listed:
    section = f"workers.{name}"
    if not NAME.fullmatch(name):
        raise ConfigError(f"{source.where(section)}: {name!r} is no worker name", hint="letters, digits, dots and dashes")
    if "kind" not in table:
        raise ConfigError(f"{source.where(section)}: worker {name!r} has no kind", hint='for example: kind = "openai"')
    for key, kinds in _FIELDS.items():
        value = table.get(key)
        if value is not None and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
            expected = {str: "text in quotes", int: "a whole number", bool: "true or false", dict: "a table"}[kinds[0]]
            raise ConfigError(f"{source.where(section, key)}: {key} is {value!r:.60}; expected {expected}")
    options = {key: value for key, value in table.items() if key not in _FIELDS}
    _refuse_keys(options, section, source)
    worker = Worker(
        name=name, kind=table["kind"], model=table.get("model", ""), about=table.get("about", ""), options=options,
        parallel=table.get("parallel", 1 if table["kind"] == "llama" else 4),
        card=_read(Card, table.get("card", {}), section, "card", source) or Card(),
        price=_read(Price, table.get("price"), section, "price", source) or _known_price(table["kind"]),
    )  # fmt: skip
    if worker.parallel < 1:
        raise ConfigError(f"{source.where(section, 'parallel')}: parallel must be at least 1")
    return Listed(worker=worker, enabled=table.get("enabled", True), source=str(source.path))


def _refuse_keys(options: Mapping[str, Any], section: str, source: Source) -> None:
    """A key in a settings file would be shown, traced and backed up: its variable's name belongs there, not it."""
    for key in options:
        if key.lower() in ("key", "api_key", "apikey", "token", "secret"):
            raise ConfigError(
                f"{source.where(section, key)}: keys do not belong in a file", hint='name a variable: key_env = "MY_KEY"'
            )


def _known_price(kind: str) -> Price | None:
    """A local file costs nothing, which is known."""
    return Price(input=Decimal(0), output=Decimal(0)) if kind == "llama" else None


def _read(kind: type[Any], data: Any, section: str, key: str, source: Source) -> Any:  # noqa: ANN401
    if data is None:
        return None
    try:
        return load(kind, data, key)
    except WireError as error:
        raise ConfigError(f"{source.where(section, key)}: {error}") from None


def change(where: Places, name: str, table: Mapping[str, Any] | None) -> None:
    """Merge `table` into the tool's own entry for worker `name`; with None, remove the entry. Raises `ConfigError`."""
    values = {key: dict(value) for key, value in read(where.own_file).values.items()}
    workers = values.setdefault("workers", {})
    if table is None:
        workers.pop(name, None)
    else:
        workers[name] = {**workers.get(name, {}), **table}
    if not workers:
        del values["workers"]
    write(where.own_file, values)


def set_value(where: Places, name: str, value: Any) -> None:  # noqa: ANN401 - any TOML value
    """Put one setting into the tool's own file; with None, take it out. Raises `ConfigError`."""
    section, key = name.split(".")
    values = {head: dict(content) for head, content in read(where.own_file).values.items()}
    if value is None:
        values.get(section, {}).pop(key, None)
    else:
        values.setdefault(section, {})[key] = str(value) if isinstance(value, Decimal) else value
    write(where.own_file, {head: content for head, content in values.items() if content})
