"""The records of decisions: each has its parts, and each name between backticks is one of today."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final

import pytest

from conductor_cli.cli.command_tree import app
from conductor_cli.config.schema import SETTINGS
from conductor_cli.config.tables import WORKER_FIELDS
from conductor_cli.models.worker_options import LOCAL_OPTIONS, REMOTE_OPTIONS
from scripts.reference import commands
from scripts.reference.commands import TEXTS, Command
from tests.syntax import tree_of, walk
from tests.test_links import ROOT

FOLDER: Final = ROOT / "docs/decisions"
RECORDS: Final = sorted(FOLDER.glob("[0-9]*.md"))
PAGES: Final = [*RECORDS, ROOT / "docs/design.md"]
SOURCES: Final = ("src/conductor_cli", "training", "scripts")
SPEAKING: Final = (
    "server",
    "config",
    "core/plan.py",
    "models/presets.py",
    "models/prices.py",
    "models/catalog.py",
    "evals/systems.py",
    "views/run_text.py",
)
"""The modules whose texts are names: of headers, routes, fields, kinds, systems."""
PLACES: Final = (ROOT, ROOT / "src", ROOT / "src/conductor_cli", ROOT / "docs", ROOT / "benchmarks")
PARTS: Final = ("Context", "Decision", "What it rules out")
GONE: Final = (
    "state/repair.py",
    "core/gone/",
    "gone.md",
    "StepGone",
    "StepFailed.gone",
    "gone_function",
    "policy.no_question",
    "CONDUCTOR_LLM_GONE",
    "[gone]",
    "--cost-weight",
    "conductor pools list",
    "conductor trace repair",
    "trace repair",
    "conductor ask --cost-weight",
    "conductor doctor --rehearsal",
    "make gone",
    "pyarrow_gone",
    "x-gone-header",
    "a sentence",
)
"""Names of every form that are nowhere in the sources."""

_FENCED: Final = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_NAME: Final = re.compile(r"`([^`]+)`")
_NAME_IN_FILE: Final = re.compile(r"`([\w.]+)`\s+in\s+`([\w/]+\.py)`")
_PATH: Final = re.compile(r"[\w.*-]*/[\w./*-]*|[\w-]+\.(?:md|py|toml|lock|json|txt|yml|html|sql)")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


@cache
def trees() -> dict[Path, ast.Module]:
    """The syntax of each source file."""
    files = chain.from_iterable(sorted((ROOT / folder).rglob("*.py")) for folder in SOURCES)
    return {file: tree_of(file.read_text("utf-8")) for file in files}


@cache
def nodes() -> tuple[ast.AST, ...]:
    """All nodes of the sources."""
    return tuple(chain.from_iterable(map(walk, trees().values())))


def bound_names(node: ast.AST) -> Iterator[str]:
    """The names that a statement of a module or a class gives a meaning."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from (part.id for part in walk(target) if isinstance(part, ast.Name))


@cache
def classes() -> dict[str, set[str]]:
    """The members of each class, with those that it inherits from classes of the sources."""
    class_members: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for node in nodes():
        if not isinstance(node, ast.ClassDef):
            continue
        members = set(chain.from_iterable(map(bound_names, node.body)))
        attributes = {part.attr for part in walk(node) if isinstance(part, ast.Attribute)}
        class_members.setdefault(node.name, set()).update(members | attributes)
        bases.setdefault(node.name, set()).update(ast.unparse(base) for base in node.bases)
    for name in class_members:
        for base in bases[name] & class_members.keys():
            class_members[name] |= class_members[base]
    return class_members


@cache
def symbols() -> set[str]:
    """What the sources define, import and use as an attribute, and the words of a `Literal`."""
    names: set[str] = set()
    for file in trees():
        names.update(file.relative_to(ROOT).with_suffix("").parts)
    for node in nodes():
        if isinstance(node, ast.Module | ast.ClassDef):
            names.update(chain.from_iterable(map(bound_names, node.body)))
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            names.update(words_in(node.slice) if node.value.id == "Literal" else ())
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        if isinstance(node, ast.alias):
            names.update(node.name.split("."))
    return names


def words_in(node: ast.AST) -> Iterator[str]:
    """The texts that stand in an expression."""
    for part in walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


@cache
def spoken_words() -> set[str]:
    """Texts of code that are names: headers, routes, fields, kinds of workers, systems."""
    start = [str(ROOT / "src/conductor_cli" / name) for name in SPEAKING]
    files = [file for file in trees() if str(file).startswith(tuple(start))]
    texts = chain.from_iterable(words_in(trees()[file]) for file in files)
    words = {text.lower() for text in texts}
    presets = (ROOT / "src/conductor_cli/models/presets.toml").read_text("utf-8")
    return words | set(tomllib.loads(presets))


