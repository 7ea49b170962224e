"""The model that is trained, and lessons as batches of tokens. Imports torch and transformers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from conductor_cli.train.recipe import require
from scripts.rehearsal.courses import Course
from scripts.rehearsal.lessons import CHUNK, Lesson, chunk
from scripts.rehearsal.sampling import SmallModel
from scripts.rehearsal.tokenizer import END, PAD, token_of

with require("torch"):
    import torch
with require("transformers"):
    from transformers import Qwen2Config

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Tokens(NamedTuple):
    """A lesson as tokens; the answer's with the one that ends it."""

    prompt: list[int]
    answer: list[int]


def new_model(course: Course, tokens: int) -> Any:  # noqa: ANN401 - a model of transformers, untyped
    """A Qwen2 of the course's size with random weights: the same ones every time."""
    size = course.size
    torch.manual_seed(course.seed)
    config = Qwen2Config(
        vocab_size=tokens, hidden_size=size.width, num_hidden_layers=size.layers, num_attention_heads=size.heads,
        num_key_value_heads=size.key_heads, intermediate_size=size.inner, max_position_embeddings=size.context,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=None, pad_token_id=None, use_cache=False,
    )  # fmt: skip
    return SmallModel(config).float()


def rate_at(course: Course, step: int) -> float:
    """The learning rate of a step: a short rise, then a cosine down to a hundredth."""
    if step < course.warmup:
        return course.rate * (step + 1) / course.warmup
    share = (step - course.warmup) / max(course.steps - course.warmup, 1)
    return course.rate * (0.01 + 0.99 * (1 + math.cos(math.pi * share)) / 2)


class Batches:
    """The batches of a course by step, as tokens."""

    def __init__(
        self, course: Course, tokenizer: Tokenizer, draw: Callable[[Course, int], Sequence[Lesson]] = chunk
    ) -> None:
        self._course, self._tokenizer, self._draw = course, tokenizer, draw
        self._number, self._chunk = -1, list[list[Tokens]]()

    def at(self, step: int) -> tuple[Any, Any]:
        """The tokens (lessons by length, padded on the right) and the targets: -1 where nothing is asked."""
        number, place = divmod(step, CHUNK)
        if number != self._number:
            self._number, self._chunk = number, self._batches(number)
        return tensors(self._chunk[place], token_of(self._tokenizer, PAD))

    def _batches(self, number: int) -> list[list[Tokens]]:
        """A chunk's batches, each of lessons of like length, in an order of no meaning."""
        size = self._course.batch
        drawn = self._draw(self._course, number)
        lessons = sorted(encoded(drawn, self._tokenizer), key=lambda item: sum(map(len, item)))
        batches = [lessons[at : at + size] for at in range(0, len(lessons), size)]
        Random(number).shuffle(batches)  # noqa: S311 - reproducible, no secret
        return batches


def encoded(lessons: Sequence[Lesson], tokenizer: Tokenizer) -> list[Tokens]:
    """The lessons as tokens. Prompt and answer are split apart, as they are when a model is asked."""
    end = token_of(tokenizer, END)
    prompts = tokenizer.encode_batch([lesson.prompt for lesson in lessons])
    answers = tokenizer.encode_batch([lesson.answer for lesson in lessons])
    return [Tokens(prompt.ids, [*answer.ids, end]) for prompt, answer in zip(prompts, answers, strict=True)]


def tensors(lessons: Sequence[Tokens], pad: int) -> tuple[Any, Any]:
    """See `Batches.at`. The target of a place is the token after it; only those of the answer and its end count."""
    length = max(len(prompt) + len(answer) for prompt, answer in lessons) - 1
    rows, targets = [], []
    for prompt, answer in lessons:
        row = prompt + answer[:-1]
        rows.append(row + [pad] * (length - len(row)))
        targets.append([-1] * (len(prompt) - 1) + answer + [-1] * (length - len(row)))
    return torch.tensor(rows), torch.tensor(targets)


def loss_of(model: Any, tokens: Any, targets: Any) -> Any:  # noqa: ANN401 - tensors
    """The mean loss of the answers' tokens. What is padded stands on the right, where no answer looks."""
    hidden = model.model(input_ids=tokens).last_hidden_state
    asked = targets >= 0
    return torch.nn.functional.cross_entropy(model.lm_head(hidden[asked]), targets[asked])


def greedy(model: Any, tokenizer: Tokenizer, prompt: str, most: int) -> str:  # noqa: ANN401
    """What the model writes after `prompt`, always the likeliest token, at most `most` of them."""
    end = token_of(tokenizer, END)
    tokens = tokenizer.encode(prompt).ids
    start = len(tokens)
    with torch.inference_mode():
        while len(tokens) - start < most:
            hidden = model.model(input_ids=torch.tensor([tokens])).last_hidden_state[0, -1]
            token = int(model.lm_head(hidden).argmax())
            if token == end:
                break
            tokens.append(token)
    return str(tokenizer.decode(tokens[start:]))
