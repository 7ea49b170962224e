"""`conductor doctor`: what is installed, found and reachable, and what to do about the rest."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from conductor_cli.cli import options as opt

if TYPE_CHECKING:
    from conductor_cli.config import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at. `state` is ok, warning or failed; a failure has the exit code it would lead to."""

    name: str
    state: str
    found: str
    hint: str = ""
    code: int = 0


def doctor(context: typer.Context, json: opt.Json = False) -> None:
    """Check the installation: versions, conductor model, workers, keys, disk. Calls no model."""
    from conductor_cli.cli.output import say, say_json  # noqa: PLC0415
    from conductor_cli.config import load  # noqa: PLC0415

    settings = load(os.environ, {}, context.obj.config)
    checks = [check for look in LOOKS for check in look(settings)]
    if json:
        say_json({"ok": not any(check.code for check in checks), "checks": [_data(check) for check in checks]})
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            say(f"{check.state:8} {check.name:{width}}  {check.found}")
            if check.hint:
                say(f"{'':8} {'':{width}}  {check.hint}")
    raise typer.Exit(next((check.code for check in checks if check.code), 0))


def _data(check: Check) -> dict[str, Any]:
    return {"name": check.name, "state": check.state, "found": check.found, "hint": check.hint}


def _versions(settings: Settings) -> list[Check]:
    import platform  # noqa: PLC0415
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    from conductor_cli import __version__  # noqa: PLC0415

    del settings
    checks = [Check(name="conductor", state="ok", found=f"{__version__}, Python {platform.python_version()}, {platform.system()}")]
    for name in ("litellm", "huggingface-hub", "keyring"):
        try:
            checks.append(Check(name=name, state="ok", found=version(name)))
        except PackageNotFoundError:
            checks.append(Check(name=name, state="failed", found="not installed", hint="install conductor-llm again", code=1))
    return checks


def _llama(settings: Settings) -> list[Check]:
    from conductor_cli.core.errors import ModelError  # noqa: PLC0415
    from conductor_cli.models.llama import build_info  # noqa: PLC0415

    del settings
    try:
        build = build_info()
    except ModelError as error:
        return [Check(name="llama.cpp", state="failed", found=error.message, hint=error.hint, code=5)]
    gpu = "layers can run on a GPU" if build["gpu"] else "CPU only"
    return [Check(name="llama.cpp", state="ok", found=f"llama-cpp-python {build['llama-cpp-python']}, {gpu}: {build['system']}")]


def _conductor_model(settings: Settings) -> list[Check]:
    from conductor_cli.cli.opening import described, planner_of  # noqa: PLC0415
    from conductor_cli.core.errors import ConductorError  # noqa: PLC0415

    try:
        name = described(planner_of(settings))
    except ConductorError as error:
        return [Check(name="conductor model", state="failed", found=error.message, hint=error.hint, code=error.exit_code)]
    return [Check(name="conductor model", state="ok", found=name)]


def _workers(settings: Settings) -> list[Check]:
    """Keys and addresses, without a paid call."""
    import asyncio  # noqa: PLC0415

    from conductor_cli.cli.checking import at_hand, key_state  # noqa: PLC0415
    from conductor_cli.models.discover import ping  # noqa: PLC0415

    listed = [item for item in settings.workers or at_hand(settings) if item.enabled]
    if not listed:
        return [Check(name="workers", state="warning", found="none configured and none at hand: the conductor model answers too",
                      hint="conductor workers add NAME --kind openai --model MODEL")]  # fmt: skip

    async def all_pings() -> list[Any]:
        return list(await asyncio.gather(*(ping(item.worker, environ=settings.environ, seconds=3.0) for item in listed)))

    checks = []
    for item, reached in zip(listed, asyncio.run(all_pings()), strict=True):
        key = key_state(item.worker, settings.environ)
        name = f"worker {item.worker.name}"
        answer = "" if reached is None else f", answered in {reached.seconds:.2f} s" if reached.reachable else f", {reached.failure.message}"
        found = f"{item.worker.kind} {item.worker.model}, key {key}{answer}"
        if key == "missing":
            checks.append(Check(name=name, state="failed", found=found, hint="set its variable, or name one: key_env", code=4))
        elif reached is not None and not reached.reachable:
            checks.append(Check(name=name, state="failed", found=found, hint=reached.failure.hint, code=reached.failure.exit_code))
        else:
            checks.append(Check(name=name, state="ok", found=found))
    return checks


def _disk(settings: Settings) -> list[Check]:
    import shutil  # noqa: PLC0415

    directory = settings.places.traces
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return [Check(name="traces", state="failed", found=f"{directory}: {error.strerror}", hint="mend its rights", code=3)]
    few = free < 1 << 28
    return [Check(name="traces", state="warning" if few else "ok", found=f"{directory}, {free / (1 << 30):.1f} GiB free")]


def _commands(settings: Settings) -> list[Check]:
    """Other programs install a command of the same name."""
    found = []
    for directory in settings.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(directory, "conductor")
        if directory and os.access(path, os.X_OK) and not os.path.isdir(path):
            found.append(path)
    paths = list(dict.fromkeys(found))
    if len(paths) < 2:  # noqa: PLR2004 - one is what there should be
        return [Check(name="command", state="ok", found=paths[0] if paths else "not on PATH")]
    return [Check(name="command", state="warning", found=", ".join(paths), hint="the first one runs; conductor-llm is always this one")]


LOOKS: tuple[Callable[[Settings], list[Check]], ...] = (_versions, _llama, _conductor_model, _workers, _disk, _commands)
