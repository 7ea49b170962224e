"""Rules for a parser of Markdown, so that nothing of a model's text is lost.

A formula in LaTeX stays as it was written: to Markdown its backslashes are escapes, which it drops,
and its indices are emphasis. A row of a table that has more cells than there are columns, as where
`|` stands in code, would lose them; such a table stays as it was written, too. So does JSON, as an
answer with a schema is: its escapes are not those of Markdown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

# Characters of a formula between single dollars; each dollar is looked at, so the search is bounded
MAX_FORMULA: Final = 500
_ENDS: Final = {"\\(": "\\)", "\\[": "\\]", "$$": "$$"}
"""What ends a formula, by how it begins."""
_DISPLAYED: Final = ("\\[", "$$")
"""How a formula begins that may take several lines."""
_DOLLARS: Final = re.compile(rf"\$(?![\s$])(?:(?!\*\*)[^$`\n]){{1,{MAX_FORMULA}}}(?<!\s)\$(?!\w)")
"""A formula between single dollars. `$5 and $6` is none, nor is `**$A** or **$B**`."""
_PIPE: Final = re.compile(r"(?<!\\)\|")
_JSON_BEGINS: Final = re.compile(r"\{\s*(?:\"|$)|\[\s*(?:[{\"]|$)")
_JSON_CUT: Final = re.compile(r"|-|\.|[eE][+-]?|t|tr|tru|f|fa|fal|fals|n|nu|nul|u[0-9a-fA-F]{0,3}")
"""What stands where JSON is wrong that has not ended yet."""


def keep_all_text(parser: MarkdownIt) -> MarkdownIt:
    """Give a parser, which has tables, the rules of this module, and return it."""
    parser.block.ruler.before(
        "fence",
        "formula",
        _displayed_formula,
        {"alt": ["paragraph", "reference", "blockquote", "list"]},
    )
    parser.inline.ruler.before("escape", "formula", _formula)
    parser.block.ruler.before("fence", "json", _json)
    whole_table = _without_wide_rows(dict(_named_rules(parser))["table"])
    parser.block.ruler.at("table", whole_table, {"alt": ["paragraph", "reference"]})
    return parser


def _named_rules(parser: MarkdownIt) -> Iterator[tuple[str, Callable[..., bool]]]:
    for rule in parser.block.ruler.__rules__:
        yield rule.name, rule.fn


def _formula(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - as the parser calls it
    """Take a formula within a line, or over several lines of one paragraph, as it is."""
    end = _end_of_formula(state.src, state.pos)
    if end == 0:
        return False
    if not silent:
        for number, line in enumerate(state.src[state.pos : end].split("\n")):
            if number:
                state.push("softbreak", "br", 0)
            state.push("text", "", 0).content = line
    state.pos = end
    return True


def _end_of_formula(text: str, begin: int) -> int:
    """Return where the formula that begins there has ended; 0 where none begins."""
    mark = text[begin : begin + 2]
    if mark in _ENDS:
        end = text.find(_ENDS[mark], begin + 2)
        return 0 if end < 0 else end + 2
    found = _DOLLARS.match(text, begin)
    return 0 if found is None else found.end()


def _displayed_formula(state: StateBlock, first: int, end: int, silent: bool) -> bool:  # noqa: FBT001
    """Take a formula of several lines as one paragraph; `- b` would begin a list in it.

    One that has not ended yet is taken, too, as far as it has come.
    """
    begin = state.bMarks[first] + state.tShift[first]
    mark = state.src[begin : begin + 2]
    if mark not in _DISPLAYED or state.is_code_block(first):
        return False
    if _ENDS[mark] in state.src[begin + 2 : state.eMarks[first]]:
        return False  # it takes one line
    last = first
    for line in range(first + 1, end):
        # In LaTeX a formula has no empty lines either
        if state.isEmpty(line) or state.sCount[line] < state.blkIndent:
            return False
        last = line
        if _ENDS[mark] in state.src[state.bMarks[line] : state.eMarks[line]]:
            break
    if last == first:
        return False
    if not silent:
        state.line = last + 1
        state.push("paragraph_open", "p", 1).map = [first, state.line]
        token = state.push("inline", "", 0)
        lines = state.getLines(first, state.line, state.blkIndent, keepLastLF=False)
        token.content = lines.strip()
        token.map = [first, state.line]
        token.children = []
        state.push("paragraph_close", "p", -1)
    return True


def _json(state: StateBlock, first: int, end: int, silent: bool) -> bool:  # noqa: FBT001
    """Take a paragraph of JSON as code, also one that has not ended yet."""
    begin = state.bMarks[first] + state.tShift[first]
    is_inside = state.level > 0 or state.blkIndent > 0
    if is_inside or state.is_code_block(first):
        return False
    if not _JSON_BEGINS.match(state.src[begin : state.eMarks[first]]):
        return False
    last = first
    while last + 1 < end and not state.isEmpty(last + 1):
        last += 1
    text = state.getLines(first, last + 1, 0, keepLastLF=True)
    if not _is_json(text, may_go_on=last + 1 == end):
        return False
    if not silent:
        state.line = last + 1
        token = state.push("fence", "code", 0)
        token.info = "json"
        token.content = text
        token.map = [first, state.line]
    return True


def _is_json(text: str, *, may_go_on: bool) -> bool:
    """Return whether a text is JSON, or may become JSON when it goes on."""
    try:
        json.loads(text, parse_int=str)  # Python refuses to read long ones as numbers
    except json.JSONDecodeError as error:
        is_in_string = error.msg.startswith("Unterminated")
        is_cut = is_in_string or _JSON_CUT.fullmatch(text[error.pos :].strip()) is not None
        return may_go_on and is_cut
    except RecursionError:
        return False
    return True


def _without_wide_rows(table: Callable[..., bool]) -> Callable[..., bool]:
    """Return the parser's rule for tables, which leaves out those that would lose cells."""

    def whole_table(state: StateBlock, first: int, end: int, silent: bool) -> bool:  # noqa: FBT001
        before = len(state.tokens)
        if not table(state, first, end, silent):
            return False
        if silent:
            return True
        columns = sum(token.type == "th_open" for token in state.tokens[before:])
        for line in range(first + 2, state.line):
            row = state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]
            if _count_cells(row.strip()) > columns:
                del state.tokens[before:]
                state.line = first
                return False
        return True

    return whole_table


def _count_cells(row: str) -> int:
    pipes = [match.start() for match in _PIPE.finditer(row)]
    outer = (0 in pipes) + (len(row) - 1 in pipes)
    return len(pipes) + 1 - outer
