"""What a release promises stays.

Commands, options, exit codes, settings, events, JSON fields and the Python API.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import pytest
import typer

from conductor_cli import __version__
from conductor_cli.cli import typer_classes
from conductor_cli.cli.command_tree import app
from conductor_cli.cli.options import DEPRECATED, Deprecation
from scripts.reference import commands, man, outputs, surface
from tests.cli.conftest import stage
from tests.cli.stage import Stage

__all__ = ["stage"]

ROOT = Path(__file__).parents[2]
PROGRAM = commands.read(app, "conductor")
NOW = surface.current_surface(PROGRAM, __version__)
RELEASED = surface.newest_frozen(ROOT)
TODAY = date.fromisoformat(man.DATES[__version__])

HELP = "to keep it, or to say that it goes: CONTRIBUTING.md, The promise"


def go(
    name: Annotated[str, typer.Argument()],
    more: Annotated[str, typer.Argument()] = "",
    deny: Annotated[list[str] | None, typer.Option("--deny", "-d")] = None,
    mode: Annotated[Literal["mini", "auto"], typer.Option("--mode")] = "auto",
    fast: Annotated[bool, typer.Option("--fast")] = False,
) -> None:
    """A command of a version."""


def with_changes(**changes: Any) -> surface.Surface:
    """The surface of a later version of `go`, whose parameters have these annotations.

    None drops one.
    """
    hints = {**get_type_hints(go, include_extras=True), **changes}
    signature = inspect.signature(go)
    kept = [
        signature.parameters[name].replace(annotation=hints[name])
        if name in signature.parameters
        else inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[name], default=None
        )
        for name in hints
        if name != "return" and hints[name] is not None
    ]

    def later(**values: Any) -> None:
        """The same command, changed."""

    later.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    later.__annotations__ = {parameter.name: parameter.annotation for parameter in kept}
    return surface_of(later, "1.1.0")


def surface_of(function: Any, version: str) -> surface.Surface:
    program = typer.Typer()
    program.callback()(lambda: None)
    program.command("go")(function)
    return surface.current_surface(commands.read(program, "conductor"), version)


EARLIER_SURFACE = surface_of(go, "1.0.0")


def test_what_only_adds_keeps_the_promise() -> None:
    assert not surface.broken_promises(EARLIER_SURFACE, EARLIER_SURFACE, TODAY)
    later = with_changes(
        mode=Annotated[Literal["mini", "auto", "ultra"], typer.Option("--mode")],
        fast=Annotated[bool, typer.Option("--fast", "-f")],
        new=Annotated[str | None, typer.Option("--new")],
    )
    assert not surface.broken_promises(EARLIER_SURFACE, later, TODAY)


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({"fast": None}, "no longer: conductor go --fast"),
        (
            {"deny": Annotated[list[str] | None, typer.Option("--deny")]},
            "no longer: conductor go -d",
        ),
        (
            {"deny": Annotated[str | None, typer.Option("--deny", "-d")]},
            "no longer: conductor go --deny may be repeated",
        ),
        (
            {"mode": Annotated[Literal["auto"], typer.Option("--mode")]},
            "no longer: conductor go --mode takes mini",
        ),
        (
            {"fast": Annotated[str, typer.Option("--fast")]},
            "no longer: conductor go --fast takes no value",
        ),
        ({"more": None}, "no longer: conductor go argument 2"),
    ],
)
def test_what_takes_away_breaks_the_promise(changes: dict[str, Any], broken: str) -> None:
    assert broken in surface.broken_promises(EARLIER_SURFACE, with_changes(**changes), TODAY)


def test_an_argument_that_becomes_necessary_breaks_the_promise() -> None:
    later = replace(
        EARLIER_SURFACE, demands=EARLIER_SURFACE.demands | {"conductor go argument 2 is given"}
    )
    assert surface.broken_promises(EARLIER_SURFACE, later, TODAY) == [
        "newly demanded: conductor go argument 2 is given"
    ]
    assert not surface.broken_promises(later, EARLIER_SURFACE, TODAY)


def test_a_new_command_may_demand_what_it_needs() -> None:
    demands = {"conductor went argument 1 is given", "conductor went --far is given"}
    later = replace(EARLIER_SURFACE, demands=EARLIER_SURFACE.demands | demands)
    assert not surface.broken_promises(EARLIER_SURFACE, later, TODAY)
    later = replace(
        EARLIER_SURFACE, demands=EARLIER_SURFACE.demands | {"conductor go --far is given"}
    )
    assert surface.broken_promises(EARLIER_SURFACE, later, TODAY)


@pytest.mark.parametrize(
    ("version", "day", "goes"),
    [
        ("2.0.0", date(2027, 6, 10), True),
        ("2.0.0", date(2027, 2, 1), False),  # six months have not passed
        ("1.9.0", date(2029, 1, 1), False),  # not a major version
    ],
)
def test_what_was_deprecated_goes_with_a_major_version_after_six_months(
    version: str, day: date, *, goes: bool
) -> None:
    notice = Deprecation(since="1.1.0", day="2026-12-01", instead="--quick")
    deprecated = replace(EARLIER_SURFACE, deprecated={"conductor go --fast": notice})
    later = replace(with_changes(fast=None), version=version)
    assert (not surface.broken_promises(deprecated, later, day)) is goes
    assert surface.broken_promises(EARLIER_SURFACE, later, day), "without a notice nothing goes"


def test_a_surface_is_read_as_it_was_written() -> None:
    assert surface.parse_surface(EARLIER_SURFACE.text()) == EARLIER_SURFACE


def test_the_surface_of_a_release_cannot_be_frozen_again(tmp_path: Path) -> None:
    early = replace(EARLIER_SURFACE, version="1.0.0rc1")
    assert surface.freeze(early, tmp_path) == surface.freeze(early, tmp_path)
    surface.freeze(EARLIER_SURFACE, tmp_path)
    with pytest.raises(FileExistsError, match="a new version gets a new number"):
        surface.freeze(EARLIER_SURFACE, tmp_path)
    assert surface.newest_frozen(tmp_path) == EARLIER_SURFACE


def test_what_is_deprecated_works_on_and_says_what_to_use(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    notice = Deprecation(since="1.1.0", day="2026-12-01", instead="conductor cost")
    names = ("conductor template", "conductor config show --json")
    monkeypatch.setattr(typer_classes, "DEPRECATED", dict.fromkeys(names, notice))
    message = "template is deprecated since 1.1.0 and will go; use instead: conductor cost"
    assert stage.ok("template", "list", told=message).out
    done = stage.ok(
        "config", "show", "limits.steps", "--json", told="config show --json is deprecated"
    )
    assert done.json
    assert stage.ok("config", "show", "limits.steps").err == ""


def test_what_is_deprecated_is_still_there() -> None:
    for name, it in DEPRECATED.items():
        assert name in NOW.offers
        assert date.fromisoformat(it.day) <= TODAY


def without_outputs(released: surface.Surface) -> surface.Surface:
    kept = {fact for fact in released.offers if not fact.startswith("output of ")}
    return replace(released, offers=frozenset(kept))


def test_nothing_that_the_last_version_promised_is_gone() -> None:
    broken = surface.broken_promises(without_outputs(RELEASED), NOW, TODAY)
    assert not broken, HELP


def test_json_outputs_have_all_fields_that_the_last_version_promised(
    stage: Stage, tmp_path: Path
) -> None:
    printed = outputs.printed_facts(stage, tmp_path)
    promised = {fact for fact in RELEASED.offers if fact.startswith("output of ")}
    assert not promised - printed, HELP


def test_every_command_with_json_is_in_the_surface() -> None:
    listed = {
        " ".join(command.words)
        for command in PROGRAM.walk()
        if any("--json" in option.names for option in command.options)
    }
    held = {
        fact.split(":")[0].removeprefix("output of ")
        for fact in RELEASED.offers
        if fact.startswith("output of ")
    }
    missing = {name for name in listed if f"{name} --json" not in held}
    assert missing == {*outputs.NOT_PRINTED}
