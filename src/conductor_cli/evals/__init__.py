"""Does conducting pay? The same cases and the same workers, used in every way, scored alike.

`cases` and `scorers` define questions and right answers, `systems` the ways to use the workers. `runner` runs every
case under every system, `storage` stores the results, `summary` counts them, `report` shows them.
"""
