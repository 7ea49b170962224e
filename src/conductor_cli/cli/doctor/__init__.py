"""`conductor doctor`: whether all of it works, proved by use, and what to do about the rest."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Annotated, Final

import typer

from conductor_cli.app.checks import Check
from conductor_cli.cli import options as opt
from conductor_cli.cli.doctor import installation as doctor_installation
from conductor_cli.cli.doctor import model as doctor_model
from conductor_cli.core.errors import ConductorError, UsageError

if TYPE_CHECKING:
    from conductor_cli.config import ConfiguredWorker, Settings

Look = Callable[["Settings"], list[Check]]

SECONDS: Final = 20.0
"""How long a look at this machine may take beside what its keyring is allowed: a disk behind a network may hang."""

MARKS: Final = {"ok": "\N{CHECK MARK}", "warning": "!", "failed": "\N{BALLOT X}"}
"""What stands before a line on a terminal that can write it; elsewhere the state's name does."""

ARROW: Final = "\N{RIGHTWARDS ARROW} "
"""What stands before a hint on such a terminal."""

NARROW: Final = 60
"""Columns below which what was found stands under its name."""

INSTALLED: Final[tuple[Look, ...]] = (
    doctor_installation.versions, doctor_model.llama, doctor_model.gpu, doctor_model.memory,
    doctor_installation.keyring, doctor_installation.disk, doctor_installation.prices, doctor_installation.project,
    doctor_installation.commands,
)  # fmt: skip
"""What the rehearsal needs, too."""

CHOSEN: Final[tuple[Look, ...]] = (doctor_model.known, doctor_model.conductor_model)
"""What hangs on a model of the user's own."""


def doctor(
    context: typer.Context,
    offline: Annotated[
        bool, typer.Option("--offline", help="Call no model and no server: only look at this machine.")
    ] = False,
    rehearsal: Annotated[
        bool,
        typer.Option("--rehearsal", help="Prove it with the tiny models that ship with this tool: no key, no network."),
    ] = False,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", metavar="FILE", help="Write a zip for a bug report; no key is in it.")
    ] = None,
    with_trace: Annotated[
        str | None,
        typer.Option("--with-trace", metavar="RUN", help="Put this run into the bundle, question and answers too."),
    ] = None,
    json: opt.Json = False,
) -> None:
    """Check everything: the conductor plans a question, each worker says a word, which costs next to nothing."""
    from conductor_cli.cli.output import print_json, print_notice
    from conductor_cli.config import load_settings

    if with_trace is not None and bundle is None:
        raise UsageError("--with-trace is for --bundle", hint="conductor doctor --bundle FILE.zip --with-trace last")
    settings = load_settings(os.environ, {"output.color": context.obj.color}, context.obj.config)
    if bundle is not None:
        from conductor_cli.cli.doctor.bundling import prepared

        pack = prepared(bundle, with_trace, settings)
    checks = _examined(settings, offline=offline, rehearsal=rehearsal, quiet=json or context.obj.quiet, json=json)
    if json:
        print_json({"ok": not any(check.code for check in checks), "checks": [check.data() for check in checks]})
    if bundle is not None:
        for line in pack.write(checks):
            if not context.obj.quiet:
                print_notice(line)
    raise typer.Exit(next((check.code for check in checks if check.code), 0))


def _examined(settings: Settings, *, offline: bool, rehearsal: bool, quiet: bool, json: bool) -> list[Check]:
    """Make all checks; tell each as soon as it can be told, unless they are wanted as JSON."""
    looks = INSTALLED if rehearsal else (*INSTALLED, *CHOSEN)
    done = looked(looks, settings)
    workers = [] if rehearsal else _workers(settings, offline=offline)
    names = [*(check.name for check in done), "planning", *(f"worker {item.worker.name}" for item in workers)]
    page = Page(names)
    if not json:
        page.show(done)

    def tell(check: Check) -> None:
        done.append(check)
        if not json:
            page.show([check])

    if rehearsal:
        _rehearse(settings, tell)
    elif offline:
        _look(settings, workers, tell)
    else:
        plans = all(check.code == 0 for check in done if check.name == "conductor model")
        _prove(settings, workers, tell, plans=plans, quiet=quiet)
    done.sort(key=lambda check: names.index(check.name) if check.name in names else len(names))
    if not json:
        page.sum_up(done)
    return done


def _workers(settings: Settings, *, offline: bool) -> list[ConfiguredWorker]:
    from conductor_cli.cli.doctor.live import listed

    return listed(settings, offline=offline)


def _rehearse(settings: Settings, tell: Callable[[Check], None]) -> None:
    import asyncio

    from conductor_cli.cli.doctor.live import rehearsal

    tell(asyncio.run(rehearsal(settings)))


def _look(settings: Settings, workers: Sequence[ConfiguredWorker], tell: Callable[[Check], None]) -> None:
    from conductor_cli.app.key_status import stored_keys
    from conductor_cli.cli.doctor.live import none_listed, unasked

    safe = stored_keys(settings)
    for item in workers:
        tell(unasked(item, settings, safe))
    if not workers:
        tell(none_listed(offline=True))


