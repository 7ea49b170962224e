"""The generated documents: completions, man pages, docs/cli.md, config.md and events.md.

All from the code.
"""
