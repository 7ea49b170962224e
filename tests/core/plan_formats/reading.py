"""Feeding parsers in tests: all at once, in pieces, with the fault as a value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conductor_cli.core.errors import PlanError
from conductor_cli.core.plan import KeepAnswer, Plan
from conductor_cli.core.plan_formats import PLAN_FORMATS, ParsedStep, PlanFormatContext

Item = ParsedStep | KeepAnswer


def read(
    name: str, pieces: Sequence[str], context: PlanFormatContext
) -> tuple[list[Item], PlanError | None, str]:
    """Return what a parser yields for these pieces and their end.

    And the fault that stopped it if any, and its reasoning.
    """
    parser = PLAN_FORMATS[name].parser(context)
    items: list[Item] = []
    try:
        for piece in pieces:
            _collect(items, parser.feed(piece))
        _collect(items, parser.end())
    except PlanError as error:
        return items, error, parser.reasoning
    return items, None, parser.reasoning


def _collect(items: list[Item], arriving: Iterator[Item]) -> None:
    """One by one: what came before a fault is kept."""
    for item in arriving:
        items.append(item)  # noqa: PERF402 - `extend` would lose them


def plan_in(name: str, text: str, context: PlanFormatContext) -> Plan | KeepAnswer:
    """The plan that a text spells, held to what every parser promises of its steps.

    Raises `PlanError`.
    """
    items, error, reasoning = read(name, [text], context)
    if error is not None:
        raise error
    if isinstance(items[0], KeepAnswer):
        assert len(items) == 1
        return items[0]
    parsed = [item for item in items if isinstance(item, ParsedStep)]
    assert [item.number for item in parsed] == list(
        range(context.first, context.first + len(parsed))
    )
    assert [item.last for item in parsed] == [False] * (len(parsed) - 1) + [True]
    return Plan(steps=tuple(item.step for item in parsed), reasoning=reasoning.strip())


def arrivals(name: str, text: str, context: PlanFormatContext) -> list[tuple[int, str]]:
    """Return for each step its number and the text after which it was yielded.

    The text is fed sign by sign.
    """
    parser = PLAN_FORMATS[name].parser(context)
    yielded = []
    for length in range(1, len(text) + 1):
        yielded += [
            (item.number, text[:length])
            for item in parser.feed(text[length - 1])
            if isinstance(item, ParsedStep)
        ]
    yielded += [
        (item.number, text + "<end>") for item in parser.end() if isinstance(item, ParsedStep)
    ]
    return yielded
