"""How people ask for each operation, and how they put several of them into one sentence. Pure data and its rules.

`{x}` is the operand, `{k}` the amount. A phrasing without `{x}` refers to the answer before ("count its letters").
Held-out phrasings are not used in training. They combine known words in other ways, since no small model can read a
word that it has never seen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

PhrasingSet = Literal["known", "held", "all"]
"""Phrasings used in training, held-out ones, or both."""

PhrasingForm = Literal["noun", "ask", "order"]
"""A thing ("the capital of {x}"), a whole question ("which city is …"), an order ("name the capital of {x}")."""

PRONOUNS: Final = ("it", "that", "the result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrasings:
    """The phrasings of one operation; `held_…` are the held-out ones."""

    nouns: tuple[str, ...]
    asks: tuple[str, ...] = ()
    orders: tuple[str, ...]
    held_nouns: tuple[str, ...]
    held_orders: tuple[str, ...]

    def of(self, form: PhrasingForm, which: PhrasingSet) -> tuple[str, ...]:
        known = {"noun": self.nouns, "ask": self.asks, "order": self.orders}[form]
        held = {"noun": self.held_nouns, "ask": (), "order": self.held_orders}[form]
        return {"known": known, "held": held, "all": known + held}[which]


def _edge(which: str, at: str, verb: str) -> Phrasings:
    """The phrasings for the first and the last letter."""
    return Phrasings(
        nouns=(f"the {which} letter of {{x}}", f"the letter at the {at} of {{x}}",
               f"the letter that {{x}} {verb} with"),
        asks=(f"which letter is the {which} letter of {{x}}", f"which letter is at the {at} of {{x}}"),
        orders=(f"give the {which} letter of {{x}}", f"find the letter at the {at} of {{x}}",
                f"name its {which} letter"),
        held_nouns=(f"the {which} letter in {{x}}", f"the letter that is at the {at} of {{x}}"),
        held_orders=(f"name the {which} letter of {{x}}", f"give the letter at the {at} of {{x}}"),
    )  # fmt: skip


def _month(which: str, verb: str) -> Phrasings:
    """The phrasings for the month after and the month before."""
    return Phrasings(
        nouns=(f"the month {which} {{x}}", f"the month {verb} {{x}}"),
        asks=(f"which month comes {which} {{x}}", f"which month is {which} {{x}}"),
        orders=(f"name the month {which} {{x}}", f"give the month that comes {which} {{x}}"),
        held_nouns=(f"the month which is {which} {{x}}",),
        held_orders=(f"find the month {which} {{x}}", f"name the month that comes {which} {{x}}"),
    )


WAYS: Final[Mapping[str, Phrasings]] = {
    "reverse": Phrasings(
        nouns=("the reverse of {x}", "{x} spelled backwards", "the reverse spelling of {x}", "{x} written backwards"),
        asks=("how is {x} spelled backwards", "how do you spell {x} backwards"),
        orders=("spell {x} backwards", "reverse {x}", "write {x} backwards", "reverse its letters",
                "write {x} in reverse"),
        held_nouns=("the backwards spelling of {x}", "{x} spelled in reverse"),
        held_orders=("spell {x} in reverse", "reverse the letters of {x}"),
    ),
    "count": Phrasings(
        nouns=("the number of letters in {x}", "the letter count of {x}", "the count of the letters of {x}"),
        asks=("how many letters are in {x}", "how many letters does {x} have", "how many letters are there in {x}"),
        orders=("count the letters in {x}", "count its letters", "say how many letters {x} has"),
        held_nouns=("the number of letters of {x}", "the count of letters in {x}"),
        held_orders=("count the letters of {x}", "say how many letters are in {x}"),
    ),
    "sort": Phrasings(
        nouns=("the letters of {x} in alphabetical order", "the sorted letters of {x}", "the letters of {x} sorted"),
        asks=("what are the letters of {x} in alphabetical order",),
        orders=("sort the letters of {x}", "put the letters of {x} in alphabetical order", "sort its letters",
                "put its letters in order"),
        held_nouns=("the alphabetical order of the letters of {x}", "the letters in {x} sorted"),
        held_orders=("sort the letters in {x}", "write the letters of {x} in alphabetical order"),
    ),
    "first": _edge("first", "start", "starts"),
    "last": _edge("last", "end", "ends"),
    "add": Phrasings(
        nouns=("{x} plus {k}", "the sum of {x} and {k}", "{k} more than {x}", "{k} added to {x}"),
        asks=("how much is {x} plus {k}",),
        orders=("add {k} to {x}", "increase {x} by {k}", "add {k}"),
        held_nouns=("{x} with {k} added", "{x} and {k} added", "the result of {x} plus {k}"),
        held_orders=("find the sum of {x} and {k}", "add {x} and {k}"),
    ),
    "subtract": Phrasings(
        nouns=("{x} minus {k}", "{k} less than {x}", "the difference of {x} and {k}", "{k} subtracted from {x}"),
        asks=("how much is {x} minus {k}",),
        orders=("subtract {k} from {x}", "take {k} away from {x}", "decrease {x} by {k}", "subtract {k}"),
        held_nouns=("{x} with {k} subtracted", "{x} take away {k}", "the result of {x} minus {k}"),
        held_orders=("find the difference of {x} and {k}", "take {k} from {x}"),
    ),
    "multiply": Phrasings(
        nouns=("{x} times {k}", "the product of {x} and {k}", "{k} times {x}", "{x} multiplied by {k}"),
        asks=("how much is {x} times {k}",),
        orders=("multiply {x} by {k}", "multiply {x} with {k}", "multiply by {k}"),
        held_nouns=("the result of {x} times {k}", "{x} multiplied with {k}"),
        held_orders=("find the product of {x} and {k}", "multiply {x} and {k}"),
    ),
    "capital": Phrasings(
        nouns=("the capital of {x}", "the capital city of {x}", "{x}'s capital"),
        asks=("which city is the capital of {x}",),
        orders=("name the capital of {x}", "find the capital of {x}"),
        held_nouns=("the city that is the capital of {x}", "{x}'s capital city"),
        held_orders=("find the capital city of {x}", "give the capital of {x}"),
    ),
    "element": Phrasings(
        nouns=("the element with the symbol {x}", "the element whose symbol is {x}"),
        asks=("which element has the symbol {x}",),
        orders=("name the element with the symbol {x}", "find the element whose symbol is {x}",
                "name the element with that symbol"),
        held_nouns=("the element that has the symbol {x}", "the element of which the symbol is {x}"),
        held_orders=("give the element with the symbol {x}", "name the element whose symbol is {x}"),
    ),
    "symbol": Phrasings(
        nouns=("the symbol of {x}", "the chemical symbol of {x}", "the symbol for {x}"),
        asks=("which symbol does {x} have",),
        orders=("give the symbol of {x}", "find the chemical symbol of {x}", "give its symbol"),
        held_nouns=("the chemical symbol for {x}", "the symbol that {x} has"),
        held_orders=("name the symbol of {x}", "give the chemical symbol of {x}"),
    ),
    "number": Phrasings(
        nouns=("the atomic number of {x}", "{x}'s atomic number"),
        asks=("which atomic number does {x} have",),
        orders=("give the atomic number of {x}", "find its atomic number"),
        held_nouns=("the atomic number that {x} has", "the atomic number for {x}"),
        held_orders=("find the atomic number of {x}", "name the atomic number of {x}"),
    ),
    "numbered": Phrasings(
        nouns=("the element with the atomic number {x}", "the element whose atomic number is {x}"),
        asks=("which element has the atomic number {x}",),
        orders=("name the element with the atomic number {x}", "find the element whose atomic number is {x}",
                "name the element with that atomic number"),
        held_nouns=("the element that has the atomic number {x}", "the element of which the atomic number is {x}"),
        held_orders=("give the element with the atomic number {x}", "name the element whose atomic number is {x}"),
    ),
    "opposite": Phrasings(
        nouns=("the opposite of {x}", "the word that means the opposite of {x}"),
        asks=("which word is the opposite of {x}", "what means the opposite of {x}"),
        orders=("name the opposite of {x}", "give its opposite", "find the opposite of {x}"),
        held_nouns=("the word that is the opposite of {x}", "the opposite word of {x}"),
        held_orders=("give the opposite of {x}", "find the word that means the opposite of {x}"),
    ),
    "after": _month("after", "that follows"),
    "before": _month("before", "just before"),
}  # fmt: skip
"""By the name of the operation."""

FRAMES: Final[Mapping[PhrasingForm, tuple[str, ...]]] = {
    "noun": ("what is {s}", "tell me {s}", "{s}", "give me {s}"),
    "ask": ("{s}", "tell me {s}"),
    "order": ("{s}", "please {s}", "can you {s}"),
}
"""The words around a phrasing, or around the first of several orders."""

HELD_FRAMES: Final[Mapping[PhrasingForm, tuple[str, ...]]] = {
    "noun": ("please tell me {s}", "can you tell me {s}"),
    "ask": ("please tell me {s}",),
    "order": ("can you please {s}",),
}

OPENINGS: Final = ("take {x}, {s}", "first {s}", "take {x} and {s}")
"""How several orders may start. After one with `{x}`, all of them refer to the answer before."""

HELD_OPENINGS: Final = ("start with {x}, {s}", "first take {x}, {s}")

JOINTS: Final = (" and ", ", then ", " and then ", ", ")

TYPED: Final = (
    "a an any are decreased does for from give here how i increased its just me my now of please so taken that this to "
    "us was who word you your"
)
"""Small words that people type beside those of the phrasings. They are operands only if quoted."""


def fill_phrasing(phrasing: str, x: str, k: int = 0) -> str:
    """The phrasing with its operand and amount."""
    text = phrasing.replace("{x}'s", "its" if x == "it" else f"{x}'s")
    return text.replace("{x}", x).replace("{k}", str(k))


def takes_word_only(phrasing: str) -> bool:
    """Whether the operand has to be a word or a number, not "it" or another phrase: "the symbol {x}"."""
    return phrasing.endswith(("symbol {x}", "number {x}")) or phrasing.startswith("{x}'s")


def can_nest(phrasing: str) -> bool:
    """Whether the phrasing is unambiguous inside another one."""
    joins = phrasing.startswith(("the sum", "the difference", "the product", "the result"))
    return joins or (phrasing.endswith("{x}") and "times" not in phrasing)


def vocabulary() -> frozenset[str]:
    """Every word that questions consist of. Any other word is an operand."""
    forms: tuple[PhrasingForm, ...] = ("noun", "ask", "order")
    texts = [text for ways in WAYS.values() for form in forms for text in ways.of(form, "all")]
    texts += [text for frames in (FRAMES, HELD_FRAMES) for kept in frames.values() for text in kept]
    texts += [*OPENINGS, *HELD_OPENINGS, *JOINTS, *PRONOUNS, TYPED]
    return frozenset(re.findall("[a-z]+", " ".join(texts))) - {"x", "k", "s"}
