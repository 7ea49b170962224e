"""Training a conductor by reinforcement learning (GRPO) over the user's own workers and cases: `conductor train`.

torch, transformers and TRL are the extra `train`. They are imported only by the modules marked with a star.

recipe            the settings of a training
tasks             cases as exercises, and which workers are on offer for each
cost              an estimate of calls, tokens and money
hardware          what a training runs on, and whether the weights fit
checkpoints       the state of a training on disk, and the lock on its directory
rollouts          sampled plans, run by the ordinary `Conductor`; rewards: what a run is worth
budget            what the workers' answers cost, held to a limit
metrics           the figures of each step, and their file
job               what a training needs beside the model: its reward function
distributed       several processes that train one model
dependencies      errors for libraries that are not installed
base_model *      the model that a training starts from
grpo *            TRL's trainer with our reward; metrics_callback *: what happens between its steps
session *         one run of the trainer, from its settings to the exported file
gguf_export       a directory saved by transformers or PEFT to GGUF
"""
