"""Likeliest plans of a conductor's file, many at once. Imports torch and transformers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from gguf import GGUFReader

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.gguf import read_header
from conductor_cli.train.recipe import require
from scripts.rehearsal.courses import Size
from scripts.rehearsal.export import loaded
from scripts.rehearsal.sft_data import COURSE
from scripts.rehearsal.store import Written
from scripts.rehearsal.supervised import use_threads
from scripts.rehearsal.tokenizer import END, PAD, build, token_of

with require("torch"):
    import torch

THREADS: Final = 1


class Planner:
    """The model in a file, in torch."""

    def __init__(self, file: Path) -> None:
        use_threads(THREADS)
        self._tokenizer = build()
        if vocabulary_of(file) != self._tokenizer.get_vocab(with_added_tokens=True):
            raise ModelError("file", f"{file} has another vocabulary", hint="llama.cpp reads the file's own")
        self._end, self._pad = token_of(self._tokenizer, END), token_of(self._tokenizer, PAD)
        self._model = loaded(file, replace(COURSE, size=size_of(file))).eval()

    def length(self, prompt: str) -> int:
        """The tokens of a prompt."""
        return len(self._tokenizer.encode(prompt).ids)

    def write(self, prompts: Sequence[str], most: int) -> Iterator[Written]:
        """The likeliest text after each prompt, at most `most` tokens of it."""
        read = [self._tokenizer.encode(prompt).ids for prompt in prompts]
        longest = max(map(len, read))
        rows = torch.tensor([[self._pad] * (longest - len(row)) + row for row in read])
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in read])
        found = self._model.generate(
            input_ids=rows, attention_mask=mask, max_new_tokens=most, do_sample=False, eos_token_id=self._end,
            pad_token_id=self._pad,
        )  # fmt: skip
        for row, tokens in zip(read, found[:, longest:].tolist(), strict=True):
            complete = self._end in tokens
            own = tokens[: tokens.index(self._end)] if complete else tokens
            yield Written(self._tokenizer.decode(own), 0.0, len(row), len(own) + complete, complete)


@cache
def planner_of(file: Path, bytes_of_it: str) -> Planner:
    """The model in a file, which is read once."""
    del bytes_of_it  # they tell a changed file from the one that was read
    return Planner(file)


def vocabulary_of(file: Path) -> dict[str, int]:
    """The tokens of the model in a file, with their numbers."""
    field = GGUFReader(file).get_field("tokenizer.ggml.tokens")
    return {} if field is None else {token: number for number, token in enumerate(field.contents())}


def size_of(file: Path) -> Size:
    """The shape of the model in a file."""
    values = read_header(file).values

    def number(name: str) -> int:
        return int(values[f"qwen2.{name}"])

    return Size(
        width=number("embedding_length"), layers=number("block_count"), inner=number("feed_forward_length"),
        heads=number("attention.head_count"), key_heads=number("attention.head_count_kv"),
        context=number("context_length"),
    )  # fmt: skip
