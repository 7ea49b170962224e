"""How servers that speak OpenAI's API differ from the plain protocol, as known beforehand and as learned. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from conductor_cli.models.api_errors import CAPS
from conductor_cli.models.presets import Budget
from conductor_cli.models.stream_decoder import CostSource
from conductor_cli.models.structured_output import Form


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerQuirks:
    """How a server departs from the plain protocol.

    `cap` is its name for the bound on a reply's tokens, `form` the field by which it takes a grammar or a schema;
    `schemas` is whether it is known to hold replies to a schema, `budget` how it is told the tokens a model may think.
    """

    cap: str = "max_tokens"
    cost: CostSource = "unknown"
    form: Form = "ask"
    schemas: bool = False
    budget: Budget = ""


PLAIN: Final = ServerQuirks()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestShape:
    """What is known of the parameters that a server takes."""

    cap: str = "max_tokens"
    renamed: bool = False
    dropped: frozenset[str] = frozenset()

    def without(self, name: str) -> RequestShape | None:
        """The shape once `name` was refused; nothing if all was tried."""
        if name in CAPS:
            other = CAPS[1 - CAPS.index(name)]
            return None if self.renamed else replace(self, cap=other, renamed=True)
        return None if name in self.dropped else replace(self, dropped=self.dropped | {name})

    def news(self, known: RequestShape, name: str) -> list[str]:
        """What the user should hear of the server called `name`, over what was `known`."""
        said = [f"{name} does not take {part}: it is left out" for part in sorted(self.dropped - known.dropped)]
        if self.cap != known.cap:
            said.append(f"{name} does not take {known.cap}: it is sent as {self.cap}")
        return said
