"""Tools for workers, served by MCP servers: programs on this machine, or addresses. `run` knows them as a `ToolBox`.

`servers` says what a server is, `stdio` runs a program, `session` talks to one server, `results` and `offers` bring
what it says into the form of `core`, and `box` has the servers of one run. The official SDK is imported where it is
used.
"""
