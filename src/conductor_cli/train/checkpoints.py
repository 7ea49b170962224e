"""The state of a training on disk.

Checkpoints, the settings that they belong to, the lock, and what the curve says.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from stat import S_ISREG
from typing import Any, Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.core.formatting import format_count
from conductor_cli.evals.sandbox import PYTHON_SETTING
from conductor_cli.evals.significance import SIGNIFICANT, mcnemar_p, wilson_interval
from conductor_cli.system.disk import (
    exclusive_lock,
    link_or_copy,
    make_private_directory,
    write_atomically,
)
from conductor_cli.train.job import mean

SETTINGS_FILE: Final = "course.json"
BEST: Final = "best"


def last_checkpoint(directory: Path) -> Path | None:
    """Return the newest complete checkpoint.

    The trainer writes the state file last, so one without it is incomplete.
    """
    directories = [path.parent for path in directory.glob("checkpoint-*/trainer_state.json")]
    return max(filter(step_of, directories), key=step_of, default=None)


def step_of(checkpoint: Path | None) -> int:
    """Return the step of a checkpoint, 0 if there is none or it is incomplete."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        if checkpoint is not None:
            return int(json.loads((checkpoint / "trainer_state.json").read_text())["global_step"])
    return 0


def best_checkpoint(directory: Path) -> Path | None:
    """Return the checkpoint that was best on the validation set; None without one."""
    if not step_of(directory / BEST):
        return None
    return directory / BEST


def keep_best(directory: Path, checkpoint: Path) -> None:
    """Keep a checkpoint as `best`, without what only resuming needs.

    Its files are linked and take no room.

    Raises `OSError`. A kill leaves the older one, or in one moment none, and a later validation
    writes another.
    """
    unfinished = directory / f"{BEST}.new"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for path in sorted(checkpoint.iterdir()):
        only_resuming = path.name.startswith(("optimizer", "scheduler", "rng_state", "scaler"))
        if path.is_file() and not only_resuming:
            link_or_copy(path, unfinished / path.name)
    shutil.rmtree(directory / BEST, ignore_errors=True)
    unfinished.rename(directory / BEST)


def checkpoint_bytes(directory: Path) -> int:
    """Return the bytes of all checkpoints, with the best one, and of unfinished ones.

    A file that two of them share counts once.
    """
    sizes = {}
    for name in ("checkpoint-*", f"{BEST}*"):
        for path in directory.glob(f"{name}/**/*"):
            with suppress(OSError):  # it is removed meanwhile
                status = path.stat()
                if S_ISREG(status.st_mode):
                    sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


def check_same_training(directory: Path, settings: Mapping[str, Any]) -> None:
    """Raise `ConfigError` if the directory holds a training with other settings.

    Its result would be a mixture.
    """
    path = directory / SETTINGS_FILE
    text = json.dumps(settings, sort_keys=True)
    if not path.exists():
        return
    stored = {}
    wanted = json.loads(text)
    # A damaged file counts as other settings: nobody knows what the checkpoints beside it were
    # trained with.
    with suppress(ValueError, TypeError, RecursionError):
        stored = dict(json.loads(path.read_text(encoding="utf-8")))
    if stored and PYTHON_SETTING not in stored:  # begun before this was stored
        wanted.pop(PYTHON_SETTING, None)
    differing = sorted(name for name in {*stored, *wanted} if stored.get(name) != wanted.get(name))
    if not differing:
        return
    hint = "remove it to start over, or choose another directory: --out"
    raise ConfigError(
        f"{directory} holds another training: it differs in {', '.join(differing)}", hint=hint
    )


def write_settings(directory: Path, settings: Mapping[str, Any]) -> None:
    """Store the settings beside the checkpoints. Raises as `check_same_training`, and `OSError`."""
    check_same_training(directory, settings)
    make_private_directory(directory)
    write_atomically(directory / SETTINGS_FILE, json.dumps(settings, sort_keys=True))


@contextmanager
def exclusive_directory(directory: Path) -> Iterator[None]:
    """Keep every other training out of the directory.

    The lock ends with the process, however that ends.

    Raises `ConfigError` if another training holds it, or if the directory cannot be written.
    """

    def refuse() -> None:
        hint = "wait until it ends, or choose another directory: --out"
        raise ConfigError(f"another training is running in {directory}", hint=hint)

    # Only the lock's own errors are about the directory, not those of the training inside.
    with ExitStack() as stack:
        try:
            stack.enter_context(exclusive_lock(directory / ".lock", refuse))
        except OSError as error:
            hint = "choose another directory: --out"
            raise ConfigError(
                f"{directory} cannot be written: {error.strerror}", hint=hint
            ) from error
        yield


HANDED: Final = "handed-to-vllm"
KEPT_ADAPTERS: Final = 2


@contextmanager
def adapter_directory(directory: Path, *, rank: int, processes: int) -> Iterator[Path]:
    """Yield where this process writes the adapters for vLLM. Nothing of it stays.

    It is in the directory of the training, which only one training uses at a time: so what a killed
    one has left there is removed when the next one starts, whichever process wrote it.
    """
    handed = directory / HANDED
    for path in handed.glob("*"):
        if path.name.isdecimal() and int(path.name) % processes == rank:
            shutil.rmtree(path, ignore_errors=True)
    try:
        yield handed / str(rank)
    finally:
        shutil.rmtree(handed / str(rank), ignore_errors=True)
        with suppress(OSError):  # another process still has its own in there
            handed.rmdir()


