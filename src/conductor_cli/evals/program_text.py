"""Finds the program in a model's text, and the names in Python code, without running any of it."""

from __future__ import annotations

import ast
import builtins
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

MAX_TEXT: Final = 200_000  # Characters at the end of a text in which a program is searched
_PYTHON_NAMES: Final = {"python", "python3", "py", "py3"}
_PYTHON: Final = {"", *_PYTHON_NAMES}
_PAGES: Final = {"markdown", "md"}
_FENCE: Final = re.compile(
    r"(?P<fence>`{3,}(?!.*`)|~{3,})[ \t]*(?:\{\.?)?(?P<language>[\w+#-]*).*", re.DOTALL
)
"""The line that begins a block: `python`, `{.python}` and `python:sums.py` are one language. A line
with backticks on both sides is none.
"""
# How much deeper than its beginning the end of a block does not stand any more, as in Markdown
MAX_INDENT: Final = 4


@dataclass(frozen=True, slots=True)
class Program:
    """A program from a text, empty where there is none, and in words where in the text it was."""

    code: str
    source: str


def find_program(text: str, function: str = "") -> Program:
    """Return the program that a text gives.

    The whole text if it is one, whatever its strings hold, else its last block of Python between
    fences, else its lines that are Python below an announcement.

    LiveCodeBench takes the last block, too. Where a `function` is wanted, the last block that
    defines it counts, since a model often ends with an example of its use. A block of another
    language (`bash`, `text`) counts only if there is no other, and of a block of Markdown the
    blocks in it.
    """
    text = _with_plain_spaces(_without_end_marks(text[-MAX_TEXT:]))
    if _is_python(text):
        return Program(_without_language_line(text), "the whole answer")
    every = list(_blocks_in_pages(text))
    if not every:
        code = _code_without_fences(text)
        return Program(code, "its lines of code" if code else "no code")
    chosen = _chosen_block(every, function)
    code = every[chosen][1]
    which = "its block"
    if len(every) != 1:
        which = f"block {chosen + 1} of {len(every)}"
    if code.strip():
        return Program(code, which)
    return Program("", "no code")


def _chosen_block(every: Sequence[tuple[str, str]], function: str) -> int:
    """Return the number of the block that is the program.

    A block without a language may be what the program prints, so one that is called Python, or that
    does something, comes before it.
    """
    candidates = [number for number, (language, _) in enumerate(every) if language in _PYTHON]
    if not candidates:
        candidates = list(range(len(every)))
    if function:
        defining = [number for number in candidates if function in defined_names(every[number][1])]
        if defining:
            return defining[-1]
    named = [number for number in candidates if every[number][0]]
    working = [number for number in candidates if _does_something(every[number][1])]
    both = [number for number in named if number in working]
    return (both or working or named or candidates)[-1]


def _does_something(code: str) -> bool:
    """Return whether code has a statement that is no bare value, as all outputs are."""
    try:
        statements = parse(code).body
    except ValueError:
        return False
    for statement in statements:
        is_value = isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Call)
        if not is_value:
            return True
    return False


_END_MARKS: Final = re.compile(
    r"\[(?:BEGIN|PYTHON)\][ \t]*\n(.*?)(?:\n[ \t]*\[(?:DONE|/PYTHON)\]|\Z)", re.DOTALL
)
"""The marks around code in the prompts of MBPP's paper and of Code Llama."""


def _without_end_marks(text: str) -> str:
    """Return what stands between the marks of a base model; the whole text without them."""
    marked = _END_MARKS.search(text)
    return text if marked is None else marked[1]


_HARD_INDENT: Final = re.compile(r"^[ \t\u00a0]*\u00a0[ \t\u00a0]*", re.MULTILINE)


def _with_plain_spaces(text: str) -> str:
    """Return the text with spaces in place of the hard ones that begin a line, as pages have."""
    return _HARD_INDENT.sub(lambda indent: indent[0].replace("\u00a0", " "), text)


_CODE_BEGINS: Final = re.compile(r"[ \t]*(?:(?:async )?def |class |import |from \w|@\w)")
MAX_PARSED: Final = 1_000_000  # Characters that are read as Python to find code without fences
MAX_STARTS: Final = 8  # Lines at which it may begin
MAX_ENDS: Final = 12  # Paragraphs behind it that are left out, at most


def _code_without_fences(text: str) -> str:
    """Return the code that begins at a line of the text: `Here it is:` and `def f(): …`.

    It ends with the last paragraph with which it is Python. Empty without code. Of a very long text
    fewer beginnings and ends are tried.
    """
    lines = text.split("\n")
    starts = [number for number, line in enumerate(lines) if _CODE_BEGINS.match(line)]
    left = MAX_PARSED
    for start in starts[:MAX_STARTS]:
        depth = len(lines[start]) - len(lines[start].lstrip())
        code = list[str]()
        for line in lines[start:]:
            if line[:depth].strip():
                break
            code.append(line[depth:])
        end = len(code)
        for _ in range(MAX_ENDS + 1):
            written = "\n".join(code[:end])
            left -= len(written)
            if not end or left < 0:
                break
            wrong = _line_that_is_no_python(written)
            if wrong is None:
                return written
            end = _end_before(code, min(wrong, end), is_first=end == len(code))
    return ""


