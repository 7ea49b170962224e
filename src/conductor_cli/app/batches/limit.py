"""What a batch may cost: what its calls are paid from, and what is told when that is used up."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from conductor_cli.app.batches.batch_files import Batch
from conductor_cli.app.batches.input_forms import read_items
from conductor_cli.app.batches.shared_budget import SharedBudget
from conductor_cli.core.errors import Failure, UsageError, describe_system_error
from conductor_cli.core.formatting import format_money
from conductor_cli.evals.cost import check_priced, estimate_most, unpriced_models
from conductor_cli.run import Orchestra
from conductor_cli.run.budget import RAISE_IT, Budget

if TYPE_CHECKING:
    from conductor_cli.state.postgres.records import SharedBatch


def check_prices(orchestra: Orchestra) -> None:
    """Raise `PolicyError` where a limit in US dollars cannot be enforced."""
    team = orchestra.team
    check_priced(unpriced_models(orchestra, planned=team.model is not None), team.name)


def open_budget(batch: Batch, orchestra: Orchestra, limit: Decimal | None) -> Budget:
    """Return what the calls of a batch are paid from that is this machine's alone.

    Raises `UsageError` where nothing can be recorded.
    """
    expected = _most_of_a_run(batch, orchestra, limit)
    budget = Budget(limit, spent=batch.progress.cost, expected=expected)
    _remember(budget, batch)
    return budget


def open_shared_budget(
    batch: Batch, orchestra: Orchestra, limit: Decimal | None, shards: SharedBatch
) -> SharedBudget:
    """Return what the calls of a batch are paid from that other machines work on, too."""
    expected = _most_of_a_run(batch, orchestra, limit)
    budget = SharedBudget(shards, limit, spent=batch.progress.cost, expected=expected)
    _remember(budget, batch)
    return budget


def _most_of_a_run(batch: Batch, orchestra: Orchestra, limit: Decimal | None) -> Decimal:
    """Return the most that the first question can cost; 0 without a limit.

    Until a run has ended, each is assumed to cost that.
    """
    if limit is None:
        return Decimal(0)
    first = next(read_items(batch.source.path))
    return estimate_most(first.question(), orchestra)


def _remember(budget: Budget, batch: Batch) -> None:
    """Open the file that remembers what was spent. Raises `UsageError`."""
    try:
        budget.remember(batch.record)
    except OSError as error:
        message = f"{batch.record} cannot be written: {describe_system_error(error)}"
        raise UsageError(message, hint="free some space or fix its permissions") from None


def why_stopped(batch: Batch, budget: Budget, stopped: Failure | None) -> Failure | None:
    """Return what is told of a batch that ended before its last question; else None.

    `stopped` is the reason that the driver gives; it has none where the budget is used up.
    """
    is_unfinished = batch.progress.done < batch.progress.total
    if stopped is None and not is_unfinished:
        return None
    if stopped is not None and stopped.reason != "limit_cost_all":
        return stopped
    if budget.unrecorded is not None:
        return budget.unrecorded
    limit = budget.limit or Decimal(0)
    message = (
        "the limit of the batch is reached: "
        f"{format_money(budget.spent)} of {format_money(limit)} spent"
    )
    if limit != budget.spent:
        message += ", too little is left for another call"
    return Failure(kind="limit", message=message, hint=RAISE_IT)
