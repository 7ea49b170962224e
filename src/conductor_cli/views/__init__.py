"""A run as output: the answer or JSON on standard output, progress on standard error."""
