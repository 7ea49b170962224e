"""Tools for workers, served by MCP servers. `run` knows them only as a `core.toolbox.ToolBox`."""
