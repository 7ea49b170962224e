"""What a local model chooses.

Shares of choices, how sure it is, the next likeliest replies, and plans by a grammar.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Chunk, Habit, Message, Request
from conductor_cli.core.errors import ModelError, PlanError
from conductor_cli.core.plan import Plan, PlanRules, check_plan
from conductor_cli.core.plan_formats import PlanFormatContext
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.profile import PROMPTED, labels_of
from conductor_cli.core.prompts import plan_format_context, planner_request
from conductor_cli.core.question import Question
from conductor_cli.models.base import ScriptedModel
from conductor_cli.models.llama.adapter import Llama
from conductor_cli.models.llama.bindings import CancelToken, load_bindings
from conductor_cli.models.llama.engine import LlamaEngine
from conductor_cli.models.llama.loading import LlamaOptions
from conductor_cli.models.llama.sampling import GrammarSampler, choose_index, softmax
from conductor_cli.run import Orchestra, RunSpec, Team, start_run
from tests.core.plan_formats.reading import plan_in
from tests.models.kit import chunks_of, text, used
from tests.models.test_llama import ask, opened
from tests.run.kit import pool_of
from tests.tiny_gguf import END, Extra, make

ABC = ("A", "B", "C")


def choose(*choices: str, **fields: Any) -> Request:
    """A request for one of these, with the grammar that says the same."""
    grammar = "root ::= " + " | ".join(f'"{choice}"' for choice in choices)
    return ask("Who?", **{"choices": choices, "grammar": grammar, "max_tokens": None, **fields})


@pytest.fixture(scope="module")
def partial(models: Path) -> Path:
    """It prefers B to the other letters, and other words to all letters."""
    return make(
        models / "partial.gguf", extra=Extra(bias={"B": 5.0, "C": 0.5, " the": 9.0, END: 9.0})
    )


@pytest.fixture
def reads(models: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens llama.cpp was given to read, call by call."""
    lib = load_bindings()
    token_counts = []
    decode = lib.llama_decode

    def read(context: Any, batch: Any) -> Any:
        token_counts.append(batch.n_tokens)
        return decode(context, batch)

    monkeypatch.setattr(lib, "llama_decode", read)
    return token_counts


def test_a_choice_is_made_without_decoding(partial: Path, reads: list[int]) -> None:
    with opened(partial) as engine:
        chunks = list(engine.generate(choose(*ABC), CancelToken()))
        (tokens,) = reads
        (last,) = chunks
        assert (last.text, last.thinking, last.finish) == ("B", "", "stop")
        assert (used(chunks).tokens_in, used(chunks).tokens_out, used(chunks).calls) == (
            tokens,
            1,
            1,
        )
        assert engine.kv_cache.tokens == engine.tokenize(choose(*ABC)).tokens


def test_the_odds_are_those_of_the_first_tokens(partial: Path) -> None:
    import numpy as np

    with opened(partial) as engine:
        (last,) = engine.generate(choose(*ABC), CancelToken())
        logits = np.ctypeslib.as_array(
            engine._lib.llama_get_logits_ith(engine.context, -1), (engine.vocabulary.size,)
        )
        tokens = [engine.vocabulary.first_token(label) for label in ABC]
        assert [engine.vocabulary.token_bytes(token) for token in tokens] == [b"A", b"B", b"C"]
        assert int(logits.argmax()) not in tokens
        wanted = np.exp(logits[tokens].astype(np.float64) - logits[tokens].max())
    assert last.choice_shares is not None
    assert list(last.choice_shares) == list(ABC)
    assert list(last.choice_shares.values()) == pytest.approx(list(wanted / wanted.sum()), rel=1e-9)
    assert sum(last.choice_shares.values()) == pytest.approx(1.0)
    assert max(last.choice_shares, key=last.choice_shares.__getitem__) == "B"


