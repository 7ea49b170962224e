"""How this copy was installed, and the command that adds an extra to it.

`uv tool install` and `pipx install --force` replace what is there, so their commands name every
extra that is installed already.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "conductor-llm"
_REQUIREMENT: Final = re.compile(
    r"(?P<name>[\w.-]+).*;\s*extra\s*==\s*['\"](?P<extra>[\w-]+)['\"]$"
)
"""A package that an extra needs on every system, as the metadata of a distribution names it."""


def extra_command(extra: str) -> str:
    """Return the command that adds an extra to this installation and keeps all others."""
    extras = ",".join(sorted({*installed_extras(), extra}))
    if Path(sys.prefix, "uv-receipt.toml").exists():
        return f'uv tool install "{DISTRIBUTION}[{extras}]"'
    if Path(sys.prefix, "pipx_metadata.json").exists():
        return f'pipx install --force "{DISTRIBUTION}[{extras}]"'
    return f'{sys.executable} -m pip install "{DISTRIBUTION}[{extra}]"'


def installed_extras() -> tuple[str, ...]:
    """Return the extras whose packages are all installed."""
    packages: dict[str, list[str]] = {}
    for requirement in _requirements():
        match = _REQUIREMENT.match(requirement)
        if match is not None:
            packages.setdefault(match["extra"], []).append(match["name"])
    return tuple(extra for extra, names in packages.items() if all(map(_is_installed, names)))


def _requirements() -> list[str]:
    try:
        return metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:  # the source is run as it lies
        return []


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True
