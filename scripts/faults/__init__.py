"""Fault campaigns.

The system, the network, files and kills do their worst, and what was promised must hold.

Each campaign is a module with `run(tries)`, and a row of the table in `__main__`. It calls
`tries.attempt` for everything that it tries, and the report counts.
"""
