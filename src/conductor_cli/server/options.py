"""What a server was started with. It is read before anything that a run needs is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from conductor_cli.config.settings import Settings, load_settings
from conductor_cli.server.siblings import Siblings


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """What a server was started with, which holds for each call.

    `flags` are settings by name, from the command line; `config` is the settings file; `workers`
    are the only ones. `siblings` leads to the other processes of the server, where it has several.
    """

    flags: Mapping[str, Any]
    config: str | None = None
    workers: tuple[str, ...] = ()
    rehearsal: bool = False
    stores_traces: bool = True
    seed: int | None = None
    siblings: Siblings | None = None

    def settings(self) -> Settings:
        """Return the settings as they are at the start. Raises `ConfigError`."""
        return replace(load_settings(os.environ, self.flags, self.config), rehearsal=self.rehearsal)
