"""What is kept between runs. `interfaces` has what files and a database have in common.

    interfaces   spending, traces, attachments
    home         the one place that opens them
    postgres     the state of several replicas, in a PostgreSQL database
    spending     what all processes spend on each day, in SQLite
    records      ratings, conversations and other names, and the bytes of attachments
    trace_store  the directory of traces: opening, finding, removing
    trace_file   one JSON Lines file per run: writing, reading and following it; the chain of hashes
    trace_lines  events as its lines; old_lines reads those of older versions
    trace_check  whether a file is whole; keeping what is
    run_index    what a list shows of each run, in SQLite; rebuilt when it is missing
    stored_run, run_summary, run_list   the rows of the index, made of traces and shown

`run_index`, `stored_run` and `run_list` do not load the events: a list takes hardly longer than
starting Python.
"""

from __future__ import annotations
