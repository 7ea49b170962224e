"""What has to be there for a training: each thing is looked at, and what is found is kept for the training itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conductor_cli.app import case_sets
from conductor_cli.app.checks import Check
from conductor_cli.app.opened_conductor import OpenedConductor, open_conductor
from conductor_cli.core.errors import ConductorError, ConfigError, PolicyError, UsageError
from conductor_cli.core.formatting import format_size
from conductor_cli.core.plan import SELF
from conductor_cli.core.pool import Pool
from conductor_cli.evals import cost

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.evals.cases import Case
    from conductor_cli.train.base_model import BaseModel
    from conductor_cli.train.recipe import Recipe
    from conductor_cli.train.tasks import TaskCurriculum


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be trained: by which recipe, on which cases, with which workers, and where it is kept.

    `max_cost` is in US dollars, for all stages together. `merged`: the export is a whole model.
    """

    recipe: Recipe
    cases: str
    form: str | None
    out: Path
    workers: tuple[str, ...] = ()
    max_cost: Decimal | None = None
    minutes: float | None = None
    export: bool = False
    merged: bool = False
    yes: bool = False
    quiet: bool = False


class Unknown(Exception):
    """Something cannot be looked at before something else is there."""


class Readiness:
    """The looks at one order. Each either finds what the next ones need, or says what is wrong.

    `ending` runs a coroutine to its end, `prompt` is how many tokens the longest prompt has.
    """

    def __init__(self, order: Order, settings: Settings, ending: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self.order = order
        self.settings = settings
        self.first: ConductorError | None = None
        """The first thing that was wrong."""
        self.opened: OpenedConductor | None = None
        self.prompt = 0
        self._ending = ending
        self._base: BaseModel | None = None
        self._cases: tuple[Case, ...] = ()

    # What is looked at

    def checks(self) -> list[Check]:
        """Look at everything, in order."""
        for name in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):  # nothing is fetched, and nobody is told
            os.environ.setdefault(name, "1")
        looks = {
            "libraries": self._libraries, "base model": self._base_model, "workers": self._workers,
            "cases": self._all_cases, "prompts": self._prompts, "directory": self._directory, "memory": self._memory,
            "sampling": self._sampling, "export": self._exports, "cost": self._cost,
        }  # fmt: skip
        return [self._look(name, look) for name, look in looks.items()]

    def _look(self, name: str, look: Callable[[], str]) -> Check:
        try:
            return Check(name=name, state="ok", found=look())
        except Unknown as error:
            return Check(name=name, state="warning", found=str(error))
        except ConductorError as error:
            if self.first is not None and str(self.first) == str(error):
                return Check(name=name, state="warning", found="not known, for the same reason")
            self.first = self.first or error
            return Check(name=name, state="failed", found=error.message, hint=error.hint, code=error.exit_code)

    def _libraries(self) -> str:
        from importlib.metadata import version

        from conductor_cli.train.dependencies import check_installed

        needed = ("torch", "transformers", "trl", "accelerate", *(("peft",) if self.order.recipe.lora else ()))
        check_installed(needed)
        return ", ".join(f"{name} {version(name)}" for name in needed)

    def _base_model(self) -> str:
        from conductor_cli.train.base_model import find_base_model

        self._base = base = find_base_model(self.order.recipe.base, self.order.recipe.lora)
        trained = f", of which an adapter of {base.shape.adapter / 1e6:.3g} M is trained" if base.shape.adapter else ""
        return f"{base.directory}: {base.kind}, {base.shape.weights / 1e6:,.4g} M weights{trained}"

    def _workers(self) -> str:
        order = self.order
        opened = self._ending(open_conductor(self.settings, only=order.workers, planning=False, seed=order.recipe.seed))
        self.opened = opened
        if opened.conductor.absent:
            name, failure = next(iter(opened.conductor.absent.items()))
            raise ConfigError(f"the worker {name} cannot be opened: {failure.message}", hint=failure.hint)
        pool = self.pool()
        if len(pool) < 2:
            raise ConfigError(
                f"there is one worker, {pool.workers[0].name}: nothing to choose between",
                hint="conductor workers add NAME --kind KIND",
            )
        unknown = [worker.name for worker in pool if not worker.card.strengths]
        without = f"; without a card: {', '.join(unknown)} (conductor workers calibrate)" if unknown else ""
        return f"{', '.join(pool.names)}{without}"

    def _all_cases(self) -> str:
        order = self.order
        if not order.cases:
            raise UsageError("no cases are named", hint="--cases CASES.jsonl, as conductor eval takes them")
        _, found = case_sets.load_cases(order.cases, form=order.form, count=None, seed=order.recipe.seed)
        self._cases = case_sets.sample_cases(found, min(order.recipe.problems, len(found)), order.recipe.seed)
        if any(case.scorer == "math" for case in self._cases):
            from conductor_cli.evals.mathematics import require_math_verify

            require_math_verify()
        drawn = order.recipe.steps * order.recipe.prompts
        return f"{len(self._cases)} of {len(found)}; {drawn} are drawn, {drawn / len(self._cases):.3g} times each"

    def _prompts(self) -> str:
        from conductor_cli.train.base_model import longest_prompt
        from conductor_cli.train.rollouts import Rollouts
        from conductor_cli.train.tasks import bare_conductor

        base, tasks, recipe = self.base(), self.tasks(), self.order.recipe
        rollouts = Rollouts(conductor=bare_conductor(recipe, self.pool(), self.settings.limits))
        drawn = [tasks.exercise(number) for number in range(recipe.steps * recipe.prompts)]
        self.prompt = longest_prompt(base, list(map(rollouts.prompt, drawn)))
        if self.prompt + recipe.longest > base.shape.context:
            raise ConfigError(
                f"a prompt of {self.prompt} tokens and a plan of {recipe.longest} do not fit the model's context of "
                f"{base.shape.context}",
                hint="take a base model with a longer context",
            )
        return f"at most {self.prompt} tokens, and {recipe.longest} of a plan"

    def _directory(self) -> str:
        from conductor_cli.models.disk import check_room
        from conductor_cli.train.checkpoints import check_course, last_checkpoint, step_of

        base, out, recipe = self.base(), self.order.out, self.order.recipe
        check_course(out, self.tasks().described())
        trained = base.shape.adapter or base.shape.weights
        size = 3 * 12 * trained  # two checkpoints and the next one: the weights and two moments of Adam, in 32 bits
        done = step_of(last_checkpoint(out))
        check_room(out, 0 if done else size, "--out")
        return f"{out}, {f'goes on from step {done} of {recipe.steps}' if done else f'wants {format_size(size)}'}"

    def _memory(self) -> str:
        from conductor_cli.train.memory_estimate import estimate_memory, missing_vllm_memory
        from conductor_cli.train.session import find_hardware, trl_arguments

        base, recipe, here = self.base(), self.order.recipe, find_hardware()
        if not self.prompt:
            raise Unknown("not known without prompts")
        trl_arguments(recipe, self.prompt)
        if lacks := missing_vllm_memory(base.shape, recipe, self.prompt, here):
            said = f"vLLM gets {recipe.vllm_memory:.0%} of a GPU, {format_size(lacks)} too little for model and plan"
            raise ConfigError(said, hint="--vllm off, or the address of a vLLM server: --vllm http://HOST:8000")
        wanted = estimate_memory(base.shape, recipe, self.prompt, here)
        where = f"each of {here.processes} GPUs" if here.gpu else "this machine"
        said = f"about {format_size(wanted.total)} of the {format_size(here.total)} of {where}"
        if wanted.total > here.total:
            fewer = "" if recipe.lora else "train an adapter: --lora, or "
            raise ConfigError(f"it takes {said}", hint=f"{fewer}spread it over more GPUs: see docs/train.md")
        return said

    def _sampling(self) -> str:
        from conductor_cli.train.sampler import describe_sampler
        from conductor_cli.train.session import find_hardware

        return describe_sampler(self.order.recipe, gpu=find_hardware().gpu)

    def _exports(self) -> str:
        if not self.order.export:
            return "none is wanted"
        from conductor_cli.train.session import check_exportable

        check_exportable(self.base())
        adapter = self.order.recipe.lora is not None and not self.order.merged
        return f"{'an adapter' if adapter else 'a whole model'}, in {self.order.out}"

    def _cost(self) -> str:
        order, unpriced = self.order, self._unpriced()
        prices = "conductor workers add … --price IN,OUT"
        if unpriced and (order.max_cost is not None or order.recipe.cost_weight):
            what = "a cost limit cannot be kept" if order.max_cost is not None else "--cost-weight cannot be kept"
            raise PolicyError(
                f"{what}: no price is known for {', '.join(unpriced)}",
                hint=f"give them one ({prices}), or leave them out: --workers",
            )
        if order.recipe.cost_weight and self.is_free():
            raise PolicyError("--cost-weight has nothing to weigh: no worker costs anything", hint="leave it out")
        found, most = self.quote(), order.max_cost
        limit = f"; at most ${most}" if most is not None else ""
        early = ", which ends it before the course is over" if most is not None and most < found.cost[0] else ""
        return "; ".join(found.lines()) + limit + early

    # What the looks have found

    def base(self) -> BaseModel:
        if self._base is None:
            raise Unknown("not known without a base model")
        return self._base

    def pool(self) -> Pool:
        """The workers without the conductor itself: a plan is trained, no review."""
        if self.opened is None:
            raise Unknown("not known without workers")
        pool = Pool(workers=tuple(worker for worker in self.opened.conductor.pool if worker.kind != SELF))
        if not pool.workers:
            raise ConfigError("there is no worker", hint="conductor workers add NAME --kind KIND")
        return pool

    def tasks(self) -> TaskCurriculum:
        from conductor_cli.models.response_cache import model_identity
        from conductor_cli.train.tasks import TaskCurriculum

        pool = self.pool()
        if not self._cases:
            raise Unknown("not known without cases")
        who = {worker.name: [model_identity(worker), worker.about, dict(worker.card.strengths)] for worker in pool}
        return TaskCurriculum(recipe=self.order.recipe, cases=self._cases, names=pool.names, who=who)

    def quote(self) -> cost.CostEstimate:
        """What the steps that are left take: each of their plans is a run."""
        from conductor_cli.train.checkpoints import last_checkpoint, step_of
        from conductor_cli.train.quote import bounds

        done = step_of(last_checkpoint(self.order.out))
        least, most = bounds(self.tasks(), self.pool(), begin=done)
        return cost.CostEstimate(
            runs=least.runs, calls=(least.calls, most.calls), tokens=(least.tokens, most.tokens),
            cost=(least.cost, most.cost), unpriced=most.unpriced, unknown=self._unpriced(),
        )  # fmt: skip

    def is_free(self) -> bool:
        """Whether it is known that nothing costs anything."""
        prices = [worker.price for worker in self.pool()]
        return all(price is not None and not (price.input or price.output) for price in prices)

    def _unpriced(self) -> tuple[str, ...]:
        return tuple(worker.name for worker in self.pool() if worker.price is None)
