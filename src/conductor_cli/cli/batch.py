"""`conductor batch`: ask every question of a file, and write the answers to another."""

from __future__ import annotations

import asyncio
import gc
import shlex
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, closing, nullcontext, suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from conductor_cli.app import batches
from conductor_cli.app.batches.limit import (
    check_prices,
    open_budget,
    open_shared_budget,
    why_stopped,
)
from conductor_cli.app.batches.ray_nodes import NodeAsker
from conductor_cli.app.batches.shared import SharedQuestions, batch_hash, shard_count
from conductor_cli.app.batches.shared_budget import SharedBudget
from conductor_cli.app.driver import begin_run, needs_planner, perform_unseen
from conductor_cli.app.ray_jobs import check_node, models_of, ray_cluster
from conductor_cli.cli import options as opt
from conductor_cli.cli.confirmation import confirm_cost
from conductor_cli.cli.output import print_error, print_notice
from conductor_cli.cli.progress import ProgressDisplay, show_progress
from conductor_cli.cli.session import Session
from conductor_cli.cli.signals import on_signal
from conductor_cli.core.errors import ConfigError, Failure, PolicyError, UsageError
from conductor_cli.core.formatting import format_cost_cell, format_count
from conductor_cli.core.question import Question
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import Trace
from conductor_cli.evals.cost import has_no_cost
from conductor_cli.run import Orchestra, RunSpec
from conductor_cli.run.budget import Budget, CallBudget
from conductor_cli.state.opening import open_state
from conductor_cli.system.event_loop import new_event_loop

if TYPE_CHECKING:
    from conductor_cli.state.postgres.records import SharedBatch

SHOW_SECONDS: Final = 0.1  # Between two times that the progress is shown
MAX_NAMED_FIELDS: Final = 20  # Fields without effect that a line names


@opt.with_options(omit=("approve", "format", "max_cost"))
def batch_command(
    context: typer.Context,
    options: opt.RunOptions,
    questions: Annotated[
        Path, opt.argument("QUESTIONS", "A question a line, JSON Lines, or OpenAI's batch format.")
    ],
    out: Annotated[
        Path,
        opt.option("--out -o", "Where the answers go, as JSON Lines; it is continued.", "FILE"),
    ],
    parallel: opt.ParallelRuns = 64,
    ray: opt.RayCluster = None,
    order: Annotated[
        Literal["done", "input"],
        opt.option("--order", "Order of the answers at the end: as they came, or as in the input."),
    ] = "done",
    max_cost: opt.MaxCostOfAll = None,
    yes: opt.YesToCost = False,
) -> None:
    """Ask every question of a file.

    The same command continues a batch that was stopped, also by a kill.

    Questions that failed are written, with the reason, to FILE with .failed before its ending,
    which is itself an input that asks them again.
    """
    session = Session(context.obj, options)
    if session.approves:
        hint = "to run without asking: conductor config set policy.approve false"
        raise PolicyError(
            "policy.approve is on: nobody can approve the plans of a batch", hint=hint
        )
    _check_files(questions, out)
    request = _Request(
        questions=questions,
        out=out,
        parallel=parallel,
        ray=ray,
        max_cost=opt.parse_cost(max_cost),
        yes=yes,
    )
    try:
        with batches.open_batch(questions, out, session.settings.paths.state / "batches") as batch:
            code = _run_quickly(_run(session, batch, request))
            if order == "input" and not batch.retries and not batch.files.is_lost:
                batches.sort_answers(questions, out)
    # asyncio turns Ctrl-C into KeyboardInterrupt after it has cancelled the task; SIGTERM only
    # cancels it.
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except asyncio.CancelledError:
        code = 128 + signal.SIGTERM
    raise typer.Exit(code)


def _check_files(questions: Path, out: Path) -> None:
    """Raise `UsageError` where a batch cannot read or write one of these."""
    if out.exists() and questions.exists() and out.samefile(questions):
        raise UsageError(f"{out} is the input", hint="name another file with -o")
    for path, option in ((questions, "QUESTIONS"), (out, "-o")):
        if str(path) == "-" or (path.exists() and not path.is_file()):
            hint = "a batch reads both again when it goes on; for one question: conductor ask"
            raise UsageError(f"{option} {path} is not a file", hint=hint)


