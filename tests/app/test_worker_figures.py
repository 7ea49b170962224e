"""Figures of workers: from stored runs, from a calibration, or assumed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from conductor_cli.app.training import SECONDS, TOKENS_OUT, worker_figures
from conductor_cli.config.cards import Cards, MeasuredCard, worker_key
from conductor_cli.core.estimate import OVERHEAD
from conductor_cli.core.pool import Pool, Worker

ANN, BOB = Worker(name="ann", kind="openai", model="ann-1"), Worker(name="bob", kind="llama", model="/bob.gguf")


def test_a_calibration_comes_before_an_assumption(tmp_path: Path) -> None:
    """A worker without a card gets assumed figures, which say so. Only a worker elsewhere can do more at once."""
    card = MeasuredCard(
        worker="ann", key=worker_key(ANN), source="basics", hash="x", time="2026-11-22T10:00:00Z", right=9, n=60,
        strengths={}, tokens_in=300.0, tokens_out=42.0, seconds=3.5,
    )  # fmt: skip
    settings: Any = SimpleNamespace(paths=SimpleNamespace(traces=tmp_path), cards=Cards(measured=(card,)))
    ann, bob = worker_figures(settings, Pool(workers=(ANN, BOB)), ["x" * 350])
    assert (ann.tokens_in, ann.tokens_out, ann.seconds) == (300.0, 42.0, 3.5)
    assert (ann.source, ann.measured, ann.remote) == ("calibration, 60 cases", True, True)
    assert (bob.tokens_in, bob.tokens_out, bob.seconds) == (100 + OVERHEAD, TOKENS_OUT, SECONDS)
    assert (bob.source, bob.measured, bob.remote) == ("assumed", False, False)
