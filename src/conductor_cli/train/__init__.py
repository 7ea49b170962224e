"""Training a conductor by reinforcement learning (GRPO) over the user's own workers and cases: `conductor train`.

`recipe` has the settings, `job` the exercises and metrics, `rollouts` runs sampled plans and rewards them, `budget`
holds the costs to a limit, and `checkpoints` is the state on disk. `base_model` and `grpo` alone import torch,
transformers and TRL, which are the extra `train`.
"""
