"""Check the shape of src/: print a table of lengths and report what exceeds its bound. Also run by test_shape.py.

A function's length is the number of its lines from `def` to the end, without its docstring. Every import counts for
the search for cycles: those at the top of a module, inside functions, and under `if TYPE_CHECKING:`.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
MODULE_LINES = 400
FUNCTION_LINES = 60
HOMES = 3
"""In how many modules one private helper name or class name may be defined. More cannot be searched for."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One function or method: where it stands, how long it is, and its arguments without an annotation."""

    place: str
    lines: int
    bare: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One file: its dotted name, its length, its functions, and the names of what it imports."""

    name: str
    lines: int
    functions: tuple[Function, ...]
    imports: frozenset[str]
    names: frozenset[str]
    """Its classes and its private functions, as far as they stand at the top level."""


def read(source: Path = SOURCE) -> tuple[Module, ...]:
    """Every module under `source`, by path."""
    paths = sorted(source.rglob("*.py"))
    names = {_name(path, source) for path in paths}
    return tuple(_module(path, source, names) for path in paths)


def _name(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _module(path: Path, source: Path, names: set[str]) -> Module:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text, filename=str(path))
    name = _name(path, source)
    place = path.relative_to(source).as_posix()
    definitions = [node for node in ast.walk(tree) if isinstance(node, Definition)]
    return Module(
        name=name,
        lines=text.count("\n"),
        functions=tuple(_function(node, f"{place}:{node.lineno} {node.name}") for node in definitions),
        imports=frozenset(_imports(tree, names)) - {name},
        names=frozenset(_defined(tree)),
    )


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) or (isinstance(node, Definition) and node.name.startswith("_")):
            yield node.name


def _function(node: Definition, place: str) -> Function:
    first = node.body[0]
    has_docstring = ast.get_docstring(node, clean=False) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    bare = tuple(a.arg for a in every if a and a.annotation is None and a.arg not in {"self", "cls"})
    return Function(place=place, lines=(node.end_lineno or 0) - node.lineno + 1 - docstring, bare=bare)


def _imports(tree: ast.AST, names: set[str]) -> Iterator[str]:
    """Those of `names` that the tree imports; `from package import module` is an import of the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in inner if name in names)
            if node.module in names and not all(name in names for name in inner):
                yield node.module


def cycle(modules: tuple[Module, ...]) -> list[str]:
    """The names along one import cycle, or nothing."""
    try:
        TopologicalSorter({module.name: module.imports for module in modules}).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def p90(lengths: list[int]) -> int:
    """The length that nine functions of ten do not exceed."""
    return sorted(lengths)[max(0, -(-len(lengths) * 9 // 10) - 1)]


def problems(modules: tuple[Module, ...]) -> list[str]:
    """What is out of bounds, a line each."""
    functions = [function for module in modules for function in module.functions]
    found = [f"{m.name}: {m.lines} lines, at most {MODULE_LINES}" for m in modules if m.lines > MODULE_LINES]
    found += [f"{f.place}: {f.lines} lines, at most {FUNCTION_LINES}" for f in functions if f.lines > FUNCTION_LINES]
    found += [f"{f.place}: no annotation on {', '.join(f.bare)}" for f in functions if f.bare]
    homes = Counter(name for module in modules for name in module.names)
    found += [f"{name}: defined in {n} modules, at most {HOMES}" for name, n in sorted(homes.items()) if n > HOMES]
    if loop := cycle(modules):
        found.append("import cycle: " + " -> ".join(loop))
    return found


def table(modules: tuple[Module, ...]) -> str:
    """The figures beside their bounds, and the longest of each kind."""
    functions = sorted((f for m in modules for f in m.functions), key=lambda f: f.lines, reverse=True)
    lengths = [function.lines for function in functions]
    sizes = sorted(modules, key=lambda module: module.lines, reverse=True)
    rows = [
        ("", "count", "median", "9 of 10", "longest", "which"),
        ("modules", len(sizes), _median([m.lines for m in sizes]), p90([m.lines for m in sizes]), sizes[0].lines,
         sizes[0].name),
        ("  at most", "", "", "", MODULE_LINES, ""),
        ("functions", len(lengths), _median(lengths), p90(lengths), lengths[0], functions[0].place),
        ("  at most", "", "", "", FUNCTION_LINES, ""),
    ]  # fmt: skip
    return "\n".join(f"{a:<11}{b:>6}{c:>8}{d:>9}{e:>9}  {f}".rstrip() for a, b, c, d, e, f in rows)


def _median(lengths: list[int]) -> int:
    return round(statistics.median(lengths))


def main() -> int:
    """Print the table and what is out of bounds; 1 if anything is."""
    modules = read()
    print(table(modules))
    found = problems(modules)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
