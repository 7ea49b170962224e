"""The price table: litellm's file as data, exact names, and no price where nothing is known."""

from __future__ import annotations

import json
import lzma
import os
import re
import subprocess
import sys
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.pool import Worker
from conductor_cli.core.usage import FREE, Price, Usage, with_cost
from conductor_cli.models.prices import (
    LITELLM_TABLE,
    SHIPPED_TABLE,
    load_prices,
    price_of,
    with_abilities,
    with_prices,
)
from scripts.model_table import compact_rows, litellm_rows

SOURCES = Path(__file__).parents[2] / "src"
LOCK = Path(__file__).parents[2] / "requirements.lock"

CHAT = {"mode": "chat", "input_cost_per_token": 2e-06, "output_cost_per_token": 1e-05}
TWO_AND_TEN = Price(input=Decimal(2), output=Decimal(10))


def table(directory: Path, **rows: Any) -> Path:
    """A table in litellm's form."""
    path = directory / "table.json"
    path.write_text(json.dumps(rows))
    return path


def row(**fields: Any) -> dict[str, Any]:
    """A row as the JSON reader of the table gives it."""
    parsed_row: dict[str, Any] = json.loads(json.dumps({**CHAT, **fields}))
    return parsed_row


def run_python(code: str, *options: str, path: Path = SOURCES) -> str:
    """What a program prints that finds modules in `path` and in the sources first."""
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{SOURCES}"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


ABOUT = "from conductor_cli.models.prices import load_prices\nprint(load_prices().about)\n"


def test_prices_contexts_and_abilities_are_known_where_litellm_is_not_installed() -> None:
    """Python finds no package at all there, so none is imported either."""
    code = (
        "from importlib.util import find_spec\n"
        "from conductor_cli.models.prices import load_prices\n"
        "table = load_prices()\n"
        "row = table.rows['gpt-4o']\n"
        "print(find_spec('litellm'), table.find('gpt-4o').input, row['max_input_tokens'])\n"
        "print(row['supports_vision'], len(table.rows) > 1000, table.problem)\n"
    )
    assert run_python(code, "-S") == "None 2.5 128000\nTrue True \n"


def test_the_table_is_read_without_importing_litellm() -> None:
    code = f"import sys\n{ABOUT}print('litellm' in sys.modules, 'httpx' in sys.modules)\n"
    about, imported = run_python(code).splitlines()
    assert about.startswith("litellm 1.")
    assert imported == "False False"


@pytest.mark.parametrize(("installed", "is_used"), [("99.1.0", True), ("0.99.0", False)])
def test_the_table_of_a_newer_litellm_is_read_instead(
    tmp_path: Path, installed: str, is_used: bool
) -> None:
    package = tmp_path / "litellm"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('litellm was imported')\n")
    (package / LITELLM_TABLE).write_text(json.dumps({"gpt-x": CHAT}))
    information = tmp_path / f"litellm-{installed}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Name: litellm\nVersion: {installed}\n")
    code = f"{ABOUT}print(load_prices().find('gpt-x') is not None)\n"
    about, has_price = run_python(code, path=tmp_path).splitlines()
    assert has_price == str(is_used)
    assert (f"litellm {installed}," in about) is is_used


def test_the_table_that_ships_says_what_the_locked_litellm_says() -> None:
    """Where this fails, litellm is newer: python scripts/model_table.py."""
    locked = re.search(r"^litellm==(\S+)", LOCK.read_text("utf-8"), re.MULTILINE)
    assert locked is not None
    if version("litellm") != locked[1]:
        pytest.skip("the litellm that is installed is not the locked one")
    shipped = json.loads(lzma.decompress(SHIPPED_TABLE.read_bytes()))
    assert shipped["litellm"] == locked[1]
    assert shipped["models"] == compact_rows(litellm_rows())
    assert SHIPPED_TABLE.stat().st_size < 100_000


