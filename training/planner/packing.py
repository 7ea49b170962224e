"""Lessons over one pool as one row of tokens.

The pool is read once, and no lesson sees another one.

    [ system message with the pool ][ question 1, plan 1 ][ question 2, plan 2 ] …

A lesson's tokens have the positions that they would have right after the pool, and attend to it and
to their own. So what is computed for each lesson is what would be computed for it alone. A prompt
is tokenised as a run does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from conductor_cli.core.chat import Request
from conductor_cli.train.base_model import render_chat
from training.planner.lessons import Lesson

# What tokens of a plan count: see `token_weights`
FIRST = 1.5
LABEL = 1.0
SKILL = 2.0
WORD = 1.5
END = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Tokens, their positions, and who sees whom (tokens x tokens).

    `at` has the places whose next token is one of a plan, `targets` these tokens, `weights` what
    each counts, and `lessons` the number of the lesson of each.
    """

    tokens: Any
    positions: Any
    visible: Any
    at: Any
    targets: Any
    weights: Any
    lessons: Any


def prompt_text(tokenizer: Any, request: Request) -> str:
    """The whole text of a prompt, by the chat template."""
    messages = [{"role": message.role, "content": message.content} for message in request.messages]
    return render_chat(tokenizer, messages)


def pack(
    tokenizer: Any, lessons: Sequence[Lesson], *, longest: int, word: float | None = None
) -> Row:
    """The row of some lessons over one pool.

    One whose prompt has more than `longest` tokens is left out. `word` is as for `token_weights`.
    """
    texts = [prompt_text(tokenizer, lesson.request) for lesson in lessons]
    # All begin with the same system message; the marks of turns are single tokens, so texts can be
    # cut there.
    cut = texts[0].index("<|im_start|>user")
    shared = tokenizer(texts[0][:cut], add_special_tokens=False)["input_ids"]
    tokens = list(shared)
    positions = list(range(len(shared)))
    owner = [-1] * len(shared)
    at = list[int]()
    targets = list[int]()
    weights = list[float]()
    numbers = list[int]()
    for number, (lesson, text) in enumerate(zip(lessons, texts, strict=True)):
        if not text.startswith(texts[0][:cut]):
            raise ValueError("lessons of a row have different pools")
        request_tokens = tokenizer(text[cut:], add_special_tokens=False)["input_ids"]
        written = tokenizer(lesson.text, add_special_tokens=False, return_offsets_mapping=True)
        plan = [*written["input_ids"], tokenizer.eos_token_id]
        if len(shared) + len(request_tokens) > longest:
            continue
        start = len(tokens)
        own = [*request_tokens, *plan[:-1]]
        tokens += own
        positions += range(len(shared), len(shared) + len(own))
        owner += [number] * len(own)
        first = start + len(request_tokens) - 1
        at += range(first, first + len(plan))
        targets += plan
        weights += token_weights(lesson.text, written["offset_mapping"], word)
        numbers += [number] * len(plan)
    return Row(
        tokens=torch.tensor(tokens),
        positions=torch.tensor(positions),
        visible=_visible(owner),
        at=torch.tensor(at),
        targets=torch.tensor(targets),
        weights=torch.tensor(weights),
        lessons=torch.tensor(numbers),
    )


def _visible(owner: Sequence[int]) -> Any:
    """Who sees whom: what comes before it, if it is shared (-1) or of the same owner."""
    owners = torch.tensor(owner)
    same = (owners[:, None] == owners[None, :]) | (owners[None, :] == -1)
    return same & torch.ones(len(owner), len(owner), dtype=torch.bool).tril()


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighedReplies:
    """The tokens of some replies to one prompt. Each has a weight, that of all of its tokens."""

    prompt: Sequence[int]
    replies: Sequence[Sequence[int]]
    weights: Sequence[float]


