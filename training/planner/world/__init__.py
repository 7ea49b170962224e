"""A world of real programs and real models, in which plans are rewarded.

Nothing in it is drawn from a probability.

tables.py     two releases of public tables as SQLite files, one of them years older
programs.py   the workers that are programs: Python, bc, SQLite
models.py     the workers that are models, with their answers kept
questions.py  questions with one answer that can be checked: compositions of operations
run.py        a plan over these workers: the answer and the reward
check.py      what a plan can earn here, before anything is trained
cases.py      questions over drawn pools, as a planner is sent them, and lessons of true steps
sampling.py   replies to one prompt, whose common beginnings are computed once
groups.py     plans that llama.cpp samples for a question, run and rewarded
rewarded.py   the training by rewards, and the arms that it is compared with
count.py      what counting finds in the log of rewards
rules.py      rules that have seen no reward
judge.py      the test, and compare.py the differences of two planners in it
alone.py      one model in the test, without a planner
"""
