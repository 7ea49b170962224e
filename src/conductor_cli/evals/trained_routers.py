"""Routers that learn from a user's own cases which team to ask: their training, their file, and their plans.

A router learns from the outcomes of an ordinary evaluation, in which every team answered every training case.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core.bounded import parse_json
from conductor_cli.core.errors import UsageError, describe_system_error
from conductor_cli.core.formatting import format_count
from conductor_cli.core.plan import Plan
from conductor_cli.core.serialization import DecodeError, dump, load
from conductor_cli.core.terminal_text import escape_json
from conductor_cli.evals.cases import Case
from conductor_cli.evals.outcomes import Outcome
from conductor_cli.evals.systems import RouterKind, Team

if TYPE_CHECKING:
    from conductor_cli.evals.embeddings import Vectors

LEAST_CASES: Final = 20
"""Training cases that were judged for all teams. Even these say little; a router needs a hundred or more."""
MAX_FILE: Final = 64_000_000
"""Bytes of a router's file."""
FORMAT: Final = "conductor-router-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArray:
    """Numbers of 32 bits in Base64, least significant byte first, row by row."""

    shape: tuple[int, ...]
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedRouter:
    """What a router's file holds.

    `workers` maps the names of the workers to the identities of their models, `embedder` made the vectors that it was
    trained on, `questions` are hashes of the training questions with spaces between. `teams` are what it chooses from,
    in the order that the `arrays`, its weights, have.
    """

    format: str = FORMAT
    kind: RouterKind
    workers: Mapping[str, str]
    embedder: str
    source: str = ""
    seed: int = 0
    questions: str
    teams: tuple[Team, ...]
    arrays: Mapping[str, StoredArray] = field(default_factory=dict)

    @property
    def hashes(self) -> list[str]:
        """One of each training question."""
        return self.questions.split()

    @property
    def text(self) -> str:
        """The content of its file: equal routers have equal files."""
        return escape_json(json.dumps(dump(self), ensure_ascii=False, separators=(",", ":"))) + "\n"

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """`outcomes` of the training `cases` under the systems of the `teams`; the rows of `vectors` are of the cases."""

    cases: Sequence[Case]
    outcomes: Iterable[Outcome]
    teams: Sequence[Team]
    workers: Mapping[str, str]
    vectors: Vectors
    embedder: str
    source: str
    seed: int


def hash_question(text: str) -> str:
    """Equal for questions that differ in case and white space only."""
    return hashlib.sha256(" ".join(text.casefold().split()).encode("utf-8", "backslashreplace")).hexdigest()


def check_apart(trained: Iterable[str], cases: Sequence[Case]) -> None:
    """Raise `UsageError` if a case is among those that a router was trained on, given by hashes of their questions."""
    known = set(trained)
    shared = [case.id for case in cases if hash_question(case.question) in known]
    if shared:
        message = f"{format_count(len(shared), 'test case')} would also train a router, such as {shared[0]!r:.40}"
        raise UsageError(message, hint="take the training cases from other questions: a router knows those it has seen")


def too_few_cases(count: int) -> UsageError:
    """The error for so many training cases that all workers have answered."""
    message = f"a router needs at least {LEAST_CASES} training cases that all workers have answered, and has {count}"
    return UsageError(message, hint="give more cases, or find out why calls failed: conductor workers test")


def train_router(kind: RouterKind, data: TrainingData) -> TrainedRouter:
    """Train one router. Cases that failed for a team are left out. Raises `UsageError` if too few are left."""
    import numpy as np

    from conductor_cli.evals import routerdc

    teams = [team for team in data.teams if kind == "masrouter" or team.form == "alone"]
    found = {outcome.key[:2]: outcome for outcome in data.outcomes if outcome.verdict != "failed"}
    rows = [
        row for row, case in enumerate(data.cases) if all((team.system, case.id) in found for team in teams)
    ]  # fmt: skip
    if len(rows) < LEAST_CASES:
        raise too_few_cases(len(rows))
    table = [[found[team.system, data.cases[row].id] for team in teams] for row in rows]
    right = np.array([[float(outcome.right) for outcome in line] for line in table])
    vectors = data.vectors[rows]
    if kind == "routerdc":
        layer, keys = routerdc.train(vectors, right, data.seed)
        arrays = {"layer": layer, "keys": keys}
    else:
        cost = np.array(_costs(table))
        alone = [column for column, team in enumerate(teams) if team.form == "alone"]
        made_of = routerdc.choices(teams, list(data.workers))
        arrays = {"weights": routerdc.train_masrouter(vectors, routerdc.rewards(right, cost, alone), made_of)}
    return TrainedRouter(
        kind=kind, workers=data.workers, embedder=data.embedder, source=data.source, seed=data.seed,
        questions=" ".join(hash_question(case.question) for case in data.cases), teams=tuple(teams),
        arrays={name: _store(array) for name, array in arrays.items()},
    )  # fmt: skip


