"""What a bounded child process does to search texts by a regular expression.

A model writes the pattern, and a pattern may need longer than anybody waits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any


def answer(job_bytes: bytes) -> Iterator[dict[str, Any]]:
    """Give the numbers of the lines that match in each text of a job, from 1 on.

    Of a pattern that is none, what is wrong with it.
    """
    job = json.loads(job_bytes)
    try:
        pattern = re.compile(job["pattern"], re.IGNORECASE if job["ignore_case"] else 0)
    except (re.error, RecursionError, OverflowError) as error:
        yield {"problem": str(error)}
        return
    for number, text in enumerate(job["texts"]):
        lines = text.removesuffix("\n").split("\n")
        matches = [index for index, line in enumerate(lines, start=1) if pattern.search(line)]
        if matches:
            yield {"text": number, "lines": matches}
