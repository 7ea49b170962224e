"""The documents: what they point to is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
DOCUMENTS: Final = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "examples/README.md",
    ROOT / "tests/README.md",
    ROOT / "tests/cassettes/README.md",
]
_LINK: Final = re.compile(r'\]\(([^)\s]+)\)|(?:src|srcset|href)="([^"]+)"')
_CODE: Final = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_UNSAID: Final = re.compile(r"[^\w\- ]")


def anchors(document: Path) -> set[str]:
    """What a link to one of its headings may say."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {_UNSAID.sub("", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_has_a_target(document: Path) -> None:
    """Each relative link names a file of the repository, and a heading of it where it names one."""
    for match in _LINK.findall(_CODE.sub("", document.read_text())):
        link = "".join(match)
        path, _, heading = link.partition("#")
        target = document.parent / path if path else document
        if "://" not in link:
            assert target.exists(), link
            assert not heading or heading in anchors(target), link
