"""The demo (`--rehearsal`): questions from a tiny world, and models that were trained on it in minutes.

words, operations    what there is to ask about, and what can be done with it
phrasings            how people ask for it
normalize            what was typed in the one form that the models read
world                questions with their answers and their hops, drawn from a seed
workers              the demo workers and their prompts
conductor_model      the demo conductor and its prompt

`scripts/rehearsal` in the repository trains the models.
"""
