"""Search a package for import cycles, and print the first one.

Run by `make contracts` and by tests/test_source.py.

Every import counts: those at the top of a module, inside functions, and under `if TYPE_CHECKING:`.
"""

from __future__ import annotations

import sys
from graphlib import CycleError, TopologicalSorter

import grimp


def find_cycle(package: str = "conductor_cli") -> list[str]:
    """Return the names along one import cycle of the modules of a package.

    Nothing if there is none.
    """
    graph = grimp.build_graph(package, cache_dir=None)
    try:
        TopologicalSorter(
            {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
        ).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle
    return []


if __name__ == "__main__":
    if cycle := find_cycle():
        sys.exit("import cycle: " + " -> ".join(cycle))
