"""Asks the workers' files through the adapter that runs use, and remembers what they wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from conductor_cli.core.chat import Message, Request
from conductor_cli.models.base import Model
from conductor_cli.models.llama import Llama, LlamaOptions
from conductor_cli.rehearsal.players import CHECKER, REFUSAL, clean_answer
from conductor_cli.rehearsal.players import WORKER_CONTEXT as CONTEXT
from conductor_cli.rehearsal.players import WORKER_MAX_TOKENS as MOST_TOKENS
from conductor_cli.rehearsal.words import asks_for_check
from scripts.rehearsal.pools import GENERALIST, luck
from scripts.rehearsal.store import GREEDY, Store, Written

WEAK_TEMPERATURE: Final = 1.0
"""At which the generalist stands in for a member that fails."""


class Reply(NamedTuple):
    """What a file wrote, and the probability that it gave to all of it."""

    text: str
    confidence: float


async def reply(model: Model, prompt: str, *, temperature: float = 0.0, seed: int | None = None) -> str:
    """What `model` writes after `prompt`."""
    return "".join([chunk.text async for chunk in model.stream(_request(prompt, temperature, seed))])


def _request(prompt: str, temperature: float, seed: int | None) -> Request:
    messages = (Message(role="user", content=prompt),)
    return Request(messages=messages, max_tokens=MOST_TOKENS, temperature=temperature, seed=seed)


class Bank:
    """The files of a directory, opened when they are first asked. Each call is asked once, and then remembered.

    With a `store`, also from one process to the next.
    """

    def __init__(self, directory: Path, store: Store | None = None) -> None:
        self._directory = directory
        self._store = store
        self._models: dict[str, Llama] = {}
        self._known: dict[tuple[str, str, int | None], Reply] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for model in self._models.values():
            await model.close()

    async def ask(self, name: str, prompt: str, *, seed: int | None = None) -> Reply:
        """What the file `name` answers; with a seed, by chance and not the likeliest."""
        key = name, prompt, seed
        if key not in self._known:
            self._known[key] = await self._stored(name, prompt, seed)
        return self._known[key]

    async def _stored(self, name: str, prompt: str, seed: int | None) -> Reply:
        if self._store is None:
            return await self._ask(name, prompt, seed)
        file, drawn = self._directory / f"{name}.gguf", GREEDY if seed is None else seed
        found = self._store.get(file, prompt, drawn)
        if found is not None:
            return Reply(found.text, found.confidence)
        answer = await self._ask(name, prompt, seed)
        self._store.put(file, prompt, Written(answer.text, answer.confidence), drawn)
        return answer

    async def _ask(self, name: str, prompt: str, seed: int | None) -> Reply:
        if name not in self._models:
            options = LlamaOptions(context=CONTEXT, threads=1, gpu_layers=0, refuse_below=0.0)
            self._models[name] = Llama(self._directory / f"{name}.gguf", options)
        temperature = 0.0 if seed is None else WEAK_TEMPERATURE
        chunks = [chunk async for chunk in self._models[name].stream(_request(prompt, temperature, seed))]
        return Reply(clean_answer("".join(chunk.text for chunk in chunks)), chunks[-1].confidence or 0.0)

    async def best_of(self, names: Sequence[str], prompt: str) -> tuple[str, Reply]:
        """Of these files, the one that is most confident among those that do not refuse, and its answer."""
        found = [(name, await self.ask(name, prompt)) for name in names]
        able = [item for item in found if item[1].text != REFUSAL]
        return max(able or found, key=lambda item: item[1].confidence)

    async def member(self, strengths: Mapping[str, float], prompt: str, seed: int) -> str:
        """What a member of a pool answers whose skills have these strengths.

        A member is a bundle of specialists. The one that is most confident takes the call. With a strength of .6, a
        share of .6 of all calls gets its answer, by a draw from `seed`, member and prompt; the rest gets what the
        generalist writes by chance, which is right only sometimes. If all refuse, the member refuses.

        The checker works an answer out before it judges one. It is asked for checks only: else it would be the member
        that can do everything.
        """
        chance = luck(strengths, prompt, seed)
        subtask = prompt.rpartition("\ns:")[2] or prompt
        if CHECKER in strengths and not asks_for_check(subtask.removesuffix("a:")):
            strengths = {name: strength for name, strength in strengths.items() if name != CHECKER}
        if not strengths:
            return REFUSAL
        name, answer = await self.best_of(sorted(strengths), prompt)
        if answer.text == REFUSAL:
            return REFUSAL
        if chance.random() < strengths[name]:
            return answer.text
        if name == CHECKER:
            return "NO" if answer.text == "YES" else "YES"
        return (await self.ask(GENERALIST, prompt, seed=chance.randrange(1_000_000))).text
