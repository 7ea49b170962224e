"""`system.event_loop`: Ctrl-C while an event loop is being made."""

from __future__ import annotations

import subprocess
import sys
import threading
from textwrap import dedent

import pytest

from conductor_cli.system.event_loop import run_async

CTRL_C_WITHIN_A_NEW_LOOP = dedent(
    """
    import asyncio, gc, signal
    from conductor_cli.system import event_loop

    class Interrupted(asyncio.SelectorEventLoop):
        def __init__(self):
            signal.raise_signal(signal.SIGINT)
            super().__init__()

    asyncio.new_event_loop = Interrupted

    async def work():
        print("the work has begun")

    try:
        event_loop.run_async(work())
    except KeyboardInterrupt:
        print("interrupted")
    gc.collect()
    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    """
)


def test_ctrl_c_within_a_new_event_loop_interrupts_without_a_word() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CTRL_C_WITHIN_A_NEW_LOOP], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["interrupted", "True"]
    assert done.stderr == ""


def test_a_coroutine_runs_on_any_thread() -> None:
    results: list[str] = []

    async def work() -> str:
        return threading.current_thread().name

    thread = threading.Thread(target=lambda: results.append(run_async(work())), name="other")
    thread.start()
    thread.join()
    assert [*results, run_async(work())] == ["other", threading.main_thread().name]


def test_what_a_coroutine_raises_is_raised() -> None:
    async def work() -> None:
        raise LookupError("nothing is here")

    with pytest.raises(LookupError, match="nothing is here"):
        run_async(work())
