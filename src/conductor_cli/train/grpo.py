"""GRPO: TRL samples the plans and updates the weights, the rewards come from runs.

Imports torch and trl.

The same code trains a user's conductor and the demo conductor; `TrainingJob` holds what differs. A
training that is stopped leaves a checkpoint and continues from it to the same result: exercises are
drawn by their number, and TRL stores the optimizer and the state of its random numbers.

Plans of the validation are greedy and use one fixed seed. TRL's own evaluation samples at
temperature 1, and computes losses that nobody reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Final

from conductor_cli.core.errors import ConductorError, ConfigError
from conductor_cli.core.formatting import format_duration, format_money
from conductor_cli.core.mappings import only_keys
from conductor_cli.core.pool import Pool
from conductor_cli.core.terminal_text import short_line
from conductor_cli.models.base import Model
from conductor_cli.models.llama.lora import convert_adapter
from conductor_cli.models.response_cache import CachedModel, ResponseCache, model_identity
from conductor_cli.run import Orchestra
from conductor_cli.train import checkpoints
from conductor_cli.train import job as jobs
from conductor_cli.train.base_model import (
    BaseModel,
    has_fast_bfloat16,
    load_model,
    quiet_libraries,
    render_chat,
)
from conductor_cli.train.recipe import Recipe, require
from conductor_cli.train.reward import RewardFunction
from conductor_cli.train.rollouts import (
    BudgetedModel,
    Exercise,
    Rollouts,
    SampledPlan,
    TrainingBudget,
)

with require("torch"):
    import torch
with require("transformers"):
    from safetensors import SafetensorError
    from transformers import GenerationConfig, PrinterCallback, TrainerCallback
with require("trl"):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer
    from trl.generation import vllm_generation
    from trl.trainer import grpo_trainer

STORED: Final = (
    "loss",
    "grad_norm",
    "learning_rate",
    "entropy",
    "completions/mean_length",
    "completions/clipped_ratio",
)
"""TRL's own figures that are stored beside ours."""

PRINTED: Final = (
    "reward",
    "valid",
    "right_given_valid",
    "steps",
    "calls",
    "routing_entropy",
    "signal",
    "entropy",
)


Torch = Any
"""An object of torch, transformers, TRL or peft, whose types this project does not check."""


