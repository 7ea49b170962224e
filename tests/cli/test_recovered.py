"""Nothing is recovered in silence: what stderr, JSON, the list of runs and the trace say of failures."""

from __future__ import annotations

import pytest

from tests.cli.stage import Stage, refuses
from tests.servers import Script, SeenStep, Wire

TWICE = "[limits]\nattempts = 2"


def first(one: Script, then: Script) -> Script:
    """A model that does `one` when it is asked first, and `then` after that."""
    asked: list[SeenStep] = []

    async def script(seen: SeenStep, wire: Wire) -> None:
        asked.append(seen)
        await (one if len(asked) == 1 else then)(seen, wire)

    return script


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (500, "alpha failed: {host}: server error (500): no"),
        (404, "alpha failed: {host}: model or URL not found (404): no; hint: check the worker's model and base_url"),
        (401, "key missing or rejected (401): no; hint: conductor keys set openai-compatible --base-url {url}"),
    ],
)
def test_a_script_is_told_who_answered_instead_and_why(stage: Stage, status: int, reason: str) -> None:
    stage.models = {"alpha": refuses(status)}
    done = stage.inside("ask", "1+1")
    assert (done.code, done.out) == (0, "beta answers\n")
    (line,) = done.err.splitlines()
    assert line.startswith("conductor: step 1: beta answered instead of alpha; ")
    assert reason.format(host=stage.url.removeprefix("http://").removesuffix("/v1"), url=stage.url) in line


@pytest.mark.parametrize("flags", [("-q", "ask", "1+1"), ("ask", "1+1", "--progress", "none")])
def test_silence_that_was_asked_for_is_kept(stage: Stage, flags: tuple[str, ...]) -> None:
    stage.models = {"alpha": refuses(500)}
    done = stage.inside(*flags)
    assert (done.code, done.out, done.err) == (0, "beta answers\n", "")


def test_a_worker_without_a_key_is_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    stage.configure('[limits]\nattempts = 1\n[workers.remote]\nkind = "openai"')
    done = stage.inside("ask", "1+1")
    assert done.out == "alpha answers\n"
    (line,) = done.err.splitlines()
    assert line.startswith("conductor: note: remote is left out: ")
    assert "OPENAI_API_KEY is not set; hint: export OPENAI_API_KEY=…, or conductor keys set openai" in line
