"""The table of all evaluations: means over seeds, with 95 % intervals over all their questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from conductor_cli.evals.summary import wilson_interval
from scripts.smollm2.evaluate import by_chance, offered
from scripts.smollm2.questions import draw_cases

Outcomes = Sequence[Mapping[str, Any]]

BOUNDS: Final = {"valid plan, without grammar": 0.95, "right worker by card": 0.80}
"""What the trained planner is to reach."""

SYSTEMS: Final = ("untrained", "start", "trained")


def table(found: Mapping[str, Mapping[int, Outcomes]]) -> list[str]:
    """Lines of text. `found` has the outcomes by system and by seed."""
    lines = []
    measured = {system: by_seed for system, by_seed in found.items() if by_seed}
    for system, by_seed in measured.items():
        lines.append(f"{system}: {sum(map(len, by_seed.values()))} questions, seeds {', '.join(map(str, by_seed))}")
        for name, flags in ROWS.items():
            lines.append(_row(name, [flags(outcomes) for outcomes in by_seed.values()], bounded=system == "trained"))
    some = next(iter(measured.values()), {})
    chances = [
        by_chance(case, offered(seed, number))
        for seed, outcomes in some.items()
        for number, case in enumerate(draw_cases(len(outcomes), seed, "held"))
    ]
    if chances:
        lines.append(f"right worker by chance: {sum(chances) / len(chances):.3f}")
    return lines


def _row(name: str, by_seed: Sequence[Sequence[bool]], *, bounded: bool) -> str:
    every = [flag for flags in by_seed for flag in flags]
    if not every:
        return f"  {name:<28} nothing to count"
    low, high = wilson_interval(sum(every), len(every))
    mean, seeds = sum(every) / len(every), ", ".join(f"{sum(flags) / max(len(flags), 1):.3f}" for flags in by_seed)
    text = f"  {name:<28} {mean:.3f} [{low:.3f}, {high:.3f}] of {len(every)} (seeds: {seeds})"
    least = BOUNDS.get(name) if bounded else None
    return text + ("" if least is None else f"  at least {least:.2f}{'' if mean >= least else ': MISSED'}")


def _flags(name: str, outcomes: Outcomes) -> list[bool]:
    return [bool(outcome[name]) for outcome in outcomes]


ROWS: Final[dict[str, Callable[[Outcomes], list[bool]]]] = {
    "valid plan, without grammar": lambda outcomes: _flags("valid", outcomes),
    "right steps and access lists": lambda outcomes: _flags("split", outcomes),
    "right worker by card": lambda outcomes: [bool(flag) for outcome in outcomes for flag in outcome["routed"]],
    "right answer": lambda outcomes: _flags("right", outcomes),
    "right answer, best plan": lambda outcomes: _flags("best", outcomes),
    "right answer, best worker": lambda outcomes: _flags("single", outcomes),
}
"""What is counted, and how. The workers of a plan with another number of steps are not counted as right or wrong."""
