"""A small part of the fuzz campaign, and that the campaign sees what it looks for."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.faults import fuzz
from scripts.faults.fuzz_targets import TARGETS, Target
from scripts.faults.tries import Tries

FEW = {"pdf": 1, "gguf": 5, "trace": 5}


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_inputs_are_read_or_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The inputs that a target begins with, and the first damaged ones, break no promise."""
    monkeypatch.setitem(TARGETS, name, TARGETS[name]._replace(inputs=FEW.get(name, 40)))
    seeds = [] if name == "pdf" else TARGETS[name].seeds()[:3]
    assert not any(fuzz.try_input(name, seed) for seed in seeds)
    assert fuzz._try_inputs(name, "1").problem == ""


def raises(data: bytes) -> None:
    if b"7" in data:
        raise KeyError("seven")


def computes(data: bytes) -> None:
    while data:
        pass


def grows(data: bytes) -> None:
    bytes(data) * (130 << 20)


@pytest.mark.parametrize(
    ("check", "said"), [(raises, "KeyError: 'seven'"), (computes, "more than 0.2 s"), (grows, "MiB of memory")]
)
def test_a_broken_promise_is_seen(check: Callable[[bytes], None], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that is not our own, an input that takes long, and one that takes memory are problems."""
    monkeypatch.setitem(TARGETS, "made up", Target(check=check, seeds=lambda: [b"7"]))
    monkeypatch.setattr(fuzz, "SECONDS", 0.1)
    assert said in fuzz.try_input("made up", b"7")


def test_the_name_of_a_try_is_its_reproduction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed try is found again by its name alone, with the same input, and the input is in its problem."""
    monkeypatch.setattr(fuzz, "TARGETS", {"made up": Target(check=raises, seeds=lambda: [b"123456"], inputs=20)})
    monkeypatch.setattr(fuzz, "ROUNDS", 3)
    found = []
    for folder in ("one", "two"):
        fuzz._seeds.cache_clear()
        tries = Tries("fuzz", tmp_path / folder, seed=4, minutes=1)
        fuzz.run(tries)
        found.append(tries.report())
    assert found[0].failed == found[1].failed > 0
    assert found[0].first == found[1].first
    assert "KeyError" in found[0].first
    fuzz._seeds.cache_clear()


def test_waiting_is_not_computing() -> None:
    """The limit on an input counts what the processor does, so that a busy machine breaks no promise."""
    with fuzz._stopped_after(0.01):
        time.sleep(0.05)
