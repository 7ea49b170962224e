"""The built-in tools that search the web and read pages."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest

from conductor_cli.app.web_tools import (
    MAX_READ_CHARS,
    SearchProvider,
    WebToolBox,
    search_provider,
    search_web,
)
from conductor_cli.config.settings import load_settings
from conductor_cli.core.errors import KeyMissing, ModelError
from conductor_cli.core.tools import ToolResult
from conductor_cli.core.web_access import WebRules
from tests.servers import Loopback, SeenRequest, Wire, loopback

RESULTS = [
    {"title": "Good", "url": "https://docs.example.com/a", "content": "A few\nwords"},
    {"title": "Other", "url": "https://evil.example.org/b", "content": "More words"},
    {"title": "No page", "url": "javascript:alert(1)"},
    "nonsense",
]


@pytest.fixture
def site() -> Iterator[Loopback]:
    """A provider of search, and a site."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        match request.path.partition("?")[0]:
            case "/search":
                await wire.json({"results": RESULTS})
            case "/res/v1/web/search":
                await wire.json({"web": {"results": [{**RESULTS[0], "description": "Brave"}]}})  # type: ignore[dict-item]
            case "/page":
                await wire.head(kind="text/html")
                await wire.send("<html><body><p>Some text</p></body></html>")
            case "/japanese":
                await wire.head(kind="text/html; charset=shift_jis")
                await wire.send("<p>日本".encode("shift-jis"))
            case "/latin":
                await wire.head(kind="text/plain")
                await wire.send("schön".encode("latin-1"))
            case "/endless":
                await wire.head(kind="text/html")
                await wire.send("<p>" + "word " * 900_000)
            case "/long":
                await wire.head(kind="text/plain")
                await wire.send("a" * (MAX_READ_CHARS + 5))
            case _:
                await wire.head(404, "text/plain")

    with loopback(script) as server:
        yield server


def search(provider: SearchProvider, rules: WebRules | None = None) -> str:
    return asyncio.run(search_web(provider, rules or WebRules(), "a question"))


def call(site: Loopback, name: str, named: str = "127.0.0.1", **arguments: Any) -> ToolResult:
    """Call a tool of a box, as a run does."""

    async def run() -> ToolResult:
        rules = WebRules(private_hosts=(named,))
        box = WebToolBox(SearchProvider(name="searxng", url=site.url), rules)
        tools = {tool.own_name: tool for tool in await box.offered(["web"])}
        return await box.call(tools[name], arguments)

    return asyncio.run(run())


def test_a_search_gives_titles_addresses_and_a_few_words(site: Loopback) -> None:
    text = search(SearchProvider(name="searxng", url=site.url))
    assert text.startswith("1. Good\nhttps://docs.example.com/a\nA few words\n\n2. Other")
    assert "javascript" not in text
    assert "q=a+question" in site.requests[0].path


def test_results_outside_of_the_domains_of_the_policy_are_left_out(site: Loopback) -> None:
    rules = WebRules(domains=(("example.com",),))
    text = search(SearchProvider(name="searxng", url=site.url), rules)
    assert "evil" not in text
    assert "[2 results left out: no page that the policy lets be read]" in text


@pytest.mark.parametrize(
    ("name", "header", "value"),
    [
        ("brave", "x-subscription-token", "k" * 20),
        ("tavily", "authorization", "Bearer " + "k" * 20),
    ],
)
def test_each_provider_is_asked_in_its_own_way(
    site: Loopback, name: str, header: str, value: str
) -> None:
    text = search(SearchProvider(name=name, url=site.url, key="k" * 20))
    assert "docs.example.com" in text
    assert site.requests[0].headers[header] == value


def test_a_provider_that_fails_is_an_error_for_the_worker(site: Loopback) -> None:
    with pytest.raises(ModelError, match="404"):
        search(SearchProvider(name="searxng", url=f"{site.url}/nowhere"))


def test_a_page_is_read_as_text_and_a_long_one_in_parts(site: Loopback) -> None:
    assert "Some text" in call(site, "web_fetch", url=f"{site.url}/page").text
    first = call(site, "web_fetch", url=f"{site.url}/long").text
    assert f"[… 5 further characters: web_fetch with start={MAX_READ_CHARS} …]" in first
    rest = call(site, "web_fetch", url=f"{site.url}/long", start=MAX_READ_CHARS).text
    assert rest.endswith("\naaaaa")


def test_a_page_is_read_in_its_encoding_and_its_missing_end_is_told(site: Loopback) -> None:
    assert "日本" in call(site, "web_fetch", url=f"{site.url}/japanese").text
    unnamed = call(site, "web_fetch", url=f"{site.url}/latin").text
    assert unnamed.endswith("[… letters that are no UTF-8 were replaced: it names no encoding …]")
    last_part = call(site, "web_fetch", url=f"{site.url}/endless", start=3_999_990).text
    assert last_part.endswith("[… the rest of the page could not be read …]")


def test_a_private_address_is_refused_to_a_worker(site: Loopback) -> None:
    result = call(site, "web_fetch", named="other.example", url=f"{site.url}/page")
    assert result.error
    assert "no public address" in result.text
    assert site.connections == 0


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("web_search", {}), ("web_search", {"query": "a" * 500}), ("web_fetch", {"url": 1})],
)
def test_a_wrong_argument_is_told_to_the_worker(
    site: Loopback, name: str, arguments: dict[str, Any]
) -> None:
    assert call(site, name, **arguments).error
    assert site.connections == 0


def test_the_tools_change_nothing_and_need_no_approval(site: Loopback) -> None:
    box = WebToolBox(SearchProvider(name="searxng", url=site.url), WebRules())
    offered = asyncio.run(box.offered(["web"]))
    assert [tool.own_name for tool in offered] == ["web_search", "web_fetch"]
    assert all(tool.read_only for tool in offered)
    assert asyncio.run(box.offered([])) == ()


def test_a_provider_without_a_key_is_an_error_with_the_command(home: Any) -> None:
    settings = load_settings(os.environ, {"web.search": "brave"}, None)
    with pytest.raises(KeyMissing, match="brave") as error:
        search_provider(settings)
    assert "conductor keys set brave" in error.value.hint
    environ = {**os.environ, "BRAVE_API_KEY": "k" * 20}
    assert search_provider(load_settings(environ, {"web.search": "brave"}, None)).key == "k" * 20
