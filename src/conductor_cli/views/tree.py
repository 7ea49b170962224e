"""The live tree of a run on a terminal.

`show` only keeps the trace, and `draw` draws it. While the run goes on, the whole tree is redrawn
in place. It is never taller than the terminal, because a line that has left the screen cannot be
erased. The finished tree is printed once: when the answer begins below it, or when the run ends.

After a terminal was made narrower an old frame may stay in two cases: tmux reports the new width up
to a quarter of a second late, and rows that left the screen by wrapping cannot be erased. To erase
more on suspicion would take away what stood above the tree.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from conductor_cli.core import events as ev
from conductor_cli.core.events import Event
from conductor_cli.core.trace import Trace
from conductor_cli.views.base import Clock, RunView
from conductor_cli.views.plain import answering_step
from conductor_cli.views.run_text import describe_totals, problem_lines
from conductor_cli.views.run_tree import (
    Node,
    TreeLayout,
    find_node,
    live_lines,
    run_tree,
    tree_lines,
)
from conductor_cli.views.styled_lines import LiveLines, StyledLines
from conductor_cli.views.text_layout import BLANK, Line, Screen

if TYPE_CHECKING:
    from rich.console import Console

IDLE_SECONDS: Final = 1.0  # Between two drawings while only time passes


class TreeProgress(RunView):
    """Draws one run.

    `stored`: its trace is on disk. `shared`: the answer is written to the same terminal. `reflows`:
    the terminal wraps its lines when it becomes narrower.
    """

    def __init__(
        self,
        console: Console,
        *,
        stored: bool = True,
        shared: bool = False,
        reflows: bool = True,
        clock: Clock = time.monotonic,
    ) -> None:
        self._console = console
        self._stored = stored
        self._shared = shared
        self._reflows = reflows
        self._clock = clock
        self._live: LiveLines | None = None
        self._trace = Trace()
        self._event_seen = clock()
        self._drawn = self._event_seen
        self._changed = False
        self._paused = False
        self._asking = False
        self._answering = ""
        self._printed: Node | None = None

    def show(self, event: Event, trace: Trace) -> None:
        self._trace = trace
        self._event_seen = self._clock()
        self._changed = True
        if isinstance(event, (ev.RunFinished, ev.RunFailed)):
            self._settle()
        elif isinstance(event, ev.PlanOffered):
            self._stop_drawing()
            self._asking = True
        elif isinstance(ev.innermost_event(event), ev.ToolOffered | ev.InputAsked):
            # The question is printed below. The next event comes when it is answered, and the tree
            # is drawn again.
            self._stop_drawing()
            return
        elif isinstance(event, ev.PlanDecided):
            self._asking = False
        if not self._asking and not self._paused:
            self._start_drawing()

    def pause(self) -> None:
        """Print the tree in place of the live one, so that the answer can be written below it."""
        self._settle(answering=str(answering_step(self._trace) or ""))

    def _settle(self, answering: str = "") -> None:
        """Print the tree in place of the live one.

        `answering` is the number of the step whose text follows.
        """
        if self._paused:
            return
        self._paused = True
        self._answering = answering or self._answering
        self._stop_drawing()
        self._print_tree()
        if self._shared and (answering or self._trace.answer):
            self._print([BLANK])

    def _print_tree(self) -> None:
        """Print the tree once, unless the totals say all that it would."""
        if self._printed is not None or not self._trace.run:
            return
        root = run_tree(self._trace, self._now())
        if _is_one_quiet_call(self._trace, root):
            return
        self._printed = root
        if not self._asking:  # a plan that the user has just dropped is on the screen already
            self._print(tree_lines(root, self._layout()))

    def resume(self) -> None:
        """Draw again below the answer that broke off; its own view said why."""
        if self._paused and not self._trace.ended:
            self._paused = False
            self._start_drawing()

    def close(self) -> None:
        """Print what is not printed yet.

        The tree, what has changed since, the totals, and what went wrong.
        """
        self._settle()
        # On a shared terminal a blank line separates what follows from the answer above it.
        if self._shared and (self._answering or self._trace.answer):
            self._print([BLANK])
        if self._printed is None:
            self._answering = ""  # A tree that is printed only now stands below the answer
            self._print_tree()
        lines = list[Line]()
        screen = self._screen()
        if self._trace.run:
            lines += self._later_lines()
            totals = describe_totals(self._trace, stored=self._stored)
            lines += screen.styled_rows(totals, "quiet")
        # These lines may be wider than the screen, because a command in them is there to be copied.
        style = "failed"
        indent = ""
        for text in problem_lines(self._trace, stored=self._stored):
            lines.append(((indent + screen.line(text), style),))
            style = "plain"
            indent = "  "
        self._print(lines)

    def leave(self) -> None:
        self._settle()

    def draw(self) -> None:
        now = self._clock()
        if self._paused or (not self._changed and now - self._drawn < IDLE_SECONDS):
            return
        self._changed = False
        self._drawn = now
        if self._live is not None:
            self._live.refresh()

    def live(self) -> list[Line]:
        """Return the live tree and its totals, as they would be drawn now.

        At most one line less than the screen has.
        """
        root = run_tree(self._trace, self._now())
        layout = self._layout()
        if self._printed is not None:  # only the answer is waited for
            answering = find_node(root, self._answering) or root
            root = replace(answering, children=self._later_calls(answering), text="")
            layout = layout._replace(answering="")
        return live_lines(root, self._trace, self._now(), layout)

    def _later_lines(self) -> list[Line]:
        """Return what the printed tree does not say of how steps ended.

        The answering step with its figures is always among it.
        """
        if self._printed is None:
            return []
        printed = {node.number: node for node in self._printed.walk() if node.number}
        layout = self._layout()._replace(answering="")
        lines = list[Line]()
        for node in run_tree(self._trace, self._now()).walk():
            before = printed.get(node.number)
            if node.kind != "step" or before is None or before.state == node.state:
                continue
            children = (*self._later_calls(node), *_later_notes(node, before))
            is_silent_success = node.state == "done" and node.number != self._answering
            if children or not is_silent_success:
                short = replace(node, children=children, answers=True, label="", remark="")
                lines += tree_lines(short, layout)
        return lines

    def _later_calls(self, node: Node) -> tuple[Node, ...]:
        """Return the calls of a step of which the printed tree does not say how they ended."""
        calls = tuple(child for child in node.children if child.kind == "tool")
        printed = find_node(self._printed, node.number) if self._printed is not None else None
        if printed is None:
            return calls
        return tuple(call for call in calls if call not in printed.children)

    def _start_drawing(self) -> None:
        if self._console.is_interactive and self._live is None:
            self._live = LiveLines(self._console, StyledLines(self.live), reflows=self._reflows)

    def _stop_drawing(self) -> None:
        live = self._live
        self._live = None
        if live is not None:
            live.stop()

    def _print(self, lines: list[Line]) -> None:
        if lines:
            self._console.print(StyledLines(lambda: lines), end="", crop=False)

    def _now(self) -> float:
        """Return the time by the run's own clock."""
        if self._trace.ended:
            return self._trace.at
        return self._trace.at + self._clock() - self._event_seen

    def _screen(self) -> Screen:
        width, height = self._console.size
        return Screen(width=width, height=height, encoding=self._console.encoding)

    def _layout(self) -> TreeLayout:
        return TreeLayout(self._screen(), answering=self._answering)


def _is_one_quiet_call(trace: Trace, root: Node) -> bool:
    """Return whether nothing was planned and nothing happened but that one worker writes."""
    if not trace.is_unplanned or trace.error is not None:
        return False
    return [child.kind for child in root.children] == ["step"] and not root.children[0].children


def _later_notes(node: Node, before: Node) -> list[Node]:
    """Return the notices of a step that it did not have before."""
    notes = [child for child in node.children if child.kind == "note"]
    return [note for note in notes if note not in before.children]
