"""Servers: the orchestra for other programs. Each is started by a command of its own.

    mcp     `conductor mcp`: tools of an MCP server
    api     the APIs of models that clients speak
    runs    what all servers share: runs over models that stay open

Like `app`, nothing here prints. Libraries of an extra are imported only inside functions.
"""
