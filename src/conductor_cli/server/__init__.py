"""Servers: the orchestra for other programs. Each is started by a command of its own.

    http    `conductor serve`: the process, its connections, access, routes and page
    api     the APIs that its clients speak, as pure readers and writers
    mcp     `conductor mcp`: tools of an MCP server
    acp     `conductor acp`: the agent of an editor
    runs    what all servers share: from a request to a run, and from a run to its readers

Like `app`, nothing here prints. Libraries of an extra are imported only inside functions.
"""
