"""The set-up script, what it reads and says when something is missing.

And the wheel, which holds what is no Python.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile

import pytest

from scripts import setup

ROOT = Path(__file__).resolve().parent.parent.parent
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

LLAMA_REQUIREMENT = setup.requirements(LOCK)["llama-cpp-python"]
LLAMA = LLAMA_REQUIREMENT.split("==")[1].split()[0]

BUILD_LOG = """\
Building wheels for collected packages: llama-cpp-python
  [1/87] Building C object vendor/llama.cpp/ggml/src/CMakeFiles/ggml-base.dir/ggml.c.o
  [12/87] Building CXX object vendor/llama.cpp/src/CMakeFiles/llama.dir/llama.cpp.o
"""

FETCH_LOG = """\
$ pip install
Collecting aiohttp==3.14.5
  Downloading aiohttp-3.14.5.whl
Requirement already satisfied: rich in place
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with nothing but what the script reads; its environment is made of nothing."""
    (tmp_path / "scripts").mkdir()
    for name in ("requirements.lock", "pyproject.toml", "scripts/llama.cmake"):
        shutil.copy(ROOT / name, tmp_path / name)
    venv = tmp_path / ".venv"
    venv.mkdir()
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    for name in ("VENV", "LOG", "STAMP", "WHEELS"):
        monkeypatch.setattr(setup, name, tmp_path / getattr(setup, name).relative_to(ROOT))
    for name in ("CMAKE_ARGS", "LLAMA_WHEEL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_the_lock_holds_all_that_is_asked_for_with_hashes_and_no_torch() -> None:
    """The gigabytes of `train` stay out, and packages come from where the user's pip looks."""
    blocks = setup.requirements(LOCK)
    assert [
        name for name, block in blocks.items() if "==" not in block or "--hash=sha256:" not in block
    ] == []
    assert "".join(blocks.values()) == "".join(
        line for line in LOCK.splitlines(keepends=True) if line[0] != "#"
    )
    assert not {name for name in blocks if name.startswith(("torch", "nvidia", "cuda", "triton"))}
    assert not set(setup.SLOW) & set(blocks)
    assert "://" not in LOCK
    extras = PROJECT["project"]["optional-dependencies"]
    lines = chain.from_iterable(PROJECT["dependency-groups"].values())
    groups = [line for line in lines if isinstance(line, str)]
    requirements = [*PROJECT["project"]["dependencies"], *extras["eval"], *groups]
    assert {line.partition(">")[0].partition("=")[0] for line in requirements} | {
        *setup.TOOLS
    } <= set(blocks)


def test_two_versions_of_a_name_stay_together() -> None:
    older = "numpy==1 ; python_version < '3.12' \\\n    --hash=sha256:a\n"
    lock = f"{older}numpy==2 \\\n    --hash=sha256:b\nrich==3 \\\n    --hash=sha256:c\n"
    blocks = setup.requirements(lock)
    assert (list(blocks), blocks["numpy"].count("==")) == (["numpy", "rich"], 2)


