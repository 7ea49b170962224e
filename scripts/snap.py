"""Write the canned runs and the pictures that the tests of the views compare with: `python -m scripts.snap`."""

from __future__ import annotations

from tests.traces import make
from tests.views import snapshots


def main() -> None:
    """Write what differs and say what that was."""
    make.write()
    changed = snapshots.write()
    print("\n".join(changed) or "nothing changed")


if __name__ == "__main__":
    main()
