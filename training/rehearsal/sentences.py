"""From a tree of operations to the sentence that asks for it, as people type it, and its subtasks.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from random import Random
from typing import Final, NamedTuple

from conductor_cli.rehearsal.words import NUMBER_WORDS
from training.rehearsal.operations import Node, Operation
from training.rehearsal.phrasings import (
    AROUND,
    JOINTS,
    WAYS,
    PhrasingForm,
    PhrasingSet,
    expand,
    fill,
    lines_of,
)

_CASES: Final[tuple[Callable[[str], str], ...]] = (
    str.title,
    str.lower,
    str.lower,
    str.lower,
    str.upper,
)
_SIGNS: Final = {"plus": ("+", " + "), "minus": ("-", " - "), "times": ("*", "x", " x ", " * ")}
_NUMBER_WORDS: Final = {str(number): word for word, number in NUMBER_WORDS.items() if number > 3}
_ASKS: Final = ("what", "which", "how", "can", "could", "would", "do you", "where")


def typed(random: Random, text: str) -> str:
    """The text as somebody might type it."""
    cased = random.choice(_CASES)
    quote = random.choice(("", "", "", "", "'", '"'))
    owned = "'s" in text
    text = re.sub(
        r"\b[A-Z]+\b",
        lambda word: cased(word[0]) if owned else f"{quote}{cased(word[0])}{quote}",
        text,
    )
    if random.random() < 0.5:
        text = re.sub(
            r"(?<=\d) (plus|minus|times) (?=\d)", lambda sign: random.choice(_SIGNS[sign[1]]), text
        )
    if random.random() < 0.2:
        text = re.sub(r"\b\d+\b", lambda number: _NUMBER_WORDS.get(number[0], number[0]), text)
    if random.random() < 0.5:
        text = text[0].upper() + text[1:]
    end = "."
    if text.lower().startswith(_ASKS):
        end = "?"
    return text + random.choice((end, end, "", ""))


_TRIES: Final = 4

# The share of loose sentences without a word around the question itself: most people type no others
_BARE: Final = 0.6
_USUAL_JOINTS: Final = (" and ", " then ", " and then ", ", ", ", then ", ", and ")

ARITHMETIC: Final = frozenset({"adding", "multiplying"})

_WORD_ONLY: Final = re.compile(
    r"\b(symbol|number|element|month|capital|called|named|written|abbreviated|word|in|where|with|"
    r"does|words|country|nation|value|position|place|letters|abbreviation|spanish|english|"
    r"backwards|reversed|under|a|an|the|call|numbers) \{x\}|"
    r"\{x\}'s|\{x\} (stand|is|protons|letters?|first|last|vowel|length|number|capital|country|"
    r"symbol|atomic|proton|element|opposite|antonym|month|spanish|english|colou?r)\b"
)
"""Where only a word or a number reads well, and not another phrase."""

_WORD_ONLY_LOOSELY: Final = re.compile(
    r"\b(symbol|number|element|month|capital|backwards|reversed|a|an|the|call|numbers|words|"
    r"letters|abbreviation|spanish|english|value|position|place|under) \{x\}|\{x\}'s|"
    r"\{x\} (letters?|first|last|vowel|length|number|capital|country|symbol|atomic|proton|"
    r"element|opposite|antonym|month|spanish|english|colou?r)\b"
)
"""The same for what people type: "how many letters in the capital of France", "what does the
opposite of hot mean".
"""

_OPERATOR: Final = re.compile(
    r" (plus|minus|times|multiplied|doubled|tripled|halved|cut|split|added|subtracted|taken|"
    r"deducted|removed|more|less)\b"
)
"""What may belong to a phrase as a whole or to its last number, in "the sum of 3 and 5 doubled"."""

_NAMED: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"\bit\b",
        (
            r"\b(that|this|the) "
            r"(word|city|country|month|thing|number|symbol|result|answer|total)\b(?! "
            r"(of|with|it))"
        ),
        r"\bthat\b",
    )
)
"""The words that stand for an earlier answer, the surest first."""


class Phrased(NamedTuple):
    """A node with its subtask.

    `parts` are the nodes whose answers it needs, in the order of the text.
    """

    node: Node
    subtask: str
    parts: tuple[Node, ...]


class Sentence(NamedTuple):
    """The text, and the subtasks in the order of their steps."""

    text: str
    steps: tuple[Phrased, ...]


class NoPhrasingError(Exception):
    """No phrasing of an operation fits this place: draw again."""


def sentence(random: Random, root: Node, which: PhrasingSet, *, check: bool) -> Sentence | None:
    """A sentence for the tree.

    With `check`, it asks for a check of the answer, which is no step of it.

    None if no phrasings go together.
    """
    spine = [root]  # from the first node that has no single child up to the root
    while len(spine[0].children) == 1:
        spine.insert(0, spine[0].children[0])
    for _ in range(_TRIES):
        try:
            if (len(spine) > 1 or len(root.children) > 1) and random.random() < 0.5:
                drawn = _in_a_row(random, spine, which)
            else:
                drawn = _as_one(random, root, which)
        except NoPhrasingError:
            continue
        if check:
            joint = random.choice((", and ", ", then ", " and ", " and then ", ". "))
            return drawn._replace(text=drawn.text + joint + _line(random, "checks", "then", which))
        return drawn
    return None


def _line(random: Random, around: str, form: PhrasingForm, which: PhrasingSet) -> str:
    """A line of what stands around, with its choices made.

    Held-out sets take half of these from the known ones.
    """
    if which == "held" and random.random() < 0.5:
        which = "known"
    return random.choice(expand(random.choice(lines_of(AROUND[around], form, which))))


# The nested form: one phrase inside the other


def _as_one(random: Random, root: Node, which: PhrasingSet) -> Sentence:
    """The longer of the capital of FRANCE and the capital of ITALY."""
    form: PhrasingForm = random.choice(("noun", "noun", "order", "ask"))
    text, steps = _phrased(random, root, form, which, inner=False)
    return Sentence(_framed(random, form, text, which), steps)


def _framed(random: Random, form: PhrasingForm, text: str, which: PhrasingSet) -> str:
    if which == "loose" and random.random() < _BARE:
        return text
    return _line(random, "frames", form, which).replace("{s}", text)


def _phrased(
    random: Random, node: Node, form: PhrasingForm, which: PhrasingSet, *, inner: bool = True
) -> tuple[str, tuple[Phrased, ...]]:
    """The text for a node in a form, and its steps in the order of the text.

    An inner phrase has to be closed.
    """
    phrase = _choose(random, node, form, which, closed=inner)
    slots = sorted(
        zip(("{x}", "{y}"), node.args, strict=False), key=lambda slot: phrase.index(slot[0])
    )
    texts = dict[str, str]()
    steps = list[Phrased]()
    for slot, arg in slots:
        if isinstance(arg, Node):
            texts[slot], before = _phrased(random, arg, "noun", which)
            steps += before
        else:
            # A value may be called what it is: "which is longer, the capital of Peru or the word
            # tiger".
            is_named = which == "loose" and bool(node.children) and random.random() < 0.3
            texts[slot] = f"the {('word', 'number')[arg.isdecimal()]} {arg}" if is_named else arg
    return fill(phrase, texts["{x}"], texts.get("{y}", "")), (*steps, _subtask(phrase, node))


def _subtask(phrase: str, node: Node, pronoun: str = "") -> Phrased:
    """The node's own clause.

    "it" stands for the answer of an earlier step, "the first" and "the second" for two.
    """
    order = sorted(range(len(node.args)), key=lambda at: phrase.find(("{x}", "{y}")[at]))
    parts = tuple(arg for at in order if isinstance(arg := node.args[at], Node))
    names = iter(("the first", "the second") if len(parts) > 1 else (pronoun or "it",))
    texts = {at: next(names) if isinstance(arg := node.args[at], Node) else arg for at in order}
    return Phrased(node, fill(clause(phrase), texts[0], texts.get(1, "")), parts)


def clause(text: str) -> str:
    """A phrase as a subtask: without the article or the question words before it."""
    return re.sub(r"^(what is |the |please )", "", text)


def _choose(
    random: Random,
    node: Node,
    form: PhrasingForm,
    which: PhrasingSet,
    *,
    closed: bool = False,
    pronoun: bool = False,
) -> str:
    """A phrasing that names its values unambiguously.

    Each line is equally likely, however many choices it has.
    """
    lines = lines_of(WAYS[node.operation.name], form, which)
    # People type few words, so of loose phrasings the shortest of several is taken.
    wanted = 1
    if which == "loose":
        wanted = random.choice((1, 3, 6))
    chosen = list[str]()
    for line in random.sample(lines, len(lines)):
        able = [
            text
            for text in expand(line)
            if _fits(text, node, which, pronoun=pronoun)
            and (not closed or _closed(text, node, which))
        ]
        if able:
            chosen.append(random.choice(able))
        if len(chosen) == wanted:
            return min(chosen, key=len)
    if chosen:
        return min(chosen, key=len)
    raise NoPhrasingError


def _fits(text: str, node: Node, which: PhrasingSet, *, pronoun: bool) -> bool:
    if pronoun or node.children:
        word_only = _WORD_ONLY
        if which == "loose" and not pronoun:
            word_only = _WORD_ONLY_LOOSELY
        slots = zip(("{x}", "{y}"), node.args, strict=False)
        return not word_only.search(text) and (
            pronoun
            or all(
                _unambiguous(text, node, slot, arg) for slot, arg in slots if isinstance(arg, Node)
            )
        )
    return True


def _unambiguous(text: str, node: Node, slot: str, arg: Node) -> bool:
    """Whether the phrase of `arg` in this slot can be read in one way only."""
    inner = {operation.skill for operation in arg.operations()}
    loose = text.startswith("{") or not text.endswith("}")
    if loose and (node.operation.skill in inner or (inner | {node.operation.skill}) <= ARITHMETIC):
        return False
    leads = text.startswith(slot) or _OPERATOR.match(text.partition(slot)[2])
    return not (leads and inner & ARITHMETIC)


def _closed(text: str, node: Node, which: PhrasingSet) -> bool:
    """Whether nothing stands after the last value, so that the phrase can stand inside another.

    Loosely, "8 times 9" can stand there, too.
    """
    plain = which == "loose" and not node.children and node.operation.arity > 1
    return text.endswith("}") and (plain or not text.startswith("{"))


# The form in a row: one order after the other


def _in_a_row(random: Random, spine: Sequence[Node], which: PhrasingSet) -> Sentence:
    """Take LION, spell it backwards, then count its letters. Find X and Y, then add them."""
    base = spine[0]
    if len(base.children) > 1:
        return _pair_first(random, spine, which)
    literal = base.args[0]
    if len(base.args) == 1 and isinstance(literal, str) and random.random() < 0.35:
        return _opened(random, literal, spine, which)
    at = random.randrange(len(spine) - 1)
    form: PhrasingForm = random.choice(("order", "order", "noun"))
    text, steps = _phrased(random, spine[at], form, which, inner=False)
    rest, more = _orders(random, spine[at + 1 :], which)
    first = random.random() < 0.25 and form == "order"
    framed = f"first {text}" if first else _framed(random, form, text, which)
    return Sentence(framed + rest, (*steps, *more))


def _opened(random: Random, literal: str, spine: Sequence[Node], which: PhrasingSet) -> Sentence:
    texts = chain.from_iterable(map(expand, lines_of(AROUND["openings"], "order", which)))
    opening = random.choice([text for text in texts if "{x}" in text])
    phrase, _ = _then(random, spine[0], which)
    own = Phrased(spine[0], _naming(clause(phrase), literal), ())
    rest, more = _orders(random, spine[1:], which)
    text = opening.replace("{x}", literal).replace(
        "{s}", fill(phrase, random.choice(("it", "that")))
    )
    return Sentence(text + rest, (own, *more))


def _naming(phrase: str, literal: str) -> str:
    """A clause that names the literal, for a step whose words in the sentence do not.

    The same words if possible.
    """
    if "{x}" in phrase:
        return fill(phrase, literal)
    if "its " in phrase and not re.search(r"\bit\b", phrase):
        return phrase.replace("its ", f"{literal}'s ", 1)
    for named in _NAMED:
        if named.search(phrase):
            return named.sub(literal, phrase, count=1)
    return phrase


def _pair_first(random: Random, spine: Sequence[Node], which: PhrasingSet) -> Sentence:
    base = spine[0]
    orders = which == "loose" and random.random() < 0.3
    form: PhrasingForm = "noun"
    if orders:
        form = "order"
    (one, first), (other, second) = (
        _phrased(random, child, form, which) for child in base.children
    )
    pair = (
        random.choice(("{x} and {y}", "{x} then {y}"))
        if orders
        else _line(random, "pairs", "order", which)
    )
    phrase = _choose(random, base, "then", which)
    own = Phrased(base, phrase, base.children)
    rest, more = _orders(random, spine[1:], which)
    joint = random.choice((", then ", " and ", " and then ", ". then ", ", "))
    return Sentence(f"{fill(pair, one, other)}{joint}{phrase}{rest}", (*first, *second, own, *more))


def _orders(
    random: Random, nodes: Sequence[Node], which: PhrasingSet
) -> tuple[str, tuple[Phrased, ...]]:
    text = ""
    steps = list[Phrased]()
    for node in nodes:
        phrase, step = _then(random, node, which)
        joint = random.choice(_USUAL_JOINTS if which == "loose" else JOINTS)
        text += f"{joint}{phrase if '{' not in phrase else step.subtask}"
        steps.append(step)
    return text, tuple(steps)


def _then(random: Random, node: Node, which: PhrasingSet) -> tuple[str, Phrased]:
    """An order about the answer before: a phrase of its own, or an order with a pronoun."""
    if which == "loose" and random.random() < 0.5:
        return _then_loosely(random, node)
    if node.operation.arity == 1 and random.random() < 0.5:
        phrase = _choose(random, node, "then", which)
        return phrase, Phrased(node, clause(phrase), node.children)
    phrase = _choose(random, node, "order", which, pronoun=True)
    return phrase, _subtask(phrase, node, random.choice(("it", "it", "that", "the result")))


def _then_loosely(random: Random, node: Node) -> tuple[str, Phrased]:
    """What follows as people type it.

    "…, spelled backwards", "…, the opposite of it", "… how many letters has it".
    """
    form = random.choice(("noun", "ask", "participle"))
    added = (
        _participles(node.operation.name)
        if form == "participle" and node.operation.arity == 1
        else ()
    )
    if added:
        text = random.choice(added)
        return text, Phrased(node, f"it {text}", node.children)
    phrase = _choose(random, node, "ask" if form == "ask" else "noun", "loose", pronoun=True)
    step = _subtask(phrase, node, "it")
    return step.subtask, step


@cache
def _participles(name: str) -> tuple[str, ...]:
    """What may follow a thing: "spelled backwards", "doubled"."""
    texts = chain.from_iterable(map(expand, lines_of(WAYS[name], "noun", "known")))
    return tuple(text.removeprefix("{x} ") for text in texts if re.fullmatch(r"\{x\} [^{]+", text))


def step_words(
    random: Random, operation: Operation, values: Sequence[str], needed: Sequence[bool]
) -> tuple[str, bool]:
    """The words of a step of which the values that are `needed` are answers of earlier steps.

    The second value says whether the two answers stand in the other order in the text.
    """
    args = tuple(
        Node(operation=operation, args=(), value=value) if need else value
        for value, need in zip(values, needed, strict=True)
    )
    node = Node(operation=operation, args=args, value="")
    forms: tuple[PhrasingForm, ...] = ("noun", "ask", "order", "then", "then")
    name = operation.name
    form = random.choice(forms if all(needed) else forms[:3])
    lines = _plain_lines(name, form) or _plain_lines(name, "order") or _plain_lines(name, "noun")
    phrase = random.choice(random.choice(lines))
    if "{" not in phrase:
        return clause(phrase), False
    made = _subtask(phrase, node, random.choice(("it", "it", "it", "that", "the result")))
    return made.subtask, len(made.parts) > 1 and made.parts[0] is args[1]


@cache
def _plain_lines(name: str, form: PhrasingForm) -> tuple[tuple[str, ...], ...]:
    lines = [
        tuple(text for text in expand(line) if not _WORD_ONLY.search(text))
        for line in lines_of(WAYS[name], form, "known")
    ]
    return tuple(texts for texts in lines if texts)
