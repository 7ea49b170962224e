"""Whether llama.cpp will take a grammar. Pure.

llama.cpp writes a syntax error straight to standard error, a place that belongs to the live view, and takes `{5,2}` for
a repetition without end; so every grammar is checked here first. The language is that of its `grammars/README.md`,
without references to tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

ROOT: Final = "root"

REPETITIONS: Final = 2000
"""llama.cpp refuses a repetition that would make this many rules."""

_ESCAPE: Final = r'\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[trn\\"\[\]-])'

_WORD: Final = re.compile(
    rf"""
      (?P<space>[ \t]+|\#[^\r\n]*)
    | (?P<newline>\r\n|\r|\n)
    | (?P<define>::=)
    | (?P<name>[A-Za-z0-9-]+)
    | (?P<item>"(?:[^"\\]|{_ESCAPE})*"|\[\^?(?:[^\]\\]|{_ESCAPE})*\]|\.)
    | (?P<bar>\|)
    | (?P<open>\()
    | (?P<close>\))
    | (?P<repeat>[*+?]|\{{\ *(?P<least>\d{{1,9}})\ *(?P<comma>,)?\ *(?P<most>\d{{1,9}})?\ *\}})
    """,
    re.VERBOSE,
)


class GrammarError(ValueError):
    """Why a grammar cannot be used; `str()` says where."""


class _Word(NamedTuple):
    kind: str
    match: re.Match[str]


def check(grammar: str) -> None:
    """Raise `GrammarError` unless `grammar` is one that llama.cpp reads without complaint."""
    if "\0" in grammar or any("\ud800" <= letter <= "\udfff" for letter in grammar):
        raise GrammarError("it has a character that no text may have")
    reader = _Reader()
    for word in _words(grammar):
        reader.take(word)
    reader.end()


def _words(grammar: str) -> Iterator[_Word]:
    at = 0
    while at < len(grammar):
        match = _WORD.match(grammar, at)
        if match is None:
            raise GrammarError(_where("it cannot be read", grammar, at))
        at = match.end()
        for kind in ("space", "newline", "define", "name", "item", "bar", "open", "close", "repeat"):
            if match[kind] is not None and kind != "space":
                yield _Word(kind, match)


def _where(problem: str, grammar: str, at: int) -> str:
    return f"{problem} at line {grammar.count(chr(10), 0, at) + 1}: {grammar[at : at + 24]!r}"


class _Reader:
    """Reads one word after the other. `_sizes` has, for each open bracket, how many rules there were before it."""

    def __init__(self) -> None:
        self._defined: set[str] = set()
        self._named: dict[str, None] = {}
        self._generated = 0
        self._sizes: list[int] = []
        self._before = "newline"
        self._size = 1
        self._repeatable = False
        self._in_rule = False

    def take(self, word: _Word) -> None:
        if word.kind == "newline":
            self._newline()
        elif not self._in_rule:
            self._head(word)
        elif word.kind == "define":
            raise GrammarError(_at("a rule begins before the one above it has ended", word))
        else:
            getattr(self, f"_{word.kind}")(word)
            self._before = word.kind

    def end(self) -> None:
        self._newline()
        if self._sizes or self._in_rule:
            raise GrammarError("it ends in the middle of a rule")
        missing = [name for name in (ROOT, *self._named) if name not in self._defined]
        if missing:
            raise GrammarError(f"it has no rule named {missing[0]!r}")

    def _newline(self) -> None:
        if not self._in_rule and self._before == "name":
            raise GrammarError("a rule has no ::= on the line of its name")
        if self._in_rule and not self._sizes and self._before not in ("define", "bar"):
            self._in_rule, self._before = False, "newline"

    def _head(self, word: _Word) -> None:
        if word.kind == "name" and self._before == "newline":
            self._defined.add(word.match["name"])
            self._named[word.match["name"]] = None
        elif word.kind == "define" and self._before == "name":
            self._in_rule, self._repeatable = True, False
        else:
            raise GrammarError(_at("a line begins that is no rule", word))
        self._before = word.kind

    def _name(self, word: _Word) -> None:
        self._named[word.match["name"]] = None
        self._one()

    def _item(self, word: _Word) -> None:
        self._one(repeatable=word.match["item"] not in ('""', "[]", "[^]"))

    def _one(self, *, repeatable: bool = True) -> None:
        self._repeatable, self._size = repeatable, 1

    def _bar(self, _: _Word) -> None:
        self._repeatable = False

    def _open(self, _: _Word) -> None:
        self._sizes.append(self._rules())
        self._generated += 1
        self._repeatable = False

    def _close(self, word: _Word) -> None:
        if not self._sizes:
            raise GrammarError(_at("a bracket closes that was never opened", word))
        self._repeatable, self._size = True, max(1, self._rules() - self._sizes.pop())

    def _rules(self) -> int:
        return len(self._named) + self._generated

    def _repeat(self, word: _Word) -> None:
        if not self._repeatable:
            raise GrammarError(_at("there is nothing to repeat", word))
        least, most = _bounds(word)
        if most is not None and most < least:
            raise GrammarError(_at("a repetition has its bounds the wrong way round", word))
        self._size *= most or least or 1
        if least > REPETITIONS or self._size >= REPETITIONS:
            raise GrammarError(_at(f"a repetition would make {REPETITIONS} rules or more", word))
        self._generated += 1 if most is None else most - least
        self._repeatable = most != 0


def _bounds(word: _Word) -> tuple[int, int | None]:
    short = {"*": (0, None), "+": (1, None), "?": (0, 1)}
    sign = word.match["repeat"]
    if sign in short:
        return short[sign]
    least, most = int(word.match["least"]), word.match["most"]
    if word.match["comma"] is None:
        if most is not None:
            raise GrammarError(_at("it cannot be read", word))
        return least, least
    return least, None if most is None or int(most) > REPETITIONS else int(most)


def _at(problem: str, word: _Word) -> str:
    return _where(problem, word.match.string, word.match.start())
