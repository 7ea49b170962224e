"""Checks of the installation: versions, directories, the keyring, and other commands named `conductor`."""

from __future__ import annotations

import os
import platform
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from conductor_cli import __version__
from conductor_cli.app.checks import Check
from conductor_cli.app.keys import open_key_store
from conductor_cli.app.planner_resolution import has_no_model
from conductor_cli.config import Settings
from conductor_cli.core.errors import ConductorError
from conductor_cli.core.formatting import format_size
from conductor_cli.keys.keyring import KeyringError, probe_keyring
from conductor_cli.models import disk
from conductor_cli.models.prices import load_prices
from conductor_cli.models.weights.cache import Cache
from conductor_cli.models.weights.registry import load_registry

ROOM_FOR_STATES: Final = 1 << 30
"""Bytes of free disk below which prompt states of 100 MB each may soon not fit."""

ROOM_FOR_TRACES: Final = 1 << 28
"""Bytes of free disk below which traces and settings may soon not fit."""

LIBRARIES: Final = ("litellm", "huggingface-hub", "keyring", "httpx")

COMMAND: Final = "conductor"


def versions(settings: Settings) -> list[Check]:
    """The versions of this program, of Python, of the system, and of the libraries."""
    del settings
    found = f"{__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}".rstrip()
    program = Check(name="conductor", state="ok", found=found)
    have, missing = [], []
    for name in LIBRARIES:
        try:
            have.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if not missing:
        return [program, Check(name="libraries", state="ok", found=", ".join(have))]
    hint = "reinstall conductor: pip install --force-reinstall conductor-llm"
    found = f"not installed: {', '.join(missing)}"
    return [program, Check(name="libraries", state="failed", found=found, hint=hint, code=1)]


def keyring(settings: Settings) -> list[Check]:
    """Whether the system's keyring keeps what it is given. Without one, only the keys that are in it are lost."""
    inside = [name for name, entry in open_key_store(settings).entries().items() if entry.where == "keyring"]
    try:
        probed = probe_keyring(settings.environ)
    except KeyringError as error:
        if inside:
            found = f"{error.message}; the keys of {', '.join(inside)} are stored in it"
            return [Check(name="keyring", state="failed", found=found, hint=error.hint, code=error.exit_code)]
        return [Check(name="keyring", state="warning", found=error.message, hint=error.hint)]
    found = f"{probed.backend}: an item was written, read and removed in {probed.seconds:.2f} s"
    return [Check(name="keyring", state="ok", found=found, seconds=probed.seconds)]


def prices(settings: Settings) -> list[Check]:
    """The table of prices, and its date."""
    del settings
    table = load_prices()
    if table.problem:
        hint = "reinstall litellm: pip install --force-reinstall litellm"
        return [Check(name="prices", state="warning", found=table.problem, hint=hint)]
    return [Check(name="prices", state="ok", found=f"{table.models:,} models, {table.about}")]


def project_files(settings: Settings) -> list[Check]:
    """The project files that apply in this directory. They come with other people's files and restrict settings."""
    found = [f"{path} restricts {', '.join(names) or 'nothing'}" for path, names in settings.projects]
    return [Check(name="project file", state="ok", found="; ".join(found) or "none applies in this directory")]


def directories(settings: Settings) -> list[Check]:
    """Whether each directory can be written to, and how much room it has."""
    paths = settings.paths
    try:
        download = load_registry(settings.environ)[0].size if has_no_model(settings) else ROOM_FOR_STATES
    except ConductorError:
        download = ROOM_FOR_STATES
    wanted = {
        "settings": (paths.config, ROOM_FOR_TRACES),
        "data": (paths.data, ROOM_FOR_TRACES),
        "traces": (paths.traces, ROOM_FOR_TRACES),
        "models": (paths.models, ROOM_FOR_STATES),
        "prefixes": (paths.prefixes, ROOM_FOR_STATES),
        "downloads": (Cache.from_environment(settings.environ).directory, download),
    }
    return [_check_directory(name, directory, room) for name, (directory, room) in wanted.items()]


def _check_directory(name: str, directory: Path, wanted: int) -> Check:
    # A directory that does not exist yet is judged by the one in which it would be made; doctor makes none.
    existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    try:
        free = disk.free_bytes(directory)
        with tempfile.TemporaryFile(dir=existing) as probe:  # it has no name, so nothing can be left behind
            probe.write(b"conductor")
            probe.flush()
    except OSError as error:
        where = f"{directory}: " if existing == directory else f"{directory}: {existing}: "
        hint = f"check who owns it: ls -ld {existing}; then, for example: chmod u+rwx {existing}"
        return Check(name=name, state="failed", found=f"{where}{error.strerror}", hint=hint, code=3)
    found = f"{directory}, {format_size(free)} free"
    if free >= wanted:
        return Check(name=name, state="ok", found=found)
    return Check(name=name, state="warning", found=found, hint=f"free some space: {format_size(wanted)} may be needed")


def commands(settings: Settings) -> list[Check]:
    """Every `conductor` on PATH: other programs have a command of the same name."""
    found: dict[Path, Path] = {}
    for directory in filter(None, settings.environ.get("PATH", "").split(os.pathsep)):
        file = Path(directory) / COMMAND
        if file.is_file() and os.access(file, os.X_OK):
            found.setdefault(file.resolve(), file)  # a file with two names counts once
    paths = list(found.values())
    if not paths:
        hint = "python -m conductor_cli works without it"
        return [Check(name="command", state="ok", found=f"no {COMMAND} is on PATH", hint=hint)]
    ours = []
    for path in paths:
        # Judged by its text, since nothing may be run: in any environment, it starts this package or another one.
        try:
            with path.open("rb") as script:
                ours.append(b"conductor_cli" in script.read(4096))
        except OSError:
            ours.append(False)
    named = [f"{path} ({'this program' if own else 'another one'})" for path, own in zip(paths, ours, strict=True)]
    if all(ours):
        return [Check(name="command", state="ok", found=", ".join(named))]
    first = "the first one runs" if ours[0] else f"{paths[0]} runs instead of this one"
    hint = f"{first}; conductor-llm always runs this one"
    return [Check(name="command", state="warning", found=", ".join(named), hint=hint)]
