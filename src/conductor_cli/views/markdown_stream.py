"""Markdown on a terminal while it is written.

Complete blocks are printed for good, the current one is redrawn.

Nothing of the text is lost except marks that styles replace. HTML, images, definitions, formulas
and JSON are shown as they were written, links are not clickable, and code keeps its lines, so that
it can be copied. So does a table that is too wide for the terminal.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from rich import box
from rich.markdown import (
    BlockQuote,
    CodeBlock,
    Heading,
    ListItem,
    Markdown,
    MarkdownElement,
    TableElement,
)
from rich.markdown import MarkdownIt as Parser  # type: ignore[attr-defined] # the parser that Rich brings
from rich.segment import Segment
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from conductor_cli.views.markdown_rules import keep_all_text
from conductor_cli.views.plain import AnswerSink
from conductor_cli.views.styled_lines import LiveLines
from conductor_cli.views.text_layout import MAX_COLUMNS, UNSEEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from markdown_it.token import Token
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

MAX_BLOCK_CHARACTERS: Final = 16_384
"""Characters of one block; a longer one is split, because the unfinished block is parsed again at
each drawing.
"""

MAX_RENDERED_CHARACTERS: Final = 100_000
"""Characters that are rendered at once: at worst they take some seconds. A larger text is shown as
it was written.
"""

FLOOD: Final = re.compile(f"({UNSEEN}{{30}}){UNSEEN}+")
"""More marks and invisible characters in a row than Unicode allows in a stream-safe text (UAX #15,
D3).
"""

_THEME: Final = Theme(
    {
        **{f"markdown.h{level}": "bold" for level in range(1, 7)},
        "markdown.code": "cyan",
        "markdown.link": "none",
        "markdown.link_url": "underline",
        "markdown.block_quote": "italic",
        "markdown.item.bullet": "dim",
        "markdown.item.number": "dim",
        "markdown.hr": "dim",
        "markdown.table.header": "bold",
        "markdown.table.border": "dim",
    }
)

_PARSER: Final = Parser("commonmark", {"html": False}).enable(["strikethrough", "table"])
_PARSER.disable(["reference", "image"])
keep_all_text(_PARSER)

MIN_COLUMN: Final = 8
"""Characters of a column of a table. With fewer on average, a table is shown as it was written."""


class MarkdownStream(AnswerSink):
    """Renders one text after the other. Close it whatever happened."""

    def __init__(self, console: Console, *, reflows: bool = True) -> None:
        console.push_theme(_THEME)
        self._console = console
        self._reflows = reflows
        self._text = ""
        self._follows = False
        """Whether what comes next stands below another block, from which it is apart."""
        self._changed = False
        self._live: LiveLines | None = None

    def write(self, text: str) -> None:
        """Add a piece of sanitized text."""
        self._text = end_json(self._text + text)
        self._changed = True
        self._live = self._live or LiveLines(self._console, self, reflows=self._reflows)

    def close(self) -> None:
        """Print the rest; afterwards a new text may begin."""
        live = self._live
        self._live = None
        if live is None:
            return
        rest = self._text
        self._text = ""
        try:
            self._print(rest)
        finally:
            live.stop()
            self._follows = False

    def draw(self) -> None:
        """Print complete blocks, and the unfinished one below them."""
        if self._live is None or not self._changed:
            return
        self._changed = False
        complete, self._text, is_within = _split(self._text)
        self._print(complete)
        if is_within:
            self._follows = False
        if not complete:
            self._live.refresh()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Return the last rows of the block that is being written, as many as the terminal has."""
        block = Rendered(self._text, follows=self._follows)
        for row in list(Segment.split_lines(console.render(block, options)))[
            -max(1, console.height - 1) :
        ]:
            yield from row
            yield Segment.line()

    def _print(self, text: str) -> None:
        if text.strip():
            shown = Rendered(text, follows=self._follows)
            self._follows = True
            self._console.print(shown, end="", crop=False)


