"""`--approve`.

A person at a terminal takes, edits, refuses or drops a plan before any worker is called.
"""

from __future__ import annotations

import array
import fcntl
import json
import os
import pty
import signal
import stat
import sys
import termios
import threading
from contextlib import closing
from itertools import chain
from pathlib import Path

import pytest

from conductor_cli.cli import keypress
from tests.cli.stage import COMMAND, PLANNER, THREE, Stage
from tests.cli.terminals import Terminal, terminal
from tests.traces.stored import trace_bytes

CHOICES = "d: drop it"
BASH = ("bash", "-c")


@pytest.fixture
def three(stage: Stage) -> Stage:
    """A plan of three steps over workers with and without a price, and one that is not used."""
    stage.configure(
        workers={"alpha": "price = { input = 1.0, output = 10.0 }", "beta": "", "gamma": ""}
    )
    stage.plan = THREE
    return stage


def editor(stage: Stage, *steps: str) -> str:
    """An editor that runs Python on the file's text.

    The first time the first of `steps`, then the next.
    """
    path = stage.home / "editor"
    done = stage.home / "edited"
    lines = [
        f"#!{sys.executable}",
        "import pathlib, sys",
        f"count = pathlib.Path({str(done)!r})",
        "turn = len(count.read_text()) if count.exists() else 0",
        "count.write_text('x' * (turn + 1))",
        "file = pathlib.Path(sys.argv[1])",
        "text = file.read_text()",
        f"exec({list(steps)!r}[turn])",
        "file.write_text(text)",
    ]
    path.write_text("\n".join(lines))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def press(shown: Terminal, key: str, until: str = "", *, prompts: int = 1) -> None:
    """Press a key when the person is asked for one, for this time, and wait for what it brings."""
    shown.until(lambda screen: screen.count(CHOICES) == prompts)
    shown.program.send(key)
    if until:
        shown.until(until)


def trace_of(stage: Stage) -> list[dict[str, object]]:
    (path,) = stage.traces.glob("*.jsonl")
    return [json.loads(line) for line in trace_bytes(path).splitlines()]


@pytest.mark.parametrize(("columns", "key"), [(40, "r"), (120, "\r")])
def test_a_plan_is_shown_and_taken(three: Stage, columns: int, key: str) -> None:
    with terminal(three, "ask", "--approve", "How many?", size=(columns, 40)) as shown:
        shown.until(CHOICES)
        text = " ".join(shown.screen.split())
        for shown_text in (
            "PLAN 3 steps",
            "alpha",
            "reads 1 and 2",
            "no price known",
            "estimate: 3 calls",
            "limits",
        ):
            assert shown_text in text, shown.screen
        assert "$0.0" in text
        assert three.asked("alpha") == three.asked("beta") == []
        shown.program.send(key)
        assert shown.end() == 0
        assert "alpha answers" in shown.scrolled
    kinds = [event["kind"] for event in trace_of(three)]
    assert kinds.index("plan_offered") < kinds.index("plan_decided") < kinds.index("step_started")
    assert len(three.asked(PLANNER)) == 1


def test_a_key_that_means_nothing_asks_again(three: Stage) -> None:
    with terminal(three, "ask", "--approve", "hi", size=(80, 40)) as shown:
        shown.program.send("r\r")
        press(shown, "x")
        shown.until(lambda screen: screen.count(CHOICES) == 2)
        assert three.asked("alpha") == []
        press(shown, "f", "the answer of step 1", prompts=2)
        press(shown, "d", prompts=3)
        assert shown.end() == 130


def test_only_keys_after_the_question_answer_it(monkeypatch: pytest.MonkeyPatch) -> None:
    user, program_end = pty.openpty()
    monkeypatch.setattr(keypress, "TERMINAL", os.ttyname(program_end))
    with closing(keypress.Keyboard()) as keyboard:
        os.write(user, b"n")
        assert os.read(user, 1) == b"n", "the echo: the key has reached the terminal"
        assert keyboard.key(lambda: os.write(user, b"y")) == "y"
    os.close(user)
    os.close(program_end)


