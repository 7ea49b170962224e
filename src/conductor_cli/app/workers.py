"""Workers: listing them with keys and prices, adding, changing and removing them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conductor_cli.app.keys import key_state, open_key_store
from conductor_cli.app.worker_selection import discovered_workers, policy_objection
from conductor_cli.config import AppPaths, ConfiguredWorker, Settings
from conductor_cli.config.files import own_section
from conductor_cli.config.tables import update_table, validate_worker
from conductor_cli.core.chat import MediaKind
from conductor_cli.core.errors import ConductorError, ConfigError, KeyMissing, PolicyError, UsageError, suggest
from conductor_cli.core.formatting import format_money
from conductor_cli.core.pool import Worker
from conductor_cli.core.serialization import dump
from conductor_cli.core.usage import Price
from conductor_cli.models.catalog import api_key_of, open_model
from conductor_cli.models.discovery import ListedModel, list_models
from conductor_cli.models.known_secrets import KNOWN_SECRETS
from conductor_cli.models.presets import PRESETS, THIS_MACHINE, base_url_of, costs_nothing
from conductor_cli.models.prices import load_prices, with_abilities, with_prices

UNKNOWN_PRICE: Final = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """What is known of one worker. `objection` says why the policy forbids it; `key` never is the key itself."""

    configured: ConfiguredWorker
    key: str
    objection: str
    pools: tuple[str, ...]
    price: Price | None
    price_source: str
    accepts: tuple[MediaKind, ...]
    """The kinds of attachments that it can read."""

    @property
    def worker(self) -> Worker:
        return self.configured.worker

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            **dump(self.worker.public()), "price": dump(self.price), "price_from": self.price_source,
            "accepts": list(self.accepts),
            "pools": list(self.pools), "enabled": self.configured.enabled, "forbidden": self.objection or None,
            "source": self.configured.source, "key": self.key,
        }  # fmt: skip


def worker_rows(settings: Settings) -> list[WorkerRow]:
    """The workers of the settings, or those found on this machine if the settings have none.

    The price table and the list of stored keys are read once for all of them.
    """
    configured = settings.workers or discovered_workers(settings)
    store = open_key_store(settings)
    known = with_abilities(with_prices([item.worker for item in configured])[0])
    return [
        WorkerRow(
            configured=item,
            key=key_state(item.worker, settings.environ, store),
            objection=policy_objection(settings, item.worker),
            pools=tuple(pool.name for pool in settings.pools if item.worker.name in pool.workers),
            price=worker.price,
            price_source=_price_source(item.worker, worker.price),
            accepts=worker.accepts or (),
        )
        for item, worker in zip(configured, known, strict=True)
    ]


def _price_source(configured: Worker, price: Price | None) -> str:
    """Where a worker's price is from, in words; `configured` is the worker as the settings have it."""
    if configured.price is not None:
        return THIS_MACHINE if costs_nothing(configured) and not any(configured.price.amounts()) else "the settings"
    if price is not None:
        return f"{load_prices().about}{'; more for long prompts' if price.longer else ''}"
    return UNKNOWN_PRICE


def describe_price(price: Price) -> str:
    """`free`, or `$1.25 in and $10.00 out per million tokens`."""
    if not any(price.amounts()):
        return "free"
    return f"{format_money(price.input)} in and {format_money(price.output)} out per million tokens"


LIST_SECONDS: Final = 20.0


def list_offered_models(settings: Settings, place: str) -> list[ListedModel]:
    """Return the models that a provider, a worker of the settings or the server of a URL offers.

    Raises `UsageError` for another name, `PolicyError`, `KeyMissing`, or `ModelError` where nothing is listed.
    """
    named = [item.worker for item in settings.workers if place in (item.worker.name, base_url_of(item.worker))]
    if named:
        worker = named[0]
    elif place.startswith(("http://", "https://")):
        worker = Worker(name="server", kind="openai-compatible", options={"base_url": place.rstrip("/")})
    else:
        worker = Worker(name=place, kind=place)
    if worker.kind not in PRESETS or not base_url_of(worker):
        known = [name for name, preset in PRESETS.items() if preset.base_url]
        hint = suggest(place, known, f"a provider ({', '.join(known)}), a worker, or a URL")
        raise UsageError(f"{place!r:.60} is no place that lists models", hint=hint)
    if objection := policy_objection(settings, worker):
        raise PolicyError(objection)
    key = api_key_of(worker, settings.environ, open_key_store(settings))
    KNOWN_SECRETS.add(key)
    return asyncio.run(list_models(worker, key, seconds=LIST_SECONDS))


