"""The built-in tools `web_search` and `web_fetch`: off unless the setting `web.search` is set.

They only read. A search goes to the provider that the user names, with the user's key; a page is
fetched as `models/web.py` does it, from public addresses and the domains of the policy alone. To
policies they are the tools `web`, whose words any host may read: a worker that has read files which
not everybody may see does not get them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from conductor_cli.app.keys import SERVICE_VARIABLES, service_key
from conductor_cli.config.settings import Settings
from conductor_cli.config.tables import ConfiguredTools
from conductor_cli.core.chat import Tool
from conductor_cli.core.errors import ConfigError, KeyMissing, ModelError
from conductor_cli.core.formatting import format_count
from conductor_cli.core.mappings import names_of
from conductor_cli.core.redact import Secrets
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.tools import AskPerson, OfferedTool, ToolBox, ToolResult
from conductor_cli.core.web_access import DOMAINS_SETTING, HOSTS_SETTING, WebRules
from conductor_cli.models.chat_body import JsonBody
from conductor_cli.models.http import HttpClient
from conductor_cli.models.web import Page, fetch_page
from conductor_cli.programs.bounded_child import ChildLimits, ChildStopped, run_child_beside
from conductor_cli.state.key_store import SERVICES
from conductor_cli.tools.servers import ToolTable

SETTING: Final = "web.search"
NAME: Final = "web"  # Of these tools, where those of a server have its name
MAX_RESULTS: Final = 8
MAX_QUERY_CHARS: Final = 400
MAX_SNIPPET_CHARS: Final = 500
MAX_TITLE_CHARS: Final = 200
MAX_SEARCH_BYTES: Final = 4 << 20
SEARCH_SECONDS: Final = 20.0
MAX_FETCHED_BYTES: Final = 8 << 20
MAX_READ_CHARS: Final = 12_000  # Of a page at once
PAGE_LIMITS: Final = ChildLimits(seconds=20, memory=1 << 30, cpu_seconds=30)

_TOOLS: Final = (
    Tool(
        name="web_search",
        description="Search the web. Gives titles, addresses and a few words of each result.",
        parameters={
            "type": "object",
            "properties": {"query": {"type": "string", "description": "What to search for"}},
            "required": ["query"],
        },
    ),
    Tool(
        name="web_fetch",
        description=f"Read a web page as text, at most {MAX_READ_CHARS} characters at once.",
        parameters={
            "type": "object",
            "properties": {
                "url": {"type": "string", "description": "The address, with https://"},
                "start": {"type": "integer", "description": "The first character; 0 if left out"},
            },
            "required": ["url"],
        },
    ),
)
KINDS: Final = frozenset(names_of(_TOOLS))
"""The tools of providers that these stand for, where a client asks for one."""

OFFERED: Final = tuple(
    OfferedTool(tool=tool, server=NAME, own_name=tool.name, read_only=True) for tool in _TOOLS
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProvider:
    """A provider of search: its name, its address, and its key where it needs one."""

    name: str
    url: str
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """One result of a search."""

    title: str
    url: str
    snippet: str


def configured_web(settings: Settings) -> ConfiguredTools | None:
    """Return these tools as the settings have servers of tools; None where they are off.

    Raises `ConfigError` where a server has their name.
    """
    # The demo models call no tools.
    if not settings[SETTING] or settings.rehearsal:
        return None
    if any(item.name == NAME for item in settings.tool_servers):
        message = f"a server of tools is named {NAME}, as the built-in tools of {SETTING} are"
        raise ConfigError(message, hint=f"rename the server, or: conductor config set {SETTING} ''")
    about = "search the web, read web pages"
    names = tuple(names_of(_TOOLS))
    return ConfiguredTools(
        name=NAME, table=ToolTable(about=about, read_only=names), source=settings.origins[SETTING]
    )


def all_tool_servers(settings: Settings) -> tuple[ConfiguredTools, ...]:
    """Return the servers of tools of the settings, and the built-in tools where they are on."""
    web = configured_web(settings)
    return settings.tool_servers if web is None else (*settings.tool_servers, web)


def web_rules(settings: Settings) -> WebRules:
    """Return which hosts the settings let be read."""
    return WebRules(
        private_hosts=tuple(settings[HOSTS_SETTING]), domains=tuple(settings[DOMAINS_SETTING])
    )


def search_provider(settings: Settings) -> SearchProvider:
    """Return the provider that `web.search` names. Raises `KeyMissing` where it has no key."""
    name = settings[SETTING]
    if name not in SERVICES:
        return SearchProvider(name="searxng", url=name.rstrip("/"))
    key = service_key(settings, name, SERVICES[name])
    if not key:
        variable = SERVICE_VARIABLES[name][0]
        raise KeyMissing(
            f"there is no key of {name}, which searches the web",
            hint=f"conductor keys set {name}, or set {variable}",
        )
    return SearchProvider(name=name, url=SERVICES[name], key=key)


class WebToolBox:
    """These tools, and those of the servers that a worker has besides."""

    def __init__(
        self, provider: SearchProvider, rules: WebRules, servers: ToolBox | None = None
    ) -> None:
        self._provider = provider
        self._rules = rules
        self._servers = servers
        self._web_tools = OFFERED

    async def offered(self, servers: Sequence[str]) -> tuple[OfferedTool, ...]:
        others: tuple[OfferedTool, ...] = ()
        names = [name for name in servers if name != NAME]
        if self._servers is not None and names:
            others = await self._servers.offered(names)
        if NAME not in servers:
            return others
        taken_names = {item.tool.name for item in others}
        self._web_tools = tuple(_named_apart(item, taken_names) for item in OFFERED)
        return (*self._web_tools, *others)

    async def call(
        self, tool: OfferedTool, arguments: Mapping[str, Any], ask: AskPerson | None = None
    ) -> ToolResult:
        if tool.server != NAME:
            assert self._servers is not None
            return await self._servers.call(tool, arguments, ask)
        try:
            if tool.own_name == "web_search":
                text = await search_web(self._provider, self._rules, _query_of(arguments))
            else:
                text = await self._fetch(arguments)
        except ModelError as error:
            return ToolResult(text=error.message, error=True)
        return ToolResult(text=text)

    async def _fetch(self, arguments: Mapping[str, Any]) -> str:
        url = arguments.get("url")
        start = arguments.get("start") or 0
        if not isinstance(url, str) or not isinstance(start, int) or start < 0:
            raise ModelError("refused", "url must be text, and start a number of at least 0")
        page = await fetch_page(url, self._rules, limit=MAX_FETCHED_BYTES)
        text = await _text_of(page)
        part = text[start : start + MAX_READ_CHARS]
        heading = f"{page.url}, characters {start} to {start + len(part)} of {len(text)}:"
        rest = len(text) - start - len(part)
        if rest > 0:
            end = start + len(part)
            part += f"\n[… {rest} further characters: web_fetch with start={end} …]"
        return f"{heading}\n{part}"

    def take_notices(self) -> tuple[str, ...]:
        return () if self._servers is None else self._servers.take_notices()

    async def close(self) -> None:
        if self._servers is not None:
            await self._servers.close()


def _named_apart(offered: OfferedTool, taken_names: Collection[str]) -> OfferedTool:
    """Return a tool under another name where a server has one of that name."""
    if offered.tool.name not in taken_names:
        return offered
    return replace(offered, tool=replace(offered.tool, name=f"builtin_{offered.own_name}"))


def _query_of(arguments: Mapping[str, Any]) -> str:
    query = arguments.get("query")
    if not isinstance(query, str) or not 0 < len(query.strip()) <= MAX_QUERY_CHARS:
        message = f"query must be text of 1 to {MAX_QUERY_CHARS} characters"
        raise ModelError("refused", message)
    return one_line(query.strip())


async def search_web(provider: SearchProvider, rules: WebRules, query: str) -> str:
    """Return the results of a search in the domains that may be read. Raises `ModelError`."""
    results = await _ask(provider, query)
    readable = [result for result in results if _may_read(rules, result.url)]
    shown = []
    for number, result in enumerate(readable[:MAX_RESULTS], start=1):
        shown.append(f"{number}. {result.title}\n{result.url}\n{result.snippet}")
    left_out = len(results) - len(readable)
    if left_out:
        kind = format_count(left_out, "result")
        shown.append(f"[{kind} left out: no page that the policy lets be read]")
    return "\n\n".join(shown) or "Nothing was found."


def _may_read(rules: WebRules, url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and rules.is_in_domains(host)


async def _ask(provider: SearchProvider, query: str) -> list[SearchResult]:
    """Return what a provider finds, in the form that all have in common."""
    path = f"/search?{urlencode({'q': query, 'format': 'json'})}"
    method = "GET"
    body = None
    headers: dict[str, str] = {"accept": "application/json"}
    match provider.name:
        case "brave":
            path = f"/res/v1/web/search?{urlencode({'q': query, 'count': MAX_RESULTS})}"
            headers["x-subscription-token"] = provider.key
        case "tavily":
            path = "/search"
            method = "POST"
            body = JsonBody({"query": query, "max_results": MAX_RESULTS})
            headers["authorization"] = f"Bearer {provider.key}"
    client = HttpClient(provider.url, headers=headers, secrets=Secrets(provider.key))
    try:
        async with client.open(
            method, path, body=body, seconds=SEARCH_SECONDS, limit=MAX_SEARCH_BYTES
        ) as answer:
            content = await answer.body()
    finally:
        await client.close()
    try:
        return _results_in(json.loads(content))
    except (ValueError, RecursionError):
        message = f"{client.name} gave no JSON with results of a search"
        raise ModelError("broken", message) from None


def _results_in(answer: Any) -> list[SearchResult]:  # noqa: ANN401 - any JSON
    """Return the results in an answer of Brave, Tavily or SearXNG. Raises `ValueError`."""
    if not isinstance(answer, dict):
        raise ValueError("not an object")  # noqa: TRY004 - as of text that is no JSON
    nested = answer.get("web")
    rows = nested.get("results") if isinstance(nested, dict) else answer.get("results")
    results: list[SearchResult] = []
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, dict) or not isinstance(row.get("url"), str):
            continue
        snippet = row.get("description") or row.get("content") or ""
        results.append(
            SearchResult(
                title=one_line(str(row.get("title") or ""))[:MAX_TITLE_CHARS],
                url=one_line(row["url"]),
                snippet=one_line(str(snippet))[:MAX_SNIPPET_CHARS],
            )
        )
    return results


async def _text_of(page: Page) -> str:
    """Return the text of a page. Raises `ModelError` where it has none."""
    content = page.text_content
    if not page.is_html:
        if b"\0" in content:
            raise ModelError("refused", "what is there is no text")
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = content.decode("utf-8-sig", "replace")
            return f"{text}\n[… letters that are no UTF-8 were replaced: it names no encoding …]"
    script = Path(__file__).with_name("document_process.py")
    try:
        lines = await run_child_beside(script, content, PAGE_LIMITS)
    except ChildStopped as stopped:
        lines = stopped.values
    texts = [str(line["text"]) for line in lines if "text" in line]
    if not texts:
        raise ModelError("refused", "the page has no text, or cannot be read")
    is_whole = bool(lines) and lines[-1].get("end") == ""
    if is_whole:
        return texts[-1]
    return f"{texts[-1]}\n[… the rest of the page could not be read …]"