def split_blocks(text: str) -> tuple[str, str]:
    """Return the blocks that are complete, and the last one, which may go on.

    An endless one is split; code stays code.
    """
    complete, rest, _ = _split(text)
    return complete, rest


class _Split(NamedTuple):
    complete: str
    rest: str
    is_within: bool
    """Whether it is within an endless block."""


def _split(text: str) -> _Split:
    lines = text.split("\n")
    try:
        starts = []
        info = ""
        for token in _PARSER.parse(text):
            if token.level == 0 and token.map:
                starts.append(token.map[0])
                info = token.info
    except Exception:  # noqa: BLE001 - whatever a parser fails on, the text is shown
        starts = []
    start = starts[-1] if starts else 0
    if len(text) - sum(len(line) + 1 for line in lines[:start]) <= MAX_BLOCK_CHARACTERS:
        complete = "".join(f"{line}\n" for line in lines[:start])
        return _Split(complete, "\n".join(lines[start:]), is_within=False)
    if len(lines) - start < 2:  # one endless line
        return _Split(text, "", is_within=True)
    # The rest of an endless block of code begins with the fence of the code that is printed now.
    # JSON is such a block without any.
    fence = []
    if lines[start].startswith(("```", "~~~")):
        fence = [lines[start]]
    elif info == "json":
        fence = [_REST_OF_JSON]
    complete = "".join(f"{line}\n" for line in lines[:-1])
    return _Split(complete, "\n".join([*fence, lines[-1]]), is_within=True)


_JSON_FENCE: Final = "~" * 20
"""A fence that no model writes, so that it is known for one of `split_blocks`."""
_REST_OF_JSON: Final = f"{_JSON_FENCE}json"
_BLANK_LINE: Final = re.compile(r"\n[ \t]*(?=\n)")


def end_json(text: str) -> str:
    """Return a text in which the rest of endless JSON ends at the first blank line, as JSON does.

    What comes behind it is Markdown again.
    """
    if not text.startswith(_REST_OF_JSON):
        return text
    blank = _BLANK_LINE.search(text)
    if blank is None or text[: blank.start()].endswith(f"\n{_JSON_FENCE}"):
        return text
    code = text[: blank.start()]
    if code == _REST_OF_JSON:
        return text[blank.end() :]
    return f"{code}\n{_JSON_FENCE}{text[blank.start() :]}"


class Rendered:
    """Markdown as Rich renders it.

    `follows`: other blocks are printed above it, so a blank line comes first.
    """

    def __init__(self, text: str, *, follows: bool) -> None:
        self._text = FLOOD.sub(r"\1", text).strip("\n")
        self._follows = follows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self._text.strip():
            return
        if self._follows:
            yield Segment.line()
        options = options.update(width=min(MAX_COLUMNS, options.max_width), height=None)
        try:
            shown: RenderableType = Text(self._text)
            if len(self._text) <= MAX_RENDERED_CHARACTERS:
                shown = MarkdownText(self._text)
            segments = list(console.render(shown, options))
        except Exception:  # noqa: BLE001 - no text that a model wrote may end a run with an error
            segments = list(console.render(Text(self._text), options))
        lines = list(Segment.split_lines(segments))
        # Without the spaces that Rich adds at their ends, which would be copied and wrapped
        for line in lines:
            while line and not line[-1].text.strip():
                line.pop()
            line[-1:] = [Segment(last.text.rstrip(), last.style) for last in line[-1:]]
        while lines and not lines[-1]:  # Rich writes a blank line below a table, and one above it
            lines.pop()
        while lines and not lines[0]:
            del lines[0]
        for line in lines:
            yield from line
            yield Segment.line()


class _CodeElement(CodeBlock):
    """Highlighted code in the terminal's own colours, whose long lines are not wrapped."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = Syntax("", self.lexer_name, theme="ansi_light").highlight(
            str(self.text).expandtabs(8)
        )
        text.rstrip()
        # the terminal wraps long lines, and copies them as one
        text.no_wrap = True
        text.overflow = "ignore"
        yield text


class _HeadingElement(Heading):
    """A heading that keeps its marks, because bold is not visible on every terminal."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text.assemble((f"{'#' * int(self.tag[1:])} ", "dim"), self.text)


