"""The server of `conductor mcp` at an address, for the MCP conformance suite, which has no stdio.

The handlers are those of `conductor mcp`; the transport is that of the SDK. Its argument is a port.
"""

from __future__ import annotations

import sys
from typing import Final

import uvicorn

from conductor_cli import __version__
from conductor_cli.server.mcp.handlers import Handlers
from conductor_cli.server.options import ServerOptions
from conductor_cli.server.runs.run_starter import RunStarter

HOST: Final = "127.0.0.1"

if __name__ == "__main__":
    port = int(sys.argv[1])
    handlers = Handlers(RunStarter(ServerOptions(flags={})), __version__)
    app = handlers.server.streamable_http_app(host=HOST)
    uvicorn.run(app, host=HOST, port=port, log_level="error")
