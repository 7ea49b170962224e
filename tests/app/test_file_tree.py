"""The files of a directory.

What `.gitignore` files ignore, as Git does, and that no tree or file takes long.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from conductor_cli.app import file_tree
from conductor_cli.app.file_tree import list_files
from conductor_cli.core.errors import UsageError
from tests.cli.stage import need

PIECES = (
    *"ab?-!#é][* .\t",
    "ab",
    "**",
    "***",
    "[ab]",
    "[!a]",
    "[^b]",
    "[a-c]",
    "\\a",
    "\\*",
    "\\",
    "[]a]",
    "[[:alpha:]]",
    "[[:foo:]]",
    "[a/b]",
    "[é]",
    "\\ ",
    "[c-a]",
    "[a-]",
    "[[:x]",
    "[\\]]",
    "[a\\-c]",
    "[[:digit:]-z]",
    "[--0]",
    "\\/",
)
NAMES = (*"abcé*[]\\!#z1-", "ab", "abc", "aa", "a b", "ba", "a-", "x\ty", " a", "a ")


def random_rule(chance: random.Random) -> str:
    pieces = [
        chance.choice(PIECES) if chance.random() < 0.75 else "/"
        for _ in range(chance.randint(1, 6))
    ]
    begin = chance.choice(("", "", "", "/", "!", "!/", "**/"))
    end = chance.choice(("", "", "", "/", "/**"))
    return begin + "".join(pieces) + end + chance.choice(("\n", "\n", "\r\n", "  \n"))


def grow(directory: Path, chance: random.Random, depth: int = 3) -> None:
    """Fill a directory with files and directories, some of which have rules."""
    if depth == 3 or chance.random() < 0.3:
        rules = "".join(random_rule(chance) for _ in range(chance.randint(1, 5)))
        (directory / ".gitignore").write_text(rules, encoding="utf-8", newline="")
    for name in chance.sample(NAMES, chance.randint(2, 5)):
        path = directory / name
        if depth and chance.random() < 0.5:
            path.mkdir()
            grow(path, chance, depth - 1)
        else:
            path.touch()


def make_repository(directory: Path) -> None:
    """Make what Git takes for a repository. `git init` takes as long as all the rest of a tree."""
    for name in ("objects", "refs"):
        (directory / ".git" / name).mkdir(parents=True)
    (directory / ".git" / "HEAD").write_text("ref: refs/heads/main\n")


@pytest.mark.parametrize("seed", range(5))
def test_git_ignores_the_same_files_of_random_trees(tmp_path: Path, seed: int) -> None:
    """Forty trees each, with rules that Git's documentation does not mention too."""
    git = need("git")
    chance = random.Random(seed)
    ignored = 0
    for number in range(40):
        tree = tmp_path / str(number)
        tree.mkdir()
        grow(tree, chance)
        paths = [path for path in tree.rglob("*") if path.is_file()]
        files = {path.relative_to(tree).as_posix() for path in paths if path.name != ".gitignore"}
        make_repository(tree)
        checked = subprocess.run(
            [git, "-C", tree, "check-ignore", "-z", "--stdin", "--no-index"],
            input="\0".join(files).encode(),
            capture_output=True,
            check=False,
        )
        of_git = set(checked.stdout.decode().split("\0")) - {""}
        listed = {path.relative_to(tree).as_posix() for path in list_files(tree).files}
        assert listed == files - of_git
        ignored += len(of_git)
    assert ignored > 30


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        (b"*a*a*a*a*a*b", "a" * 200),
        (b"*a" * 100 + b"*b", "a" * 200),
        (b"[a-b]*" * 100 + b"c", "a" * 200),
        (b"**/a/" * 60 + b"b", "a/" * 60 + "x"),
        (b"?*" * 100 + b"[!a]", "a" * 200),
        (b"\\", "x"),
        (b"[", "x"),
    ],
)
def test_no_rule_takes_long_or_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: bytes, path: str
) -> None:
    """Backtracking expressions of these rules take minutes to years."""
    monkeypatch.setattr(file_tree, "LIST_SECONDS", 10.0)
    (tmp_path / ".gitignore").write_bytes(rule + b"\n")
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    assert list_files(tmp_path).files == [file]


@pytest.mark.parametrize(
    ("size", "begin", "message"),
    [
        (1 << 30, b"", "more than 256 KiB"),
        (0, b"a\n" * 20_000, "more than 10,000 lines"),
        (0, b"a" * 2000, "a line"),
    ],
)
def test_rules_that_are_too_many_are_an_error_and_nothing_is_sent(
    tmp_path: Path, size: int, begin: bytes, message: str
) -> None:
    with (tmp_path / ".gitignore").open("wb") as file:
        file.write(begin)
        file.truncate(max(size, len(begin)))
    (tmp_path / "a.py").touch()
    with pytest.raises(UsageError, match=message):
        list_files(tmp_path)


@pytest.mark.parametrize("name", ["app/[id]", "app/[id]/*.tsx", "app/[[...slug]]/**/*.tsx"])
def test_a_directory_whose_name_is_like_a_pattern_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As in Next.js. What is there by this name is no pattern."""
    monkeypatch.chdir(tmp_path)
    for directory in ("app/[id]", "app/[[...slug]]", "app/d"):
        Path(directory).mkdir(parents=True)
        Path(directory, "page.tsx").touch()
    (file,) = list_files(Path(name)).files
    assert file.parent == Path(*Path(name).parts[:2])


def test_many_rule_files_count_together(tmp_path: Path) -> None:
    for number in range(20):
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / ".gitignore").write_bytes(b"a\n" * 1000)
        (directory / "b").touch()
    with pytest.raises(UsageError, match=r"all \.gitignore files"):
        list_files(tmp_path)


def test_listing_ends_in_time_and_a_deep_tree_is_no_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = str(tmp_path)
    for _ in range(1200):
        deep += "/a"
        os.mkdir(deep)  # noqa: PTH102 - `Path` is slow at this depth
    Path(deep, "x").touch()
    names = [path.name for path in list_files(tmp_path).files]
    monkeypatch.setattr(file_tree, "LIST_SECONDS", 0.0)
    with pytest.raises(UsageError, match="cannot be listed within 0 s"):
        list_files(tmp_path)
    # Python cannot remove so deep a tree
    subprocess.run([need("rm"), "-r", tmp_path / "a"], check=True)
    assert names == ["x"]


def test_what_is_in_an_ignored_directory_stays_ignored(tmp_path: Path) -> None:
    """Git takes nothing back in an ignored directory; so it is where that directory is named."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("build/\n!build/kept\n")
    (tmp_path / "build/below").mkdir(parents=True)
    (tmp_path / "build/kept").touch()
    (tmp_path / "build/below/x").touch()
    for named in (".", "build", "build/below", "build/*"):
        assert list_files(tmp_path / named).files == []


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.py", ["a.py"]),
        ("**/*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("src/*.py", ["src/b.py"]),
        ("src/**", ["src/b.py", "src/deep/c.py"]),
        ("*/*/c.py", ["src/deep/c.py"]),
        ("[!s]*", ["a.py"]),
        (".*/*", [".hidden/d.py"]),
        ("**/**/**/**/**/c.py", ["src/deep/c.py"]),
        ("src/**/deep/**/*", ["src/deep/c.py"]),
    ],
)
def test_a_pattern_names_files_by_their_path(
    tmp_path: Path, pattern: str, names: list[str]
) -> None:
    for name in ("a.py", "src/b.py", "src/deep/c.py", ".hidden/d.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert [
        path.relative_to(tmp_path).as_posix() for path in list_files(tmp_path / pattern).files
    ] == names
