"""What `doctor` looks at around the installation: versions, directories, the keyring, other commands of its name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from conductor_cli.app.checks import Check
from conductor_cli.core.errors import ConductorError
from conductor_cli.core.formatting import format_size

if TYPE_CHECKING:
    from conductor_cli.config import Settings

LITTLE: Final = 1 << 30
"""Bytes of free disk below which a state of 100 MB may soon have no room."""

FEW: Final = 1 << 28
"""Bytes of free disk below which traces and settings may soon have no room."""

LIBRARIES: Final = ("litellm", "huggingface-hub", "keyring", "httpx")

COMMAND: Final = "conductor"

_IMPORTED: Final = re.compile(rb"^\s*(?:from|import)\s+([A-Za-z_]\w*)", re.MULTILINE)
_SHEBANG: Final = re.compile(rb"#!\s*(\S+)")
_HEAD: Final = 4096


def versions(settings: Settings) -> list[Check]:
    """What this program is, its Python, its system, and the libraries that it stands on."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from conductor_cli import __version__

    del settings
    found = f"{__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}".rstrip()
    have, missing = [], []
    for name in LIBRARIES:
        try:
            have.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    checks = [
        Check(name="conductor", state="ok", found=found),
        Check(name="libraries", state="ok", found=", ".join(have)),
    ]
    if missing:
        hint = "install it again: pip install --force-reinstall conductor-llm"
        found = f"not installed: {', '.join(missing)}"
        checks[1] = Check(name="libraries", state="failed", found=found, hint=hint, code=1)
    return checks


def keyring(settings: Settings) -> list[Check]:
    """Whether the system's keyring keeps what it is given. Without one, only keys that are in it are lost."""
    from conductor_cli.app.key_status import stored_keys
    from conductor_cli.keys.keyring import KeyringError
    from conductor_cli.keys.probe import probe_keyring

    inside = [name for name, entry in stored_keys(settings).entries().items() if entry.where == "keyring"]
    try:
        probed = probe_keyring(settings.environ)
    except KeyringError as fault:
        found = f"{fault.message}; it has the keys of {', '.join(inside)}" if inside else fault.message
        state, code = ("failed", fault.exit_code) if inside else ("warning", 0)
        return [Check(name="keyring", state=state, found=found, hint=fault.hint, code=code)]
    found = f"{probed.backend}: an item was written, read and removed in {probed.seconds:.2f} s"
    return [Check(name="keyring", state="ok", found=found, seconds=probed.seconds)]


def prices(settings: Settings) -> list[Check]:
    """The table that prices come from, and of when it is."""
    from conductor_cli.models.prices import load_prices

    table = load_prices(settings.paths.cache)
    if table.problem:
        hint = "install it again: pip install --force-reinstall litellm"
        return [Check(name="prices", state="warning", found=table.problem, hint=hint)]
    return [Check(name="prices", state="ok", found=f"{table.models:,} models, {table.about}")]


def project(settings: Settings) -> list[Check]:
    """The project files that hold in this directory: they came with others' files, and narrow what is allowed."""
    found = [f"{path} narrows {', '.join(names) or 'nothing'}" for path, names in settings.projects]
    return [Check(name="project file", state="ok", found="; ".join(found) or "none holds in this directory")]


def disk(settings: Settings) -> list[Check]:
    """The directories: whether they can be written, and how much room they have."""
    from conductor_cli.models.weights.cache import Cache

    places = settings.paths
    wanted = {
        "settings": (places.config, FEW),
        "data": (places.data, FEW),
        "traces": (places.traces, FEW),
        "models": (places.models, LITTLE),
        "prefixes": (places.prefixes, LITTLE),
        "downloads": (Cache.of(settings.environ).directory, _to_pull(settings)),
    }
    return [_room(name, directory, room) for name, (directory, room) in wanted.items()]


