"""The keys that this process has read: no text that leaves it may hold one of them.

This is the only state that the whole process shares: a key can be read anywhere and can come back
from anywhere, so every reader adds to one object and every writer asks the same one.
"""

from __future__ import annotations

from typing import Final

from conductor_cli.core.redact import Secrets

# Whoever reads a key adds it here before doing anything else with it
KNOWN_SECRETS: Final = Secrets()
