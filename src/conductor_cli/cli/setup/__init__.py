"""`conductor setup`: what is here, what is missing, and doing that step by step; nothing that is there is changed."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from conductor_cli.cli import options as opt
from conductor_cli.core.errors import ConductorError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conductor_cli.cli.setup.found import Found
    from conductor_cli.cli.setup.steps import Step
    from conductor_cli.config import Settings

LATER: Final = "what was done stays; to go on: conductor setup"


def setup(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do all that is proposed, without asking.")] = False,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="The conductor model: a name of model list, a file, a URL, provider/model, or none.",
        ),
    ] = None,
    json: opt.Json = False,
) -> None:
    """Set up what is missing, step by step: keys, workers, limits, the conductor model. Can be run again."""
    from conductor_cli.cli.output import print_notice

    work = Setup(context, model or "")
    try:
        if json:
            code = work.as_json(yes=yes)
        elif yes:
            code = work.all_of_it()
        elif sys.stdin.isatty() and sys.stderr.isatty():
            from conductor_cli.cli.setup.asking import Asking

            code = Asking(work).run()
        else:
            code = work.only_told()
    except KeyboardInterrupt:
        print_notice(f"\nstopped; {LATER}")
        raise
    raise typer.Exit(code)


class Setup:
    """One setting up: what is found, what is proposed, and what came of it. `code` is that of the first failure."""

    def __init__(self, context: typer.Context, wanted: str) -> None:
        from conductor_cli.cli.setup.found import look

        self.context = context
        self.wanted = wanted
        self.settings = self.load()
        self.found: Found = look(self.settings)
        self.code = 0
        self.done: list[dict[str, Any]] = []

    def load(self) -> Settings:
        """The settings as they are now."""
        from conductor_cli.config import load_settings

        return load_settings(os.environ, {"output.color": self.context.obj.color}, self.context.obj.config)

    def steps(self) -> list[Step]:
        """Everything that is proposed, and what is here. The model comes last: it reads its prompt for the pool."""
        from conductor_cli.cli.setup.model import model_step
        from conductor_cli.cli.setup.pool import limit_steps, pool_after, worker_steps

        workers = worker_steps(self.found, self.settings)
        limits = limit_steps(pool_after(self.settings, workers), self.settings)
        planner = model_step(self.found, self.settings, self.wanted)
        return [*workers, *limits, *([] if planner is None else [planner])]

    def do(self, step: Step) -> bool:
        """Do a step; one that fails is told, and the others follow. Whether it is done."""
        from conductor_cli.cli.output import print_error
        from conductor_cli.cli.setup.steps import do

        error: ConductorError | None = None
        try:
            do(step, self.context, self.settings)
        except typer.Exit as end:
            self.code = self.code or end.exit_code
        except ConductorError as failed:
            print_error(failed)
            error, self.code = failed, self.code or failed.exit_code
        said = None if error is None else {"kind": error.kind, "message": error.message, "hint": error.hint}
        self.done.append({"step": step.what, "name": step.name, "ok": error is None, "error": said})
        self.settings = self.load()
        return error is None

    def do_all(self, steps: Sequence[Step]) -> None:
        """Do every step that is not done yet."""
        for step in steps:
            if not step.here:
                self.do(step)

    def as_json(self, *, yes: bool) -> int:
        """The proposal as JSON, and with `--yes` what was done; what the steps say goes to standard error."""
        from conductor_cli.cli.output import print_json

        steps = self.steps()
        if yes:
            with redirect_stdout(sys.stderr):
                self.do_all(steps)
        found, proposal = self.found.data(), [step.data() for step in steps]
        print_json({"found": found, "proposal": proposal, "done": self.done if yes else None})
        return self.code

    def all_of_it(self) -> int:
        """Do all that is proposed and say it."""
        steps = self.steps()
        self.tell(steps)
        self.do_all(steps)
        self.next_words()
        return self.code

    def only_told(self) -> int:
        """Nobody can be asked: the proposal and its commands, and nothing is changed. Raises `UsageError`."""
        steps = self.steps()
        self.tell(steps)
        if all(step.here for step in steps):
            self.next_words()
            return 0
        hint = "conductor setup --yes does all of it; or run the commands above"
        raise UsageError("nothing was changed: this is no terminal, so nobody can be asked", hint=hint)

    def tell(self, steps: Sequence[Step]) -> None:
        """What was found, and each step with the command that does it."""
        from conductor_cli.cli.output import print_line, print_text

        self.tell_found()
        print_line()
        print_line("Set up")
        for step in steps:
            print_text(f"  {step.line}")
            if not step.here:
                print_text(f"        {step.command}")
        for line in self.lacking(steps):
            print_text(f"  {line}")

    def tell_found(self) -> None:
        """What was found on this machine."""
        from conductor_cli.cli.output import print_line, print_text

        print_line("Found")
        for line in self.found.lines():
            print_text(f"  {line}")

    def lacking(self, steps: Sequence[Step]) -> list[str]:
        """What nothing is proposed for, and what could be done about it."""
        kinds = {step.what for step in steps}
        lines = []
        if "worker" not in kinds:
            lines.append("workers: none at hand, so the conductor model answers too; a key brings one:")
            lines.append("  conductor keys set PROVIDER")
        if "model" not in kinds and not self.wanted:
            lines.append("conductor model: none of the registry fits this machine; one elsewhere plans as well:")
            lines.append("  conductor model use URL")
        return lines

    def next_words(self) -> None:
        """What to do now."""
        from conductor_cli.cli.output import print_text
        from conductor_cli.cli.setup.found import planner_name

        if planner_name(self.settings):
            print_text('next: conductor ask "…"; conductor doctor proves that all of it works')
        elif self.settings["conductor.model"]:
            print_text("next: conductor doctor says what is wrong with the conductor model")
        else:
            print_text('next: conductor model pull; meanwhile, without a model: conductor ask --rehearsal "…"')
