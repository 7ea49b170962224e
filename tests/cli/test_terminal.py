"""`conductor ask` in a pseudo-terminal whose screen pyte interprets, and in tmux."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.stage import COMMAND, PLANNER, TWO, Stage, refuses, says, stalls
from tests.cli.terminals import Gate, terminal
from tests.servers import Script, SeenStep, Wire
from tests.traces.stored import unpack


@pytest.mark.parametrize("size", [(80, 24), (40, 12)], ids=["80x24", "40x12"])
def test_tree_shows_a_run_from_plan_to_answer(stage: Stage, size: tuple[int, int]) -> None:
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


def test_ctrl_c_while_planning_restores_the_terminal(stage: Stage) -> None:
    stage.models[PLANNER] = stalls("alp")
    with terminal(stage, "ask", "hi", command=COMMAND) as shown:
        shown.until("planning")
        shown.program.sendintr()
        assert shown.end() == 130
        assert shown.screen.count("conductor: interrupted") == 1
        assert shown.cursor_shown


def test_sigterm_restores_the_terminal(stage: Stage) -> None:
    """SIGTERM while steps run shows the cursor again; exit code 143."""
    stage.models["alpha"] = stalls("half")
    with terminal(stage, "ask", "hi", command=COMMAND) as shown:
        shown.until("half")
        shown.program.kill(signal.SIGTERM)
        assert shown.end() == 143
        assert shown.cursor_shown


def test_dumb_terminal_gets_plain_lines(stage: Stage) -> None:
    with terminal(stage, "ask", "hi", TERM="dumb") as shown:
        assert shown.end() == 0
        assert "\x1b" not in shown.raw
        assert "step 1 planned: alpha" in shown.screen
        assert shown.screen.count("alpha answers") == 1


def test_no_color_disables_colours(stage: Stage) -> None:
    """NO_COLOR removes colours from the tree; the setting overrides it."""
    with terminal(stage, "ask", "hi", NO_COLOR="1") as shown:
        assert shown.end() == 0
        assert not any(f"\x1b[{code}m" in shown.raw for code in range(30, 48))
    with terminal(stage, "ask", "hi", NO_COLOR="1", CONDUCTOR_LLM_OUTPUT_COLOR="always") as shown:
        assert shown.end() == 0
        assert any(f"\x1b[{code}m" in shown.raw for code in range(30, 48))


@pytest.mark.parametrize("size", [(12, 5), (1, 1)], ids=["12x5", "1x1"])
def test_run_succeeds_in_a_very_small_terminal(stage: Stage, size: tuple[int, int]) -> None:
    stage.plan = TWO
    with terminal(stage, "ask", "hi", size=size) as shown:
        assert shown.end() == 0
        assert shown.cursor_shown
        assert "Traceback" not in shown.raw
        assert "betaanswers" in "".join(shown.scrolled.split())


def test_redirected_answer_goes_to_the_file_while_the_tree_is_drawn(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "answer.md"
    line = f"{shlex.join((*COMMAND, 'ask', 'hi'))} > {shlex.quote(str(file))}"
    with terminal(stage, "-c", line, command=("bash",)) as shown:
        assert shown.end() == 0
        assert file.read_text() == "alpha answers\n"
        assert re.search(r"1 alpha.*✓", shown.scrolled)


def test_failed_run_prints_its_error_once(stage: Stage) -> None:
    stage.models = dict.fromkeys(("alpha", "beta"), refuses(401, "bad key"))
    with terminal(stage, "ask", "hi") as shown:
        assert shown.end() == 4
        assert shown.scrolled.count("conductor: ") == 1
        assert shown.cursor_shown


def test_replay_draws_the_same_screen_as_the_run(stage: Stage) -> None:
    stage.plan = TWO
    with terminal(stage, "ask", "hi") as first:
        assert first.end() == 0
    with terminal(stage, "trace", "replay", "--speed", "50") as again:
        assert again.end() == 0
        assert again.screen.splitlines()[:-1] == first.screen.splitlines()[:-1]
        assert again.cursor_shown


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
    assert coloured == plain == [line.rstrip() for line in stage.inside("trace", "show").out.splitlines()]
