"""`conductor ask` in a pseudo-terminal whose screen pyte interprets.

No text of a worker commands the terminal.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
from pathlib import Path

import pytest

from conductor_cli.core.terminal_text import is_sanitized
from tests.cli.stage import COMMAND, PLANNER, TWO, Stage, replies, says, stalls
from tests.cli.terminals import Gate, terminal
from tests.server.test_tool_turns import by_turns
from tests.servers import delta, usage
from tests.traces.stored import unpack
from tests.views.terminals import without_ours


@pytest.mark.parametrize("size", [(80, 24), (40, 12)], ids=["80x24", "40x12"])
def test_tree_shows_a_run_from_plan_to_answer(stage: Stage, size: tuple[int, int]) -> None:
    plan = Gate("alpha | - | Find it out.\n", "beta | 1 | Check it.\n", "alpha | 1 2 | Answer.")
    alpha = Gate("wise ", "words")
    beta = Gate("checked")
    stage.models = {PLANNER: plan, "alpha": by_turns(alpha, says("forty", "-two")), "beta": beta}
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


def test_ctrl_c_keeps_finished_steps_and_prints_the_resume_command(stage: Stage) -> None:
    stage.plan = TWO
    stage.models = {"alpha": says("found it"), "beta": stalls("half of ", "it")}
    with terminal(stage, "ask", "hi", size=(80, 24), command=COMMAND) as shown:
        shown.until("half of it")
        shown.program.sendintr()
        assert shown.end() == 130
        assert "half of it" in shown.scrolled
        assert shown.screen.splitlines()[-1].startswith("  resume: conductor ask --resume")
        assert "--resume" in shown.screen
        assert shown.cursor_shown


@pytest.mark.parametrize(
    ("model", "number", "message"),
    [(PLANNER, signal.SIGINT, "conductor: interrupted"), ("alpha", signal.SIGTERM, "conductor: ")],
    ids=["Ctrl-C while planning", "SIGTERM"],
)
def test_a_signal_restores_the_terminal(
    stage: Stage, model: str, number: signal.Signals, message: str
) -> None:
    stage.models[model] = stalls("alp")
    with terminal(stage, "ask", "hi", command=COMMAND) as shown:
        shown.until("planning" if model == PLANNER else "alp")
        shown.program.kill(number)
        assert shown.end() == 128 + number
        assert shown.screen.count(message) == 1
        assert shown.cursor_shown


def test_no_color_disables_colours(stage: Stage) -> None:
    with terminal(stage, "ask", "hi", NO_COLOR="1") as shown:
        assert shown.end() == 0
        assert not any(f"\x1b[{code}m" in shown.raw for code in range(30, 48))
    with terminal(stage, "ask", "hi", NO_COLOR="1", CONDUCTOR_LLM_OUTPUT_COLOR="always") as shown:
        assert shown.end() == 0
        assert any(f"\x1b[{code}m" in shown.raw for code in range(30, 48))


def test_lines_of_progress_break_between_words(stage: Stage) -> None:
    """In a terminal that cannot redraw, too."""
    stage.plan = "alpha | - | Find out what it is and say so in a few words that fit."
    with terminal(stage, "ask", "hi", size=(40, 40), TERM="dumb") as shown:
        assert shown.end() == 0
    assert "step 1 planned" in shown.screen
    finished = " ".join(shown.screen.split())
    assert re.search(r"step 1 of 1 finished: alpha, [\d.]+ s, 18 tokens, price unknown", finished)
    assert "openai-compatible/planner plans, auto, 2 workers" in finished


def test_run_succeeds_in_a_very_small_terminal(stage: Stage) -> None:
    stage.plan = TWO
    with terminal(stage, "ask", "hi", size=(1, 1)) as shown:
        assert shown.end() == 0
        assert shown.cursor_shown
        assert "Traceback" not in shown.raw
        assert "betaanswers" in "".join(shown.scrolled.split())


def test_redirected_answer_goes_to_the_file_while_the_tree_is_drawn(
    stage: Stage, tmp_path: Path
) -> None:
    file = tmp_path / "answer.md"
    line = f"{shlex.join((*COMMAND, 'ask', 'hi'))} > {shlex.quote(str(file))}"
    with terminal(stage, "-c", line, command=("bash",)) as shown:
        assert shown.end() == 0
        assert file.read_text() == "alpha answers\n"
        assert re.search(r"1 alpha.*✓", shown.scrolled)


def test_ctrl_c_ends_a_replay(stage: Stage) -> None:
    stage.inside("ask", "hi")
    (file,) = stage.traces.iterdir()
    *lines, last = unpack(file).read_text().splitlines()
    file.write_text("\n".join([*lines, last.replace('"at":0.', '"at":1000.'), ""]))
    with terminal(stage, "trace", "replay", command=COMMAND) as shown:
        shown.until("alpha answers")
        shown.program.sendintr()
        assert shown.end() == 130
        assert shown.cursor_shown
        assert "interrupted" not in shown.scrolled, "the replay was, the run was not"


def test_ask_reads_a_typed_question(stage: Stage) -> None:
    with terminal(stage, "ask", "-") as shown:
        shown.program.sendline("Typed by hand?")
        shown.program.sendeof()
        assert shown.end() == 0
        assert "alpha answers" in shown.screen
    assert "Typed by hand?" in str(stage.asked("alpha")[0].json)
    with terminal(stage, "ask") as shown:
        assert shown.end() == 2
        assert "there is no question" in shown.screen


def test_a_stored_run_has_the_colours_of_the_live_tree(stage: Stage) -> None:
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
    assert (
        coloured
        == plain
        == [line.rstrip() for line in stage.inside("trace", "show").out.splitlines()]
    )


BAD = {
    "escapes": "\x1b[2J\x1b]0;owned\x07\x1b]52;c;aGk=\x1b\\\x1b[6n\x9b31m\x1bP1;2q\x1b\\end",
    "orders": "user\u202egnp.exe\u2066\u2069 \u2028\u2029 end",
    "floods": "\u200b" * 5000 + "a" + "\u0301" * 5000 + "\u200d" * 5000 + " end",
    "controls": "".join(map(chr, range(32))) + "".join(map(chr, range(127, 160))) + "end",
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_no_control_sequence_of_a_worker_reaches_the_terminal(stage: Stage, text: str) -> None:
    stage.plan = TWO
    pieces = [text[at : at + 5] for at in range(0, len(text), 5)]
    # A step, and the one that answers
    stage.models = {"alpha": says(*pieces), "beta": says(*pieces)}
    with terminal(stage, "ask", "hi", size=(60, 20)) as shown:
        assert shown.end() == 0
        text = without_ours(shown.raw)
        assert is_sanitized(text)
        assert "end" in text
        assert len(text) < 200_000


@pytest.mark.parametrize("ends", [" & wait", ""], ids=["in the background", "in front"])
def test_nothing_is_redrawn_over_what_a_shell_shows(stage: Stage, ends: str) -> None:
    stage.models["alpha"] = says("one ", "**two**\n")
    line = f"set -m; {shlex.join([*COMMAND, 'ask', '-m', 'alpha', 'Hi'])}{ends}"
    with terminal(stage, "-c", line, command=("bash",)) as shown:
        assert shown.end() == 0
    assert "two" in shown.screen
    assert ("\x1b[2K" in shown.raw) is (not ends)


def test_a_megabyte_in_one_line_is_shown_on_a_very_small_terminal(stage: Stage) -> None:
    stage.plan = TWO
    line = "word " * 2000
    stage.models = {"alpha": says(*[line] * 100), "beta": says(*[line] * 4, "end")}
    with terminal(stage, "ask", "hi", size=(20, 5)) as shown:
        assert shown.end() == 0
        assert without_ours(shown.raw).count("word") >= 8000
        assert shown.cursor_shown


def test_invalid_utf_8_is_replaced(stage: Stage) -> None:
    frames = [json.dumps(frame).encode() for frame in (delta("a@b"), delta(finish="stop"), usage())]
    body = b"".join(b"data: " + frame.replace(b"@", b"\xff\xfe") + b"\n\n" for frame in frames)
    stage.models = {"alpha": replies(body + b"data: [DONE]\n\n")}
    with terminal(stage, "ask", "hi") as shown:
        assert shown.end() == 0
        assert is_sanitized(without_ours(shown.raw))
        assert "a\ufffd\ufffdb" in shown.scrolled
