"""`python -m conductor_cli` and the two installed commands."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. Ctrl-C ends it in silence, also while its modules are being imported."""
    try:
        _answer_or_start()
    except KeyboardInterrupt:
        sys.exit(130)


def _answer_or_start() -> None:
    """Answer at once what can be, and start the command for everything else.

    Importing Typer and the settings takes several times as long as starting Python. What a shell or a person waits for
    most often is therefore answered before that, and only in this function: the version, names for completion,
    `trace list` and `trace search` from the index, a replay into a pipe, and the first lines of a chat. Each of these
    answers only the plain forms of its command, and leaves every other form to the command itself.
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
    if words[1:2] == ["names"]:
        from conductor_cli.cli.completion_names import print_names

        if print_names(words):
            return
    if words[:1] == ["trace"]:
        from conductor_cli.state.run_list import print_fast_answer

        if print_fast_answer(words):
            return
    if words[:2] == ["trace", "replay"]:
        from conductor_cli.views.replay import fast_replay

        code = fast_replay(words[2:])
        if code is not None:
            sys.exit(code)

    from conductor_cli.cli.chat_banner import greet_early

    with greet_early(words) as greeted:
        from conductor_cli.cli.start import start

        start(chat=greeted)


if __name__ == "__main__":
    main()
