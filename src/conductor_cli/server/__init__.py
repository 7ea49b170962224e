"""Servers: the orchestra for other programs. Each is started by a command of its own.

    http    `conductor serve`: the routes for clients of the APIs in `api`
    mcp     `conductor mcp`: tools of an MCP server
    runs    what all servers share: runs over models that stay open

Like `app`, nothing here prints. Libraries of an extra are imported only inside functions.
"""
