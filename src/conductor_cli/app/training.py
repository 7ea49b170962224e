"""`conductor train`.

Check that everything a training needs is there, estimate its cost, train, and export.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from conductor_cli.app.check_results import CheckResult
from conductor_cli.app.evaluation import load_cases, sample_cases
from conductor_cli.app.opening import OpenedOrchestra, OpeningRequest, open_orchestra
from conductor_cli.core.errors import (
    ConductorError,
    ConductorUnusable,
    ConfigError,
    PolicyError,
    UsageError,
)
from conductor_cli.core.estimate import OVERHEAD_TOKENS
from conductor_cli.core.formatting import (
    format_count,
    format_duration,
    format_list,
    format_money,
    format_size,
)
from conductor_cli.core.pool import Pool
from conductor_cli.core.usage import CHARS_PER_TOKEN, Usage, with_cost
from conductor_cli.evals import cases as builtin
from conductor_cli.evals.cases import Case
from conductor_cli.evals.mathematics import require_math_verify
from conductor_cli.evals.sandbox import require_sandbox, use_interpreter
from conductor_cli.evals.scorers import SCORERS
from conductor_cli.models.response_cache import model_identity
from conductor_cli.system.disk import check_room
from conductor_cli.system.event_loop import new_event_loop
from conductor_cli.system.user_functions import UserFunction, load_user_function
from conductor_cli.train.checkpoints import (
    best_checkpoint,
    check_same_training,
    exclusive_directory,
    last_checkpoint,
    step_of,
    summarize_curve,
)
from conductor_cli.train.job import (
    TaskCurriculum,
    TrainingJob,
    bare_orchestra,
    estimate_training,
    is_first,
    mean,
    read_metrics,
    split_cases,
)
from conductor_cli.train.recipe import Recipe, require
from conductor_cli.train.reward import user_reward
from conductor_cli.train.rollouts import Rollouts

# `train.base_model` and `train.grpo` import torch, which takes seconds and may not be installed.
# They are imported where they are used.
if TYPE_CHECKING:
    from conductor_cli.config.settings import Settings
    from conductor_cli.train.base_model import BaseModel


ANSWER_BYTES: Final = 3000
"""Of a stored answer of about 600 tokens, with its request's hash and what it cost."""

