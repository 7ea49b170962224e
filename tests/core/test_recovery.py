"""What is said about failed attempts, whoever says it."""

from __future__ import annotations

from conductor_cli.core.errors import Failure
from conductor_cli.core.trace import LONGEST_REASON, FailedAttempt, describe_failed_attempts, describe_recovered_step
from conductor_cli.core.usage import Usage


def failed(worker: str, message: str = "server error (500)", hint: str = "", *, asked: bool = True) -> FailedAttempt:
    error = Failure(kind="worker", message=f"{worker}: {message}", hint=hint)
    return FailedAttempt(
        worker=worker, attempt=int(asked), started=0.5 if asked else None, ended=1.0, error=error, usage=Usage()
    )


def test_both_workers_are_named() -> None:
    """The one that answered comes first, then how often the planned one failed, and why."""
    said = describe_recovered_step("ann", "bob", [failed("ann"), failed("ann"), failed("ann")])
    assert said == "bob answered instead of ann; ann failed 3 times: server error (500)"


def test_a_retry_names_the_attempt_that_answered() -> None:
    """The worker is the planned one, so nobody answered instead."""
    said = describe_recovered_step("ann", "ann", [failed("ann", "rate limit reached (429)")])
    assert said == "ann answered at attempt 2; ann failed: rate limit reached (429)"


def test_each_worker_has_its_own_reason_and_cure() -> None:
    """One that was not asked is told from one that failed; of different messages the last is quoted."""
    attempts = [
        failed("ann", "key refused (401)", "conductor keys set openai", asked=False),
        failed("bob", "no answer"),
        failed("bob", "broken off"),
    ]
    assert describe_failed_attempts(attempts) == (
        "ann was not asked: key refused (401); hint: conductor keys set openai; "
        "bob failed 2 times, the last time: broken off"
    )


def test_a_step_of_a_resumed_run_names_both_workers_without_a_reason() -> None:
    """The failed attempts are in the trace of the first run."""
    assert describe_recovered_step("ann", "bob", []) == "bob answered instead of ann"


def test_what_a_server_says_is_bounded() -> None:
    """An error page of a megabyte takes no more than a line."""
    said = describe_failed_attempts([failed("ann", "x" * 1_000_000, "y" * 1_000_000)])
    assert len(said) < 2 * LONGEST_REASON + 60
