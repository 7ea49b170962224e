"""Workers and what is known about them; limits and timeouts. Values only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

from conductor_cli.core.chat import MediaKind
from conductor_cli.core.errors import ConfigError, UsageError, suggest
from conductor_cli.core.plan import SELF
from conductor_cli.core.usage import Price

RATED: Final = "rated"  # The tag of the figure that ratings give to a worker whose card has none


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What a worker is good at: a strength between 0 and 1 for each tag.

    `measured` is false for a built-in card.

    `words` say it where no figure is known; they never rank a worker. `source` says where either is
    from.
    """

    strengths: Mapping[str, float] = field(default_factory=dict)
    measured: bool = False
    source: str = ""
    words: str = ""

    def mean(self) -> float:
        if not self.strengths:
            return 0.0
        return sum(self.strengths.values()) / len(self.strengths)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A model that does subtasks.

    `kind` names the adapter or provider preset, `model` is the provider's id or a GGUF path,
    `options` what only that adapter reads (base URL, name of the key variable, temperature …; never
    a key), `parallel` how many of its steps may run at once, `tags` the user's own labels, for
    policies. `accepts` are the kinds of attachments that it can read; None where nobody has said it
    or looked it up, which counts as none. `max_output` is the most tokens that its model writes at
    once and `max_input` the most that it reads; None where that is not known. `tools` are the
    servers whose tools it may call. `copy_of` is the worker whose calls those of this one are,
    where an evaluation asks one worker several times.
    """

    name: str
    kind: str
    model: str = ""
    about: str = ""
    card: Card = Card()
    options: Mapping[str, Any] = field(default_factory=dict)
    parallel: int = 4
    price: Price | None = None
    tags: tuple[str, ...] = ()
    accepts: tuple[MediaKind, ...] | None = None
    max_output: int | None = None
    max_input: int | None = None
    tools: tuple[str, ...] = ()
    copy_of: str = ""

    @property
    def model_name(self) -> str:
        """The model as a reader may see it: the id, of a file its name alone.

        Empty where the server chooses.
        """
        is_file = self.kind == "llama" or self.model.endswith(".gguf")
        if not is_file:
            return self.model
        return self.model.replace("\\", "/").rpartition("/")[2].removesuffix(".gguf")

    def public(self) -> Worker:
        headers = self.options.get("headers")
        if not isinstance(headers, Mapping) or not headers:
            return self
        return replace(
            self, options={**self.options, "headers": dict.fromkeys(headers, "(not shown)")}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The workers on offer for a run, in one order. Names are unique."""

    workers: tuple[Worker, ...]

    def __post_init__(self) -> None:
        names = [worker.name for worker in self.workers]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"two workers have the name {name!r}", hint="rename one of them")

    def __iter__(self) -> Iterator[Worker]:
        return iter(self.workers)

    def __len__(self) -> int:
        return len(self.workers)

    def __getitem__(self, name: str) -> Worker:
        for worker in self.workers:
            if worker.name == name:
                return worker
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(worker.name for worker in self.workers)

    def public(self) -> Pool:
        return Pool(workers=tuple(worker.public() for worker in self.workers))

    def subset(self, names: Collection[str]) -> Pool:
        unknown = [name for name in names if name not in self]
        if unknown:
            hint = f"known: {', '.join(self.names) or 'none'}"
            raise UsageError(
                f"unknown worker {unknown[0]!r}", hint=suggest(unknown[0], self.names, hint)
            )
        return Pool(workers=tuple(worker for worker in self.workers if worker.name in names))

    def without_self(self) -> Pool:
        """Return the workers that are not the planner itself."""
        return Pool(workers=tuple(worker for worker in self.workers if worker.kind != SELF))

    def unpriced(self) -> tuple[str, ...]:
        """Return the names of the workers whose price is not known."""
        return tuple(worker.name for worker in self.workers if worker.price is None)

    def best(self) -> Worker:
        """Return the worker with the highest mean strength on its card.

        The first one if all cards are empty.
        """
        return max(self.workers, key=lambda worker: worker.card.mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one run may use. `None` means no limit.

    `seconds` and `cost` (US dollars) are for the whole run.

    Without a limit of `steps` a plan may have as many as `policy.step_limit` says, and without one
    of `tool_calls` its steps may call tools as often as `tools.CALLS_PER_RUN` says.
    """

    steps: int | None = None
    parallel: int = 8
    attempts: int = 3
    recursion: int = 0
    seconds: float | None = None
    cost: Decimal | None = None
    tokens: int | None = None
    calls: int | None = None
    tool_calls: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DayLimits:
    """What all runs of one day may use together: US dollars, tokens, calls to workers.

    `None` means no limit.
    """

    cost: Decimal | None = None
    tokens: int | None = None
    calls: int | None = None

    def __bool__(self) -> bool:
        return any(limit is not None for limit in (self.cost, self.tokens, self.calls))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long one attempt may take, in seconds.

    Until its first token, between two tokens, and in total.
    """

    first_token: float = 180.0
    idle: float = 90.0
    total: float = 900.0

    def for_worker(self, worker: Worker) -> Timeouts:
        """Return those of a worker, which may have `seconds` of its own.

        Such as a program that is silent until it has finished.
        """
        seconds = worker.options.get("seconds")
        if seconds is None:
            return self
        return Timeouts(first_token=seconds, idle=seconds, total=seconds)
