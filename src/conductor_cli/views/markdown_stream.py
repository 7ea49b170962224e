"""Markdown on a terminal as it comes: whole blocks are printed for good, the one that is being written is live.

Nothing of the text is lost, except the marks that its look says: HTML, pictures and definitions stand as they were
written, and no link becomes one of the terminal's. Code keeps its fences and its lines, so that it can be copied.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from rich.markdown import CodeBlock, Heading, ListItem, Markdown, MarkdownElement
from rich.markdown import MarkdownIt as Parser  # type: ignore[attr-defined] # the parser that Rich brings
from rich.segment import Segment
from rich.style import Style
from rich.syntax import ANSISyntaxTheme, Syntax
from rich.text import Text
from rich.theme import Theme

from conductor_cli.views.base import Timer, encodable
from conductor_cli.views.live_region import LiveRegion, SegmentLine, width
from conductor_cli.views.markdown_blocks import Block, BlockSplitter
from conductor_cli.views.text_layout import COMMON, UNSEEN, WIDEST, Screen

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult

TICK: Final = 1 / 8
"""Seconds between two drawings."""

LONGEST: Final = 4096
"""Characters of the block that is being written beyond which its end alone is shown, as it was written."""

FLOOD: Final = re.compile(f"({UNSEEN}{{30}}){UNSEEN}+")
"""More marks and unseen characters in a row than the standard allows a text that is to be shown (UAX #15, D3)."""

_LOOKS: Final = Theme(
    {
        **{f"markdown.h{level}": "bold" for level in range(1, 7)},
        "markdown.h1.border": "dim", "markdown.code": "cyan", "markdown.code_block": "none", "markdown.link": "none",
        "markdown.link_url": "underline", "markdown.block_quote": "italic", "markdown.item.bullet": "dim",
        "markdown.item.number": "dim", "markdown.hr": "dim", "markdown.table.header": "bold",
        "markdown.table.border": "dim",
    }
)  # fmt: skip

_CODE: Final = ANSISyntaxTheme(
    {
        (name,): Style.parse(look)
        for name, look in {
            "Comment": "dim", "Keyword": "bold", "Operator": "none", "Literal": "green", "Name": "none",
        }.items()
    }
    | {
        ("Literal", "Number"): Style.parse("cyan"), ("Name", "Function"): Style.parse("blue"),
        ("Name", "Class"): Style.parse("blue"), ("Name", "Decorator"): Style.parse("magenta"),
        ("Generic", "Inserted"): Style.parse("green"), ("Generic", "Deleted"): Style.parse("red"),
    }
)  # fmt: skip
"""The terminal's own colours, and none that a light or a dark background swallows."""


class MarkdownStream:
    """Writes one text. `tick` None: a piece is drawn as it comes. Close it, whatever happened."""

    def __init__(self, console: Console, *, rewraps: bool = True, tick: float | None = TICK) -> None:
        console.push_theme(_LOOKS)
        self._console = console
        self._rewraps = rewraps
        self._tick = tick
        self._blocks = BlockSplitter()
        self._whole: list[Block] = []
        self._begun = False
        self._changed = False
        self._error: OSError | None = None
        self._lock = threading.Lock()
        self._region: LiveRegion | None = None
        self._timer: Timer | None = None

    def write(self, text: str) -> None:
        """Take a piece of clean text in. Raises `OSError` where the last drawing did."""
        if self._error is not None:
            raise self._error
        with self._lock:
            self._whole += self._blocks.feed(text)
            self._changed = True
        if self._region is None:
            self._region = LiveRegion(self._console, rewraps=self._rewraps)
            if self._tick:
                self._timer = Timer(self._ticked, self._tick, name="conductor-answer")
                self._timer.start()
        if not self._tick:
            self.draw()

    def remark(self, text: str) -> None:
        """A line of ours between two texts."""
        self.close()
        self._console.print(Text(text, style="dim"))

    def close(self) -> None:
        """Print what is not whole as it is; a new text may begin."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        region, self._region = self._region, None
        if region is None:
            return
        try:
            self._whole += self._blocks.close()
            region.draw([], self._printed())
        finally:
            region.close()
            self._begun = False

    def draw(self) -> None:
        """Print the whole blocks, and the one that is being written below them."""
        with self._lock:
            if self._region is None or not self._changed or not self._region.size_is_stable:
                return
            self._changed = False
            above = self._printed()
            self._region.draw(self._live(), above)

    def _ticked(self) -> None:
        try:
            self.draw()
        except OSError as error:  # on the timer's thread there is nobody to hear of it
            self._error = error

    def _printed(self) -> ConsoleRenderable | None:
        blocks, self._whole = self._whole, []
        if not blocks:
            return None
        begun, self._begun = self._begun, True
        return RenderedBlocks(blocks, begun=begun)

    def _live(self) -> list[SegmentLine]:
        """The last rows of the block that is being written, as many as can be erased from a smaller window too."""
        rest = self._blocks.rest
        if not rest.source.strip():
            return []
        shown = RenderedBlocks([rest], begun=self._begun)
        if len(rest.source) > LONGEST:
            shown = RenderedBlocks([Block(text=rest.source[-LONGEST:], language="")], begun=self._begun)
        options = self._console.options.update(width=min(WIDEST, self._console.width), height=None)
        rows = self._console.render_lines(shown, options, pad=False)[-COMMON[1] :]
        screen, widths = Screen(width=self._console.width, height=self._console.height), [*map(width, rows)]
        while len(widths) > 1 and not screen.fits(widths):
            del widths[0]
        return [tuple(row) for row in rows[-len(widths) :]]


class RenderedBlocks:
    """Blocks as they look. `begun`: others stand above them."""

    def __init__(self, blocks: list[Block], *, begun: bool) -> None:
        self._blocks = blocks
        self._begun = begun

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        begun = self._begun
        for block in self._blocks:
            if not block.source.strip():
                continue
            if begun and (block.opens or block.language is None):
                yield Segment.line()
            yield from _drawn(block, console, options.update(width=min(WIDEST, options.max_width)))
            begun = True


def _drawn(block: Block, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
    """A block as Rich writes it, or as it stands: text that others wrote must not end a run."""
    try:
        calm = replace(block, text=FLOOD.sub(r"\1", block.text))
        segments = list(console.render(_look(calm), options))
    except Exception:  # noqa: BLE001 - whatever a parser trips over
        segments = list(console.render(Text(block.source.strip("\n")), options))
    lines = [_trimmed(line, console.encoding) for line in Segment.split_lines(segments)]
    while block.language is None and lines and not lines[0]:
        del lines[0]
    while block.language is None and lines and not lines[-1]:
        del lines[-1]
    for line in lines:
        yield from line
        yield Segment.line()


def _trimmed(line: Iterable[Segment], encoding: str) -> list[Segment]:
    """A line without the blanks that Rich fills it up with, which would be copied and broken with it."""
    kept = [_encodable(segment, encoding) for segment in line]
    while kept and not kept[-1].text.strip():
        kept.pop()
    return [*kept[:-1], *(Segment(segment.text.rstrip(), segment.style) for segment in kept[-1:])]


def _encodable(segment: Segment, encoding: str) -> Segment:
    """The bullets and bars that Rich draws, where the encoding lacks them."""
    if encodable(segment.text, encoding) == segment.text:
        return segment
    return Segment(segment.text.replace("\u2022", "*").replace("\u258c", "|"), segment.style)


def _look(block: Block) -> ConsoleRenderable:
    if block.language is None:
        return MarkdownText(block.text.strip("\n"))
    return CodeText(block)


class CodeText:
    """Code between its fences, in colours, its lines as long as they are."""

    def __init__(self, block: Block) -> None:
        self._block = block

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        block = self._block
        if block.opens:
            yield Text(block.opens.rstrip(), style="dim")
        if block.text:
            yield highlighted(block.text, block.language or "")
        if block.closes:
            yield Text(block.closes.rstrip(), style="dim")


def highlighted(code: str, language: str) -> Text:
    """`code` in the colours of its language; as it stands where nobody knows that."""
    name = language.partition(" ")[0].strip("{.}") or "text"
    text = Syntax("", name, theme=_CODE).highlight(code.expandtabs(8))
    text.rstrip()
    text.no_wrap, text.overflow = True, "ignore"  # the terminal breaks what is too long, and copies it whole
    return text


class _NestedCode(CodeBlock):
    """Code inside a list or a quotation."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield highlighted(str(self.text), self.lexer_name)


class _HeadingElement(Heading):
    """A heading that keeps its marks: bold alone is not seen everywhere."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text.assemble((f"{'#' * int(self.tag[1:])} ", "dim"), self.text)


class _NumberedItem(ListItem):
    """An item behind its number and a dot."""

    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:
        width = len(str(last_number)) + 3
        room = options.update(width=max(1, options.max_width - width))
        for at, line in enumerate(console.render_lines(self.elements, room, style=self.style)):
            yield Segment(" " * width if at else f"{number}. ".rjust(width))
            yield from line
            yield Segment.line()


class MarkdownText(Markdown):
    """A block of Markdown in which a line's end is one, and nothing is an address of the terminal's."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements, "heading_open": _HeadingElement, "list_item_open": _NumberedItem,
        "fence": _NestedCode, "code_block": _NestedCode,
    }  # fmt: skip

    def __init__(self, markup: str) -> None:
        super().__init__("", hyperlinks=False)
        parser = Parser("commonmark", {"html": False}).enable("strikethrough").enable("table")
        self.parsed = parser.disable(["reference", "image"]).parse(markup)
        for token in self.parsed:
            for child in token.children or ():
                child.type = "hardbreak" if child.type == "softbreak" else child.type
