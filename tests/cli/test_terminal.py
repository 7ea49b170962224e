"""`conductor ask` in a pseudo-terminal whose screen pyte interprets, and in tmux."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pyte
import pytest

from tests.cli.stage import COMMAND, PLANNER, TWO, Stage, refuses, says, stalls
from tests.servers import Script, SeenStep, Wire, delta, usage

SIZES = [(80, 24), (40, 12)]
PATIENCE = 20.0


class Terminal:
    """A program in a pseudo-terminal of a given size, with the screen as pyte interprets it."""

    def __init__(self, stage: Stage, command: tuple[str, ...], size: tuple[int, int], env: dict[str, str]) -> None:
        environ = {**stage.environ(), "TERM": "xterm-256color", **env}
        environ.pop("COLUMNS", None)
        self.raw = ""
        self._screen = pyte.HistoryScreen(*size, history=10_000)
        self._stream = pyte.Stream(self._screen)
        self.program = pexpect.spawn(
            command[0], list(command[1:]), dimensions=size[::-1], env=environ, encoding="utf-8", timeout=PATIENCE
        )

    @property
    def screen(self) -> str:
        """The text on the screen now."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    @property
    def scrolled(self) -> str:
        """The text on the screen and in its scrollback."""
        top = ["".join(row[column].data for column in range(self._screen.columns)) for row in self._screen.history.top]
        return "\n".join(line.rstrip() for line in (*top, *self._screen.display)).rstrip()

    @property
    def cursor_shown(self) -> bool:
        return not self._screen.cursor.hidden

    def resize(self, columns: int, lines: int) -> None:
        """Change the terminal's size, as a user does who resizes the window."""
        self._screen.resize(lines, columns)
        self.program.setwinsize(lines, columns)

    def until(self, seen: Callable[[str], bool] | str) -> str:
        """Read output until the screen contains a text, or until `seen` accepts the screen; returns the screen."""
        wanted = (lambda screen: seen in screen) if isinstance(seen, str) else seen
        end = time.monotonic() + PATIENCE
        while not wanted(self.screen):
            assert time.monotonic() < end, f"the screen never came to be as expected:\n{self.screen}"
            self._read()
        return self.screen

    def end(self) -> int:
        """Read output until the program ends; returns its exit code as a shell reports it."""
        while self._read():
            pass
        self.program.close()
        killed = self.program.signalstatus
        return int(self.program.exitstatus if killed is None else 128 + killed)

    def _read(self) -> bool:
        try:
            text = self.program.read_nonblocking(65536, PATIENCE)
        except pexpect.EOF:
            return False
        self.raw += text
        self._stream.feed(text)
        return True


@contextmanager
def terminal(
    stage: Stage, *arguments: str, size: tuple[int, int] = (80, 24), command: tuple[str, ...] = COMMAND, **env: str
) -> Iterator[Terminal]:
    """Start a command in a terminal; it is killed at the end of the block."""
    opened = Terminal(stage, (*command, *arguments), size, env)
    try:
        yield opened
    finally:
        opened.program.close(force=True)


