"""Traces on disk, and a searchable list of them.

    trace_file   one JSON Lines file per run: writing and reading it
    trace_lines  events as its lines: pieces of text that share one
    known_texts  texts that a trace has already, by their names
    hash_chain   the hash at the end of each line
    trace_check  whether a file is whole; keeping what is
    trace_store  the directory of trace files: opening, finding, removing
    stored_run   what a list shows of a run, and which runs a list asks for
    run_summary  a trace file as one row of the list
    summaries    many files at once, in several processes
    run_index    those rows kept in SQLite; rebuilt when it is missing
    run_list     rows as lines of text
    fast_list    `trace list`, `search` and `names` before anything else is loaded

The first five load the events. The others do not, so that a list takes hardly longer than starting Python.
"""

from __future__ import annotations
