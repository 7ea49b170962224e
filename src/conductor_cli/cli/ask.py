"""`conductor ask`, `plan` and `run`: a question, its plan, and a plan from a file or a pipe."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from conductor_cli.cli import options as opt
from conductor_cli.cli.approval import print_plan
from conductor_cli.cli.background import start_in_background
from conductor_cli.cli.memory import memory_context
from conductor_cli.cli.output import print_line
from conductor_cli.cli.session import (
    STDIN,
    STDIN_NAME,
    Session,
    attach_files,
    build_question,
    join_words,
    read_limited_text,
    read_text_file,
    require_schema,
)
from conductor_cli.core.continuation import is_complete
from conductor_cli.core.errors import UsageError
from conductor_cli.core.plan import Plan
from conductor_cli.core.plan_file import parse_plan_file
from conductor_cli.core.trace import Trace

if TYPE_CHECKING:
    from conductor_cli.app.templates import Template

SEARCHED_RUNS: Final = 50  # Among so many newest runs a stopped one is looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOptions:
    """The options of `conductor ask` that say what is asked, and of which run."""

    question: opt.Words = None
    model: opt.PlainModel = None
    template: Annotated[
        str | None,
        opt.option("--template -t", "Ask by a template: conductor template list.", "NAME"),
    ] = None
    param: Annotated[
        list[str] | None,
        opt.option("--param -p", "What $NAME in the template is; may be repeated.", "NAME=VALUE"),
    ] = None
    file: opt.Files = None
    clipboard: opt.Clipboard = False
    memory: opt.Memory = None
    system: opt.System = None
    continued: opt.Continue = False
    continue_from: opt.ContinueFrom = None
    resume: Annotated[
        str | None,
        opt.option(
            "--resume", "Finish a run that was stopped; finished steps are not repeated.", "ID"
        ),
    ] = None
    schema: Annotated[
        Path | None,
        opt.option("--schema", "JSON Schema of the answer; exit code 7 if it breaks it.", "FILE"),
    ] = None
    check: opt.Check = None
    background: Annotated[
        bool,
        opt.option("--bg", "Run it in the background and print its id; see trace attach and wait."),
    ] = False

    @property
    def words(self) -> list[str]:
        return self.question or []

    @property
    def paths(self) -> list[str]:
        return opt.with_clipboard(self.file, self.clipboard)

    @property
    def asks_anew(self) -> bool:
        """Whether one of them belongs to a new question, which `--resume` does not ask."""
        names_question = self.question or self.template or self.paths
        says_how = self.system or self.schema
        return bool(names_question or says_how or self.continued or self.continue_from)


@opt.with_options()
def ask_command(context: typer.Context, options: opt.RunOptions, request: AskOptions) -> None:
    """Ask a question: plan it, run the plan over the workers, print the answer."""
    if request.resume is not None and request.asks_anew:
        hint = "to ask a new question in the same conversation: --continue"
        raise UsageError("--resume takes no question: it finishes the stored one", hint=hint)
    flags = options.settings() | opt.check_flags({"learning.check": request.check})
    session = Session(context.obj, options, flags, model=request.model)
    if request.background and session.background is None:
        raise typer.Exit(_ask_in_background(session))
    if request.resume is not None:
        raise typer.Exit(_finish_run(session, request.resume, options.worker_names))
    raise typer.Exit(_ask(session, request, options.worker_names))


def _ask(session: Session, request: AskOptions, only: tuple[str, ...]) -> int:
    """Ask the question of a command line, and return the exit code."""
    run = opt.run_to_continue(request.continued, request.continue_from, request.words)
    earlier = _earlier_run(session, run)
    words = request.words
    system = request.system
    plan = None
    schema = None
    if request.template is not None:
        template = _fill_template(session, request.template, request, only)
        words = [template.question, *(word for word in words if word == STDIN)]
        if system is None:
            system = template.system or None
        only = only or template.workers
        plan = template.plan
        schema = template.schema
    elif request.param:
        raise UsageError("--param goes with --template", hint="conductor template list")
    question = build_question(
        session, words, request.paths, system=system, schema=request.schema, earlier=earlier
    )
    question = replace(question, context=memory_context(session, request.memory))
    if request.schema is None and schema is not None:
        question = replace(question, schema=schema)
    if question.schema is not None:
        require_schema(question.schema)
    return session.run(question, only=only, plan=plan).exit_code


def _finish_run(session: Session, run: str, only: tuple[str, ...]) -> int:
    """Finish a run that was stopped, and return the exit code."""
    stopped = session.read_ended(run)
    if is_complete(stopped):
        session.tell(_describe_complete(stopped, session))
    return session.run(stopped.question, only=only, resume=stopped).exit_code


def _earlier_run(session: Session, run: str | None) -> Trace | None:
    """Return the run that a question continues, whose policy the session keeps."""
    if run is None:
        return None
    earlier = session.read_ended(run)
    session.keep_policy(earlier)
    return earlier


def _fill_template(
    session: Session, name: str, request: AskOptions, only: tuple[str, ...]
) -> Template:
    """Return a template with its values. Raises `UsageError`, also where `--model` forbids it."""
    from conductor_cli.cli.template import open_template  # most questions have none

    question = join_words(request.words)
    filled = open_template(session, name, request.param or (), question, only)
    if request.model is not None and (filled.plan or filled.workers):
        raise UsageError(
            f"--model is one call of one worker, and the template {name} says who answers",
            hint="leave one of them out; the template's parameters may name other workers: -p",
        )
    return filled


def _ask_in_background(session: Session) -> int:
    """Start the command again in the background, print the id of its run, return the exit code."""
    if not session.stores_traces:
        hint = "leave --no-trace out; or: conductor config set traces.keep auto"
        raise UsageError("--bg needs a trace: the answer is nowhere else", hint=hint)
    if session.output != "answer":
        hint = "conductor trace show RUN --json prints the run once it has ended"
        raise UsageError("--bg prints no answer, so it takes no --format", hint=hint)
    code, run = start_in_background()
    if run:
        print_line(run)
        session.tell(
            f"the run goes on in the background; to watch it: conductor trace attach {run}"
        )
        session.tell(f"to wait for its end: conductor trace wait {run}")
        session.tell(f"to end it: conductor trace cancel {run}")
    return code


def _describe_complete(trace: Trace, session: Session) -> str:
    """Return that a run has nothing left to do, and which one has."""
    text = f"run {trace.run} is finished already, so no worker is asked again"
    rows, _ = session.store.newest(count=SEARCHED_RUNS)
    for row in rows:
        if row.state not in ("finished", "running"):
            return f"{text}; the last one that was stopped: conductor ask --resume {row.run}"
    return text


@opt.with_options(omit=("mode", "max_steps"))
def run_command(
    context: typer.Context,
    options: opt.RunOptions,
    file: Annotated[str, opt.argument("PLAN.json|-", "A plan file; - reads it from stdin.")] = "-",
    question: Annotated[
        list[str] | None,
        opt.argument("QUESTION", "Replaces the plan's question; - attaches stdin."),
    ] = None,
    files: opt.Files = None,
    clipboard: opt.Clipboard = False,
    check: opt.Check = None,
) -> None:
    """Run a plan from a file or a pipe, as conductor plan wrote it or edited.

    A question or files on the command line replace those of the plan, so that one plan serves many
    inputs. The limits in a plan can lower yours and never raise them.
    """
    on_stdin = file == STDIN
    source = "stdin" if on_stdin else file
    text = _read_plan_text(file)
    session = Session(
        context.obj, options, options.settings() | opt.check_flags({"learning.check": check})
    )
    workers = session.settings.worker_names
    planned = parse_plan_file(text, source, workers)
    for notice in planned.notices:
        session.tell(f"{source}: {notice}")
    limits = opt.check_flags(planned.limits, source)
    session.lower_limits(limits, source)
    # What the command line names stands in place of the plan's question and files.
    words = question or ()
    paths = opt.with_clipboard(files, clipboard)
    attached = attach_files(session, paths)
    if STDIN in words or STDIN in paths:
        if on_stdin:
            raise UsageError(
                "stdin cannot be the plan and a file",
                hint="name the plan: conductor run PLAN.json -",
            )
        attached.insert(0, session.attacher.attach_stream(sys.stdin.buffer, STDIN_NAME))
    replaced = join_words(words) or planned.question.text
    full_question = replace(
        planned.question, text=replaced, files=tuple(attached) or planned.question.files
    )
    if not full_question.text.strip():
        raise UsageError(
            f"{source} is not a plan: its question is empty", hint="conductor plan writes one"
        )
    only = options.worker_names
    raise typer.Exit(session.run(full_question, only=only, plan=planned.plan).exit_code)


def _read_plan_text(file: str) -> str:
    """Return what a plan file holds, or stdin where that is named. Raises `UsageError`."""
    if file != STDIN:
        return read_text_file(Path(file), hint="name a plan file, or - for stdin")
    if sys.stdin.isatty():
        raise UsageError("no plan was piped to stdin", hint='conductor plan "…" | conductor run -')
    return read_limited_text(sys.stdin.buffer, "stdin")


@opt.with_options(
    omit=("recursion", "max_cost", "max_tokens", "max_calls", "max_time", "approve", "format")
)
def plan_command(
    context: typer.Context,
    options: opt.RunOptions,
    question: opt.Words = None,
    file: opt.Files = None,
    clipboard: opt.Clipboard = False,
    system: opt.System = None,
    flow: opt.Flow = False,
) -> None:
    """Plan a question.

    Print the plan and its estimated cost, or write the plan for conductor run to a file or pipe.
    """
    only = options.worker_names
    session = Session(context.obj, options)
    paths = opt.with_clipboard(file, clipboard)
    full_question = build_question(session, question or (), paths, system=system)
    result = session.run(full_question, only=only, plan_only=True)
    if not isinstance(result.run.trace.plan, Plan) or result.exit_code != 0:
        raise typer.Exit(result.exit_code or 1)
    print_plan(result.run, session.settings.limits, session.output_context, flow=flow)
