"""The slash commands, a row each. What they do to the desk stands in `desk`, what they print in `showing`."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

from conductor_cli.cli.options import Mode, check_settings
from conductor_cli.cli.output import print_notice
from conductor_cli.cli.question_input import read_attachment
from conductor_cli.cli.repl import display
from conductor_cli.cli.repl.prompt import Left
from conductor_cli.config import find_setting
from conductor_cli.config.schema import SETTINGS
from conductor_cli.core.errors import ConductorError, ConfigError, UsageError
from conductor_cli.core.plan import Plan

if TYPE_CHECKING:
    from conductor_cli.cli.repl.chat_session import ChatSession
    from conductor_cli.core.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command. `act` gets what stands behind its name; what it returns is given to the person to edit next."""

    name: str
    takes: str = ""
    help: str
    act: Callable[[ChatSession, str], Awaitable[str | None]]


LIMITS: Final = tuple(item for item in SETTINGS if item.name.startswith("limits.") and not item.name.endswith("_day"))


def command_in(line: str) -> tuple[Command, str] | None:
    """The command that a line is and what stands behind its name; None for a question. Raises `UsageError`.

    A line such as `/etc/hosts: what is it?` is a question: no command has a second slash or a line break in its name.
    """
    name, _, rest = line.removeprefix("/").partition(" ")
    if not line.startswith("/") or not (name.isalpha() or not name):
        return None
    found = next((command for command in COMMANDS if command.name == name), None)
    if found is None:
        near = get_close_matches(name, [command.name for command in COMMANDS], n=1)
        hint = (
            f"did you mean /{near[0]}?" if near else "/help shows what there is; a space before it makes it a question"
        )
        raise UsageError(f"there is no command /{name}", hint=hint)
    return found, rest.strip()


async def _mode(desk: ChatSession, rest: str) -> None:
    if rest:
        if rest not in list(Mode):
            raise UsageError(f"{rest!r:.40} is no mode", hint="one of mini, auto, ultra")
        await desk.change({"conductor.mode": rest})
    print_notice(display.mode(desk.session.settings["conductor.mode"]))


async def _workers(desk: ChatSession, rest: str) -> None:
    if rest:
        names = tuple(name.strip() for name in rest.replace(" ", ",").split(",") if name.strip())
        await desk.change({}, () if names == ("all",) else names)
    display.workers(await desk.open())


async def _plan(desk: ChatSession, rest: str) -> None:
    if not rest:
        display.plan(desk.last)
        return
    result = await desk.plan(rest)
    if result.exit_code == 0 and isinstance(result.run.trace.plan, Plan):
        display.offer(result.run, desk.session.around)
        print_notice("/redo runs this plan; what you ask instead is planned anew")


async def _redo(desk: ChatSession, rest: str) -> None:
    number, _, worker = rest.partition(" ")
    if not number:
        await desk.finish()
        return
    if not number.isdecimal() or " " in worker.strip():
        raise UsageError(f"{rest!r:.40} is no step", hint="for example: /redo 2, or on another worker: /redo 2 NAME")
    await desk.redo(int(number), worker.strip() or None)


async def _trace(desk: ChatSession, rest: str) -> None:
    if not rest:
        display.trace(desk.last)
    elif rest.isdecimal() and len(rest) == 1:
        display.trace(desk.last, int(rest))
    else:
        store = desk.session.store
        display.trace(store.trace(store.find(rest)))


async def _cost(desk: ChatSession, rest: str) -> None:
    del rest
    display.cost(desk.runs)


async def _limits(desk: ChatSession, rest: str) -> None:
    name, _, value = rest.partition(" ")
    if name:
        if f"limits.{name}" not in [limit.name for limit in LIMITS]:
            known = ", ".join(limit.name.partition(".")[2] for limit in LIMITS)
            raise UsageError(f"there is no limit {name!r:.40}", hint=f"known: {known}")
        if not value:
            raise UsageError(f"/limits {name} needs a value", hint=f"for example: /limits {name} 5; - takes it back")
        await desk.change({f"limits.{name}": None if value == "-" else _limit(f"limits.{name}", value)})
    display.limits(LIMITS, desk.session.settings)


