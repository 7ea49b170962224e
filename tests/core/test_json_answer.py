"""The value that is read out of an answer with a fence or words around it."""

from __future__ import annotations

import pytest

from conductor_cli.core.json_answer import json_values_in

VALUE = '{"a": 1}'


@pytest.mark.parametrize(
    "answer",
    [
        VALUE,
        f"```json\n{VALUE}\n```",
        f"```\n{VALUE}\n```\nHope this helps!",
        f"Here is the JSON: {VALUE}",
        f"{VALUE} Hope this helps.",
        f"Sure {{smile}}: {VALUE}",
    ],
)
def test_one_value_is_read_whatever_stands_around_it(answer: str) -> None:
    assert json_values_in(answer) == (VALUE,)


def test_all_values_that_could_be_meant_are_given() -> None:
    assert json_values_in(f"[1] says {VALUE}") == ("[1]", VALUE)
    assert json_values_in("no value at all") == ()
    assert json_values_in('"a text"') == ('"a text"',)


def test_brackets_without_end_take_linear_time() -> None:
    assert json_values_in("[" * 100_000) == ()
