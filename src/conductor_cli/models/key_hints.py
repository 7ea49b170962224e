"""What to do where a worker's key is missing or was refused. Pure."""

from __future__ import annotations

from dataclasses import replace

from conductor_cli.core.errors import Failure
from conductor_cli.core.pool import Worker
from conductor_cli.models.addresses import base_url_of, is_own_address
from conductor_cli.models.presets import PRESETS


def key_hint(worker: Worker) -> str:
    """Return what to do when a worker's key was refused.

    Empty where only its provider's own documents say it.
    """
    variable = str(worker.options.get("key_env") or "")
    if variable:
        return f"set {variable} to a valid key"
    if worker.kind not in PRESETS or not base_url_of(worker):
        return ""
    if not is_own_address(worker):
        return f"conductor keys set {worker.kind} --base-url {base_url_of(worker)}"
    command = f"conductor keys set {worker.kind}"
    variables = PRESETS[worker.kind].keys
    if not variables:
        return command
    return f"{command}, or correct {variables[0]} if it is set"


def missing_key_hint(worker: Worker) -> str:
    """Return what to do where a worker's key is nowhere.

    Set its variable or, unless the worker names one, store it.
    """
    variable = str(worker.options.get("key_env") or "")
    if variable:
        return f"export {variable}=…"
    return f"export {PRESETS[worker.kind].keys[0]}=…, or conductor keys set {worker.kind}"


def with_key_hint(worker: Worker, failure: Failure) -> Failure:
    """Return the failure of a call of `worker`, with what to do where its key was refused.

    So the hint is the same wherever the failure is shown.
    """
    if failure.reason != "auth":
        return failure
    hint = key_hint(worker)
    if hint:
        return replace(failure, hint=hint)
    return failure
