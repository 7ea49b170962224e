"""`make rehearsal`: train all demo models from nothing. It can be killed and run again.

What is missing is done next, two jobs of one thread side by side: the workers and the conductor's cold start, their
table and cards, GRPO, the examination. A call of a stage takes at most 20 minutes; it keeps its state and exits with 3
while there is more to do. `made.json` records the input files of a stage: if they change, it starts over. Each
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
from scripts.rehearsal.workspace import Ended, Work, say

OUT: Final = Path("build/rehearsal")


class Stopped(Exception):
    """A signal came."""


def go(work: Work, *, jobs: int, once: bool = False) -> int:
    """Do what is missing, so many stages at once; with `once` one call of each. 1 where one failed, 3 where more is."""
    running: dict[Future[Ended], Stage] = {}
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
                    failed |= set() if well(work, future.result()) else {stage.name}
        except Stopped:
            work.stop()
            raise
    return 1 if failed else 0 if all(map(work.is_done, work.stages)) else 3


def well(work: Work, ended: Ended) -> bool:
    """Say how a call ended; whether it ended well."""
    name, minutes = ended.stage.name, f"{ended.wall / 60:.1f} min, {ended.processor / 60:.1f} of processor time"
    if ended.over and work.found(ended.stage.makes) is not None:
        say(f"{name}: done ({minutes}){', and a bound is MISSED' if ended.missed else ''}")
        return True
    if ended.goes_on:
        say(f"{name}: more to do ({minutes})")
        return True
    say(f"{name}: FAILED, exit code {ended.code} ({minutes}); run the same command again to resume")
    return False


def _stopped(number: int, _frame: FrameType | None) -> NoReturn:
    raise Stopped(number)


def asked(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make rehearsal", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT, help="where all of it lies; remove it to begin from nothing")
    seeds = "GRPO with each of these seeds, such as 1,2,3; the second is the one that ships"
    parser.add_argument("--seeds", type=_numbers, default=(2,), help=seeds)
    parser.add_argument("--minutes", type=float, default=20.0, help="the most that a call of a stage may take")
    parser.add_argument("--jobs", type=int, default=2, help="stages side by side, each with one thread")
    parser.add_argument("--steps", type=int, help="only so many steps of GRPO, to try it")
    parser.add_argument("--once", action="store_true", help="call each stage that is ready once, and end")
    parser.add_argument("--status", action="store_true", help="say what is done and what is missing, and do nothing")
    return parser.parse_args(given)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(int(number) for number in text.split(",")))


def main() -> int:
    """Go on. 0: all is trained; 1: a stage failed, or a bound is missed; 3: there is more to do."""
    given = asked()
    work = Work(given.out, plan(given.out, seeds=given.seeds, minutes=given.minutes, steps=given.steps))
    if given.status:
        return report.status(work)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stopped)
    try:
        with work.alone():
            code = go(work, jobs=given.jobs, once=given.once)
            report.minutes(work)
            return report.finished(work, given.seeds[0]) if code == 0 else code
    except Stopped as stopped:
        say("stopped; run the same command again to resume")
        return 128 + int(stopped.args[0])


if __name__ == "__main__":
    sys.exit(main())
