"""Money from the command line: prices, limits of a day, what was spent, and how to go on."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import sys
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conductor_cli.core.ledger import Reservation
from conductor_cli.core.usage import Usage
from conductor_cli.models.prices import load_prices
from conductor_cli.state.interfaces import Spender
from conductor_cli.state.spending import DailySpend
from tests.cli.stage import TWO, Stage, breaks, sends
from tests.servers import SeenRequest, Wire, delta, usage

if TYPE_CHECKING:
    import pytest

PRICES = {
    "alpha": "price = { input = 1, output = 10 }\n",
    "beta": "price = { input = 2, output = 20 }\n",
}


def priced(stage: Stage, limits: str = "") -> None:
    """Two priced workers, and a priced model that plans and is no worker."""
    planner = {"planner": "price = { input = 1, output = 1 }\nenabled = false\n"}
    stage.plan = TWO
    stage.configure(
        f"[limits]\nattempts = 1\n{limits}", workers=PRICES | planner, conductor="planner"
    )


def test_what_was_spent_is_shown_by_day_and_worker(stage: Stage) -> None:
    priced(stage)
    stage.inside("ask", "How are you?")
    done = stage.inside("cost")
    rows = [line.split()[2:] for line in done.out.splitlines()]
    assert [row[0] if row[0] != "machine" else row[1] for row in rows] == [
        "WORKER",
        "alpha",
        "beta",
        "planner",
        "3",
    ]
    report = stage.inside("cost", "--json").json
    assert (report["total"]["cost"], report["total"]["calls"]) == ("0.000261", 3)
    assert [row["worker"] for row in report["rows"]] == ["alpha", "beta", "planner"]


HOSTILE: dict[str, dict[str, Any]] = {
    "huge": {"prompt_tokens": 10**30, "completion_tokens": 10**30, "total_tokens": 10**30},
    "as a fraction": {"prompt_tokens": 1e30, "completion_tokens": 1e308},
    "four hundred digits": {"prompt_tokens": 10**400, "completion_tokens": 10**400},
    "endless": {"prompt_tokens": float("inf"), "completion_tokens": float("nan")},
    "negative": {"prompt_tokens": -(10**18), "completion_tokens": -5, "total_tokens": -1e30},
    "no numbers": {"prompt_tokens": "5", "completion_tokens": True, "total_tokens": [1]},
    "nested": {"prompt_tokens": {"a": {}}, "prompt_tokens_details": {"cached_tokens": 10**30}},
}


def test_no_worker_switches_the_limits_of_a_day_off(stage: Stage) -> None:
    counted = list(HOSTILE.values())

    async def strange(request: SeenRequest, wire: Wire) -> None:
        count = usage(**counted[len(stage.asked("alpha")) - 1])
        await sends(delta("some words"), delta(finish="stop"), count, "[DONE]")(request, wire)

    stage.models["alpha"] = strange
    stage.configure(
        f"[limits]\nattempts = 1\ncalls_day = {len(counted)}", workers={"alpha": PRICES["alpha"]}
    )
    codes = [stage.inside("ask", "hi").code for _ in range(len(counted) + 2)]
    assert codes == [0] * len(counted) + [6, 6]
    assert len(stage.asked("alpha")) == len(counted)
    assert "alpha" in stage.inside("cost").out
    listed = stage.inside("trace", "list", "--json").json
    assert [run["state"] for run in listed] == ["failed"] * 2 + ["finished"] * len(counted)
    assert all(run["tokens"] > 0 for run in listed[2:])
    assert stage.inside("trace", "list", "some words").out.count("alpha") == len(counted)
    assert stage.inside("trace", "rm", "--keep", "0", "--yes").code == 0
    assert stage.inside("trace", "list", "--json").json == []


def test_what_each_key_spent_is_shown(stage: Stage) -> None:
    priced(stage)
    stage.inside("ask", "How are you?")
    stage.inside("serve", "keys", "add", "laptop", "--max-cost-day", "2")
    spend = DailySpend(stage.traces.parent / "spending", client=Spender(name="laptop"))
    room = Reservation(answer=9, cost=Decimal(0), tokens=0, call=True)
    asyncio.run(spend.reserve(lambda _: room, lambda _: None))
    spend.settle(room, Usage(tokens_in=3, tokens_out=4, calls=1, cost=Decimal("0.5")))
    spend.close()
    done = stage.inside("cost", "--by", "key")
    assert [line.split()[1:3] for line in done.out.splitlines()] == [
        ["KEY", "CALLS"],
        ["(no", "key)"],
        ["laptop", "1"],
        ["all", "4"],
    ]
    assert "today: $0.5000 of $2.00 (key laptop)" in done.err
    report = stage.inside("cost", "--by", "key", "--json").json
    assert [(row["key"], row["cost"]) for row in report["rows"]] == [
        (None, "0.000261"),
        ("laptop", "0.5"),
    ]
    assert report["total"]["cost"] == "0.500261"
    assert len(stage.inside("cost", "--json").json["rows"]) == 4


def test_failed_calls_that_cost_money_are_shown(stage: Stage) -> None:
    priced(stage)
    stage.models = {"alpha": breaks("some text")}
    assert stage.inside("ask", "How are you?").out == "beta answers\n"
    head, alpha, *_ = stage.inside("cost").out.splitlines()
    assert head.split()[-1] == "FAILED"
    row = next(
        row for row in stage.inside("cost", "--json").json["rows"] if row["worker"] == "alpha"
    )
    assert row["failed"]["calls"] == row["calls"] == 1
    assert Decimal(row["failed"]["cost"]) == Decimal(row["cost"]) > 0
    assert "  1, $0.0" in alpha


def test_a_price_on_a_model_file_is_paid(stage: Stage, tiny: Path) -> None:
    file = f'[workers.alpha]\nkind = "llama"\nmodel = "{tiny}"\nmax_tokens = 8\n'
    for price, paid in (("price = { input = 1000000, output = 0 }\n", True), ("", False)):
        stage.configure(f"[limits]\nattempts = 1\n{file}{price}", workers=())
        usage = stage.inside("ask", "How?", "--format", "json").json["steps"][0]["usage"]
        assert usage["unpriced"] == 0
        assert (Decimal(usage["cost"]) == usage["tokens_in"]) is paid
        assert (Decimal(usage["cost"]) == 0) is not paid


def test_a_day_on_which_nothing_was_called(stage: Stage) -> None:
    done = stage.inside("cost", "--days", "1")
    assert (done.code, done.out, done.err) == (0, "", "no calls today\n")
    assert stage.inside("cost", "--json").json["total"]["cost"] is None


def test_the_limit_of_a_day_holds_over_commands(stage: Stage) -> None:
    priced(stage, "calls_day = 3")
    assert stage.inside("ask", "How are you?").code == 0
    done = stage.fails(6, "ask", "How are you now?", out="alpha answers\n")
    first, second, third = done.err.splitlines()
    assert first == (
        "conductor: partial answer, by step 1, stopped: today's limit of 3 calls (limits.calls_day)"
    )
    assert second == "  wait until midnight, or run: conductor config set limits.calls_day 6"
    assert "worker calls (limits.calls_day)" in stage.inside("cost").err
    priced(stage, "calls_day = 6")
    stage.server.requests.clear()
    assert stage.ok(*third.partition("conductor ")[2].split()).out == "beta answers\n"
    assert [len(stage.asked(name)) for name in ("alpha", "beta", "planner")] == [0, 1, 0]


def test_a_cost_limit_ends_with_a_command_that_goes_on(stage: Stage) -> None:
    priced(stage)
    done = stage.fails(6, "ask", "How are you?", "--max-cost", "0.0001")
    assert stage.posts == []
    first, second = done.err.splitlines()
    assert first == "conductor: stopped: limit of $0.0001, no room for another call (--max-cost)"
    assert second.startswith("  ask it again: conductor ask --resume ")
    command = second.partition("conductor ")[2].split()
    assert command[-2] == "--max-cost"
    for _ in range(4):
        again = stage.inside(*command)
        if again.code != 6:
            break
        command = again.err.splitlines()[-1].partition("conductor ")[2].split()
    assert (again.code, again.out) == (0, "beta answers\n")


def test_spending_that_cannot_be_recorded_stops_only_limits(stage: Stage, home: Path) -> None:
    (home / "state/conductor-llm").mkdir(parents=True)
    (home / "state/conductor-llm/spending").write_text("a file")
    priced(stage, "cost_day = 1")
    stage.ends(3, "ask", "How are you?", told="the limits per day cannot be enforced")
    priced(stage)
    stage.ok("ask", "How are you?", out="beta answers\n", told="what was spent is not recorded")
    assert stage.inside("cost").code == 3


def test_an_unreadable_price_table_stops_nothing(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "table.json"
    broken.write_text('{"gpt-4o": ')
    table = load_prices(broken)
    monkeypatch.setattr("conductor_cli.models.prices.load_prices", lambda: table)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    priced(stage)
    stage.config.write_text(
        stage.config.read_text() + '\n[workers.gpt]\nkind = "openai"\nmodel = "gpt-4o"\n'
    )
    stage.ok(
        "ask",
        "How are you?",
        out="beta answers\n",
        told="no prices are known: the table of models cannot be read",
    )
    stage.ends(3, "ask", "How are you?", "--max-cost", "1", told="gpt has no price")
    assert " unknown " in stage.inside("workers", "list").out.splitlines()[-1]


def test_a_record_that_lacks_calls_of_the_traces_is_named(stage: Stage) -> None:
    """By doctor, when a server starts, and by ask: the file, and what differs.

    A run that was resumed counts once.
    """
    stage.plan = TWO
    stage.models = {"beta": breaks()}
    stage.inside("ask", "How are you?")
    stage.models.clear()
    stage.ok("ask", "--resume", "last")

    def checks() -> list[str]:
        listed = stage.inside("doctor", "--offline", "--json").json["checks"]
        return [check["found"] for check in listed if check["name"] == "spending"]

    assert checks() == []
    file = stage.traces.parent / "spending/spending.sqlite"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("DELETE FROM calls WHERE id = (SELECT MAX(id) FROM calls)")
    (text,) = checks()
    assert f"{file} has lost calls: it has 36 tokens of today, the traces of today have 54" in text
    with stage.start("serve", "--port", "0") as server:
        assert server.stdout is not None
        server.stdout.readline()
        server.terminate()
        assert b"has lost calls: it has 36 tokens" in server.communicate()[1]
    assert "has lost calls: it has 36 tokens" in stage.inside("mcp").err
    # A single question looks at the newest run alone, where a limit of the day depends on it
    file.unlink()
    assert "has lost calls" not in stage.ok("ask", "How are you?").err
    file.unlink()
    stage.ok("config", "set", "limits.calls_day", "9")
    assert "has lost calls: it has 0 tokens" in stage.ok("ask", "How are you?").err
    assert "has lost calls" not in stage.ok("ask", "How are you?").err


def test_no_command_opens_a_file_of_sqlite_by_itself(stage: Stage) -> None:
    """Whoever closes a descriptor of an open database drops all locks of his process on it.

    Its log is lost then. To create the file is allowed, since nobody has opened it then. What
    SQLite opens itself is not seen here.
    """
    databases = set[str]()
    opened = list[str]()
    watching = True

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if not watching:
            return
        if event == "sqlite3.connect":
            name = str(arguments[0]).removeprefix("file://").partition("?")[0]
            databases.update({name, os.path.realpath(name)} - {":memory:"})
        elif event == "open" and isinstance(arguments[0], str | os.PathLike):
            path = os.fspath(arguments[0])
            base = re.sub(r"-(wal|shm|journal)$", "", path)
            if base in databases and not arguments[2] & os.O_EXCL:
                opened.append(path)

    sys.addaudithook(watch)
    try:
        for words in (
            ("ask", "How are you?"),
            ("cost",),
            ("cost", "--by", "key"),
            ("ask", "And now?"),
            ("trace", "list"),
            ("trace", "search", "now"),
            ("doctor", "--offline", "--json"),
            ("trace", "rate", "last", "good"),
            ("trace", "export", "last"),
            ("trace", "rm", "last", "--yes"),
            ("trace", "list"),
            ("cost",),
        ):
            stage.inside(*words)
    finally:
        watching = False
    assert {Path(name).name for name in databases} == {"spending.sqlite", "traces.index"}
    assert opened == []
