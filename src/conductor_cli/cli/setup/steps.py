"""A step of `conductor setup` as a value, with the command that does the same; and doing it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import typer

    from conductor_cli.config import Settings

What = Literal["model", "worker", "limit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing to set up: `text` says what it is, `command` is what does it, empty where it is `here` already."""

    what: What
    name: str
    text: str
    command: str = ""
    here: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """For people: whether it is here, what it is."""
        name = {"model": "conductor model", "worker": self.name, "limit": self.name}[self.what]
        return f"{'here' if self.here else 'new '}  {name}: {self.text}"

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        state = "here" if self.here else "proposed"
        return {
            "step": self.what, "name": self.name, "state": state, "about": self.text, "command": self.command or None,
            **self.details,
        }  # fmt: skip


def do(step: Step, context: typer.Context, settings: Settings) -> None:
    """Do one step by what its command does. Raises `ConductorError`; what is not done then is not half done."""
    {"model": _do_model, "worker": _do_worker, "limit": _do_limit}[step.what](step, context, settings)


def _do_model(step: Step, context: typer.Context, settings: Settings) -> None:
    from conductor_cli.cli import model

    del settings
    if step.details:
        model.pull(context, name=step.name, use=True)
    elif Path(step.name).expanduser().is_file():
        model.import_(context, path=Path(step.name), use=True)
    else:
        model.use(context, model=step.name)


def _do_worker(step: Step, context: typer.Context, settings: Settings) -> None:
    """Into the tool's own file, which the user's own wins over."""
    from conductor_cli.cli.output import print_text
    from conductor_cli.config.workers import update_worker, validate_worker

    del context
    table = step.details["worker"]
    validate_worker(settings.paths, step.name, table)
    update_worker(settings.paths, step.name, table)
    print_text(f"added {step.name}")


def _do_limit(step: Step, context: typer.Context, settings: Settings) -> None:
    from conductor_cli.cli import config

    del settings
    config.set_(context, name=step.name, value=str(step.details["value"]))
