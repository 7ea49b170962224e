"""What workers cost, for commands that show it: each price with where it is from and of when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from decimal import Decimal

    from conductor_cli.config import ConfiguredWorker, Settings
    from conductor_cli.core.pool import Worker
    from conductor_cli.core.usage import Price

HEADS: Final = ("NAME", "MODEL", "IN", "OUT", "CACHED", "FROM")

NOT_KNOWN: Final = "not known"


def rows(found: Sequence[ConfiguredWorker], settings: Settings) -> list[list[str]]:
    """A row for each worker under `HEADS`: US dollars for a million tokens."""
    return [_row(item, settings) for item in found]


def _row(item: ConfiguredWorker, settings: Settings) -> list[str]:
    from conductor_cli.models.presets import model_of

    price, whence = price_of(item, settings)
    amounts = [_amount(value) for value in ((price.input, price.output, price.cached) if price else (None, None, None))]
    return [item.worker.name, model_of(item.worker) or "-", *amounts, whence]


def price_of(item: ConfiguredWorker, settings: Settings) -> tuple[Price | None, str]:
    """The price that a run would reckon with, and where it is from, in words."""
    from conductor_cli.models.prices import with_prices

    [worker] = with_prices([item.worker], settings.paths.cache)[0]
    return worker.price, origin(item.worker, worker.price, settings)


def _amount(value: Decimal | None) -> str:
    return "-" if value is None else f"{value:f}"


def origin(before: Worker, price: Price | None, settings: Settings) -> str:
    """Where a worker's price is from, in words; `before` is the worker as the settings have it."""
    from conductor_cli.models.presets import PRESETS, THIS_MACHINE, is_free
    from conductor_cli.models.prices import load_prices

    preset = PRESETS.get(before.kind)
    if before.price is not None:
        return THIS_MACHINE if is_free(before) and not any(before.price.amounts()) else "the settings"
    if price is not None:
        longer = "; more for long prompts" if price.longer else ""
        return load_prices(settings.paths.cache).about + longer
    stated = preset is not None and preset.cost == "stated"
    return "not known; each call says what it cost" if stated else NOT_KNOWN


def price_text(price: Price) -> str:
    """`free`, or `$1.25 in and $10 out a million tokens`."""
    if not any(price.amounts()):
        return "free"
    return f"${price.input.normalize():f} in and ${price.output.normalize():f} out a million tokens"


def told(price: Price | None, whence: str) -> str:
    """A price with its `origin` in one line; that none is known is said, since it is not 0."""
    return whence if price is None else f"{price_text(price)} ({whence})"
