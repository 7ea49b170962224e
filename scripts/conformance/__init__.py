"""The suites of others, run over `serve` and over the check of JSON Schemas."""
