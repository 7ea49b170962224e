"""The keys that this process has read: no text that leaves it may hold one of them.

This is the only state that the whole process shares. A key can be read anywhere (a variable, the keyring, a prompt, a
worker's headers) and can come back from anywhere (a provider's error, a model's answer, a log record of a library), so
every reader adds to one object and every writer asks the same one. Adapters are handed it by whoever opens their
model. `core.redact` has the pure class.
"""

from __future__ import annotations

from typing import Final

from conductor_cli.core.redact import Secrets

KNOWN_SECRETS: Final = Secrets()
"""Whoever reads a key adds it here before doing anything else with it."""
