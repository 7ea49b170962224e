"""The training of an adapter on lessons.

On a CPU, in hours, and it can be stopped at any time and goes on.

    python -m training.planner.supervised --base DIR --out DIR --steps 400

`--world DIR` takes every second step from the world of programs, whose tables are in DIR, and with
`--world-every 1` every step.
`--adapter FILE.gguf` begins with an adapter that an earlier training has exported, in place of a
new one. `DIR/state.pt` has the adapter, the optimizer and the step; lessons are drawn by the number
of their step. `log.jsonl` has a line for each step. At the end, every so many steps, and with
`--export`, the adapter is written to `adapter.gguf`; those on the way are kept as
`adapter-STEP.gguf`.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from shutil import copyfile
from typing import Any, Final

import torch
from gguf import GGUFReader, get_tensor_name_map
from peft import LoraConfig, get_peft_model
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

from conductor_cli.models.llama.lora import (
    ARCHITECTURES,
    FIRST_SUFFIX,
    SECOND_SUFFIX,
    convert_adapter,
)
from conductor_cli.system.disk import temporary_path
from conductor_cli.train.base_model import (
    BaseModel,
    find_base_model,
    has_fast_bfloat16,
    quiet_libraries,
)
from training.planner.lessons import draw_group
from training.planner.packing import Row, pack, plan_logits
from training.planner.world.cases import World, draw_world_group, lesson_texts, open_world
from training.planner.written import read_written

LAYERS: Final = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FIRST_LAYER: Final = 8  # The layers below it have no adapter, which saves their backward pass
RANK: Final = 16  # Of a base of half a billion weights
LESSONS: Final = 8  # In a step of the optimizer, all over one pool
LONGEST: Final = 1300  # Tokens of a prompt; a lesson with a longer one is left out
WARMUP: Final = 10
CHECKED: Final = 12  # Held-out pools that measure the adapter
# How much of the mean of earlier steps' weights stays after one: the mean is what is exported
AVERAGE: Final = 0.9
OTHER_TOKENS: Final = 12_000  # Tokens beside those of plans that the loss knows
KEEP_SECONDS: Final = 120.0  # Seconds between two writings of the state
DONE = 0
UNFINISHED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterShape:
    """The rank of an adapter, and the first layer that has one."""

    rank: int = RANK
    first_layer: int = FIRST_LAYER


_SHAPE: Final = AdapterShape()


def open_model(base: BaseModel, seed: int, shape: AdapterShape) -> Any:
    """The model with a new adapter, the same for the same seed."""
    torch.manual_seed(seed)
    dtype = torch.float32
    if has_fast_bfloat16():
        dtype = torch.bfloat16
    with quiet_libraries():
        model = AutoModelForCausalLM.from_pretrained(
            base.directory, dtype=dtype, local_files_only=True
        )
        settings = LoraConfig(
            r=shape.rank,
            lora_alpha=2 * shape.rank,
            target_modules=LAYERS,
            task_type="CAUSAL_LM",
            layers_to_transform=list(range(min(shape.first_layer, base.layers // 2), base.layers)),
        )
        return get_peft_model(model, settings)


def trained(model: Any) -> dict[str, Any]:
    """The weights of the adapter."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def rate_at(step: int, steps: int, highest: float) -> float:
    """The learning rate: it rises over the first steps and falls as a cosine to a twentieth."""
    rise = min(1.0, (step + 1) / WARMUP)
    fall = 0.05 + 0.95 * (1 + math.cos(math.pi * min(1.0, step / steps))) / 2
    return highest * rise * fall


class Head:
    """The rows of the output matrix for the tokens of plans and some thousand others.

    All 151,936 rows would be a fifth of the computation. The others keep what is pushed down about
    as it was.
    """

    def __init__(self, matrix: Any, tokenizer: Any, world: World | None = None) -> None:
        groups = [
            draw_group(f"tokens {number}", LESSONS, held=number % 10 == 0) for number in range(400)
        ]
        texts = [lesson.text for lesson in chain.from_iterable(groups)]
        for task in read_written(held=False):
            texts += [step.subtask for step in task.steps]
        if world is not None:
            texts += lesson_texts(world)
        used = set[int]()
        for text in texts:
            used.update(tokenizer(text, add_special_tokens=False)["input_ids"])
        others = torch.randperm(len(matrix), generator=torch.Generator().manual_seed(0))[
            :OTHER_TOKENS
        ].tolist()
        kept = sorted(used | {tokenizer.eos_token_id} | set(others))
        self.matrix = matrix[kept].detach().clone()
        self._numbers = torch.full((len(matrix),), -1, dtype=torch.long)
        self._numbers[kept] = torch.arange(len(kept))

    def targets(self, row: Row) -> Any:
        """The numbers of a row's targets among the kept rows, -100 for one that is not there."""
        numbers = self._numbers[row.targets]
        return numbers.masked_fill(numbers < 0, -100)


