#!/usr/bin/env python3
"""Set this checkout up.

A virtual environment in .venv with everything that requirements.lock names.

This script uses the standard library only and runs under an older Python, so that it can say what
is missing. The long part is compiling llama.cpp (minutes), which happens during the downloads and
shows its progress. When nothing has changed since the last call, the script ends at once. The log
is .venv/setup.log. The compiled wheel is cached in ~/.cache/conductor-llm for the next checkout.

Environment: CC and CXX name the compilers; CMAKE_ARGS is passed to the build of llama.cpp
(`-DGGML_CUDA=on`). LLAMA_WHEEL=cpu compiles nothing: a wheel comes from the index of
llama-cpp-python (also `metal`, `cu124` and others).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOG = VENV / "setup.log"
STAMP = VENV / "setup.json"
WHEELS = VENV / "wheels"
LLAMA = "llama-cpp-python"
TOOLS = (
    "pip",
    "hatchling",
    "scikit-build-core",
    "cmake",
    "ninja",
    "packaging",
    "pathspec",
    "pluggy",
    "tomlkit",
    "trove-classifiers",
)
"""The build tools. The lock file pins these too, so nothing is built by an unpinned tool."""

SLOW = ("rfc3987-syntax", "lark")
"""What a development tool asks for and nothing here needs. jsonschema imports it wherever it is
installed, which takes two seconds in each process. The lock file leaves it out; what an earlier
one has installed is removed.
"""

BEGAN = time.monotonic()
EVERY = 15.0  # seconds between two progress lines when stderr is not a terminal
DISK = 2_000_000_000  # bytes that the environment and the build of llama.cpp need
WHEEL_INDEX = "https://abetlen.github.io/llama-cpp-python/whl/"

COMPILERS = {
    "apt-get": "sudo apt-get install g++",
    "dnf": "sudo dnf install gcc-c++",
    "zypper": "sudo zypper install gcc-c++",
    "pacman": "sudo pacman -S gcc",
    "apk": "sudo apk add g++",
    "brew": "brew install gcc",
}
"""What installs a C and a C++ compiler, by the package manager that a system has."""

NO_COMPILER = """\
no C and C++ compiler was found, and llama.cpp has to be compiled. Nothing was installed. Install \
a compiler:
{install}
or compile nothing and take the prebuilt wheel from {index}{wheel}:
  make demo LLAMA_WHEEL={wheel}      (for NVIDIA GPUs: cu124 and others)"""

NO_VENV = """\
this Python cannot create virtual environments: its module `ensurepip` is missing.
  Debian, Ubuntu: apt-get install python3-venv"""


class SetupError(Exception):
    """Something is missing or went wrong; the message says what to do."""


class Job:
    """A running command with its own log file."""

    def __init__(self, name: str, command: list[str], total: int = 0, **variables: str) -> None:
        self.name = name
        self.total = total
        self.variables = variables
        self.log = VENV / f"setup-{name}.log"
        pip_quiet = {"PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **pip_quiet, **variables}
        with self.log.open("w", encoding="utf-8") as log:
            log.write("$ " + " ".join(command) + "\n")
            log.flush()
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def progress(self) -> str:
        done = self.process.poll() is not None
        return f"{self.name}: {'done' if done else progress(self.text(), self.total)}"

    def end(self) -> None:
        """Stop the command and its compilers if they still run, and append its log to ours."""
        if self.process.poll() is None and os.name == "posix":
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.terminate()
        self.process.wait()
        with LOG.open("a", encoding="utf-8") as log:
            log.write(self.text())
        self.log.unlink()


def progress(log: str, total: int = 0) -> str:
    """The progress according to pip's output. `total` is the number of packages to download."""
    compiled = re.findall(r"^\s*\[(\d+)/(\d+)\] ", log, re.MULTILINE)
    if compiled:
        return "compiling, {} of {}".format(*compiled[-1])
    if "Installing collected packages" in log:
        return "installing"
    fetched = len(
        re.findall(r"^(?:Collecting|Processing|Requirement already satisfied:) ", log, re.MULTILINE)
    )
    return f"fetching, {fetched} of {total}" if fetched and total else "fetching"