class _Trainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer, which draws groups without a signal again.

    It makes no connection to the Hugging Face hub.
    """

    job: jobs.TrainingJob

    def _send_telemetry(self) -> None:
        pass

    def create_model_card(self, *_: object, **__: object) -> None:
        """Write no model card."""

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the plans of a step and their rewards, as TRL makes them.

        The plans of a group that all earn the same give way to those for another case.

        A process holds whole groups. All of them sample as many plans, as TRL's exchanges between
        them demand, so what one samples too much is not run.
        """
        step: dict[str, Any] = super()._generate_and_score_completions(inputs)
        group = self.num_generations
        for turn in range(1, self.job.tries):
            silent_rows = []
            for row in range(0, len(inputs), group):
                if not _has_signal(step, row, group):
                    silent_rows.append(row)
            most_silent = max(jobs.gather_lists([len(silent_rows)]))
            if not most_silent:
                break
            first = self._first_number(turn, groups=len(inputs) // group)
            numbers = list(range(first, first + len(silent_rows)))
            numbers += [jobs.NOT_RUN] * (most_silent - len(numbers))
            redrawn = super()._generate_and_score_completions(self._group_rows(numbers))
            moved = []
            for index, row in enumerate(silent_rows):
                if _has_signal(redrawn, group * index, group):
                    moved.append((row, group * index))
            step = self._with_groups(step, redrawn, moved)
        return step

    def _first_number(self, turn: int, *, groups: int) -> int:
        """Return the first of `groups` numbers that no other step, turn or process has."""
        curriculum = self.job.curriculum
        turns_before = self.state.global_step * self.job.tries + turn
        draws_before = turns_before * jobs.process_count() + self.accelerator.process_index
        first: int = curriculum.steps * curriculum.prompts + draws_before * groups
        return first

    def _group_rows(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return the rows of the exercises with these numbers, one row for each plan."""
        rows = list[dict[str, Any]]()
        for number in numbers:
            for _ in range(self.num_generations):
                rows.append(_row(self.job, self.processing_class, number))
        return rows

    def _with_groups(
        self, step: dict[str, Any], others: dict[str, Any], moved: list[tuple[int, int]]
    ) -> dict[str, Any]:
        """Return the tensors of a step with some groups of others.

        `moved` has the first rows of a group in both.
        """
        rows = self.num_generations
        merged = dict(step)
        for name, tensor in step.items():
            if not torch.is_tensor(tensor) or not tensor.dim():
                continue
            target = tensor
            source = others[name]
            if tensor.dim() > 1:
                width = max(target.size(1), source.size(1))
                target = self._padded(name, target, width)
                source = self._padded(name, source, width)
            merged[name] = target.clone()
            for to, at in moved:
                merged[name][to : to + rows] = source[at : at + rows]
        tokens = self.accelerator.gather(merged["completion_mask"].sum()).sum()
        merged["num_items_in_batch"] = tokens
        return merged

    def _padded(self, name: str, tensor: Torch, width: int) -> Torch:
        """Return a tensor so wide: prompts are padded on the left, plans on the right."""
        fill = 0
        if name.endswith("_ids"):
            fill = self.processing_class.pad_token_id
        gap = width - tensor.size(1)
        sides = (0, gap)
        if name.startswith("prompt"):
            sides = (gap, 0)
        return torch.nn.functional.pad(tensor, sides, value=fill)

    def likeliest(self, exercises: Sequence[Exercise]) -> Iterator[SampledPlan]:
        """Yield the plans that are written without chance.

        All processes have to call it, for as many exercises.
        """
        prompts = []
        for exercise in exercises:
            prompts.append(render_chat(self.processing_class, self.job.rollouts.prompt(exercise)))
        greedy = GenerationConfig(**{**getattr(self, "generation_kwargs", {}), "do_sample": False})
        sampler = self
        name = "generation_config"
        value = greedy
        if self.use_vllm:
            sampler = self.vllm_generation
            name = "temperature"
            value = 0.0
        kept = getattr(sampler, name)
        setattr(sampler, name, value)
        try:
            ids, images, fields = self._tokenize_prompts(prompts)
            plans, _ = self._generate_single_turn(ids, images, fields, 1)
        finally:
            setattr(sampler, name, kept)
        for exercise, tokens in zip(exercises, plans, strict=True):
            text = self.processing_class.decode(tokens, skip_special_tokens=True)
            yield SampledPlan(
                exercise=exercise,
                text=text,
                complete=not set(self.eos_token_ids).isdisjoint(tokens),
            )

    def _likeliest_in_batches(self, exercises: Sequence[Exercise]) -> list[SampledPlan]:
        """Return the plan of each exercise that is written without chance.

        vLLM gets all prompts, and makes batches as its memory allows. Without it as many are read
        at once as in a step, which has to fit anyway; half of them where they do not fit.
        """
        batch = len(exercises)
        if not self.use_vllm:
            batch = self.job.curriculum.prompts * self.job.curriculum.group // jobs.process_count()
        plans = list[SampledPlan]()
        while len(plans) < len(exercises):
            part = exercises[len(plans) : len(plans) + batch]
            written = self._likeliest_that_fit(part)
            if written is None:
                batch = len(part) // 2
                self.job.log(
                    f"{len(part)} plans of the validation do not fit the memory at once: it goes "
                    f"on with {batch}"
                )
                continue
            plans += written
        return plans

    def _likeliest_that_fit(self, exercises: Sequence[Exercise]) -> list[SampledPlan] | None:
        """Return the plan of each exercise; None where that needs more memory than there is.

        Several processes would have to agree on fewer, so the error is raised there.
        """
        try:
            return list(self.likeliest(exercises))
        except torch.OutOfMemoryError:
            if len(exercises) == 1 or jobs.process_count() > 1:
                raise
        # Only now nothing holds what did not fit, and torch gives it back.
        torch.cuda.empty_cache()
        return None

    def validate(self) -> dict[str, Any]:
        """Return the figures of the likeliest plans for the validation set.

        Those of `job.compute_metrics`, `cases`, their number, and the `rewards` and `rights` of
        each, in the order of the set.

        The seeds of the workers are always the same. So equal plans get equal answers, and a curve
        shows what the model has learnt, not the luck of its workers. Each process measures a part.
        """
        job = self.job
        count = jobs.process_count()
        mine = list(range(self.accelerator.process_index, len(job.validation), count))
        most = -(-len(job.validation) // count)
        padded = [*mine, *[0] * (most - len(mine))]  # all processes have to sample equally often
        plans = self._likeliest_in_batches([job.validation[number] for number in padded])
        outcomes = jobs.gather_lists(job.run_plans(plans[: len(mine)]))
        numbers = jobs.gather_lists(mine)
        return {
            **jobs.compute_metrics(outcomes, 1),
            "cases": len(outcomes),
            **jobs.results_in_order(numbers, outcomes),
        }


def _has_signal(tensors: Mapping[str, Any], at: int, group: int) -> bool:
    """Return whether the plans of a group earned different rewards.

    TRL makes 0 of equal ones, up to rounding.
    """
    return bool(tensors["advantages"][at : at + group].abs().max() > 1e-2)


class AdapterSampler(vllm_generation.VLLMGeneration):  # type: ignore[misc]
    """TRL's vLLM, which gets a trained adapter as such.

    Merged into weights of 16 bits, steps of 1e-5 would be lost.
    """

    directory: Path  # Where the adapters are written

    def _init_vllm(self) -> None:
        # vLLM knows powers of 2
        rank = max(8, 1 << (self.model.peft_config["default"].r - 1).bit_length())
        vllm_generation.LLM = partial(vllm_generation.LLM, enable_lora=True, max_lora_rank=rank)
        super()._init_vllm()
        self._version = 0
        self._generate = self.llm.generate

    def sync_weights(self) -> None:
        """Hand over the weights of this step. vLLM keeps what it has read under a number."""
        from vllm.lora.request import LoRARequest

        self._version += 1
        path = str(self.directory / str(self._version))
        weights = {}
        for name, weight in self.model.state_dict().items():
            if "lora_" in name:
                weights[name] = weight
                if hasattr(weight, "full_tensor"):  # FSDP 2 holds a part of each weight
                    weights[name] = weight.full_tensor()
        self.model.save_pretrained(path, state_dict=weights)
        handed = LoRARequest(f"step-{self._version}", self._version, path)
        self.llm.generate = partial(self._generate, lora_request=handed)
        self.llm.reset_prefix_cache()
        checkpoints.remove_old_adapter(self.directory, newest=self._version)


def train_model(
    model: Torch,
    tokenizer: Torch,
    job: jobs.TrainingJob,
    arguments: Mapping[str, Any],
    adapter: Torch = None,
) -> bool:
    """Train until all steps are done (True) or the time is up (False).

    `model` and `tokenizer` are those of transformers, `adapter` are the settings of peft.
    `arguments` are further ones for TRL.

    Raises `ConfigError` if numbers are not finite, the disk is full, or the directory holds another
    training; and what the runs raise, such as `LimitReached`. The last good checkpoint stays, and
    the next call resumes from it.
    """
    # Without the cache, every sampled token would cost a pass over the whole text.
    model.config.use_cache = True
    model.generation_config.use_cache = True
    if jobs.is_first():
        checkpoints.write_settings(job.directory, job.curriculum.as_dict())
    checkpoint = checkpoints.last_checkpoint(job.directory)
    callback = MetricsCallback(job, step=checkpoints.step_of(checkpoint))
    grpo_trainer.VLLMGeneration = vllm_generation.VLLMGeneration
    if adapter:
        grpo_trainer.VLLMGeneration = AdapterSampler
    handed = checkpoints.adapter_directory(
        job.directory, rank=jobs.process_rank(), processes=jobs.process_count()
    )
    with quiet_libraries(), handed as AdapterSampler.directory:
        trainer = _make_trainer(model, tokenizer, job, arguments, adapter, callback)
        _train(trainer, job, checkpoint)
    if callback.broken_step:
        hint = "check the base model"
        if good := checkpoints.last_checkpoint(job.directory):
            hint = f"the last good checkpoint is {good}"
        raise ConfigError(
            f"the weights are not finite numbers after step {callback.broken_step}: training "
            "stopped",
            hint=hint,
        )
    return bool(trainer.state.global_step >= job.curriculum.steps)


def _make_trainer(  # noqa: PLR0913, PLR0917 - all of it decides how TRL trains
    model: Torch,
    tokenizer: Torch,
    job: jobs.TrainingJob,
    arguments: Mapping[str, Any],
    adapter: Torch,
    callback: MetricsCallback,
) -> _Trainer:
    curriculum = job.curriculum
    common = {
        "output_dir": str(job.directory),
        "max_steps": curriculum.steps,
        "seed": curriculum.seed,
        "num_generations": curriculum.group,
        "max_completion_length": curriculum.max_plan_tokens,
        "shuffle_dataset": False,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "report_to": [],
        "disable_tqdm": True,
        "save_strategy": "steps",
        "save_steps": 20,
        "save_total_limit": 2,
    }
    rows = [_row(job, tokenizer, number) for number in range(curriculum.steps * curriculum.prompts)]
    trainer = _Trainer(
        model=model,
        args=GRPOConfig(**{**common, **arguments}),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        reward_funcs=job.rewards,
        callbacks=[callback],
        peft_config=adapter,
    )
    # Then `generate` goes on until the longest plan of all processes has ended, since each
    # holds a part of a layer. Transformers has no setting for it
    model._is_fsdp_managed_module = trainer.is_fsdp_enabled  # noqa: SLF001
    trainer.job = job
    callback.trainer = trainer
    trainer.remove_callback(PrinterCallback)
    _check_weights(trainer)
    return trainer


def _train(trainer: Torch, job: jobs.TrainingJob, checkpoint: Path | None) -> None:
    """Train from a checkpoint, or from the beginning. Raises as `train_model`."""
    resumed = {}
    if checkpoint:
        resumed["resume_from_checkpoint"] = str(checkpoint)
    try:
        trainer.train(**resumed)
    except ConductorError:
        if good := checkpoints.last_checkpoint(job.directory):
            job.log(f"the last good checkpoint is {good}")
        raise
    except torch.OutOfMemoryError:
        raise
    except (OSError, RuntimeError, EOFError, SafetensorError, UnpicklingError) as error:
        # The libraries raise any of these for a full disk, a damaged checkpoint, and logits that
        # are not finite.
        raise _stopped_error(trainer, job, checkpoint, error) from error


def _stopped_error(
    trainer: Torch, job: jobs.TrainingJob, checkpoint: Path | None, error: Exception
) -> ConfigError:
    """Return what a user is told of an error of the libraries, and how to go on."""
    problem = short_line(str(error))
    if isinstance(error, EOFError | UnpicklingError):
        # What torch says of a file that it cannot read is advice to load it without protection.
        problem = "its checkpoint cannot be read"
    damaged = ""
    if checkpoint:
        damaged = f"remove {checkpoint} if it is damaged, "
    return ConfigError(
        f"training stopped after step {trainer.state.global_step}: {problem}",
        hint=f"check the free space of {job.directory}, {damaged}and run the same command again "
        "to resume",
    )


def _check_weights(trainer: Torch) -> None:
    """Raise `ConfigError` unless trained weights have 32 bits and are stored whole.

    A library may change their bits. With DeepSpeed ZeRO-3, TRL keeps an adapter in the 16 bits of
    the frozen weights (`GRPOTrainer.__init__`, trl pull request 6091), because DeepSpeed cannot
    gather weights of two kinds (DeepSpeed issue 8072).
    """
    weights = (weight for weight in trainer.model.parameters() if weight.requires_grad)
    small_types = {str(weight.dtype) for weight in weights} - {"torch.float32"}
    if small_types:
        raise ConfigError(
            f"the trained weights are {', '.join(sorted(small_types))}, in which steps as small as "
            "these are rounded away",
            hint="use another accelerate configuration, without DeepSpeed ZeRO-3 for --lora: see "
            "docs/train.md",
        )
    plugin = getattr(trainer.accelerator.state, "fsdp_plugin", None)
    if plugin is not None and "FULL" not in str(plugin.state_dict_type):
        problem = "FSDP would write checkpoints in parts, which no other program reads"
        raise ConfigError(
            problem,
            hint="set fsdp_state_dict_type: FULL_STATE_DICT in the accelerate configuration",
        )


def _row(job: jobs.TrainingJob, tokenizer: Torch, number: int) -> dict[str, Any]:
    """Return the prompt of an exercise and its number."""
    # A text, because TRL would begin a new reply after a message of the assistant.
    exercise = job.curriculum.exercise(max(number, 0))
    return {"prompt": render_chat(tokenizer, job.rollouts.prompt(exercise)), "number": number}


class MetricsCallback(TrainerCallback):  # type: ignore[misc]
    """Writes the metrics, validates, stops in time, and stops at numbers that are not finite."""

    trainer: _Trainer

    def __init__(self, job: jobs.TrainingJob, *, step: int) -> None:
        self.broken_step = 0  # The step at which numbers were not finite
        self._job = job
        self._began = job.clock()
        self._first = step
        self._path = job.directory / "curve.jsonl"
        if jobs.is_first():
            jobs.keep_metrics(self._path, step)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ANN401, ARG002
        """Validate the model before its first step: the others are compared with that."""
        is_measured = jobs.gather_lists([bool(jobs.read_metrics(self._path))])[0]
        if state.global_step or not self._job.validation or is_measured:
            return
        line = {"step": 0, "validation": self.trainer.validate()}
        if jobs.is_first():
            jobs.add_metrics(self._path, line)
            self._job.log(f"before training: {checkpoints.describe_validation(line)}")

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ANN401, ARG002
        """Keep a checkpoint that has been written, where it is the best one now."""
        if not jobs.is_first():
            return
        best = checkpoints.best_line(jobs.read_metrics(self._path))
        if best is not None and best["step"] == state.global_step:
            checkpoints.keep_best(
                self._job.directory, self._job.directory / f"checkpoint-{state.global_step}"
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ANN401, ARG002
        """Stop in time, or at broken weights, before a checkpoint is written."""
        # All processes have to stop at the same step.
        is_late = self._job.clock() - self._began > self._job.max_seconds
        is_over = any(jobs.gather_lists([is_late]))
        is_broken = any(jobs.gather_lists([not _is_finite(kwargs["model"])]))
        if is_broken:
            self.broken_step = state.global_step
        if is_over or is_broken:
            control.should_training_stop = True
            control.should_save = not is_broken

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:  # noqa: ANN401, ARG002
        """Store and tell the metrics of a step, and validate where that is due.

        If the weights are sharded over processes, broken numbers show here first.
        """
        if "loss" not in (logs or {}):
            return
        if not all(math.isfinite(logs.get(name, 0.0)) for name in ("loss", "grad_norm")):
            self.broken_step = self.broken_step or state.global_step
            control.should_training_stop = True
            control.should_save = False
        job = self._job
        step = state.global_step
        line = {"step": step, **job.take_metrics(), **only_keys(logs, STORED)}
        # Then there is a checkpoint, too
        is_due = step % job.validate_every == 0 or step >= job.curriculum.steps
        if not self.broken_step and job.validation and is_due:
            line["validation"] = self.trainer.validate()
        if not jobs.is_first():
            return
        seconds = job.clock() - self._began
        jobs.add_metrics(self._path, {**line, "seconds": seconds, "resumed": self._first})
        text = _describe_step(line)
        left = 0
        if step > self._first:
            left = seconds / (step - self._first) * (job.curriculum.steps - step)
        if left >= 1:
            text += f"; {format_duration(left, tenths=False)} left"
        job.log(text)


def _describe_step(line: Mapping[str, Any]) -> str:
    """Return the metrics of a step that a user is shown."""
    parts = [f"{name} {line[name]:.3f}" for name in PRINTED if name in line]
    parts += [f"{name} {line[name]}" for name in ("failed", "told") if line.get(name)]
    if line.get("spent"):
        parts.append(f"spent {format_money(line['spent'])}")
    text = f"step {line['step']}: {', '.join(parts)}"
    if "validation" in line:
        text += f"; validation: {checkpoints.describe_validation(line)}"
    return text


def _is_finite(model: Torch) -> bool:
    """Return whether all trained weights are finite."""
    for weight in model.parameters():
        if weight.requires_grad and not torch.isfinite(weight).all():
            return False
    return True


def run_session(base: BaseModel, recipe: Recipe, job: jobs.TrainingJob) -> bool:
    """Train until all steps are done (True) or the time is up (False). Raises as `train_model`."""
    if checkpoints.step_of(checkpoints.last_checkpoint(job.directory)) >= recipe.steps:
        return True
    try:
        model, adapter = load_model(base, lora=recipe.lora)
        job = replace(job, validate_every=recipe.checkpoint_every, tries=recipe.tries)
        if isinstance(job.curriculum, jobs.TaskCurriculum):
            job.validation = job.curriculum.validation_tasks()
        return train_model(model, base.tokenizer, job, trl_arguments(recipe), adapter)
    except (torch.OutOfMemoryError, MemoryError) as error:
        hint = "use --lora, or more GPUs: see docs/train.md"
        raise ConfigError("not enough memory for a training step", hint=hint) from error


def trl_arguments(recipe: Recipe) -> dict[str, Any]:
    """Return TRL's arguments. Raises `ConfigError` if processes cannot share a step."""
    processes = jobs.process_count()
    batch = min(recipe.batch_size, recipe.samples // processes)
    if recipe.prompts % processes or recipe.samples % (batch * processes):
        raise ConfigError(
            f"{recipe.prompts} groups of {recipe.group} plans cannot be divided over {processes} "
            f"processes in batches of {recipe.batch_size}",
            hint="choose other numbers: --prompts, --set group=N",
        )
    gpu = torch.cuda.is_available()
    rate = recipe.rate
    if recipe.lora is not None:
        rate = recipe.lora.rate
    return {
        "per_device_train_batch_size": batch,
        "gradient_accumulation_steps": recipe.samples // (batch * processes),
        "beta": recipe.kl,
        "top_entropy_quantile": recipe.uncertain,
        "entropy_coef": recipe.entropy,
        "learning_rate": rate,
        "warmup_steps": recipe.warmup,
        "lr_scheduler_type": "cosine",
        "save_steps": recipe.checkpoint_every,
        "vllm_gpu_memory_utilization": recipe.vllm_memory,
        "use_cpu": not gpu,
        "bf16": has_fast_bfloat16(),
        "activation_checkpointing": gpu,
        # Seconds that a process waits for the others, whose workers may be slow
        "ddp_timeout": 4 * 3600,
        "use_vllm": recipe.vllm,
    }


@contextmanager
def open_rollouts(
    directory: Path,
    recipe: Recipe,
    opened: Orchestra,
    limit: Decimal | None = None,
    reward: RewardFunction | None = None,
) -> Iterator[Rollouts]:
    """Open the rollouts of a training over the workers of a conductor. Raises `OSError`.

    Answers in the cache are not asked for again; the others are paid from a budget of `limit` US
    dollars. The data rules and the limits of the day apply as in any run. `reward` takes the place
    of the built-in one.
    """
    budget = TrainingBudget(directory / "spent.jsonl", limit)
    cache = ResponseCache(directory / "answers.jsonl")
    budget.share(jobs.process_count())
    # The planner itself is left out: what is trained plans, and never reviews.
    members = opened.team.pool.without_self()
    orchestra = jobs.bare_orchestra(
        recipe,
        _part_of_process(members),
        opened.limits,
        workers=_wrapped_models(members, opened.team.workers, budget, cache),
        opened=opened,
    )
    try:
        yield Rollouts(
            orchestra=orchestra,
            cache=cache,
            budget=budget,
            draws=recipe.draws,
            format_bonus=recipe.format_bonus,
            unused_step=recipe.unused_step,
            reward=reward,
            concurrency=recipe.concurrency,
            tells=jobs.tells_answer,
        )
    finally:
        cache.close()
        budget.close()


def _part_of_process(pool: Pool) -> Pool:
    """Return a pool whose workers do at once what is left to this process of all that train."""
    shared = []
    for worker in pool:
        parallel = max(1, worker.parallel // jobs.process_count())
        shared.append(replace(worker, parallel=parallel))
    return Pool(workers=tuple(shared))


def _wrapped_models(
    pool: Pool, models: Mapping[str, Model], budget: TrainingBudget, cache: ResponseCache
) -> dict[str, CachedModel]:
    """Return the model of each worker, whose calls are paid from a budget unless they are cached.

    Workers that share a model share its wrapper too: a model takes one call at a time, by its
    identity.
    """
    wrapped: dict[int, CachedModel] = {}
    by_worker = {}
    for worker in pool:
        model = models[worker.name]
        if id(model) not in wrapped:
            budgeted = BudgetedModel(model, worker, budget)
            wrapped[id(model)] = CachedModel(budgeted, cache, model_identity(worker))
        by_worker[worker.name] = wrapped[id(model)]
    return by_worker


def export_adapter(directory: Path, base: BaseModel) -> Path:
    """Write the adapter of the best checkpoint, else of the last, as GGUF.

    Raises `ConfigError`, `ModelError`.
    """
    checkpoint = checkpoints.best_checkpoint(directory) or checkpoints.last_checkpoint(directory)
    if checkpoint is None:
        raise ConfigError(f"there is no checkpoint in {directory}", hint="train first")
    path = directory / "adapter.gguf"
    convert_adapter(
        checkpoint, path, architecture=base.architecture, layers=base.layers, heads=base.heads
    )
    return path
