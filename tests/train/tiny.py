"""A base model for tests: a tiny Qwen2 with random weights that writes plans often."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from conductor_cli.core import prompts
from conductor_cli.core import prompts as fewshots
from conductor_cli.core.pool import Limits, Pool, Worker
from conductor_cli.core.question import Question
from conductor_cli.train.job import bare_orchestra
from conductor_cli.train.recipe import DEFAULT_RECIPE

TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PLANS: Final = (
    "A | - | Answer it.",
    "B | - | Answer it.",
    "\nB | 1 | Answer it.",
    "no plan",
    "C | - | Answer it.",
)
SPECIAL: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def base(directory: Path, *, template: str = TEMPLATE, context: int = 4096, **config: Any) -> Path:
    """A model directory in Hugging Face format. Most of what the model writes is one of `PLANS`."""
    reader = tokenizer(template)
    reader.save_pretrained(directory)
    torch.manual_seed(7)
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": context,
        "vocab_size": len(reader),
        "bos_token_id": None,
        "eos_token_id": reader.eos_token_id,
        "pad_token_id": reader.pad_token_id,
    }
    model = Qwen2ForCausalLM(Qwen2Config(**{**sizes, **config}, tie_word_embeddings=False))
    plan_tokens = [reader.convert_tokens_to_ids(plan) for plan in PLANS]
    with torch.no_grad():
        # One place of all embeddings is the same, so that the output can like some tokens whatever
        # was read.
        model.model.embed_tokens.weight[:, 0] = 1.0
        model.lm_head.weight.mul_(10)
        model.lm_head.weight[:, 0] = -5.0
        model.lm_head.weight[plan_tokens, 0] = 1.0
        model.lm_head.weight[reader.eos_token_id, 0] = 1.3
    model.save_pretrained(directory)
    return directory


def lines() -> list[str]:
    """The lines of a conductor's system message."""
    pool = Pool(workers=(Worker(name="ann", kind="openai"),))
    system = (
        bare_orchestra(DEFAULT_RECIPE, pool, Limits())
        .team.planning_request(Question(text="-"), Limits())
        .messages[0]
        .content
    )
    return sorted({line for line in system.splitlines() if len(line) > 9})


def tokenizer(template: str) -> Any:
    """A byte-level tokenizer with each plan as one token.

    Each line that is the same in every prompt is one token, too. So prompts are short.
    """
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=letters, show_progress=False)
    inner.train([prompts.__file__, fewshots.__file__], trainer)
    inner.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    inner.add_tokens([AddedToken(text, normalized=False) for text in (*PLANS, *lines())])
    reader = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    reader.chat_template = template or None
    return reader
