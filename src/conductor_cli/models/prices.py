"""What models cost and accept: `model_table.json.xz` beside this file.

It has what is read here of litellm's public table of models, and is made anew at a release
(`scripts/model_table.py`). Where a newer litellm is installed, the table inside it is read instead,
as data: litellm itself is not imported. A table is read only when a worker needs a price, and once
in a process. Names match exactly; what the table does not say is unknown.

A row of zeros is no price: litellm writes 0 for trials, for subscriptions and where nobody entered
an amount.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeGuard

from conductor_cli.core.chat import MediaKind
from conductor_cli.core.errors import describe_system_error
from conductor_cli.core.pool import Worker
from conductor_cli.core.usage import MILLION, Price
from conductor_cli.models.addresses import is_own_address
from conductor_cli.models.presets import PRESETS
from conductor_cli.models.worker_options import model_of

SHIPPED_TABLE: Final = Path(__file__).with_name("model_table.json.xz")
"""`litellm`, the version that its rows are from; `as_of`, the day it was made; `models`, the rows
by the names of models, with litellm's own names of fields.
"""

LITELLM_TABLE: Final = "model_prices_and_context_window_backup.json"
"""The name of the table inside litellm."""

_ACCEPTS: Final[Mapping[MediaKind, str]] = {"image": "supports_vision", "pdf": "supports_pdf_input"}
"""What litellm calls the kinds of attachments that a model accepts."""

_LENGTHS: Final = ("max_input_tokens", "max_output_tokens")
_TIERS: Final = "tiered_pricing"
"""Prices by the length of a prompt in a form that is not read: such a row has no price."""

_MODES: Final = frozenset({"chat", "completion", "responses"})

_SEARCHES: Final = re.compile(r"perplexity/|search-(?:preview|api)|deep-research")
"""Models that search the web with every answer: tokens are only a part of what they cost."""

_PER_CALL: Final = ("input_cost_per_request", "input_cost_per_query")
"""A model that charges for the call itself has no price by tokens."""

_ABOVE: Final = re.compile(r"input_cost_per_token_above_(\d+)(k?)_tokens")

_SUFFIX: Final = re.compile(r"_above_\d+k?_tokens$")
_LITELLM_NAMES: Final = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cached": "cache_read_input_token_cost",
    "stored": "cache_creation_input_token_cost",
    "reasoning": "output_cost_per_reasoning_token",
}
"""What litellm calls the fields of a `Price`."""

_UNREADABLE: Final = (
    OSError,
    EOFError,
    lzma.LZMAError,
    ValueError,
    LookupError,
    TypeError,
    RecursionError,
)
"""What reading a damaged table raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTable:
    """The prices, and where they are from and how old; `problem` says why there are none."""

    about: str = ""
    rows: Mapping[str, Any] = field(default_factory=dict, repr=False)
    problem: str = ""

    def find(self, name: str) -> Price | None:
        """Return the price of the model with exactly this name, None if none can be used."""
        row = self.rows.get(name)
        if not is_row_read(row) or _SEARCHES.search(name) or any(key in row for key in _PER_CALL):
            return None
        return price_of(row)


def price_name(worker: Worker) -> str:
    """Return the name of a worker's model in the price table, empty if it has no row of its own.

    An address other than the provider's own has prices of its own.
    """
    preset = PRESETS.get(worker.kind)
    if preset is None or preset.local or worker.kind in ("openai-compatible", "openrouter"):
        return ""
    if not is_own_address(worker):
        return ""
    return preset.prices + model_of(worker)


def table_name(worker: Worker) -> str:
    """Return the name of a worker's model in the table, empty if it has no row of its own.

    The models of OpenRouter have rows, but it states itself what a call costs.
    """
    if worker.kind == "openrouter" and is_own_address(worker):
        return f"openrouter/{model_of(worker)}"
    return price_name(worker)


def with_prices(workers: Sequence[Worker]) -> tuple[tuple[Worker, ...], str]:
    """Return the same workers, and what is wrong with the table of prices.

    Those without a price of their own have that of the table.
    """
    if not any(worker.price is None and price_name(worker) for worker in workers):
        return tuple(map(_with_price_of_storing, workers)), ""
    table = load_prices()
    priced = []
    for worker in workers:
        if worker.price is None:
            priced.append(replace(worker, price=table.find(price_name(worker))))
        else:
            priced.append(worker)
    return tuple(map(_with_price_of_storing, priced)), table.problem


STORING_AT_ANTHROPIC: Final = Decimal("1.25")
"""What input costs that Anthropic puts into its cache, as a multiple of other input
(docs.claude.com, "Prompt caching", November 2026).
"""


def _with_price_of_storing(worker: Worker) -> Worker:
    """Return a worker whose price says what input costs that its provider caches.

    Anthropic is told to cache the turns of a step with tools, so a price that does not say it would
    count these as too cheap.
    """
    price = worker.price
    preset = PRESETS.get(worker.kind)
    if price is None or price.is_free or preset is None or preset.api != "anthropic":
        return worker
    return replace(worker, price=_priced_to_store(price))


def _priced_to_store(price: Price) -> Price:
    stored = price.stored
    if stored is None:
        stored = price.input * STORING_AT_ANTHROPIC
    return replace(price, stored=stored, longer=tuple(map(_priced_to_store, price.longer)))


