"""Training of the planner that ships.

A pretrained model of half a billion weights learns to plan over any pool.

written.jsonl   questions as people type them, with their plans
shapes.txt      shapes of questions that one worker answers
fillers.txt     what fills the slots of the shapes
files.txt       attached files of the shapes
tasks.py        the questions of lessons: written ones, and those that are drawn from shapes
pools.py        workers with drawn names, models, order and cards; whom a step should go to
lessons.py      questions over pools, with their plans: the prompts that `conductor ask` sends
packing.py      many lessons over one pool as one row of tokens, so that the pool is read once
supervised.py   the training of an adapter; it can be stopped and goes on
examine.py      the adapter in llama.cpp, with the grammar, on the published file
sheet.py        its plans as a run reads them, for judges who do not know who wrote them
ship.py         the adapter that was examined, packed, with its figures
"""
