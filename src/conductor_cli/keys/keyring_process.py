"""The child process that talks to the system's keyring.

A process of its own, and not a thread, because a keyring is foreign code: it may hang, print to standard output, take
its process down, or start a helper that outlives it. Run as `python -P -m conductor_cli.keys.keyring_process`: without
the working directory on its path, where a file `keyring.py` would get every key, and without a key in its arguments.

It reads one JSON line on stdin, `[["get", NAME], ["set", NAME, TEXT], ["rm", NAME], …]`, and writes one on stdout:
`{"backend": …, "results": […]}`, or `{"error": …, "absent": …}` for the first order that failed.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Final

SERVICE: Final = "conductor-llm"
"""What every item of ours in a keyring is filed under, beside the provider's name."""

_NONE: Final = {"error": "no working keyring found", "absent": True}


def main() -> None:
    """Answer one request."""
    # Some keyrings print. Only our answer may reach the parent.
    out = os.dup(1)
    os.dup2(2, 1)
    answer = answer_request(json.loads(sys.stdin.readline()))
    with os.fdopen(out, "w", encoding="utf-8") as file:
        file.write(json.dumps(answer) + "\n")


def answer_request(request: list[list[str]]) -> dict[str, Any]:
    """Do what is asked, in order, until something fails. `absent` means that no keyring could hold a key of ours."""
    keyring_name = "the keyring"
    try:
        import keyring

        backend = keyring.get_keyring()
        name = str(getattr(backend, "name", "") or type(backend).__name__)
        keyring_name = f"the keyring ({name})"
        kind = f"{type(backend).__module__}.{type(backend).__name__}"
        if kind in ("keyring.backends.fail.Keyring", "keyring.backends.null.Keyring"):
            return _NONE
        if "plaintext" in kind.lower():
            return {"error": f"{keyring_name} is a file that is not encrypted", "absent": True}
        return {"backend": name, "results": [_run_order(backend, *order) for order in request]}
    except Exception as error:  # noqa: BLE001 - keyrings raise whatever their systems do
        # Judged by the names of the classes: some keyrings bring classes of their own.
        names = {kind.__name__ for kind in type(error).__mro__}
        if names & {"NoKeyringError", "ModuleNotFoundError", "SecretServiceNotAvailableException"}:
            return _NONE
        return {"error": f"{keyring_name} refused: {error or type(error).__name__}", "absent": False}


def _run_order(backend: Any, order: str, name: str, text: str = "") -> str | None:  # noqa: ANN401 - a keyring, without types
    """What is stored under `name`: before the order for `rm`, after it for `set`, which some keyrings ignore."""
    password: str | None = backend.get_password(SERVICE, name) if order != "set" else None
    if order == "set":
        backend.set_password(SERVICE, name, text)
        password = backend.get_password(SERVICE, name)
        if password != text:
            raise ValueError("it accepted an item and does not give it back")
    if order == "rm" and password is not None:
        backend.delete_password(SERVICE, name)
    return password


if __name__ == "__main__":
    main()
