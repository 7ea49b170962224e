"""Every provider that litellm knows, Anthropic's own API first.

litellm is imported here and nowhere else.

It is imported only when a pool holds such a worker, and configured to fetch nothing (no price map,
no `.env`), to print nothing and to try once: the run has its own retries. Parameters that a
provider does not take are refused by litellm; they are left out here, with a notice. A schema is
sent if litellm knows that the model takes one; a grammar never is.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import logging
import os
import re
import sys
import threading
import warnings
import weakref
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import ModelError, ModelErrorReason
from conductor_cli.core.redact import Secrets
from conductor_cli.models import api_errors
from conductor_cli.models.base import ALL_FEATURES, Features, check_features, lower_limit
from conductor_cli.models.chat_body import (
    IMAGE_DETAIL,
    KEPT,
    ORIGINAL_DETAIL,
    chat_fields,
    finest_detail,
    fitting_budget,
    image_details,
    messages_for,
    note_of_budget,
    request_body,
    with_details,
    with_texts,
)
from conductor_cli.models.http import bound_response, reason_of, routed
from conductor_cli.models.refusals import (
    OTHER_SCRIPTS,
    SCHEMA_INSTEAD,
    UNKNOWN_ITEMS,
    refused_in_schemas,
    refuses_image_detail,
    rejected_parameter,
)
from conductor_cli.models.stream_decoder import ESTIMATED, ChatReplyDecoder
from conductor_cli.models.strict_turns import INSTEAD, in_forms, refused_form
from conductor_cli.models.structured_output import Constraint, response_format
from conductor_cli.models.tool_schemas import SchemaForm, is_claude
from conductor_cli.models.worker_options import own_setting, rejected_setting

_HINTS: Final[dict[ModelErrorReason, str]] = {
    "auth": "check the key: conductor keys test",
    "missing": "check the worker's model: litellm writes it provider/model",
    "connect": "check the URL, the network, HTTPS_PROXY and SSL_CERT_FILE",
}

_WITHOUT_DETAIL: Final = re.compile(r"(anthropic|bedrock|ollama(_chat)?|sagemaker)/|.*claude")
"""Models for which litellm leaves out how closely an image is to be looked at, without a word."""

_WITHOUT_ORIGINAL: Final = re.compile(r"(gemini|vertex_ai(_beta)?)/")
"""Models for which it leaves out the detail `original`."""

_BYTES: Final = re.compile(r"b(['\"])\{.*\}\1", re.DOTALL)

_in_use: weakref.WeakSet[LiteLLM] = weakref.WeakSet()
_home: weakref.ref[asyncio.AbstractEventLoop] | None = None


# The import takes two seconds of one core. It begins with the run: a first token comes 0.6 to 1.9 s
# sooner than if it began at first use, and a local plan takes 1.3 s longer.
@cache
def preload_litellm() -> Future[Any]:
    """Begin to import litellm in the background; later calls return the same future.

    In a daemon thread, and not in one of the event loop's threads, so that a run that is stopped
    does not wait for it.
    """
    future: Future[Any] = Future()
    threading.Thread(target=_import, args=(future,), name="import litellm", daemon=True).start()
    return future


def _import(future: Future[Any]) -> None:
    try:
        # Otherwise the import asks GitHub for prices
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
        # Otherwise a call with a schema asks GitHub for headers
        os.environ["LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS"] = "True"
        os.environ["LITELLM_MODE"] = "PRODUCTION"  # otherwise the import reads .env
        os.environ["LITELLM_LOG"] = "CRITICAL"  # otherwise its log may go to stdout
        import litellm

        litellm.suppress_debug_info = True  # its banners go to stdout
        litellm.set_verbose = False
        litellm.telemetry = False
        litellm.disable_streaming_logging = True
        # Otherwise a long row of the same word counts as a fault
        litellm.REPEATED_STREAMING_CHUNK_LIMIT = sys.maxsize
        # It makes the coroutine of a call on a thread, and leaves it if the call is given up
        # meanwhile.
        warnings.filterwarnings(
            "ignore", message=r"coroutine '.*(completion|streaming).*' was never awaited"
        )
        # Its clients of httpx get the proxies and the certificates of all others
        litellm.disable_aiohttp_transport = True
        for name in list(logging.root.manager.loggerDict):
            if name.startswith("LiteLLM"):
                logging.getLogger(name).handlers = [logging.NullHandler()]
                logging.getLogger(name).propagate = False
        _bound_clients(litellm.llms.custom_httpx.http_handler.AsyncHTTPHandler, "create_client")
        _bound_clients(litellm.llms.openai.common_utils.BaseOpenAILLM, "_get_async_http_client")
        future.set_result(litellm)
    except BaseException as error:  # noqa: BLE001 - for whoever waits for the future
        future.set_exception(error)


def _bound_clients(owner: Any, name: str) -> None:  # noqa: ANN401 - a class without types
    """Make litellm follow no redirect and read no endless answer.

    `name` is a method of `owner` that makes a client. With a redirect it would send the question,
    and the key of some providers, to whatever host the redirect names. Its clients for OpenAI and
    Azure are made apart from all others.
    """
    made = inspect.getattr_static(owner, name)
    create = made
    if isinstance(made, staticmethod):
        create = made.__func__

    def bounded(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as litellm has it
        client: Any = routed(partial(create, *arguments, **named))
        client.follow_redirects = False
        client.headers["accept-encoding"] = "identity"
        client.event_hooks = client.event_hooks | {
            "response": [*client.event_hooks["response"], bound_response]
        }
        return client

    setattr(owner, name, staticmethod(bounded) if isinstance(made, staticmethod) else bounded)


_INSTEAD: Final[Mapping[str, str]] = {**INSTEAD, **SCHEMA_INSTEAD, ORIGINAL_DETAIL: "as high"}


class LiteLLM:
    """A model by litellm's own name for it, such as `anthropic/claude-sonnet-5-5`."""

    def __init__(
        self,
        model: str,
        *,
        key: str = "",
        base_url: str = "",
        options: Mapping[str, Any] | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        self._model = model
        self._key = key
        self._base_url = base_url
        self._options = options or {}
        self._secrets = Secrets() if secrets is None else secrets
        self._secrets.add(key)
        self.features: Features = ALL_FEATURES
        self._dropped = _lost_details(model)
        self._noted_estimate = False

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        check_features(self._model, self.features, request)
        ends: float | None = None
        if request.deadline is not None:
            ends = asyncio.get_running_loop().time() + request.deadline
        opened = None
        try:
            async with asyncio.timeout_at(ends):
                opened, dropped = await self._open(request)
            # What a client asks for is told to each client.
            asked = image_details(request.messages) | request.sampling.keys() | request.asked
            left_out = (dropped - self._dropped) | (dropped & asked)
            if IMAGE_DETAIL in left_out:
                left_out -= {ORIGINAL_DETAIL}
            for name in sorted(left_out):
                yield Chunk(
                    note=f"{self._model} does not accept {name}; sent "
                    f"{_INSTEAD.get(name, 'without it')}"
                )
            budget = self._fitting_budget(request)
            if budget is not None:
                yield Chunk(note=f"{self._model} {note_of_budget(budget)}")
            self._dropped |= dropped
            most = self._most_tokens(request)
            reply = ChatReplyDecoder(request, self._secrets, most_tokens=most, server=self._model)
            while True:
                async with asyncio.timeout_at(ends):
                    part = await anext(opened, None)
                if part is None:
                    break
                for chunk in reply.frame(_frame(part)):
                    yield chunk
            # Litellm invents an end for a stream that broke off
            if opened.received_finish_reason is None:
                raise ModelError("broken", f"{self._model}: the answer broke off")
            for chunk in reply.end():
                if reply.estimated and not self._noted_estimate:
                    self._noted_estimate = True
                    yield Chunk(note=f"{self._model} {ESTIMATED}")
                yield chunk
        except ModelError:
            raise
        except Exception as error:
            raise model_error(error, self._model, self._secrets) from error
        finally:
            if opened is not None:
                with suppress(Exception):
                    await opened.aclose()

    def _fitting_budget(self, request: Request) -> int | None:
        return fitting_budget(
            self._options, lower_limit(request.max_tokens, self._options.get("max_tokens"))
        )

    def _most_tokens(self, request: Request) -> int | None:
        """Return how many tokens a reply may have, with those of its thinking."""
        limit = request_body(request, self._options, "thinking")["max_tokens"]
        if limit is None:
            return None
        return int(limit) + int(self._options.get("thinking_budget") or 0)

    async def constraint_support(self) -> Constraint:
        """Return what litellm knows that the model's provider holds a reply to. Raises nothing."""
        with suppress(Exception):  # if litellm cannot be imported, the first call reports it
            litellm = await asyncio.shield(asyncio.wrap_future(preload_litellm()))
            if self._takes_schemas(litellm, self._dropped):
                return "schema"
        return "nothing"

    # A module without types
    def _takes_schemas(self, litellm: Any, dropped: frozenset[str]) -> bool:  # noqa: ANN401
        if "response_format" in dropped:
            return False
        return bool(litellm.supports_response_schema(self._model))

    async def close(self) -> None:
        """Close litellm's connections once no model uses them.

        It keeps them for all models together.
        """
        if self not in _in_use:
            return
        _in_use.discard(self)
        if not _in_use:
            litellm = preload_litellm().result()
            await litellm.close_litellm_async_clients()
            shared = _forget_clients(litellm)
            if shared:
                await shared.close()

    async def _open(self, request: Request) -> tuple[Any, frozenset[str]]:
        litellm = await asyncio.shield(asyncio.wrap_future(preload_litellm()))
        _in_use.add(self)
        # One of litellm's clients is not bound to a loop, as its connections are: a new loop must
        # not meet it.
        global _home  # noqa: PLW0603 - so is the client
        loop = asyncio.get_running_loop()
        if _home is None or _home() is not loop:
            _forget_clients(litellm)
            _home = weakref.ref(loop)
        self._check_budget(litellm)
        dropped = self._dropped
        while True:
            body = self._body(request, dropped)
            if request.schema and self._takes_schemas(litellm, dropped):
                body["response_format"] = response_format(request.schema)
            try:
                return await litellm.acompletion(**body), dropped
            except litellm.BadRequestError as error:
                has_tools = bool(request.tools)
                said = chat_fields(request)["messages"]
                formed = in_forms(said, dropped, has_tools=has_tools)
                form = refused_form(_said_by(error), formed, has_tools=has_tools)
                if form and form not in dropped:
                    dropped |= {form}
                    continue
                detail = finest_detail(request.messages, dropped)
                if detail and refuses_image_detail(_said_by(error)):
                    dropped |= {detail}
                    continue
                in_schemas = refused_in_schemas(_said_by(error))
                if in_schemas and in_schemas not in dropped:
                    dropped |= {in_schemas}
                    continue
                name = rejected_parameter(api_errors.ErrorBody(str(error)), body, {})
                if not name or name in dropped or name == "max_tokens":
                    raise
                setting = own_setting(name, body, self._options)
                if setting:
                    message = model_error(error, self._model, self._secrets).message
                    reason = message.removeprefix(f"{self._model}: ")
                    value = self._options[setting]
                    raise rejected_setting(self._model, setting, value, reason) from error
                dropped |= {name}

    def _check_budget(self, litellm: Any) -> None:  # noqa: ANN401 - a module without types
        """Refuse a budget for a model that decides itself how long it thinks.

        litellm would turn it into an effort.
        """
        budget = self._options.get("thinking_budget")
        if not budget:
            return
        name = self._model
        row = litellm.model_cost.get(name) or litellm.model_cost.get(name.partition("/")[2]) or {}
        takes_budget = row.get("supports_legacy_thinking")
        if row.get("supports_adaptive_thinking") and not takes_budget:
            reason = "it decides itself how long it thinks; reasoning_effort tells it how hard"
            raise rejected_setting(name, "thinking_budget", budget, reason)

    def _body(self, request: Request, dropped: frozenset[str]) -> dict[str, Any]:
        request = replace(request, messages=with_details(request.messages, dropped))
        options = dict(self._options)
        if (budget := self._fitting_budget(request)) is not None:
            options["thinking_budget"] = budget
        form = SchemaForm(
            ascii_keys=is_claude(self._model) or OTHER_SCRIPTS in dropped,
            distinct_keys=bool(self._base_url),
            with_items=not self._base_url or UNKNOWN_ITEMS in dropped,
        )
        chat = request_body(request, options, "thinking", form=form)
        formed = in_forms(chat["messages"], dropped, has_tools=bool(request.tools))
        messages = messages_for(self._model, formed)
        headers = self._options.get("headers", {})
        body = {
            "model": self._model,
            **chat,
            # litellm turns the parts of a message into those of each provider, and needs the files
            # as texts for that.
            "messages": with_texts(messages),
            "api_key": self._key or None,
            "api_base": self._base_url or None,
            "extra_headers": {str(name): str(value) for name, value in headers.items()} or None,
            "num_retries": 0,
            "max_retries": 0,
        }
        sent = body.keys() - dropped
        return {name: body[name] for name in body if name in sent and body[name] is not None}


def _lost_details(model: str) -> frozenset[str]:
    """Return what litellm itself leaves out of the details of images for a model."""
    if _WITHOUT_DETAIL.match(model):
        return frozenset({IMAGE_DETAIL})
    if _WITHOUT_ORIGINAL.match(model):
        return frozenset({ORIGINAL_DETAIL})
    return frozenset()


def _forget_clients(litellm: Any) -> Any:  # noqa: ANN401 - a module without types
    """Make litellm forget its clients; it makes new ones when next asked.

    The one of no cache is given back.
    """
    litellm.in_memory_llm_clients_cache.flush_cache()
    return vars(litellm).pop("module_level_aclient", None)


def _frame(part: Any) -> dict[str, Any]:  # noqa: ANN401 - an object of litellm's
    """Return one of litellm's chunks as the frame that it once was."""
    usage = getattr(part, "usage", None)
    frame: dict[str, Any] = {"usage": usage.model_dump() if usage is not None else None}
    if part.choices:
        choice = part.choices[0]
        delta = {name: getattr(choice.delta, name, None) for name in ("content", "refusal", *KEPT)}
        delta["tool_calls"] = [call.model_dump() for call in choice.delta.tool_calls or ()]
        frame["choices"] = [{"delta": delta, "finish_reason": choice.finish_reason}]
    return frame


def model_error(error: Exception, name: str, secrets: Secrets) -> ModelError:
    """Return the `ModelError` for an exception of a call to the model called `name`."""
    if isinstance(error, TimeoutError):
        return ModelError("timeout", f"{name}: no answer in the time left for this call")
    body = _said_by(error)
    reason = error_reason(error, body)
    headers = getattr(error, "litellm_response_headers", None) or {}
    named = {str(name).lower(): str(value) for name, value in headers.items()}
    wait = api_errors.wait_of(body, named)
    words = api_errors.clean_excerpt(body.message, secrets) or "the call failed without a message"
    return ModelError(reason, f"{name}: {words}", hint=_HINTS.get(reason, ""), retry_after=wait)


def error_reason(
    error: BaseException, reported: api_errors.ErrorBody = api_errors.NO_BODY
) -> ModelErrorReason:
    """Return what an exception of litellm means.

    The network's own counts first: litellm reports many as a 500.
    """
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None:  # the latest first
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    for cause in causes:
        status = getattr(getattr(cause, "response", None), "status_code", 0)
        if type(cause).__module__.startswith("httpx") and (status == 0 or 300 <= status < 400):
            if status:
                return api_errors.reason_of_status(status)
            return reason_of(cause)[0]
    for cause in causes:
        if type(cause).__name__ == "MidStreamFallbackError":
            # Its status is that of a server in trouble, but a part of the reply has arrived
            return "broken"
        status = getattr(cause, "status_code", None)
        if isinstance(status, int):
            if status == 408:
                return "timeout"
            return api_errors.reason_of_status(status, reported)
    return "internal"


def _said_by(error: BaseException) -> api_errors.ErrorBody:
    """Return the provider's error body, which litellm puts into its own message.

    Else that message.
    """
    text = str(getattr(error, "message", "") or error)
    with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        # Often as Python writes bytes, whose extra backslashes would hide a key from the redaction.
        literal = _BYTES.search(text)
        if literal:
            body = ast.literal_eval(literal[0])
        else:
            body = text[text.index("{") : text.rindex("}") + 1]
        error_body = api_errors.parse_error_body(json.loads(body))
        if error_body.message:
            return error_body
    codes = api_errors.parse_error_body(getattr(error, "body", None)).codes
    return api_errors.ErrorBody(text.replace("litellm.", ""), codes)