def test_a_habit_of_the_model_is_divided_out_of_the_shares(partial: Path, reads: list[int]) -> None:
    with opened(partial) as engine:

        def logits_of(question: str) -> list[float]:
            (last,) = engine.generate(replace(choose(*ABC), messages=asks(question)), CancelToken())
            assert last.choice_shares is not None
            return [math.log(share) for share in last.choice_shares.values()]

        plain = logits_of("Who?")
        habit = logits_of("N/A")
        wanted = softmax([logit - usual for logit, usual in zip(plain, habit, strict=True)])
        habit_of = Habit(prompts=(asks("N/A"),), words=ABC)
        calibrated = replace(choose(*ABC), habit=habit_of)
        (last,) = engine.generate(calibrated, CancelToken())
        assert last.choice_shares is not None
        assert list(last.choice_shares.values()) == pytest.approx(wanted, rel=1e-3)
        assert engine.kv_cache.tokens == engine.tokenize(calibrated).tokens
        # The habit is known from here on: only the last token of the prompt is read again.
        reads.clear()
        (again,) = engine.generate(calibrated, CancelToken())
        assert reads == [1]
        assert again.choice_shares == pytest.approx(last.choice_shares, rel=1e-3)
        # What says nothing gets even shares, though the model prefers B.
        (even,) = engine.generate(replace(calibrated, messages=asks("N/A")), CancelToken())
        assert even.choice_shares == pytest.approx(dict.fromkeys(ABC, 1 / 3), rel=1e-3)


ROWS = """root ::= line ("\\n" line)?
line ::= [f-z]{1,3} "|" ("a" | "b") "."
"""


def in_rows(question: str, habit: Habit | None) -> Request:
    """A request for one or two lines that name a word after a bar."""
    return replace(ask(question, grammar=ROWS, max_tokens=24), habit=habit)


def words_of(chunks: Iterable[Chunk]) -> list[str]:
    """The words that the lines of a reply name."""
    written = "".join(chunk.text for chunk in chunks)
    return [line.partition("|")[2].rstrip(".") for line in written.splitlines()]


def test_a_habit_is_divided_out_of_the_words_in_every_line(
    models: Path, tmp_path: Path, reads: list[int]
) -> None:
    path = make(models / "rows.gguf", extra=Extra(bias={"a": 4.0, "\n": 9.0}))
    usual = Habit(prompts=(asks("Who?"), asks("What?")), words=("a", "b"), bar="|", reply="m|")
    options = LlamaOptions(cache=tmp_path)
    questions = ("Who?", "What?", "Where?", "When?", "Why?", "How?")

    def written(engine: LlamaEngine, habit: Habit | None) -> list[str]:
        words = []
        for question in questions:
            words += words_of(engine.generate(in_rows(question, habit), CancelToken()))
        return words

    with closing(LlamaEngine(path, options, CancelToken())) as engine:
        plain = written(engine, None)
        assert plain == 2 * len(questions) * ["a"]
        divided = written(engine, usual)
        assert Counter(divided)["b"] >= 2
        # A training sees the model as it is.
        sampled = engine.sample(in_rows("Where?", usual), CancelToken())
        assert words_of([Chunk(text=sampled.text)]) == ["a", "a"]
    # Another process has the habit from the disk: it reads its own prompt alone.
    with closing(LlamaEngine(path, options, CancelToken())) as engine:
        reads.clear()
        list(engine.generate(in_rows("Who?", usual), CancelToken()))
        assert sum(tokens > 1 for tokens in reads) == 1
        assert written(engine, usual) == divided


def asks(question: str) -> tuple[Message, ...]:
    return (Message(role="user", content=question),)


