"""What is known of the calls that a training will make: how long they take, how many at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from conductor_cli.app.expectations import read_call_times
from conductor_cli.core.formatting import format_count, format_duration, format_list
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.models.base import Model
from conductor_cli.models.recipients import is_at_provider
from conductor_cli.train.forecast import (
    ASSUMED_SECONDS,
    DRAWS_OF_A_GROUP,
    CallForecast,
    CallLimit,
    CallSeconds,
    MeasuredSteps,
    Shorter,
    calls_at_once,
    describe_call_seconds,
)
from conductor_cli.train.job import process_count
from conductor_cli.train.recipe import Recipe

if TYPE_CHECKING:
    from conductor_cli.config.settings import Settings


def known_call_seconds(settings: Settings, pool: Pool) -> dict[str, CallSeconds]:
    """Return how long a call of each worker takes: calibrated, in stored runs, or assumed."""
    times = read_call_times(settings, pool)
    seconds_by_worker = {}
    for worker in pool:
        card = settings.cards.of(worker)
        if card is not None and card.seconds > 0:
            seconds_by_worker[worker.name] = CallSeconds(card.seconds, "calibration")
        elif worker.name in times:
            before = times[worker.name]
            seconds_by_worker[worker.name] = CallSeconds(before.seconds, "runs", before.calls)
        else:
            seconds_by_worker[worker.name] = CallSeconds(ASSUMED_SECONDS, "assumed")
    return seconds_by_worker


def find_call_limits(
    settings: Settings, pool: Pool, models: Mapping[str, Model], recipe: Recipe
) -> tuple[CallLimit, ...]:
    """Return what limits the calls of a training, of all its processes together.

    Each process has its part of what a worker and a provider do at once, at least one call.
    """
    processes = process_count()
    by_model: dict[int, list[Worker]] = {}
    for worker in pool:
        by_model.setdefault(id(models[worker.name]), []).append(worker)
    limits = []
    for workers in by_model.values():
        parallel = min(worker.parallel for worker in workers)
        limit = CallLimit(
            owner="worker",
            workers=tuple(worker.name for worker in workers),
            at_once=processes * max(1, parallel // processes),
            fixed=any(map(_answers_one_at_a_time, workers)),
        )
        limits.append(limit)
    for provider in settings.providers:
        names = tuple(
            worker.name for worker in pool if _provider(worker, settings) == provider.name
        )
        if names:
            at_once = processes * max(1, provider.parallel // processes)
            limits.append(
                CallLimit(owner="provider", provider=provider.name, workers=names, at_once=at_once)
            )
    runs = CallLimit(owner="runs", workers=pool.names, at_once=processes * recipe.concurrency)
    return (*limits, runs)


def _answers_one_at_a_time(worker: Worker) -> bool:
    """Return whether more calls at once would not help: they share a model here or a directory."""
    return worker.kind == "llama" or bool(worker.options.get("cwd"))


def _provider(worker: Worker, settings: Settings) -> str:
    """Return the provider whose turns a worker takes; empty where none is configured for it."""
    for provider in settings.providers:
        if is_at_provider(worker, provider.name):
            return provider.name
    return ""


def workers_with_parallel(settings: Settings) -> set[str]:
    """Return the workers whose calls at once somebody has set."""
    return {item.worker.name for item in settings.workers if item.sets_parallel}


def describe_limits(limits: tuple[CallLimit, ...], settings: Settings) -> str:
    """Return how many calls are made at once, and which of it is a default."""
    configured = workers_with_parallel(settings)
    chosen = []
    by_default = []
    others = []
    for limit in limits:
        text = f"{format_list(limit.workers)} {limit.at_once}"
        if limit.owner == "provider":
            others.append(f"at most {limit.at_once} at the provider {limit.provider}")
        elif limit.owner == "runs":
            others.append(f"{format_count(limit.at_once, 'run')} at once")
        elif configured.isdisjoint(limit.workers):
            by_default.append(text)
        else:
            chosen.append(text)
    workers = [format_list(chosen)] if chosen else []
    if by_default:
        workers.append(f"by default {format_list(by_default)}")
    calls = format_count(calls_at_once(limits), "call")
    return f"{calls} at once: {', '.join(workers)}; {'; '.join(others)}"


def describe_time(
    forecast: CallForecast, measured: MeasuredSteps | None, steps_left: int, recipe: Recipe
) -> str:
    """Return how long the steps that are left take: as long as those before, or for the calls."""
    if measured is not None:
        total = format_duration(steps_left * measured.seconds, tenths=False)
        return (
            f"about {total} for {format_count(steps_left, 'step')}, as long as the last "
            f"{measured.steps} took here: {format_duration(measured.seconds)} each with "
            f"validations, of which the runs of plans took {format_duration(measured.runs)}"
        )
    total = format_duration(forecast.seconds, tenths=False)
    again = ""
    if recipe.tries > 1:
        again = f" and groups drawn {DRAWS_OF_A_GROUP} times"
    return (
        f"about {total} for the calls of workers alone: {forecast.calls:,} calls with "
        f"{forecast.calls_of_run} for a run{again}, {calls_at_once(forecast.limits)} at once, if "
        "all workers get the same share"
    )


def explain_time(
    forecast: CallForecast, measured: MeasuredSteps | None, steps_left: int, ways: Sequence[Shorter]
) -> str:
    """Return in lines what the time of a training is from, and what would make it shorter.

    Nothing was measured of the model that is trained until it has made a step here.
    """
    lines = []
    if measured is None:
        lines.append(describe_call_seconds(forecast.call_seconds))
        lines.append(
            "writing plans and learning come on top and were not measured here: train for a while "
            "(--minutes 30), and then --dry-run tells how long the rest takes"
        )
    for way in ways:
        begin = "the calls take about"
        seconds = way.seconds
        if measured is not None:
            begin = "about"
            seconds = steps_left * measured.seconds_with(way.seconds / forecast.seconds)
        lines.append(f"{begin} {format_duration(seconds, tenths=False)} with {way.change}")
    return "\n".join(lines)
