"""Tools of workers.

The servers of the settings, which workers get them, and what a server says when it is tried.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any, Final

from conductor_cli.app.check_results import CheckResult
from conductor_cli.app.keys import open_key_store
from conductor_cli.app.web_tools import NAME as WEB_TOOLS
from conductor_cli.app.web_tools import (
    WebToolBox,
    all_tool_servers,
    configured_web,
    search_provider,
    web_rules,
)
from conductor_cli.app.worker_selection import server_for_policy
from conductor_cli.app.workers import check_changeable
from conductor_cli.config.files import own_section
from conductor_cli.config.settings import ConfiguredTools, Settings
from conductor_cli.config.tables import VARIABLE, plain_secrets, update_tool_server
from conductor_cli.core.errors import ConfigError, KeyMissing, UsageError
from conductor_cli.core.mappings import names_of, without_none
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.redact import REDACTED, login_secrets, secrets_in
from conductor_cli.core.serialization import dump
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.tools import OfferedTool, RunTools, ToolBox, tool_selector
from conductor_cli.core.trace import Trace
from conductor_cli.models.base import Model
from conductor_cli.state.interfaces import AttachmentStore
from conductor_cli.system.event_loop import run_async
from conductor_cli.system.known_secrets import KNOWN_SECRETS
from conductor_cli.tools.servers import (
    ASKS_FOR_LOGIN,
    EVERY_TOOL,
    WANTED_SCOPE,
    Login,
    ToolServer,
)

TOOLS_SETTING: Final = "conductor.tools"
ALLOW_SETTING: Final = "conductor.allow_tools"


# For runs


def pool_with_tools(
    settings: Settings, pool: Pool, models: Mapping[str, Model], *, asking: bool
) -> tuple[Pool, tuple[str, ...]]:
    """Return the pool with the tools that each worker gets in this run, and remarks to show.

    Those that a command line or `conductor.tools` names replace the workers' own. A worker whose
    adapter carries no tools gets none. Raises `UsageError` or `ConfigError` for servers that no
    file has.
    """
    chosen = _chosen_tools(settings)
    of_pool = _tools_of_pool(settings)
    built_in = () if configured_web(settings) is None else (WEB_TOOLS,)
    workers: list[Worker] = []
    unable: list[str] = []
    for worker in pool:
        names = chosen
        if names is None:
            names = tuple(dict.fromkeys((*worker.tools, *of_pool, *built_in)))
        if worker.kind == SELF or not names:
            workers.append(replace(worker, tools=()))
            continue
        for name in names:
            if chosen is None:
                _check_named(settings, worker, name)
            find_tool_server(settings, name)
        model = models.get(worker.name)
        if asking and model is not None and "tools" not in model.features:
            unable.append(_describe_unable(worker))
            names = ()
        workers.append(replace(worker, tools=tuple(names)))
    remarks = _remarks(settings, workers, unable)
    return Pool(workers=tuple(workers)), tuple(remarks)


def _chosen_tools(settings: Settings) -> tuple[str, ...] | None:
    """Return the servers that a setting or a command line names; None where it leaves them be."""
    text = settings[TOOLS_SETTING]
    if text == "auto":
        return None
    if text == "none":
        return ()
    return tuple(text.split(","))


def _tools_of_pool(settings: Settings) -> tuple[str, ...]:
    """Return the servers that every worker of the pool in use gets."""
    for pool in settings.pools:
        if pool.name == settings["conductor.pool"]:
            return pool.tools
    return ()


def _check_named(settings: Settings, worker: Worker, name: str) -> None:
    """Raise `ConfigError` where a worker of the settings names a server that no file has."""
    if name not in names_of(all_tool_servers(settings)):
        message = f"worker {worker.name!r} names the tools {name!r:.60}, which no file has"
        raise ConfigError(message, hint="conductor tools add NAME")


def _describe_unable(worker: Worker) -> str:
    """Return the name of a worker that cannot be sent tools, and why where that is known."""
    if worker.kind == "llama":
        return f"{worker.name} (its chat template has no form for them that is read here)"
    return worker.name


def _remarks(settings: Settings, workers: Sequence[Worker], unable: Sequence[str]) -> Iterator[str]:
    """Yield what a user should know of the tools of a run."""
    if unable:
        yield f"without tools, which they cannot be sent: {', '.join(unable)}"
    if settings.origins[ALLOW_SETTING] != "command line":
        return
    for name in _allowed_tools(settings):
        if not any(name in worker.tools for worker in workers):
            yield (
                f"--allow-tools {name} allows nothing, because no worker has these tools: "
                f"--tools {name}"
            )


def keep_tools_of(settings: Settings, earlier: Trace) -> Settings:
    """Return the settings with the tools that every worker of an earlier run had.

    So whoever resumes a run need not repeat `--tools`. What a command line names stays.
    """
    selections = {worker.tools for worker in earlier.pool.without_self()}
    if settings.origins[TOOLS_SETTING] == "command line" or len(selections) != 1:
        return settings
    names = ",".join(*selections) or "none"
    return replace(settings, values={**settings.values, TOOLS_SETTING: names})


def open_tools(
    settings: Settings, pool: Pool, attachments: AttachmentStore | None
) -> RunTools | None:
    """Return the tools of the runs over `pool`; None where no worker has any.

    Nothing is started yet. `attachments` keeps the images that they give back. Raises `ConfigError`
    where the extra is not installed, `KeyMissing` where a variable is not set.
    """
    wanted = dict.fromkeys(chain.from_iterable(worker.tools for worker in pool))
    allowed = _allowed_tools(settings)
    if not wanted:
        return None
    servers = {}
    for item in settings.tool_servers:
        if item.name in wanted:
            servers[item.name] = server_of(item, settings, allowed.get(item.name, ()))

    web = None
    if WEB_TOOLS in wanted:
        web = configured_web(settings)
    about = {name: server.about for name, server in servers.items()}
    if web is not None:
        about[web.name] = web.table.about
        provider = search_provider(settings)

    def open_box() -> ToolBox:
        if web is None:
            return open_servers()
        return WebToolBox(provider, web_rules(settings), open_servers() if servers else None)

    def open_servers() -> ToolBox:
        from conductor_cli.tools.session import McpToolBox

        add_attachment = None
        if attachments is not None:
            add_attachment = attachments.add
        return McpToolBox(servers, KNOWN_SECRETS.redact, add_attachment)

    return RunTools(open=open_box, about=about)


def server_of(item: ConfiguredTools, settings: Settings, allow: Iterable[str] = ()) -> ToolServer:
    """Return a server with its secrets, and `allow` as tools that need no approval.

    Raises `KeyMissing`.
    """
    table = item.table

    def value_of(name: str) -> str:
        value = settings.environ.get(name, "")
        if not value:
            raise KeyMissing(f"the tools {item.name} need the variable {name}, which is not set")
        return value

    headers = {}
    for name, text in table.headers.items():
        # A header is a secret as a whole and in its parts.
        parts = {variable: value_of(variable) for variable in VARIABLE.findall(text)}
        KNOWN_SECRETS.add(*parts.values())
        headers[name] = VARIABLE.sub(lambda match, parts=parts: parts[match[1]], text)  # type: ignore[misc]
    env = {name: value_of(name) for name in table.env}
    login = None
    if table.url:
        kept = stored_secrets(settings, item.name, table.url)
        headers = {**kept.get("headers", {}), **headers}
        if not any(name.lower() == "authorization" for name in headers):
            name = item.name
            url = table.url
            login = Login(
                client_metadata=table.client_metadata,
                kept=kept.get("login", {}),
                load=lambda: stored_secrets(settings, name, url).get("login", {}),
                keep=lambda kept: store_secrets(
                    settings, name, url, {"login": kept}, plaintext=_in_file(settings, name, url)
                ),
            )
    KNOWN_SECRETS.add(*secrets_in(headers), *secrets_in(env))
    options = {field.name: getattr(table, field.name) for field in fields(table)}
    options |= {"headers": headers, "allow": (*table.allow, *allow)}
    return ToolServer(name=item.name, variables=env, login=login, **options)


def stored_secrets(settings: Settings, name: str, url: str) -> dict[str, Any]:
    """Return the `headers` and the `login` that are stored for a server at this address.

    Raises `KeyMissing`.
    """
    secrets: dict[str, Any] = json.loads(open_key_store(settings)(tool_selector(name), url) or "{}")
    _remember(secrets)
    return secrets


def store_secrets(
    settings: Settings, name: str, url: str, parts: Mapping[str, Any], *, plaintext: bool
) -> None:
    """Store the `headers` or the `login` of a server beside what is stored for it.

    Raises `KeyMissing`.
    """
    _remember(parts)
    kept = {**stored_secrets(settings, name, url), **parts}
    open_key_store(settings).set(tool_selector(name), url, json.dumps(kept), plaintext=plaintext)


def _remember(parts: Mapping[str, Any]) -> None:
    """Let no text hold the `headers` or the `login` of a server."""
    KNOWN_SECRETS.add(*parts.get("headers", {}).values(), *login_secrets(parts.get("login", {})))


def _in_file(settings: Settings, name: str, url: str) -> bool:
    """Return whether the user wants the secrets of a server in a file.

    Raises `KeyMissing` without a keyring, too.
    """
    store = open_key_store(settings)
    entry = store.entry(tool_selector(name), url)
    if entry is None:
        store.check_keyring()
    return entry is not None and entry.where == "file"


def _allowed_tools(settings: Settings) -> dict[str, list[str]]:
    """Return the tools that `--allow-tools NAME[.TOOL]` allows, by server. Raises `UsageError`."""
    allowed: dict[str, list[str]] = {}
    for text in settings[ALLOW_SETTING]:
        server = ""
        for item in all_tool_servers(settings):
            is_of_server = text == item.name or text.startswith(f"{item.name}.")
            # A server's name may hold dots too: the longest one counts.
            if is_of_server and len(item.name) > len(server):
                server = item.name
        find_tool_server(settings, server or text)
        allowed.setdefault(server, []).append(
            text.removeprefix(server).removeprefix(".") or EVERY_TOOL
        )
    return allowed


# For the command line


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsRow:
    """What is known of one server without asking it. `objection` says why the policy forbids it."""

    configured: ConfiguredTools
    recipient: str
    objection: str
    workers: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.configured.name

    @property
    def where(self) -> str:
        """Its command or its address."""
        table = self.configured.table
        return table.url or " ".join(table.command) or "built in"

    def to_json(self) -> dict[str, Any]:
        table = self.configured.table
        headers = {**table.headers, **dict.fromkeys(plain_secrets(table.headers), REDACTED)}
        return {
            "name": self.name,
            **dump(table),
            "headers": headers,
            "recipient": self.recipient,
            "forbidden": self.objection or None,
            "workers": list(self.workers),
            "source": self.configured.source,
        }


def list_tool_servers(settings: Settings) -> list[ToolsRow]:
    """Return the servers of the settings."""
    rows = []
    for item in all_tool_servers(settings):
        server = server_for_policy(item)
        users = []
        for listed in settings.workers:
            if item.name in listed.worker.tools:
                users.append(listed.worker.name)
        row = ToolsRow(
            configured=item,
            recipient=server.recipient,
            objection=settings.policy.denial_reason(server.recipient_facts),
            workers=tuple(users),
        )
        rows.append(row)
    return rows


def find_tool_server(settings: Settings, name: str) -> ConfiguredTools:
    """Return the server of this name. Raises `UsageError`."""
    servers = all_tool_servers(settings)
    for item in servers:
        if item.name == name:
            return item
    names = ", ".join(names_of(servers))
    hint = "conductor tools add NAME"
    if names:
        hint = f"known: {names}"
    raise UsageError(f"no tool server is named {name!r:.60}", hint=hint)


def add_tool_server(
    settings: Settings,
    name: str,
    given: Mapping[str, Any],
    headers: Mapping[str, str],
    *,
    plaintext: bool = False,
) -> bool:
    """Add a server, or change one that was added. Returns whether it existed.

    A secret in `headers` is stored for its address in the keyring, or as `plaintext` beside the
    list of keys. Raises `UsageError`, `ConfigError` or `KeyMissing`.
    """
    check_changeable(settings, "tools", name)
    before = own_section(settings.paths, "tools").get(name, {})
    changes = without_none(given)
    # A server is a program or an address: the new one replaces the other.
    if "command" in changes or "url" in changes:
        changes = {"command": None, "url": None, **changes}
    url = changes.get("url") or before.get("url")
    if (headers and not url) or not all(name and text for name, text in headers.items()):
        hint = (
            f"conductor tools add {name} https://example.com/mcp --header 'Authorization: Bearer …'"
        )
        raise UsageError("a header has a name and a value, and goes to an address", hint=hint)
    secret = plain_secrets(headers)
    KNOWN_SECRETS.add(*secrets_in(secret))
    if headers:
        listed = {**before.get("headers", {}), **headers}
        for name_of_secret in secret:
            listed.pop(name_of_secret, None)
        changes["headers"] = listed or None
    plaintext = plaintext or (bool(secret) and _in_file(settings, name, url))
    try:
        update_tool_server(settings.paths, name, changes)
    except ConfigError as error:
        raise UsageError(error.message, hint=error.hint) from None
    if secret or plaintext:
        stored = stored_secrets(settings, name, url).get("headers", {})
        store_secrets(settings, name, url, {"headers": stored | secret}, plaintext=plaintext)
    return bool(before)


Visit = tuple[str, Callable[[str], Awaitable[Mapping[str, str]]]]
"""Where a browser comes back to after a login, and what sends it away.

