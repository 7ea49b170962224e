"""The models that a server offers: what each name means for planning, and which workers it may use. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

from conductor_cli.config import Settings
from conductor_cli.core.events import Mode
from conductor_cli.core.sanitize import one_line
from conductor_cli.server.api.request import RequestError

MODELS: Final[dict[str, Mode | None]] = {"conductor": None, "conductor-mini": "mini", "conductor-ultra": "ultra"}
"""The models that are always there, with their modes; None leaves the mode to the settings and to the effort."""

EFFORTS: Final[dict[str, Mode]] = {
    "none": "mini", "minimal": "mini", "low": "mini", "high": "ultra", "xhigh": "ultra", "max": "ultra",
}  # fmt: skip
"""The mode for an effort, where the name of the model leaves it open. Any other word changes nothing."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What a name means: a mode, and a named pool; empty for the workers of the settings."""

    name: str
    mode: Mode
    pool: str = ""

    @property
    def settings(self) -> dict[str, str]:
        """The same as settings by name."""
        return {"conductor.mode": self.mode} | ({"conductor.pool": self.pool} if self.pool else {})


def guess_settings(name: str) -> dict[str, str]:
    """The settings that a model's name alone says, so that they need not be read twice: reading takes a while."""
    mode = MODELS.get(name)
    return {"conductor.mode": mode} if mode else {}


def model_names(settings: Settings) -> tuple[str, ...]:
    """The names that may be asked for. A server that was started with a pool of its own offers no others."""
    if "conductor.pool" in settings.given:
        return tuple(MODELS)
    return tuple(dict.fromkeys((*MODELS, *(pool.name for pool in settings.pools))))


def find_model(name: str, effort: str, settings: Settings) -> ServedModel:
    """What a client asks for by a model's name and an effort, which may be any word. Raises `RequestError`."""
    names = model_names(settings)
    if name not in names:
        message = f"there is no model {one_line(name)[:80]!r}; the models are: {', '.join(names)}"
        raise RequestError(404, "model_not_found", message, param="model")
    fixed = MODELS.get(name)
    default = cast("Mode", settings["conductor.mode"])
    if fixed is None and "conductor.mode" not in settings.given:
        default = EFFORTS.get(effort.strip().lower(), default)
    return ServedModel(name=name, mode=fixed or default, pool="" if name in MODELS else name)
