"""What holds for every test.

A home of its own, no keys, no keyring, no network but this machine's own.

With CI_NO_SKIPS=1 a skipped test fails. With CI_SKIPPED=FILE the id of each skipped test or module
is appended to the file, so that `pytest @FILE` runs these again. CI_EXAMPLES is how many examples a
property test tries.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import hypothesis
import pytest

HOMES: Final = ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA")
XDG: Final = ("CONFIG", "DATA", "STATE", "CACHE", "RUNTIME", "BIN")
OURS: Final = ("CONDUCTOR_", "_CONDUCTOR_")
PROVIDERS: Final = (
    "ANTHROPIC_",
    "AWS_",
    "AZURE_",
    "DEEPSEEK_",
    "GEMINI_",
    "GOOGLE_",
    "GROQ_",
    "HF_",
    "HUGGING_FACE_",
    "LITELLM_",
    "MISTRAL_",
    "OLLAMA_",
    "OPENAI_",
    "OPENROUTER_",
    "VERTEX",
)
SECRETS: Final = ("_API_KEY", "_API_BASE", "_SECRET", "_TOKEN")
TERMINAL: Final = (
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLUMNS",
    "FORCE_COLOR",
    "LINES",
    "NO_COLOR",
    "PAGER",
    "PY_COLORS",
)
RUNNERS: Final = ("CI", "GITHUB_ACTIONS")
CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
POSIX_MODULES: Final = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")
"""Modules of the standard library that Windows lacks: a file of tests that needs one is skipped
there.
"""

LONGEST: Final = (
    "scripts/test_faults.py",
    "train/test_session.py",
    "evals/test_programs.py",
    "cli/test_tools.py",
    "test_docs_examples.py",
    "cli/test_background.py",
    "evals/test_scorers.py",
    "server/mcp/test_process.py",
    "test_examples.py",
    "server/test_page.py",
    "cli/test_attach.py",
    "app/test_shared_batch.py",
    "state/test_shared_records.py",
    "models/test_llama_template.py",
    "test_decisions.py",
    "tools/test_tool_servers.py",
    "evals/test_read_answers.py",
    "test_calm.py",
    "state/test_contract.py",
    "cli/test_chat_terminal.py",
    "state/test_keyring.py",
    "state/test_upkeep.py",
    "app/test_file_tree.py",
    "server/test_takeover.py",
    "models/test_litellm.py",
    "training/rehearsal/test_recipe.py",
    "cli/test_unwritable.py",
    "server/test_batches.py",
    "cli/test_pull.py",
    "state/test_daily_spend.py",
    "training/planner/test_planner_lessons.py",
    "cli/test_streams.py",
    "app/test_tuning.py",
    "cli/test_keys.py",
    "models/test_llama.py",
    "cli/test_setup.py",
    "cli/test_hygiene.py",
    "cli/test_model.py",
    "benchmarks/test_bench_directories.py",
    "models/test_weights_download.py",
    "evals/test_mathematics.py",
    "models/test_contract.py",
    "server/test_newest_clients.py",
    "scripts/test_supply.py",
    "server/test_bad_input.py",
    "cli/test_eval.py",
    "cli/test_local.py",
    "app/test_pdf_text.py",
    "models/test_llama_prefix_cache.py",
    "evals/test_verdicts.py",
    "benchmarks/test_conductor.py",
    "models/test_llama_sampling.py",
    "programs/test_schema_check.py",
)
"""Files of tests that take five seconds of a processor and more, or wait long: the longest first."""


def pytest_configure() -> None:
    # What started the tests may ignore these (`nohup`, `&` in a script). A program inherits that,
    # and a test of Ctrl-C would then wait for an end that never comes.
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The collector would look at all tests again and again while they are made.
    gc.disable()
    # How long an example takes says how busy the machine is.
    examples = int(os.environ.get("CI_EXAMPLES", "25"))
    hypothesis.settings.register_profile("conductor", deadline=None, max_examples=examples)
    hypothesis.settings.load_profile("conductor")


def _clean_environment() -> None:
    """Remove from the environment what would change a test.

    Some libraries read it only when they are imported, and the server that forks commands keeps
    what it is when that is imported: by the `conftest.py` of a directory, before
    `pytest_configure`.
    """
    dropped = {*TERMINAL, *RUNNERS, *PROXIES}
    _keep_bytecode()
    for name in list(os.environ):
        is_dropped = (
            name.upper() in dropped
            or name.startswith((*OURS, *PROVIDERS))
            or name.endswith(SECRETS)
        )
        if is_dropped:
            del os.environ[name]
    # The matrices of tests are small: threads would only wait for each other, for long on a busy
    # machine.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.null.Keyring"


def _keep_bytecode() -> None:
    """Let our modules be compiled once, as for users, not by each program that a test starts.

    Images of containers often turn that off, and then compiling is half of what a command does.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