def test_a_price_is_that_of_exactly_this_name(tmp_path: Path) -> None:
    """Neither a beginning nor an end nor another case of a name is the name."""
    table_of_prices = load_prices(table(tmp_path, **{"gpt-x": CHAT, "openai/gpt-x-pro": CHAT}))
    assert table_of_prices.find("gpt-x") == TWO_AND_TEN
    assert [
        table_of_prices.find(name)
        for name in ("gpt", "gpt-", "x", "GPT-X", "gpt-x-pro", "", "gpt-x\t", "\ngpt-x")
    ] == [None] * 8


@pytest.mark.parametrize(
    "fields",
    [
        {"input_cost_per_token": 0, "output_cost_per_token": 0.0},
        {"output_cost_per_token": None},
        {"input_cost_per_token": -1e-06},
        {"input_cost_per_token": float("nan")},
        {"output_cost_per_token": float("inf")},
        {"output_cost_per_token": "1e-5"},
        {"output_cost_per_token": True},
        {"output_cost_per_token": 3},
        {"tiered_pricing": []},
    ],
)
def test_what_says_no_price_has_none(fields: dict[str, Any]) -> None:
    assert price_of(row(**fields)) is None


def test_a_model_that_charges_for_more_than_tokens_has_no_price(tmp_path: Path) -> None:
    rows = {
        "perplexity/sonar": CHAT,
        "o3-deep-research": CHAT,
        "gpt-4o-search-preview": CHAT,
        "per-call": {**CHAT, "input_cost_per_request": 0.005},
        "embed": {**CHAT, "mode": "embedding"},
        "Nous/Research": CHAT,
    }
    table_of_prices = load_prices(table(tmp_path, **rows))
    assert [name for name in rows if table_of_prices.find(name)] == ["Nous/Research"]


def test_cached_stored_and_reasoning_tokens_have_their_own_prices() -> None:
    price = price_of(
        row(
            cache_read_input_token_cost=2e-07,
            cache_creation_input_token_cost=2.5e-06,
            output_cost_per_reasoning_token=3e-05,
        )
    )
    assert price == Price(
        input=Decimal(2),
        output=Decimal(10),
        cached=Decimal("0.2"),
        stored=Decimal("2.5"),
        reasoning=Decimal(30),
    )
    used = Usage(
        tokens_in=1000,
        tokens_cached=600,
        tokens_stored=100,
        tokens_out=50,
        tokens_reasoning=20,
        calls=1,
    )
    by_hand = (300 * 2 + 600 * Decimal("0.2") + 100 * Decimal("2.5") + 30 * 10 + 20 * 30) / Decimal(
        1_000_000
    )
    assert with_cost(used, price).cost == by_hand
    assert (
        price_of(row(cache_read_input_token_cost=0, output_cost_per_reasoning_token=0))
        == TWO_AND_TEN
    )


def test_long_prompts_cost_what_the_table_says() -> None:
    price = price_of(
        row(
            cache_read_input_token_cost=2e-07,
            input_cost_per_token_above_200k_tokens=4e-06,
            output_cost_per_token_above_200k_tokens=1.5e-05,
            input_cost_per_token_above_200k_tokens_priority=9e-06,
            input_cost_per_token_above_512_tokens=3e-06,
        )
    )
    assert price is not None
    assert [price.at(count).input for count in (512, 513, 200_000, 200_001)] == [2, 3, 3, 4]
    assert [price.at(count).output for count in (513, 200_001)] == [10, 15]
    assert price.at(200_001).cached == Decimal("0.2")
    assert with_cost(Usage(tokens_in=300_000, tokens_out=1000, calls=1), price).cost == Decimal(
        "1.215"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"gpt": 3}',
        "[" * 100_000,
        '{"a": 1' + "0" * 5000 + "}",
        '{"gpt": {"mode": []}}',
    ],
)
def test_a_table_that_cannot_be_read_leaves_prices_unknown(tmp_path: Path, text: str) -> None:
    source = tmp_path / "table.json"
    source.write_text(text)
    table_of_prices = load_prices(source)
    assert table_of_prices.problem.startswith("no prices are known: the table of models")
    assert str(source) in table_of_prices.problem
    assert table_of_prices.find("gpt") is None
    assert "No such file" in load_prices(tmp_path / "none.json").problem


