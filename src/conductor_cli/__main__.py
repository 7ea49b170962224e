"""`python -m conductor_cli` and the two installed commands."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. `--version` alone, names for a shell and plain looks at traces come before much loads."""
    if sys.argv[1:] == ["--version"]:
        from conductor_cli import __version__

        print(f"conductor {__version__}")  # noqa: T201 - the command's output
        return
    if sys.argv[2:3] == ["names"]:
        from conductor_cli.cli.completion_names import print_names

        if print_names(sys.argv[1:]):
            return
    if sys.argv[1:2] == ["trace"]:
        from conductor_cli.store import fast_list

        if fast_list.print_fast_answer(sys.argv[1:]):
            return
    if sys.argv[1:3] == ["trace", "replay"]:
        from conductor_cli.views.replay import fast_replay

        code = fast_replay(sys.argv[3:])
        if code is not None:
            sys.exit(code)
    from conductor_cli.cli.chat_banner import print_banner_early

    greeted = print_banner_early(sys.argv[1:])
    from conductor_cli.cli.start import start

    start(greeted=greeted)


if __name__ == "__main__":
    main()
