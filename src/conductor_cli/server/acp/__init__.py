"""`conductor acp`: the orchestra as an agent of an editor, by the Agent Client Protocol.

process    standard input and output, one message a line
agent      what an editor may ask for: sessions, prompts, modes, their end
session    one conversation: its directory, its mode, its runs, its slash commands
content    the blocks of a prompt, as a question with files
updates    the events of a run, as what an editor shows, in the order in which it is sent
"""
