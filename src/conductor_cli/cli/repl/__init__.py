"""A conversation at the terminal.

talk        one line after the other: a question, a command, the end
desk        what lies on the desk meanwhile: the open conductor, the conversation, what it has cost
commands    the slash commands, a row each
showing     what they print
prompt      where lines are typed: prompt_toolkit, its keys, the right edge
completing  what a tab offers
history     what was typed before, in a file
hearing     signals while somebody waits
keys        what is typed while no prompt is there

prompt_toolkit is imported here and nowhere else, and this room only by `conductor chat`.
"""
