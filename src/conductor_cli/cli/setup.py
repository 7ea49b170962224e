"""`conductor setup`: what is missing, step by step. What is set up already is never changed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from conductor_cli.app.doctor.live import DEMO_QUESTION
from conductor_cli.app.keys import REFUSED, check_keys, open_key_store
from conductor_cli.app.setup import (
    Findings,
    SetupStep,
    configured_workers,
    look_around,
    look_at_keys,
    planner_name,
    propose_limits,
    propose_model,
    propose_steps,
    propose_workers,
)
from conductor_cli.app.workers import add_worker
from conductor_cli.cli import config, keys, model
from conductor_cli.cli import options as opt
from conductor_cli.cli.output import print_error, print_json, print_line, print_notice, print_text
from conductor_cli.cli.prompts import YES_NO, can_ask, choose, confirm, read_line
from conductor_cli.cli.session import Session
from conductor_cli.config import Settings, load_settings
from conductor_cli.core.errors import ConductorError, UsageError
from conductor_cli.core.formatting import format_size
from conductor_cli.core.question import Question

YES_NO_OTHER: Final = {**YES_NO, "o": "o", "other": "o"}
YES_NO_EACH: Final = {**YES_NO, "e": "e", "each": "e"}


def setup(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do everything that is proposed, without asking.")] = False,
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
    """Set up what is missing: keys, workers, limits, the conductor model. Can be run again at any time."""
    run = SetupRun(context, model or "")
    try:
        if json:
            run.print_json(do=yes)
        elif yes:
            run.do_everything()
        elif can_ask():
            run.ask_everything()
        else:
            run.print_proposal()
    except KeyboardInterrupt:
        print_notice("\nstopped; finished steps are kept; to continue: conductor setup")
        raise
    raise typer.Exit(run.exit_code)


class SetupRun:
    """One run of the command: what was found, what was done, and the exit code of the first step that failed."""

    def __init__(self, context: typer.Context, wanted_model: str) -> None:
        self.context = context
        self.wanted_model = wanted_model
        self.settings = self._read_settings()
        self.findings: Findings = look_around(self.settings)
        self.exit_code = 0
        self.results: list[dict[str, Any]] = []

    def _read_settings(self) -> Settings:
        return load_settings(os.environ, {"output.color": self.context.obj.color}, self.context.obj.config)

    # Without questions

    def print_json(self, *, do: bool) -> None:
        """The proposal, and with `do` what was done; what the steps print goes to standard error."""
        steps = propose_steps(self.findings, self.settings, self.wanted_model)
        if do:
            # The commands that do the steps print their results; standard output must be JSON alone.
            with redirect_stdout(sys.stderr):
                self._do_all(steps)
        print_json({
            "found": self.findings.data(), "proposal": [step.data() for step in steps],
            "done": self.results if do else None,
        })  # fmt: skip

    def do_everything(self) -> None:
        """Print the proposal and carry it out."""
        steps = propose_steps(self.findings, self.settings, self.wanted_model)
        self._print_steps(steps)
        self._do_all(steps)
        self._print_next()

    def print_proposal(self) -> None:
        """Print the proposal where nobody can be asked. Raises `UsageError` if anything is left to do."""
        steps = propose_steps(self.findings, self.settings, self.wanted_model)
        self._print_steps(steps)
        if not all(step.done for step in steps):
            hint = "conductor setup --yes does all of it; or run the commands above"
            raise UsageError("No changes made: setup needs a terminal (or --yes)", hint=hint)
        self._print_next()

    def _do_all(self, steps: Sequence[SetupStep]) -> None:
        for step in steps:
            if not step.done:
                self._do(step)

    def _do(self, step: SetupStep) -> bool:
        """Do a step; whether that worked. A failure is printed, and the steps after it are done all the same."""
        error: ConductorError | None = None
        try:
            if step.kind == "worker":
                add_worker(self.settings, step.name, step.details["worker"], unset=())
                print_text(f"added {step.name}")
            elif step.kind == "limit":
                config.set_(self.context, name=step.name, value=str(step.details["value"]))
            elif step.details:  # only a download has details
                model.pull(self.context, name=step.name, use=True)
            elif Path(step.name).expanduser().is_file():
                model.import_(self.context, path=Path(step.name), use=True)
            else:
                model.use(self.context, model=step.name)
        except typer.Exit as end:  # how a command reports its exit code
            self.exit_code = self.exit_code or end.exit_code
        except ConductorError as failed:
            print_error(failed)
            error, self.exit_code = failed, self.exit_code or failed.exit_code
        shown = None if error is None else {"kind": error.kind, "message": error.message, "hint": error.hint}
        self.results.append({"step": step.kind, "name": step.name, "ok": error is None, "error": shown})
        self.settings = self._read_settings()
        return error is None

    # With a person

    def ask_everything(self) -> None:
        """Show each step, ask about it, and do it at once. A bare Enter accepts; the end of input is a no."""
        self._print_findings()
        self._ask_keys()
        self._ask_workers()
        self._ask_limits()
        self._ask_model()
        self._offer_first_question()
        print_line()
        self._print_next()

    def _ask_keys(self) -> None:
        _print_heading("Keys")
        if not self.findings.keyring:
            print_text("  no working keyring found: a key would be stored in a file that is not encrypted, after a yes")
        while name := read_line("Whose key to store? A provider, such as openai, or Enter for none:"):
            try:
                keys.set_key(self.context, name, insecure_storage=not self.findings.keyring)
                self.settings = self._read_settings()
                checks = check_keys(self.settings, open_key_store(self.settings), [name])
                for check in checks:
                    print_text(f"  {name}: {check.state}{f', {check.message}' if check.message else ''}")
                if any(check.state in REFUSED for check in checks) and confirm("Remove it again?", default=True):
                    keys.remove_key(name)
                    continue
            except ConductorError as error:
                print_error(error)
                continue
            # A new key may bring a worker, which the next step then proposes.
            self.findings = look_at_keys(self.findings, self.settings)

    def _ask_workers(self) -> None:
        _print_heading("Workers, the models that answer")
        steps = propose_workers(self.findings, self.settings)
        for step in steps:
            print_text(f"  {_describe_setup_step(step)}")
        if not steps:
            print_text("  none found: the conductor model answers too")
        new = [step for step in steps if not step.done]
        if not new:
            return
        answer = choose(f"Add these {len(new)}?", YES_NO_EACH, "Y/n/each") if len(new) > 1 else "e"
        for step in new:
            if answer == "y" or (answer == "e" and confirm(f"Add {step.name}?", default=True)):
                self._do(step)

    def _ask_limits(self) -> None:
        steps = propose_limits(configured_workers(self.settings), self.settings)
        if steps:
            _print_heading("Limits")
        for step in steps:
            print_text(f"  {_describe_setup_step(step)}")
        new = [step for step in steps if not step.done]
        if new and confirm("Set them?" if len(new) > 1 else "Set it?", default=True):
            self._do_all(new)

    def _ask_model(self) -> None:
        _print_heading("Conductor model, the one that plans")
        try:
            step = propose_model(self.findings, self.settings, self.wanted_model)
        except ConductorError as error:
            print_error(error)
            self.exit_code = self.exit_code or error.exit_code
            return
        if step is None:
            print_text("  none" if self.wanted_model else "  no model of the registry fits this machine")
            return
        print_text(f"  {'done  ' if step.done else ''}{step.text}")
        if step.done:
            return
        answer = choose("Take it?", YES_NO_OTHER, "Y/n/other")
        if answer == "y":
            self._do(step)
        if answer != "o":
            return
        print_text("  conductor model list shows those that can be downloaded")
        before = self.exit_code
        while name := read_line("Its name, a GGUF file, a URL or provider/model; Enter for none:"):
            step = propose_model(self.findings, self.settings, name)
            if step is None or self._do(step):
                self.exit_code = before  # a mistyped name that was corrected is no failure
                return

    def _offer_first_question(self) -> None:
        """Offer a question to the demo models, where nothing was ever asked."""
        session = Session(self.context.obj, opt.RunOptions(rehearsal=True))
        if session.store.runs():
            return
        _print_heading("A first try")
        print_text("  tiny models that ship with conductor answer a question: no key, no cost")
        print_text(f'  conductor ask --rehearsal "{DEMO_QUESTION}"')
        if confirm("Run it?", default=True):
            session.run(Question(text=DEMO_QUESTION))

    # Printing

    def _print_steps(self, steps: Sequence[SetupStep]) -> None:
        """What was found, and each step with the command that does it."""
        self._print_findings()
        _print_heading("Set up")
        for step in steps:
            print_text(f"  {_describe_setup_step(step)}")
            if not step.done:
                print_text(f"        {step.command}")
        kinds = {step.kind for step in steps}
        if "worker" not in kinds:
            print_text("  workers: none found, so the conductor model answers too; a key adds one:")
            print_text("    conductor keys set PROVIDER")
        if "model" not in kinds and not self.wanted_model:
            print_text("  conductor model: none of the registry fits this machine; one on a server works, too:")
            print_text("    conductor model use URL")

    def _print_findings(self) -> None:
        found = self.findings
        memory = f"{format_size(found.memory.total)}, {format_size(found.memory.available)} free"
        servers = [f"{worker.model} ({worker.kind})" for worker in found.local_workers]
        lines = {
            "memory": memory if found.memory.total else "not known",
            "cores": f"{found.cores}, {', '.join(gpu.name for gpu in found.gpus) or 'no GPU'}",
            "disk": f"{format_size(found.free)} free for models in {found.downloads}",
            "keyring": found.keyring or "none that works",
            "keys": ", ".join(f"{row.provider} in {row.source}" for row in found.keys) or "none",
            "servers": ", ".join(servers) or "none on this machine",
        }
        print_line("Found")
        for name, text in lines.items():
            print_text(f"  {name:<8} {text}")

    def _print_next(self) -> None:
        if planner_name(self.settings):
            print_text('next: conductor ask "…"; conductor doctor checks that everything works')
        elif self.settings["conductor.model"]:
            print_text("next: conductor doctor says what is wrong with the conductor model")
        else:
            print_text('next: conductor model pull; meanwhile, without a model: conductor ask --rehearsal "…"')


def _print_heading(text: str) -> None:
    print_line()
    print_line(text)


def _describe_setup_step(step: SetupStep) -> str:
    name = "conductor model" if step.kind == "model" else step.name
    return f"{'done' if step.done else 'new '}  {name}: {step.text}"
