"""What a program gets of this process: a few variables, a directory, and the place of its executable file."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import ModelError
from conductor_cli.models.command.programs import PROGRAMS

USUAL: Final = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "TERM", "TZ",
    "TMPDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME",
)  # fmt: skip
"""The variables that every program gets: none of them holds a key."""


def environment_of(environ: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """The variables for a program: the usual ones, and those with these names. Those that are not set are left out."""
    return {name: environ[name] for name in dict.fromkeys((*USUAL, *names)) if name in environ}


def installed_agents(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The kinds of known agents whose program is in PATH."""
    path = environ.get("PATH", os.defpath)
    return tuple(
        kind for kind, known in PROGRAMS.items() if known.command and shutil.which(known.command[0], path=path)
    )


def find_program(name: str, environ: Mapping[str, str], cwd: str, install: str) -> str:
    """The executable file of a program. Raises `ModelError` that says how to install it.

    A name with a slash is relative to the working directory of the worker.
    """
    path = os.path.expanduser(name)  # noqa: PTH111 - a plain name must stay one
    if "/" in path and cwd:
        path = os.path.join(Path(cwd).expanduser(), path)  # noqa: PTH118 - the same
    found = shutil.which(path, path=environ.get("PATH", os.defpath))
    if found:
        return os.path.abspath(found)  # noqa: PTH100 - a link must not be resolved
    if os.path.isfile(path):  # noqa: PTH113 - the same
        raise ModelError("missing", f"{name} is not executable", hint=f"chmod +x {path}")
    hint = install or "install it, or name it with its path; conductor looks for it in PATH"
    raise ModelError("missing", f"the program {name} was not found", hint=hint)


def existing_directory(given: str) -> Path:
    """The directory that the settings name. Raises `ModelError`."""
    path = Path(given).expanduser()
    if not path.is_dir():
        raise ModelError("missing", f"cwd is not a directory: {given}", hint="make it, or name another one")
    return path.resolve()


@asynccontextmanager
async def working_directory(given: str) -> AsyncGenerator[Path]:
    """The directory that the settings name, else a fresh one, which is removed in the end. Raises `ModelError`."""
    if given:
        yield existing_directory(given)
        return
    fresh = existing_directory(tempfile.mkdtemp(prefix="conductor-"))
    try:
        yield fresh
    finally:
        # A program may leave very many files.
        await asyncio.to_thread(shutil.rmtree, fresh, ignore_errors=True)
