"""conductor: a small local model plans how a team of models answers a question.

This runs and shows it.

The Python API is `open`, `open_async`, `replay` and `load_trace`; docs/python.md explains it. The
layers, each importing only those below it (checked by import-linter):

    cli | plugins              declares options, calls app or server, and prints; a model of Inspect
    server                     the orchestra for other programs
    app                        what the commands and the Python API do; returns data
    train | views              training a conductor; showing events
    evals | rehearsal          measuring; the demo models
    run                        a question becomes a stream of events
    state | config             traces, spending, API keys; settings
    models | tools             one interface for all models, and its adapters; servers of tools
    system                     files, threads and memory of this machine; secrets that are known
    core                       values and decisions: pure, standard library only

Public names are loaded on first use, so that a command pays only for what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "1.0.0.dev0"

if TYPE_CHECKING:
    from conductor_cli.app.api import AsyncConductor as AsyncConductor
    from conductor_cli.app.api import AsyncRun as AsyncRun
    from conductor_cli.app.api import Conductor as Conductor
    from conductor_cli.app.api import RunFailed as RunFailed
    from conductor_cli.app.api import SyncConductor as SyncConductor
    from conductor_cli.app.api import SyncRun as SyncRun
    from conductor_cli.app.api import load_trace as load_trace
    from conductor_cli.app.api import open as open  # noqa: A004 - conductor_cli.open
    from conductor_cli.app.api import open_async as open_async
    from conductor_cli.app.api import replay as replay
    from conductor_cli.core import events as events
    from conductor_cli.core.errors import ConductorError as ConductorError
    from conductor_cli.core.plan import Plan as Plan
    from conductor_cli.core.plan import Step as Step
    from conductor_cli.core.pool import Limits as Limits
    from conductor_cli.core.pool import Pool as Pool
    from conductor_cli.core.pool import Worker as Worker
    from conductor_cli.core.question import File as File
    from conductor_cli.core.question import Question as Question
    from conductor_cli.core.trace import Trace as Trace

_NAMES = {
    "conductor_cli.app.api": (
        "AsyncConductor",
        "AsyncRun",
        "Conductor",
        "RunFailed",
        "SyncConductor",
        "SyncRun",
        "load_trace",
        "open",
        "open_async",
        "replay",
    ),
    "conductor_cli.core.errors": ("ConductorError",),
    "conductor_cli.core.plan": ("Plan", "Step"),
    "conductor_cli.core.pool": ("Limits", "Pool", "Worker"),
    "conductor_cli.core.question": ("File", "Question"),
    "conductor_cli.core.trace": ("Trace",),
}
_MODULES = {"events": "conductor_cli.core.events"}
for _module, _names in _NAMES.items():
    _MODULES |= dict.fromkeys(_names, _module)

__all__ = [*_MODULES, "__version__"]  # noqa: PLE0604 - the keys are text


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_MODULES[name])
    if name == "events":
        return module
    return getattr(module, name)