def test_a_temperature_draws_among_the_choices(partial: Path) -> None:
    seeds = 400
    with opened(partial) as engine:

        def of(**fields: Any) -> Chunk:
            (last,) = engine.generate(choose(*ABC, **fields), CancelToken())
            return last

        of()  # from here on the prompt is known, and each call reads the same one token of it
        odds = of().choice_shares
        texts = [of(temperature=1.0, seed=seed).text for seed in range(seeds)]
        assert texts == [of(temperature=1.0, seed=seed).text for seed in range(seeds)]
        assert {of(temperature=0.0, seed=seed).text for seed in range(5)} == {"B"}
        assert {of(temperature=1e-6, seed=seed).text for seed in range(5)} == {"B"}
        assert of(temperature=1.0, seed=1).choice_shares == odds
    assert odds is not None
    for choice, count in Counter(texts).items():
        share = odds[choice]
        assert abs(count - share * seeds) < 5 * math.sqrt(share * (1 - share) * seeds)
    assert set(texts) == set(ABC)


@pytest.mark.parametrize("temperature", [1e-6, 1e-40, 5e-324])
def test_the_lowest_temperatures_draw_the_likeliest_tokens(
    partial: Path, temperature: float
) -> None:
    with opened(partial) as engine:

        def of(**fields: Any) -> str:
            return text(engine.generate(ask("Who?", max_tokens=8, **fields), CancelToken()))

        assert of(temperature=temperature, seed=3) == of(temperature=0.0)


def test_choices_with_the_same_first_token_are_written(partial: Path, reads: list[int]) -> None:
    labels = tuple(labels_of(list(map(str, range(30))), "letters"))
    assert labels[-4:] == ("AA", "AB", "AC", "AD")
    with opened(partial) as engine:
        assert engine.vocabulary.first_token("AA") == engine.vocabulary.first_token("A")
        for seed in range(12):
            reads.clear()
            chunks = list(
                engine.generate(choose(*labels, temperature=1.5, seed=seed), CancelToken())
            )
            assert text(chunks) in labels
            assert chunks[-1].choice_shares is None
            # The end is not read, and after the last letter no other token may come
            assert used(chunks).tokens_out == len(text(chunks)) == len(reads)


def written_under(engine: LlamaEngine, grammar: str, **fields: Any) -> list[Chunk]:
    request = ask("Go on.", grammar=grammar, max_tokens=None, **fields)
    return list(engine.generate(request, CancelToken()))


def test_forced_text_is_read_with_the_token_before_it(tiny: Path, reads: list[int]) -> None:
    with opened(tiny) as engine:
        chunks = written_under(engine, r'root ::= [a-c] " | -\n" [a-c] "."')
        forced = len(engine.vocabulary.reply_tokens(" | -\n"))
        assert re.fullmatch(r"[a-c] \| -\n[a-c]\.", text(chunks))
        assert chunks[-1].finish == "stop"
        assert reads[1:] == [1 + forced]
        assert used(chunks).tokens_out == 1 + forced + 2


def test_a_forced_token_that_may_go_on_is_left_to_the_model(tiny: Path, reads: list[int]) -> None:
    """A space may be the beginning of the word behind it."""
    with opened(tiny) as engine:
        chunks = written_under(engine, 'root ::= "a" "| " [a-c]')
        assert re.fullmatch(r"a\| [a-c]", text(chunks))
        assert reads[1] == 2  # "a" and "|", without the space


LINES = r'root ::= ([a-f] [a-f] " | - | " [a-f] "\n"){3} "end"'


def test_the_likeliest_reply_is_the_same_where_nothing_is_forced(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tiny) as engine:
        forced = text(written_under(engine, LINES, temperature=0.0))
        monkeypatch.setattr(GrammarSampler, "forced", lambda _: ())
        assert text(written_under(engine, LINES, temperature=0.0)) == forced


def test_a_drawn_reply_has_the_forced_text_of_each_line(tiny: Path) -> None:
    with opened(tiny) as engine:
        for seed in range(5):
            drawn = text(written_under(engine, LINES, temperature=1.0, seed=seed))
            assert re.fullmatch(r"([a-f]{2} \| - \| [a-f]\n){3}end", drawn)


def test_forced_text_is_written_with_a_sentencepiece_vocabulary(sentence: Path) -> None:
    with opened(sentence) as engine:
        chunks = written_under(engine, r'root ::= [a-c] " | -\n" [a-c] "."')
        assert re.fullmatch(r"[a-c] \| -\n[a-c]\.", text(chunks))


