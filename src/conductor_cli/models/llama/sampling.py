"""Which token comes next: by temperature and seed, and inside a grammar.

Every token has a score: its logit, or at a temperature its logit divided by the temperature plus
Gumbel noise. The token of the highest score is then a draw from the softmax (the Gumbel-max trick),
and the best of the tokens that a grammar allows is a draw from the softmax over these. So only the
best token is checked first: to check the whole vocabulary of 152,000 tokens against a grammar takes
20 to 100 ms. If it is refused, the next best are checked, a few at a time.

Replies to one prompt, the likeliest first, are a best-first search: each takes, at one place of an
earlier one, a token that was not taken there, and goes on with the likeliest tokens. The next reply
is the one whose beginning, up to that token, is the likeliest.
"""

from __future__ import annotations

import codecs
import ctypes
import heapq
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.bindings import last_error
from conductor_cli.models.llama.vocabulary import Vocabulary

MAX_FORCED: Final = 64
"""Characters that are looked ahead at once for text that a grammar leaves no choice about."""

LEAST_TEMPERATURE: Final = 1e-6
"""Up to it the likeliest token is drawn: logits that are divided by less do not fit into 32 bits,
and the noise is nothing beside them.
"""


class WordHabit:
    """Divides the shares of some tokens by those that a model gives them whatever it is asked.

    It does so in each line of a reply after its last of so many `bars`. The tokens keep the share
    that they have together.
    """

    def __init__(self, shares: Mapping[int, float], bar: str, bars: int) -> None:
        """`shares` are those of the tokens by habit, among themselves."""
        self._tokens = [*shares]
        self._log_shares = [math.log(share) for share in shares.values()]
        self._bar = bar.encode()
        self._bars = bars
        self._line = b""

    def accept(self, spelling: bytes) -> None:
        """Note what the reply goes on with."""
        self._line = (self._line + spelling).rpartition(b"\n")[2]

    def divided(self, logits: Any) -> Any:  # noqa: ANN401 - numpy arrays
        """Return the logits for the next token."""
        follows = self._line.endswith(self._bar) and self._line.count(self._bar) == self._bars
        if not follows:
            return logits
        import numpy as np

        own_logits = logits[self._tokens].astype(np.float64)
        divided = own_logits - self._log_shares
        together = np.logaddexp.reduce(own_logits) - np.logaddexp.reduce(divided)
        logits = logits.copy()
        logits[self._tokens] = divided + together
        return logits


class Sampler:
    """Draws tokens for one reply. `close` it."""

    def __init__(self, vocabulary: Vocabulary, *, temperature: float | None, seed: int) -> None:
        self.vocabulary = vocabulary
        self._lib = vocabulary.lib
        self._temperature: float | None = None
        if temperature is not None and temperature > LEAST_TEMPERATURE:
            self._temperature = temperature
        self._seed = seed
        self._random: Any = None

    def draw(self, context: Any) -> int:  # noqa: ANN401 - a C pointer
        """Return the next token after what the context has decoded last."""
        return int(self._scores(context).argmax())

    # A C pointer
    def likeliest(self, context: Any, count: int) -> list[tuple[int, float]]:  # noqa: ANN401
        """Return the best tokens that may come next, at most `count`.

        Each has the negative logarithm of its share of all.
        """
        import numpy as np

        logits = self._logits(context)
        whole = float(np.log(np.exp(logits - logits.max()).sum()) + logits.max())
        return [(token, whole - float(logits[token])) for token in self._best(logits, count)]

    def accept(self, token: int) -> None:
        """Note that a token comes next which `draw` did not choose."""

    def forced(self) -> Sequence[int]:
        """Return the tokens that come next whatever the model says. They count as drawn."""
        return ()

    def close(self) -> None:
        """Free what the reply needed."""

    def _best(self, scores: Any, count: int) -> list[int]:  # noqa: ANN401 - a numpy array
        return next(_best_first(scores))[:count]

    # A C pointer; a numpy array, for reading
    def _logits(self, context: Any) -> Any:  # noqa: ANN401
        return self.vocabulary.logits(context)

    # A C pointer; a numpy array, for reading
    def _scores(self, context: Any) -> Any:  # noqa: ANN401
        logits = self._logits(context)
        if self._temperature is None:
            return logits
        import numpy as np

        if self._random is None:
            self._random = np.random.default_rng(self._seed % (1 << 64))
        waits = self._random.standard_exponential(size=len(logits), dtype=np.float32)
        # The negative logarithm of an exponential variable is Gumbel noise, three times as fast as
        # numpy's own.
        noise = np.log(np.maximum(waits, np.finfo(np.float32).tiny))
        return logits / np.float32(self._temperature) - noise


