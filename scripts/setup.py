#!/usr/bin/env python3
"""Set this checkout up: a virtual environment in .venv with everything that requirements.lock names.

Standard library only, and readable for an older Python, so that it can say what is missing. The one long part is
llama.cpp, which llama-cpp-python compiles (minutes): it runs beside the downloads and shows how far it is. When nothing
has changed since the last call there is nothing to do, and it ends at once. The log is .venv/setup.log; the wheel that
was built is kept in ~/.cache/conductor-llm for the next checkout.

Environment: CXX names the compiler; CMAKE_ARGS goes to the build of llama.cpp (`-DGGML_CUDA=on`).
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
    "pip", "hatchling", "scikit-build-core", "cmake", "ninja", "packaging", "pathspec", "pluggy", "tomlkit",
    "trove-classifiers",
)  # fmt: skip
"""What builds wheels, with all it needs itself. The lock holds these too, so nothing is built by unpinned tools."""

BEGAN = time.monotonic()
EVERY = 15.0
"""Seconds between two lines where there is no terminal to keep one line on."""

NO_COMPILER = """\
there is no C++ compiler, and llama.cpp has to be compiled. Install one and call this again:
  Debian, Ubuntu: apt-get install g++   Fedora: dnf install gcc-c++   macOS: xcode-select --install
or take a ready wheel from the index of llama-cpp-python, and call this again:
  {pip} install {llama}=={version} --extra-index-url https://abetlen.github.io/llama-cpp-python/whl/cpu
  (whl/metal on a Mac; whl/cu121 and others for CUDA)"""

NO_VENV = """\
this Python makes no virtual environments: its module `ensurepip` is missing.
  Debian, Ubuntu: apt-get install python3-venv"""


class SetupError(Exception):
    """Something is missing or went wrong; the message says what to do."""


class Job:
    """A command at work, its output in a log of its own."""

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
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def progress(self) -> str:
        """Its name and how far it is."""
        done = self.process.poll() is not None
        return f"{self.name}: {'done' if done else progress(self.text(), self.total)}"

    def end(self) -> None:
        """Stop it, with the compilers below it, where it still runs; move its log to the end of the whole one."""
        if self.process.poll() is None and os.name == "posix":
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.terminate()
        self.process.wait()
        with LOG.open("a", encoding="utf-8") as log:
            log.write(self.text())
        self.log.unlink()


def progress(log: str, total: int = 0) -> str:
    """What pip's output says of how far it is. `total` is the number of packages to fetch."""
    compiled = re.findall(r"^\s*\[(\d+)/(\d+)\] ", log, re.MULTILINE)
    if compiled:
        return "compiling, {} of {}".format(*compiled[-1])
    if "Installing collected packages" in log:
        return "installing"
    fetched = len(re.findall(r"^(?:Collecting|Processing|Requirement already satisfied:) ", log, re.MULTILINE))
    return f"fetching, {fetched} of {total}" if fetched and total else "fetching"


def watch(*jobs: Job) -> None:
    """Wait for all of them, and show that they live. Raises `SetupError` as soon as one fails."""
    spoken = time.monotonic()
    try:
        while all(job.process.poll() in (None, 0) for job in jobs) and any(job.process.poll() is None for job in jobs):
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
        raise SetupError(f"{failed.name} failed. Its last words, all of them are in {LOG.relative_to(ROOT)}:\n{shown}")


def show(jobs: tuple[Job, ...], spoken: float) -> float:
    """Show how far the jobs are: at once on a terminal, else when `spoken` is long ago. When it was last shown."""
    now = time.monotonic()
    elapsed = int(now - BEGAN)
    line = f"setup {elapsed // 60}:{elapsed % 60:02d}  " + "  ".join(job.progress() for job in jobs)
    if sys.stderr.isatty():
        print("\r\033[K" + line[: shutil.get_terminal_size().columns - 1], end="", file=sys.stderr, flush=True)
    elif now - spoken >= EVERY:
        print(line, file=sys.stderr, flush=True)
    else:
        return spoken
    return now


def requirements(lock: str) -> dict[str, str]:
    """The blocks of a lock file by the name of their package; where a name has two versions, both in one."""
    blocks: dict[str, str] = {}
    for block in re.findall(r"^[A-Za-z0-9].*(?:\n[ \t]+.*)*", lock, re.MULTILINE):
        name = re.split(r"[=\[ ;]", block, maxsplit=1)[0]
        blocks[name] = blocks.get(name, "") + block + "\n"
    return blocks


def fingerprint(lock: str) -> str:
    """What decides what is installed: the lock, our own metadata, the Python, and where the checkout stands."""
    import tomllib  # Python 3.11

    ours = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    parts = [ours["build-system"], ours["project"], ours["tool"]["hatch"], sys.version, str(ROOT), lock]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def last_time() -> dict[str, str]:
    """What the last complete call left, or nothing."""
    try:
        found: dict[str, str] = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def python() -> str:
    """The environment's Python."""
    return str(VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))


def pip(*arguments: str) -> list[str]:
    """A call of the environment's pip."""
    return [python(), "-m", "pip", *arguments]


def locked(name: str, blocks: dict[str, str], names: list[str]) -> list[str]:
    """The arguments by which pip takes `names` exactly as the lock has them."""
    path = VENV / f"setup-{name}.txt"
    path.write_text("".join(blocks[each] for each in names), encoding="utf-8")
    return ["--require-hashes", "--no-deps", "-r", str(path)]