def test_a_vocabulary_without_a_token_that_ends_a_text_is_written_with(models: Path) -> None:
    """llama.cpp would abort the process on the number that stands for none."""
    path = make(models / "rwkv.gguf", extra=Extra(rwkv=True))
    with opened(path) as engine:
        assert engine._lib.llama_vocab_eos(engine.vocabulary.pointer) == -1
        chunks = written_under(engine, r'root ::= [a-c] " | -\n" [a-c] "."')
        assert re.fullmatch(r"[a-c] \| -\n[a-c]\.", text(chunks))
        assert chunks[-1].finish == "stop"


def test_a_byte_whose_only_token_ends_a_turn_is_not_taken_for_one_that_cannot_follow(
    models: Path,
) -> None:
    """Where nothing else begins with it in a grammar, what stands beside it is not forced."""
    comma = ord(",")
    path = make(models / "comma.gguf", extra=Extra(metadata={"tokenizer.ggml.eot_token_id": comma}))
    with opened(path) as engine:
        assert engine.vocabulary.token_bytes(comma) == b","
        with closing(
            GrammarSampler(engine.vocabulary, 'root ::= ("," | "x") "y"', temperature=None, seed=0)
        ) as sampler:
            assert list(sampler.forced()) == []


def test_a_limit_of_tokens_ends_within_forced_text(tiny: Path) -> None:
    with opened(tiny) as engine:
        request = ask("Go on.", grammar='root ::= [a-c] "|||||||\\n" [a-c]', max_tokens=3)
        chunks = list(engine.generate(request, CancelToken()))
        assert chunks[-1].finish == "length"
        assert used(chunks).tokens_out == 3


def test_labels_work_with_a_sentencepiece_vocabulary(sentence: Path) -> None:
    with opened(sentence) as engine:
        (last,) = engine.generate(choose(*ABC), CancelToken())
        tokens = [engine.vocabulary.first_token(label) for label in ABC]
        logits = engine._lib.llama_get_logits_ith(engine.context, -1)
        likeliest = max(zip(ABC, tokens, strict=True), key=lambda pair: logits[pair[1]])[0]
        assert len(set(tokens)) == 3
        assert last.text == likeliest
        assert last.choice_shares is not None
        rare = ("D", "X", "Z")
        assert len({engine.vocabulary.first_token(label) for label in rare}) == 1
        assert text(engine.generate(choose(*rare), CancelToken())) in rare


def test_a_choice_needs_one_free_token(partial: Path) -> None:
    with opened(partial, context=256) as engine:
        room = engine.kv_cache.capacity
        texts = (("Check the sum. " * 99)[:length] for length in range(900))
        requests = [
            replace(choose(*ABC), messages=(Message(role="user", content=text),)) for text in texts
        ]
        by_tokens = {len(engine.tokenize(request).tokens): request for request in requests}
        (last,) = engine.generate(by_tokens[room - 1], CancelToken())
        assert last.text == "B"
        with pytest.raises(
            ModelError, match=f"has {room} tokens, and the context of partial.gguf holds {room}"
        ):
            list(engine.generate(by_tokens[room], CancelToken()))
        with pytest.raises(ModelError, match="and 256 are kept for the reply"):
            list(engine.generate(replace(by_tokens[room - 1], choices=()), CancelToken()))


LOGITS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


@given(LOGITS, st.floats(-1e3, 1e3))
def test_softmax_is_a_distribution(logits: list[float], shift: float) -> None:
    probabilities = softmax(logits)
    assert math.isclose(sum(probabilities), 1.0, rel_tol=1e-9)
    assert all(0.0 <= share <= 1.0 for share in probabilities)
    pairs = sorted(zip(logits, probabilities, strict=True))
    assert [share for _, share in pairs] == sorted(probabilities)
    assert softmax([logit + shift for logit in logits]) == pytest.approx(probabilities, abs=1e-6)


