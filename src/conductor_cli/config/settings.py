"""Settings: defaults, then the tool's own file, the user's file, the environment, and options.

One frozen result.

A value that cannot be used is an error that names the file, the line and what was expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from decimal import Decimal
from typing import Any, Final

from conductor_cli.config.cards import Cards, cards_file, load_cards
from conductor_cli.config.files import (
    AppPaths,
    Source,
    app_paths,
    check_database_url,
    chosen_file,
    read_toml,
)
from conductor_cli.config.project import RULES, SWITCH, apply_project_file, narrow, project_files
from conductor_cli.config.schema import (
    DROPPED,
    PREFIX,
    RENAMED,
    SETTINGS,
    SETTINGS_BY_NAME,
    current_form,
    describe_renamed,
    find_setting,
    present_name,
    variable_of,
)
from conductor_cli.config.tables import (
    ConfiguredProvider,
    ConfiguredTools,
    ConfiguredWorker,
    NamedPool,
    pools_of,
    providers_of,
    tool_servers_of,
    workers_of,
)
from conductor_cli.core.errors import ConfigError, suggest
from conductor_cli.core.mappings import without_none
from conductor_cli.core.policy import Policy
from conductor_cli.core.pool import DayLimits, Limits, Timeouts, Worker
from conductor_cli.core.serialization import dump
from conductor_cli.system.known_secrets import KNOWN_SECRETS, secrets_of_environment

__all__ = [
    "AppPaths",
    "ConfiguredTools",
    "ConfiguredWorker",
    "Settings",
    "app_paths",
    "find_setting",
    "load_settings",
    "settings_json",
    "with_lower_limits",
]

_TABLES: Final = ("workers", "pools", "tools", "providers")  # the sections that hold named tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting by its name, and where each came from.

    The workers of the files with their cards; the pools.
    """

    values: Mapping[str, Any]
    origins: Mapping[str, str]
    workers: tuple[ConfiguredWorker, ...]
    paths: AppPaths
    pools: tuple[NamedPool, ...] = ()
    tool_servers: tuple[ConfiguredTools, ...] = ()
    providers: tuple[ConfiguredProvider, ...] = ()
    cards: Cards = Cards()
    projects: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The project files that apply here, with the settings that each narrowed."""
    environ: Mapping[str, str] = field(repr=False, default_factory=dict)
    notices: tuple[str, ...] = ()
    """What to say of settings that were dropped or renamed and are still given somewhere."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """The part of `values` that the command line set, alone: its rules are held to more than those
    of a file.
    """
    rehearsal: bool = False
    """The demo models that ship with this package plan and answer, and nothing is recorded as
    spent.
    """
    plain_model: str = ""
    """The worker, or provider/model, that answers each question in one call, without a plan."""

    _limits: list[Limits] = field(init=False, repr=False, compare=False, default_factory=list)

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - any TOML value
        return self.values[name]

    @property
    def worker_names(self) -> list[str]:
        """The names of all workers of the files, in their order."""
        return [item.worker.name for item in self.workers]

    def worker(self, name: str) -> Worker | None:
        """Return the worker of the files that has this name; None where there is none."""
        for item in self.workers:
            if item.worker.name == name:
                return item.worker
        return None

    @property
    def enabled_workers(self) -> tuple[Worker, ...]:
        """The workers of the files that are not switched off, in their order."""
        return tuple(item.worker for item in self.workers if item.enabled)

    @property
    def limits(self) -> Limits:
        if not self._limits:  # each request to a server asks for them several times
            values = {}
            for item in fields(Limits):
                values[item.name] = self[present_name(f"limits.{item.name}")]
            self._limits.append(Limits(**values))
        return self._limits[0]

    @property
    def day_limits(self) -> DayLimits:
        """What all runs of a day together may use."""
        return DayLimits(
            cost=self["limits.cost_day"],
            tokens=self["limits.tokens_day"],
            calls=self["limits.calls_day"],
        )

    @property
    def policy(self) -> Policy:
        return Policy(**self._section("policy", fields(Policy)))

    @property
    def timeouts(self) -> Timeouts:
        return Timeouts(**self._section("timeouts", fields(Timeouts)))

    def _section(self, name: str, items: Iterable[Field[Any]]) -> dict[str, Any]:
        """Return the settings of a section that are fields of a class, by their names there."""
        return {item.name: self[f"{name}.{item.name}"] for item in items}


def load_settings(
    environ: Mapping[str, str], flags: Mapping[str, Any] | None = None, file: str | None = None
) -> Settings:
    """The settings for one command. `flags` are values by setting name, None where not given.

    Raises `ConfigError`.
    """
    KNOWN_SECRETS.add(*secrets_of_environment(environ))
    paths = app_paths(environ)
    chosen = chosen_file(environ, file)
    user_file = read_toml(chosen or paths.user_file, required=chosen is not None)
    if file and "state" in user_file.values and not environ.get(f"{PREFIX}STATE"):
        paths = replace(
            paths, database=check_database_url(user_file.values["state"], user_file.where("state"))
        )
    # Later sources override earlier ones: the tool's file, the user's file, the environment, the
    # command line.
    sources = [read_toml(paths.own_file), user_file]
    values: dict[str, Any] = {item.name: item.default for item in SETTINGS}
    origins = dict.fromkeys(values, "default")
    notices: list[str] = []
    for source in sources:
        notices += _apply_file(values, origins, source)
    # The tool's own file has the present names as soon as the tool writes it again.
    notices += _say_renamed(user_file)
    notices += _check_variables(environ)
    notices += _apply_variables(values, origins, environ)
    given = _apply_flags(values, origins, flags or {})
    notices += [describe_renamed(name, RENAMED[name]) for name in flags or {} if name in RENAMED]
    if values["conductor.mode"] == "ultra" and origins["limits.review"] == "default":
        values["limits.review"] = 1
        origins["limits.review"] = "mode ultra"
    # Last, because a project file can only narrow what all other sources say.
    narrowed = []
    if values[SWITCH]:
        for source in project_files():
            names = apply_project_file(values, origins, source)
            narrowed.append((str(source.path), names))
            notices += _say_renamed(source)
    cards = load_cards(cards_file(paths))
    workers = []
    for item in workers_of(sources):
        workers.append(replace(item, worker=cards.apply_to(item.worker)))
    return Settings(
        values=values,
        origins=origins,
        workers=tuple(workers),
        paths=paths,
        pools=pools_of(sources),
        tool_servers=tool_servers_of(sources),
        cards=cards,
        providers=providers_of(sources),
        projects=tuple(narrowed),
        environ=environ,
        given=given,
        notices=tuple(notices),
    )


def _apply_variables(
    values: dict[str, Any], origins: dict[str, str], environ: Mapping[str, str]
) -> list[str]:
    """Take the settings of the environment; return notices of earlier names.

    Raises `ConfigError`.
    """
    notices = []
    for name in (*RENAMED, *SETTINGS_BY_NAME):  # the present names last, so that they win
        variable = variable_of(name)
        text = environ.get(variable, "")
        if not text:
            continue
        item = find_setting(name)
        try:
            values[item.name] = item.parse(text)
        except ConfigError as error:
            message = f"{variable}: {error.message}"
            raise ConfigError(message, hint="change or unset the variable") from None
        origins[item.name] = variable
        if name != item.name and environ.get(item.variable):
            notices.append(_say_ignored(variable, item.variable))
        elif name != item.name:
            notices.append(describe_renamed(variable, item.variable))
    return notices


def _apply_flags(
    values: dict[str, Any], origins: dict[str, str], flags: Mapping[str, Any]
) -> dict[str, Any]:
    """Take the settings of a command line; return those that it gives. Raises `ConfigError`."""
    given = {}
    for name, value in without_none(flags).items():
        given[present_name(name)] = find_setting(name).check(value)
    for name, value in given.items():
        item = find_setting(name)
        if name.startswith("policy.") and item.type in RULES and value is not False:
            # A rule on the command line adds to those of the files; it never replaces one.
            narrow(values, origins, item, value, "command line")
        else:
            values[name] = value
            origins[name] = "command line"
    return given


def with_lower_limits(
    settings: Settings, limits: Mapping[str, Any], origin: str
) -> tuple[Settings, tuple[tuple[str, Any], ...]]:
    """Return the settings with limits of somebody else, by setting name, where those are lower.

    And those that are not.

    A limit of the command line stays as it is: the user has just chosen it.
    """
    values = dict(settings.values)
    origins = dict(settings.origins)
    refused = []
    for name, value in limits.items():
        if value is None or name in settings.given:
            continue
        narrow(values, origins, find_setting(name), value, origin)
        if values[name] != value:
            refused.append((name, value))
    return replace(settings, values=values, origins=origins), tuple(refused)


def with_files_only(settings: Settings, selectors: Sequence[str], origin: str) -> Settings:
    """Return the settings with one more rule on who may read attached files. Raises `ConfigError`.

    The rules that are there already apply, too.
    """
    item = find_setting("policy.files_only")
    values = dict(settings.values)
    origins = dict(settings.origins)
    narrow(values, origins, item, item.check(list(selectors)), origin)
    return replace(settings, values=values, origins=origins)


def _check_variables(environ: Mapping[str, str]) -> list[str]:
    """Raise `ConfigError` for a variable that begins like a setting and is none.

    Return notices of dropped settings.

    Ignored, a mistyped `CONDUCTOR_LLM_POLICY_LOCALONLY` would protect nothing and say nothing.
    """
    variables = {variable_of(name) for name in (*SETTINGS_BY_NAME, *RENAMED)}
    sections = tuple({f"{PREFIX}{item.name.partition('.')[0].upper()}_" for item in SETTINGS})
    dropped = {f"{PREFIX}{name.upper().replace('.', '_')}": name for name in DROPPED}
    for name, text in environ.items():
        is_variable = name in variables or name in dropped
        if text and name.startswith(sections) and not is_variable:
            raise ConfigError(
                f"the variable {name:.80} is no setting",
                hint=suggest(name, sorted(variables), "unset it"),
            )
    return [_say_dropped(name, dropped[name]) for name in dropped if environ.get(name)]


def _say_dropped(where: str, name: str) -> str:
    return f"{where}: the setting {name} was dropped and is ignored: {DROPPED[name]}"


def _say_ignored(used: str, present: str) -> str:
    return f"{used} is ignored, because {present}, its present name, is set too"


def _say_renamed(source: Source) -> list[str]:
    """Return a line for each setting of a file that has another name now, and counts."""
    notices = []
    for old_name, new_name in RENAMED.items():
        if is_written(source, old_name) and not is_written(source, new_name):
            notices.append(
                f"{source.where(*old_name.split('.'))}: {describe_renamed(old_name, new_name)}"
            )
    return notices


def _apply_file(values: dict[str, Any], origins: dict[str, str], source: Source) -> list[str]:
    """Take the settings of a file; return notices of ignored ones. Raises `ConfigError`."""
    sections = {name.split(".")[0] for name in (*SETTINGS_BY_NAME, *DROPPED, *RENAMED)}
    dropped = []
    for section, content in source.values.items():
        if section in _TABLES or (
            section == "state" and check_database_url(content, source.where(section))
        ):
            continue
        if section not in sections or not isinstance(content, Mapping):
            heads = [f"[{name}]" for name in sorted(sections)]
            heads += [f"[{table}.NAME]" for table in _TABLES]
            hint = f"known: {', '.join(heads)}"
            raise ConfigError(f"{source.where(section)}: unknown section {section!r}", hint=hint)
        for key, written in content.items():
            (name, value) = current_form(f"{section}.{key}", written)
            where = source.where(section, key)
            if name in DROPPED:
                dropped.append(_say_dropped(where, name))
                continue
            if name != f"{section}.{key}" and is_written(source, name):
                dropped.append(f"{where}: {_say_ignored(f'{section}.{key}', name)}")
                continue
            if name not in SETTINGS_BY_NAME:
                prefix = f"{section}."
                keys = []
                for setting in SETTINGS_BY_NAME:
                    if setting.startswith(prefix):
                        keys.append(setting.removeprefix(prefix))
                raise ConfigError(
                    f"{where}: [{section}] has no key {key!r}", hint=suggest(key, keys)
                )
            try:
                values[name] = SETTINGS_BY_NAME[name].check(value)
            except ConfigError as error:
                raise ConfigError(f"{where}: {error.message}", hint="fix the line") from None
            origins[name] = str(source.path)
    return dropped


def is_written(source: Source, name: str) -> bool:
    """Return whether a file has the setting of this name."""
    section, _, key = name.partition(".")
    content = source.values.get(section)
    return isinstance(content, Mapping) and key in content


def settings_json(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return value and origin of each setting, under its name and under those it had before."""
    names = {name: name for name in settings.values} | RENAMED
    values = {}
    for shown, name in names.items():
        values[shown] = {"value": dump(settings[name]), "from": settings.origins[name]}
    return values


def format_value(value: Any) -> str:  # noqa: ANN401 - any TOML value
    """Return a setting's value as `config show` prints it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        if value:
            return "true"
        return "false"
    if isinstance(value, tuple):
        groups = []
        if any(isinstance(item, tuple) for item in value):
            groups = [", ".join(group) or "nobody" for group in value]
        return " and ".join(groups) or ", ".join(value) or "no rule"
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value)
