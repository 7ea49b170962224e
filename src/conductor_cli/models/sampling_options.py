"""A worker's own settings of how it writes and thinks: what may stand in them, and how each API spells them. Pure.

Such a setting is an instruction. It is never left out in passing: a server that refuses one fails the call, and the
error names the setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from conductor_cli.core.errors import ModelError
from conductor_cli.core.pool import Worker
from conductor_cli.models.presets import PRESETS, Budget

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "default")
"""What a reasoning effort may be. Which of them a model takes, only its provider knows."""

LEAST_BUDGET: Final = 1024
"""The least thinking budget that Anthropic takes, besides none at all."""

_TUNED: Final = ("temperature", "top_p", "reasoning_effort", "max_tokens")
"""The settings that go out under their own name."""

_SPELLED: Final[Mapping[Budget, Callable[[int], dict[str, Any]]]] = {
    "google": lambda tokens: {"extra_body": {"google": {"thinking_config": {"thinking_budget": tokens}}}},
    "anthropic": lambda tokens: {
        "thinking": {"type": "enabled", "budget_tokens": tokens} if tokens else {"type": "disabled"}
    },
    "openrouter": lambda tokens: {"reasoning": {"max_tokens": tokens} if tokens else {"enabled": False}},
}
"""A thinking budget as the body of a request has it: ai.google.dev/gemini-api/docs/openai, litellm's `thinking`,
openrouter.ai/docs/use-cases/reasoning-tokens, all as of November 2026."""

_CARRIES_BUDGET: Final = ("extra_body", "thinking", "reasoning")


def request_fields(options: Mapping[str, Any], budget: Budget) -> dict[str, Any]:
    """The fields of a request's body for effort, nucleus and thinking budget; what is not set is None or absent."""
    fields: dict[str, Any] = {name: options.get(name) for name in ("reasoning_effort", "top_p")}
    tokens = options.get("thinking_budget")
    return fields if tokens is None or not budget else fields | _SPELLED[budget](tokens)


def own_setting(field: str, body: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """The worker's own setting that a field of a body carries, empty where the value is not the worker's."""
    if field in _CARRIES_BUDGET:
        return "thinking_budget" if options.get("thinking_budget") is not None else ""
    own = options.get(field)
    return field if field in _TUNED and own is not None and body.get(field) == own else ""


def rejected_setting(name: str, setting: str, value: object, said: str) -> ModelError:
    """The error for a model called `name` that refuses a setting of its worker; `said` is why, in its own words."""
    why = f": {said}" if said else ""
    hint = f"change it, or take it out: conductor workers add … --unset {setting}"
    return ModelError("refused", f"{name} does not take {setting} = {value}{why}", hint=hint)


Fault = tuple[str, str, str]
"""A setting that cannot stand as it is: its name, what is wrong with it, what may stand there."""


def find_invalid_option(worker: Worker) -> Fault | None:
    """The first setting of a remote worker that cannot stand as it is, alone or beside the others."""
    return next(chain(_alone(worker), _beside(worker), _for_anthropic(worker)), None)


def _alone(worker: Worker) -> Iterator[Fault]:
    option = worker.options.get
    effort, share, budget = option("reasoning_effort"), option("top_p"), option("thinking_budget")
    if effort is not None and effort not in EFFORTS:
        yield "reasoning_effort", f"reasoning_effort is {effort!r:.40}", f"one of {', '.join(EFFORTS)}"
    if share is not None and not 0 < share <= 1:
        yield "top_p", f"top_p is {share}", "a number above 0, at most 1"
    if budget is not None and budget < 0:
        yield "thinking_budget", f"thinking_budget is {budget}", "tokens; 0 for no thinking"


def _beside(worker: Worker) -> Iterator[Fault]:
    if worker.options.get("thinking_budget") is None:
        return
    if worker.options.get("reasoning_effort") is not None:
        yield "thinking_budget", "thinking_budget and reasoning_effort exclude each other", "leave one out"
    if not PRESETS[worker.kind].budget:
        said = f"the kind {worker.kind!r} has no thinking_budget"
        yield "thinking_budget", said, "reasoning_effort says how hard it thinks"


def _for_anthropic(worker: Worker) -> Iterator[Fault]:
    """What Anthropic's API refuses beside thinking, as its pages have it (November 2026)."""
    option = worker.options.get
    budget, most = option("thinking_budget") or 0, option("max_tokens") or 0
    if worker.kind != "anthropic" or not (budget or option("reasoning_effort") not in (None, "none")):
        return
    if option("temperature") not in (None, 1):
        said = f"temperature is {option('temperature')} beside thinking, where Anthropic takes none but 1"
        yield "temperature", said, "leave it out, or the thinking"
    if 0 < budget < LEAST_BUDGET:
        yield "thinking_budget", f"thinking_budget is {budget}", f"at least {LEAST_BUDGET}, or 0 for no thinking"
    if budget and most <= budget:
        said = f"thinking_budget is {budget}, and max_tokens, which it is part of, is {most or 'not set'}"
        yield "thinking_budget", said, f"set max_tokens above {budget}"
