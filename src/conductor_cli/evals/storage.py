"""An evaluation on disk: one directory, readable by its owner only, and whole after a kill at any moment.

spec.json        what is evaluated: cases, systems, pool, seed, versions
cases.jsonl      the cases themselves
calls.jsonl      every complete reply of every model, so that no call is repeated, not even after a kill
traces.jsonl     the events of each run, one run after the other, each starting with `run_started`
outcomes.jsonl   one line for each case that a system has answered; its `trace` is a position in traces.jsonl
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NoReturn

from conductor_cli.core import events as ev
from conductor_cli.core.errors import UsageError
from conductor_cli.core.pool import Limits, Pool, Timeouts
from conductor_cli.core.sanitize import escape_json
from conductor_cli.core.serialization import DecodeError, dump, load
from conductor_cli.core.trace import Trace, apply_event
from conductor_cli.evals.cases import Case, read_cases, write_cases
from conductor_cli.evals.outcomes import Outcome
from conductor_cli.models import disk
from conductor_cli.models.disk import AppendLog, exclusive_lock, read_lines
from conductor_cli.models.known_secrets import KNOWN_SECRETS
from conductor_cli.models.response_cache import ResponseCache

SPEC: Final = "spec.json"
CASES: Final = "cases.jsonl"
CALLS: Final = "calls.jsonl"
TRACES: Final = "traces.jsonl"
OUTCOMES: Final = "outcomes.jsonl"
LOCK: Final = "lock"

_MAY_DIFFER: Final = frozenset({"time", "version", "best_by_card", "notes"})
"""Fields that may differ when an evaluation is continued."""

_USER_WORDS: Final = {
    "source": "cases", "hash": "cases", "case_count": "cases", "runs": "cases", "pool": "workers or cards",
    "rehearsal": "workers or cards", "planner_id": "conductor", "planned_systems": "systems",
}  # fmt: skip
"""What a field is called in an error message, where that is not its own name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSpec:
    """What is evaluated. An evaluation is continued only with an equal spec (see `spec_differences`).

    `source` names the set of cases, `hash` is that of its content. `systems` are the names of those that run,
    `planned_systems` of those in which the conductor plans, `runs` is how many runs that makes: a system may skip a
    case. `model_ids` says which model each worker is, and `planner_id` which one plans (see
    `response_cache.model_identity`). `conductor` names that model with its file hash, and `profile` its prompt profile;
    all three are empty without one.

    For readers: `best_by_card` is the system of the worker that the cards call best, empty if they say nothing.
    """

    source: str
    hash: str
    case_count: int
    systems: tuple[str, ...]
    pool: Pool
    planned_systems: tuple[str, ...] = ()
    runs: int = 0
    seed: int = 0
    model_ids: Mapping[str, str] = field(default_factory=dict)
    planner_id: str = ""
    conductor: str = ""
    profile: str = ""
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    rehearsal: bool = False
    best_by_card: str = ""
    notes: tuple[str, ...] = ()
    version: str = ""
    time: str = ""


