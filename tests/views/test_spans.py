"""Events as spans and measurements, over the stored traces of the other views' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.trace import fold
from conductor_cli.views.telemetry_spans import Key, Measured, Sent, SpanEnded, SpanMapper, SpanStarted

FOLDER = Path(__file__).parents[1] / "traces"
TRACES = sorted(FOLDER.glob("*.jsonl"))


def events(path: Path) -> list[ev.Event]:
    return [ev.from_line(line) for line in path.read_text("utf-8").split("\n") if line]


def sent(path: Path, *, texts: bool = False) -> list[Sent]:
    mapper = SpanMapper(texts=texts)
    return [each for event, trace in fold(events(path)) for each in mapper.read(event, trace)]


def used(run: list[ev.Event]) -> int:
    """The tokens of all calls; those of a nested run stand in for what its step says."""
    nested: dict[int, list[ev.Event]] = {}
    for event in run:
        if isinstance(event, ev.NestedEvent):
            nested.setdefault(event.step, []).append(event.event)
    calls = (ev.PlanRejected, ev.PlanReady, ev.StepFailed, ev.StepStopped, ev.StepFinished)
    own = [event for event in run if isinstance(event, calls) and getattr(event, "step", 0) not in nested]
    return sum(event.usage.tokens for event in own) + sum(map(used, nested.values()))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_each_span_has_one_end_inside_its_parent(path: Path) -> None:
    began: dict[Key, float] = {}
    for each in sent(path):
        if isinstance(each, SpanStarted):
            assert each.key not in began
            assert each.parent in began if each.parent is not None else not began
            began[each.key] = each.at
        elif isinstance(each, SpanEnded):
            assert each.at >= began.pop(each.key)
            assert not any(key for key in began if key[: len(each.key)] == each.key and each.key)
    assert not began


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_the_tokens_of_all_calls_are_those_of_the_run(path: Path) -> None:
    tokens = [each for each in sent(path) if isinstance(each, Measured) and each.instrument.endswith("token.usage")]
    assert sum(each.value for each in tokens) == used(events(path))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_no_text_is_sent_unless_it_is_asked_for(path: Path) -> None:
    """Messages, arguments and results are attributes only where texts are wanted; the question is then one."""
    told = {
        name
        for each in sent(path)
        for name in each.attributes
        if "messages" in name or name.endswith(("arguments", "result"))
    }
    assert told == set()
    asked = [each for each in sent(path, texts=True) if "gen_ai.input.messages" in each.attributes]
    assert asked


def test_a_failed_attempt_says_why_and_its_step_goes_on() -> None:
    ends = [each for each in sent(FOLDER / "retry.jsonl") if isinstance(each, SpanEnded)]
    failed = [each for each in ends if each.error and each.key[-1] == "attempt"]
    assert failed
    step = failed[0].key[:-1]
    assert [each.error for each in ends if each.key == step] == [""]
