"""The command line: declares options, calls `app`, prints.

`command_tree` has the commands, `entry` runs one.
"""
