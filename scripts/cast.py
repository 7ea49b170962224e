"""A recording of a real run, for `make screens`.

The demo's models answer a question in a pseudo-terminal, and what the command writes is kept with
its times as an asciicast (version 2), which `asciinema play` shows. The animated picture is made of
that file and of nothing else. The run takes about a second, so it is kept slower, and the title
says so; the command line is typed by this program.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

import pexpect
import pyte

FOLDER: Final = Path("docs/screens")
CAST: Final = FOLDER / "demo.cast"
QUESTION: Final = "Find the capital of Japan, then spell it backwards, then count its letters."
WORDS: Final = ("ask", "--demo", QUESTION)
COLUMNS: Final = 80
ROWS: Final = 15

TIMES_SLOWER: Final = 8
MAX_PAUSE_SECONDS: Final = 1.5  # Of the recording: while the program starts, nothing is to be seen
KEY_SECONDS: Final = 0.04  # Between two letters that are typed
READ_SECONDS: Final = 1.5  # To read the command line before it runs
END_SECONDS: Final = 6.0  # To read the answer before the picture begins again
TIMEOUT_SECONDS: Final = 120.0
FRAME_SECONDS: Final = 0.25  # Frames of the picture that follow sooner become one
TITLE: Final = f"conductor: a real run of the demo, {TIMES_SLOWER} times slower"

CELL_WIDTH: Final = 8.4  # Pixels of the picture
CELL_HEIGHT: Final = 18
MARGIN: Final = 14

BLANK_CELL: Final = " "
THEMES: Final[Mapping[str, Mapping[str, str]]] = {
    "dark": {
        "background": "#1b1f24",
        "default": "#d0d7de",
        "black": "#6e7681",
        "red": "#ff7b72",
        "green": "#56d364",
        "brown": "#e3b341",
        "blue": "#79c0ff",
        "magenta": "#d2a8ff",
        "cyan": "#76e3ea",
        "white": "#f0f6fc",
    },
    "light": {
        "background": "#f6f8fa",
        "default": "#1f2328",
        "black": "#57606a",
        "red": "#a40e26",
        "green": "#116329",
        "brown": "#7d4e00",
        "blue": "#0550ae",
        "magenta": "#6639ba",
        "cyan": "#1b5f6d",
        "white": "#24292f",
    },
}
"""Colours by the names that pyte gives them; of those with eight bits, the plain ones are taken."""

Piece = tuple[float, str]
"""A text, and how many seconds after the beginning of the recording it came."""


def record() -> list[Piece]:
    """Return what the command writes in a terminal, with its times in seconds."""
    with tempfile.TemporaryDirectory(prefix="conductor-cast-") as home:
        environ = {
            "HOME": home,
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
        }
        program = pexpect.spawn(
            sys.executable,
            ["-m", "conductor_cli", *WORDS],
            env=environ,
            dimensions=(ROWS, COLUMNS),
            encoding="utf-8",
            timeout=TIMEOUT_SECONDS,
        )
        begin = time.monotonic()
        pieces = list[Piece]()
        while True:
            try:
                text = program.read_nonblocking(65536, TIMEOUT_SECONDS)
            except pexpect.EOF:
                break
            pieces.append((time.monotonic() - begin, text))
        program.close()
    if program.exitstatus:
        raise SystemExit(f"the command failed with code {program.exitstatus}")
    return pieces


def cast_of(pieces: Sequence[Piece]) -> str:
    """Return an asciicast of a recording, after the command line that is typed."""
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": TITLE}
    header["env"] = {"TERM": "xterm-256color"}
    lines = [json.dumps(header)]
    for at, text in [*_typed(), *_slowed(pieces)]:
        lines.append(json.dumps([round(at, 2), "o", text], ensure_ascii=False))
    return "\n".join(lines) + "\n"


def _typed() -> list[Piece]:
    pieces: list[Piece] = [(0.0, "$ ")]
    for letter in shlex.join(["conductor", *WORDS]).replace("'", '"'):
        pieces.append((pieces[-1][0] + KEY_SECONDS, letter))
    pieces.append((pieces[-1][0] + READ_SECONDS, "\r\n"))
    return pieces


def _slowed(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Yield the pieces at their times in the recording, without long pauses."""
    at = _typed()[-1][0]
    before = 0.0
    for seconds, text in pieces:
        at += min(TIMES_SLOWER * (seconds - before), MAX_PAUSE_SECONDS)
        before = seconds
        yield at, text


@dataclass(frozen=True, slots=True)
class Frame:
    """What a terminal shows from a time on: the lines, each of which is cells with a style."""

    at: float
    lines: tuple[tuple[Any, ...], ...]


