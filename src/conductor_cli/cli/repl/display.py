"""What the slash commands print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from conductor_cli.app.data_flow import describe_offer
from conductor_cli.cli.output import print_line, print_notice, print_table, print_text
from conductor_cli.config import Setting, Settings, format_value
from conductor_cli.core.errors import UsageError
from conductor_cli.core.formatting import format_cost, format_count
from conductor_cli.core.rerun import check_step_exists
from conductor_cli.core.usage import NO_USAGE
from conductor_cli.models.presets import recipient_of
from conductor_cli.views.base import Stdout
from conductor_cli.views.console import Printer
from conductor_cli.views.plan_offer import plan_lines
from conductor_cli.views.run_text import describe_access, question_line
from conductor_cli.views.text_layout import BLANK
from conductor_cli.views.trace_text import step_text, trace_text

if TYPE_CHECKING:
    from conductor_cli.core.question import File
    from conductor_cli.core.trace import Trace
    from conductor_cli.core.usage import Usage
    from conductor_cli.run import Conductor, Run
    from conductor_cli.views import OutputContext

KEYS: Final = (
    ("Enter", "ask"),
    ("Alt-Enter, or \\ Enter", "a new line; what is pasted keeps its lines"),
    ("Ctrl-X Ctrl-E", "go on in your editor ($VISUAL, $EDITOR)"),
    ("Up, Ctrl-R", "what was typed before"),
    ("Tab", "complete a command, worker, step, run or file"),
    ("Ctrl-C", "stop the run and keep what is done; twice: leave. At the prompt: clear the line"),
    ("Ctrl-D", "leave"),
)
MODES: Final = {
    "mini": "one worker, without a written plan",
    "auto": "a plan of up to five steps",
    "ultra": "the conductor reasons first and reviews the answer",
}


def mode(name: str) -> str:
    """What a mode means."""
    return f"{name}: {MODES[name]}"


def help_(commands: Iterable[tuple[str, str]]) -> None:
    """The commands, then the keys."""
    print_table(("COMMAND", ""), list(commands))
    print_line()
    print_table(("KEY", ""), KEYS)


def workers(conductor: Conductor) -> None:
    """The pool, and who of it cannot be asked."""
    absent = conductor.absent
    rows = [[worker.name, recipient_of(worker), worker.about or worker.model] for worker in conductor.pool]
    print_table(("WORKER", "READ BY", "ABOUT"), rows)
    for name, why in absent.items():
        print_notice(f"{name} is left out: {why.message}")


def plan(trace: Trace) -> None:
    """The steps of a run as they were planned, and how far they are."""
    if not trace.steps:
        raise UsageError(f"run {trace.run} has no steps", hint="/trace shows what it has")
    for record in trace.steps:
        print_text(f"{record.number}  {record.worker}, {describe_access(record.step.access)}: {record.state}")
        print_text(f"   {record.step.subtask}")


def offer(run: Run, around: OutputContext) -> None:
    """A plan that was only made: who does what, who reads it, what it may cost."""
    printer = Printer(Stdout(around.stdout), around)
    printer.print([BLANK, *plan_lines(describe_offer(run), printer.screen), BLANK])


def trace(found: Trace, step: int | None = None) -> None:
    """A run on a page, or one step of it with its whole prompt and answer. Raises `UsageError`."""
    if step is not None:
        check_step_exists(found, step)
    print_text(trace_text(found) if step is None else step_text(found, step))


def unfinished(run: Trace) -> None:
    """How a run that was broken off is finished in this chat."""
    if run.error is not None and len(run.done()) < len(run.steps):
        print_notice(f"  here: {'/limits NAME VALUE, then ' if run.error.kind == 'limit' else ''}/redo")


def cost(runs: Sequence[Trace]) -> None:
    """What each run has used, and all together."""
    if not runs:
        print_notice("nothing was asked yet")
        return
    rows = [[str(number), *_figures(run.usage), question(run)] for number, run in enumerate(runs, start=1)]
    rows.append(["all", *_figures(sum((run.usage for run in runs), NO_USAGE)), ""])
    print_table(("RUN", "CALLS", "TOKENS", "COST", "QUESTION"), rows)
    print_notice("of all days and runs: conductor cost")


def _figures(usage: Usage) -> list[str]:
    return [f"{usage.calls:,}", f"{usage.tokens:,}", format_cost(usage) or "-"]


def limits(known: Sequence[Setting], settings: Settings) -> None:
    """Every limit of a run with where it is from."""
    rows = []
    for limit in known:
        origin = settings.origins[limit.name].replace("command line", "this chat")
        rows.append([limit.name.partition(".")[2], format_value(settings[limit.name]), origin, limit.help])
    print_table(("LIMIT", "VALUE", "FROM", ""), rows)


def files(new: Sequence[File], old: Sequence[File]) -> None:
    """What goes with the next question, and what went with earlier ones and still does."""
    for file in (*old, *new):
        state = "goes with the next question" if file in new else "goes along since an earlier question"
        print_notice(f"{file.name}: {len(file.text):,} characters, {state}")
    if not new and not old:
        print_notice("no file is attached")


def question(asked: Trace, length: int = 60) -> str:
    """The head of a run's question."""
    line = question_line(asked)
    return line if len(line) <= length else f"{line[: length - 4]} ..."


def standing(turns: Sequence[Trace]) -> str:
    """How much of a conversation there is."""
    count = len(turns) + sum(len(trace.question.history) for trace in turns[:1])
    return f"the conversation has {format_count(count, 'question')}" if count else "the conversation is empty"


def conversation(turns: Sequence[Trace]) -> str:
    """A conversation as Markdown: questions as headings' text, answers as they came."""
    earlier = [(turn.question, turn.answer) for trace in turns[:1] for turn in trace.question.history]
    pairs = [*earlier, *((trace.question.text, trace.answer) for trace in turns)]
    parts = [f"## Question {number}\n\n{asked}\n\n## Answer {number}\n\n{answer}" for number, (asked, answer) in
             enumerate(pairs, start=1)]  # fmt: skip
    return "\n\n".join([f"# Conversation of run {turns[-1].run}", *parts, ""])
