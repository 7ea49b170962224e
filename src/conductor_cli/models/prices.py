"""What models cost and accept: litellm's bundled table, read as data.

litellm itself is not imported.

The table is a JSON file of some megabytes, which takes about 25 ms to read. So it is read only when
a worker needs a price, and once in a process. Names match exactly; what the table does not say is
unknown.

A row of zeros is no price: litellm writes 0 for trials, for subscriptions and where nobody entered
an amount.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from importlib.metadata import version
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

SOURCE: Final = "model_prices_and_context_window_backup.json"  # the table's name inside litellm
_ACCEPTS: Final[Mapping[MediaKind, str]] = {"image": "supports_vision", "pdf": "supports_pdf_input"}
"""What litellm calls the kinds of attachments that a model accepts."""

_MODES: Final = frozenset({"chat", "completion", "responses"})
_SEARCHES: Final = re.compile(r"perplexity/|search-(?:preview|api)|deep-research")
"""Models that search the web with every answer: tokens are only a part of what they cost."""
_PER_CALL: Final = ("input_cost_per_request", "input_cost_per_query")
"""A model that charges for the call itself has no price by tokens."""
_ABOVE: Final = re.compile(r"input_cost_per_token_above_(\d+)(k?)_tokens")
_LITELLM_NAMES: Final = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cached": "cache_read_input_token_cost",
    "stored": "cache_creation_input_token_cost",
    "reasoning": "output_cost_per_reasoning_token",
}
"""What litellm calls the fields of a `Price`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTable:
    """The prices, and where they are from and how old; `problem` says why there are none."""

    about: str = ""
    rows: Mapping[str, Any] = field(default_factory=dict, repr=False)
    problem: str = ""

    def find(self, name: str) -> Price | None:
        """Return the price of the model with exactly this name, None if there is none that can be
        used.
        """
        row = self.rows.get(name)
        if (
            not _answers_questions(row)
            or _SEARCHES.search(name)
            or any(key in row for key in _PER_CALL)
        ):
            return None
        return price_of(row)


def price_name(worker: Worker) -> str:
    """Return the name of a worker's model in the price table, empty if it has no row of its own.

    An address other than the provider's own has prices of its own.
    """
    preset = PRESETS.get(worker.kind)
    if preset is None or preset.local or worker.kind in ("openai-compatible", "openrouter"):
        return ""
    return preset.prices + model_of(worker) if is_own_address(worker) else ""


def table_name(worker: Worker) -> str:
    """Return the name of a worker's model in the table, empty if it has no row of its own.

    The models of OpenRouter have rows, but it states itself what a call costs.
    """
    if worker.kind == "openrouter" and is_own_address(worker):
        return f"openrouter/{model_of(worker)}"
    return price_name(worker)


def with_prices(workers: Sequence[Worker]) -> tuple[tuple[Worker, ...], str]:
    """The same workers, those without a price of their own with that of the table.

    And what is wrong with the table.
    """
    if not any(worker.price is None and price_name(worker) for worker in workers):
        return tuple(workers), ""
    table = load_prices()
    own = (
        worker.price if worker.price is not None else table.find(price_name(worker))
        for worker in workers
    )
    return tuple(
        replace(worker, price=price) for worker, price in zip(workers, own, strict=True)
    ), table.problem


def with_abilities(workers: Sequence[Worker]) -> tuple[Worker, ...]:
    """Return the same workers, each with what it accepts, which its settings may say, and the most
    that it writes.

    Both are what the table says of its model. Of one that has no row nothing is known, and so it
    accepts nothing.
    """
    found = []
    for worker in workers:
        name = table_name(worker)
        features = PRESETS[worker.kind].features if worker.kind in PRESETS else ()
        row = load_prices().rows.get(name) if name else None
        row = row if _answers_questions(row) else {}
        accepts = worker.accepts
        if accepts is None:
            # A model may read more than its provider's API takes.
            accepts = tuple(
                kind for kind, key in _ACCEPTS.items() if row.get(key) is True and kind in features
            )
        written = row.get("max_output_tokens")
        context = row.get("max_input_tokens")
        # Where both are equal, the number is that of the context.
        is_known = isinstance(written, int) and isinstance(context, int) and 0 < written < context
        found.append(replace(worker, accepts=accepts, max_output=written if is_known else None))
    return tuple(found)


@cache
def load_prices(source: Path | None = None) -> PriceTable:
    """Return the prices of the installed litellm, or of the file `source`. Never raises."""
    try:
        path = source
        if path is None:  # find it without running any of litellm
            spec = find_spec("litellm")
            if spec is None or not spec.submodule_search_locations:
                raise FileNotFoundError(2, "litellm is not installed")
            path = Path(spec.submodule_search_locations[0]) / SOURCE
        rows = json.loads(path.read_bytes())
        date = f"{datetime.fromtimestamp(path.stat().st_mtime, UTC):%Y-%m-%d}"
    except (OSError, ValueError, RecursionError) as error:
        reason = f"{describe_system_error(error):.80}"
        return PriceTable(
            problem=(
                f"no prices are known: litellm's table cannot be read: {reason}: {source or SOURCE}"
            )
        )
    if not isinstance(rows, Mapping) or not any(map(_answers_questions, rows.values())):
        return PriceTable(problem=f"no prices are known: litellm's table is empty: {path}")
    return PriceTable(about=f"litellm {version('litellm')}, file of {date}", rows=rows)


def _answers_questions(row: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(row, Mapping) and isinstance(row.get("mode"), str) and row["mode"] in _MODES


def price_of(row: Mapping[str, Any]) -> Price | None:
    """Return the price in one row of litellm's table.

    None if it says none, or only 0, which there means unknown.
    """
    base = _amounts(row)
    steps = [(0, base)]
    for key in row:
        if found := _ABOVE.fullmatch(key):
            begin = int(found[1]) * (1000 if found[2] else 1)
            steps.append((begin, base | _amounts(row, f"_above_{found[1]}{found[2]}_tokens")))
    steps.sort(key=lambda step: step[0])
    # With half of a price at any length, or with tiers in another form, a call could be counted as
    # too cheap.
    if "tiered_pricing" in row or not all(
        {"input", "output"} <= amounts.keys() for _, amounts in steps
    ):
        return None
    return Price(
        longer=tuple(Price(above=begin, **amounts) for begin, amounts in steps[1:]), **base
    )


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
