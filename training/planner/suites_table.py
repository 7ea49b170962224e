"""The table of the suites and its verdict, from outcomes. Pure.

The rule of the verdict was written down before any question was asked; docs/research/suites.md has
it in words. Only questions that every system has answered count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from conductor_cli.core.formatting import format_count
from conductor_cli.evals.outcomes import CaseOutcome
from conductor_cli.evals.report import format_limits
from conductor_cli.evals.significance import Interval, newcombe_interval
from conductor_cli.evals.summary import SystemResult, summarize
from conductor_cli.evals.systems import ALONE, PLANNED

BEGIN: Final = "<!-- what follows is written by the command -->"
END: Final = "<!-- what the command writes ends here -->"
RIVALS_IN_TOKENS: Final = ("moa", "vote")


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteOutcomes:
    """What became of the questions of one suite that every system has answered."""

    name: str
    outcomes: tuple[CaseOutcome, ...]

    @property
    def questions(self) -> int:
        return len({outcome.case for outcome in self.outcomes})

    def result(self, system: str) -> SystemResult:
        """Return the figures of a system."""
        return summarize(self.outcomes, [system]).systems[0]

    def right(self, system: str) -> int:
        """Return how many answers of a system are right."""
        return sum(outcome.right for outcome in self.outcomes if outcome.system == system)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """Plans minus the worker that is the best alone on the same questions."""

    questions: int
    best: str
    best_right: int
    planned_right: int
    interval: Interval

    @property
    def share(self) -> float:
        return (self.planned_right - self.best_right) / self.questions


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition of the verdict, with the figures that decide it."""

    text: str
    holds: bool


def by_suite(
    outcomes: Iterable[CaseOutcome], suites: Sequence[str], systems: Sequence[str]
) -> list[SuiteOutcomes]:
    """Return the outcomes of each suite, of the questions that every system has answered.

    The suite of a question is the beginning of its id.
    """
    judged = dict[str, dict[str, CaseOutcome]]()
    for outcome in outcomes:
        if outcome.verdict != "failed" and outcome.system in systems:
            judged.setdefault(outcome.case, {})[outcome.system] = outcome
    grouped = dict[str, list[CaseOutcome]]()
    for case, by_system in judged.items():
        if len(by_system) == len(systems):
            grouped.setdefault(case.partition("/")[0], []).extend(by_system.values())
    return [SuiteOutcomes(name=suite, outcomes=tuple(grouped.get(suite, ()))) for suite in suites]


def without_rivals(systems: Sequence[str]) -> list[str]:
    """Return the systems but the vote and the mixture, which are made last."""
    return [system for system in systems if system not in RIVALS_IN_TOKENS]


def over_all(suites: Sequence[SuiteOutcomes]) -> SuiteOutcomes:
    """Return all suites as one."""
    outcomes = list[CaseOutcome]()
    for suite in suites:
        outcomes += suite.outcomes
    return SuiteOutcomes(name="all", outcomes=tuple(outcomes))


def compare_plans(suite: SuiteOutcomes, systems: Sequence[str]) -> PairedDifference:
    """Return how plans differ from the worker that is the best alone in hindsight.

    Of equals it is the first. There is at least one question.
    """
    alone = [system for system in systems if system.startswith(f"{ALONE}:")]
    best = max(alone, key=suite.right)
    right = dict[str, dict[str, bool]]()
    for outcome in suite.outcomes:
        right.setdefault(outcome.case, {})[outcome.system] = outcome.right
    pairs = [(answers[PLANNED], answers[best]) for answers in right.values()]
    return PairedDifference(
        questions=suite.questions,
        best=best,
        best_right=suite.right(best),
        planned_right=suite.right(PLANNED),
        interval=newcombe_interval(
            pairs.count((True, True)),
            pairs.count((True, False)),
            pairs.count((False, True)),
            pairs.count((False, False)),
        ),
    )


