"""Programs that are started, and ended together with everything that they have started.

guarded_program    a program of the user: a worker or a server of tools, under `process_guard`, a script of its own
bounded_child      a piece of our own work in a child process with bounded time and memory
schema_check       checks against JSON Schemas, in such a child where they may be much work; `schema_process` makes them
"""
