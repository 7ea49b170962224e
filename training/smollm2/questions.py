"""Questions in English with their answers and their best decomposition, drawn from a seed; and the facts behind them.

One in two needs one subject. The others need two or three: a fact and what is done with it (a chain), or two facts and
what is done with both (a join, whose first two steps do not see each other). Phrasings of the split `held` are used by
no training. Each fact has a noun phrase that asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Literal

from conductor_cli.evals.cases import Case, GoldStep
from training.rehearsal.words import CAPITALS, ELEMENTS

SUBJECTS: Final = ("geography", "chemistry", "history", "music", "languages", "arithmetic")


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Lines of `a = b; c = d`."""
    items = (item.partition("=") for item in text.replace("\n", " ").split(";") if item.strip())
    return tuple((left.strip(), right.strip()) for left, _, right in items)


EVENTS: Final = _pairs("""
    the first Moon landing = 1969; the fall of the Berlin Wall = 1989; the storming of the Bastille = 1789;
    the Battle of Hastings = 1066; the sinking of the Titanic = 1912; the Battle of Waterloo = 1815;
    the Great Fire of London = 1666; the signing of Magna Carta = 1215; the death of Napoleon = 1821;
    the first flight of the Wright brothers = 1903; the American Declaration of Independence = 1776;
    the start of the First World War = 1914; the end of the Second World War = 1945; the fall of Constantinople = 1453;
    the opening of the Suez Canal = 1869; the Russian Revolution = 1917; the birth of Mozart = 1756;
    the first voyage of Columbus to America = 1492; the eruption of Vesuvius over Pompeii = 79;
    the Chernobyl accident = 1986; the founding of the United Nations = 1945; the first modern Olympic Games = 1896
""")

WORKS: Final = _pairs("""
    The Four Seasons = Vivaldi; The Magic Flute = Mozart; Moonlight Sonata = Beethoven; Swan Lake = Tchaikovsky;
    The Rite of Spring = Stravinsky; Carmen = Bizet; La Traviata = Verdi; Tosca = Puccini; Messiah = Handel;
    Brandenburg Concertos = Bach; Bolero = Ravel; Clair de Lune = Debussy; The Planets = Holst; Peer Gynt = Grieg;
    The Ring of the Nibelung = Wagner; The Creation = Haydn; Winterreise = Schubert; Scheherazade = Rimsky-Korsakov;
    The Barber of Seville = Rossini; New World Symphony = Dvorak; Finlandia = Sibelius; The Blue Danube = Strauss;
    Rhapsody in Blue = Gershwin; The Carnival of the Animals = Saint-Saens; Pictures at an Exhibition = Mussorgsky
""")