def _line_that_is_no_python(code: str) -> int | None:
    """Return the number of the line, from 1, at which code ends to be Python; None where it is."""
    try:
        return None if parse(code).body else 1
    except ValueError as error:
        cause = error.__cause__
        line = cause.lineno if isinstance(cause, SyntaxError) else None
        return line or 1


def _end_before(lines: Sequence[str], wrong: int, *, is_first: bool) -> int:
    """Return how many lines of code there may be before the one that is no Python.

    All before it, and then those of the paragraphs before it; 0 where there is none.
    """
    if is_first:
        return len("\n".join(lines[: wrong - 1]).rstrip().split("\n"))
    for end in range(wrong - 1, 0, -1):
        if not lines[end].strip():
            return end
    return 0


def _blocks_in_pages(text: str) -> Iterator[tuple[str, str]]:
    """Yield the language and the code of each block; of a block of Markdown the blocks in it.

    A small model that is asked for a block of Markdown writes one around the block of its code.
    """
    for language, code in _blocks(text):
        first = code.strip().partition("\n")[0]
        may_hold_blocks = language in _PAGES or _FENCE.fullmatch(first) is not None
        inner = list(_blocks(code)) if may_hold_blocks else []
        for name, written in inner or [(language, code)]:
            yield name, _without_language_line(written)


def _without_language_line(code: str) -> str:
    """Return code without a first line that only says `python`, as is left of a fence."""
    first, _, rest = code.lstrip("\n").partition("\n")
    return rest if first.strip().lower() in _PYTHON_NAMES else code


_OPENED_IN_LINE: Final = re.compile(r".*[^`\s][ \t]*(?=`{3}(?:python3?|py3?)$)", re.IGNORECASE)
"""The words before a fence that does not begin its line: `Here it is:```python`."""


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the language and the lines of each block between fences, of backticks or of tildes.

    The last one may have no end. A fence in a docstring, which stands deeper, ends none.
    """
    fence = ""
    language = ""
    indent = 0
    is_quoted = False
    lines = list[str]()
    for line in text.split("\n"):
        bare = line.strip()
        depth = len(line) - len(line.lstrip())
        introduction = None if fence else _OPENED_IN_LINE.match(bare)
        begin = introduction.end() if introduction is not None else 0
        opening = None if fence else _FENCE.fullmatch(bare, begin)
        if opening is not None:
            fence = opening["fence"]
            indent = depth
            language = opening["language"].lower()
            is_quoted = False
            lines = []
            continue
        is_inside = is_quoted and depth >= indent + MAX_INDENT and language in _PYTHON
        if fence and bare.startswith(fence) and not bare.strip(fence[0]) and not is_inside:
            yield language, "\n".join(lines)
            fence = ""
        elif fence and language in _PYTHON and not is_quoted and _has_end_behind(bare, fence):
            yield language, "\n".join([*lines, line[indent:].rstrip().rstrip("`")])
            fence = ""
        elif fence:  # in a list, all lines are as far to the right as the fence
            is_quoted ^= (line.count('"""') + line.count("'''")) % 2 == 1
            if not line[:indent].strip():
                line = line[indent:]  # noqa: PLW2901 - the same line
            lines.append(line)
    if fence and any(line.strip() for line in lines):
        yield language, "\n".join(lines)


def _has_end_behind(bare: str, fence: str) -> bool:
    """Return whether a line of code ends with the fence that ends its block."""
    return fence[0] == "`" and bare.endswith(fence) and "`" not in bare.removesuffix(fence)


def parse(code: str) -> ast.Module:
    """Return the syntax tree. Raises `ValueError`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"it is no Python: {error}") from error


def _is_python(text: str) -> bool:
    try:
        return bool(parse(text).body)
    except ValueError:
        return False


def defined_names(code: str) -> set[str]:
    """Return the names of the functions and classes that code defines at its top.

    The methods of a class `Solution` are among them.
    """
    try:
        tree = parse(code)
    except ValueError:
        return set()
    names = set(_definitions_in(tree.body))
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Solution":
            names.update(_definitions_in(node.body))
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def _definitions_in(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield the names of functions and classes, in order."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name


def test_methods(code: str) -> list[str]:
    """Return the names of the tests in a class `TestCases`.

    Raises `ValueError` where it is no Python.
    """
    names: set[str] = set()
    for node in parse(code).body:
        if isinstance(node, ast.ClassDef) and node.name == "TestCases":
            for method in node.body:
                if not isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    continue
                if method.name.startswith("test"):
                    names.add(method.name)
    return sorted(names)


def names_in(code: str) -> set[str]:
    """Return the names that code reads and that are not Python's own. Raises `ValueError`."""
    names = set()
    for node in ast.walk(parse(code)):
        if isinstance(node, ast.Name) and not hasattr(builtins, node.id):
            names.add(node.id)
    return names
