"""`conductor chat` as a person sees it: in a pseudo-terminal, its screen read by pyte."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.cli.stage import COMMAND, TWO, Stage
from tests.cli.test_terminal import Gate, Terminal, terminal
from tests.servers import SeenStep, Wire, delta

MARK = "\u203a"
PASTE, PASTED = "\x1b[200~", "\x1b[201~"
CTRL_C, CTRL_D = "\x03", "\x04"


@contextmanager
def chat(stage: Stage, *arguments: str, size: tuple[int, int] = (80, 24), **env: Any) -> Iterator[Terminal]:
    """A chat whose prompt is there and whose conductor is open."""
    with terminal(stage, "chat", *arguments, size=size, **env) as opened:
        opened.until("$0.00")
        yield opened


def asked(screen: Terminal, text: str, answer: str) -> str:
    """Send a line and wait for what is said to it and for the next prompt."""
    before = screen.raw.count(answer)
    screen.program.send(f"{text}\r")
    return screen.until(lambda shown: screen.raw.count(answer) > before and shown.splitlines()[-1].startswith(MARK))


class Stalling:
    """A model that says some words and then nothing, and tells when the client has gone."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces
        self.gone = threading.Event()

    async def __call__(self, seen: SeenStep, wire: Wire) -> None:
        await wire.head()
        await wire.frames(*map(delta, self.pieces))
        try:
            await wire.stall()
        finally:
            self.gone.set()


def test_a_conversation_from_its_first_question_to_ctrl_d(stage: Stage) -> None:
    """Questions follow each other, a step is run again by another worker, the trace is shown; Ctrl-D ends with 0."""
    stage.plan = TWO
    with chat(stage) as screen:
        asked(screen, "Why is the sky blue?", "beta answers")
        asked(screen, "And at night?", "beta answers")
        assert "Why is the sky blue?" in stage.asked("planner")[1].body.decode()
        shown = asked(screen, "/redo 2 alpha", "alpha answers")
        assert "reusing" in shown
        assert "ANSWER  (finished)" in asked(screen, "/trace", "total:")
        screen.program.send(CTRL_D)
        assert screen.end() == 0
    assert [len(stage.asked(model)) for model in ("planner", "alpha", "beta")] == [2, 3, 2]
    history = stage.traces.with_name("history")
    assert history.stat().st_mode & 0o777 == 0o600
    assert [line for line in history.read_text().splitlines() if line.startswith("+")] == [
        "+Why is the sky blue?", "+And at night?", "+/redo 2 alpha", "+/trace",
    ]  # fmt: skip


def test_ctrl_c_stops_the_run_and_not_the_chat(stage: Stage) -> None:
    """The stream is closed, the partial answer and a resume line stand there, the next question is answered."""
    stalling = stage.models["alpha"] = Stalling("so ", "far")
    with chat(stage) as screen:
        screen.program.send("Why?\r")
        screen.until("so far")
        screen.program.send(CTRL_C)
        shown = screen.until(lambda shown: shown.splitlines()[-1].startswith(MARK))
        assert "conductor: partial answer: interrupted" in shown
        assert "resume: conductor ask --resume" in shown
        assert "here: /redo" in shown
        assert stalling.gone.wait(2)
        del stage.models["alpha"]
        asked(screen, "And now?", "alpha answers")
        screen.program.send(CTRL_D)
        assert screen.end() == 0


def test_ctrl_d_while_a_run_goes_on_leaves_after_it(stage: Stage) -> None:
    """What is typed meanwhile is there at the next prompt: at an empty one, Ctrl-D leaves."""
    gate = stage.models["alpha"] = Gate("so ", "far")
    with chat(stage) as screen:
        screen.program.send("Why?\r")
        gate.let()
        screen.until("so")
        screen.program.send(CTRL_D)
        gate.let()
        assert screen.end() == 0
    assert "so far" in screen.scrolled


def test_five_thousand_pasted_lines_are_one_message(stage: Stage) -> None:
    """A paste keeps its lines and asks nothing by itself; Enter sends all of it, once."""
    lines = [f"line {number}" for number in range(5000)]
    with chat(stage) as screen:
        writer = threading.Thread(target=screen.program.send, args=(PASTE + "\n".join(lines) + PASTED,))
        writer.start()
        screen.until("line 4999")
        writer.join()
        assert not stage.asked("planner")
        asked(screen, "", "alpha answers")
        assert "(+4,999 lines)" in screen.scrolled
    (sent,) = stage.asked("alpha")
    assert "\n".join(lines) in sent.json["messages"][-1]["content"]


