"""Pools in the files: what they become, what is refused with file and line, and whom they offer."""

from __future__ import annotations

from pathlib import Path

import pytest

from conductor_cli.config.files import AppPaths, own_section, read_toml
from conductor_cli.config.tables import (
    ConfiguredWorker,
    NamedPool,
    find_pool,
    pool_members,
    pools_of,
    update_pool,
    update_table,
    workers_of,
)
from conductor_cli.core.errors import ConfigError, UsageError

ABC = "".join(f'[workers.{name}]\nkind = "openai"\n' for name in "abc")


def pools(folder: Path, text: str, own: str = "") -> tuple[NamedPool, ...]:
    (folder / "settings.toml").write_text(own)
    (folder / "config.toml").write_text(text)
    return pools_of([read_toml(folder / "settings.toml"), read_toml(folder / "config.toml")])


def workers(folder: Path, text: str = ABC) -> tuple[ConfiguredWorker, ...]:
    (folder / "w.toml").write_text(text)
    return workers_of([read_toml(folder / "w.toml")])


def where(folder: Path) -> AppPaths:
    return AppPaths(config=folder, state=folder, data=folder, cache=folder)


def test_a_table_becomes_a_pool(tmp_path: Path) -> None:
    """Its workers are offered in the order of the pool, not of the file."""
    (pool,) = pools(tmp_path, '[pools."my.pool"]\nworkers = ["c", "a"]\nabout = "for sums"\n')
    assert (pool.name, pool.about) == ("my.pool", "for sums")
    assert pool.where == f"{tmp_path / 'config.toml'}, line 2"
    assert [item.worker.name for item in pool_members(pool, workers(tmp_path))] == ["c", "a"]


def test_a_later_file_wins_key_by_key(tmp_path: Path) -> None:
    """The user's file says who is in a pool of the tool's; what it leaves open stays."""
    own = '[pools.x]\nworkers = ["a"]\nabout = "old"\n[pools.y]\nworkers = ["b"]\n'
    found = {pool.name: pool for pool in pools(tmp_path, '[pools.x]\nworkers = ["c"]\n[pools.y]\nabout = "new"', own)}
    assert (found["x"].workers, found["x"].about) == (("c",), "old")
    assert (found["y"].workers, found["y"].about) == (("b",), "new")
    assert (found["x"].source, found["y"].source) == (str(tmp_path / "config.toml"), str(tmp_path / "settings.toml"))


WRONG = {
    "pools = 3": "line 1: pools must be tables",
    "[pools]\nx = 3": "line 2: 'x' must be a table [pools.x]",
    "[pools.x]": "line 1: pool 'x' needs the names of its workers",
    "[pools.x]\nworkers = []": "line 2: pool 'x' needs the names of its workers",
    "[pools.x]\nworkers = 'a'": "line 2: workers: expected a list, found text ('a')",
    "[pools.x]\nworkers = [1]": "line 2: workers[0]: expected text, found a number (1)",
    "[pools.x]\nworkers = ['a', 'a']": "line 2: pool 'x' needs the names of its workers, each once",
    "[pools.x]\nworkers = ['a']\nmodels = 1": "line 3: pools has no key 'models'",
    "[pools.x]\nabout = 1\nworkers = ['a']": "line 2: about: expected text, found a number (1)",
    "[pools.'a b']\nworkers = ['a']": "line 1: 'a b' is not a valid name for pools",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_entry_is_named(tmp_path: Path, text: str) -> None:
    """File, line and what was expected."""
    with pytest.raises(ConfigError) as caught:
        pools(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'config.toml'}, {WRONG[text]}"), caught.value


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[workers.a]\nmodel = 'x'\nmodel = 'y'\n", 3),
        ("[pools.x]\nworkers = ['a']\n\n[pools.x]\nworkers = ['b']", 4),
        ("[workers.a]\nkind = 'openai'\n[workers.'a']\nkind = 'gemini'", 3),
    ],
)
def test_a_name_or_key_that_is_given_twice_is_reported_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    """A table or a key that appears twice in one file is invalid TOML."""
    with pytest.raises(ConfigError, match=rf"config.toml is not valid TOML: .*line {line}"):
        pools(tmp_path, text)


def test_an_unknown_pool_is_reported_with_the_known_ones(tmp_path: Path) -> None:
    """The error names the pools, or how to make one."""
    found = pools(tmp_path, "[pools.x]\nworkers = ['a']")
    assert find_pool(found, "x").workers == ("a",)
    with pytest.raises(UsageError, match="no pool is named 'z'") as caught:
        find_pool(found, "z")
    assert caught.value.hint == "known: x"
    with pytest.raises(UsageError) as caught:
        find_pool((), "z")
    assert "conductor pools add" in caught.value.hint


def test_a_pool_with_an_unknown_worker_is_reported_when_it_is_used(tmp_path: Path) -> None:
    """File, line, the name, and the workers that there are."""
    (pool,) = pools(tmp_path, "[pools.x]\nworkers = ['a', 'zeta']")
    with pytest.raises(ConfigError, match=r"config.toml, line 2: pool 'x' names 'zeta'") as caught:
        pool_members(pool, workers(tmp_path))
    assert caught.value.hint == "known: a, b, c"


def test_a_pool_is_checked_before_it_is_written(tmp_path: Path) -> None:
    """What could not be read again is refused, and nothing is written."""
    with pytest.raises(ConfigError, match="needs the names"):
        update_pool(where(tmp_path), "x", {"workers": []})
    assert not (tmp_path / "settings.toml").exists()
    update_pool(where(tmp_path), "x", {"workers": ["a"]})
    assert own_section(where(tmp_path), "pools") == {"x": {"workers": ["a"]}}
    update_table(where(tmp_path), "pools", "x", None)
    assert own_section(where(tmp_path), "pools") == {}
