"""`conductor tune`: learn from cases whom to ask, and whether to plan, and say so only where it is proved.

Every worker answers every case alone, and the planner plans each, as in an evaluation: what was answered before costs
nothing again. On one half of the cases a router is made, and the best single worker is found; the other half decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Final

from conductor_cli.app.planner_resolution import open_model_store, resolve_planner
from conductor_cli.config import Settings
from conductor_cli.core.errors import ConductorError, UsageError
from conductor_cli.core.formatting import format_cost_cell
from conductor_cli.evals.cases import Case
from conductor_cli.evals.outcomes import CaseOutcome
from conductor_cli.evals.routing import Head, fit_head
from conductor_cli.evals.summary import Summary, SystemResult, summarize
from conductor_cli.evals.systems import ALONE
from conductor_cli.models.router import RouterFile

ROUTER: Final = "router"  # Names the way in tables, beside `alone:NAME` and PLAN
PLAN: Final = "conductor"
MIN_CASES: Final = 40
"""Fewer cases prove nothing: of twenty, six more right answers and none less are the least that may be no chance."""

CHEAPER: Final = 0.02  # Of a right answer, what the costs of the dearest worker weigh: they decide between equals


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was learned: the router, how each way did on the cases that it was not made from, and the way to take."""

    router: RouterFile
    summary: Summary
    best: str
    """The worker that did best alone on the first half."""
    way: str
    """`alone:NAME`, ROUTER or PLAN."""

    def result(self, name: str) -> SystemResult:
        return next(each for each in self.summary.systems if each.name == name)

    def advice(self) -> str:
        """Return one sentence: what to do, and what it gains and costs."""
        alone = self.result(f"{ALONE}:{self.best}")
        if self.way == alone.name:
            return f"Ask {self.best} alone: no other way is proved to be right more often on {alone.accuracy.n} cases."
        chosen = self.result(self.way)
        assert chosen.versus_best is not None
        low, high = (100 * limit for limit in chosen.versus_best.interval)
        what = "Let the router choose one worker" if self.way == ROUTER else "Plan"
        costs = " instead of ".join(format_cost_cell(each.cost, each.unpriced) for each in (chosen, alone))
        return (
            f"{what}: {100 * chosen.versus_best.difference:+.1f} points above {self.best} alone (95 %: {low:+.1f} to "
            f"{high:+.1f}, {alone.accuracy.n} cases), for {costs} a question."
        )


def find_encoder(settings: Settings, name: str) -> Path:
    """Return the GGUF file that reads questions: the named one, else that of the local planner. Raises `UsageError`."""
    found = open_model_store(settings).find(name) if name else None
    path = found.path if found is not None else Path(name).expanduser() if name else None
    if path is None:
        try:
            planner = resolve_planner(settings)
        except ConductorError:
            planner = None
        if planner is not None and planner.kind == "llama" and planner.model.endswith(".gguf"):
            path = Path(planner.model)
    if path is None or not path.is_file():
        what = f"{path} is not a file" if path is not None else "no local model is there to read the questions"
        raise UsageError(what, hint="name one, which may be small: --encoder FILE.gguf; or: conductor model pull")
    return path.absolute()


def learn(outcomes: Sequence[CaseOutcome], cases: Sequence[Case], encoder: Path, seed: int) -> Tuned:
    """Return what one half of the cases teaches and the other half proves.

    Raises `UsageError` where there are too few cases that every worker was judged on, `ModelError` for the encoder.
    """
    judged = {(outcome.system, outcome.case): outcome for outcome in outcomes if outcome.verdict != "failed"}
    alone = [system for system in dict.fromkeys(outcome.system for outcome in outcomes) if system.startswith(ALONE)]
    whole = [case for case in cases if all((system, case.id) in judged for system in alone)]
    if len(whole) < MIN_CASES or len(alone) < 2:
        raise UsageError(
            f"{len(whole)} cases were judged for each of {len(alone)} workers, which is too little to learn from",
            hint=f"give at least {MIN_CASES} cases and two workers; the same command repeats what failed",
        )
    Random(seed).shuffle(whole)  # noqa: S311 - reproducible, no secret
    half = len(whole) // 2
    states = _encode(encoder, [case.question for case in whole])
    scores = _scores(judged, alone, whole)
    head = fit_head(states[:half], scores[:half], seed)
    proof, chosen = whole[half:], head.choose(states[half:])
    best = alone[int(scores[:half].mean(axis=0).argmax())]
    compared = [judged[best, case.id] for case in proof]
    compared += [
        replace(judged[alone[index], case.id], system=ROUTER) for case, index in zip(proof, chosen, strict=True)
    ]
    compared += [judged[PLAN, case.id] for case in proof if (PLAN, case.id) in judged]
    summary = summarize(compared, [best, ROUTER, *([PLAN] if any(each.system == PLAN for each in compared) else [])])
    proved = [
        each
        for each in summary.systems
        if each.versus_best is not None and each.versus_best.interval.low > 0 and each.versus_best.n == len(proof)
    ]
    way = max(proved, key=lambda each: each.accuracy.accuracy or 0).name if proved else best
    names = tuple(system.partition(":")[2] for system in alone)
    tuned = Tuned(_file(head, encoder, names), summary, best.partition(":")[2], way)
    return replace(tuned, router=replace(tuned.router, proof=tuned.advice()))


def _scores(judged: dict[tuple[str, str], CaseOutcome], alone: Sequence[str], cases: Sequence[Case]) -> Any:  # noqa: ANN401
    """Return cases × workers: 1 for a right answer, a little less for an expensive one."""
    import numpy as np

    right = np.array([[float(judged[system, case.id].right) for system in alone] for case in cases])
    costs = np.array([[float(judged[system, case.id].usage.cost or 0) for system in alone] for case in cases])
    return right - CHEAPER * costs / max(float(costs.mean(axis=0).max()), 1e-12)


def _encode(encoder: Path, questions: Sequence[str]) -> Any:  # noqa: ANN401 - numpy is slow to import
    import numpy as np

    from conductor_cli.models.llama.encoder import Encoder

    with closing(Encoder(encoder)) as model:
        return np.array([model.encode(question) for question in questions])


def _file(head: Head, encoder: Path, workers: tuple[str, ...]) -> RouterFile:
    from conductor_cli.models.llama import read_model_info

    def short(table: Any) -> Any:  # noqa: ANN401 - seven digits are enough
        return tuple(short(row) for row in table) if table.ndim > 1 else tuple(float(f"{value:.7g}") for value in table)

    return RouterFile(
        encoder=str(encoder), identity=read_model_info(encoder).identity, workers=workers,
        mean=short(head.mean), scale=short(head.scale), basis=short(head.basis), weights=short(head.weights),
    )  # fmt: skip