def row_of(tokenizer: Any, seed: str, *, held: bool = False) -> Row:
    """The lessons of a seed over one pool, as a row."""
    return pack(tokenizer, draw_group(seed, LESSONS, held=held), longest=LONGEST)


def draw_row(
    tokenizer: Any,
    world: World | None,
    seed: int,
    step: int,
    *,
    world_every: int = 2,
    word: float | None = None,
) -> Row:
    """The lessons of a step; of the world, where there is one, in each `world_every`-th step.

    `word` is what each token of a subtask of the world counts, as for `token_weights`.
    """
    name = f"{seed} {step}"
    if world is not None and step % world_every == world_every - 1:
        return pack(tokenizer, draw_world_group(world, name, LESSONS), longest=LONGEST, word=word)
    return row_of(tokenizer, name)


def learn(model: Any, head: Head, optimizer: Any, row: Row) -> float:
    """One step of the optimizer; the weighted mean loss of a token."""
    logits = plan_logits(model, row, head.matrix).float()
    losses = cross_entropy(logits, head.targets(row), reduction="none")
    loss = (losses * row.weights).sum() / row.weights.sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained(model).values(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return float(loss.detach())


def measure(model: Any, head: Head, tokenizer: Any) -> dict[str, float]:
    """How well the adapter predicts held-out plans, each token after the right ones before it.

    `begin` is the share of first tokens, which decide between one step and several; `label` that of
    the last tokens, the worker of the last step; `whole` that of plans of which every token is
    right.
    """
    losses = list[float]()
    begins = list[float]()
    labels = list[float]()
    wholes = list[float]()
    with torch.inference_mode():
        for number in range(CHECKED):
            row = row_of(tokenizer, f"held {number}", held=True)
            logits = plan_logits(model, row, head.matrix).float()
            targets = head.targets(row)
            losses += cross_entropy(logits, targets, reduction="none").tolist()
            right = logits.argmax(-1) == targets
            for lesson in row.lessons.unique():
                own = right[row.lessons == lesson]
                begins.append(float(own[0]))
                labels.append(float(own[-2]))
                wholes.append(float(own.all()))
    named = {"loss": losses, "begin": begins, "label": labels, "whole": wholes}
    return {f"held_{name}": round(sum(values) / len(values), 4) for name, values in named.items()}


@dataclass(slots=True)
class Training:
    """A training as it is.

    `mean` is the moving average of the adapter's weights, by their names. `used` are seconds of the
    processor, and `lessons` counts the plans that were learned: only a training by rewards keeps
    these two. `average` is how much of the mean stays at most after a step.
    """

    base: BaseModel
    model: Any
    optimizer: Any
    mean: dict[str, Any]
    step: int = 0
    used: float = 0.0
    lessons: int = 0
    average: float = AVERAGE

    def store(self, path: Path) -> None:
        """Write the state, whole or not at all."""
        state = {
            "model": trained(self.model),
            "optimizer": self.optimizer.state_dict(),
            "mean": self.mean,
            "step": self.step,
            "used": self.used,
            "lessons": self.lessons,
        }
        with temporary_path(path) as new:
            torch.save(state, new)
            new.replace(path)

    def resume(self, path: Path) -> None:
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"], strict=False)
        self.optimizer.load_state_dict(state["optimizer"])
        self.mean = state["mean"]
        self.step = state["step"]
        # A state of earlier days has neither.
        self.used = state.get("used", 0.0)
        self.lessons = state.get("lessons", 0)

    def count(self) -> None:
        """Take the weights after one more step into the mean."""
        self.step += 1
        # Early weights say little, so the mean is over few steps at first.
        stays = min(self.average, self.step / (self.step + 10))
        for name, weight in trained(self.model).items():
            self.mean[name].mul_(stays).add_(weight.detach(), alpha=1 - stays)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """With the mean in place of the weights."""
        own = {name: weight.detach().clone() for name, weight in trained(self.model).items()}
        self.model.load_state_dict(self.mean, strict=False)
        yield
        self.model.load_state_dict(own, strict=False)

    def export(self, out: Path) -> Path:
        """Write the mean as PEFT has it, and as llama.cpp reads it; the path of the latter."""
        with self.averaged():
            return self.write_weights(out)

    def write_weights(self, out: Path) -> Path:
        """Write the weights as they are now, in the same two forms; the path of the latter."""
        self.model.save_pretrained(
            out / "adapter", safe_serialization=True, save_embedding_layers=False
        )
        path = out / "adapter.gguf"
        base = self.base
        convert_adapter(
            out / "adapter",
            path,
            architecture=base.architecture,
            layers=base.layers,
            heads=base.heads,
            half=True,
        )
        return path


def load_adapter(model: Any, path: Path, base: BaseModel) -> None:
    """Give the adapter of `model` the weights of an exported one.

    Raises `ValueError` where the two do not change the same matrices.
    """
    matrices = {
        tensor.name: torch.from_numpy(tensor.data.copy()) for tensor in GGUFReader(path).tensors
    }
    names = get_tensor_name_map(ARCHITECTURES[base.architecture], base.layers)
    weights = trained(model)
    if len(matrices) != len(weights):
        raise ValueError(f"{path} has {len(matrices)} matrices, not {len(weights)}")
    for key, weight in weights.items():
        module, _, part = key.removeprefix("base_model.model.").partition(".lora_")
        suffix = SECOND_SUFFIX
        if part.startswith("A"):
            suffix = FIRST_SUFFIX
        with torch.no_grad():
            weight.copy_(matrices[f"{names.get_name(module)}.weight{suffix}"])


def begin(
    base: BaseModel,
    rate: float,
    seed: int,
    adapter: Path | None = None,
    shape: AdapterShape = _SHAPE,
) -> Training:
    """A training before its first step, with a new adapter or an exported one."""
    model = open_model(base, seed, shape)
    if adapter is not None:
        load_adapter(model, adapter, base)
    optimizer = torch.optim.AdamW(
        trained(model).values(), lr=rate, betas=(0.9, 0.99), weight_decay=0.0
    )
    mean = {name: weight.detach().clone() for name, weight in trained(model).items()}
    return Training(base=base, model=model, optimizer=optimizer, mean=mean)


def _read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.planner.supervised")
    parser.add_argument("--base", required=True, help="the base model: a GGUF file, or a directory")
    parser.add_argument(
        "--out", type=Path, required=True, help="the directory of state, log and adapter"
    )
    parser.add_argument("--adapter", type=Path, help="an exported adapter to begin with")
    parser.add_argument(
        "--world", type=Path, help="the directory of the world's tables: its lessons are mixed in"
    )
    parser.add_argument(
        "--world-every", type=int, default=2, help="1: learn lessons of the world alone"
    )
    parser.add_argument("--no-dates", action="store_true", help="no questions of the world on days")
    parser.add_argument(
        "--word",
        type=float,
        help="what a token of a subtask of the world counts; without it less, the longer a plan is",
    )
    parser.add_argument("--rank", type=int, default=RANK, help="of a new adapter")
    parser.add_argument(
        "--first-layer", type=int, default=FIRST_LAYER, help="the first layer with an adapter"
    )
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rate", type=float, default=4e-4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument(
        "--every", type=int, default=50, help="steps between two measurements and exports"
    )
    parser.add_argument(
        "--export", action="store_true", help="only write adapter.gguf from the state"
    )
    return parser.parse_args()


