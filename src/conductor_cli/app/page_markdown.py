"""The text of a web page as Markdown, for a bounded child process: pages are untrusted.

Lexbor parses the page as browsers do, so omitted end tags and wrong nesting mean what their author
saw. The tree is read without recursion, in a time that grows with its size alone.
"""

from __future__ import annotations

import codecs
import re
import time
from typing import TYPE_CHECKING, Final

from conductor_cli.core.web_encodings import USUAL_ENCODING, encoding_of_page

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

LEFT_OUT: Final = {
    "script": "scripts",
    "noscript": "scripts",
    "style": "style sheets",
    "img": "images",
    "svg": "images",
    "picture": "images",
    "canvas": "images",
    "iframe": "frames",
    "object": "frames",
    "embed": "frames",
    "video": "media",
    "audio": "media",
    "template": "templates",
    "head": "",
}
"""The elements that say nothing to a reader of the text, and what they are called; the head is not
mentioned.
"""

_HEADINGS: Final = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_PARAGRAPHS: Final = frozenset(
    {
        "address",
        "article",
        "aside",
        "blockquote",
        "center",
        "details",
        "dialog",
        "div",
        "dl",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "header",
        "hr",
        "main",
        "menu",
        "nav",
        "ol",
        "p",
        "pre",
        "search",
        "section",
        "table",
        "ul",
    }
)
_LINES: Final = frozenset(
    {"br", "caption", "dd", "dt", "legend", "li", "optgroup", "option", "summary", "tr"}
)
_FIELDS: Final = frozenset({"button", "select", "textarea"})
_MARKS: Final = {
    "b": "**",
    "strong": "**",
    "i": "*",
    "em": "*",
    "code": "`",
    "del": "~~",
    "s": "~~",
}
_NO_TEXT: Final = frozenset(
    {"hidden", "password", "checkbox", "radio", "file", "image", "color", "range"}
)

_HIDING: Final = re.compile(
    r"(?:^|;)\s*(?:display\s*:\s*none\b|visibility\s*:\s*(?:hidden|collapse)\b"
    r"|(?:opacity|font-size)\s*:\s*0(?:\.0+)?(?:%|[a-z]+)?\s*(?:!|;|$))",
    re.IGNORECASE,
)
_SPACE: Final = re.compile(r"[ \t\r\n\f]+")
_CHARSET: Final = re.compile(
    rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE
)

# Lists and quotations in each other that are indented: beyond, it would cost more than it says
_MOST_LISTS: Final = 8
_LONGEST_ADDRESS: Final = 1000
_SMALLEST_CUT: Final = 1 << 20  # Characters: a page of so few needs less memory than there is


def decode_page(content: bytes) -> tuple[str, bool]:
    """Return the text of a page, and whether its encoding is a guess.

    By its byte order mark, as UTF-8, by what it declares, or as Windows-1252, which is the guess.
    """
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (b"\xff\xfe", "utf-16"),
        (b"\xfe\xff", "utf-16"),
    ):
        if content.startswith(mark):
            return content.decode(name, "replace"), False
    try:
        return content.decode("utf-8"), False
    except UnicodeDecodeError:
        declared = _CHARSET.search(content[:4096])
    if declared is None:
        return content.decode(USUAL_ENCODING, "replace"), True
    try:
        return content.decode(encoding_of_page(declared[1].decode()), "replace"), False
    except (LookupError, ValueError):
        return content.decode(USUAL_ENCODING, "replace"), True


def to_markdown(page: str, most: int, seconds: float) -> tuple[str, dict[str, int], str]:
    """Return the text of a page, how many elements of each kind it lacks, and why its end does.

    It ends behind `most` characters (`length`), where it takes longer than so many seconds
    (`time`), and where its elements need more memory than there is (`memory`).
    """
    deadline = time.monotonic() + seconds
    node, is_whole = _parse(page)
    writer = _Writer()
    left_out = dict[str, int]()
    number = 0
    while node is not None and writer.length <= most:
        number += 1
        if number % 1000 == 0 and time.monotonic() > deadline:
            return writer.finish(), left_out, "time"
        if node.is_text_node:
            writer.text(node.text_content or "")
        elif node.is_element_node:
            kind = _left_out(node)
            if kind is None:
                writer.open(node)
                if node.first_child is not None:
                    node = node.first_child
                    continue
                writer.close(node)
            elif kind:
                left_out[kind] = left_out.get(kind, 0) + 1
        node = _next(node, writer)
    text = writer.finish()
    if node is not None or len(text) > most:
        return text[:most], left_out, "length"
    return text, left_out, "" if is_whole else "memory"


