"""Which conductor model `conductor setup` proposes: the one in use, else what suits this machine."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from conductor_cli.cli.setup.steps import Step
from conductor_cli.core.errors import ConductorError
from conductor_cli.core.formatting import format_duration, format_size

if TYPE_CHECKING:
    from conductor_cli.cli.setup.found import Found
    from conductor_cli.config import Settings
    from conductor_cli.models.weights.registry import RegistryModel

BESIDE: Final = 1 << 30
"""Bytes of memory that stay for everything else."""

FREE_LICENCES: Final = frozenset({"Apache-2.0", "MIT"})
"""What is proposed; a model under another licence is for whoever asks for it."""

NOTHING: Final = "none"
"""What `--model` says for no conductor model."""


def model_step(found: Found, settings: Settings, wanted: str = "") -> Step | None:
    """The conductor model: the one in use, the one that is `wanted`, or what suits this machine; None for none.

    Raises `ConductorUnusable` or `ConfigError` for a registry or a name that cannot be used.
    """
    if wanted == NOTHING:
        return None
    if wanted:
        return _wanted(wanted, settings)
    if found.planner:
        return Step(what="model", name=settings["conductor.model"] or found.planner, text=found.planner, here=True)
    return _chosen(settings) or _stored_model(settings) or _suited(found, settings)


def _suited(found: Found, settings: Settings) -> Step | None:
    entry = fitting(found, settings)
    return _pulled(entry, settings) if entry is not None else _hosted(found, settings)


def _chosen(settings: Settings) -> Step | None:
    """A model that is chosen and cannot be used: one of the registry is got, another is left to who chose it."""
    from conductor_cli.app.planner_resolution import resolve_planner
    from conductor_cli.models.weights.registry import load_registry

    name = settings["conductor.model"]
    if not name:
        return None
    entry = next((entry for entry in load_registry(settings.environ) if entry.name == name), None)
    if entry is not None:
        return _pulled(entry, settings)
    try:
        resolve_planner(settings)
        problem = "it cannot be read"
    except ConductorError as error:
        problem = f"{error.message}; {error.hint}" if error.hint else error.message
    return Step(what="model", name=name, text=f"{name} is chosen, and cannot be used: {problem}", here=True)


def _stored_model(settings: Settings) -> Step | None:
    """A model that is here and was never chosen, where there are several."""
    from conductor_cli.app.planner_resolution import open_model_store

    found = next(iter(open_model_store(settings).manifests()), None)
    if found is None:
        return None
    text = f"{found.name}: {format_size(found.size)}, here and not chosen"
    return Step(what="model", name=found.name, text=text, command=f"conductor model use {found.name}")


def _wanted(wanted: str, settings: Settings) -> Step:
    from conductor_cli.models.weights.registry import load_registry

    entry = next((entry for entry in load_registry(settings.environ) if entry.name == wanted.lower()), None)
    if entry is not None:
        return _pulled(entry, settings)
    return Step(what="model", name=wanted, text=wanted, command=f"conductor model use {shlex.quote(wanted)}")


def fitting(found: Found, settings: Settings) -> RegistryModel | None:
    """The registry's default where memory and disk have room for it, else the largest that they have room for."""
    from conductor_cli.models.disk import MARGIN
    from conductor_cli.models.weights.download import estimate_pull
    from conductor_cli.models.weights.registry import load_registry

    first, *others = load_registry(settings.environ)
    smaller = sorted((other for other in others if other.size <= first.size), key=lambda other: -other.size)
    for entry in (first, *smaller):
        roomy = not found.memory.total or entry.memory + BESIDE <= found.memory.total
        allowed = entry is first or entry.licence in FREE_LICENCES
        if entry.base or not entry.size or not roomy or not allowed:
            continue
        missing = estimate_pull(entry, settings.environ).missing
        if not missing or missing + MARGIN <= found.free:
            return entry
    return None


def _pulled(entry: RegistryModel, settings: Settings) -> Step:
    from conductor_cli.app.models import USUAL_RATE
    from conductor_cli.models.weights.download import estimate_pull

    missing = estimate_pull(entry, settings.environ).missing
    takes = format_duration(missing / USUAL_RATE, tenths=False)
    get = f"{format_size(missing)} to get, about {takes} at {format_size(USUAL_RATE)}/s"
    size = format_size(entry.size) if entry.size else "size unknown"
    text = (
        f"{entry.name}: {size}, licence {entry.licence}, needs {format_size(entry.memory)} of memory; "
        f"{get if missing else 'its files are here'}"
    )
    details = {
        "size": entry.size or None, "missing": missing, "memory": entry.memory or None, "licence": entry.licence,
        "source": f"hub:{entry.repo}@{entry.revision}",
    }  # fmt: skip
    command = f"conductor model pull {entry.name} --use"
    return Step(what="model", name=entry.name, text=text, command=command, details=details)


def _hosted(found: Found, settings: Settings) -> Step | None:
    """A provider's model as the conductor, where this machine has no room for a local one."""
    from conductor_cli.app.policy_filter import policy_objection
    from conductor_cli.models.presets import PRESETS

    fit = (worker for worker in found.at_hand if PRESETS[worker.kind].adapter == "openai" and worker.model)
    away = next((worker for worker in fit if not policy_objection(settings, worker, plans=True)), None)
    if away is None:
        return None
    name = f"{away.kind}/{away.model}"
    text = f"{name}: no local model fits this machine, so each question goes to {away.kind}"
    return Step(what="model", name=name, text=text, command=f"conductor model use {shlex.quote(name)}")
