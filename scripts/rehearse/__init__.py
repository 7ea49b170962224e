"""`make rehearsal`: train all that ships with the rehearsal, from nothing, in stages.

plan        the stages: what each makes, what it needs, the command that makes it
work        what is made, what each was begun with, and the calls of stages, with their minutes
report      the minutes of each stage, what was reached, and how the files get into the package
__main__    what is missing next, two jobs side by side
"""
