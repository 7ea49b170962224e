"""Training of what ships (`rehearsal`), and what rewards teach a small planner (`rewards`).

`stages` runs both.
"""