def _prove(
    settings: Settings, workers: Sequence[ConfiguredWorker], tell: Callable[[Check], None], *, plans: bool, quiet: bool
) -> None:
    import asyncio

    from conductor_cli.cli.doctor.live import live, none_listed
    from conductor_cli.cli.output import print_notice

    asked = ["the conductor model"] if plans else []
    asked += [f"{len(workers)} worker{'s' if len(workers) > 1 else ''}"] if workers else []
    if asked and not quiet:
        print_notice(
            f"asking {' and '.join(asked)} for a few words, which costs next to nothing; --offline asks nobody …"
        )
    try:
        asyncio.run(live(settings, workers, tell, plans=plans))
    except ExceptionGroup as group:
        if group.subgroup(typer.Exit):  # nobody reads standard output any more
            raise typer.Exit from None
        raise
    if not workers:
        tell(none_listed(offline=False))


def looked(looks: Sequence[Look], settings: Settings) -> list[Check]:
    """What all looks find, in their order: each in a thread of its own, left behind where it does not end."""
    from conductor_cli.keys.keyring import keyring_timeout

    queues = [_begun(look, settings) for look in looks]
    try:
        seconds = SECONDS + keyring_timeout(settings.environ)
    except ConductorError:
        seconds = SECONDS  # the look at the keyring tells it
    checks: list[Check] = []
    for look, queue in zip(looks, queues, strict=True):
        try:
            checks += queue.get(timeout=seconds)
        except Empty:
            hint = "what hangs may be a network disk or a driver: conductor --debug doctor --offline"
            found = f"no end within {seconds:g} s"
            checks.append(Check(name=look.__name__, state="failed", found=found, hint=hint, code=1))
    return checks


def _begun(look: Look, settings: Settings) -> SimpleQueue[list[Check]]:
    queue: SimpleQueue[list[Check]] = SimpleQueue()

    def work() -> None:
        name = look.__name__.replace("_", " ")
        try:
            queue.put(look(settings))
        except ConductorError as error:
            check = Check(name=name, state="failed", found=error.message, hint=error.hint, code=error.exit_code)
            queue.put([check])
        except Exception as error:  # noqa: BLE001 - one look that fails must not hide the others
            found = f"a fault of conductor itself: {type(error).__name__}: {error}"
            hint = "report it: conductor doctor --bundle FILE.zip"
            queue.put([Check(name=name, state="failed", found=found, hint=hint, code=1)])

    threading.Thread(target=work, name=f"doctor {look.__name__}", daemon=True).start()
    return queue


def can_draw(environ: Mapping[str, str]) -> bool:
    """Whether a terminal has the marks: not the bare console of Linux, nor one of a locale that cannot spell them."""
    import locale

    from conductor_cli.views.base import encodable

    marks = "".join((*MARKS.values(), ARROW))
    plain = environ.get("TERM") in {"dumb", "linux"} or environ.get("ACCESSIBLE", "") not in {"", "0"}
    return not plain and encodable(marks, locale.getencoding()) == marks


class Page:
    """Checks on standard output, a line each with its hint below, broken between words on a terminal."""

    def __init__(self, names: Sequence[str]) -> None:
        from conductor_cli.cli.output import terminal_width

        self._width = terminal_width(sys.stdout)
        glyphs = self._width > 0 and can_draw(os.environ)
        self._arrow = ARROW if glyphs else ""
        self._marks = MARKS if glyphs else {state: f"{state:7}" for state in MARKS}
        self._column = max(map(len, names), default=0)

    def show(self, checks: Sequence[Check]) -> None:
        from conductor_cli.cli.output import print_line

        for check in checks:
            for line in self._lines(check):
                print_line(line)

    def _lines(self, check: Check) -> list[str]:
        from conductor_cli.cli.output import wrap_lines

        mark = self._marks[check.state]
        texts = [check.found, *(f"{self._arrow}{line}" for line in check.hint.splitlines())]
        if 0 < self._width < NARROW:
            return [f"{mark} {check.name}", *(wrap_lines(f"    {text}", self._width) for text in texts)]
        head = f"{mark} {check.name:{self._column}}  "
        first, *others = [wrap_lines(" " * len(head) + text, self._width) for text in texts]
        return [head + first[len(head) :], *others]

    def sum_up(self, checks: Sequence[Check]) -> None:
        """How many are well, and the names of those that are not."""
        from conductor_cli.cli.output import print_text

        failed = [check.name for check in checks if check.state == "failed"]
        warned = [check.name for check in checks if check.state == "warning"]
        parts = [f"{len(failed)} failed: {', '.join(failed)}"] if failed else []
        parts += [f"{len(warned)} to look at: {', '.join(warned)}"] if warned else []
        print_text("; ".join(parts) or f"all {len(checks)} are well")
