"""A project's file: where it is looked for, what it may narrow, and that it can do nothing else."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.config.project import NAME, apply_project_file, narrow, project_files
from conductor_cli.config.schema import SETTINGS, SETTINGS_BY_NAME
from conductor_cli.config.settings import Settings, format_value, load_settings
from conductor_cli.core.errors import ConfigError
from conductor_cli.core.policy import Policy


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the working directory two levels down."""
    directory = tmp_path / "tree"
    (directory / ".git").mkdir(parents=True)
    (directory / "a/b").mkdir(parents=True)
    monkeypatch.chdir(directory / "a/b")
    return directory


def settings(
    tmp_path: Path, text: str = "", flags: dict[str, Any] | None = None, **environ: str
) -> Settings:
    directory = tmp_path / "own"
    directory.mkdir(exist_ok=True)
    (directory / "config.toml").write_text(text)
    return load_settings({"CONDUCTOR_LLM_CONFIG_DIR": str(directory), **environ}, flags)


def test_every_file_up_to_the_top_of_the_repository_counts(tree: Path) -> None:
    """An inner file does not lift what an outer one says.

    What lies above the repository is somebody else's.
    """
    for directory in (tree.parent, tree, tree / "a/b"):
        (directory / NAME).write_text("")
    assert [source.path for source in project_files()] == [tree / NAME, tree / "a/b" / NAME]


def test_outside_a_repository_the_home_directory_is_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below it every directory counts, it does not itself.

    Elsewhere only the working directory does.
    """
    monkeypatch.setenv("HOME", str(tmp_path))
    deep = tmp_path / "x/y"
    other = tmp_path.parent / "elsewhere/z"
    for directory in (deep, other):
        directory.mkdir(parents=True, exist_ok=True)
        for file in (directory, directory.parent, tmp_path):
            (file / NAME).write_text("")
    assert [source.path.parent for source in project_files(deep)] == [deep.parent, deep]
    assert [source.path.parent for source in project_files(other)] == [other]
    assert project_files(tmp_path) == ()


def test_what_is_not_a_file_is_ignored(tree: Path) -> None:
    (tree / NAME).mkdir()
    assert project_files() == ()
    assert project_files(tree / "gone") == ()


def test_many_files_together_are_refused_as_one_large_file_is(tree: Path) -> None:
    """Directories in directories could hold any number of them."""
    (tree / NAME).write_text("#" * (16 << 10) + "#")
    with pytest.raises(ConfigError, match="is larger than 16 KiB"):
        project_files()
    for directory in (tree, tree / "a/b"):
        (directory / NAME).write_text("#" * (9 << 10))
    with pytest.raises(ConfigError, match="and those around it are larger than 16 KiB"):
        project_files()


def test_a_key_of_thousands_of_parts_is_refused(tree: Path) -> None:
    """Such a file has 16 KB, and every command took 300 MB in a directory with one."""
    (tree / NAME).write_text("a." * 8000 + "b=1")
    with pytest.raises(ConfigError, match="a key of more than 16 parts"):
        project_files()


def test_rules_add_up_and_say_where_they_come_from(tree: Path, tmp_path: Path) -> None:
    """Own file, project file and flags.

    Who is allowed has to match each, who is denied is denied by any.
    """
    (tree / NAME).write_text('[policy]\nallow = ["tag:eu"]\ndeny = ["bob"]\nlocal_only = true\n')
    flags = {"policy.allow": ["ann", "cyd"], "policy.deny": ["cyd"]}
    loaded = settings(tmp_path, '[policy]\nallow = ["provider:local"]\n', flags)
    allow = (("provider:local",), ("ann", "cyd"), ("tag:eu",))
    assert loaded.policy == Policy(allow=allow, deny=("cyd", "bob"), local_only=True)
    assert format_value(loaded["policy.allow"]) == "provider:local and ann, cyd and tag:eu"
    assert loaded.origins["policy.deny"] == f"command line; {tree / NAME}"
    assert loaded.origins["policy.local_only"] == str(tree / NAME)
    assert loaded.projects == (
        (str(tree / NAME), ("policy.allow", "policy.deny", "policy.local_only")),
    )


def test_the_lower_limit_holds_whoever_sets_it(tree: Path, tmp_path: Path) -> None:
    """Also against the command line; a limit that is higher than one's own changes nothing."""
    (tree / NAME).write_text("[limits]\nsteps = 2\ncost = 0.5\nparallel = 100\ntokens_day = 9\n")
    limits = settings(tmp_path, "[limits]\nparallel = 3\n", {"limits.cost": Decimal(2)})
    assert (limits["limits.steps"], limits["limits.cost"], limits["limits.parallel"]) == (
        2,
        Decimal("0.5"),
        3,
    )
    assert limits.projects[0][1] == ("limits.steps", "limits.cost", "limits.tokens_day")


