"""`conductor mcp`: the orchestra as an MCP server over standard input and output."""