def _run_quickly(work: Coroutine[Any, Any, int]) -> int:
    """Run a coroutine in a process that does the same thing many times; returns its result."""
    # What is loaded stays: to look at it again costs a tenth of the time of a question
    gc.freeze()
    # Runs leave few circles: seldomer costs 20 MB and saves a twentieth
    gc.set_threshold(20_000, 20, 50)
    loop_factory = new_event_loop
    with suppress(ImportError):  # it comes with `serve`, and is quicker
        from uvloop import new_event_loop as new_quick_loop

        loop_factory = new_quick_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(work)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    questions: Path
    out: Path
    parallel: int
    ray: str | None
    max_cost: Decimal | None
    yes: bool


async def _run(session: Session, batch: batches.Batch, request: _Request) -> int:
    """Ask what is left; returns the exit code."""
    progress = batch.progress
    if progress.done:
        session.tell(
            f"continuing {request.out}: {progress.done:,} of {progress.total:,} questions are done"
        )
    if batch.ignored:
        print_notice(_ignored_line(batch.ignored))
    if progress.done < progress.total:
        async with _opened(session) as orchestra:
            if not _is_agreed(session, orchestra, progress, request):
                print_notice("nothing was asked")
                return 0
            if orchestra.daily_spend is not None:
                orchestra.daily_spend.expects_calls = True
            budget = await _open_budget(session, batch, orchestra, request)
            cluster = nullcontext() if request.ray is None else ray_cluster(request.ray)
            with closing(budget), cluster as node:
                stopped = await _ask_all(session, batch, orchestra, budget, request.parallel, node)
            failure = why_stopped(batch, budget, stopped)
            if failure is not None:
                print_error(failure)
                print_notice(_stopped_line(batch.progress))
                return failure.exit_code
    return _report(session, batch.progress, request)


@asynccontextmanager
async def _opened(session: Session) -> AsyncIterator[Orchestra]:
    """Open who answers, without a planner where one worker does."""
    only = session.options.worker_names
    planning = await needs_planner(session.job(RunSpec(question=Question(text=""))), only)
    async with session.opened(only=only, planning=planning) as orchestra:
        yield orchestra


def _ignored_line(ignored: Mapping[str, int]) -> str:
    """Return the fields without effect, those of the most questions first."""
    by_count = sorted(ignored.items(), key=lambda item: (-item[1], item[0]))
    parts = []
    for name, count in by_count[:MAX_NAMED_FIELDS]:
        parts.append(f"{one_line(name):.60} (in {format_count(count, 'question')})")
    if len(by_count) > MAX_NAMED_FIELDS:
        parts.append(f"and {len(by_count) - MAX_NAMED_FIELDS:,} more")
    return f"these fields have no effect in a batch: {', '.join(parts)}"


def _is_agreed(
    session: Session, orchestra: Orchestra, progress: batches.BatchProgress, request: _Request
) -> bool:
    """Return whether the batch may cost what it will.

    Raises `PolicyError` where a limit cannot be enforced.
    """
    if request.max_cost is not None:
        check_prices(orchestra)
        return True
    if has_no_cost(orchestra, planned=orchestra.team.model is not None):
        return True
    left = format_count(progress.total - progress.done, "question")
    lines = [
        f"nothing limits the cost of this batch, which has {left} left; --max-cost USD sets a limit"
    ]
    return confirm_cost(lines, "the batch", yes=request.yes, quiet=session.quiet)


async def _open_budget(
    session: Session, batch: batches.Batch, orchestra: Orchestra, request: _Request
) -> Budget:
    """Return what the calls are paid from: by this machine, or by all that share the batch."""
    shards: SharedBatch | None = None
    if request.ray is None:
        shards = await asyncio.to_thread(_shards, session, batch, models_of(orchestra))
    if shards is None:
        return open_budget(batch, orchestra, request.max_cost)
    return open_shared_budget(batch, orchestra, request.max_cost, shards)


async def _ask_all(
    session: Session,
    batch: batches.Batch,
    orchestra: Orchestra,
    budget: Budget,
    parallel: int,
    node: str | None,
) -> Failure | None:
    """Ask what is left, and show how far it is; returns why it stopped early.

    `node` is that of Ray, None without.
    """
    task = asyncio.current_task()
    assert task is not None
    # SIGTERM cancels the tasks as Ctrl-C does, and what is answered stays.
    with (
        show_progress(session.settings, quiet=session.quiet, unit="questions") as display,
        on_signal(signal.SIGTERM, task.cancel),
    ):
        show = _rate(display, batch.progress)
        run = partial(batches.run_batch, sink=batch.files, parallel=parallel, tell=show)
        try:
            if node is not None:
                nodes = _nodes(session, orchestra, budget, parallel, node)
                return await run(batch.questions, asker=nodes)
            ask = partial(_ask, session, orchestra, budget)
            asker = batches.ParallelAsker(ask, parallel=parallel, budget=budget)
            if not isinstance(budget, SharedBudget):
                return await run(batch.questions, asker=asker)
            done = batch.progress.done
            async with SharedQuestions(batch, budget.shards, budget, show).kept() as shared:
                if others := batch.progress.done - done:
                    session.tell(
                        f"other machines have done {format_count(others, 'question')} of this batch"
                    )
                return await run(shared, asker=asker)
        except asyncio.CancelledError:
            print_notice(_stopped_line(batch.progress))
            raise


