"""The demo (`--rehearsal`): questions from a tiny world, and models that were trained on it in minutes.

normalize            what was typed in the one form that the models read
known                whether a question belongs to the world, by its words; subjects.txt are the words of its facts
workers              the demo workers and their prompts
conductor_model      the demo conductor and its prompt
held_out.jsonl       questions with their answers and hops for evaluations, practice.jsonl those for calibrations

`scripts/rehearsal` in the repository draws the questions and trains the models.
"""
