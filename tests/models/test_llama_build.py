"""Which versions of llama-cpp-python are used: whatever is called of it is called in other tests, with the real one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conductor_cli.models.llama.bindings import RANGE, is_supported

HERE = Path(__file__).resolve().parents[2]

lib = pytest.importorskip("llama_cpp", reason="llama_cpp is not installed")


@pytest.mark.parametrize(
    ("version", "fits"),
    [
        ("0.3.36", True), ("0.3.37", True), ("0.3.36+cu124", True), ("0.3.36.post1", True),
        ("0.3.35", False), ("0.4.0", False), ("0.4", False), ("1.0.0", False), ("0.3", False), ("unknown", False),
    ],
)  # fmt: skip
def test_the_supported_versions_are_known(version: str, fits: bool) -> None:
    assert is_supported(version) is fits


def test_what_pyproject_asks_for_begins_where_the_range_does() -> None:
    assert f'"{RANGE.partition(",")[0]}' in (HERE / "pyproject.toml").read_text()


def test_an_unsupported_version_is_an_error_at_the_start() -> None:
    script = (
        "import llama_cpp; llama_cpp.__version__ = '0.4.1'\n"
        "from conductor_cli.models.llama.bindings import load_bindings\n"
        "from conductor_cli.core.errors import ModelError\n"
        "try: load_bindings()\n"
        "except ModelError as error: print(error.reason, error.message, error.hint, sep='|')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    reason, message, hint = done.stdout.strip().split("|")
    assert reason == "file"
    assert "version 0.4.1 of llama-cpp-python is not supported" in message
    assert RANGE in hint
