"""Supervised training of a worker, or of the conductor before GRPO, and its file.

Imports torch and transformers.

The state contains everything that the next step depends on: there is no dropout, and lessons are
drawn by their number, so the step determines every draw. A training that was killed resumes from
the last state to the same weights.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gguf import MODEL_ARCH, GGUFReader, GGUFWriter, LlamaFileType, TokenType, get_tensor_name_map

from conductor_cli.core.errors import ConfigError, ModelError
from conductor_cli.models.llama.gguf import MAX_LAYERS
from conductor_cli.models.llama.lora import write_gguf
from conductor_cli.system.disk import temporary_path
from conductor_cli.train.recipe import require
from training.rehearsal import plan_lessons
from training.rehearsal.asking import END, PAD, build, fingerprint, token_of
from training.rehearsal.lessons import CHUNK, Course, Lesson, chunk

with require("torch"):
    import torch
with require("transformers"):
    from transformers import Qwen2Config, Qwen2ForCausalLM

if TYPE_CHECKING:
    from tokenizers import Tokenizer


# The lessons of some batches, by the number of the chunk
Draw = Callable[[Course, int], Sequence[Lesson]]


class Tokens(NamedTuple):
    """A lesson as tokens; the answer's with the one that ends it."""

    prompt: list[int]
    answer: list[int]


def new_model(course: Course, tokens: int) -> Any:
    """A Qwen2 of the course's size with random weights: the same ones every time."""
    size = course.size
    torch.manual_seed(course.seed)
    config = Qwen2Config(
        vocab_size=tokens,
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.key_heads,
        intermediate_size=size.inner,
        max_position_embeddings=size.context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        use_cache=False,
    )
    return Qwen2ForCausalLM(config).float()


def rate_at(course: Course, step: int) -> float:
    """The learning rate of a step: a short rise, then a cosine down to a hundredth."""
    if step < course.warmup:
        return course.rate * (step + 1) / course.warmup
    share = (step - course.warmup) / max(course.steps - course.warmup, 1)
    return course.rate * (0.01 + 0.99 * (1 + math.cos(math.pi * share)) / 2)


