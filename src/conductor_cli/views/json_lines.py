"""The events themselves, one line of JSON each, written as they happen."""

from __future__ import annotations

import json

from conductor_cli.core.events import Event, to_line
from conductor_cli.core.sanitize import escape_json
from conductor_cli.models.known_secrets import KNOWN_SECRETS
from conductor_cli.views.base import Stdout


class JsonLinesOutput:
    """What a trace file holds. Control characters are spelled as escapes: the value is the same, a terminal is safe."""

    def __init__(self, stdout: Stdout) -> None:
        self._stdout = stdout

    def show(self, event: Event) -> None:
        write_json(self._stdout, to_line(event, KNOWN_SECRETS))
        self._stdout.flush()

    def close(self) -> None:
        """Every line is out already."""


def write_json(stdout: Stdout, line: str) -> None:
    """One line of JSON, in ASCII where the stream's encoding has not all of its characters."""
    line = escape_json(line)
    try:
        line.encode(stdout.encoding)
    except UnicodeEncodeError:
        line = json.dumps(json.loads(line), separators=(",", ":"))
    stdout.write(line + "\n")