def require_python() -> None:
    """Go on under a Python that is new enough, or say that there is none."""
    if sys.version_info < (3, 11):  # noqa: UP036 - an older one runs this to hear so
        for minor in range(14, 10, -1):
            other = shutil.which(f"python3.{minor}")
            if other and subprocess.call([other, "-c", ""], stderr=subprocess.DEVNULL) == 0:
                os.execv(other, [other, *sys.argv])  # noqa: S606 - the same script again
        running = ".".join(map(str, sys.version_info[:2]))
        raise SetupError(f"Python 3.11 or newer is needed, this is {running}. Name one: make setup PYTHON=python3.12")
    if importlib.util.find_spec("ensurepip") is None:
        raise SetupError(NO_VENV)


def make_venv() -> None:
    """A virtual environment of this Python at this place, the one that stands if it is that."""
    same = last_time().get("python") == sys.version and last_time().get("root") == str(ROOT)
    if same and Path(python()).exists():
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
    STAMP.write_text(json.dumps({"python": sys.version, "root": str(ROOT)}), encoding="utf-8")


def installed(package: str, version: str) -> bool:
    """Whether this version is in the environment, wherever it came from."""
    places = [*VENV.glob("lib/python3*/site-packages"), VENV / "Lib" / "site-packages"]
    return any((place / f"{package.replace('-', '_')}-{version}.dist-info").exists() for place in places)


def require_compiler(version: str) -> None:
    """Say what to do where llama.cpp cannot be compiled."""
    named = os.environ.get("CXX", "").split()[:1]
    if os.name == "posix" and not any(shutil.which(name) for name in (*named, "c++", "g++", "clang++")):
        shown = Path(python()).relative_to(ROOT)
        raise SetupError(NO_COMPILER.format(pip=f"{shown} -m pip", llama=LLAMA, version=version))


def build_flags() -> str:
    """What CMake is told: to leave out what nothing here loads (half of the work), then what the user wants."""
    included = shlex.quote((ROOT / "scripts/llama.cmake").as_posix())
    ours = f"-DLLAVA_BUILD=OFF -DCMAKE_PROJECT_llama.cpp_INCLUDE={included}"
    return f"{ours} {os.environ.get('CMAKE_ARGS', '')}".strip()


def shelf(block: str) -> Path:
    """Where the wheel that we build is kept for the next checkout: by its source, its flags and this processor.

    Not in pip's own store, where another project would be handed it without the parts that are left out.
    """
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    features = sorted({line for line in lines if line.startswith(("flags", "Features"))})
    recipe = (ROOT / "scripts/llama.cmake").read_text(encoding="utf-8")
    parts = [block, recipe, os.environ.get("CMAKE_ARGS", ""), sys.platform, platform.machine(), *features]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "conductor-llm" / "wheels" / key


def llama(block: str) -> list[Job]:
    """The job that leaves the wheel of llama-cpp-python in WHEELS; none where it is there or needed no more."""
    version = block.partition("==")[2].split()[0]
    flags = os.environ.get("CMAKE_ARGS", "")
    shutil.rmtree(WHEELS, ignore_errors=True)
    if installed(LLAMA, version) and flags in ("", last_time().get("flags", "")):
        return []
    kept = list(shelf(block).glob("*.whl"))
    if kept:
        WHEELS.mkdir()
        shutil.copy(kept[0], WHEELS)
        return []
    wheel = pip("wheel", "-v", "--no-build-isolation", "--wheel-dir", str(WHEELS))
    wanted = locked("llama", {LLAMA: block}, [LLAMA])
    listed = subprocess.run(pip("cache", "list", LLAMA.replace("-", "_")), capture_output=True, text=True, check=False)
    if not flags and f"-{version}-" in listed.stdout:  # built for another project: more than we need, but there
        return [Job("llama.cpp", [*wheel, *wanted])]
    require_compiler(version)
    return [Job("llama.cpp", [*wheel, "--no-cache-dir", *wanted], CMAKE_ARGS=build_flags())]


def keep(block: str) -> None:
    """Put a wheel that was just built on the shelf; a shelf that cannot be written is done without."""
    place = shelf(block)
    built = list(WHEELS.glob("*.whl"))
    if built and not place.exists():
        with contextlib.suppress(OSError):
            place.mkdir(parents=True)
            shutil.copy(built[0], place)


def install() -> None:
    """Everything, from nothing or from what stands."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    wanted = fingerprint(lock)
    flags = os.environ.get("CMAKE_ARGS") or last_time().get("flags", "")
    if last_time().get("done") == wanted and last_time().get("flags") == flags:
        return
    print("setup: installing into .venv; compiling llama.cpp, once, takes some minutes", file=sys.stderr)
    make_venv()
    LOG.unlink(missing_ok=True)
    blocks = requirements(lock)
    rest = [name for name in blocks if name not in {*TOOLS, LLAMA}]
    watch(Job("tools", pip("install", *locked("tools", blocks, list(TOOLS))), len(TOOLS)))
    build = llama(blocks[LLAMA])
    watch(*build, Job("packages", pip("install", *locked("packages", blocks, rest)), len(rest)))
    if any(job.variables for job in build):
        keep(blocks[LLAMA])
    ours = ["--no-build-isolation", "--editable", str(ROOT)]
    built = [str(wheel) for wheel in WHEELS.glob("*.whl")]
    watch(Job("conductor", pip("install", "--no-deps", "--force-reinstall", *built, *ours)))
    shutil.rmtree(WHEELS, ignore_errors=True)
    done = {"done": wanted, "flags": flags, "python": sys.version, "root": str(ROOT)}
    STAMP.write_text(json.dumps(done), encoding="utf-8")
    print(f"setup: done in {time.monotonic() - BEGAN:.0f} s", file=sys.stderr)


def main() -> int:
    """Set up; 0, or 1 with a sentence on what to do, or 130 after Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        require_python()
        install()
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("setup: stopped; the next call goes on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
