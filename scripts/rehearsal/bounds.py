"""The conductor's table: which figures there are, how each follows from the measures, and its bound. Values only."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from scripts.rehearsal.figures import Figure, Means
from scripts.rehearsal.trees import STEPS

SMALLEST: Final = 0.001
"""What a ratio divides by at least."""


def _ratio(one: Any, other: Any) -> Any:  # noqa: ANN401 - numbers or arrays
    return one / np.maximum(other, SMALLEST)


def _loss(means: Means, system: str) -> Any:  # noqa: ANN401 - a number or an array
    return means[f"before {system}"] - means[f"after {system}"]


def _plain(what: str, measure: str = "") -> Figure:
    return Figure(what=what, of=lambda means: means[measure or what])


def _above(what: str, rival: str) -> Figure:
    return Figure(what=f"the conductor above {what}", of=lambda means: means["conductor"] - means[rival], least=0.15)


def _shares(what: str, pools: str, least: float | None = None, measure: str = "") -> Figure:
    return Figure(
        what=f"{what}: share of best routing", of=lambda m: _ratio(m[measure or pools], m[f"{pools}, oracle"]),
        least=least,
    )  # fmt: skip


MAIN: Final = (
    Figure(what="held-out phrasings", of=lambda m: m["conductor"], least=0.80, each=0.76),
    *(_plain(f"  {shape}", f"shape {shape}") for shape in STEPS),
    _plain("  valid plans", "valid"),
    _plain("  split right, word for word", "split"),
    _plain("  shape right", "shape"),
    Figure(what="  shape right, where it is no chain", of=lambda m: m["shape, no chain"], least=0.80),
    _plain("  every step to one of the best", "routed"),
    _plain("  wrong, though all of that is right", "wrong, plan right"),
    _plain("known phrasings", "known"),
    _plain("held-out phrasings, plans checked as in the demo", "plans checked"),
    Figure(what="best routing (oracle)", of=lambda m: m["oracle"], least=0.93),
)

RIVALS: Final = (
    _plain("cold start alone", "cold"),
    _plain("cold start's split, keyword router", "cold, keyword"),
    _plain("cold start's split, router learned on single steps", "cold, step router"),
    _plain("conductor's split, keyword router", "keyword"),
    _plain("conductor's steps, a forced chain", "chain"),
    _plain("learned router over question embeddings", "router"),
    _plain("one step at a time (as ReAct), by the cold start", "turns cold"),
    _plain("one step at a time (as ReAct), by the conductor", "turns conductor"),
    _plain("best worker by card"),
    _plain("reflection, by the best worker by card", "reflection"),
    _plain("reflection, mean of the workers"),
    _plain("reflection, the best worker of each question in hindsight", "reflection, best in hindsight"),
    _plain("Mixture-of-Agents"),
    _plain("majority vote"),
    _plain("verifier-weighted vote"),
    _plain("any worker of the pool is right about the whole question", "anybody"),
    _plain("ceiling without division: any of the nine ways above is right", "ceiling"),
    _above("a forced chain", "chain"),
    _above("the cold start's split with a keyword router", "cold, keyword"),
    _above("a learned router", "router"),
)

COSTS: Final = (
    _plain("worker calls a question", "calls"),
    _plain("tokens a question, all models", "tokens"),
    _plain("Mixture-of-Agents: worker calls a question", "Mixture-of-Agents calls"),
    _plain("Mixture-of-Agents: tokens a question", "Mixture-of-Agents tokens"),
    Figure(
        what="tokens of all models, share of Mixture-of-Agents",
        of=lambda m: _ratio(m["tokens"], m["Mixture-of-Agents tokens"]), most=0.70,
    ),
    Figure(
        what="calls with the conductor's own, share of Mixture-of-Agents",
        of=lambda m: _ratio(m["calls"] + 1, m["Mixture-of-Agents calls"]), most=0.60,
    ),
    Figure(
        what="worker calls alone, share of Mixture-of-Agents",
        of=lambda m: _ratio(m["calls"], m["Mixture-of-Agents calls"]),
    ),
    _plain("one step at a time, conductor: all calls a question", "turns conductor calls"),
    _plain("one step at a time, conductor: tokens a question", "turns conductor tokens"),
)  # fmt: skip

OTHER_QUESTIONS: Final = (
    _plain("questions with a check, one round", "one round"),
    Figure(what="gained by a second round", of=lambda m: m["two rounds"] - m["one round"], least=0.05),
    _plain("  plans that check", "checks"),
    _plain("  the check says NO to wrong answers", "NO to wrong"),
    _plain("  the check says NO to right answers", "NO to right"),
    _plain("  right after a NO, first round", "right before NO"),
    _plain("  right after a NO, second round", "right after NO"),
    _plain("unseen pools"),
    _shares("unseen pools", "unseen pools", 0.90),
    _shares("unseen pools, plans checked as in the demo", "unseen pools", measure="unseen pools, plans checked"),
    _plain("everybody on offer, as in the demo", "everybody"),
    _plain("everybody on offer, plans checked as in the demo", "everybody, plans checked"),
    _plain("a skill never trained (colours)", "unseen skill"),
    _shares("a skill never trained (colours)", "unseen skill", 0.75),
    _plain("a skill never trained (colours), plans checked as in the demo", "unseen skill, plans checked"),
)

SHIFTED: Final = (
    *(
        _plain(f"the mix shifts, {system}: {when}", f"{when} {system}")
        for system in ("conductor", "pipeline", "static router", "oracle")
        for when in ("before", "after")
    ),
    Figure(
        what="the conductor's loss, share of the fixed pipeline's",
        of=lambda m: _ratio(_loss(m, "conductor"), _loss(m, "pipeline")), most=1 / 3,
    ),
    Figure(
        what="the conductor's loss, share of the static router's",
        of=lambda m: _ratio(_loss(m, "conductor"), _loss(m, "static router")), most=1 / 3,
    ),
)  # fmt: skip

TABLE: Final = (*MAIN, *RIVALS, *COSTS, *OTHER_QUESTIONS, *SHIFTED)