def _parse(page: str) -> tuple[LexborNode | None, bool]:
    """Return the root of a page and whether it is all of it.

    Of millions of elements, as many as fit the memory.
    """
    from selectolax.lexbor import LexborHTMLParser, SelectolaxError

    length = len(page)
    while True:
        try:
            return LexborHTMLParser(_beginning(page, length)).root, length == len(page)
        except (MemoryError, SelectolaxError):
            length //= 2
            if length < _SMALLEST_CUT:
                raise


def _beginning(page: str, length: int) -> str:
    """Return so many characters of a page, without a tag that they cut in two."""
    beginning = page[:length]
    if length >= len(page):
        return beginning
    last_tag = beginning.rfind("<")
    is_cut = last_tag > beginning.rfind(">")
    if not is_cut:
        return beginning
    return beginning[:last_tag]


def _next(node: LexborNode, writer: _Writer) -> LexborNode | None:
    """Return what comes behind a node, and close the elements that end before it.

    None at the end of the page.
    """
    current: LexborNode | None = node
    while current is not None and current.next is None:
        current = current.parent
        if current is not None and current.is_element_node:
            writer.close(current)
    if current is not None:
        return current.next
    return None


def _left_out(node: LexborNode) -> str | None:
    """Return what an element is called that is left out; None for one whose text is read."""
    tag = node.tag or ""
    if tag in LEFT_OUT:
        return LEFT_OUT[tag]
    attributes = node.attributes
    if "hidden" in attributes or (tag == "dialog" and "open" not in attributes):
        return "hidden elements"
    if _HIDING.search(attributes.get("style") or ""):
        return "hidden elements"
    return None


