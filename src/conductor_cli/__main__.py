"""`python -m conductor_cli` and the two installed commands."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. `--version` alone is answered before anything is loaded."""
    if sys.argv[1:] == ["--version"]:
        from conductor_cli import __version__

        print(f"conductor {__version__}")  # noqa: T201 - the command's output
        return
    from conductor_cli.cli.start import start

    start()


if __name__ == "__main__":
    main()
