"""Markdown on a terminal while it is written: complete blocks are printed for good, the current one is redrawn.

Nothing of the text is lost except marks that styles replace. HTML, images and definitions are shown as they were
written, links are not clickable, and code keeps its fences and its lines, so that it can be copied.
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
from conductor_cli.views.live_region import LiveRegion, SegmentLine, row_width
from conductor_cli.views.markdown_blocks import Block, BlockSplitter
from conductor_cli.views.text_layout import COMMON, UNSEEN, WIDEST, Screen

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult

TICK: Final = 1 / 8
"""Seconds between two drawings."""

LONGEST_LIVE_BLOCK: Final = 4096
"""Of a longer unfinished block only the end is shown, without rendering."""

FLOOD: Final = re.compile(f"({UNSEEN}{{30}}){UNSEEN}+")
"""More marks and invisible characters in a row than Unicode allows in a stream-safe text (UAX #15, D3)."""

_THEME: Final = Theme(
    {
        **{f"markdown.h{level}": "bold" for level in range(1, 7)},
        "markdown.h1.border": "dim", "markdown.code": "cyan", "markdown.code_block": "none", "markdown.link": "none",
        "markdown.link_url": "underline", "markdown.block_quote": "italic", "markdown.item.bullet": "dim",
        "markdown.item.number": "dim", "markdown.hr": "dim", "markdown.table.header": "bold",
        "markdown.table.border": "dim",
    }
)  # fmt: skip

_CODE_THEME: Final = ANSISyntaxTheme(
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
"""The terminal's own colours, and only those that can be read on a light and on a dark background."""


class MarkdownStream:
    """Renders one text after the other. With `tick` None, each piece is drawn at once. Close it whatever happened."""

    def __init__(self, console: Console, *, rewraps: bool = True, tick: float | None = TICK) -> None:
        console.push_theme(_THEME)
        self._console = console
        self._rewraps = rewraps
        self._tick = tick
        self._blocks = BlockSplitter()
        self._complete: list[Block] = []
        self._follows = False
        self._changed = False
        self._error: OSError | None = None
        self._lock = threading.Lock()
        self._region: LiveRegion | None = None
        self._timer: Timer | None = None

    def write(self, text: str) -> None:
        """Add a piece of sanitized text. Raises the `OSError` of the last drawing, if there was one."""
        # Drawing happens on the timer's thread, which cannot report that the terminal is gone.
        if self._error is not None:
            raise self._error
        with self._lock:
            self._complete += self._blocks.feed(text)
            self._changed = True
        if self._region is None:
            self._region = LiveRegion(self._console, rewraps=self._rewraps)
            if self._tick:
                self._timer = Timer(self._on_tick, self._tick, name="conductor-answer")
                self._timer.start()
        if not self._tick:
            self.draw()

    def remark(self, text: str) -> None:
        """A line between two texts that is not part of them."""
        self.close()
        self._console.print(Text(text, style="dim"))

    def close(self) -> None:
        """Print the rest; afterwards a new text may begin."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        region, self._region = self._region, None
        if region is None:
            return
        try:
            self._complete += self._blocks.close()
            region.draw([], self._take_complete())
        finally:
            region.close()
            self._follows = False

    def draw(self) -> None:
        """Print complete blocks, and the unfinished one below them."""
        with self._lock:
            if self._region is None or not self._changed or not self._region.size_is_stable:
                return
            self._changed = False
            above = self._take_complete()
            self._region.draw(self._live_rows(), above)

    def _on_tick(self) -> None:
        try:
            self.draw()
        except OSError as error:  # this is the timer's thread, so the next `write` raises it
            self._error = error

    def _take_complete(self) -> ConsoleRenderable | None:
        blocks, self._complete = self._complete, []
        if not blocks:
            return None
        follows, self._follows = self._follows, True
        return RenderedBlocks(blocks, follows=follows)

    def _live_rows(self) -> list[SegmentLine]:
        """The last rows of the unfinished block, as many as can still be erased in a smaller window."""
        rest = self._blocks.rest
        if not rest.source.strip():
            return []
        shown = RenderedBlocks([rest], follows=self._follows)
        if len(rest.source) > LONGEST_LIVE_BLOCK:
            shown = RenderedBlocks([Block(text=rest.source[-LONGEST_LIVE_BLOCK:], language="")], follows=self._follows)
        options = self._console.options.update(width=min(WIDEST, self._console.width), height=None)
        rows = self._console.render_lines(shown, options, pad=False)[-COMMON[1] :]
        screen, widths = Screen(width=self._console.width, height=self._console.height), [*map(row_width, rows)]
        while len(widths) > 1 and not screen.fits(widths):
            del widths[0]
        return [tuple(row) for row in rows[-len(widths) :]]


class RenderedBlocks:
    """Rendered blocks. `follows`: others were printed above them."""

    def __init__(self, blocks: list[Block], *, follows: bool) -> None:
        self._blocks = blocks
        self._follows = follows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        follows = self._follows
        for block in self._blocks:
            if not block.source.strip():
                continue
            if follows and (block.opens or block.language is None):
                yield Segment.line()
            yield from _render_block(block, console, options.update(width=min(WIDEST, options.max_width)))
            follows = True


def _render_block(block: Block, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
    """A block as Rich renders it, or as plain text: no text that a model wrote may end a run with an error."""
    try:
        calm = replace(block, text=FLOOD.sub(r"\1", block.text))
        segments = list(
            console.render(MarkdownText(calm.text.strip("\n")) if calm.language is None else CodeText(calm), options)
        )
    except Exception:  # noqa: BLE001 - whatever a parser fails on
        segments = list(console.render(Text(block.source.strip("\n")), options))
    lines = [_trim_line(line, console.encoding) for line in Segment.split_lines(segments)]
    while block.language is None and lines and not lines[0]:
        del lines[0]
    while block.language is None and lines and not lines[-1]:
        del lines[-1]
    for line in lines:
        yield from line
        yield Segment.line()


def _trim_line(line: Iterable[Segment], encoding: str) -> list[Segment]:
    """A line without the spaces that Rich adds at its end, which would be copied and wrapped with it."""
    kept = [_with_ascii(segment, encoding) for segment in line]
    while kept and not kept[-1].text.strip():
        kept.pop()
    return [*kept[:-1], *(Segment(segment.text.rstrip(), segment.style) for segment in kept[-1:])]


def _with_ascii(segment: Segment, encoding: str) -> Segment:
    """ASCII for the bullets and bars that Rich draws, if the encoding lacks them."""
    if encodable(segment.text, encoding) == segment.text:
        return segment
    return Segment(segment.text.replace("\u2022", "*").replace("\u258c", "|"), segment.style)


class CodeText:
    """Highlighted code between its fences; long lines are not wrapped."""

    def __init__(self, block: Block) -> None:
        self._block = block

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        block = self._block
        if block.opens:
            yield Text(block.opens.rstrip(), style="dim")
        if block.text:
            yield highlight_code(block.text, block.language or "")
        if block.closes:
            yield Text(block.closes.rstrip(), style="dim")


def highlight_code(code: str, language: str) -> Text:
    """`code` in the colours of its language, or without colours if that is unknown."""
    name = language.partition(" ")[0].strip("{.}") or "text"
    text = Syntax("", name, theme=_CODE_THEME).highlight(code.expandtabs(8))
    text.rstrip()
    text.no_wrap, text.overflow = True, "ignore"  # the terminal wraps long lines, and copies them as one
    return text


class _NestedCode(CodeBlock):
    """Code inside a list or a block quote."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield highlight_code(str(self.text), self.lexer_name)


class _HeadingElement(Heading):
    """A heading that keeps its marks, because bold is not visible on every terminal."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text.assemble((f"{'#' * int(self.tag[1:])} ", "dim"), self.text)


class _NumberedItem(ListItem):
    """An item of a numbered list, with a dot after its number."""

    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:
        width = len(str(last_number)) + 3
        room = options.update(width=max(1, options.max_width - width))
        for at, line in enumerate(console.render_lines(self.elements, room, style=self.style)):
            yield Segment(" " * width if at else f"{number}. ".rjust(width))
            yield from line
            yield Segment.line()


class MarkdownText(Markdown):
    """A block of Markdown that keeps line breaks and has no clickable links."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements, "heading_open": _HeadingElement, "list_item_open": _NumberedItem,
        "fence": _NestedCode, "code_block": _NestedCode,
    }  # fmt: skip

    def __init__(self, markup: str) -> None:
        # Rich parses in its constructor with its own rules, so it gets no text; ours is parsed below.
        super().__init__("", hyperlinks=False)
        parser = Parser("commonmark", {"html": False}).enable("strikethrough").enable("table")
        self.parsed = parser.disable(["reference", "image"]).parse(markup)
        # Models write one line per thought; Markdown would join them into one paragraph line.
        for token in self.parsed:
            for child in token.children or ():
                child.type = "hardbreak" if child.type == "softbreak" else child.type
