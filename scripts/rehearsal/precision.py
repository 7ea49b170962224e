"""Training with numbers of 16 bits, on a CPU that multiplies them in hardware. Imports torch and transformers.

The weights, the optimizer and the loss keep 32 bits; only products of matrices have 16, which makes a step of these
models almost twice as fast (`LOG.md`). Attention keeps 32 bits: torch's has no fast backward pass for 16 on a CPU.
"""

from __future__ import annotations

from typing import Any, Final

from conductor_cli.train.base_model import has_fast_bfloat16
from conductor_cli.train.dependencies import require

with require("torch"):
    import torch
with require("transformers"):
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

ATTENTION: Final = "sdpa_32_bits"
"""The name of the attention in the settings of a model."""


def mixed_precision() -> torch.autocast:
    """The context of a forward pass: products of matrices have 16 bits where that is fast."""
    return torch.autocast("cpu", torch.bfloat16, enabled=has_fast_bfloat16())


def _attention(module: Any, query: Any, key: Any, value: Any, mask: Any, **settings: Any) -> Any:  # noqa: ANN401
    with torch.autocast("cpu", enabled=False):
        return sdpa_attention_forward(module, query.float(), key.float(), value.float(), mask, **settings)


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
