"""Searching the web from a run: off by default, behind one setting, and held to the policy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.stage import Stage


@pytest.fixture
def asking(stage: Stage) -> Stage:
    stage.configure(workers=("alpha",))
    return stage


def tools_of(stage: Stage) -> list[Any]:
    """The names of the tools that the worker was offered last."""
    tools = stage.asked("alpha")[-1].json.get("tools", [])
    return [tool["function"]["name"] for tool in tools]


def test_without_the_setting_no_worker_gets_the_tools(asking: Stage) -> None:
    asking.ok("ask", "What is new?")
    assert tools_of(asking) == []


def test_with_the_setting_each_worker_gets_them(asking: Stage) -> None:
    asking.ok("config", "set", "web.search", "http://127.0.0.1:9")
    asking.ok("ask", "What is new?")
    assert tools_of(asking) == ["web_search", "web_fetch"]
    assert "web" in asking.ok("tools", "list").out
    asking.ok("ask", "What is new?", "--tools", "none")
    assert tools_of(asking) == []
    asking.ok("ask", "What is new?", "--tools", "web")
    assert tools_of(asking) == ["web_search", "web_fetch"]


def test_a_policy_can_deny_them(asking: Stage) -> None:
    asking.ok("config", "set", "web.search", "http://127.0.0.1:9")
    asking.ok("ask", "What is new?", "--deny", "tool:web")
    assert tools_of(asking) == []


def test_a_worker_that_reads_files_kept_from_others_does_not_get_them(
    asking: Stage, tmp_path: Any
) -> None:
    asking.ok("config", "set", "web.search", "http://127.0.0.1:9")
    asking.ok("config", "set", "policy.files_only", "alpha")
    (tmp_path / "a.txt").write_text("private")
    asking.ok("ask", "What is new?", "-f", tmp_path / "a.txt")
    assert tools_of(asking) == []


def test_a_missing_key_ends_the_command_before_anybody_is_asked(asking: Stage) -> None:
    asking.ok("config", "set", "web.search", "tavily")
    asking.costs_nothing(4, "ask", "What is new?", told="conductor keys set tavily")


def test_a_server_of_the_same_name_is_an_error(asking: Stage) -> None:
    asking.ok("tools", "add", "web", "--", "true")
    asking.ok("config", "set", "web.search", "http://127.0.0.1:9")
    asking.fails(3, "ask", "What is new?", told="rename the server")
