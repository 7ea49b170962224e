"""Reads what a Jupyter notebook says: its texts, its code and its results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from conductor_cli.core.formatting import format_count

_BARE_OBJECT: Final = re.compile(r"<[^<>\n]+ (?:object|at 0x[0-9A-Fa-f]+)>")
"""The words for a result whose text stands in another format.

`<IPython.core.display.Markdown object>`, `<folium.folium.Map at 0x7f3a10>`.
"""


def read_notebook(text: str) -> tuple[str, str]:
    """Return what a notebook says, and which results that lacks, with numbers; empty for none.

    A text that is no notebook, or one of an earlier format, is returned as it is.
    """
    try:
        cells = json.loads(text)["cells"]
        return _cells_text(cells), _unread_results(cells)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return text, ""


def _cells_text(cells: Iterable[dict[str, Any]]) -> str:
    """Return the texts, the code and the results of a notebook's cells.

    Raises what comes of cells that are none.
    """
    parts: list[str] = []
    for cell in cells:
        source = "".join(cell["source"])
        is_code = cell["cell_type"] == "code"
        parts.append(f"```\n{source}\n```" if is_code else source)
        results = map(_output_text, cell.get("outputs", ()))
        parts.extend(f"result:\n{result}" for result in results if result)
    return "\n\n".join(parts)


def _unread_results(cells: Iterable[dict[str, Any]]) -> str:
    """Return which results the text of a notebook lacks, with numbers; empty where it has all.

    They are pictures, and results that have no text at all, such as a table that is HTML only.
    """
    pictures = 0
    others = 0
    for cell in cells:
        # Pictures that were dropped into a text
        pictures += len(cell.get("attachments") or ())
        for output in cell.get("outputs", ()):
            kinds = output.get("data") or {}
            if any(kind.startswith("image/") for kind in kinds):
                pictures += 1
            elif kinds and not _output_text(output):
                others += 1
    parts = []
    if pictures:
        parts.append(format_count(pictures, "picture"))
    if others:
        noun = "result" if others == 1 else "results"
        parts.append(f"{others:,} {noun} as HTML or another format")
    return " and ".join(parts)


def _output_text(output: dict[str, Any]) -> str:
    """Return the text of a result in a notebook: what was printed, its value, or its error."""
    if "ename" in output:
        words = [output["ename"], output.get("evalue")]
        return ": ".join(word for word in words if word)
    if output.get("text"):
        return "".join(output["text"])
    kinds = output.get("data") or {}
    value = "".join(kinds.get("text/plain") or "")
    if len(kinds) > 1 and _BARE_OBJECT.fullmatch(value):
        value = ""
    return value or "".join(kinds.get("text/markdown") or kinds.get("text/latex") or "")
