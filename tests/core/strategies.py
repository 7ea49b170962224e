"""Random values of the nouns, for property tests.

Every kind of event, plans that obey their rules, terms for them.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, get_args

from hypothesis import strategies as st

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Finish, Message, Role, ToolCall
from conductor_cli.core.errors import EXIT_CODES, Failure
from conductor_cli.core.plan import KeepAnswer, Plan, PlanRules, Step
from conductor_cli.core.plan_formats import PlanFormatContext
from conductor_cli.core.policy import Policy
from conductor_cli.core.pool import Card, Limits, Pool, Worker
from conductor_cli.core.profile import labels_of
from conductor_cli.core.question import File, Given, PastTurn, Question
from conductor_cli.core.usage import Price, Usage

text = st.text(max_size=20) | st.sampled_from(
    [
        "",
        "a\nb",
        '"',
        "\u2028",
        "\x85",
        "\x1b[31m",
        "\ud800",
        "né 中",
        "| A | - |",
        "```",
        "\\n",
        "\x00",
    ]
)
names = st.text(st.characters(categories=["Ll", "Nd"]), min_size=1, max_size=6)
amounts = st.integers(0, 10**12)
seconds = st.floats(0, 1e7, allow_nan=False)
dollars = st.decimals(0, 10**6, places=8, allow_nan=False)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda nested: st.lists(nested, max_size=3) | st.dictionaries(text, nested, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(text, json_values, max_size=3)


def tuples_of(items: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, max_size=most).map(tuple)


usages = st.builds(
    Usage,
    tokens_in=amounts,
    tokens_out=amounts,
    tokens_cached=amounts,
    tokens_reasoning=amounts,
    cost=st.none() | dollars,
    seconds=seconds,
    calls=amounts,
    unpriced=amounts,
)
failures = st.builds(Failure, kind=st.sampled_from(sorted(EXIT_CODES)), message=text, hint=text)
messages = st.builds(Message, role=st.sampled_from(get_args(Role)), content=text)
questions = st.builds(
    Question,
    text=text,
    system=text,
    parent=st.none() | text,
    schema=st.none() | objects,
    history=tuples_of(st.builds(PastTurn, question=text, answer=text)),
    files=tuples_of(st.builds(File, name=text, text=text)),
    given=tuples_of(st.builds(Given, worker=text, subtask=text, answer=text)),
)
prices = st.builds(Price, input=dollars, output=dollars, cached=st.none() | dollars)
policies = st.builds(
    Policy,
    allow=tuples_of(tuples_of(names, 2), 2),
    deny=tuples_of(names),
    local_only=st.booleans(),
    files_only=tuples_of(tuples_of(names, 2), 2),
)
cards = st.builds(
    Card,
    strengths=st.dictionaries(names, st.floats(0, 1), max_size=3),
    measured=st.booleans(),
    source=text,
)
workers = st.builds(
    Worker,
    name=names,
    kind=text,
    model=text,
    about=text,
    card=cards,
    options=objects,
    parallel=st.integers(1, 9),
    price=st.none() | prices,
)
pools = st.lists(workers, max_size=4, unique_by=lambda worker: worker.name).map(
    lambda drawn: Pool(workers=tuple(drawn))
)
limits = st.builds(
    Limits,
    steps=st.integers(1, 5),
    parallel=st.integers(1, 9),
    attempts=st.integers(1, 9),
    recursion=st.integers(0, 9),
    seconds=st.none() | seconds,
    cost=st.none() | dollars,
    tokens=st.none() | amounts,
    calls=st.none() | amounts,
)
steps = st.builds(Step, worker=text, subtask=text, access=tuples_of(st.integers(0, 9)))
any_plans = st.builds(Plan, steps=tuples_of(steps, 5), reasoning=text) | st.builds(
    KeepAnswer, reasoning=text
)

_few = st.integers(1, 9)
_numbers = tuples_of(st.integers(0, 9))
_step = {"at": seconds, "step": st.integers(0, 9)}

BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    **_step,
    "attempt": _few,
    "turn": _few,
    "first": _few,
    "access": _numbers,
    "left_out": _numbers,
    "workers": tuples_of(text),
    "prompt": tuples_of(messages),
    "usage": usages,
    "error": failures,
    "plan": any_plans,
    "call": st.builds(ToolCall, id=text, name=text, arguments=text),
    "seconds": st.floats(0, 1e6),
    "seconds_left": seconds,
    "tokens": _few,
    "total": _few,
    "retry_in": st.none() | seconds,
    "substitute": st.none() | text,
    "last": st.booleans(),
    "partial": st.booleans(),
    "question": questions,
    "pool": pools,
    "limits": limits,
    "policy": policies,
    "format": st.integers(0, 99),
    "mode": st.sampled_from(get_args(ev.Mode)),
    "verdict": st.sampled_from(get_args(ev.Verdict)),
    "finish": st.sampled_from(get_args(Finish)),
    **dict.fromkeys(("text", "thinking", "feedback"), text),
}
"""The fields of events by name; another field is a text where the event needs it, and else keeps
its default.
"""

OF_KIND: dict[type, dict[str, st.SearchStrategy[Any]]] = {
    ev.ToolReturned: {"error": st.booleans()},
    ev.RunFinished: {"error": st.none() | failures},
    ev.StepStopped: {"reason": st.sampled_from(get_args(ev.StopReason))},
}


def _event(kind: type) -> st.SearchStrategy[Any]:
    drawn = {
        item.name: BY_NAME.get(item.name, text)
        for item in fields(kind)
        if item.name in BY_NAME or item.default is item.default_factory is MISSING
    }
    return st.builds(kind, **drawn | OF_KIND.get(kind, {}))


by_kind = {kind: _event(kind) for kind in get_args(ev.Event) if kind is not ev.NestedEvent}
flat = st.one_of(*by_kind.values())
by_kind[ev.NestedEvent] = st.recursive(
    st.builds(ev.NestedEvent, **_step, event=flat),
    lambda nested: st.builds(ev.NestedEvent, **_step, event=nested),
    max_leaves=4,
)
events = flat | by_kind[ev.NestedEvent]


@st.composite
def plans_for(
    draw: st.DrawFn, rules: PlanRules, subtasks: st.SearchStrategy[str], first: int = 1
) -> Plan:
    """A plan that obeys `rules`, with steps from number `first` on."""
    made = []
    for number in range(first, first + draw(st.integers(1, rules.steps - first + 1))):
        visible = range(0 if rules.given else 1, number)
        access = tuple(item for item in visible if draw(st.booleans()))
        made.append(
            Step(worker=draw(st.sampled_from(rules.workers)), subtask=draw(subtasks), access=access)
        )
    return Plan(steps=tuple(made))


@st.composite
def terms_for_tests(draw: st.DrawFn, /, style: str = "letters", **fixed: Any) -> PlanFormatContext:
    """Terms over 1 to 12 workers, some of them away, and 1 to 5 steps.

    With and without something given.
    """
    count = draw(st.integers(1, 12))
    names = tuple(f"worker-{number}" for number in range(count))
    up = tuple(name for name in names if draw(st.integers(0, 9))) or names[:1]
    rules = PlanRules(workers=up, steps=draw(st.integers(1, 5)), given=draw(st.booleans()))
    values: dict[str, Any] = {
        "rules": rules,
        "labels": labels_of(names, style),  # type: ignore[arg-type]
        "order": draw(st.permutations(("worker", "access", "subtask")).map(tuple)),
        "bar": draw(st.sampled_from([" | ", "|"])),
        "constrained": draw(st.booleans()),
        "reasoning": draw(st.booleans()),
        "closing": draw(st.sampled_from(["", "Answer from these results."])),
    }
    return PlanFormatContext(**{**values, **fixed})
