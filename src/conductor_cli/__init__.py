"""conductor: a small local model plans how a team of models answers a question; this runs and shows it.

The layers, each importing only those below it (held by import-linter):

    cli                                    one file per command: wiring only
    server | evals | train | views | rehearsal
    run | store | config                   a question becomes a stream of events; where traces and settings are
    models                                 the one port for models, and its adapters
    core                                   values and decisions: pure, standard library only

The public face is loaded on first use, so that a command pays only for what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from conductor_cli.core import events as events
    from conductor_cli.core.plan import Plan as Plan
    from conductor_cli.core.plan import Step as Step
    from conductor_cli.core.pool import Limits as Limits
    from conductor_cli.core.pool import Pool as Pool
    from conductor_cli.core.pool import Worker as Worker
    from conductor_cli.core.question import Question as Question
    from conductor_cli.core.trace import Trace as Trace
    from conductor_cli.run import Conductor as Conductor

_HOMES = {
    "Conductor": "conductor_cli.run",
    "Limits": "conductor_cli.core.pool",
    "Plan": "conductor_cli.core.plan",
    "Pool": "conductor_cli.core.pool",
    "Question": "conductor_cli.core.question",
    "Step": "conductor_cli.core.plan",
    "Trace": "conductor_cli.core.trace",
    "Worker": "conductor_cli.core.pool",
    "events": "conductor_cli.core",
}

__all__ = ["Conductor", "Limits", "Plan", "Pool", "Question", "Step", "Trace", "Worker", "__version__", "events"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
