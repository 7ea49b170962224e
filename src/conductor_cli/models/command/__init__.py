"""Workers that are programs: a prompt goes in on standard input, an answer comes out on standard output.

`programs` is the table of kinds and their settings, `adapter` one call, `process` a running program and its end,
`sandbox` what a program sees under bubblewrap, `events` the JSON events of known agents.
"""
