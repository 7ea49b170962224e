"""Settings for a server: read again when a file that they come from has changed, and only then.

To read them takes a millisecond, which each request would wait for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Final

from conductor_cli.config.cards import cards_file
from conductor_cli.config.files import chosen_file
from conductor_cli.config.project import project_paths
from conductor_cli.config.settings import Settings, app_paths, load_settings

MAX_KEPT: Final = 64  # sets of flags whose settings are kept: one for each model that clients name

SETTLED_SECONDS: Final = 1.0
"""How old a file must be: of one that was just written, a second change may leave time and size as
they are.
"""

Stamp = tuple[int, ...]


class WatchedSettings:
    """The settings under one settings file and the environment as it is now."""

    def __init__(self, environ: Mapping[str, str], file: str | None = None) -> None:
        self._environ = dict(environ)
        self._file = file
        paths = app_paths(self._environ)
        self._files = (
            str(chosen_file(environ, file) or paths.user_file),
            str(paths.own_file),
            str(cards_file(paths)),
        )
        self._stamps: tuple[Stamp, ...] = ()
        self._kept: dict[str, Settings] = {}

    def load(self, flags: Mapping[str, Any], *, looks: bool = True) -> Settings:
        """Return the settings, as `load_settings` does. Raises `ConfigError`.

        Without `looks` the files are taken to be as they were at the last call.
        """
        if looks or not self._stamps:
            stamps = tuple(map(_stamp, (*self._files, *project_paths())))
            if stamps != self._stamps:
                self._kept.clear()
                self._stamps = stamps
        key = repr(sorted(flags.items()))
        settings = self._kept.get(key)
        if settings is None:
            settings = load_settings(self._environ, flags, self._file)
            newest = max(max(stamp[-2:]) for stamp in self._stamps)
            if len(self._kept) < MAX_KEPT and time.time_ns() - newest > SETTLED_SECONDS * 1e9:
                self._kept[key] = settings
        return settings


def _stamp(path: str) -> Stamp:
    """Return what changes when a file is written, replaced or removed.

    The last number is when it was written.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - several times as fast as Path.stat
    except OSError as error:
        return (error.errno or 0, 0)
    return (
        status.st_dev,
        status.st_ino,
        status.st_mode,
        status.st_size,
        status.st_ctime_ns,
        status.st_mtime_ns,
    )