@cache
def packages() -> set[str]:
    """The packages that pyproject.toml names, and its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = chain(project["dependencies"], *extras.values())
    names = {re.split(r"[^\w.-]", text)[0] for text in needed} | extras.keys()
    return {name.lower().replace("-", "_") for name in names}


@cache
def command_tree() -> dict[tuple[str, ...], Command]:
    """Each command by its words."""
    return {command.words: command for command in commands.read(app, "conductor").walk()}


def options_of(command: Command) -> set[str]:
    """The options that it takes, those of the program included."""
    options = [*command.options, *command.everywhere, *command_tree()[()].options]
    return set(chain.from_iterable(option.names for option in options))


def is_command(words: list[str]) -> bool:
    """Whether the longest command that these words begin with takes what follows."""
    tree = command_tree()
    length = max(n for n in range(len(words) + 1) if tuple(words[:n]) in tree)
    command = tree[tuple(words[:length])]
    rest = words[length:]
    if not words or (command.commands and rest and not rest[0].startswith("-")):
        return False
    allowed = set(chain.from_iterable(argument.choices for argument in command.arguments))
    takes_anything = any(not argument.choices for argument in command.arguments)
    for word in rest:
        if word.startswith("-"):
            if word not in options_of(command):
                return False
        elif not takes_anything and word not in allowed:
            return False
    return True


def is_path(name: str) -> bool:
    """Whether a file or folder of this name lies where documents look for one."""
    if not _PATH.fullmatch(name):
        return False
    if any(any(document.glob(name.rstrip("/"))) for document in PLACES if not name.startswith("/")):
        return True
    return "/" not in name and any(ROOT.glob(f"src/conductor_cli/**/{name}"))


def is_setting(name: str) -> bool:
    """Whether a setting, one of its sections, a table or a variable has this name."""
    names = {setting.name for setting in SETTINGS}
    tables = {"workers", "pools", "tools", "providers", *(name.split(".")[0] for name in names)}
    section = re.fullmatch(r"\[(\w+)(?:\.[A-Z]+)?\]", name)
    variables = {setting.variable for setting in SETTINGS}
    variables |= {f"CONDUCTOR_LLM_{variable}" for variable in TEXTS["config"]["variables"]}
    fields = {*WORKER_FIELDS, *REMOTE_OPTIONS, *LOCAL_OPTIONS}
    return name in names | variables | fields or bool(section and section[1] in tables)


def is_symbol(name: str, file: Path | None = None) -> bool:
    """Whether the sources, or one file of them, define this name; `Class.member` is one, too."""
    if not _IDENTIFIER.fullmatch(name):
        return False
    first, *rest = name.split(".")
    if file is not None:
        statements = trees()[file].body if file in trees() else []
        if first not in chain.from_iterable(map(bound_names, statements)):
            return False
    if rest and first in classes():
        return rest[0] in classes()[first]
    return all(part in symbols() for part in (first, *rest))


def is_target(name: str) -> bool:
    """Whether the Makefile has this target."""
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    words = name.split()
    return words[:1] == ["make"] and all(word in targets or word.isupper() for word in words[1:2])


def exists(name: str) -> bool:
    """Whether a name between backticks names something that is there."""
    if name.startswith("make "):
        return is_target(name)
    if name.startswith("conductor "):
        return is_command(shlex.split(name)[1:])
    if name.startswith("-"):
        option = re.split(r"[ =]", name)[0]
        return any(option in options_of(command) for command in command_tree().values())
    if setting := re.fullmatch(r"([\w.]+) = .*", name):
        return is_setting(setting[1])
    if " " in name:
        return is_command(shlex.split(name))
    return (
        is_path(name)
        or is_setting(name)
        or is_symbol(name)
        or (name,) in command_tree()
        or name.lower().replace("-", "_") in packages()
        or name.lower() in spoken_words()
    )


def names_of(page: Path) -> list[str]:
    """What stands between backticks in a page, outside of blocks of code.

    The design quotes prompts, too: what has a space there and is no command is a text.
    """
    quoted = _NAME.findall(_FENCED.sub("", page.read_text("utf-8")))
    names = [" ".join(name.split()) for name in quoted]
    programs = ("conductor ", "make ")
    if page not in RECORDS:
        names = [name for name in names if " " not in name or name.startswith(programs)]
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_name_between_backticks_exists(page: Path) -> None:
    """A module, file, symbol, setting, option, command, target, package or header of today."""
    assert [name for name in names_of(page) if not exists(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_symbol_is_in_the_file_that_a_page_names(page: Path) -> None:
    """Where a page says that a name is in a file, that file defines it."""
    package = ROOT / "src/conductor_cli"
    named = _NAME_IN_FILE.findall(page.read_text("utf-8"))
    wrong = [(name, file) for name, file in named if not is_symbol(name, package / file)]
    assert wrong == []


@pytest.mark.parametrize("name", GONE)
def test_a_name_that_is_gone_is_found(name: str) -> None:
    """Whatever form it has; each of these was there once, or could have been."""
    assert not exists(name)


def test_a_symbol_of_another_file_is_found() -> None:
    """A name that moved is no longer in the file that had it."""
    package = ROOT / "src/conductor_cli"
    assert is_symbol("StepFailed", package / "core/events.py")
    assert not is_symbol("StepFailed", package / "core/trace.py")


@pytest.mark.parametrize("page", RECORDS, ids=lambda page: page.stem)
def test_a_record_has_its_parts(page: Path) -> None:
    """A number in its title, a status, a date, what replaces it, and the three parts."""
    text = page.read_text("utf-8")
    assert text.startswith(f"# {int(page.name[:4])}. ")
    status = re.search(r"^- Status: (accepted|superseded)$", text, re.MULTILINE)
    assert status
    assert re.search(r"^- Date: \d{4}-\d\d-\d\d", text, re.MULTILINE)
    link = r"\[\d{4}\]\(\d{4}-[\w-]+\.md\)"
    successor = re.search(rf"^- Superseded by: (none|{link})$", text, re.MULTILINE)
    assert successor
    assert (successor[1] == "none") == (status[1] == "accepted")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == list(PARTS)


def test_the_index_has_every_record() -> None:
    """The rows of the index are the files, numbered without a gap, with their titles."""
    index = (FOLDER / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| \[(\d{4})\]\(([\w-]+\.md)\) \| (.*?) \|", index, re.MULTILINE)
    titles = [page.read_text("utf-8").splitlines()[0].split(". ", 1)[1] for page in RECORDS]
    assert [file for _, file, _ in rows] == [page.name for page in RECORDS]
    assert [title for _, _, title in rows] == titles
    assert [int(number) for number, _, _ in rows] == list(range(1, len(RECORDS) + 1))