class ScoringSampler(Sampler):
    """Also computes the probability of the whole reply.

    It is the product of its tokens' shares at temperature 1.
    """

    probability = 1.0

    def draw(self, context: Any) -> int:  # noqa: ANN401 - a C pointer
        import numpy as np

        token = super().draw(context)
        logits = self.vocabulary.logits(context)
        self.probability /= float(np.exp(logits - logits[token]).sum())
        return token


class GrammarSampler(Sampler):
    """Draws only what the grammar allows, and ends only where it may end.

    It draws no half characters and no control tokens.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        grammar: str,
        *,
        temperature: float | None,
        seed: int,
        habit: WordHabit | None = None,
    ) -> None:
        """Raises `ModelError` of kind `internal` for a grammar that cannot be used."""
        super().__init__(vocabulary, temperature=temperature, seed=seed)
        self._habit = habit
        # llama.cpp reads an empty text as "no grammar" and would then allow everything.
        self._grammar: Any = None
        if grammar:
            self._grammar = self._lib.llama_sampler_init_grammar(
                vocabulary.pointer, grammar.encode(), b"root"
            )
        if not self._grammar:
            raise ModelError(
                "internal", f"the grammar of this request cannot be used: {last_error()}"
            )
        self._letters = codecs.getincrementaldecoder("utf-8")()
        self._end = vocabulary.end_token
        beginnings = tuple[int, ...]()
        # llama.cpp aborts the process on the number of a token that there is not
        if self._end >= 0 and vocabulary.byte_tokens:
            beginnings = (self._end, *vocabulary.byte_tokens.values())
        self._beginnings = self._entries(beginnings)
        self._some_beginnings = self._entries(beginnings[-2:])
        self._candidate = (self._lib.llama_token_data * 1)()
        self._candidates = self._lib.llama_token_data_array(
            data=self._candidate, size=1, selected=-1
        )

    def draw(self, context: Any) -> int:  # noqa: ANN401
        scores = self._scores(context)
        token = int(scores.argmax())
        may_follow = self._is_text(token) and self._allows(token)
        if not may_follow:
            (token,) = self._best(scores, 1)
        self.accept(token)
        return token

    def accept(self, token: int) -> None:
        """Note that a token comes next.

        llama.cpp aborts the process on one that its grammar refuses.
        """
        if self.vocabulary.is_end(token):
            return
        self._lib.llama_sampler_accept(self._grammar, token)
        spelling = self.vocabulary.token_bytes(token)
        self._letters.decode(spelling)
        if self._habit is not None:
            self._habit.accept(spelling)

    def forced(self) -> Sequence[int]:
        """Return the tokens of the text that the grammar leaves no choice about, and of the end.

        The last one may be joined with what follows it, so that is left to the model, unless it
        ends a line or the reply.
        """
        text, ends = self._forced_text()
        tokens = self.vocabulary.reply_tokens(text)
        if not ends and not text.endswith("\n"):
            tokens = tokens[:-1]
        accepted = list[int]()
        for token in tokens:
            if not self._is_text(token) or not self._allows(token):
                return accepted  # A tokenizer that changes the text, such as by a space before it
            self.accept(token)
            accepted.append(token)
        if ends:
            accepted.append(self._end)
        return accepted

    def _forced_text(self) -> tuple[str, bool]:
        """Return what has to be written next, and whether the reply has to end after it."""
        text = ""
        ahead = self._grammar
        try:
            while len(text) < MAX_FORCED:
                following = self._following(ahead)
                if len(following) != 1:
                    return text, False
                (token,) = following
                if token == self._end:
                    return text, True
                character = self.vocabulary.token_bytes(token)
                if not character.isascii():
                    return text, False
                if ahead is self._grammar:
                    ahead = self._lib.llama_sampler_clone(self._grammar)
                self._lib.llama_sampler_accept(ahead, token)
                text += character.decode()
        finally:
            if ahead is not self._grammar:
                self._lib.llama_sampler_free(ahead)
        return text, False

    def _following(self, grammar: Any) -> Sequence[int]:  # noqa: ANN401 - a C pointer
        """Return the beginnings that a grammar allows next, or two of them where it has more.

        Whatever may be written begins with one of them. None where the vocabulary has not all, or
        no token for the end.
        """
        if not self._beginnings:
            return ()
        # In free text two letters are allowed, and to look at all would take ten times as long
        some = self._allowed_of(self._some_beginnings, grammar)
        if len(some) > 1:
            return some
        return self._allowed_of(self._beginnings, grammar)

    # A C pointer; a numpy array, for reading
    def _logits(self, context: Any) -> Any:  # noqa: ANN401
        logits = super()._logits(context)
        if self._habit is None:
            return logits
        return self._habit.divided(logits)

    def close(self) -> None:
        self._lib.llama_sampler_free(self._grammar)

    def _best(self, scores: Any, count: int) -> list[int]:  # noqa: ANN401 - a numpy array
        for tokens in _best_first(scores):
            allowed = set(self._allowed(tokens))
            best = []
            for token in tokens:
                if token in allowed and self._is_text(token):
                    best.append(token)
            if best:
                return best[:count]
        raise ModelError("internal", "the grammar of this request leaves no token to go on with")

    def _allows(self, token: int) -> bool:
        """Return whether the grammar allows a token now.

        Its C structures are made once, and not for each token.
        """
        entry = self._candidate[0]
        entry.id = token
        entry.logit = 1.0
        self._lib.llama_sampler_apply(self._grammar, ctypes.byref(self._candidates))
        return bool(entry.logit > 0)

    def _allowed(self, tokens: Sequence[int]) -> list[int]:
        entries = self._entries(tokens)
        return self._allowed_of(entries, self._grammar)

    def _entries(self, tokens: Sequence[int]) -> Any:  # noqa: ANN401 - an array of C structures
        entries = (self._lib.llama_token_data * len(tokens))()
        for entry, token in zip(entries, tokens, strict=True):
            entry.id = token
        return entries

    def _allowed_of(self, entries: Any, grammar: Any) -> list[int]:  # noqa: ANN401 - of C
        for entry in entries:
            entry.logit = 1.0
        candidates = self._lib.llama_token_data_array(data=entries, size=len(entries), selected=-1)
        self._lib.llama_sampler_apply(grammar, ctypes.byref(candidates))
        return [entry.id for entry in entries if entry.logit > 0]

    def _is_text(self, token: int) -> bool:
        """Return whether the text stays valid UTF-8 with `token`.

        The grammar of llama.cpp lets some other bytes through.
        """
        if self.vocabulary.is_end(token):
            return not self._letters.getstate()[0]
        spelling = self.vocabulary.token_bytes(token)
        before = self._letters.getstate()
        try:
            self._letters.decode(spelling)
            begun = self._letters.getstate()[0]
        except UnicodeDecodeError:
            return False
        finally:
            self._letters.setstate(before)
        # A surrogate is not valid, but Python's decoder waits for the rest before it refuses.
        is_surrogate = begun[:1] == b"\xed" and begun[1:] > b"\x9f"
        return bool(spelling) and not is_surrogate


def _best_first(scores: Any) -> Iterator[list[int]]:  # noqa: ANN401 - a numpy array
    """Return the tokens from the highest score down: a few, then more, then all."""
    import numpy as np

    for count in (32, 1024):
        if count < len(scores):
            best = np.argpartition(scores, -count)[-count:]
            yield best[np.argsort(-scores[best], kind="stable")].tolist()
    yield np.argsort(-scores, kind="stable").tolist()


def softmax(logits: Sequence[float]) -> list[float]:
    """Return the share that each of `logits` has in the distribution over them."""
    top = max(logits)
    weights = [math.exp(logit - top) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def choose_index(odds: Sequence[float], temperature: float | None, seed: int) -> int:
    """Return the index of a draw from `odds`; of the likeliest without a temperature."""
    if temperature is None or not temperature > 0:
        return max(range(len(odds)), key=odds.__getitem__)
    # Relative to the likeliest: at a low temperature, one half to the power of a thousand would
    # vanish.
    top = max(odds)
    weights = [(share / top) ** (1 / temperature) for share in odds]
    return random.Random(seed).choices(range(len(odds)), weights)[0]  # noqa: S311 - no secret


KEPT_ALTERNATIVES: Final = 3  # How many tokens are kept at each place beside the likeliest


@dataclass(slots=True)
class _SearchedReply:
    """One reply of a search, as far as it is written.

    Its cost is the negative logarithm of its probability.
    """

    cost: float = 0.0
    tokens: list[int] = field(default_factory=list)


class ReplySearch:
    """The replies to a prompt from the likeliest down. `written` is how many of them are whole."""

    def __init__(self) -> None:
        self.written = 0
        self._replies: list[_SearchedReply] = []
        # What may begin a reply: its cost, and the rank of another reply, of which it takes the
        # tokens before a position, and the token that it has there.
        self._untried: list[tuple[float, int, int, int]] = []

    def reply(self, rank: int) -> _SearchedReply:
        """Return the reply of this rank, as far as it is written.

        The search begins again where no other is allowed.
        """
        if rank == len(self._replies):
            begun = _SearchedReply()
            if self._untried:
                cost, earlier_rank, position, token = heapq.heappop(self._untried)
                same = self._replies[earlier_rank].tokens[:position]
                begun = _SearchedReply(cost, [*same, token])
            self._replies.append(begun)
        return self._replies[rank]

    def add_token(
        self, rank: int, token: int, cost: float, alternatives: Sequence[tuple[int, float]]
    ) -> None:
        """Write the next token of a reply.

        The `alternatives` that may stand in its place are kept, each with its cost.
        """
        reply = self._replies[rank]
        position = len(reply.tokens)
        for alternative, added_cost in alternatives:
            start = (reply.cost + added_cost, rank, position, alternative)
            heapq.heappush(self._untried, start)
        reply.cost += cost
        reply.tokens.append(token)


class SearchingSampler(Sampler):
    """Writes the reply of one rank in a search, by the scores of another sampler. `close` it."""

    def __init__(self, sampler: Sampler, search: ReplySearch, rank: int) -> None:
        super().__init__(sampler.vocabulary, temperature=None, seed=0)
        self._sampler = sampler
        self._search = search
        self._rank = rank
        self._reply = search.reply(rank)
        self._position = 0

    def draw(self, context: Any) -> int:  # noqa: ANN401 - a C pointer
        """Return the next token: what is written of the reply, then the likeliest."""
        if self._position == len(self._reply.tokens):
            (token, cost), *others = self._sampler.likeliest(context, 1 + KEPT_ALTERNATIVES)
            self._search.add_token(self._rank, token, cost, others)
        token = self._reply.tokens[self._position]
        self._position += 1
        self._sampler.accept(token)
        return token

    def close(self) -> None:
        self._sampler.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledReply:
    """A reply as it was drawn, with what a training needs of each token.

    `tokens` end with the token that ends a reply, unless it was cut. `logprobs` are the natural
    logarithms of their shares of the whole vocabulary at temperature 1, whatever a grammar allows;
    `entropies` are those of the distributions that they were drawn from, in nats.
    """

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    entropies: tuple[float, ...]


class RecordingSampler(Sampler):
    """Draws as another sampler does, and keeps the probability of each token. `close` it."""

    def __init__(self, sampler: Sampler) -> None:
        super().__init__(sampler.vocabulary, temperature=None, seed=0)
        self._sampler = sampler
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.entropies: list[float] = []

    def draw(self, context: Any) -> int:  # noqa: ANN401 - a C pointer
        import numpy as np

        token = self._sampler.draw(context)
        logits = self.vocabulary.logits(context)
        shifted = logits - logits.max()
        weights = np.exp(shifted)
        whole = float(weights.sum())
        self.tokens.append(token)
        self.logprobs.append(float(shifted[token]) - math.log(whole))
        self.entropies.append(math.log(whole) - float((weights * shifted).sum()) / whole)
        return token

    def close(self) -> None:
        self._sampler.close()
