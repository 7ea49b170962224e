"""Names of tools as every API takes them. Pure.

OpenAI and Anthropic allow `[a-zA-Z0-9_-]{1,64}`, Google wants a letter or an underscore first. Servers of tools have
names of any kind (`files/read`, `Search the web`, 100 characters), so such a name is sent in another form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

LONGEST: Final = 64

_ALLOWED: Final = re.compile(rf"[A-Za-z_][A-Za-z0-9_-]{{0,{LONGEST - 1}}}")
_FORBIDDEN: Final = re.compile(r"[^A-Za-z0-9_-]+")
_DIGITS: Final = 8


def api_name(name: str) -> str:
    """The name under which a tool is offered to a model.

    It depends on `name` alone, so it is the same in every turn. A name that has to be changed gets digits of its hash,
    so that no two become one.
    """
    if _ALLOWED.fullmatch(name):
        return name
    readable = _FORBIDDEN.sub("_", name)[: LONGEST - _DIGITS - 2]
    mark = "" if re.match("[A-Za-z_]", readable) else "_"
    return f"{mark}{readable}_{sha256(name.encode('utf-8', 'replace')).hexdigest()[:_DIGITS]}"


def original_names(names: Iterable[str]) -> dict[str, str]:
    """The names of tools by the names under which they are offered, where those differ."""
    return {offered: name for name in names if (offered := api_name(name)) != name}