The latter returns the query with which the browser came back.
"""


def try_tool_servers(
    settings: Settings,
    names: Sequence[str],
    log_in: Callable[[str], AbstractAsyncContextManager[Visit]] | None,
) -> list[CheckResult]:
    """Start these servers, all of them if none is named, and ask each for its tools.

    Nothing is called. `log_in` has the user log in at the server of a name. Raises `KeyMissing`
    where a login could not be kept.
    """
    import asyncio  # what reads the settings needs no event loop

    if WEB_TOOLS in names and configured_web(settings) is not None:
        message = f"the tools {WEB_TOOLS} are built in, and are no server that could be tried"
        raise UsageError(message, hint="ask a question that needs them: conductor ask …")
    items = [find_tool_server(settings, name) for name in names] or list(settings.tool_servers)

    async def try_all() -> list[CheckResult]:
        one_at_a_time = asyncio.Lock()

        async def try_one(item: ConfiguredTools) -> CheckResult:
            result = await _try(item, settings)
            wanted = _wanted_scope(settings, item)
            if log_in is None and wanted:
                return replace(
                    result, fields={**result.fields, "notices": [_tell_of_rights(wanted)]}
                )
            if log_in is None or not (wanted or result.text.startswith(ASKS_FOR_LOGIN)):
                return result
            _in_file(settings, item.name, item.table.url)
            async with one_at_a_time, log_in(item.name) as visit:
                return await _try(item, settings, visit)

        return list(await asyncio.gather(*map(try_one, items)))

    return run_async(try_all())


def _wanted_scope(settings: Settings, item: ConfiguredTools) -> str:
    """Return the rights that a server asked for beyond those of its login; empty for none."""
    if not item.table.url:
        return ""
    login = stored_secrets(settings, item.name, item.table.url).get("login", {})
    return str(login.get(WANTED_SCOPE, ""))


def _tell_of_rights(wanted: str) -> str:
    return f"it has asked for further rights ({one_line(wanted):.200}); a terminal can grant them"


def _tool_json(tool: OfferedTool) -> dict[str, Any]:
    return {
        "name": tool.own_name,
        "read_only": tool.read_only,
        "allowed": tool.allowed,
        "description": tool.tool.description,
    }


async def _try(
    item: ConfiguredTools, settings: Settings, visit: Visit | None = None
) -> CheckResult:
    import asyncio

    from conductor_cli.tools.session import McpToolBox

    loop = asyncio.get_running_loop()
    began = loop.time()
    offered = list[dict[str, Any]]()
    notices = tuple[str, ...]()
    problem = ""
    try:
        server = server_of(item, settings)
        if server.login is not None and visit is not None:
            server.login.redirect, server.login.visit = visit
        box = McpToolBox({item.name: server}, KNOWN_SECRETS.redact)
    except KeyMissing as error:
        problem = error.message
    else:
        try:
            offered = list(map(_tool_json, await box.offered([item.name])))
            notices = box.take_notices()
            problem = box.problem_with(item.name)
        finally:
            await box.close()
    address = "-- COMMAND"
    if item.table.url:
        address = "URL"
    hint = f"start it, or change it: conductor tools add {item.name} {address}"
    if problem.startswith(ASKS_FOR_LOGIN) or visit is not None:
        hint = f"a login needs a terminal and a browser: conductor tools test {item.name}"
    result = CheckResult(
        name=item.name,
        state="ok",
        text="",
        hint=hint,
        seconds=loop.time() - began,
        fields={"problem": None, "notices": list(notices), "tools": offered},
    )
    if problem:
        fields = {**result.fields, "problem": problem, "notices": []}
        return replace(result, state="failed", text=problem, code=1, fields=fields)
    return result
