"""Runs the command of a command line, and turns every error into a few lines and an exit code.

What Typer finds wrong is said in our words: what was expected, and what was probably meant.
"""

from __future__ import annotations

import atexit
import errno
import logging
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NoReturn

from conductor_cli.core.errors import ConductorError, ConfigError, UsageError, nearest
from conductor_cli.system.known_secrets import KNOWN_SECRETS

if TYPE_CHECKING:
    from typer.exceptions import TyperException


_EXPECTED: Final[Mapping[str, str]] = {
    r"Input should be a valid integer.*": "takes a whole number",
    r"Input should be a (?:valid|finite) number.*": "takes a number",
    r"Input should be greater than or equal to (\S+)": "must be at least {}",
    r"Input should be greater than (\S+)": "must be more than {}",
    r"Input should be less than or equal to (\S+)": "must be at most {}",
    r"Input should be less than (\S+)": "must be less than {}",
}
"""What Pydantic, which reads values for Typer, says of one, and what we say."""

_CHOICE: Final = re.compile(r"'(?P<given>.*)' is not one of (?P<known>'.*')", re.DOTALL)

_COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "rm": ("remove", "delete", "del", "uninstall", "unset"),
    "list": ("ls", "all"),
    "show": ("info", "view", "inspect", "cat"),
    "add": ("new", "create", "set"),
    "set": ("add", "store", "login", "save"),
    "test": ("check", "ping", "verify"),
    "pull": ("download", "install", "get"),
    "use": ("select", "choose", "switch", "set"),
    "chat": ("repl", "shell", "talk"),
    "ask": ("prompt", "query"),
    "setup": ("init", "install", "configure", "login", "auth"),
    "config": ("settings", "set"),
    "trace": ("history", "log", "logs", "runs"),
    "completions": ("completion",),
    "--help": ("help",),
    "--version": ("version",),
}
"""Words of other tools for commands of this one. Which command is meant depends on the group, in
this order.
"""

_DROPPED: Final[Mapping[str, str]] = {
    "config get": "conductor config show SECTION.KEY",
    "config path": "conductor config show",
    "pools": "conductor config set pools.NAME A,B; conductor config show pools.NAME",
    "model path": "conductor model list --json",
    "model prepare": "nothing: the first question does it",
    "trace prune": "conductor trace rm --older-than 30d --keep 100",
    "trace diff": (
        "conductor trace show A > a.txt, the same with B, then: git diff --no-index a.txt b.txt"
    ),
    "trace path": "conductor trace show RUN --json | jq .trace",
    "trace search": "conductor trace list TEXT",
    "workers enable": "conductor workers add NAME",
    "workers disable": "conductor config set policy.deny NAME",
}
"""Commands of the release before, and what to use instead."""

_OPTION_HINTS: Final[Mapping[str, tuple[str, str]]] = {
    "--model -m": (
        "--planner",
        "--planner NAME is the model that plans; --workers A,B are those that answer",
    ),
    "--keep-local --offline": ("--local-only", "did you mean --local-only?"),
    "--files-only": (
        "--local-only",
        "it is a setting: conductor config set policy.files_only A,B",
    ),
    "--api-key --key": (
        "",
        "a key is stored, and not given on a command line: conductor keys set PROVIDER",
    ),
    "--output": ("--format", "the answer goes to standard output: conductor ask … > FILE"),
    "--train --router --embeddings": (
        "--systems",
        "routers are no longer trained by eval; compare with --systems keyword,conductor-mini",
    ),
    "--features --save": (
        "--pool",
        (
            "it was dropped; say what a worker reads: conductor workers add NAME "
            "--set accepts=image,pdf"
        ),
    ),
    "--html": (
        "--show",
        "it was dropped; the figures: --json; the answers: evals/ in the state directory",
    ),
    "--sandbox": (
        "--judge",
        "it is bubblewrap now; which Python it runs: conductor config set eval.python PATH",
    ),
    "--csv": (
        "--by",
        "it was dropped; --json prints the same rows, and jq -r makes a table of them",
    ),
    "--gpu-layers": (
        "--seed",
        "it is a setting: conductor config set planner.gpu_layers auto|all|N",
    ),
    "--copy": (
        "--base",
        "it was dropped; copy the file to the disk of the data directory, and import that",
    ),
    "--count": ("--since", "it was dropped; use instead: -n N"),
    "--cards": (
        "--json",
        "it was dropped; conductor workers show NAME has its card and its ratings",
    ),
    "--color": (
        "",
        "it is a setting: conductor config set output.color always|never; NO_COLOR is obeyed, too",
    ),
    "--adapter": ("", "it is a setting: conductor config set planner.adapter FILE"),
    "--full": ("--lora", "it was dropped: without --lora all weights are trained"),
    "--fetch": ("--file", "it was dropped: curl -sSL -o page.html URL; then: --file page.html"),
    "--no-tools": ("--tools", "it was dropped; use instead: --tools none"),
    "--cost-weight": ("--max-cost", "it was dropped; use instead: --max-cost USD"),
    "--again": ("--parallel", "it was dropped; to measure again: another --seed"),
    "--demo --rehearsal": (
        "",
        ("the demo models: conductor ask --demo, conductor chat --demo, conductor eval rehearsal"),
    ),
    "--out": ("--seed", "it was dropped; the cards: cards.json in the data directory"),
}
"""Options of other tools and of the release before: the option that a command must have, and then
the hint.
"""

