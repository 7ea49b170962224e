"""Events as lines: each comes back as it was, and a damaged line is an error or another event."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core import events as ev
from conductor_cli.core.serialization import DecodeError
from conductor_cli.core.terminal_text import is_sanitized
from tests.core.strategies import by_kind, events, json_values


@pytest.mark.parametrize("kind", ev.KINDS)
@given(data=st.data())
def test_every_event_is_one_line_and_back(kind: str, data: st.DataObject) -> None:
    event = data.draw(by_kind[ev.KINDS[kind]])
    line = ev.to_line(event)
    assert ev.from_line(line) == event
    assert is_sanitized(line)
    assert len(line.splitlines()) == 1
    assert json.loads(line)["kind"] == kind


def test_the_kind_is_the_first_key() -> None:
    event = ev.NestedEvent(at=1.0, step=2, event=ev.PlanDelta(at=0.5, text="A"))
    assert (
        ev.to_line(event)
        == '{"kind":"nested_event","at":1.0,"step":2,"event":{"kind":"plan_delta","at":0.5,"text":"A"}}'
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[1]", "not an event: None"),
        ("3", "not an event: None"),
        ("{}", "not an event: None"),
        ('{"kind":"step_flew","at":1}', "not an event: 'step_flew'"),
        ('{"kind":["notice"],"at":1}', "not an event: \\['notice'\\]"),
        ('{"kind":"notice","text":"x"}', "Notice: 'at' is missing"),
        ('{"kind":"notice","at":NaN,"text":"x"}', "at: expected a number"),
        ('{"kind":"nested_event","at":"soon","step":1,"event":{}}', "at: expected a number"),
        ('{"kind":"nested_event","at":1,"step":1}', "not an event: None"),
        (
            '{"kind":"nested_event","at":1,"step":true,"event":{"kind":"notice"}}',
            "step: expected a whole number",
        ),
        (
            '{"kind":"nested_event","at":1,"step":1,"event":{"kind":"notice"}}',
            "Notice: 'at' is missing",
        ),
    ],
)
def test_a_line_that_is_not_an_event_is_refused(line: str, problem: str) -> None:
    with pytest.raises(DecodeError, match=problem):
        ev.from_line(line)


def test_an_endlessly_nested_line_is_refused() -> None:
    deep = '{"kind":"nested_event","at":1,"step":1,"event":'
    for line in (deep * 900 + "{}" + "}" * 900, deep * 100_000, "[" * 100_000):
        with pytest.raises(DecodeError):
            ev.from_line(line)


@given(events, st.data())
def test_a_line_that_was_damaged_is_an_event_or_a_wire_error(
    event: ev.Event, data: st.DataObject
) -> None:
    damaged = ev.to_json(event)
    key = data.draw(st.sampled_from(sorted(damaged)))
    damaged[key] = data.draw(json_values)
    line = json.dumps(damaged)
    for text in (line, line[: data.draw(st.integers(0, len(line)))]):
        try:
            ev.from_line(text)
        except DecodeError:
            continue


def test_a_brief_line_has_no_defaults_and_is_the_same_event() -> None:
    for path in sorted((Path(__file__).parents[1] / "traces").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            event = ev.from_line(line)
            brief = ev.to_line(event, brief=True)
            assert ev.from_line(brief) == event
            assert len(brief) <= len(ev.to_line(event))
            assert ('"format":3' in brief) == isinstance(
                event, ev.RunStarted
            ) or '"event":{' in brief
    piece = ev.StepDelta(at=0.5, step=1, attempt=1, text="a")
    assert (
        ev.to_line(piece, brief=True)
        == '{"kind":"step_delta","at":0.5,"step":1,"attempt":1,"text":"a"}'
    )
