"""Which workers and limits `conductor setup` proposes, with who reads what they are sent, and prices."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.cli.setup.steps import Step
from conductor_cli.config import PER_DAY_SUFFIX
from conductor_cli.core.errors import ConductorError

if TYPE_CHECKING:
    from conductor_cli.cli.setup.found import Found
    from conductor_cli.config import ConfiguredWorker, Settings
    from conductor_cli.core.pool import Worker

LIMITS: Final = {"run": (Decimal("0.50"), 200_000), "day": (Decimal(5), 2_000_000)}
"""What is proposed for a run and a day: US dollars, or tokens where a price is not known.

Five steps that each read 20,000 tokens and write 2,000 at 2 and 10 dollars a million cost 0.30.
"""


def worker_steps(found: Found, settings: Settings) -> list[Step]:
    """The workers: those that are set up, then those at hand that are not and that no rule forbids."""
    from conductor_cli.app.policy_filter import policy_objection
    from conductor_cli.models.presets import model_of

    steps = [_listed(item, settings) for item in settings.workers]
    taken = {item.worker.name for item in settings.workers}
    known = {(item.worker.kind, model_of(item.worker)) for item in settings.workers}
    allowed = tuple(worker for worker in found.at_hand if not policy_objection(settings, worker))
    for worker in priced(allowed, settings):
        if (worker.kind, worker.model) not in known:
            steps.append(_added(worker, _free_name(worker.name, taken)))
            taken.add(steps[-1].name)
    return steps


def _free_name(name: str, taken: set[str]) -> str:
    return next(new for new in (name, *(f"{name[:36]}-{number}" for number in range(2, 99))) if new not in taken)


def _listed(item: ConfiguredWorker, settings: Settings) -> Step:
    from conductor_cli.app.keys import key_state, open_key_store
    from conductor_cli.models.presets import model_of

    [worker] = priced([item.worker], settings)
    model = model_of(worker) if worker.kind == worker.name else f"{worker.kind} {model_of(worker)}".rstrip()
    parts = [model, price_text(worker)]
    parts += [] if item.enabled else ["disabled"]
    if key_state(worker, settings.environ, open_key_store(settings)) == "missing":
        parts.append(f"its key is missing: conductor keys set {worker.kind}")
    return Step(what="worker", name=worker.name, text=", ".join(parts), here=True)


def _added(worker: Worker, name: str) -> Step:
    from conductor_cli.models.presets import recipient_of

    table = {"kind": worker.kind, "model": worker.model, **worker.options}
    flags = {"kind": "--kind", "model": "--model", "base_url": "--base-url"}
    words = [part for key, flag in flags.items() if table.get(key) for part in (flag, str(table[key]))]
    recipient = recipient_of(worker)
    model = worker.model if worker.kind == name else f"{worker.kind} {worker.model}"
    text = f"{model}, read by {recipient}, {price_text(worker)}"
    details = {"worker": table, "recipient": recipient, "price": _price(worker)}
    return Step(
        what="worker", name=name, text=text, command=f"conductor workers add {name} {shlex.join(words)}",
        details=details,
    )  # fmt: skip


def limit_steps(workers: Sequence[Worker], settings: Settings) -> list[Step]:
    """Bounds on what a run and a day may use, where a worker may cost something; none where nothing does.

    In dollars where every price is known, since a bound in dollars is refused over workers without one; else in tokens.
    """
    asked = [*workers, *_planner(settings)]
    prices = [known_price(worker) for worker in asked]
    costs = any(price is None or any(price.amounts()) for price in prices)
    known = all(price is not None for price in prices)
    steps = [_limit(over, settings, known=known) for over in LIMITS]
    return [step for step in steps if step.here or costs]


def _limit(over: str, settings: Settings, *, known: bool) -> Step:
    """The bound on a run or a day that there is, or the one that is proposed."""
    cost, tokens = LIMITS[over]
    end = PER_DAY_SUFFIX if over == "day" else ""
    for kind in ("cost", "tokens", "calls"):
        name = f"limits.{kind}{end}"
        if (most := settings[name]) is not None:
            return Step(what="limit", name=name, text=_at_most(kind, most, over), here=True)
    kind, most = ("cost", cost) if known else ("tokens", tokens)
    name = f"limits.{kind}{end}"
    return Step(
        what="limit", name=name, text=_at_most(kind, most, over), command=f"conductor config set {name} {most}",
        details={"value": f"{most}"},
    )  # fmt: skip


def _at_most(kind: str, most: Decimal | int, over: str) -> str:
    return f"at most {f'${most:f}' if kind == 'cost' else f'{most:,} {kind}'} a {over}"


def _planner(settings: Settings) -> list[Worker]:
    """The model that plans, with its price: planning is paid for, too."""
    from conductor_cli.app.planner_resolution import resolve_planner

    try:
        return priced([resolve_planner(settings)], settings)
    except ConductorError:
        return []


def priced(workers: Sequence[Worker], settings: Settings) -> list[Worker]:
    """The same workers with the prices that a run would reckon with."""
    from conductor_cli.models.prices import with_prices

    return list(with_prices(workers, settings.paths.cache)[0])


def known_price(worker: Worker) -> Any:  # noqa: ANN401 - a `Price`, or None
    """What a worker's tokens cost: as the settings say, nothing for a model of this machine; None where not known."""
    from conductor_cli.core.usage import FREE
    from conductor_cli.models.presets import is_free

    return worker.price or (FREE if is_free(worker) else None)


def _price(worker: Worker) -> dict[str, Any] | None:
    price = known_price(worker)
    return None if price is None else {"input": f"{price.input:f}", "output": f"{price.output:f}"}


def price_text(worker: Worker) -> str:
    """What it costs in words, or that this is not known."""
    from conductor_cli.app.workers import UNKNOWN_PRICE, describe_price

    price = known_price(worker)
    return f"price {UNKNOWN_PRICE}" if price is None else describe_price(price)


def as_worker(step: Step) -> Worker:
    """The worker that a step adds. Raises `ConfigError`."""
    from conductor_cli.core.pool import Worker

    table = dict(step.details["worker"])
    return Worker(name=step.name, kind=table.pop("kind"), model=table.pop("model"), options=table)


def pool_after(settings: Settings, steps: Sequence[Step]) -> list[Worker]:
    """The workers that are enabled, with those that steps add, and their prices."""
    have = [item.worker for item in settings.workers if item.enabled]
    new = [as_worker(step) for step in steps if step.what == "worker" and not step.here]
    return priced([*have, *new], settings)