class Gate:
    """A fake model that sends its answer in pieces, each when the test releases it."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces
        self._open = threading.Semaphore(0)

    def let(self, count: int = 1) -> None:
        self._open.release(count)

    async def __call__(self, seen: SeenStep, wire: Wire) -> None:
        await wire.head()
        for piece in self.pieces:
            await asyncio.to_thread(self._open.acquire, timeout=PATIENCE)
            await wire.frames(delta(piece))
        await wire.frames(delta(finish="stop"), usage(), "[DONE]")


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "40x12"])
def test_tree_shows_a_run_from_plan_to_answer(stage: Stage, size: tuple[int, int]) -> None:
    """The plan grows line by line, each step shows its state and text, and the answer is printed exactly once."""
    plan = Gate("alpha | - | Find it out.\n", "beta | 1 | Check it.\n", "alpha | 1 2 | Answer.")
    alpha, beta = Gate("wise ", "words"), Gate("checked")
    answers: Iterator[Script] = iter([alpha, says("forty", "-two")])

    async def first_then_last(seen: SeenStep, wire: Wire) -> None:
        await next(answers)(seen, wire)

    stage.models = {PLANNER: plan, "alpha": first_then_last, "beta": beta}
    with terminal(stage, "ask", "What is it?", size=size) as shown:
        plan.let()
        assert "Check it." not in shown.until("What is it?")
        plan.let()
        shown.until("Find it out.")
        plan.let()
        shown.until(lambda screen: "Check it." in screen and "●" in screen)
        alpha.let()
        shown.until("wise")
        alpha.let()
        shown.until(lambda screen: bool(re.search(r"1 alpha.*✓[^●]*2 beta.*●", screen, re.DOTALL)))
        beta.let()
        assert shown.end() == 0
        assert shown.scrolled.count("forty-two") == 1
        assert shown.scrolled.count("What is it?") == 1
        assert [mark for mark in ("○", "waits for", "planning") if mark in shown.screen] == []
        assert "3 steps" in shown.screen
        assert shown.cursor_shown


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "40x12"])
def test_ctrl_c_keeps_finished_steps_and_prints_the_resume_command(stage: Stage, size: tuple[int, int]) -> None:
    """After Ctrl-C the text so far stays, the resume command is the last line, the cursor is visible; exit code 130."""
    stage.plan = TWO
    stage.models = {"alpha": says("found it"), "beta": stalls("half of ", "it")}
    with terminal(stage, "ask", "hi", size=size) as shown:
        shown.until("half of it")
        shown.program.sendintr()
        assert shown.end() == 130
        assert "half of it" in shown.scrolled
        assert shown.screen.splitlines()[-1].startswith("  resume: conductor ask --resume") or size[0] < 80
        assert "--resume" in shown.screen
        assert shown.cursor_shown


def test_ctrl_c_while_planning_restores_the_terminal(stage: Stage) -> None:
    """Ctrl-C before the first step prints one error, clears the live tree and shows the cursor; exit code 130."""
    stage.models[PLANNER] = stalls("alp")
    with terminal(stage, "ask", "hi") as shown:
        shown.until("planning")
        shown.program.sendintr()
        assert shown.end() == 130
        assert shown.screen.count("conductor: interrupted") == 1
        assert shown.cursor_shown


def test_sigterm_restores_the_terminal(stage: Stage) -> None:
    """SIGTERM while steps run shows the cursor again; exit code 143."""
    stage.models["alpha"] = stalls("half")
    with terminal(stage, "ask", "hi") as shown:
        shown.until("half")
        shown.program.kill(signal.SIGTERM)
        assert shown.end() == 143
        assert shown.cursor_shown


HOSTILE = {
    "clear": "\x1b[2J\x1b[H", "title": "\x1b]0;owned\x07", "clipboard": "\x1b]52;c;aGk=\x1b\\", "report": "\x1b[6n",
    "other screen": "\x1b[?1049h", "scroll": "\x1b[3;5r", "blink": "\x1b[5m", "eight bits": "\x9b31m",
}  # fmt: skip


@pytest.mark.parametrize("answering", [True, False], ids=["in the answer", "in a step"])
def test_escape_sequences_of_a_worker_never_reach_the_terminal(stage: Stage, answering: bool) -> None:
    """Sequences that clear the screen, set the title or query the terminal are removed, also when split over chunks."""
    text = "".join(f"{escape}[{name}]" for name, escape in HOSTILE.items())
    pieces = [text[at : at + 3] for at in range(0, len(text), 3)]
    stage.plan = TWO
    stage.models = {"beta" if answering else "alpha": says(*pieces)}
    with terminal(stage, "ask", "hi \x1b]0;mine\x07there") as shown:
        assert shown.end() == 0
        for name, escape in HOSTILE.items():
            assert escape not in shown.raw, name
        assert "\x1b]0;" not in shown.raw
        assert "[clipboard]" in shown.scrolled


def test_dumb_terminal_gets_plain_lines(stage: Stage) -> None:
    """With TERM=dumb the output is plain lines and the answer, without any escape sequence."""
    with terminal(stage, "ask", "hi", TERM="dumb") as shown:
        assert shown.end() == 0
        assert "\x1b" not in shown.raw
        assert "1 running  alpha" in shown.screen
        assert shown.screen.count("alpha answers") == 1


def test_no_color_disables_colours(stage: Stage) -> None:
    """NO_COLOR removes colours from the tree; `--color always` overrides it."""
    with terminal(stage, "ask", "hi", NO_COLOR="1") as shown:
        assert shown.end() == 0
        assert not any(f"\x1b[{code}m" in shown.raw for code in range(30, 48))
    with terminal(stage, "--color", "always", "ask", "hi", NO_COLOR="1") as shown:
        assert shown.end() == 0
        assert any(f"\x1b[{code}m" in shown.raw for code in range(30, 48))


def test_quiet_prints_only_the_answer(stage: Stage) -> None:
    """`--quiet` on a terminal streams the answer and prints nothing else."""
    with terminal(stage, "--quiet", "ask", "hi") as shown:
        assert shown.end() == 0
        assert shown.screen == "alpha answers"


@pytest.mark.parametrize("size", [(12, 5), (20, 3), (1, 1)], ids=["12x5", "20x3", "1x1"])
def test_run_succeeds_in_a_very_small_terminal(stage: Stage, size: tuple[int, int]) -> None:
    """The run succeeds and the cursor is visible afterwards, even in a window of a few cells."""
    stage.plan = TWO
    with terminal(stage, "ask", "hi", size=size) as shown:
        assert shown.end() == 0
        assert shown.cursor_shown
        assert "Traceback" not in shown.raw
        assert "betaanswers" in "".join(shown.scrolled.split())


def test_redirected_answer_goes_to_the_file_while_the_tree_is_drawn(stage: Stage, tmp_path: Path) -> None:
    """With `ask > answer.md` the tree is on the screen, and the answer is only in the file."""
    file = tmp_path / "answer.md"
    line = f"{shlex.join((*COMMAND, 'ask', 'hi'))} > {shlex.quote(str(file))}"
    with terminal(stage, "-c", line, command=("bash",)) as shown:
        assert shown.end() == 0
        assert file.read_text() == "alpha answers\n"
        assert re.search(r"1 alpha.*✓", shown.scrolled)


def test_failed_run_prints_its_error_once(stage: Stage) -> None:
    """On a terminal the error is printed below the tree, exactly once."""
    stage.models = dict.fromkeys(("alpha", "beta"), refuses(401, "bad key"))
    with terminal(stage, "ask", "hi") as shown:
        assert shown.end() == 4
        assert shown.scrolled.count("conductor: ") == 1
        assert shown.cursor_shown


def test_replay_draws_the_same_screen_as_the_run(stage: Stage) -> None:
    """`trace replay` on a terminal ends with the same screen as the run itself."""
    stage.plan = TWO
    with terminal(stage, "ask", "hi") as first:
        assert first.end() == 0
    with terminal(stage, "trace", "replay", "--speed", "50") as again:
        assert again.end() == 0
        assert again.screen.splitlines()[:-1] == first.screen.splitlines()[:-1]
        assert again.cursor_shown


def test_ctrl_c_ends_a_replay(stage: Stage) -> None:
    """Ctrl-C between two events of a replay ends it with exit code 130 and a visible cursor."""
    stage.inside("ask", "hi")
    (file,) = stage.traces.iterdir()
    *lines, last = file.read_text().splitlines()
    file.write_text("\n".join([*lines, last.replace('"at":0.', '"at":1000.'), ""]))
    with terminal(stage, "trace", "replay") as shown:
        shown.until("alpha answers")
        shown.program.sendintr()
        assert shown.end() == 130
        assert shown.cursor_shown


def test_ask_reads_a_typed_question(stage: Stage) -> None:
    """`ask -` on a terminal reads until Ctrl-D; `ask` without a question is a usage error."""
    with terminal(stage, "ask", "-") as shown:
        shown.program.sendline("Typed by hand?")
        shown.program.sendeof()
        assert shown.end() == 0
        assert "alpha answers" in shown.screen
    assert "Typed by hand?" in str(stage.asked("alpha")[0].json)
    with terminal(stage, "ask") as shown:
        assert shown.end() == 2
        assert "there is no question" in shown.screen


@pytest.fixture
def tmux(stage: Stage) -> Iterator[Callable[..., str]]:
    """A private tmux server; the test is skipped if tmux is not installed."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    socket = str(stage.home / "tmux")

    def call(*arguments: str) -> str:
        environ = {**stage.environ(), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        del environ["COLUMNS"]  # tmux knows the width
        command = ["tmux", "-S", socket, "-f", os.devnull, *arguments]
        return subprocess.run(command, env=environ, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout

    yield call
    call("kill-server")


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "40x12"])
def test_tmux_shows_a_run_and_then_a_clean_prompt(
    stage: Stage, tmux: Callable[..., str], size: tuple[int, int]
) -> None:
    """In tmux the answer appears once, below the steps, followed by the shell prompt with a visible cursor."""
    stage.plan = TWO
    line = f"{shlex.join((*COMMAND, 'ask', 'What is it?'))}; echo code $?; tmux wait-for -S over; exec cat"
    tmux("new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), line)
    tmux("wait-for", "over")
    screen = tmux("capture-pane", "-p", "-S", "-")
    assert screen.count("beta answers") == 1
    assert screen.count("What is it?") == 1
    assert screen.rstrip().endswith("code 0")
    assert tmux("display-message", "-p", "#{cursor_flag} #{alternate_on}").split() == ["1", "0"]


def test_a_stored_run_has_the_colours_of_the_live_tree(stage: Stage) -> None:
    """On a terminal; without colours, and in a pipe, the page has the same words."""
    stage.plan = TWO
    assert stage.inside("ask", "Why?").code == 0
    pages = []
    for no_color in ("", "1"):
        with terminal(stage, "trace", "show", size=(100, 50), NO_COLOR=no_color) as screen:
            assert screen.end() == 0
        pages.append((screen.screen.splitlines(), screen.raw))
    (coloured, codes), (plain, without) = pages
    assert "\x1b[32m✓" in codes
    assert "\x1b[" not in without
    assert coloured == plain == [line.rstrip() for line in stage.inside("trace", "show").out.splitlines()]