class Evaluation:
    """One evaluation's directory."""

    def __init__(self, directory: Path) -> None:
        """Open an existing evaluation. Raises `UsageError` if the directory holds none."""
        path = directory / SPEC
        try:
            spec = load(EvaluationSpec, json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise UsageError(
                f"{directory} holds no evaluation: {error.strerror}", hint="conductor eval --list shows them"
            ) from None
        except (ValueError, RecursionError, DecodeError) as error:
            raise UsageError(f"cannot read {path}: {error}", hint="start a new evaluation") from None
        self.directory = directory
        self.spec = spec

    @classmethod
    def create(cls, directory: Path, spec: EvaluationSpec, cases: Sequence[Case]) -> Evaluation:
        """Create an evaluation in a new directory. Raises `UsageError`."""
        # No header of a worker is stored: it may be a key.
        spec = replace(spec, pool=spec.pool.public())
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            disk.write_atomically(directory / CASES, write_cases(cases), mode=0o600)
            # The spec comes last: a directory without one is no evaluation.
            text = escape_json(json.dumps(dump(spec), ensure_ascii=False, indent=2))
            disk.write_atomically(directory / SPEC, f"{text}\n", mode=0o600)
        except OSError as error:
            raise UsageError(f"cannot write {directory}: {error.strerror}", hint="use another directory") from None
        return cls(directory)

    @property
    def id(self) -> str:
        return self.directory.name

    def cases(self) -> tuple[Case, ...]:
        return read_cases(self.directory / CASES)

    def outcomes(self) -> tuple[Outcome, ...]:
        """All outcomes so far, in the order of systems and cases, not in the order in which they ended."""
        known = {(outcome.system, outcome.case): outcome for outcome in self._written_outcomes()}
        path = self.directory / CASES
        try:
            # Not `cases()`, which checks each case's scorer: that may need a library which is not installed here.
            ids = [str(json.loads(text)["id"]) for text in read_lines(path)]
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise UsageError(f"cannot read {path}: {error}", hint="start a new evaluation") from None
        order = [(system, case) for system in self.spec.systems for case in ids]
        return tuple(known[key] for key in order if key in known)

    def is_finished(self) -> bool:
        """Whether every run has been judged."""
        return sum(outcome.verdict != "failed" for outcome in self.outcomes()) >= self.spec.runs > 0

    def spent(self) -> Decimal:
        """US dollars of all runs, including those that failed and were repeated."""
        return sum((outcome.usage.cost or Decimal(0) for outcome in self._written_outcomes()), Decimal(0))

    def events(self, outcome: Outcome) -> Iterator[ev.Event]:
        """The events of an outcome's run. Raises `UsageError` if they are damaged or incomplete."""
        path = self.directory / TRACES
        try:
            for text in read_lines(path, int(outcome.trace.rpartition(":")[2])):
                event = ev.from_line(text)
                yield event
                if isinstance(event, (ev.RunFinished, ev.RunFailed)):
                    return
        except (DecodeError, ValueError, OSError) as error:
            raise UsageError(f"{path}: the run of {outcome.system} on {outcome.case} is damaged: {error}") from None
        raise UsageError(f"{path}: the run of {outcome.system} on {outcome.case} is incomplete")

    def trace(self, outcome: Outcome) -> Trace:
        trace = Trace()
        for event in self.events(outcome):
            trace = apply_event(trace, event)
        return trace

    @contextmanager
    def writer(self) -> Iterator[ResultWriter]:
        """Write to it. Raises `UsageError` while another process does, or if the directory cannot be written."""

        def busy() -> NoReturn:
            raise UsageError(f"{self.directory} is being evaluated by another process", hint="wait until it has ended")

        with exclusive_lock(self.directory / LOCK, busy):
            try:
                writer = ResultWriter(self.directory)
            except OSError as error:
                raise UsageError(
                    f"cannot write {self.directory}: {error.strerror}", hint="fix its permissions"
                ) from None
            try:
                yield writer
            finally:
                writer.close()

    def _written_outcomes(self) -> Iterator[Outcome]:
        for text in read_lines(self.directory / OUTCOMES):
            with suppress(ValueError, DecodeError, RecursionError):  # a line that a kill cut off
                yield load(Outcome, json.loads(text))


class ResultWriter:
    """Writes an evaluation's replies, runs and outcomes. Every method raises `UsageError` if the disk refuses."""

    def __init__(self, directory: Path) -> None:
        """Raises `OSError`."""
        self.replies = ResponseCache(directory / CALLS)
        self._runs = AppendLog(directory / TRACES)
        self._outcomes = AppendLog(directory / OUTCOMES)

    def write_run(self, events: Iterable[ev.Event]) -> str:
        """Write a run; returns its position."""
        block = "\n".join(ev.to_line(event, KNOWN_SECRETS) for event in merge_deltas(events))
        return f"{TRACES}:{self._append(self._runs, block)}"

    def write_outcome(self, outcome: Outcome) -> None:
        """Write an outcome, after its run."""
        # The outcome refers to the run, so a kill between the two leaves a run without an outcome, never the reverse.
        self._append(self._outcomes, json.dumps(dump(outcome), ensure_ascii=False, separators=(",", ":")))

    def check_replies(self) -> None:
        """Raise if a reply could not be stored: a later part would ask, and pay for, the same again."""
        if self.replies.error is not None:
            raise self._write_error(CALLS, self.replies.error)

    def close(self) -> None:
        for log in (self.replies, self._runs, self._outcomes):
            log.close()

    def _append(self, log: AppendLog, block: str) -> int:
        try:
            return log.append(block)
        except OSError as error:
            raise self._write_error(log.path.name, error) from None

    def _write_error(self, name: str, error: OSError) -> UsageError:
        path = self._runs.path.with_name(name)
        return UsageError(f"cannot write {path}: {error.strerror}", hint="free some space, then resume the evaluation")


def merge_deltas(events: Iterable[ev.Event]) -> Iterator[ev.Event]:
    """The same run in fewer events: the pieces of a model's text are joined. The resulting trace is the same."""
    steps: dict[int, ev.StepDelta] = {}
    plan = ""
    for event in events:
        if isinstance(event, ev.StepDelta):
            before = steps.get(event.step)
            steps[event.step] = event if before is None else replace(
                event, text=before.text + event.text, thinking=before.thinking + event.thinking
            )  # fmt: skip
        elif isinstance(event, ev.PlanDelta):
            plan += event.text
        else:
            if plan:
                yield ev.PlanDelta(at=event.at, text=plan)
                plan = ""
            yield from (replace(delta, at=event.at) for delta in steps.values())
            steps.clear()
            yield event


def spec_differences(first: EvaluationSpec, second: EvaluationSpec) -> tuple[str, ...]:
    """What differs, in words for the user; empty if one evaluation can be continued with the other's spec."""
    old, new = (json.loads(json.dumps(dump(replace(spec, pool=spec.pool.public())))) for spec in (first, second))
    fields = [name for name in old if name not in _MAY_DIFFER | {"model_ids"} and old[name] != new[name]]
    differences: dict[str, Any] = dict.fromkeys(_USER_WORDS.get(name, name) for name in fields)
    if "pool" not in fields:
        ids, others = old["model_ids"], new["model_ids"]
        differences |= dict.fromkeys(f"model of {name}" for name in ids if ids[name] != others.get(name))
    return tuple(differences)
