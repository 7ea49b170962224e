"""The generated documents: completions for three shells, man pages, docs/cli.md; all read from the commands."""
