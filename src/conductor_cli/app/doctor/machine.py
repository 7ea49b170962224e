"""Checks of this machine: versions, llama.cpp and GPUs, memory, the keyring, directories, and the local model."""

from __future__ import annotations

import errno
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from conductor_cli import __version__
from conductor_cli.app.checks import Check
from conductor_cli.app.keys import open_key_store
from conductor_cli.app.planner_resolution import (
    describe_planner,
    has_no_model,
    open_model_store,
    planner_manifest,
    resolve_planner,
)
from conductor_cli.config import Settings
from conductor_cli.config.schema import PREFIX
from conductor_cli.core.errors import ConductorError, ConductorUnusable, KeyMissing, ModelError
from conductor_cli.core.formatting import format_size
from conductor_cli.keys.keyring import KeyringError, probe_keyring
from conductor_cli.models import disk
from conductor_cli.models.catalog import api_key_of
from conductor_cli.models.llama import read_model_info
from conductor_cli.models.llama.bindings import can_use_gpu, load_bindings
from conductor_cli.models.llama.gguf import check_model_file
from conductor_cli.models.machine import find_gpus, read_memory
from conductor_cli.models.presets import PRESETS
from conductor_cli.models.weights.hub import cache_directory
from conductor_cli.models.weights.registry import file_memory, load_registry
from conductor_cli.models.weights.verify import describe_hash_source, find_problems

ROOM_FOR_STATES: Final = 1 << 30
"""Bytes of free disk below which prompt states of 100 MB each may soon not fit."""

ROOM_FOR_TRACES: Final = 1 << 28
"""Bytes of free disk below which traces and settings may soon not fit."""

BUILD_FLAGS: Final = {"cuda": "GGML_CUDA", "metal": "GGML_METAL", "rocm": "GGML_HIP"}
"""What llama.cpp must be built with for each kind of GPU."""


def versions(settings: Settings) -> Iterator[Check]:
    """The versions of this program, of Python and of the system."""
    del settings
    found = f"{__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}".rstrip()
    yield Check(name="conductor", state="ok", found=found)


def llama_build(settings: Settings) -> Iterator[Check]:
    """The installed llama.cpp: its version, and whether it uses the GPU of this machine."""
    try:
        lib = load_bindings()
    except ModelError as error:
        raise ConductorUnusable(error.message, hint=error.hint) from None
    found, name = f"llama-cpp-python {lib.__version__}", "llama.cpp"
    gpus = find_gpus(settings.environ)
    named = ", ".join(gpu.name for gpu in gpus)
    if can_use_gpu(lib):
        yield Check(name=name, state="ok", found=f"{found}, uses {named or 'a GPU'}")
    elif not gpus:
        yield Check(name=name, state="ok", found=f"{found}, runs models on the CPU")
    else:
        # llama.cpp is compiled for one kind of GPU; a build for the CPU works, at a fraction of the speed.
        build = f"--no-cache-dir --no-binary llama-cpp-python llama-cpp-python=={lib.__version__}"
        hint = f'CMAKE_ARGS="-D{BUILD_FLAGS[gpus[0].kind]}=on" pip install --force-reinstall --no-deps {build}'
        yield Check(name=name, state="warning", found=f"{found}, does not use {named}", hint=hint)


def memory(settings: Settings) -> Iterator[Check]:
    """The RAM of this machine, and what the conductor model needs of it."""
    ram = read_memory()
    if not ram.total:
        return
    found = f"{format_size(ram.total)}, {format_size(ram.available)} free"
    need = _memory_needed(settings)
    if need:
        found = f"{found}; the conductor model needs {format_size(need)}"
    if need <= ram.available:
        yield Check(name="memory", state="ok", found=found)
        return
    models = [model for model in load_registry(settings.environ) if 0 < model.memory <= ram.available]
    best = max((model for model in models if not model.base), key=lambda model: model.memory, default=None)
    hint = "close other programs" if best is None else f"close other programs, or: conductor model pull {best.name}"
    yield Check(name="memory", state="warning", found=found, hint=hint)


def memory_shortage(settings: Settings) -> str:
    """That the local conductor needs more memory than this machine has, in words; else empty."""
    need, total = _memory_needed(settings), read_memory().total
    if not 0 < total < need:
        return ""
    return f"the model needs {format_size(need)}, and this machine has {format_size(total)}"


