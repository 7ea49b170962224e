"""Whether everything works, for `conductor doctor`.

Each check is a function that yields `Check` values. `machine` has those that look at this machine, `live` those that
call models and workers. `report` makes what a bug report needs of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Final

from conductor_cli.app.checks import Check
from conductor_cli.app.doctor import machine
from conductor_cli.config import Settings
from conductor_cli.core.errors import ConductorError
from conductor_cli.core.formatting import format_duration
from conductor_cli.keys.keyring import keyring_timeout

MachineCheck = Callable[[Settings], Iterable[Check]]

TIMEOUT: Final = 20.0
"""Seconds that a check of this machine may take, on top of what its keyring may: a network disk can hang."""

CHECKS: Final[tuple[MachineCheck, ...]] = (
    machine.versions, machine.llama_build, machine.memory, machine.keyring, machine.directories,
)  # fmt: skip

MODEL_CHECKS: Final[tuple[MachineCheck, ...]] = (machine.model_store, machine.conductor_model)
"""Checks of the user's own models, which the demo models do not need."""


def check_machine(settings: Settings, *, demo_only: bool = False) -> Iterator[Check]:
    """Everything that can be checked without calling a model, as it becomes known."""
    return run_checks(CHECKS if demo_only else (*CHECKS, *MODEL_CHECKS), settings)


def run_checks(checks: Sequence[MachineCheck], settings: Settings) -> Iterator[Check]:
    """The results of all `checks`, in their order. Each has a thread, which is abandoned if it does not end in time."""
    queues = [_start(check, settings) for check in checks]
    try:
        timeout = TIMEOUT + keyring_timeout(settings.environ)
    except ConductorError:
        timeout = TIMEOUT  # the check of the keyring reports this error
    for check, queue in zip(checks, queues, strict=True):
        try:
            yield from queue.get(timeout=timeout)
        except Empty:
            message = f"did not end within {format_duration(timeout)}"
            error = ConductorError(message, hint="a network disk or a driver may hang")
            yield Check.failed(_name(check), error)


def _start(check: MachineCheck, settings: Settings) -> SimpleQueue[list[Check]]:
    queue: SimpleQueue[list[Check]] = SimpleQueue()

    def work() -> None:
        try:
            queue.put(list(check(settings)))
        except ConductorError as error:
            queue.put([Check.failed(_name(check), error)])
        except Exception as error:  # noqa: BLE001 - one check that breaks must not hide the others
            bug = ConductorError(f"this is a bug in conductor: {type(error).__name__}: {error}", hint="report it")
            queue.put([Check.failed(_name(check), bug)])

    # A daemon: a thread that hangs in a system call cannot be ended, and must not keep the program from ending.
    threading.Thread(target=work, daemon=True).start()
    return queue


def _name(check: MachineCheck) -> str:
    return check.__name__.replace("_", " ")
