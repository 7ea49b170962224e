"""Named tables in the files, `[workers.NAME]` and `[pools.NAME]`: merging, checking and changing them.

What a table may hold is declared by a dataclass, whose annotations say what each key must be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from conductor_cli.config.files import AppPaths, Source, edit_settings_file, own_section
from conductor_cli.core.errors import ConfigError
from conductor_cli.core.serialization import DecodeError, load

T = TypeVar("T")

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
"""What a worker, a pool or a tag may be called: such names are used in plans, prompts and on command lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What the files say of one worker or pool, later files over earlier ones. Without sources, it is not in a file."""

    section: str
    name: str
    values: Mapping[str, Any]
    sources: tuple[Source, ...] = ()

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            message = f"{self.name!r} is not a valid name for {self.section}"
            raise self.error("", message, "letters, digits, dots and dashes, at most 40")

    def _source_of(self, key: str) -> Source | None:
        """The last file that sets `key`, else the last one that has the table."""
        having = [source for source in self.sources if key in source.values[self.section][self.name]]
        return (having or self.sources or (None,))[-1]

    def file_of(self, key: str) -> str:
        """The file of `key`, else of the table; empty where there is none."""
        source = self._source_of(key)
        return str(source.path) if source else ""

    def where(self, key: str) -> str:
        """File and line of `key`, else of the table; empty where there is no file."""
        source = self._source_of(key)
        return source.where(f"{self.section}.{self.name}", key) if source else ""

    def error(self, key: str, message: str, hint: str = "") -> ConfigError:
        """An error that names the file and line of `key`, or of the table."""
        where = self.where(key)
        return ConfigError(f"{where}: {message}" if where else message, hint=hint)

    def read(self, kind: type[T], known: Mapping[str, Any]) -> T:
        """The values in `known` as the dataclass `kind`. Raises `ConfigError` that says what was expected."""
        try:
            return load(kind, known)
        except DecodeError as error:
            # Its message begins with the place: `price.input: expected …`.
            raise self.error(re.split(r"\W", str(error), maxsplit=1)[0], str(error)) from None

    def refuse_unknown(self, key: str, known: Sequence[str], values: Mapping[str, Any]) -> None:
        """Raise `ConfigError` for a name that the inner table `key`, or with "" this one, cannot have."""
        for name in values:
            if name not in known:
                message = f"{key or self.section} has no key {name!r:.40}"
                raise self.error(key or name, message, f"known: {', '.join(known)}")


def tables_of(sources: Sequence[Source], section: str) -> list[Table]:
    """The tables of a section, merged key by key, in the order of their first mention. Raises `ConfigError`."""
    tables: dict[str, Table] = {}
    for source in sources:
        found = source.values.get(section, {})
        if not isinstance(found, Mapping):
            raise ConfigError(f"{source.where(section)}: {section} must be tables [{section}.NAME]")
        for name, values in found.items():
            if not isinstance(values, Mapping):
                message = f"{source.where(section, name)}: {name!r} must be a table [{section}.{name}]"
                raise ConfigError(message)
            before = tables.get(name)
            merged, both = ({**before.values, **values}, (*before.sources, source)) if before else (values, (source,))
            tables[name] = Table(section=section, name=name, values=merged, sources=both)
    return list(tables.values())


def changed_table(paths: AppPaths, section: str, name: str, changes: Mapping[str, Any]) -> Table:
    """The table that `update_table` would write, to be checked before. Raises `ConfigError`."""
    return Table(section=section, name=name, values=_merge(own_section(paths, section).get(name), changes))


def update_table(paths: AppPaths, section: str, name: str, changes: Mapping[str, Any] | None) -> None:
    """Merge changes into a table of the tool's own file; None removes the table. Raises `ConfigError`."""
    with edit_settings_file(paths.own_file) as values:
        tables = values.setdefault(section, {})
        if changes is None:
            tables.pop(name, None)
        else:
            tables[name] = _merge(tables.get(name), changes)


def _merge(old: object, new: Mapping[str, Any]) -> dict[str, Any]:
    """New values win, and None removes a value. Where the kind changes, nothing of the old table is kept."""
    same_kind = isinstance(old, Mapping) and new.get("kind", old.get("kind")) == old.get("kind")
    merged = {**old, **new} if same_kind and isinstance(old, Mapping) else new
    return {key: value for key, value in merged.items() if value is not None}
