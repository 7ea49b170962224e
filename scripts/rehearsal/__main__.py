"""`make rehearsal`: train all demo models from nothing. It can be killed and run again.

Two stages of one thread run in parallel: the workers and the conductor's cold start, then their table and cards, GRPO,
and the examination. A call of a stage takes at most 20 minutes; it stores its state and exits with 3 if there is more
to do. `made.json` records the input files of a stage: if they change, it starts over. Each
call is a line of `stages.jsonl`, with its seconds by the clock and of the processor.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from scripts.rehearsal import report
from scripts.rehearsal.stages import Stage, plan
from scripts.rehearsal.workspace import StageCall, Workspace, print_line

OUT: Final = Path("build/rehearsal")


class Stopped(Exception):
    """A signal has ended the rehearsal."""


def run_stages(work: Workspace, *, jobs: int, once: bool = False) -> int:
    """Call the stages that are missing, at most `jobs` in parallel; with `once`, each of them once.

    Returns 0 if all are done, 1 if one failed, 3 if there is more to do.
    """
    running: dict[Future[StageCall], Stage] = {}
    called: set[str] = set()
    failed: set[str] = set()
    with ThreadPoolExecutor(max_workers=jobs) as threads:
        try:
            while True:
                for stage in [] if failed else work.stages:
                    waits = stage in running.values() or (once and stage.name in called)
                    if len(running) < jobs and not waits and work.is_ready(stage):
                        work.prepare(stage)
                        called.add(stage.name)
                        running[threads.submit(work.call, stage)] = stage
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    stage = running.pop(future)
                    failed |= set() if report_call(work, future.result()) else {stage.name}
        except Stopped:
            work.stop()
            raise
    return 1 if failed else 0 if all(map(work.is_done, work.stages)) else 3


def report_call(work: Workspace, call: StageCall) -> bool:
    """Print how a call ended. Returns whether it succeeded."""
    name, minutes = call.stage.name, f"{call.wall / 60:.1f} min, {call.processor / 60:.1f} of processor time"
    if call.done and work.found(call.stage.makes) is not None:
        print_line(f"{name}: done ({minutes}){', and a bound is MISSED' if call.missed else ''}")
        return True
    if call.unfinished:
        print_line(f"{name}: more to do ({minutes})")
        return True
    print_line(f"{name}: FAILED, exit code {call.code} ({minutes}); run the same command again to resume")
    return False


def _stopped(number: int, _frame: FrameType | None) -> NoReturn:
    raise Stopped(number)


def parse_options(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make rehearsal", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=OUT, help="the directory of all files; remove it to start from nothing"
    )
    seeds = "GRPO with each of these seeds, such as 1,2,3; the second is the one that ships"
    parser.add_argument("--seeds", type=_numbers, default=(2,), help=seeds)
    parser.add_argument("--minutes", type=float, default=20.0, help="the longest that a call of a stage may take")
    parser.add_argument("--jobs", type=int, default=2, help="stages in parallel, each with one thread")
    parser.add_argument("--steps", type=int, help="number of steps of GRPO, for a trial")
    parser.add_argument("--once", action="store_true", help="call each stage that is ready once, then exit")
    parser.add_argument("--status", action="store_true", help="print what is done and what is missing, and do nothing")
    return parser.parse_args(given)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(int(number) for number in text.split(",")))


def main() -> int:
    """Continue. Returns 0 if all is trained, 1 if a stage failed or a bound is missed, 3 if there is more to do."""
    given = parse_options()
    work = Workspace(given.out, plan(given.out, seeds=given.seeds, minutes=given.minutes, steps=given.steps))
    if given.status:
        return report.status(work)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stopped)
    try:
        with work.locked():
            code = run_stages(work, jobs=given.jobs, once=given.once)
            report.minutes(work)
            return report.finished(work, given.seeds[0]) if code == 0 else code
    except Stopped as stopped:
        print_line("stopped; run the same command again to resume")
        return 128 + int(stopped.args[0])


if __name__ == "__main__":
    sys.exit(main())
