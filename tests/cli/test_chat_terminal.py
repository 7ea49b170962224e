"""`conductor chat` in a pseudo-terminal whose screen pyte interprets, and in one that is gone."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import TextIOWrapper
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.output.vt100 import Vt100_Output

from conductor_cli.cli.chat_prompt import HANG_UP, MENU, ChatEnded, ChatPrompt, is_lost
from conductor_cli.cli.slash_commands import COMMANDS
from tests.cli.stage import COMMAND, TWO, Stage, stalls
from tests.cli.terminals import Gate, Terminal, terminal
from tests.traces.stored import trace_bytes

MARK = "\u203a"
PASTE = "\x1b[200~"
PASTED = "\x1b[201~"
RAW = "\x1b[?2004h"
"""How prompt_toolkit asks a terminal to tell pastes: the prompt takes keys."""
CTRL_C = "\x03"
CTRL_D = "\x04"


@contextmanager
def chat(stage: Stage, *arguments: str, **how: Any) -> Iterator[Terminal]:
    """Start a chat and wait until its prompt is shown and its conductor is open.

    Only a process gets signals.
    """
    with terminal(stage, "chat", *arguments, **how) as opened:
        opened.until("$0.00")
        yield opened


def ask_and_wait(screen: Terminal, text: str, answer: str) -> str:
    """Send a line, wait for its answer and the next prompt; returns the screen."""
    before = screen.raw.count(answer)
    screen.program.send(f"{text}\r")
    # A command is echoed after a mark too; only the prompt has the status at its right edge.
    prompt = re.compile(rf"{MARK}.* \u00b7 .*\Z")
    return screen.until(
        lambda shown: screen.raw.count(answer) > before and prompt.search(shown) is not None
    )


def test_a_conversation_goes_from_its_first_question_to_ctrl_d(stage: Stage) -> None:
    stage.plan = TWO
    with chat(stage) as screen:
        screen.until("planner plans for alpha, beta")
        ask_and_wait(screen, "Why is the sky blue?", "beta answers")
        ask_and_wait(screen, "And at night?", "beta answers")
        assert "Why is the sky blue?" in stage.asked("planner")[1].body.decode()
        ask_and_wait(screen, "/redo 2 alpha", "reusing")
        assert "ANSWER  (finished)" in ask_and_wait(screen, "/trace", "total:")
        screen.program.send(CTRL_D)
        assert screen.end() == 0
    newest = max(stage.traces.glob("*.jsonl")).stem
    assert (
        screen.screen.splitlines()[-1]
        == f"to go on with it: conductor chat --continue-from {newest}"
    )
    assert [len(stage.asked(model)) for model in ("planner", "alpha", "beta")] == [2, 3, 2]
    history = stage.traces.with_name("history")
    assert history.stat().st_mode & 0o777 == 0o600
    assert [line for line in history.read_text().splitlines() if line.startswith("+")] == [
        "+Why is the sky blue?",
        "+And at night?",
        "+/redo 2 alpha",
        "+/trace",
    ]


def test_ctrl_c_stops_the_run_and_not_the_chat(stage: Stage) -> None:
    """What was typed during the run stands at the next prompt."""
    stage.models["alpha"] = stalls("so ", "far")
    with chat(stage, command=COMMAND) as screen:
        screen.program.send("Why?\r")
        screen.until("so far")
        screen.program.send("typed ahead")
        screen.program.send(CTRL_C)
        shown = screen.until(lambda shown: shown.splitlines()[-1].startswith(f"{MARK} typed ahead"))
        screen.program.send(CTRL_C)
        screen.program.kill(signal.SIGINT)  # as a Ctrl-C just before the prompt took the keys
        screen.until("Ctrl-D or /exit leaves")
        assert "conductor: partial answer: interrupted" in shown
        assert "resume: conductor ask --resume" in shown
        assert "here: /redo" in shown
        assert stage.asked("alpha")[0].closed.wait(30)
        del stage.models["alpha"]
        ask_and_wait(screen, "And now?", "alpha answers")
        screen.program.send(CTRL_D)
        assert screen.end() == 0


def test_ctrl_d_during_a_run_leaves_after_the_run(stage: Stage) -> None:
    gate = Gate("so ", "far")
    stage.models["alpha"] = gate
    with chat(stage) as screen:
        screen.program.send("Why?\r")
        gate.let()
        screen.until("so")
        screen.program.send(CTRL_D)
        gate.let()
        assert screen.end() == 0
    assert "so far" in screen.scrolled


def test_five_thousand_pasted_lines_are_one_message(stage: Stage) -> None:
    lines = [f"line {number}" for number in range(5000)]
    with chat(stage) as screen:
        writer = threading.Thread(
            target=screen.program.send, args=(PASTE + "\n".join(lines) + PASTED,)
        )
        writer.start()
        screen.until("line 4999")
        writer.join()
        assert not stage.asked("planner")
        ask_and_wait(screen, "", "alpha answers")
        assert "line 7 … +4,992 lines" in screen.scrolled
    (sent,) = stage.asked("alpha")
    assert "\n".join(lines) in sent.json["messages"][-1]["content"]


@pytest.mark.parametrize("flags", [("--deny", "btea"), ("--workers", "btea")])
def test_a_chat_does_not_begin_with_a_worker_that_does_not_exist(
    stage: Stage, flags: tuple[str, ...]
) -> None:
    with terminal(stage, "chat", *flags) as screen:
        assert screen.end() == 2
        assert "did you mean beta?" in screen.scrolled
        assert "Enter asks" not in screen.scrolled


def test_the_chat_of_the_demo_answers_without_a_key(stage: Stage) -> None:
    """The demo models answer without a key or download.

    They refuse other questions and attached files.
    """
    with chat(stage, "--demo") as screen:
        ask_and_wait(screen, "Find the capital of France, then spell it backwards.", "2 steps,")
        ask_and_wait(screen, "/redo 2 generalist", "reusing")
        ask_and_wait(screen, "What is love?", "conductor: ")
        ask_and_wait(screen, f"/attach {__file__}", "goes with each question")
        ask_and_wait(
            screen, "Find the capital of France, then spell it backwards.", "read only the question"
        )
        screen.program.send(CTRL_D)
        assert screen.end() == 0


def test_sigterm_at_the_prompt_restores_the_terminal(stage: Stage) -> None:
    with chat(stage, command=COMMAND) as screen:
        screen.program.kill(15)
        assert screen.end() == 143
        assert screen.raw.rindex("\x1b[?2004l") > screen.raw.rindex("\x1b[?2004h")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_during_a_run_stops_it_and_ends_the_chat(
    stage: Stage, number: signal.Signals
) -> None:
    stage.models["alpha"] = stalls("so ", "far")
    with chat(stage, command=COMMAND) as screen:
        screen.program.send("Why?\r")
        screen.until("so far")
        screen.program.kill(number)
        assert screen.end() == 143
    assert stage.asked("alpha")[0].closed.wait(30)
    (trace,) = stage.traces.glob("*.jsonl")
    assert json.loads(trace_bytes(trace).splitlines()[-1])["kind"] == "run_finished"


@pytest.mark.parametrize("prompts", [True, False], ids=["during a command", "before the prompt"])
def test_sigterm_where_no_prompt_waits_restores_the_terminal(stage: Stage, prompts: bool) -> None:
    before, after, pid, pipe = (stage.home / name for name in ("before", "after", "pid", "pipe"))
    os.mkfifo(pipe)
    talk = f"sh -c 'echo $$ > {pid}; exec {shlex.join(COMMAND)} chat'"
    line = f"stty -g > {before}; {talk}; echo code $?; stty -g > {after}"
    with terminal(stage, line, command=("bash", "-c")) as screen, ExitStack() as held:
        if prompts:
            screen.until("$0.00")
            screen.program.send(f"/attach {pipe}\r")
            held.enter_context(pipe.open("wb"))  # it is being read
        else:
            screen.until(MARK)
            time.sleep(0.02)  # its mode changes right after the mark
        os.kill(int(pid.read_text()), signal.SIGTERM)
        assert screen.end() == 0
    assert (RAW in screen.raw) is prompts
    assert "code 143" in screen.screen
    assert after.read_text() == before.read_text()


def test_keys_of_terminals_that_report_modifiers_are_no_text(stage: Stage) -> None:
    """Shift+Enter and Alt+Enter break the line, Ctrl+Enter asks, Shift+Backspace deletes."""
    typed = "one\x1b[13;2utwo\x1b[27;2;13~threex\x1b[127;2u\x1b[13;3ufour\x1b[13;5u"
    with chat(stage) as screen:
        screen.program.send(typed)
        screen.until("alpha answers")
    (sent,) = stage.asked("alpha")
    assert "one\ntwo\nthree\nfour" in sent.json["messages"][-1]["content"]


def test_keys_at_the_prompt_list_commands_and_search_earlier_questions(stage: Stage) -> None:
    with chat(stage) as screen:
        screen.program.send("/")
        shown = screen.until(lambda shown: "/trace" in shown)
        assert all(f"/{name} " in shown for name in [*COMMANDS][: MENU - 1])
        screen.program.send("\t\tre")
        screen.until(f"{MARK} /re")
        screen.program.send("\t\r")
        screen.until("the conversation has no run yet")
        ask_and_wait(screen, "/help", "leave, like Ctrl-D")
        assert "/trace [N|ID]" in screen.scrolled
        ask_and_wait(screen, "Spell the capital\x1b\rof France,\\\rbackwards", "alpha answers")
        lines = [line.strip("? ") for line in screen.scrolled.splitlines()]
        first = lines.index("Spell the capital")
        assert lines[first : first + 3] == ["Spell the capital", "of France,", "backwards"]
        assert screen.scrolled.count("of France,") == 1
        ask_and_wait(screen, "Why is the sky blue?", "alpha answers")
        screen.program.send("\x12sky")
        screen.until("I-search backward")
        screen.program.send("\r")
        screen.until(
            lambda shown: "I-search" not in shown and f"{MARK} Why is the sky blue?" in shown
        )
        ask_and_wait(screen, "", "alpha answers")
    assert len(stage.asked("planner")) == 3


def test_completion_menu_fits_a_small_terminal(stage: Stage) -> None:
    with terminal(stage, "chat", size=(20, 5)) as screen:
        screen.until(lambda _: RAW in screen.raw)
        assert "Enter asks," in screen.scrolled.splitlines()
        screen.program.send("/")
        screen.until(lambda shown: f"{MARK} /" in shown and "/new" in shown)


def test_a_history_that_can_be_written_no_more_is_told_once(stage: Stage) -> None:
    with chat(stage) as screen:
        history = stage.traces.with_name("history")
        screen.until(lambda _: history.exists())
        history.unlink()
        history.mkdir()
        ask_and_wait(screen, "Why?", "alpha answers")
        ask_and_wait(screen, "And how?", "alpha answers")
        assert screen.scrolled.count("the history is not saved") == 1


def test_prompt_adapts_to_the_terminal(stage: Stage) -> None:
    stage.traces.with_name("history").mkdir(parents=True)
    with chat(stage, NO_COLOR="1") as screen:
        screen.until("\nthe history is not saved")
        screen.until(lambda shown: shown.endswith(" auto · 2 workers · $0.00"))
        screen.resize(40, 12)
        screen.until(lambda shown: shown.endswith(" auto · 2 workers · $0.00"))
        screen.program.send("not this")
        screen.until("not this")
        screen.program.send(CTRL_C)
        screen.until(lambda shown: "not this" not in shown)
        screen.program.send(CTRL_C)
        ask_and_wait(screen, "But this", "alpha answers")
        assert re.search(r"\x1b\[(\d+;)*3[0-7]m", screen.raw) is None
    assert len(stage.asked("planner")) == 1


def test_conductor_alone_on_a_terminal_starts_a_chat(stage: Stage) -> None:
    stage.configure("[limits]\nattempts = 0")
    with terminal(stage) as screen:
        assert screen.end() == 3
        assert "/help lists commands" in screen.screen
        assert "limits.attempts" in screen.screen


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"ACCESSIBLE": "1"}], ids=["dumb", "accessible"])
def test_chat_works_on_a_plain_terminal(stage: Stage, env: dict[str, Any]) -> None:
    with terminal(stage, "chat", **env) as screen:
        screen.until(MARK)
        screen.program.send("Why?\r")
        screen.until("alpha answers")
        screen.program.send(CTRL_D)
        assert screen.end() == 0
        assert screen.screen.count("Why?") == 1
        assert f"{MARK} Why?" in screen.screen


@pytest.fixture
def screen() -> Iterator[tuple[int, TextIOWrapper]]:
    """The end of a terminal on which a person types, and the other one; a test closes the first."""
    ours, theirs = os.openpty()
    with (
        os.fdopen(theirs, "r+b", buffering=0) as raw,
        TextIOWrapper(raw, write_through=True) as text,
    ):
        yield ours, text


def test_a_terminal_is_lost_once_nobody_holds_its_other_end(
    screen: tuple[int, TextIOWrapper],
) -> None:
    ours, theirs = screen
    assert not is_lost(theirs.fileno())
    os.close(ours)
    assert is_lost(theirs.fileno())
    reading, writing = os.pipe()
    os.close(writing)
    assert not is_lost(reading)
    os.close(reading)


@pytest.mark.parametrize("reads", [False, True])
def test_a_prompt_on_a_lost_terminal_ends(
    screen: tuple[int, TextIOWrapper], reads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = screen

    async def lose() -> None:
        prompt = ChatPrompt()
        reading = asyncio.create_task(prompt.read())
        await asyncio.sleep(0.05)
        os.close(ours)
        prompt.tell("a notice")
        await asyncio.wait_for(reading, 60)

    monkeypatch.setenv("TERM", "xterm-256color")
    output = Vt100_Output.from_pty(theirs, term="xterm-256color")
    with ExitStack() as stack:
        keys = stack.enter_context(create_pipe_input()) if reads else Vt100Input(theirs)
        stack.enter_context(create_app_session(input=keys, output=output))
        with pytest.raises(ChatEnded) as caught:
            asyncio.run(lose())
    assert caught.value.code == HANG_UP


def test_a_write_that_a_terminal_refuses_does_not_end_the_prompt(
    screen: tuple[int, TextIOWrapper],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ours, theirs = screen

    async def refuse() -> bool:
        prompt = ChatPrompt()
        reading = asyncio.create_task(prompt.read())
        await asyncio.sleep(0.05)
        failure = {"message": "a callback failed", "exception": OSError(5, "Input/output error")}
        asyncio.get_running_loop().call_exception_handler(failure)
        await asyncio.sleep(0.05)
        is_reading = not reading.done()
        reading.cancel()
        await asyncio.wait([reading])
        return is_reading

    monkeypatch.setenv("TERM", "xterm-256color")
    output = Vt100_Output.from_pty(theirs, term="xterm-256color")
    with create_app_session(input=Vt100Input(theirs), output=output):
        assert asyncio.run(refuse())
    os.close(ours)
    assert not caplog.records