SPANISH: Final = dict(
    _pairs("""
    gold = oro; silver = plata; iron = hierro; copper = cobre; lead = plomo; oxygen = oxigeno; carbon = carbono;
    house = casa; dog = perro; cat = gato; water = agua; bread = pan; milk = leche; book = libro; sun = sol;
    moon = luna; tree = arbol; river = rio; king = rey; friend = amigo; night = noche; horse = caballo; hand = mano
""")
)
FRENCH: Final = dict(
    _pairs("""
    gold = or; silver = argent; iron = fer; copper = cuivre; lead = plomb; oxygen = oxygene; carbon = carbone;
    house = maison; dog = chien; cat = chat; water = eau; bread = pain; milk = lait; book = livre; sun = soleil;
    moon = lune; tree = arbre; river = fleuve; king = roi; friend = ami; night = nuit; horse = cheval; hand = main
""")
)
TONGUES: Final = {"Spanish": SPANISH, "French": FRENCH}


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that can be asked. `key` is the text by which a worker recognises it, `kind` which table it is of."""

    subject: str
    kind: str
    key: str
    phrase: str
    answer: str

    @property
    def is_number(self) -> bool:
        return self.answer.isdecimal()


def _facts() -> Iterator[Fact]:
    for country, city in CAPITALS.items():
        name = country.title()
        yield Fact("geography", "capital", name, f"the capital of {name}", city.title())
    for name, symbol, number in ELEMENTS:
        yield Fact("chemistry", "number", name.lower(), f"the atomic number of {name.lower()}", str(number))
        short = symbol.title()
        yield Fact("chemistry", "symbol", f"symbol {short}", f"the element with the symbol {short}", name.lower())
    for event, year in EVENTS:
        yield Fact("history", "year", event, f"the year of {event}", year)
    for work, composer in WORKS:
        yield Fact("music", "composer", work, f"the composer of {work}", composer)
    for tongue, words in TONGUES.items():
        for word, meaning in words.items():
            yield Fact("languages", tongue, word, f"the {tongue} word for {word}", meaning)


FACTS: Final = tuple(_facts())


Split = Literal["train", "held"]

SHAPES: Final = ("one", "chain", "join")

FRAMES: Final[dict[Split, tuple[str, ...]]] = {
    "train": (
        "What is {0}?", "Tell me {0}.", "I need to know {0}.", "Give me {0}, please.", "Do you know {0}?",
        "Name {0}.", "For a quiz: {0}?", "Can you look up {0}?",
    ),
    "held": ("Could you say what {0} is?", "My homework asks for {0}.", "I forgot {0}. Help me.", "State {0}."),
}  # fmt: skip

OWN_FRAMES: Final[dict[str, dict[Split, tuple[str, ...]]]] = {
    "capital": {"train": ("Which city is the capital of {0}?",), "held": ("Where does the government of {0} sit?",)},
    "number": {"train": ("Which atomic number has {0}?",), "held": ("How many protons has an atom of {0}?",)},
    "symbol": {"train": ("Which element has the {0}?",), "held": ("The {0} stands for which element?",)},
    "year": {"train": ("In which year was {0}?", "When was {0}?"), "held": ("How do I date {0}?",)},
    "composer": {"train": ("Who composed {0}?", "Who wrote the music of {0}?"), "held": ("Whose work is {0}?",)},
    "Spanish": {"train": ("How do you say {0} in Spanish?",), "held": ("Put the word {0} into Spanish.",)},
    "French": {"train": ("How do you say {0} in French?",), "held": ("Put the word {0} into French.",)},
}
"""Ways to ask for a fact of one kind, with its key."""

SUMS: Final[dict[Split, tuple[tuple[str, str], ...]]] = {
    "train": (("What is {0} plus {1}?", "+"), ("Add {1} to {0}.", "+"), ("How much is {0} times {1}?", "*"),
              ("Work out {0} minus {1}.", "-"), ("Subtract {1} from {0}.", "-"), ("Multiply {0} by {1}.", "*")),
    "held": (("{0} and {1} together make what?", "+"), ("Take {1} away from {0}.", "-"),
             ("What is the product of {0} and {1}?", "*")),
}  # fmt: skip

CHAINS: Final[dict[Split, tuple[tuple[str, str], ...]]] = {
    "train": (("Add {n} to {0}.", "+"), ("What is {0} plus {n}?", "+"), ("Take {0} and subtract {n}.", "-"),
              ("What is {n} less than {0}?", "-"), ("Double {0}.", "2"), ("What is twice {0}?", "2")),
    "held": (("Find {0}, then make it {n} larger.", "+"), ("Reduce {0} by {n}.", "-"),
             ("Give me {0} two times over.", "2")),
}  # fmt: skip

JOINS: Final[dict[Split, tuple[tuple[str, str], ...]]] = {
    "train": (("What is the sum of {0} and {1}?", "+"), ("Add {0} and {1}.", "+"),
              ("What is the difference between {0} and {1}?", "-"), ("How far apart are {0} and {1}?", "-")),
    "held": (("{0} and {1}: what is the total?", "+"), ("By how much do {0} and {1} differ?", "-")),
}  # fmt: skip

TRANSLATIONS: Final[dict[Split, tuple[str, ...]]] = {
    "train": ("Translate {0} into {tongue}.", "What is {0} called in {tongue}?"),
    "held": ("Find {0} and give its name in {tongue}.",),
}

_NUMBERS: Final = tuple(fact for fact in FACTS if fact.is_number)
_METALS: Final = tuple(
    fact for fact in FACTS if fact.kind == "symbol" and all(fact.answer in words for words in TONGUES.values())
)


def draw_cases(count: int, seed: int, split: Split, *, shapes: Sequence[str] = ()) -> tuple[Case, ...]:
    """`count` questions; the same ones for the same seed. `shapes` are drawn from alike, instead of the usual mix."""
    random = Random(f"questions {split} {seed}")
    return tuple(draw_case(random, f"{split}-{seed}-{number}", split, shapes=shapes) for number in range(count))


def draw_case(random: Random, name: str, split: Split, *, shapes: Sequence[str] = ()) -> Case:
    """One question."""
    shape = random.choice(shapes or ("one", "one", "chain", "join"))
    if shape == "one":
        return _one(random, name, split)
    return _chain(random, name, split) if shape == "chain" else _join(random, name, split)


def compute(sign: str, first: int, second: int) -> int:
    """What comes of two numbers; a difference of two facts is not negative."""
    return {"+": first + second, "-": abs(first - second), "*": first * second, "2": 2 * first}[sign]


def _one(random: Random, name: str, split: Split) -> Case:
    if random.random() < 1 / 6:
        frame, sign = random.choice(SUMS[split])
        first, second = random.randint(20, 99), random.randint(2, 19)
        word = {"+": "plus", "-": "minus", "*": "times"}[sign]
        steps = (GoldStep(skill="arithmetic", subtask=f"Work out {first} {word} {second}."),)
        return _case(name, frame.format(first, second), compute(sign, first, second), steps, "one")
    subject = random.choice(sorted({fact.subject for fact in FACTS}))
    fact = random.choice([fact for fact in FACTS if fact.subject == subject])
    own = OWN_FRAMES[fact.kind][split]
    text = random.choice(own).format(fact.key) if random.random() < 0.5 else None
    question = text or random.choice(FRAMES[split]).format(fact.phrase)
    return _case(name, question, fact.answer, (_find(fact),), "one")


def _chain(random: Random, name: str, split: Split) -> Case:
    if random.random() < 1 / 3:
        fact, tongue = random.choice(_METALS), random.choice(sorted(TONGUES))
        question = random.choice(TRANSLATIONS[split]).format(fact.phrase, tongue=tongue)
        steps = (_find(fact), GoldStep(skill="languages", subtask=f"Translate it into {tongue}.", access=(1,)))
        return _case(name, question, TONGUES[tongue][fact.answer], steps, "chain")
    fact, number = _draw_number(random), random.randint(2, 60)
    frame, sign = random.choice(CHAINS[split])
    told = {"+": f"Add {number} to it.", "-": f"Subtract {number} from it.", "2": "Double it."}[sign]
    steps = (_find(fact), GoldStep(skill="arithmetic", subtask=told, access=(1,)))
    return _case(name, frame.format(fact.phrase, n=number), compute(sign, int(fact.answer), number), steps, "chain")


def _join(random: Random, name: str, split: Split) -> Case:
    first, second = _draw_number(random), _draw_number(random)
    while second == first:
        second = _draw_number(random)
    frame, sign = random.choice(JOINS[split])
    told = "Add the two numbers." if sign == "+" else "Give the difference of the two numbers."
    steps = (_find(first), _find(second), GoldStep(skill="arithmetic", subtask=told, access=(1, 2)))
    answer = compute(sign, int(first.answer), int(second.answer))
    return _case(name, frame.format(first.phrase, second.phrase), answer, steps, "join")


def _draw_number(random: Random) -> Fact:
    subject = random.choice(("chemistry", "history"))
    return random.choice([fact for fact in _NUMBERS if fact.subject == subject])


def _find(fact: Fact) -> GoldStep:
    return GoldStep(skill=fact.subject, subtask=f"Find {fact.phrase}.")


def _case(name: str, question: str, answer: object, steps: tuple[GoldStep, ...], shape: str) -> Case:
    text = question[:1].upper() + question[1:]
    return Case(id=name, question=text, answer=str(answer), tags=(shape,), steps=steps)