def remove_old_adapter(directory: Path, newest: int) -> None:
    """Remove the adapter that is not among the last two of those for vLLM, which are numbered.

    vLLM may still be reading the last but one. Those of a 7B take 323 MB each.
    """
    shutil.rmtree(directory / str(newest - KEPT_ADAPTERS), ignore_errors=True)


Line = Mapping[str, Any]  # One line of `curve.jsonl`


def best_line(lines: Sequence[Line]) -> Line | None:
    """Return the first line with the highest reward on the cases that choose, after a step."""
    validated = [line for line in lines if line["step"] and "validation" in line]
    return max(validated, key=lambda line: (_choosing_reward(line), -line["step"]), default=None)


MIN_HALVED: Final = 4
"""Cases of a validation set, below which all of them choose and none is left to prove."""


def _choosing_reward(line: Line) -> float:
    """Return the mean reward on the half of the validation set that chooses.

    In an older file all of the set chooses.
    """
    rewards = line["validation"].get("rewards", ())
    chosen = _half(rewards, proving=False)
    if len(rewards) < MIN_HALVED or not chosen:
        return float(line["validation"]["reward"])
    return mean([reward for reward in chosen if reward is not None])


def _half(values: Sequence[Any], *, proving: bool) -> list[Any]:
    """Return the values of one half of the validation set, the same at each step.

    The order has nothing to do with that of the set, where kinds may alternate.
    """
    numbers = list(range(len(values)))
    Random(len(values)).shuffle(numbers)  # noqa: S311 - reproducible, no secret
    chosen = sorted(numbers[1::2] if proving else numbers[::2])
    return [values[number] for number in chosen]


def _prove(best: Line, before: Line) -> list[str]:
    """Return what the best checkpoint does on the cases that did not choose it, in sentences.

    Nothing for a file of an earlier version, which does not have the cases.
    """
    ours = _half(best["validation"].get("rights", ()), proving=True)
    theirs = _half(before["validation"].get("rights", ()), proving=True)
    if len(best["validation"].get("rights", ())) < MIN_HALVED or len(ours) != len(theirs):
        return []
    both = zip(ours, theirs, strict=True)
    pairs = []
    for mine, its in both:
        if mine is not None and its is not None:
            pairs.append((mine, its))
    if not pairs:
        return []
    after = mean([mine for mine, _ in pairs])
    start = mean([its for _, its in pairs])
    better = sum(mine > its for mine, its in pairs)
    worse = sum(mine < its for mine, its in pairs)
    p = mcnemar_p(better, worse)
    message = (
        f"on the {len(pairs)} cases that did not choose it: {after:.3f} right, {start:.3f} before "
        f"training (p {p:.3f})"
    )
    if p < SIGNIFICANT and better > worse:
        return [message]
    return [message, "so it is not proved to be better than the untrained model"]


def _doubt(count: int) -> list[str]:
    """Say what the best of several validations is worth where no other cases were left for it."""
    if count <= 1:
        return []
    # Of ten validations of an untrained model, the best one is 2 to 6 points above it.
    doubt = (
        f"the best of {count} on the same cases looks better than it is: compare both models on "
        "other cases (conductor eval)"
    )
    return [doubt]


def describe_validation(line: Line) -> str:
    """Return a validation in a few words, with the 95 % interval of the share of right answers."""
    shares = line["validation"]
    cases = shares["cases"]
    # Cases in which a worker failed are in no share.
    judged = cases - shares.get("failed", 0)
    if not judged:
        return f"none of {cases} cases could be judged"
    low, high = wilson_interval(round(shares["right"] * judged), judged)
    counted = f"{cases} cases"
    if judged != cases:
        counted = f"{judged} of {cases} cases, as a worker failed in the others"
    return (
        f"{shares['right']:.3f} right ({low:.2f} to {high:.2f}), {shares['valid']:.3f} valid, "
        f"{counted}"
    )


def _line_before_training(lines: Iterable[Line]) -> Line | None:
    """Return the first validation of the untrained model; None where it was not validated."""
    for line in lines:
        if not line["step"] and "validation" in line:
            return line
    return None


def summarize_curve(lines: Sequence[Line]) -> list[str]:
    """Return what came of a training, in a few lines for the user; nothing without a step."""
    steps = [line for line in lines if line["step"]]
    if not steps:
        return []
    first = steps[: max(1, len(steps) // 10)]
    last = steps[-max(1, len(steps) // 10) :]
    begun = mean([float(line["reward"]) for line in first])
    ended = mean([float(line["reward"]) for line in last])
    summary = [f"reward: {begun:.3f} at the beginning, {ended:.3f} at the end"]
    before = _line_before_training(lines)
    if (best := best_line(lines)) is not None:
        if before:
            summary.append(f"validation before training: {describe_validation(before)}")
        count = sum("validation" in line for line in steps)
        which = "the only one"
        if count > 1:
            which = f"the best of {count}"
        summary.append(f"validation at step {best['step']}, {which}: {describe_validation(best)}")
        if before and _choosing_reward(best) <= _choosing_reward(before):
            summary.append("no checkpoint is better on the validation set than the untrained model")
        elif before:
            summary += _prove(best, before) or _doubt(count)
    with_answer = sum(line.get("told", 0) for line in steps)
    if with_answer:
        summary.append(
            f"{format_count(with_answer, 'plan')} with the answer in a subtask: read some of them "
            "(metric told)"
        )
    failed = sum(line.get("failed", 0) for line in steps)
    if failed:
        summary.append(f"{format_count(failed, 'plan')} without a reward, because a worker failed")
    return summary