def watch(*jobs: Job) -> None:
    """Wait for all jobs and show their progress. Raises `SetupError` as soon as one fails."""
    spoken = time.monotonic()
    try:
        while all(job.process.poll() in (None, 0) for job in jobs) and any(
            job.process.poll() is None for job in jobs
        ):
            spoken = show(jobs, spoken)
            time.sleep(0.25)
        failed = next((job for job in jobs if job.process.poll()), None)
        tail = [line for line in failed.text().splitlines() if line.strip()][-25:] if failed else []
    finally:
        for job in jobs:
            job.end()
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
    if failed:
        shown = "\n".join("  | " + line for line in tail)
        log_path = LOG.relative_to(ROOT)
        raise SetupError(
            f"{failed.name} failed. Its last lines follow; the full log is {log_path}:\n{shown}"
        )


def show(jobs: tuple[Job, ...], spoken: float) -> float:
    """Show the progress: always on a terminal, else every EVERY seconds.

    Returns when it was last shown.
    """
    now = time.monotonic()
    elapsed = int(now - BEGAN)
    line = f"setup {elapsed // 60}:{elapsed % 60:02d}  " + "  ".join(job.progress() for job in jobs)
    if sys.stderr.isatty():
        print(
            "\r\033[K" + line[: shutil.get_terminal_size().columns - 1],
            end="",
            file=sys.stderr,
            flush=True,
        )
    elif now - spoken >= EVERY:
        print(line, file=sys.stderr, flush=True)
    else:
        return spoken
    return now


def requirements(lock: str) -> dict[str, str]:
    """The blocks of a lock file by package name; two versions of one package share a block."""
    blocks: dict[str, str] = {}
    for block in re.findall(r"^[A-Za-z0-9].*(?:\n[ \t]+.*)*", lock, re.MULTILINE):
        name = re.split(r"[=\[ ;]", block, maxsplit=1)[0]
        blocks[name] = blocks.get(name, "") + block + "\n"
    return blocks


def fingerprint(lock: str) -> str:
    """A hash of all that decides what is installed.

    Lock file, our metadata, Python, path of the checkout.
    """
    import tomllib  # Python 3.11

    ours = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    parts = [
        ours["build-system"],
        ours["project"],
        ours["tool"]["hatch"],
        sys.version,
        str(ROOT),
        lock,
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def last_time() -> dict[str, str]:
    """The record of the last complete installation, or an empty one."""
    try:
        stamp: dict[str, str] = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp


def python() -> str:
    """The environment's Python."""
    return str(VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))


def pip(*arguments: str) -> list[str]:
    """The command line of the environment's pip."""
    return [python(), "-m", "pip", *arguments]


def locked(name: str, blocks: dict[str, str], names: list[str]) -> list[str]:
    """Arguments for pip that install `names` exactly as the lock file pins them."""
    path = VENV / f"setup-{name}.txt"
    path.write_text("".join(blocks[package] for package in names), encoding="utf-8")
    return ["--require-hashes", "--no-deps", "-r", str(path)]


def require_python() -> None:
    """Restart under a Python that is new enough. Raises `SetupError` when there is none."""
    if sys.version_info < (3, 11):  # noqa: UP036 - an older Python gets a clear error
        for minor in range(14, 10, -1):
            other = shutil.which(f"python3.{minor}")
            if other and subprocess.call([other, "-c", ""], stderr=subprocess.DEVNULL) == 0:
                os.execv(other, [other, *sys.argv])  # noqa: S606 - the same script again
        running = ".".join(map(str, sys.version_info[:2]))
        raise SetupError(
            f"Python 3.11 or newer is needed, this is {running}. Name one: make setup "
            "PYTHON=python3.12"
        )
    if importlib.util.find_spec("ensurepip") is None:
        raise SetupError(NO_VENV)


