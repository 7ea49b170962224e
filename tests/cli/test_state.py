"""`conductor state`: each action says what it did, and what is wrong."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from conductor_cli.state.postgres import database
from conductor_cli.state.postgres.database import Database
from conductor_cli.state.postgres.spending import SharedSpend
from tests.cli.stage import Stage
from tests.state.cluster import PASSWORD, Cluster
from tests.state.conftest import postgres
from tests.state.test_shared_spend import reserve

__all__ = ["postgres"]


def reserve_open(url: str) -> None:
    """A hold that has expired."""
    opened = Database(url)
    reserve(SharedSpend(opened))
    opened.call("UPDATE conductor_calls SET expires_at = now() - interval '1 s' WHERE owner IS NOT NULL")
    opened.close()


def test_every_action_of_the_command_says_what_it_did(
    stage: Stage, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_files = stage.inside("state", "check")
    assert (with_files.code, "the state is in files" in with_files.err) == (2, True)
    stage.inside("ask", "How are you?")
    url = postgres.new_database()
    monkeypatch.setenv("CONDUCTOR_LLM_STATE", url)
    assert stage.inside("state", "migrate").out == "version 0 became 5\n"
    assert stage.inside("state", "migrate").out == "version 5\n"
    assert "imported 1 run" in stage.inside("state", "import").out
    stage.inside("ask", "How are you?")
    assert len(stage.inside("trace", "list", "--json").json) == 2
    out = str(stage.traces.parent / "copy")
    assert "exported 2 runs" in stage.inside("state", "export", out).out
    assert stage.inside("state", "export", out).out == "nothing was new\n"
    assert stage.inside("state", "export").code == stage.inside("state", "import", "nowhere").code == 2
    reserve_open(url)
    (hold,) = stage.inside("state", "check", "--json").json["holds"]
    assert "1 expired" in stage.inside("state", "check").out
    assert stage.inside("state", "release", str(hold["hold"])).out == f"released {hold['hold']}\n"
    for wrong in (str(hold["hold"]), "x", "-"):
        assert stage.inside("state", "release", wrong).code == 2
    assert PASSWORD not in stage.inside("state", "check").out
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "time", SimpleNamespace(monotonic=time.monotonic, time=lambda: time.time() + 600))
        assert "is 10 min 0 s ahead of that of the database" in stage.inside("state", "check").err
    monkeypatch.setenv("CONDUCTOR_LLM_STATE", url.replace(PASSWORD.replace(" ", "%20"), "swordfish"))
    refused = stage.inside("state", "check")
    assert (refused.code, "password authentication failed" in refused.err, "swordfish" in refused.err) == (
        8, True, False,
    )  # fmt: skip
