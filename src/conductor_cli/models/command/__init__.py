"""Workers that are programs.

A prompt goes in on standard input, an answer comes out on standard output.
"""
