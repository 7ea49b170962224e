"""A worker's own settings for sampling and thinking: what is valid, and the form that each API wants. Pure.

Such a setting is never silently left out: if a server refuses one the call fails, and the error names the setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from conductor_cli.core.chat import Request
from conductor_cli.core.errors import ModelError
from conductor_cli.core.pool import Worker
from conductor_cli.models.presets import PRESETS, Budget

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "default")
"""Valid reasoning efforts. Which of them a model accepts only its provider knows."""

LEAST_BUDGET: Final = 1024
"""The least thinking budget that Anthropic accepts, besides 0."""

_PLAIN_OPTIONS: Final = ("temperature", "top_p", "reasoning_effort", "max_tokens")
"""The settings that are sent under their own name."""

_BUDGET_FIELDS: Final[Mapping[Budget, Callable[[int], dict[str, Any]]]] = {
    "google": lambda tokens: {"extra_body": {"google": {"thinking_config": {"thinking_budget": tokens}}}},
    "anthropic": lambda tokens: {
        "thinking": {"type": "enabled", "budget_tokens": tokens} if tokens else {"type": "disabled"}
    },
    "openrouter": lambda tokens: {"reasoning": {"max_tokens": tokens} if tokens else {"enabled": False}},
}
"""A thinking budget in the body of a request: ai.google.dev/gemini-api/docs/openai, litellm's `thinking`,
openrouter.ai/docs/use-cases/reasoning-tokens, all as of November 2026."""


def request_body(
    request: Request, options: Mapping[str, Any], budget: Budget, max_tokens_field: str = "max_tokens"
) -> dict[str, Any]:
    """The body of a streamed request in OpenAI's form, with a worker's own settings; None for what is not set."""
    limits = [limit for limit in (request.max_tokens, options.get("max_tokens")) if limit is not None]
    tokens = options.get("thinking_budget")
    return {
        "messages": [{"role": message.role, "content": message.content} for message in request.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
        max_tokens_field: min(limits, default=None),
        "temperature": options.get("temperature") if request.temperature is None else request.temperature,
        "seed": request.seed,
        "stop": list(request.stop) or None,
        "reasoning_effort": options.get("reasoning_effort"),
        "top_p": options.get("top_p"),
        **(_BUDGET_FIELDS[budget](tokens) if budget and tokens is not None else {}),
    }


def own_setting(field: str, body: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """The worker's own setting that a field of a body carries; empty if the value is not the worker's."""
    if field in ("extra_body", "thinking", "reasoning"):
        return "thinking_budget" if options.get("thinking_budget") is not None else ""
    own = options.get(field)
    return field if field in _PLAIN_OPTIONS and own is not None and body.get(field) == own else ""


def rejected_setting(model: str, setting: str, value: object, why: str) -> ModelError:
    """The error for a model that refuses a setting of its worker; `why` is in the provider's own words."""
    hint = f"change it, or remove it: conductor workers add … --unset {setting}"
    message = f"{model} does not accept {setting} = {value}{f': {why}' if why else ''}"
    return ModelError("refused", message, hint=hint)


InvalidOption = tuple[str, str, str]
"""The name of a setting, what is wrong with it, and what is allowed."""


def find_invalid_option(worker: Worker) -> InvalidOption | None:
    """The first setting of a remote worker that is invalid, by itself or together with others."""
    return next(_invalid_options(worker), None)


def _invalid_options(worker: Worker) -> Iterator[InvalidOption]:
    option = worker.options.get
    effort, top_p, budget = option("reasoning_effort"), option("top_p"), option("thinking_budget")
    if effort is not None and effort not in EFFORTS:
        yield "reasoning_effort", f"reasoning_effort is {effort!r:.40}", f"one of {', '.join(EFFORTS)}"
    if top_p is not None and not 0 < top_p <= 1:
        yield "top_p", f"top_p is {top_p}", "a number above 0, at most 1"
    if budget is not None:
        if budget < 0:
            yield "thinking_budget", f"thinking_budget is {budget}", "tokens; 0 for no thinking"
        if effort is not None:
            yield "thinking_budget", "thinking_budget and reasoning_effort exclude each other", "leave one out"
        if not PRESETS[worker.kind].budget:
            message = f"the kind {worker.kind!r} has no thinking_budget"
            yield "thinking_budget", message, "use reasoning_effort instead"
    if worker.kind == "anthropic" and (budget or effort not in (None, "none")):
        yield from _invalid_for_anthropic(worker, budget or 0)


def _invalid_for_anthropic(worker: Worker, budget: int) -> Iterator[InvalidOption]:
    """What Anthropic's API refuses together with thinking, according to its documentation (November 2026)."""
    temperature, limit = worker.options.get("temperature"), worker.options.get("max_tokens") or 0
    if temperature not in (None, 1):
        message = f"temperature is {temperature}, and with thinking Anthropic accepts only 1"
        yield "temperature", message, "leave it out, or the thinking"
    if 0 < budget < LEAST_BUDGET:
        yield "thinking_budget", f"thinking_budget is {budget}", f"at least {LEAST_BUDGET}, or 0 for no thinking"
    if budget and limit <= budget:
        message = f"thinking_budget is {budget}, and max_tokens, which it is part of, is {limit or 'not set'}"
        yield "thinking_budget", message, f"set max_tokens above {budget}"