_OPTIONS_THAT_BECAME_SETTINGS: Final[Mapping[str, str]] = {
    "--key-env": "key_env=NAME",
    "--temperature": "temperature=T",
    "--cwd": "cwd=DIR",
    "--max-tokens": "max_tokens=N",
    "--reasoning-effort": "reasoning_effort=WORD",
    "--thinking-budget": "thinking_budget=N",
    "--seconds": "seconds=S",
    "--tag": "tags=A,B",
    "--network": "network=true",
    "--no-network": "network=false",
    "--price": "price=IN,OUT",
    "--no-sandbox": "sandbox=false",
    "--accepts": "accepts=A,B",
    "--unset": "SETTING=",
    "--only": "only=A,B",
    "--read-only": "read_only=A,B",
    "--trust": "trust=true",
    "--no-trust": "trust=false",
    "--local": "local=true",
    "--no-local": "local=false",
    "--group": "group=N",
    "--rate": "rate=R",
    "--plan-tokens": "max_plan_tokens=N",
    "--offer": "max_workers=N",
    "--vllm": "vllm=true",
    "--about": "about=TEXT",
    "--env": "env=A,B",
}
"""Options of the release before, and what `--set` takes instead."""


def explain_typer_error(error: TyperException) -> UsageError:
    """Return the error as one of ours. It holds nothing of a value that may be a key."""
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "conductor"
    message, hint = _explain(error, context)
    if "--help" not in hint:
        hint = f"{hint}\nsee: {path} --help".strip()
    return UsageError(message, hint=hint)


def _explain(error: TyperException, context: Any) -> tuple[str, str]:  # noqa: ANN401
    """Return what is wrong, and what was probably meant; empty where that cannot be said."""
    text = error.format_message().replace("Value error, ", "").replace("argument(s)", "argument")
    text = text.rstrip(".")
    kind = type(error).__name__
    option = getattr(error, "option_name", "")
    if option and kind == "NoSuchOption":
        return f"there is no option {option}", _suggest_option(option, context)
    command = re.match(r"No such command '(.*?)'", text, re.DOTALL)
    if command is not None:
        return _explain_command(command[1], context)
    parameter = getattr(error, "param", None)
    if parameter is not None and kind == "BadParameter":
        name = max(parameter.opts, key=len)
        explained = _explain_value(name, error.message.removeprefix("Value error, ").rstrip("."))
        if explained is not None:
            return explained
    return text[:1].lower() + text[1:], ""


def _explain_command(name: str, context: Any) -> tuple[str, str]:  # noqa: ANN401
    # A key that was typed in the wrong place must not be repeated.
    may_be_key = len(name) > 20 or "=" in name
    shown = "of that name" if may_be_key else repr(name)
    return f"there is no command {shown}", _suggest_command(name, context)


def _explain_value(option: str, problem: str) -> tuple[str, str] | None:
    """Return what an option takes, and which choice was meant; None for any other problem."""
    choice = _CHOICE.fullmatch(problem)
    if choice is not None:
        names = re.findall(r"'([^']*)'", choice["known"])
        listed = names[0]
        if len(names) > 1:
            listed = f"{', '.join(names[:-1])} or {names[-1]}"
        meant = nearest(choice["given"], names)
        message = f"{option} takes {listed}, not {choice['given']!r:.40}"
        return message, f"did you mean {meant}?" if meant else ""
    for pattern, words in _EXPECTED.items():
        match = re.fullmatch(pattern, problem, re.DOTALL)
        if match is not None:
            return f"{option} {words.format(*match.groups())}", ""
    return None