def test_progress_is_printed_every_few_seconds(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As pip's output tells it, without a terminal in a line of its own."""
    assert setup.progress("$ pip wheel", 0) == "fetching"
    assert setup.progress(FETCH_LOG, 100) == "fetching, 2 of 100"
    assert setup.progress(FETCH_LOG + "Installing collected packages: rich\n", 100) == "installing"
    job = setup.Job("llama.cpp", [sys.executable, "-c", "import time; time.sleep(600)"])
    job.log.write_text(BUILD_LOG)
    spoken = setup.show((job,), time.monotonic() - setup.EVERY)
    assert setup.show((job,), spoken) == spoken
    job.end()
    assert re.fullmatch(
        r"setup \d+:\d\d  llama\.cpp: compiling, 12 of 87\n", capsys.readouterr().err
    )


def test_a_failed_job_is_reported_with_the_end_of_its_output_and_the_other_is_stopped(
    checkout: Path,
) -> None:
    other = setup.Job("llama.cpp", [sys.executable, "-c", "import time; time.sleep(600)"])
    job = setup.Job("tools", [sys.executable, "-c", "print('no such wheel'); raise SystemExit(3)"])
    with pytest.raises(
        setup.SetupError, match=r"tools failed.*\.venv/setup\.log[\s\S]*no such wheel"
    ):
        setup.watch(other, job)
    assert "no such wheel" in (checkout / ".venv/setup.log").read_text()
    assert other.process.returncode not in (None, 0)


@pytest.fixture
def no_compiler(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a compiler.

    Its pip is a script that says nothing; the path of that script.
    """
    monkeypatch.setenv("PATH", str(checkout))
    monkeypatch.delenv("CXX", raising=False)
    python = checkout / ".venv/bin/python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    return python


def run_setup(checkout: Path, **programs: str) -> list[str]:
    """Return what the script says that fails in a checkout without an environment.

    Its PATH has these programs only.
    """
    shutil.rmtree(checkout / ".venv")
    shutil.copy(ROOT / "scripts/setup.py", checkout / "scripts/setup.py")
    (checkout / "bin").mkdir()
    for name, script in programs.items():
        program = checkout / "bin" / name.replace("_", "-")
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    environ = {
        "PATH": str(checkout / "bin"),
        "HOME": str(checkout),
        "PIP_CACHE_DIR": str(checkout / "pip"),
    }
    command = [sys.executable, str(checkout / "scripts/setup.py")]
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr.splitlines()


def test_the_script_stops_at_once_without_a_compiler(checkout: Path) -> None:
    first, *rest = run_setup(checkout, dnf="exit 0")
    assert re.search(
        r"this needs a C\+\+ compiler, 2\.0 GB of disk \(\d+ GB free\) and a network", first
    )
    assert "pip brings CMake" in rest[0]
    assert "  sudo dnf install gcc-c++" in rest
    assert not any("apt-get" in line for line in rest)
    assert any("https://abetlen.github.io/llama-cpp-python/whl/cpu" in line for line in rest)
    assert "make demo LLAMA_WHEEL=cpu" in rest[-1]
    assert not (checkout / ".venv").exists()


def test_a_compiler_that_fails_is_no_compiler(checkout: Path) -> None:
    """A Mac without its developer tools has such ones. A C compiler alone is not enough either."""
    output = run_setup(checkout, cc="exit 0", **{"c++": "exit 1"}, apt_get="exit 0")
    assert "  sudo apt-get install g++" in output


def test_a_full_disk_is_reported_before_anything_is_installed(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=700_000_000))
    monkeypatch.setenv("LLAMA_WHEEL", "cpu")
    with pytest.raises(
        setup.SetupError, match=r"2\.0 GB are needed on the disk of .*, which has 0\.7 GB free"
    ):
        setup.install()
    assert "compiles nothing" in capsys.readouterr().err


def test_a_prebuilt_wheel_needs_no_compiler(
    no_compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_WHEEL", "cu124")
    assert not setup.must_compile(LLAMA_REQUIREMENT)
    (job,) = setup.llama(LLAMA_REQUIREMENT)
    job.process.wait()
    assert f"--only-binary :all: --no-deps --index-url {setup.WHEEL_INDEX}cu124" in job.text()
    assert f" llama-cpp-python=={LLAMA}\n" in job.text()
    job.end()


def test_a_wheel_that_we_built_before_is_taken_from_the_cache_but_none_of_another_build(
    no_compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another source or other flags have to be compiled."""
    setup.WHEELS.mkdir()
    (setup.WHEELS / "llama_cpp_python.whl").write_text("built")
    setup.keep(LLAMA_REQUIREMENT)
    assert setup.llama(LLAMA_REQUIREMENT) == []
    assert [wheel.read_text() for wheel in setup.WHEELS.iterdir()] == ["built"]
    with pytest.raises(setup.SetupError, match=r"no C and C\+\+ compiler"):
        setup.llama(LLAMA_REQUIREMENT + "#")
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_CUDA=on")
    with pytest.raises(setup.SetupError, match=r"no C and C\+\+ compiler"):
        setup.llama(LLAMA_REQUIREMENT)


def test_parts_that_nothing_loads_are_left_out_of_the_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CMake is told to leave parts out, and then what the user wants.

    The path of the file may hold a space.
    """
    monkeypatch.setattr(setup, "ROOT", tmp_path / "a b")
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_CUDA=on")
    included = f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={tmp_path.as_posix()}/a b/scripts/llama.cmake"
    assert shlex.split(setup.build_flags()) == ["-DLLAVA_BUILD=OFF", included, "-DGGML_CUDA=on"]


def test_a_wheel_the_user_installed_is_taken(checkout: Path) -> None:
    (checkout / f".venv/lib/python3.11/site-packages/llama_cpp_python-{LLAMA}.dist-info").mkdir(
        parents=True
    )
    assert setup.llama(LLAMA_REQUIREMENT) == []


def test_an_import_of_jsonschema_reads_no_grammars() -> None:
    """Those of rfc3987-syntax take two seconds, and every server of tools imports jsonschema."""
    code = "import sys, jsonschema; print('lark' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def test_a_python_that_is_too_old_gets_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(setup.SetupError, match=r"Python 3\.11 or newer is needed, this is 3\.9"):
        setup.require_python()


def test_nothing_is_done_when_nothing_changed(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / ".venv/setup.json").write_text(
        f'{{"done": "{setup.fingerprint((checkout / "requirements.lock").read_text())}", '
        '"flags": '
        '""}'
    )
    setup.install()
    assert (capsys.readouterr().err, [path.name for path in (checkout / ".venv").iterdir()]) == (
        "",
        ["setup.json"],
    )


def test_what_decides_the_installation_changes_its_fingerprint(checkout: Path) -> None:
    before = setup.fingerprint(LOCK)
    project = checkout / "pyproject.toml"
    project.write_text(project.read_text().replace("line-length = 120", "line-length = 100"))
    assert setup.fingerprint(LOCK) == before != setup.fingerprint(LOCK + "#")
    project.write_text(project.read_text().replace("rich>=14", "rich>=15"))
    assert setup.fingerprint(LOCK) != before


MAX_WHEEL_BYTES = 36_000_000
"""What the package may take: 28 MB without the packed adapter of a planner, which has 6."""


def built(directory: Path, how: str) -> list[str]:
    """The names of the files in a wheel that is built here, which keeps to its bound of bytes.

    Those of its data begin with `share/`.
    """
    code = f"from hatchling.build import {how}; print({how}({str(directory)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    path = directory / done.stdout.split()[-1]
    if how == "build_wheel":
        assert path.stat().st_size <= MAX_WHEEL_BYTES
    with ZipFile(path) as wheel:
        return [re.sub(r"^[^/]+\.data/data/", "", name) for name in wheel.namelist()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    return set(built(tmp_path_factory.mktemp("wheel"), "build_wheel"))


def test_tables_and_small_models_are_in_the_package(wheel: set[str]) -> None:
    beside = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").rglob("*")
        if path.suffix in {".toml", ".json", ".jsonl", ".xz", ".gguf", ".j2", ".conf"}
    }
    assert {
        "models/presets.toml",
        "models/cards.toml",
        "models/weights/registry.toml",
        "rehearsal/held_out.jsonl.xz",
        "templates/run.html.j2",
    } <= {name.removeprefix("conductor_cli/") for name in beside}
    assert beside <= wheel


def test_man_pages_are_installed_by_section(wheel: set[str]) -> None:
    wanted = {f"share/{page.relative_to(ROOT)}" for page in (ROOT / "man").glob("*/*")}
    assert {"share/man/man1/conductor.1", "share/man/man5/conductor-config.5"} <= wanted
    assert {name for name in wheel if name.startswith("share/man/")} == wanted


def test_completions_are_installed_for_shells_and_in_the_package(wheel: set[str]) -> None:
    assert {
        "share/bash-completion/completions/conductor",
        "share/zsh/site-functions/_conductor",
        "share/fish/vendor_completions.d/conductor.fish",
        "share/conductor-llm/completions/conductor.ps1",
    } == {name for name in wheel if name.startswith("share/") and not name.startswith("share/man/")}
    assert {
        f"conductor_cli/completions/conductor.{end}" for end in ("bash", "zsh", "fish", "ps1")
    } <= wheel