def make_venv() -> None:
    """Create the virtual environment, unless there already is one of this Python at this path."""
    same = last_time().get("python") == sys.version and last_time().get("root") == str(ROOT)
    if same and Path(python()).exists():
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
    STAMP.write_text(json.dumps({"python": sys.version, "root": str(ROOT)}), encoding="utf-8")


def require_compiler() -> None:
    """Raise `SetupError` with what installs a compiler on this system when there is none."""
    if os.name != "posix" or (
        works("CC", "cc", "gcc", "clang") and works("CXX", "c++", "g++", "clang++")
    ):
        return
    mac = sys.platform == "darwin"
    managers = [command for name, command in COMPILERS.items() if shutil.which(name)]
    commands = ["xcode-select --install"] if mac else managers[:1] or list(COMPILERS.values())
    install = "\n".join(f"  {command}" for command in commands)
    raise SetupError(
        NO_COMPILER.format(install=install, index=WHEEL_INDEX, wheel="metal" if mac else "cpu")
    )


def works(variable: str, *usual: str) -> bool:
    """Whether the compiler that a variable names, or else one of the usual names, can be run."""
    for name in (*os.environ.get(variable, "").split()[:1], *usual):
        path = shutil.which(name)
        # On a Mac without its developer tools the compilers are there, and fail.
        if (
            path
            and subprocess.run([path, "--version"], capture_output=True, check=False).returncode
            == 0
        ):
            return True
    return False


def must_compile(block: str) -> bool:
    """Whether no wheel of llama-cpp-python is there: installed, chosen, or in a cache."""
    return not (wheel_kind() or is_installed(block) or any(wheel_cache(block).glob("*.whl")))


def wheel_kind() -> str:
    """Which prebuilt wheel is wanted, now or the last time; empty to compile."""
    return os.environ.get("LLAMA_WHEEL") or last_time().get("wheel", "")


def is_installed(block: str) -> bool:
    """Whether the locked version of llama-cpp-python is installed, of the build that is wanted."""
    flags = os.environ.get("CMAKE_ARGS", "")
    same = flags in ("", last_time().get("flags", "")) and wheel_kind() == last_time().get(
        "wheel", ""
    )
    directories = [*VENV.glob("lib/python3*/site-packages"), VENV / "Lib" / "site-packages"]
    info = f"{LLAMA.replace('-', '_')}-{locked_version(block)}.dist-info"
    return same and any((directory / info).exists() for directory in directories)


def locked_version(block: str) -> str:
    """The version that a block of the lock file names."""
    return block.partition("==")[2].split()[0]


def build_flags() -> str:
    """Flags for CMake.

    Leave out the parts that nothing here loads (half of the work), then the user's flags.
    """
    included = shlex.quote((ROOT / "scripts/llama.cmake").as_posix())
    ours = f"-DLLAVA_BUILD=OFF -DCMAKE_PROJECT_llama.cpp_INCLUDE={included}"
    return f"{ours} {os.environ.get('CMAKE_ARGS', '')}".strip()


def wheel_cache(block: str) -> Path:
    """The directory of the compiled wheel for the next checkout.

    By its source, its flags and this processor.

    It is not in pip's own cache, because another project would then get a wheel with parts left
    out.
    """
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    features = sorted({line for line in lines if line.startswith(("flags", "Features"))})
    recipe = (ROOT / "scripts/llama.cmake").read_text(encoding="utf-8")
    parts = [
        block,
        recipe,
        os.environ.get("CMAKE_ARGS", ""),
        sys.platform,
        platform.machine(),
        *features,
    ]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "conductor-llm" / "wheels" / key


