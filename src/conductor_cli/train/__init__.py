"""Training a conductor by reinforcement learning (GRPO) over the user's own workers and cases.

`conductor train`.

`base_model` and `grpo` alone import torch, transformers and TRL, which are the extra `train`.
"""
