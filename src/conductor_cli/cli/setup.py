"""`conductor setup`: what is missing, step by step. What is set up already is never changed."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Annotated, Any, Final

import typer

from conductor_cli.app import setup
from conductor_cli.app.planner_resolution import resolve_planner
from conductor_cli.app.rehearsal import DEMO_QUESTION
from conductor_cli.app.workers import list_offered_models
from conductor_cli.cli import options as opt
from conductor_cli.cli.confirmation import (
    ask_line,
    can_ask,
    choose_names,
    confirm,
    hide_answer,
)
from conductor_cli.cli.entry import run_command_line
from conductor_cli.cli.output import print_error, print_json, print_line, print_notice, print_text
from conductor_cli.core.errors import ConductorError, ModelError, UsageError
from conductor_cli.core.formatting import format_count
from conductor_cli.core.mappings import names_of
from conductor_cli.core.pool import Worker
from conductor_cli.models.addresses import with_api_path
from conductor_cli.models.discovery import key_state_of, worker_name
from conductor_cli.state.opening import open_state
from conductor_cli.system.known_secrets import KNOWN_SECRETS

# The exit code of a command that Ctrl-C ended, which ends the interview too
INTERRUPTED: Final = 130

KEY_OR_SERVER: Final = (
    "Provider for a key (openai), or base URL of a model server "
    "(http://HOST:PORT/v1; Enter to skip):"
)


def setup_command(
    context: typer.Context,
    yes: Annotated[
        bool, opt.option("--yes -y", "Do everything that is proposed, without asking.")
    ] = False,
    model: Annotated[
        str | None,
        opt.option(
            "--model",
            "The planner: a name of model list, a file, a URL, provider/model, or none.",
            "NAME",
        ),
    ] = None,
    json: opt.Json = False,
) -> None:
    """Set up what is missing: keys, workers, limits, the planner. Can be run again at any time."""
    interview = Interview(context, model or "", yes=yes, asks=not (yes or json) and can_ask())
    if json:
        proposal = []
        for step in setup.propose_steps(interview.findings, interview.settings, model or ""):
            proposal.append(step.to_json())
        # The commands that do the steps print their results, and standard output must be JSON
        # alone.
        if yes:
            with redirect_stdout(sys.stderr):
                interview.hold()
        results = interview.results if yes else None
        print_json({"found": interview.findings.lines(), "proposal": proposal, "done": results})
        raise typer.Exit(interview.exit_code)
    try:
        interview.hold()
    except KeyboardInterrupt:
        print_notice("\nstopped; finished steps are kept; to continue: conductor setup")
        raise
    if interview.left_out and not interview.asks:
        hint = "conductor setup --yes does all of it; or run the commands above"
        raise UsageError("No changes made: setup needs a terminal (or --yes)", hint=hint)
    print_line()
    print_text(setup.next_step(interview.settings))
    raise typer.Exit(interview.exit_code or interview.code_without_planner)


class Interview:
    """Shows what was found, then each step, and does the steps that are agreed to.

    With `yes` nobody is asked and everything is done. Without `yes` and `asks` nothing is done. A
    bare Enter accepts a step; the end of input is a no.
    """

    def __init__(self, context: typer.Context, wanted_model: str, *, yes: bool, asks: bool) -> None:
        self.asks = asks
        self.exit_code = 0
        self.left_out = False  # Whether a step was proposed and not done
        self.results: list[dict[str, Any]] = []
        self._context = context
        self._wanted_model = wanted_model
        self._yes = yes
        self.settings = opt.stored_settings(context)
        self.findings = setup.look_around(self.settings)

    def hold(self) -> None:
        """Go through all steps, in the order in which each needs the one before."""
        print_line("Found")
        for topic, text in self.findings.lines().items():
            print_text(f"  {topic:<8} {text}")
        if self.asks:
            self._ask_for_keys_and_servers()
        agreed = self._go_through(
            "Workers, the models that answer",
            setup.propose_workers(self.findings, self.settings),
            "none found, so the planner answers too; a key adds one: conductor keys set PROVIDER",
        )
        if self.asks and not agreed:
            self.findings = setup.without_refused(self.findings, self.settings)
        # Which limits make sense depends on the prices of the workers, also of those that are only
        # proposed.
        proposed_only = list[Worker]()
        if not agreed and not self.asks:
            proposed_only = setup.new_workers(self.findings, self.settings)
        self._go_through(
            "Limits",
            setup.propose_limits(proposed_only, self.settings),
            "none: nothing costs anything",
        )
        self._go_through(
            "Planner, the model that plans",
            setup.propose_model(self.findings, self.settings, self._wanted_model),
            self._why_no_planner(),
        )
        self._offer_running_model()
        # Only who has never asked anything is offered a question to the demo models.
        if self.asks and self.findings.llama and not open_state(self.settings.paths).traces.runs():
            self._offer_demo()
        self._offer_calibration()

    @property
    def code_without_planner(self) -> int:
        """The exit code where `--yes` has done everything, and no question can be answered yet."""
        if not self._yes or self._wanted_model == setup.NO_MODEL:
            return 0
        try:
            resolve_planner(self.settings)
        except ConductorError as error:
            return error.failure.exit_code
        return 0

    def _ask_for_keys_and_servers(self) -> None:
        """Ask for keys, which are stored, and servers, whose models the next step proposes."""
        _print_heading("Keys and model servers")
        storage = list[str]()
        if not self.findings.keyring:
            storage = ["--insecure-storage"]
            print_text(
                "  no working keyring found: a key would be stored in a file that is not encrypted"
            )
        servers = list[Worker]()
        while name := ask_line(KEY_OR_SERVER):
            if _looks_like_key(name):
                KNOWN_SECRETS.add(name)
                hide_answer(KEY_OR_SERVER, name)
                print_notice(
                    "that looks like a key, so it was not used: name its provider first, then "
                    "the key is asked for and not shown"
                )
            elif ":" in name:
                servers += self._choose_models(name, storage)
            elif self._run(["keys", "set", name, *storage]) == 0:
                self._run(["keys", "test", name])
                # A new key may bring a worker, which the next step then proposes.
                self.findings = setup.look_at_keys(self.findings, self.settings)
        self.findings = replace(self.findings, workers=(*self.findings.workers, *servers))

    def _why_no_planner(self) -> str:
        """Return what stands below the heading where no planner is proposed."""
        if self._wanted_model == setup.NO_MODEL:
            return "none, as --model none says"
        why = "none on this machine without llama.cpp"
        if self.findings.llama:
            why = "none fits the memory and the free disk"
            return f"{why}; choose one: conductor model use NAME | FILE.gguf | URL | provider/model"
        return f"{why}; choose one: conductor model use WORKER | URL | provider/model"

    def _offer_running_model(self) -> None:
        """Propose a worker as the planner where the one that was proposed could not be had."""
        was_tried = any(result["step"] == "model" and not result["ok"] for result in self.results)
        if not was_tried or not self.asks:
            return
        steps = setup.propose_running_model(self.findings, self.settings)
        if steps and self._go_through("Planner, in its place", steps, ""):
            failed = [result for result in self.results if not result["ok"]]
            if [result["step"] for result in failed] == ["model"]:  # there is a planner now
                self.exit_code = 0

    def _offer_demo(self) -> None:
        _print_heading(
            "A first try: tiny models that ship with conductor answer, without a key or a cost"
        )
        print_text(f'  conductor ask --demo "{DEMO_QUESTION}"')
        if confirm("Run it?", default=True):
            self._run(["ask", "--demo", DEMO_QUESTION])

    def _choose_models(self, url: str, storage: Sequence[str]) -> list[Worker]:
        """Return the workers to propose for a server with OpenAI's API.

        A key is stored where the server wants one.
        """
        url = with_api_path(url)
        try:
            names = names_of(list_offered_models(self.settings, url))
        except ConductorError as error:
            print_error(error)
            if not _wants_key(error) or not confirm("Does it need a key?", default=True):
                return []
            code = self._run(["keys", "set", "openai-compatible", "--base-url", url, *storage])
            if code == 0:
                return self._choose_models(url, storage)
            return []
        if not names:
            print_text("  it offers no chat model")
            return []
        options = {"base_url": url.rstrip("/")}
        workers = list[Worker]()
        print_text("  it offers:")
        for model in choose_names(names, f"conductor workers models {url}"):
            name = worker_name(model)
            worker = Worker(name=name, kind="openai-compatible", model=model, options=options)
            workers.append(worker)
        return workers

    def _offer_calibration(self) -> None:
        """Name the workers without a measured card, and measure them where somebody agrees.

        `--yes` is no such consent. The command says what it costs, and asks again, before it
        begins.
        """
        unmeasured = []
        for item in self.settings.workers:
            if item.enabled and self.settings.cards.of(item.worker) is None:
                unmeasured.append(item.worker.name)
        if not unmeasured:
            return
        command = ["workers", "calibrate"]
        _print_heading("Capability cards, by which the planner knows what each worker is good at")
        print_text(
            f"  {format_count(len(unmeasured), 'worker')} without a measured card: "
            f"{', '.join(unmeasured)}"
        )
        print_text(f"  conductor {' '.join(command)}")
        if self.asks and confirm("Measure them now?", default=False):
            self.exit_code = self.exit_code or self._run(command)

    def _go_through(self, heading: str, steps: Sequence[setup.SetupStep], otherwise: str) -> bool:
        """Show steps of one kind, and do the new ones together where that is agreed to.

        Returns whether it was.
        """
        _print_heading(heading)
        for step in steps:
            print_text(f"  {'done' if step.done else 'new '}  {step.text}")
            if not step.done:
                print_text(f"        {step.command_line}")
        if not steps:
            print_text(f"  {otherwise}")
        new_steps = [step for step in steps if not step.done]
        if not new_steps:
            return False
        if not self._agrees_to(new_steps):
            self.left_out = True
            return False
        for step in new_steps:  # those after one that fails, too
            code = self._run(step.command)
            self.exit_code = self.exit_code or code
            self.results.append({"step": step.kind, "name": step.name, "ok": code == 0})
        return True

    def _agrees_to(self, steps: Sequence[setup.SetupStep]) -> bool:
        if self._yes:
            return True
        question = "Do this?"
        if len(steps) > 1:
            question = f"Do these {len(steps)}?"
        return self.asks and confirm(question, default=True)

    def _run(self, command: Sequence[str]) -> int:
        """Run a command of this program in this process, with the options before it.

        Returns its exit code.
        """
        common = self._context.obj
        before = list[str]()
        if common.config:
            before += ["--config", common.config]
        if common.quiet:
            before.append("--quiet")
        # So a step does exactly what the command shown with it does, with the same messages and
        # exit code.
        code = run_command_line([*before, *command])
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        self.settings = opt.stored_settings(self._context)
        return code


def _looks_like_key(text: str) -> bool:
    """Return whether a key was pasted where a provider is asked for; no provider's name is long."""
    return re.fullmatch(r"(?=.*\d)[\w-]{20,}", text) is not None


def _wants_key(error: ConductorError) -> bool:
    """Return whether a server refused a request because of its key, or seems to have."""
    return isinstance(error, ModelError) and key_state_of(error) in ("wrong", "failed")


def _print_heading(text: str) -> None:
    print_line()
    print_text(text)
