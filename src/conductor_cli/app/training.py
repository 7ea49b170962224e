"""`conductor train`: checks that all a training needs is there, and estimates, trains, exports."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from conductor_cli.app.case_sets import load_cases, sample_cases
from conductor_cli.app.check_results import CheckResult
from conductor_cli.app.opening import OpenedOrchestra, OpeningRequest, open_orchestra
from conductor_cli.app.training_forecast import (
    describe_limits,
    describe_time,
    explain_time,
    find_call_limits,
    known_call_seconds,
    workers_with_parallel,
)
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
    format_list,
    format_money,
    format_size,
)
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.usage import CHARS_PER_TOKEN, Usage, with_cost
from conductor_cli.evals import cases as builtin
from conductor_cli.evals.cases import Case
from conductor_cli.evals.mathematics import require_math_verify
from conductor_cli.evals.sandbox import require_sandbox, use_interpreter
from conductor_cli.evals.scorers import SCORERS
from conductor_cli.models.response_cache import model_identity
from conductor_cli.system.disk import check_room, free_bytes
from conductor_cli.system.event_loop import new_event_loop
from conductor_cli.system.user_functions import UserFunction, load_user_function
from conductor_cli.train.checkpoints import (
    best_checkpoint,
    check_same_training,
    checkpoint_bytes,
    exclusive_directory,
    last_checkpoint,
    step_of,
    summarize_curve,
)
from conductor_cli.train.forecast import (
    ANSWER_BYTES,
    DRAWS_OF_A_GROUP,
    STEPS_OF_A_PLAN,
    CallForecast,
    CallLimit,
    Workload,
    calls_at_once,
    describe_disk,
    disk_needs,
    measure_steps,
    shorter_ways,
    validations_left,
)
from conductor_cli.train.job import (
    TaskCurriculum,
    TrainingJob,
    bare_orchestra,
    estimate_training,
    is_first,
    mean,
    process_count,
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


USUAL_TOKENS: Final = 600.0  # Of an answer of a worker that was never calibrated


class Finding(NamedTuple):
    """What a check has found: for the user, what may help, and further fields for `--json`."""

    text: str
    hint: str = ""
    fields: Mapping[str, Any] = {}

    def result(self, name: str) -> CheckResult:
        """Return it as the result of the check with this name."""
        fields: Mapping[str, Any] = {}
        if self.fields:
            fields = {"found": self.text, "hint": self.hint, **self.fields}
        return CheckResult(name=name, text=self.text, hint=self.hint, fields=fields)


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


WITHOUT_LIBRARIES: Final = (
    "base model",
    "workers",
    "parallel",
    "reward",
    "cases",
    "directory",
    "memory",
    "validation",
    "time",
    "cost",
)
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
    _limits: tuple[CallLimit, ...]

    def __init__(self, request: TrainingRequest, settings: Settings) -> None:
        self.request = request
        self.error: ConductorError | None = None
        self._settings = settings
        self._runner = asyncio.Runner(loop_factory=new_event_loop)
        self._opened: OpenedOrchestra | None = None
        self._reward: UserFunction | None = None
        self._calls: CallForecast | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._opened is not None:
            self._runner.run(self._opened.close())
        self._runner.close()

    def check(self) -> list[CheckResult]:
        """Check everything in order; after an error, only what `WITHOUT_LIBRARIES` names."""
        # Training uses only what is on this machine
        for name in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
            os.environ.setdefault(name, "1")
        checks: dict[str, Callable[[], str | Finding]] = {
            "libraries": self._check_imports,
            "base model": self._check_base_model,
            "workers": self._check_workers,
            "parallel": self._check_parallel,
            "reward": self._check_reward,
            "cases": self._check_cases,
            "prompts": self._check_prompts,
            "directory": self._check_directory,
            "memory": self._check_memory,
            "export": self._check_export,
            "validation": self._check_validation,
            "time": self._check_time,
            "cost": self.check_cost,
        }
        if not self.request.recipe.reward:
            del checks["reward"]
        results: list[CheckResult] = []
        for name, check in checks.items():
            if self.error is not None and name not in WITHOUT_LIBRARIES:
                continue
            try:
                finding = check()
            except ConductorError as error:
                self.error = self.error or error
                results.append(CheckResult.failed(name, error))
                if name in ("workers", "cases", "cost"):  # the later ones need what it found
                    break
                continue
            if isinstance(finding, str):
                finding = Finding(finding)
            results.append(finding.result(name))
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

    def _check_parallel(self) -> Finding:
        assert self._opened is not None
        models = self._opened.orchestra.team.workers
        limits = find_call_limits(self._settings, self._pool, models, self.request.recipe)
        self._limits = limits
        configured = workers_with_parallel(self._settings)
        workers = {}
        for worker in self._pool:
            is_default = worker.name not in configured
            workers[worker.name] = {"parallel": worker.parallel, "default": is_default}
        providers = {limit.provider: limit.at_once for limit in limits if limit.provider}
        fields = {
            "calls_at_once": calls_at_once(limits),
            "workers": workers,
            "providers": providers,
        }
        return Finding(describe_limits(limits, self._settings), fields=fields)

    def _check_reward(self) -> str:
        self._reward = load_user_function(self.request.recipe.reward)
        return f"{self._reward.name}, which takes the place of the built-in one for valid plans"

    def _check_cases(self) -> str:
        offered, cases, validation = self._choose_cases()
        python = self._check_scorers((*cases, *validation))
        reward_digest = ""
        if self._reward is not None:
            reward_digest = self._reward.digest
        self._curriculum = TaskCurriculum(
            recipe=self.request.recipe,
            cases=cases,
            workers=self._pool.names,
            identities=_worker_identities(self._pool),
            validation=validation,
            reward_digest=reward_digest,
            python=python,
        )
        return _describe_cases(self._curriculum, offered)

    def _choose_cases(self) -> tuple[int, tuple[Case, ...], tuple[Case, ...]]:
        """Return how many cases there are, those to train on, and the validation set."""
        request = self.request
        recipe = request.recipe
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
        return len(offered), *self._split(sampled)

    def _check_scorers(self, cases: Sequence[Case]) -> str:
        """Return the Python that runs programs of models; empty where no case has any.

        Raises `UsageError` or `ConfigError` where something that scores cases is missing.
        """
        needs = {SCORERS[case.scorer].needs for case in cases}
        if "judge" in needs:
            raise UsageError(
                "training cannot judge by a model", hint="give the cases another scorer than model"
            )
        if "math-verify" in needs:
            require_math_verify()
        if "sandbox" not in needs:
            return ""
        interpreter = require_sandbox(self._settings["eval.python"])
        use_interpreter(interpreter)
        return interpreter.label

    def _split(self, cases: tuple[Case, ...]) -> tuple[tuple[Case, ...], tuple[Case, ...]]:
        """Return the cases to train on, and the validation set: the user's own, or some of them."""
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

    def _check_directory(self) -> str | Finding:
        """Check that all that is still to be written fits: nothing is written anywhere else."""
        from conductor_cli.train.base_model import guess_base_model

        directory = self.request.directory
        recipe = self.request.recipe
        check_same_training(directory, self._curriculum.as_dict())
        done = self._done()
        begun = str(directory)
        if done:
            begun += f", resumes after step {done} of {recipe.steps}"
        base = self._measured or guess_base_model(recipe.base, recipe.lora)
        if base is None:
            return f"{begun}; how much it needs is not known without the model"
        needs = disk_needs(
            recipe,
            trained_weights=base.adapter_weights or base.weights,
            answers=round(self._forecast().calls * self._answer_bytes()),
            processes=process_count(),
            validates=bool(self._curriculum.validation),
            export=self.request.export,
        )
        present = min(checkpoint_bytes(directory), needs.checkpoints + needs.best)
        check_room(directory, needs.total - present, "--out")
        free = free_bytes(directory)
        fields = {
            "needed_bytes": needs.total - present,
            "free_bytes": free,
            "checkpoints_bytes": needs.checkpoints + needs.best,
            "adapters_bytes": needs.adapters,
            "export_bytes": needs.export,
            "answers_bytes": needs.answers,
        }
        text = (
            f"{begun}, needs about {format_size(needs.total - present)} of the "
            f"{format_size(free)} that are free: {describe_disk(needs, present)}"
        )
        return Finding(text, fields=fields)

    def _answer_bytes(self) -> float:
        """Return the bytes of a stored answer in the mean, by the calibration of each worker."""
        written = [tokens for _, tokens in map(self._expected_tokens, self._pool)]
        return ANSWER_BYTES + CHARS_PER_TOKEN * mean(written)

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
        most = estimate_training(
            self._curriculum, self._pool, begin=self._done(), validations=self._validated_cases()
        )
        expected = self._expected_cost() * self._forecast().calls
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
        if limit is None:
            return line
        line += f"; at most {format_money(limit)}"
        steps = self.request.recipe.steps
        if not self._done() and limit < expected:
            last = int(steps * float(limit) / expected)
            line += f", which is used up near step {last} of {steps}"
        return line

    def _check_validation(self) -> str | Finding:
        cases = len(self._curriculum.validation)
        times = self._validations()
        if not times:
            return "none"
        recipe = self.request.recipe
        runs = times * cases * recipe.draws
        calls = runs * self._forecast().calls_of_run
        written = f"{recipe.samples // process_count()} plans are written at once"
        if recipe.vllm:
            written = "all plans are written at once"
        repetition = "each plan run once"
        if recipe.draws > 1:
            repetition = f"each plan run {recipe.draws} times"
        text = (
            f"{times} times {format_count(cases, 'case')}, {repetition}: "
            f"{format_count(runs, 'run')}, about {format_count(calls, 'call')}; {written}"
        )
        fields = {"times": times, "cases": cases, "runs": runs, "calls": calls}
        return Finding(text, fields=fields)

    def _check_time(self) -> str | Finding:
        """Tell how long the steps that are left take, and what would make them shorter."""
        if not self.steps_left:
            return "all steps are done"
        forecast = self._forecast()
        draws = self.request.recipe.draws
        if self._done():
            draws = 1  # with other draws it would be another training
        ways = shorter_ways(forecast, draws)
        measured = measure_steps(read_metrics(self.request.directory / "curve.jsonl"))
        call_seconds = {}
        for name, call in forecast.call_seconds.items():
            call_seconds[name] = {"seconds": call.seconds, "from": call.source}
        shorter = []
        for way in ways:
            shorter.append({"change": way.change, "calls_seconds": round(way.seconds)})
        fields = {
            "calls": forecast.calls,
            "calls_seconds": round(forecast.seconds),
            "call_seconds": call_seconds,
            "measured_step_seconds": None if measured is None else measured.seconds,
            "shorter": shorter,
        }
        return Finding(
            describe_time(forecast, measured, self.steps_left, self.request.recipe),
            explain_time(forecast, measured, self.steps_left, ways),
            fields,
        )

    def describe_time(self) -> str:
        """Return how long the steps that are left take, in words."""
        measured = measure_steps(read_metrics(self.request.directory / "curve.jsonl"))
        return describe_time(self._forecast(), measured, self.steps_left, self.request.recipe)

    def _forecast(self) -> CallForecast:
        """Return what the workers have to do for the steps and validations that are left."""
        if self._calls is None:
            recipe = self.request.recipe
            runs_of_step = recipe.samples * recipe.draws * min(DRAWS_OF_A_GROUP, recipe.tries)
            validated = len(self._curriculum.validation) * recipe.draws
            self._calls = CallForecast(
                workloads=(
                    Workload(rounds=self.steps_left, runs=runs_of_step),
                    Workload(rounds=self._validations(), runs=validated),
                ),
                limits=self._limits,
                call_seconds=known_call_seconds(self._settings, self._pool),
                calls_of_run=min(STEPS_OF_A_PLAN, recipe.max_plan_steps),
            )
        return self._calls

    def _validations(self) -> int:
        """Return how often the held-out cases run: before the first step, and at checkpoints."""
        if not self.steps_left or not self._curriculum.validation:
            return 0
        return validations_left(self.request.recipe, self._done())

    def _validated_cases(self) -> int:
        return self._validations() * len(self._curriculum.validation)

    def _expected_cost(self) -> float:
        """Return US dollars for a call, by the calibration of each worker."""
        costs = list[float]()
        for worker in self._pool:
            read, written = self._expected_tokens(worker)
            # Of three steps, each sees one earlier answer on average.
            usage = Usage(tokens_in=round(read + written), tokens_out=round(written), calls=1)
            cost = with_cost(usage, worker.price).cost
            if cost is not None:
                costs.append(float(cost))
        return mean(costs)

    def _expected_tokens(self, worker: Worker) -> tuple[float, float]:
        """Return the tokens that a call reads, without earlier answers, and those it writes."""
        questions = [len(case.question) / CHARS_PER_TOKEN for case in self._curriculum.cases]
        question_tokens = OVERHEAD_TOKENS + sum(questions) / len(questions)
        card = self._settings.cards.of(worker)
        if card is None or not card.seconds:
            return question_tokens, USUAL_TOKENS
        return max(card.tokens_in, question_tokens), card.tokens_out

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