def frames_of(cast: str) -> list[Frame]:
    """Return what a terminal shows of a recording, each picture once."""
    header, *events = map(json.loads, cast.splitlines())
    screen = pyte.Screen(header["width"], header["height"])
    stream = pyte.Stream(screen)
    frames = list[Frame]()
    for at, _, text in events:
        stream.feed(text)
        frame = Frame(at, tuple(_cells(screen, row) for row in range(screen.lines)))
        if frames and at - frames[-1].at < FRAME_SECONDS:
            frames[-1] = Frame(frames[-1].at, frame.lines)
        elif not frames or frames[-1].lines != frame.lines:
            frames.append(frame)
    return frames


def _cells(screen: Any, row: int) -> tuple[Any, ...]:
    return tuple(screen.buffer[row][column] for column in range(screen.columns))


def text_of(frame: Frame) -> str:
    """Return the text of a frame, without the blanks at the ends of its lines."""
    lines = ["".join(cell.data for cell in cells) for cells in frame.lines]
    return "\n".join(map(str.rstrip, lines)).rstrip()


def svg_of(cast: str, theme: str) -> str:
    """Return a recording as a picture that moves.

    Where nothing may move, or nothing can, it shows the end. It loads nothing from elsewhere.
    """
    colors = THEMES[theme]
    frames = frames_of(cast)
    seconds = frames[-1].at + END_SECONDS
    width = round(COLUMNS * CELL_WIDTH + 2 * MARGIN)
    height = ROWS * CELL_HEIGHT + 2 * MARGIN
    rules = [f"text{{font:14px ui-monospace,Menlo,Consolas,monospace;fill:{colors['default']}}}"]
    rules.append(".f{visibility:hidden}.last{visibility:visible}")
    for name, color in colors.items():
        rules.append(f".{name}{{fill:{color}}}")
    rules.append(".b{font-weight:bold}")
    moving = [f".f{{animation:{seconds:.2f}s step-end infinite}}"]
    groups = list[str]()
    for number, frame in enumerate(frames):
        is_last = number == len(frames) - 1
        end = seconds if is_last else frames[number + 1].at
        moving.append(
            f"#f{number}{{animation-name:k{number}}}{_keyframes(number, frame.at, end, seconds)}"
        )
        group = f'<g id="f{number}" class="f{" last" if is_last else ""}">'
        groups.append(group + "".join(_svg_lines(frame)) + "</g>")
    rules.append(f"@media (prefers-reduced-motion:no-preference){{{''.join(moving)}}}")
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    label = f'role="img" aria-label="{escape(TITLE)}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {label}>',
            f"<style>{''.join(rules)}</style>",
            f'<rect width="100%" height="100%" rx="8" fill="{colors["background"]}"/>',
            *groups,
            "</svg>\n",
        ]
    )


def _keyframes(number: int, begin: float, end: float, seconds: float) -> str:
    """Return the rule by which a frame is seen from `begin` to `end` of so many seconds."""
    shown = 100 * begin / seconds
    hidden = 100 * end / seconds
    steps = f"{shown:.2f}%{{visibility:visible}}"
    if begin > 0:
        steps = "0%{visibility:hidden}" + steps
    if end < seconds:
        steps += f"{hidden:.2f}%{{visibility:hidden}}"
    return f"@keyframes k{number}{{{steps}}}"


def _svg_lines(frame: Frame) -> Iterator[str]:
    for row, cells in enumerate(frame.lines):
        y = MARGIN + (row + 1) * CELL_HEIGHT - 5
        for column, text, classes in _runs(cells):
            x = MARGIN + column * CELL_WIDTH
            style = f' class="{classes}"' if classes else ""
            length = f"{len(text) * CELL_WIDTH:.1f}"
            yield (
                f'<text x="{x:.1f}" y="{y}" textLength="{length}" xml:space="preserve"{style}>'
                f"{escape(text, quote=False)}</text>"
            )


def _runs(cells: Sequence[Any]) -> Iterator[tuple[int, str, str]]:
    """Yield the texts of a line that have one style, each with its column and its classes."""
    column = 0
    while column < len(cells):
        begin = column
        classes = _classes(cells[column])
        while column < len(cells) and _classes(cells[column]) == classes:
            column += 1
        text = "".join(cell.data for cell in cells[begin:column])
        start = len(text) - len(text.lstrip(BLANK_CELL))
        if text.strip(BLANK_CELL):
            yield begin + start, text.strip(BLANK_CELL), classes


def _classes(cell: Any) -> str:
    names = []
    color = cell.fg.removeprefix("bright")
    if color in THEMES["dark"] and color != "default":
        names.append(color)
    if cell.bold:
        names.append("b")
    return " ".join(names)


def main() -> None:
    """Record the run, and write the recording and its pictures."""
    CAST.write_text(cast_of(record()), encoding="utf-8", newline="\n")
    print(CAST)
    draw()


def draw() -> None:
    """Write the pictures of the recording that is there."""
    cast = CAST.read_text("utf-8")
    for theme in THEMES:
        path = FOLDER / f"demo-{theme}.svg"
        path.write_text(svg_of(cast, theme), encoding="utf-8", newline="\n")
        print(path)
