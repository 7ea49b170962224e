"""Measured capability cards.

What `conductor workers calibrate` found, by worker and by set of cases.

One JSON file in the data directory. A card belongs to a model as it is used: kind, model, and every
option that may change what it writes. Another model under the same name, or another temperature,
has no card until it is measured.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Final

from conductor_cli.config.files import AppPaths
from conductor_cli.core.errors import ConfigError, ModelError
from conductor_cli.core.pool import Card, Worker
from conductor_cli.core.serialization import dump, load
from conductor_cli.models.cards import builtin_card
from conductor_cli.models.worker_options import model_of
from conductor_cli.system.disk import editing, free_path, write_atomically

MAX_CARDS_BYTES: Final = 16 << 20  # bytes of a file of cards; a larger file is something else

WITHOUT_EFFECT: Final = frozenset(
    {"threads", "gpu_layers", "repack", "mmap", "cache", "ca_file", "key_env", "seconds"}
)
"""Options that change where and how fast a worker runs, not what it writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strength:
    """`right` of `n` cases with a tag."""

    right: int
    n: int

    def __post_init__(self) -> None:
        if not 0 <= self.right <= self.n:
            raise ConfigError(f"{self.right} of {self.n} is not a share")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCard:
    """One worker on one set of cases.

    `worker` is its name then, `key` what it was (see `worker_key`); `source` names the set, `hash`
    its content. `strengths` are by tag. Tokens, seconds and `cost` (US dollars) are means a case;
    `cost` is None where it is not known.
    """

    worker: str
    key: str
    source: str
    hash: str
    time: str
    right: int
    n: int
    strengths: Mapping[str, Strength]
    tokens_in: float
    tokens_out: float
    seconds: float
    cost: Decimal | None = None

    def card(self) -> Card:
        strengths = {}
        for tag, item in self.strengths.items():
            if item.n:
                strengths[tag] = round(item.right / item.n, 4)
        return Card(
            strengths=strengths,
            measured=True,
            source=f"{self.n} cases of {self.source}, {self.time[:10]}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """All measured cards, oldest first.

    `problem` says why the file could not be read, else it is empty.
    """

    measured: tuple[MeasuredCard, ...] = ()
    problem: str = ""

    # The field's name
    def of(self, worker: Worker, hash: str = "") -> MeasuredCard | None:  # noqa: A002
        """Return the newest card of a worker of the set with this hash where one is named."""
        if not self.measured:
            return None
        key = worker_key(worker)
        cards = []
        for item in self.measured:
            if item.key == key and hash in ("", item.hash):
                cards.append(item)
        if not cards:
            return None
        return cards[-1]

    def apply_to(self, worker: Worker) -> Worker:
        """The worker with its newest measured card, else with the built-in card of its model.

        A card that the user wrote is kept.
        """
        if worker.card.strengths or worker.card.words:
            return worker
        measured = self.of(worker)
        if measured is not None:
            return replace(worker, card=measured.card())
        return replace(worker, card=builtin_card(worker))


def worker_key(worker: Worker) -> str:
    """SHA-256 of everything that may change what a worker writes.

    Kind, model (a file by its content) and options.

    Headers may choose a deployment, and may be keys, so they count by a hash of their own.
    """
    options = {}
    for name, value in worker.options.items():
        if name not in WITHOUT_EFFECT and value is not None:
            options[name] = value
    if options.get("headers"):
        options["headers"] = _hash(options["headers"])
    # The model that a worker without one gets may be another in the next version.
    model = model_of(worker)
    if worker.kind == "llama":
        model = _identity(model)
        if "adapter" in options:
            options["adapter"] = _identity(str(options["adapter"]))
    return _hash([worker.kind, model, options])


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def _identity(file: str) -> str:
    """Return the identity hash of a model file; its path where it cannot be read."""
    from conductor_cli.models.llama.gguf import read_model_info

    with suppress(ModelError, OSError):
        return read_model_info(Path(file).expanduser()).identity
    return file


def cards_file(paths: AppPaths) -> Path:
    """Return the file of this user's cards."""
    return paths.data / "cards.json"


def load_cards(path: Path) -> Cards:
    """Return the cards of a file.

    Damage is reported in `problem` and never raised: a run goes on without cards.
    """
    if not path.is_file():  # a pipe would be waited for
        return Cards()
    try:
        if path.stat().st_size > MAX_CARDS_BYTES:
            return Cards(
                problem=f"{path} is damaged: it is larger than {MAX_CARDS_BYTES >> 20} MiB"
            )
        listed = json.loads(path.read_bytes())["cards"]
        return Cards(measured=tuple(load(MeasuredCard, item, "a card") for item in listed))
    except OSError as error:
        return Cards(problem=f"{path} cannot be read: {error.strerror}")
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        return Cards(problem=f"{path} is damaged: {error!s:.200}")


def add_cards(path: Path, added: Sequence[MeasuredCard]) -> Path | None:
    """Add cards to the user's own, each replacing an older one of the same worker and set.

    A damaged file is renamed first, and its new path is returned. Raises `ConfigError` where the
    disk refuses.
    """
    path = Path(os.path.realpath(path))  # so that a link to a damaged file stays
    with editing(path):
        before = load_cards(path)
        aside = None
        if before.problem:
            aside = path.rename(free_path(path, ".damaged-"))
        replaced = {(card.key, card.hash) for card in added}
        kept = [card for card in before.measured if (card.key, card.hash) not in replaced]
        content = {"cards": [dump(card) for card in (*kept, *added)]}
        write_atomically(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return aside
