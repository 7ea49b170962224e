"""The models' one vocabulary, and how their files are asked.

Through the adapter that runs use, and remembered.

The vocabulary is a byte-level BPE of 1280 tokens. It is trained on the small words of the phrasings
only. What is worked on, and every answer, is in capitals or digits, which no merge has seen: so a
phrase is few tokens, and PARIS is five letters. `python -m training.rehearsal.asking` trains it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from conductor_cli.core.chat import Message, Request
from conductor_cli.models.base import Model
from conductor_cli.models.llama.adapter import Llama
from conductor_cli.models.llama.loading import LlamaOptions
from conductor_cli.rehearsal.players import (
    CHECKER,
    REFUSAL,
    WORKER_CONTEXT,
    WORKER_MAX_TOKENS,
    clean_answer,
)
from conductor_cli.rehearsal.words import asks_for_check, normalize
from conductor_cli.train.recipe import require
from training.rehearsal.exercises import GENERALIST, luck
from training.rehearsal.operations import SKILLS, UNSEEN
from training.rehearsal.world import ProblemSettings, draw_problem

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SIZE: Final = 1280
END: Final = "<|end|>"
PAD: Final = "<|pad|>"
SPECIAL: Final = (END, PAD)

SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| "
    r"?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
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
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(SPLIT), "isolated"), bytes_]
    )
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(
        texts(),
        trainers.BpeTrainer(
            vocab_size=SIZE,
            special_tokens=list(SPECIAL),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return made


def texts() -> Iterator[str]:
    """What it is trained on: training questions and subtasks without what is worked on."""
    random = Random("tokenizer")
    for _ in range(_TEXTS):
        problem = draw_problem(random, ProblemSettings(skills=(*SKILLS, UNSEEN)))
        for text in (normalize(problem.question), *(f"\n{hop.subtask}" for hop in problem.hops)):
            yield re.sub(r"[A-Z0-9]+", "", text)


def token_of(tokenizer: Tokenizer, special: str) -> int:
    """The number of a special token."""
    token = tokenizer.token_to_id(special)
    assert token is not None
    return token


def fingerprint(tokenizer: Tokenizer) -> str:
    """What tells one tokenizer from another: a hash of its tokens and merges."""
    model = json.loads(tokenizer.to_str())["model"]
    kept = json.dumps([model["vocab"], model["merges"]], sort_keys=True)
    return hashlib.sha256(kept.encode()).hexdigest()


WEAK_TEMPERATURE: Final = 1.0  # at which the generalist stands in for a member that fails


class Reply(NamedTuple):
    """What a file wrote.

    `confidence` is the probability of all of it, 0 where nobody computed it.
    """

    text: str
    confidence: float = 0.0


async def reply(
    model: Model, prompt: str, *, temperature: float = 0.0, seed: int | None = None
) -> Reply:
    """What `model` writes after `prompt`."""
    messages = (Message(role="user", content=prompt),)
    request = Request(
        messages=messages, max_tokens=WORKER_MAX_TOKENS, temperature=temperature, seed=seed
    )
    chunks = [chunk async for chunk in model.stream(request)]
    return Reply("".join(chunk.text for chunk in chunks), chunks[-1].confidence or 0.0)


class Bank:
    """The files of a directory, opened when they are first asked.

    Each call is asked once, and then remembered.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._replies: dict[tuple[str, str, int | None], Reply] = {}
        self._models: dict[str, Llama] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for model in self._models.values():
            await model.close()

    async def ask(self, name: str, prompt: str, *, seed: int | None = None) -> Reply:
        """What the file `name` answers; with a seed, by chance and not the likeliest."""
        kept_reply = self._replies.get((name, prompt, seed))
        if kept_reply is None:
            if name not in self._models:
                options = LlamaOptions(
                    context=WORKER_CONTEXT, threads=1, gpu_layers=0, refuse_below=0.0
                )
                self._models[name] = Llama(self._directory / f"{name}.gguf", options)
            temperature = WEAK_TEMPERATURE
            if seed is None:
                temperature = 0.0
            kept_reply = await reply(self._models[name], prompt, temperature=temperature, seed=seed)
            kept_reply = kept_reply._replace(text=clean_answer(kept_reply.text))
            self._replies[name, prompt, seed] = kept_reply
        return kept_reply

    async def member(self, strengths: Mapping[str, float], prompt: str, seed: int) -> str:
        """What a member of a pool answers whose skills have these strengths.

        A member is a bundle of specialists. Of those that do not refuse, the one that is most
        confident takes the call. With a strength of .6, a share of .6 of all calls gets its answer,
        by a draw from `seed`, member and prompt; the rest gets what the generalist writes by
        chance, which is right only sometimes. If all refuse, so does a member.

        The checker works an answer out before it judges one. It is asked for checks only: else it
        would be the member that can do everything.
        """
        chance = luck(strengths, prompt, seed)
        subtask = prompt.rpartition("\ns:")[2] or prompt
        names = sorted(strengths)
        if CHECKER in names and not asks_for_check(subtask.removesuffix("a:")):
            names.remove(CHECKER)
        answers = [(name, await self.ask(name, prompt)) for name in names]
        able = [(name, answer) for name, answer in answers if answer.text != REFUSAL]
        if not able:
            return REFUSAL
        name, answer = max(able, key=lambda item: item[1].confidence)
        if chance.random() < strengths[name]:
            return answer.text
        if name == CHECKER:
            if answer.text == "YES":
                return "NO"
            return "YES"
        return (await self.ask(GENERALIST, prompt, seed=chance.randrange(1_000_000))).text


if __name__ == "__main__":
    FILE.write_text(train().to_str(), encoding="utf-8")
