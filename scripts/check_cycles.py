"""Search src/ for import cycles, and print the first one. Run by `make contracts` and by tests/test_source.py.

Every import counts: those at the top of a module, inside functions, and under `if TYPE_CHECKING:`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"


def find_cycle(source: Path = SOURCE) -> list[str]:
    """Return the names along one import cycle of the modules under `source`; nothing if there is none."""
    trees: dict[str, ast.Module] = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        trees[name] = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    graph = {name: set(_imports(tree, trees.keys())) - {name} for name, tree in trees.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def _imports(tree: ast.AST, names: Collection[str]) -> Iterator[str]:
    """Yield those of `names` that the tree imports; `from package import module` is an import of the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in inner if name in names)
            if node.module in names and not all(name in names for name in inner):
                yield node.module


if __name__ == "__main__":
    if cycle := find_cycle():
        sys.exit("import cycle: " + " -> ".join(cycle))
