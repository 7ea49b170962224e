"""The command line: declares options, calls `app`, prints. `commands` is the tree of commands, `start` runs one.

A command is a module of its name. What several commands share is beside them. `repl` is the conversation of `chat`,
which has a prompt before Typer is loaded.
"""
