"""Commands that are stopped by Ctrl-Z in a shell, and that `fg` lets go on."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cli.stage import COMMAND, TWO, Stage, need, stalls
from tests.cli.terminals import PATIENCE, Terminal, terminal


@contextmanager
def in_shell(stage: Stage, *arguments: str) -> Iterator[Terminal]:
    """Run a command in a shell with job control."""
    shell = (need("bash"), "--norc", "--noprofile", "-i")
    with terminal(stage, command=shell, PS1="$ ") as opened:
        opened.program.sendline(f"clear; {shlex.join([*COMMAND, *arguments])}")
        yield opened


def stop(opened: Terminal) -> None:
    opened.program.send("\x1a")
    opened.until("Stopped")


def test_a_key_is_unseen_after_a_stop_too(stage: Stage) -> None:
    with in_shell(stage, "keys", "set", "openai", "--insecure-storage") as opened:
        opened.until("(not shown):")
        stop(opened)
        opened.program.sendline("fg")
        assert opened.program.waitnoecho(PATIENCE), "the key would be shown"
        opened.program.sendline("sk-quite-secret-1234")
        opened.until("stored the key of openai")
        assert "secret" not in opened.raw


def test_a_plan_is_decided_by_one_key_after_a_stop_too(stage: Stage) -> None:
    with in_shell(stage, "ask", "--approve", "Why?") as opened:
        opened.until("d: drop it")
        stop(opened)
        opened.program.sendline("fg")
        assert opened.program.waitnoecho(PATIENCE), "a key would want Enter"
        opened.program.send("d")
        opened.until("the plan was dropped")


def test_a_tree_gives_the_screen_to_the_shell_and_goes_on_below(stage: Stage) -> None:
    stage.plan = TWO
    stage.models["alpha"] = stalls("Never")
    with in_shell(stage, "ask", "Why?") as opened:
        opened.until("Never")
        assert not opened.cursor_shown
        stop(opened)
        assert opened.cursor_shown
        opened.program.sendline("echo $((6 * 7)) lines; fg")
        opened.until(lambda screen: screen.partition("42 lines")[2].count("Never") == 1)
        opened.program.send("\x03")
        opened.until("conductor: interrupted")
        assert "42 lines" in opened.screen
        assert opened.screen.partition("42 lines")[0].count("Never") == 1


def test_what_only_shows_a_run_gives_the_shell_its_cursor_too(stage: Stage) -> None:
    stage.plan = TWO
    stage.models["alpha"] = stalls("Never")
    run = stage.run("ask", "--bg", "Why?").out.strip()
    with in_shell(stage, "trace", "attach", run) as opened:
        opened.until("Never")
        assert not opened.cursor_shown
        stop(opened)
        assert opened.cursor_shown
    stage.ok("trace", "cancel", run)
    stage.inside("trace", "wait", run)
    with in_shell(stage, "trace", "replay", run, "--speed", "0.01") as opened:
        opened.until(lambda _: not opened.cursor_shown)
        stop(opened)
        assert opened.cursor_shown
