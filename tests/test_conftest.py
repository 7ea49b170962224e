"""The protections around every test, and the switch that turns skips into failures."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import LONGEST, _renew_constants_of_hub, _skip_without_posix

CONFTEST = Path(__file__).with_name("conftest.py")

SUITE = """
import signal, socket, subprocess, sys, urllib.request
from contextlib import suppress
import pytest

CALLS = (
    lambda: socket.create_connection(("192.0.2.1", 80)),
    lambda: socket.getaddrinfo("example.org", 80),
    lambda: socket.socket().connect_ex(("192.0.2.1", 80)),
    lambda: urllib.request.urlopen("http://example.org"),
)

def test_passes():
    pass

def test_skips():
    pytest.skip("tmux is not installed")

@pytest.mark.xfail(strict=True)
def test_is_known_to_fail():
    assert False

def test_is_interrupted():
    asks = "import signal; print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"
    assert subprocess.check_output([sys.executable, "-c", asks]) == b"False\\n"

def test_a_program_keeps_its_bytecode():
    asks = "import sys; print(sys.dont_write_bytecode)"
    assert subprocess.check_output([sys.executable, "-c", asks]) == b"False\\n"

@pytest.mark.parametrize("number", range(4))
def test_swallows_the_refusal(number):
    try:
        CALLS[number]()
    except OSError as error:
        print("refused:", type(getattr(error, "reason", error)).__name__)

@pytest.mark.network
def test_may_leave():
    with suppress(OSError):
        socket.socket(type=socket.SOCK_DGRAM).connect(("192.0.2.1", 80))
"""
MISSING = 'import pytest\npytest.importorskip("no_such_module_here")\n'


def test_the_longest_files_are_there() -> None:
    assert [name for name in LONGEST if not (CONFTEST.parent / name).is_file()] == []


@pytest.mark.parametrize(
    ("system", "module", "outcome"),
    [
        ("win32", "termios", "skipped"),
        ("win32", "no_such_module", "failed"),
        ("linux", "termios", "failed"),
    ],
)
def test_a_file_that_needs_what_windows_lacks_is_skipped_there_alone(
    system: str, module: str, outcome: str
) -> None:
    error = f"E   ModuleNotFoundError: No module named '{module}'"
    report = pytest.CollectReport("tests/test_a.py", "failed", error, None)
    _skip_without_posix(report, system)
    assert report.outcome == outcome


def ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run(directory: Path, *words: str, **environment: str) -> tuple[int, str]:
    """Run two files of tests under the same conftest, by a parent that ignores Ctrl-C.

    Returns exit code and output.
    """
    for name, text in (
        ("conftest", CONFTEST.read_text()),
        ("test_suite", SUITE),
        ("test_module", MISSING),
    ):
        directory.joinpath(f"{name}.py").write_text(text)
    options = (
        "-rA",
        "-p",
        "xdist",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:warnings",
        "--rootdir",
        str(directory),
    )
    command = [sys.executable, "-m", "pytest", *options, *words]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CI_")}
    # Other plugins take longer to import than the tests to run
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    done = subprocess.run(
        command,
        env={**inherited, **environment},
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=None if sys.platform == "win32" else ignore_interrupts,
    )
    return done.returncode, done.stdout


def test_what_leaves_the_machine_fails_and_what_is_skipped_is_written_down(tmp_path: Path) -> None:
    """Each connection that leaves is refused, and its test fails even if it swallows that.

    Unless it has the mark. A program that a test starts can be interrupted, and keeps the bytecode
    that it compiles, though what started the tests was told to keep none. The skipped tests and
    modules, of two processes here, are in a file that `pytest @FILE` takes; a known failure is not.
    With CI_NO_SKIPS they fail, and name what is not installed.
    """
    skipped = tmp_path / "skipped"
    code, shown = run(tmp_path, "-n", "2", CI_SKIPPED=str(skipped), PYTHONDONTWRITEBYTECODE="1")
    assert (code, "8 passed, 2 skipped, 1 xfailed, 4 errors" in shown) == (1, True), shown
    assert (
        shown.count("Failed: tried to reach ") >= 4,
        shown.count("refused: NetworkRefused") >= 4,
    ) == (True, True)
    assert set(skipped.read_text().splitlines()) == {"test_module.py", "test_suite.py::test_skips"}
    code, shown = run(tmp_path, f"@{skipped}", "--continue-on-collection-errors", CI_NO_SKIPS="1")
    assert (code, " 1 failed, 1 error in " in shown) == (1, True), shown
    assert ("tmux is not installed" in shown, "no_such_module_here" in shown) == (True, True)


def test_what_a_directory_imports_for_its_tests_finds_no_key_and_no_switch(tmp_path: Path) -> None:
    """Also where only that directory is tested, whose conftest is read before all else."""
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "conftest.py").write_text("import os\nENVIRON = dict(os.environ)\n")
    (inner / "test_inner.py").write_text(
        "from conftest import ENVIRON\n\ndef test_no_key():\n"
        "    assert not {'OPENAI_API_KEY', 'PYTHONDONTWRITEBYTECODE'} & {*ENVIRON}\n"
    )
    variables = {"OPENAI_API_KEY": "sk-x", "PYTHONDONTWRITEBYTECODE": "1"}
    code, shown = run(tmp_path, "inner", **variables)
    assert (code, "1 passed" in shown) == (0, True), shown


def test_a_test_has_directories_and_a_keyring_of_its_own_and_no_key(home: Path) -> None:
    """The directories that a program asks for are empty; no variable of a provider is left."""
    import keyring
    import platformdirs

    places = platformdirs.PlatformDirs("conductor-llm")
    assert all(
        home in Path(p).parents
        for p in (places.user_config_dir, places.user_data_dir, places.user_state_dir)
    )
    assert [
        name
        for name in os.environ
        if name.endswith("_API_KEY") or name.startswith(("OPENAI_", "CONDUCTOR_"))
    ] == ["CONDUCTOR_LLM_POLICY_NO_MEMORY"]
    keyring.set_password("conductor-llm", "tests", "x")
    assert keyring.get_password("conductor-llm", "tests") is None


@pytest.mark.parametrize("number", range(3))
def test_the_library_of_the_hub_has_read_the_environment_of_the_test(
    home: Path, number: int
) -> None:
    """Its files are in the home of this test, and what the test before has changed is put back."""
    constants: Any = importlib.import_module("huggingface_hub.constants")
    assert constants.HF_HUB_CACHE.startswith(str(home))
    assert constants.HF_HUB_DISABLE_TELEMETRY is False
    constants.HF_HUB_DISABLE_TELEMETRY = True


def test_the_library_of_the_hub_reads_a_changed_environment_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    constants: Any = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    _renew_constants_of_hub("/home/of/nobody")
    assert str(tmp_path) == constants.HF_HOME


def test_clients_of_tests_read_the_certificates_of_the_machine_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where a test names certificates of its own."""
    with httpx.Client() as first, httpx.Client() as second:
        assert certificates_of(first) is certificates_of(second)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    with httpx.Client() as third:
        assert not certificates_of(third).get_ca_certs()


def test_a_request_that_names_no_timeout_waits_for_a_busy_machine() -> None:
    with httpx.Client() as client:
        assert client.timeout == httpx.Timeout(60)


def certificates_of(client: httpx.Client) -> Any:
    return client._transport._pool._ssl_context  # type: ignore[attr-defined]
