"""From a run's events to output.

Standard output gets the answer or JSON, standard error gets the progress.

To add an output format or a kind of progress, write a `RunView` and add it to a table below. Views
know events and traces; they do not know who runs, stores or answers. Rich is loaded only for the
tree and for Markdown.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Literal

from conductor_cli.core.events import Event, StepDelta, StepFailed, ToolCalled
from conductor_cli.core.trace import Trace
from conductor_cli.views import plain
from conductor_cli.views.attention import Attention
from conductor_cli.views.base import (
    FRAME_SECONDS,
    ColorName,
    OutputContext,
    RunView,
    Stderr,
    Stdout,
    cannot_redraw,
    is_in_background,
    reflows,
    uses_color,
)
from conductor_cli.views.json_output import JsonLinesOutput, JsonOutput

__all__ = [
    "ColorName",
    "OutputContext",
    "OutputName",
    "ProgressName",
    "RunView",
    "choose_progress",
    "open_views",
    "uses_color",
]

OutputName = Literal["answer", "json", "jsonl"]
ProgressName = Literal["auto", "tree", "plain", "none"]
ShownProgress = Literal["tree", "plain", "notices", "none"]
"""What `auto` can become as well; `notices` is not an option of its own."""


def open_views(output: OutputName, progress: ProgressName, context: OutputContext) -> RunView:
    """Return the view for `--format` and `--progress`. Pass it every event, then close it."""
    stdout = Stdout(context.stdout)
    stderr = Stderr(context.stderr)
    shared = output == "answer" and stdout.terminal and stderr.terminal
    name = choose_progress(output, progress, context)
    return RunDisplay(
        PROGRESS[name](stderr, context, shared),
        OUTPUTS[output](stdout, context),
        shared=shared,
        attention=open_attention(context),
    )


def open_attention(context: OutputContext) -> RunView:
    """Return the view that calls a person back; None but on a terminal that shows progress."""
    stderr = Stderr(context.stderr)
    if not stderr.terminal or context.quiet or context.notify == "off":
        return RunView()
    return Attention(stderr, context.notify, context.environ)


def choose_progress(
    output: OutputName, progress: ProgressName, context: OutputContext
) -> ShownProgress:
    """Return which progress to show.

    `auto` is the tree on a terminal that can redraw, plain lines on one that cannot, in the
    background of a shell (`&`), or when `ACCESSIBLE` is set, only notices in a pipe, a file or a
    cron job, and nothing beside `jsonl`, whose lines already are the progress. A tree beside
    `jsonl` on the same terminal becomes plain lines.
    """
    shows_output = Stdout(context.stdout).terminal
    stderr = Stderr(context.stderr)
    shows_progress = stderr.terminal
    if context.quiet:
        return "none"
    if progress == "auto":
        if output == "jsonl":
            return "none"
        if not shows_progress:
            return "notices"
        is_plain = cannot_redraw(context.environ) or is_in_background(stderr)
        return "plain" if is_plain else "tree"
    if progress == "tree" and output == "jsonl" and shows_output and shows_progress:
        return "plain"
    return progress


class RunDisplay(RunView):
    """Progress and output of one run.

    `shared`: both use one terminal, so progress pauses while the answer streams.
    """

    def __init__(
        self,
        progress: RunView,
        output: RunView,
        *,
        shared: bool,
        attention: RunView | None = None,
    ) -> None:
        self._progress = progress
        self._output = output
        self._attention = attention or RunView()
        self._shared = shared
        self._drawn = 0.0

    def show(self, event: Event, trace: Trace) -> None:
        """Show one event. `BrokenPipeError` means that nobody reads standard output any more."""
        self._progress.show(event, trace)
        answers = self._shared and _is_of_answer(event, trace)
        if answers and isinstance(event, StepDelta) and event.text:
            self._progress.pause()
        self._output.show(event, trace)
        if answers and _is_followed_by_work(event):
            self._progress.resume()
        self._attention.show(event, trace)

    def skip_to(self, event: Event, trace: Trace) -> None:
        self._progress.show(event, trace)

    def draw(self) -> None:
        if time.monotonic() - self._drawn >= FRAME_SECONDS:
            self._progress.draw()
            self._output.draw()
            self._drawn = time.monotonic()

    def close(self) -> None:
        """Leave the terminal as it was found. Call it whatever happened."""
        try:
            self._output.close()
        finally:
            self._progress.close()
            self._attention.close()

    def leave(self) -> None:
        try:
            self._output.close()
        finally:
            self._progress.leave()
            self._attention.close()


def _is_of_answer(event: Event, trace: Trace) -> bool:
    """Return whether an event belongs to what the answering step writes."""
    if not isinstance(event, (StepDelta, StepFailed, ToolCalled)):
        return False
    return event.step == plain.answering_step(trace)


def _is_followed_by_work(event: Event) -> bool:
    """Return whether another attempt or a tool follows, so that there is something to wait for."""
    if isinstance(event, StepFailed):
        return not event.final
    return isinstance(event, ToolCalled)


# A row of the table
def _open_tree(stderr: Stderr, context: OutputContext, shared: bool) -> RunView:  # noqa: FBT001
    from conductor_cli.views.tree import TreeProgress

    return TreeProgress(
        context.open_console(stderr),
        stored=context.stored,
        shared=shared,
        reflows=reflows(context.environ),
        clock=context.clock,
    )


def _open_answer(stdout: Stdout, context: OutputContext) -> RunView:
    """Rendered Markdown needs styles to replace its marks, and a terminal that can redraw."""
    if not stdout.terminal:
        return plain.AnswerOutput(stdout)

    def open_sink() -> plain.AnswerSink:
        is_plain = cannot_redraw(context.environ) or is_in_background(stdout)
        if is_plain or not context.markdown or uses_color(context) is False:
            return plain.PlainSink(stdout)
        console = context.open_console(stdout)
        # Rich draws bullets that others lack
        if console.color_system is None or console.encoding != "utf-8":
            return plain.PlainSink(stdout)
        from conductor_cli.views.markdown_stream import MarkdownStream

        return MarkdownStream(console, reflows=reflows(context.environ))

    return plain.AnswerStream(open_sink)


OUTPUTS: Final[dict[str, Callable[[Stdout, OutputContext], RunView]]] = {
    "answer": _open_answer,
    "json": lambda stdout, context: JsonOutput(stdout, context.trace_path),
    "jsonl": lambda stdout, _context: JsonLinesOutput(stdout),
}

PROGRESS: Final[dict[ShownProgress, Callable[[Stderr, OutputContext, bool], RunView]]] = {
    "tree": _open_tree,
    "plain": lambda stderr, context, _shared: plain.PlainProgress(
        stderr, stored=context.stored, question_is_shown=context.question_is_shown
    ),
    "notices": lambda stderr, context, _shared: plain.NoticesProgress(
        stderr, stored=context.stored
    ),
    "none": lambda stderr, context, _shared: plain.SilentProgress(stderr, stored=context.stored),
}
