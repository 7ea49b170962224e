"""The command line, wiring only. `commands` is the tree of commands, `start` the way in.

A command is a file of its name; one that needs more is a folder, whose `__init__` is the command. What several
commands share stands beside them. `repl` is what `chat` does; it has a prompt before anything of Typer is loaded.
"""
