"""How people ask for each operation: a small grammar and its rules. Pure.

The phrasings of the operations stand in `ways.txt`. `[a|b|]` is a choice; `{x}` and `{y}` are the values of an
operation, in its order. A line starts with its form: `n` a thing ("the capital of {x}"), `a` a whole question ("which
city is …"), `o` an order ("name the capital of {x}"), `t` an order about the answers just found, which needs no other
word for them ("add them", "count its letters"). Lines with `!` are held out: no training uses them. They combine known
words in other ways, since no small model can read a word that it has never seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Final, Literal

PhrasingSet = Literal["known", "loose", "held", "all"]
"""Phrasings used in training, the same ones put together more loosely, held-out ones, or all."""

PhrasingForm = Literal["noun", "ask", "order", "then"]
"""A thing, a whole question, an order, an order about the answers just found."""

_FORMS: Final[Mapping[str, PhrasingForm]] = {"n": "noun", "a": "ask", "o": "order", "t": "then"}


def _sections(text: str) -> dict[str, str]:
    """The lines of a file by the names in brackets above them."""
    found: dict[str, list[str]] = {}
    for line in map(str.strip, text.splitlines()):
        if re.fullmatch(r"\[\w+\]", line):
            found[line[1:-1]] = []
        elif line and not line.startswith("#"):
            found[next(reversed(found))].append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


WAYS: Final[Mapping[str, str]] = _sections(Path(__file__).with_name("ways.txt").read_text(encoding="utf-8"))
"""The lines of each operation, by its name."""

CHECKS: Final = """
    t [check|verify|double check|test|review] [it|that|this|the answer|the result]
    t [check|verify|make sure|see] [if|that|whether] [it|that|the answer|the result] is [correct|ok]
    t have [it|the answer|the result] [checked|verified]
    t [check|verify|review] [it|the answer|the result] [again|once more|carefully]
    t make sure [it|the answer|the result] is [correct|ok|fine]
    t [get|have|let] somebody [check|verify|review] [it|the answer|the result]
    t get [it|the answer|the result] [checked|verified|tested]
    t ask somebody [to check|to verify|to review] [it|the answer|the result]
    t [check|see|test|find out] [if|whether] [it|the answer|the result] [is fine|fits|holds]
    t confirm [it|that it is correct|the answer|the result|that the answer is correct]
    t check that [everything|all of it] is [correct|ok|fine]
    t do a [check|test|review] of [it|the answer|the result]
    t be sure that [it|the answer|the result] is correct
    t check your [answer|result|work]
    t please [check|verify|double check|confirm] [it|that|the answer|the result]
    t look at [it|the answer|the result] again to [check|verify|confirm] it
    !t make sure of [it|the answer|the result]
    !t see to it that [the answer|the result] is [correct|ok]
    """
"""How people ask for a check of what was found."""

FRAMES: Final = """
    n [{hello} |][what is|what's|what would be|what will be] {s}
    n [{hello} |][tell me|give me|show me|find|get me|work out|name|say|find me|find out] {s}[ {end}|]
    n [{hello} |][i need|i want|i want to know|i would like to know|do you know] {s}[ {end}|]
    n [{hello} |][can|could|would|will] you [tell me|give me|find|get|work out] {s}[ {end}|]
    n {s}
    n {s} please
    a {s}
    a [{hello} |]{s}
    a {s} [{end}]
    a [tell me|do you know|can you tell me|could you tell me] {s}
    o {s}
    o [{hello} |]{s}[ {end}|]
    o [please|can you|could you|would you|will you|can you please|now|just|go and] {s}[ {end}|]
    o [i want you to|i need you to|i would like you to|you should|let us|try to] {s}
    n [{hello} |]what exactly is {s}[ {end}|]
    n [{hello} |]i [need|want] to [find|find out|work out|see] {s}[ {end}|]
    n [{hello} |]i am [looking for|trying to find|curious about|asking for|interested in] {s}[ {end}|]
    n [{hello} |]kindly [tell me|give me|name|find|show me] {s}
    n [could|can|would] you [please|kindly] [tell me|give me|find|show me|name] {s}
    n [tell me|do you know|can you tell me|could you say|i want to know|i wonder|find out] what {s} is
    n [any idea what|who knows what|tell us what] {s} is
    n [help me to find|help me work out|let me see] {s}[ {end}|]
    n [determine|figure out|look up|identify|write down|report] {s}[ {end}|]
    n [we need|we want|we would like to know|my task is to find|your task is to find|all i need is] {s}
    n [my question is what is|the question is what is|question what is] {s}
    n {s} what is it
    n {s} [{end}]
    a [i wonder|any idea|help me find out|just tell me|i need to know] {s}
    a [my question is|the question is|here is a question|question|i have a question] {s}
    a [can|could|would|will] you [please|kindly|] [tell me|say|find out] {s}[ {end}|]
    a [{hello} |]would you happen to know {s}[ {end}|]
    a {s} [do you know|can you tell me|any idea|tell me]
    a we [want|need|would like] to know {s}
    a [{hello} |][say|find out|figure out|work out] {s}[ {end}|]
    o [kindly|simply|quickly|first of all] {s}
    o it would be [nice|great|kind] if you [could|would] {s}
    o [your task is to|your job is to|all you need to do is|i ask you to|you have to|you need to] {s}[ {end}|]
    o [help me to|help me|help us] {s}[ {end}|]
    o [can|could|would|will] you [please|kindly|quickly|] {s}[ {end}|]
    o [{hello} |][can|could|would|will] you [help me|help me to|help us] {s}
    o [{hello} |]please {s}[ {end}|]
    !n [{hello} |][let me know|i would like|would you know|please say|can i have|show] {s}[ {end}|]
    !n [i have to know|i need to have|help me find|help me with] {s}
    !a [i want to know|i would like to know|please tell me] {s}
    !o [please would you|you can|i want to have you|help me and|go on and] {s}[ {end}|]
    """
"""The words around a phrasing, or around the first of several orders."""

MACROS: Final = {
    "{what}": "[what|which]",
    "{get}": "[name|give|find|say|tell me|get|work out|give me|look up|determine|identify]",
    "{sum}": "[calculate|compute|work out|find|give|figure out|determine|find out|tell me|say]",
    "{hello}": (
        "[hi|hello|hey|ok|okay|so|well|now|hey there|quick question|hi there|hello there|excuse me|"
        "a question|one question|i have a question|next question|listen|well then|alright|sorry|can you help|"
        "i need help]"
    ),
    "{end}": (
        "[please|for me|thanks|thank you|now|if you can|quickly|pls|many thanks|thanks a lot|when you can|for us|"
        "if you know|if you please|as soon as you can|thank you very much|today]"
    ),
}

OPENINGS: Final = """
    o take {x} [and|then|] {s}
    o [start with|begin with|use|consider] [the word|the number|] {x} [and|then|] {s}
    o first {s}
    o [first|] [take|get|find] {x} [and|then|and then] {s}
    o [here is|look at|we have|i have|you have] {x} [now|so|and now] {s}
    o [given|using] {x} [now|first|] {s}
    o [work with|pick|choose|let us take|let us start with|think of|write down|go from] {x} [and|then|and then|] {s}
    o [starting|beginning] with {x} {s}
    o i give you {x} [now|now please|and you] {s}
    o [suppose|imagine] you have {x} [now|then|and] {s}
    o the [start|starting point|input] is {x} [now|and then|then] {s}
    o from {x} on {s}
    !o [first|] [begin from|get going with] {x} [and|then|] {s}
    !o with {x} [first|] {s}
    """
"""How several orders may start. After one with `{x}`, all of them refer to the answer before."""

PAIRS: Final = """
    o [take|find|get|work out|look up] {x} and {y}
    o [find|get|take|work out] {x} [and also|and then|then|as well as] {y}
    o first [find|get|take] {x} [and|then|and then] {y}
    o [look for|determine|give me|begin with|compute] {x} and {y}
    o [look at|think of|write down|name|tell me] {x} and {y}
    o [find|get|take] both {x} and {y}
    o [find|get|take|work out|determine] {x} [together with|along with|and next|and afterwards|and after that] {y}
    o first [work out|determine|look up] {x} [and|then|and then|and after that] {y}
    o [find|get|work out] {x} and [find|get|work out] {y} [too|as well]
    o find {x} then find {y}
    o [you need|i need|we need|i have|here are] {x} and {y}
    !o [use|consider|start with] {x} and {y}
    !o [look up|work out] both {x} and {y}
    """
"""How the two parts of a join may be named before what is done with both."""

JOINTS: Final = (
    " and ", " then ", " and then ", " after that ", " next ", " and finally ", " and afterwards ", ", ",
    " afterwards ", ", and next ", ", finally ", ", lastly ", " and after that ", ", now ", " and now ", ". then ",
    " once you have that ", " when that is done ", " and as the next step ", " and with that done ",
)  # fmt: skip
"""What stands between two orders. Commas are not read."""

TYPED: Final = (
    "a an any are from here how i its just me my now of ok please so some such that this to us was who word you your "
    "people value they say halved doubled made going there them very much does do did doing have had lets let all need "
    "give got it's im is am for by at on if"
)
"""Small words that people type beside those of the phrasings. They are operands only if quoted."""


@dataclass(frozen=True, slots=True)
class Phrasing:
    """One line of the grammar, with its choices still open."""

    form: PhrasingForm
    text: str
    held: bool


def _read(lines: str) -> tuple[Phrasing, ...]:
    found = []
    for line in filter(None, map(str.strip, lines.splitlines())):
        mark, _, text = line.partition(" ")
        found.append(Phrasing(_FORMS[mark.removeprefix("!")], text, held=mark.startswith("!")))
    return tuple(found)


@cache
def lines_of(lines: str, form: PhrasingForm, which: PhrasingSet) -> tuple[str, ...]:
    """The lines of a form, choices open. Held-out ones alone for "held" if there are any of this form."""
    able = [line for line in _read(lines) if line.form == form]
    kept = [line.text for line in able if which == "all" or line.held == (which == "held")]
    return tuple(kept or [line.text for line in able])


@cache
def expand(text: str) -> tuple[str, ...]:
    """Every text that the choices of a line allow."""
    for macro, choices in MACROS.items():
        text = text.replace(macro, choices)
    parts = list(_parts(text))
    return tuple(dict.fromkeys(_tidy("".join(chosen)) for chosen in product(*parts)))


def _parts(text: str) -> Iterator[tuple[str, ...]]:
    """The text as a row of choices; a choice may hold another."""
    start, depth = 0, 0
    for at, letter in enumerate(text):
        if letter == "[":
            if depth == 0:
                yield (text[start:at],)
                start = at + 1
            depth += 1
        elif letter == "]":
            depth -= 1
            if depth == 0:
                yield tuple(one for choice in _choices(text[start:at]) for one in expand_raw(choice))
                start = at + 1
    yield (text[start:],)


def expand_raw(text: str) -> list[str]:
    """As `expand`, with spaces as they are."""
    return ["".join(chosen) for chosen in product(*_parts(text))]


def _choices(text: str) -> list[str]:
    found, start, depth = [], 0, 0
    for at, letter in enumerate(text):
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if letter == "|" and depth == 0:
            found.append(text[start:at])
            start = at + 1
    return [*found, text[start:]]


def _tidy(text: str) -> str:
    return " ".join(text.split())


def fill(phrasing: str, x: str, y: str = "") -> str:
    """The phrasing with its values; "it's" is written "its"."""
    text = phrasing.replace("{x}'s", "its" if x == "it" else f"{x}'s")
    return _tidy(text.replace("{x}", x).replace("{y}", y))


def vocabulary() -> frozenset[str]:
    """Every word that questions consist of. Any other word is an operand; so is a table, unless it is periodic."""
    lines = [line.text for text in (*WAYS.values(), CHECKS, FRAMES, OPENINGS, PAIRS) for line in _read(text)]
    text = re.sub(r"\{\w+\}('s)?", "", " ".join([*lines, *JOINTS, *MACROS.values(), TYPED]))
    return frozenset(re.findall("[a-z]+", text.replace("'", ""))) - {"table"}
