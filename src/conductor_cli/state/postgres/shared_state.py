"""The state of several replicas, in a PostgreSQL database."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection
from datetime import date
from functools import cache, cached_property
from pathlib import Path
from typing import Final, Literal

from conductor_cli.core.errors import UsageError
from conductor_cli.core.ledger import NO_DAY_LIMITS
from conductor_cli.core.pool import DayLimits, Worker
from conductor_cli.keys.key_store import POSTGRESQL, KeyStore
from conductor_cli.state.interfaces import USER, Spender, Spending
from conductor_cli.state.postgres.database import Database
from conductor_cli.state.postgres.records import (
    Leases,
    SharedAttachments,
    SharedCircuits,
    SharedConversations,
    SharedRatings,
)
from conductor_cli.state.postgres.spending import SharedSpend, read_shared_spent
from conductor_cli.state.postgres.traces import SharedTraces
from conductor_cli.state.records import Names
from conductor_cli.state.spending import SpentRow

REQUEST_SECONDS: Final = 24 * 3600
"""How long a request with an Idempotency-Key is answered by the same run."""


class SharedState:
    """The state of several replicas; see `FileState`. Models, settings and caches stay in files."""

    def __init__(self, url: str, state: Path, data: Path) -> None:
        self._state = state
        self.database = Database(url, lambda place: KeyStore(data, os.environ)(POSTGRESQL, place))
        self.place = self.database.place

    @cached_property
    def traces(self) -> SharedTraces:
        return SharedTraces(self.database)

    @cached_property
    def circuits(self) -> SharedCircuits:
        return SharedCircuits(self.database)

    @cached_property
    def leases(self) -> Leases:
        return Leases(self.database, self.traces)

    @cached_property
    def ratings(self) -> SharedRatings:
        return SharedRatings(self.database)

    @property
    def conversations(self) -> SharedConversations:
        return SharedConversations(self.database)

    @cached_property
    def seen_templates(self) -> Names:
        """What this user was shown on this machine is nobody else's."""
        return Names(self._state / "seen-templates.json")

    def attachments(self) -> SharedAttachments:
        return SharedAttachments(self.database)

    def spending(
        self, limits: DayLimits = NO_DAY_LIMITS.limits, *, planner: Worker | None = None, client: Spender = USER,
        waits: bool = True,  # noqa: ARG002 - the database does that by itself
    ) -> Spending:  # fmt: skip
        return SharedSpend(self.database, limits, planner=planner, client=client)

    def read_spent(self, first: date, by: Literal["worker", "key"] = "worker") -> tuple[SpentRow, ...]:
        return read_shared_spent(self.database, first, by)

    def tidy_spending(self) -> None:
        """The database does so by itself."""

    def prune_attachments(self) -> None:
        self.attachments().prune()

    def size_of_attachments(self, runs: Collection[str]) -> int:
        return self.attachments().prunable(runs) if runs else 0

    def claim_request(self, key: str, request: str, run: str, instead_of: str = "") -> tuple[str, float]:
        ((first, found, age),) = self.database.call(
            "SELECT * FROM conductor_claim(%s, %s, %s, %s, %s)", key, request, run, instead_of, REQUEST_SECONDS
        )
        if first != request:
            raise UsageError("this Idempotency-Key was used for another request", hint="use a new one for each request")
        return str(found), float(age)

    def secret(self) -> bytes:
        offer = "INSERT INTO conductor_facts VALUES ('secret', %s) ON CONFLICT DO NOTHING"
        self.database.call(offer, secrets.token_bytes(32))
        return bytes(self.database.call("SELECT value FROM conductor_facts WHERE name = 'secret'")[0][0])


@cache
def shared_state(url: str, state: Path, data: Path) -> SharedState:
    """Return the state in a database, one for each in a process, whose connections everybody shares."""
    return SharedState(url, state, data)
