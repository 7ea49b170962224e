"""A chat whose terminal is gone, and to which no signal says so."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack
from io import TextIOWrapper

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.output.vt100 import Vt100_Output

from conductor_cli.cli.chat_prompt import HANG_UP, ChatEnded, ChatPrompt, is_lost


@pytest.fixture
def screen() -> Iterator[tuple[int, TextIOWrapper]]:
    """The end of a terminal on which a person types, and the other one; a test closes the first."""
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "r+b", buffering=0) as raw, TextIOWrapper(raw, write_through=True) as text:
        yield ours, text


def test_a_terminal_is_lost_once_nobody_holds_its_other_end(screen: tuple[int, TextIOWrapper]) -> None:
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
        await asyncio.wait_for(reading, 5)

    monkeypatch.setenv("TERM", "xterm-256color")
    output = Vt100_Output.from_pty(theirs, term="xterm-256color")
    with ExitStack() as stack:
        keys = stack.enter_context(create_pipe_input()) if reads else Vt100Input(theirs)
        stack.enter_context(create_app_session(input=keys, output=output))
        with pytest.raises(ChatEnded) as caught:
            asyncio.run(lose())
    assert caught.value.code == HANG_UP


def test_a_write_that_a_terminal_refuses_does_not_end_the_prompt(
    screen: tuple[int, TextIOWrapper], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
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
