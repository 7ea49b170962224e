"""Show what a long job will probably cost, and ask before it starts."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from conductor_cli.cli.output import print_notice
from conductor_cli.cli.prompts import confirm
from conductor_cli.core.errors import UsageError

if TYPE_CHECKING:
    from conductor_cli.evals.cost import CostEstimate


def confirm_cost(estimate: CostEstimate, what: str, *, yes: bool, quiet: bool) -> bool:
    """Print the estimate and return whether the user agrees, by `--yes` or at the prompt.

    Raises `UsageError` where there is no terminal to ask on.
    """
    if not quiet:
        for line in estimate.lines():
            print_notice(line)
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"{what} may cost money and needs a confirmation", hint="check the estimate, then run it again with --yes"
        )
    with _interruptible():
        return confirm("Continue?", default=False)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end the question at once: inside an event loop it would wait for the line to be read."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
