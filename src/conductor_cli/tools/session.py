"""The servers of tools of one run.

Each is started in a task of its own when its tools are first wanted, and again if it dies, is asked
by any step, and ends with the run.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core.formatting import format_count, format_duration
from conductor_cli.core.input_requests import NoForm, form_request, visit_request
from conductor_cli.core.redact import login_secrets
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.tools import AskPerson, OfferedTool, ToolResult
from conductor_cli.programs.schema_check import CheckStopped, find_fault
from conductor_cli.system.known_secrets import KNOWN_SECRETS
from conductor_cli.system.network import async_transport
from conductor_cli.system.threads import run_in_thread_if_large
from conductor_cli.tools.offered_tools import MAX_TOOLS, Keep, offer_tools, read_result, read_tool
from conductor_cli.tools.server_program import (
    MAX_MESSAGE,
    ServerProgram,
    bounded_stream,
    readable_stream,
)
from conductor_cli.tools.servers import ASKS_FOR_LOGIN, WANTED_SCOPE, Login, ToolServer

if TYPE_CHECKING:
    from httpx2 import Response
    from mcp import Client
    from mcp.client import ClientRequestContext
    from mcp.client._transport import TransportStreams
    from mcp.client.auth import OAuthClientProvider
    from mcp.client.auth.oauth2 import OAuthContext
    from mcp.shared.auth import (
        AuthorizationCodeResult,
        OAuthClientInformationFull,
        OAuthToken,
    )
    from mcp.types import CallToolResult, ElicitRequestParams, ElicitResult


START: Final = 30.0
"""Seconds for a server to start and to list its tools; one that is fetched first, as by npx, takes
long.
"""
LOGIN: Final = 300.0  # Seconds for a server to start where the user logs in meanwhile
END: Final = 1.5  # Seconds for a server to end before it is left behind
SESSION_HEADER: Final = "mcp-session-id"
METHOD_NOT_FOUND: Final = -32601
CONNECTION_CLOSED: Final = -32000  # Of the SDK
MAX_STARTS: Final = 3  # How often a server is started in one run
MAX_PAGES: Final = 100
RENEWAL_SECONDS: Final = 30.0  # Seconds before its end that a token is renewed
MAX_SCOPE: Final = 1000  # Characters of the rights that a server asks for
ANSWER_SECONDS: Final = 30.0  # To connect to a server at an address, and to send it something
STREAM_SECONDS: Final = 300.0  # How long a stream of such a server may be silent

_SCOPE: Final = re.compile(r"[!#-\[\]-~]+")  # The characters of a right (RFC 6749, 3.3)
_NOWHERE: Final = logging.NullHandler()


class ServerError(Exception):
    """A server of tools cannot be used. The text says why."""


async def login_client(server: ToolServer, login: Login) -> OAuthClientProvider:
    """Return what has the SDK log in at a server, and renew that.

    With what is kept of a login, or by a visit.
    """
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata
    from pydantic import AnyUrl

    # Another process may have renewed it
    if login.kept.get("until", 0.0) < time.time() + RENEWAL_SECONDS:
        login.kept = await asyncio.to_thread(login.load)
    storage = _KeptLogin(login)
    visit = _LoginVisit(server, login)
    provider = OAuthClientProvider(
        server.url,
        OAuthClientMetadata(client_name="conductor", redirect_uris=[AnyUrl(login.redirect)]),
        storage,
        visit.open_address,
        visit.code,
        client_metadata_url=login.client_metadata or None,
    )
    storage.fill_context(provider.context)
    return provider


class _KeptLogin:
    """Where the SDK stores the tokens of a login: a `TokenStorage` of it.

    A new login is a new registration too, so with a visit it begins empty: the registration that is
    kept names another port of this machine.
    """

    def __init__(self, login: Login) -> None:
        self._login = login
        self._kept: dict[str, Any] = {} if login.visit else login.kept
        self._context: OAuthContext | None = None

    def fill_context(self, context: OAuthContext) -> None:
        """Give the SDK what is kept of the server, and store what it learns of it."""
        from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata

        self._context = context
        kept = self._kept
        if kept:
            context.token_expiry_time = max(kept["until"] - RENEWAL_SECONDS, 1.0)
        if "server" in kept:
            context.oauth_metadata = OAuthMetadata.model_validate(kept["server"])
        if "resource" in kept:
            resource = ProtectedResourceMetadata.model_validate(kept["resource"])
            context.protected_resource_metadata = resource

    async def get_tokens(self) -> OAuthToken | None:
        from mcp.shared.auth import OAuthToken

        return OAuthToken.model_validate(self._kept["tokens"]) if self._kept else None

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        from mcp.shared.auth import OAuthClientInformationFull

        if not self._kept:
            return None
        return OAuthClientInformationFull.model_validate(self._kept["client"])

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._kept["client"] = client_info.model_dump(mode="json", exclude_none=True)
        KNOWN_SECRETS.add(*login_secrets(self._kept))

    async def set_tokens(self, tokens: OAuthToken) -> None:
        kept = self._kept
        kept["tokens"] = tokens.model_dump(mode="json", exclude_none=True)
        KNOWN_SECRETS.add(*login_secrets(kept))
        kept["until"] = time.time() + _valid_seconds(tokens)
        # Without these the SDK could not renew the tokens in another process.
        assert self._context is not None
        for name, metadata in (
            ("server", self._context.oauth_metadata),
            ("resource", self._context.protected_resource_metadata),
        ):
            if metadata is not None:
                kept[name] = metadata.model_dump(mode="json", exclude_none=True)
        self._login.kept = kept
        await asyncio.to_thread(self._login.keep, kept)


def _valid_seconds(tokens: OAuthToken) -> float:
    """Return how long tokens are valid.

    Those of unknown life are renewed at each start, where that can be done.
    """
    if tokens.expires_in is not None:
        return tokens.expires_in
    if tokens.refresh_token:
        return 0
    return 1e9


class _LoginVisit:
    """Sends the user to the page of a login, and tells the SDK what came back."""

    def __init__(self, server: ToolServer, login: Login) -> None:
        self._server = server
        self._login = login
        self._query: Mapping[str, str] = {}

    async def open_address(self, address: str) -> None:
        """Wait until the user has been there. Raises `ServerError`, also where nobody can."""
        if self._login.visit is None:
            raise ServerError(f"{ASKS_FOR_LOGIN} {self._server.name}")
        self._query = await self._login.visit(address)
        KNOWN_SECRETS.add(*login_secrets(self._query))
        if "error" in self._query:
            raise ServerError(f"the login was refused: {one_line(self._query['error']):.100}")

    async def code(self) -> AuthorizationCodeResult:
        """Return the code that the server gave, with what it must be checked against."""
        from mcp.shared.auth import AuthorizationCodeResult

        return AuthorizationCodeResult(
            code=self._query.get("code", ""),
            state=self._query.get("state"),
            iss=self._query.get("iss"),
        )


def with_scope(challenge: str, scope: str) -> str:
    """Return the header of a server that asks for a login, which then asks for these rights."""
    scheme, _, rest = challenge.partition(" ")
    parameters = [f'scope="{scope}"']
    if rest.strip():
        parameters.append(rest.strip())  # of two scopes the library reads the first
    return f"{scheme or 'Bearer'} {', '.join(parameters)}"


class ServerSession:
    """A connection to one server. `notices` are for the user."""

    def __init__(self, server: ToolServer, keep: Keep | None = None) -> None:
        self.server = server
        self._keep = keep
        self.notices: list[str] = []
        self.stale = False  # Whether the list of tools may have changed since it was read
        self._program = ServerProgram(server.command, server.variables) if server.command else None
        # Why the connection has ended; empty while it holds, and where its program knows the reason
        self._broken = ""
        self.is_forgotten = False
        """Whether the server does not know this session any more, as after a restart."""
        self._is_not_found = False  # Whether the newest request of the session got a 404
        self._client: Client | None = None
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._lacks = ""  # Why the newest request was refused that needs further rights
        self._told_scopes = set[str]()
        self._calls = CallsUnderWay()
        self._tools: tuple[OfferedTool, ...] = ()
        self._result_schemas: dict[str, Mapping[str, Any]] = {}
        """What the server says that the structured results of its tools follow, by the tool's own
        name.
        """

    @property
    def is_open(self) -> bool:
        holds = self._task is not None and not self._task.done()
        return self._client is not None and holds and not self._problem()

    async def start(self) -> None:
        """Connect, and read the list of tools. Raises `ServerError`."""
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._serve(ready), name=f"tools {self.server.name}")
        seconds = START
        if self.server.login is not None and self.server.login.visit is not None:
            seconds = LOGIN
        try:
            async with asyncio.timeout(seconds):
                self._client = await ready
                await self._list()
        except TimeoutError:
            why = self._problem() or f"no answer within {format_duration(seconds)}"
            await self.close()
            raise ServerError(why) from None
        except BaseException:
            await self.close()
            raise

    async def _serve(self, ready: asyncio.Future[Client]) -> None:
        """Hold the connection open until `close`.

        The SDK's task groups begin and end in this task.
        """
        from mcp import Client, types

        async def on_message(message: object) -> None:
            self.stale = self.stale or isinstance(message, types.ToolListChangedNotification)

        try:
            # Without callbacks the SDK refuses sampling and roots.
            client = Client(
                self._transport(),
                message_handler=on_message,
                elicitation_callback=self._answer_request,
                cache=None,
            )
            async with client:
                # The SDK's own check would run on this event loop without a bound.
                client.session.validate_tool_result = self._check_result  # type: ignore[method-assign]
                ready.set_result(client)
                await self._stop.wait()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever the SDK raises, groups included
            if not ready.done():
                why = self._problem() or self._take_lack() or _describe(error)
                ready.set_exception(ServerError(why))
        finally:
            if not ready.done():
                ready.cancel()

    @asynccontextmanager
    async def _transport(self) -> AsyncGenerator[TransportStreams, None]:
        if self._program is not None:
            async with self._program.transport() as streams:
                yield streams
            return
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        # The SDK logs failures with tracebacks, which Python prints where no log is kept. We tell
        # them ourselves.
        logging.getLogger("mcp").addHandler(_NOWHERE)
        # Compressed replies could be far larger than what is counted.
        headers = {**self.server.headers, "Accept-Encoding": "identity"}
        login = self.server.login
        auth = None
        if login and (login.kept or login.visit):
            auth = await login_client(self.server, login)
        async with httpx2.AsyncClient(
            headers=headers,
            auth=auth,
            timeout=httpx2.Timeout(ANSWER_SECONDS, read=STREAM_SECONDS),
            transport=async_transport(httpx2),
            event_hooks={"response": [self._watch_scope, self._bound_response]},
        ) as http:
            opened = streamable_http_client(
                self.server.url, http_client=http, max_sse_event_size=MAX_MESSAGE
            )
            async with opened as streams:
                yield streams

    async def tools(self) -> tuple[OfferedTool, ...]:
        """Return the tools that the server has now. Raises `ServerError`."""
        if self.stale:
            await self._list()
        return self._tools

    async def _list(self) -> None:
        self.stale = False
        assert self._client is not None
        tools: dict[str, OfferedTool] = {}
        schemas: dict[str, Mapping[str, Any]] = {}
        cursor = None
        cursors = set[str]()
        has_more = False
        try:
            async with asyncio.timeout(START):
                for _ in range(MAX_PAGES):
                    page = await self._client.list_tools(cursor=cursor, cache_mode="bypass")
                    for tool in page.tools:
                        if not self.server.only or tool.name in self.server.only:
                            tools[tool.name] = read_tool(self.server, tool)
                        if tool.output_schema is not None:
                            schemas[tool.name] = tool.output_schema
                    cursor = page.next_cursor
                    if cursor in cursors:
                        cursor = None  # The page only leads to itself
                    if cursor is not None:
                        cursors.add(cursor)
                    has_more = len(tools) > MAX_TOOLS
                    if cursor is None or has_more:
                        break
        except TimeoutError:
            raise ServerError("it does not list its tools") from None
        except Exception as error:  # noqa: BLE001 - as in `_serve`
            self._note_end(error)
            raise ServerError(self._problem() or self._take_lack() or _describe(error)) from None
        self._tools = tuple(tools.values())[:MAX_TOOLS]
        self._result_schemas = schemas
        self._note_list(len(tools), has_more=has_more, is_read_whole=cursor is None)

    def _note_list(self, count: int, *, has_more: bool, is_read_whole: bool) -> None:
        """Leave a notice where tools are not used, or where there are none."""
        name = self.server.name
        listed = format_count(count, "tool")
        if has_more:
            if not is_read_whole:
                listed += " or more"
            self.notices.append(
                f"{name} lists {listed}; the first {MAX_TOOLS} are used, or those in "
                f"tools.{name}.only"
            )
        elif not is_read_whole:
            self.notices.append(
                f"{name} lists {listed} on the first {MAX_PAGES} pages, and the rest is not read"
            )
        elif not count:
            self.notices.append(
                f"{name} lists no tool that may be used: conductor tools test {name}"
            )

    async def call(
        self, name: str, arguments: Mapping[str, Any], ask: AskPerson | None = None
    ) -> ToolResult:
        """Call a tool. A failure is a result; only a cancellation is raised.

        `ask` is for what the server wants to know of a person. The time that they take does not
        count.
        """
        assert self._client is not None
        try:
            async with self._calls.timed_call(self.server.seconds, ask):
                result = read_result(
                    await self._client.call_tool(name, dict(arguments)), name, self._keep
                )
        except TimeoutError:
            result = _failed(f"no result within {format_duration(self.server.seconds)}")
        except Exception as error:  # noqa: BLE001 - as in `_serve`
            self._note_end(error)
            result = _failed(self._problem() or self._take_lack() or _describe(error))
        # A tool that is gone fails; the list then tells what there is instead. With the newest
        # protocol, servers do not say by themselves that it changes.
        self.stale = self.stale or result.error
        return result

    async def _answer_request(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult:
        """Answer what the server asks a person: ask them, or decline where nobody is there."""
        from mcp import types

        del context  # it says nothing of the call
        ask = self._calls.ask
        try:
            if isinstance(params, types.ElicitRequestURLParams):
                request = visit_request(self.server.name, params.message, params.url)
            else:
                request = form_request(self.server.name, params.message, params.requested_schema)
        except NoForm as problem:
            self._tell_of_decline(params.message, str(problem))
            return types.ElicitResult(action="decline")
        if ask is None:
            self._tell_of_decline(params.message, "nobody is at a terminal who could be asked")
            return types.ElicitResult(action="decline")
        with self._calls.paused():
            reply = await ask(request)
        content: dict[str, Any] | None = None
        if reply.action == "accept" and not request.url:
            content = dict(reply.values)
        return types.ElicitResult(action=reply.action, content=content)

    def _tell_of_decline(self, message: str, why: str) -> None:
        self.notices.append(
            f"{self.server.name} asked for input, which was declined because {why}; "
            f"it wrote: {one_line(message):.200}"
        )

    async def _check_result(self, name: str, result: CallToolResult) -> None:
        """Raise `RuntimeError` for a structured result that breaks the schema of its tool."""
        if (schema := self._result_schemas.get(name)) is None:
            return
        if (
            result.structured_content is None
            and "structured_content" not in result.model_fields_set
        ):
            raise RuntimeError("its result lacks the structured content that the tool promises")
        try:
            fault = await find_fault(schema, result.structured_content)
        except CheckStopped as stopped:
            raise RuntimeError(
                f"its result cannot be checked against its schema: {stopped}"
            ) from None
        if fault:
            raise RuntimeError(f"its result does not follow its schema: {fault}")

    def _note_end(self, error: Exception) -> None:
        """Break a connection that has ended, or whose session the server has forgotten."""
        code = getattr(error, "code", None)
        # A server may say with a 404 that it has no such method, too
        if self._is_not_found and code != METHOD_NOT_FOUND:
            self.is_forgotten = True
            self._break("it has forgotten its session (HTTP 404)")
        elif code == CONNECTION_CLOSED:
            self._break("the connection has ended")

    def _problem(self) -> str:
        if self._program is not None and self._program.problem:
            return self._program.problem
        return self._broken

    async def _watch_scope(self, response: Response) -> None:
        """Have a login ask for all the rights that the server wants, or keep them for the next."""
        login = self.server.login
        if login is None:
            return
        if login.visit is None:
            if response.status_code == 403:
                await self._keep_wanted_scope(response, login)
        elif response.status_code == 401 and login.kept.get(WANTED_SCOPE):
            from mcp.client.auth.utils import extract_scope_from_www_auth, union_scopes

            challenged = extract_scope_from_www_auth(response)
            granted = login.kept.get("tokens", {}).get("scope")
            wanted = union_scopes(granted, login.kept[WANTED_SCOPE])
            response.headers["WWW-Authenticate"] = with_scope(
                response.headers.get("WWW-Authenticate", ""), union_scopes(challenged, wanted) or ""
            )

    async def _keep_wanted_scope(self, response: Response, login: Login) -> None:
        """Keep the rights that the server asks for beyond those of the login, for the next one."""
        from mcp.client.auth.utils import (
            extract_field_from_www_auth,
            extract_scope_from_www_auth,
            union_scopes,
        )

        if extract_field_from_www_auth(response, "error") != "insufficient_scope":
            return
        scope = " ".join(_SCOPE.findall(extract_scope_from_www_auth(response) or ""))[:MAX_SCOPE]
        # The library would begin a login, with which nobody could go on.
        del response.headers["WWW-Authenticate"]
        named = ""
        if scope:
            named = f" ({scope})"
        self._lacks = f"it asks for further rights{named}: conductor tools test {self.server.name}"
        if scope not in self._told_scopes:
            self._told_scopes.add(scope)
            self.notices.append(f"{self.server.name} refused a call, because {self._lacks}")
        if scope:
            login.kept[WANTED_SCOPE] = union_scopes(login.kept.get(WANTED_SCOPE), scope)
            await asyncio.to_thread(login.keep, login.kept)

    def _take_lack(self) -> str:
        """Return why a request was refused that needs further rights; empty for another reason."""
        lack = self._lacks
        self._lacks = ""
        return lack

    async def _bound_response(self, response: Response) -> None:
        """Have a reply that is too long for a message, or asks for a login, end the connection.

        Letters of which one half was sent are replaced.
        """
        from httpx2 import AsyncByteStream

        request = response.request
        if request.method == "POST" and SESSION_HEADER in request.headers:
            self._is_not_found = response.status_code == 404
        login = self.server.login
        if response.status_code == 401 and login is None:
            self._break("it refuses the header Authorization (HTTP 401)")
        elif response.status_code == 401 and login is not None and not (login.kept or login.visit):
            self._break(f"{ASKS_FOR_LOGIN} {self.server.name}")

        # A stream of events is bounded by the SDK, event by event.
        content_type = response.headers.get("content-type", "")
        stream = response.stream
        if isinstance(stream, AsyncByteStream) and content_type.startswith("application/json"):
            stream = bounded_stream(stream, self._break)
        if isinstance(stream, AsyncByteStream):
            response.stream = readable_stream(stream)

    def _break(self, why: str) -> None:
        self._broken = self._broken or why

    async def close(self) -> None:
        """End the server, within about a second."""
        self._stop.set()
        task = self._task
        self._task = None
        self._client = None
        if task is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(END):
                await asyncio.wait({task})
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=END)
        if task.done() and not task.cancelled():
            task.exception()  # seen


class CallsUnderWay:
    """The calls of one server that have not ended: their deadlines, and who can be asked."""

    def __init__(self) -> None:
        self._deadlines: dict[asyncio.Timeout, AskPerson | None] = {}
        self._pauses = 0
        self._paused_at = 0.0
        self._dues: dict[asyncio.Timeout, float | None] = {}

    @property
    def ask(self) -> AskPerson | None:
        """What asks the person of the first call that has one."""
        for ask in self._deadlines.values():
            if ask is not None:
                return ask
        return None

    @asynccontextmanager
    async def timed_call(self, seconds: float, ask: AskPerson | None) -> AsyncGenerator[None, None]:
        """A call that may take so many seconds. Raises `TimeoutError`."""
        async with asyncio.timeout(seconds) as deadline:
            self._deadlines[deadline] = ask
            try:
                yield
            finally:
                del self._deadlines[deadline]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No deadline comes meanwhile, and each is later by the time that this takes."""
        loop = asyncio.get_running_loop()
        self._pauses += 1
        if self._pauses == 1:
            self._paused_at = loop.time()
            self._dues = {deadline: deadline.when() for deadline in self._deadlines}
            for deadline in self._dues:
                deadline.reschedule(None)
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._resume(loop.time() - self._paused_at)

    def _resume(self, waited: float) -> None:
        for deadline, due in self._dues.items():
            if deadline in self._deadlines and due is not None:
                deadline.reschedule(due + waited)


