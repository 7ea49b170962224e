"""A project's own file, `.conductor.toml`. It comes with the files of others, so it can only narrow.

Every one counts that lies between the working directory and the top of its repository, or else the home directory; in
neither, the one of the working directory. It may say who is not to be asked or shown something, and lower limits.
Where a worker is, which key is sent and which model plans, it may not say.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from conductor_cli.config.files import Source, read_toml
from conductor_cli.config.schema import SETTINGS_BY_NAME, Setting
from conductor_cli.core.errors import ConfigError
from conductor_cli.core.sanitize import one_line

NAME: Final = ".conductor.toml"
LARGEST: Final = 1 << 20
"""Bytes of such a file; more is a mistake, or worse."""

RULES: Final = frozenset({"names", "groups", "yes-no"})
"""The types of settings that can be narrowed by adding to them."""

SWITCH: Final = "policy.project"
"""The setting that has these files left alone."""


def project_files(directory: Path | None = None) -> tuple[Source, ...]:
    """The project files that count in `directory`, the working directory if None, outermost first.

    Raises `ConfigError` for one that cannot be read.
    """
    try:
        here = Path.cwd() if directory is None else directory
    except OSError:  # the working directory is gone
        return ()
    found = [place / NAME for place in _places(here) if _size(place / NAME) >= 0]
    large = next((path for path in found if _size(path) > LARGEST), None)
    if large is not None:
        raise ConfigError(f"{large} is larger than {LARGEST >> 20} MiB", hint="a project file holds a few lines")
    return tuple(read_toml(path) for path in reversed(found))


def _size(path: Path) -> int:
    """The bytes of a file, -1 where there is none: not a pipe either, which would be waited for."""
    try:
        return path.stat().st_size if path.is_file() else -1
    except OSError:  # a directory that may not be looked into
        return -1


def _places(here: Path) -> list[Path]:
    """The directories that count, innermost first."""
    homes = _homes()
    passed: list[Path] = []
    for place in (here, *here.parents):
        if place in homes:
            return passed
        passed.append(place)
        with suppress(OSError):
            if (place / ".git").exists():
                return passed
    return [here]


def _homes() -> tuple[Path, ...]:
    """The home directory, as it is called and as it is."""
    try:
        return (Path.home(), Path.home().resolve())
    except (RuntimeError, OSError):  # nobody's
        return ()


def apply_project_file(values: dict[str, Any], origins: dict[str, str], source: Source) -> tuple[str, ...]:
    """Narrow settings by a project file; the names of those that it changed.

    Raises `ConfigError` with file, line and name for what such a file may not say.
    """
    changed = []
    for section, content in source.values.items():
        if not isinstance(content, Mapping):
            raise _refused(source, section, "", "")
        for key, value in content.items():
            item = SETTINGS_BY_NAME.get(f"{section}.{key}")
            if item is None or not may_narrow(item):
                raise _refused(source, section, key, f".{key}")
            try:
                new = item.check(value)
            except ConfigError as error:
                raise ConfigError(f"{source.where(section, key)}: {error.message}", hint="mend the line") from None
            if new is False:
                raise _refused(source, section, key, f".{key} = false")
            if narrow(values, origins, item, new, str(source.path)):
                changed.append(item.name)
    return tuple(changed)


def _refused(source: Source, section: str, key: str, rest: str) -> ConfigError:
    rules = ", ".join(item.name for item in SETTINGS_BY_NAME.values() if may_narrow(item) and item.type in RULES)
    name = one_line(f"{section}{rest}")
    return ConfigError(
        f"{source.where(section, key)}: a project file can only narrow, and {name:.80} is not for it to set",
        hint=f"it may lower limits and set {rules}\nyour own settings belong in your own file: conductor config path",
    )


def may_narrow(item: Setting) -> bool:
    """Whether a project file may speak of a setting: rules and limits, and nothing else."""
    rule = item.name.startswith("policy.") and item.type in RULES and item.name != SWITCH
    return rule or item.name.startswith("limits.")


def narrow(values: dict[str, Any], origins: dict[str, str], item: Setting, new: Any, origin: str) -> bool:  # noqa: ANN401 - any TOML value
    """Let `new` hold beside the value that a setting has, and say where both come from. Whether it changed anything."""
    old = values[item.name]
    both = _both(item, old, new)
    if both == old:
        return False
    alone = both == new or origins[item.name] == "default"
    values[item.name] = both
    origins[item.name] = origin if alone else f"{origins[item.name]}; {origin}"
    return True


def _both(item: Setting, old: Any, new: Any) -> Any:  # noqa: ANN401 - any TOML value
    if item.type in ("names", "groups"):
        return tuple(dict.fromkeys((*old, *new)))
    if item.type == "yes-no":
        return old or new
    return new if old is None else min(old, new)
