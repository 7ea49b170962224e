"""A project's own file, `.conductor.toml`.

It comes with somebody else's files, so it can only narrow the settings.

Each such file from the working directory up to the top of its repository counts, or up to the home
directory; outside of both, only the one in the working directory. It may restrict workers and lower
limits. It may not say where a worker is, which key is sent, or which model plans.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from conductor_cli.config.files import Source, read_toml
from conductor_cli.config.schema import SETTINGS_BY_NAME, Setting, present_name
from conductor_cli.core.errors import ConfigError
from conductor_cli.core.terminal_text import one_line

NAME: Final = ".conductor.toml"
MAX_PROJECT_BYTES: Final = 16 << 10
"""Bytes of all such files together; more is a mistake or an attack, and each name is compared with
each worker.
"""

# The types of settings that are narrowed by adding to them
RULES: Final = frozenset({"names", "groups", "yes-no"})

SWITCH: Final = "policy.project"  # the setting that makes conductor ignore these files


def project_files(directory: Path | None = None) -> tuple[Source, ...]:
    """The project files that count in `directory` (None: the working directory), outermost first.

    Raises `ConfigError` for one that cannot be read.
    """
    files = list[Source]()
    room = MAX_PROJECT_BYTES
    for path in project_places(directory):
        size = -1
        with suppress(OSError):  # a directory without permission
            if path.is_file():  # a pipe would be waited for
                size = path.stat().st_size
        room -= max(0, size)
        if room < 0:
            subject = f"{path} is"
            if files:
                subject = f"{path} and those around it are"
            message = f"{subject} larger than {MAX_PROJECT_BYTES >> 10} KiB"
            raise ConfigError(message, hint="a project file holds a few lines")
        if size >= 0:
            files.append(read_toml(path))
    return tuple(files)


def project_places(directory: Path | None = None) -> tuple[Path, ...]:
    """Return where a project file would count in a directory, outermost first.

    None means the working directory.
    """
    return tuple(map(Path, project_paths(None if directory is None else str(directory))))


def project_paths(directory: str | None = None) -> tuple[str, ...]:
    """Return the same as texts, which a server asks for at each request."""
    try:
        here = directory or os.getcwd()  # noqa: PTH109 - several times as fast as Path.cwd
    except OSError:  # the working directory was deleted
        return ()
    home = os.path.expanduser("~")  # noqa: PTH111 - it stays "~" for a user without one
    homes = (home, _resolve_home(home))
    # Walk up to the repository's top or to the home directory. Where neither is met, the
    # directories above may be writable by others (such as /tmp), so their files do not count.
    passed: list[str] = []
    parent = here
    while parent not in homes:
        passed.append(parent)
        if os.path.exists(os.path.join(parent, ".git")):  # noqa: PTH110, PTH118 - as above
            break
        above = os.path.dirname(parent)  # noqa: PTH120
        if above == parent:
            passed = [here]
            break
        parent = above
    return tuple(os.path.join(parent, NAME) for parent in reversed(passed))  # noqa: PTH118


@lru_cache(maxsize=4)
def _resolve_home(home: str) -> str:
    """Return the home directory without links, which stay as they are while a process lives."""
    return os.path.realpath(home)


def apply_project_file(
    values: dict[str, Any], origins: dict[str, str], source: Source
) -> tuple[str, ...]:
    """Narrow settings by a project file; returns the names of those that it changed.

    Raises `ConfigError` with file, line and name for a setting that such a file may not have.
    """
    changed = []
    for section, content in source.values.items():
        if not isinstance(content, Mapping):
            raise _forbidden(source, section, "", "")
        for key, value in content.items():
            item = SETTINGS_BY_NAME.get(present_name(f"{section}.{key}"))
            if item is None or not may_narrow(item):
                raise _forbidden(source, section, key, f".{key}")
            try:
                checked = item.check(value)
            except ConfigError as error:
                raise ConfigError(
                    f"{source.where(section, key)}: {error.message}", hint="fix the line"
                ) from None
            # A rule that is switched off would widen what the user allows.
            if checked is False:
                raise _forbidden(source, section, key, f".{key} = false")
            if narrow(values, origins, item, checked, str(source.path)):
                changed.append(item.name)
    return tuple(changed)


def _forbidden(source: Source, section: str, key: str, rest: str) -> ConfigError:
    name = one_line(f"{section}{rest}")
    return ConfigError(
        f"{source.where(section, key)}: a project file can only narrow settings, so it cannot "
        f"set {name:.80}",
        hint="it may lower [limits] and add rules to [policy]; your own settings belong in: "
        "conductor config show",
    )


def may_narrow(item: Setting) -> bool:
    """Return whether a project file may have this setting: rules and limits, and nothing else."""
    rule = item.name.startswith("policy.") and item.type in RULES and item.name != SWITCH
    return rule or item.name.startswith("limits.")


def narrow(
    values: dict[str, Any],
    origins: dict[str, str],
    item: Setting,
    added: Any,  # noqa: ANN401
    origin: str,
) -> bool:
    """Make `added` apply in addition to the value of a setting, and note where both come from.

    True if it changed.

    Lists of workers grow, a switch stays on, a limit takes the lower value.
    """
    before = values[item.name]
    if item.type in ("names", "groups"):
        both = tuple(dict.fromkeys((*before, *added)))
    elif item.type == "yes-no":
        both = before or added
    else:
        both = added
        if before is not None:
            both = min(before, added)
    if both == before:
        return False
    values[item.name] = both
    if both == added or origins[item.name] == "default":
        origins[item.name] = origin
    else:  # both contribute to the value
        origins[item.name] = f"{origins[item.name]}; {origin}"
    return True
