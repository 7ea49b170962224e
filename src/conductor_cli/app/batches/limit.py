"""What a batch may cost: what its calls are paid from, and what is told when that is used up."""

from __future__ import annotations

from decimal import Decimal

from conductor_cli.app.batches.batch_files import Batch
from conductor_cli.app.batches.input_forms import read_items
from conductor_cli.core.errors import Failure, PolicyError, UsageError, describe_system_error
from conductor_cli.core.formatting import format_money
from conductor_cli.evals.cost import estimate_most, unpriced_models
from conductor_cli.run import Orchestra
from conductor_cli.run.budget import RAISE_IT, Budget


def check_prices(orchestra: Orchestra) -> None:
    """Raise `PolicyError` where a limit in US dollars cannot be enforced."""
    unpriced = ", ".join(unpriced_models(orchestra, planned=True))
    if unpriced:
        message = f"the cost limit cannot be enforced: no price is known for {unpriced}"
        hint = (
            "add prices (conductor workers add … --set price=IN,OUT), or choose other workers: "
            "--workers"
        )
        raise PolicyError(message, hint=hint)


def open_budget(batch: Batch, orchestra: Orchestra, limit: Decimal | None) -> Budget:
    """Return what the calls of a batch are paid from.

    Raises `UsageError` where nothing can be recorded.
    """
    expected = Decimal(0)
    if limit is not None:
        # Until a run has ended, each is assumed to cost the most that the first question can cost.
        first = next(read_items(batch.source))
        expected = estimate_most(first.question(), orchestra)
    budget = Budget(limit, spent=batch.progress.cost, expected=expected)
    try:
        budget.remember(batch.record)
    except OSError as error:
        message = f"{batch.record} cannot be written: {describe_system_error(error)}"
        raise UsageError(message, hint="free some space or fix its permissions") from None
    return budget


def why_stopped(batch: Batch, budget: Budget, stopped: Failure | None) -> Failure | None:
    """Return what is told of a batch that ended before its last question; else None.

    `stopped` is the reason that the driver gives; it has none where the budget is used up.
    """
    is_unfinished = batch.progress.done < batch.progress.total
    if stopped is None and not is_unfinished:
        return None
    if stopped is not None and stopped.reason != "limit_cost_all":
        return stopped
    limit = budget.limit or Decimal(0)
    message = (
        "the limit of the batch is reached: "
        f"{format_money(budget.spent)} of {format_money(limit)} spent"
    )
    if limit != budget.spent:
        message += ", too little is left for another call"
    return Failure(kind="limit", message=message, hint=RAISE_IT)
