"""Workers in the files: what they become, and what is refused with file and line."""

from __future__ import annotations

import threading
from decimal import Decimal
from pathlib import Path

import pytest

from conductor_cli.config.files import AppPaths, read_toml, set_value
from conductor_cli.config.tables import ConfiguredWorker, update_table, validate_worker, workers_of
from conductor_cli.core.errors import ConfigError


def listed(folder: Path, text: str, own: str = "") -> tuple[ConfiguredWorker, ...]:
    (folder / "settings.toml").write_text(own)
    (folder / "config.toml").write_text(text)
    return workers_of([read_toml(folder / "settings.toml"), read_toml(folder / "config.toml")])


def where(folder: Path) -> AppPaths:
    return AppPaths(config=folder, state=folder, data=folder, cache=folder)


def test_a_table_becomes_a_worker(tmp_path: Path) -> None:
    """Its own fields are the worker's, the rest are options of its adapter."""
    (item,) = listed(tmp_path, """
[workers."re.viewer-2"]
kind = "openai-compatible"
model = "m"
about = "careful"
base_url = "http://127.0.0.1:1/v1"
parallel = 2
headers = { x-team = "seven" }
price = { input = "0.30", output = 1.2, cached = 0 }
card = { strengths = { code = 0.5 }, measured = true }
""")  # fmt: skip
    worker = item.worker
    assert (worker.name, worker.parallel, worker.about, item.enabled) == ("re.viewer-2", 2, "careful", True)
    assert worker.options == {"base_url": "http://127.0.0.1:1/v1", "headers": {"x-team": "seven"}}
    assert worker.price is not None
    assert (worker.price.input, worker.price.output) == (Decimal("0.30"), Decimal("1.2"))
    assert worker.price.cached == 0
    assert worker.card.strengths == {"code": 0.5}


def test_settings_that_need_each_other_stand_together(tmp_path: Path) -> None:
    """A thinking budget of Anthropic's is refused without a bound above it, and taken beside one, in any order."""
    table = '[workers.w]\nkind = "anthropic"\nthinking_budget = 2048\nmax_tokens = 4096\ntemperature = 1\n'
    (item,) = listed(tmp_path, table)
    assert item.worker.options == {"thinking_budget": 2048, "max_tokens": 4096, "temperature": 1}


def test_a_local_worker_costs_nothing_and_takes_turns(tmp_path: Path) -> None:
    """A file on this machine has the price 0, which is known, and does one step at a time."""
    (item,) = listed(tmp_path, '[workers.local]\nkind = "llama"\nmodel = "/x.gguf"\nthreads = 2')
    assert item.worker.price is not None
    assert (item.worker.price.input, item.worker.parallel) == (Decimal(0), 1)


def test_later_files_win_key_by_key(tmp_path: Path) -> None:
    """The user's file changes what it names of a worker that the tool added; the order is that of first mention."""
    own = '[workers.a]\nkind = "openai"\nmodel = "one"\n[workers.b]\nkind = "openai"\n'
    found = listed(tmp_path, '[workers.c]\nkind = "openai"\n[workers.a]\nmodel = "two"\nenabled = false\n', own)
    assert [item.worker.name for item in found] == ["a", "b", "c"]
    assert (found[0].worker.kind, found[0].worker.model, found[0].enabled) == ("openai", "two", False)
    assert found[0].source == str(tmp_path / "config.toml")
    assert found[1].source == str(tmp_path / "settings.toml")


