"""A small model that samples plans quickly on a CPU. Imports torch and transformers.

The generation of transformers carries every text along until the longest one has ended, and reads a prompt once for
each plan that is sampled for it. Both cost more than the plans themselves in a model of this size.
"""

from __future__ import annotations

from typing import Any, Final

from conductor_cli.train.recipe import require

with require("torch"):
    import torch
with require("transformers"):
    from transformers import DynamicCache, Qwen2ForCausalLM

CROWDED: Final = 0.8
"""Texts that have ended are taken out when the share of the others falls below this."""


class SmallModel(Qwen2ForCausalLM):  # type: ignore[misc]
    """A Qwen2 whose `generate` reads each prompt once, and works no longer on a text that has ended."""

    def generate(self, input_ids: Any, attention_mask: Any, generation_config: Any = None, **settings: Any) -> Any:  # noqa: ANN401
        """Prompts and what follows them, padded on the right; as in transformers, for the settings used here.

        The shapes of `input_ids` and `attention_mask` are (texts, tokens); prompts are padded on the left.
        """
        chosen = {**(generation_config.to_dict() if generation_config else {}), **settings}
        ends = torch.tensor(chosen["eos_token_id"], device=input_ids.device).reshape(-1)
        with torch.inference_mode():
            texts = _Texts(self, input_ids, attention_mask, ends, chosen["pad_token_id"])
            for _ in range(chosen["max_new_tokens"]):
                if not texts.write(chosen["temperature"] if chosen["do_sample"] else 0.0):
                    break
        return torch.cat([input_ids, torch.stack(texts.columns, dim=1)], dim=1)


class _Texts:
    """Texts in the middle of being written. `columns` are the tokens of all, one tensor for each place."""

    def __init__(self, model: Any, prompts: Any, mask: Any, ends: Any, pad: int) -> None:  # noqa: ANN401
        self.columns: list[Any] = []
        self._model, self._ends, self._pad = model, ends, pad
        self._size = len(prompts)
        distinct, places = torch.unique(prompts, dim=0, return_inverse=True)
        every = torch.arange(self._size, device=prompts.device)
        first = torch.empty(len(distinct), dtype=torch.long, device=prompts.device).scatter_(0, places, every)
        self._cache = DynamicCache(config=model.config)
        self._mask = mask[first]
        logits = self._read(distinct)
        self._mask, self._live, self._ended = mask, every, torch.zeros_like(every, dtype=torch.bool)
        self._logits = logits[places]
        self._cache.batch_select_indices(places)

    def write(self, temperature: float) -> bool:
        """Write one token more of each text that has not ended. False if all have."""
        tokens = self._choose(temperature).masked_fill(self._ended, self._pad)
        column = torch.full((self._size,), self._pad, device=tokens.device)
        column[self._live] = tokens
        self.columns.append(column)
        self._ended |= torch.isin(tokens, self._ends)
        going = ~self._ended
        if not going.any():
            return False
        if going.sum() < CROWDED * len(going):
            self._cache.batch_select_indices(going.nonzero()[:, 0])
            self._live, self._ended = self._live[going], self._ended[going]
            self._mask, tokens = self._mask[going], tokens[going]
        self._mask = torch.cat([self._mask, torch.ones_like(tokens)[:, None]], dim=1)
        self._logits = self._read(tokens[:, None])
        return True

    def _choose(self, temperature: float) -> Any:  # noqa: ANN401 - a tensor
        if not temperature:
            return self._logits.argmax(dim=-1)
        return torch.multinomial(torch.softmax(self._logits / temperature, dim=-1), 1)[:, 0]

    def _read(self, tokens: Any) -> Any:  # noqa: ANN401 - tensors
        """The logits after the last of these tokens, which are the last of the mask."""
        positions = self._mask.cumsum(1).sub(1).clamp(min=0)[:, -tokens.size(1) :]
        found = self._model.model(
            input_ids=tokens, attention_mask=self._mask, position_ids=positions, past_key_values=self._cache,
            use_cache=True,
        )  # fmt: skip
        return self._model.lm_head(found.last_hidden_state[:, -1])