@pytest.mark.parametrize(
    ("text", "line", "name"),
    [
        ('[workers.evil]\nkind = "openai-compatible"\nbase_url = "http://e/v1"', 1, "workers.evil"),
        ("[workers.gpt]\nenabled = true", 1, "workers.gpt"),
        ('[planner]\nmodel = "http://evil/v1#m"', 2, "planner.model"),
        ('[pools.mine]\nworkers = ["a"]', 1, "pools.mine"),
        ("[policy]\nlocal_only = false", 2, "policy.local_only = false"),
        ("[policy]\nproject = true", 2, "policy.project"),
        ("[policy]\napprove = false", 2, "policy.approve = false"),
        ('[traces]\nkeep = "never"', 2, "traces.keep"),
        ("steps = 3", 1, "steps"),
        ("[limits]\nnonsense = 3", 2, "limits.nonsense"),
        ('[keys]\nopenai = "sk-1"', 2, "keys.openai"),
    ],
)
def test_what_would_add_or_loosen_anything_is_refused_by_name(
    tree: Path, tmp_path: Path, text: str, line: int, name: str
) -> None:
    """No worker, endpoint, key, model or switch, with file, line and name.

    The exit code is that of settings.
    """
    (tree / NAME).write_text(text)
    with pytest.raises(ConfigError) as caught:
        settings(tmp_path)
    message = (
        f"{tree / NAME}, line {line}: a project file can only narrow settings, so it cannot "
        "set "
        f"{name}"
    )
    assert caught.value.message == message
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[limits]\nsteps = 0", "limits.steps is 0; expected a whole number from 1 to 5"),
        ('[policy]\ndeny = "gpt"', "policy.deny is 'gpt'; expected a list of worker names"),
        (
            '[policy]\ndeny = ["vendor:x"]',
            "policy.deny is ['vendor:x']; expected a list of worker names",
        ),
        ("[policy]\nallow = [[1]]", "policy.allow is [[1]]; expected a list of worker names"),
    ],
)
def test_invalid_values_are_reported_with_their_line(
    tree: Path, tmp_path: Path, text: str, problem: str
) -> None:
    (tree / NAME).write_text(text)
    with pytest.raises(ConfigError) as caught:
        settings(tmp_path)
    assert caught.value.message.startswith(f"{tree / NAME}, line 2: {problem}")


def test_a_user_may_leave_project_files_alone(tree: Path, tmp_path: Path) -> None:
    """By a setting of their own; then not even a broken one is read."""
    (tree / NAME).write_text("[")
    assert settings(tmp_path, CONDUCTOR_LLM_POLICY_PROJECT="no").projects == ()
    with pytest.raises(ConfigError, match="is not valid TOML"):
        settings(tmp_path)


def test_nobody_is_a_rule_too(tmp_path: Path) -> None:
    """An empty list of who is allowed allows nobody; no list forbids nothing."""
    assert settings(tmp_path, "[policy]\nfiles_only = []").policy.files_only == ((),)
    assert settings(tmp_path).policy == Policy()
    assert (
        format_value(settings(tmp_path, "[policy]\nfiles_only = []")["policy.files_only"])
        == "nobody"
    )
    assert format_value(()) == "no rule"


NARROWING = [
    item
    for item in SETTINGS
    if item.name.startswith("limits.") or item.type in ("names", "groups", "yes-no")
]
VALUES = {
    "whole": st.integers(1, 9),
    "number": st.floats(0.1, 9),
    "money": st.decimals(1, 9, places=2),
}
NAMES = st.lists(st.sampled_from(["a", "b", "tag:c"]), max_size=2).map(tuple)
VALUES |= {
    "names": NAMES,
    "groups": NAMES.map(lambda names: (names,)),
    "yes-no": st.just(value=True),
}


@given(st.data())
def test_narrowing_never_loosens(data: st.DataObject) -> None:
    """Whatever stood there and whatever is added: rules stay, limits do not rise.

    To say it twice changes nothing.
    """
    item = data.draw(st.sampled_from(NARROWING))
    old = data.draw(st.just(item.default) | VALUES[item.type])
    value = data.draw(VALUES[item.type])
    values = {item.name: old}
    origins = {item.name: "default"}
    narrow(values, origins, item, value, "project")
    after: Any = values[item.name]
    match item.type:
        case "names" | "groups":
            assert set(after) >= {*old, *value}  # type: ignore[misc]
        case "yes-no":
            assert after is True
        case _:
            assert after <= value
            assert old is None or after <= old
    assert not narrow(values, origins, item, value, "project")
    assert values[item.name] == after


def test_every_setting_is_either_narrowed_or_refused(tree: Path) -> None:
    """No setting can be set by a project file in another way.

    A new one is refused unless it is a rule or a limit.
    """
    (tree / NAME).write_text("")
    (source,) = project_files()
    for item in SETTINGS_BY_NAME.values():
        section, key = item.name.split(".")
        values = {item.name: item.default}
        origins = {item.name: "default"}
        written = type(source)(path=source.path, values={section: {key: item.default}})
        if item.name.startswith("limits.") or item.type in ("names", "groups"):
            continue
        with pytest.raises(ConfigError, match="can only narrow"):
            apply_project_file(values, origins, written)
        assert values[item.name] == item.default