CLOSE = st.lists(st.floats(-3, 3), min_size=2, max_size=9)
TEMPERATURES = st.one_of(
    st.none(),
    st.floats(min_value=0.0, exclude_min=True),
    st.sampled_from([5e-324, 1e-300, 1e-6, 1e-3, 0.7, math.inf]),
)


@given(st.one_of(LOGITS, CLOSE), TEMPERATURES, st.integers(0, 1 << 64))
def test_every_temperature_draws_something(
    logits: list[float], temperature: float | None, seed: int
) -> None:
    odds = softmax(logits)
    at = choose_index(odds, temperature, seed)
    assert choose_index(odds, temperature, seed) == at
    if temperature is None or temperature < 1e-20:
        assert odds[at] == max(odds)
    assert 0 <= at < len(odds)


NAMES = ("ann", "bob", "cyd")


def test_a_real_conductor_names_the_workers_of_a_mini_run_with_their_shares(
    partial: Path, reads: list[int]
) -> None:
    worker = ScriptedModel([["done"]])

    async def go() -> list[ev.Event]:
        model = Llama(partial, LlamaOptions(context=8192, threads=1))
        workers = dict.fromkeys(NAMES, worker)
        team = Team(
            model=model, pool=pool_of(*NAMES), workers=workers, constrained=True, mode="mini"
        )
        spec = RunSpec(question=Question(text="6*7?"))
        try:
            return [event async for event, _ in start_run(Orchestra(team=team), spec)]
        finally:
            await model.close()

    events = asyncio.run(go())
    (ready,) = (event for event in events if isinstance(event, ev.PlanReady))
    assert isinstance(ready.plan, Plan)
    named = [part.split() for part in ready.plan.reasoning.split(", ")]
    assert named[0][0] == "bob" == ready.plan.steps[0].worker
    assert sorted(name for name, _ in named) == sorted(NAMES)
    assert [float(share) for _, share in named] == sorted(
        (float(share) for _, share in named), reverse=True
    )
    assert sum(float(share) for _, share in named) == pytest.approx(1.0, abs=0.02)
    assert ready.usage.tokens_out == 1
    assert sum(reads) == ready.usage.tokens_in
    assert len(worker.requests) == 1
    assert isinstance(events[-1], ev.RunFinished)


@pytest.fixture(scope="module")
def short(models: Path) -> Path:
    """It mostly writes " the" until its tokens are used up."""
    return make(models / "short.gguf", extra=Extra(bias={" the": 6.0, END: 1.0}))


def reply(path: Path, refuse_below: float | None, **fields: Any) -> list[Chunk]:
    request = ask("Who?", **{"max_tokens": 3, "temperature": 0.0, **fields})
    with opened(path, context=256, refuse_below=refuse_below) as engine:
        return list(engine.generate(request, CancelToken()))


def test_the_confidence_is_the_product_of_the_shares_of_the_tokens(short: Path) -> None:
    first_share = reply(short, 0.0, max_tokens=1)[-1].confidence
    with opened(short, context=256, refuse_below=0.0) as engine:
        list(engine.generate(ask("Who?", max_tokens=1, temperature=0.0), CancelToken()))
        logits = np.array(engine.vocabulary.logits(engine.context), dtype=np.float64)
    share = math.exp(logits.max()) / np.exp(logits).sum()
    assert first_share == pytest.approx(share, rel=1e-4)
    whole_share = reply(short, 0.0)[-1].confidence
    assert first_share is not None
    assert whole_share is not None
    assert 0 < whole_share < first_share


def test_a_reply_below_the_threshold_becomes_a_refusal(short: Path) -> None:
    plain = reply(short, None)
    sure = reply(short, 0.0)
    assert plain[-1].confidence is None
    confidence = sure[-1].confidence
    assert confidence is not None
    assert text(sure) == text(plain) != "?"
    unsure = reply(short, confidence * 1.01)
    assert text(unsure) == "?"
    assert unsure[-1].finish == "stop"
    assert unsure[-1].confidence == pytest.approx(confidence)
    assert used(unsure).tokens_out == used(plain).tokens_out
    assert text(reply(short, confidence * 0.99)) == text(plain)