def answer_conditions(
    suites: Sequence[SuiteOutcomes], systems: Sequence[str]
) -> Iterator[Condition]:
    """Yield the conditions on right answers. Each suite has at least one question."""
    for suite in suites:
        difference = compare_plans(suite, systems)
        text = (
            f"{suite.name}: at least the best worker alone: {difference.planned_right} and "
            f"{difference.best_right} of {difference.questions} ({difference.best})"
        )
        yield Condition(text=text, holds=difference.planned_right >= difference.best_right)
    difference = compare_plans(over_all(suites), systems)
    low, high = difference.interval
    text = (
        f"all: above the best worker alone ({difference.best}), the interval of the difference "
        f"above 0: {100 * low:+.1f} to {100 * high:+.1f} points"
    )
    yield Condition(text=text, holds=low > 0)


def token_conditions(suites: Sequence[SuiteOutcomes]) -> Iterator[Condition]:
    """Yield the conditions on tokens, over questions that the rivals have answered, too."""
    whole = over_all(suites)
    planned = whole.result(PLANNED).tokens or 0.0
    for rival in RIVALS_IN_TOKENS:
        tokens = whole.result(rival).tokens or 0.0
        text = f"all: fewer tokens than {rival}: {planned:,.0f} and {tokens:,.0f} a question"
        yield Condition(text=text, holds=planned < tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """How many questions of each suite a verdict needs.

    Workers and plans have to answer `answers` of them; the vote and the mixture, whose tokens are
    compared, `rivals`.
    """

    answers: int
    rivals: int


def verdict_lines(
    compared: Sequence[SuiteOutcomes],
    suites: Sequence[SuiteOutcomes],
    systems: Sequence[str],
    needed: Needed,
) -> Iterator[str]:
    """Yield the verdict.

    `suites` have the questions that every system has answered, `compared` those that workers and
    plans have. Where these are enough, a condition on right answers that does not hold decides: no
    answer of the vote or the mixture could change it.
    """
    fewest = min(suite.questions for suite in suites)
    most = min(suite.questions for suite in compared)
    right = list(answer_conditions(compared, systems)) if most else []
    is_open = most < needed.answers or all(condition.holds for condition in right)
    if not fewest and is_open:
        yield "**No verdict yet**: a suite has no question that every system has answered."
        return
    checked = [*right, *(token_conditions(suites) if fewest else ())]
    finding = "kept" if all(condition.holds for condition in checked) else "not kept"
    if most < needed.answers:
        yield (
            f"**No verdict yet**: {most} of the {needed.answers} questions of each suite that it "
            f"needs. On these few the bound is {finding}."
        )
    elif fewest >= needed.rivals:
        yield f"**The bound is {finding}.**"
        if needed.rivals < needed.answers:
            yield f"Tokens are compared on {over_all(suites).questions} questions."
    elif is_open:
        yield (
            f"**No verdict yet**: the vote and the mixture have answered {fewest} of the "
            f"{needed.rivals} questions of each suite that it needs. On these few the bound is "
            f"{finding}."
        )
    else:
        yield (
            f"**The bound is not kept.** At {needed.answers} questions of each suite not all "
            "conditions on right answers hold, which no answer of the vote or the mixture could "
            f"change. {_rivals_sentence(compared, suites)}"
        )
    yield ""
    yield from _condition_lines(checked)


def _rivals_sentence(compared: Sequence[SuiteOutcomes], suites: Sequence[SuiteOutcomes]) -> str:
    """Return of how many questions the conditions on tokens are, where the verdict is early."""
    answered = over_all(suites).questions
    if not min(suite.questions for suite in suites):
        return "They have not answered questions of each suite, so tokens are not compared."
    return (
        f"They have answered {answered} of the {over_all(compared).questions} questions, so the "
        "conditions on tokens are of these."
    )


def _condition_lines(checked: Iterable[Condition]) -> Iterator[str]:
    for condition in checked:
        answer = "yes" if condition.holds else "no"
        yield f"- {condition.text}: **{answer}**"


def suite_lines(suite: SuiteOutcomes, systems: Sequence[str]) -> Iterator[str]:
    """Yield the table of one suite: a row for each system."""
    yield f"### {suite.name}: {format_count(suite.questions, 'question')}"
    yield ""
    if not suite.questions:
        yield "No question has been answered by every system."
        return
    yield "| system | right | 95 % | tokens | processor seconds | calls | cut off |"
    yield "|---|---|---|---|---|---|---|"
    for name in systems:
        result = suite.result(name)
        seconds = result.total.seconds / suite.questions
        yield (
            f"| `{name}` | {result.accuracy.right} | {format_limits(result.accuracy.interval)} | "
            f"{result.tokens or 0:,.0f} | {seconds:,.1f} | {result.calls or 0:.1f} | "
            f"{result.cut_off} |"
        )


def difference_lines(suites: Sequence[SuiteOutcomes], systems: Sequence[str]) -> Iterator[str]:
    """Yield the differences of plans to the best worker alone, by suite and over all."""
    yield "| suite | best worker alone | right | plans | difference, points | 95 % of it |"
    yield "|---|---|---|---|---|---|"
    for suite in (*suites, over_all(suites)):
        if not suite.questions:
            continue
        compared = compare_plans(suite, systems)
        low, high = compared.interval
        yield (
            f"| {suite.name} | `{compared.best}` | {compared.best_right} of {compared.questions} "
            f"| {compared.planned_right} | {100 * compared.share:+.1f} | "
            f"{100 * low:+.1f} to {100 * high:+.1f} |"
        )


def plan_lines(suites: Sequence[SuiteOutcomes]) -> Iterator[str]:
    """Yield how many steps the plans had, and whom they asked."""
    yield "| suite | plans of 1 step | of several | valid at once | steps by worker |"
    yield "|---|---|---|---|---|"
    for suite in suites:
        planned = [outcome for outcome in suite.outcomes if outcome.system == PLANNED]
        workers = dict[str, int]()
        for outcome in planned:
            for step in outcome.plan:
                workers[step.worker] = workers.get(step.worker, 0) + 1
        single = sum(outcome.steps == 1 for outcome in planned)
        valid = sum(outcome.valid for outcome in planned)
        shares = ", ".join(f"{name} {count}" for name, count in sorted(workers.items()))
        yield f"| {suite.name} | {single} | {len(planned) - single} | {valid} | {shares} |"


def table_text(
    outcomes: Sequence[CaseOutcome],
    systems: Sequence[str],
    digests: Mapping[str, str],
    needed: Needed,
    notes: Sequence[str],
) -> str:
    """Return the verdict and the tables in Markdown.

    `digests` has the SHA-256 of each suite's file.
    """
    suites = by_suite(outcomes, [*digests], systems)
    cheaper = without_rivals(systems)
    compared = by_suite(outcomes, [*digests], cheaper)
    lines = ["## Verdict", "", *verdict_lines(compared, suites, systems, needed), ""]
    lines += ["## Plans and the best worker alone", "", *difference_lines(compared, cheaper), ""]
    lines += ["## The plans", "", *plan_lines(compared), ""]
    lines += ["## All systems", "", *suite_lines(over_all(suites), systems), ""]
    for suite in suites:
        lines += [*suite_lines(suite, systems), ""]
    if over_all(compared).questions > over_all(suites).questions:
        lines += ["## Without the vote and the mixture, which come last", ""]
        for suite in (over_all(compared), *compared):
            lines += [*suite_lines(suite, cheaper), ""]
    lines += ["## What was run", ""]
    failed = sum(outcome.verdict == "failed" for outcome in outcomes)
    lines += [f"- {note}" for note in (*notes, f"runs that failed and are in no figure: {failed}")]
    lines += [
        f"- the file of {name} has the SHA-256 `{digest}`" for name, digest in digests.items()
    ]
    return "\n".join(lines) + "\n"


def insert_table(page: str, table: str) -> str:
    """Return a page with the table between its two marks; the table alone where it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        return f"{BEGIN}\n\n{table}\n{END}\n"
    return f"{before}{BEGIN}\n\n{table}\n{END}{after}"
