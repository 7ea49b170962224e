"""What a person at the terminal decides: whether a plan is run, and whether a tool is called.

And printing plans.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from conductor_cli.app.driver import DecidedElsewhere
from conductor_cli.app.traces import (
    check_edited_offer,
    describe_offer,
    may_edit_offered,
    may_replan_offered,
    planned_flow,
    recipients_of,
    stored_flow,
    stored_planned_flow,
)
from conductor_cli.cli.browser import open_browser
from conductor_cli.cli.keypress import (
    MAX_LINE_BYTES,
    Keyboard,
    NoAnswer,
    Nudged,
    has_terminal,
)
from conductor_cli.cli.output import print_error, print_json, print_line
from conductor_cli.core.chat import ToolCall
from conductor_cli.core.disclosures import Disclosure
from conductor_cli.core.errors import (
    ConductorError,
    ConfigError,
    Failure,
    UsageError,
    describe_system_error,
)
from conductor_cli.core.events import InputAsked, PlanOffered, ToolOffered
from conductor_cli.core.input_requests import (
    FieldValue,
    InputField,
    InputReply,
    WrongValue,
    read_value,
)
from conductor_cli.core.plan import Decision, Plan
from conductor_cli.core.plan_file import format_plan_file, parse_plan_file
from conductor_cli.core.pool import Limits, Pool
from conductor_cli.core.question import Question, shorten
from conductor_cli.core.terminal_text import one_line, reveal, sanitize
from conductor_cli.core.trace import Offer, Trace
from conductor_cli.run import Run
from conductor_cli.run.orchestra import ToolVerdict
from conductor_cli.state.interfaces import Traces
from conductor_cli.state.run_messages import MAX_TEXT_CHARACTERS, RunMessage
from conductor_cli.views.base import Stderr, Stdout
from conductor_cli.views.output_formats import ColorName, OutputContext
from conductor_cli.views.plan_text import (
    PlanOffer,
    flow_json,
    flow_lines,
    plan_lines,
    planned_flow_lines,
)
from conductor_cli.views.run_text import short_name
from conductor_cli.views.text_layout import BLANK, Line, Printer


def print_plan(run: Run, limits: Limits, context: OutputContext, *, flow: bool) -> None:
    """Print a plan: on a terminal for a person.

    Else as a file on stdout, with its description on stderr.
    """
    assert isinstance(run.trace.plan, Plan)
    out = Stdout(context.stdout)
    if not out.terminal:
        workers = run.team.pool.names
        print_line(format_plan_file(run.question, run.trace.plan, limits, workers))
        if context.quiet and not flow:
            return
    printer = Printer(out if out.terminal else Stderr(context.stderr), context)
    screen = printer.screen
    printer.print(plan_lines(replace(describe_offer(run), limits=limits), screen))
    if flow:
        recipients = recipients_of(run.team.pool)
        printer.print([BLANK, *planned_flow_lines(planned_flow(run), recipients, screen)])
    if out.terminal:
        hints = []
        if context.stored and run.trace.stored:
            hints.append(f"run it: conductor ask --resume {run.id}")
        hints.append("to edit it as a file: conductor plan … > plan.json")
        printer.print([BLANK, *(((screen.line(hint), "quiet"),) for hint in hints)])


def print_stored_flow(
    store: Traces, run: str, step: int | None, *, color: ColorName, json: bool
) -> None:
    """Print which model read what in a stored run, or for one step of it. Raises `UsageError`."""
    sent = stored_flow(store, run, step)
    if json:
        print_json({"run": run, "recipients": flow_json(sent)})
        return
    context = OutputContext(color=color)
    printer = Printer(Stdout(sys.stdout), context)
    printer.print(flow_lines(sent, printer.screen))


MAX_ARGUMENT_CHARACTERS: Final = 1500  # Of the value of an argument that are shown
ROWS_AROUND: Final = 6  # Of the screen, for what stands around the arguments of a call
CHOICES: Final = "y: call it once, a: allow this tool for the whole run, n: refuse"
SHOW_FLOW: Final = "f: who reads what"
DROP: Final = "d: drop it"
LEAVE: Final = "l: leave it for now"
_VERDICTS: Final[dict[str, ToolVerdict]] = {
    "y": "once",
    "a": "always",
    "n": "no",
    "d": "no",
    "q": "no",
}
FILE_NAME: Final = "plan.json"
POLL_SECONDS: Final = (
    0.2  # Between two checks whether the run was stopped, while the editor is open
)


class Approver:
    """Asks a person about each plan and each call of a tool that a run offers.

    Opens the terminal; close it.

    From any thread, `wake` says that nobody waits for an answer any more, and `dismiss` that
    another process has decided about an offer.
    """

    def __init__(self, context: OutputContext) -> None:
        self._printer = Printer(Stderr(sys.stderr), context)
        self._keyboard = Keyboard()
        self.wake = self._keyboard.wake
        self.close = self._keyboard.close
        self._dismissed = list[Offer]()
        self._offer: Offer | None = None  # What is asked about now
        self._draft = ""
        """An edited plan that cannot be run. The editor opens on it, so that what the person wrote
        is not lost.
        """

    def dismiss(self, offer: Offer) -> None:
        """End the question about an offer: another process has decided about it."""
        self._dismissed.append(offer)
        self._keyboard.nudge()

    def _key(self, choices: str) -> str:
        """Return the key, in lower case, that a person presses once these choices are shown.

        Raises `NoAnswer`, and `DecidedElsewhere` once another process has answered.
        """
        while True:
            try:
                return self._keyboard.key(lambda: self._print_choices(choices)).lower()
            except NoAnswer as end:
                self._check_undecided()
                if not isinstance(end, Nudged):
                    raise

    def _check_undecided(self) -> None:
        """Raise `DecidedElsewhere` where another process has decided about the offer of now."""
        if self._offer in self._dismissed:
            self._print_question("This was decided elsewhere.")
            raise DecidedElsewhere

    def _print_question(self, text: str) -> None:
        screen = self._printer.screen
        self._printer.print(screen.styled_rows(text, "question"))

    def _print_choices(self, choices: str) -> None:
        """Print what may be pressed; a line is broken only between two choices where it can be."""
        screen = self._printer.screen
        lines = [""]
        for choice in choices.split(", "):
            longer = f"{lines[-1]}, {choice}".removeprefix(", ")
            if len(longer) < screen.width or not lines[-1]:  # a comma may follow
                lines[-1] = longer
            else:
                lines[-1] += ","
                lines.append(choice)
        for line in lines:
            self._print_question(line)

    def decide_tool(self, offered: ToolOffered) -> ToolVerdict:
        """Return what the person says. Without an answer the call is refused.

        Blocks, so call it on its own thread. Raises `DecidedElsewhere`.
        """
        return self.ask_about_tool(offered) or "no"

    def ask_about_tool(
        self, offered: ToolOffered, *, may_leave: bool = False
    ) -> ToolVerdict | None:
        """Return what the person says of a call; None without an answer.

        With `may_leave` they may leave it to somebody else. Raises `DecidedElsewhere`.
        """
        choices = CHOICES
        if may_leave:
            choices += f", {LEAVE}"
        self._offer = offered
        who = f"Step {offered.step}"
        if offered.worker:
            who = f"{short_name(offered.worker)} (step {offered.step})"
        head = f"{who} wants to call {one_line(offered.call.name)} of {one_line(offered.server)}:"
        self._printer.print([BLANK])
        self._print_question(head)
        rows = self._print_indented(argument_lines(offered.call))
        if rows + ROWS_AROUND > shutil.get_terminal_size().lines:
            self._print_question(head)  # its first place is not on the screen any more
        verdict: ToolVerdict | None = None
        with suppress(NoAnswer):
            # Enter is no answer: it may have been pressed for something else.
            while verdict is None:
                key = self._key(choices)
                if may_leave and key == "l":
                    return None
                verdict = _VERDICTS.get(key)
        return verdict

    def ask_about_plan(
        self, offered: PlanOffered, plan: PlanOffer, trace: Trace
    ) -> RunMessage | None:
        """Return what is to be said to another process about its plan; None without an answer.

        `trace` is that of its run. Raises `DecidedElsewhere`.
        """
        self._offer = offered
        may_change = may_edit_offered(trace)
        may_replan = may_replan_offered(trace)
        changes = _plan_choices(edit=may_change, replan=may_replan)
        choices = ", ".join((*changes, SHOW_FLOW, DROP, LEAVE))
        self._printer.print([BLANK, *plan_lines(plan, self._printer.screen), BLANK])
        with suppress(NoAnswer):
            while True:
                key = self._key(choices)
                if key in "ry\r\n":
                    return RunMessage("approve", offered.at)
                if key in "dnq":
                    return RunMessage("drop", offered.at)
                if key == "l":
                    return None
                if key == "e" and may_change:
                    text = self._edit_stored(trace)
                    if text:
                        return RunMessage("edit", offered.at, text)
                if key == "p" and may_replan:
                    feedback = self._ask_for_feedback()
                    if feedback:
                        return RunMessage("replan", offered.at, feedback)
                if key == "f":
                    self._print_flow(stored_planned_flow(trace), trace.pool)
        return None

    def _print_flow(self, flow: Sequence[Disclosure], pool: Pool) -> None:
        lines = planned_flow_lines(flow, recipients_of(pool), self._printer.screen)
        self._printer.print([BLANK, *lines, BLANK])

    def _ask_for_feedback(self) -> str:
        """Return what another plan should do otherwise; empty for nothing, and for too much."""
        self._print_question("What should be different? One line; an empty one goes back.")
        text = self._keyboard.text().strip()
        most = MAX_LINE_BYTES - 1
        if any(len(line.encode()) >= most for line in text.splitlines()):
            message = f"the terminal cuts a line after {most:,} bytes, so this remark is not whole"
            print_error(UsageError(message, hint="break it into shorter lines"))
            return ""
        if len(text) > MAX_TEXT_CHARACTERS:
            message = (
                f"the remark has {len(text):,} characters; {MAX_TEXT_CHARACTERS:,} can be sent"
            )
            print_error(UsageError(message, hint="say it in fewer words"))
            return ""
        return text

    def _edit_stored(self, trace: Trace) -> str:
        """Have the plan of another process edited; return its text, empty where it is as before.

        That process knows the rules of its run, and says why a plan cannot be run.
        """
        assert isinstance(trace.plan, Plan)

        edited = self._edit_plan(
            trace.question.text,
            trace.plan,
            trace.limits,
            trace.pool.names,
            partial(check_edited_offer, trace),
        )
        if edited is None:
            return ""
        text = format_plan_file(Question(text=""), edited, trace.limits, trace.pool.names)
        if len(text) > MAX_TEXT_CHARACTERS:
            message = f"the plan has {len(text):,} characters; {MAX_TEXT_CHARACTERS:,} can be sent"
            print_error(UsageError(message, hint="shorten its subtasks"))
            return ""
        return text

    def give_input(self, request: InputAsked) -> InputReply:
        """Return what the person answers to a server of tools. Without an answer it is told so.

        Blocks, so call it on its own thread.
        """
        self._offer = None
        server = one_line(request.server)
        self._printer.print([BLANK])
        self._print_question(f"{server} asks you for something. These are its own words:")
        self._print_indented(server_lines(request.message))
        try:
            if request.url:
                return self._visit(request.url)
            return self._fill_in(server, request.fields)
        except NoAnswer:
            return InputReply(action="cancel")

    def _visit(self, url: str) -> InputReply:
        """Show an address; it is opened only when the person says so. Raises `NoAnswer`."""
        try:
            host = one_line(reveal(urlsplit(url).hostname or url))
        except ValueError:  # half of an IPv6 address
            return InputReply(action="decline")
        self._print_question(f"It wants you to visit this address of {host}:")
        sys.stderr.write(f"{one_line(reveal(url))}\n")  # whole, so that it can be copied
        choices = "o: open it in the browser, y: I open it myself, n: decline"
        while True:
            key = self._key(choices)
            if key in "ndq":
                return InputReply(action="decline")
            if key == "o" and not open_browser(url):
                self._print_question("No browser is known here; open the address yourself.")
            elif key in "oy":
                return InputReply(action="accept")

    def _fill_in(self, server: str, fields: Sequence[InputField]) -> InputReply:
        """Ask for each field of a form, and whether it is sent. Raises `NoAnswer`."""
        names = ", ".join(one_line(field.title or field.name) for field in fields)
        if fields:
            self._print_question(f"It wants to know: {names}. It reads what you type.")
        if not self._confirms("y: answer, n: decline"):
            return InputReply(action="decline")
        values: dict[str, FieldValue] = {}
        for field in fields:
            value = self._value_of(field)
            if value is not None:
                values[field.name] = value
        self._print_question(f"This is sent to {server}:")
        shown = [f"{one_line(name)}: {value_text(value)}" for name, value in values.items()]
        self._print_indented(shown or ["(nothing)"])
        if not self._confirms("y: send it, n: decline"):
            return InputReply(action="decline")
        return InputReply(action="accept", values=values)

    def _confirms(self, choices: str) -> bool:
        """Return whether the person presses y, and not n. Raises `NoAnswer`."""
        while True:
            key = self._key(choices)
            if key in "yndq":  # Enter is no answer, as of a call of a tool
                return key == "y"

    def _value_of(self, field: InputField) -> FieldValue | None:
        """Return what the person types for a field; None for nothing. Raises `NoAnswer`."""
        self._print_indented(field_lines(field))
        while True:
            text = self._keyboard.line().strip() or field.default
            if not text and not field.required:
                return None
            try:
                if not text:
                    raise WrongValue("a value is needed; Ctrl-D cancels")
                return read_value(field, text)
            except WrongValue as problem:
                self._print_indented([str(problem)])

    def _print_indented(self, texts: Sequence[str]) -> int:
        """Print texts with an indent; returns how many rows of the screen they have."""
        screen = self._printer.screen
        lines: list[Line] = []
        for text in texts:
            lines += screen.styled_rows(text, "plain", indent="  ")
        self._printer.print(lines)
        return len(lines)

    def decide_plan(self, run: Run) -> Decision | None:
        """Return what the person decides about the plan on offer; None drops it.

        It blocks: call it on a thread. Raises `DecidedElsewhere`.
        """
        self._draft = ""
        self._offer = run.trace.offer
        if self._offer is None and not run.trace.ended:
            raise DecidedElsewhere
        try:
            self._printer.print(
                [BLANK, *plan_lines(describe_offer(run), self._printer.screen), BLANK]
            )
            while True:
                changes = _plan_choices(edit=run.may_edit_plan, replan=run.may_replan)
                key = self._key(", ".join((*changes, SHOW_FLOW, DROP)))
                if key in "dnq":
                    return None
                if key in "ry\r\n":  # many people type y at any question
                    return Decision()
                if key == "e" and run.may_edit_plan and (decision := self._edit(run)) is not None:
                    return decision
                if key == "p" and run.may_replan and (feedback := self._ask_for_feedback()):
                    return Decision(feedback=feedback)
                if key == "f":
                    self._print_flow(planned_flow(run), run.team.pool)
        except NoAnswer:
            self._check_undecided()
            return None

    def _edit(self, run: Run) -> Decision | None:
        """Have the plan edited.

        None where nothing was changed, or where the new plan cannot be run.
        """
        assert isinstance(run.trace.plan, Plan)
        edited = self._edit_plan(
            run.question.text, run.trace.plan, run.limits, run.team.pool.names, run.problem_with
        )
        if edited is None:
            return None
        return Decision(edited=edited)

    def _edit_plan(
        self,
        question: str,
        plan: Plan,
        limits: Limits,
        workers: Sequence[str],
        check: Callable[[Plan], Failure | None],
    ) -> Plan | None:
        """Return a plan as the person edits it.

        None where nothing was changed, or where `check` says why the new plan cannot be run.
        """
        # A plan file without the attachments and the history of the question.
        given = format_plan_file(Question(text=question), plan, limits, workers) + "\n"
        try:
            text = edit_text(
                self._draft or given, self._keyboard.file, lambda: self._keyboard.woken
            )
            if self._keyboard.woken:
                raise NoAnswer
            self._draft = text
            edited = parse_plan_file(text, FILE_NAME, workers)
            before = parse_plan_file(given, FILE_NAME, workers)
            if (edited.question, edited.limits) != (before.question, before.limits):
                hint = "to change them: conductor plan … > plan.json, edit, conductor run plan.json"
                message = (
                    f"{FILE_NAME}: only the steps can be changed here, not the question or "
                    "the limits"
                )
                raise UsageError(message, hint=hint)
            if failure := check(edited.plan):
                raise UsageError(f"{FILE_NAME}: {failure.message}", hint=failure.hint)
        except ConductorError as error:
            print_error(error)
            return None
        if edited.plan.steps == plan.steps:
            return None
        return edited.plan


def _plan_choices(*, edit: bool, replan: bool) -> list[str]:
    """Return what may be done with a plan on offer beside dropping it."""
    choices = ["Enter: run it"]
    if edit:
        choices.append("e: edit it")
    if replan:
        choices.append("p: plan again")
    return choices


def argument_lines(call: ToolCall) -> list[str]:
    """Return the arguments of a call, safe to show, a line for each line of their values."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return shorten(sanitize(reveal(call.arguments)), MAX_ARGUMENT_CHARACTERS).splitlines()
    lines = []
    for name, value in arguments.items():
        text = value
        if not isinstance(value, str):
            text = json.dumps(value, ensure_ascii=False)
        first, *rest = shorten(sanitize(reveal(text)), MAX_ARGUMENT_CHARACTERS).splitlines() or [""]
        lines += [f"{one_line(reveal(name))}: {first}", *(f"  {line}" for line in rest)]
    return lines or ["(no arguments)"]


