"""Named tables in the files.

`[workers.NAME]`, `[pools.NAME]`, `[providers.NAME]` and `[tools.NAME]`.

What a table may hold is declared by a dataclass, whose annotations say what each key must be.
Changes are written to the tool's own file, and checked before.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeVar

from conductor_cli.config.files import AppPaths, Source, edit_settings_file, own_section
from conductor_cli.core.chat import MediaKind
from conductor_cli.core.errors import ConfigError, UsageError, suggest
from conductor_cli.core.mappings import by_name, names_of, without_keys, without_none
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Card, Worker
from conductor_cli.core.redact import secrets_in
from conductor_cli.core.serialization import DecodeError, load
from conductor_cli.core.usage import FREE, Price
from conductor_cli.models.addresses import holds_password, http_url
from conductor_cli.models.command.programs import PROGRAMS
from conductor_cli.models.recipients import costs_nothing
from conductor_cli.models.worker_options import VARIABLE_NAME, OptionError, check_options
from conductor_cli.tools.servers import ToolTable

T = TypeVar("T")

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
"""What a worker, a pool or a tag may be called: such names are used in plans, prompts and on
command lines.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What the files say of one worker or pool, later files over earlier ones.

    Without sources, it is not in a file.
    """

    section: str
    name: str
    values: Mapping[str, Any]
    sources: tuple[Source, ...] = ()

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            message = f"{self.name!r} is not a valid name for {self.section}"
            raise self.error("", message, "letters, digits, dots and dashes, at most 40")

    def _source_of(self, key: str) -> Source | None:
        """Return the last file that sets `key`, else the last one that has the table."""
        having = []
        for source in self.sources:
            if key in source.values[self.section][self.name]:
                having.append(source)
        return (having or self.sources or (None,))[-1]

    def file_of(self, key: str) -> str:
        """Return the file of `key`, else of the table; empty where there is none."""
        source = self._source_of(key)
        if not source:
            return ""
        return str(source.path)

    def where(self, key: str) -> str:
        """File and line of `key`, else of the table; empty where there is no file."""
        source = self._source_of(key)
        if not source:
            return ""
        return source.where(f"{self.section}.{self.name}", key)

    def error(self, key: str, message: str, hint: str = "") -> ConfigError:
        """Return an error that names the file and line of `key`, or of the table."""
        where = self.where(key)
        if where:
            message = f"{where}: {message}"
        return ConfigError(message, hint=hint)

    def read(self, kind: type[T], fields: Mapping[str, Any]) -> T:
        """Return the values in `fields` as the dataclass `kind`.

        Raises `ConfigError` that says what was expected.
        """
        try:
            return load(kind, fields)
        except DecodeError as error:
            # Its message begins with the place: `price.input: expected …`.
            message = str(error).replace("expected an object", "expected a table { … }")
            raise self.error(re.split(r"\W", message, maxsplit=1)[0], message) from None

    def refuse_unknown(self, key: str, names: Sequence[str], values: Mapping[str, Any]) -> None:
        """Raise `ConfigError` for a name that the inner table `key` cannot have.

        With "" the table itself is meant.
        """
        for name in values:
            if name not in names:
                message = f"{key or self.section} has no key {name!r:.40}"
                raise self.error(key or name, message, f"known: {', '.join(names)}")


def merged_tables(sources: Sequence[Source], section: str) -> list[Table]:
    """Return the tables of a section, merged key by key, in the order of their first mention.

    Raises `ConfigError`.
    """
    tables: dict[str, Table] = {}
    for source in sources:
        content = source.values.get(section, {})
        if not isinstance(content, Mapping):
            raise ConfigError(f"{source.where(section)}: {section} must be tables [{section}.NAME]")
        for name, values in content.items():
            if not isinstance(values, Mapping):
                message = (
                    f"{source.where(section, name)}: {name!r} must be a table [{section}.{name}]"
                )
                raise ConfigError(message)
            table = Table(section=section, name=name, values=values, sources=(source,))
            if name in tables:
                before = tables[name]
                table = replace(
                    table,
                    values={**before.values, **values},
                    sources=(*before.sources, source),
                )
            tables[name] = table
    return list(tables.values())


def changed_table(paths: AppPaths, section: str, name: str, changes: Mapping[str, Any]) -> Table:
    """The table that `update_table` would write, to be checked before. Raises `ConfigError`."""
    return Table(
        section=section, name=name, values=_merge(own_section(paths, section).get(name), changes)
    )


def update_table(
    paths: AppPaths, section: str, name: str, changes: Mapping[str, Any] | None
) -> None:
    """Merge changes into a table of the tool's own file; None removes the table.

    Raises `ConfigError`.
    """
    with edit_settings_file(paths.own_file) as values:
        tables = values.setdefault(section, {})
        if changes is None:
            tables.pop(name, None)
        else:
            tables[name] = _merge(tables.get(name), changes)


def _merge(table: object, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with changes, of which None removes a value.

    Where the kind changes, nothing of the table is kept.
    """
    merged = changes
    if isinstance(table, Mapping):
        kind = table.get("kind")
        if changes.get("kind", kind) == kind:
            merged = {**table, **changes}
    return without_none(merged)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredProvider:
    """A provider as the files have it.

    All its workers together make at most `parallel` calls at the same time.

    `name` is that of the provider, of its host, of the kind of its workers, or `local` for this
    machine.
    """

    name: str
    parallel: int


