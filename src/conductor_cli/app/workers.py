"""Workers and pools: listing them with keys and prices, adding, changing and removing them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

from conductor_cli.app.keys import key_state, open_key_store
from conductor_cli.app.policy_filter import policy_objection
from conductor_cli.app.worker_selection import POOL_GONE, discovered_workers
from conductor_cli.config import AppPaths, ConfiguredWorker, Settings
from conductor_cli.config.files import own_section, read_toml
from conductor_cli.config.pools import remove_from_pools, stop_using_pool
from conductor_cli.config.workers import update_worker, validate_worker
from conductor_cli.core.errors import ConductorError, ConfigError, KeyMissing, ModelError, UsageError
from conductor_cli.core.formatting import format_money
from conductor_cli.core.pool import Worker
from conductor_cli.core.serialization import dump
from conductor_cli.core.usage import Price
from conductor_cli.models.catalog import open_model
from conductor_cli.models.presets import PRESETS, THIS_MACHINE, is_free
from conductor_cli.models.prices import load_prices, with_prices

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

    @property
    def worker(self) -> Worker:
        return self.configured.worker

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            **dump(self.worker.public()), "price": dump(self.price), "price_from": self.price_source,
            "pools": list(self.pools), "enabled": self.configured.enabled, "forbidden": self.objection or None,
            "source": self.configured.source, "key": self.key,
        }  # fmt: skip


def list_workers(settings: Settings) -> list[WorkerRow]:
    """The workers of the settings, or those found on this machine if the settings have none."""
    return describe_workers(settings.workers or discovered_workers(settings), settings)


def describe_workers(configured: Sequence[ConfiguredWorker], settings: Settings) -> list[WorkerRow]:
    """The rows of these workers; the price table and the stored keys are read once for all of them."""
    store = open_key_store(settings)
    priced, _ = with_prices([item.worker for item in configured])
    return [
        WorkerRow(
            configured=item,
            key=key_state(item.worker, settings.environ, store),
            objection=policy_objection(settings, item.worker),
            pools=tuple(pool.name for pool in settings.pools if item.worker.name in pool.workers),
            price=worker.price,
            price_source=_price_source(item.worker, worker.price),
        )
        for item, worker in zip(configured, priced, strict=True)
    ]


def find_worker(settings: Settings, name: str) -> WorkerRow:
    """One worker by its name. Raises `UsageError`."""
    configured = {item.worker.name: item for item in settings.workers or discovered_workers(settings)}
    if name not in configured:
        raise UsageError(f"no worker is named {name!r}", hint=f"known: {', '.join(configured) or 'none'}")
    return describe_workers([configured[name]], settings)[0]


def _price_source(configured: Worker, price: Price | None) -> str:
    """Where a worker's price is from, in words; `configured` is the worker as the settings have it."""
    if configured.price is not None:
        return THIS_MACHINE if is_free(configured) and not any(configured.price.amounts()) else "the settings"
    if price is not None:
        more = "; more for long prompts" if price.longer else ""
        return load_prices().about + more
    preset = PRESETS.get(configured.kind)
    if preset is not None and preset.cost == "stated":
        return "unknown; each call says what it cost"
    return UNKNOWN_PRICE


def describe_price(price: Price) -> str:
    """`free`, or `$1.25 in and $10.00 out per million tokens`."""
    if not any(price.amounts()):
        return "free"
    return f"{format_money(price.input)} in and {format_money(price.output)} out per million tokens"