def llama(block: str) -> list[Job]:
    """The job that puts the wheel of llama-cpp-python into WHEELS.

    None if it is cached or installed already.
    """
    shutil.rmtree(WHEELS, ignore_errors=True)
    if is_installed(block):
        return []
    if kind := wheel_kind():
        # These wheels are not on PyPI, so the lock file has no hash of them.
        source = ["--only-binary", ":all:", "--no-deps", "--index-url", WHEEL_INDEX + kind]
        wanted = f"{LLAMA}=={locked_version(block)}"
        return [Job("llama.cpp", pip("wheel", "--wheel-dir", str(WHEELS), *source, wanted))]
    cached = list(wheel_cache(block).glob("*.whl"))
    if cached:
        WHEELS.mkdir()
        shutil.copy(cached[0], WHEELS)
        return []
    require_compiler()  # once more: what was installed may have been for another Python
    wheel = pip("wheel", "-v", "--no-build-isolation", "--no-cache-dir", "--wheel-dir", str(WHEELS))
    pinned = locked("llama", {LLAMA: block}, [LLAMA])
    return [Job("llama.cpp", [*wheel, *pinned], CMAKE_ARGS=build_flags())]


def keep(block: str) -> None:
    """Cache a wheel that was just built. A cache that cannot be written is ignored."""
    directory = wheel_cache(block)
    built = list(WHEELS.glob("*.whl"))
    if built and not directory.exists():
        with contextlib.suppress(OSError):
            directory.mkdir(parents=True)
            shutil.copy(built[0], directory)


def install() -> None:
    """Install everything that is missing."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    wanted = fingerprint(lock)
    flags = os.environ.get("CMAKE_ARGS") or last_time().get("flags", "")
    last = last_time()
    kind = wheel_kind()
    if (last.get("done"), last.get("flags"), last.get("wheel", "")) == (wanted, flags, kind):
        return
    blocks = requirements(lock)
    compiles = must_compile(blocks[LLAMA])
    free = shutil.disk_usage(ROOT).free
    needs = f"{DISK / 1e9:.1f} GB of disk ({free / 1e9:.0f} GB free) and a network"
    if compiles:
        needs = (
            f"a C++ compiler, {needs}.\nsetup: compiling llama.cpp takes some minutes, once; "
            "pip brings CMake"
        )
    else:
        needs = f"{needs}, and compiles nothing"
    print(f"setup: installing into .venv; this needs {needs}", file=sys.stderr)
    if compiles:
        require_compiler()
    if free < DISK and not Path(python()).exists():
        raise SetupError(
            f"{DISK / 1e9:.1f} GB are needed on the disk of {ROOT}, which has {free / 1e9:.1f} "
            "GB "
            "free"
        )
    make_venv()
    LOG.unlink(missing_ok=True)
    packages = [name for name in blocks if name not in {*TOOLS, LLAMA}]
    watch(Job("tools", pip("install", *locked("tools", blocks, list(TOOLS))), len(TOOLS)))
    build = llama(blocks[LLAMA])
    watch(
        *build,
        Job("packages", pip("install", *locked("packages", blocks, packages)), len(packages)),
    )
    watch(Job("removal", pip("uninstall", "--yes", *SLOW)))
    if any(job.variables for job in build):
        keep(blocks[LLAMA])
    ours = ["--no-build-isolation", "--editable", str(ROOT)]
    built = [str(wheel) for wheel in WHEELS.glob("*.whl")]
    watch(Job("conductor", pip("install", "--no-deps", "--force-reinstall", *built, *ours)))
    shutil.rmtree(WHEELS, ignore_errors=True)
    done = {"done": wanted, "flags": flags, "wheel": kind, "python": sys.version, "root": str(ROOT)}
    STAMP.write_text(json.dumps(done), encoding="utf-8")
    print(f"setup: done in {time.monotonic() - BEGAN:.0f} s", file=sys.stderr)


def main() -> int:
    """Run the set-up. Returns the exit code: 0, 1 with an error message, or 130 after Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        require_python()
        install()
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("setup: interrupted; the next call continues", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