@pytest.mark.parametrize(
    "pieces", [(b"\x1b[", b"D"), (b"\x1bO", b"R"), (b"\x1b[1;", b"5A"), (b"\x1b[[", b"D")]
)
def test_an_arrow_that_comes_in_pieces_is_no_letter(
    monkeypatch: pytest.MonkeyPatch, pieces: tuple[bytes, bytes]
) -> None:
    """The letters at the end of such keys would drop a plan, run it, or allow a tool."""
    user, program_end = pty.openpty()
    monkeypatch.setattr(keypress, "TERMINAL", os.ttyname(program_end))

    def send_rest() -> None:
        held = array.array("i", [1])
        while held[0]:
            fcntl.ioctl(program_end, termios.FIONREAD, held)
        os.write(user, pieces[1])

    sending = threading.Thread(target=send_rest)

    def send() -> None:
        os.write(user, pieces[0])
        sending.start()

    def send_answer() -> None:
        sending.join()
        os.write(user, b"y")

    with closing(keypress.Keyboard()) as keyboard:
        keys = [keyboard.key(send), keyboard.key(send_answer)]
        assert keys == [keypress.ESCAPE, "y"]
    os.close(user)
    os.close(program_end)


def test_a_remark_of_several_pasted_lines_is_whole(three: Stage) -> None:
    """The last one may have no end; a line that the terminal has cut is refused."""
    with terminal(three, "ask", "--approve", "hi", size=(80, 60)) as shown:
        press(shown, "p", "What should be different?")
        shown.program.send("x" * 5000 + "\r")
        shown.until("the terminal cuts a line after 4,095 bytes")
        assert len(three.asked(PLANNER)) == 1
        press(shown, "p", "What should be different?")  # the first one has left the screen
        shown.program.send("Fewer steps.\rLess\rmoney.")
        press(shown, "d", prompts=2)
        assert shown.end() == 130
    asked = three.asked(PLANNER)[1].json["messages"][-1]["content"]
    assert "Fewer steps.\nLess\nmoney." in asked


def test_a_dropped_plan_exits_130_and_can_be_resumed(three: Stage) -> None:
    with terminal(three, "ask", "--approve", "hi") as shown:
        press(shown, "d")
        assert shown.end() == 130
        assert "conductor: the plan was dropped" in shown.screen
        assert "skipped" not in shown.screen
    assert three.asked("alpha") == []
    with terminal(three, "ask", "--resume", "last", "--approve") as shown:
        press(shown, "r")
        assert shown.end() == 0
    assert len(three.asked(PLANNER)) == 1


def test_planning_again_takes_a_remark(three: Stage) -> None:
    with terminal(three, "ask", "--approve", "hi", size=(80, 60)) as shown:
        press(shown, "p", "What should be different?")
        shown.program.send("\r")
        press(shown, "p", prompts=2)
        shown.until(lambda screen: screen.count("What should be different?") == 2)
        three.plan = "gamma | - | Find it.\ngamma | 1 | Do it all."
        shown.program.send("Nur gamma, für alles.\r")
        shown.until(lambda screen: "Do it all." in screen and screen.count(CHOICES) == 3)
        shown.program.send("r")
        assert shown.end() == 0
        assert "gamma answers" in shown.scrolled
    first, second = three.asked(PLANNER)
    assert "Nur gamma, für alles." in second.json["messages"][-1]["content"]
    assert second.json["messages"][: len(first.json["messages"])] == first.json["messages"]
    assert three.asked("alpha") == []


def test_a_plan_that_the_user_edited_is_run_as_edited(three: Stage) -> None:
    edit = editor(three, "text = text.replace('Find it out in another way.', 'Look it up.')")
    with terminal(three, "ask", "--approve", "hi", size=(80, 60), EDITOR=edit) as shown:
        press(shown, "e", "Look it up.")
        press(shown, "r", prompts=2)
        assert shown.end() == 0
    assert "Look it up." in three.asked("beta")[0].json["messages"][-1]["content"]
    assert [event["verdict"] for event in trace_of(three) if event["kind"] == "plan_decided"] == [
        "edited",
        "approved",
    ]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            "text = text.replace('\"beta\"', '\"nobody\"')",
            "step 2 names a worker that is not in the pool",
        ),
        (
            'text = text.replace(\'"question": "hi\', \'"question": "ho\')',
            "only the steps can be changed here",
        ),
        ("text = ' '", "plan.json is empty"),
    ],
)
def test_a_plan_that_was_edited_wrongly_is_edited_on_or_left(
    three: Stage, wrong: str, message: str
) -> None:
    edit = editor(three, wrong, "text = text + ' '", "sys.exit(3)")
    with terminal(three, "ask", "--approve", "hi", size=(250, 60), EDITOR=edit) as shown:
        press(shown, "e", message)
        press(shown, "e", prompts=2)
        shown.until(lambda screen: screen.count(message) == 2 and screen.count(CHOICES) == 3)
        shown.program.send("e")
        shown.until("exited with code 3; nothing is changed")
        press(shown, "q", prompts=4)
        assert shown.end() == 130
    assert three.asked("alpha") == []