def _memory_needed(settings: Settings) -> int:
    """Bytes of RAM that the chosen local model takes; 0 if there is none, or if that is not known."""
    try:
        planner = resolve_planner(settings)
        # On a GPU the weights are not in this memory, or only some of them.
        if planner.kind != "llama" or can_use_gpu(load_bindings()):
            return 0
        path = Path(planner.model)
        return file_memory(path, read_model_info(path).size, settings["conductor.context"])
    except ConductorError:
        return 0


def keyring(settings: Settings) -> Iterator[Check]:
    """Whether the system's keyring keeps what it is given. Without one, only the keys that are in it are lost."""
    try:
        backend = probe_keyring(settings.environ)
    except KeyringError as error:
        entries = open_key_store(settings).entries()
        inside = [name for name, entry in entries.items() if entry.where == "keyring"]
        if inside:
            message = f"{error.message}; the keys of {', '.join(inside)} are stored in it"
            raise KeyMissing(message, hint=error.hint) from None
        yield Check(name="keyring", state="warning", found=error.message, hint=error.hint)
        return
    yield Check(name="keyring", state="ok", found=f"{backend}: an item was written, read and removed")


def directories(settings: Settings) -> Iterator[Check]:
    """Whether each directory can be written to, and how much room it has."""
    paths = settings.paths
    download = load_registry(settings.environ)[0].size if has_no_model(settings) else ROOM_FOR_STATES
    downloads = cache_directory()
    yield _check_directory("settings", paths.config, ROOM_FOR_TRACES, f"{PREFIX}CONFIG_DIR")
    yield _check_directory("data", paths.data, ROOM_FOR_TRACES, f"{PREFIX}DATA_DIR")
    yield _check_directory("traces", paths.traces, ROOM_FOR_TRACES, f"{PREFIX}STATE_DIR")
    yield _check_directory("prefixes", paths.prefixes, ROOM_FOR_STATES, f"{PREFIX}CACHE_DIR")
    yield _check_directory("downloads", downloads, download, "HF_HOME")


def _check_directory(name: str, directory: Path, wanted: int, variable: str) -> Check:
    # A directory that does not exist yet is judged by the one in which it would be made; doctor makes none.
    try:
        free = disk.free_bytes(directory)
        disk.try_writing(directory)
    except OSError as error:
        hint = _directory_hint(error, disk.nearest_existing(directory), variable)
        return Check(name=name, state="failed", found=f"{directory}: {error.strerror}", hint=hint, code=3)
    found = f"{directory}, {format_size(free)} free"
    if free >= wanted:
        return Check(name=name, state="ok", found=found)
    return Check(name=name, state="warning", found=found, hint=f"free some space: {format_size(wanted)} may be needed")


def _directory_hint(error: OSError, existing: Path, variable: str) -> str:
    """What to do about a directory that cannot be written. `variable` is the one that names another."""
    if error.errno in disk.DISK_FULL_ERRORS:
        return f"free some space, or use another directory: {variable}=DIR"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"check who owns it: ls -ld {existing}; then, for example: chmod u+rwx {existing}"
    return f"use another directory: {variable}=DIR"


def model_store(settings: Settings) -> Iterator[Check]:
    """Which models of the store are damaged; an error of the registry ends it."""
    load_registry(settings.environ)
    for item in find_problems(open_model_store(settings), settings.environ):
        yield Check(name=f"model {item.name}", state="warning", found=item.problem, hint=item.hint)


def conductor_model(settings: Settings) -> Iterator[Check]:
    """The model that plans: whether it exists, is whole, and how its checksum is known. It is not called."""
    try:
        planner = resolve_planner(settings)
        found = describe_planner(planner, open_model_store(settings))
        if planner.kind == "llama":
            path = Path(planner.model)
            check_model_file(path)
            manifest = planner_manifest(settings)
            known = describe_hash_source(manifest) if manifest else "never checked"
            found = f"{found}, {format_size(read_model_info(path).size)}, SHA-256 {known}"
        elif planner.kind in PRESETS:
            api_key_of(planner, settings.environ, open_key_store(settings))
    except (ModelError, ConductorUnusable) as error:
        hint = f"{error.hint}\nor choose another: conductor model use NAME | FILE | URL | provider/model".strip()
        raise ConductorUnusable(error.message, hint=hint) from None
    yield Check(name="conductor model", state="ok", found=found)
