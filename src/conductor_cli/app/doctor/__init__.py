"""Whether everything works, for `conductor doctor`.

Each check is a function that returns `Check` values. `check_machine` runs those that look at this machine;
`live` has those that call models and workers; `bundle` writes the zip for a bug report.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Final

from conductor_cli.app.checks import Check
from conductor_cli.app.doctor import installation, local_model
from conductor_cli.config import Settings
from conductor_cli.core.errors import ConductorError
from conductor_cli.keys.keyring import keyring_timeout

MachineCheck = Callable[[Settings], list[Check]]

TIMEOUT: Final = 20.0
"""Seconds that a check of this machine may take, on top of what its keyring may: a network disk can hang."""

INSTALLATION_CHECKS: Final[tuple[MachineCheck, ...]] = (
    installation.versions, local_model.llama_build, local_model.gpu, local_model.memory, installation.keyring,
    installation.directories, installation.prices, installation.project_files, installation.commands,
)  # fmt: skip

MODEL_CHECKS: Final[tuple[MachineCheck, ...]] = (local_model.model_store, local_model.conductor_model)
"""Checks of the user's own models, which the demo models do not need."""


def check_machine(settings: Settings, *, demo_only: bool = False) -> list[Check]:
    """Everything that can be checked without calling a model."""
    return run_checks(INSTALLATION_CHECKS if demo_only else (*INSTALLATION_CHECKS, *MODEL_CHECKS), settings)


def run_checks(checks: Sequence[MachineCheck], settings: Settings) -> list[Check]:
    """The results of all `checks`, in their order. Each has a thread, which is abandoned if it does not end in time."""
    queues = [_start(check, settings) for check in checks]
    try:
        timeout = TIMEOUT + keyring_timeout(settings.environ)
    except ConductorError:
        timeout = TIMEOUT  # the check of the keyring reports this error
    results: list[Check] = []
    for check, queue in zip(checks, queues, strict=True):
        try:
            results += queue.get(timeout=timeout)
        except Empty:
            hint = "a network disk or a driver may hang; see where: conductor --debug doctor --offline"
            found = f"did not end within {timeout:g} s"
            results.append(Check(name=_name(check), state="failed", found=found, hint=hint, code=1))
    return results


def _start(check: MachineCheck, settings: Settings) -> SimpleQueue[list[Check]]:
    queue: SimpleQueue[list[Check]] = SimpleQueue()

    def work() -> None:
        try:
            queue.put(check(settings))
        except ConductorError as error:
            queue.put([Check.failed(_name(check), error)])
        except Exception as error:  # noqa: BLE001 - one check that breaks must not hide the others
            found = f"internal error: {type(error).__name__}: {error}"
            hint = "report it: conductor doctor --bundle FILE.zip"
            queue.put([Check(name=_name(check), state="failed", found=found, hint=hint, code=1)])

    # A daemon: a thread that hangs in a system call cannot be ended, and must not keep the program from ending.
    threading.Thread(target=work, name=f"doctor {check.__name__}", daemon=True).start()
    return queue


def _name(check: MachineCheck) -> str:
    return check.__name__.replace("_", " ")