def main() -> int:
    """Train until all steps are done, the minutes are over, or it is told to stop."""
    given = _read_arguments()
    torch.set_num_threads(given.threads)
    given.out.mkdir(parents=True, exist_ok=True)
    base = find_base_model(given.base)
    shape = AdapterShape(rank=given.rank, first_layer=given.first_layer)
    training = begin(base, given.rate, given.seed, given.adapter, shape)
    state = given.out / "state.pt"
    if state.exists():
        training.resume(state)
    if given.export:
        print(training.export(given.out))
        return DONE
    inner = training.model.base_model.model
    world = None
    if given.world is not None:
        world = open_world(given.world, dates=not given.no_dates)
    head = Head(inner.lm_head.weight, base.tokenizer, world)
    inner.lm_head = torch.nn.Identity()  # its matrix is not needed any more, and half a gigabyte
    stopped = list[int]()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: stopped.append(number))
    began = time.monotonic()
    kept = began
    while (
        training.step < given.steps
        and not stopped
        and time.monotonic() - began < 60 * given.minutes
    ):
        at = time.monotonic()
        used = time.process_time()
        rate = rate_at(training.step, given.steps, given.rate)
        for group in training.optimizer.param_groups:
            group["lr"] = rate
        row = draw_row(
            base.tokenizer,
            world,
            given.seed,
            training.step,
            world_every=given.world_every,
            word=given.word,
        )
        loss = learn(inner.model, head, training.optimizer, row)
        training.count()
        line: dict[str, Any] = {
            "step": training.step,
            "loss": round(loss, 4),
            "rate": rate,
            "tokens": len(row.tokens),
            "seconds": round(time.monotonic() - at, 1),
            "processor": round(time.process_time() - used, 1),
        }
        if training.step % given.every == 0 or training.step == given.steps:
            with training.averaged():
                line |= measure(inner.model, head, base.tokenizer)
            exported = training.export(given.out)
            copyfile(exported, given.out / f"adapter-{training.step}.gguf")
        with (given.out / "log.jsonl").open("a") as log:
            log.write(json.dumps(line) + "\n")
        if time.monotonic() - kept > KEEP_SECONDS:
            training.store(state)
            kept = time.monotonic()
    training.store(state)
    training.export(given.out)
    if training.step >= given.steps:
        return DONE
    return UNFINISHED


if __name__ == "__main__":
    sys.exit(main())
