"""The server of `conductor mcp` at an address, for the MCP conformance suite, which has no stdio.

The handlers are those of `conductor mcp`; the transport is that of the SDK. A call of a tool that
the suite wants is a call of `ask`, so what comes back is what conductor makes of a run: its result,
its error, its progress. Its argument is a port.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from conductor_cli import __version__
from conductor_cli.server.mcp.handlers import Handlers
from conductor_cli.server.options import ServerOptions
from conductor_cli.server.runs.run_starter import RunStarter

if TYPE_CHECKING:
    from mcp_types import CallToolRequestParams, CallToolResult

HOST: Final = "127.0.0.1"
FAULT: Final = "Fail, please."
"""What a question has that no worker of the suite answers."""

QUESTIONS: Final[Mapping[str, str]] = {
    "test_simple_text": "Why does it hail?",
    "test_tool_with_progress": "Why does it hail, and is that right?",
    "test_error_handling": f"Why does it hail? {FAULT}",
}
"""The tools that the suite calls, and the question that each asks here."""


class SuiteHandlers(Handlers):
    """The handlers of `conductor mcp`, with names of the suite for calls of `ask`."""

    async def _call_tool(self, context: Any, params: CallToolRequestParams) -> CallToolResult:
        if params.name in QUESTIONS:
            arguments = {"question": QUESTIONS[params.name]}
            params = params.model_copy(update={"name": "ask", "arguments": arguments})
        return await super()._call_tool(context, params)


if __name__ == "__main__":
    port = int(sys.argv[1])
    handlers = SuiteHandlers(RunStarter(ServerOptions(flags={})), __version__)
    app = handlers.server.streamable_http_app(host=HOST)
    uvicorn.run(app, host=HOST, port=port, log_level="error")
