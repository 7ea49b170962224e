"""An evaluation on disk: one directory, readable after a kill at any moment, by its owner only.

spec.json        what is evaluated: cases, systems, pool, seed, versions
cases.jsonl      the cases themselves
calls.jsonl      every whole reply of every model (`models.response_cache`): nothing is asked twice, even after a kill
traces.jsonl     the events of each run, one run after the other, each beginning with `run_started`
outcomes.jsonl   a line for each case that a system has done; its `trace` says at which byte of traces.jsonl
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
from conductor_cli.models.append_log import AppendLog, read_lines
from conductor_cli.models.known_secrets import KNOWN_SECRETS
from conductor_cli.models.lock import exclusive_lock
from conductor_cli.models.response_cache import ResponseCache

SPEC: Final = "spec.json"
CASES: Final = "cases.jsonl"
CALLS: Final = "calls.jsonl"
TRACES: Final = "traces.jsonl"
OUTCOMES: Final = "outcomes.jsonl"
LOCK: Final = "lock"

_PASSING: Final = frozenset({"time", "version", "by_card", "remarks"})
"""What may differ between two parts of one evaluation."""

_CALLED: Final = {
    "digest": "cases", "count": "cases", "runs": "cases", "pool": "workers or cards", "planner": "conductor",
    "planning": "systems", "rehearsal": "workers or cards",
}  # fmt: skip
"""What a field is for a user, where that is not its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSpec:
    """What is evaluated; an evaluation goes on only with an equal one, apart from what a reader is told.

    `cases` is the set's name, `digest` its content (see `cases.digest`), `count` how many it holds. `systems` are the
    names of those that run, `planning` of those among them in which the conductor plans; `runs` is how many runs that
    makes: a system may leave a case out. `who` says which model each worker is and `planner` which one plans (see
    `kept.who_is`). `conductor` names that model, with its file hash, and `profile` how it is spoken to; all three are
    empty without one. `rehearsal`: all models are the rehearsal's.

    For the reader: `by_card` is the system of the worker that the cards called best, empty where they say nothing, and
    `remarks` what else must be known.
    """

    cases: str
    digest: str
    count: int
    systems: tuple[str, ...]
    pool: Pool
    planning: tuple[str, ...] = ()
    runs: int = 0
    seed: int = 0
    who: Mapping[str, str] = field(default_factory=dict)
    planner: str = ""
    conductor: str = ""
    profile: str = ""
    limits: Limits = Limits()
    patience: Timeouts = Timeouts()
    rehearsal: bool = False
    by_card: str = ""
    remarks: tuple[str, ...] = ()
    version: str = ""
    time: str = ""


class Evaluation:
    """One evaluation's directory."""

    def __init__(self, directory: Path) -> None:
        """An evaluation that exists. Raises `UsageError` where the directory holds none."""
        self.directory = directory
        self.spec = _read_spec(directory / SPEC)

    @classmethod
    def create(cls, directory: Path, spec: EvaluationSpec, cases: Sequence[Case]) -> Evaluation:
        """Begin one, or go on with the one that is there. Raises `UsageError` where that is of another spec."""
        spec = replace(spec, pool=spec.pool.public())
        if (directory / SPEC).exists():
            found = cls(directory)
            differs = spec_differences(found.spec, spec)
            if differs:
                raise UsageError(
                    f"{directory} holds an evaluation with other {', '.join(differs)}",
                    hint="give this one another name",
                )
            return found
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            disk.write_atomically(directory / CASES, write_cases(cases), mode=0o600)
            text = escape_json(json.dumps(dump(spec), ensure_ascii=False, indent=2))
            disk.write_atomically(directory / SPEC, f"{text}\n", mode=0o600)
        except OSError as error:
            raise UsageError(f"{directory} cannot be written: {error.strerror}", hint="name another place") from None
        return cls(directory)

    def cases(self) -> tuple[Case, ...]:
        return read_cases(self.directory / CASES)

    def outcomes(self) -> tuple[Outcome, ...]:
        """What is known so far, in the order of systems and cases, whatever order they ended in."""
        known = {(outcome.system, outcome.case): outcome for outcome in self._written()}
        cases = self._ids()
        order = [(system, case) for system in self.spec.systems for case in cases]
        return tuple(known[which] for which in order if which in known)

    def is_finished(self) -> bool:
        """Whether each run that there is to do has been judged."""
        return sum(outcome.verdict != "failed" for outcome in self.outcomes()) >= self.spec.runs > 0

    def spent(self) -> Decimal:
        """US dollars of all runs, those that failed and were done again included."""
        return sum((outcome.usage.cost or Decimal(0) for outcome in self._written()), Decimal(0))

    def events(self, outcome: Outcome) -> Iterator[ev.Event]:
        """The events of the run behind an outcome. Raises `UsageError` where they are not there whole."""
        path = self.directory / TRACES
        try:
            for text in read_lines(path, int(outcome.trace.rpartition(":")[2])):
                event = ev.from_line(text)
                yield event
                if isinstance(event, (ev.RunFinished, ev.RunFailed)):
                    return
        except (DecodeError, ValueError, OSError) as error:
            raise UsageError(f"{path}: the run of {outcome.system} on {outcome.case} is broken: {error}") from None
        raise UsageError(f"{path}: the run of {outcome.system} on {outcome.case} has no end")

    def trace(self, outcome: Outcome) -> Trace:
        """Their fold."""
        trace = Trace()
        for event in self.events(outcome):
            trace = apply_event(trace, event)
        return trace

    @contextmanager
    def desk(self) -> Iterator[ResultWriter]:
        """Write to it, one process at a time. Raises `UsageError` while another one does, or where nothing can be."""

        def busy() -> NoReturn:
            raise UsageError(f"{self.directory} is being evaluated by another process", hint="wait for it")

        with exclusive_lock(self.directory / LOCK, busy), _opened(self.directory) as desk:
            yield desk

    def _ids(self) -> list[str]:
        """The cases in order, with no look at whether they can be scored here: a scorer may need a library."""
        path = self.directory / CASES
        try:
            return [str(json.loads(text)["id"]) for text in read_lines(path)]
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise UsageError(f"{path} cannot be read: {error}", hint="begin a new evaluation") from None

    def _written(self) -> Iterator[Outcome]:
        for text in read_lines(self.directory / OUTCOMES):
            with suppress(ValueError, DecodeError, RecursionError):  # cut off by a kill
                yield load(Outcome, json.loads(text))


