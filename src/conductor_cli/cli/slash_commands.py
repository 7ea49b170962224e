"""The slash commands of a chat: what each does, and what Tab offers for it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from conductor_cli.app.planner_resolution import open_model_store, resolve_planner
from conductor_cli.app.traces import describe_offer, export_conversation
from conductor_cli.app.worker_tools import TOOLS_SETTING, list_tool_servers
from conductor_cli.cli import output as out
from conductor_cli.cli.chat_prompt import ChatEnded
from conductor_cli.cli.chat_session import ChatSession
from conductor_cli.cli.options import check_flags
from conductor_cli.cli.session import decode_argument, pasted_file
from conductor_cli.config.schema import SETTINGS
from conductor_cli.config.settings import find_setting, format_value
from conductor_cli.core.bounded_parsing import parse_whole_number
from conductor_cli.core.continuation import check_step_exists
from conductor_cli.core.errors import ConductorError, ConfigError, UsageError
from conductor_cli.core.formatting import format_cost, format_count, without_file_hash
from conductor_cli.core.learning import Verdict, describe_rating
from conductor_cli.core.mappings import names_of
from conductor_cli.core.plan import Plan
from conductor_cli.core.trace import Trace, describe_left_out
from conductor_cli.models.recipients import recipient_of
from conductor_cli.state.interfaces import is_editor_session
from conductor_cli.state.stored_run import OFFERED_NAMES, run_names
from conductor_cli.system.terminal_tables import Column, terminal_width
from conductor_cli.views.base import Stdout
from conductor_cli.views.plan_text import plan_lines
from conductor_cli.views.run_text import describe_file, question_line, shorten_line
from conductor_cli.views.text_layout import BLANK, Printer, page_screen
from conductor_cli.views.trace_text import step_lines, trace_lines

KEYS: Final = (
    ("Enter", "ask"),
    ("Alt-Enter, or \\ Enter", "start a new line; pasted text keeps its lines"),
    ("Ctrl-X Ctrl-E", "continue in your editor ($VISUAL, $EDITOR)"),
    ("Up, Ctrl-R", "find earlier messages"),
    ("/, Tab", "list the commands, complete a command, worker, step, run or file"),
    ("Ctrl-C", "stop the run and keep finished steps; at the prompt: clear the line"),
    ("Ctrl-D, Ctrl-Z", "leave, suspend"),
)
MODES: Final = {
    "mini": "one worker, without a plan",
    "auto": "a plan of up to five steps",
    "ultra": "the planner reasons first and reviews the answer",
}


def describe_conversation(turns: Sequence[Trace]) -> str:
    """Return how many questions a conversation has."""
    count = len(turns) + sum(len(run.question.history) for run in turns[:1])
    return f"the conversation has {format_count(count, 'question')}"


Offer = Iterable[tuple[str, str]]  # What Tab may offer: words, each with a description


@dataclass(frozen=True, slots=True, kw_only=True)
class SlashCommand:
    """One command.

    `act` gets the words after its name; `offers` has what Tab offers for each of them, in order.
    """

    name: str
    takes: str = ""
    help: str
    act: Callable[[ChatSession, str], Awaitable[None]]
    offers: tuple[Callable[[ChatSession], Offer], ...] = ()
    takes_file: bool = False


MAX_NAMED: Final = 20  # Names of conversations that `/name` lists
ALL_WORKERS: Final = "all"  # What `/workers` takes for every worker

DROPPED: Final = {
    "edit": (
        "it was dropped: Up and Ctrl-R bring earlier messages back, Ctrl-X Ctrl-E opens your editor"
    ),
}
"""Commands of the release before, and what to use instead."""

RENAMED: Final = {"conductor": "planner"}
"""Earlier names of commands, which work on."""

LIMITS: Final = tuple(
    item for item in SETTINGS if item.name.startswith("limits.") and not item.name.endswith("_day")
)


def find_command(line: str) -> tuple[SlashCommand, str] | None:
    """Return the command of a line and the words after its name; None for a question.

    A line that is only the path of a file attaches it, as if `/attach` stood before it. A line such
    as `/etc/hosts: what is it?` is a question: no command has a second slash or a line break in its
    name. Raises `UsageError`.
    """
    path = pasted_file(line)
    if path is not None:
        return COMMANDS["attach"], path
    name, _, argument = line.removeprefix("/").partition(" ")
    # A bare slash is looked up as a command too, so that its error lists what there is.
    if not line.startswith("/") or not (name.isalpha() or not name):
        return None
    if name in RENAMED:
        out.print_notice(f"/{name} is called /{RENAMED[name]} now; the earlier name works on")
        name = RENAMED[name]
    if name not in COMMANDS:
        raise UsageError(f"unknown command /{name}", hint=_hint_for(name))
    command = COMMANDS[name]
    argument = argument.strip()
    if argument and not command.takes:
        message = f"/{name} takes nothing, not {argument!r:.40}"
        raise UsageError(message, hint="to ask it as a question, put a space first")
    return command, argument


def _hint_for(name: str) -> str:
    """Return what to type instead of a command that there is not."""
    if name in DROPPED:
        return DROPPED[name]
    near = get_close_matches(name, COMMANDS, n=1)
    if near:
        return f"did you mean /{near[0]}?"
    return "/help lists the commands; to ask it as a question, put a space first"


async def _mode(chat: ChatSession, argument: str) -> None:
    if argument:
        _check_planned(chat, "mode")
        if argument not in MODES:
            raise UsageError(f"unknown mode {argument!r:.40}", hint=f"known: {', '.join(MODES)}")
        await chat.change({"conductor.mode": argument})
    mode = chat.session.settings["conductor.mode"]
    out.print_notice(f"{mode}: {MODES[mode]}")


async def _workers(chat: ChatSession, argument: str) -> None:
    names = tuple(argument.replace(",", " ").split())
    if names:
        _check_planned(chat, "workers")
    if names == (ALL_WORKERS,):
        await chat.change({}, ())
    elif names:
        await chat.change({}, names)
    orchestra = await chat.open()
    rows = []
    for worker in orchestra.team.pool:
        rows.append([worker.name, recipient_of(worker), worker.about or worker.model_name])
    out.print_table(
        (Column("WORKER", shrink=12), Column("READ BY", shrink=12, drop=1), "ABOUT"), rows
    )
    for name, failure in orchestra.team.unavailable.items():
        out.print_notice(describe_left_out(name, failure))


async def _model(chat: ChatSession, argument: str) -> None:
    if argument == "-":
        await chat.use_model(None)
    elif argument:
        await chat.use_model(argument)
    if chat.model is None:
        out.print_notice("questions are planned; /model NAME has one worker answer in one call")
        return
    (worker,) = (await chat.open()).team.pool
    reader = recipient_of(worker)
    out.print_notice(f"{worker.name} ({reader}) answers in one call; /model - plans again")


def _check_planned(chat: ChatSession, command: str) -> None:
    """Raise `UsageError` for a command about plans where none is made."""
    if chat.model is not None:
        message = f"/{command} has no effect: {chat.model} answers each question in one call"
        raise UsageError(message, hint="/model - has questions planned again")


async def _plan(chat: ChatSession, argument: str) -> None:
    _check_planned(chat, "plan")
    if not argument:
        raise UsageError("/plan needs a question", hint="/trace shows the plan of the last run")
    if (await chat.open()).team.model is None:
        resolve_planner(chat.session.settings)  # which raises what is to be done
    result = await chat.ask(argument, plan_only=True)
    if result.exit_code == 0 and isinstance(result.run.trace.plan, Plan):
        around = chat.session.output_context
        printer = Printer(Stdout(around.stdout), around)
        printer.print([BLANK, *plan_lines(describe_offer(result.run), printer.screen), BLANK])
        out.print_notice("/redo runs this plan; another question gets a new plan")


async def _redo(chat: ChatSession, argument: str) -> None:
    number, _, worker = argument.partition(" ")
    if not number:
        await chat.finish()
    elif (step := parse_whole_number(number)) is not None:
        await chat.redo(step, worker.strip() or None)
    else:
        hint = "for example: /redo 2, or on another worker: /redo 2 NAME"
        raise UsageError(f"{argument!r:.40} is not a step", hint=hint)


async def _trace(chat: ChatSession, argument: str) -> None:
    is_step = argument.isdecimal() and len(argument) == 1
    run = chat.last if is_step or not argument else _stored_run(chat, argument)
    screen = page_screen(terminal_width(sys.stdout), sys.stdout.encoding, os.environ)
    if is_step:
        check_step_exists(run, int(argument))
        lines = step_lines(run, int(argument), screen=screen)
    else:
        lines = trace_lines(run, screen=screen)
    out.print_page(lines, chat.session.output_context)


def _stored_run(chat: ChatSession, text: str) -> Trace:
    store = chat.session.store
    return store.trace(store.find(text))


def _rating(verdict: Verdict) -> Callable[[ChatSession, str], Awaitable[None]]:
    async def rate(chat: ChatSession, argument: str) -> None:
        step = parse_whole_number(argument or "0")
        if step is None:
            hint = f"for example: /{verdict}, or of one step: /{verdict} 2"
            raise UsageError(f"{argument!r:.40} is not a step", hint=hint)
        out.print_notice(describe_rating(await chat.rate(verdict, step)))

    return rate


async def _cost(chat: ChatSession, _: str) -> None:
    rows = []
    for number, run in enumerate(chat.runs, start=1):
        rows.append((str(number), run.usage, question_line(run)))
    rows.append(("all", chat.spent(), ""))
    cells = []
    for label, usage, question in rows:
        counts = (f"{usage.calls:,}", f"{usage.tokens:,}")
        cells.append([label, *counts, format_cost(usage), shorten_line(question, 60)])
    columns = (
        Column("RUN"),
        Column("CALLS", drop=2),
        Column("TOKENS", drop=1),
        Column("COST", shrink=10),
    )
    out.print_table((*columns, Column("QUESTION", shrink=16)), cells)
    out.print_notice("for other days and runs: conductor cost")


async def _limits(chat: ChatSession, argument: str) -> None:
    if argument:
        await _set_limit(chat, argument)
    settings = chat.session.settings
    rows = []
    for limit in LIMITS:
        origin = settings.origins[limit.name].replace("command line", "this chat")
        name = limit.name.removeprefix("limits.")
        rows.append([name, format_value(settings[limit.name]), origin, limit.help])
    out.print_table((Column("LIMIT"), Column("VALUE"), Column("FROM", drop=1), ""), rows)


async def _set_limit(chat: ChatSession, argument: str) -> None:
    """Set a limit by its name and value; `-` resets it."""
    key, _, value = argument.partition(" ")
    name = f"limits.{key}"
    names = names_of(LIMITS)
    if name not in names or not value:
        listed = ", ".join(names).replace("limits.", "")
        hint = f"for example: /limits calls 5; - resets it; known: {listed}"
        raise UsageError(f"/limits takes a limit and its value, not {argument!r:.40}", hint=hint)
    if value == "-":
        await chat.change({name: None})
        return
    try:
        amount = find_setting(name).parse(value.removeprefix("$"))
    except ConfigError as error:
        raise UsageError(error.message, hint=error.hint) from None
    await chat.change(check_flags({name: amount}, "/limits"))


async def _tools(chat: ChatSession, argument: str) -> None:
    if argument:
        names = ",".join(argument.replace(",", " ").split())
        await chat.change(check_flags({TOOLS_SETTING: names}, "/tools"))
    pool = (await chat.open()).team.pool
    rows = []
    for row in list_tool_servers(chat.session.settings):
        users = [worker.name for worker in pool if row.name in worker.tools]
        rows.append([row.name, ", ".join(users) or "nobody", row.where])
    if rows:
        out.print_table((Column("TOOLS", shrink=12), Column("USED BY", shrink=12), "SERVER"), rows)
    else:
        out.print_notice("there are no tools; to add some: conductor tools add NAME")


async def _planner(chat: ChatSession, argument: str) -> None:
    if chat.rehearsal:
        raise UsageError(
            "the demo models plan by themselves", hint="without --demo any model can plan"
        )
    _check_planned(chat, "planner")
    if argument == "-":
        await chat.change({"planner.model": None})
    elif argument:
        await chat.change(check_flags({"planner.model": argument}))
    orchestra = await chat.open()
    out.print_notice(f"{without_file_hash(orchestra.team.name)} plans")


async def _system(chat: ChatSession, argument: str) -> None:
    if argument:
        chat.system = "" if argument == "-" else decode_argument(argument, "what was typed")
    if chat.system:
        out.print_notice(f"every worker is told: {chat.system}")
    else:
        out.print_notice("there is no system text")


def _unquoted(path: str) -> str:
    """Return a path as a shell would read it, where it is written as for one.

    A file whose name has the quotes itself goes before.
    """
    is_quoted = path[:1] in ("'", '"') or "\\ " in path
    if not is_quoted:
        return path
    with suppress(OSError, ValueError):  # too long for a name; a quote that is not closed
        words = shlex.split(path)
        if len(words) == 1 and not Path(path).exists():
            return words[0]
    return path


async def _attach(chat: ChatSession, argument: str) -> None:
    if argument:
        # On this thread, so that a signal ends it.
        chat.files.extend(
            chat.session.attacher.attach_all(pasted_file(argument) or _unquoted(argument))
        )
    for file in chat.files:
        out.print_notice(f"{describe_file(file)} goes with each question until /detach")
    if not chat.files:
        out.print_notice("no file is attached")


async def _detach(chat: ChatSession, argument: str) -> None:
    kept = []
    for file in chat.files:
        if argument and file.name != argument:
            kept.append(file)
    if len(kept) == len(chat.files):
        message = "no file is attached"
        if argument:
            message = f"no file {argument:.60} is attached"
        raise UsageError(message, hint="/attach lists those that are")
    chat.files[:] = kept
    if kept:
        out.print_notice(f"{format_count(len(kept), 'file')} left")
    else:
        out.print_notice("no file is attached any more")


async def _new(chat: ChatSession, _: str) -> None:
    tell_how_to_go_on(chat)
    await chat.begin_again()
    if chat.system:
        out.print_notice("a new conversation, with the same system text")
    else:
        out.print_notice("a new conversation")


def tell_how_to_go_on(chat: ChatSession) -> None:
    """Say how this conversation is gone on with from outside, where it is stored."""
    last = chat.turns[-1] if chat.turns else None
    if last is not None and last.stored and chat.session.stores_traces and not chat.rehearsal:
        how = f"--name {chat.name}" if chat.name else f"--continue-from {last.run}"
        chat.session.tell(f"to go on with it: conductor chat {how}")


async def _name(chat: ChatSession, argument: str) -> None:
    turns = len(chat.turns)
    if argument:
        chat.use_name(argument)
        if len(chat.turns) > turns:  # with the policy of the run that it ended with
            await chat.change({})
            out.print_notice(f"going on with {argument}: {describe_conversation(chat.turns)}")
        else:
            out.print_notice(f"this conversation is called {argument}")
        return
    out.print_notice(
        f"this conversation is called {chat.name}" if chat.name else "this conversation has no name"
    )
    named = _named(chat)
    if named:
        out.print_table((Column("NAME", shrink=12), "LAST RUN"), named[:MAX_NAMED])
        if len(named) > MAX_NAMED:
            out.print_notice(f"the last {MAX_NAMED} of {len(named):,} names are listed")
        out.print_notice(
            "/new, then /name NAME goes on with one; outside: conductor chat --name NAME"
        )


def _named(chat: ChatSession) -> list[tuple[str, str]]:
    """Return the names that persons gave, with the last run of each, the newest first."""
    names = chat.session.conversations.read()
    return [(name, run) for name, run in names.items() if not is_editor_session(name)]


async def _copy(chat: ChatSession, _: str) -> None:
    if not chat.turns:
        raise UsageError("there is no answer to copy yet", hint="type a question")
    out.print_notice(out.copy_to_clipboard(chat.turns[-1].answer))


async def _save(chat: ChatSession, argument: str) -> None:
    if not chat.turns:
        raise UsageError("there is nothing to save yet", hint="type a question")
    first = chat.turns[0]
    last = chat.turns[-1]
    text = export_conversation((*first.question.history, *chat.turns), last.run)
    path = Path(_unquoted(argument) or f"chat-{first.run}.md").expanduser()  # noqa: ASYNC240 - a moment
    try:
        with path.open("x", encoding="utf-8") as file:  # nothing is overwritten
            file.write(text)
    except OSError as error:
        hint = "name another file: /save FILE"
        raise UsageError(f"{path} cannot be written: {error.strerror}", hint=hint) from None
    out.print_notice(f"saved as {path}")


async def _undo(chat: ChatSession, _: str) -> None:
    out.print_notice(f"removed: {shorten_line(question_line(chat.undo()), 60)}")
    out.print_notice(describe_conversation(chat.turns))


async def _help(*_: object) -> None:
    rows = []
    for command in COMMANDS.values():
        rows.append((f"/{command.name} {command.takes}".strip(), command.help))
    out.print_table(("COMMAND", ""), rows)
    out.print_line()
    out.print_table(("KEY", ""), KEYS)


async def _exit(*_: object) -> None:
    raise ChatEnded


def _offer_pool(chat: ChatSession) -> Offer:
    if chat.orchestra is not None:
        return [(worker.name, worker.about) for worker in chat.orchestra.team.pool]
    workers = chat.choosable_workers().items()
    return [(name, about) for name, about in workers if not chat.only or name in chat.only]


def _offer_tools(chat: ChatSession) -> Offer:
    servers = [(row.name, row.where) for row in list_tool_servers(chat.session.settings)]
    return [*servers, ("none", ""), ("auto", "")]


def _offer_planners(chat: ChatSession) -> Offer:
    settings = chat.session.settings
    offers = []
    for manifest in open_model_store(settings).manifests():
        offers.append((manifest.name, "on this machine"))
    for item in settings.workers:
        offers.append((item.worker.name, item.worker.about))
    return offers


def _offer_steps(chat: ChatSession) -> Offer:
    try:
        steps = chat.last.steps
    except UsageError:
        return []
    return [(str(record.number), f"{record.worker}: {record.step.subtask}") for record in steps]


def _offer_steps_and_runs(chat: ChatSession) -> Offer:
    runs: list[str] = []
    paths = chat.session.settings.paths
    with suppress(OSError, ConductorError):
        newest = chat.session.store.newest(count=OFFERED_NAMES)[0] if paths.database else []
        runs = ["last", *(row.run for row in newest)] if newest else run_names(str(paths.traces))
    return [*_offer_steps(chat), *((run, "") for run in runs)]


COMMANDS: Final = {
    command.name: command
    for command in (
        SlashCommand(name="help", help="list commands and keys", act=_help),
        SlashCommand(name="new", help="begin a new conversation, without files", act=_new),
        SlashCommand(
            name="name",
            takes="[NAME]",
            help="name this conversation, go on with a named one, or list them",
            act=_name,
            offers=(_named,),
        ),
        SlashCommand(
            name="mode",
            takes="[mini|auto|ultra]",
            help="show or set how questions are planned",
            act=_mode,
            offers=(lambda _: MODES.items(),),
        ),
        SlashCommand(
            name="workers",
            takes="[A,B|all]",
            help="show or set the workers",
            act=_workers,
            offers=(
                lambda chat: [
                    *chat.choosable_workers().items(),
                    (ALL_WORKERS, "every worker of the settings"),
                ],
            ),
        ),
        SlashCommand(
            name="model",
            takes="[NAME|-]",
            help="have one worker, or provider/model, answer in one call",
            act=_model,
            offers=(lambda chat: [*chat.choosable_workers().items(), ("-", "plan again")],),
        ),
        SlashCommand(
            name="planner",
            takes="[MODEL|-]",
            help="show or set the model that plans",
            act=_planner,
            offers=(_offer_planners,),
        ),
        SlashCommand(
            name="plan", takes="QUESTION", help="plan a question, which /redo then runs", act=_plan
        ),
        SlashCommand(
            name="redo",
            takes="[N [WORKER]]",
            help="run step N and its followers again, or finish the last run",
            act=_redo,
            offers=(_offer_steps, _offer_pool),
        ),
        SlashCommand(name="undo", help="remove the last question and answer", act=_undo),
        SlashCommand(
            name="attach",
            takes="[PATH]",
            help="attach a text, image or PDF to each question",
            act=_attach,
            takes_file=True,
        ),
        SlashCommand(
            name="detach",
            takes="[NAME]",
            help="attach this file, or all of them, no longer",
            act=_detach,
            offers=(lambda chat: [(file.name, describe_file(file)) for file in chat.files],),
        ),
        SlashCommand(
            name="tools",
            takes="[A,B|none|auto]",
            help="show or set the tools of the workers",
            act=_tools,
            offers=(_offer_tools,),
        ),
        SlashCommand(
            name="system",
            takes="[TEXT|-]",
            help="show or set what every worker is told",
            act=_system,
        ),
        SlashCommand(
            name="trace",
            takes="[N|ID]",
            help="show the last run, one step of it, or another run",
            act=_trace,
            offers=(_offer_steps_and_runs,),
        ),
        SlashCommand(
            name="good",
            takes="[N]",
            help="rate the last answer, or that of step N: the workers' cards change",
            act=_rating("good"),
            offers=(_offer_steps,),
        ),
        SlashCommand(
            name="bad",
            takes="[N]",
            help="rate the last answer, or that of step N, as bad",
            act=_rating("bad"),
            offers=(_offer_steps,),
        ),
        SlashCommand(name="cost", help="show what this chat has cost", act=_cost),
        SlashCommand(
            name="limits",
            takes="[NAME VALUE|-]",
            help="show or set the limits of each run",
            act=_limits,
            offers=(
                lambda _: [(limit.name.removeprefix("limits."), limit.help) for limit in LIMITS],
            ),
        ),
        SlashCommand(name="copy", help="copy the last answer to the clipboard", act=_copy),
        SlashCommand(
            name="save",
            takes="[FILE]",
            help="save the conversation as Markdown, in a new file",
            act=_save,
            takes_file=True,
        ),
        SlashCommand(name="exit", help="leave, like Ctrl-D", act=_exit),
    )
}
