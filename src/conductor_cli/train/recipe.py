"""How a real conductor is trained by reward: the settings of its course. Values only.

The preset `rehearsal` is the course of `practice.rehearsal`, over the models that ship with this package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from conductor_cli.core.plan import MAX_STEPS

COLOCATE: Final = "colocate"
"""vLLM in the processes that train, on their GPUs; an address in its place is a vLLM server, `off` is none."""
OFF: Final = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSettings:
    """A low-rank adapter on every linear layer but the output. `rate`: it wants a larger one than whole weights do."""

    rank: int = 32
    alpha: int = 64
    rate: float = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One training by GRPO.

    `base` is a directory in Hugging Face's form, or the id of a model in its cache. Of the cases `problems` are drawn.
    Each of `steps` steps takes `prompts` of them and samples `group` plans for each, of at most `longest` tokens and
    `plan_steps` steps, at `temperature`; `rows` of them at once on a GPU. A valid plan with a wrong answer is worth
    `format_bonus`. The rate rises over `warmup` steps and falls as a cosine; there is no KL term.

    `profile` is how the conductor is spoken to, a key of `core.profile.PROFILES`. Where that names the workers, each
    question gets between `fewest` and all of them, drawn and in an order that is drawn, as the published adaptive
    recipe does; by number alone they can only be known by their place, so there all are on offer, in their order.

    `vllm` says what samples the plans (see `COLOCATE`), `vllm_memory` is its share of a GPU. `at_once` runs go on at
    the same time. `cost_weight` is what the dearest right plan of a group pays, below `1 - format_bonus`.
    """

    base: str = "Qwen/Qwen2.5-7B-Instruct"
    profile: str = "prompted"
    problems: int = 960
    steps: int = 200
    prompts: int = 4
    group: int = 64
    rows: int = 4
    longest: int = 1024
    plan_steps: int = MAX_STEPS
    temperature: float = 1.0
    rate: float = 1e-6
    warmup: int = 6
    betas: tuple[float, float] = (0.9, 0.999)
    loss: str = "bnpo"
    format_bonus: float = 0.5
    cost_weight: float = 0.0
    fewest: int = 2
    lora: LoraSettings | None = None
    vllm: str = COLOCATE
    vllm_memory: float = 0.3
    at_once: int = 64
    keep: int = 20
    seed: int = 42

    @property
    def samples(self) -> int:
        """Plans of a step."""
        return self.prompts * self.group


PUBLISHED: Final = Recipe()
"""The published recipe (arXiv 2512.04388, section 3.2 and appendix A), for cases and workers of one's own."""