def providers_of(sources: Sequence[Source]) -> tuple[ConfiguredProvider, ...]:
    """Return the providers of all files, later files over earlier ones by name.

    Raises `ConfigError` with file and line.
    """
    providers = []
    for table in merged_tables(sources, "providers"):
        table.refuse_unknown("", ("parallel",), table.values)
        if "parallel" not in table.values:
            raise table.error(
                "", f"provider {table.name!r} has no parallel", "for example: parallel = 4"
            )
        provider = table.read(ConfiguredProvider, {**table.values, "name": table.name})
        if provider.parallel < 1:
            raise table.error(
                "parallel",
                f"parallel is {provider.parallel}; expected a whole number of at least 1",
            )
        providers.append(provider)
    return tuple(providers)


_CONTEXT: Final[dict[str, dict[str, Any]]] = {"llama": {"context": 8192}}
"""Default context, in tokens, of kinds whose own default is smaller than what prompts are shortened
to.
"""

_LEAST: Final = {
    "parallel": 1,
    "max_tokens": 1,
    "context": 256,
    "temperature": 0,
    "threads": 1,
    "thinking_budget": 0,
}
_SECRET: Final = re.compile(
    r"(?i)key|token|password|.*(api[-_]?key|authorization|cookie|secret|auth[-_]?token)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTable:
    """What a worker's table may hold besides the options of its kind.

    Without `parallel`, the kind decides.
    """

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


WORKER_FIELDS: Final = tuple(names_of(fields(WorkerTable)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredWorker:
    """A worker of the files, enabled or not. `source` is the last file that configures it.

    `sets_parallel`: its `parallel` is what the files say, not the default of its kind.
    """

    worker: Worker
    enabled: bool
    source: str
    sets_parallel: bool = False


def workers_of(sources: Sequence[Source]) -> tuple[ConfiguredWorker, ...]:
    """Return the workers of all files, in the order of their first mention.

    A later file replaces a worker of the same name.

    Raises `ConfigError` with file, line and what was expected.
    """
    return tuple(_parse_worker(table) for table in merged_tables(sources, "workers"))


def validate_worker(paths: AppPaths, name: str, changes: Mapping[str, Any]) -> Worker:
    """Return the worker that `update_table` would make; nothing is written.

    Raises `ConfigError` that names no file.
    """
    return _parse_worker(changed_table(paths, "workers", name, changes)).worker


def _parse_worker(table: Table) -> ConfiguredWorker:
    options = without_keys(table.values, WORKER_FIELDS)
    values = table.read(WorkerTable, table.values)
    _check_values(table, values)
    parallel = values.parallel
    if not parallel:
        # One step at once where several would share a model file or a working directory.
        shares = values.kind == "llama" or options.get("cwd")
        parallel = 1 if shares else 4
    accepts = values.accepts
    if accepts is not None:
        accepts = tuple(dict.fromkeys(accepts))
    worker = Worker(
        name=table.name,
        kind=values.kind,
        model=values.model,
        about=values.about,
        options=_CONTEXT.get(values.kind, {}) | options,
        card=values.card,
        price=values.price,
        parallel=parallel,
        tags=tuple(dict.fromkeys(values.tags)),
        accepts=accepts,
        tools=tuple(dict.fromkeys(values.tools)),
    )
    try:
        check_options(worker)
    except OptionError as error:
        raise table.error(error.option, error.message, error.hint) from None
    if worker.price is None and costs_nothing(worker):
        worker = replace(worker, price=FREE)
    return ConfiguredWorker(
        worker=worker,
        enabled=values.enabled,
        source=table.file_of(""),
        sets_parallel=bool(values.parallel),
    )


def _check_values(table: Table, values: WorkerTable) -> None:
    """Check what the types do not say, and that no API key is in the file."""
    if not values.kind:
        raise table.error("", f"worker {table.name!r} has no kind", 'for example: kind = "openai"')
    # Plans use this name for the planner itself, so no other worker may have it.
    if (table.name == SELF) != (values.kind == SELF):
        message = (
            f"worker {table.name!r} of kind {values.kind!r}: {SELF!r} means the planner itself"
        )
        raise table.error("kind", message, "rename it")
    for key, value in table.values.items():
        least = _LEAST.get(key, -math.inf)
        if isinstance(value, float | int) and not least <= value < math.inf:
            raise table.error(
                key,
                f"{key} is {value!r:.60}; expected at least {_LEAST.get(key, 'a finite number')}",
            )
        # An API key in a settings file would be shown and backed up.
        names = [key]
        if isinstance(value, Mapping) and key == "headers":
            names += value
        has_password = isinstance(value, str) and key == "base_url" and holds_password(value)
        if has_password or any(_SECRET.fullmatch(name) for name in names):
            raise table.error(
                key, f"{key}: keys do not belong in a file", 'name a variable: key_env = "MY_KEY"'
            )
    variable = table.values.get("key_env", "KEY")
    if isinstance(variable, str) and not VARIABLE_NAME.fullmatch(variable):
        raise table.error(
            "key_env",
            "key_env is not the name of a variable",
            "name the variable that holds the key",
        )
    for key, kind in (("price", Price), ("card", Card)):
        table.refuse_unknown(key, names_of(fields(kind)), table.values.get(key, {}))
    if any(not 0 <= strength <= 1 for strength in values.card.strengths.values()):
        raise table.error("card", "card: a strength must be between 0 and 1")
    if values.price is not None and min(values.price.amounts()) < 0:
        raise table.error("price", "price: an amount must be 0 or more")
    if values.kind == "llama" and values.accepts:
        raise table.error(
            "accepts",
            "accepts: a model file reads text only",
            "serve it by llama-server, which can",
        )
    if values.kind in PROGRAMS:
        for key, given in (("accepts", values.accepts), ("tools", values.tools)):
            if given:
                raise table.error(
                    key, f"{key}: a program reads text only, and has tools of its own", "remove it"
                )
    for tag in values.tags:
        if not NAME.fullmatch(tag):
            hint = "letters, digits, dots and dashes, at most 40"
            raise table.error("tags", f"tags: {tag!r:.60} is not a valid tag", hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPool:
    """A pool as the files have it.

    `source` is the file that lists its workers, `where` that and the line.

    `tools` are servers whose tools each of its workers gets while the pool is in use.
    """

    name: str
    workers: tuple[str, ...]
    about: str = ""
    tools: tuple[str, ...] = ()
    source: str = ""
    where: str = ""


def pools_of(sources: Sequence[Source]) -> tuple[NamedPool, ...]:
    """Return the pools of all files, later files over earlier ones by name.

    Raises `ConfigError` with file and line.
    """
    pools = []
    for table in merged_tables(sources, "pools"):
        table.refuse_unknown("", ("workers", "about", "tools"), table.values)
        pool = table.read(NamedPool, {"workers": (), **table.values, "name": table.name})
        if not pool.workers or len(set(pool.workers)) < len(pool.workers):
            message = f"pool {table.name!r} needs the names of its workers, each once"
            raise table.error("workers", message, 'for example: workers = ["a", "b"]')
        pools.append(replace(pool, source=table.file_of("workers"), where=table.where("workers")))
    return tuple(pools)


def find_pool(pools: Iterable[NamedPool], name: str) -> NamedPool:
    """Return the pool of this name. Raises `UsageError`."""
    pools_by_name = by_name(pools)
    if name in pools_by_name:
        return pools_by_name[name]
    hint = "to make one: conductor config set pools.NAME A,B"
    if pools_by_name:
        hint = suggest(name, pools_by_name)
    raise UsageError(f"no pool is named {name!r:.60}", hint=hint)


def pool_members(
    pool: NamedPool, workers: Sequence[ConfiguredWorker]
) -> tuple[ConfiguredWorker, ...]:
    """The workers of a pool, in its order. Raises `ConfigError` for a name that no worker has."""
    workers_by_name = {item.worker.name: item for item in workers}
    for name in pool.workers:
        if name not in workers_by_name:
            message = f"{pool.where}: pool {pool.name!r} names {name!r:.60}, which is not a worker"
            raise ConfigError(message, hint=f"known: {', '.join(workers_by_name) or 'none'}")
    return tuple(workers_by_name[name] for name in pool.workers)


VARIABLE: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")  # a variable in the value of a header


def plain_secrets(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers whose value is a secret, and not a variable that holds one."""
    secret_headers = {}
    for name, text in headers.items():
        if not VARIABLE.search(text) and secrets_in({name: text}):
            secret_headers[name] = text
    return secret_headers


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredTools:
    """A server of tools in the files. `source` is the last file that configures it."""

    name: str
    table: ToolTable
    source: str


def tool_servers_of(sources: Sequence[Source]) -> tuple[ConfiguredTools, ...]:
    """Return the servers of all files, later files over earlier ones by name.

    Raises `ConfigError` with file and line.
    """
    return tuple(_parse_server(table) for table in merged_tables(sources, "tools"))


def update_tool_server(paths: AppPaths, name: str, changes: Mapping[str, Any]) -> None:
    """Put a server into the tool's own file. Raises `ConfigError` before anything is written."""
    _parse_server(changed_table(paths, "tools", name, changes))
    update_table(paths, "tools", name, changes)


def _parse_server(table: Table) -> ConfiguredTools:
    table.refuse_unknown("", tuple(ToolTable.__dataclass_fields__), table.values)
    values = table.read(ToolTable, table.values)
    if bool(values.command) == bool(values.url):
        hint = (
            'for example: command = ["uvx", "mcp-server-git"], or url = "https://example.com/mcp"'
        )
        raise table.error(
            "", f"the tools {table.name!r} need a command or a url, and not both", hint
        )
    if values.url:
        parts = http_url(values.url)
        if parts is None:
            message = f"url is {values.url!r:.80}; expected an address"
            raise table.error("url", message, 'url = "https://example.com/mcp"')
        if parts.username or parts.password:
            raise table.error(
                "url", "url: a password does not belong in a file", "use headers with a variable"
            )
    if values.client_metadata and not _is_document_address(values.client_metadata):
        raise table.error(
            "client_metadata",
            f"client_metadata is {values.client_metadata!r:.80}; expected an https address with a "
            "path",
            'client_metadata = "https://example.com/conductor.json"',
        )
    if not 0 < values.seconds < math.inf:
        raise table.error("seconds", f"seconds is {values.seconds:g}; expected a number above 0")
    for name in values.env:
        if not VARIABLE_NAME.fullmatch(name):
            hint = (
                "env names the variables that the program is given; their values stay where "
                "they are"
            )
            raise table.error("env", f"env: {name!r:.60} is not the name of a variable", hint)
    return ConfiguredTools(name=table.name, table=values, source=table.file_of(""))


def _is_document_address(text: str) -> bool:
    """Return whether an address can be the name of a client, as its metadata document is named."""
    parts = http_url(text)
    return parts is not None and parts.scheme == "https" and parts.path not in ("", "/")
