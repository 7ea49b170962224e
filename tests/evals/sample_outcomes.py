"""Outcomes made up for tests."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from conductor_cli.core.usage import Usage
from conductor_cli.evals.outcomes import CaseOutcome, Verdict


def used(tokens: int = 10, *, cost: str | None = None, calls: int = 1) -> Usage:
    """What calls used; without a cost they have no price."""
    written = tokens // 2
    money = None if cost is None else Decimal(cost)
    unpriced = calls if cost is None else 0
    return Usage(
        tokens_in=tokens - written, tokens_out=written, cost=money, calls=calls, unpriced=unpriced
    )


VERDICTS: dict[str, Verdict] = {"+": "right", "-": "wrong", "!": "failed"}


def outcomes(system: str, signs: str, tokens: int = 10, **fields: Any) -> list[CaseOutcome]:
    """One for each sign: + right, - wrong, ! failed; the cases are called 1, 2 and so on."""
    cost = fields.pop("cost", None)
    calls = fields.pop("calls", 1)
    return [
        CaseOutcome(
            system=system,
            case=str(number),
            verdict=VERDICTS[sign],
            usage=used(tokens, cost=cost, calls=calls),
            **({"answer": f"answer {number}"} | fields),
        )
        for number, sign in enumerate(signs, start=1)
    ]