@dataclass(slots=True)
class _TokenTree:
    """Tokens of texts, in which a beginning that several texts share stands once.

    A token is a node, which has the number of the node before it; -1 is before the first.
    """

    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    nodes: dict[tuple[int, int], int] = field(default_factory=dict)

    def add_token(self, token: int, parent: int) -> int:
        """Add a token after a node, unless it is there; its node."""
        if (parent, token) not in self.nodes:
            self.nodes[parent, token] = len(self.tokens)
            self.tokens.append(token)
            self.parents.append(parent)
            position = 0
            if parent >= 0:
                position = self.positions[parent] + 1
            self.positions.append(position)
        return self.nodes[parent, token]

    def visible(self) -> Any:
        """Who sees whom: a token sees itself and all before it in its text."""
        visible = torch.eye(len(self.tokens), dtype=torch.bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                visible[node] |= visible[parent]
        return visible


def pack_replies(groups: Sequence[WeighedReplies]) -> Row:
    """The row of the replies to some prompts.

    What prompts or replies begin with in common is read once.
    """
    tree = _TokenTree()
    at = list[int]()
    targets = list[int]()
    token_weights = list[float]()
    numbers = list[int]()
    number = 0
    for group in groups:
        last = -1
        for token in group.prompt:
            last = tree.add_token(token, last)
        for reply, weight in zip(group.replies, group.weights, strict=True):
            at += _nodes_before(tree, last, reply)
            targets += reply
            token_weights += [weight] * len(reply)
            numbers += [number] * len(reply)
            number += 1
    return Row(
        tokens=torch.tensor(tree.tokens),
        positions=torch.tensor(tree.positions),
        visible=tree.visible(),
        at=torch.tensor(at),
        targets=torch.tensor(targets),
        weights=torch.tensor(token_weights),
        lessons=torch.tensor(numbers),
    )


def _nodes_before(tree: _TokenTree, node: int, reply: Sequence[int]) -> list[int]:
    """The nodes before each token of a reply that follows `node`; its last token needs none."""
    nodes = [node]
    for token in reply[:-1]:
        node = tree.add_token(token, node)
        nodes.append(node)
    return nodes


def token_weights(
    text: str, offsets: Sequence[tuple[int, int]], word: float | None = None
) -> list[float]:
    """What each token of a plan counts, the end included.

    A plan is decided by few tokens: the first of a line says whether it is the last one, the last
    of a line whom it goes to. They count most, or they would be lost among the words of subtasks.
    The words of a plan count less, the longer it is, unless `word` says what each counts: programs
    want every token of a subtask right.
    """
    if word is None:
        word = WORD * len(offsets) ** -0.5
    labels = set[int]()
    skills = set[int]()
    beginnings = set[int]()
    at = 0
    for line in text.split("\n"):
        bar = at + line.rfind("|") + 1
        label = at + line.rfind(" ") + 1
        labels.update(range(label, at + len(line)))
        skills.update(range(bar, label))
        beginnings.add(at)
        at += len(line) + 1
    weights = list[float]()
    for start, end in offsets:
        if not labels.isdisjoint(range(start, end)):
            weights.append(LABEL)
        elif not skills.isdisjoint(range(start, end)):
            weights.append(SKILL)
        elif not beginnings.isdisjoint(range(start, end)):
            weights.append(FIRST)
        else:
            weights.append(word)
    return [*weights, END]


def plan_logits(model: Any, row: Row, head: Any) -> Any:
    """The logits by the output matrix `head` that predict the tokens of the plans of a row."""
    return plan_states(model, row) @ head.T


def plan_states(model: Any, row: Row) -> Any:
    """The last hidden states that predict the tokens of the plans of a row (tokens x width)."""
    dtype = next(model.parameters()).dtype
    mask = torch.zeros(row.visible.shape, dtype=dtype).masked_fill(
        ~row.visible, torch.finfo(dtype).min
    )
    states = model(
        input_ids=row.tokens[None],
        position_ids=row.positions[None],
        attention_mask=mask[None, None],
        use_cache=False,
    ).last_hidden_state[0]
    return states[row.at]
