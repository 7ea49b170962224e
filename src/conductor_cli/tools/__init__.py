"""Tools for workers, served by MCP servers: programs on this machine, or addresses. `run` knows them as a `ToolBox`.

`servers` says what a server is, `server_program` runs a program, `session` talks to one server and has the servers of
one run, `offered_tools` brings what they say into the form of `core`. The official SDK is imported where it is used.
"""
