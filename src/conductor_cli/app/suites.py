"""Published suites from the hub: each file once, at a commit and with a hash that are kept and compared ever after."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from conductor_cli.config import Settings
from conductor_cli.core.errors import ConductorUnusable, ConfigError, describe_system_error
from conductor_cli.core.formatting import format_size
from conductor_cli.evals.suites.rows import Suite
from conductor_cli.models import disk
from conductor_cli.models.weights import huggingface
from conductor_cli.models.weights.huggingface import HubRepository
from conductor_cli.models.weights.model_store import ModelFile

MAX_FILE: Final = 8_000_000_000  # Bytes of a file of a suite
Report = Callable[[str, int, int], None]


class _Pin(NamedTuple):
    """What a file of a suite was when it was fetched for the first time."""

    commit: str
    sha256: str


def fetch_suite(suite: Suite, settings: Settings, report: Report) -> Path:
    """The file of a suite in our cache, fetched from the hub if it is not there; with it, its file of solved examples.

    A file whose hash was kept must have it. Raises `ConductorUnusable` where the hub does not answer, refuses or sends
    something else, and `ConfigError` where nothing can be written.
    """
    place = settings.paths.cache / "suites" / suite.name
    try:
        disk.make_private_directory(place)
        for file in (suite.examples, suite.file):
            if file:
                path = _fetch(suite, file, place, report)
    except ConductorUnusable as error:
        if error.hint.startswith("conductor eval"):
            raise
        page = f"{huggingface.shown_endpoint()}/datasets/{suite.repo}"
        hint = f"see {page}; with a file that you have: conductor eval {suite.name} --from FILE"
        raise ConductorUnusable(error.message, hint=hint) from None
    except OSError as error:
        why = describe_system_error(error)
        raise ConfigError(f"cannot write {place}: {why}", hint="make it writable and free some space") from None
    return path


def _fetch(suite: Suite, file: str, place: Path, report: Report) -> Path:
    path = place / Path(file).name
    pins = _read_pins(place)
    pin = pins.get(file)
    if path.is_file():
        found = _hash_of(path)
        if pin is None or found == pin.sha256:
            return path
        hint = f"conductor eval {suite.name} --from FILE; or remove {place} to fetch it again"
        raise ConductorUnusable(f"{path} is not the file that was fetched: its hash has changed", hint=hint)
    repository, remote = _find_remote(suite, file, pin)
    part = place / f"{path.name}.{repository.commit[:12]}.part"
    huggingface.download_file(repository, remote, part, report)
    found = _hash_of(part)
    wanted = pin.sha256 if pin is not None else remote.sha256
    if wanted and found != wanted:
        part.unlink()
        before = "before" if pin is not None else "the hub says"
        raise ConductorUnusable(
            f"{file} of {suite.repo} has another hash than {before}", hint=f"conductor eval {suite.name} --from FILE"
        )
    pins[file] = _Pin(commit=repository.commit, sha256=found)
    data = json.dumps({name: kept._asdict() for name, kept in pins.items()}, indent=2)
    disk.write_atomically(place / "pins.json", f"{data}\n", mode=0o600)
    os.replace(part, path)  # noqa: PTH105 - its text says what it does
    return path


def _find_remote(suite: Suite, file: str, pin: _Pin | None) -> tuple[HubRepository, ModelFile]:
    """The repository at the commit that was kept, or at the newest one, and the file. Raises `ConductorUnusable`."""
    if huggingface.is_offline():
        hint = f"conductor eval {suite.name} --from FILE, or unset HF_HUB_OFFLINE"
        raise ConductorUnusable(
            f"{suite.name} is not in the cache, and HF_HUB_OFFLINE forbids asking the hub", hint=hint
        )
    repository = huggingface.ask_repository(suite.repo, pin.commit if pin is not None else "main", kind="dataset")
    remote = repository.files.get(file)
    if remote is None:
        hint = f"conductor eval {suite.name} --from FILE"
        raise ConductorUnusable(f"{suite.repo} has no file {file} any more", hint=hint)
    if not 0 < remote.size <= MAX_FILE:
        raise ConductorUnusable(
            f"{file} of {suite.repo} has {remote.size:,} bytes, and at most {format_size(MAX_FILE)} are fetched",
            hint=f"conductor eval {suite.name} --from FILE",
        )
    return repository, remote


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_pins(place: Path) -> dict[str, _Pin]:
    """What was kept; nothing where that is damaged, and then the files that are there count as they are."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        data = json.loads((place / "pins.json").read_text(encoding="utf-8"))
        return {name: _Pin(commit=str(kept["commit"]), sha256=str(kept["sha256"])) for name, kept in data.items()}
    return {}
