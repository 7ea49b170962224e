"""`conductor model list`: every model that is here or can be had, as wide as the terminal is."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.app.planner_resolution import open_model_store, planner_manifest, resolve_planner
from conductor_cli.cli.output import print_line, print_table
from conductor_cli.core.errors import ConductorError, ConductorUnusable, ModelError
from conductor_cli.core.formatting import format_size

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.models.weights.model_store import Manifest, ModelStore
    from conductor_cli.models.weights.registry import RegistryModel

HEADS: Final = ("", "NAME", "SIZE", "MEMORY", "LICENCE", "STATE", "SOURCE")

SPARED: Final = ("", "SOURCE", "LICENCE")
"""What is left out, one after the other, where a table is too wide; then every model has lines of its own."""

GAP: Final = 2
"""Spaces between two columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A model in the list. `state` is `here`, `not here`, `begun` or `damaged`; sizes are in bytes, 0 where unknown.

    `begun` has the bytes that a pull that was stopped has left.
    """

    name: str
    state: str
    size: int = 0
    memory: int = 0
    begun: int = 0
    licence: str = ""
    source: str = ""
    path: str = ""
    base: str = ""
    trust: str = ""
    default: bool = False
    in_use: bool = False
    about: str = ""

    def data(self) -> dict[str, Any]:
        """For `--json`; what is not known is null."""
        return {
            "name": self.name, "state": self.state, "in_use": self.in_use, "default": self.default,
            "size": self.size or None, "memory": self.memory or None, "begun": self.begun or None,
            "licence": self.licence or None, "source": self.source, "path": self.path or None,
            "base": self.base or None, "trust": self.trust or None, "about": self.about or None,
        }  # fmt: skip

    def cells(self) -> list[str]:
        """For the table."""
        return [
            "*" if self.in_use else "", self.name, format_size(self.size) if self.size else "-",
            format_size(self.memory) if self.memory else "-", self.licence or "unknown", self._words(), self._from(),
        ]  # fmt: skip

    def text(self) -> str:
        """All of it but the name, where there is no room for a table."""
        parts = [
            format_size(self.size) if self.size else "", f"memory {format_size(self.memory)}" if self.memory else "",
            self._words(), f"licence {self.licence or 'unknown'}", f"from {self._from()}" if self.source else "",
        ]  # fmt: skip
        return ", ".join(filter(None, parts))

    def _words(self) -> str:
        state = "in use" if self.in_use and self.state == "here" else self.state
        came = f"{format_size(self.begun)} {'of it here' if self.state == 'begun' else 'begun anew'}"
        return ", ".join(filter(None, [state, came if self.begun else "", "default" if self.default else ""]))

    def _from(self) -> str:
        return self.source.removeprefix("hub:").partition("@")[0]


def listed(found: Sequence[Row]) -> None:
    """Print the rows: as a table, with fewer columns where it is narrow, or a model after the other."""
    rows, width = [row.cells() for row in found], _width()
    columns = list(range(len(HEADS)))
    for spared in SPARED:
        columns = [at for at in columns if not spared or HEADS[at] != spared]
        if not width or _needed([HEADS, *rows], columns) <= width:
            print_table([HEADS[at] for at in columns], [[row[at] for at in columns] for row in rows])
            return
    for row in found:
        print_line(f"{'* ' if row.in_use else ''}{row.name}")
        for line in textwrap.wrap(row.text(), max(20, width - 4), break_long_words=False, break_on_hyphens=False):
            print_line(f"    {line}")


def _needed(lines: Sequence[Sequence[str]], columns: Sequence[int]) -> int:
    return sum(max(len(line[at]) for line in lines) for at in columns) + GAP * (len(columns) - 1)


def _width() -> int:
    """How many columns there are; 0 where the lines go to a program."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def rows(settings: Settings) -> list[Row]:
    """The registry's models, then others of the model store, then what plans where it is none of them."""
    from conductor_cli.models.weights.registry import load_registry

    store = open_model_store(settings)
    damaged = {found.name: found.problem for found in store.damaged()}
    using, text = None, settings["conductor.model"]
    with suppress(ConductorUnusable):  # its manifest cannot be read: a row says so
        using = planner_manifest(settings)
    known = {entry.name: entry for entry in load_registry(settings.environ)}
    first = next(iter(known))
    maker = _Maker(store, known, settings)
    names = dict.fromkeys((*known, *maker.manifests, *damaged))
    found = [
        maker.row(name, in_use=using is not None and using.name == name, default=name == first)
        if name not in damaged else
        _damaged(name, damaged[name], store, in_use=name == text, default=name == first)
        for name in names
    ]  # fmt: skip
    return found + ([_elsewhere(settings)] if using is None and text and text not in damaged else [])


class _Maker:
    """Makes rows of what the registry and the model store say."""

    def __init__(self, store: ModelStore, known: dict[str, RegistryModel], settings: Settings) -> None:
        from conductor_cli.models.weights.cache import Cache

        self.manifests = {manifest.name: manifest for manifest in store.manifests()}
        self._store, self._known, self._cache = store, known, Cache.of(settings.environ)

    def row(self, name: str, *, in_use: bool, default: bool) -> Row:
        from conductor_cli.models.weights.unfinished import unfinished

        entry, manifest = self._known.get(name), self.manifests.get(name)
        begun = unfinished(entry, self._store, self._cache).freed if entry else 0
        if manifest is not None:
            return self._here(manifest, begun, in_use=in_use, default=default)
        assert entry is not None
        return Row(
            name=name, state="begun" if begun else "not here", size=entry.size, memory=entry.memory, begun=begun,
            licence=entry.licence, base=entry.base, source=f"hub:{entry.repo}@{entry.revision}", default=default,
            about=entry.about,
        )  # fmt: skip

    def _here(self, manifest: Manifest, begun: int, *, in_use: bool, default: bool) -> Row:
        from conductor_cli.models.weights.memory_estimate import manifest_memory

        entry = self._known.get(manifest.name)
        return Row(
            name=manifest.name, state="damaged" if manifest.fault() else "here", size=manifest.size, begun=begun,
            memory=manifest_memory(manifest, self.manifests, self._known), base=manifest.base, licence=manifest.licence,
            source=manifest.source, path=str(manifest.path), trust=manifest.trust, default=default, in_use=in_use,
            about=entry.about if entry else "",
        )  # fmt: skip


def _damaged(name: str, problem: str, store: ModelStore, *, in_use: bool, default: bool) -> Row:
    """A model whose manifest cannot be read."""
    from conductor_cli.models.weights.model_store import MANIFEST

    path = str(store.folder(name) / MANIFEST)
    return Row(name=name, state="damaged", path=path, about=problem, in_use=in_use, default=default)


def _elsewhere(settings: Settings) -> Row:
    """What plans and is no model of the model store."""
    from conductor_cli.models.weights.memory_estimate import file_memory

    text = settings["conductor.model"]
    path = Path(text).expanduser()
    try:
        resolve_planner(settings)
        state = "here"
    except ConductorError:
        state = "not here"
    size = _size(path)
    memory = file_memory(path, size) if size else 0
    source = settings.origins["conductor.model"]
    return Row(name=text, state=state, size=size, memory=memory, source=source, in_use=True)


def _size(path: Path) -> int:
    """Bytes of a model file and its further parts; 0 where they are not all there."""
    from conductor_cli.models.llama.model_info import part_files

    try:
        return sum(part.stat().st_size for part in part_files(path))
    except (ModelError, OSError):
        return 0