def _worker_identities(pool: Pool) -> dict[str, list[Any]]:
    """Return which model each worker is, and its card, as JSON values."""
    identities = {}
    for worker in pool:
        identities[worker.name] = [
            model_identity(worker),
            worker.about,
            dict(worker.card.strengths),
            worker.card.words,
        ]
    return identities


def _describe_cases(curriculum: TaskCurriculum, offered: int) -> str:
    """Return in a line which of the offered cases are trained on, and how often."""
    cases = curriculum.cases
    drawn = curriculum.recipe.steps * curriculum.recipe.prompts
    times = drawn / len(cases)
    line = f"{len(cases)} of {offered}; {drawn} are drawn, {times:.3g} times each"
    if curriculum.validation:
        line += f"; {len(curriculum.validation)} more for validation"
    else:
        line += "; too few for a validation set (--validation FILE)"
    if choices := [len(case.choices) for case in cases if case.choices]:
        lucky = sum(1 / count for count in choices) / len(choices)
        line += f"; {len(choices)} are multiple choice, where a guess is right in {lucky:.0%}"
    return line


def _too_few_workers(names: Sequence[str]) -> ConfigError:
    return ConfigError(
        (
            "training needs at least two workers to choose between; there are: "
            f"{', '.join(names) or 'none'}"
        ),
        hint="conductor setup, or conductor workers add NAME --kind KIND",
    )
