"""The examples of docs/python.md, each run as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "python.md"
EXAMPLE: Final = re.compile(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES: Final = EXAMPLE.findall(PAGE.read_text("utf-8"))

PRINTED: Final = {
    "Ask a question": "SIRAP",
    "Events": "planned: ",
    "Asynchronous code": "OYKOT",
    "Stored runs": "RunFinished",
    "Approving plans": "SIRAP",
    "Errors": "limit",
    "Your own models": "Forty-two.",
}
"""What each example prints, among other things."""


def test_the_page_has_these_examples() -> None:
    """Every section with code is run by this module."""
    assert [title for title, _ in EXAMPLES] == list(PRINTED)


@pytest.mark.parametrize(("title", "code"), EXAMPLES, ids=[title for title, _ in EXAMPLES])
def test_an_example_runs(title: str, code: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An example runs without a key or a download and prints what it should."""
    exec(compile(code, f"{PAGE.name}: {title}", "exec"), {"__name__": "__main__"})  # the page is ours
    assert PRINTED[title] in capsys.readouterr().out