def _limit(name: str, value: str) -> object:
    try:
        return check_settings({name: find_setting(name).parse(value.removeprefix("$"))}, "/limits")[name]
    except ConfigError as error:
        raise UsageError(error.message, hint=error.hint) from None


async def _file(desk: ChatSession, rest: str) -> None:
    if rest == "-":
        desk.files.clear()
    elif rest:
        desk.files += [read_attachment(path) for path in _paths(rest)]
    display.files(desk.files, [file for trace in desk.turns[-1:] for file in trace.question.files])


def _paths(rest: str) -> list[Path]:
    """The files that are named: one whose name may hold spaces, or several as a shell reads them."""
    whole = Path(rest).expanduser()
    if whole.exists():
        return [whole]
    with suppress(ValueError):
        return [Path(word).expanduser() for word in shlex.split(rest)]
    return [whole]


async def _save(desk: ChatSession, rest: str) -> None:
    if not desk.turns:
        raise UsageError("there is nothing to save yet", hint="type a question")
    print_notice(f"saved as {_saved(rest or f'chat-{desk.turns[0].run}.md', display.conversation(desk.turns))}")


def _saved(name: str, text: str) -> Path:
    """The new file that holds the text. Raises `UsageError`, also where there is one of this name."""
    path = Path(name).expanduser()
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} is there already", hint="name another file: /save FILE") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", hint="name another file: /save FILE") from None
    return path


async def _undo(desk: ChatSession, rest: str) -> None:
    del rest
    taken = desk.undo()
    print_notice(f"taken back: {display.question(taken)}")
    print_notice(display.standing(desk.turns))


async def _edit(desk: ChatSession, rest: str) -> str:
    return rest or _asked_last(desk.runs)


def _asked_last(runs: list[Trace]) -> str:
    return runs[-1].question.text if runs else ""


async def _help(desk: ChatSession, rest: str) -> None:
    del desk, rest
    display.help_((f"/{command.name} {command.takes}".strip(), command.help) for command in COMMANDS)


async def _quit(desk: ChatSession, rest: str) -> None:
    del desk, rest
    raise Left


COMMANDS: Final = (
    Command(name="help", help="commands and keys", act=_help),
    Command(name="mode", takes="[mini|auto|ultra]", help="how questions are planned", act=_mode),
    Command(name="workers", takes="[A,B|all]", help="who is in the pool, or who is to be", act=_workers),
    Command(name="plan", takes="[QUESTION]", help="the last plan, or one for a question that /redo runs", act=_plan),
    Command(name="redo", takes="[N [WORKER]]", help="step N and what follows it again; or finish the last run",
            act=_redo),
    Command(name="trace", takes="[N|ID]", help="all of the last run, one step of it, or another run", act=_trace),
    Command(name="cost", help="what this chat has cost", act=_cost),
    Command(name="limits", takes="[NAME VALUE|-]", help="limits of each run, or a new one", act=_limits),
    Command(name="file", takes="[PATH|-]", help="attach a text file to the next question; - drops them", act=_file),
    Command(name="save", takes="[FILE]", help="the conversation as Markdown", act=_save),
    Command(name="undo", help="take the last question and answer back", act=_undo),
    Command(name="edit", takes="[TEXT]", help="the last question, or a text, in your editor", act=_edit),
    Command(name="quit", help="leave, as Ctrl-D does", act=_quit),
)  # fmt: skip


async def acted(desk: ChatSession, command: Command, rest: str) -> str | None:
    """Do what a command says; an error of the person or of the world is told and changes nothing."""
    from conductor_cli.cli.output import print_error

    try:
        return await command.act(desk, rest)
    except ConductorError as error:
        print_error(error)
        return None