def server_lines(text: str) -> list[str]:
    """Return the words of a server, safe to show, each line marked as not being conductor's."""
    lines = shorten(sanitize(reveal(text)), MAX_ARGUMENT_CHARACTERS).splitlines()
    return [f"| {line}" for line in lines] or ["| (nothing)"]


def field_lines(field: InputField) -> list[str]:
    """Return what a person needs to know to fill in a field."""
    facts = []
    if field.required:
        facts.append("needed")
    elif not field.default:
        facts.append("Enter leaves it out")
    if field.default:
        facts.append(f"Enter takes {one_line(reveal(field.default))}")
    if field.type == "boolean":
        facts.append("yes or no")
    elif field.type == "choices":
        facts.append("numbers with commas between them")
    elif field.type in ("number", "integer"):
        facts.append(_range_of(field) or _ARTICLES[field.type])
    if field.format:
        facts.append(one_line(reveal(field.format)))
    if field.pattern:
        facts.append(f"of the form {one_line(reveal(field.pattern))}")
    name = one_line(reveal(field.title or field.name))
    lines = [f"{name} ({', '.join(facts)})"]
    if field.about:
        lines += server_lines(field.about)
    for number, option in enumerate(field.options, 1):
        lines.append(f"{number}: {one_line(reveal(option.title or option.value))}")
    return lines


