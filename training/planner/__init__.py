"""Training of the planner that ships.

A pretrained model of half a billion weights learns to plan over any pool.

shapes.txt    what developers ask, and the plans that are right for it
fillers.txt   what fills the slots of the shapes
files.txt     attached files
skills.py     which tags of a card a step asks for
pools.py      workers with drawn names, models, order and cards; whom a step should go to lessons.py
questions over pools, with their plans: the prompts that `conductor ask` sends packing.py    many
lessons over one pool as one row of tokens, so that the pool is read once supervised.py the training
of an adapter; it can be stopped and goes on
examine.py    the adapter in llama.cpp, with the grammar, on the published file
"""
