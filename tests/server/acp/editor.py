"""Editors for tests: the SDK's client in this process, whose messages are checked by the schema."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from acp._transport import memory_transport_pair
from acp.agent.connection import AgentSideConnection
from acp.client.connection import ClientSideConnection
from acp.connection import StreamDirection, StreamEvent
from acp.helpers import text_block
from acp.schema import (
    AllowedOutcome,
    DeniedOutcome,
    PermissionOption,
    PromptResponse,
    RequestPermissionResponse,
    ToolCallUpdate,
)

from conductor_cli.programs.schema_process import fault_of_value
from conductor_cli.server.acp.agent import EditorAgent
from conductor_cli.server.options import ServerOptions

SCHEMA: Final = Path(__file__).with_name("schema-v1.json.gz")
"""`schema/v1/schema.json` of `@agentclientprotocol/sdk` 2.4.0 on npm (Apache-2.0), compressed."""
SCHEMA_SHA256: Final = "0d0b1ca83c4872e5473f68926a894c7a8203b59b118e2a79bfe43dd76fbcbc1a"


@cache
def schema_parts() -> dict[str, Any]:
    content = gzip.decompress(SCHEMA.read_bytes())
    assert hashlib.sha256(content).hexdigest() == SCHEMA_SHA256
    parts: dict[str, Any] = json.loads(content)["$defs"]
    return parts


def part_of(method: str, ending: tuple[str, ...]) -> str:
    """The name of the part of the schema that a message of this method has to follow."""
    for name, part in schema_parts().items():
        if part.get("x-method") == method and name.endswith(ending):
            return name
    raise AssertionError(f"the schema has no {ending} of {method}")


def check_by_schema(part: str, value: object) -> None:
    document = {"$ref": f"#/$defs/{part}", "$defs": schema_parts()}
    fault = fault_of_value(document, value)
    assert not fault, f"{part}: {fault}: {json.dumps(value)[:500]}"


@dataclass
class Editor:
    """An editor. `choose` answers requests for permission; None stands for a closed dialog."""

    choose: Callable[[ToolCallUpdate, list[PermissionOption]], str | None] = lambda _, options: (
        options[0].option_id
    )
    directory: Path = field(default_factory=Path.cwd)
    messages: list[dict[str, Any]] = field(default_factory=list)
    permission_requests: list[ToolCallUpdate] = field(default_factory=list)
    shown: asyncio.Event = field(default_factory=asyncio.Event)
    connection: ClientSideConnection = field(init=False)
    session: str = ""
    _methods: dict[object, str] = field(default_factory=dict)

    def observe(self, event: StreamEvent) -> None:
        """Keep what the agent writes, and check it."""
        message = event.message
        if event.direction is StreamDirection.OUTGOING:
            return
        assert message["jsonrpc"] == "2.0"
        self.messages.append(message)
        if "method" in message:
            check_by_schema(
                part_of(message["method"], ("Request", "Notification")), message["params"]
            )
        elif "error" in message:
            check_by_schema("Error", message["error"])
        self.shown.set()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """The observer has it."""

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        self.permission_requests.append(tool_call)
        choice = self.choose(tool_call, options)
        if choice is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(
            outcome=AllowedOutcome(outcome="selected", option_id=choice)
        )

    def updates(self, kind: str) -> list[dict[str, Any]]:
        """The updates of one kind so far, of any session."""
        updates = []
        for message in self.messages:
            if message.get("method") == "session/update":
                update = message["params"]["update"]
                if update["sessionUpdate"] == kind:
                    updates.append(update)
        return updates

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(update["content"]["text"] for update in self.updates(kind))

    async def until(self, is_shown: Callable[[], object]) -> None:
        """Wait until what the agent has written shows something."""
        async with asyncio.timeout(30):
            while not is_shown():
                self.shown.clear()
                await self.shown.wait()

    async def open(self, **fields: Any) -> str:
        """Begin a session, in the directory of the editor if no other is given."""
        cwd = fields.pop("cwd", str(self.directory))
        response = await self.connection.new_session(cwd=cwd, **{"mcp_servers": [], **fields})
        self.session = response.session_id
        return self.session

    async def ask(self, *blocks: Any) -> PromptResponse:
        prompt = [text_block(block) if isinstance(block, str) else block for block in blocks]
        return await self.connection.prompt(session_id=self.session, prompt=prompt)


@asynccontextmanager
async def connected(
    editor: Editor, *, approves: bool = True, **options: Any
) -> AsyncIterator[None]:
    """An agent in this process that this editor has, until the block ends."""
    near, far = memory_transport_pair()
    agent: Any = EditorAgent(ServerOptions(**{"flags": {}, **options}), "0", approves=approves)
    client: Any = editor
    AgentSideConnection(agent, far)
    editor.connection = ClientSideConnection(client, near, observers=[editor.observe])
    try:
        yield
    finally:
        await agent.close()
        await editor.connection.close()


def talk(editor: Editor, talking: Callable[[Editor], Awaitable[None]], **options: Any) -> Editor:
    """Have an editor talk to an agent in a session; returns the editor."""

    async def both() -> None:
        async with connected(editor, **options):
            await editor.connection.initialize(protocol_version=1)
            await editor.open()
            await talking(editor)

    asyncio.run(both())
    return editor
