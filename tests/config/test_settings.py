"""Settings.

Which source wins, and that what cannot be used is told with file, line and what was expected.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.config.files import Source, read_toml, set_value
from conductor_cli.config.schema import DROPPED, RENAMED, SETTINGS, find_setting, variable_of
from conductor_cli.config.settings import app_paths, format_value, load_settings
from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.core.pool import Limits, Timeouts


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """An environment whose settings are in a directory of its own."""
    return {"CONDUCTOR_LLM_CONFIG_DIR": str(tmp_path)}


def write(files: dict[str, str], text: str, name: str = "config.toml") -> Path:
    path = Path(files["CONDUCTOR_LLM_CONFIG_DIR"]) / name
    path.write_text(text)
    return path


def test_without_files_the_defaults_hold(files: dict[str, str]) -> None:
    settings = load_settings(files)
    assert settings.limits == Limits()
    assert settings.timeouts == Timeouts()
    assert set(settings.origins.values()) == {"default"}


def test_later_sources_win_over_earlier_ones(files: dict[str, str]) -> None:
    write(files, "[limits]\nsteps = 1\nparallel = 1\nattempts = 1\nreview = 1\n", "settings.toml")
    write(files, "[limits]\nparallel = 2\nattempts = 2\nreview = 2\n")
    environ = files | {f"CONDUCTOR_LLM_LIMITS_{name}": "3" for name in ("ATTEMPTS", "RECURSION")}
    environ["CONDUCTOR_LLM_LIMITS_STEPS"] = ""  # says nothing
    limits = load_settings(environ, {"limits.review": 4, "limits.seconds": None}).limits
    assert (limits.steps, limits.parallel, limits.attempts, limits.recursion, limits.seconds) == (
        1,
        2,
        3,
        4,
        None,
    )


def test_a_named_file_replaces_the_users(files: dict[str, str], tmp_path: Path) -> None:
    write(files, "[limits]\nsteps = 1\n")
    other = tmp_path / "other.toml"
    other.write_text("[limits]\nparallel = 2\n")
    for settings in (
        load_settings(files, file=str(other)),
        load_settings(files | {"CONDUCTOR_LLM_CONFIG": str(other)}),
    ):
        assert (settings.limits.steps, settings.limits.parallel) == (None, 2)
    with pytest.raises(ConfigError, match=r"gone.toml does not exist"):
        load_settings(files, file=str(tmp_path / "gone.toml"))


def test_ultra_adds_a_review_unless_set_otherwise(files: dict[str, str]) -> None:
    """The mode's review is a default: a recursion that somebody set is kept."""
    ultra = {"conductor.mode": "ultra"}
    assert load_settings(files, ultra).limits.recursion == 1
    assert load_settings(files, ultra | {"limits.review": 0}).limits.recursion == 0


WRONG_SETTINGS = {
    "[limits]\n\nsteps = 9": "line 3: limits.steps is 9; expected a whole number from 1 to 5",
    "[limits]\nsteps = true": "line 2: limits.steps is True; expected a whole number from 1 to 5",
    "[limits]\nseconds = -1": "line 2: limits.seconds is -1; expected a number above 0",
    "[limits]\ncost = nan": "line 2: limits.cost is nan; expected US dollars, as a number above 0",
    "[limits]\ncost_day = 0": (
        "line 2: limits.cost_day is 0; expected US dollars, as a number above 0"
    ),
    "[limits]\ntokens_day = nan": (
        "line 2: limits.tokens_day is nan; expected a whole number of at least 1"
    ),
    "[limits]\ncalls_day = 'much'": "line 2: limits.calls_day is 'much'; expected a whole number",
    "[limits]\ncost = 'sNaN'": "line 2: limits.cost is 'sNaN'; expected US dollars",
    "[timeouts]\nfirst_token = inf": (
        "line 2: timeouts.first_token is inf; expected a number above 0"
    ),
    f"[timeouts]\nidle = {10**400}": "line 2: timeouts.idle is 1000",
    "[conductor]\nmode = 'turbo'": (
        "line 2: conductor.mode is 'turbo'; expected one of mini, auto, ultra"
    ),
    "[planner]\ngpu_layers = 12": (
        "line 2: planner.gpu_layers is 12; expected auto, all or a number"
    ),
    "[limits]\nweight = 1": "line 2: [limits] has no key 'weight'",
    "[limit]\nsteps = 1": "line 1: unknown section 'limit'",
    "steps = 1": "line 1: unknown section 'steps'",
    "limits.steps = 9": "line 1: limits.steps is 9",
    "#\nlimits = { parallel = 1, steps = 9 }": "line 2: limits.steps is 9",
    "[ 'limits' ]\n\"steps\" = 9": "line 2: limits.steps is 9",
    "x = [[[": "is not valid TOML",
    "[limits]\nsteps = 1\nsteps = 2": "is not valid TOML",
    "workers = 1": "line 1: workers must be tables",
    "[workers]\nalpha = 1": "line 2: 'alpha' must be a table",
}


