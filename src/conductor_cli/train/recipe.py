"""The settings of a training, and errors for the libraries that only training needs.

The reward of a plan has no price: no training with one was measured, and `--max-cost` bounds what
is spent.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.core.plan import MAX_STEPS
from conductor_cli.system.installation import extra_command


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSettings:
    """A low-rank adapter on every linear layer but the output."""

    rank: int = 32
    alpha: int = 64
    rate: float = 3e-5  # The learning rate: an adapter needs a larger one than full weights do


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One training by GRPO.

    If `profile` shows workers by name, each question is offered some of them, drawn at random and
    in random order, as in the published adaptive recipe. If it shows only numbers, a worker is
    known by its position alone, so every question is offered all of them in the same order.
    """

    # A directory in Hugging Face format, or the id of a model in its cache
    base: str = "Qwen/Qwen2.5-7B-Instruct"
    # The prompt format of the conductor, a key of `core.profile.PROFILES`
    profile: str = "prompted"
    max_cases: int = 960  # At most so many of the user's cases are used
    validation: int = 200  # So many of them, but no more than a fifth, are never trained on
    steps: int = 200
    prompts: int = 8  # Cases in each step
    group: int = 8  # Plans that are sampled for each case
    draws: int = 4  # How often a plan is run; its reward is the mean
    tries: int = 3  # How often groups whose plans all earn the same are drawn, with other cases
    batch_size: int = 4  # Plans that go through a GPU at once
    max_plan_tokens: int = 1024
    max_plan_steps: int = MAX_STEPS
    rate: float = 1e-6  # The highest learning rate
    warmup: int = 6  # Steps over which it rises, before it falls as a cosine
    kl: float = 0.001  # The weight of the distance from the model at the start
    # The share of the tokens, the least certain ones, that take part in the gradient
    uncertain: float = 0.2
    entropy: float = 0.002  # The weight of a bonus for their uncertainty
    format_bonus: float = 0.5  # What a valid plan with a wrong answer earns
    unused_step: float = 0.05  # What each step costs that the answer does not depend on
    reward: str = ""  # The user's own reward function, as `FILE.py:FUNCTION`; empty: the built-in
    min_workers: int = 2  # The fewest workers of an exercise
    max_workers: int | None = None  # The most; None for the whole pool
    lora: LoraSettings | None = None
    vllm: bool = False  # vLLM samples the plans, on the GPU that trains
    vllm_memory: float = 0.3  # Its share of the GPU's memory
    concurrency: int = 64  # How many runs are active at once
    checkpoint_every: int = 20
    seed: int = 42

    @property
    def samples(self) -> int:
        """The number of plans in a step."""
        return self.prompts * self.group


DEFAULT_RECIPE: Final = Recipe()
"""GRPO as in the study of docs/research/rewards.md; base model, length and reward are those of
arXiv 2512.04388.
"""


@contextmanager
def require(library: str) -> Iterator[None]:
    """Turn a failed import inside the block into an error that says what to install."""
    try:
        yield
    except ImportError as error:
        hint = extra_command("train")
        if library == "vllm":
            hint = f'{sys.executable} -m pip install "trl[vllm]"'
        raise ConfigError(
            f"training needs {library}, which cannot be imported: {error}", hint=hint
        ) from error
