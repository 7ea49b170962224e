"""`make smollm2`: train a small pretrained model to conduct, from its file to an adapter. It can be run again.

`stages` names the stages. Each has one thread, and two of them run at once. A call of a stage takes at most
`--minutes`; it stores its state and exits with 3 if there is more to do. Each call is a line of `stages.jsonl`.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from scripts.rehearsal import report
from scripts.rehearsal.__main__ import Stopped, run_stages
from scripts.rehearsal.workspace import Workspace, print_line
from scripts.smollm2.stages import FULL, TRIAL, plan

OUT: Final = Path("build/smollm2")
TRIAL_OUT: Final = Path("build/smollm2-trial")
PORT: Final = 18135


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make smollm2", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="the directory of all files; remove it to start from nothing")
    parser.add_argument("--trial", action="store_true", help="the whole way in minutes; its figures mean nothing")
    parser.add_argument("--minutes", type=float, default=20.0, help="the longest that a call of a stage may take")
    parser.add_argument("--port", type=int, default=PORT, help="the port of the scripted workers on this machine")
    parser.add_argument("--jobs", type=int, default=2, help="stages in parallel, each with one thread")
    parser.add_argument("--once", action="store_true", help="call each stage that is ready once, then exit")
    parser.add_argument("--status", action="store_true", help="print what is done and what is missing, do nothing")
    return parser.parse_args(words)


def main() -> int:
    """Continue. Returns 0 if all is done, 1 if a stage failed, 3 if there is more to do."""
    given = parse()
    out = given.out or (TRIAL_OUT if given.trial else OUT)
    work = Workspace(out, plan(out, TRIAL if given.trial else FULL, minutes=given.minutes, port=given.port))
    if given.status:
        return report.status(work)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stopped)
    try:
        with work.locked():
            code = run_stages(work, jobs=given.jobs, once=given.once)
            report.minutes(work)
            return code
    except Stopped as stopped:
        print_line("stopped; run the same command again to resume")
        return 128 + int(stopped.args[0])


def _stopped(number: int, _frame: FrameType | None) -> NoReturn:
    raise Stopped(number)


if __name__ == "__main__":
    sys.exit(main())
