"""What hatchling asks while it builds the wheel: each man page goes into the directory of its section."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Pages(BuildHookInterface[Any]):
    """`man/conductor-config.5` becomes `share/man/man5/conductor-config.5`."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the pages to the files beside the package. An editable install has none: it is the checkout itself."""
        if version == "editable":
            return
        for page in sorted(Path(self.root, "man").glob("*.[0-9]")):
            build_data["shared_data"][str(page)] = f"share/man/man{page.suffix[1:]}/{page.name}"