def _shards(session: Session, batch: batches.Batch, models: str) -> SharedBatch | None:
    """Return what other machines with the same database know of this batch.

    None where it is this machine's alone.
    """
    if batch.retries or not session.stores_traces:
        return None
    state = open_state(session.settings.paths)
    key = batch_hash(batch.source.path, batch.files.answers.path, models)
    return state.batch(key, shard_count(batch.progress.total))


async def _ask(
    session: Session, orchestra: Orchestra, budget: CallBudget | None, item: batches.BatchItem
) -> batches.BatchResult:
    job = session.job(RunSpec(question=item.question(), budget=budget))
    try:
        run = begin_run(job, orchestra)
    except UsageError as error:  # too large, or of another kind than the workers read
        return batches.batch_result_of(item, Trace(error=error.failure), stores=False)
    await perform_unseen(run, job)
    return batches.batch_result_of(item, run.trace, stores=session.stores_traces)


def _nodes(
    session: Session, orchestra: Orchestra, budget: Budget, parallel: int, node: str
) -> NodeAsker:
    """Return who asks on the nodes of Ray.

    Each must have the same models and policy as this machine.
    """
    opener = partial(_open_on_node, session.common, session.options, node, models_of(orchestra))
    return NodeAsker(opener, parallel=parallel, budget=budget)


@asynccontextmanager
async def _open_on_node(
    common: opt.GlobalOptions,
    options: opt.RunOptions,
    first: str,
    models: str,
    budget: CallBudget | None,
) -> AsyncIterator[Callable[[batches.BatchItem], Awaitable[batches.BatchResult]]]:
    """Open a conductor on a node of Ray, by the settings and keys of that node."""
    session = Session(common, options)
    check_node(session.settings, first)
    async with _opened(session) as opened:
        if models_of(opened) != models:
            hint = "give each node the same config.toml"
            raise ConfigError("it has other workers, another planner or another policy", hint=hint)
        yield partial(_ask, session, opened, budget)


def _stopped_line(progress: batches.BatchProgress) -> str:
    done = f"{progress.done:,} of {progress.total:,} questions are done"
    return f"stopped: {done}; the same command continues"


def _rate(
    display: ProgressDisplay, begun: batches.BatchProgress
) -> Callable[[batches.BatchProgress], None]:
    """Return what shows how many questions are done a second, how many failed, and the cost."""
    started = time.monotonic()
    shown = started

    def show(progress: batches.BatchProgress) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown < SHOW_SECONDS and progress.done < progress.total:
            return
        shown = now
        rate = (progress.done - begun.done) / max(now - started, 0.001)
        decimals = 1 if rate < 100 else 0
        details = [f"{rate:,.{decimals}f}/s"]
        if progress.failed:
            details.append(f"{progress.failed:,} failed")
        if progress.cost:
            details.append(format_cost_cell(progress.cost, progress.unpriced))
        display.update("", progress.done, progress.total, ", ".join(details))

    return show


def _report(session: Session, progress: batches.BatchProgress, request: _Request) -> int:
    """Say what came of the batch, and how to ask the failed ones again; returns the exit code."""
    cost = ""
    if progress.cost:
        cost = f", {format_cost_cell(progress.cost, progress.unpriced)}"
    session.tell(f"{format_count(progress.answered, 'answer')} in {request.out}{cost}")
    if not progress.failed:
        return 0
    failed = batches.failed_path(request.out)
    again = _again(request, failed)
    message = f"{format_count(progress.failed, 'question')} failed; {failed} has the reasons"
    return print_error(Failure(kind="partial", message=message, hint=f"to ask them again: {again}"))


def _again(request: _Request, failed: Path) -> str:
    """Return this command with the file of failures as its input."""
    words = [str(failed) if word == str(request.questions) else word for word in sys.argv[1:]]
    if str(failed) not in words:
        return f"conductor batch {failed} -o …"
    return shlex.join(["conductor", *words])
