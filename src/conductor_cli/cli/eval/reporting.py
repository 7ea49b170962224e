"""What came of an evaluation: its summary as a table, as JSON and as a page; and which evaluations there are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from conductor_cli.cli.output import print_error, print_json, print_notice
from conductor_cli.core.errors import Failure, UsageError
from conductor_cli.models.known_secrets import KNOWN_SECRETS

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.evals.outcomes import Outcome
    from conductor_cli.evals.storage import Evaluation, EvaluationSpec
    from conductor_cli.evals.summary import Summary
    from conductor_cli.evals.table import Heading

ORACLE: Final = "best-routing"
"""It is told the decomposition, so it is no rival at equal cost."""


def report(
    evaluation: Evaluation, settings: Settings, *, html: Path | None = None, json: bool = False,
    outcomes: Sequence[Outcome] | None = None,
) -> None:  # fmt: skip
    """Write the table or the JSON, and the page where one is asked for."""
    from conductor_cli.cli.eval.tabling import show
    from conductor_cli.evals.table import figures

    known = evaluation.outcomes() if outcomes is None else outcomes
    summary = counted(evaluation.spec, known)
    heading = headed(evaluation)
    if html is not None:
        _write(html, _page(heading, summary, evaluation, known))
    if json:
        print_json(figures(heading, summary))
    else:
        show(heading, summary, settings["output.color"])
    if html is not None:
        print_notice(f"the report with plots is {html}")


def counted(spec: EvaluationSpec, outcomes: Sequence[Outcome]) -> Summary:
    """The summary of an evaluation."""
    from conductor_cli.evals.summary import summarize
    from conductor_cli.evals.systems import ALONE

    alone = [name for name in spec.systems if name.startswith(f"{ALONE}:")]
    fixed = [name for name in spec.systems if name not in spec.planning and name != ORACLE]
    singles = alone or [name for name in spec.systems if name == "best-worker"]
    return summarize(outcomes, systems=spec.systems, fixed=fixed, singles=singles, by_card=spec.by_card)


def headed(evaluation: Evaluation) -> Heading:
    """What was evaluated, as the table and the page say it."""
    from conductor_cli.evals.table import Heading

    spec = evaluation.spec
    return Heading(
        id=evaluation.directory.name, source=spec.cases, hash=spec.digest, cases=spec.count, seed=spec.seed,
        workers=spec.pool.names, conductor=spec.conductor, time=spec.time, remarks=spec.remarks,
    )  # fmt: skip


def rescored(evaluation: Evaluation, settings: Settings, *, scorer: str, html: Path | None, json: bool) -> None:
    """The summary again, from the stored runs."""
    from conductor_cli.evals.runner import rescore
    from conductor_cli.evals.scorers import SCORERS

    if scorer and scorer not in SCORERS:
        raise UsageError(f"no scorer is called {scorer!r}", hint=f"known: {', '.join(SCORERS)}")
    before, after = evaluation.outcomes(), rescore(evaluation, scorer=scorer)
    changed = sum(one.verdict != other.verdict for one, other in zip(before, after, strict=True))
    print_notice(
        f"{len(after):,} stored answers scored again, {changed:,} of them with another verdict; nobody was asked"
    )
    report(evaluation, settings, html=html, json=json, outcomes=after)


def ended(evaluation: Evaluation) -> int:
    """0, or 8 where not one case could be judged, told with the first reason."""
    outcomes = evaluation.outcomes()
    if any(outcome.verdict != "failed" for outcome in outcomes):
        return 0
    said = outcomes[0].error if outcomes else "nothing was asked"
    failure = Failure(
        kind="unreachable", message=f"not one case could be judged: {said}", hint="conductor workers test"
    )
    print_error(failure)
    return failure.exit_code


def _page(heading: Heading, summary: Summary, evaluation: Evaluation, outcomes: Sequence[Outcome]) -> str:
    from conductor_cli.evals.html_report import Asked, page

    asked = [Asked(id=case.id, question=case.question, wanted=case.answer) for case in evaluation.cases()]
    return page(heading, summary, asked, outcomes)


def check_file(path: Path | None) -> None:
    """That a report could be written, before anything is paid for. Raises `UsageError`."""
    if path is None:
        return
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UsageError(f"--html {path}: no file can be there", hint="name a file in a directory that exists")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(KNOWN_SECRETS.redact(text), encoding="utf-8")
    except OSError as error:
        hint = "the evaluation is kept: conductor eval --rescore last --html FILE"
        raise UsageError(f"{path} cannot be written: {error.strerror}", hint=hint) from None
