"""The commands that the stages call. Each writes its file last, and goes on where it was stopped."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from conductor_cli.core.errors import ConductorError
from conductor_cli.evals.cases import write_cases
from training.smollm2.questions import draw_cases
from training.smollm2.workers import config_text, draw_workers, serving
from training.stages import DONE, UNFINISHED, environment, print_line, write

OUT: Final = Path("build/smollm2")
PORT: Final = 18135
MODEL: Final = "smollm2.gguf"
BASE: Final = "base/model.safetensors"
SUPERVISED: Final = "start/supervised.done"
MERGED: Final = "merged/model.safetensors"
CASES: Final = "cases.jsonl"
TRAINED: Final = "grpo/adapter.gguf"
ADAPTERS: Final = {"start": "start.gguf", "trained": "trained.gguf"}

RATE: Final = "1e-4"  # the learning rate of GRPO: ten times the recipe's for an adapter of a 7B model
OFFER: Final = 4
PLAN_TOKENS: Final = 96
VALIDATION: Final = "validation.jsonl"
HELD_OUT: Final = "held_out.jsonl"
HELD_OUT_COUNT: Final = 200
GRPO_SEED: Final = 7

Options = argparse.Namespace


def get(given: Options) -> int:
    """Download the pretrained model."""
    from training.smollm2 import base

    base.get(given.out / MODEL)
    return DONE


def base(given: Options) -> int:
    """Write the pretrained model as transformers reads it."""
    from training.smollm2 import base as module

    module.dequantise(given.out / MODEL, (given.out / BASE).parent)
    return DONE


def supervised(given: Options) -> int:
    """Train the supervised adapter, for some minutes."""
    import torch

    from training.smollm2.supervised import Course, train

    torch.set_num_threads(1)
    out, course = (given.out / SUPERVISED).parent, Course(steps=given.steps)
    if not train((given.out / BASE).parent, out, course, minutes=given.minutes, say=print_line):
        return UNFINISHED
    write(given.out / SUPERVISED, f"{course.steps} steps\n")
    return DONE


def merge(given: Options) -> int:
    """Add the supervised adapter to the weights, for GRPO to start from."""
    from training.smollm2 import base as module

    places = ((given.out / name).parent for name in (BASE, SUPERVISED, MERGED))
    module.merge(*places)
    return DONE


def workers(given: Options) -> int:
    """Write the workers as settings, the questions of GRPO, those that choose its checkpoint, and held-out ones."""
    config = Path(environment(given.out)["CONDUCTOR_LLM_CONFIG_DIR"]) / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    write(config, config_text(draw_workers(given.count, "grpo"), given.port))
    validation = draw_cases(given.validation, 12, "train")
    write(given.out / VALIDATION, write_cases(validation))
    write(given.out / HELD_OUT, write_cases(draw_cases(HELD_OUT_COUNT, 1, "held")))
    # One fifth would be a validation set of these, if there was no other. Facts are few, so some questions come twice.
    taken = {case.question for case in validation}
    others = [case for case in draw_cases(2 * given.cases, 11, "train") if case.question not in taken]
    write(given.out / CASES, write_cases(others[: given.cases]))
    return DONE


def grpo(given: Options) -> int:
    """Train by `conductor train` over the scripted workers, for some minutes, and export the adapter."""
    place = (given.out / TRAINED).parent
    command = [
        sys.executable, "-m", "conductor_cli", "train", "--base", str((given.out / MERGED).parent),
        "--cases", str(given.out / CASES), "--validation", str(given.out / VALIDATION), "--profile", "brief",
        "--lora", "--steps", str(given.steps), "--prompts", str(given.prompts), "--set", f"rate={RATE}",
        "--set", f"group={given.group}", "--set", f"max_workers={OFFER}", "--set", f"max_plan_tokens={PLAN_TOKENS}",
        "--seed", str(GRPO_SEED), "--minutes", f"{given.minutes:g}", "--out", str(place), "--export", "--yes",
    ]  # fmt: skip
    with serving(draw_workers(given.count, "grpo"), given.port), subprocess.Popen(command) as process:
        try:
            return process.wait()
        finally:
            process.terminate()  # does nothing if it has ended


def adapter(given: Options) -> int:
    """Write an adapter of the pretrained model as GGUF: the supervised one, or this and that of GRPO together."""
    from conductor_cli.models.llama.gguf import check_model_file
    from conductor_cli.models.llama.lora import convert_adapter
    from conductor_cli.train.checkpoints import best_checkpoint, last_checkpoint
    from training.smollm2.base import add

    source, model = (given.out / SUPERVISED).parent, given.out / MODEL
    if given.system == "trained":
        place = (given.out / TRAINED).parent
        checkpoint = best_checkpoint(place) or last_checkpoint(place)
        assert checkpoint is not None
        source = given.out / "sum"
        add((given.out / SUPERVISED).parent, checkpoint, source)
    header, made = check_model_file(model), given.out / ADAPTERS[given.system]
    convert_adapter(source, made, architecture=header.architecture, layers=header.layers, heads=header.heads)
    return DONE


def serve(given: Options) -> int:
    """Serve the scripted workers of GRPO on loopback until Ctrl-C, to ask them by hand."""
    with serving(draw_workers(given.count or 120, "grpo"), given.port or PORT) as port, suppress(KeyboardInterrupt):
        print_line(f"scripted workers at http://127.0.0.1:{port}/v1")
        signal.pause()
    return DONE


COMMANDS: Final[tuple[Callable[[Options], int], ...]] = (
    get, base, supervised, merge, workers, grpo, adapter, serve,
)  # fmt: skip


def parse(words: Sequence[str] | None = None) -> Options:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m training.smollm2.commands", description=__doc__)
    chosen = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        own = chosen.add_parser(command.__name__, help=command.__doc__)
        own.set_defaults(command=command)
        if command is adapter:
            own.add_argument("system", choices=ADAPTERS)
        own.add_argument("--out", type=Path, default=OUT)
        for name in ("steps", "prompts", "group", "count", "cases", "validation", "port"):
            own.add_argument(f"--{name}", type=int, default=0)
        own.add_argument("--minutes", type=float, default=1e6)
    return parser.parse_args(words)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def main() -> int:
    """Run a command. An error is printed in two lines."""
    signal.signal(signal.SIGTERM, _end)
    given = parse()
    try:
        return int(given.command(given))
    except ConductorError as error:
        print_line(f"error: {error.message}" + (f"\n  {error.hint}" if error.hint else ""))
        return 1


if __name__ == "__main__":
    sys.exit(main())
