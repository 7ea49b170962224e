"""Named tables in the files: workers, pools and providers.

What they become, and what is refused with file and line.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pytest

from conductor_cli.config.files import AppPaths, Source, read_toml, set_value
from conductor_cli.config.tables import (
    ConfiguredProvider,
    ConfiguredWorker,
    NamedPool,
    find_pool,
    pool_members,
    pools_of,
    providers_of,
    update_table,
    validate_worker,
    workers_of,
)
from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.core.pool import Worker
from conductor_cli.core.usage import FREE, Price
from conductor_cli.models.recipients import is_at_provider

ABC = "".join(f'[workers.{name}]\nkind = "openai"\n' for name in "abc")


def written(folder: Path, text: str, own_text: str = "") -> list[Source]:
    (folder / "settings.toml").write_text(own_text)
    (folder / "config.toml").write_text(text)
    return [read_toml(folder / "settings.toml"), read_toml(folder / "config.toml")]


def listed(folder: Path, text: str, own_text: str = "") -> tuple[ConfiguredWorker, ...]:
    return workers_of(written(folder, text, own_text))


def pools(folder: Path, text: str, own_text: str = "") -> tuple[NamedPool, ...]:
    return pools_of(written(folder, text, own_text))


def where(folder: Path) -> AppPaths:
    return AppPaths(config=folder, state=folder, data=folder, cache=folder)


def test_a_table_becomes_a_worker(tmp_path: Path) -> None:
    (item,) = listed(
        tmp_path,
        """
