"""The circuits of a process: one for each worker and one for each provider, shared by all its runs.

Who failed several times in a row is skipped for a time, then tried by one call. A circuit is
*closed* while calls are made, *open* while they are not, and *half open* once its time is over:
then one call decides.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from conductor_cli.core.errors import Failure, FailureKind, ModelError
from conductor_cli.core.formatting import format_count, format_duration
from conductor_cli.core.pool import Worker
from conductor_cli.models.key_hints import key_hint
from conductor_cli.models.recipients import account_of, provider_name
from conductor_cli.state.interfaces import SharedCircuit

if TYPE_CHECKING:
    # Only where there is a database
    from conductor_cli.state.postgres.records import SharedCircuits

CircuitState = Literal["closed", "open", "half_open"]

FAILURE_WORDS: Final = {
    "connect": "no connection",
    "timeout": "no answer in time",
    "overloaded": "a server error",
    "broken": "a reply that broke off",
    "rate": "a rate limit",
    "auth": "a refused key",
}
"""What calls fail by that count. These words stand in every later run; a server's own could quote
another question.
"""

_ANSWERED: Final = frozenset({"refused", "length", "empty_answer", "schema"})
"""Failures of one request, by which a server shows that it works."""

LONG_WAIT: Final = 30.0
"""Seconds. A rate limit counts where the server asks for a longer wait: a shorter one is waited
for.
"""

# Seconds after which a call is tried at the latest, whatever a server asks for
MAX_OPEN: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRules:
    """After how many failures in a row a circuit opens, and for how many seconds at first.

    With 0 failures it never opens.
    """

    failures: int = 3
    seconds: float = 30.0


class Circuit:
    """The calls of one worker, or of all workers at one provider.

    That of a provider (`shared`) opens only where its address cannot be reached or several workers
    have failed: a single model that fails says nothing about the others.
    """

    def __init__(self, *, shared: bool = False) -> None:
        self._shared = shared
        self.failures = 0  # Calls that failed in a row
        self._workers: set[str] = set()
        self._until: float | None = None
        self._openings = 0
        self._trial: object | None = None
        self.reason = ""  # Why the newest call that counts failed, empty if the newest one did not
        self.kind: FailureKind = "worker"
        self.opened = 0  # How often it has opened in all

    def state(self, now: float) -> CircuitState:
        if self._until is None:
            return "closed"
        if now < self._until:
            return "open"
        return "half_open"

    def seconds_left(self, now: float) -> float | None:
        """Return how long no call may be made; None where one may.

        0 while another call is the one that decides.
        """
        if self._until is None or (now >= self._until and self._trial is None):
            return None
        return max(0.0, self._until - now)

    def begin(self, caller: object, now: float) -> None:
        """Note that `caller` is about to make calls; the first one decides a half open circuit."""
        if self.state(now) == "half_open" and self._trial is None:
            self._trial = caller

    def leave(self, caller: object) -> None:
        """Note that `caller` makes no more calls.

        If its call should have decided and did not, the next one does.
        """
        if self._trial is caller:
            self._trial = None

    def succeed(self) -> None:
        """Note that a call got its answer, or a refusal of what it asked."""
        self.failures = 0
        self._openings = 0
        self._until = None
        self._trial = None
        self._workers.clear()
        self.reason = ""

    def fail(self, worker: str, error: ModelError, rules: BreakerRules, now: float) -> None:
        if error.reason in _ANSWERED:
            self.succeed()
        # Whether the failure says something about the next call.
        counts = error.reason in FAILURE_WORDS and (
            error.reason != "rate" or (error.retry_after or 0.0) > LONG_WAIT
        )
        if not rules.failures or not counts or self.state(now) == "open":
            return
        self.failures += 1
        self._workers.add(worker)
        self.reason = error.reason
        self.kind = error.kind
        on_trial = self._trial is not None
        self._trial = None
        # A key that was refused, or a limit with hours to go, is not worth two more calls.
        at_once = error.reason in ("auth", "rate")
        everybody = not self._shared or error.reason == "connect" or len(self._workers) > 1
        if on_trial or (everybody and (at_once or self.failures >= rules.failures)):
            longest = max(rules.seconds, MAX_OPEN)
            wait = max(rules.seconds * 2.0**self._openings, error.retry_after or 0.0)
            self._until = now + min(wait, longest)
            self._openings = min(self._openings + 1, 10)
            self.opened += 1


_Key = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitReport:
    """A circuit of which some call has failed.

    `opened` is how often it has opened; `text` says why it is open.
    """

    kind: Literal["worker", "provider"]
    name: str
    state: CircuitState
    opened: int
    text: str


class Circuits:
    """Which workers are skipped because their last calls failed.

    Runs that share it tell each other.
    """

    def __init__(
        self, rules: BreakerRules = BreakerRules(), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rules = rules  # Those of the newest run: settings may change while a server runs
        self.shared_circuits: SharedCircuits | None = None  # Where other processes tell of theirs
        self._clock = clock
        self._circuits: dict[_Key, Circuit] = {}

    def why_skipped(self, worker: Worker) -> Failure | None:
        if not self.rules.failures or not (self._circuits or self.shared_circuits):
            return None
        now = self._clock()
        for key in _keys_of(worker):
            circuit = self._circuits.get(key)
            left = None
            if circuit is not None:
                left = circuit.seconds_left(now)
            if left is None and self.shared_circuits is not None:
                shared = self.shared_circuits.find(_hash(key))
                if shared is not None:
                    circuit = Circuit()
                    left, circuit.failures, circuit.reason, circuit.kind = shared
            if circuit is not None and left is not None:
                who = "it"
                if key[0] == "provider":
                    who = key[1]
                message = f"{worker.name}: {_describe(circuit, left, who)}"
                hint = ""
                if circuit.reason == "auth":
                    hint = key_hint(worker)
                return Failure(kind=circuit.kind, message=message, hint=hint, reason="circuit_open")
        return None

    @contextmanager
    def calling(self, worker: Worker) -> Iterator[None]:
        """Inside, calls of `worker` are made for one step.

        After a break the first of them decides for everybody.
        """
        caller = object()
        now = self._clock()
        circuits = self._circuits_of(worker)
        for circuit in circuits:
            circuit.begin(caller, now)
        try:
            yield
        finally:
            for circuit in circuits:
                circuit.leave(caller)

    def _circuits_of(self, worker: Worker) -> list[Circuit]:
        """Return the circuits that a call of a worker goes through and that have seen a failure."""
        if not self._circuits:  # as long as no call fails, nobody need find out the keys
            return []
        return [self._circuits[key] for key in _keys_of(worker) if key in self._circuits]

    def succeeded(self, worker: Worker) -> None:
        if not self._circuits:
            return
        for key in _keys_of(worker):
            if (circuit := self._circuits.get(key)) is not None:
                if self.shared_circuits is not None and circuit.state(self._clock()) != "closed":
                    self.shared_circuits.withdraw(_hash(key))
                circuit.succeed()

    def failed(self, worker: Worker, error: ModelError) -> None:
        for key in _keys_of(worker):
            circuit = self._circuits.get(key) or Circuit(shared=key[0] == "provider")
            now = self._clock()
            before = circuit.opened
            circuit.fail(worker.name, error, self.rules, now)
            if circuit.failures:  # else it says nothing of the next call, and no call looks for it
                self._circuits[key] = circuit
            if self.shared_circuits is not None and circuit.opened > before:
                shared = SharedCircuit(
                    circuit.seconds_left(now) or 0.0, circuit.failures, circuit.reason, circuit.kind
                )
                self.shared_circuits.publish(_hash(key), shared)

    def reports(self) -> list[CircuitReport]:
        now = self._clock()
        reports = []
        for key, circuit in sorted(self._circuits.items(), reverse=True):
            left = circuit.seconds_left(now)
            text = ""
            if left is not None:
                text = f"{key[1]}: {_describe(circuit, left, 'it')}"
            kind: Literal["worker", "provider"] = "worker"
            if key[0] == "provider":
                kind = "provider"
            reports.append(
                CircuitReport(
                    kind=kind,
                    name=key[1],
                    state=circuit.state(now),
                    opened=circuit.opened,
                    text=text,
                )
            )
        return reports


def _describe(circuit: Circuit, seconds: float, who: str) -> str:
    """Return for how long a worker is skipped, and why.

    For example: skipped for 30 s, because it failed 3 times in a row, the last time by a server
    error.
    """
    how_long = "while one call tries it"
    if seconds:
        how_long = f"for {format_duration(math.ceil(seconds), tenths=False)}"
    failures = f"by {FAILURE_WORDS.get(circuit.reason, 'an error')}"
    if circuit.failures > 1:
        times = format_count(circuit.failures, "time")
        failures = f"{times} in a row, the last time {failures}"
    return f"skipped {how_long}, because {who} failed {failures}"


def _hash(key: _Key) -> str:
    return hashlib.sha256(repr(key).encode("utf-8", "replace")).hexdigest()


def _keys_of(worker: Worker) -> tuple[_Key, ...]:
    """Return the circuits that a call of a worker goes through.

    One whose settings have changed is another worker.
    """
    account = account_of(worker)
    worker_key = ("worker", worker.name, worker.kind, worker.model, *account)
    if account:
        return (worker_key, ("provider", provider_name(worker), *account))
    return (worker_key,)
