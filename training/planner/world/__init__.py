"""A world of real programs and real models, in which plans are rewarded.

Nothing in it is drawn from a probability.

tables.py     two releases of public tables as SQLite files, one of them years older programs.py
the workers that are programs: Python, bc, SQLite
questions.py  questions with one answer that can be checked: compositions of operations, and word
problems models.py     the workers that are models, with their answers kept
run.py        a plan over these workers: the answer and the reward
check.py      what a plan can earn here, before anything is trained
"""
