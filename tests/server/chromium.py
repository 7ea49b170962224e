"""A headless Chromium for tests of the page, over the pipe of its DevTools protocol.

Skips where there is none.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
AXE = Path(__file__).parents[1] / "aimock/node_modules/axe-core/axe.min.js"
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40}


class Page:
    """One tab. Commands are sent one at a time."""

    def __init__(self, commands: int, replies: int) -> None:
        self._commands = commands
        self._replies = replies
        self._count = 0
        self._rest = b""
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the result of a command of the protocol."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                self._rest += os.read(self._replies, 1 << 20)
            line, _, self._rest = self._rest.partition(b"\0")
            reply = json.loads(line)
            if reply.get("id") == self._count:
                assert "error" not in reply, reply
                result: dict[str, Any] = reply["result"]
                return result

    def open(self, url: str, *, width: int = 1200, dark: bool = False) -> None:
        """Show a page in a window of this width."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)

    def value(self, script: str) -> Any:
        """Return what an expression, or the promise that it gives, has as its value."""
        reply = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def choose_files(self, selector: str, *paths: Path) -> None:
        """Choose files in a field, as its dialog does."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(path) for path in paths])

    def wait(self, script: str) -> Any:
        """Return the value of an expression once it is true."""
        end = time.monotonic() + 60
        while not (value := self.value(f"typeof at === 'function' && ({script})")):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.05)
        return value

    def press(self, *keys: str, control: bool = False) -> None:
        """Press keys one after another; other words are typed as they are."""
        for key in keys:
            if key not in KEYS:
                self.call("Input.insertText", text=key)
                continue
            about = {
                "key": key,
                "windowsVirtualKeyCode": KEYS[key],
                "modifiers": 2 if control else 0,
            }
            text = {"text": "\r"} if key == "Enter" else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", **about, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def problems(self) -> list[str]:
        """What axe-core finds that is serious or critical."""
        self.value(AXE.read_text(encoding="utf-8") + ";0")
        report = self.value("axe.run().then(found => JSON.stringify(found.violations))")
        worst = [
            issue for issue in json.loads(report) if issue["impact"] in ("serious", "critical")
        ]
        return [f"{issue['id']}: {issue['nodes'][0]['html']}" for issue in worst]


@contextmanager
def chromium(directory: Path) -> Iterator[Page]:
    """A tab of a browser of its own."""
    if PROGRAM is None:
        pytest.skip("there is no Chromium")
    from_us, commands = os.pipe()
    replies, to_us = os.pipe()
    # The protocol is spoken over the descriptors 3 and 4.
    shell = f'exec 3<&{from_us} 4>&{to_us}; exec "$@"'
    options = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--remote-debugging-pipe",
        f"--user-data-dir={directory}",
    )
    with subprocess.Popen(
        ["bash", "-c", shell, "bash", PROGRAM, *options],
        pass_fds=(from_us, to_us),
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(directory)},
    ) as process:
        os.close(from_us)
        os.close(to_us)
        try:
            yield Page(commands, replies)
        finally:
            os.close(commands)
            os.close(replies)
            process.terminate()