def test_without_an_editor_the_rest_can_still_be_chosen(three: Stage) -> None:
    with terminal(
        three, "ask", "--approve", "hi", size=(80, 60), EDITOR="no-such-editor", VISUAL=""
    ) as shown:
        press(shown, "e", "the editor 'no-such-editor' cannot be used")
        press(shown, "r", prompts=2)
        assert shown.end() == 0


@pytest.mark.parametrize(("end", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_waiting(three: Stage, end: signal.Signals, code: int) -> None:
    with terminal(three, "ask", "--approve", "hi", command=COMMAND) as shown:
        shown.until(CHOICES)
        if end is signal.SIGINT:
            shown.program.sendintr()
        else:
            os.kill(shown.program.pid, end)
        assert shown.end() == code
        assert shown.cursor_shown
    assert three.asked("alpha") == []


def test_ctrl_d_ends_a_remark_in_a_chat_too(three: Stage) -> None:
    with terminal(three, "chat", "--approve") as shown:
        shown.until("$0.00")
        shown.program.send("hi\r")
        press(shown, "p", "What should be different?")
        shown.program.send("\x04")
        shown.until(lambda screen: screen.splitlines()[-1].startswith("\u203a"))
        shown.program.send("\x04")
        assert shown.end() == 0
    assert three.asked("alpha") == []


def test_a_terminal_that_goes_away_drops_the_plan(three: Stage) -> None:
    with terminal(three, "ask", "--approve", "hi", command=COMMAND) as shown:
        shown.until(CHOICES)
        shown.program.close(force=False)
    assert three.asked("alpha") == []


def test_a_question_from_a_pipe_is_approved_at_the_terminal(three: Stage) -> None:
    out = three.home / "answer"
    line = f"echo How many | {COMMAND[0]} -m conductor_cli ask --approve > {out}"
    with terminal(three, line, command=BASH) as shown:
        press(shown, "r")
        assert shown.end() == 0
    assert out.read_text() == "alpha answers\n"


@pytest.mark.parametrize("how", ["flag", "setting", "variable"])
def test_without_a_terminal_it_is_refused(three: Stage, how: str) -> None:
    flags = ["--approve"] if how == "flag" else []
    env = {"CONDUCTOR_LLM_POLICY_APPROVE": "yes"} if how == "variable" else {}
    if how == "setting":
        three.config.write_text(three.config.read_text() + "\n[policy]\napprove = true\n")
    three.costs_nothing(
        2, "ask", "hi", *flags, env=env, told="conductor run plan.json --no-approve"
    )
    assert three.inside("ask", "hi", "--no-approve", env=env).out == "alpha answers\n"


def test_a_project_file_may_ask_for_it(three: Stage, tmp_path: Path) -> None:
    project = tmp_path / ".conductor.toml"
    project.write_text("[policy]\napprove = true\n")
    assert (three.inside("ask", "hi", cwd=tmp_path).code, three.server.requests) == (2, [])
    assert three.inside("ask", "hi", "--no-approve", cwd=tmp_path).out == "alpha answers\n"
    project.write_text("[policy]\napprove = false\n")
    assert three.inside("ask", "hi", "--approve", cwd=tmp_path).code == 3


def test_plan_shows_a_person_the_same(three: Stage) -> None:
    with terminal(three, "plan", "--flow", "hi", size=(80, 60)) as shown:
        assert shown.end() == 0
        assert "PLAN  3 steps" in shown.screen
        assert '"steps"' not in shown.screen
        assert "the answer of step 1" in shown.screen
        assert "run it: conductor ask --resume 2" in shown.screen
    assert three.inside("ask", "--resume", "last").out == "alpha answers\n"
    assert len(three.asked(PLANNER)) == 1


def test_the_flow_of_a_stored_run_is_shown(three: Stage, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("There are three hills.\n")
    assert three.inside("ask", "-f", str(notes), "How many?").code == 0
    text = three.inside("trace", "show", "--flow").out
    assert text.startswith("this machine\n  plan: planner\n")
    assert "file notes.txt" in text
    (recipient,) = three.inside("trace", "show", "--flow", "--json").json["recipients"]
    assert [call["call"] for call in recipient["calls"]] == ["plan", "step 1", "step 2", "step 3"]
    step_flow = three.inside("trace", "show", "--flow", "--step", "2", "--json").json
    sent = chain.from_iterable(entry["calls"] for entry in step_flow["recipients"])
    assert [call["call"] for call in sent] == ["step 2"]
    three.fails(2, "trace", "show", "--flow", "--step", "7")
