"""What a bounded child process does that talks to the system's keyring, which is foreign code.

A keyring may hang, print, take its process down, or start a helper that outlives it. Orders come on
stdin, so that no key is in an argument: `[["get", NAME], ["set", NAME, TEXT], ["rm", NAME], …]`.
The answer is `{"backend": …, "results": […]}`, or `{"error": …, "absent": …}` for the first order
that failed.

A thread instead of a process could neither be ended nor survive a keyring that crashes.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

ITEM: Final = 1200  # Characters of an item: Windows keeps 1280
# What every item of ours in a keyring is filed under, beside the provider's name
SERVICE: Final = "conductor-llm"
_NONE: Final = {"error": "no working keyring found", "absent": True}


def answer(content: bytes) -> list[dict[str, Any]]:
    """Do what is asked, in order, until something fails.

    `absent` means that no keyring could hold a key of ours.
    """
    keyring_name = "the keyring"
    if sys.platform != "darwin":
        # It would look for libraries of macOS, on Linux by starting a linker and a C compiler.
        sys.modules["keyring.backends.macOS.api"] = None  # type: ignore[assignment]
    try:
        import keyring

        backend = keyring.get_keyring()
        name = str(getattr(backend, "name", "") or type(backend).__name__)
        keyring_name = f"the keyring ({name})"
        kind = f"{type(backend).__module__}.{type(backend).__name__}"
        if kind in ("keyring.backends.fail.Keyring", "keyring.backends.null.Keyring"):
            return [_NONE]
        if "plaintext" in kind.lower():
            return [{"error": f"{keyring_name} is a file that is not encrypted", "absent": True}]
        return [_run_orders(backend, name, json.loads(content))]
    except Exception as error:  # noqa: BLE001 - keyrings raise whatever their systems do
        # Judged by the names of the classes: some keyrings bring classes of their own.
        names = {kind.__name__ for kind in type(error).__mro__}
        if names & {"NoKeyringError", "ModuleNotFoundError", "SecretServiceNotAvailableException"}:
            return [_NONE]
        return [
            {"error": f"{keyring_name} refused: {error or type(error).__name__}", "absent": False}
        ]


def _run_orders(backend: Any, name: str, orders: list[list[str]]) -> dict[str, Any]:  # noqa: ANN401
    return {"backend": name, "results": [_run_order(backend, *order) for order in orders]}


def _run_order(backend: Any, order: str, name: str, text: str = "") -> str | None:  # noqa: ANN401
    """Return what is stored under `name`.

    Before the order for `rm`, after it for `set`, which some keyrings ignore.

    A text that is longer than an item may be is in several, the second of which is called `name.1`.
    """
    if order == "set":
        if len(backend.get_password(SERVICE, name) or "") == ITEM:
            _run_order(backend, "rm", name)
        text += " " * (len(text) % ITEM == 0)  # not every keyring keeps an empty item
    parts = list[str]()
    while not parts or len(parts[-1]) == ITEM:
        item = name
        if parts:
            item = f"{name}.{len(parts)}"
        if order == "set":
            backend.set_password(SERVICE, item, text[len(parts) * ITEM :][:ITEM])
        part = backend.get_password(SERVICE, item)
        if order == "set" and part != text[len(parts) * ITEM :][:ITEM]:
            raise ValueError("it accepted an item and does not give it back")
        if part is None:
            break
        if order == "rm":
            backend.delete_password(SERVICE, item)
        parts.append(part)
    if not parts:
        return None
    return "".join(parts)
