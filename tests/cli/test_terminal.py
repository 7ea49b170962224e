"""`conductor ask` as a person sees it: in a pseudo-terminal, its screen read by pyte, and in tmux."""

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
    """A program in a terminal of some size, and what its screen has shown."""

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
        """What stands on the screen now."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    @property
    def scrolled(self) -> str:
        """What stands on the screen and above it."""
        top = ["".join(row[column].data for column in range(self._screen.columns)) for row in self._screen.history.top]
        return "\n".join(line.rstrip() for line in (*top, *self._screen.display)).rstrip()

    @property
    def cursor_shown(self) -> bool:
        return not self._screen.cursor.hidden

    def resize(self, columns: int, lines: int) -> None:
        """Give the terminal another size, as dragging its edge does."""
        self._screen.resize(lines, columns)
        self.program.setwinsize(lines, columns)

    def until(self, seen: Callable[[str], bool] | str) -> str:
        """Read until the screen holds a text, or is as `seen` wants it."""
        wanted = (lambda screen: seen in screen) if isinstance(seen, str) else seen
        end = time.monotonic() + PATIENCE
        while not wanted(self.screen):
            assert time.monotonic() < end, f"the screen never came to be as expected:\n{self.screen}"
            self._read()
        return self.screen

    def end(self) -> int:
        """Read to the end; the exit code as a shell shows it."""
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
    """The command in a terminal; it is gone afterwards."""
    opened = Terminal(stage, (*command, *arguments), size, env)
    try:
        yield opened
    finally:
        opened.program.close(force=True)


class Gate:
    """A model that writes piece by piece, each when it is told to."""

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
def test_a_run_is_seen_from_its_plan_to_its_answer(stage: Stage, size: tuple[int, int]) -> None:
    """The plan grows line by line, each step shows its state and words, the answer comes once, nothing is left over."""
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
        shown.until(lambda screen: "Check it." in screen and "running" in screen)
        alpha.let()
        shown.until("wise")
        alpha.let()
        shown.until(lambda screen: "done" in screen and "2 running" in screen)
        beta.let()
        assert shown.end() == 0
        assert shown.scrolled.count("forty-two") == 1
        assert shown.scrolled.count("What is it?") == 1
        assert [word for word in ("running", "waiting", "planning") if word in shown.screen] == []
        assert "3 steps" in shown.screen
        assert shown.cursor_shown


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "40x12"])
def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(stage: Stage, size: tuple[int, int]) -> None:
    """Ctrl-C at the keyboard: what was written stays, the resume line stands last, the cursor is back, 130."""
    stage.plan = TWO
    stage.models = {"alpha": says("found it"), "beta": stalls("half of ", "it")}
    with terminal(stage, "ask", "hi", size=size) as shown:
        shown.until("half of it")
        shown.program.sendintr()
        assert shown.end() == 130
        assert "half of it" in shown.scrolled
        assert shown.screen.splitlines()[-1].startswith("resume: conductor ask --resume") or size[0] < 80
        assert "--resume" in shown.screen
        assert shown.cursor_shown


def test_ctrl_c_while_planning_leaves_the_terminal_clean(stage: Stage) -> None:
    """Ctrl-C before there is any step: one error, no live part left, the cursor is back, 130."""
    stage.models[PLANNER] = stalls("alp")
    with terminal(stage, "ask", "hi") as shown:
        shown.until("planning")
        shown.program.sendintr()
        assert shown.end() == 130
        assert shown.screen.count("conductor: interrupted") == 1
        assert shown.cursor_shown


def test_sigterm_leaves_the_terminal_clean(stage: Stage) -> None:
    """SIGTERM while steps run: the cursor is back, 143."""
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
def test_no_escape_of_a_worker_reaches_the_terminal(stage: Stage, answering: bool) -> None:
    """What would clear the screen, set its title or ask it something is not obeyed, also when it comes in pieces."""
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


def test_a_dumb_terminal_gets_lines(stage: Stage) -> None:
    """With TERM=dumb nothing is drawn: plain lines and the answer, not one escape."""
    with terminal(stage, "ask", "hi", TERM="dumb") as shown:
        assert shown.end() == 0
        assert "\x1b" not in shown.raw
        assert "step 1 started: alpha" in shown.screen
        assert shown.screen.count("alpha answers") == 1


def test_no_color_means_no_color(stage: Stage) -> None:
    """With NO_COLOR the tree is drawn without a colour; `--color always` wins over it."""
    with terminal(stage, "ask", "hi", NO_COLOR="1") as shown:
        assert shown.end() == 0
        assert not any(f"\x1b[{code}m" in shown.raw for code in range(30, 48))
    with terminal(stage, "--color", "always", "ask", "hi", NO_COLOR="1") as shown:
        assert shown.end() == 0
        assert any(f"\x1b[{code}m" in shown.raw for code in range(30, 48))


def test_quiet_shows_the_answer_alone(stage: Stage) -> None:
    """`--quiet` on a terminal is the answer, as it comes, and nothing else."""
    with terminal(stage, "--quiet", "ask", "hi") as shown:
        assert shown.end() == 0
        assert shown.screen == "alpha answers"


@pytest.mark.parametrize("size", [(12, 5), (20, 3), (1, 1)], ids=["12x5", "20x3", "1x1"])
def test_a_very_small_terminal_works(stage: Stage, size: tuple[int, int]) -> None:
    """However small the window, the run goes well and the cursor is back."""
    stage.plan = TWO
    with terminal(stage, "ask", "hi", size=size) as shown:
        assert shown.end() == 0
        assert shown.cursor_shown
        assert "Traceback" not in shown.raw
        assert "betaanswers" in "".join(shown.scrolled.split())


def test_the_answer_goes_to_a_file_while_the_tree_is_drawn(stage: Stage, tmp_path: Path) -> None:
    """`ask > answer.md` on a terminal: the tree on the screen, the answer in the file and only there."""
    file = tmp_path / "answer.md"
    line = f"{shlex.join((*COMMAND, 'ask', 'hi'))} > {shlex.quote(str(file))}"
    with terminal(stage, "-c", line, command=("bash",)) as shown:
        assert shown.end() == 0
        assert file.read_text() == "alpha answers\n"
        assert "1 done" in shown.scrolled


def test_a_failed_run_says_why_once(stage: Stage) -> None:
    """On a terminal the error stands below the tree, once."""
    stage.models = dict.fromkeys(("alpha", "beta"), refuses(401, "bad key"))
    with terminal(stage, "ask", "hi") as shown:
        assert shown.end() == 4
        assert shown.scrolled.count("conductor: ") == 1
        assert shown.cursor_shown


def test_a_replay_draws_the_run_again(stage: Stage) -> None:
    """`trace replay` on a terminal ends with the same screen as the run did."""
    stage.plan = TWO
    with terminal(stage, "ask", "hi") as first:
        assert first.end() == 0
    with terminal(stage, "trace", "replay", "--speed", "50") as again:
        assert again.end() == 0
        assert again.screen.splitlines()[:-1] == first.screen.splitlines()[:-1]
        assert again.cursor_shown


def test_ctrl_c_ends_a_replay(stage: Stage) -> None:
    """Ctrl-C while a replay waits: 130, and the cursor is back."""
    stage.inside("ask", "hi")
    (file,) = stage.traces.iterdir()
    *lines, last = file.read_text().splitlines()
    file.write_text("\n".join([*lines, last.replace('"at":0.', '"at":1000.'), ""]))
    with terminal(stage, "trace", "replay") as shown:
        shown.until("alpha answers")
        shown.program.sendintr()
        assert shown.end() == 130
        assert shown.cursor_shown


def test_a_question_can_be_typed(stage: Stage) -> None:
    """`ask -` on a terminal reads what is typed until Ctrl-D; without a word `ask` says what is missing."""
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
    """A tmux server of its own; the test is skipped where tmux is not installed."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    socket = str(stage.home / "tmux")

    def call(*arguments: str) -> str:
        environ = {**stage.environ(), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        command = ["tmux", "-S", socket, "-f", os.devnull, *arguments]
        return subprocess.run(command, env=environ, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout

    yield call
    call("kill-server")


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "40x12"])
def test_tmux_shows_a_run_and_a_clean_prompt_after_it(
    stage: Stage, tmux: Callable[..., str], size: tuple[int, int]
) -> None:
    """In tmux the answer stands once, below the steps, and the shell goes on under it with a visible cursor."""
    stage.plan = TWO
    line = f"{shlex.join((*COMMAND, 'ask', 'What is it?'))}; echo code $?; tmux wait-for -S over; exec cat"
    tmux("new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), line)
    tmux("wait-for", "over")
    screen = tmux("capture-pane", "-p", "-S", "-")
    assert screen.count("beta answers") == 1
    assert screen.count("What is it?") == 1
    assert screen.rstrip().endswith("code 0")
    assert tmux("display-message", "-p", "#{cursor_flag} #{alternate_on}").split() == ["1", "0"]


WORKING = re.compile(r"^ (\d) running .* tokens$", re.MULTILINE)


@pytest.mark.parametrize("lost", ["at once", "in two steps"])
def test_nothing_is_drawn_twice_after_tmux_shrinks_the_window(
    stage: Stage, tmux: Callable[..., str], lost: str
) -> None:
    """Five steps at work at 120x40, then 70x30, twice: each head once. tmux tells the second of two sizes late."""
    stage.plan = "\n".join(f"{'alpha' if number % 2 else 'beta'} | - | {'Look into it. ' * 9}" for number in range(5))
    stage.models = dict.fromkeys(("alpha", "beta"), stalls("many words of no weight " * 40))
    tmux(
        "new-session",
        "-d",
        "-x",
        "120",
        "-y",
        "40",
        f"unset COLUMNS; echo prompt; {shlex.join((*COMMAND, 'ask', 'hi'))} > {os.devnull}",
    )

    def heads() -> list[str]:
        return WORKING.findall(tmux("capture-pane", "-p", "-J"))

    def all_heads() -> list[str]:
        return re.findall(r"^ (\d) running ", tmux("capture-pane", "-p", "-S", "-"), re.MULTILINE)

    for _ in range(2):
        tmux("resize-window", "-x", "120", "-y", "40")
        _until(lambda: heads() == list("12345"))
        if lost == "in two steps":
            tmux("resize-window", "-x", "119", "-y", "40")
        tmux("resize-window", "-x", "70", "-y", "30")
        _until(lambda: [len(row) for row in tmux("capture-pane", "-p").splitlines() if WORKING.match(row)] == [70] * 5)
        assert all_heads() == list("12345"), tmux("capture-pane", "-p", "-S", "-")


def _until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < end, "the screen never came to be as expected"