def test_the_rehearsal_talks(stage: Stage) -> None:
    """Without a key or a download: a question, a step of it by another worker, and what does not belong here."""
    with chat(stage, "--rehearsal") as screen:
        asked(screen, "Spell the capital of France backwards and count its letters.", "3 steps,")
        asked(screen, "/redo 2 generalist", "reusing")
        asked(screen, "What is love?", "conductor: ")
        asked(screen, f"/file {__file__}", "goes with the next question")
        asked(screen, "Spell the capital of France backwards.", "read only the question")
        screen.program.send(CTRL_D)
        assert screen.end() == 0


def test_sigterm_at_the_prompt_leaves_the_terminal_as_it_was(stage: Stage) -> None:
    """A chat that is asked to end does: 143, and the terminal echoes again."""
    with chat(stage) as screen:
        screen.program.kill(15)
        assert screen.end() == 143
        assert screen.raw.rindex("\x1b[?2004l") > screen.raw.rindex("\x1b[?2004h")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_chat_that_is_ended_while_a_run_goes_on_stops_it_and_leaves(stage: Stage, number: signal.Signals) -> None:
    """The stream is closed, the trace has its end, and no prompt comes back: 143."""
    stalling = stage.models["alpha"] = Stalling("so ", "far")
    with chat(stage) as screen:
        screen.program.send("Why?\r")
        screen.until("so far")
        screen.program.kill(number)
        assert screen.end() == 143
    assert stalling.gone.wait(2)
    (trace,) = stage.traces.glob("*.jsonl")
    assert json.loads(trace.read_text().splitlines()[-1])["kind"] == "run_finished"


def test_a_chat_that_is_ended_while_a_command_works_puts_the_terminal_back(stage: Stage) -> None:
    """SIGTERM where no prompt and no run hears it, while a file is read: 143, and the terminal echoes again."""
    before, after, pid, pipe = (stage.home / name for name in ("before", "after", "pid", "pipe"))
    os.mkfifo(pipe)
    talk = f"sh -c 'echo $$ > {pid}; exec {shlex.join(COMMAND)} chat'"
    line = f"stty -g > {before}; {talk}; echo code $?; stty -g > {after}"
    with terminal(stage, line, command=("bash", "-c")) as screen:
        screen.until("$0.00")
        screen.program.send(f"/file {pipe}\r")
        with pipe.open("wb"):  # it is being read
            os.kill(int(pid.read_text()), signal.SIGTERM)
            assert screen.end() == 0
    assert "code 143" in screen.screen
    assert after.read_text() == before.read_text()


def test_a_small_terminal_has_room_for_a_menu(stage: Stage) -> None:
    """In five rows the line stays with as many completions as there is room for; the head is broken between words."""
    with chat(stage, size=(20, 5)) as screen:
        assert "Enter asks," in screen.scrolled.splitlines()
        screen.program.send("/")
        screen.until(lambda shown: f"{MARK} /" in shown and "/mode" in shown)


def test_the_prompt_follows_the_terminal(stage: Stage) -> None:
    """The right edge says less in less room; Ctrl-C clears the line; a history that is a directory is only told of."""
    stage.traces.with_name("history").mkdir(parents=True)
    with chat(stage, NO_COLOR="1") as screen:
        assert "\nthe history is not saved" in screen.screen
        screen.until(lambda shown: shown.endswith(" auto · 2 workers · $0.00"))
        screen.resize(40, 12)
        screen.until("auto · 2 · $0.00")
        screen.program.send("not this")
        screen.until("not this")
        screen.program.send(CTRL_C)
        screen.until(lambda shown: "not this" not in shown)
        screen.program.send(CTRL_C)
        asked(screen, "But this", "alpha answers")
        assert re.search(r"\x1b\[(\d+;)*3[0-7]m", screen.raw) is None
    assert len(stage.asked("planner")) == 1


def test_no_command_on_a_terminal_is_a_chat(stage: Stage) -> None:
    """`conductor` alone talks; a fault in the settings ends it with a line and its own code."""
    stage.configure("[limits]\nattempts = 0")
    with terminal(stage) as screen:
        assert screen.end() == 3
        assert "/help lists commands" in screen.screen
        assert "limits.attempts" in screen.screen


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"ACCESSIBLE": "1"}], ids=["dumb", "accessible"])
def test_a_plain_terminal_is_enough(stage: Stage, env: dict[str, Any]) -> None:
    """Where nothing may be redrawn, a question stands once, is answered, and Ctrl-D leaves."""
    with terminal(stage, "chat", **env) as screen:
        screen.until(MARK)
        screen.program.send("Why?\r")
        screen.until("alpha answers")
        screen.program.send(CTRL_D)
        assert screen.end() == 0
        assert screen.screen.count(f"{MARK} Why?") == 1
