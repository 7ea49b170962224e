"""The check of grammars: it lets nothing through that llama.cpp would complain of."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from conductor_cli.models.llama.gbnf import GrammarError, check
from conductor_cli.models.llama.library import Flag
from conductor_cli.models.llama.loading import Loaded, Options

GOOD = (
    'root ::= line ("\\n" line){0,4}\nline ::= [A-C] " | " [1-4]? " | " [^\\n|]{1,40}\n',
    'root ::= "a"\n  # a comment\n\nx ::= (y | "b" [a-z0-9_-]*)+ "\\x41\\u00e9"\ny::=.',
    'root ::= ( a |\n b )\na ::= "x"{2,}\nb ::= "y"{3}',
    'root ::= "[" | "]" | "\\"" | [^"] | a-b\na-b ::= "c"?',
    'root ::=\n  "a" |\n  "b"\n',
    'root ::= "é"{ 1, 3 } [\\]\\-\\\\]',
)


@pytest.mark.parametrize("grammar", GOOD)
def test_a_good_grammar_passes(grammar: str) -> None:
    """What the language allows is allowed."""
    check(grammar)


@pytest.mark.parametrize(
    ("grammar", "problem"),
    [
        ("", "no rule named 'root'"),
        ('a ::= "b"', "no rule named 'root'"),
        ("root ::= a b\na ::= [x]", "no rule named 'b'"),
        ('root ::= "a', "cannot be read"),
        ("root ::= [a", "cannot be read"),
        ('root ::= "\\q"', "cannot be read"),
        ('root ::= a_b\na_b ::= "c"', "cannot be read"),
        ("root ::= <think>", "cannot be read"),
        ("root ::= (", "middle of a rule"),
        ("root ::=", "middle of a rule"),
        ('root ::= "a" |', "middle of a rule"),
        ('root\n::= "a"', "no ::="),
        ('root ::= "a" b ::= "c"', "before the one above it has ended"),
        ('root ::= "a"\n| "b"', "a line begins that is no rule"),
        ('root ::= "a" )', "never opened"),
        ("root ::= *", "nothing to repeat"),
        ('root ::= ""*', "nothing to repeat"),
        ('root ::= ( | )?? "a"{0}{2}', "nothing to repeat"),
        ('root ::= "a"{3,2}', "wrong way round"),
        ('root ::= "a"{3 2}', "cannot be read"),
        ('root ::= "a"{2001}', "2000 rules or more"),
        ('root ::= ("a"{1,50} "b"){1,50}', "2000 rules or more"),
        ('root ::= "a\0"', "no text may have"),
        ('root ::= "\ud800"', "no text may have"),
    ],
)
def test_a_bad_grammar_is_told_with_its_place(grammar: str, problem: str) -> None:
    """What is wrong, and where that can be said."""
    with pytest.raises(GrammarError, match=problem):
        check(grammar)


def test_what_passes_is_taken_by_llama_in_silence(tiny: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of grammars changed at random, those that pass make llama.cpp print nothing."""
    loaded = Loaded(tiny, Options(context=256), Flag())
    vocabulary = loaded.lib.llama_model_get_vocab(loaded.model)
    draw, passed = random.Random(1), 0
    for _ in range(3000):
        grammar = changed(draw.choice(GOOD), draw)
        try:
            check(grammar)
        except GrammarError:
            continue
        passed += 1
        loaded.lib.llama_sampler_free(loaded.lib.llama_sampler_init_grammar(vocabulary, grammar.encode(), b"root"))
        assert (grammar, capfd.readouterr().err) == (grammar, "")
    loaded.close()
    assert passed > 300


PARTS = (*'()[]{}"|*+?.,019 \n\t#\\^-ax:=_é\r', "::=", "\\n", "{1,3}", "{0}", "{45,50}", "root", '""', "{1, 2}")


def changed(grammar: str, draw: random.Random) -> str:
    for _ in range(draw.choice((1, 1, 2, 3))):
        at, other = draw.randrange(len(grammar) + 1), draw.randrange(len(grammar) + 1)
        piece = draw.choice((draw.choice(PARTS), "", grammar[min(at, other) : max(at, other)]))
        grammar = grammar[:at] + piece + grammar[at + draw.choice((0, 0, 1, 3)) :]
    return grammar
