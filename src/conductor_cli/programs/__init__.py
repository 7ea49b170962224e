"""Programs that are started, and ended together with everything that they have started: workers and servers of tools.

`guard` is a script that runs one program, `guarded` starts it and learns how the program ended.
"""