def _costs(table: Sequence[Sequence[Outcome]]) -> list[list[float]]:
    """Dollars if every call has a price and any costs something, else tokens."""
    used = [[outcome.usage for outcome in line] for line in table]
    everything = [each for line in used for each in line]
    if not any(each.unpriced for each in everything) and any(each.cost for each in everything):
        return [[float(each.cost or 0) for each in line] for line in used]
    return [[float(each.tokens) for each in line] for line in used]


def plan_cases(router: TrainedRouter, vectors: Vectors) -> list[Plan]:
    """The plan for each question, of which `vectors` has the unit vectors. Raises `UsageError` for other dimensions."""
    from conductor_cli.evals import routerdc

    arrays = {name: _restore(array) for name, array in router.arrays.items()}
    first = arrays["layer" if router.kind == "routerdc" else "weights"]
    if len(first) != vectors.shape[1] + 1:
        raise _unreadable("it was trained on vectors of another length")
    if router.kind == "routerdc":
        chosen = routerdc.choose(vectors, first, arrays["keys"])
    else:
        chosen = routerdc.choose_by_masrouter(vectors, first, routerdc.choices(router.teams, list(router.workers)))
    return [router.teams[team].plan() for team in chosen]


def read_router(path: Path) -> TrainedRouter:
    """The router of a file. Raises `UsageError` if it cannot be read or is none."""
    try:
        if path.stat().st_size > MAX_FILE:
            raise _unreadable("it is too large", path)
        router = load(TrainedRouter, parse_json(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise _unreadable(describe_system_error(error), path) from None
    except (ValueError, RecursionError, DecodeError):
        raise _unreadable("it is not a router's file", path) from None
    if router.format != FORMAT or not _fits(router):
        raise _unreadable("its content does not fit together", path)
    return router


def _fits(router: TrainedRouter) -> bool:
    """Whether the teams are of its workers, and the arrays have the shapes that the teams need."""
    from conductor_cli.evals import routerdc

    known = set(router.workers)
    if not router.teams or not all(team.sound and known.issuperset(team.workers) for team in router.teams):
        return False
    shapes = {name: array.shape for name, array in router.arrays.items()}
    if any(len(shape) != 2 or min(shape) < 1 or math.prod(shape) > MAX_FILE for shape in shapes.values()):
        return False
    try:
        sizes = {name: len(_bytes(array)) for name, array in router.arrays.items()}
    except UsageError:
        return False
    if any(sizes[name] != 4 * math.prod(shape) for name, shape in shapes.items()):
        return False
    if router.kind == "routerdc":
        wanted = {"layer": (shapes.get("layer", (0, 0))[0], routerdc.SIZE), "keys": (len(router.teams), routerdc.SIZE)}
    else:
        choices = routerdc.choices(router.teams, list(router.workers)).shape[1]
        wanted = {"weights": (shapes.get("weights", (0, 0))[0], choices)}
    return shapes == wanted


def _store(array: Any) -> StoredArray:  # noqa: ANN401 - a numpy array
    data = base64.b64encode(array.astype("<f4").tobytes()).decode()
    return StoredArray(shape=tuple(array.shape), data=data)


def _bytes(array: StoredArray) -> bytes:
    try:
        return base64.b64decode(array.data, validate=True)
    except (binascii.Error, ValueError):
        raise _unreadable("its numbers are damaged") from None


def _restore(array: StoredArray) -> Vectors:
    import numpy as np

    numbers = np.frombuffer(_bytes(array), dtype="<f4").reshape(array.shape).astype(np.float64)
    return np.nan_to_num(numbers)


def _unreadable(why: str, path: Path | None = None) -> UsageError:
    what = f"{path} cannot be used as a router" if path else "the router cannot be used"
    return UsageError(f"{what}: {why}", hint="train one: conductor eval CASES --systems routerdc --train OTHER_CASES")
