"""Markdown that a model wrote, as HTML that can only be read: nothing in it links, loads or runs. Pure.

Only tokens of the kinds named here keep their element, and no element keeps an attribute of the text. The address of a
link is shown as text, because a reader who is not able to see it would have to trust it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Final

from conductor_cli.core.sanitize import sanitize

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

LONGEST: Final = 200_000
"""Characters that are parsed; a longer text is shown as it was written."""

_BLOCKS: Final = frozenset(
    {
        "paragraph", "heading", "blockquote", "bullet_list", "ordered_list", "list_item", "table", "thead", "tbody",
        "tr", "th", "td", "em", "strong", "s",
    }
)  # fmt: skip
"""Tokens that open and close an element."""
_SINGLE: Final = frozenset({"inline", "text", "code_inline", "code_block", "fence", "hr", "softbreak", "hardbreak"})
_DEEPER: Final = 2
"""How many levels the headings of a text are below their own: the page has headings above them."""


def markdown_html(text: str) -> str:
    """The HTML of a text, safe to put into a page as it is."""
    text = sanitize(text)
    if len(text) <= LONGEST:
        try:
            return _render(text)
        except Exception:  # noqa: BLE001, S110 - whatever a parser fails on, the text is shown
            pass
    return f"<pre>{escape(text)}</pre>\n"


def _render(text: str) -> str:
    parser = _parser()
    tokens = list(_harmless(parser.parse(text)))
    return parser.renderer.render(tokens, parser.options, {})  # type: ignore[no-any-return] # it returns a text


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # only pages need it

    # Models write one line per thought, so line breaks are kept. Definitions would make links of other parts.
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "xhtmlOut": False})
    return parser.enable(["table", "strikethrough"]).disable(["reference", "image"])


def _harmless(tokens: Iterable[Token]) -> Iterator[Token]:
    """The tokens without what could act. An unknown kind becomes its text."""
    addresses: list[str] = []
    for token in tokens:
        kind = token.type.removesuffix("_open").removesuffix("_close")
        if kind == "link":
            yield _as_text(token, _link_text(token, addresses))
            continue
        if kind not in _BLOCKS | _SINGLE:
            yield _as_text(token, token.content)
            continue
        start = token.attrs.get("start") if kind == "ordered_list" else None
        token.attrs = {"start": start} if isinstance(start, int) else {}
        token.info = ""  # the language of a block of code would become a class
        # Entities have become characters by now, which may be unsafe ones.
        token.content = sanitize(token.content)
        if kind == "heading":
            token.tag = f"h{min(6, int(token.tag[1:]) + _DEEPER)}"
        if token.children is not None:
            token.children = list(_harmless(token.children))
        yield token


def _link_text(token: Token, addresses: list[str]) -> str:
    """Nothing where a link begins, and its address where it ends, unless the link's text is the address."""
    if token.nesting == 1:
        automatic = token.markup == "autolink"
        addresses.append("" if automatic else str(token.attrs.get("href", "")))
        return ""
    address = addresses.pop() if addresses else ""
    return f" ({address})" if address else ""


def _as_text(token: Token, text: str) -> Token:
    token.type, token.tag, token.nesting, token.attrs = "text", "", 0, {}
    token.content, token.children, token.block = sanitize(text), None, False
    return token