WRONG = {
    "model = 'x'": "line 1: worker 'w' has no kind",
    "kind = 'gpt'": "line 2: worker 'w': unknown kind 'gpt'",
    "kind = 1": "line 2: kind: expected text, found a number (1)",
    "kind = 'openai'\nmodel = 3": "line 3: model: expected text, found a number (3)",
    "kind = 'openai'\nenabled = 'no'": "line 3: enabled: expected true or false, found text ('no')",
    "kind = 'openai'\nparallel = 0": "line 3: parallel is 0; expected at least 1",
    "kind = 'openai'\nparallel = true": "line 3: parallel: expected a whole number, found true or false",
    "kind = 'openai'\nprice = 3": "line 3: price: expected an object, found a number (3)",
    "kind = 'openai'\nprice = { input = 1 }": "line 3: price: 'output' is missing",
    "kind = 'openai'\nprice = { input = 1, output = -1 }": "line 3: price: an amount must be 0 or more",
    "kind = 'openai'\nprice = { input = nan, output = 1 }": "line 3: price.input: expected a number",
    "kind = 'openai'\nprice = { input = 1, output = 1, cache = 1 }": "line 3: price has no key 'cache'",
    "kind = 'openai'\ncard = { strengths = { code = 7 } }": "line 3: card: a strength must be between 0 and 1",
    "kind = 'openai'\ncard = { strengths = 7 }": "line 3: card.strengths: expected",
    "kind = 'openai'\nmax_tokens = 'x'": "line 3: worker 'w': max_tokens is 'x'; expected a whole number",
    "kind = 'openai'\nmax_tokens = 0": "line 3: max_tokens is 0; expected at least 1",
    "kind = 'openai'\ncontext = 1": "line 3: context is 1; expected at least 256",
    "kind = 'openai'\ntemperature = nan": "line 3: temperature is nan; expected at least 0",
    "kind = 'openai'\n\nmax_token = 5": "line 4: worker 'w': the kind 'openai' has no option 'max_token'",
    "kind = 'openai'\ngpu_layers = 5": "line 3: worker 'w': the kind 'openai' has no option 'gpu_layers'",
    "kind = 'llama'\nbase_url = 'x'": "line 3: worker 'w': the kind 'llama' has no option 'base_url'",
    "kind = 'openai'\napi_key = 'sk-1'": "line 3: api_key: keys do not belong in a file",
    "kind = 'openai'\nheaders = { Authorization = 'x' }": "line 3: headers: keys do not belong in a file",
    "kind = 'openai'\nheaders = { X-Api-Key = 'x' }": "line 3: headers: keys do not belong in a file",
    "kind = 'openai'\nbase_url = 'https://me:pw@here/v1'": "line 3: base_url: keys do not belong in a file",
    "kind = 'openai'\nkey_env = 'sk-a1b2'": "line 3: key_env is not the name of a variable",
    "kind = 'self'": "line 2: worker 'w' of kind 'self'",
    "kind = 'openai'\ntags = 'eu'": "line 3: tags: expected a list, found text ('eu')",
    "kind = 'openai'\ntags = [1]": "line 3: tags[0]: expected text, found a number (1)",
    "kind = 'openai'\ntags = ['a b']": "line 3: tags: 'a b' is not a valid tag",
    "kind = 'openai'\nreasoning_effort = 'hihg'": "line 3: worker 'w': reasoning_effort is 'hihg'",
    "kind = 'openai'\nthinking_budget = 9": "line 3: worker 'w': the kind 'openai' has no thinking_budget",
    "kind = 'gemini'\nthinking_budget = -1": "line 3: thinking_budget is -1; expected at least 0",
    "kind = 'gemini'\nreasoning_effort = 'low'\nthinking_budget = 9": "line 4: worker 'w': thinking_budget and",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_entry_is_named(tmp_path: Path, text: str) -> None:
    """File, line, and what was expected; a key that stands where it should not is never repeated."""
    with pytest.raises(ConfigError) as caught:
        listed(tmp_path, f"[workers.w]\n{text}\n")
    said = f"{caught.value}\n{caught.value.hint}"
    assert said.startswith(f"{tmp_path / 'config.toml'}, {WRONG[text]}"), said
    assert "sk-" not in said
    assert "pw" not in said


@pytest.mark.parametrize("name", ["a b", "", "-a", "a" * 41, "a|b"])
def test_a_wrong_name_is_refused(tmp_path: Path, name: str) -> None:
    """Names stand in plans and on command lines: letters, digits, dots and dashes."""
    with pytest.raises(ConfigError, match=r"config.toml, line 1"):
        listed(tmp_path, f'[workers."{name}"]\nkind = "openai"\n')


def test_the_name_of_the_conductor_is_taken(tmp_path: Path) -> None:
    """`self` means the conductor in every plan, so no other model may have that name."""
    with pytest.raises(ConfigError, match=r"config.toml, line 2: worker 'self' of kind 'openai'"):
        listed(tmp_path, '[workers.self]\nkind = "openai"\n')


def test_an_error_names_the_file_that_has_the_key(tmp_path: Path) -> None:
    """Where two files speak of one worker, the line is that of the file with the wrong key."""
    with pytest.raises(ConfigError, match=r"settings.toml, line 3: max_tokens is 0"):
        listed(tmp_path, '[workers.w]\nmodel = "x"\n', '[workers.w]\nkind = "openai"\nmax_tokens = 0\n')


def test_the_conductor_itself_may_be_a_worker(tmp_path: Path) -> None:
    """A worker named `self`, of kind `self`, lets plans use the conductor."""
    (item,) = listed(tmp_path, '[workers.self]\nkind = "self"\n')
    assert item.worker.kind == "self"


def test_a_change_is_checked_before_it_is_written(tmp_path: Path) -> None:
    """`checked` tells what `change` would make, and what is wrong with it, without a file's name."""
    assert validate_worker(where(tmp_path), "w", {"kind": "openai", "model": "m"}).model == "m"
    with pytest.raises(ConfigError) as caught:
        validate_worker(where(tmp_path), "w", {"kind": "gpt"})
    assert str(caught.value) == "worker 'w': unknown kind 'gpt'"
    assert list(tmp_path.iterdir()) == []


def test_changes_at_once_are_all_kept(tmp_path: Path) -> None:
    """Threads that change workers and settings at the same time lose nothing."""
    place = where(tmp_path)

    def work(number: int) -> None:
        update_table(place, "workers", f"w{number}", {"kind": "openai", "model": str(number)})
        set_value(place, f"limits.s{number}", number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values = read_toml(place.own_file).values
    assert set(values["workers"]) == {f"w{number}" for number in range(8)}
    assert values["limits"] == {f"s{number}": number for number in range(8)}


@pytest.mark.parametrize("text", ["limits = 3", "workers = 3", "x = 1", "[workers]\nw = 3"])
def test_a_broken_own_file_is_repaired_or_reported(tmp_path: Path, text: str) -> None:
    """What somebody wrote into settings.toml by hand never ends in a crash, and is never lost silently."""
    (tmp_path / "settings.toml").write_text(text)
    if not text.startswith("["):
        with pytest.raises(ConfigError, match=r"settings.toml, line 1"):
            set_value(where(tmp_path), "limits.steps", 2)
        with pytest.raises(ConfigError, match=r"settings.toml, line 1"):
            update_table(where(tmp_path), "workers", "w", {"kind": "openai"})
        assert (tmp_path / "settings.toml").read_text() == text
    assert validate_worker(where(tmp_path), "w", {"kind": "openai"}).kind == "openai"


def test_a_linked_file_stays_a_link(tmp_path: Path) -> None:
    """Who keeps settings elsewhere and links to them keeps the link."""
    (tmp_path / "kept.toml").touch()
    (tmp_path / "settings.toml").symlink_to(tmp_path / "kept.toml")
    set_value(where(tmp_path), "limits.steps", 2)
    assert (tmp_path / "settings.toml").is_symlink()
    assert "steps = 2" in (tmp_path / "kept.toml").read_text()


def test_money_keeps_its_digits(tmp_path: Path) -> None:
    """An amount is written as text, so that no digit is lost."""
    set_value(where(tmp_path), "limits.cost", Decimal("0.10"))
    assert read_toml(tmp_path / "settings.toml").values == {"limits": {"cost": "0.10"}}


def test_a_file_that_cannot_be_replaced_stays(tmp_path: Path) -> None:
    """A write that the system refuses is an error with the file's name; nothing half written is left."""
    (tmp_path / "settings.toml").mkdir()
    with pytest.raises(ConfigError, match=r"settings.toml"):
        set_value(where(tmp_path), "limits.steps", 2)
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == ["settings.toml"]


def test_what_is_not_text_is_not_written(tmp_path: Path) -> None:
    """Bytes of a command line that are not UTF-8 are an error, and what stands in the file stays."""
    set_value(where(tmp_path), "limits.steps", 2)
    with pytest.raises(ConfigError, match="UTF-8"):
        update_table(where(tmp_path), "workers", "w", {"kind": "openai", "about": "a \udcff"})
    assert read_toml(tmp_path / "settings.toml").values == {"limits": {"steps": 2}}


def test_tags_are_kept_once_and_in_order(tmp_path: Path) -> None:
    """What a user sorts workers by is the worker's own, not its adapter's."""
    (item,) = listed(tmp_path, '[workers.w]\nkind = "openai"\ntags = ["eu", "cheap", "eu"]')
    assert (item.worker.tags, dict(item.worker.options)) == (("eu", "cheap"), {})


def test_a_change_may_take_a_setting_out(tmp_path: Path) -> None:
    """None is not a value: the setting is as if it had never been said."""
    update_table(where(tmp_path), "workers", "w", {"kind": "openai", "temperature": 0.5, "model": "m"})
    update_table(where(tmp_path), "workers", "w", {"temperature": None})
    assert read_toml(tmp_path / "settings.toml").values["workers"]["w"] == {"kind": "openai", "model": "m"}
