"""What is kept between runs. `interfaces` has one interface each; files and SQLite are its embedded implementation.

    interfaces   spending, traces, ratings, attachments, circuits
    home         the one place that opens them
    postgres     the limits of a day for several replicas, in a PostgreSQL database
    spending     what all processes spend on each day, in SQLite
    ratings      verdicts about answers, in an append-only file
    attachments  the bytes of images and documents
    trace_store  the directory of traces: opening, finding, removing
    trace_file   one JSON Lines file per run: writing, reading and following it; the chain of hashes
    trace_lines  events as its lines; old_lines reads those of older versions
    trace_check  whether a file is whole; keeping what is
    run_index    what a list shows of each run, in SQLite; rebuilt when it is missing
    stored_run, run_summary, run_list   the rows of the index, made of traces and shown

`run_index`, `stored_run` and `run_list` do not load the events: a list takes hardly longer than starting Python.
"""

from __future__ import annotations
