"""The way in: prepares the streams, runs the command, and turns every error into three lines and an exit code."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Sequence

from conductor_cli.core.errors import ConductorError

_RUN_ID = re.compile(r"last|\d{8}-\d{0,6}(-[0-9a-f]{0,6})?")


def start() -> None:
    """Run the command that `sys.argv` names and exit."""
    for stream in (sys.stdout, sys.stderr):
        # A pipe may have a narrow encoding; an answer must not die of a letter.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")
    arguments = with_run_id(sys.argv[1:])
    debug = "--debug" in arguments
    if debug:
        logging.basicConfig(level=logging.DEBUG, stream=sys.stderr, format="%(relativeCreated)7d ms %(name)s: %(message)s")
    from conductor_cli.cli import app  # noqa: PLC0415 - loads every command's wiring
    from conductor_cli.cli.output import tell  # noqa: PLC0415

    try:
        app(arguments, prog_name="conductor")
    except ConductorError as error:
        if debug:
            logging.getLogger(__name__).exception("the command failed")
        tell(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:  # the last door: a traceback is our bug, so it is told as one
        if debug:
            raise
        name = type(error).__name__
        tell(ConductorError(f"a fault of conductor itself: {name}: {error}", hint="run again with --debug and report it"))
        sys.exit(1)


def with_run_id(arguments: Sequence[str]) -> list[str]:
    """`--continue` may stand without a run; then it means the last one."""
    given = list(arguments)
    for index, word in enumerate(given):
        if word == "--":
            break
        if word in ("-c", "--continue"):
            following = given[index + 1] if index + 1 < len(given) else ""
            if not _RUN_ID.fullmatch(following):
                given.insert(index + 1, "last")
            break
    return given
