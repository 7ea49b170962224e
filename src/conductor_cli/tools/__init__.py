"""Tools for workers, served by MCP servers: programs on this machine, or addresses.

`run` knows them as a `ToolBox`.
"""
