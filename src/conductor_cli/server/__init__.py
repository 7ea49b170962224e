"""Servers: the orchestra for other programs. `conductor mcp` is one; each is started by a command of its own.

Like `app`, nothing here prints. The SDK of the Model Context Protocol is the extra `tools`, and is imported only
inside functions.
"""
