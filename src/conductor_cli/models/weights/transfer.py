"""From the hub to the disk, in three ways: the hub's library with Xet, the same without, plain HTTP of our own.

The first two run in a child process that is watched: when no byte comes for `Pace.stall` seconds, when it dies or says
what nobody understands, it is killed and the next way goes on with what is there. Xet is for files that are not begun,
where the hub offers it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, Final

from conductor_cli.models.disk import DISK_FULL_ERRORS
from conductor_cli.models.weights import plain
from conductor_cli.models.weights.cache import is_on
from conductor_cli.models.weights.hub import Download
from conductor_cli.models.weights.progress import Meter, RetryPolicy

FETCH: Final = "conductor_cli.models.weights.fetch"

WITHOUT_XET: Final = {"HF_HUB_DISABLE_XET": "1"}

QUIET: Final = {"HF_HUB_DISABLE_TELEMETRY": "1"}

LINE: Final = 64 * 1024


def transfer(download: Download, environ: Mapping[str, str], pace: RetryPolicy, meter: Meter) -> bool:
    """Bring what is missing of a file into its part; whether it came in one piece. Nothing is checked but its size.

    Raises `Refused`, `ModelError`, or `OSError` where the disk does not take it.
    """
    whole = download.begun == 0
    xet = download.found.xet and whole and not is_on(environ.get("HF_HUB_DISABLE_XET"))
    ways = [{}, WITHOUT_XET] if xet else [WITHOUT_XET]
    # Xet keeps no copy of its own of what it brings.
    around = {"HF_XET_CHUNK_CACHE_SIZE_BYTES": "0"} | dict(environ) | QUIET
    for number, way in enumerate(ways, start=1):
        trouble = _by_child(download, around | way, pace, meter)
        meter.at(download.begun)
        if not trouble:
            return whole
        whole = False
        after = "without the hub's library" if number == len(ways) else "without Xet"
        meter.note(f"{trouble}: starting again {after}")
    plain.fetch(download, pace, meter)
    return False


def renew_login(environ: Mapping[str, str], pace: RetryPolicy) -> None:
    """Have the hub's library renew the login that it keeps, if it can."""
    with _child({"renew": True}, dict(environ) | QUIET) as lines:
        _watch(lines, pace, lambda: None)


def _by_child(download: Download, environ: Mapping[str, str], pace: RetryPolicy, meter: Meter) -> str:
    """Empty when the file is there, else what went wrong. Raises `OSError` where the disk does not take it."""
    found = download.found
    order = {
        "repo": download.repo, "file": download.file, "commit": found.commit, "size": found.size, "xet": found.xet,
        "endpoint": download.hub.endpoint, "part": str(download.part),
    }  # fmt: skip
    with _child(order, environ) as lines:
        trouble = _watch(lines, pace, lambda: meter.at(download.begun))
    number = trouble.get("errno")
    if number in DISK_FULL_ERRORS:
        raise OSError(number, "no room", str(download.part))
    if not trouble and found.size and download.begun != found.size:
        return f"{download.begun:,} bytes came of {found.size:,}"
    return str(trouble.get("failed", ""))


def _watch(lines: SimpleQueue[bytes], pace: RetryPolicy, look: Callable[[], None]) -> Mapping[str, Any]:
    """What the child said last: nothing if it is done. Lines that bring no new byte do not count as life.

    `look` is called after each line, and four times a second without one.
    """
    most: dict[str, int] = {}
    limit = pace.start
    ends = time.monotonic() + limit
    while (left := ends - time.monotonic()) > 0:
        with suppress(Empty):
            message = _read(lines.get(timeout=min(left, 0.25)))
            if "failed" in message or "end" in message:
                return message if "failed" in message else {}
            if _grown(message, most):
                limit = pace.stall
                ends = time.monotonic() + limit
        look()
    return {"failed": f"no byte for {limit:.0f} s"}


def _grown(message: Mapping[str, Any], most: dict[str, int]) -> bool:
    """Whether a count in the message is higher than it ever was. `most` is brought up to date."""
    counts = {what: count for what, count in message.items() if isinstance(count, int)}
    grown = {what: count for what, count in counts.items() if count > most.get(what, -1)}
    most |= grown
    return bool(grown)


def _read(line: bytes) -> Mapping[str, Any]:
    """One line of the child. Its end, or what is no line of ours, is a failure."""
    if not line:
        return {"failed": "the process of the download ended"}
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    return message if isinstance(message, dict) else {"failed": "the process of the download spoke garbage"}


@contextmanager
def _child(order: Mapping[str, Any], environ: Mapping[str, str]) -> Iterator[SimpleQueue[bytes]]:
    """A child process and the lines that it says, an empty one at its end. It is gone when the block is left."""
    lines: SimpleQueue[bytes] = SimpleQueue()
    # -P: what lies in the directory that the user is in is not imported.
    command = [sys.executable, "-P", "-m", FETCH]
    try:
        process = subprocess.Popen(  # noqa: S603 - ourselves
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(environ)
        )
    except OSError:  # the interpreter cannot be started
        lines.put(b"")
        yield lines
        return
    assert process.stdin
    assert process.stdout
    reader = threading.Thread(target=_pass_on, args=(process.stdout, lines), daemon=True)
    reader.start()
    try:
        with suppress(BrokenPipeError):  # its end is heard of as a line
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
        yield lines
    finally:
        process.kill()
        process.wait()
        reader.join()
        with suppress(OSError):
            process.stdin.close()
        process.stdout.close()


def _pass_on(stream: Any, lines: SimpleQueue[bytes]) -> None:  # noqa: ANN401 - a pipe
    with suppress(ValueError, OSError):
        while line := stream.readline(LINE):
            lines.put(line)
    lines.put(b"")
