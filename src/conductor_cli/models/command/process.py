"""A program that is to run: what it gets of this process, and what it sees under bubblewrap.

Linux and macOS.

In a sandbox it has the system's programs, its own files, and one directory that it may write.
Nothing else of the disk exists for it: no home directory, no keys, no settings or traces of
conductor, and no socket of another program, since a socket could send what a missing network
cannot.
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
from conductor_cli.core.pool import Worker
from conductor_cli.models.command.programs import PROGRAMS, ProgramState

USUAL: Final = (
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

    The usual ones and those with these names, as far as they are set.
    """
    return {name: environ[name] for name in dict.fromkeys((*USUAL, *names)) if name in environ}


def installed_agents(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the kinds of known agents whose program is in PATH."""
    path = environ.get("PATH", os.defpath)
    return tuple(
        kind
        for kind, known in PROGRAMS.items()
        if known.command and shutil.which(known.command[0], path=path)
    )


def find_program(name: str, environ: Mapping[str, str], cwd: str, install: str) -> str:
    """Return the executable file of a program. Raises `ModelError` that says how to install it.

    A name with a slash is relative to the working directory of the worker.
    """
    path = os.path.expanduser(name)  # noqa: PTH111 - a plain name must stay one
    if "/" in path and cwd:
        path = os.path.join(Path(cwd).expanduser(), path)  # noqa: PTH118 - the same
    if found := shutil.which(path, path=environ.get("PATH", os.defpath)):
        return os.path.abspath(found)  # noqa: PTH100 - a link must not be resolved
    if os.path.isfile(path):  # noqa: PTH113 - the same
        raise ModelError("missing", f"{name} is not executable", hint=f"chmod +x {path}")
    hint = install or "install it, or name it with its path; conductor looks for it in PATH"
    raise ModelError("missing", f"the program {name} was not found", hint=hint)


def _existing_directory(given: str) -> Path:
    path = Path(given).expanduser()
    if not path.is_dir():
        raise ModelError(
            "missing", f"cwd is not a directory: {given}", hint="make it, or name another one"
        )
    return path.resolve()


@asynccontextmanager
async def working_directory(given: str) -> AsyncGenerator[Path]:
    """Give the directory that the settings name, else a fresh one, which is removed in the end.

    Raises `ModelError`.
    """
    path = _existing_directory(given or tempfile.mkdtemp(prefix="conductor-"))
    try:
        yield path
    finally:
        if not given:  # a program may leave very many files
            await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)


SYSTEM: Final = (
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

ISOLATED: Final = ("--die-with-parent", "--new-session", "--unshare-all", "--cap-drop", "ALL")
"""Namespaces of its own, no network, no terminal, no rights, and an end together with whoever
started it.
"""

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
    shown = [word for path in readable for word in ("--ro-bind", path, path)]
    for each in state:
        place = Path(environ.get(each.variable) or each.path.replace("~", home or "/", 1))
        if not place.is_dir():
            continue
        if str(place) not in (home, "/"):
            private += ["--tmpfs", str(place)]
        for how, names in (("--ro-bind", each.readable), ("--bind", each.writable)):
            found = [str(place / name) for name in names if (place / name).exists()]
            shown += [word for path in found for word in (how, path, path)]
        for name in each.copied:
            if (place / name).is_file():
                copy = copies / f"{len(shown)}-{name}"
                shutil.copyfile(place / name, copy)
                shown += ["--bind", str(copy), str(place / name)]
    return [*private, *shown]


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
    line = [*(network or ()), bwrap, *ISOLATED, *(("--share-net",) if network is not None else ())]
    line += _AS_USER if network else ()
    for place in SYSTEM:
        linked = os.path.islink(place)  # noqa: PTH114 - a text
        line += (
            ["--symlink", os.readlink(place), place] if linked else ["--ro-bind-try", place, place]  # noqa: PTH115
        )
    for name in SYSTEM_FILES:
        line += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    # Root could write there
    line += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"]
    for place in ("/tmp", "/var/tmp", "/run", *((home,) if home not in ("", "/") else ())):  # noqa: S108
        line += ["--tmpfs", place]
    line += shown
    if network:
        line += ["--ro-bind", str(RESOLVER), "/etc/resolv.conf"]
    return [
        *line,
        "--bind",
        str(cwd),
        str(cwd),
        "--remount-ro",
        "/",
        "--chdir",
        str(cwd),
        "--",
        *words,
    ]


RESOLVER: Final = Path(__file__).with_name("resolv.conf")
"""Names the address at which `pasta` answers for the host's own resolver, which may listen at its
loopback alone.
"""

_AS_USER: Final = (
    ("--unshare-user", "--uid", str(os.getuid()), "--gid", str(os.getgid()))
    if os.name == "posix"
    else ()
)
"""In the network of `pasta` everybody is root."""


def own_network(bwrap: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words that start bubblewrap in a network of its own, by `pasta`.

    None where that cannot be made here.

    It reaches what this machine reaches, and TCP and UDP ports at its loopback, but none of its
    abstract UNIX sockets, by which X11 and D-Bus may be spoken to.
    """
    found = shutil.which("pasta", path=environ.get("PATH", os.defpath))
    # It gives up the rights of root, and can then make no namespace
    if not found or os.getuid() == 0:
        return ()
    address = RESOLVER.read_text(encoding="utf-8").split()[1]
    words = (
        found,
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
    return () if why_not(bwrap, *_AS_USER, "--share-net", before=words) else words


@cache
def why_not(bwrap: str, *words: str, before: tuple[str, ...] = ()) -> str:
    """Return why bubblewrap cannot make a sandbox with these options, empty where it can.

    A container may forbid it.

    `before` are the words of a program that starts it.
    """
    shown = ("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")
    try:
        tried = subprocess.run(  # noqa: S603 - a fixed program
            [*before, bwrap, *ISOLATED, *words, *shown, "true"],
            capture_output=True,
            timeout=10,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{error!s:.200}"
    said = tried.stderr.decode("utf-8", "replace").strip()
    return "" if not tried.returncode else said[:200] or f"exit code {tried.returncode}"


OWN_NETWORK_HINT: Final = (
    "to give the sandbox a network of its own, install passt and do not run as root"
)


def shares_network(worker: Worker, environ: Mapping[str, str]) -> bool:
    """Return whether a program in a sandbox shares the network of this machine.

    Raises `ModelError` without one.
    """
    networked = worker.options.get("sandbox") is True and worker.options.get("network") is True
    return networked and not own_network(find_sandbox(environ), environ)


def find_sandbox(environ: Mapping[str, str]) -> str:
    """Return the path of bubblewrap.

    Raises `ModelError` where it is missing or may not work here.
    """
    found = shutil.which("bwrap", path=environ.get("PATH", os.defpath))
    if not found:
        hint = (
            "install bubblewrap (apt install bubblewrap, dnf install bubblewrap), or remove "
            "sandbox = true"
        )
        raise ModelError(
            "missing", "sandbox = true needs bubblewrap, which is not installed", hint=hint
        )
    if why := why_not(found):
        message = f"sandbox = true needs bubblewrap, which does not work here: {why}"
        raise ModelError(
            "missing", message, hint="allow user namespaces for it, or remove sandbox = true"
        )
    return found


def check_shown(paths: Sequence[str], environ: Mapping[str, str]) -> None:
    """Raise `ModelError` for a directory to be shown that has the home directory or files of
    conductor in it.
    """
    home = Path(environ.get("HOME") or "/").resolve()
    usual = {
        "CONFIG": ".config",
        "STATE": ".local/state",
        "DATA": ".local/share",
        "CACHE": ".cache",
    }
    own = [  # where conductor keeps settings, traces and keys
        Path(
            environ.get(f"CONDUCTOR_LLM_{name}_DIR")
            or f"{environ.get(f'XDG_{name}_HOME') or home / below}/conductor-llm"
        )
        for name, below in usual.items()
    ]
    for path in paths:
        shown = Path(path).resolve()
        for private in (home, *(place.resolve() for place in own)):
            if private.is_relative_to(shown) or (private != home and shown.is_relative_to(private)):
                message = f"sandbox = true cannot show {path}, because {private} would be seen"
                raise ModelError("refused", message, hint="name a directory below it")


def own_files(program: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the files that a program outside the system's directories consists of, as far as its
    path tells.

    Those of a script's interpreter are among them. Of an npm package it is all of `node_modules`,
    of a Python program its environment, else the file alone.
    """
    found = [program]
    with open(program, "rb") as file:  # noqa: PTH123 - one line of it
        first = file.readline(256)
    if first.startswith(b"#!"):
        words = first[2:].decode("utf-8", "replace").split()
        named = [
            word
            for word in words
            if Path(word).name != "env" and not word.startswith("-") and "=" not in word
        ]
        interpreter = (
            shutil.which(named[0], path=environ.get("PATH", os.defpath)) if named else None
        )
        found += [interpreter] if interpreter else []
    shown: dict[str, None] = {}
    for path in map(Path, found):
        for place in (path, path.resolve()):
            packages = [each for each in place.parents if each.name == "node_modules"]
            environments = [each for each in place.parents if (each / "pyvenv.cfg").is_file()]
            whole = (packages or environments or [place])[-1]
            if not any(whole.is_relative_to(system) for system in SYSTEM):
                shown[str(whole)] = None
    return tuple(shown)
