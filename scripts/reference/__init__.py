"""The generated documents: completions, man pages, docs/cli.md, config.md and events.md; all from the code."""
