"""The application layer: from settings, keys, workers and policy to an opened conductor.

Functions here return data and raise `ConductorError`. They print nothing and know no command line,
so that the commands, a server, training and the Python API share them.
"""