_clean_environment()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files.

    With several processes, the last ones to begin should be short.
    """
    places = {Path(__file__).parent / name: position for position, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let the collector look only at what tests make: what was imported and collected stays."""
    if session.config.getoption("forks", 0) and "conductor_cli.models.litellm" in sys.modules:
        _import_litellm()
    for library in ("httpx", "httpx2"):
        transports = sys.modules.get(f"{library}._transports.default")
        if transports is not None:
            _share_certificates(transports)
    if "httpx" in sys.modules:
        _wait_longer(importlib.import_module("httpx._config").DEFAULT_TIMEOUT_CONFIG)
    if session.config.getoption("forks", 0):
        if "openai" in sys.modules:
            importlib.import_module("openai.resources")  # its clients would, in each fork
        _make_characters()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)  # as the command itself does
    gc.enable()


def pytest_unconfigure() -> None:
    """Close what llama.cpp's package has opened for ever: Python warns of it at the end."""
    package = sys.modules.get("llama_cpp._utils")
    if package is not None:
        package.outnull_file.close()
        package.errnull_file.close()


def _import_litellm() -> None:
    """Import litellm here, which takes three seconds, and not in each fork of this process."""
    from conductor_cli.models.litellm import preload_litellm

    preload_litellm().result()
    for thread in threading.enumerate():
        if thread.name == "import litellm":
            thread.join()  # a fork has no other thread


def _share_certificates(transports: Any) -> None:
    """Let all clients of a library that tests make read this machine's certificates once.

    Each client would read them for itself, which takes 30 ms of a processor: on loopback, more than
    all the rest of a request.
    """
    create = transports.create_ssl_context

    @functools.cache
    def usual_context(*_: str | None) -> Any:
        return create()

    def create_ssl_context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> Any:
        if verify is True and cert is None and trust_env:
            return usual_context(*map(os.environ.get, CERTIFICATES))
        return create(verify=verify, cert=cert, trust_env=trust_env)

    transports.create_ssl_context = create_ssl_context


def _wait_longer(usual_timeout: Any) -> None:
    """Let requests that name no timeout wait for a minute.

    A server on a busy machine may need more than the five seconds of the library.
    """
    for phase in ("connect", "read", "write", "pool"):
        setattr(usual_timeout, phase, 60.0)


def _make_characters() -> None:
    """Let Hypothesis make its table of all characters here, and not in each fork of this process.

    That takes more than a second where no earlier run has left it on the disk.
    """
    hypothesis.strategies.text().validate()


@pytest.fixture(autouse=True)
def _no_offline_mode() -> Iterator[None]:
    """`conductor train` puts its process into the hub's offline mode.

    The next test in this process has not.

    Other variables stay: litellm sets some when it is imported, and needs them for as long as the
    process lives.
    """
    yield
    for name in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        os.environ.pop(name, None)


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home directory.

    Whatever a test writes for a user ends here, also from a child process.
    """
    homes = tmp_path_factory.getbasetemp() / "homes"
    homes.mkdir(exist_ok=True)
    # pytest's `mktemp` reads the names of all earlier ones
    directory = Path(tempfile.mkdtemp(prefix="", dir=homes))
    for name in HOMES:
        monkeypatch.setenv(name, str(directory))
    for name in XDG:
        monkeypatch.setenv(
            f"XDG_{name}_HOME" if name != "RUNTIME" else "XDG_RUNTIME_DIR",
            str(directory / name.lower()),
        )
    # A terminal would be asked first about the AGENTS.md of this repository.
    monkeypatch.setenv("CONDUCTOR_LLM_POLICY_NO_MEMORY", "yes")
    if "huggingface_hub.constants" in sys.modules:
        _renew_constants_of_hub(str(directory))
    return directory


CONSTANTS_OF_HUB: Final[dict[frozenset[tuple[str, str]], tuple[str, dict[str, Any]]]] = {}
"""A home, and what the hub's library has read with it from an environment, without its home."""


