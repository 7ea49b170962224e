"""The protections around every test, and the switch that turns skips into failures."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import LONGEST

CONFTEST = Path(__file__).with_name("conftest.py")

SUITE = """
import pytest

def test_passes():
    pass

def test_skips():
    pytest.skip("tmux is not installed")

@pytest.mark.xfail(strict=True)
def test_is_known_to_fail():
    assert False
"""

CTRL_C = """
import signal
import subprocess
import sys

def test_is_interrupted():
    asks = "import signal; print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"
    assert subprocess.check_output([sys.executable, "-c", asks]) == b"False\\n"
"""

REACHES_OUT = """
import socket
import urllib.request

def test_swallows_the_refusal():
    try:
        {call}
    except OSError as error:
        print("refused:", type(getattr(error, "reason", error)).__name__)
"""


def test_the_longest_files_are_there() -> None:
    assert [name for name in LONGEST if not (CONFTEST.parent / name).is_file()] == []


def ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run(place: Path, suite: str, *words: str, ignored: bool = False, **environment: str) -> tuple[int, str]:
    place.joinpath("conftest.py").write_text(CONFTEST.read_text())
    place.joinpath("test_suite.py").write_text(suite)
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "--rootdir", str(place), *words]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CI_")}
    done = subprocess.run(
        command,
        env={**inherited, **environment},
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=ignore_interrupts if ignored else None,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    "call",
    [
        "socket.create_connection(('192.0.2.1', 80))",
        "socket.getaddrinfo('example.org', 80)",
        "socket.socket().connect_ex(('192.0.2.1', 80))",
        "urllib.request.urlopen('http://example.org')",
    ],
)
def test_leaving_the_machine_fails_a_test_that_swallows_it(tmp_path: Path, call: str) -> None:
    """Every connection that leaves the machine is refused, and its test fails even if it swallows the refusal."""
    code, shown = run(tmp_path, REACHES_OUT.format(call=call))
    assert (code, "Failed: tried to reach " in shown, "refused: NetworkRefused" in shown) == (1, True, True)


def test_a_test_marked_network_may_leave(tmp_path: Path) -> None:
    """A test with the mark is not refused."""
    suite = REACHES_OUT.format(call="socket.socket(type=socket.SOCK_DGRAM).connect(('192.0.2.1', 80))")
    _, shown = run(tmp_path, suite.replace("def test", "import pytest\n@pytest.mark.network\ndef test"))
    assert "NetworkRefused" not in shown


def test_a_connection_on_this_machine_is_let_through() -> None:
    """A server on the loopback address can be reached, by asyncio too."""

    async def greet() -> bytes:
        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"here")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection("localhost", server.sockets[0].getsockname()[1])
            read = await reader.read()
            writer.close()
            return read

    assert asyncio.run(greet()) == b"here"


def test_user_directories_are_the_tests_own(home: Path) -> None:
    """The directories a program asks for are empty ones of this test."""
    import platformdirs

    places = platformdirs.PlatformDirs("conductor-llm")
    assert all(home in Path(p).parents for p in (places.user_config_dir, places.user_data_dir, places.user_state_dir))


def test_the_environment_holds_no_key() -> None:
    """No variable that a provider reads is left."""
    assert not [name for name in os.environ if name.endswith("_API_KEY") or name.startswith(("OPENAI_", "CONDUCTOR_"))]


def test_the_keyring_is_the_null_one() -> None:
    """Nothing a test stores reaches the keyring of the user."""
    import keyring

    keyring.set_password("conductor-llm", "tests", "x")
    assert keyring.get_password("conductor-llm", "tests") is None


def test_a_skip_is_a_skip_for_a_developer(tmp_path: Path) -> None:
    """Without the switch a skipped test is reported by its reason and nothing fails."""
    code, shown = run(tmp_path, SUITE)
    assert (code, "1 passed, 1 skipped, 1 xfailed" in shown) == (0, True)


def test_a_skip_is_a_failure_where_the_switch_is_on(tmp_path: Path) -> None:
    """With CI_NO_SKIPS the same suite fails and names what is not installed; a known failure stays one."""
    code, shown = run(tmp_path, SUITE, CI_NO_SKIPS="1")
    assert (code, "1 failed, 1 passed, 1 xfailed" in shown, "tmux is not installed" in shown) == (1, True, True)


def test_a_whole_module_that_skips_is_a_failure_too(tmp_path: Path) -> None:
    """A module that skips itself while it is read counts as well."""
    code, shown = run(tmp_path, 'import pytest\npytest.importorskip("no_such_module_here")\n', CI_NO_SKIPS="1")
    assert (code != 0, "no_such_module_here" in shown) == (True, True)


@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=["one process", "two processes"])
def test_what_was_skipped_is_written_down_and_can_be_run_again(tmp_path: Path, processes: tuple[str, ...]) -> None:
    """The file names single tests and whole modules, as `pytest @FILE` takes them; a known failure is not in it."""
    skipped = tmp_path / "skipped"
    tmp_path.joinpath("test_module.py").write_text('import pytest\npytest.importorskip("no_such_module_here")\n')
    assert run(tmp_path, SUITE, *processes, CI_SKIPPED=str(skipped))[0] == 0
    assert set(skipped.read_text().splitlines()) == {"test_module.py", "test_suite.py::test_skips"}
    tmp_path.joinpath("test_module.py").write_text("def test_of_it():\n    pass\n")
    code, shown = run(tmp_path, SUITE.replace("pytest.skip", "print"), *processes, f"@{skipped}", CI_NO_SKIPS="1")
    assert (code, "2 passed" in shown) == (0, True)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signal handlers that a child process inherits")
def test_programs_can_be_interrupted_when_the_tests_were_started_by_nohup(tmp_path: Path) -> None:
    """A parent that ignores SIGINT does not make the programs ignore it that the tests start."""
    code, shown = run(tmp_path, CTRL_C, ignored=True)
    assert (code, "1 passed" in shown) == (0, True)
