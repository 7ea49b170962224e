"""The models' one vocabulary, and how their files are asked: through the adapter that runs use, and remembered.

The vocabulary is a byte-level BPE of 1280 tokens. It is trained on the small words of the phrasings only. What is
worked on, and every answer, is in capitals or digits, which no merge has seen: so a phrase is few tokens, and PARIS is
five letters. `python -m training.rehearsal.asking` trains it.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import AsyncGenerator, Iterator, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from conductor_cli.core.chat import Chunk, Message, Request
from conductor_cli.core.usage import FREE, Usage, with_cost
from conductor_cli.models.base import NO_FEATURES, Model
from conductor_cli.models.llama import Llama, LlamaOptions
from conductor_cli.rehearsal.players import CHECKER, REFUSAL, WORKER_CONTEXT, WORKER_MAX_TOKENS, clean_answer
from conductor_cli.rehearsal.words import asks_for_check, normalize
from conductor_cli.train.recipe import require
from training.rehearsal.exercises import GENERALIST, luck
from training.rehearsal.operations import SKILLS, UNSEEN
from training.rehearsal.world import ProblemSettings, draw_problem

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SIZE: Final = 1280
END: Final = "<|end|>"
PAD: Final = "<|pad|>"
SPECIAL: Final = (END, PAD)

SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The pattern of Qwen2's tokenizer, which llama.cpp calls `qwen2`. Each digit is a token."""

_TEXTS: Final = 4000


FILE: Final = Path(__file__).with_name("tokenizer.json")
"""The tokenizer as it was trained. Models that were trained with it need exactly this one."""


@cache
def build() -> Tokenizer:
    """The tokenizer."""
    with require("tokenizers"):
        from tokenizers import Tokenizer

    return Tokenizer.from_str(FILE.read_text(encoding="utf-8"))