@pytest.mark.parametrize("text", WRONG_SETTINGS)
def test_a_wrong_line_is_named(files: dict[str, str], text: str) -> None:
    path = write(files, text)
    with pytest.raises(ConfigError) as caught:
        load_settings(files)
    assert str(caught.value).startswith(str(path))
    assert WRONG_SETTINGS[text] in str(caught.value)


def test_bytes_that_are_not_text_are_reported_with_their_line(files: dict[str, str]) -> None:
    path = write(files, "")
    path.write_bytes(b"[limits]\n# \xe9t\xe9\nsteps = 1\n")
    with pytest.raises(ConfigError, match=r"config.toml, line 2: not UTF-8") as caught:
        load_settings(files)
    assert f"iconv -f CP1252 -t UTF-8 {path} > " in caught.value.hint
    for encoding in ("utf-16", "utf-16-le"):
        path.write_text("[limits]\nsteps = 1\n", encoding)
        with pytest.raises(ConfigError, match="not UTF-8 text; it may be UTF-16"):
            load_settings(files)
    path.write_bytes(b"\xef\xbb\xbf[limits]\r\nsteps = 1\r\n")
    assert load_settings(files).limits.steps == 1


@pytest.mark.parametrize(("name", "value"), [("LIMITS_STEPS", "9"), ("LIMITS_COST", "x")])
def test_a_wrong_variable_is_named(files: dict[str, str], name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"CONDUCTOR_LLM_{name}: .* is '?{value}'?; expected"):
        load_settings(files | {f"CONDUCTOR_LLM_{name}": value})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("limits.steps", "3", 3),
        ("limits.seconds", "1.5", 1.5),
        ("limits.cost", "0.10", Decimal("0.10")),
        ("output.markdown", "OFF", False),
        ("output.markdown", "yes", True),
        ("planner.gpu_layers", "12", "12"),
        ("planner.model", "a b", "a b"),
    ],
)
def test_text_is_read_by_the_settings_type(name: str, text: str, value: Any) -> None:
    assert find_setting(name).parse(text) == value


@given(st.sampled_from(SETTINGS), st.text(max_size=12))
def test_any_text_is_a_value_or_an_error(item: Any, text: str) -> None:
    try:
        value = item.parse(text)
    except ConfigError as error:
        message = error.message
    else:
        message = f"{item.name}; expected {item.expected}"
        assert item.check(value) == value
    assert item.name in message
    assert item.expected in message


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(st.sampled_from(SETTINGS), anything)
def test_any_value_is_kept_or_an_error(item: Any, value: Any) -> None:
    try:
        kept = item.check(value)
    except ConfigError:
        return
    assert item.check(kept) == kept


def test_every_default_is_a_value_of_its_setting() -> None:
    for item in SETTINGS:
        assert item.default is None or item.check(item.default) == item.default


def test_a_value_is_shown_as_it_is_written() -> None:
    assert [format_value(value) for value in (None, True, False, Decimal("0.10"), 3, "x")] == [
        "none",
        "true",
        "false",
        "0.10",
        "3",
        "x",
    ]


def test_directories_follow_the_environment(tmp_path: Path) -> None:
    """Our own variables win over the system's custom; each place stands for itself."""
    where = app_paths(
        {
            "CONDUCTOR_LLM_STATE_DIR": str(tmp_path / "s"),
            "CONDUCTOR_LLM_CONFIG_DIR": str(tmp_path / "c"),
        }
    )
    assert (where.traces, where.own_file) == (tmp_path / "s/traces", tmp_path / "c/settings.toml")
    assert where.cache.name == "conductor-llm"


