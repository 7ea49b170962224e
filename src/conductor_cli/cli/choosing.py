"""Which model plans: from a name, a file, an address or nothing to a worker that can be opened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core.errors import ConductorUnusable, ConfigError, ModelError
from conductor_cli.core.pool import Worker
from conductor_cli.core.profile import PROFILES, Profile
from conductor_cli.core.usage import FREE

if TYPE_CHECKING:
    from conductor_cli.config import Settings

IDENTITY: Final = len("sha256-ends:") + 16
"""Characters of a file's identity hash that name it: 64 bits are enough to tell one file from another."""


def planner_of(settings: Settings) -> Worker:
    """The model that plans, as a worker of its own: a GGUF file, a URL, a listed worker, or provider/model."""
    from conductor_cli.models.presets import PRESETS, is_free

    text = settings["conductor.model"]
    if not text:
        raise ConductorUnusable(
            "no conductor model is chosen",
            hint="conductor model use FILE.gguf, or for one run: --conductor FILE.gguf | URL | provider/model",
        )
    if text.startswith(("http://", "https://")):
        url, _, name = text.partition("#")
        if "@" in url.partition("://")[2].partition("/")[0]:
            raise ConfigError("the conductor's address holds a password", hint="list it as a worker, with key_env")
        return Worker(name="conductor", kind="openai-compatible", model=name, options={"base_url": url})
    listed = next((item.worker for item in settings.workers if item.worker.name == text), None)
    if listed is not None:
        return listed
    path = Path(text).expanduser()
    provider, slash, name = text.partition("/")
    if path.suffix == ".gguf" or path.exists():
        return _local(path, settings)
    if slash and provider in PRESETS:
        hosted = Worker(name="conductor", kind=provider, model=name)
        return replace(hosted, price=FREE if is_free(hosted) else None)
    raise ConductorUnusable(
        f"the conductor model {text!r} is no file, URL, worker or provider/model", hint="conductor model use FILE.gguf"
    )


def _local(path: Path, settings: Settings) -> Worker:
    options: dict[str, Any] = {"gpu_layers": settings["conductor.gpu_layers"], "context": settings["conductor.context"]}
    if settings["conductor.threads"]:
        options["threads"] = settings["conductor.threads"]
    if settings["conductor.adapter"]:
        options["adapter"] = str(Path(settings["conductor.adapter"]).expanduser().absolute())
    options["prefixes"] = str(settings.places.prefixes)
    return Worker(name="conductor", kind="llama", model=str(path.absolute()), options=options, parallel=1, price=FREE)


def described(planner: Worker) -> str:
    """The conductor model's name; a file's with its identity hash, so that a trace says which weights planned."""
    if planner.kind != "llama":
        return (
            f"{planner.kind}/{planner.model}" if planner.model else str(planner.options.get("base_url", planner.kind))
        )
    from conductor_cli.models.llama import describe

    try:
        path = Path(planner.model)
        return f"{path.name} {describe(path).identity[:IDENTITY]}"
    except ModelError as error:
        raise ConductorUnusable(f"the conductor model cannot be used: {error.message}", hint=error.hint) from None


def profile_of(settings: Settings) -> Profile:
    """How the chosen conductor is spoken to: what the settings say, else what is known of the model."""
    name = settings["conductor.profile"]
    return PROFILES["prompted" if name == "auto" else name]