def add_worker(settings: Settings, name: str, given: Mapping[str, Any], unset: Sequence[str]) -> bool:
    """Add a worker, or change one that was added: `given` settings are merged, those in `unset` removed.

    The worker is checked as far as that is possible without asking anybody, before anything is written. Returns whether
    it existed. Raises `UsageError`, and `ConfigError` when the file cannot be written.
    """
    listed = read_toml(settings.paths.own_file).values.get("workers", {})
    before = dict(listed.get(name, {}))
    kind, model = given.get("kind") or before.get("kind"), given.get("model")
    changes = {key: value for key, value in given.items() if value is not None}
    if kind == "llama" and model:
        path = Path(model).expanduser()
        if not path.is_file():
            raise UsageError(f"there is no file {model!r}", hint="--kind llama needs --model FILE.gguf")
        changes["model"] = str(path.absolute())
    if given.get("kind") == "llama" and not (model or before.get("model")):
        raise UsageError("no model file is given", hint="--kind llama needs --model FILE.gguf")
    for option in unset:
        if option.replace("-", "_") not in before or option == "kind":
            known = ", ".join(key for key in before if key != "kind")
            raise UsageError(f"--unset {option}: it is not set", hint=f"set: {known or 'nothing'}")
        changes[option.replace("-", "_")] = None
    try:
        _try_to_open(validate_worker(settings.paths, name, changes), settings)
    except ConfigError as error:
        raise UsageError(error.message, hint=error.hint) from None
    update_worker(settings.paths, name, changes)
    return bool(before)


def _try_to_open(worker: Worker, settings: Settings) -> None:
    """Open a worker, which connects to nothing, and read its file. Raises `ConfigError`; a key may come later."""
    from conductor_cli.models.llama import read_model_info  # only for workers that are a file

    try:
        with suppress(KeyMissing):
            open_model(worker, environ=settings.environ)
        if worker.kind == "llama":
            read_model_info(Path(worker.model))
    except ModelError as error:
        raise ConfigError(error.message, hint=error.hint) from None


def parse_price(text: str | None) -> dict[str, str] | None:
    """`IN,OUT` as the settings have it. Raises `UsageError`."""
    if text is None:
        return None
    try:
        first, second = (Decimal(part) for part in text.split(","))
    except (ValueError, InvalidOperation):
        raise UsageError(f"--price {text!r:.40} is not IN,OUT", hint="for example: --price 1.25,10") from None
    if not (first.is_finite() and second.is_finite() and first >= 0 and second >= 0):
        raise UsageError(f"--price {text!r:.40}: both amounts must be 0 or more")
    return {"input": str(first), "output": str(second)}


def enable_workers(paths: AppPaths, names: Sequence[str], load: Callable[[], Settings], *, enabled: bool) -> None:
    """Enable or disable workers that were added. Raises `UsageError` and `ConfigError`; for `load` see `_check_own`."""
    _check_own(paths, names, load)
    for name in names:
        update_worker(paths, name, {"enabled": enabled})


def remove_workers(paths: AppPaths, names: Sequence[str], load: Callable[[], Settings]) -> list[str]:
    """Remove workers that were added, also from pools; returns notices. Raises `UsageError` and `ConfigError`."""
    _check_own(paths, names, load)
    notices = []
    for name in names:
        update_worker(paths, name, None)
        for pool in remove_from_pools(paths, name):
            removed = "" if pool in own_section(paths, "pools") else ", which is removed because it is empty"
            notices.append(f"{name} is also removed from pool {pool}{removed}")
            if stop_using_pool(paths, pool):
                notices.append(POOL_GONE)
    return notices


def _check_own(paths: AppPaths, names: Sequence[str], load: Callable[[], Settings]) -> None:
    """That these workers are in the tool's own file. Raises `UsageError` or `ConfigError`.

    The settings are loaded only for the error: a worker that is to be removed may be why they cannot be loaded.
    """
    own = own_section(paths, "workers")
    for name in names:
        if name not in own:
            raise not_own_error("worker", name, {item.worker.name: item.source for item in load().workers})


def not_own_error(what: str, name: str, sources: Mapping[str, str]) -> ConductorError:
    """Why a worker or pool cannot be removed: it is in a file that the user writes, or there is none."""
    if name in sources:
        message = f"{what} {name!r} is in {sources[name]}, which conductor does not change"
        return ConfigError(message, hint="edit the file yourself")
    return UsageError(f"no {what} is named {name!r}", hint=f"known: {', '.join(sources) or 'none'}")
