"""The slash commands. What they change is in `chat_session`, what they print in `display`."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

from conductor_cli.cli.options import check_settings
from conductor_cli.cli.output import print_error, print_notice
from conductor_cli.cli.question_input import read_attachment
from conductor_cli.cli.repl import display
from conductor_cli.cli.repl.prompt import ChatEnded
from conductor_cli.config import find_setting
from conductor_cli.config.schema import SETTINGS
from conductor_cli.core.errors import ConductorError, ConfigError, UsageError
from conductor_cli.core.plan import Plan

if TYPE_CHECKING:
    from conductor_cli.cli.repl.chat_session import ChatSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command. `act` gets the words after its name, and may return a text for the person to edit next."""

    name: str
    takes: str = ""
    help: str
    act: Callable[[ChatSession, str], Awaitable[str | None]]


LIMITS: Final = tuple(item for item in SETTINGS if item.name.startswith("limits.") and not item.name.endswith("_day"))


def find_command(line: str) -> tuple[Command, str] | None:
    """The command of a line and the words after its name; None for a question. Raises `UsageError`.

    A line such as `/etc/hosts: what is it?` is a question: no command has a second slash or a line break in its name.
    """
    name, _, rest = line.removeprefix("/").partition(" ")
    # A bare slash is looked up as a command too, so that its error lists what there is.
    if not line.startswith("/") or not (name.isalpha() or not name):
        return None
    found = next((command for command in COMMANDS if command.name == name), None)
    if found is None:
        near = get_close_matches(name, [command.name for command in COMMANDS], n=1)
        hint = "/help lists the commands; to ask it as a question, put a space first"
        raise UsageError(f"unknown command /{name}", hint=f"did you mean /{near[0]}?" if near else hint)
    return found, rest.strip()


async def _mode(chat: ChatSession, rest: str) -> None:
    if rest:
        if rest not in display.MODES:
            raise UsageError(f"unknown mode {rest!r:.40}", hint="known: mini, auto, ultra")
        await chat.change({"conductor.mode": rest})
    mode = chat.session.settings["conductor.mode"]
    print_notice(f"{mode}: {display.MODES[mode]}")


async def _workers(chat: ChatSession, rest: str) -> None:
    if rest:
        names = tuple(name.strip() for name in rest.replace(" ", ",").split(",") if name.strip())
        await chat.change({}, () if names == ("all",) else names)
    display.print_workers(await chat.open())


async def _plan(chat: ChatSession, rest: str) -> None:
    if not rest:
        display.print_plan_progress(chat.last)
        return
    result = await chat.plan(rest)
    if result.exit_code == 0 and isinstance(result.run.trace.plan, Plan):
        display.print_offer(result.run, chat.session.output_context)
        print_notice("/redo runs this plan; another question gets a new plan")


async def _redo(chat: ChatSession, rest: str) -> None:
    number, _, worker = rest.partition(" ")
    if not number:
        await chat.finish()
        return
    if not number.isdecimal() or " " in worker.strip():
        hint = "for example: /redo 2, or on another worker: /redo 2 NAME"
        raise UsageError(f"{rest!r:.40} is not a step", hint=hint)
    await chat.redo(int(number), worker.strip() or None)


async def _trace(chat: ChatSession, rest: str) -> None:
    if not rest:
        display.print_run(chat.last)
    elif rest.isdecimal() and len(rest) == 1:
        display.print_run(chat.last, int(rest))
    else:
        store = chat.session.store
        display.print_run(store.trace(store.find(rest)))


async def _cost(chat: ChatSession, rest: str) -> None:
    del rest
    display.print_cost(chat.runs)


