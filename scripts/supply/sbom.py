"""`make sbom`.

A bill of materials (CycloneDX, JSON) of what the package needs where it is used, from the lock
file.

It holds the packages that the project's dependencies and its extras lead to, with the versions and
hashes of `requirements.lock`, for every system; tools of development are not in it. The extras
`train` and `ray` are in `requirements-train.lock` and in no bill: torch comes in a build of the
user's choice. The same lock gives the same bytes, so two bills can be compared.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any, Final

from scripts.setup import ROOT, requirements

NAME: Final = "conductor-llm"
LEFT_OUT: Final = {"train", "ray"}
_REQUIREMENT: Final = re.compile(r"^([\w.-]+)\s*(?:\[([^\]]*)\])?(.*)$")
_EXTRA: Final = re.compile(r"""extra\s*==\s*['"]([\w.-]+)['"]""")


def main(out: Path, *options: str) -> int:
    """Write the bill and say where it is. `options` are of cyclonedx-py."""
    blocks = requirements((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    used = needed(blocks)
    with tempfile.TemporaryDirectory() as directory:
        lock = Path(directory) / "requirements.txt"
        lock.write_text("".join(blocks[name] for name in used), encoding="utf-8")
        out.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements", str(lock)]
        command += [
            "--pyproject",
            str(ROOT / "pyproject.toml"),
            "--output-reproducible",
            "--of",
            "JSON",
            *options,
        ]
        command += ["--output-file", str(out)]
        subprocess.run(command, check=True)
    print(
        f"sbom: {len(used)} of {len(blocks)} packages of requirements.lock are in {out}",
        file=sys.stderr,
    )
    return 0


def project() -> dict[str, Any]:
    """Return what `pyproject.toml` says of the package."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    return table


def needed(blocks: Mapping[str, str]) -> list[str]:
    """The names in the lock file that the project leads to with its extras, on any system."""
    extras_by_name: dict[str, set[str]] = {}
    waiting = [(NAME, frozenset(project()["optional-dependencies"].keys() - LEFT_OUT))]
    while waiting:
        name, extras = waiting.pop()
        former = extras_by_name.get(name)
        if former is not None and extras <= former:
            continue
        extras_by_name[name] = (former or set()) | extras
        waiting += [need for need in leads_to(name, extras) if need[0] in blocks]
    return sorted(set(extras_by_name) - {NAME})


def leads_to(name: str, extras: Iterable[str]) -> Iterable[tuple[str, frozenset[str]]]:
    """What a package needs with these extras, each with the extras that are asked of it.

    Conditions on the system and on Python are left out. What is not installed here, as it is for
    another system, says nothing of what it needs.
    """
    lines: list[str] = []
    if name == NAME:  # not what is installed: that may be older
        lines = list(project()["dependencies"])
        for extra in extras:
            lines += project()["optional-dependencies"][extra]
    else:
        with suppress(PackageNotFoundError):
            lines = requires(name) or []
    for line in lines:
        named = _REQUIREMENT.match(line)
        condition = _EXTRA.findall(line)
        if named and (not condition or set(condition) & set(extras)):
            wanted = frozenset(part.strip() for part in (named[2] or "").split(",") if part.strip())
            yield re.sub(r"[-_.]+", "-", named[1]).lower(), wanted


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "dist/sbom.cdx.json"))