def _failed(why: str) -> ToolResult:
    return ToolResult(text=f"the call failed: {why}", error=True)


def _describe(error: BaseException) -> str:
    """Return the innermost reason, in one line."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.strerror:
        return f"it cannot be started or reached: {error.strerror}"
    text = one_line(str(error))
    # Of pydantic, whose own text has the value and an address
    faults = getattr(error, "errors", None)
    if type(error).__name__ == "ValidationError" and faults is not None:
        fault = faults()[0]
        field = ".".join(map(str, fault["loc"]))
        text = one_line(f"its answer does not follow the protocol: {field}: {fault['msg']}")
    # Of httpx, which only the SDK loads here
    if type(error).__name__ in {"ConnectError", "ConnectTimeout"}:
        text = f"its address cannot be reached: {text}"
    if text:
        return f"{text:.300}"
    return type(error).__name__


class McpToolBox:
    """A `core.toolbox.ToolBox` over MCP servers.

    `redact` removes secrets from what tools give back. `keep` keeps the bytes of images; without it
    there are none.
    """

    def __init__(
        self,
        servers: Mapping[str, ToolServer],
        redact: Callable[[str], str],
        keep: Keep | None = None,
    ) -> None:
        self._servers = servers
        self._keep = keep
        self._redact = redact
        self._sessions: dict[str, ServerSession] = {}
        self._starts: dict[str, int] = {}
        self._unusable: dict[str, str] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._notices: list[str] = []

    async def offered(self, servers: Sequence[str]) -> tuple[OfferedTool, ...]:
        """Return the tools of these servers, under names that every provider takes."""
        return offer_tools(
            await asyncio.gather(*(self._tools(name) for name in servers if name in self._servers))
        )

    async def call(
        self, tool: OfferedTool, arguments: Mapping[str, Any], ask: AskPerson | None = None
    ) -> ToolResult:
        """Call a tool, if its server can be used and the arguments follow its schema."""
        try:
            if fault := await find_fault(tool.tool.parameters, arguments):
                return ToolResult(
                    text=f"not called: the arguments do not follow the schema: {fault}", error=True
                )
            session = await self._session(tool.server)
        except CheckStopped as stopped:
            text = (
                f"not called: the arguments cannot be checked against the tool's schema: {stopped}"
            )
            return ToolResult(text=text, error=True)
        except ServerError as error:
            return _failed(f"{tool.server} cannot be used: {error}")
        result = await session.call(tool.own_name, arguments, ask)
        if session.is_forgotten:  # so nothing was done
            try:
                session = await self._session(tool.server)
            except ServerError as error:
                return _failed(f"{tool.server} cannot be used: {error}")
            result = await session.call(tool.own_name, arguments, ask)
        text = await run_in_thread_if_large(len(result.text), partial(self._redact, result.text))
        return ToolResult(text=text, error=result.error, attachments=result.attachments)

    def problem_with(self, server: str) -> str:
        """Return why a server could not be used; empty where it could."""
        return self._unusable.get(server, "")

    def take_notices(self) -> tuple[str, ...]:
        """Return what the user has not been told yet."""
        notices = tuple(self._notices)
        self._notices = []
        for session in self._sessions.values():
            notices += tuple(session.notices)
            session.notices.clear()
        return notices

    async def close(self) -> None:
        sessions = list(self._sessions.values())
        self._sessions = {}
        await asyncio.gather(*(session.close() for session in sessions), return_exceptions=True)

    async def _tools(self, name: str) -> tuple[OfferedTool, ...]:
        try:
            return await self._listed_tools(name)
        except ServerError as error:
            if name not in self._unusable:
                self._notices.append(f"the tools of {name} cannot be used: {error}")
            self._unusable[name] = str(error)
            return ()

    async def _listed_tools(self, name: str) -> tuple[OfferedTool, ...]:
        """Return what a server lists, in a new session where it has forgotten the one before."""
        session = await self._session(name)
        try:
            return await session.tools()
        except ServerError:
            if not session.is_forgotten:
                raise
        new_session = await self._session(name)
        return await new_session.tools()

    async def _session(self, name: str) -> ServerSession:
        async with self._locks.setdefault(name, asyncio.Lock()):
            session = self._sessions.get(name)
            if session is not None and session.is_open:
                return session
            if name in self._unusable:
                raise ServerError(self._unusable[name])
            if session is not None:
                await session.close()
            self._starts[name] = self._starts.get(name, 0) + 1
            if self._starts[name] > MAX_STARTS:
                raise ServerError(f"it ended {MAX_STARTS} times")
            if session is not None:
                self._notices.append(f"{name} has ended and is started again")
            session = ServerSession(self._servers[name], self._keep)
            self._sessions[name] = session
            await session.start()
            return session