def _room(name: str, directory: Path, wanted: int) -> Check:
    """One directory; one that is not there yet is judged by where it would be made, and is not made."""
    import tempfile

    from conductor_cli.models import disk

    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    try:
        free = disk.free_bytes(directory)
        with tempfile.TemporaryFile(dir=there) as probe:  # it has no name, or loses it at once
            probe.write(b"conductor")
            probe.flush()
    except OSError as error:
        found = f"{directory}: {error.strerror}" if there == directory else f"{directory}: {there}: {error.strerror}"
        hint = f"see who owns it: ls -ld {there}; then for example: chmod u+rwx {there}"
        return Check(name=name, state="failed", found=found, hint=hint, code=3)
    found = f"{directory}, {format_size(free)} free"
    if free >= wanted:
        return Check(name=name, state="ok", found=found)
    return Check(name=name, state="warning", found=found, hint=f"free the disk: {format_size(wanted)} are wanted")


def _to_pull(settings: Settings) -> int:
    """Bytes that the download of the default model takes, where there is no model yet."""
    from conductor_cli.app.planner_resolution import has_no_model
    from conductor_cli.models.weights.registry import load_registry

    try:
        return load_registry(settings.environ)[0].size if has_no_model(settings) else LITTLE
    except ConductorError:
        return LITTLE


def commands(settings: Settings) -> list[Check]:
    """Every `conductor` on the path, and what it is: other programs have a command of the same name."""
    paths = list(_on_path(settings.environ.get("PATH", "")))
    if not paths:
        hint = "python -m conductor_cli runs it all the same"
        return [Check(name="command", state="ok", found=f"no {COMMAND} is on PATH", hint=hint)]
    found = [f"{path} ({what_is(path)})" for path in paths]
    others = [path for path in paths if not is_ours(path)]
    if not others:
        return [Check(name="command", state="ok", found=", ".join(found))]
    first = "the first one runs" if is_ours(paths[0]) else f"{paths[0]} runs in the place of this one"
    hint = f"{first}; conductor-llm is always this one"
    return [Check(name="command", state="warning", found=", ".join(found), hint=hint)]


def _on_path(path: str) -> Iterator[Path]:
    """The files that a shell would run, in its order, each once."""
    seen = set()
    for directory in path.split(os.pathsep):
        file = Path(directory) / COMMAND
        if directory and file.is_file() and os.access(file, os.X_OK) and file.resolve() not in seen:
            seen.add(file.resolve())
            yield file


def is_ours(path: Path) -> bool:
    """Whether a command is a start of this package, in whatever environment."""
    return b"conductor_cli" in _head(path)


def what_is(path: Path) -> str:
    """Which package a command starts, by what stands in it; nothing is run."""
    module = _module(path)
    if module:
        return _distribution(path) or f"Python, {module}"
    head = _head(path)
    return "a script" if head.startswith(b"#!") else "a program"


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD)
    except OSError:
        return b""


def _module(path: Path) -> str:
    """The package that a Python script's last import is from: those before it are of the standard library."""
    head = _head(path)
    if not (head.startswith(b"#!") and b"python" in head.partition(b"\n")[0]) and b"exec" not in head[:40]:
        return ""
    names = [name.decode() for name in _IMPORTED.findall(head)]
    return next((name for name in names if name not in ("re", "sys", "os")), "")


def _distribution(path: Path) -> str:
    """The name and version of the package that installed the command, from beside its interpreter."""
    from importlib.metadata import distributions

    shebang = _SHEBANG.match(_head(path))
    if shebang is None:
        return ""
    root = Path(os.fsdecode(shebang[1])).parent.parent
    places = [str(place) for place in (*root.glob("lib/python3*/site-packages"), root / "Lib/site-packages")]
    for found in distributions(path=places):
        scripts = found.entry_points.select(group="console_scripts", name=COMMAND)
        if any(script.module.partition(".")[0] == _module(path) for script in scripts):
            return f"{found.name} {found.version}"
    return ""
