"""`conductor model rm`: a model, what a pull of it has left, and what was remembered of it; and what plans then."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from conductor_cli.app.planner_resolution import open_model_store, planner_manifest, resolve_planner
from conductor_cli.cli.output import print_line, print_notice
from conductor_cli.cli.prompts import confirm
from conductor_cli.core.errors import ConductorError, ModelError, UsageError
from conductor_cli.core.formatting import format_size

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.models.weights.model_store import Manifest, ModelStore
    from conductor_cli.models.weights.registry import RegistryModel
    from conductor_cli.models.weights.verify import Removal


def removed(name: str, settings: Settings, config: str | None, *, yes: bool) -> bool:
    """Take a model out of the model store, after a yes; whether it is the one that planned.

    `config` is the user's file, where one was named. Raises `UsageError` or `ConductorUnusable`.
    """
    work = _Removal(name, settings)
    if not work.anything:
        raise _nothing(name, work.store)
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{name} is removed only after a yes", hint=f"conductor model rm {name} --yes")
    plans = _plans(name, settings, damaged=work.damaged)
    for other in work.store.manifests():
        if other.base == name:
            print_notice(f"{other.name} is laid over it, and cannot be used without it")
    if not yes:
        _ask(name, work.going())
    freed, left = work.remove()
    print_line(f"removed {name}, {format_size(freed) if freed else 'no bytes'} freed")
    for path in left:
        print_notice(f"{path} stays: conductor did not put it there, or another model uses it")
    if plans:
        _unchoose(settings)
        print_notice(f"{name} was the model that plans; {_after(config)}")
    return plans


class _Removal:
    """All that there is of a model."""

    def __init__(self, name: str, settings: Settings) -> None:
        from conductor_cli.models.weights.cache import Cache

        self.store = open_model_store(settings)
        self.damaged = any(found.name == name for found in self.store.damaged())
        self._name, self._settings, self._cache = name, settings, Cache.of(settings.environ)
        self._manifest = None if self.damaged else self.store.find(name)
        self._entry = _entry(name, settings)
        self._begun = self._unfinished()

    @property
    def anything(self) -> bool:
        return self.damaged or self._manifest is not None or bool(self._begun.names)

    def going(self) -> list[Removal]:
        """What would be removed."""
        from conductor_cli.models.weights.verify import leftovers, removal

        if self._manifest is not None:
            return [removal(self._manifest, self.store), self._begun]
        return [*([leftovers(self._name, self.store)] if self.damaged else []), self._begun]

    def remove(self) -> tuple[int, tuple[Path, ...]]:
        """The bytes that are free now, and the files that stay. Raises `ConductorUnusable`."""
        from conductor_cli.models.weights.unfinished import drop
        from conductor_cli.models.weights.verify import clear, remove

        gone = []
        if self._begun.names and self._entry is not None:
            gone.append(drop(self._entry, self.store, self._cache))
        freed = self._forget() if self._manifest is not None else 0
        if self._manifest is not None:
            gone.append(remove(self._manifest, self.store))
        elif self.damaged:
            gone.append(clear(self._name, self.store))
        return freed + sum(each.freed for each in gone), tuple(path for each in gone for path in each.left)

    def _unfinished(self) -> Removal:
        from conductor_cli.models.weights.unfinished import unfinished
        from conductor_cli.models.weights.verify import Removal

        return unfinished(self._entry, self.store, self._cache) if self._entry is not None else Removal()

    def _forget(self) -> int:
        """Delete the remembered states, unless the same file stays under another name; how many bytes that frees."""
        from conductor_cli.models.llama import read_model_info
        from conductor_cli.models.llama.prefix_cache import delete_states

        manifest = self._manifest
        assert manifest is not None
        if any(_is_same(other, manifest) for other in self.store.manifests()):
            return 0
        with suppress(ModelError):  # of a file that is gone or damaged: its states go when others need the room
            return delete_states(self._settings.paths.prefixes, read_model_info(manifest.path).identity)
        return 0


def _is_same(other: Manifest, manifest: Manifest) -> bool:
    hashes = [[file.sha256 for file in each.files] for each in (other, manifest)]
    return other.name != manifest.name and hashes[0] == hashes[1]


def _entry(name: str, settings: Settings) -> RegistryModel | None:
    from conductor_cli.models.weights.registry import load_registry

    with suppress(ConductorError):  # a registry that cannot be used is in nobody's way
        return next((entry for entry in load_registry(settings.environ) if entry.name == name), None)
    return None


def _nothing(name: str, store: ModelStore) -> UsageError:
    here = ", ".join([found.name for found in store.manifests()] + [found.name for found in store.damaged()])
    return UsageError(f"no model {name!r} is here", hint=f"here are: {here}" if here else "conductor model list")


def _plans(name: str, settings: Settings, *, damaged: bool) -> bool:
    """Whether it is this model of the model store that plans."""
    if damaged or any(found.name == settings["conductor.model"] for found in open_model_store(settings).damaged()):
        return bool(settings["conductor.model"] == name)
    using = planner_manifest(settings)
    return using is not None and using.name == name


def _unchoose(settings: Settings) -> None:
    """Take the choice of a model that is gone out of the tool's own file; any other file or variable is the user's."""
    from conductor_cli.config.workers import set_value

    origin = settings.origins["conductor.model"]
    if origin == str(settings.paths.own_file):
        set_value(settings.paths, "conductor.model", None)
    elif settings["conductor.model"]:
        print_notice(f"{origin} still names it")


def _after(config: str | None) -> str:
    """Which model plans from now on, in words."""
    from conductor_cli.app.planner_resolution import describe_planner
    from conductor_cli.config import load_settings

    settings = load_settings(os.environ, {}, config)
    try:
        planner, manifest = resolve_planner(settings), planner_manifest(settings)
        return f"now {manifest.name if manifest is not None else describe_planner(planner)} does"
    except ConductorError as error:
        return f"now none does: {error.hint or error.message}"


def _ask(name: str, going: list[Removal]) -> None:
    for each in going:
        for path in each.names:
            print_notice(f"  {path}")
    freed = sum(each.freed for each in going)
    size = f" and free {format_size(freed)}" if freed else ""
    if not confirm(f"Remove {name}{size}?", default=False):
        print_notice("nothing was removed")
        raise typer.Exit
