"""`conductor train`: check that everything a training needs is there, estimate its cost, train, and export."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from decimal import Decimal
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Self

from conductor_cli.app.checks import Check
from conductor_cli.app.evaluation import load_cases, sample_cases
from conductor_cli.app.opened_conductor import OpenedConductor, open_conductor
from conductor_cli.core.errors import ConductorError, ConfigError, PolicyError, UsageError
from conductor_cli.core.formatting import format_size
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Pool
from conductor_cli.evals.cases import Case
from conductor_cli.evals.cost import CostEstimate
from conductor_cli.evals.mathematics import require_math_verify
from conductor_cli.models.disk import check_room
from conductor_cli.models.response_cache import model_identity
from conductor_cli.train.checkpoints import check_settings, exclusive_directory, last_checkpoint, step_of
from conductor_cli.train.cost import estimate_cost
from conductor_cli.train.dependencies import check_installed
from conductor_cli.train.distributed import is_first
from conductor_cli.train.hardware import weight_bytes
from conductor_cli.train.recipe import COLOCATE, OFF, Recipe
from conductor_cli.train.rollouts import Rollouts
from conductor_cli.train.tasks import TaskCurriculum, bare_conductor

# `train.base_model` and `train.session` import torch, which takes seconds and may not be installed. They are imported
# where they are used.
if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.train.base_model import BaseModel


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRequest:
    """What to train. `max_cost` is in US dollars, over all runs of the training. `merged`: export a whole model."""

    recipe: Recipe
    cases: str
    case_format: str | None
    directory: Path
    workers: tuple[str, ...] = ()
    max_cost: Decimal | None = None
    minutes: float | None = None
    export: bool = False
    merged: bool = False

    @property
    def exports_adapter(self) -> bool:
        return self.recipe.lora is not None and not self.merged


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """How a run of the trainer ended. If the training is not `complete`, the same request continues it."""

    complete: bool
    checkpoint: Path | None = None
    exported: Path | None = None


class _Skipped(Exception):
    """A check cannot run, because the check that it names failed."""


class Training:
    """The checks of one request, and the training itself. Use it as a context manager: it closes the workers.

    `error` is the first error that a check found.
    """

    def __init__(self, request: TrainingRequest, settings: Settings) -> None:
        self.request = request
        self.error: ConductorError | None = None
        self._settings = settings
        self._runner = asyncio.Runner()
        self._opened: OpenedConductor | None = None
        self._base: BaseModel | None = None
        self._cases: tuple[Case, ...] = ()
        self._longest_prompt = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._opened is not None:
            self._runner.run(self._opened.close())
        self._runner.close()

    # The checks. Each stores what the later ones need.

    def check(self) -> list[Check]:
        """Check everything, in order."""
        for name in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):  # training uses only what is on this machine
            os.environ.setdefault(name, "1")
        checks = {
            "libraries": self._check_libraries, "base model": self._check_base_model, "workers": self._check_workers,
            "cases": self._check_cases, "prompts": self._check_prompts, "directory": self._check_directory,
            "memory": self._check_memory, "sampling": self._check_sampling, "export": self._check_export,
            "cost": self._check_cost,
        }  # fmt: skip
        found: list[Check] = []
        for name, check in checks.items():
            try:
                found.append(Check(name=name, state="ok", found=check()))
            except _Skipped as skipped:
                found.append(Check(name=name, state="warning", found=f"skipped: the check '{skipped}' failed"))
            except ConductorError as error:
                self.error = self.error or error
                same = next((it for it in found if it.code and it.found == error.message), None)
                found.append(
                    Check(name=name, state="failed", found=error.message, hint=error.hint, code=error.exit_code)
                    if same is None
                    else Check(name=name, state="warning", found=f"skipped: the check '{same.name}' failed")
                )
        return found

    def _check_libraries(self) -> str:
        needed = ("torch", "transformers", "trl", "accelerate", *(("peft",) if self.request.recipe.lora else ()))
        check_installed(needed)
        return ", ".join(f"{name} {version(name)}" for name in needed)

    def _check_base_model(self) -> str:
        from conductor_cli.train.base_model import find_base_model

        self._base = base = find_base_model(self.request.recipe.base, self.request.recipe.lora)
        adapter = base.adapter_weights
        trained = f", of which an adapter of {adapter / 1e6:.3g} M is trained" if adapter else ""
        return f"{base.directory}: {base.architecture}, {base.weights / 1e6:,.4g} M weights{trained}"

    def _check_workers(self) -> str:
        request = self.request
        self._opened = opened = self._runner.run(
            open_conductor(self._settings, only=request.workers, planning=False, seed=request.recipe.seed)
        )
        if opened.conductor.unavailable:
            name, failure = next(iter(opened.conductor.unavailable.items()))
            raise ConfigError(f"the worker {name} cannot be opened: {failure.message}", hint=failure.hint)
        pool = self._pool()
        if len(pool) < 2:
            raise ConfigError(
                f"{pool.workers[0].name} is the only worker: there is nothing to choose between",
                hint="conductor workers add NAME --kind KIND",
            )
        unknown = [worker.name for worker in pool if not worker.card.strengths]
        without = f"; without a card: {', '.join(unknown)} (conductor workers calibrate)" if unknown else ""
        return f"{', '.join(pool.names)}{without}"

    def _check_cases(self) -> str:
        request, recipe = self.request, self.request.recipe
        if not request.cases:
            raise UsageError("no cases are given", hint="--cases CASES.jsonl, as for conductor eval")
        _, found = load_cases(request.cases, form=request.case_format, count=None, seed=recipe.seed)
        self._cases = sample_cases(found, min(recipe.max_cases, len(found)), recipe.seed)
        if any(case.scorer == "math" for case in self._cases):
            require_math_verify()
        drawn = recipe.steps * recipe.prompts
        return f"{len(self._cases)} of {len(found)}; {drawn} are drawn, {drawn / len(self._cases):.3g} times each"

    def _check_prompts(self) -> str:
        from conductor_cli.train.base_model import longest_prompt

        base, curriculum, recipe = self._found_base(), self._curriculum(), self.request.recipe
        rollouts = Rollouts(conductor=bare_conductor(recipe, self._pool(), self._settings.limits))
        exercises = [curriculum.exercise(number) for number in range(recipe.steps * recipe.prompts)]
        self._longest_prompt = longest_prompt(base, list(map(rollouts.prompt, exercises)))
        if self._longest_prompt + recipe.max_plan_tokens > base.context:
            raise ConfigError(
                f"a prompt of {self._longest_prompt} tokens and a plan of {recipe.max_plan_tokens} do not fit the "
                f"model's context of {base.context}",
                hint="use a base model with a longer context",
            )
        return f"at most {self._longest_prompt} tokens, and {recipe.max_plan_tokens} for a plan"

    def _check_directory(self) -> str:
        base, directory, recipe = self._found_base(), self.request.directory, self.request.recipe
        check_settings(directory, self._curriculum().as_dict())
        # Two checkpoints and the next one, each with the weights and Adam's two moments in 32 bits.
        size = 3 * 12 * (base.adapter_weights or base.weights)
        done = step_of(last_checkpoint(directory))
        check_room(directory, 0 if done else size, "--out")
        return (
            f"{directory}, {f'resumes after step {done} of {recipe.steps}' if done else f'needs {format_size(size)}'}"
        )

    def _check_memory(self) -> str:
        from conductor_cli.train.session import find_hardware, trl_arguments

        base, recipe, hardware = self._found_base(), self.request.recipe, find_hardware()
        trl_arguments(recipe, self._longest_prompt)  # raises if a step cannot be divided over the processes
        needed = weight_bytes(base.weights, base.adapter_weights, recipe, hardware)
        where = f"each of {hardware.processes} GPUs" if hardware.gpu else "this machine"
        found = f"{format_size(needed)} of the {format_size(hardware.memory)} of {where}, and activations"
        if needed > hardware.memory:
            advice = "" if recipe.lora else "train an adapter (--lora), or "
            raise ConfigError(f"it needs {found}", hint=f"{advice}use more GPUs: see docs/train.md")
        return found

    def _check_sampling(self) -> str:
        from conductor_cli.train.session import find_hardware

        vllm = self.request.recipe.vllm
        if vllm == OFF:
            return "transformers samples the plans"
        try:
            installed = version("vllm")
        except PackageNotFoundError:
            raise ConfigError(
                "vLLM, which is to sample the plans, is not installed",
                hint="pip install 'trl[vllm]', or train without it: --vllm off",
            ) from None
        if vllm == COLOCATE and not find_hardware().gpu:
            raise ConfigError(
                "vLLM needs a GPU to run in the training processes, and there is none",
                hint="--vllm off, or the URL of a vLLM server: --vllm http://HOST:8000",
            )
        return f"vLLM {installed}, {'in the training processes' if vllm == COLOCATE else vllm}"

    def _check_export(self) -> str:
        if not self.request.export:
            return "not requested"
        from conductor_cli.train.session import check_exportable

        check_exportable(self._found_base())
        return f"{'an adapter' if self.request.exports_adapter else 'a whole model'}, in {self.request.directory}"

    def _check_cost(self) -> str:
        limit, weight = self.request.max_cost, self.request.recipe.cost_weight
        unpriced = [worker.name for worker in self._pool() if worker.price is None]
        if unpriced and (limit is not None or weight):
            option = "--max-cost" if limit is not None else "--cost-weight"
            raise PolicyError(
                f"{option} needs prices, and no price is known for {', '.join(unpriced)}",
                hint="set them (conductor workers add … --price IN,OUT), or choose other workers: --workers",
            )
        if weight and self.is_free:
            raise PolicyError("--cost-weight has no effect: no worker costs anything", hint="leave it out")
        estimate = self.estimate()
        text = "; ".join(estimate.lines())
        if limit is None:
            return text
        early = ", which ends the training before all steps are done" if limit < estimate.low.cost[0] else ""
        return f"{text}; at most ${limit}{early}"

    # What the checks have found

    def _found_base(self) -> BaseModel:
        if self._base is None:
            raise _Skipped("base model")
        return self._base

    def _pool(self) -> Pool:
        """The workers without the conductor itself: training plans, and never reviews."""
        if self._opened is None:
            raise _Skipped("workers")
        pool = Pool(workers=tuple(worker for worker in self._opened.conductor.pool if worker.kind != SELF))
        if not pool.workers:
            raise ConfigError("there are no workers", hint="conductor workers add NAME --kind KIND")
        return pool

    def _curriculum(self) -> TaskCurriculum:
        pool = self._pool()
        if not self._cases:
            raise _Skipped("cases")
        identities = {
            worker.name: [model_identity(worker), worker.about, dict(worker.card.strengths)] for worker in pool
        }
        return TaskCurriculum(recipe=self.request.recipe, cases=self._cases, workers=pool.names, identities=identities)

    def estimate(self) -> CostEstimate:
        """The cost of the steps that remain: each of their plans is a run."""
        done = step_of(last_checkpoint(self.request.directory))
        return estimate_cost(self._curriculum(), self._pool(), begin=done)

    @property
    def is_free(self) -> bool:
        """Whether all workers are known to cost nothing."""
        prices = [worker.price for worker in self._pool()]
        return all(price is not None and not (price.input or price.output) for price in prices)

    # The training

    def lock(self) -> AbstractContextManager[None]:
        """Keep other trainings out of the directory. Of several processes, the first does it for all of them."""
        return exclusive_directory(self.request.directory) if is_first() else nullcontext()

    def run(self, log: Callable[[str], None]) -> TrainingResult:
        """Train after `check`, until all steps are done or the time is up, and export the result. Everything is kept.

        Of several processes, only the first calls `log` and exports.
        """
        from conductor_cli.train.session import TrainingSession, export_result, open_rollouts, run_session

        request, opened, base = self.request, self._opened, self._found_base()
        assert opened is not None
        conductor = replace(opened.conductor, pool=self._pool())
        with open_rollouts(request.directory, request.recipe, conductor, request.max_cost) as rollouts:
            session = TrainingSession(
                base=base, curriculum=self._curriculum(), rollouts=rollouts, prompt=self._longest_prompt,
                directory=request.directory, log=log if is_first() else _discard, run_async=self._runner.run,
                max_seconds=math.inf if request.minutes is None else 60 * request.minutes,
            )  # fmt: skip
            if not run_session(session):
                return TrainingResult(complete=False)
        exported = None
        if request.export and is_first():
            exported = export_result(request.directory, base, request.recipe, merged=request.merged).absolute()
        return TrainingResult(complete=True, checkpoint=last_checkpoint(request.directory), exported=exported)


def _discard(line: str) -> None:
    del line
