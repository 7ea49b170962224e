"""`conductor trace prune`: deletes old runs, never one that goes on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from conductor_cli.cli import options as opt
from conductor_cli.cli.trace.sharing import span, store_of
from conductor_cli.core.errors import UsageError
from conductor_cli.core.formatting import format_size

if TYPE_CHECKING:
    from conductor_cli.store.stored_run import StoredRun
    from conductor_cli.store.trace_store import TraceStore

SHOWN: Final = 10
"""Runs that are named before a yes; the others are counted."""


def prune(
    context: typer.Context,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="TIME", help="Runs begun longer ago: 12h, 30d, 8w.")
    ] = None,
    keep: Annotated[
        int | None, typer.Option("--keep", metavar="N", min=0, help="Keep the newest N, however old they are.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: opt.Json = False,
) -> None:
    """Delete old runs. With both options a run must be older and not among the newest."""
    from conductor_cli.cli.output import print_json, print_line, print_notice, print_text
    from conductor_cli.store.stored_run import run_data

    if older_than is None and keep is None:
        raise UsageError("nothing says which runs are old", hint="conductor trace prune --older-than 30d --keep 100")
    store = store_of(context)
    going = chosen(rows_of(store), span(older_than, "--older-than") if older_than else None, keep, datetime.now(UTC))
    running = [row for row in going if store.is_running(row.run)]
    going = [row for row in going if row not in running]
    if running:
        print_notice(f"still going on, so kept: {_runs(len(running))}")
    if not dry_run and going:
        _have_a_yes(going, yes=yes)
    gone, refused = ([], []) if dry_run else _delete(store, going)
    if json:
        listed = [run_data(row, str(store.directory)) for row in (going if dry_run else gone)]
        print_json({"deleted": not dry_run, "runs": listed, "bytes": _bytes(going if dry_run else gone)})
    elif dry_run:
        for row in going:
            print_text(_named(row))
        print_line(f"would delete {_freed(going)}")
    else:
        print_line(f"deleted {_freed(gone)}")
    if refused:
        raise refused[0]


def rows_of(store: TraceStore) -> list[StoredRun]:
    """Every stored run, the newest first."""
    return [found.row for found in store.newest(count=-1)[0]]


def chosen(rows: Sequence[StoredRun], older: timedelta | None, keep: int | None, now: datetime) -> list[StoredRun]:
    """Those of the rows, the newest first, that are older and behind the newest `keep`. Pure."""
    behind = rows[keep or 0 :]
    return [row for row in behind if older is None or now - begun(row) > older]


def begun(row: StoredRun) -> datetime:
    """When a run began; for a file that does not say, when it was written last."""
    try:
        time = datetime.fromisoformat(row.time)
    except ValueError:
        return datetime.fromtimestamp(row.written / 1e9, UTC)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _have_a_yes(going: Sequence[StoredRun], *, yes: bool) -> None:
    """Say what goes and have a yes. Raises `UsageError` where nobody can be asked, `Exit` after a no."""
    from conductor_cli.cli.output import print_notice
    from conductor_cli.cli.prompts import confirm

    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{_runs(len(going))} would go, and only after a yes", hint="look with --dry-run, then --yes")
    for row in going[:SHOWN]:
        print_notice(f"  {_named(row)}")
    if len(going) > SHOWN:
        print_notice(f"  and {len(going) - SHOWN} more")
    if not confirm(f"Delete {_freed(going)}?", default=False):
        print_notice("nothing was deleted")
        raise typer.Exit


def _delete(store: TraceStore, going: Sequence[StoredRun]) -> tuple[list[StoredRun], list[UsageError]]:
    """Delete what can be; those that are gone, and why others are not."""
    gone, refused = [], []
    try:
        for row in going:
            try:
                store.remove(row.run)
                gone.append(row)
            except UsageError as error:  # it began again, or the disk refuses: the others go all the same
                refused.append(error)
    finally:
        store.refresh()
    return gone, refused


def _named(row: StoredRun) -> str:
    return f"{row.run}  {row.title[:50]}".rstrip()


def _freed(rows: Sequence[StoredRun]) -> str:

    return f"{_runs(len(rows))}, {format_size(_bytes(rows))}"


def _bytes(rows: Sequence[StoredRun]) -> int:
    return sum(max(row.size, 0) for row in rows)


def _runs(number: int) -> str:
    return f"{number} run{'' if number == 1 else 's'}"
