"""`make screens`.

Pictures of the screen, dark and light, from a real run with the models that ship with it. The
recording of a run that moves is made by `cast.py`.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME

from conductor_cli.core import events as ev
from conductor_cli.core.trace import Trace, apply_event
from conductor_cli.views.run_text import describe_totals
from conductor_cli.views.run_tree import TreeLayout, live_lines, run_tree, tree_lines
from conductor_cli.views.styled_lines import StyledLines
from conductor_cli.views.text_layout import BLANK, Line, Screen
from scripts import cast

FOLDER: Final = Path("docs/screens")
QUESTION: Final = "Find the capital of Japan, then spell it backwards, then count its letters."
THEMES: Final = {"dark": SVG_EXPORT_THEME, "light": DEFAULT_TERMINAL_THEME}
SCREEN: Final = Screen(width=80, height=24)

_FONTS: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def events() -> Iterator[ev.Event]:
    """What happens in a run of the question, from the command itself."""
    command = [
        sys.executable,
        "-m",
        "conductor_cli",
        "ask",
        "--demo",
        "--no-trace",
        "--format",
        "jsonl",
        QUESTION,
    ]
    ended = subprocess.run(command, check=True, capture_output=True, encoding="utf-8")
    yield from map(ev.from_line, ended.stdout.splitlines())


def pictures(run: list[ev.Event]) -> dict[str, list[Line]]:
    """The screen at some moments of a run, as lines."""
    screens: dict[str, list[Line]] = {}
    trace = Trace()
    for event in run:
        trace = apply_event(trace, event)
        root = run_tree(trace)
        layout = TreeLayout(SCREEN)
        if isinstance(event, ev.StepPlanned) and event.step == 1:
            screens["planning"] = live_lines(root, trace, trace.at, layout)
        elif isinstance(event, ev.StepDelta) and event.step == 2:
            screens["running"] = live_lines(root, trace, trace.at, layout)
        elif isinstance(event, ev.RunFinished):
            answer: Line = ((event.answer, "plain"),)
            totals: Line = ((describe_totals(trace, stored=False), "quiet"),)
            screens["finished"] = [*tree_lines(root, layout), BLANK, answer, BLANK, totals]
    return screens


def svg(lines: list[Line], theme: str) -> str:
    """A picture that loads nothing from elsewhere."""
    console = Console(
        record=True,
        width=SCREEN.width,
        file=io.StringIO(),
        force_terminal=True,
        color_system="standard",
    )
    prompt: Line = ((f'$ conductor ask --demo "{QUESTION.partition(",")[0]}, …"', "plain"),)
    console.print(StyledLines(lambda: [prompt, *lines]), end="")
    title = "conductor"
    return _FONTS.sub(
        "", console.export_svg(title=title, theme=THEMES[theme], unique_id=f"conductor-{theme}")
    )


def main() -> None:
    """Write all of them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, lines in pictures(list(events())).items():
        for theme in THEMES:
            path = FOLDER / f"{name}-{theme}.svg"
            path.write_text(svg(lines, theme), encoding="utf-8", newline="\n")
            print(path)
    cast.main()


if __name__ == "__main__":
    main()
