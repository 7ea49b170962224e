"""Workers in the files: `[workers.NAME]` tables, and the tool's own changes to them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from typing import Any, Final

from conductor_cli.config.files import AppPaths, Source, edit_settings_file, read_toml
from conductor_cli.core.errors import ConfigError
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Card, Worker
from conductor_cli.core.serialization import DecodeError, load
from conductor_cli.core.usage import FREE, Price
from conductor_cli.models.presets import is_free

WORKER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
"""What a worker may be called: it stands in plans, prompts and on command lines."""

KEY_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What a variable may be called. Most keys have a dash, so a key given in the place of its variable is noticed."""

_CONTEXT: Final[dict[str, dict[str, Any]]] = {"llama": {"context": 8192}}
"""The context, in tokens, of workers that would be opened with a smaller one than prompts are cut to."""

WORKER_FIELDS: Final[dict[str, tuple[type, ...]]] = {
    "kind": (str,), "model": (str,), "about": (str,), "parallel": (int,), "enabled": (bool,),
    "price": (dict,), "card": (dict,), "tags": (list,),
}  # fmt: skip
"""What a table of a worker may hold beside the options of its kind, and their types."""

_CALLED: Final = {str: "text in quotes", int: "a whole number", bool: "true or false", dict: "a table", list: "a list"}
_LEAST: Final = {"parallel": 1, "max_tokens": 1, "context": 256, "temperature": 0, "threads": 1, "thinking_budget": 0}
_SECRET: Final = re.compile(r"(?i)key|token|password|.*(api[-_]?key|authorization|cookie|secret|auth[-_]?token)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredWorker:
    """A worker as a file lists it: enabled or not, and in which file."""

    worker: Worker
    enabled: bool
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """What the files say of one worker, later files over earlier ones."""

    name: str
    values: Mapping[str, Any]
    sources: tuple[Source, ...]

    def wrong(self, key: str, what: str, hint: str = "") -> ConfigError:
        """An error that names the file and the line of `key`, or of the table."""
        section = f"workers.{self.name}"
        saying = [source for source in self.sources if key in source.values["workers"][self.name]]
        where = saying[-1].where(section, key) if saying else self.sources[-1].where(section)
        return ConfigError(f"{where}: {what}", hint=hint)


def workers_of(sources: Sequence[Source]) -> tuple[ConfiguredWorker, ...]:
    """The workers of all files, later files over earlier ones by name, in the order of their first mention.

    Raises `ConfigError` with file, line and what was expected.
    """
    tables: dict[str, _Table] = {}
    for source in sources:
        listed = source.values.get("workers", {})
        if not isinstance(listed, Mapping):
            raise ConfigError(f"{source.where('workers')}: workers must be tables [workers.NAME]")
        for name, table in listed.items():
            if not isinstance(table, Mapping):
                raise ConfigError(f"{source.where('workers', name)}: {name!r} must be a table [workers.{name}]")
            before = tables.get(name, _Table(name=name, values={}, sources=()))
            tables[name] = _Table(name=name, values={**before.values, **table}, sources=(*before.sources, source))
    return tuple(_listed(table) for table in tables.values())


def _listed(table: _Table) -> ConfiguredWorker:
    _check_name(table)
    _check_values(table)
    values = table.values
    kind = values["kind"]
    worker = Worker(
        name=table.name, kind=kind, model=values.get("model", ""), about=values.get("about", ""),
        options=_CONTEXT.get(kind, {}) | {key: value for key, value in values.items() if key not in WORKER_FIELDS},
        parallel=values.get("parallel", 1 if kind == "llama" else 4),
        card=_card(table), price=_price(table), tags=_tags(table),
    )  # fmt: skip
    _check_options(table, worker)
    if worker.price is None and is_free(worker):
        worker = replace(worker, price=FREE)
    return ConfiguredWorker(worker=worker, enabled=values.get("enabled", True), source=str(table.sources[-1].path))


def _check_name(table: _Table) -> None:
    name, kind = table.name, table.values.get("kind")
    if not WORKER_NAME.fullmatch(name):
        raise table.wrong("", f"{name!r} is no worker name", "letters, digits, dots and dashes, at most 40")
    if kind is None:
        raise table.wrong("", f"worker {name!r} has no kind", 'for example: kind = "openai"')
    if (name == SELF) != (kind == SELF):
        raise table.wrong("kind", f"worker {name!r} of kind {kind!r}: {SELF!r} means the conductor itself", "rename it")


def _check_values(table: _Table) -> None:
    """Types, bounds, and that no key stands where everybody reads it."""
    for key, value in table.values.items():
        kinds = WORKER_FIELDS.get(key)
        if kinds is not None and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
            raise table.wrong(key, f"{key} is {value!r:.60}; expected {_CALLED[kinds[0]]}")
        if isinstance(value, float | int) and not (math.isfinite(value) and value >= _LEAST.get(key, -math.inf)):
            raise table.wrong(key, f"{key} is {value!r:.60}; expected at least {_LEAST.get(key, 'a finite number')}")
        _refuse_secret(table, key, value)
    variable = table.values.get("key_env", "KEY")
    if isinstance(variable, str) and not KEY_VARIABLE.fullmatch(variable):
        raise table.wrong("key_env", "key_env is no name of a variable", "it names the variable that holds the key")


def _refuse_secret(table: _Table, key: str, value: object) -> None:
    """A key in a settings file would be shown, traced and backed up: its variable's name belongs there, not it."""
    names = [key, *(value if isinstance(value, Mapping) and key == "headers" else ())]
    address = isinstance(value, str) and key == "base_url" and "@" in value.partition("://")[2].partition("/")[0]
    if address or any(_SECRET.fullmatch(name) for name in names):
        raise table.wrong(key, f"{key}: keys do not belong in a file", 'name a variable: key_env = "MY_KEY"')


def _check_options(table: _Table, worker: Worker) -> None:
    """That the worker's kind exists and has these options, as the adapters will check again."""
    from conductor_cli.models.catalog import check_types  # only where a worker is named
    from conductor_cli.models.presets import PRESETS
    from conductor_cli.models.sampling_options import find_invalid_option

    for key in (*worker.options, "kind"):
        options = {key: worker.options[key]} if key in worker.options else {}
        try:
            check_types(replace(worker, options=options))
        except ConfigError as error:
            raise table.wrong(key, error.message, error.hint) from None
    if worker.kind in PRESETS and (fault := find_invalid_option(worker)):
        raise table.wrong(fault[0], f"worker {worker.name!r}: {fault[1]}", fault[2])


def _card(table: _Table) -> Card:
    card: Card = _read(Card, table, "card") or Card()
    wrong = next((tag for tag, strength in card.strengths.items() if not 0 <= strength <= 1), None)
    if wrong is not None:
        raise table.wrong("card", f"card: the strength of {wrong!r:.40} must lie between 0 and 1")
    return card


def _price(table: _Table) -> Price | None:
    price: Price | None = _read(Price, table, "price")
    if price is not None and min(price.amounts()) < 0:
        raise table.wrong("price", "price: an amount must be 0 or more")
    return price


def _tags(table: _Table) -> tuple[str, ...]:
    """What a worker is sorted by, each once, in the order written."""
    tags = table.values.get("tags", [])
    wrong = next((tag for tag in tags if not isinstance(tag, str) or not WORKER_NAME.fullmatch(tag)), None)
    if wrong is not None:
        raise table.wrong("tags", f"tags: {wrong!r:.60} is no tag", "letters, digits, dots and dashes, at most 40")
    return tuple(dict.fromkeys(tags))


def _read(kind: type[Any], table: _Table, key: str) -> Any:  # noqa: ANN401 - an instance of `kind`
    data = table.values.get(key)
    if data is None:
        return None
    known = [field.name for field in fields(kind)]
    unknown = [name for name in data if name not in known]
    if unknown:
        raise table.wrong(key, f"{key} has no {unknown[0]!r:.40}", f"known: {', '.join(known)}")
    try:
        return load(kind, data, key)
    except DecodeError as error:
        raise table.wrong(key, str(error)) from None


def own_worker_names(where: AppPaths) -> tuple[str, ...]:
    """The names in the tool's own file, whether what stands there can be used or not. Raises `ConfigError`."""
    return tuple(_own(where))


def _own(where: AppPaths) -> Mapping[str, Any]:
    listed = read_toml(where.own_file).values.get("workers", {})
    return listed if isinstance(listed, Mapping) else {}


def validate_worker(where: AppPaths, name: str, table: Mapping[str, Any]) -> Worker:
    """The worker that `change` would make. Raises `ConfigError`, without a file: nothing is written yet."""
    merged = _merged(_own(where).get(name), table)
    source = Source(path=where.own_file, values={"workers": {name: merged}})
    try:
        return workers_of([source])[0].worker
    except ConfigError as error:
        raise ConfigError(error.message.removeprefix(f"{where.own_file}: "), hint=error.hint) from None


def _merged(old: object, new: Mapping[str, Any]) -> dict[str, Any]:
    """What is said anew wins, and None takes out what was said; a worker of another kind begins anew."""
    same = isinstance(old, Mapping) and new.get("kind", old.get("kind")) == old.get("kind")
    merged = {**old, **new} if same and isinstance(old, Mapping) else new
    return {key: value for key, value in merged.items() if value is not None}


def update_worker(where: AppPaths, name: str, table: Mapping[str, Any] | None) -> None:
    """Merge `table` into the tool's own entry for worker `name`; with None, remove the entry. Raises `ConfigError`."""
    with edit_settings_file(where.own_file) as values:
        workers = values.setdefault("workers", {})
        if table is None:
            workers.pop(name, None)
        else:
            workers[name] = _merged(workers.get(name), table)


def set_value(where: AppPaths, name: str, value: Any) -> None:  # noqa: ANN401 - any TOML value
    """Put one setting into the tool's own file; with None, take it out. Raises `ConfigError`."""
    section, key = name.split(".")
    with edit_settings_file(where.own_file) as values:
        if value is None:
            values.get(section, {}).pop(key, None)
        else:
            values.setdefault(section, {})[key] = _written(value)


def own_value(where: AppPaths, name: str) -> Any:  # noqa: ANN401 - any TOML value
    """A setting as the tool's own file has it, None where it does not. Raises `ConfigError`."""
    section, key = name.split(".")
    values = read_toml(where.own_file).values.get(section, {})
    return values.get(key) if isinstance(values, Mapping) else None


def _written(value: Any) -> Any:  # noqa: ANN401 - any TOML value
    """A setting's value as TOML has it: money as text, selectors as one list."""
    if isinstance(value, tuple):
        return [name for item in value for name in (item if isinstance(item, tuple) else (item,))]
    return str(value) if isinstance(value, Decimal) else value
