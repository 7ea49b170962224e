"""`conductor keys test`: every key at hand, asked of its provider."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.app.key_status import KeyRow, keys_in_variables, keys_of_workers, stored_row
from conductor_cli.core.errors import KeyMissing, UsageError
from conductor_cli.keys.entry import checked_key, same_address
from conductor_cli.models.key_check import Checked, check_key
from conductor_cli.models.known_secrets import KNOWN_SECRETS
from conductor_cli.models.presets import PRESETS

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.keys.key_store import KeyStore

PATIENCE: Final = 15.0
"""Seconds that a provider may take."""

_CODES: Final = {
    "wrong": 4, "expired": 4, "unreadable": 4, "unreachable": 8, "failed": 1, "no credit": 1, "rate-limited": 1,
}  # fmt: skip
"""The exit code of each state that is not good. A key that is refused counts before everything else."""

REFUSED: Final = frozenset({"wrong", "expired"})
"""What a provider may say of a key that is not worth keeping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTest:
    """One key and what came of it."""

    row: KeyRow
    state: str
    seconds: float | None = None
    said: str = ""
    left: str = ""

    @property
    def time(self) -> str:
        return "-" if self.seconds is None else f"{self.seconds:.2f} s"

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        seconds = None if self.seconds is None else round(self.seconds, 3)
        return {
            "provider": self.row.provider, "kind": self.row.kind, "source": self.row.source,
            "worker": self.row.worker or None, "base_url": self.row.base_url, "state": self.state, "seconds": seconds,
            "left": self.left or None, "said": self.said,
        }  # fmt: skip


def test_keys(settings: Settings, safe: KeyStore, providers: Sequence[str]) -> list[KeyTest]:
    """Test the keys of these providers, or all. Raises `KeyMissing` where there is none, and `ConfigError`."""
    rows, unreadable = _with_keys(settings, safe, providers)
    missing = [
        name for name in providers if name not in {row.provider for row in (*rows, *(t.row for t in unreadable))}
    ]
    if missing or not (rows or unreadable):
        raise KeyMissing(
            f"no key of {missing[0]} is at hand" if missing else "no key is at hand",
            hint=f"conductor keys set {missing[0] if missing else 'PROVIDER'}",
        )
    return [*asyncio.run(_all(rows)), *unreadable]


def exit_code(tested: Sequence[KeyTest]) -> int:
    """0 where every key is good; 4 where one is refused or cannot be read; else what else failed."""
    codes = {_CODES.get(item.state, 0) for item in tested}
    return 4 if 4 in codes else max(codes, default=0)


def _with_keys(settings: Settings, safe: KeyStore, providers: Sequence[str]) -> tuple[list[KeyRow], list[KeyTest]]:
    """The rows to ask about, each with its key, none twice; and those that cannot be read."""
    rows = [
        row
        for row in (*keys_in_variables(settings), *keys_of_workers(settings))
        if not providers or row.provider in providers
    ]
    names = [name for name in safe.entries() if not providers or name in providers]
    unreadable = []
    for held in safe.read(*names).values():
        row = stored_row(held.entry, safe.path, "stored")
        if held.fault is None:
            rows.append(replace(row, key=held.key))
        else:
            unreadable.append(
                KeyTest(row=row, state="unreadable", said=f"{held.fault.message}; {_one(held.fault.hint)}")
            )
    first = {(row.provider, row.base_url, row.key.strip()): row for row in reversed(rows)}
    return list(first.values())[::-1], unreadable


async def _all(rows: Sequence[KeyRow]) -> list[KeyTest]:
    return list(await asyncio.gather(*map(_test, rows)))


async def _test(row: KeyRow) -> KeyTest:
    KNOWN_SECRETS.add(row.key.strip())
    try:
        key = checked_key(row.key)
    except UsageError as error:
        return KeyTest(row=row, state="wrong", said=error.message)
    checked = await check_key(row.provider, row.base_url, key, seconds=PATIENCE, ca_file=row.ca_file)
    return KeyTest(row=row, state=checked.verdict, seconds=checked.seconds, said=_said(row, checked), left=checked.left)


def _said(row: KeyRow, checked: Checked) -> str:
    """What the provider said, or what is left; and what to do."""
    if checked.verdict == "good":
        return f"{checked.left} left" if checked.left else ""
    if checked.verdict == "restricted":
        return f"{checked.said}; it may do for models: conductor workers test"
    hint = _renewed(row) if checked.verdict in REFUSED else checked.hint
    return f"{checked.said}; {hint}" if hint else checked.said


def _renewed(row: KeyRow) -> str:
    """How another key takes the place of one that is refused."""
    if row.kind == "environment":
        return f"set {row.source} anew"
    own = row.provider in PRESETS and same_address(row.base_url, PRESETS[row.provider].base_url)
    return f"conductor keys set {row.provider}{'' if own else f' --base-url {row.base_url}'}"


def _one(hint: str) -> str:
    return hint.partition("\n")[0]
