"""`conductor state`: look after a shared database, and move a state between it and files."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer  # noqa: TC002 - Typer reads the annotations

from conductor_cli.cli import options as opt
from conductor_cli.cli.output import print_json, print_line, print_notice
from conductor_cli.config.settings import Settings
from conductor_cli.core.errors import (
    ConfigError,
    StateUnavailable,
    UsageError,
    describe_system_error,
)
from conductor_cli.core.formatting import format_count, format_duration, format_money
from conductor_cli.state.opening import FileState, open_state

if TYPE_CHECKING:
    from conductor_cli.state.postgres.records import SharedState
    from conductor_cli.state.postgres.spending import Hold
    from conductor_cli.state.postgres.upkeep import Moved

Action = Literal["check", "migrate", "export", "import", "release"]

PARQUET: Final = ".parquet"  # How the name of a place ends that gets the traces of days
_TAKES: Final = {"export": "DIR", "release": "HOLD"}


def state_command(
    context: typer.Context,
    action: Annotated[Action, opt.argument("check|migrate|export|import|release", "What to do.")],
    target: Annotated[
        str | None,
        opt.argument(
            "[DIR|HOLD]", "Where files go or come from; the number of a hold, from check."
        ),
    ] = None,
    json: opt.Json = False,
) -> None:
    """Look after the database that the setting state names.

    check says what it has and what is wrong. migrate brings its tables to the version of this
    program. export DIR writes all of it as files; where DIR or a URL ends in .parquet, the traces
    of each day that is over as a file. import reads files, without DIR those of this user. All go
    on where they were stopped.

    A hold is the most that a call may cost, counted as spent until the call ends. Where the process
    was killed, it stays. Once an hour has passed, release HOLD takes it off what was spent.
    """
    settings = opt.stored_settings(context)
    state = open_state(settings.paths)
    if isinstance(state, FileState):
        hint = "the setting state names a database: docs/scale.md"
        raise UsageError(f"the state is in files: {state.place}", hint=hint)
    if action in _TAKES and target is None:
        raise UsageError(
            f"state {action} needs {_TAKES[action]}",
            hint=f"conductor state {action} {_TAKES[action]}",
        )
    try:
        match action:
            case "migrate":
                _migrate(state)
            case "release":
                _release(state, str(target))
            case "check":
                _check(state, json=json)
            case _:
                _move(settings, state, action, target, json=json)
    except StateUnavailable as error:
        # Whoever looks after the database may know where it is, and what it says
        problem = f"{state.place}: {error.message}"
        if state.database.last_reply:
            problem += f": {state.database.last_reply}"
        raise StateUnavailable(problem, hint="docs/scale.md says what it needs") from None


def _migrate(state: SharedState) -> None:
    before = state.database.migrate()
    after = state.database.version()
    if before == after:
        print_line(f"version {after}")
    else:
        print_line(f"version {before} became {after}")


MAX_HOLD_DIGITS: Final = 19  # Of a number with 64 bits


def _number_of_hold(text: str) -> int | None:
    """Return the number that a text means; None for one that no hold can have."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > MAX_HOLD_DIGITS:
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


def _release(state: SharedState, hold: str) -> None:
    # Psycopg: only where a database is
    from conductor_cli.state.postgres.spending import release_hold

    number = _number_of_hold(hold)
    if number is None or not release_hold(state.database, number):
        hint = "conductor state check lists them; a hold that has not expired cannot be released"
        raise UsageError(f"there is no expired hold {hold!r:.40}", hint=hint)
    print_line(f"released {hold}")


def _check(state: SharedState, *, json: bool) -> None:
    """Print what the database has. Raises what is wrong with it, with its address."""
    from conductor_cli.state.postgres.upkeep import check_database

    report = check_database(state.database)
    if json:
        print_json(
            {
                "database": state.place,
                "server": report.server,
                "version": report.version,
                "runs": report.runs,
                "running": report.running,
                "clock_ahead": round(report.clock_ahead, 3),
                "holds": [_hold_json(hold) for hold in report.holds],
            }
        )
        return
    print_line(f"database  {state.place}, PostgreSQL {report.server}")
    print_line(f"version   {report.version}")
    print_line(f"runs      {report.runs:,}, {report.running:,} of them being written")
    expired = [hold for hold in report.holds if hold.expired]
    under_way = len(report.holds) - len(expired)
    print_line(f"holds     {under_way:,} of calls under way, {len(expired):,} expired")
    for hold in expired:
        cost = format_money(hold.cost)
        print_line(f"  {hold.id}  {hold.day}  {hold.worker}  {cost}  {hold.client}".rstrip())
    if expired:
        print_notice(
            "what an expired hold has set aside counts as spent, because its call may have been "
            "charged; if it was not: conductor state release HOLD"
        )
    if abs(report.clock_ahead) > 60:  # seconds
        side = "behind" if report.clock_ahead > 0 else "ahead of"
        difference = format_duration(abs(report.clock_ahead))
        print_notice(
            f"the clock of this machine is {difference} {side} that of the database, which counts"
        )


def _hold_json(hold: Hold) -> dict[str, Any]:
    return {
        "hold": hold.id,
        "day": str(hold.day),
        "worker": hold.worker,
        "client": hold.client,
        "cost": str(hold.cost),
        "tokens": hold.tokens,
        "expired": hold.expired,
    }


def _names_parquet(target: str) -> bool:
    """Return whether a place is one for the traces of days. A URL may have options at its end."""
    name = target
    if "://" in target:
        name = target.partition("?")[0]
    return name.rstrip("/").endswith(PARQUET)


def _move(
    settings: Settings, state: SharedState, action: Action, target: str | None, *, json: bool
) -> None:
    from conductor_cli.state.postgres.upkeep import (
        FILE_ERRORS,
        export_days,
        export_files,
        import_files,
    )

    path = settings.paths.state
    is_parquet = False
    if target is not None:
        path = Path(target)
        is_parquet = _names_parquet(target)
    if "://" in str(target) and not is_parquet:
        hint = f"name a directory of this machine, or a URL that ends in {PARQUET} for traces alone"
        raise UsageError(f"{target} is a URL, where no state can be", hint=hint)
    if action == "import" and not path.is_dir():
        hint = "name the directory that has traces and spending"
        raise UsageError(f"{path} is no directory", hint=hint)
    files = FileState(replace(settings.paths, state=path, database=""))

    def tell(kind: str, number: int) -> None:
        if number % 1000 == 0 and sys.stderr.isatty():
            print_notice(f"{number:,} {kind}")

    try:
        if action == "import":
            moved = import_files(files, state, tell)
        elif is_parquet:
            moved = export_days(state, str(target), tell)
        else:
            moved = export_files(state, files, tell)
    except FILE_ERRORS as error:
        message = f"{path}: {describe_system_error(error)}"
        raise ConfigError(message, hint="the same command goes on where it was stopped") from None
    if json:
        print_json({"new": moved.counts, "left": moved.left})
    else:
        _print_moved(moved, action)


def _print_moved(moved: Moved, action: Action) -> None:
    """Print what was copied, and what was left."""
    counts = []
    for kind, number in moved.counts.items():
        noun = "batch"
        if kind != "batches":
            noun = kind.removesuffix("s")
        if number:
            counts.append(format_count(number, noun))
    if counts:
        print_line(f"{action}ed {', '.join(counts)}")
    else:
        print_line("nothing was new")
    for text in moved.left:
        print_notice(text)
