"""Downloading a model at the terminal: what it needs, the progress, and the one question before a first run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from conductor_cli.app.planner_resolution import has_no_model, open_model_store
from conductor_cli.cli.output import print_notice
from conductor_cli.cli.prompts import can_ask, confirm
from conductor_cli.cli.signals import handle_signal
from conductor_cli.core.formatting import format_count, format_duration, format_size

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.models.weights.hashing import Report
    from conductor_cli.models.weights.model_store import Manifest
    from conductor_cli.models.weights.registry import RegistryModel

_MEMORY_SOURCES: Final = {
    "registry": "",
    "header": " (computed from the file's header)",
    "size": " (estimated from the file's size)",
}
"""How the memory that a model needs is known."""


@contextmanager
def show_file_progress(settings: Settings, *, quiet: bool) -> Iterator[Report]:
    """Show how far model files are until the block ends."""
    from conductor_cli.cli.progress import show_progress

    def terminate(*_: object) -> None:
        raise SystemExit(143)

    # SIGTERM ends the block as an error does, so that the cursor is shown again and locks are released.
    with handle_signal(signal.SIGTERM, terminate), show_progress(settings, quiet=quiet) as display:
        yield display.update


def download_model(model: RegistryModel, settings: Settings, *, quiet: bool) -> Manifest:
    """Pull a model and show the progress. Raises `ConductorUnusable`, also where the disk has no room for it."""
    from conductor_cli.models.weights.download import pull_model

    _check_room(model)
    try:
        with show_file_progress(settings, quiet=quiet) as report:
            return pull_model(model, open_model_store(settings), report)
    except KeyboardInterrupt:
        if not quiet:
            print_notice(f"stopped; to continue: conductor model pull {model.reference}")
        raise


def _check_room(model: RegistryModel) -> None:
    """Raise `ConductorUnusable` where the disk has no room for what is to be downloaded."""
    from conductor_cli.models.disk import check_room
    from conductor_cli.models.weights.download import missing_bytes
    from conductor_cli.models.weights.hub import cache_directory

    check_room(cache_directory(), missing_bytes(model), "HF_HOME")


def confirm_pull(model: RegistryModel, *, yes: bool) -> bool:
    """Whether to download a model: a person is asked where it needs more memory than is free.

    Raises `ConductorUnusable` where the disk has no room for it.
    """
    from conductor_cli.models.machine import read_memory

    _check_room(model)
    memory = read_memory()
    if yes or not can_ask() or not model.memory > memory.available > 0:
        return True
    free = (
        f"{model.name} needs about {format_size(model.memory)} of memory, and {format_size(memory.available)} are free"
    )
    return confirm(f"{free}. Download it anyway?", default=False)


def describe_pull(model: RegistryModel) -> list[str]:
    """What a pull needs: size, licence, where from and where to, and the memory beside what the machine has."""
    from conductor_cli.models import disk
    from conductor_cli.models.machine import read_memory
    from conductor_cli.models.weights.download import missing_bytes
    from conductor_cli.models.weights.hub import cache_directory, shown_endpoint

    missing, directory, memory = missing_bytes(model), cache_directory(), read_memory()
    remaining = f", {format_size(missing)} of it to download" if missing < model.size else ""
    size, free = format_size(model.size) if model.size else "size unknown", format_size(disk.free_bytes(directory))
    lines = [
        f"{model.name}: {size}{remaining}, licence {model.licence}",
        f"from {model.repo} at {model.revision[:12]}, to {directory}, {free} free",
    ]
    if not model.listed:
        more = f" and {format_count(len(model.parts) - 1, 'more part')}" if len(model.parts) > 1 else ""
        lines.append(f"file {model.parts[0].file}{more}")
    if model.licence == "unknown":
        lines.append(
            f"the repository names no licence; what its makers allow may be at {shown_endpoint()}/{model.repo}"
        )
    elif model.licence.lower() != "apache-2.0":
        lines.append(f"{model.licence} is not Apache-2.0; its terms are at https://huggingface.co/{model.repo}")
    if not model.memory:
        return lines
    line = f"memory: needs about {format_size(model.memory)}{_MEMORY_SOURCES[model.memory_source]}"
    if memory.total:
        line += f"; this machine has {format_size(memory.total)}"
    # A model that does not fit is still offered: the person may know better, and swap exists.
    if model.memory > memory.total > 0:
        line += ": too little, it would be very slow or fail; for a smaller one: conductor model list"
    elif model.memory > memory.available > 0:
        line += f", of which only {format_size(memory.available)} are free now: close something first"
    return [*lines, line]


def describe_files(manifest: Manifest, *, named: bool = False) -> list[str]:
    """Where a model's files are, and what their SHA-256 was compared with; first what it is called, if `named`."""
    from conductor_cli.models.weights.verify import describe_hash_source

    compared = describe_hash_source(manifest)
    first = [f"installed {manifest.name}:"] if named else []
    return first + [line for file in manifest.files for line in (f"{file.path}", f"SHA-256 {file.sha256}: {compared}")]


def offer_model(settings: Settings, *, quiet: bool, explained: bool = False) -> None:
    """Ask a person once whether to download the default model if none plans, and download it.

    `explained`: it was said already that none is there.

    Without a terminal, or after a no, nothing happens here: opening the conductor says what to run.
    """
    if quiet or not can_ask() or not has_no_model(settings):
        return
    from conductor_cli.app.models import USUAL_RATE, first_model_to_pull, remember_refusal
    from conductor_cli.config.files import set_value
    from conductor_cli.models.weights.download import missing_bytes

    model = first_model_to_pull(settings)
    if model is None:
        return
    missing = missing_bytes(model)
    print_notice("The default one is:" if explained else "No conductor model is installed yet. The default one is:")
    for line in describe_pull(model):
        print_notice(line)
    duration = format_duration(missing / USUAL_RATE, tenths=False)
    takes = f", about {duration} at {format_size(USUAL_RATE)}/s" if missing else ""
    if confirm(f"Download it now{takes}?", default=True):
        for line in describe_files(download_model(model, settings, quiet=quiet)):
            print_notice(line)
        set_value(settings.paths, "conductor.model", model.name)
    else:
        remember_refusal(settings)
        print_notice("you will not be asked again; to download it later: conductor model pull")
