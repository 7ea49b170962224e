"""Hostile texts of workers on a real terminal: no control sequence of theirs reaches it, and nothing crashes."""

from __future__ import annotations

import json
import re

import pytest

from conductor_cli.core.terminal_text import is_sanitized
from tests.cli.stage import TWO, Stage, replies, says
from tests.cli.terminals import Gate, terminal
from tests.servers import delta, usage

OURS = re.compile(r"\x1b\[(?:[0-9;]*m|2K|1[AB]|\?25[lh])|\r")
"""Colours, erasing a line, one line up or down, the cursor's light, the start of the line."""

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
    stage.models = {"alpha": says(*pieces), "beta": says(*pieces)}  # a step, and the one that answers
    with terminal(stage, "ask", "hi", size=(60, 20)) as shown:
        assert shown.end() == 0
        text = OURS.sub("", shown.raw)
        assert is_sanitized(text)
        assert "end" in text
        assert len(text) < 200_000


def test_a_megabyte_in_one_line_on_a_very_small_terminal(stage: Stage) -> None:
    stage.plan = TWO
    line = "word " * 2000
    stage.models = {"alpha": says(*[line] * 100), "beta": says(*[line] * 4, "end")}
    with terminal(stage, "ask", "hi", size=(20, 5)) as shown:
        assert shown.end() == 0
        assert OURS.sub("", shown.raw).count("word") >= 8000
        assert shown.cursor_shown


def test_invalid_utf_8_is_replaced(stage: Stage) -> None:
    frames = [json.dumps(frame).encode() for frame in (delta("a@b"), delta(finish="stop"), usage())]
    body = b"".join(b"data: " + frame.replace(b"@", b"\xff\xfe") + b"\n\n" for frame in frames)
    stage.models = {"alpha": replies(body + b"data: [DONE]\n\n")}
    with terminal(stage, "ask", "hi") as shown:
        assert shown.end() == 0
        assert is_sanitized(OURS.sub("", shown.raw))
        assert "a\ufffd\ufffdb" in shown.scrolled


def test_the_window_is_resized_during_a_run(stage: Stage) -> None:
    stage.plan = TWO
    alpha = Gate("wise ", "words ", "of ", "alpha", ".")
    stage.models = {"alpha": alpha, "beta": says("**forty**-two")}
    with terminal(stage, "ask", "hi", size=(100, 30)) as shown:
        alpha.let()
        shown.until("wise")
        for size in ((60, 30), (110, 40), (100, 20)):
            shown.resize(*size)
            alpha.let()
            shown.until(lambda screen: "1 alpha" in screen and "●" in screen)
        alpha.let()
        assert shown.end() == 0
        assert shown.scrolled.count("1 alpha") == 1
        assert shown.scrolled.count("forty-two") == 1
        # The answering step stands in the tree, and with its figures below the answer.
        assert shown.scrolled.count("2 beta") == 2
