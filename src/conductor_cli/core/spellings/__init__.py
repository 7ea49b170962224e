"""The ways to write a plan as text. To add one: a file beside these, and a row here."""

from __future__ import annotations

from typing import Final

from conductor_cli.core.spellings.json import JSON
from conductor_cli.core.spellings.native import NATIVE
from conductor_cli.core.spellings.published import PUBLISHED
from conductor_cli.core.spellings.terms import Parsed, Parser, Spelling, Terms

SPELLINGS: Final[dict[str, Spelling]] = {spelling.name: spelling for spelling in (NATIVE, PUBLISHED, JSON)}

__all__ = ["SPELLINGS", "Parsed", "Parser", "Spelling", "Terms"]