def with_abilities(workers: Sequence[Worker]) -> tuple[Worker, ...]:
    """Return the same workers, each with what it accepts and the most that it reads and writes.

    All are what the table says of its model; what it accepts, its settings may say. Of one that
    has no row nothing is known, and so it accepts nothing.
    """
    able = []
    for worker in workers:
        name = table_name(worker)
        row = load_prices().rows.get(name) if name else None
        if not is_row_read(row):
            row = {}
        accepts = _accepted_by(worker, row) if worker.accepts is None else worker.accepts
        able.append(
            replace(worker, accepts=accepts, max_output=_max_output(row), max_input=_max_input(row))
        )
    return tuple(able)


def _accepted_by(worker: Worker, row: Mapping[str, Any]) -> tuple[MediaKind, ...]:
    """Return what a model accepts of what its provider's API takes: it may read more."""
    preset = PRESETS.get(worker.kind)
    if preset is None:
        return ()
    kinds = [kind for kind, field_name in _ACCEPTS.items() if row.get(field_name) is True]
    return tuple(kind for kind in kinds if kind in preset.features)


def _max_output(row: Mapping[str, Any]) -> int | None:
    """Return the most tokens that a model writes, None if that is not known."""
    context, output = (row.get(name) for name in _LENGTHS)
    if not isinstance(output, int) or not isinstance(context, int):
        return None
    if not 0 < output < context:  # where both are equal, the number is that of the context
        return None
    return output


def _max_input(row: Mapping[str, Any]) -> int | None:
    """Return the most tokens that a model reads, None if that is not known."""
    tokens = row.get(_LENGTHS[0])
    return tokens if isinstance(tokens, int) and tokens > 0 else None


@cache
def load_prices(source: Path | None = None) -> PriceTable:
    """Return the prices that ship, or those of a newer litellm that is installed. Never raises.

    `source` is a file in litellm's form that is read instead.
    """
    path = source or SHIPPED_TABLE
    try:
        if source is not None:
            return _read_litellm_table(source, source.name)
        shipped = json.loads(lzma.decompress(path.read_bytes()))
        installed = _litellm_version()
        if _numbers_of(installed) > _numbers_of(shipped["litellm"]):
            path = _litellm_directory() / LITELLM_TABLE
            return _read_litellm_table(path, f"litellm {installed}")
        about = f"litellm {shipped['litellm']}, table of {shipped['as_of']}"
        return PriceTable(about=about, rows=shipped["models"])
    except _UNREADABLE as error:
        reason = f"{describe_system_error(error):.80}"
        problem = f"no prices are known: the table of models cannot be read: {reason}: {path}"
        return PriceTable(problem=problem)


def _read_litellm_table(path: Path, name: str) -> PriceTable:
    rows = json.loads(path.read_bytes())
    if not isinstance(rows, Mapping) or not any(map(is_row_read, rows.values())):
        return PriceTable(problem=f"no prices are known: the table of models is empty: {path}")
    date = f"{datetime.fromtimestamp(path.stat().st_mtime, UTC):%Y-%m-%d}"
    return PriceTable(about=f"{name}, file of {date}", rows=rows)


def _litellm_version() -> str:
    """Return the version of the installed litellm, empty if there is none."""
    try:
        return version("litellm")
    except PackageNotFoundError:
        return ""


def _numbers_of(version_text: str) -> tuple[int, ...]:
    """Return the numbers of a version, none of an empty one, to tell which is newer."""
    return tuple(int(part) for part in version_text.split(".") if part.isdigit())


def _litellm_directory() -> Path:
    """Return where litellm is installed, without running any of it. Raises `FileNotFoundError`."""
    spec = find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(2, "litellm is not installed")
    return Path(spec.submodule_search_locations[0])


def is_field_read(name: str) -> bool:
    """Return whether a field of litellm's rows is read here: the shipped table has no others."""
    base = _SUFFIX.sub("", name)
    is_amount = base in _LITELLM_NAMES.values()
    return is_amount or name in ("mode", _TIERS, *_LENGTHS, *_PER_CALL, *_ACCEPTS.values())


def is_row_read(row: object) -> TypeGuard[Mapping[str, Any]]:
    """Return whether a row is of a model that answers questions."""
    return isinstance(row, Mapping) and isinstance(row.get("mode"), str) and row["mode"] in _MODES


def price_of(row: Mapping[str, Any]) -> Price | None:
    """Return the price in one row of litellm's table.

    None if it says none, or only 0, which there means unknown.
    """
    base = _amounts(row)
    steps = [(0, base)]
    for key in row:
        step = _ABOVE.fullmatch(key)
        if step:
            begin = int(step[1]) * (1000 if step[2] else 1)
            steps.append((begin, base | _amounts(row, f"_above_{step[1]}{step[2]}_tokens")))
    steps.sort(key=lambda step: step[0])
    # With half of a price at any length, or with tiers in another form, a call could be counted as
    # too cheap.
    is_whole = all({"input", "output"} <= amounts.keys() for _, amounts in steps)
    if _TIERS in row or not is_whole:
        return None
    longer = tuple(Price(above=begin, **amounts) for begin, amounts in steps[1:])
    return Price(longer=longer, **base)


def _amounts(row: Mapping[str, Any], suffix: str = "") -> dict[str, Any]:
    usable = {}
    for name, key in _LITELLM_NAMES.items():
        value = row.get(key + suffix)
        # A dollar for one token is a mistake.
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1:
            # By way of its text, since 2.5e-06 is exact in decimals only; in plain digits: 10 and
            # not 1E+1.
            usable[name] = Decimal(f"{(Decimal(str(value)) * MILLION).normalize():f}")
    if not any(usable.get(name) for name in ("input", "output")):
        return {}
    return {name: value for name, value in usable.items() if value or name in ("input", "output")}
