"""What `conductor model` says of the model store: which model plans from now on, and what is damaged."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.app.planner_resolution import open_model_store, planner_manifest, resolve_planner
from conductor_cli.cli.output import print_line, print_notice
from conductor_cli.core.errors import ConductorUnusable

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.models.weights.digest import Reading
    from conductor_cli.models.weights.model_store import Manifest
    from conductor_cli.models.weights.verify import Checked

AGAINST: Final = {
    "registry": "as conductor's registry says",
    "hub": "as the hub said when it was pulled",
    "mirror": "as {endpoint} said when it was pulled, which proves nothing",
    "file": "as when it was first seen",
}
"""What the SHA-256 of a whole file is, by its manifest's trust."""


def settle(name: str, settings: Settings, config: str | None, *, use: bool | None) -> bool:
    """Let a model plan that has just come, if that is wanted or none does yet; else say how. Whether it does now."""
    before = None
    with suppress(ConductorUnusable):  # the manifest of what plans cannot be read
        before = planner_manifest(settings)
    taken = settings["conductor.model"] or (before is not None and before.name != name)
    if use is True or (use is None and not taken):
        if choose(name, name, settings, config):
            print_line('next: conductor ask "…"')
            return True
    elif before is None or before.name != name:
        print_line(f"to let it plan: conductor model use {name}")
    return False


def choose(chosen: str, name: str, settings: Settings, config: str | None) -> bool:
    """Write which model plans into the tool's own file; say and return whether that has an effect."""
    from conductor_cli.config import load_settings
    from conductor_cli.config.workers import set_value

    set_value(settings.paths, "conductor.model", chosen)
    after = load_settings(os.environ, {}, config)
    if after["conductor.model"] == chosen:
        print_line(f"the conductor model is now {name}")
        return True
    print_line(f"written: {name}")
    print_notice(f"{after.origins['conductor.model']} names {after['conductor.model']}, and wins")
    return False


def known(name: str, settings: Settings) -> Manifest:
    """The model of this name that is here. Raises `ConductorUnusable`."""
    from conductor_cli.models.weights.registry import find_model

    manifest = open_model_store(settings).find(name)
    if manifest is not None:
        return manifest
    find_model(name, settings.environ)
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
    """Check a model by name or file; without one, what plans, or all of the model store where that is no file."""
    from conductor_cli.models.weights.problems import repair_hint
    from conductor_cli.models.weights.verify import check, check_plain

    manifests, plain = _to_verify(name, settings)
    found = [
        Verified(name=manifest.name, checked=checked,
                 against=AGAINST[manifest.trust].format(endpoint=manifest.endpoint),
                 hint=repair_hint(manifest, settings.environ))
        for manifest in manifests for checked in check(manifest, tell)
    ]  # fmt: skip
    unknown = "nothing to compare it with; conductor model import would keep it"
    return found + [
        Verified(name=path.name, checked=check_plain(path, tell), against=unknown, hint="get the file again")
        for path in plain
    ]


def _all_manifests(settings: Settings) -> list[Manifest]:
    """All models of the model store, where what plans is no file. Raises `ConductorUnusable` where it should be one."""
    manifests = list(open_model_store(settings).manifests())
    if settings["conductor.model"] or not manifests:
        planner = resolve_planner(settings)  # says how to get it, where it is not here
        if planner.kind == "llama" and not Path(planner.model).is_file():
            raise ConductorUnusable(
                f"the model that plans is not there any more: {planner.model}",
                hint="put the file there again, or choose another: conductor model use NAME | FILE",
            )
    return manifests


def _to_verify(name: str | None, settings: Settings) -> tuple[list[Manifest], list[Path]]:
    """Manifests, and files without one."""
    store = open_model_store(settings)
    if name is None:
        using = planner_manifest(settings)
        text = Path(settings["conductor.model"]).expanduser()
        if using is not None:
            base = store.find(using.base)
            plain = [Path(using.base)] if using.base and base is None else []
            return [using, *([base] if base else [])], plain
        if settings["conductor.model"] and text.is_file():
            return [], [text]
        manifests = _all_manifests(settings)
        if not manifests:
            raise ConductorUnusable("no model is in the model store", hint="conductor model pull")
        return manifests, []
    path = Path(name).expanduser()
    if store.find(name) is None and path.exists():
        found = [
            manifest for manifest in store.manifests() if path.absolute() in [file.path for file in manifest.files]
        ]
        return found, [] if found else [path.absolute()]
    return [known(name, settings)], []
