"""What litellm's exceptions mean, and the provider's own words in them. litellm itself is not imported here."""

from __future__ import annotations

import ast
import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from conductor_cli.core.errors import ModelError, ModelErrorReason
from conductor_cli.models.api_errors import ErrorBody, clean_excerpt, exceeds_context, kind_of_status, retry_after
from conductor_cli.models.http import reason_of

REASONS: Final[dict[str, ModelErrorReason]] = {
    "AuthenticationError": "auth",
    "PermissionDeniedError": "auth",
    "NotFoundError": "missing",
    "LiteLLMUnknownProvider": "missing",
    "ContextWindowExceededError": "length",
    "BadRequestError": "refused",
    "UnprocessableEntityError": "refused",
    "RateLimitError": "rate",
    "Timeout": "timeout",
    "APITimeoutError": "timeout",
    "ServiceUnavailableError": "overloaded",
    "BadGatewayError": "overloaded",
    "InternalServerError": "overloaded",
    "MidStreamFallbackError": "broken",
    "APIConnectionError": "connect",
    "APIResponseValidationError": "broken",
    "BudgetExceededError": "refused",
    "GuardrailRaisedException": "refused",
    "BlockedPiiEntityError": "refused",
    "ModifyResponseException": "refused",
    "SensitiveDataRouteException": "refused",
    "ModelNotMappedError": "missing",
    "APIStatusError": "overloaded",
    "APIError": "overloaded",
    "OpenAIError": "internal",
    "InvalidWebhookSignatureError": "internal",
}
"""What each exception of litellm and of openai means, by the name of its nearest base class in this table."""

_HINTS: Final[dict[ModelErrorReason, str]] = {
    "auth": "check the key: conductor keys test",
    "missing": "check the worker's model: litellm writes it provider/model",
    "connect": "check the URL, the network, HTTPS_PROXY and SSL_CERT_FILE",
}

_PREFIX: Final = re.compile(r"^(?:litellm\.)?\w+(?:Error|Timeout): (?:\w+Error: )?(?:\w+(?:Exception|Error) - )?")
_BODY: Final = re.compile(r"b(['\"])\{.*\}\1", re.DOTALL)


def model_error(error: Exception, name: str, secrets: tuple[str, ...]) -> ModelError:
    """The `ModelError` for an exception that came out of a call to the model called `name`."""
    if isinstance(error, TimeoutError):
        return ModelError("timeout", f"{name}: no answer in the time left for this call")
    said, codes = _words(error)
    reason = error_kind(error)
    if reason == "rate" and kind_of_status(429, codes) == "refused":
        reason = "refused"
    if reason == "refused" and (exceeds_context(codes) or exceeds_context(ErrorBody({"message": said}))):
        reason = "length"
    headers = getattr(error, "litellm_response_headers", None) or {}
    wait = retry_after({str(name).lower(): str(value) for name, value in headers.items()}, time.time())
    words = clean_excerpt(said, secrets) or "the call failed without a message"
    return ModelError(reason, f"{name}: {words}", hint=_HINTS.get(reason, ""), retry_after=wait)


def error_kind(error: BaseException) -> ModelErrorReason:
    """What an exception of litellm means. The network's own exception counts first: litellm reports many as a 500."""
    for cause in _causes(error):
        status = getattr(getattr(cause, "response", None), "status_code", 0)
        if type(cause).__module__.startswith("httpx") and (status == 0 or 300 <= status < 400):
            return reason_of(cause)[0] if status == 0 else kind_of_status(status, ErrorBody(None))
    for cause in _causes(error):
        for kind in type(cause).__mro__:
            if kind.__name__ in REASONS and kind.__module__.partition(".")[0] in ("litellm", "openai"):
                return REASONS[kind.__name__]
    return "internal"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and its causes, the latest first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _words(error: BaseException) -> tuple[str, ErrorBody]:
    """The provider's message, extracted from litellm's, and its error body."""
    inner = getattr(error, "original_exception", None)
    text = str(getattr(inner or error, "message", "") or error)
    if found := _BODY.search(text):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            said = ErrorBody(json.loads(ast.literal_eval(found[0])))
            return said.message or text, said
    text = _PREFIX.sub("", _PREFIX.sub("", text)).removeprefix("b''").partition(" Handle with `litellm.")[0]
    bodies = (getattr(cause, "body", None) for cause in _causes(error))
    return text.partition("\n\nThis looks like")[0], ErrorBody(next((body for body in bodies if body), None))