def store_worker(
    settings: Settings, name: str, given: Mapping[str, Any], unset: Sequence[str], *, words: Sequence[str] = ()
) -> list[str] | None:
    """Add a worker, or change one that was added: `given` settings are merged, those in `unset` removed.

    `words` are a program with its arguments or, for a known program, more arguments.

    The worker is checked as far as that is possible without asking anybody, before anything is written. Returns None
    for a new worker; of one that existed, the settings that changed. Raises `UsageError`, and `ConfigError` when the
    file cannot be written.
    """
    from conductor_cli.models.llama import read_model_info  # only for workers that are a file

    check_changeable(settings, "workers", name)
    before = own_section(settings.paths, "workers").get(name, {})
    changes = {key: value for key, value in given.items() if value is not None}
    if "enabled" in before:  # whoever adds a worker wants to use it
        changes["enabled"] = None
    if given.get("model") and "llama" in (given.get("kind"), before.get("kind")):
        changes["model"] = str(Path(given["model"]).expanduser().absolute())
    if words:
        kind = given.get("kind") or before.get("kind")
        changes["command" if kind == "command" else "args"] = list(words)
    for option in unset:
        key = option.replace("-", "_")
        if key not in before:
            raise UsageError(f"worker {name!r} has no setting {option!r:.60} of its own", hint=suggest(key, before))
        changes[key] = None
    try:
        worker = validate_worker(settings.paths, name, changes)
        with suppress(KeyMissing):  # the key may come later
            open_model(worker, environ=settings.environ)
        if worker.kind == "llama":
            read_model_info(Path(worker.model))
    except ConductorError as error:
        raise UsageError(error.message, hint=error.hint) from None
    update_table(settings.paths, "workers", name, changes)
    return [key for key, new in changes.items() if before.get(key) != new] if before else None


WHAT: Final = {"workers": "worker", "tools": "tool server"}
"""What a table of each section is."""


def check_own(paths: AppPaths, section: str, names: Sequence[str], load: Callable[[], Settings]) -> None:
    """Raise `UsageError` or `ConfigError` for a name whose table is not in the tool's own file.

    The settings are loaded only for the error: what is to be removed may be why they cannot be loaded.
    """
    own = own_section(paths, section)
    for name in names:
        if name not in own:
            settings = load()
            check_changeable(settings, section, name)
            hint = suggest(name, _table_sources(settings, section))
            raise UsageError(f"no {WHAT[section]} is named {name!r:.60}", hint=hint)


def check_changeable(settings: Settings, section: str, name: str) -> None:
    """Raise `ConfigError` for a table that is in a file which the user writes, and which takes precedence."""
    source = _table_sources(settings, section).get(name, "")
    if source and source != str(settings.paths.own_file):
        message = f"{WHAT[section]} {name!r} is in {source}, which conductor does not change"
        raise ConfigError(message, hint="edit the file yourself")


def _table_sources(settings: Settings, section: str) -> dict[str, str]:
    """Return the file of each table of a section."""
    if section == "workers":
        return {item.worker.name: item.source for item in settings.workers}
    return {item.name: item.source for item in settings.tool_servers}


def remove_tables(paths: AppPaths, section: str, names: Sequence[str], load: Callable[[], Settings]) -> None:
    """Remove workers or tools that were added and that nothing needs. Raises `UsageError` and `ConfigError`."""
    check_own(paths, section, names, load)
    other, key = ("pools", "workers") if section == "workers" else ("workers", "tools")
    needs = {table: values.get(key) for table, values in own_section(paths, other).items()}
    if section == "workers":
        with suppress(ConfigError):  # what is removed may be why they cannot be loaded
            needs |= {pool.name: list(pool.workers) for pool in load().pools}
    for table, listed in needs.items():
        for name in names:
            if isinstance(listed, list) and name in listed:
                if section == "tools":
                    hint = f"conductor workers add {table} --set tools="
                    raise UsageError(f"worker {table!r} has the tools {name!r}", hint=hint)
                raise UsageError(f"worker {name!r} is in pool {table!r}", hint=f"take it out of [pools.{table}] first")
    for name in names:
        update_table(paths, section, name, None)