async def _limits(chat: ChatSession, rest: str) -> None:
    key, _, value = rest.partition(" ")
    if key:
        name = f"limits.{key}"
        if name not in [limit.name for limit in LIMITS]:
            known = ", ".join(limit.name.partition(".")[2] for limit in LIMITS)
            raise UsageError(f"unknown limit {key!r:.40}", hint=f"known: {known}")
        if not value:
            raise UsageError(f"/limits {key} needs a value", hint=f"for example: /limits {key} 5; - resets it")
        try:
            new = None if value == "-" else find_setting(name).parse(value.removeprefix("$"))
        except ConfigError as error:
            raise UsageError(error.message, hint=error.hint) from None
        await chat.change({name: new} if new is None else check_settings({name: new}, "/limits"))
    display.print_limits(LIMITS, chat.session.settings)


async def _file(chat: ChatSession, rest: str) -> None:
    if rest == "-":
        chat.files.clear()
    elif rest:
        chat.files += [read_attachment(path) for path in _parse_paths(rest)]
    display.print_files(chat.files, [file for run in chat.turns[-1:] for file in run.question.files])


def _parse_paths(rest: str) -> list[Path]:
    """One existing file, whose name may hold spaces, or several as a shell would read them."""
    whole = Path(rest).expanduser()
    if whole.exists():
        return [whole]
    with suppress(ValueError):
        return [Path(word).expanduser() for word in shlex.split(rest)]
    return [whole]


async def _save(chat: ChatSession, rest: str) -> None:
    if not chat.turns:
        raise UsageError("there is nothing to save yet", hint="type a question")
    path = rest or f"chat-{chat.turns[0].run}.md"
    print_notice(f"saved as {_write_new(path, display.conversation_as_markdown(chat.turns))}")


def _write_new(name: str, text: str) -> Path:
    """Write a text to a file that does not exist yet. Raises `UsageError`."""
    path, hint = Path(name).expanduser(), "name another file: /save FILE"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} exists already", hint=hint) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", hint=hint) from None
    return path


async def _undo(chat: ChatSession, rest: str) -> None:
    del rest
    print_notice(f"removed: {display.shorten_question(chat.undo())}")
    print_notice(display.describe_conversation(chat.turns))


async def _edit(chat: ChatSession, rest: str) -> str:
    last = chat.runs[-1].question.text if chat.runs else ""
    return rest or last


async def _help(chat: ChatSession, rest: str) -> None:
    del chat, rest
    display.print_help((f"/{command.name} {command.takes}".strip(), command.help) for command in COMMANDS)


async def _quit(chat: ChatSession, rest: str) -> None:
    del chat, rest
    raise ChatEnded


COMMANDS: Final = (
    Command(name="help", help="list commands and keys", act=_help),
    Command(name="mode", takes="[mini|auto|ultra]", help="show or set how questions are planned", act=_mode),
    Command(name="workers", takes="[A,B|all]", help="show or set the workers", act=_workers),
    Command(name="plan", takes="[QUESTION]", help="show the last plan, or plan a question for /redo to run", act=_plan),
    Command(name="redo", takes="[N [WORKER]]", help="run step N and its followers again, or finish the last run",
            act=_redo),
    Command(name="trace", takes="[N|ID]", help="show the last run, one step of it, or another run", act=_trace),
    Command(name="cost", help="show what this chat has cost", act=_cost),
    Command(name="limits", takes="[NAME VALUE|-]", help="show or set the limits of each run", act=_limits),
    Command(name="file", takes="[PATH|-]", help="attach a text file to the next question; - removes them", act=_file),
    Command(name="save", takes="[FILE]", help="save the conversation as Markdown", act=_save),
    Command(name="undo", help="remove the last question and answer", act=_undo),
    Command(name="edit", takes="[TEXT]", help="edit the last question, or a text, in your editor", act=_edit),
    Command(name="quit", help="leave, like Ctrl-D", act=_quit),
)  # fmt: skip


async def run_command(chat: ChatSession, command: Command, rest: str) -> str | None:
    """Run a command. An error is printed and changes nothing. Returns a text for the person to edit next."""
    try:
        return await command.act(chat, rest)
    except ConductorError as error:
        print_error(error)
        return None
