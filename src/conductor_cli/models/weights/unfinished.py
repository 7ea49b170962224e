"""What a pull that was stopped has left: the bytes so far, to go on with or to be taken away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import NoReturn

from conductor_cli.core.errors import ConductorUnusable
from conductor_cli.models.weights.cache import Cache, held
from conductor_cli.models.weights.model_store import ModelStore
from conductor_cli.models.weights.registry import RegistryModel
from conductor_cli.models.weights.verify import Removal, take_away


def unfinished(entry: RegistryModel, store: ModelStore, cache: Cache) -> Removal:
    """Parts that are begun, and whole ones that conductor fetched and of which no manifest speaks."""
    begun = [cache.begun(entry.repo, part.file).part for part in entry.parts]
    names = [*(path for path in begun if path.is_file()), *_whole(entry, store, cache)]
    sizes = {path.resolve(): path.stat().st_size for path in names if path.exists()}
    return Removal(names=tuple(names), freed=sum(sizes.values()))


def drop(entry: RegistryModel, store: ModelStore, cache: Cache) -> Removal:
    """Take all that away. Raises `ConductorUnusable` where a pull goes on, or for a file that stays."""

    def busy() -> NoReturn:
        raise ConductorUnusable(
            f"{entry.name} is being pulled", hint="end the other process, or let it come to its end"
        )

    with ExitStack() as turns:
        for part in entry.parts:
            turns.enter_context(held(cache.turn(entry.repo, part.file), busy))
        gone = unfinished(entry, store, cache)
        for part in entry.parts:
            cache.begun(entry.repo, part.file).drop()
        take_away(gone)
        store.forget_fetched(*gone.names)
    return gone


def _whole(entry: RegistryModel, store: ModelStore, cache: Cache) -> Iterator[Path]:
    """The names of whole parts, and what they lead to."""
    snapshots, wanted = cache.folder(entry.repo) / "snapshots", {PurePosixPath(part.file) for part in entry.parts}
    for name in sorted(store.noted()):
        inside = name.relative_to(snapshots) if name.is_relative_to(snapshots) else None
        if inside is not None and PurePosixPath(*inside.parts[1:]) in wanted and name.exists():
            yield from dict.fromkeys((name, name.resolve()))