def _suggest_option(name: str, context: Any) -> str:  # noqa: ANN401 - Typer's own class of contexts
    options = set[str]()
    if context is not None:
        for parameter in context.command.params:
            options.update(option for option in parameter.opts if option.startswith("--"))
    needed, hint = _hint_for_option(name)
    if hint and (not needed or needed in options):
        return hint
    near = nearest(name, sorted(options))
    if not near:
        return ""
    return f"did you mean {near}?"


def _hint_for_option(name: str) -> tuple[str, str]:
    """Return the option that a command must have, and the hint; both are empty for none."""
    if name in _OPTIONS_THAT_BECAME_SETTINGS:
        assignment = _OPTIONS_THAT_BECAME_SETTINGS[name]
        return "--set", f"it was dropped; use instead: --set {assignment}"
    for names, hint in _OPTION_HINTS.items():
        if name in names.split():
            return hint
    return "", ""


def _suggest_command(name: str, context: Any) -> str:  # noqa: ANN401
    path = context.command_path
    commands = context.command.list_commands(context)
    dropped = f"{path} {name}".removeprefix("conductor ")
    if dropped in _DROPPED:
        return f"it was dropped; use instead: {_DROPPED[dropped]}"
    is_program = context.parent is None
    words = [*commands, "--help"]
    if is_program:
        words.append("--version")
    meant = _synonym(name.lower(), words) or nearest(name, commands)
    if meant:
        return f"did you mean {path} {meant}?"
    return f"known: {', '.join(commands)}"


def _synonym(name: str, words: Collection[str]) -> str:
    """Return the one of `words` that other tools call `name`; empty for none."""
    for word, others in _COMMANDS.items():
        if name in others and word in words:
            return word
    return ""


_PROCESSES: Final = (
    "thread or process",
    "end other programs, or raise the limits on processes and memory: ulimit -u, ulimit -v",
)
_MEMORY: Final = ("memory", "end other programs, or raise the limit on memory: ulimit -v")
_FILES: Final = ("open file", "close other programs, or raise the limit on open files: ulimit -n")
_EXHAUSTED: Final = {
    errno.EAGAIN: _PROCESSES,
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.ENOMEM: _MEMORY,
}
"""What is used up, by the number of the system's error, and what to do."""


class _RedactingFormatter(logging.Formatter):
    """Log lines and tracebacks without API keys, since libraries log what they send."""

    def format(self, record: logging.LogRecord) -> str:
        return KNOWN_SECRETS.redact(super().format(record))


def run_and_exit(*, chat: bool = False) -> NoReturn:
    """Run the command that `sys.argv` names and exit.

    `chat`: it is a chat, with no option but `--demo`.
    """
    ending = _Ending()
    try:
        open_streams()
        provide_home()
        if not _is_debug(sys.argv[1:]):
            forbid_core_dumps()
        ending.code = run_command_line(sys.argv[1:], chat=chat)
    except KeyboardInterrupt:
        ending.code = 130
    except SystemExit as error:
        ending.code = error.code if isinstance(error.code, int) else None
        raise
    sys.exit(ending.code)


class _Ending:
    """Ends the process at the end of its exit, and never takes Python down.

    It does so after all that was registered later.
    A thread may still be at work, in an import or a check that hangs, or its Python code is over
    and it frees what C libraries keep for it. At its end a process runs the exit handlers of these
    libraries, and under such a thread they damage the heap: OpenSSL's handler frees the tables that
    the end of a thread reads. `os._exit` runs none of them.
    """

    def __init__(self) -> None:
        self.code: int | None = None  # The exit code; None where something else ends the process
        atexit.register(self._end)

    def _end(self) -> None:
        if self.code is None:
            return
        # Otherwise Python says at its own end that a stream cannot be written
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.code)


def run_command_line(arguments: Sequence[str], *, chat: bool = False) -> int:
    """Run one command and return its exit code. Errors go to stderr."""
    debug = _is_debug(arguments)
    if debug:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_RedactingFormatter("%(relativeCreated)7d ms %(name)s: %(message)s"))
        logging.basicConfig(level=logging.DEBUG, handlers=[handler])
    try:
        if chat:
            # Typer would take as long to find no options as the prompt takes to load.
            from conductor_cli.cli.chat_loop import start_chat

            return start_chat(rehearsal="--demo" in arguments)
        from conductor_cli.cli.command_tree import app

        return app(list(arguments), prog_name="conductor", standalone_mode=False) or 0
    except SystemExit:
        # Typer ends a command so whose help nobody reads any more, as in `--help | head`
        if type(sys.stdout).__name__ != "PacifyFlushWrapper":
            raise
        return 0
    except Exception as error:
        if debug:
            logging.getLogger(__name__).exception("the command failed")
        return _report(error)


