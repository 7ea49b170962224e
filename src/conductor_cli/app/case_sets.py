"""Loads sets of cases: built-in ones, files, and published suites.

A file of a published suite is fetched from the hub once, at a commit and with a hash that are kept
and compared ever after.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from conductor_cli.app import rehearsal
from conductor_cli.config.settings import Settings
from conductor_cli.core.errors import (
    ConductorUnusable,
    ConfigError,
    UsageError,
    describe_system_error,
)
from conductor_cli.core.formatting import format_size
from conductor_cli.evals.cases import (
    COUNT,
    EVERYDAY,
    EVERYDAY_FILE,
    NAME,
    Case,
    make_basics,
    read_cases,
)
from conductor_cli.evals.suite_files import read_suite
from conductor_cli.evals.suites import SUITES, Suite, suite_by_columns
from conductor_cli.models.weights import huggingface
from conductor_cli.models.weights.model_store import ModelFile
from conductor_cli.system import disk


def load_cases(
    source: str, *, file: str | None, count: int | None, seed: int, columns: str = ""
) -> tuple[str, tuple[Case, ...]]:
    """Return the set's name and its cases.

    `seed` makes those of `basics`, and chooses `count` from a file or the demo's set.

    With `file`, `source` is the published suite that the file contains. With `columns`, it is a
    file whose columns have these names (`suite_by_columns`). Raises `UsageError`, with the line if
    a file is wrong.
    """
    path = Path(source).expanduser()
    if columns:
        return path.name, read_suite(
            suite_by_columns(path.name, columns), path, count=count, seed=seed
        )
    if file is not None:
        if source not in SUITES:
            raise UsageError(f"unknown suite {source!r:.60}", hint=_known_suites())
        return source, read_suite(SUITES[source], Path(file).expanduser(), count=count, seed=seed)
    if source == rehearsal.NAME:
        return source, rehearsal.held_out_cases(count or rehearsal.EVAL_CASES, seed)
    if source == NAME:
        return source, make_basics(count or COUNT, seed)
    if source == EVERYDAY:
        return source, sample_cases(read_cases(EVERYDAY_FILE), count, seed)
    if source in SUITES and not path.exists():
        hint = f"{SUITES[source].source} on the Hugging Face hub"
        raise UsageError(f"{source} needs its file: --from FILE", hint=hint)
    if not path.exists() and not path.suffix:
        raise UsageError(f"{path} is neither a file nor a set", hint=_known_suites())
    # A file that is called like a set must not be taken for it when results are compared.
    name = path.name
    if name in (rehearsal.NAME, NAME, EVERYDAY, *SUITES):
        name = str(path.absolute())
    return name, sample_cases(read_cases(path), count, seed)


def _known_suites() -> str:
    return f"built-in: {rehearsal.NAME}, {NAME}, {EVERYDAY}; published: {', '.join(SUITES)}"


def sample_cases(cases: Sequence[Case], count: int | None, seed: int) -> tuple[Case, ...]:
    """Return a sample of `count` cases in their own order, chosen by the seed.

    All of them without a count.
    """
    if count is None or count == len(cases):
        return tuple(cases)
    if count > len(cases):
        raise UsageError(
            f"--n {count}: the file holds {len(cases)} cases", hint="leave out --n to take all"
        )
    chosen = Random(seed).sample(range(len(cases)), count)  # noqa: S311 - reproducible, no secret
    return tuple(cases[index] for index in sorted(chosen))


MAX_FILE: Final = 8_000_000_000  # Bytes of a file of a suite


def fetch_suite(suite: Suite, settings: Settings, report: Callable[[str, int, int], None]) -> Path:
    """Return the file of a suite in our cache, fetched from the hub if it is not there.

    Its solved questions are fetched, too. A file whose hash was kept must have it. Raises
    `ConductorUnusable` where the hub does not answer, refuses or sends something else, and
    `ConfigError` where nothing can be written.
    """
    directory = settings.paths.cache / "suites" / suite.name
    try:
        disk.make_private_directory(directory)
        if suite.examples:
            _fetch(suite, suite.examples, directory, report)
        return _fetch(suite, suite.file, directory, report)
    except ConductorUnusable as error:
        if error.hint.startswith("conductor eval"):
            raise
        page = f"{huggingface.shown_endpoint()}/datasets/{suite.repo}"
        hint = f"see {page}; with a file that you have: {_way_without_hub(suite)}"
        raise ConductorUnusable(error.message, hint=hint) from None
    except OSError as error:
        why = describe_system_error(error)
        raise ConfigError(
            f"cannot write {directory}: {why}", hint="make it writable and free some space"
        ) from None


class _Pin(NamedTuple):
    """The commit and the hash of a file that was fetched, which it has ever after."""

    commit: str
    sha256: str


def _fetch(
    suite: Suite, file: str, directory: Path, report: Callable[[str, int, int], None]
) -> Path:
    """Return the path of a file of a suite in our cache, fetched if it is not there."""
    path = directory / Path(file).name
    go_on = _way_without_hub(suite)
    pins, pin = _read_pins(directory, file)
    if path.is_file():
        if pin is None or _hash_of(path) == pin.sha256:
            return path
        hint = f"{go_on}; or remove {directory} to fetch it again"
        raise ConductorUnusable(
            f"{path} is not the file that was fetched: its hash has changed", hint=hint
        )
    repository, remote = _find_on_hub(suite, file, pin, report)
    part = directory / f"{path.name}.{repository.commit[:12]}.part"
    huggingface.download_file(repository, remote, part, report)
    digest = _hash_of(part)
    expected = remote.sha256
    source = "the hub says"
    if pin is not None:
        expected = pin.sha256
        source = "before"
    if expected and digest != expected:
        part.unlink()
        raise ConductorUnusable(
            f"{file} of {suite.repo} has another hash than {source}", hint=go_on
        )
    kept = {**pins, file: {"commit": repository.commit, "sha256": digest}}
    text = f"{json.dumps(kept, indent=2)}\n"
    disk.write_atomically(directory / "pins.json", text, mode=0o600)
    part.replace(path)
    return path


def _way_without_hub(suite: Suite) -> str:
    return f"conductor eval {suite.name} --from FILE"


def _find_on_hub(
    suite: Suite, file: str, pin: _Pin | None, report: Callable[[str, int, int], None]
) -> tuple[huggingface.HubRepository, ModelFile]:
    """Return a file of a suite as the hub has it, at the commit that was kept."""
    go_on = _way_without_hub(suite)
    if huggingface.is_offline():
        message = f"{suite.name} is not in the cache, and HF_HUB_OFFLINE forbids asking the hub"
        raise ConductorUnusable(message, hint=f"{go_on}, or unset HF_HUB_OFFLINE")
    revision = "main"
    if pin is not None:
        revision = pin.commit
    repository = huggingface.ask_repository(suite.repo, revision, kind="dataset", report=report)
    remote = repository.files.get(file)
    if remote is None:
        raise ConductorUnusable(f"{suite.repo} has no file {file} any more", hint=go_on)
    if not 0 < remote.size <= MAX_FILE:
        size = f"{remote.size:,} bytes, and at most {format_size(MAX_FILE)} are fetched"
        raise ConductorUnusable(f"{file} of {suite.repo} has {size}", hint=go_on)
    return repository, remote


def _read_pins(directory: Path, file: str) -> tuple[dict[str, dict[str, str]], _Pin | None]:
    """Return what is kept of all files of a suite, and of this one.

    Where that is damaged, a file that is there counts as it is.
    """
    pins = dict[str, dict[str, str]]()
    pin = None
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        pins = json.loads((directory / "pins.json").read_text(encoding="utf-8"))
        pin = _Pin(str(pins[file]["commit"]), str(pins[file]["sha256"]))
    return pins, pin


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