class ResultWriter:
    """What an evaluation is written with: the book of calls, the runs, the outcomes."""

    def __init__(self, directory: Path) -> None:
        """Raises `OSError`."""
        self.book = ResponseCache(directory / CALLS)
        self._runs = AppendLog(directory / TRACES)
        self._outcomes = AppendLog(directory / OUTCOMES)

    def run(self, events: Iterable[ev.Event]) -> str:
        """Write a run; returns where it stands. Raises `UsageError`."""
        block = "\n".join(ev.to_line(event, KNOWN_SECRETS) for event in merge_deltas(events))
        return f"{TRACES}:{_appended(self._runs, block)}"

    def outcome(self, outcome: Outcome) -> None:
        """Write an outcome; its run is written before. Raises `UsageError`."""
        _appended(self._outcomes, json.dumps(dump(outcome), ensure_ascii=False, separators=(",", ":")))

    def close(self) -> None:
        for journal in (self.book, self._runs, self._outcomes):
            journal.close()


@contextmanager
def _opened(directory: Path) -> Iterator[ResultWriter]:
    try:
        desk = ResultWriter(directory)
    except OSError as error:
        raise UsageError(f"{directory} cannot be written: {error.strerror}", hint="name another place") from None
    try:
        yield desk
    finally:
        desk.close()


def merge_deltas(events: Iterable[ev.Event]) -> Iterator[ev.Event]:
    """The same run in fewer events: the pieces that a model's text came in are put together. Its fold is the same."""
    held: dict[int, ev.StepDelta] = {}
    plan = ""
    for event in events:
        if isinstance(event, ev.StepDelta):
            before = held.get(event.step)
            held[event.step] = event if before is None else replace(
                event, text=before.text + event.text, thinking=before.thinking + event.thinking
            )  # fmt: skip
            continue
        if isinstance(event, ev.PlanDelta):
            plan += event.text
            continue
        if plan:
            yield ev.PlanDelta(at=event.at, text=plan)
            plan = ""
        yield from (replace(delta, at=event.at) for delta in held.values())
        held.clear()
        yield event


def _appended(journal: AppendLog, block: str) -> int:
    try:
        return journal.append(block)
    except OSError as error:
        raise UsageError(
            f"{journal.path} cannot be written: {error.strerror}", hint="make room, then resume the evaluation"
        ) from None


def _read_spec(path: Path) -> EvaluationSpec:
    try:
        return load(EvaluationSpec, json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"{path.parent} holds no evaluation: {error.strerror}", hint="name one that exists") from None
    except (ValueError, RecursionError, DecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="begin a new evaluation") from None


def spec_differences(one: EvaluationSpec, other: EvaluationSpec) -> tuple[str, ...]:
    """What differs, in a user's words; nothing where one evaluation can go on with the other."""
    first, second = (_as_written(spec) for spec in (one, other))
    found = [name for name in first if name not in _PASSING | {"who"} and first[name] != second[name]]
    models = [f"model of {name}" for name in first["who"] if first["who"][name] != second["who"].get(name)]
    return tuple(dict.fromkeys([*(_CALLED.get(name, name) for name in found), *([] if "pool" in found else models)]))


def _as_written(spec: EvaluationSpec) -> dict[str, Any]:
    written: dict[str, Any] = json.loads(json.dumps(dump(replace(spec, pool=spec.pool.public()))))
    return written