def _is_debug(arguments: Sequence[str]) -> bool:
    return "--debug" in takewhile("--".__ne__, arguments)


def forbid_core_dumps() -> None:
    """Have a crash of this process leave no copy of its memory, which holds keys.

    Nor does one of those that it starts.
    As gpg-agent does, by the soft limit, which a program that is started may raise again. Not by
    PR_SET_DUMPABLE, as ssh-agent does: then the user's own debugger and strace would be refused
    too.
    """
    with suppress(ImportError, OSError, ValueError):
        import resource  # POSIX only

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _report(error: Exception) -> int:
    from typer.exceptions import TyperException

    from conductor_cli.cli.output import leave_stdout, print_error, print_notice, stdout_problem

    if isinstance(error, ConductorError):
        return print_error(error)
    if isinstance(error, TyperException):
        if type(error).__name__ != "NoArgsIsHelpError":
            return print_error(explain_typer_error(error))
        print_notice(error.format_message())
        return UsageError("").exit_code
    if isinstance(error, OSError):
        closed = stdout_problem()
        # The failed write may still be in the buffer of stdout, which Python would flush at exit
        # and fail again.
        leave_stdout()
        if closed is not None:
            return print_error(closed)
    return print_error(_unexpected(error))


def _unexpected(error: Exception) -> ConductorError:
    """Return as ours an error that no command expected: a refusal of the system, else a bug."""
    if isinstance(error, ExceptionGroup):  # of what went on at once: the first tells enough
        return _unexpected(error.exceptions[0])
    if isinstance(error, ConductorError):
        return error
    if isinstance(error, MemoryError):
        resource, hint = _MEMORY
        return ConfigError(f"the system allows no further {resource}", hint=hint)
    # A full pipe that may not be waited for has the number of a process too many, with other words.
    if (
        isinstance(error, OSError)
        and error.errno in _EXHAUSTED
        and error.strerror == os.strerror(error.errno)
    ):
        resource, hint = _EXHAUSTED[error.errno]
        return ConfigError(f"the system allows no further {resource}", hint=hint)
    if isinstance(error, OSError) and error.strerror:
        file = f"{error.filename}: " if error.filename else ""
        return ConductorError(
            f"{file}{error.strerror}", hint="check the disk and the file permissions"
        )
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        resource, hint = _PROCESSES
        return ConfigError(f"the system allows no further {resource}", hint=hint)
    message = f"this is a bug in conductor: {type(error).__name__}: {error}"
    return ConductorError(message, hint="run it again with --debug and report what it prints")


NO_HOME: Final = "/nonexistent"
"""The home directory of users without one, by the rules of Debian: nothing can be written there."""


def provide_home() -> None:
    """Give the process a home directory where its user has none, and say what follows from it.

    In containers a process may run under a number that the list of users does not have.
    """
    if os.name == "nt" or os.environ.get("HOME", "").startswith("/"):
        return
    import pwd  # of POSIX only

    user = os.getuid()
    try:
        os.environ["HOME"] = pwd.getpwuid(user).pw_dir or NO_HOME
    except KeyError:
        os.environ["HOME"] = NO_HOME
    if os.environ["HOME"] == NO_HOME:
        sys.stderr.write(
            f"conductor: note: HOME is not set, and the system has no home for user {user}, so "
            "nothing is stored there; set HOME to a directory that this user can write\n"
        )


def open_streams() -> None:
    """Make the three streams usable.

    Closed ones lead to the null device, reading and writing wait, and every character can be
    written.

    A closed stream must not stay closed: the next file opened, a trace for example, would get its
    number. A closed standard output is opened for reading, so that a command which has something to
    print there fails.
    """
    for number, name, mode, access in (
        (0, "stdin", "r", os.O_RDWR),
        (1, "stdout", "w", os.O_RDONLY),
        (2, "stderr", "w", os.O_RDWR),
    ):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, access)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
        # Programs such as Node hand on streams that do not wait: what has not come yet would be
        # taken for the end of the input, and what a slow reader has no room for would be lost.
        with suppress(AttributeError, OSError):  # Windows has this for pipes only, and lately
            os.set_blocking(number, True)
    for stream in (sys.stdout, sys.stderr):
        # A pipe may have a narrow encoding, and one letter must not lose an answer. A terminal
        # keeps its own encoding.
        if hasattr(stream, "reconfigure"):
            encoding = stream.encoding if stream.isatty() else "utf-8"
            stream.reconfigure(encoding=encoding, errors="replace")
