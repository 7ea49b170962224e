"""What `conductor model` says of the shelf: its list, what is damaged, what plans, and what is taken away."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from conductor_cli.cli.amounts import size_text
from conductor_cli.cli.choosing import again, planner_of, receipt_of, shelf_of
from conductor_cli.cli.output import remark, say
from conductor_cli.cli.pulling import agreed
from conductor_cli.core.errors import ConductorError, ConductorUnusable, UsageError

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.models.weights.digest import Reading
    from conductor_cli.models.weights.keeping import Checked, Removal
    from conductor_cli.models.weights.receipts import Receipt
    from conductor_cli.models.weights.registry import Entry

HEADS: Final = ("", "NAME", "SIZE", "MEMORY", "LICENCE", "STATE", "SOURCE")

AGAINST: Final = {
    "registry": "as conductor's registry says",
    "hub": "as the hub said when it was pulled",
    "mirror": "as {endpoint} said when it was pulled, which proves nothing",
    "file": "as when it was first seen",
}
"""What the SHA-256 of a whole file is, by its receipt's trust."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A model in the list. `state` is `here`, `not here` or `damaged`; sizes are in bytes, 0 where unknown."""

    name: str
    state: str
    size: int = 0
    memory: int = 0
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
            "size": self.size or None, "memory": self.memory or None, "licence": self.licence or None,
            "source": self.source, "path": self.path or None, "base": self.base or None, "trust": self.trust or None,
            "about": self.about or None,
        }  # fmt: skip

    def cells(self) -> list[str]:
        """For the table."""
        words = [self.state if self.state != "here" or not self.in_use else "in use", "default" if self.default else ""]
        memory = size_text(self.memory) if self.memory else "-"
        return [
            "*" if self.in_use else "", self.name, size_text(self.size) if self.size else "-", memory,
            self.licence or "unknown", ", ".join(filter(None, words)),
            self.source.removeprefix("hub:").partition("@")[0],
        ]  # fmt: skip


def rows(settings: Settings) -> list[Row]:
    """The registry's models, then others of the shelf, then what plans where it is none of them."""
    from conductor_cli.models.weights.receipts import RECEIPT
    from conductor_cli.models.weights.registry import registry

    shelf = shelf_of(settings)
    receipts = {receipt.name: receipt for receipt in shelf.receipts()}
    damaged = {found.name: found.problem for found in shelf.damaged()}
    using, text = None, settings["conductor.model"]
    with suppress(ConductorUnusable):  # its receipt cannot be read: a row says so
        using = receipt_of(settings)
    entries = registry(settings.environ)
    known = {entry.name: entry for entry in entries}
    found = [
        _row(name, known.get(name), receipts.get(name), in_use=using is not None and using.name == name,
             default=name == entries[0].name) if name not in damaged else
        Row(name=name, state="damaged", path=str(shelf.folder(name) / RECEIPT), about=damaged[name],
            in_use=name == text, default=name == entries[0].name)
        for name in dict.fromkeys((*known, *receipts, *damaged))
    ]  # fmt: skip
    return found + ([_elsewhere(settings)] if using is None and text and text not in damaged else [])


def _row(name: str, entry: Entry | None, receipt: Receipt | None, *, in_use: bool, default: bool) -> Row:
    memory, about = (entry.memory, entry.about) if entry else (0, "")
    if receipt is None:
        assert entry is not None
        return Row(
            name=name, state="not here", size=entry.size, memory=memory, licence=entry.licence, base=entry.base,
            source=f"hub:{entry.repo}@{entry.revision}", default=default, about=about,
        )  # fmt: skip
    return Row(
        name=name, state="damaged" if receipt.fault() else "here", size=receipt.size, memory=memory, base=receipt.base,
        licence=receipt.licence, source=receipt.source, path=str(receipt.path), trust=receipt.trust, default=default,
        in_use=in_use, about=about,
    )  # fmt: skip


def _elsewhere(settings: Settings) -> Row:
    """What plans and is no model of the shelf."""
    text = settings["conductor.model"]
    path = Path(text).expanduser()
    try:
        planner_of(settings)
        state = "here"
    except ConductorError:
        state = "not here"
    size = path.stat().st_size if path.is_file() else 0
    return Row(name=text, state=state, size=size, source=settings.origins["conductor.model"], in_use=True)


def settle(name: str, settings: Settings, config: str | None, *, use: bool | None) -> bool:
    """Let a model plan that has just come, if that is wanted or none does yet; else say how. Whether it does now."""
    before = None
    with suppress(ConductorUnusable):  # the receipt of what plans cannot be read
        before = receipt_of(settings)
    taken = settings["conductor.model"] or (before is not None and before.name != name)
    if use is True or (use is None and not taken):
        if choose(name, name, settings, config):
            say('next: conductor ask "…"')
            return True
    elif before is None or before.name != name:
        say(f"to let it plan: conductor model use {name}")
    return False


def choose(chosen: str, name: str, settings: Settings, config: str | None) -> bool:
    """Write which model plans into the tool's own file; say and return whether that has an effect."""
    from conductor_cli.config import load
    from conductor_cli.config.workers import set_value

    set_value(settings.places, "conductor.model", chosen)
    after = load(os.environ, {}, config)
    if after["conductor.model"] == chosen:
        say(f"the conductor model is now {name}")
        return True
    say(f"written: {name}")
    remark(f"{after.origins['conductor.model']} names {after['conductor.model']}, and wins")
    return False