_ARTICLES: Final = {"number": "a number", "integer": "a whole number"}


def _range_of(field: InputField) -> str:
    noun = _ARTICLES[field.type]
    if field.minimum is not None and field.maximum is not None:
        return f"{noun} from {field.minimum:g} to {field.maximum:g}"
    if field.minimum is not None:
        return f"{noun} from {field.minimum:g} on"
    if field.maximum is not None:
        return f"{noun} up to {field.maximum:g}"
    return ""


def value_text(value: FieldValue) -> str:
    """Return a value as it is shown before it is sent."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return one_line(", ".join(value))
    return one_line(str(value))


def check_terminal() -> None:
    """Raise `UsageError` where nobody can be asked."""
    if not has_terminal():
        hint = 'conductor plan "…" > plan.json, read it, then: conductor run plan.json --no-approve'
        raise UsageError("there is no terminal on which to approve the plan", hint=hint)


def edit_text(text: str, terminal: int, stopped: Callable[[], bool], name: str = FILE_NAME) -> str:
    """Return `text` as the user's editor leaves it.

    Raises `ConfigError` where the editor cannot be started or fails.
    """
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="conductor-") as directory:
        file = Path(directory) / name
        file.write_text(text, encoding="utf-8")
        try:
            # The editor gets the terminal itself, since stdin and stdout may be pipes.
            with subprocess.Popen(  # noqa: S603 - the user's own command
                [*shlex.split(named), str(file)], stdin=terminal, stdout=terminal, stderr=terminal
            ) as editor:
                while editor.poll() is None:
                    with suppress(subprocess.TimeoutExpired):
                        editor.wait(POLL_SECONDS)
                    if stopped():
                        editor.terminate()
            edited = file.read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            message = f"the editor {named!r:.60} cannot be used: {describe_system_error(error)}"
            raise ConfigError(
                message, hint="name another, for example: export EDITOR=nano"
            ) from None
    if editor.returncode:
        raise ConfigError(
            f"the editor {named!r:.60} exited with code {editor.returncode}; nothing is changed"
        )
    return edited
