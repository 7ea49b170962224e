"""What an editor may ask for: who we are, sessions, prompts, modes, and their end.

The SDK calls these methods with the fields of each request. Whatever goes wrong is an error of
JSON-RPC with a sentence and what to do next; the process goes on.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from acp.exceptions import RequestError
from acp.helpers import (
    update_agent_message_text,
    update_available_commands,
    update_user_message_text,
)
from acp.meta import PROTOCOL_VERSION
from acp.schema import (
    AgentCapabilities,
    AuthenticateResponse,
    AvailableCommand,
    AvailableCommandInput,
    Implementation,
    InitializeResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    SessionMode,
    SessionModeState,
    SetSessionModeResponse,
    UnstructuredCommandInput,
)

from conductor_cli.core.errors import ConductorError
from conductor_cli.core.events import Mode
from conductor_cli.core.formatting import format_count
from conductor_cli.server.acp.content import Block
from conductor_cli.server.acp.session import (
    COMMANDS,
    MODES,
    Directories,
    EditorSession,
    working_directory,
)
from conductor_cli.server.acp.updates import EditorFeed, clean
from conductor_cli.server.options import ServerOptions
from conductor_cli.state.interfaces import EDITOR_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acp.interfaces import Client
    from acp.schema import ClientCapabilities, StopReason

log = logging.getLogger(__name__)

MAX_SESSIONS: Final = 200  # Sessions of one process; each holds its conversation in memory


class EditorAgent:
    """The agent of one editor. Close it."""

    def __init__(self, options: ServerOptions, version: str, *, approves: bool = True) -> None:
        self._options = options
        self._version = version
        self._approves = approves
        self._directories = Directories(options)
        self._sessions: dict[str, EditorSession] = {}
        self._client: Client | None = None
        self._telling: set[asyncio.Task[None]] = set()

    def on_connect(self, conn: Client) -> None:
        """Note to whom updates go."""
        self._client = conn

    async def close(self) -> None:
        """Stop all runs and wait for their ends, then close what is open."""
        for session in self._sessions.values():
            if session.answering is not None:
                session.answering.cancel()
        answering = [session.answering for session in self._sessions.values() if session.answering]
        await asyncio.gather(*answering, *self._telling, return_exceptions=True)
        await self._directories.close()

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **_: Any,  # noqa: ANN401 - what later versions add
    ) -> InitializeResponse:
        """Say what this agent can do. An editor of another version refuses it or goes on."""
        del protocol_version, client_capabilities, client_info
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session=self._options.stores_traces,
                prompt_capabilities=PromptCapabilities(
                    image=True, audio=False, embedded_context=True
                ),
                mcp_capabilities=McpCapabilities(http=False, sse=False),
            ),
            auth_methods=[],
            agent_info=Implementation(name="conductor", title="conductor", version=self._version),
        )

    async def authenticate(self, method_id: str, **_: Any) -> AuthenticateResponse:  # noqa: ANN401
        """Accept: no editor has to authenticate, and keys stay in the user's settings."""
        del method_id
        return AuthenticateResponse()

    async def new_session(
        self,
        cwd: str,
        additional_directories: Sequence[str] | None = None,
        mcp_servers: Sequence[object] | None = None,
        **_: Any,  # noqa: ANN401 - what later versions add
    ) -> NewSessionResponse:
        """Begin a session in a directory."""
        session = self._open(f"{EDITOR_PREFIX}{secrets.token_hex(8)}", cwd)
        modes = self._begin(session, additional_directories, mcp_servers)
        return NewSessionResponse(session_id=session.id, modes=modes)

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[object] | None = None,
        additional_directories: Sequence[str] | None = None,
        **_: Any,  # noqa: ANN401 - what later versions add
    ) -> LoadSessionResponse:
        """Go on with a stored session: the editor is told all of its questions and answers."""
        session = self._open(session_id, cwd)
        try:
            await asyncio.to_thread(session.load)
        except ConductorError as error:
            raise request_error(error) from None
        earlier = session.turns[-1]
        turns = [(turn.question, turn.answer) for turn in earlier.question.history]
        for question, answer in [*turns, (earlier.question.text, earlier.answer)]:
            if question:
                await self._update(session.id, update_user_message_text(clean(question)))
            await self._update(session.id, update_agent_message_text(clean(answer)))
        modes = self._begin(session, additional_directories, mcp_servers)
        return LoadSessionResponse(modes=modes)

    def _open(self, session_id: str, cwd: str) -> EditorSession:
        """Return a session that has not begun. Raises `RequestError`."""
        directory = working_directory(cwd)
        if directory is None:
            raise RequestError(-32602, f"cwd is not an absolute path of a directory: {cwd!r:.200}")
        if len(self._sessions) >= MAX_SESSIONS:
            count = format_count(MAX_SESSIONS, "session")
            raise RequestError(-32603, f"{count} are open in this process: start it again")
        running = self._sessions.get(session_id)
        if running is not None and running.answering is not None:
            raise RequestError(-32602, "this session answers a prompt: cancel that first")
        return EditorSession(session_id, directory, self._directories, approves=self._approves)

    def _begin(
        self,
        session: EditorSession,
        additional_directories: Sequence[str] | None,
        mcp_servers: Sequence[object] | None,
    ) -> SessionModeState:
        """Note a session, and have the editor told its commands once it knows the session.

        Raises `RequestError`.
        """
        try:
            mode: Mode = session.settings()["conductor.mode"]
        except ConductorError as error:
            raise request_error(error) from None
        if mcp_servers:
            count = format_count(len(mcp_servers), "MCP server")
            session.remarks.append(
                f"the editor names {count}, which conductor does not start; to have workers use "
                "one: conductor tools add"
            )
        if additional_directories:
            directories = len(additional_directories)
            session.remarks.append(
                f"further directories of the editor are not used ({directories} of them): attach "
                "what matters of them to the question"
            )
        self._sessions[session.id] = session
        telling = asyncio.create_task(self._tell_commands(session.id))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)
        modes = []
        for name, description in MODES.items():
            modes.append(SessionMode(id=name, name=name, description=description))
        return SessionModeState(current_mode_id=mode, available_modes=modes)

    async def _tell_commands(self, session_id: str) -> None:
        commands = []
        for name, command in COMMANDS.items():
            takes = None
            if command.takes:
                takes = AvailableCommandInput(UnstructuredCommandInput(hint=command.takes))
            commands.append(AvailableCommand(name=name, description=command.help, input=takes))
        with suppress(ConnectionError):
            await self._update(session_id, update_available_commands(commands))

    async def _update(self, session_id: str, update: Any) -> None:  # noqa: ANN401 - of the SDK
        assert self._client is not None
        await self._client.session_update(session_id, update)

    async def set_session_mode(
        self,
        session_id: str,
        mode_id: str,
        **_: Any,  # noqa: ANN401 - what later versions add
    ) -> SetSessionModeResponse:
        """Answer the next prompts in another mode."""
        session = self._session(session_id)
        for mode in MODES:
            if mode == mode_id:
                session.mode = mode
                return SetSessionModeResponse()
        raise RequestError(-32602, f"there is no mode {mode_id!r:.40}: {', '.join(MODES)}")

    async def prompt(
        self,
        session_id: str,
        prompt: Sequence[Block],
        **_: Any,  # noqa: ANN401 - what later versions add
    ) -> PromptResponse:
        """Answer a prompt; the response says why the turn ended."""
        session = self._session(session_id)
        if session.answering is not None:
            raise RequestError(-32602, "this session answers a prompt: cancel that first")
        assert self._client is not None
        feed = EditorFeed(self._client, session_id)
        session.answering = asyncio.create_task(session.answer(prompt, feed))
        try:
            return PromptResponse(stop_reason=await _wait_for(session.answering))
        except ConductorError as error:
            raise request_error(error) from None
        finally:
            session.answering = None

    async def cancel(self, session_id: str, **_: Any) -> None:  # noqa: ANN401
        """Stop the prompt of a session. Its request is answered once its run has ended."""
        session = self._sessions.get(session_id)
        if session is not None and session.answering is not None:
            session.answering.cancel()

    def _session(self, session_id: str) -> EditorSession:
        """Return an open session. Raises `RequestError`."""
        session = self._sessions.get(session_id)
        if session is None:
            raise RequestError(-32602, f"there is no session {session_id!r:.60}: begin one")
        return session


async def _wait_for(answering: asyncio.Task[StopReason]) -> StopReason:
    """Return why a turn ended; `cancelled` where it was, and not whoever waits for it."""
    await asyncio.wait({answering})
    if answering.cancelled():
        return "cancelled"
    return answering.result()


def request_error(error: ConductorError) -> RequestError:
    """Return an error as an editor shows it: what happened, and what to do next."""
    hint = " ".join(error.hint.split())
    lines = [clean(error.message), clean(hint)]
    code = -32602 if error.kind == "usage" else -32603
    return RequestError(code, "\n".join(filter(None, lines)), {"kind": error.kind})
