"""The runs of a server: from a request to a run, and from its events to what a client reads."""
