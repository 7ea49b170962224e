"""A small planner from nothing: its prompts, its words, its plans, and its probabilities.

Imports torch.

Prompts are the tables of a pool and the question; a plan is a line for each step, in the form of
the profile `brief`. A prompt is read once for all plans that begin with it, in training and when
plans are sampled.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, product
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import PlanError
from conductor_cli.core.plan import MAX_STEPS, Plan, PlanRules
from conductor_cli.core.plan_formats import PLAN_FORMATS
from conductor_cli.core.plan_formats.base import ParsedStep, PlanFormatContext
from conductor_cli.core.pool import Pool
from conductor_cli.core.profile import BRIEF_PROFILE, Profile
from conductor_cli.core.prompts import plan_format_context
from conductor_cli.core.question import Question
from conductor_cli.train.recipe import require
from training.rewards.world import (
    FACTS,
    FRAMES,
    IN_A_ROW,
    MARK,
    NUMBERS,
    OPERATIONS,
    SUBJECTS,
    Task,
)

with require("torch"):
    import torch
with require("transformers"):
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.cache_utils import Cache, DynamicLayer

SPARE_TOKENS: Final = 32  # tokens that a layer of a cache has room for
SHOWN: Final = 0.9  # the least strength that stands in the table


def render(question: Question, pool: Pool, context: PlanFormatContext) -> str:
    """The prompt: what each worker claims to be strong at, with its letter and after its mark.

    And the question.
    """
    claims = []
    for worker in pool:
        for subject in SUBJECTS:
            if worker.card.strengths[subject] >= SHOWN:
                label = label_of(context, worker.name, subject)
                claims.append(f"{worker.about} {label}".strip())
    return f"{' '.join(claims)}\n{question.text}\n"


def label_of(context: PlanFormatContext, name: str, subject: str) -> str:
    """The label of a worker for a subject: `historyB`."""
    return next(
        label
        for label, worker_name in context.labels.items()
        if worker_name == name and label[:-1] == subject
    )


PROFILE: Final = replace(
    BRIEF_PROFILE, name="rewards", render=render, labels="entries", cards="lines"
)


@lru_cache(maxsize=1024)
def format_context(task: Task, profile: Profile) -> PlanFormatContext:
    """How plans over the pool of a question are written."""
    rules = PlanRules(workers=task.pool.names, steps=MAX_STEPS)
    return plan_format_context(profile, task.pool, rules, "auto", constrained=False)


def read_plan(text: str, task: Task, profile: Profile) -> Plan | None:
    """The plan in a text, as a run reads it; None if there is none."""
    parser = PLAN_FORMATS[profile.plan_format].parser(format_context(task, profile))
    try:
        parsed = [*parser.feed(text), *parser.end()]
    except PlanError:
        return None
    return Plan(steps=tuple(step.step for step in parsed if isinstance(step, ParsedStep)))


def write_plan(plan: Plan, task: Task) -> str:
    """The text of a plan of the true steps. A worker has the label for the subject of its step."""
    context = format_context(task, PROFILE)
    lines = list[str]()
    for step, true in zip(plan.steps, task.case.steps, strict=True):
        access = " ".join(map(str, step.access)) or "-"
        lines.append(
            context.bar.join((step.subtask, access, label_of(context, step.worker, true.skill)))
        )
    return "\n".join(lines)


# Words and weights


def split(text: str) -> list[str]:
    """The words of a text. The end of a line is one of them."""
    return re.findall(r"\n|[^\s{}]+", text)


def words() -> list[str]:
    """All words of the prompts and the true plans but the mark, each once."""
    texts = [*FRAMES, *IN_A_ROW, "1 2 3 4 5 | - , . ? and", "\n"]
    texts += [f"{subject}{letter}" for subject, letter in product(SUBJECTS, "ABCDEFG")]
    for operation in OPERATIONS:
        texts += [operation.told, *operation.nouns]
    texts += [*map(str, NUMBERS), *chain.from_iterable(FACTS.values())]
    return list(dict.fromkeys(chain.from_iterable(map(split, texts))))


class Marking(torch.nn.Embedding):  # type: ignore[misc, unused-ignore]
    """Embeddings of words.

    A number above the words stands for a word with the mark, whose vector is added to it.

    The vector is 0 before the training, and it is the only thing that tells a marked claim from
    another one.
    """

    def __init__(self, count: int, width: int) -> None:
        super().__init__(count, width)
        self.mark = torch.nn.Parameter(torch.zeros(width))

    def forward(self, tokens: Any) -> Any:
        marked = (tokens >= self.num_embeddings)[..., None]
        return super().forward(tokens % self.num_embeddings) + marked * self.mark


class Planner(ABC):
    """What the arms need of a planner.

    `longest` is the most tokens of a plan, `rates` are the learning rates by arm, `warmup` the
    steps in which they rise, `groups` the questions of a step of GRPO, `at_once` how many prompts
    one backward pass has, and `validations` how often an arm is validated.
    """

    longest = 60  # the longest true plan has 50
    end: int
    warmup: int
    groups: int
    at_once: int
    validations: int
    rates: Mapping[str, float]

    @abstractmethod
    def encode(self, text: str) -> list[int]: ...

    @abstractmethod
    def text(self, tokens: Sequence[int]) -> str:
        """The text of a plan."""

    @abstractmethod
    def open(self, seed: int) -> Any:
        """The model at its beginning, the same for the same seed."""

    # Not every planner makes something of its weights
    def save(self, model: Any, path: Path) -> None:  # noqa: B027
        """Write what is made of the weights beside them."""

    def prompt(self, task: Task) -> list[int]:
        """The tokens of the prompt for a question."""
        return self.encode(
            render(Question(text=task.case.question), task.pool, format_context(task, PROFILE))
        )

    def written(self, plan: Plan, task: Task) -> list[int]:
        """The tokens of a plan of the true steps, with the end.

        A worker has the label for the subject of its step.
        """
        return [*self.encode(write_plan(plan, task)), self.end]

    def read(self, tokens: Sequence[int], task: Task) -> Plan | None:
        """The plan of some tokens; None if they are none, or without an end."""
        if tokens[-1] != self.end:
            return None
        return read_plan(self.text(tokens), task, PROFILE)


class SmallPlanner(Planner):
    """A Llama of two layers with random weights, and a token for each word of the world.

    Another token stands for a word after a mark. `encode` and `decode` are inverse for texts
    without a mark, but for blanks.
    """

    pad = 0
    end = 1
    rates: Mapping[str, float] = {
        "start": 5e-3,
        "supervised": 2e-3,
        "best-of-8": 2e-3,
        "grpo": 1e-3,
    }
    warmup = 20
    groups = 16
    at_once = 1000
    validations = 6

    def __init__(self) -> None:
        self._words = ["<pad>", "<end>", *words()]
        self._numbers = {word: number for number, word in enumerate(self._words)}

    def encode(self, text: str) -> list[int]:
        pieces = split(text)
        marked = (before == MARK for before in ("", *pieces))
        pairs = zip(pieces, marked, strict=False)
        return [
            self._numbers[word] + len(self._words) * after for word, after in pairs if word != MARK
        ]

    def text(self, tokens: Sequence[int]) -> str:
        return " ".join(self._words[token] for token in tokens if token > self.end)

    def open(self, seed: int) -> Any:
        torch.manual_seed(seed)
        width = 64
        count = len(self._words)
        config = LlamaConfig(
            vocab_size=count,
            hidden_size=width,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            intermediate_size=3 * width,
            max_position_embeddings=256,
            tie_word_embeddings=True,
            pad_token_id=self.pad,
            bos_token_id=None,
            eos_token_id=self.end,
        )
        model = LlamaForCausalLM(config)
        words = Marking(count, width)
        words.weight.data.copy_(model.get_input_embeddings().weight.data)
        model.set_input_embeddings(words)
        model.tie_weights()
        return model


# Probabilities


def padded(rows: Sequence[Sequence[int]], *, left: bool = False) -> tuple[Any, Any]:
    """Rows of tokens as one tensor, and which of its places are tokens."""
    longest = max(map(len, rows))
    fill = [[0] * (longest - len(row)) for row in rows]
    tokens = [[*pad, *row] if left else [*row, *pad] for row, pad in zip(rows, fill, strict=True)]
    mask = [
        [0] * len(pad) + [1] * len(row) if left else [1] * len(row) + [0] * len(pad)
        for row, pad in zip(rows, fill, strict=True)
    ]
    return torch.tensor(tokens), torch.tensor(mask)


class PreallocatedLayer(DynamicLayer):  # type: ignore[misc, unused-ignore]
    """A layer of a cache with room for the next tokens, without gradients.

    Copying took a quarter of sampling.
    """

    keys: Any
    values: Any
    room: list[Any]

    def update(
        self, key_states: Any, value_states: Any, *_args: Any, **_kwargs: Any
    ) -> tuple[Any, Any]:
        old = self.get_seq_length()
        new = old + key_states.shape[-2]
        if not old or new > self.room[0].shape[-2]:
            if not old:
                self.lazy_initialization(key_states, value_states)
            self.room = [
                torch.cat(
                    [
                        *([held] if old else []),
                        more,
                        more.new_empty(*more.shape[:-2], SPARE_TOKENS, more.shape[-1]),
                    ],
                    -2,
                )
                for held, more in ((self.keys, key_states), (self.values, value_states))
            ]
        else:
            for room, more in zip(self.room, (key_states, value_states), strict=True):
                room[..., old:new, :] = more
        self.keys, self.values = (room[..., :new, :] for room in self.room)
        return self.keys, self.values

    def batch_select_indices(self, indices: Any) -> None:
        length = self.get_seq_length()
        self.room = [room[indices] for room in self.room]
        self.keys, self.values = (room[..., :length, :] for room in self.room)


class Prefix:
    """Texts that a model has read: the logits of what follows each, and the cache.

    They begin as prompts.
    """

    def __init__(
        self, model: Any, prompts: Sequence[Sequence[int]], cache: Cache | None = None
    ) -> None:
        tokens, self.mask = padded(prompts, left=True)
        at = (self.mask.cumsum(1) - 1).clamp(min=0)
        read = model(
            input_ids=tokens,
            attention_mask=self.mask,
            position_ids=at,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self.model = model
        self.cache = read.past_key_values
        self.logits = read.logits[:, -1]
        self.lengths = self.mask.sum(1)

    def take(self, rows: Any) -> None:
        """Go on with these rows, of which any may come several times, and with no other."""
        if rows.tolist() != list(range(len(self.mask))):
            self.cache.batch_select_indices(rows)
            self.logits = self.logits[rows]
            self.mask = self.mask[rows]
            self.lengths = self.lengths[rows]

    def follow(self, tokens: Any, mask: Any) -> Any:
        """The logits after each of `tokens` (rows × length), which come next."""
        at = self.lengths[:, None] + torch.arange(tokens.shape[1])
        self.mask = torch.cat([self.mask, mask], 1)
        self.lengths = self.lengths + tokens.shape[1]
        logits = self.model(
            input_ids=tokens,
            attention_mask=self.mask,
            position_ids=at,
            past_key_values=self.cache,
            use_cache=True,
        ).logits
        self.logits = logits[:, -1]
        return logits


def plan_logits(
    model: Any, prompts: Sequence[Sequence[int]], plans: Sequence[Sequence[Sequence[int]]]
) -> tuple[Any, Any, Any]:
    """The logits that predict each token of plans, these tokens, and which are no padding.

    `plans` has some for each prompt; what comes back has a row for each plan.
    """
    prefix = Prefix(model, prompts)
    prefix.take(
        torch.arange(len(prompts)).repeat_interleave(torch.tensor([len(own) for own in plans]))
    )
    tokens, mask = padded(list(chain.from_iterable(plans)))
    first = prefix.logits[:, None]
    return torch.cat([first, prefix.follow(tokens[:, :-1], mask[:, :-1])], 1), tokens, mask.bool()


def sample(
    model: Any,
    planner: Planner,
    prompts: Sequence[Sequence[int]],
    group: int,
    generator: Any = None,
) -> list[list[int]]:
    """`group` plans for each prompt, with their last token.

    Without a generator, the likeliest tokens.

    Plans that begin with the same tokens are read together until they part, and a plan with an end
    is read no more.
    """
    plans: list[list[int]] = [[] for _ in range(len(prompts) * group)]
    open_ = plans
    rows = torch.arange(len(prompts)).repeat_interleave(group)
    with torch.inference_mode():
        prefix = Prefix(model, prompts, Cache(layer_class_to_replicate=PreallocatedLayer))
        while True:
            logits = prefix.logits[rows]
            drawn = (
                logits.argmax(-1)
                if generator is None
                else torch.multinomial(logits.float().softmax(-1), 1, generator=generator)[:, 0]
            )
            for plan, token in zip(open_, drawn.tolist(), strict=True):
                plan.append(token)
            going = drawn != planner.end
            open_ = [plan for plan, more in zip(open_, going.tolist(), strict=True) if more]
            if not open_ or len(open_[0]) == planner.longest:
                return plans
            nodes, rows = torch.stack([rows, drawn], 1)[going].unique(dim=0, return_inverse=True)
            prefix.take(nodes[:, 0])
            prefix.follow(nodes[:, 1:], torch.ones(len(nodes), 1, dtype=torch.long))
