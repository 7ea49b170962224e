"""The one vocabulary of all models of the rehearsal: a byte-level BPE of 1280 tokens.

It is trained on the small words of the phrasings only. What is worked on, and every answer, is in capitals or digits,
which no merge has seen: so a phrase is few tokens, and PARIS is five letters.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from conductor_cli.rehearsal.words import normalize
from conductor_cli.train.recipe import require
from scripts.rehearsal.operations import SKILLS, UNSEEN
from scripts.rehearsal.world import ProblemSettings, draw_problem

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SIZE: Final = 1280
END: Final = "<|end|>"
PAD: Final = "<|pad|>"
SPECIAL: Final = (END, PAD)

SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The pattern of Qwen2's tokenizer, which llama.cpp calls `qwen2`. Each digit is a token."""

_TEXTS: Final = 4000


FILE: Final = Path(__file__).with_name("tokenizer.json")
"""The tokenizer as it was trained. Models that were trained with it need exactly this one."""


@cache
def build() -> Tokenizer:
    """The tokenizer."""
    with require("tokenizers"):
        from tokenizers import Tokenizer

    return Tokenizer.from_str(FILE.read_text(encoding="utf-8"))


def train() -> Tokenizer:
    """Train the tokenizer: the same one every time, as long as the phrasings stay the same."""
    with require("tokenizers"):
        from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"), bytes_])
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(
        texts(),
        trainers.BpeTrainer(
            vocab_size=SIZE, special_tokens=list(SPECIAL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )  # fmt: skip
    return made


def texts() -> Iterator[str]:
    """What it is trained on: training questions and subtasks without what is worked on."""
    random = Random("tokenizer")  # noqa: S311 - reproducible, no secret
    for _ in range(_TEXTS):
        problem = draw_problem(random, ProblemSettings(skills=(*SKILLS, UNSEEN)))
        for text in (normalize(problem.question), *(f"\n{hop.subtask}" for hop in problem.hops)):
            yield re.sub(r"[A-Z0-9]+", "", text)


def token_of(tokenizer: Tokenizer, special: str) -> int:
    """The number of a special token."""
    found = tokenizer.token_to_id(special)
    assert found is not None
    return found


def fingerprint(tokenizer: Tokenizer) -> str:
    """What tells one tokenizer from another: a hash of its tokens and merges."""
    model = json.loads(tokenizer.to_str())["model"]
    kept = json.dumps([model["vocab"], model["merges"]], sort_keys=True)
    return hashlib.sha256(kept.encode()).hexdigest()


if __name__ == "__main__":
    FILE.write_text(train().to_str(), encoding="utf-8")
