"""Published suites from the hub: each file once, at a commit and with a hash that are kept and compared ever after."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from conductor_cli.config import Settings
from conductor_cli.core.errors import ConductorUnusable, ConfigError, describe_system_error
from conductor_cli.core.formatting import format_size
from conductor_cli.evals.suites import Suite
from conductor_cli.models import disk
from conductor_cli.models.weights import huggingface

MAX_FILE: Final = 8_000_000_000  # Bytes of a file of a suite


def fetch_suite(suite: Suite, settings: Settings, report: Callable[[str, int, int], None]) -> Path:
    """The file of a suite in our cache, fetched from the hub if it is not there.

    A file whose hash was kept must have it. Raises `ConductorUnusable` where the hub does not answer, refuses or sends
    something else, and `ConfigError` where nothing can be written.
    """
    place = settings.paths.cache / "suites" / suite.name
    try:
        disk.make_private_directory(place)
        return _fetch(suite, place, report)
    except ConductorUnusable as error:
        if error.hint.startswith("conductor eval"):
            raise
        page = f"{huggingface.shown_endpoint()}/datasets/{suite.repo}"
        hint = f"see {page}; with a file that you have: conductor eval {suite.name} --from FILE"
        raise ConductorUnusable(error.message, hint=hint) from None
    except OSError as error:
        why = describe_system_error(error)
        raise ConfigError(f"cannot write {place}: {why}", hint="make it writable and free some space") from None


def _fetch(suite: Suite, place: Path, report: Callable[[str, int, int], None]) -> Path:
    file, path, go_on = suite.file, place / Path(suite.file).name, f"conductor eval {suite.name} --from FILE"
    pins, pin = dict[str, dict[str, str]](), None
    # Where what was kept is damaged, a file that is there counts as it is.
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        pins = json.loads((place / "pins.json").read_text(encoding="utf-8"))
        pin = str(pins[file]["commit"]), str(pins[file]["sha256"])
    if path.is_file():
        if pin is None or _hash_of(path) == pin[1]:
            return path
        hint = f"{go_on}; or remove {place} to fetch it again"
        raise ConductorUnusable(f"{path} is not the file that was fetched: its hash has changed", hint=hint)
    if huggingface.is_offline():
        message = f"{suite.name} is not in the cache, and HF_HUB_OFFLINE forbids asking the hub"
        raise ConductorUnusable(message, hint=f"{go_on}, or unset HF_HUB_OFFLINE")
    repository = huggingface.ask_repository(suite.repo, pin[0] if pin is not None else "main", kind="dataset")
    remote = repository.files.get(file)
    if remote is None:
        raise ConductorUnusable(f"{suite.repo} has no file {file} any more", hint=go_on)
    if not 0 < remote.size <= MAX_FILE:
        size = f"{remote.size:,} bytes, and at most {format_size(MAX_FILE)} are fetched"
        raise ConductorUnusable(f"{file} of {suite.repo} has {size}", hint=go_on)
    part = place / f"{path.name}.{repository.commit[:12]}.part"
    huggingface.download_file(repository, remote, part, report)
    found, wanted = _hash_of(part), pin[1] if pin is not None else remote.sha256
    if wanted and found != wanted:
        part.unlink()
        before = "before" if pin is not None else "the hub says"
        raise ConductorUnusable(f"{file} of {suite.repo} has another hash than {before}", hint=go_on)
    kept = {"commit": repository.commit, "sha256": found}
    disk.write_atomically(place / "pins.json", f"{json.dumps({**pins, file: kept}, indent=2)}\n", mode=0o600)
    part.replace(path)
    return path


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
