"""`conductor trace export`: a stored run as one file for others: a page, Markdown or JSON."""

from __future__ import annotations

import os
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from conductor_cli.cli.trace.sharing import Run, store_of
from conductor_cli.core.errors import UsageError

if TYPE_CHECKING:
    from conductor_cli.core.trace import Trace


class Exported(StrEnum):
    """What a run can be exported as."""

    html = "html"
    markdown = "markdown"
    json = "json"


SUFFIXES: Final = {
    ".html": Exported.html, ".htm": Exported.html, ".md": Exported.markdown, ".markdown": Exported.markdown,
    ".json": Exported.json,
}  # fmt: skip
"""What a file is by the end of its name."""


def export(
    context: typer.Context,
    run: Run = "last",
    format_: Annotated[
        Exported | None,
        typer.Option("--format", help="What it becomes; without it as FILE is called, or html."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write there instead of to stdout.")] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page there.")] = None,
) -> None:
    """Export a stored run: a page with a timeline that needs nothing else, Markdown, or JSON."""
    from conductor_cli.cli.output import print_notice, print_styled

    if html is not None and (out is not None or format_ not in {None, Exported.html}):
        raise UsageError("--html says both the format and the file", hint="leave out --format and --out")
    target = html or (None if out == Path("-") else out)
    chosen = Exported.html if html is not None else format_ or _by_name(target)
    store = store_of(context)
    found = store.find(run)
    text = exported(store.trace(found), chosen, live=store.is_running(found))
    if target is None:
        print_styled(text.rstrip("\n"))
        return
    _write(target, text)
    print_notice(f"wrote {target}")


def _by_name(target: Path | None) -> Exported:
    """What a file is to hold by its name; a page where there is no file. Raises `UsageError`."""
    if target is None:
        return Exported.html
    if target.suffix.lower() not in SUFFIXES:
        raise UsageError(
            f"{target} does not say what it is to hold", hint=f"end it with {', '.join(SUFFIXES)}, or --format"
        )
    return SUFFIXES[target.suffix.lower()]


def exported(trace: Trace, chosen: Exported, *, live: bool = False) -> str:
    """The whole file. No key that this process has read is in it."""
    import json

    from conductor_cli.core.sanitize import escape_json
    from conductor_cli.models.known_secrets import KNOWN_SECRETS
    from conductor_cli.views.html_export import html_page
    from conductor_cli.views.markdown_export import markdown_document

    if chosen is Exported.json:
        data = KNOWN_SECRETS.redact_data(data_of(trace, live=live))
        return escape_json(json.dumps(data, ensure_ascii=False, indent=2)) + "\n"
    return KNOWN_SECRETS.redact(
        html_page(trace, live=live) if chosen is Exported.html else markdown_document(trace, live=live)
    )


def data_of(trace: Trace, *, live: bool = False) -> dict[str, Any]:
    """Everything that the trace has, as one object: as `trace show --json --prompts` with question and workers."""
    from conductor_cli.cli.trace.showing import prompts_data
    from conductor_cli.core.serialization import dump
    from conductor_cli.views.json_output import run_data

    data = run_data(trace, live=live)
    about = {"time": trace.time, "question": dump(trace.question), "workers": dump(trace.pool.workers)}
    return {**data, **about, "limits": dump(trace.limits), "steps": prompts_data(trace, data["steps"])}


def _write(target: Path, text: str) -> None:
    """Write a file whole or not at all. Raises `UsageError`."""
    new = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        new.write_text(text, encoding="utf-8", newline="\n")
        new.replace(target)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise UsageError(f"{target} cannot be written: {error.strerror}", hint="name another file") from None
