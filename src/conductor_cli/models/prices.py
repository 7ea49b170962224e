"""What models cost: litellm's bundled table, read as data. litellm itself is not imported.

The table, megabytes of JSON, is boiled down once into a file of our own in the cache directory: a line that says what
it was made from, then a line for each model that answers questions. A look-up reads that file and parses the one line
that it wants. Names match exactly; what the table does not say is not known.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeGuard

from conductor_cli.core.pool import Worker
from conductor_cli.core.serialization import DecodeError, load
from conductor_cli.core.usage import MILLION, Price
from conductor_cli.models import disk
from conductor_cli.models.presets import PRESETS, is_own_address, price_name

SOURCE: Final = "model_prices_and_context_window_backup.json"
"""The table's name inside litellm."""

FILE: Final = "prices.txt"
"""Ours in the cache directory."""

FORMAT: Final = 1

_MODES: Final = frozenset({"chat", "completion", "responses"})
_SEARCHES: Final = re.compile(r"perplexity/|search-(?:preview|api)|deep-research")
"""Models that search the web with every answer: tokens are only a part of what they cost."""
_CHARGES: Final = ("input_cost_per_request", "input_cost_per_query")
"""Whoever charges for the call itself has no price by tokens."""
_ABOVE: Final = re.compile(r"input_cost_per_token_above_(\d+)(k?)_tokens")
_NAMES: Final = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cached": "cache_read_input_token_cost",
    "stored": "cache_creation_input_token_cost",
    "reasoning": "output_cost_per_reasoning_token",
}
"""Our amounts by what litellm calls them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTable:
    """The prices as they lie in memory. `version` is litellm's, `date` that of its file on this machine.

    `problem` says why there are none.
    """

    version: str = ""
    date: str = ""
    models: int = 0
    rows: bytes = b""
    problem: str = ""

    @property
    def about(self) -> str:
        """Where the prices are from, and of when."""
        return f"litellm {self.version}, file of {self.date}"

    def find(self, name: str) -> Price | None:
        """The price of the model with exactly this name, None where there is none that can be used."""
        with suppress(ValueError, DecodeError):
            return load(Price, json.loads(self._row(name.encode("utf-8", "replace"))))
        return None

    def _row(self, name: bytes) -> bytes:
        """What stands behind a name; nothing where it is not there. The rows are in order, each behind a newline."""
        low, high = 0, len(self.rows) - 1
        while low < high:
            middle = self.rows.rfind(b"\n", low, (low + high) // 2 + 1)
            end = self.rows.find(b"\n", middle + 1)
            found, _, said = self.rows[middle + 1 : end].partition(b"\t")
            if found == name:
                return said
            low, high = (end, high) if found < name else (low, middle)
        return b""


def with_prices(workers: Sequence[Worker], cache: Path) -> tuple[tuple[Worker, ...], str]:
    """The same workers, those without a price of their own with that of the table; and what is wrong with the table."""
    if not any(worker.price is None and _name(worker) for worker in workers):
        return tuple(workers), ""
    table = load_prices(cache)
    priced = (replace(item, price=table.find(_name(item))) if item.price is None else item for item in workers)
    return tuple(priced), table.problem


def _name(worker: Worker) -> str:
    """A worker's exact name in the table. Another address than the provider's own has prices of its own."""
    return price_name(worker) if worker.kind in PRESETS and is_own_address(worker) else ""


def load_prices(cache: Path, source: Path | None = None) -> PriceTable:
    """The prices, kept in `cache` for as long as what is installed stays the same. Never raises.

    `source` is the table where it is not the installed one.
    """
    try:
        source = source or _installed()
        found = source.stat()
    except OSError as error:
        said = f"no prices are known: litellm's table cannot be read: {error.strerror or error}"
        return PriceTable(problem=said)
    made_from = {"format": FORMAT, "source": str(source), "size": found.st_size, "time": found.st_mtime_ns}
    kept = _kept(cache / FILE, made_from)
    return kept if kept is not None else _made(source, made_from, cache / FILE)


def _installed() -> Path:
    """Where litellm is, without running any of it. Raises `OSError`."""
    from importlib.util import find_spec

    spec = find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(2, "litellm is not installed")
    return Path(spec.submodule_search_locations[0]) / SOURCE


def _kept(path: Path, made_from: Mapping[str, Any]) -> PriceTable | None:
    """What was kept, if it is whole and was made from the same file."""
    with suppress(OSError, ValueError, RecursionError, TypeError, KeyError):
        data = path.read_bytes()
        end = data.index(b"\n")
        head = json.loads(data[:end])
        if head["from"] == made_from and head["sum"] == zlib.crc32(data[end:]):
            return PriceTable(
                version=str(head["version"]), date=str(head["date"]), models=int(head["models"]), rows=data[end:]
            )
    return None


def _made(source: Path, made_from: Mapping[str, Any], path: Path) -> PriceTable:
    """Read litellm's table and keep what is wanted of it; a disk that refuses it costs time at the next start only."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        table = json.loads(source.read_bytes(), parse_float=Decimal)
        lines = sorted(f"{name}\t{_line(price)}".encode() for name, price in _prices(table))
    except (OSError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
        return PriceTable(problem=f"no prices are known: litellm's table cannot be read: {error!s:.80}: {source}")
    if not lines:
        return PriceTable(problem=f"no prices are known: litellm's table holds none: {source}")
    rows = b"\n" + b"\n".join(lines) + b"\n"
    try:
        installed = version("litellm")
    except PackageNotFoundError:
        installed = "of unknown version"
    date = f"{datetime.fromtimestamp(made_from['time'] / 1e9, UTC):%Y-%m-%d}"
    head = {"from": made_from, "sum": zlib.crc32(rows), "version": installed, "date": date, "models": len(lines)}
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        disk.write_atomically(path, json.dumps(head).encode() + rows)
    return PriceTable(version=installed, date=date, models=len(lines), rows=rows)


_ENCODE: Final = json.JSONEncoder(separators=(",", ":")).encode


def _line(price: Price) -> str:
    return _ENCODE(_said(price))


def _said(price: Price) -> dict[str, Any]:
    """A price as JSON, what is not known left out."""
    amounts = {name: str(amount) for name in _NAMES if (amount := getattr(price, name)) is not None}
    tiers = {"longer": [_said(one) | {"above": one.above} for one in price.longer]} if price.longer else {}
    return amounts | tiers


def _prices(table: object) -> Iterator[tuple[str, Price]]:
    """The models of litellm's table that answer questions and have a price by tokens. Raises `ValueError`."""
    if not isinstance(table, Mapping):
        raise ValueError("it is no table of models")  # noqa: TRY004 - as for any other text that is none
    for name, row in table.items():
        if isinstance(row, Mapping) and name.isprintable() and row.get("mode") in _MODES:
            price = None if _SEARCHES.search(name) or any(key in row for key in _CHARGES) else price_of(row)
            if price is not None:
                yield name, price


def price_of(row: Mapping[str, Any]) -> Price | None:
    """The price in one row of litellm's table; None where it says none, or only 0, which there means not known."""
    tiers = row.get("tiered_pricing")
    if isinstance(tiers, list):
        steps = [(_begin(tier), _amounts(tier)) for tier in tiers if isinstance(tier, Mapping)]
    else:
        above = [(int(n) * (1000 if k else 1), f"_above_{n}{k}_tokens") for n, k in _thresholds(row)]
        base = _amounts(row)
        steps = [(0, base), *((begin, base | _amounts(row, suffix)) for begin, suffix in above)]
    steps.sort(key=lambda step: step[0])
    if not steps or steps[0][0] != 0 or not all({"input", "output"} <= amounts.keys() for _, amounts in steps):
        return None
    longer = tuple(Price(above=begin, **amounts) for begin, amounts in steps[1:])
    return Price(longer=longer, **steps[0][1])


def _thresholds(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(found[1], found[2]) for key in row if (found := _ABOVE.fullmatch(key))]


def _begin(tier: Mapping[str, Any]) -> int:
    """The tokens read above which a tier's prices hold; -1 for what is no tier."""
    span = tier.get("range")
    first = span[0] if isinstance(span, list) and span else -1
    return int(first) if isinstance(first, int | Decimal) and 0 <= first < 1 << 40 else -1


def _amounts(row: Mapping[str, Any], suffix: str = "") -> dict[str, Any]:
    """The amounts of a row by our names, for a million tokens; none of them where input and output are both 0."""
    found = {name: row.get(key + suffix) for name, key in _NAMES.items()}
    usable = {name: _million(value) for name, value in found.items() if _is_amount(value)}
    if not any(usable.get(name) for name in ("input", "output")):
        return {}
    return {name: value for name, value in usable.items() if value or name in ("input", "output")}


def _is_amount(value: object) -> TypeGuard[Decimal | int]:
    """Whether this can be the price of one token: a dollar for one is a mistake."""
    return isinstance(value, int | Decimal) and not isinstance(value, bool) and 0 <= value < 1


def _million(value: Decimal | int) -> Decimal:
    """Dollars for a million tokens, written as people write them."""
    exact = (Decimal(value) * MILLION).normalize()
    return exact.quantize(Decimal(1)) if exact == exact.to_integral_value() else exact
