"""A conversation at the terminal.

loop          the start: the prompt first, then everything else
messages      one message after the other: a question, a command, the end
chat_session  the open conductor, the conversation so far, what it has cost
commands      the slash commands: one table, and what Tab offers for each
display       what the commands print
prompt        where messages are typed: prompt_toolkit, its keys, the right edge, the history file

prompt_toolkit is imported only here, and this package only by a chat.
"""
