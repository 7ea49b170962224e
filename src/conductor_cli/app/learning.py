"""Learning from use: rating stored runs, and the cards that the ratings make.

A check that the user names: a program that reads an answer on stdin and says by its exit code
whether it is good.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from conductor_cli.app.rehearsal import is_rehearsal_run
from conductor_cli.config.cards import worker_key
from conductor_cli.config.settings import Settings
from conductor_cli.core.continuation import check_step_exists
from conductor_cli.core.errors import ConductorError, ConfigError, ModelError, UsageError
from conductor_cli.core.formatting import format_duration, format_size
from conductor_cli.core.learning import Learned, RatedBy, Rating, Verdict, learn, shares_of
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import Trace
from conductor_cli.models.command.process import environment_of, find_program
from conductor_cli.programs.guarded_program import GuardedProgram, can_run_programs
from conductor_cli.state.interfaces import StoredRatings
from conductor_cli.state.opening import open_state
from conductor_cli.system.known_secrets import KNOWN_SECRETS

LEARNED_SECONDS: Final = 60.0
"""For how long ratings are taken to weigh the same: their weight halves in weeks."""
CHECK_SECONDS: Final = 60.0  # How long a check of an answer may take
SWITCH: Final = "learning.enabled"
SETTING: Final = "learning.check"
MAX_OUTPUT: Final = 1 << 20  # Bytes that a check may write to standard output. They are not shown
MAX_REASON: Final = 200  # Characters of what a check complains about


def learning_key(worker: Worker) -> str:
    """Return what a worker is, for ratings.

    As for measured cards, without values of headers, which traces lack.
    """
    return worker_key(worker.public())[:16]


def check_learning(settings: Settings) -> None:
    """Raise `ConfigError` where learning is switched off."""
    if not settings[SWITCH]:
        hint = f"to switch it on: conductor config set {SWITCH} true"
        raise ConfigError(f"{SWITCH} is false, so nothing is rated", hint=hint)


def rate_run(
    settings: Settings, trace: Trace, verdict: Verdict, *, step: int = 0, by: RatedBy = "user"
) -> Rating:
    """Store a verdict about a run that has ended, or about one step of it, and return it.

    Raises `UsageError` for a step that does not exist or has no answer, and for a run without an
    answer; `ConfigError` where learning is switched off or the disk refuses.
    """
    check_learning(settings)
    if step:
        check_step_exists(trace, step)
        if step not in trace.done():
            hint = f"conductor trace show {trace.run} shows the run"
            raise UsageError(f"step {step} of run {trace.run} has no answer to rate", hint=hint)
    elif not trace.answer:
        hint = "there is nothing to learn from it"
        if trace.done():
            hint = "rate a step that has one: --step N"
        raise UsageError(f"run {trace.run} has no answer to rate", hint=hint)
    if is_rehearsal_run(trace):
        raise UsageError(
            f"run {trace.run} used the demo's workers, whose cards do not change",
            hint="rate another run",
        )
    shares = []
    for share in shares_of(trace, verdict, step):
        shares.append(replace(share, key=learning_key(trace.pool[share.worker])))
    rating = Rating(
        run=trace.run, step=step, verdict=verdict, by=by, time=time.time(), shares=tuple(shares)
    )
    open_state(settings.paths).ratings.add(rating)
    return rating


def read_learned(settings: Settings) -> tuple[Learned, StoredRatings]:
    """Return what the stored ratings say now, and these; nothing where learning is switched off."""
    if not settings[SWITCH]:
        return Learned(), StoredRatings()
    stored = open_state(settings.paths).ratings.read()
    return _LAST_LEARNED.from_ratings(stored), stored


class _LastLearned:
    """What was learned last: a server asks for it with each request."""

    def __init__(self) -> None:
        self._stored = StoredRatings()
        self._period = 0
        self._learned = Learned()

    def from_ratings(self, stored: StoredRatings) -> Learned:
        """Return what ratings say in this period of `LEARNED_SECONDS`."""
        period = int(time.time() // LEARNED_SECONDS)
        if stored is not self._stored or period != self._period:
            self._learned = learn(stored.ratings, period * LEARNED_SECONDS)
            self._stored = stored
            self._period = period
        return self._learned


_LAST_LEARNED: Final = _LastLearned()


def with_learned_cards(pool: Pool, learned: Learned) -> Pool:
    """Return the pool with the cards that the planner reads."""
    if not learned.shares:
        return pool
    workers = []
    for worker in pool:
        if worker.kind == SELF:
            workers.append(worker)
        else:
            workers.append(learned.apply_to(worker, learning_key(worker)))
    return Pool(workers=tuple(workers))


def check_command(settings: Settings) -> tuple[str, ...]:
    """Return the words of the check with the path of its program; none where there is no check.

    Raises `ConfigError`.
    """
    text = settings[SETTING]
    if not text.strip() or not settings[SWITCH]:
        return ()
    try:
        words = shlex.split(text)
        program = find_program(words[0], settings.environ, "", "")
    except ValueError as error:
        raise ConfigError(
            f"the check {text!r:.60} cannot be read: {error}", hint="close its quotes"
        ) from None
    except ModelError as error:
        raise ConfigError(f"the check cannot be run: {error.message}", hint=error.hint) from None
    if not can_run_programs():
        raise ConfigError(
            "checks need Linux or macOS", hint=f"conductor config set {SETTING} default"
        )
    return (program, *words[1:])


async def _run_check(
    settings: Settings, answer: str, command: Sequence[str]
) -> tuple[Verdict | None, str]:
    """Return what a check says of an answer, if it says anything, and a line for the user.

    It runs without a shell and with the few variables that every program gets.
    """
    try:
        program = await GuardedProgram.start(
            command, cwd=Path.cwd(), environ=environment_of(settings.environ, ())
        )
    except OSError as error:
        return None, f"the check could not be started: {error.strerror}"
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            program.feed(answer.encode("utf-8", "replace"))
            written = 0
            while piece := await program.read():
                written += len(piece)
                if written > MAX_OUTPUT:
                    most = format_size(MAX_OUTPUT)
                    return None, f"the check was stopped: it wrote more than {most}"
            ending = await program.ending()
    except TimeoutError:
        return None, f"the check was stopped after {format_duration(CHECK_SECONDS)}"
    finally:
        await program.end()
    lines = [line for line in program.complaint.splitlines() if line.strip()]
    why = ""
    if lines:
        why = f": {KNOWN_SECRETS.redact(one_line(lines[-1]))[:MAX_REASON]}"
    if ending.code is None:
        how = ending.problem or f"signal {ending.signal}"
        return None, f"the check did not end by itself ({how}){why}"
    if ending.code:
        return "bad", f"the check says that the answer is bad (exit code {ending.code}){why}"
    return "good", "the check says that the answer is good"


async def check_run(settings: Settings, trace: Trace, command: Sequence[str]) -> str:
    """Check the whole answer of a run and store the verdict.

    Returns a line for the user, empty where there is none. An answer that is cut off is not
    checked, and nothing is stored of the demo's workers.
    """
    if trace.state != "finished" or trace.partial or trace.error is not None or not trace.answer:
        return ""
    verdict, text = await _run_check(settings, trace.answer, command)
    if verdict is None:
        return text
    if is_rehearsal_run(trace):
        return text
    try:
        rate_run(settings, trace, verdict, by="check")
    except ConductorError as error:
        return f"{text}; the verdict was not stored: {error.message}"
    return text
