"""What the commands on traces share: the store, which runs are wanted, and showing rows."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from conductor_cli.core.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from conductor_cli.cli.options import GlobalOptions, Mode
    from conductor_cli.store.stored_run import RunQuery
    from conductor_cli.store.trace_store import TraceStore

Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, its beginning, last, or last~1 and so on.")]

STATES: Final = ("finished", "partial", "failed", "running", "interrupted", "unreadable")

_SPAN: Final = re.compile(r"(\d{1,6})\s*(min|h|d|w)")
_SECONDS: Final = {"min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_BOLD: Final = "\x1b[1;4m{}\x1b[0m"


def store_of(_: typer.Context) -> TraceStore:
    """The store. No settings are read for it: traces can be looked at whatever is wrong with them."""
    from conductor_cli.config import app_paths
    from conductor_cli.store.fast_list import say_indexing
    from conductor_cli.store.trace_store import TraceStore

    return TraceStore(app_paths(os.environ).traces, say_indexing)


def span(text: str, flag: str) -> timedelta:
    """`30min`, `12h`, `7d`, `2w`. Raises `UsageError`."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{flag} {text!r:.40} is no span of time", hint="for example: 30min, 12h, 7d, 2w")
    return timedelta(seconds=int(found[1]) * _SECONDS[found[2]])


def begun_since(text: str, now: datetime) -> str:
    """How the ids of runs begin that were begun since then: a span of time before now, or a day or time here."""
    if _SPAN.fullmatch(text.strip()):
        then = now - min(span(text, "--since"), now - datetime(1970, 1, 2, tzinfo=UTC))
    else:
        try:
            then = datetime.fromisoformat(text.strip()).astimezone(UTC)
        except (ValueError, OverflowError):
            hint = "for example: 30min, 12h, 7d, 2w, 2026-11-20 or 2026-11-20T18:30"
            raise UsageError(f"--since {text!r:.40} is no time", hint=hint) from None
    return f"{then:%Y%m%d-%H%M%S}"


def wanted(
    states: Sequence[str], worker: str | None, mode: Mode | None, since: str | None, terms: Sequence[str]
) -> RunQuery:
    """Which runs the options ask for. Raises `UsageError`."""
    from conductor_cli.store.stored_run import RunQuery, normalize_terms

    unknown = [state for state in states if state not in STATES]
    if unknown:
        raise UsageError(f"there is no state {unknown[0]!r:.40}", hint=f"known: {', '.join(STATES)}")
    words = normalize_terms(terms)
    if terms and not words:
        raise UsageError("there is no text to look for", hint='for example: conductor trace search "a word"')
    if not all(word.isprintable() for word in (*words, worker or "")):
        raise UsageError("a text to look for holds what is no letter", hint="give it as UTF-8 text")
    begun = begun_since(since, datetime.now(UTC)) if since else ""
    return RunQuery(
        states=tuple(dict.fromkeys(states)),
        worker=worker or "",
        mode=mode.value if mode else "",
        since=begun,
        terms=words,
    )


def show_runs(context: typer.Context, chosen: RunQuery, count: int, *, hits: bool, json: bool, none: str = "") -> None:
    """Show the newest runs that are wanted; with `hits`, where their texts hold what was searched."""
    from conductor_cli.cli.output import print_json, print_notice, print_styled, terminal_width
    from conductor_cli.store.fast_list import NONE, describe_older
    from conductor_cli.store.run_list import found_data, run_lines

    store = store_of(context)
    found, more = store.newest(chosen, count)
    if json:
        print_json([found_data(each, str(store.directory), chosen.terms if hits else ()) for each in found])
        return
    if not found:
        print_notice(none or NONE)
        return
    mark = _BOLD.format if hits and _styled(context) else str
    terms = chosen.terms if hits else ()
    print_styled("\n".join(run_lines(found, terminal_width(sys.stdout), datetime.now(UTC), terms, mark)))
    if more:
        print_notice(describe_older(more))


def look_of(options: GlobalOptions, progress: str | None = None) -> Mapping[str, Any]:
    """The settings that say how things are shown; defaults where they cannot be read, as traces can be all the same."""
    from conductor_cli.config import load_settings
    from conductor_cli.config.schema import SETTINGS

    flags = {"output.color": options.color, "output.progress": progress}
    try:
        return load_settings(os.environ, flags, options.config).values
    except ConfigError:
        return {item.name: flags.get(item.name) or item.default for item in SETTINGS}


def _styled(context: typer.Context) -> bool:
    """Whether what was found is drawn bold: on a terminal that can, unless somebody wants none of it."""
    from conductor_cli.views import OutputContext, uses_color

    color = look_of(context.obj)["output.color"]
    around = OutputContext(stdout=sys.stdout, stderr=sys.stderr, environ=os.environ, color=color)
    told = uses_color(around)
    return told if told is not None else sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
