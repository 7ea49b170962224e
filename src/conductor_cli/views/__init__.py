"""Event stream to output. Standard output gets the answer or JSON; standard error gets what a waiting person wants.

To add an output format or a kind of progress: write a class with `show` and `close`, and add a row to a table here.
Views know events and the fold of them, never who runs, stores or answers. Rich is loaded only for the tree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TextIO

from conductor_cli.core.events import Event, StepDelta, StepFailed
from conductor_cli.views.answer import AnswerOutput, AnswerSink, LazySink, PlainSink, answering_step
from conductor_cli.views.base import Clock, Progress, Stderr, Stdout, View
from conductor_cli.views.json_lines import JsonLinesOutput
from conductor_cli.views.json_output import JsonOutput
from conductor_cli.views.plain import PlainProgress
from conductor_cli.views.silent import NoticesProgress, SilentProgress

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["ColorName", "OutputContext", "OutputName", "ProgressName", "View", "choose_progress", "open_views"]

OutputName = Literal["answer", "json", "jsonl"]
ProgressName = Literal["auto", "tree", "plain", "none"]
ColorName = Literal["auto", "always", "never"]
Shown = Literal["tree", "plain", "notices", "none"]
"""What progress comes to; nobody asks for `notices` by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputContext:
    """Where a run is shown. `kept`: its trace is on disk and can be resumed. `width` and `height` are for tests.

    `markdown`: an answer is rendered where the terminal shows colours. `brief`: a step that has ended is one line.
    """

    stdout: TextIO
    stderr: TextIO
    environ: Mapping[str, str]
    color: ColorName = "auto"
    quiet: bool = False
    kept: bool = True
    markdown: bool = True
    brief: bool = False
    clock: Clock = time.monotonic
    width: int | None = None
    height: int | None = None


def open_views(output: OutputName, progress: ProgressName, around: OutputContext) -> View:
    """The view that shows a run as `--format` and `--progress` ask. Feed it every event, then close it."""
    stdout, stderr = Stdout(around.stdout), Stderr(around.stderr)
    shared = output == "answer" and stdout.terminal and stderr.terminal
    name = choose_progress(output, progress, around)
    return Views(PROGRESS[name](stderr, around, shared), OUTPUTS[output](stdout, around), shared=shared)


def choose_progress(output: OutputName, progress: ProgressName, around: OutputContext) -> Shown:
    """Which progress to show.

    Left to itself: the tree where standard error is a terminal that can redraw, plain lines on one that cannot or
    where `ACCESSIBLE` asks for them, the notices alone in a pipe, a file or a cron job, and nothing beside `jsonl`,
    whose lines are the progress. A tree asked for beside `jsonl` on the same terminal becomes plain lines.
    """
    out, err = Stdout(around.stdout).terminal, Stderr(around.stderr).terminal
    if around.quiet:
        return "none"
    if progress == "auto":
        if output == "jsonl":
            return "none"
        if not err:
            return "notices"
        return "plain" if cannot_redraw(around.environ) else "tree"
    return "plain" if progress == "tree" and output == "jsonl" and out and err else progress


class Views:
    """Progress and output of one run. `shared`: both are on one terminal; progress rests while the answer streams."""

    def __init__(self, progress: Progress, output: View, *, shared: bool) -> None:
        self._progress = progress
        self._output = output
        self._shared = shared
        self._answering = 0

    def show(self, event: Event) -> None:
        """Show one event. `BrokenPipeError` means that nobody reads standard output any more."""
        self._answering = answering_step(event, self._answering)
        self._progress.show(event)
        if self._shared and isinstance(event, StepDelta) and event.text and event.step == self._answering:
            self._progress.rest()
        self._output.show(event)
        if self._shared and self._broke_off(event):
            self._progress.wake()

    def _broke_off(self, event: Event) -> bool:
        """Whether the answer is waited for again."""
        return isinstance(event, StepFailed) and event.step == self._answering and not event.final

    def close(self) -> None:
        """Leave the terminal as it was found. Call it whatever happened."""
        try:
            self._output.close()
        finally:
            self._progress.close()


def uses_color(around: OutputContext) -> bool | None:
    """Whether to use colours; `None` where the terminal decides. `--color` wins over the environment."""
    if around.color != "auto":
        return around.color == "always"
    if around.environ.get("NO_COLOR"):
        return False
    return True if _set(around.environ, "CLICOLOR_FORCE") or _set(around.environ, "FORCE_COLOR") else None


def cannot_redraw(environ: Mapping[str, str]) -> bool:
    """Whether nothing may be drawn again: the terminal cannot, or a screen reader would read it out each time."""
    return environ.get("TERM") == "dumb" or _set(environ, "ACCESSIBLE")


def _set(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "") not in ("", "0")


def _tree(stderr: Stderr, around: OutputContext, shared: bool) -> Progress:  # noqa: FBT001 - a row of the table
    from conductor_cli.views.live_region import reflows  # Rich takes long to load
    from conductor_cli.views.tree import TreeOptions, TreeProgress

    look = TreeOptions(kept=around.kept, shared=shared, brief=around.brief, reflows=reflows(around.environ))
    return TreeProgress(_console(stderr, around), look, clock=around.clock)


def _answer(stdout: Stdout, around: OutputContext) -> View:
    """Markdown where there are styles to say what its marks said, on a terminal that may be drawn on again."""
    if not (stdout.terminal and around.markdown and uses_color(around) is not False) or cannot_redraw(around.environ):
        return AnswerOutput(stdout)
    return AnswerOutput(stdout, LazySink(lambda: _paper(stdout, around)))


def _paper(stdout: Stdout, around: OutputContext) -> AnswerSink:
    console = _console(stdout, around)
    if console.color_system is None:
        return PlainSink(stdout)
    from conductor_cli.views.live_region import reflows
    from conductor_cli.views.markdown_stream import MarkdownStream  # this takes long to load, too

    return MarkdownStream(console, reflows=reflows(around.environ))


def _console(stream: Stdout, around: OutputContext) -> Console:
    from conductor_cli.views.tree import open_console

    return open_console(
        stream, color=uses_color(around), environ=around.environ, width=around.width, height=around.height
    )


OUTPUTS: Final[dict[str, Callable[[Stdout, OutputContext], View]]] = {
    "answer": _answer,
    "json": lambda stdout, _around: JsonOutput(stdout),
    "jsonl": lambda stdout, _around: JsonLinesOutput(stdout),
}

PROGRESS: Final[dict[Shown, Callable[[Stderr, OutputContext, bool], Progress]]] = {
    "tree": _tree,
    "plain": lambda stderr, around, _shared: PlainProgress(stderr, kept=around.kept, clock=around.clock, tick=1.0),
    "notices": lambda stderr, around, _shared: NoticesProgress(stderr, kept=around.kept),
    "none": lambda stderr, around, _shared: SilentProgress(stderr, kept=around.kept),
}