def _below_mark(
    lines: Iterable[list[Segment]], first: Segment, further: Segment
) -> Iterator[Segment]:
    """Yield lines with a mark before the first one, and another before the further ones."""
    mark = first
    for line in lines:
        yield mark
        yield from line
        yield Segment.line()
        mark = further


def _whole_lines(
    item: ListItem | BlockQuote, console: Console, options: ConsoleOptions, width: int
) -> Iterable[list[Segment]]:
    """Return the lines of what stands in a list or a quotation, `width` cells narrower.

    Rich's own method cuts off those of code, which are not wrapped.
    """
    shown = console.render(item.elements, options.update(width=max(1, options.max_width - width)))
    return Segment.split_lines(Segment.apply_style(shown, item.style))


class _ListItem(ListItem):
    """An item whose code keeps its lines."""

    def render_bullet(self, console: Console, options: ConsoleOptions) -> RenderResult:
        style = console.get_style("markdown.item.bullet", default="none")
        lines = _whole_lines(self, console, options, 3)
        return _below_mark(lines, Segment(" \u2022 ", style), Segment("   ", style))

    def render_number(
        self, console: Console, options: ConsoleOptions, number: int, last_number: int
    ) -> RenderResult:
        style = console.get_style("markdown.item.number", default="none")
        width = len(str(last_number)) + 2
        lines = _whole_lines(self, console, options, width)
        mark = f"{number}".rjust(width - 1) + " "
        return _below_mark(lines, Segment(mark, style), Segment(" " * width, style))


class _BlockQuote(BlockQuote):
    """A quotation whose code keeps its lines."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        mark = Segment("\u258c ", self.style)
        return _below_mark(_whole_lines(self, console, options, 4), mark, mark)


class _TableElement(TableElement):
    """A table whose cells are broken into lines, and not cut off."""

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> _TableElement:
        assert token.map is not None
        first, end = token.map
        return cls("\n".join(markdown.markup.split("\n")[first:end]))

    def __init__(self, source: str) -> None:
        super().__init__()
        self._source = source

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        assert self.header is not None
        assert self.header.row is not None
        columns = [cell.content for cell in self.header.row.cells]
        rows = []
        if self.body is not None:
            rows = [[cell.content for cell in row.cells] for row in self.body.rows]
        widths = [
            max(text.cell_len for text in column) for column in zip(columns, *rows, strict=True)
        ]
        if sum(widths) + 2 * len(widths) > options.max_width < len(widths) * MIN_COLUMN:
            # The terminal wraps these lines, and copies each as one
            yield Text(self._source, no_wrap=True, overflow="ignore")
            return
        table = Table(
            box=box.SIMPLE, pad_edge=False, style="markdown.table.border", collapse_padding=True
        )
        for heading in columns:
            heading.stylize("markdown.table.header")
            table.add_column(heading, overflow="fold")
        for row in rows:
            table.add_row(*row)
        yield table


class MarkdownText(Markdown):
    """A text that keeps its line breaks and has no clickable links."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _HeadingElement,
        "fence": _CodeElement,
        "code_block": _CodeElement,
        "list_item_open": _ListItem,
        "blockquote_open": _BlockQuote,
        "table_open": _TableElement,
    }

    def __init__(self, markup: str) -> None:
        # Rich parses in its constructor with its own rules, so it gets no text; ours is parsed
        # below.
        super().__init__("", hyperlinks=False)
        self.markup = markup
        self.parsed = _PARSER.parse(markup)
        # Models write one line per thought; Markdown would join them into one paragraph line.
        for token in self.parsed:
            for child in token.children or ():
                child.type = "hardbreak" if child.type == "softbreak" else child.type
