"""Downloading a model at the terminal: what it needs, the progress, and the one question before a first run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from conductor_cli.app.planner_resolution import has_no_model, open_model_store
from conductor_cli.cli.output import print_notice
from conductor_cli.cli.prompts import can_ask, confirm
from conductor_cli.cli.signals import handle_signal
from conductor_cli.core.formatting import format_duration, format_size

if TYPE_CHECKING:
    from conductor_cli.app.models import PullPlan
    from conductor_cli.config import Settings
    from conductor_cli.models.weights.model_store import Manifest
    from conductor_cli.models.weights.progress import Progress, Report

LABELS: Final = {
    "waiting": "waiting for", "asking": "asking about", "downloading": "downloading", "checking": "checking",
    "storing": "storing",
}  # fmt: skip
"""What is done with a file at each stage."""


@contextmanager
def show_file_progress(settings: Settings, *, quiet: bool) -> Iterator[Report]:
    """Show how far model files are until the block ends."""
    from conductor_cli.cli.progress import show_progress

    def terminate(*_: object) -> None:
        raise SystemExit(143)

    # SIGTERM ends the block as an error does, so that the cursor is shown again and locks are released.
    with handle_signal(signal.SIGTERM, terminate), show_progress(settings, quiet=quiet) as display:

        def report(progress: Progress) -> None:
            if progress.note:
                display.note(progress.note)
            counted = progress.stage in {"downloading", "checking"}
            label = f"{LABELS[progress.stage]} {progress.file}"
            display.update(label, progress.done, progress.total if counted else 0)

        yield report


def download_model(plan: PullPlan, settings: Settings, *, quiet: bool) -> Manifest:
    """Pull a model and show the progress. Raises `ConductorUnusable`, also where the disk has no room for it."""
    from conductor_cli.models.disk import check_room
    from conductor_cli.models.weights.download import pull_model

    # Each file is checked again later; this finds out before the first of several files is downloaded.
    check_room(plan.estimate.directory, plan.estimate.missing, "HF_HOME")
    try:
        with show_file_progress(settings, quiet=quiet) as report:
            return pull_model(plan.model, open_model_store(settings), settings.environ, report)
    except KeyboardInterrupt:
        if not quiet:
            print_notice(f"stopped; to continue: conductor model pull {plan.model.name}")
        raise


def describe_plan(plan: PullPlan) -> list[str]:
    """What a pull needs: size, licence, where from and where to, and the memory beside what the machine has."""
    model, estimate, memory = plan.model, plan.estimate, plan.memory
    missing = f", {format_size(estimate.missing)} of it to download" if estimate.missing < model.size else ""
    size = format_size(model.size) if model.size else "size unknown"
    lines = [
        f"{model.name}: {size}{missing}, licence {model.licence}",
        f"from {model.repo} at {model.revision[:12]}, to {estimate.directory}, {format_size(estimate.free)} free",
    ]
    if model.licence != "Apache-2.0":
        lines.append(f"{model.licence} is not Apache-2.0; its terms are at https://huggingface.co/{model.repo}")
    if not model.memory:
        return lines
    line = f"memory: needs about {format_size(model.memory)}"
    if memory.total:
        line += f"; this machine has {format_size(memory.total)}"
    if model.memory > memory.total > 0:
        lines.append(f"{line}: too little, it would be very slow or fail")
        return lines + ([f"smaller: conductor model pull {plan.smaller.name}"] if plan.smaller else [])
    if model.memory > memory.available > 0:
        line += f", of which only {format_size(memory.available)} are free now: close something first"
    return [*lines, line]


def describe_files(manifest: Manifest) -> list[str]:
    """Where a model's files are, and what their SHA-256 was compared with."""
    from conductor_cli.app.models import describe_hash_source

    compared = describe_hash_source(manifest)
    return [line for file in manifest.files for line in (f"{file.path}", f"SHA-256 {file.sha256}: {compared}")]


def offer_model(settings: Settings, *, quiet: bool) -> None:
    """Ask a person once whether to download the default model if none plans, and download it.

    Without a terminal, or after a no, nothing happens here: opening the conductor says what to run.
    """
    if quiet or not can_ask() or not has_no_model(settings):
        return
    from conductor_cli.app.models import USUAL_RATE, plan_first_pull, remember_refusal
    from conductor_cli.config.files import set_value
    from conductor_cli.models.disk import check_room

    plan = plan_first_pull(settings)
    if plan is None:
        return
    missing = plan.estimate.missing
    # Nobody should be asked about a download that cannot succeed.
    check_room(plan.estimate.directory, missing, "HF_HOME")
    print_notice("No conductor model is installed yet. The default one is")
    for line in describe_plan(plan):
        print_notice(line)
    duration = format_duration(missing / USUAL_RATE, tenths=False)
    takes = f", about {duration} at {format_size(USUAL_RATE)}/s" if missing else ""
    if confirm(f"Download it now{takes}?", default=True):
        for line in describe_files(download_model(plan, settings, quiet=quiet)):
            print_notice(line)
        set_value(settings.paths, "conductor.model", plan.model.name)
    else:
        remember_refusal(settings)
        print_notice("you will not be asked again; to download it later: conductor model pull")
