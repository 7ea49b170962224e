"""The demo (`--demo`).

Questions from a tiny world, and models that were trained on it in minutes.

`words` reads what was typed, `players` has the models and their prompts. `held_out.jsonl.xz` has
questions with their answers and hops for evaluations. `training/rehearsal` in the repository draws
the questions and trains the models.
"""
