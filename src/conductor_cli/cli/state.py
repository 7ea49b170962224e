"""`conductor state`.

Look after the database of several replicas, and move a state between files and a database.
"""

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

Action = Literal["check", "migrate", "export", "import", "release"]

_TAKES: Final = {"export": "DIR", "release": "HOLD"}


def state_command(
    context: typer.Context,
    action: Annotated[Action, opt.argument("check|migrate|export|import|release", "What to do.")],
    what: Annotated[
        str | None,
        opt.argument("[DIR|HOLD]", "Where files go or come from; which hold to release."),
    ] = None,
    json: opt.Json = False,
) -> None:
    """Look after the database that the setting state names.

    check says what it has and what is wrong. migrate brings its tables to the version of this
    program. export DIR writes all of it as files; where DIR or a URL ends in .parquet, the traces
    of each day that is over as a file. import reads files, without DIR those of this user. All go
    on where they were stopped. release HOLD lets an expired hold of a call count nothing any more.
    """
    settings = opt.stored_settings(context)
    state = open_state(settings.paths)
    if isinstance(state, FileState):
        hint = "the setting state names a database: docs/scale.md"
        raise UsageError(f"the state is in files: {state.place}", hint=hint)
    if action in _TAKES and what is None:
        raise UsageError(
            f"state {action} needs {_TAKES[action]}",
            hint=f"conductor state {action} {_TAKES[action]}",
        )
    try:
        if action == "migrate":
            before = state.database.migrate()
            after = state.database.version()
            print_line(
                f"version {after}" if before == after else f"version {before} became {after}"
            )
        elif action == "release":
            # Psycopg: only where a database is
            from conductor_cli.state.postgres.spending import release_hold

            if not (
                str(what).removeprefix("-").isdecimal()
                and release_hold(state.database, int(str(what)))
            ):
                hint = (
                    "conductor state check lists them; a hold that has not expired cannot be "
                    "released"
                )
                raise UsageError(f"there is no expired hold {what!r:.40}", hint=hint)
            print_line(f"released {what}")
        elif action == "check":
            _check(state, json=json)
        else:
            _move(settings, state, action, what, json=json)
    except StateUnavailable as error:
        # Whoever looks after the database may know where it is, and what it says
        said = f"{error.message}: {state.database.said}" if state.database.said else error.message
        raise StateUnavailable(
            f"{state.place}: {said}", hint="docs/scale.md says what it needs"
        ) from None


def _check(state: SharedState, *, json: bool) -> None:
    """Print what the database has. Raises what is wrong with it, with its address."""
    from conductor_cli.state.postgres.upkeep import check_database

    found = check_database(state.database)
    holds: list[dict[str, Any]] = [
        {
            "hold": hold.id,
            "day": str(hold.day),
            "worker": hold.worker,
            "client": hold.client,
            "cost": str(hold.cost),
            "tokens": hold.tokens,
            "expired": hold.expired,
        }
        for hold in found.holds
    ]
    if json:
        counts = {
            "database": state.place,
            "server": found.server,
            "version": found.version,
            "runs": found.runs,
        }
        print_json(
            counts
            | {"running": found.running, "clock_ahead": round(found.clock_ahead, 3), "holds": holds}
        )
        return
    print_line(f"database  {state.place}, PostgreSQL {found.server}")
    print_line(f"version   {found.version}")
    print_line(f"runs      {found.runs:,}, {found.running:,} of them being written")
    expired = [hold for hold in found.holds if hold.expired]
    print_line(
        f"holds     {len(found.holds) - len(expired):,} of calls under way, {len(expired):,} "
        "expired"
    )
    for hold in expired:
        cost = format_money(hold.cost)
        print_line(f"  {hold.id}  {hold.day}  {hold.worker}  {cost}  {hold.client}".rstrip())
    if expired:
        print_notice(
            "an expired hold counts in full; where its call was not charged: conductor state "
            "release HOLD"
        )
    if abs(found.clock_ahead) > 60:  # seconds
        side = "behind" if found.clock_ahead > 0 else "ahead of"
        away = format_duration(abs(found.clock_ahead))
        print_notice(
            f"the clock of this machine is {away} {side} that of the database, which counts"
        )


def _move(
    settings: Settings, state: SharedState, action: Action, what: str | None, *, json: bool
) -> None:
    from conductor_cli.state.postgres.upkeep import (
        FILE_ERRORS,
        export_days,
        export_files,
        import_files,
    )

    place = Path(what) if what is not None else settings.paths.state
    if action == "import" and not place.is_dir():
        raise UsageError(
            f"{place} is no directory", hint="name the directory that has traces and spending"
        )
    files = FileState(replace(settings.paths, state=place, database=""))

    def tell(kind: str, number: int) -> None:
        if number % 1000 == 0 and sys.stderr.isatty():
            print_notice(f"{number:,} {kind}")

    try:
        if action == "import":
            moved = import_files(files, state, tell)
        elif place.suffix == ".parquet":
            moved = export_days(state, str(what), tell)
        else:
            moved = export_files(state, files, tell)
    except FILE_ERRORS as error:
        message = f"{place}: {describe_system_error(error)}"
        raise ConfigError(message, hint="the same command goes on where it was stopped") from None
    if json:
        print_json({"new": moved.counts, "left": moved.left})
    else:
        nouns = {
            kind: "batch" if kind == "batches" else kind.removesuffix("s") for kind in moved.counts
        }
        new = ", ".join(
            format_count(number, nouns[kind]) for kind, number in moved.counts.items() if number
        )
        print_line(f"{action}ed {new}" if new else "nothing was new")
        for text in moved.left:
            print_notice(text)
