"""The demo (`--rehearsal`): questions from a tiny world, and models that were trained on it in minutes.

normalize            what was typed in the one form that the models read
operations           what can be done there; operations.json has the words and values of each operation
known                whether a question belongs to the world, by its words
workers              the demo workers and their prompts
conductor_model      the demo conductor and its prompt
plan_check           whether a plan does what the question asks, by its words
held_out.jsonl       questions with their answers and hops for evaluations, practice.jsonl those for calibrations

`scripts/rehearsal` in the repository draws the questions and trains the models.
"""
