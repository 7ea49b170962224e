"""`make scale`: measures what several processes on one state promise, beside its bounds.

`__main__` has the campaigns and their table, `stage` the processes that all of them use, `provider`
the model server.
"""