def batches(
    course: Course, tokenizer: Tokenizer, first: int, draw: Draw
) -> Iterator[tuple[Any, Any]]:
    """The batches of a course from its step `first` on.

    Lessons of like length, in an order of no meaning.
    """
    for number in count(first // CHUNK):
        lessons = sorted(
            encoded(draw(course, number), tokenizer), key=lambda item: sum(map(len, item))
        )
        drawn = [lessons[at : at + course.batch] for at in range(0, len(lessons), course.batch)]
        Random(number).shuffle(drawn)
        for batch in drawn[max(first - number * CHUNK, 0) :]:
            yield tensors(batch, token_of(tokenizer, PAD))


def encoded(lessons: Sequence[Lesson], tokenizer: Tokenizer) -> list[Tokens]:
    """The lessons as tokens.

    Prompt and answer are split apart, as they are when a model is asked.
    """
    end = token_of(tokenizer, END)
    prompts = tokenizer.encode_batch([lesson.prompt for lesson in lessons])
    answers = tokenizer.encode_batch([lesson.answer for lesson in lessons])
    return [
        Tokens(prompt.ids, [*answer.ids, end])
        for prompt, answer in zip(prompts, answers, strict=True)
    ]


def tensors(lessons: Sequence[Tokens], pad: int) -> tuple[Any, Any]:
    """Lessons as tokens, padded on the right, and their targets.

    The target of a place is the token after it; only those of the answer and its end count, others
    are -1.
    """
    length = max(len(prompt) + len(answer) for prompt, answer in lessons) - 1
    rows = []
    targets = []
    for prompt, answer in lessons:
        row = prompt + answer[:-1]
        rows.append(row + [pad] * (length - len(row)))
        targets.append([-1] * (len(prompt) - 1) + answer + [-1] * (length - len(row)))
    return torch.tensor(rows), torch.tensor(targets)


def loss_of(model: Any, tokens: Any, targets: Any) -> Any:
    """The mean loss of the answers' tokens.

    What is padded stands on the right, where no answer looks.
    """
    hidden = model.model(input_ids=tokens).last_hidden_state
    is_target = targets >= 0
    return torch.nn.functional.cross_entropy(model.lm_head(hidden[is_target]), targets[is_target])


LAYER_ORDER: Final = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")

TEMPLATE: Final = "{% for message in messages %}{{ message.content }}{% endfor %}"
"""The chat template: nothing but the messages, since `render` writes all that the models read."""


def export(model: Any, tokenizer: Tokenizer, path: Path, *, name: str) -> None:
    """Write the model to `path`: matrices in 16 bits, the rest in 32.

    Raises `ModelError` if it cannot be written.
    """
    writer = GGUFWriter(None, "qwen2")
    writer.add_name(f"conductor rehearsal, {name}")
    writer.add_license("apache-2.0")
    writer.add_file_type(LlamaFileType.MOSTLY_F16)
    config = model.config
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(float(config.rope_parameters["rope_theta"]))
    writer.add_vocab_size(config.vocab_size)
    # The added tokens are those that are no text.
    numbers = tokenizer.get_vocab(with_added_tokens=True)
    added = tokenizer.get_added_tokens_decoder()
    kinds = [
        TokenType.CONTROL if number in added else TokenType.NORMAL for number in range(len(numbers))
    ]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(sorted(numbers, key=numbers.__getitem__))
    writer.add_token_types(list(map(int, kinds)))
    writer.add_token_merges(
        [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]
    )
    end = token_of(tokenizer, END)
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
    writer.add_pad_token_id(token_of(tokenizer, PAD))
    writer.add_add_bos_token(value=False)
    writer.add_chat_template(TEMPLATE)
    weights = model.state_dict()
    names = _gguf_names(model)
    for weight in sorted(names, key=_position):
        array = weights[weight].numpy()
        writer.add_tensor(names[weight], array.astype("float16" if array.ndim > 1 else "float32"))
    write_gguf(path, writer)


def _gguf_names(model: Any) -> dict[str, str]:
    """The names in GGUF of a model's weights, by their names in transformers.

    Its output is its embedding.
    """
    names = get_tensor_name_map(MODEL_ARCH.QWEN2, model.config.num_hidden_layers)
    return {
        name: str(names.get_name(name, try_suffixes=(".weight", ".bias")))
        for name, _ in model.named_parameters()
    }


def _position(name: str) -> tuple[int, int]:
    """Where a weight stands in the file.

    The shipped files are in this order, and a training reproduces their bytes.
    """
    if ".layers." not in name:
        return (-1 if "embed" in name else MAX_LAYERS), 0
    _, _, layer, module, *_ = name.split(".")
    return int(layer), LAYER_ORDER.index(module)


def rounded(model: Any) -> Any:
    """A copy of the model with its matrices rounded as in the file."""
    copied = deepcopy(model).eval()
    with torch.no_grad():
        for weight in copied.parameters():
            if weight.dim() > 1:
                weight.copy_(weight.half().float())
    return copied


def loaded(path: Path, course: Course) -> Any:
    """The model in a file that was made by `course`. Raises `ModelError` for any other file."""
    try:
        tensors = {tensor.name: tensor.data for tensor in GGUFReader(path).tensors}
        model = new_model(course, len(tensors["token_embd.weight"]))
        weights = {
            name: torch.tensor(tensors[gguf_name]).float()
            for name, gguf_name in _gguf_names(model).items()
        }
        model.load_state_dict({**weights, "lm_head.weight": weights["model.embed_tokens.weight"]})
    except (OSError, ValueError, KeyError, IndexError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ModelError(
            "file", f"{path} is not a model of this course: {reason}", hint="export it again"
        ) from error
    return model


FORM: Final = 2  # the form of the state file
KEEP_SECONDS: Final = 30.0  # seconds between two writings of the state
REPORT: Final = 100  # steps between two lines of the log


@dataclass(slots=True, kw_only=True)
class Training:
    """A training in the middle: what changes with every step.

    `seconds` by the clock and `work`, seconds of processor time, count all stages.
    """

    course: Course
    tokenizer: Tokenizer
    model: Any
    optimizer: Any
    step: int = 0
    seconds: float = 0.0
    work: float = 0.0
    losses: list[float] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return self.step >= self.course.steps


def begin(course: Course, tokenizer: Tokenizer) -> Training:
    """A training before its first step."""
    model = new_model(course, tokenizer.get_vocab_size())
    return Training(
        course=course, tokenizer=tokenizer, model=model, optimizer=Optimizer(model, course.rate)
    )


class Optimizer:
    """Muon for the matrices of the layers, AdamW for embeddings, norms and biases.

    In a trial with sums, Muon reached in 400 steps a loss of 0.53, where AdamW for all weights had
    1.05; a step takes a quarter longer.
    """

    def __init__(self, model: Any, rate: float) -> None:
        matrices = list[Any]()
        others = list[Any]()
        for name, weight in model.named_parameters():
            (matrices if weight.ndim > 1 and "embed" not in name else others).append(weight)
        self._parts = (
            torch.optim.Muon(
                matrices, lr=MUON * rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"
            ),
            torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.01),
        )

    def step(self, rate: float) -> None:
        """Change the weights by their gradients, at a learning rate, and forget the gradients."""
        for part, factor in zip(self._parts, (MUON, 1.0), strict=True):
            for group in part.param_groups:
                group["lr"] = factor * rate
            part.step()
            part.zero_grad(set_to_none=True)

    def state_dict(self) -> list[Any]:
        return [part.state_dict() for part in self._parts]

    def load_state_dict(self, state: list[Any]) -> None:
        for part, kept in zip(self._parts, state, strict=True):
            part.load_state_dict(kept)


MUON: Final = 2.5  # the learning rate of Muon, in those of AdamW


def advance(
    training: Training,
    path: Path,
    *,
    seconds: float,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    draw: Draw = chunk,
) -> None:
    """Train until the course or the time is over.

    The state is kept at `path` meanwhile and at the end.
    """
    drawn = batches(training.course, training.tokenizer, training.step, draw)
    training.model.train()
    began = clock()
    kept = began
    before = began
    worked = time.process_time()
    while not training.ended and clock() - began < seconds:
        loss = loss_of(training.model, *next(drawn))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(training.model.parameters(), 1.0)
        training.optimizer.step(rate_at(training.course, training.step))
        training.losses.append(float(loss.detach()))
        training.step += 1
        now = clock()
        training.seconds = training.seconds + now - before
        before = now
        training.work = training.work + time.process_time() - worked
        worked = time.process_time()
        if training.step % REPORT == 0 or training.ended:
            recent = training.losses[-REPORT:]
            course = training.course
            spent = f"{training.seconds / 60:.1f} min, {training.work / 60:.1f} of processor time"
            mean = sum(recent) / len(recent)
            say(f"{course.name}: step {training.step} of {course.steps}, loss {mean:.4f}, {spent}")
        if now - kept > KEEP_SECONDS:
            keep(training, path)
            kept = clock()
    keep(training, path)


def keep(training: Training, path: Path) -> None:
    """Write the state, whole or not at all."""
    state = {
        "form": FORM,
        "course": training.course.as_dict(),
        "tokenizer": fingerprint(training.tokenizer),
        "step": training.step,
        "seconds": training.seconds,
        "work": training.work,
        "losses": training.losses,
        "model": training.model.state_dict(),
        "optimizer": training.optimizer.state_dict(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary_path(path) as new:
        torch.save(state, new)
        new.replace(path)


def resume(course: Course, tokenizer: Tokenizer, path: Path) -> Training:
    """The training whose state is at `path`, or a new one if there is no state.

    Raises `ConfigError` for a file that is damaged or belongs to another course or tokenizer.
    """
    training = begin(course, tokenizer)
    if not path.exists():
        return training
    try:
        state = torch.load(path, weights_only=True)
    except Exception as error:  # torch raises whatever its reader of zip files and pickles does
        raise _damaged(path, error) from error
    if not isinstance(state, dict):
        raise _damaged(path, TypeError("it holds no state"))
    same = {"form": FORM, "course": course.as_dict(), "tokenizer": fingerprint(tokenizer)}
    for name, value in same.items():
        if state.get(name) != value:
            hint = "remove it to start over, or choose another directory: --out"
            raise ConfigError(f"{path} was made with another {name}", hint=hint)
    try:
        training.model.load_state_dict(state["model"])
        training.optimizer.load_state_dict(state["optimizer"])
        training.step = state["step"]
        training.losses = state["losses"]
        training.seconds = state["seconds"]
        training.work = state["work"]
    except (KeyError, RuntimeError, ValueError, TypeError) as error:
        raise _damaged(path, error) from error
    return training


def _damaged(path: Path, error: Exception) -> ConfigError:
    problem = " ".join(str(error).split())[:120]
    return ConfigError(f"{path} is damaged: {problem}", hint="remove it to start over")


def train_file(
    course: Course, directory: Path, *, minutes: float, say: Callable[[str], None]
) -> bool:
    """Train a worker, or the conductor before GRPO, for at most `minutes`.

    True if all steps are done and the file is written. Raises `ConfigError` for a state that cannot
    be resumed, `ModelError` if the file cannot be written.
    """
    torch.set_num_threads(1)  # two trainings side by side are faster than one with two threads
    state = directory / f"{course.name}.state"
    tokenizer = build()
    training = resume(course, tokenizer, state)
    if training.step:
        say(f"{course.name}: resuming after step {training.step}")
    conducts = course.name == plan_lessons.COURSE.name
    draw = chunk
    if conducts:
        draw = plan_lessons.chunk
    advance(training, state, seconds=60 * minutes, say=say, draw=draw)
    if training.ended:
        path = directory / f"{course.name}.gguf"
        export(
            rounded(training.model),
            tokenizer,
            path,
            name="conductor, cold start" if conducts else course.name,
        )
        weights = sum(weight.numel() for weight in training.model.parameters())
        say(
            f"{course.name}: {path}, {weights / 1e6:.2f} million parameters, "
            f"{path.stat().st_size / 1e6:.2f} MB"
        )
    return training.ended
