"""Workers that are programs: a prompt goes in on standard input, an answer comes out on standard output."""
