"""`python -m conductor_cli` and the two installed commands."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line. `python -i` goes on to Python's prompt, PYTHONINSPECT does not."""
    if sys.flags.inspect and not sys.flags.interactive:
        _run_and_end()
    _run()


def _run_and_end() -> None:
    """Run the command line and end the process, which Python does not under PYTHONINSPECT.

    It would show the end as an error, and then run what is left of standard input.
    """
    import atexit
    import os
    from contextlib import suppress

    code = 0
    try:
        _run()
    except SystemExit as ended:
        if ended.code is not None:
            code = ended.code if isinstance(ended.code, int) else 1
    with suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    atexit._run_exitfuncs()  # noqa: SLF001 - os._exit runs none, and nothing else does before it
    os._exit(code)


def _run() -> None:
    """Run the command line. Ctrl-C ends it in silence, also while its modules are imported."""
    try:
        _answer_or_start()
    except KeyboardInterrupt:
        sys.exit(130)


def _answer_or_start() -> None:
    """Answer what a shell waits for, the version and a completion, before Typer is loaded.

    Start any other command.
    """
    words = sys.argv[1:]
    if words == ["--version"] and sys.stdout is not None:
        from conductor_cli import __version__

        try:
            print(f"conductor {__version__}", flush=True)  # noqa: T201 - the command's output
        except OSError:
            pass  # the command itself reports what is wrong
        else:
            return
    if words[:1] == ["complete"] and words[1:] and words[1].startswith(":"):
        from conductor_cli.cli.completion_offers import print_offers

        print_offers(words[1][1:], words[2:])
        return

    # Looking for circles among all that is imported took a fifteenth of what a question takes
    gc.set_threshold(20_000, 20, 50)

    from conductor_cli.cli.chat_banner import greet_early

    with greet_early(words) as greeted:
        from conductor_cli.cli.entry import run_and_exit

        run_and_exit(chat=greeted)


if __name__ == "__main__":
    main()
