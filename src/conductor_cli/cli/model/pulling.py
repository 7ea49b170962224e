"""Getting a model of the registry: what it will take, the transfer, what came of it, and the one question of `ask`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from conductor_cli.cli.output import print_notice
from conductor_cli.cli.prompts import can_ask, confirm
from conductor_cli.core.formatting import format_duration, format_size

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.models.weights.model_store import Manifest
    from conductor_cli.models.weights.pull import Quote
    from conductor_cli.models.weights.registry import RegistryModel

USUAL: Final = 10_000_000
"""Bytes a second that a question about a transfer reckons with, and says so."""

TRUST: Final = {
    "registry": "as conductor's registry says",
    "hub": "as the hub says, pinned from now on",
    "mirror": "as {endpoint} says, which proves nothing; pinned from now on",
    "file": "nothing to compare it with",
}
"""What a SHA-256 was compared with, in words."""


def here(entry: RegistryModel, settings: Settings) -> Manifest | None:
    """The whole model of this entry, if it is in the model store and still what the registry means."""
    from conductor_cli.app.planner_resolution import open_model_store

    manifest = next((found for found in open_model_store(settings).manifests() if found.name == entry.name), None)
    if manifest is None or manifest.fault() or len(manifest.files) != len(entry.parts):
        return None
    pairs = zip(entry.parts, manifest.files, strict=True)
    return manifest if all(part.sha256 in {"", file.sha256} for part, file in pairs) else None


def whole(manifest: Manifest, settings: Settings, *, quiet: bool) -> bool:
    """Whether the files of a model that is here are still what they were; they are read for it."""
    from conductor_cli.cli.model.watching import reading, watching
    from conductor_cli.models.weights.verify import check

    with watching(settings, quiet=quiet) as watch:
        return not any(checked.problem for checked in check(manifest, reading(watch)))


def fetch(entry: RegistryModel, settings: Settings, *, quiet: bool) -> Manifest:
    """Say what it takes, then get the model. Raises `ConductorUnusable` where it cannot be had or has no room."""
    from conductor_cli.models.weights.pull import quote

    terms = quote(entry, settings.environ)
    if not quiet:
        _announce(entry, terms, settings)
    _check_room(terms)
    return _bring(entry, settings, quiet=quiet)


def _bring(entry: RegistryModel, settings: Settings, *, quiet: bool) -> Manifest:
    from conductor_cli.app.planner_resolution import open_model_store
    from conductor_cli.cli.model.watching import watching
    from conductor_cli.models.weights.pull import pull

    try:
        with watching(settings, quiet=quiet) as watch:
            return pull(entry, open_model_store(settings), settings.environ, watch)
    except KeyboardInterrupt:
        if not quiet:
            print_notice(f"stopped; this goes on where it ended: conductor model pull {entry.name}")
        raise


def _announce(entry: RegistryModel, offer: Quote, settings: Settings) -> None:
    for line in [*_terms(entry, offer), *_fit(entry, settings)]:
        print_notice(line)


def _terms(entry: RegistryModel, offer: Quote) -> list[str]:
    """Size, licence, where from and where to."""
    rest = f", {format_size(offer.missing)} of it to get" if offer.missing < entry.size else ""
    size = format_size(entry.size) if entry.size else "size unknown"
    lines = [
        f"{entry.name}: {size}{rest}, licence {entry.licence}",
        f"from {entry.repo} at {entry.revision[:12]}, to {offer.where}, {format_size(offer.free)} free",
    ]
    if entry.licence != "Apache-2.0":
        lines.append(f"{entry.licence} is not Apache-2.0: what it allows stands at https://huggingface.co/{entry.repo}")
    return lines


def _fit(entry: RegistryModel, settings: Settings) -> list[str]:
    """The read_memory it needs beside what the machine has, and a smaller model where that is too much."""
    from conductor_cli.models.machine import read_memory
    from conductor_cli.models.weights.registry import load_registry

    found = read_memory()
    if not found.total or not entry.memory:
        return [f"memory: needs about {format_size(entry.memory)}"] if entry.memory else []
    line = f"memory: needs about {format_size(entry.memory)}; this machine has {format_size(found.total)}"
    if entry.memory > found.total:
        fitting = [other for other in load_registry(settings.environ) if other.memory <= found.total and not other.base]
        best = max(fitting, key=lambda other: other.size, default=None)
        smaller = [f"smaller: conductor model pull {best.name}"] if best else []
        return [f"{line}: too little, it would be very slow or fail", *smaller]
    if entry.memory > found.available > 0:
        return [f"{line}, of which only {format_size(found.available)} are free now: close something first"]
    return [line]


def _check_room(offer: Quote) -> None:
    from conductor_cli.models.disk import check_room

    check_room(offer.where, offer.missing, "HF_HOME")


def told(manifest: Manifest, said: Callable[[str], None]) -> None:
    """Say where a model is, and what its SHA-256 was compared with."""
    against = TRUST[manifest.trust].format(endpoint=manifest.endpoint)
    for file in manifest.files:
        said(f"{file.path}")
        said(f"SHA-256 {file.sha256}: {against}")


def offer(settings: Settings, *, quiet: bool) -> None:
    """Where no model plans at all, ask a person once whether to get the default one, and get it.

    Without a terminal, or after a no, now or earlier, nothing happens here: opening the conductor says what to run.
    """
    from conductor_cli.app.planner_resolution import has_no_model

    if quiet or not can_ask() or not has_no_model(settings):
        return
    if _no(settings).exists():
        return
    from conductor_cli.config.workers import set_value
    from conductor_cli.models.weights.hub import is_offline
    from conductor_cli.models.weights.pull import quote
    from conductor_cli.models.weights.registry import load_registry

    entry = load_registry(settings.environ)[0]
    terms = quote(entry, settings.environ)
    if not terms.cached and is_offline(settings.environ):
        return
    _check_room(terms)
    print_notice("There is no conductor model yet, the one that plans. The default one is")
    _announce(entry, terms, settings)
    takes = (
        f", about {format_duration(terms.missing / USUAL, tenths=False)} at {format_size(USUAL)}/s"
        if terms.missing
        else ""
    )
    if confirm(f"Get it now{takes}?", default=True):
        told(_bring(entry, settings, quiet=quiet), print_notice)
        set_value(settings.paths, "conductor.model", entry.name)
    else:
        with suppress(OSError):  # then it is asked again
            _no(settings).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _no(settings).write_text("The question whether to get the default conductor model was answered with no.\n")
        print_notice("this is not asked again; to get it after all: conductor model pull")


def forget_no(settings: Settings) -> None:
    """Let the question be asked again: the person gets a model after all."""
    with suppress(OSError):
        _no(settings).unlink(missing_ok=True)


def _no(settings: Settings) -> Path:
    """A file that is there after a no to the one question."""
    return settings.paths.state / "no-model-wanted"