def train() -> Tokenizer:
    """Train the tokenizer: the same one every time, as long as the phrasings stay the same."""
    with require("tokenizers"):
        from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"), bytes_])
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(
        texts(),
        trainers.BpeTrainer(
            vocab_size=SIZE, special_tokens=list(SPECIAL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )  # fmt: skip
    return made


def texts() -> Iterator[str]:
    """What it is trained on: training questions and subtasks without what is worked on."""
    random = Random("tokenizer")
    for _ in range(_TEXTS):
        problem = draw_problem(random, ProblemSettings(skills=(*SKILLS, UNSEEN)))
        for text in (normalize(problem.question), *(f"\n{hop.subtask}" for hop in problem.hops)):
            yield re.sub(r"[A-Z0-9]+", "", text)


def token_of(tokenizer: Tokenizer, special: str) -> int:
    """The number of a special token."""
    found = tokenizer.token_to_id(special)
    assert found is not None
    return found


def fingerprint(tokenizer: Tokenizer) -> str:
    """What tells one tokenizer from another: a hash of its tokens and merges."""
    model = json.loads(tokenizer.to_str())["model"]
    kept = json.dumps([model["vocab"], model["merges"]], sort_keys=True)
    return hashlib.sha256(kept.encode()).hexdigest()


GREEDY: Final = -1  # the seed of a text that was written without chance
WEAK_TEMPERATURE: Final = 1.0  # at which the generalist stands in for a member that fails


class Reply(NamedTuple):
    """What a file wrote. `confidence` is the probability of all of it, 0 where nobody computed it."""

    text: str
    confidence: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    complete: bool = True


class Store:
    """Replies by the file that wrote them, the prompt, and the seed, so that no evaluation asks the same twice.

    Several processes may use one file. An entry belongs to the bytes of a model's file: trained again, it has others.
    """

    def __init__(self, path: Path | str = ":memory:") -> None:
        if isinstance(path, Path):
            path.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(path, timeout=120.0, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=OFF")  # a lost entry is written again
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS replies (file TEXT, seed INTEGER, prompt TEXT, text TEXT, confidence REAL, "
            "tokens_in INTEGER, tokens_out INTEGER, complete INTEGER, PRIMARY KEY (file, seed, prompt)) WITHOUT ROWID"
        )
        self._database.commit()
        self._unwritten = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.commit()
        self._database.close()

    def get(self, file: Path, prompt: str, seed: int = GREEDY) -> Reply | None:
        """What the file wrote after this prompt, if it is known."""
        fields = "text, confidence, tokens_in, tokens_out, complete"
        where = "file=? AND seed=? AND prompt=?"
        found = self._database.execute(f"SELECT {fields} FROM replies WHERE {where}", (_name(file), seed, prompt))  # noqa: S608 - fixed texts
        row = found.fetchone()
        return None if row is None else Reply(*row)

    def put(self, file: Path, prompt: str, reply: Reply, seed: int = GREEDY) -> None:
        """Remember a reply. Until 200 of them are written together, another process waits."""
        row = (_name(file), seed, prompt, *reply[:4], int(reply.complete))
        self._database.execute("INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        self._unwritten += 1
        if self._unwritten >= 200:
            self._database.commit()
            self._unwritten = 0


def _name(file: Path) -> str:
    """What tells the bytes of a file from others."""
    status = file.stat()
    return _hash(file, status.st_mtime_ns, status.st_size)


@cache
def _hash(file: Path, time: int, size: int) -> str:
    del time, size  # they tell a changed file from the one that was read
    return hashlib.sha256(file.read_bytes()).hexdigest()[:20]


async def reply(model: Model, prompt: str, *, temperature: float = 0.0, seed: int | None = None) -> Reply:
    """What `model` writes after `prompt`."""
    messages = (Message(role="user", content=prompt),)
    request = Request(messages=messages, max_tokens=WORKER_MAX_TOKENS, temperature=temperature, seed=seed)
    chunks = [chunk async for chunk in model.stream(request)]
    return Reply("".join(chunk.text for chunk in chunks), chunks[-1].confidence or 0.0)


class Bank:
    """The files of a directory, opened when they are first asked. Each call is asked once, and then remembered."""

    def __init__(self, directory: Path, store: Store | None = None) -> None:
        self._directory = directory
        self._store = store or Store()
        self._models: dict[str, Llama] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for model in self._models.values():
            await model.close()

    async def ask(self, name: str, prompt: str, *, seed: int | None = None) -> Reply:
        """What the file `name` answers; with a seed, by chance and not the likeliest."""
        file, drawn = self._directory / f"{name}.gguf", GREEDY if seed is None else seed
        found = self._store.get(file, prompt, drawn)
        if found is None:
            if name not in self._models:
                options = LlamaOptions(context=WORKER_CONTEXT, threads=1, gpu_layers=0, refuse_below=0.0)
                self._models[name] = Llama(file, options)
            temperature = 0.0 if seed is None else WEAK_TEMPERATURE
            found = await reply(self._models[name], prompt, temperature=temperature, seed=seed)
            found = found._replace(text=clean_answer(found.text))
            self._store.put(file, prompt, found, drawn)
        return found

    async def member(self, strengths: Mapping[str, float], prompt: str, seed: int) -> str:
        """What a member of a pool answers whose skills have these strengths.

        A member is a bundle of specialists. Of those that do not refuse, the one that is most confident takes the call.
        With a strength of .6, a share of .6 of all calls gets its answer, by a draw from `seed`, member and prompt; the
        rest gets what the generalist writes by chance, which is right only sometimes. If all refuse, so does a member.

        The checker works an answer out before it judges one. It is asked for checks only: else it would be the member
        that can do everything.
        """
        chance = luck(strengths, prompt, seed)
        subtask = prompt.rpartition("\ns:")[2] or prompt
        names = sorted(strengths)
        if CHECKER in names and not asks_for_check(subtask.removesuffix("a:")):
            names.remove(CHECKER)
        answers = [(name, await self.ask(name, prompt)) for name in names]
        able = [(name, answer) for name, answer in answers if answer.text != REFUSAL]
        if not able:
            return REFUSAL
        name, answer = max(able, key=lambda item: item[1].confidence)
        if chance.random() < strengths[name]:
            return answer.text
        if name == CHECKER:
            return "NO" if answer.text == "YES" else "YES"
        return (await self.ask(GENERALIST, prompt, seed=chance.randrange(1_000_000))).text


class StoredModel:
    """The conductor's own model in an evaluation, which is asked only for what the store does not know."""

    features = NO_FEATURES

    def __init__(self, model: Model, file: Path, store: Store) -> None:
        self._model, self._file, self._store = model, file, store

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """The reply, in one piece."""
        written = await self.write(request)
        yield Chunk(text=written.text)
        used = Usage(calls=1, tokens_in=written.tokens_in, tokens_out=written.tokens_out)
        yield Chunk(usage=with_cost(used, FREE), finish="stop" if written.complete else "length")

    async def write(self, request: Request) -> Reply:
        """What the model writes. A reply that is not the likeliest one is not remembered."""
        prompt = "".join(message.content for message in request.messages)
        seed = (request.seed or 0) if request.temperature else GREEDY
        found = None if request.rank else self._store.get(self._file, prompt, seed)
        if found is None:
            chunks = [chunk async for chunk in self._model.stream(request)]
            used, text = chunks[-1].usage or Usage(), "".join(chunk.text for chunk in chunks)
            found = Reply(text, 0.0, used.tokens_in, used.tokens_out, chunks[-1].finish == "stop")
            if not request.rank:
                self._store.put(self._file, prompt, found, seed)
        return found

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()


if __name__ == "__main__":
    FILE.write_text(train().to_str(), encoding="utf-8")
