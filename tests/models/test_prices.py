"""The price table: litellm's file as data, boiled down once, exact names, and nothing where nothing is known."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.pool import Worker
from conductor_cli.core.usage import FREE, Price, Usage, with_cost
from conductor_cli.models.prices import FILE, load_prices, price_of, with_prices

CHAT = {"mode": "chat", "input_cost_per_token": 2e-06, "output_cost_per_token": 1e-05}
TWO_AND_TEN = Price(input=Decimal(2), output=Decimal(10))


def table(place: Path, **rows: Any) -> Path:
    """A table in litellm's form; a dot in a name stands for a dash."""
    path = place / "table.json"
    path.write_text(json.dumps(rows))
    return path


def row(**more: Any) -> dict[str, Any]:
    """A row as the JSON reader of the table gives it."""
    found: dict[str, Any] = json.loads(json.dumps({**CHAT, **more}), parse_float=Decimal)
    return found


def test_the_installed_table_is_read_without_importing_litellm(tmp_path: Path) -> None:
    """A real model's price is found, with version and date of the table, and litellm is no module of the process."""
    code = (
        "import sys, pathlib\n"
        "from conductor_cli.models.prices import load_prices\n"
        "for _ in range(2):\n"
        "    found = load_prices(pathlib.Path(sys.argv[1]))\n"
        "    assert found.find('gpt-4o').input == 2.5, found.problem\n"
        "assert found.models > 1000 and found.version and found.date\n"
        "assert 'litellm' not in sys.modules and 'httpx' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / FILE).is_file()


def test_names_match_exactly(tmp_path: Path) -> None:
    """Neither a beginning nor an end nor another case of a name is the name."""
    found = load_prices(tmp_path, table(tmp_path, **{"gpt-x": CHAT, "openai/gpt-x-pro": CHAT}))
    assert found.find("gpt-x") == TWO_AND_TEN
    assert [found.find(name) for name in ("gpt", "gpt-", "x", "GPT-X", "gpt-x-pro", "", "gpt-x\t", "\ngpt-x")] == [
        None
    ] * 8


@pytest.mark.parametrize(
    "more",
    [
        {"input_cost_per_token": 0, "output_cost_per_token": 0},
        {"input_cost_per_token": 0.0, "output_cost_per_token": 0.0},
        {"output_cost_per_token": None},
        {"input_cost_per_token": -1e-06},
        {"input_cost_per_token": float("nan")},
        {"output_cost_per_token": float("inf")},
        {"output_cost_per_token": "1e-5"},
        {"output_cost_per_token": True},
        {"output_cost_per_token": 3},
        {"tiered_pricing": []},
        {"tiered_pricing": [{"range": [5, 9], "input_cost_per_token": 1e-6, "output_cost_per_token": 1e-6}]},
        {"tiered_pricing": [{"range": "all", "input_cost_per_token": 1e-6, "output_cost_per_token": 1e-6}, 7]},
    ],
)
def test_what_says_no_price_has_none(more: dict[str, Any]) -> None:
    """Nothing, 0, less than 0, no number and no tier that begins at 0 are all not known, and never 0."""
    assert price_of(row(**more)) is None


def test_a_model_that_charges_for_more_than_tokens_has_no_price(tmp_path: Path) -> None:
    """Whoever searches the web or charges for each call would seem cheaper than it is; other kinds do not answer."""
    rows = {
        "perplexity/sonar": CHAT, "o3-deep-research": CHAT, "gpt-4o-search-preview": CHAT,
        "per-call": {**CHAT, "input_cost_per_request": 0.005}, "embed": {**CHAT, "mode": "embedding"},
        "Nous/Research": CHAT,
    }  # fmt: skip
    found = load_prices(tmp_path, table(tmp_path, **rows))
    assert [name for name in rows if found.find(name)] == ["Nous/Research"]


def test_cached_stored_and_reasoning_tokens_have_their_own_prices() -> None:
    """And an amount of 0 beside a price is not known, so such tokens cost what others do."""
    found = price_of(
        row(cache_read_input_token_cost=2e-07, cache_creation_input_token_cost=2.5e-06,
            output_cost_per_reasoning_token=3e-05)
    )  # fmt: skip
    assert found == Price(
        input=Decimal(2), output=Decimal(10), cached=Decimal("0.2"), stored=Decimal("2.5"), reasoning=Decimal(30)
    )
    used = Usage(tokens_in=1000, tokens_cached=600, tokens_stored=100, tokens_out=50, tokens_reasoning=20, calls=1)
    by_hand = (300 * 2 + 600 * Decimal("0.2") + 100 * Decimal("2.5") + 30 * 10 + 20 * 30) / Decimal(1_000_000)
    assert with_cost(used, found).cost == by_hand
    assert price_of(row(cache_read_input_token_cost=0, output_cost_per_reasoning_token=0)) == TWO_AND_TEN


def test_long_prompts_cost_what_the_table_says() -> None:
    """Above a threshold the whole call has the higher price; what a tier does not name stays as it was."""
    found = price_of(
        row(cache_read_input_token_cost=2e-07, input_cost_per_token_above_200k_tokens=4e-06,
            output_cost_per_token_above_200k_tokens=1.5e-05, input_cost_per_token_above_200k_tokens_priority=9e-06,
            input_cost_per_token_above_512_tokens=3e-06)
    )  # fmt: skip
    assert found is not None
    assert [found.at(count).input for count in (512, 513, 200_000, 200_001)] == [2, 3, 3, 4]
    assert [found.at(count).output for count in (513, 200_001)] == [10, 15]
    assert found.at(200_001).cached == Decimal("0.2")
    assert with_cost(Usage(tokens_in=300_000, tokens_out=1000, calls=1), found).cost == Decimal("1.215")


def test_tiers_by_range_are_read_too() -> None:
    """Another form of the same: a list of ranges, in whatever order."""
    tiers = [
        {"range": [32000, 128000.0], "input_cost_per_token": 2e-06, "output_cost_per_token": 4e-06},
        {"range": [0, 32000], "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06},
    ]
    found = price_of(row(tiered_pricing=tiers))
    assert found is not None
    assert [found.at(count).input for count in (32000, 32001)] == [1, 2]
    assert [found.at(count).output for count in (32000, 32001)] == [2, 4]


def test_the_cache_is_made_anew_when_the_table_changes(tmp_path: Path) -> None:
    """An unchanged table is not read again; another size or time of the file makes a new cache."""
    source = table(tmp_path, gpt=CHAT)
    assert load_prices(tmp_path, source).find("gpt") == TWO_AND_TEN
    before = (tmp_path / FILE).stat().st_mtime_ns
    assert load_prices(tmp_path, source).find("gpt") == TWO_AND_TEN
    assert (tmp_path / FILE).stat().st_mtime_ns == before
    table(tmp_path, gpt={**CHAT, "input_cost_per_token": 7e-06}, other=CHAT)
    found = load_prices(tmp_path, source).find("gpt")
    assert found is not None
    assert found.input == 7


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff\x00", b'{"from": 3}\nx', b"[" * 100_000, None])
def test_a_damaged_cache_is_made_anew(tmp_path: Path, damage: bytes | None) -> None:
    """Emptied, cut, overwritten, or one digit of a price changed: what stands in the table counts."""
    source = table(tmp_path, gpt=CHAT)
    load_prices(tmp_path, source)
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole.replace(b'"10"', b'"11"') if damage is None else damage)
    assert load_prices(tmp_path, source).find("gpt") == TWO_AND_TEN
    assert (tmp_path / FILE).read_bytes() == whole


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    """A directory in its place, or a file where its directory would be: the prices are known all the same."""
    source = table(tmp_path, gpt=CHAT)
    (tmp_path / "one" / FILE).mkdir(parents=True)
    (tmp_path / "two").write_text("a file")
    for name in ("one", "two"):
        assert load_prices(tmp_path / name, source).find("gpt") == TWO_AND_TEN
    assert [path.name for path in (tmp_path / "one").iterdir()] == [FILE]


UNREADABLE = [
    "", "{", "[]", "null", '{"gpt": 3}', "[" * 100_000, '{"a": 1' + "0" * 5000 + "}", '{"gpt": {"mode": []}}',
    '{"gpt": {"mode": "chat", "input_cost_per_token": 0.1, "output_cost_per_token": 1e-1999999999999999999}}',
]  # fmt: skip


@pytest.mark.parametrize("text", UNREADABLE)
def test_a_table_that_cannot_be_read_leaves_prices_unknown(tmp_path: Path, text: str) -> None:
    """It is said why, nothing is thrown, and nothing is remembered of it."""
    source = tmp_path / "table.json"
    source.write_text(text)
    found = load_prices(tmp_path / "cache", source)
    assert found.problem.startswith("no prices are known: litellm's table")
    assert str(source) in found.problem
    assert (found.find("gpt"), (tmp_path / "cache").exists()) == (None, False)


def test_a_table_that_is_not_there_leaves_prices_unknown(tmp_path: Path) -> None:
    """The same without a file."""
    assert "No such file" in load_prices(tmp_path, tmp_path / "none.json").problem


def test_workers_get_the_price_of_their_model(tmp_path: Path) -> None:
    """A price of their own stays; another address, a file and a made-up model get none from the table."""
    own = Price(input=Decimal(1), output=Decimal(1))
    workers = (
        Worker(name="table", kind="openai", model="gpt-4o"),
        Worker(name="own", kind="openai", model="gpt-4o", price=own),
        Worker(name="elsewhere", kind="openai", model="gpt-4o", options={"base_url": "https://example.org/v1"}),
        Worker(name="unknown", kind="openai", model="gpt-4o-of-mine"),
        Worker(name="file", kind="llama", model="a.gguf", price=FREE),
        Worker(name="states", kind="openrouter", model="openai/gpt-4o"),
    )
    found, problem = with_prices(workers, tmp_path)
    assert problem == ""
    assert [worker.price and worker.price.input for worker in found] == [Decimal("2.5"), 1, None, None, 0, None]


def test_nothing_is_read_where_every_price_is_known(tmp_path: Path) -> None:
    """Local workers cost nothing, and neither does knowing it."""
    with_prices([Worker(name="file", kind="llama", model="a.gguf", price=FREE)], tmp_path)
    assert list(tmp_path.iterdir()) == []
