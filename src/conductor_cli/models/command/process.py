"""A program that is to run: what it gets of this process, and what it sees under bubblewrap.

It works on Linux and macOS. In a sandbox the program has the system's programs, its own files, and
one directory that it may write. Nothing else of the disk exists for it: no home directory, no keys,
no settings or traces of conductor, and no socket of another program, since a socket could send what
a missing network cannot.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import ModelError
from conductor_cli.core.mappings import only_keys
from conductor_cli.core.pool import Worker
from conductor_cli.models.command.programs import PROGRAMS, ProgramState
from conductor_cli.programs.network_environment import network_environment

USUAL_VARIABLES: Final = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "LC_MESSAGES",
    "TERM",
    "TZ",
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
)
"""The variables that every program gets: none of them holds a key."""


def environment_of(environ: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return the variables for a program.

    They are the usual ones, those by which it finds the network, and those with these names, as far
    as they are set.
    """
    wanted = (*USUAL_VARIABLES, *names)
    variables = only_keys(environ, wanted)
    return {**network_environment(environ), **variables}


def installed_agents(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the kinds of known agents whose program is in PATH."""
    installed = []
    for kind, program in PROGRAMS.items():
        if program.command and _find_in_path(program.command[0], environ):
            installed.append(kind)
    return tuple(installed)


def _find_in_path(name: str, environ: Mapping[str, str]) -> str | None:
    return shutil.which(name, path=environ.get("PATH", os.defpath))


def find_program(name: str, environ: Mapping[str, str], cwd: str, install: str) -> str:
    """Return the executable file of a program. Raises `ModelError` that says how to install it.

    A name with a slash is relative to the working directory of the worker.
    """
    path = os.path.expanduser(name)  # noqa: PTH111 - a plain name must stay one
    if "/" in path and cwd:
        path = os.path.join(Path(cwd).expanduser(), path)  # noqa: PTH118 - the same
    executable = _find_in_path(path, environ)
    if executable:
        return os.path.abspath(executable)  # noqa: PTH100 - a link must not be resolved
    if os.path.isfile(path):  # noqa: PTH113 - the same
        raise ModelError("missing", f"{name} is not executable", hint=f"chmod +x {path}")
    hint = install or "install it, or name it with its path; conductor looks for it in PATH"
    raise ModelError("missing", f"the program {name} was not found", hint=hint)


def _existing_directory(name: str) -> Path:
    path = Path(name).expanduser()
    if not path.is_dir():
        problem = f"cwd is not a directory: {name}"
        raise ModelError("missing", problem, hint="make it, or name another one")
    return path.resolve()


@asynccontextmanager
async def working_directory(name: str) -> AsyncGenerator[Path]:
    """Give the directory that the settings name, else a fresh one, which is removed in the end.

    Raises `ModelError`.
    """
    path = _existing_directory(name or tempfile.mkdtemp(prefix="conductor-"))
    try:
        yield path
    finally:
        if not name:  # a program may leave very many files
            await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)


SYSTEM_DIRECTORIES: Final = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix/store",
)
"""Where programs and libraries are. Some are links into others."""

ISOLATING_WORDS: Final = (
    "--die-with-parent",
    "--new-session",
    "--unshare-all",
    "--cap-drop",
    "ALL",
)
"""Namespaces of its own, no network, no terminal, no rights, and an end with its parent's."""

SYSTEM_FILES: Final = (
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "fonts",
    "group",
    "host.conf",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "passwd",
    "pki",
    "protocols",
    "python3",
    "resolv.conf",
    "services",
    "ssl",
    "timezone",
)
"""What of /etc is shown: what libraries read, and no passwords."""


def shown_words(
    readable: Iterable[str],
    state: Iterable[ProgramState],
    home: str,
    environ: Mapping[str, str],
    copies: Path,
) -> list[str]:
    """Return bubblewrap's words that show paths to a program, and what there is of its state.

    The directories of its state are empty but for what is shown in them, and are gone afterwards.
    Copies of files are made in the directory `copies`.
    """
    private = list[str]()
    shown = list[str]()
    for path in readable:
        shown += ["--ro-bind", path, path]
    for program_state in state:
        usual_path = program_state.path.replace("~", home or "/", 1)
        directory = Path(environ.get(program_state.variable) or usual_path)
        if not directory.is_dir():
            continue
        if str(directory) not in (home, "/"):
            private += ["--tmpfs", str(directory)]
        shown += _binding_words("--ro-bind", directory, program_state.readable)
        shown += _binding_words("--bind", directory, program_state.writable)
        for name in program_state.copied:
            if (directory / name).is_file():
                copy = copies / f"{len(shown)}-{name}"
                shutil.copyfile(directory / name, copy)
                shown += ["--bind", str(copy), str(directory / name)]
    return [*private, *shown]


def _binding_words(option: str, directory: Path, names: Iterable[str]) -> list[str]:
    """Return the words that show, at their own paths, those of these files that there are."""
    words = list[str]()
    for name in names:
        path = directory / name
        if path.exists():
            words += [option, str(path), str(path)]
    return words


def sandbox_words(  # noqa: PLR0913 - what a program may see
    bwrap: str,
    words: Sequence[str],
    *,
    cwd: Path,
    home: str = "",
    shown: Sequence[str] = (),
    network: tuple[str, ...] | None = None,
) -> list[str]:
    """Return the command line that runs a program in its sandbox, where it may write `cwd`.

    `home` is empty but for what is shown in it; `shown_words` gives the words for that. `network`
    is None without a network; else the words that give the sandbox one of its own, none where it
    shares the host's.
    """
    line = [*(network or ()), bwrap, *ISOLATING_WORDS]
    if network is not None:
        line.append("--share-net")
    if network:
        line += _AS_USER
    for path in SYSTEM_DIRECTORIES:
        if os.path.islink(path):  # noqa: PTH114 - a text
            line += ["--symlink", os.readlink(path), path]  # noqa: PTH115
        else:
            line += ["--ro-bind-try", path, path]
    for name in SYSTEM_FILES:
        line += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    # Root could write there
    line += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"]
    for path in ("/tmp", "/var/tmp", "/run"):  # noqa: S108
        line += ["--tmpfs", path]
    if home not in ("", "/"):
        line += ["--tmpfs", home]
    line += shown
    if network:
        line += ["--ro-bind", str(RESOLVER), "/etc/resolv.conf"]
    line += ["--bind", str(cwd), str(cwd)]
    line += ["--remount-ro", "/"]
    line += ["--chdir", str(cwd)]
    return [*line, "--", *words]


RESOLVER: Final = Path(__file__).with_name("resolv.conf")
"""Names the address at which `pasta` answers for the host's own resolver.

That may listen at the host's loopback alone.
"""


def _user_words() -> tuple[str, ...]:
    if os.name != "posix":
        return ()
    return ("--unshare-user", "--uid", str(os.getuid()), "--gid", str(os.getgid()))


_AS_USER: Final = _user_words()
"""In the network of `pasta` everybody is root."""


def own_network(bwrap: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words that start bubblewrap in a network of its own, by `pasta`.

    There are no words where that cannot be made here. It reaches what this machine reaches, and TCP
    and UDP ports at its loopback, but none of its abstract UNIX sockets, by which X11 and D-Bus may
    be spoken to.
    """
    pasta = _find_in_path("pasta", environ)
    # It gives up the rights of root, and can then make no namespace
    if not pasta or os.getuid() == 0:
        return ()
    address = RESOLVER.read_text(encoding="utf-8").split()[1]
    words = (
        pasta,
        "--quiet",
        "--foreground",
        "--config-net",
        "--no-map-gw",
        "--tcp-ports",
        "none",
        "--udp-ports",
        "none",
        "--dns-forward",
        address,
        "--",
    )
    if why_not(bwrap, *_AS_USER, "--share-net", before=words):
        return ()
    return words


@cache
def why_not(bwrap: str, *words: str, before: tuple[str, ...] = ()) -> str:
    """Return why bubblewrap cannot make a sandbox with these options, empty where it can.

    A container may forbid it. `before` are the words of a program that starts it.
    """
    shown = ("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")
    try:
        trial = subprocess.run(  # noqa: S603 - a fixed program
            [*before, bwrap, *ISOLATING_WORDS, *words, *shown, "true"],
            capture_output=True,
            timeout=10,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{error!s:.200}"
    if trial.returncode == 0:
        return ""
    complaint = trial.stderr.decode("utf-8", "replace").strip()
    return complaint[:200] or f"exit code {trial.returncode}"


OWN_NETWORK_HINT: Final = (
    "to give the sandbox a network of its own, install passt and do not run as root"
)


def shares_network(worker: Worker, environ: Mapping[str, str]) -> bool:
    """Return whether a program in a sandbox shares the network of this machine.

    Raises `ModelError` without one.
    """
    has_sandbox = worker.options.get("sandbox") is True
    has_network = worker.options.get("network") is True
    if not has_sandbox or not has_network:
        return False
    return not own_network(find_sandbox(environ), environ)


def find_sandbox(environ: Mapping[str, str]) -> str:
    """Return the path of bubblewrap.

    Raises `ModelError` where it is missing or may not work here.
    """
    bwrap = _find_in_path("bwrap", environ)
    if not bwrap:
        problem = "sandbox = true needs bubblewrap, which is not installed"
        hint = (
            "install bubblewrap (apt install bubblewrap, dnf install bubblewrap), or remove "
            "sandbox = true"
        )
        raise ModelError("missing", problem, hint=hint)
    why = why_not(bwrap)
    if why:
        problem = f"sandbox = true needs bubblewrap, which does not work here: {why}"
        hint = "allow user namespaces for it, or remove sandbox = true"
        raise ModelError("missing", problem, hint=hint)
    return bwrap


def check_shown(paths: Sequence[str], environ: Mapping[str, str]) -> None:
    """Raise `ModelError` for a path through which private files would be seen in a sandbox.

    A path may not have the home directory in it, and neither hold files of conductor nor lie among
    them.
    """
    home = Path(environ.get("HOME") or "/").resolve()
    directories = conductor_directories(home, environ)
    for path in paths:
        shown = Path(path).resolve()
        for private in (home, *directories):
            shows_all = private.is_relative_to(shown)
            shows_part = private != home and shown.is_relative_to(private)
            if shows_all or shows_part:
                message = f"sandbox = true cannot show {path}, because {private} would be seen"
                raise ModelError("refused", message, hint="name a directory below it")


def conductor_directories(home: Path, environ: Mapping[str, str]) -> list[Path]:
    """Return where conductor keeps settings, traces and keys, with links resolved."""
    usual_parents = {
        "CONFIG": ".config",
        "STATE": ".local/state",
        "DATA": ".local/share",
        "CACHE": ".cache",
    }
    directories = []
    for name, usual_parent in usual_parents.items():
        chosen = environ.get(f"CONDUCTOR_LLM_{name}_DIR")
        parent = environ.get(f"XDG_{name}_HOME") or home / usual_parent
        directories.append(Path(chosen or f"{parent}/conductor-llm").resolve())
    return directories


def own_files(program: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the files that a program consists of, as far as its path tells.

    Those in the system's directories are left out, since a sandbox shows these anyway. Those of a
    script's interpreter are among them. Of an npm package it is all of `node_modules`, of a Python
    program its environment, else the file alone.
    """
    executables = [program]
    interpreter = _find_interpreter(program, environ)
    if interpreter is not None:
        executables.append(interpreter)
    shown: dict[str, None] = {}
    for executable in executables:
        path = Path(executable)
        for file in (path, path.resolve()):
            whole = _whole_installation(file)
            if not any(whole.is_relative_to(directory) for directory in SYSTEM_DIRECTORIES):
                shown[str(whole)] = None
    return tuple(shown)


def _find_interpreter(program: str, environ: Mapping[str, str]) -> str | None:
    """Return the path of a script's interpreter; None for another program, and where it is missing.

    `env` and its words are passed over.
    """
    with open(program, "rb") as file:  # noqa: PTH123 - one line of it
        first_line = file.readline(256)
    if not first_line.startswith(b"#!"):
        return None
    for word in first_line[2:].decode("utf-8", "replace").split():
        is_of_env = Path(word).name == "env" or word.startswith("-") or "=" in word
        if not is_of_env:
            return _find_in_path(word, environ)
    return None


def _whole_installation(file: Path) -> Path:
    """Return the outermost package or environment that a file lies in, else the file itself."""
    packages = [parent for parent in file.parents if parent.name == "node_modules"]
    if packages:
        return packages[-1]
    environments = [parent for parent in file.parents if (parent / "pyvenv.cfg").is_file()]
    if environments:
        return environments[-1]
    return file