class _Writer:
    """Markdown, written from left to right.

    What an element needs is written when its first word comes.
    """

    def __init__(self) -> None:
        self.length = 0
        self._parts: list[str] = []
        self._newlines = 2
        """How many newlines stand at the end: two at the beginning."""
        self._due_newlines = 0
        self._space = False
        self._marks: list[str] = []
        """How the open emphases and links begin, the outermost first."""
        self._written = 0
        """How many of them are written: the others wait for their first word."""
        self._open_marks = dict[str, int]()
        self._lists: list[int | None] = []
        self._quotes = 0
        self._bullet = ""
        self._verbatim = 0
        self._cells = 0
        self._rows: list[int] = []
        """The rows of the open tables that have been written."""
        self._columns = 0

    def text(self, text: str) -> None:
        """Write a text of the page."""
        if self._verbatim:
            for number, line in enumerate(text.split("\n")):
                if number:
                    self._put("\n")
                self._put(line)
            return
        words = _SPACE.sub(" ", text)
        if words in {"", " "}:
            self._space = self._space or bool(words)
            return
        self._space = self._space or words.startswith(" ")
        if self._cells:
            words = words.replace("|", "\\|")
        self._begin()
        self._put(words.strip(" "))
        self._space = words.endswith(" ")

    def open(self, node: LexborNode) -> None:
        """Begin an element."""
        tag = node.tag or ""
        self._edge(tag)
        if tag in _HEADINGS and not self._cells:
            self._bullet += _HEADINGS[tag]
        elif tag in {"ul", "ol", "menu"}:
            self._lists.append(0 if tag == "ol" else None)
        elif tag == "li":
            self._bullet = self._next_bullet()
        elif tag == "blockquote":
            self._quotes += 1
        elif tag == "hr":
            self._line("---")
        elif tag == "pre" and not self._cells:
            self._line("```")
            self._break(1)
            self._begin()
            self._verbatim += 1
        elif tag == "table":
            self._rows.append(0)
        elif tag == "tr" and len(self._rows) == 1:
            self._columns = 0
        elif tag in {"td", "th"}:
            self._open_cell()
        elif tag in _MARKS and not self._verbatim:
            self._open_marks[_MARKS[tag]] = self._open_marks.get(_MARKS[tag], 0) + 1
            self._marks.append(_MARKS[tag] if self._open_marks[_MARKS[tag]] == 1 else "")
        elif tag == "a" and not self._verbatim:
            self._marks.append("[" if _address(node) else "")
        elif tag == "input":
            self._input(node)

    def close(self, node: LexborNode) -> None:
        """End an element."""
        tag = node.tag or ""
        if tag in {"ul", "ol", "menu"} and self._lists:
            self._lists.pop()
        elif tag == "blockquote":
            self._quotes -= 1
        elif tag == "pre" and self._verbatim:
            self._verbatim -= 1
            self._put("" if self._newlines else "\n")
            self._line("```")
        elif tag == "table":
            self._rows.pop()
        elif tag in {"td", "th"} and self._cells:
            self._cells -= 1
        elif tag == "tr" and len(self._rows) == 1 and self._columns:
            self._end_row()
        elif tag in _MARKS and not self._verbatim:
            self._open_marks[_MARKS[tag]] -= 1
            self._close_mark(_MARKS[tag])
        elif tag == "a" and not self._verbatim:
            self._close_mark(f"]({_address(node)})")
        self._edge(tag)

    def finish(self) -> str:
        """Return the whole text."""
        text = "".join(self._parts)
        return re.sub(r"[ \t]+\n", "\n", text).strip() + "\n"

    def _edge(self, tag: str) -> None:
        """Separate an element from what stands before or behind it."""
        if tag in {"ul", "ol"} and self._lists:
            self._break(1)
        elif tag in _PARAGRAPHS or tag in _HEADINGS:
            self._break(2)
        elif tag in _LINES:
            self._break(1)
        elif tag in _FIELDS:
            self._space = True

    def _put(self, text: str) -> None:
        if text:
            self._parts.append(text)
            self.length += len(text)
            stripped = text.rstrip("\n")
            written = len(text) - len(stripped)
            self._newlines = written if stripped else self._newlines + written

    def _break(self, newlines: int) -> None:
        """See to it that the next word begins a new line, or a new paragraph."""
        self._space = False
        if self._cells:
            self._space = True  # a row of a table is one line
        elif not self._bullet:  # behind a bullet the text begins on the same line
            self._due_newlines = max(self._due_newlines, newlines)

    def _begin(self) -> None:
        """Write what is due before a word: new lines, the bullet of a list, a space, and marks."""
        lines = self._due_newlines - self._newlines
        if lines > 0:
            self._put("\n" * lines)
        if self._newlines:
            depth = min(len(self._lists), _MOST_LISTS)
            self._put(
                "> " * min(self._quotes, _MOST_LISTS) + "  " * max(depth - 1, 0) + self._bullet
            )
            if depth and not self._bullet:
                self._put("  ")
            self._newlines = 0
            self._bullet = ""
        elif self._space and not self._parts[-1].endswith(" "):
            self._put(" ")
        self._space = False
        self._due_newlines = 0
        for number in range(self._written, len(self._marks)):
            self._put(self._marks[number])
        self._written = len(self._marks)

    def _line(self, text: str) -> None:
        self._break(1)
        self._begin()
        self._put(text)
        self._break(1)

    def _close_mark(self, end: str) -> None:
        if not self._marks:
            return
        mark = self._marks.pop()
        if self._written > len(self._marks):
            self._written = len(self._marks)
            self._put(end if mark else "")

    def _next_bullet(self) -> str:
        if self._cells or not self._lists:
            return "- "
        number = self._lists[-1]
        if number is None:
            return "- "
        self._lists[-1] = number + 1
        return f"{number + 1}. "

    def _open_cell(self) -> None:
        """Begin a cell. Tables in cells are written into the cell."""
        if len(self._rows) == 1 and not self._cells:
            self._space = False
            self._begin()
            self._put("| " if not self._columns else " | ")
            self._columns += 1
        self._space = bool(self._cells)
        self._cells += 1

    def _end_row(self) -> None:
        self._put(" |")
        if not self._rows[0]:
            self._put("\n|" + " --- |" * self._columns)
        self._rows[0] += 1

    def _input(self, node: LexborNode) -> None:
        kind = (node.attributes.get("type") or "text").lower()
        value = node.attributes.get("value") or node.attributes.get("placeholder") or ""
        if kind not in _NO_TEXT and value:
            self.text(f" {value} ")


def _address(node: LexborNode) -> str:
    """Return where a link leads.

    Nothing for scripts, for places in the page, and where it is data.
    """
    address = (node.attributes.get("href") or "").strip()
    scheme = address.partition(":")[0].lower()
    if (
        address.startswith("#")
        or scheme in {"javascript", "data"}
        or len(address) > _LONGEST_ADDRESS
    ):
        return ""
    return address.replace("\n", "").replace(" ", "%20").replace(")", "%29")
