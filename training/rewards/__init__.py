"""What rewards teach a small planner: a small world, a planner from nothing, four arms.

`make rewards`.

__main__   the stages: the supervised start and the arms of each training seed, and the table world
questions, workers with cards that may overstate, and what they answer; drawn from seeds planner
the planner: its prompts, its words, its weights
arms       supervised, best-of-8 and GRPO from one start, for equal processor time; the measurement
report     the table with intervals, and the verdict that was fixed beforehand
"""
