"""The encodings of web pages, by the names that pages and their servers give them. Pure.

From the Encoding Standard (encoding.spec.whatwg.org): many pages name a standard and hold letters
of what Windows made of it, so that browsers read them in the latter.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import Final

USUAL_ENCODING: Final = "cp1252"

_LABELS: Final[Mapping[str, str]] = {
    "x-sjis": "shift_jis",
    "x-gbk": "gbk",
    "x-euc-jp": "euc_jp",
    "iso-8859-8-i": "iso8859-8",
}
"""Names that Python does not know."""

_READ_AS: Final[Mapping[str, str]] = {
    "ascii": USUAL_ENCODING,
    "iso8859-1": USUAL_ENCODING,
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
    "shift_jis": "cp932",
    "big5": "big5hkscs",
}
"""What browsers read in a wider encoding, as Python calls both."""


def encoding_of_page(label: str) -> str:
    """Return the encoding in which browsers read a page that names `label`, as Python calls it.

    Raises `LookupError` for a name that is not known.
    """
    name = codecs.lookup(_LABELS.get(label.lower(), label)).name
    return _READ_AS.get(name, name)