def _renew_constants_of_hub(home: str) -> None:
    """Give the hub's library what it reads of the environment: it has that of an earlier test.

    It reads an environment once. Where only the home is another one, the home in what it has read
    is replaced: to read again took a tenth of what a short test takes.
    """
    constants = sys.modules["huggingface_hub.constants"]
    environment = frozenset(
        (name, text.replace(home, ""))
        for name, text in os.environ.items()
        if name != "PYTEST_CURRENT_TEST"
    )
    if environment not in CONSTANTS_OF_HUB:
        importlib.reload(constants)
        CONSTANTS_OF_HUB[environment] = (home, {**vars(constants)})
        return
    earlier_home, read = CONSTANTS_OF_HUB[environment]
    for name, value in read.items():
        is_text = isinstance(value, str)
        vars(constants)[name] = value.replace(earlier_home, home) if is_text else value


@pytest.fixture(autouse=True)
def _no_secrets() -> Iterator[None]:
    """Keys that one test has read are no secrets of the next."""
    from conductor_cli.core.redact import Secrets
    from conductor_cli.system.known_secrets import KNOWN_SECRETS

    yield
    vars(KNOWN_SECRETS).update(vars(Secrets()))


class NetworkRefused(OSError):
    """A test without the mark `network` tried to leave this machine."""


class Fence:
    """Sees each connection and name look-up of the process.

    While it is up, refuses those that leave the machine.
    """

    def __init__(self) -> None:
        self.up = False
        self.tried: list[str] = []
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if (
            self.up
            and event in {"socket.connect", "socket.sendto"}
            and isinstance(arguments[1], tuple)
        ):
            self._hold(arguments[1][0])
        elif self.up and event in {"socket.getaddrinfo", "socket.gethostbyname"}:
            self._hold(arguments[0])

    def _hold(self, host: str | bytes | None) -> None:
        name = host.decode() if isinstance(host, bytes) else host or "localhost"
        if name not in {"localhost", "::1"} and not name.startswith("127."):
            self.tried.append(name)
            raise NetworkRefused(
                f"a test tried to reach {name}; mark it `network` or use a server on 127.0.0.1"
            )


FENCE: Final = Fence()


@pytest.fixture(autouse=True)
def _stay_on_this_machine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Refuse to leave the machine, and fail the test even if it swallowed the refusal."""
    FENCE.up = request.node.get_closest_marker("network") is None
    yield
    FENCE.up = False
    tried = FENCE.tried
    FENCE.tried = []
    if tried:
        pytest.fail(f"tried to reach {', '.join(tried)}")


def _count_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    if path := os.environ.get("CI_SKIPPED"):
        with Path(path).open("a", encoding="utf-8") as file:  # each process of xdist appends
            file.write(f"{report.nodeid}\n")
    if os.environ.get("CI_NO_SKIPS"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason} (CI_NO_SKIPS is set: a skipped test is a failed one)"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that skips itself."""
    report = yield
    _count_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that skips itself, or that needs what this system cannot have."""
    report = yield
    _skip_without_posix(report)
    _count_skip(report)
    return report


def _skip_without_posix(report: pytest.CollectReport, system: str = sys.platform) -> None:
    if not report.failed or system != "win32":
        return
    match = re.search(r"No module named '(\w+)'", str(report.longrepr))
    if match is not None and match[1] in POSIX_MODULES:
        report.outcome = "skipped"
        report.longrepr = (str(report.fspath), 0, f"Windows has no module {match[1]}")