USUAL_CALLS: Final = 0.8 * 3
"""New answers for a plan: about three steps (arXiv 2512.04388, section 5), and one plan in five
asks nobody anew.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRequest:
    """What to train. `max_cost` is in US dollars, over all runs of the training.

    `export` writes the adapter.

    `validation` is a set of cases like `cases`; without it, some of those are held out.
    """

    recipe: Recipe
    cases: str
    case_file: str | None
    directory: Path
    validation: str = ""
    workers: tuple[str, ...] = ()
    max_cost: Decimal | None = None
    minutes: float | None = None
    export: bool = False


WITHOUT_LIBRARIES: Final = ("base model", "workers", "reward", "cases", "memory", "cost")
"""Checks that need no library of the training: what it needs and costs is known before anything is
installed.
"""


class Training:
    """The checks of one request, and the training itself.

    Use it as a context manager: it closes the workers.

    `error` is what ended the checks. Each check stores what the later ones and the training need.
    """

    _base: BaseModel
    _measured: BaseModel | None = None
    _pool: Pool
    _curriculum: TaskCurriculum

    def __init__(self, request: TrainingRequest, settings: Settings) -> None:
        self.request = request
        self.error: ConductorError | None = None
        self._settings = settings
        self._runner = asyncio.Runner(loop_factory=new_event_loop)
        self._opened: OpenedOrchestra | None = None
        self._reward: UserFunction | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._opened is not None:
            self._runner.run(self._opened.close())
        self._runner.close()

    def check(self) -> list[CheckResult]:
        """Check everything, in order, up to the first error.

        Where it is of the model that is trained, the cost too.
        """
        # Training uses only what is on this machine
        for name in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
            os.environ.setdefault(name, "1")
        checks = {
            "libraries": self._check_imports,
            "base model": self._check_base_model,
            "workers": self._check_workers,
            "reward": self._check_reward,
            "cases": self._check_cases,
            "prompts": self._check_prompts,
            "directory": self._check_directory,
            "memory": self._check_memory,
            "export": self._check_export,
            "cost": self.check_cost,
        }
        if not self.request.recipe.reward:
            del checks["reward"]
        results: list[CheckResult] = []
        for name, check in checks.items():
            if self.error is not None and name not in WITHOUT_LIBRARIES:
                continue
            try:
                results.append(CheckResult(name=name, text=check()))
            except ConductorError as error:
                self.error = self.error or error
                results.append(CheckResult.failed(name, error))
                if name in ("workers", "cases", "cost"):  # the later ones need what it found
                    break
        return results

    def _check_imports(self) -> str:
        recipe = self.request.recipe
        needed = ["torch", "transformers", "trl", "accelerate"]
        if recipe.lora:
            needed.append("peft")
        if recipe.vllm:
            needed.append("vllm")
        for library in needed:
            with require(library):
                import_module(library)
        return ", ".join(f"{name} {version(name)}" for name in needed)

    def _check_base_model(self) -> str:
        from conductor_cli.train.base_model import find_base_model, measure_base_model

        find = measure_base_model
        if self.error is None:
            find = find_base_model
        base = find(self.request.recipe.base, self.request.recipe.lora)
        self._base = base
        self._measured = base
        trained = ""
        if base.adapter_weights:
            trained = f", and an adapter of {base.adapter_weights:,}"
        return (
            f"{base.directory}: {base.architecture}, "
            f"{format_count(base.weights, 'weight')}{trained}"
        )

    def _check_workers(self) -> str:
        request = self.request
        try:
            wanted = OpeningRequest(
                settings=self._settings,
                only=request.workers,
                planning=False,
                seed=request.recipe.seed,
            )
            opened = self._runner.run(open_orchestra(wanted))
            self._opened = opened
        except ConductorUnusable as error:
            # There is no worker, and no planner that could stand in for one
            raise _too_few_workers(()) from error
        if opened.orchestra.team.unavailable:
            name, failure = next(iter(opened.orchestra.team.unavailable.items()))
            raise ConfigError(
                f"the worker {name} cannot be opened: {failure.message}", hint=failure.hint
            )
        # The conductor itself is left out: what is trained plans, and never reviews.
        pool = opened.orchestra.team.pool.without_self()
        self._pool = pool
        if len(pool) < 2:
            raise _too_few_workers(pool.names)
        unknown = [worker.name for worker in pool if not worker.card.strengths]
        without = ""
        if unknown:
            without = f"; without a card: {', '.join(unknown)} (conductor workers calibrate)"
        return f"{', '.join(pool.names)}{without}"

    def _check_reward(self) -> str:
        self._reward = load_user_function(self.request.recipe.reward)
        return f"{self._reward.name}, which takes the place of the built-in one for valid plans"

    def _check_cases(self) -> str:
        request = self.request
        recipe = self.request.recipe
        pool = self._pool
        if not request.cases:
            raise UsageError(
                "no cases are given", hint="--cases CASES.jsonl, as for conductor eval"
            )
        # The built-in set has as many cases as are asked for, so none has to come twice.
        count = None
        if request.cases == builtin.NAME and request.case_file is None:
            count = recipe.max_cases
        _, offered = load_cases(
            request.cases, file=request.case_file, count=count, seed=recipe.seed
        )
        sampled = sample_cases(offered, min(recipe.max_cases, len(offered)), recipe.seed)
        cases, validation = self._split(sampled)
        needs = {SCORERS[case.scorer].needs for case in (*cases, *validation)}
        if "judge" in needs:
            raise UsageError(
                "training cannot judge by a model", hint="give the cases another scorer than model"
            )
        if "math-verify" in needs:
            require_math_verify()
        if "sandbox" in needs:
            use_interpreter(require_sandbox(self._settings["eval.python"]))
        identities = {}
        for worker in pool:
            identities[worker.name] = [
                model_identity(worker),
                worker.about,
                dict(worker.card.strengths),
                worker.card.words,
            ]
        reward_digest = ""
        if self._reward is not None:
            reward_digest = self._reward.digest
        self._curriculum = TaskCurriculum(
            recipe=recipe,
            cases=cases,
            workers=pool.names,
            identities=identities,
            validation=validation,
            reward_digest=reward_digest,
        )
        drawn = recipe.steps * recipe.prompts
        times = drawn / len(cases)
        line = f"{len(cases)} of {len(offered)}; {drawn} are drawn, {times:.3g} times each"
        if validation:
            line += f"; {len(validation)} more for validation"
        else:
            line += "; too few for a validation set (--validation FILE)"
        if choices := [len(case.choices) for case in cases if case.choices]:
            lucky = sum(1 / count for count in choices) / len(choices)
            line += f"; {len(choices)} are multiple choice, where a guess is right in {lucky:.0%}"
        return line

    def _split(self, cases: tuple[Case, ...]) -> tuple[tuple[Case, ...], tuple[Case, ...]]:
        request = self.request
        if not request.validation:
            return split_cases(cases, request.recipe)
        source = request.validation
        file = None
        if request.case_file is not None:
            # Where the cases are a published suite, so are those of the validation set.
            source = request.cases
            file = request.validation
        _, validation = load_cases(source, file=file, count=None, seed=request.recipe.seed)
        questions = {case.question for case in cases}
        if shared := [case.id for case in validation if case.question in questions]:
            raise UsageError(
                f"{len(shared)} questions of {request.validation} are among the cases to train "
                f"on, such as {shared[0]}",
                hint="a validation set must hold other questions",
            )
        return cases, validation

    def _check_prompts(self) -> str:
        from conductor_cli.train.base_model import longest_prompt, thinks_by_itself

        recipe = self.request.recipe
        context = self._base.context
        rollouts = Rollouts(orchestra=bare_orchestra(recipe, self._pool, self._settings.limits))
        exercises = list(map(self._curriculum.exercise, range(recipe.steps * recipe.prompts)))
        exercises += self._curriculum.validation_tasks()
        longest = longest_prompt(self._base, list(map(rollouts.prompt, exercises)))
        if longest + recipe.max_plan_tokens > context:
            raise ConfigError(
                f"a prompt of {longest} tokens and a plan of {recipe.max_plan_tokens} do not fit "
                "the model's context "
                f"of {context}",
                hint="use a base model with a longer context",
            )
        line = f"at most {longest} tokens, and {recipe.max_plan_tokens} for a plan"
        if thinks_by_itself(self._base.tokenizer):
            line += (
                "; the model thinks first and its template has no switch for that, so a "
                "plan's tokens pay for it"
            )
        return line

    def _check_directory(self) -> str:
        directory = self.request.directory
        steps = self.request.recipe.steps
        check_same_training(directory, self._curriculum.as_dict())
        if done := self._done():
            return f"{directory}, resumes after step {done} of {steps}"
        # Two checkpoints and the next one, each with the weights and Adam's two moments in 32 bits.
        checkpoints = 3 * 12 * (self._base.adapter_weights or self._base.weights)
        recipe = self.request.recipe
        runs = recipe.steps * recipe.samples * recipe.draws
        answers = round(runs * USUAL_CALLS * ANSWER_BYTES)
        check_room(directory, checkpoints + answers, "--out")
        return (
            f"{directory}, needs {format_size(checkpoints)} for checkpoints and about "
            f"{format_size(answers)} for answers"
        )

    def _check_memory(self) -> str:
        from conductor_cli.train.base_model import check_memory, guess_base_model

        recipe = self.request.recipe
        if self.error is None:
            from conductor_cli.train.grpo import trl_arguments

            trl_arguments(recipe)  # raises if a step cannot be divided
        if self._measured is not None:
            return check_memory(self._measured, recipe)
        if (guess := guess_base_model(recipe.base, recipe.lora)) is None:
            return "not known without the model"
        return f"by the name of the model, about {check_memory(guess, recipe)}"

    def _check_export(self) -> str:
        if not self.request.export:
            return "not requested"
        from conductor_cli.models.llama.lora import ARCHITECTURES

        if self._base.architecture not in ARCHITECTURES:
            message = (
                f"this is a {self._base.architecture} model, and the export supports "
                f"{', '.join(ARCHITECTURES)}"
            )
            hint = (
                "leave out --export, and convert the last checkpoint with llama.cpp's "
                "convert_lora_to_gguf.py"
            )
            raise ConfigError(message, hint=hint)
        return f"an adapter, in {self.request.directory}"

    def check_cost(self) -> str:
        """Return what the steps that remain will probably cost."""
        limit = self.request.max_cost
        unpriced = self._pool.unpriced()
        if unpriced and limit is not None:
            hint = (
                "set them (conductor workers add … --set price=IN,OUT), or choose other "
                "workers: --workers"
            )
            raise PolicyError(
                f"--max-cost needs prices, and no price is known for {', '.join(unpriced)}",
                hint=hint,
            )
        # Held-out cases run before the first step, at each checkpoint and at the end.
        times = math.ceil(self.steps_left / self.request.recipe.checkpoint_every) + (
            not self._done()
        )
        held_out = 0
        if self.steps_left:
            held_out = times * len(self._curriculum.validation)
        most = estimate_training(
            self._curriculum, self._pool, begin=self._done(), validations=held_out
        )
        # Until the rewards of a group differ: docs/research/rewards.md
        again = min(1.3, self.request.recipe.tries)
        money, seconds = self._expected_call()
        expected = money * USUAL_CALLS * most.runs * again
        if self.is_free:
            cost = "free"
        elif len(unpriced) == len(self._pool):
            cost = f"cost unknown, because no price is known for {format_list(unpriced)}"
        else:
            # More digits than two would look like knowledge.
            about = format_money(float(f"{expected:.2g}"))
            ceiling = format_money(most.high.cost[1])
            cost = f"about {about}; never more than {ceiling}"
            if unpriced:
                cost = (
                    f"about {about}, and what {format_list(unpriced)} cost, whose price is not "
                    f"known; never more than {ceiling} for the others"
                )
        line = f"{format_count(most.runs, 'run')}: {cost}"
        if seconds:
            at_once = sum(worker.parallel for worker in self._pool)
            all_seconds = seconds * USUAL_CALLS * most.runs * again
            concurrency = self.request.recipe.concurrency
            line += f"; {describe_call_time(all_seconds, len(self._pool), at_once, concurrency)}"
        if limit is None:
            return line
        line += f"; at most {format_money(limit)}"
        steps = self.request.recipe.steps
        if not self._done() and limit < expected:
            last = int(steps * float(limit) / expected)
            line += f", which is used up near step {last} of {steps}"
        return line

    def _expected_call(self) -> tuple[float, float]:
        """Return US dollars and seconds for a call, by the calibration of each worker.

        0 seconds where none was measured.
        """
        questions = [len(case.question) / CHARS_PER_TOKEN for case in self._curriculum.cases]
        question_tokens = OVERHEAD_TOKENS + sum(questions) / len(questions)
        costs = list[float]()
        times = list[float]()
        for worker in self._pool:
            card = self._settings.cards.of(worker)
            # of a worker that was never measured
            read = question_tokens
            written = 600.0
            if card is not None and card.seconds:
                read = max(card.tokens_in, question_tokens)
                written = card.tokens_out
                times.append(card.seconds)
            # Of three steps, each sees one earlier answer on average.
            usage = Usage(tokens_in=round(read + written), tokens_out=round(written), calls=1)
            cost = with_cost(usage, worker.price).cost
            if cost is not None:
                costs.append(float(cost))
        return mean(costs), mean(times)

    @property
    def steps_left(self) -> int:
        return self.request.recipe.steps - self._done()

    def _done(self) -> int:
        return step_of(last_checkpoint(self.request.directory))

    @property
    def is_free(self) -> bool:
        """Whether all workers are known to cost nothing."""
        prices = [worker.price for worker in self._pool]
        return all(price is not None and not (price.input or price.output) for price in prices)

    def lock(self) -> AbstractContextManager[None]:
        """Keep other trainings out of the directory.

        Of several processes, the first does it for all of them.
        """
        if not is_first():
            return nullcontext()
        return exclusive_directory(self.request.directory)

    def run(self, log: Callable[[str], None]) -> bool:
        """Train after `check`, until all steps are done (True) or the time is up (False).

        Everything is kept.
        """
        from conductor_cli.train.grpo import open_rollouts, run_session

        request = self.request
        opened = self._opened
        assert opened is not None
        reward = None
        if self._reward is not None:
            reward = user_reward(self._reward)
        max_seconds = math.inf
        if request.minutes is not None:
            max_seconds = 60 * request.minutes
        with open_rollouts(
            request.directory, request.recipe, opened.orchestra, request.max_cost, reward
        ) as rollouts:
            job = TrainingJob(
                curriculum=self._curriculum,
                rollouts=rollouts,
                directory=request.directory,
                log=log,
                run_async=self._runner.run,
                max_seconds=max_seconds,
            )
            return run_session(self._base, request.recipe, job)

    def summary(self) -> list[str]:
        """Return what came of the training, in lines for the user.

        The checkpoint to use, then the curve.
        """
        directory = self.request.directory
        used = best_checkpoint(directory) or last_checkpoint(directory)
        return [
            f"all steps are done: {used}",
            *summarize_curve(read_metrics(directory / "curve.jsonl")),
        ]

    def export(self) -> Path:
        """Write the trained adapter as GGUF. Raises `ModelError`."""
        from conductor_cli.train.grpo import export_adapter

        return export_adapter(self.request.directory, self._base).absolute()


def describe_call_time(seconds: float, workers: int, at_once: int, concurrency: int) -> str:
    """Return how long calls take that take `seconds` one by one, and what would shorten that.

    So many `workers` make `at_once` calls together, and `concurrency` runs are active at once.
    """
    used = min(at_once, concurrency)
    shown = format_duration(seconds / used, tenths=False)
    text = f"about {shown} for calls, {used} at once if all workers get the same share"
    if used < concurrency:
        parallel = math.ceil(concurrency / workers)
        less = format_duration(seconds / concurrency, tenths=False)
        text += (
            f", and about {less} with parallel = {parallel} in the table of each worker, where its "
            "provider allows that"
        )
    return f"{text}; writing plans and training come on top"


def _too_few_workers(names: Sequence[str]) -> ConfigError:
    return ConfigError(
        (
            "training needs at least two workers to choose between; there are: "
            f"{', '.join(names) or 'none'}"
        ),
        hint="conductor setup, or conductor workers add NAME --kind KIND",
    )