@pytest.fixture(scope="module")
def ending(models: Path) -> Path:
    """It often ends its reply."""
    return make(models / "searched.gguf", extra=Extra(bias={" the": 4.0, END: 4.0}))


def ranked(engine: LlamaEngine, rank: int, **fields: Any) -> str:
    request = ask("Who?", **{"max_tokens": 6, "temperature": 0.0, "rank": rank, **fields})
    return text(engine.generate(request, CancelToken()))


def test_replies_come_in_the_order_of_their_probability(ending: Path) -> None:
    with opened(ending, context=256) as engine:
        ranks = [ranked(engine, rank, max_tokens=1) for rank in range(4)]
        list(engine.generate(ask("Who?", max_tokens=1, temperature=0.0), CancelToken()))
        order = np.argsort(-np.array(engine.vocabulary.logits(engine.context)), kind="stable")[
            :4
        ].tolist()
        texts = [
            "" if engine.vocabulary.is_end(token) else engine.vocabulary.token_bytes(token).decode()
            for token in order
        ]
    assert ranks == texts


def test_each_rank_is_another_reply_and_the_same_whatever_was_asked_before(ending: Path) -> None:
    with opened(ending, context=256) as engine:
        inorder = [ranked(engine, rank) for rank in range(5)]
        assert len(set(inorder)) == 5
        assert [ranked(engine, rank, prefill=" the") for rank in (1, 2)] != inorder[1:3]
        assert [ranked(engine, rank) for rank in (4, 2, 3, 0)] == [
            inorder[rank] for rank in (4, 2, 3, 0)
        ]


def test_a_search_keeps_to_the_grammar_and_begins_again_when_nothing_is_left(tiny: Path) -> None:
    with opened(tiny, context=256) as engine:
        ranks = [
            ranked(engine, rank, grammar='root ::= ("a" | "b") ("c" | "d")') for rank in range(6)
        ]
    assert set(ranks[:4]) == {"ac", "ad", "bc", "bd"}
    assert ranks[4] == ranks[0] != ranks[5]


