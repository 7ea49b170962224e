"""Write the canned runs and the snapshots that the tests of views compare with: `python -m scripts.snap`."""

from __future__ import annotations

from tests.traces import make
from tests.views import snapshots


def main() -> None:
    """Write the files that differ, and print their names."""
    make.write()
    changed = snapshots.write()
    print("\n".join(changed) or "nothing changed")


if __name__ == "__main__":
    main()
