"""The settings of a training, and errors for the libraries that only training needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.core.plan import MAX_STEPS


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSettings:
    """A low-rank adapter on every linear layer but the output.

    `rate` is its learning rate: an adapter needs a larger one than full weights do.
    """

    rank: int = 32
    alpha: int = 64
    rate: float = 3e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One training by GRPO.

    `base` is a directory in Hugging Face format, or the id of a model in its cache. At most `max_cases` of the user's
    cases are used. `validation` of them, but no more than a fifth, are the validation set, which is never trained on.
    Each of `steps` steps takes `prompts` cases and samples `group` plans for each, of at most
    `max_plan_tokens` tokens and `max_plan_steps` steps; `batch_size` plans go through a GPU at once. A plan is run
    `draws` times, and its reward is the mean. Groups whose plans all earn the same are drawn again with other cases,
    until there were `tries`. A valid plan with a wrong answer earns `format_bonus`, and each step that the answer does
    not depend on costs `unused_step`. The learning rate rises over `warmup` steps and then falls as a cosine.

    `kl` weighs the distance from the model at the start. The share `uncertain` of the tokens, the least certain ones,
    take part in the gradient, and `entropy` weighs a bonus for their uncertainty.

    `profile` is the prompt format of the conductor, a key of `core.profile.PROFILES`. If it shows workers by name,
    each question is offered at least `min_workers` of them, and at most `max_workers` where that is given, drawn at
    random and in random order, as in the published adaptive recipe. If it shows only numbers, a worker is known by its
    position alone, so every question is offered all of them in the same order.

    With `vllm`, vLLM samples the plans, on the GPU that trains, with the share `vllm_memory` of its memory.
    `concurrency` is how many runs are active at once.
    """

    base: str = "Qwen/Qwen2.5-7B-Instruct"
    profile: str = "prompted"
    max_cases: int = 960
    validation: int = 200
    steps: int = 200
    prompts: int = 8
    group: int = 8
    draws: int = 4
    tries: int = 3
    batch_size: int = 4
    max_plan_tokens: int = 1024
    max_plan_steps: int = MAX_STEPS
    rate: float = 1e-6
    warmup: int = 6
    kl: float = 0.001
    uncertain: float = 0.2
    entropy: float = 0.002
    format_bonus: float = 0.5
    unused_step: float = 0.05
    min_workers: int = 2
    max_workers: int | None = None
    lora: LoraSettings | None = None
    vllm: bool = False
    vllm_memory: float = 0.3
    concurrency: int = 64
    checkpoint_every: int = 20
    seed: int = 42

    @property
    def samples(self) -> int:
        """The number of plans in a step."""
        return self.prompts * self.group


DEFAULT_RECIPE: Final = Recipe()
"""GRPO as in the study of docs/rewards.md; base model, length and reward are those of arXiv 2512.04388."""


@contextmanager
def require(library: str) -> Iterator[None]:
    """Turn a failed import inside the block into an error that says what to install."""
    try:
        yield
    except ImportError as error:
        extra = "trl[vllm]" if library == "vllm" else "conductor-llm[train]"
        hint = f"pip install '{extra}'"
        raise ConfigError(f"training needs {library}, which cannot be imported: {error}", hint=hint) from error