def test_several_searches_at_the_same_time_write_no_reply_twice(
    ending: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run's question comes between two ranks of the first, or asks the same."""
    with opened(ending, context=256) as engine:
        inorder = [ranked(engine, rank) for rank in range(1, 6)]
        written = mock.Mock(side_effect=engine._write)
        monkeypatch.setattr(engine, "_write", written)
        for rank in range(1, 6):
            list(
                engine.generate(
                    ask("Why?", max_tokens=6, temperature=0.0, rank=rank), CancelToken()
                )
            )
            assert ranked(engine, rank) == inorder[rank - 1]
    assert written.call_count == 1 + 5 + 5  # the likeliest reply to the other question first


def test_a_reply_that_is_broken_off_loses_a_search_nothing(ending: Path) -> None:
    with opened(ending, context=256) as engine, opened(ending, context=256) as other:
        inorder = [ranked(engine, rank) for rank in range(1, 6)]
        next(other.generate(ask("Who?", max_tokens=6, temperature=0.0, rank=1), CancelToken()))
        assert [ranked(other, rank) for rank in (2, 3, 4, 5, 1)] == [*inorder[1:], inorder[0]]


EXAMPLES = settings.default.max_examples if settings.default else 0
SEEDS = max(60, EXAMPLES)  # each pair of pool size and step limit occurs, in CI five times


def fault(text: str, workers: int, limit: int) -> str | None:
    """What is wrong with a plan, for a parser that tolerates nothing."""
    rules = PlanRules(workers=tuple("ABCDEFGHIJKL"[:workers]), steps=limit)
    context = PlanFormatContext(
        rules=rules, labels={name: name for name in rules.workers}, constrained=True
    )
    try:
        plan = plan_in("native", text, context)
        assert isinstance(plan, Plan)
        check_plan(plan, rules)
    except PlanError as error:
        return error.message
    longest = max(len(step.subtask) for step in plan.steps)
    return f"a subtask of {longest} characters" if longest > context.subtask_chars else None


async def sampled(path: Path) -> list[tuple[int, int, str, str]]:
    """For each seed: the size of the pool, the limit, the text, and why it ended."""
    llama = Llama(path, LlamaOptions(context=8192, threads=1))
    plans = []
    try:
        for seed in range(SEEDS):
            workers = seed % 12 + 1
            limit = seed % 5 + 1
            pool = Pool(
                workers=tuple(
                    Worker(name=f"worker-{index}", kind="openai") for index in range(workers)
                )
            )
            context = plan_format_context(
                PROMPTED, pool, PlanRules(workers=pool.names, steps=limit), "auto", constrained=True
            )
            request = planner_request(Question(text=f"Question {seed}?"), pool, PROMPTED, context)
            request = replace(request, temperature=1.5, seed=seed, max_tokens=5200)
            chunks = await chunks_of(llama, request)
            plans.append((workers, limit, text(chunks), str(chunks[-1].finish)))
    finally:
        await llama.close()
    return plans


@pytest.mark.timeout(600)
def test_every_sampled_plan_is_valid(models: Path) -> None:
    """Line ends and the end of text are likely.

    Every length occurs, every limit is reached, every worker named.
    """
    path = make(models / "plans.gguf", seed=1, extra=Extra(bias={"\n": 5.0, "<|im_end|>": 5.0}))
    plans = asyncio.run(sampled(path))
    assert [
        problem for workers, limit, plan, _ in plans if (problem := fault(plan, workers, limit))
    ] == []
    assert {finish for *_, finish in plans} == {"stop"}
    lengths = {(limit, plan.count("\n") + 1) for _, limit, plan, _ in plans}
    assert {length for _, length in lengths} == {1, 2, 3, 4, 5}
    assert {(limit, limit) for limit in range(1, 6)} <= lengths
    lines = chain.from_iterable(plan.split("\n") for *_, plan, _ in plans)
    assert {line[0] for line in lines} == set("ABCDEFGHIJKL")
    assert len({plan for *_, plan, _ in plans}) >= 0.9 * SEEDS


def test_a_sampled_reply_has_the_probability_of_each_token(partial: Path) -> None:
    """The same as the logits give that are read again, after the same tokens."""
    request = ask("Who?", grammar='root ::= [A-C] " " [A-C]', temperature=1.0, seed=3)
    with opened(partial) as engine:
        reply = engine.sample(request, CancelToken())
        spellings = map(engine.vocabulary.token_bytes, reply.tokens[:-1])
        assert b"".join(spellings).decode() == reply.text
        assert engine.vocabulary.is_end(reply.tokens[-1])
        prompt = engine.tokenize(request)
        engine.kv_cache.read(prompt)
        for position, token in enumerate(reply.tokens):
            logits = engine.vocabulary.logits(engine.context).astype(np.float64)
            shares = np.exp(logits) / np.exp(logits).sum()
            entropy = -(shares * np.log(shares)).sum()
            assert reply.logprobs[position] == pytest.approx(np.log(shares[token]), abs=1e-3)
            assert reply.entropies[position] == pytest.approx(entropy, abs=1e-3)
            engine.kv_cache.decode([token])


def test_a_sampled_reply_is_the_one_that_is_generated(partial: Path) -> None:
    request = ask("Who?", grammar="root ::= [A-C]+", temperature=1.0, seed=5)
    with opened(partial) as engine:
        written = "".join(chunk.text for chunk in engine.generate(request, CancelToken()))
        reply = engine.sample(request, CancelToken())
    assert reply.text == written
    assert len(reply.tokens) == len(reply.logprobs) == len(reply.entropies)
