"""What somebody probably meant who typed a name that does not exist. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """The one of these names that looks most like `name`, also in another case; empty where none does."""
    from difflib import get_close_matches  # only where a name is wrong

    by_lower = {each.lower(): each for each in known}
    found = get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[found[0]] if found else ""


def suggest(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """The hint of an error about an unknown name: `did you mean fast?`, else `otherwise`, else the known names."""
    names = tuple(known)
    near = nearest(name, names)
    return f"did you mean {near}?" if near else otherwise or f"known: {', '.join(names) or 'none'}"
