"""A Word document with all its text where mammoth reads it, for a bounded child process.

Documents are untrusted.

mammoth skips equations, headers, footers, fields and characters with a reading (ruby), and gives
hidden text. So equations become text, headers and footers become paragraphs, what is around other
text is taken away, and so is hidden text. What has no text here is counted. It needs about 0.3 ms
for a paragraph, so of very many only the first are left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BytesIO
from typing import Final
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element
from zipfile import ZIP_STORED, ZipFile

MAX_PARAGRAPHS: Final = 30_000

_W: Final = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_M: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_DOCUMENT: Final = "word/document.xml"
_EDGE: Final = re.compile(r"word/(header|footer)\d*\.xml")
_TEXTS: Final = frozenset({f"{_W}t", f"{_M}t"})
_WRAPPERS: Final = frozenset({f"{_W}fldSimple", f"{_W}dir", f"{_W}bdo", f"{_W}rubyBase"})
"""Elements that mammoth skips with the text in them."""
_RUBY: Final = f"{_W}ruby"
_READING: Final = f"{_W}rt"
_UNREAD: Final = {
    f"{_W}commentReference": "comments",
    f"{_W}object": "embedded objects",
    f"{_W}altChunk": "embedded documents",
    "{http://schemas.openxmlformats.org/drawingml/2006/chart}chart": "charts",
    "{http://schemas.openxmlformats.org/drawingml/2006/diagram}relIds": "diagrams",
}
"""Elements whose content stands in another part of the document, and what it is called."""
_MAX_DEPTH: Final = 40  # Parts of an equation in each other that are told apart


def prepare(document: bytes, most: int) -> tuple[bytes, dict[str, int], bool]:
    """Return the document for mammoth, what was left out, and whether its end was cut.

    At most about `most` characters and `MAX_PARAGRAPHS` paragraphs are left. Raises whatever a
    damaged document leads to.
    """
    left_out = dict[str, int]()
    cut = False
    out = BytesIO()
    with ZipFile(BytesIO(document)) as original, ZipFile(out, "w", ZIP_STORED) as prepared:
        names = [name for name in original.namelist() if name.endswith((".xml", ".rels"))]
        edges = dict[str, list[str]](header=[], footer=[])
        for name in sorted(names):
            if edge := _EDGE.fullmatch(name):
                edges[edge[1]] += _lines(_parse(original.read(name)), left_out)
        for name in names:
            content = original.read(name)
            if name == _DOCUMENT:
                root = _parse(content)
                cut = _rewrite(root, edges, left_out, most)
                content = ET.tostring(root)
            prepared.writestr(name, content)
    return out.getvalue(), left_out, cut


def _parse(content: bytes) -> Element:
    # Expat opens no other file and bounds what entities may grow to; the memory and time of this
    # process are bounded.
    return ET.fromstring(content)  # noqa: S314


def _rewrite(
    root: Element, edges: dict[str, list[str]], left_out: dict[str, int], most: int
) -> bool:
    """Change the main part in its place; return whether its end was cut."""
    body = root.find(f"{_W}body")
    if body is None:
        return False
    kept, cut = _beginning(body, most)
    body[:] = kept
    _flatten(body, left_out)
    body[:0] = [_paragraph(f"[header] {line}") for line in dict.fromkeys(edges["header"])]
    body.extend(_paragraph(f"[footer] {line}") for line in dict.fromkeys(edges["footer"]))
    return cut


def _beginning(body: Element, most: int) -> tuple[list[Element], bool]:
    """Return the first blocks of a body, and whether there are more."""
    length = 0
    paragraphs = 0
    kept = list[Element]()
    for block in body:
        paragraphs += len(list(block.iter(f"{_W}p")))
        length += sum(map(len, _texts_in(block)))
        if kept and (paragraphs > MAX_PARAGRAPHS or length > most):
            return kept, True
        kept.append(block)
    return kept, False


def _flatten(part: Element, left_out: dict[str, int]) -> None:
    """Take hidden runs out of a part, and put a run of text in the place of each equation."""
    for parent in list(part.iter()):
        kind = _UNREAD.get(parent.tag)
        if kind is not None:
            left_out[kind] = left_out.get(kind, 0) + 1
        is_wrapper = parent.tag in _WRAPPERS or parent.tag in {_RUBY, _READING}
        if parent.tag.startswith(_M) or is_wrapper:
            continue
        children = _readable_children(parent, left_out)
        if children != list(parent):
            parent[:] = children


def _readable_children(parent: Element, left_out: dict[str, int]) -> list[Element]:
    """Return the children of an element as mammoth can read them; wrappers give way to theirs."""
    children = []
    for child in parent:
        hidden = child.tag == f"{_W}r" and _is_hidden(child)
        if hidden and any(text.text for text in child.iter(f"{_W}t")):
            left_out["hidden texts"] = left_out.get("hidden texts", 0) + 1
        if hidden:
            continue
        if child.tag == _READING:
            left_out["readings of characters"] = left_out.get("readings of characters", 0) + 1
        elif child.tag in _WRAPPERS or child.tag == _RUBY:
            children += _readable_children(child, left_out)
        elif child.tag in {f"{_M}oMath", f"{_M}oMathPara"}:
            children.append(_run(f" {_equation(child)} "))
        else:
            children.append(child)
    return children


def _is_hidden(run: Element) -> bool:
    vanish = run.find(f"{_W}rPr/{_W}vanish")
    return vanish is not None and vanish.get(f"{_W}val", "1") not in {"0", "false", "off"}


def _lines(part: Element, left_out: dict[str, int]) -> list[str]:
    """Return the texts of the paragraphs of a header or a footer."""
    _flatten(part, left_out)
    lines = []
    for paragraph in part.iter(f"{_W}p"):
        line = "".join(_texts_in(paragraph)).strip()
        if line:
            lines.append(line)
    return lines


def _texts_in(part: Element) -> Iterator[str]:
    """Yield the text of each run of a part that has one."""
    for element in part.iter(f"{_W}t"):
        if element.text:
            yield element.text


def _paragraph(text: str) -> Element:
    paragraph = Element(f"{_W}p")
    paragraph.append(_run(text))
    return paragraph


def _run(text: str) -> Element:
    run = Element(f"{_W}r")
    content = ET.SubElement(run, f"{_W}t")
    content.text = text
    return run


def _equation(part: Element | None, depth: int = 0) -> str:
    """Return an equation in a line, with a bracket wherever its form says what belongs together."""
    if part is None:
        return ""
    if depth > _MAX_DEPTH:
        return "".join(text.text or "" for text in part.iter() if text.tag in _TEXTS)

    def of(name: str) -> str:
        return _equation(part.find(_M + name), depth + 1)

    kind = part.tag.removeprefix(_M)
    if kind == "f":
        return f"({of('num')})/({of('den')})"
    if kind in {"sSup", "sSub", "sSubSup", "nary"}:
        below = ""
        if part.find(f"{_M}sub") is not None:
            below = f"_({of('sub')})"
        above = ""
        if part.find(f"{_M}sup") is not None:
            above = f"^({of('sup')})"
        if kind != "nary":
            return f"{of('e')}{below}{above}"
        sign = part.find(f"{_M}naryPr/{_M}chr")
        symbol = "∫" if sign is None else sign.get(f"{_M}val", "")
        return f"{symbol}{below}{above} {of('e')}"
    if kind == "rad":
        degree = of("deg")
        name = f"root_({degree})" if degree else "root"
        return f"{name}({of('e')})"
    if kind == "d":
        inner = ", ".join(_equation(child, depth + 1) for child in part.findall(f"{_M}e"))
        return f"({inner})"
    if kind == "mr":
        return ", ".join(_equation(child, depth + 1) for child in part) + "; "
    if part.tag in _TEXTS:
        return part.text or ""
    return "".join(_equation(child, depth + 1) for child in part)
