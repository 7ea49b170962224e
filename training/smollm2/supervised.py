"""The supervised start: a LoRA of the pretrained model, trained on questions and plans. Imports torch.

Lessons of one step share their prompt, since the workers are the same; it is computed once: each question and its plan
see the prompt and themselves, not each other. That is exact, and cheaper by half than a sequence for each lesson. A
lesson is drawn by its number, and the state on disk has everything that the next step depends on, so a training that
was stopped goes on to the same weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.train.base_model import find_base_model, has_fast_bfloat16, quiet_libraries, render_chat
from conductor_cli.train.recipe import require
from training.smollm2.lessons import Lesson, lessons

with require("torch"):
    import torch
    from torch.nn.functional import cross_entropy, linear
with require("peft"):
    from peft import LoraConfig, get_peft_model
with require("transformers"):
    from transformers import AutoModelForCausalLM

STATE: Final = "state.pt"
LAYERS: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The linear layers of a Llama."""

IGNORED: Final = -100
KEEP: Final = 120.0  # seconds between two writings of the state


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How long and how fast. The rate rises over `warmup` steps and falls over the last third of `steps`.

    Each step has `questions` lessons. The layers below `first_layer` are left as they are, which saves time.
    """

    steps: int = 200
    questions: int = 12
    rate: float = 6e-4
    warmup: int = 8
    rank: int = 32
    alpha: int = 64
    first_layer: int = 6
    seed: int = 1

    def rate_at(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        falling = min(1.0, (self.steps - step) / max(self.steps / 3, 1))
        return self.rate * min(1.0, (step + 1) / self.warmup) * max(falling, 0.1)


@dataclass(frozen=True, slots=True)
class Packed:
    """Lessons in one sequence: token ids, positions, which token sees which, and what is to be predicted, else -100."""

    tokens: list[int]
    positions: list[int]
    owners: list[int]
    wanted: list[int]


def pack(items: Sequence[Lesson], tokenizer: Any) -> Packed:
    """Lessons with the same beginning of their prompt in one sequence. `owners` is 0 for what all of them see."""
    texts = [render_chat(tokenizer, item.messages) for item in items]
    prompts = [tokenizer(text)["input_ids"] for text in texts]
    plans = [[*tokenizer(item.plan, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id] for item in items]
    shared = _shared_length(prompts)
    tokens, positions, owners, wanted = list(prompts[0][:shared]), list(range(shared)), [0] * shared, [IGNORED] * shared
    for owner, (prompt, plan) in enumerate(zip(prompts, plans, strict=True), start=1):
        own = [*prompt[shared:], *plan[:-1]]
        tokens += own
        positions += range(shared, shared + len(own))
        owners += [owner] * len(own)
        wanted += [IGNORED] * (len(prompt) - shared - 1) + plan
    return Packed(tokens, positions, owners, wanted)


def _shared_length(prompts: Sequence[Sequence[int]]) -> int:
    """How many tokens all prompts begin with; at least one token of each is left over."""
    least = min(map(len, prompts)) - 1
    return next((at for at in range(least) if len({prompt[at] for prompt in prompts}) > 1), least)


def train(
    base: Path, out: Path, course: Course, *, minutes: float, say: Callable[[str], None], most: int | None = None
) -> bool:  # fmt: skip
    """Train until all steps are done (True), or the minutes or `most` steps are over (False).

    The adapter is in `out` in PEFT's form. Raises `ConfigError` if the state in `out` belongs to another course.
    """
    tokenizer = find_base_model(str(base)).tokenizer
    model, optimizer, step = _resume(base, out, course)
    began = kept = time.monotonic()
    losses: list[float] = []
    while step < course.steps and time.monotonic() - began < 60 * minutes and len(losses) != most:
        packed = pack(lessons(step, course.questions, course.seed), tokenizer)
        for group in optimizer.param_groups:
            group["lr"] = course.rate_at(step)
        losses.append(_step(model, optimizer, packed))
        step += 1
        if step % 5 == 0:
            recent = losses[-5:]
            took = (time.monotonic() - began) / len(losses)
            say(f"step {step} of {course.steps}: loss {sum(recent) / len(recent):.4f}, {took:.1f} s a step")
        if time.monotonic() - kept > KEEP:
            _keep(model, optimizer, out, course, step)
            kept = time.monotonic()
    _keep(model, optimizer, out, course, step)
    return step >= course.steps


def loss_of(model: Any, packed: Packed) -> Any:
    """The mean loss of the tokens that are wanted. Only for these the vocabulary is computed."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    device = inner.device
    owners = torch.tensor(packed.owners, device=device)
    same = (owners[:, None] == owners[None, :]) | (owners[None, :] == 0)
    sees = (same & torch.ones_like(same).tril())[None, None]
    wanted = torch.tensor(packed.wanted, device=device)
    at = wanted != IGNORED
    with torch.autocast(device.type, torch.bfloat16, enabled=inner.dtype == torch.bfloat16):
        hidden = inner.model(
            input_ids=torch.tensor([packed.tokens], device=device),
            position_ids=torch.tensor([packed.positions], device=device), attention_mask=sees, use_cache=False,
        ).last_hidden_state[0][at]  # fmt: skip
        logits = linear(hidden, inner.get_output_embeddings().weight)
    return cross_entropy(logits.float(), wanted[at])


def _step(model: Any, optimizer: Any, packed: Packed) -> float:
    loss = loss_of(model, packed)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_([weight for weight in model.parameters() if weight.requires_grad], 1.0)
    optimizer.step()
    return float(loss.detach())


def _resume(base: Path, out: Path, course: Course) -> tuple[Any, Any, int]:
    """The model with its adapter, the optimizer and the number of steps that are done."""
    torch.manual_seed(course.seed)
    with quiet_libraries():
        plain = AutoModelForCausalLM.from_pretrained(
            base, dtype=torch.bfloat16 if has_fast_bfloat16() else torch.float32, use_safetensors=True
        )
    layers = list(range(course.first_layer, plain.config.num_hidden_layers))
    config = LoraConfig(
        r=course.rank, lora_alpha=course.alpha, target_modules=list(LAYERS), layers_to_transform=layers,
        task_type="CAUSAL_LM",
    )  # fmt: skip
    with quiet_libraries():
        model = get_peft_model(plain, config).to("cuda" if torch.cuda.is_available() else "cpu")
    model.train()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=course.rate, betas=(0.9, 0.98), weight_decay=0.0)
    path = out / STATE
    if not path.exists():
        return model, optimizer, 0
    state = torch.load(path, weights_only=True, map_location=model.device)
    if state["form"] != _form(course):
        raise ConfigError(f"{path} belongs to another course", hint=f"remove {out} to start over")
    model.load_state_dict(state["weights"], strict=False)
    optimizer.load_state_dict(state["optimizer"])
    return model, optimizer, int(state["step"])


def _keep(model: Any, optimizer: Any, out: Path, course: Course, step: int) -> None:
    """Write the state, whole or not at all, and the adapter beside it."""
    out.mkdir(parents=True, exist_ok=True)
    weights = {name: weight.detach() for name, weight in model.named_parameters() if weight.requires_grad}
    state = {"form": _form(course), "step": step, "weights": weights, "optimizer": optimizer.state_dict()}
    new = out / f".{STATE}.new"
    torch.save(state, new)
    new.replace(out / STATE)
    model.save_pretrained(out, safe_serialization=True)


def _form(course: Course) -> Mapping[str, Any]:
    """What of a course must not change between two calls. How many steps it has may."""
    return {"questions": course.questions, "rank": course.rank, "first_layer": course.first_layer, "seed": course.seed}
