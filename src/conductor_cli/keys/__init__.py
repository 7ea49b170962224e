"""API keys of providers: where they are stored, for which address, and reading them again."""
