"""What a dry run of a training says without the libraries that train."""

from __future__ import annotations

from conductor_cli.app.training import describe_call_time


def test_a_dry_run_says_the_hours_of_calls_and_which_setting_shortens_them() -> None:
    hours = describe_call_time(12 * 20 * 3600, 3, 12, 64)
    assert hours.startswith("about 20 h")
    assert "for calls, 12 at once if all workers get the same share" in hours
    assert "about 3 h 45 min with parallel = 22 in the table of each worker" in hours
    quick = describe_call_time(64 * 3600, 3, 90, 64)
    assert "64 at once" in quick
    assert "parallel =" not in quick