def test_a_directory_of_a_variable_may_begin_with_the_home_directory(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Files of variables have no shell that replaces the sign for it."""
    monkeypatch.chdir(tmp_path)
    names = ("CONFIG", "STATE", "DATA", "CACHE")
    paths = app_paths({f"CONDUCTOR_LLM_{name}_DIR": f"~/{name}" for name in names})
    assert (paths.config, paths.state, paths.data, paths.cache) == tuple(
        home / name for name in names
    )


def test_an_unreadable_file_is_an_error(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hold limits and a policy, so it is not passed over.

    The hint names the variable for another directory.
    """
    (tmp_path / "config.toml").mkdir()
    with pytest.raises(ConfigError, match=r"config.toml cannot be read"):
        load_settings(files)

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("conductor_cli.config.files.open_finite", refuse)
    with pytest.raises(
        ConfigError, match=r"config\.toml cannot be read: Permission denied"
    ) as caught:
        load_settings(files)
    assert caught.value.hint.endswith("CONDUCTOR_LLM_CONFIG_DIR=DIR")


def test_a_mistyped_variable_is_an_error(files: dict[str, str]) -> None:
    """Ignored, it would protect nothing and say nothing.

    An empty one, and other variables of ours, are no settings.
    """
    name = "CONDUCTOR_LLM_POLICY_LOCALONLY"
    with pytest.raises(ConfigError, match=f"the variable {name} is no setting") as error:
        load_settings(files | {name: "1"})
    assert error.value.hint == "did you mean CONDUCTOR_LLM_POLICY_LOCAL_ONLY?"
    load_settings(
        files
        | {
            name: "",
            "CONDUCTOR_LLM_REGISTRY": "x",
            "CONDUCTOR_LLM_CONFIG": "",
            "CONDUCTOR_MODE": "x",
        }
    )


@pytest.mark.timeout(60)  # work that grows with the square takes longer
@pytest.mark.parametrize("begin", ["", "[", "a"])
def test_the_line_of_a_setting_is_found_at_once(begin: str) -> None:
    source = Source(
        path=Path("conductor.toml"),
        values={},
        text=f"{begin}{' ' * 200_000}\n[ limits ]\n cost = 1\n",
    )
    assert source.where("limits", "cost") == "conductor.toml, line 3"


EXAMPLES = {  # Values of settings that were renamed, as a variable has them
    "planner.model": "x",
    "planner.profile": "brief",
    "planner.adapter": "x",
    "planner.gpu_layers": "all",
    "planner.context": "1024",
    "planner.revise": "false",
} | dict.fromkeys(("timeouts.first_token", "timeouts.idle", "timeouts.total"), "7.5")
TOML = {name: f'"{text}"' for name, text in EXAMPLES.items() if text in {"x", "brief", "all"}}


def test_the_present_name_of_a_setting_wins_over_the_earlier_one(files: dict[str, str]) -> None:
    """Whichever stands last in the file: the order of sections says nothing."""
    earlier = "[patience]\nfirst = 5"
    present = "[timeouts]\nfirst_token = 7"
    for text in (f"{earlier}\n{present}", f"{present}\n{earlier}"):
        write(files, text)
        settings = load_settings(files)
        assert settings.timeouts.first_token == 7
        [notice] = settings.notices
        assert "patience.first is ignored, because timeouts.first_token" in notice


@pytest.mark.parametrize(("earlier", "present"), [*RENAMED.items()])
def test_an_earlier_name_of_a_setting_works_on_and_is_said_once(
    files: dict[str, str], earlier: str, present: str
) -> None:
    """In the user's file, in the environment, and where a program gives it."""
    text = EXAMPLES.get(present, "7")
    section, _, key = earlier.partition(".")
    write(files, f"[{section}]\n{key} = {TOML.get(present, text)}")
    [notice] = load_settings(files).notices
    assert notice.endswith(f"line 2: {earlier} is called {present} now; the earlier name works on")
    value = load_settings(files)[present]
    assert str(value).lower() == text
    write(files, "")
    variables = {variable_of(earlier): text}
    [notice] = load_settings(files | variables).notices
    assert notice.startswith(f"{variable_of(earlier)} is called {variable_of(present)} now")
    assert load_settings(files | variables)[present] == value
    variables[variable_of(present)] = EXAMPLES.get(present, "8")
    [notice] = load_settings(files | variables).notices
    assert "is ignored, because" in notice
    settings = load_settings(files, {earlier: value})
    assert (settings[present], settings.given) == (value, {present: value})
    assert len(settings.notices) == 1


def test_the_own_file_gets_the_present_names_when_it_is_written(files: dict[str, str]) -> None:
    paths = app_paths(files)
    paths.own_file.parent.mkdir(parents=True, exist_ok=True)
    paths.own_file.write_text('[conductor]\nmodel = "a"\n[limits]\nrecursion = 3\n')
    assert load_settings(files).notices == ()
    set_value(paths, "limits.calls", 5)
    assert read_toml(paths.own_file).values == {
        "planner": {"model": "a"},
        "limits": {"review": 3, "calls": 5},
    }


def test_a_dropped_setting_is_ignored_with_a_notice(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[serve]\nqueue = 3\n[breaker]\nfailures = 0\n")
    loaded = load_settings(
        {"CONDUCTOR_LLM_CONFIG_DIR": str(tmp_path), "CONDUCTOR_LLM_SERVE_GRACE": "5"}
    )
    named = [name for name in DROPPED if any(name in text for text in loaded.notices)]
    assert named == ["breaker.failures", "serve.queue", "serve.grace"]
    assert not set(DROPPED) & set(loaded.values)
    with pytest.raises(UsageError, match="was dropped"):
        find_setting("serve.queue")