[workers."re.viewer-2"]
kind = "openai-compatible"
model = "m"
about = "careful"
base_url = "http://127.0.0.1:1/v1"
parallel = 2
headers = { x-team = "seven" }
price = { input = "0.30", output = 1.2, cached = 0 }
card = { strengths = { code = 0.5 }, measured = true }
tags = ["eu", "cheap", "eu"]
""",
    )
    worker = item.worker
    assert worker.price == Price(input=Decimal("0.30"), output=Decimal("1.2"), cached=Decimal(0))
    assert (worker.name, worker.parallel, worker.about, item.enabled) == (
        "re.viewer-2",
        2,
        "careful",
        True,
    )
    assert worker.options == {"base_url": "http://127.0.0.1:1/v1", "headers": {"x-team": "seven"}}
    assert (worker.card.strengths, worker.tags) == ({"code": 0.5}, ("eu", "cheap"))


def test_settings_that_need_each_other_stand_together(tmp_path: Path) -> None:
    table = (
        '[workers.w]\nkind = "anthropic"\nthinking_budget = 2048\nmax_tokens = 4096\n'
        "temperature = 1\n"
    )
    (item,) = listed(tmp_path, table)
    assert item.worker.options == {"thinking_budget": 2048, "max_tokens": 4096, "temperature": 1}


def test_a_local_worker_costs_nothing_and_takes_turns(tmp_path: Path) -> None:
    (item,) = listed(tmp_path, '[workers.local]\nkind = "llama"\nmodel = "/x.gguf"\nthreads = 2')
    assert (item.worker.price, item.worker.parallel) == (FREE, 1)


def test_later_files_win_key_by_key(tmp_path: Path) -> None:
    own_text = '[workers.a]\nkind = "openai"\nmodel = "one"\n[workers.b]\nkind = "openai"\n'
    workers = listed(
        tmp_path,
        '[workers.c]\nkind = "openai"\n[workers.a]\nmodel = "two"\nenabled = false\n',
        own_text,
    )
    assert [item.worker.name for item in workers] == ["a", "b", "c"]
    assert (workers[0].worker.kind, workers[0].worker.model, workers[0].enabled) == (
        "openai",
        "two",
        False,
    )
    assert workers[0].source == str(tmp_path / "config.toml")
    assert workers[1].source == str(tmp_path / "settings.toml")


CAT = "[workers.w]\nkind = 'command'\ncommand = ['cat']\n"
WRONG_TABLES = {
    "[workers.w]\nmodel = 'x'": "line 1: worker 'w' has no kind",
    "[workers.w]\nkind = 'gpt'": "line 2: worker 'w': unknown kind 'gpt'",
    "[workers.w]\nkind = 1": "line 2: kind: expected text, found a number (1)",
    "[workers.w]\nkind = 'openai'\nenabled = 'no'": (
        "line 3: enabled: expected true or false, found text ('no')"
    ),
    "[workers.w]\nkind = 'openai'\nparallel = 0": "line 3: parallel is 0; expected at least 1",
    "[workers.w]\nkind = 'openai'\nparallel = true": (
        "line 3: parallel: expected a whole number, found true or false"
    ),
    "[workers.w]\nkind = 'openai'\nprice = 3": (
        "line 3: price: expected a table { … }, found a number (3)"
    ),
    "[workers.w]\nkind = 'openai'\nprice = { input = 1 }": "line 3: price: 'output' is missing",
    "[workers.w]\nkind = 'openai'\nprice = { input = 1, output = -1 }": (
        "line 3: price: an amount must be 0 or more"
    ),
    "[workers.w]\nkind = 'openai'\nprice = { input = nan, output = 1 }": (
        "line 3: price.input: expected a number"
    ),
    "[workers.w]\nkind = 'openai'\nprice = { input = 1, output = 1, cache = 1 }": "line 3: price has no key 'cache'",
    "[workers.w]\nkind = 'openai'\ncard = { strengths = { code = 7 } }": (
        "line 3: card: a strength must be"
    ),
    "[workers.w]\nkind = 'openai'\ncard = { strengths = 7 }": "line 3: card.strengths: expected",
    "[workers.w]\nkind = 'openai'\nmax_tokens = 'x'": (
        "line 3: worker 'w': max_tokens is 'x'; expected a whole number"
    ),
    "[workers.w]\nkind = 'openai'\ntemperature = nan": (
        "line 3: temperature is nan; expected at least 0"
    ),
    "[workers.w]\nkind = 'openai'\n\nmax_token = 5": (
        "line 4: worker 'w': the kind 'openai' has no option 'max_token'"
    ),
    "[workers.w]\nkind = 'llama'\nbase_url = 'x'": (
        "line 3: worker 'w': the kind 'llama' has no option 'base_url'"
    ),
    "[workers.w]\nkind = 'openai'\napi_key = 'sk-1'": (
        "line 3: api_key: keys do not belong in a file"
    ),
    "[workers.w]\nkind = 'openai'\nheaders = { Authorization = 'x' }": (
        "line 3: headers: keys do not belong in a file"
    ),
    "[workers.w]\nkind = 'openai'\nheaders = { X-Api-Key = 'x' }": (
        "line 3: headers: keys do not belong in a file"
    ),
    "[workers.w]\nkind = 'openai'\nbase_url = 'https://me:pw@here/v1'": (
        "line 3: base_url: keys do not"
    ),
    "[workers.w]\nkind = 'openai'\nkey_env = 'sk-a1b2'": (
        "line 3: key_env is not the name of a variable"
    ),
    "[workers.w]\nkind = 'self'": "line 2: worker 'w' of kind 'self'",
    "[workers.w]\nkind = 'openai'\ntags = 'eu'": "line 3: tags: expected a list, found text ('eu')",
    "[workers.w]\nkind = 'openai'\ntags = [1]": "line 3: tags[0]: expected text, found a number (1)",
    "[workers.w]\nkind = 'openai'\ntags = ['a b']": "line 3: tags: 'a b' is not a valid tag",
    "[workers.w]\nkind = 'openai'\nreasoning_effort = 'hihg'": (
        "line 3: worker 'w': reasoning_effort is 'hihg'"
    ),
    "[workers.w]\nkind = 'openai'\nthinking_budget = 9": (
        "line 3: worker 'w': the kind 'openai' has no thinking"
    ),
    "[workers.w]\nkind = 'gemini'\nreasoning_effort = 'low'\nthinking_budget = 9": "line 4: worker 'w': thinking",
    "[workers.w]\nkind = 'command'\ncommand = 'cat'": (
        "line 3: worker 'w': command is 'cat'; expected a list of texts"
    ),
    "[workers.w]\nkind = 'command'\ncommand = ['cat', 1]": (
        "line 3: worker 'w': command is not a list of texts"
    ),
    f"{CAT}temperature = 0.5": "line 4: worker 'w': the kind 'command' has no option 'temperature'",
    f"{CAT}accepts = ['image']": "line 4: accepts: a program reads text only",
    f"{CAT}seconds = 0": "line 4: worker 'w': seconds is 0",
    f"{CAT}sandbox = 'yes'": "line 4: worker 'w': sandbox is 'yes'; expected true or false",
    **{
        f"[workers.'{name}']\nkind = 'openai'": f"line 1: {name!r} is not a valid name"
        for name in ("a b", "", "-a", "a" * 41)
    },
    "pools = 3": "line 1: pools must be tables",
    "[pools]\nx = 3": "line 2: 'x' must be a table [pools.x]",
    "[pools.x]": "line 1: pool 'x' needs the names of its workers",
    "[pools.x]\nworkers = []": "line 2: pool 'x' needs the names of its workers",
    "[pools.x]\nworkers = 'a'": "line 2: workers: expected a list, found text ('a')",
    "[pools.x]\nworkers = ['a', 'a']": "line 2: pool 'x' needs the names of its workers, each once",
    "[pools.x]\nworkers = ['a']\nmodels = 1": "line 3: pools has no key 'models'",
    "[pools.'a b']\nworkers = ['a']": "line 1: 'a b' is not a valid name for pools",
    "[providers.x]": "line 1: provider 'x' has no parallel",
    "[providers.x]\nparallel = 0": "line 2: parallel is 0; expected a whole number of at least 1",
    "[providers.x]\nparallel = 2\nretries = 9": "line 3: providers has no key 'retries'",
}


@pytest.mark.parametrize("text", WRONG_TABLES)
def test_a_wrong_entry_is_named(tmp_path: Path, text: str) -> None:
    sources = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        (workers_of(sources), pools_of(sources), providers_of(sources))
    message = f"{caught.value}\n{caught.value.hint}"
    assert message.startswith(f"{tmp_path / 'config.toml'}, {WRONG_TABLES[text]}"), message
    assert "sk-" not in message
    assert "pw" not in message


def test_only_the_conductor_itself_is_called_so(tmp_path: Path) -> None:
    """`self` means the conductor in every plan, so no other model may have that name."""
    (item,) = listed(tmp_path, '[workers.self]\nkind = "self"\n')
    assert item.worker.kind == "self"
    with pytest.raises(ConfigError, match=r"config.toml, line 2: worker 'self' of kind 'openai'"):
        listed(tmp_path, '[workers.self]\nkind = "openai"\n')


def test_an_error_names_the_file_that_has_the_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"settings.toml, line 3: max_tokens is 0"):
        listed(
            tmp_path, '[workers.w]\nmodel = "x"\n', '[workers.w]\nkind = "openai"\nmax_tokens = 0\n'
        )


def test_a_change_is_checked_before_it_is_written(tmp_path: Path) -> None:
    assert validate_worker(where(tmp_path), "w", {"kind": "openai", "model": "m"}).model == "m"
    with pytest.raises(ConfigError) as caught:
        validate_worker(where(tmp_path), "w", {"kind": "gpt"})
    assert str(caught.value) == "worker 'w': unknown kind 'gpt'"
    assert list(tmp_path.iterdir()) == []


def test_changes_at_once_are_all_kept(tmp_path: Path) -> None:
    path = where(tmp_path)

    def work(number: int) -> None:
        update_table(path, "workers", f"w{number}", {"kind": "openai", "model": str(number)})
        set_value(path, f"limits.s{number}", number)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    values = read_toml(path.own_file).values
    assert set(values["workers"]) == {f"w{number}" for number in range(8)}
    assert values["limits"] == {f"s{number}": number for number in range(8)}


@pytest.mark.parametrize("text", ["limits = 3", "workers = 3", "x = 1", "[workers]\nw = 3"])
def test_a_broken_own_file_is_repaired_or_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "settings.toml").write_text(text)
    if not text.startswith("["):
        with pytest.raises(ConfigError, match=r"settings.toml, line 1"):
            set_value(where(tmp_path), "limits.steps", 2)
        with pytest.raises(ConfigError, match=r"settings.toml, line 1"):
            update_table(where(tmp_path), "workers", "w", {"kind": "openai"})
        assert (tmp_path / "settings.toml").read_text() == text
    assert validate_worker(where(tmp_path), "w", {"kind": "openai"}).kind == "openai"


def test_a_linked_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "kept.toml").touch()
    (tmp_path / "settings.toml").symlink_to(tmp_path / "kept.toml")
    set_value(where(tmp_path), "limits.steps", 2)
    assert (tmp_path / "settings.toml").is_symlink()
    assert "steps = 2" in (tmp_path / "kept.toml").read_text()


def test_money_keeps_its_digits(tmp_path: Path) -> None:
    set_value(where(tmp_path), "limits.cost", Decimal("0.10"))
    assert read_toml(tmp_path / "settings.toml").values == {"limits": {"cost": "0.10"}}


def test_a_file_that_cannot_be_replaced_stays(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").mkdir()
    with pytest.raises(ConfigError, match=r"settings.toml"):
        set_value(where(tmp_path), "limits.steps", 2)
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == ["settings.toml"]


def test_what_is_not_text_is_not_written(tmp_path: Path) -> None:
    set_value(where(tmp_path), "limits.steps", 2)
    with pytest.raises(ConfigError, match="UTF-8"):
        update_table(where(tmp_path), "workers", "w", {"kind": "openai", "about": "a \udcff"})
    assert read_toml(tmp_path / "settings.toml").values == {"limits": {"steps": 2}}


def test_a_change_may_take_a_setting_out(tmp_path: Path) -> None:
    update_table(
        where(tmp_path), "workers", "w", {"kind": "openai", "temperature": 0.5, "model": "m"}
    )
    update_table(where(tmp_path), "workers", "w", {"temperature": None})
    assert read_toml(tmp_path / "settings.toml").values["workers"]["w"] == {
        "kind": "openai",
        "model": "m",
    }


def test_a_table_becomes_a_pool(tmp_path: Path) -> None:
    (pool,) = pools(tmp_path, '[pools."my.pool"]\nworkers = ["c", "a"]\nabout = "for sums"\n')
    assert (pool.name, pool.about) == ("my.pool", "for sums")
    assert pool.where == f"{tmp_path / 'config.toml'}, line 2"
    assert [item.worker.name for item in pool_members(pool, listed(tmp_path, ABC))] == ["c", "a"]


def test_the_source_of_a_pool_is_the_file_with_its_workers(tmp_path: Path) -> None:
    own_text = '[pools.x]\nworkers = ["a"]\n[pools.y]\nworkers = ["b"]\n'
    x, y = pools(tmp_path, '[pools.x]\nworkers = ["c"]\n[pools.y]\nabout = "new"', own_text)
    assert (y.workers, y.about) == (("b",), "new")
    assert (x.source, y.source) == (str(tmp_path / "config.toml"), str(tmp_path / "settings.toml"))


def test_an_unknown_pool_is_reported_with_the_known_ones(tmp_path: Path) -> None:
    loaded = pools(tmp_path, "[pools.x]\nworkers = ['a']")
    assert find_pool(loaded, "x").workers == ("a",)
    with pytest.raises(UsageError, match="no pool is named 'z'") as caught:
        find_pool(loaded, "z")
    assert caught.value.hint == "known: x"
    with pytest.raises(UsageError) as caught:
        find_pool((), "z")
    assert "pools.NAME" in caught.value.hint


def test_a_pool_with_an_unknown_worker_is_reported_when_it_is_used(tmp_path: Path) -> None:
    (pool,) = pools(tmp_path, "[pools.x]\nworkers = ['a', 'zeta']")
    with pytest.raises(ConfigError, match=r"config.toml, line 2: pool 'x' names 'zeta'") as caught:
        pool_members(pool, listed(tmp_path, ABC))
    assert caught.value.hint == "known: a, b, c"


def test_a_table_says_how_many_calls_a_provider_takes(tmp_path: Path) -> None:
    text = '[providers.openai]\nparallel = 4\n[providers."llm.example.com"]\nparallel = 1'
    assert providers_of(written(tmp_path, text)) == (
        ConfiguredProvider(name="openai", parallel=4),
        ConfiguredProvider(name="llm.example.com", parallel=1),
    )


@pytest.mark.parametrize(
    ("worker", "names"),
    [
        (Worker(name="a", kind="openai", model="gpt"), ("openai", "OpenAI", "api.openai.com")),
        (Worker(name="a", kind="ollama", model="qwen3"), ("ollama", "local", "127.0.0.1")),
        (Worker(name="a", kind="llama", model="x.gguf"), ("llama", "local")),
    ],
)
def test_a_provider_is_named_as_a_user_would_name_it(
    worker: Worker, names: tuple[str, ...]
) -> None:
    provider_names = {
        "openai",
        "OpenAI",
        "api.openai.com",
        "ollama",
        "local",
        "localhost",
        "127.0.0.1",
        "llama",
        "a",
    }
    assert {name for name in provider_names if is_at_provider(worker, name)} == set(names)