def test_workers_get_the_price_of_their_model() -> None:
    own_price = Price(input=Decimal(1), output=Decimal(1))
    workers = (
        Worker(name="table", kind="openai", model="gpt-4o"),
        Worker(name="own", kind="openai", model="gpt-4o", price=own_price),
        Worker(
            name="elsewhere",
            kind="openai",
            model="gpt-4o",
            options={"base_url": "https://example.org/v1"},
        ),
        Worker(name="unknown", kind="openai", model="gpt-4o-of-mine"),
        Worker(name="file", kind="llama", model="a.gguf", price=FREE),
        Worker(name="states", kind="openrouter", model="openai/gpt-4o"),
    )
    priced_workers, problem = with_prices(workers)
    assert problem == ""
    assert [worker.price and worker.price.input for worker in priced_workers] == [
        Decimal("2.5"),
        1,
        None,
        None,
        0,
        None,
    ]


def test_what_anthropic_is_told_to_cache_costs_more_unless_the_price_says_otherwise() -> None:
    """Its turns with tools are cached at 1.25 times the price of input."""
    longer = Price(input=Decimal(4), output=Decimal(20), above=200_000)
    own = Price(input=Decimal(2), output=Decimal(10), longer=(longer,))
    stated = Price(input=Decimal(2), output=Decimal(10), stored=Decimal(3))
    workers = [
        Worker(name="own", kind="anthropic", model="a", price=own),
        Worker(name="stated", kind="anthropic", model="a", price=stated),
        Worker(name="free", kind="anthropic", model="a", price=FREE),
        Worker(name="other", kind="openai", model="a", price=own),
    ]
    read = Usage(tokens_in=1_000_000, tokens_stored=100_000, calls=1)
    short = Usage(tokens_in=100_000, tokens_stored=100_000, calls=1)
    costs = []
    for worker in with_prices(workers)[0]:
        costs.append((with_cost(short, worker.price).cost, with_cost(read, worker.price).cost))
    assert costs == [
        (Decimal("0.25"), Decimal("4.1")),
        (Decimal("0.3"), Decimal("2.1")),
        (Decimal(0), Decimal(0)),
        (Decimal("0.2"), Decimal("4.0")),
    ]


def test_the_table_is_not_read_if_every_price_is_known() -> None:
    load_prices.cache_clear()
    with_prices([Worker(name="file", kind="llama", model="a.gguf", price=FREE)])
    assert load_prices.cache_info().misses == 0


def test_what_a_model_accepts_is_read_from_the_table_and_is_nothing_where_it_is_not_known() -> None:
    workers = (
        Worker(name="known", kind="openai", model="gpt-4o"),
        Worker(name="said", kind="openai", model="gpt-4o", accepts=("pdf",)),
        Worker(name="said-no", kind="openai", model="gpt-4o", accepts=()),
        Worker(
            name="elsewhere",
            kind="openai",
            model="gpt-4o",
            options={"base_url": "http://127.0.0.1:9/v1"},
        ),
        Worker(name="text", kind="openai", model="gpt-3.5-turbo"),
        Worker(name="file", kind="llama", model="gpt-4o"),
    )
    able = with_abilities(workers)
    accepted = {worker.name: worker.accepts for worker in able}
    assert [worker.max_output for worker in able] == [16_384, 16_384, 16_384, None, 4096, None]
    assert accepted == {
        "known": ("image", "pdf"),
        "said": ("pdf",),
        "said-no": (),
        "elsewhere": (),
        "text": (),
        "file": (),
    }