def known(name: str, settings: Settings) -> Receipt:
    """The model of this name that is here. Raises `ConductorUnusable`."""
    from conductor_cli.models.weights.registry import find

    receipt = shelf_of(settings).find(name)
    if receipt is not None:
        return receipt
    find(name, settings.environ)
    raise ConductorUnusable(f"{name} is not here yet", hint=f"conductor model pull {name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A file that was read again. `against` says what its SHA-256 was compared with, `hint` how to mend it."""

    name: str
    checked: Checked
    against: str
    hint: str

    @property
    def problem(self) -> str:
        return self.checked.problem

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        state, found = "damaged" if self.problem else "ok", self.checked
        return {
            "name": self.name, "path": str(found.path), "state": state, "sha256": found.sha256 or None,
            "against": self.against, "problem": self.problem or None, "hint": self.hint if self.problem else None,
        }  # fmt: skip

    def lines(self) -> list[str]:
        """For people."""
        if self.problem:
            return [f"damaged  {self.checked.path}", f"         {self.problem}", f"         {self.hint}"]
        return [f"ok       {self.checked.path}", f"         SHA-256 {self.checked.sha256}, {self.against}"]


def verified(name: str | None, settings: Settings, tell: Reading) -> list[Verified]:
    """Check a model by name or file; without one, what plans, or all of the shelf where that is no file."""
    from conductor_cli.models.weights.keeping import check, check_plain

    receipts, plain = _to_verify(name, settings)
    found = [
        Verified(name=receipt.name, checked=checked, against=AGAINST[receipt.trust].format(endpoint=receipt.endpoint),
                 hint=again(receipt.name, settings))
        for receipt in receipts for checked in check(receipt, tell)
    ]  # fmt: skip
    unknown = "nothing to compare it with; conductor model import would keep it"
    return found + [
        Verified(name=path.name, checked=check_plain(path, tell), against=unknown, hint="get the file again")
        for path in plain
    ]


def _to_verify(name: str | None, settings: Settings) -> tuple[list[Receipt], list[Path]]:
    """Receipts, and files without one."""
    shelf = shelf_of(settings)
    if name is None:
        using = receipt_of(settings)
        text = Path(settings["conductor.model"]).expanduser()
        if using is not None:
            base = shelf.find(using.base)
            plain = [Path(using.base)] if using.base and base is None else []
            return [using, *([base] if base else [])], plain
        if settings["conductor.model"] and text.is_file():
            return [], [text]
        receipts = list(shelf.receipts())
        if not receipts:
            planner_of(settings)  # says how to get one, where none plans
            raise ConductorUnusable("no model is on the shelf", hint="conductor model pull")
        return receipts, []
    path = Path(name).expanduser()
    if shelf.find(name) is None and path.exists():
        found = [receipt for receipt in shelf.receipts() if any(file.path == path.absolute() for file in receipt.files)]
        return found, [] if found else [path.absolute()]
    return [known(name, settings)], []


def removed(name: str, settings: Settings, *, yes: bool) -> None:
    """Take a model off the shelf, after a yes."""
    from conductor_cli.models.weights.keeping import clear, leftovers, removal, remove

    shelf = shelf_of(settings)
    damaged = any(found.name == name for found in shelf.damaged())
    receipt = None if damaged else shelf.find(name)
    if receipt is None and not damaged:
        here = ", ".join([found.name for found in shelf.receipts()] + [found.name for found in shelf.damaged()])
        raise UsageError(f"no model {name!r} is here", hint=f"here are: {here}" if here else "conductor model list")
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{name} is removed only after a yes", hint=f"conductor model rm {name} --yes")
    plans = _plans(name, settings, damaged=damaged)
    for other in shelf.receipts():
        if other.base == name:
            remark(f"{other.name} is laid over it, and cannot be used without it")
    if not yes:
        _ask(name, leftovers(name, shelf) if receipt is None else removal(receipt, shelf))
    gone = clear(name, shelf) if receipt is None else remove(receipt, shelf)
    say(f"removed {name}, {size_text(gone.freed) if gone.freed else 'no bytes'} freed")
    for path in gone.left:
        remark(f"{path} stays: conductor did not put it there, or another model uses it")
    if plans:
        remark(f"{name} was the model that plans")
        _unchoose(settings)


def _plans(name: str, settings: Settings, *, damaged: bool) -> bool:
    """Whether it is this model of the shelf that plans."""
    if damaged or any(found.name == settings["conductor.model"] for found in shelf_of(settings).damaged()):
        return bool(settings["conductor.model"] == name)
    using = receipt_of(settings)
    return using is not None and using.name == name


def _unchoose(settings: Settings) -> None:
    """Take the choice of a model that is gone out of the tool's own file; any other file or variable is the user's."""
    from conductor_cli.config.workers import set_value

    origin = settings.origins["conductor.model"]
    if origin == str(settings.places.own_file):
        set_value(settings.places, "conductor.model", None)
    elif settings["conductor.model"]:
        remark(f"{origin} still names it")


def _ask(name: str, going: Removal) -> None:
    for path in going.names:
        remark(f"  {path}")
    size = f" and free {size_text(going.freed)}" if going.freed else ""
    if not agreed(f"Remove {name}{size}?", otherwise=False):
        remark("nothing was removed")
        raise typer.Exit
