"""The command line: one file per command, wiring only. `commands` is the tree of them, `start` the way in."""
