"""Any server with one of OpenAI's two APIs, Anthropic's or Google's, such as Ollama and vLLM.

Requests are built and replies are read in the form of chat completions; a `ChatApi` translates both
for other APIs. A server that answers with one JSON body instead of a stream is understood as well.
A parameter that a server refuses is left out, for this call and for later ones, with one notice. A
reply is held to its grammar or schema in the way that the server offers (see `structured_output`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from conductor_cli.core.chat import Chunk, Request, text_size
from conductor_cli.core.errors import ModelError
from conductor_cli.core.redact import Secrets
from conductor_cli.models import structured_output
from conductor_cli.models.api_errors import ApiError, clean_excerpt
from conductor_cli.models.base import Features, ReplyReader, check_features, lower_limit
from conductor_cli.models.chat_apis import CHAT_APIS
from conductor_cli.models.chat_body import (
    IMAGE_DETAIL,
    ORIGINAL_DETAIL,
    JsonBody,
    finest_detail,
    fitting_budget,
    image_details,
    note_of_budget,
    request_body,
    with_details,
    with_short_descriptions,
)
from conductor_cli.models.http import HttpClient, stream_limit
from conductor_cli.models.presets import UNKNOWN_SERVER, Preset
from conductor_cli.models.refusals import (
    CONSTRAINT_FIELDS,
    DESCRIPTIONS,
    MAX_TOKENS_FIELDS,
    OTHER_SCRIPTS,
    SCHEMA_INSTEAD,
    STOPS,
    STREAM_FIELDS,
    UNKNOWN_ITEMS,
    allowed_amount,
    largest_output,
    refused_in_schemas,
    refuses_image_detail,
    refuses_thinking,
    refuses_tool_choice,
    rejected_parameter,
    shorter_output,
)
from conductor_cli.models.reply_events import ReplyEventReader
from conductor_cli.models.stream_decoder import (
    ESTIMATED,
    UNLIMITED_TOKENS,
    ChatReplyDecoder,
    reply_limit,
)
from conductor_cli.models.strict_turns import INSTEAD, in_forms, refused_form
from conductor_cli.models.tool_schemas import SchemaForm, is_claude
from conductor_cli.models.worker_options import own_setting, rejected_setting
from conductor_cli.system.threads import run_in_thread_if_large

DRAIN_SECONDS: Final = 0.1

_OPENS_THINKING: Final = re.compile(r"deepseek-?r1|\bqwq|qwen3\S*thinking")
"""Names of models whose templates open the thinking, so that a server which does not mark it sends
only its end. What such a model's first reply shows counts from then on.
"""
# How long a call may wait to learn what kind of server answers it; then it goes on without
LIST_SECONDS: Final = 3.0
REFUSED_SCHEMA: Final = (
    "does not take this JSON Schema; it stands in words only, and the answer is checked"
)
UNFORCED: Final = "cannot be made to call a tool in this turn; it was left to the model"
UNTHINKING: Final = (
    "does not think in this turn: the calls of tools in it were made by another model, or their "
    "thinking is gone"
)


class ChatApiModel:
    """A model behind the API of `preset` at `base_url`.

    `options` are the worker's; the key is never among them.
    """

    def __init__(  # noqa: PLR0913 - what a worker may set
        self,
        model: str,
        base_url: str,
        *,
        key: str = "",
        options: Mapping[str, Any] | None = None,
        preset: Preset = UNKNOWN_SERVER,
        secrets: Secrets | None = None,
    ) -> None:
        self._model = model
        self._options = options or {}
        self._preset = preset
        self._api = CHAT_APIS[preset.api]
        self.features: Features = self._api.features & preset.features
        self._form = preset.form
        self._schemas = preset.schemas
        self._is_provider = not preset.local and base_url.rstrip("/") == preset.base_url.rstrip("/")
        """Whether this is a known provider at its own address, and no server of others."""
        self._with_items = self._api.with_items or self._is_provider
        """Whether arrays in the schemas of tools say what they hold, without a refusal."""
        self._secrets = secrets or Secrets()
        self._secrets.add(key)
        own_headers = {
            str(name): str(value) for name, value in self._options.get("headers", {}).items()
        }
        headers = self._api.headers(key) | own_headers
        ca_file = self._options.get("ca_file", "")
        self._server = HttpClient(base_url, headers=headers, secrets=self._secrets, ca_file=ca_file)
        self._opens_thinking = _OPENS_THINKING.search(model.lower()) is not None
        self._dropped: frozenset[str] = frozenset()
        """The fields that this server refuses, or that made a reply useless."""
        self._output_limit: int | None = None
        """The most tokens of output that the model allows, where it had to say so."""
        self._limits: dict[str, int] = {}
        """How much of `STOPS` and `DESCRIPTIONS` the server allows, where it had to say so."""
        self._noted: set[str] = set()
        """The dropped fields, and the estimate, that the user knows of."""

    def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """Yield the reply.

        It is asked for again as long as the server refuses a parameter that can be left out.
        """
        return self._stream(None, request)

    def stream_to(self, reader: ReplyReader, request: Request) -> AsyncGenerator[Chunk, None]:
        """Yield the same, without the pieces of text that `reader` was given."""
        return self._stream(reader, request)

    async def _stream(
        self, reader: ReplyReader | None, request: Request
    ) -> AsyncGenerator[Chunk, None]:
        check_features(self._model or self._server.name, self.features, request)
        ends = _end_of(request.deadline)
        await self._learn_server(request, ends)
        dropped = self._dropped
        spared = dict[str, str]()  # What is left out of this request alone, with what is told of it
        while True:
            prepare = partial(self._prepare, request, dropped)
            dropped, max_tokens, body = await run_in_thread_if_large(
                text_size(request.messages), prepare
            )
            reply = self._reply_reader(request, max_tokens)
            try:
                async with self._server.open(
                    "POST",
                    self._api.path_of(self._model),
                    body=body,
                    seconds=_remaining(ends),
                    limit=stream_limit(UNLIMITED_TOKENS if max_tokens is None else max_tokens),
                ) as answer:
                    for note in self._accept(request, dropped, spared):
                        yield Chunk(note=note)
                    most = reply_limit(max_tokens)
                    while not reply.ended:
                        batch = await answer.events(most)
                        if batch is None:
                            break
                        for chunk in reply.read(batch):
                            yield chunk
                        if reply.problem is not None:
                            raise reply.problem
                        if reader is not None and not reply.is_silent:
                            answer.give_events_at_once(partial(reply.give_text, reader))
                            reader = None
                    reply.check_end()
                    await answer.drain(DRAIN_SECONDS)
                    for chunk in self._ended(reply):
                        yield chunk
                    return
            except ModelError as error:
                if not reply.is_silent:
                    error.usage = error.usage or reply.decoder.used_by_now()
                    self._learn_from_spoken(request, dropped, error)
                    raise
                changed = self._changed_request(request, dropped, error)
                if changed is None:
                    raise
                left_out = changed[1] - dropped
                note = _note_of_this_alone(error, left_out)
                if note:
                    spared |= dict.fromkeys(left_out, note)
                request, dropped = changed

    async def constraint_support(self) -> structured_output.Constraint:
        """Return what the server holds a reply to.

        One of unknown kind is asked, once if it answers. Raises nothing.
        """
        if self._form == "ask":
            await self._learn_form(None)
        return structured_output.constraint_of(self._form, self._dropped, schemas=self._schemas)

    async def chosen_model(self) -> str:
        """Return the model that is asked for: its own, else its server's first.

        Empty if that is not known. Raises nothing.
        """
        if not self._model:
            with suppress(ModelError):
                await self._read_model_list(LIST_SECONDS)
        return self._model

    async def reaches_server(self, seconds: float) -> bool:
        """Return whether the server answers within so many seconds, also with a refusal.

        Raises nothing.
        """
        try:
            await self._server.list_json("/models", seconds=seconds)
        except ModelError as error:
            return not error.retryable
        return True

    async def close(self) -> None:
        await self._server.close()

    async def _learn_server(self, request: Request, ends: float | None) -> None:
        """Learn which model to ask, and how its server takes the constraint of a request."""
        if not self._model:
            await self._read_model_list(_remaining(ends))
        if not self._model:
            hint = (
                "name the model: conductor workers add NAME --model MODEL; for the planner: "
                "URL#MODEL"
            )
            raise ModelError(
                "missing", f"{self._server.name} lists no chat model of its own", hint=hint
            )
        if self._form == "ask" and (
            request.grammar or request.choices or request.schema or request.prefill
        ):
            await self._learn_form(_remaining(ends))

    async def _read_model_list(self, seconds: float | None) -> None:
        """Learn from its list of models which one to ask, and which server this is.

        Raises `ModelError`.
        """
        listed = await self._server.list_json("/models", seconds=seconds)
        self._model = self._model or structured_output.first_chat_model(listed)
        if self._form == "ask":
            self._form, self._schemas = structured_output.form_of(listed, self._model)

    async def _learn_form(self, remaining: float | None) -> None:
        """Find out which server this is.

        One that does not say is sent schemas; one still loading is asked again.
        """
        try:
            await self._read_model_list(
                LIST_SECONDS if remaining is None else min(remaining, LIST_SECONDS)
            )
        except ModelError as error:
            self._form = "ask" if error.retryable else "response_format"

    def _reply_reader(self, request: Request, max_tokens: int | None) -> ReplyEventReader:
        """Return what reads one reply, for which so many tokens at most are asked."""
        decoder = ChatReplyDecoder(
            request,
            self._secrets,
            self._preset.cost,
            max_tokens,
            self._server.name,
            opens_thinking=self._opens_thinking,
        )
        return ReplyEventReader(self._server.name, self._secrets, self._api, decoder)

    def _accept(
        self, request: Request, dropped: frozenset[str], spared: Mapping[str, str]
    ) -> list[str]:
        """Remember that the server takes a request: it answered without an error status.

        `spared` are the fields that were left out for this request alone, with what is told of
        them. Returns what the user is told.
        """
        self._dropped |= dropped.difference(spared)  # calls beside this one may have learned more
        notes = self._new_notes(request)
        of_this_alone = [*dict.fromkeys(spared.values())]
        if (budget := self._fitting_budget(request)) is not None:
            of_this_alone.append(note_of_budget(budget))
        return [*notes, *(f"{self._server.name} {note}" for note in of_this_alone)]

    def _ended(self, reply: ReplyEventReader) -> Iterator[Chunk]:
        """Yield the last chunks of a reply. Raises `ModelError`."""
        for chunk in reply.end():
            if reply.decoder.estimated and ESTIMATED not in self._noted:
                self._noted.add(ESTIMATED)
                yield Chunk(note=f"{self._server.name} {ESTIMATED}")
            yield chunk
        self._opens_thinking = reply.decoder.opens_thinking

    def _learn_from_spoken(
        self, request: Request, dropped: frozenset[str], error: ModelError
    ) -> None:
        """Learn from a reply that had begun when it failed, and so is not asked for again.

        A constrained reply without an answer was filled in as thinking: the next call is
        unconstrained.
        """
        if error.reason == "empty_answer":
            sent = structured_output.constraint_fields(request, self._form, dropped)
            self._dropped |= sent.keys() & set(CONSTRAINT_FIELDS)

    def _new_notes(self, request: Request) -> list[str]:
        """Return a note for each dropped field that the user does not know of yet."""
        if not self._dropped:
            return []
        untold = self._dropped - self._noted
        # What a client asks for is told to each client.
        untold |= self._dropped & (request.sampling.keys() | request.asked)
        untold |= self._dropped & self._exceeded(request)
        untold |= self._dropped & image_details(request.messages)
        if IMAGE_DETAIL in untold:
            untold -= {ORIGINAL_DETAIL}
        if not untold:
            return []
        untold -= self._api.additions(self._body(request, frozenset())).keys()
        self._noted |= self._dropped
        instead = {**INSTEAD, **SCHEMA_INSTEAD}
        for field_name in MAX_TOKENS_FIELDS:
            instead[field_name] = f"as {self._max_tokens_field(self._dropped)}"
        for what, most in self._limits.items():
            unit = " characters of each" if what == DESCRIPTIONS else ""
            instead[what] = f"the first {most:,}{unit}"
        instead[ORIGINAL_DETAIL] = "as high"
        accepts = f"{self._server.name} does not accept"
        notes = []
        for field_name in sorted(untold):
            notes.append(f"{accepts} {field_name}; sent {instead.get(field_name, 'without it')}")
        return notes

    def _changed_request(
        self, request: Request, dropped: frozenset[str], error: ModelError
    ) -> tuple[Request, frozenset[str]] | None:
        """Return what is sent after `error`, and without which fields.

        None where nothing can be changed.
        """
        # Where prompt and reply together were too long, a shorter reply may fit.
        if (
            isinstance(error, ApiError)
            and error.reason == "length"
            and "max_tokens" not in self._options
        ):
            fewer = shorter_output(error.reported.message, request.max_tokens or 0)
            if fewer is not None:
                return replace(request, max_tokens=fewer), dropped
        without = self._without_refused(request, dropped, error)
        return None if without is None else (request, without)

    def _without_refused(
        self, request: Request, dropped: frozenset[str], error: ModelError
    ) -> frozenset[str] | None:
        """Return what to leave out once `error` refused a request.

        None if it names nothing that can be changed.

        One of the worker's own settings is not left out: its refusal is a `ModelError` that names
        it.
        """
        if not isinstance(error, ApiError):
            return None
        body = self._body(request, dropped)
        # A template that fails is an error of the server to some.
        if error.status in (200, 400, 422, 500):
            form = self._refused_form(request, body["messages"], error)
            if form and form not in dropped:
                return dropped | {form}
        if error.reason != "refused" or error.status not in (200, 400, 422):
            return None
        detail = finest_detail(request.messages, dropped)
        if detail and refuses_image_detail(error.reported):
            return dropped | {detail}
        if "thinking" in body and refuses_thinking(error.reported):
            return dropped | {"thinking"}
        in_schemas = refused_in_schemas(error.reported)
        if in_schemas and in_schemas not in dropped:
            return dropped | {in_schemas}
        is_forced = body.get("tool_choice", "none") != "none"
        if is_forced and refuses_tool_choice(error.reported):
            return dropped | {"tool_choice"}
        exceeded = allowed_amount(error.reported.message)
        if exceeded is not None:
            what, most = exceeded
            known = self._limits.get(what, most)
            if what not in dropped or most < known:
                self._limits[what] = min(most, known)
                return dropped | {what}
        if limit := largest_output(error.reported.message):
            self._raise_if_own_setting("max_tokens", body, error)
            is_new = limit != self._output_limit
            self._output_limit = limit
            return dropped if is_new else None
        name = rejected_parameter(error.reported, body, self._api.renamed)
        if name in MAX_TOKENS_FIELDS:
            # Only chat completions has two names for the limit on a reply's tokens.
            has_two_names = self._preset.api == "chat-completions"
            can_rename = has_two_names and dropped.isdisjoint(MAX_TOKENS_FIELDS)
            return dropped | {name} if can_rename else None
        self._raise_if_own_setting(name, body, error)
        if name == "stream":
            return dropped | set(STREAM_FIELDS)
        return dropped | {name} if name else None

    def _exceeded(self, request: Request) -> frozenset[str]:
        """Return of which of its limits the server is asked for more."""
        exceeded = set[str]()
        if len(request.stop) > self._limits.get(STOPS, len(request.stop)):
            exceeded.add(STOPS)
        for tool in request.tools:
            if len(tool.description) > self._limits.get(DESCRIPTIONS, len(tool.description)):
                exceeded.add(DESCRIPTIONS)
        return frozenset(exceeded)

    @staticmethod
    def _refused_form(
        request: Request, messages: Sequence[Mapping[str, Any]], error: ApiError
    ) -> str:
        """Return what a server refuses in the form of a conversation; empty where that is nothing.

        The beginning of a reply that a request asks to be continued is no turn of it.
        """
        talk = messages
        if request.prefill and messages[-1]["role"] == "assistant":
            talk = messages[:-1]
        return refused_form(error.reported, talk, has_tools=bool(request.tools))

    def _raise_if_own_setting(self, name: str, body: Mapping[str, Any], error: ApiError) -> None:
        """Raise a `ModelError` where the refused parameter is one of the worker's own settings."""
        if setting := own_setting(name, body, self._options):
            why = clean_excerpt(error.reported.message, self._secrets)
            raise rejected_setting(self._model, setting, self._options[setting], why) from error

    def _prepare(
        self, request: Request, dropped: frozenset[str]
    ) -> tuple[frozenset[str], int | None, JsonBody]:
        """Return what is left out, the most tokens that are asked for, and the body."""
        fields = self._body(request, dropped)
        unsupported = self._api.unsupported & fields.keys()
        if not self._api.takes_image_detail(self._model):
            unsupported |= image_details(request.messages) & {IMAGE_DETAIL}
        if unsupported - dropped:
            dropped |= unsupported
            fields = self._body(request, dropped)
        token_limit = None
        for field in MAX_TOKENS_FIELDS:
            if field in fields:
                token_limit = int(fields[field]) + int(self._options.get("thinking_budget") or 0)
                break
        return dropped, token_limit, JsonBody(self._api.body({"model": self._model} | fields))

    def _body(self, request: Request, dropped: frozenset[str]) -> dict[str, Any]:
        limit_field = self._max_tokens_field(dropped)
        request = replace(request, messages=with_details(request.messages, dropped))
        options = self._options
        if (budget := self._fitting_budget(request)) is not None:
            options = {**options, "thinking_budget": budget}
        body = request_body(
            request,
            options,
            self._preset.budget,
            limit_field,
            self._schema_form(dropped),
        )
        body |= structured_output.constraint_fields(request, self._form, dropped)
        messages = body["messages"]
        if dropped:
            messages = in_forms(messages, dropped, has_tools="tools" in body)
        begun = structured_output.prefill_fields(request, self._form, dropped)
        body |= begun | {"messages": [*messages, *begun.get("messages", ())]}
        if STOPS in dropped and body.get("stop"):
            body["stop"] = body["stop"][: self._limits[STOPS]]
        if DESCRIPTIONS in dropped:
            body |= with_short_descriptions(body, self._limits[DESCRIPTIONS])
        body |= self._api.additions(body)
        body[limit_field] = lower_limit(body[limit_field], self._output_limit)
        kept = {}
        for name, value in body.items():
            if value is not None and name not in dropped:
                kept[name] = value
        return kept

    def _schema_form(self, dropped: frozenset[str]) -> SchemaForm:
        """Return in which form the schemas of tools are sent."""
        is_refused = OTHER_SCRIPTS in dropped
        return SchemaForm(
            ascii_keys=self._api.ascii_keys or is_claude(self._model) or is_refused,
            distinct_keys=not self._is_provider,
            with_items=self._with_items or UNKNOWN_ITEMS in dropped,
        )

    def _fitting_budget(self, request: Request) -> int | None:
        """Return what a model may think in a reply that is shorter than its budget; else None."""
        is_bounded = self._api.budget_fits_reply or self._preset.budget == "openrouter"
        if not is_bounded or "thinking_budget" not in self._options:
            return None
        limits = (request.max_tokens, self._options.get("max_tokens"), self._output_limit)
        return fitting_budget(self._options, lower_limit(*limits))

    def _max_tokens_field(self, dropped: frozenset[str]) -> str:
        """Return the server's name for the limit on a reply's tokens.

        The other name once it refused that.
        """
        fields = [self._preset.max_tokens_field, *MAX_TOKENS_FIELDS]
        left = [name for name in fields if name not in dropped]
        return left[0]


def _note_of_this_alone(error: ModelError, left_out: Collection[str]) -> str:
    """Return what is told where a server refuses something of one request, and may take others.

    Empty where it takes it in no request.
    """
    if "response_format" in left_out and structured_output.is_invalid_schema(error.message):
        return REFUSED_SCHEMA
    if "thinking" in left_out and isinstance(error, ApiError) and refuses_thinking(error.reported):
        return UNTHINKING
    if "tool_choice" in left_out:
        return UNFORCED
    return ""


def _end_of(deadline: float | None) -> float | None:
    """Return the time of the loop at which so many seconds are over."""
    return None if deadline is None else asyncio.get_running_loop().time() + deadline


def _remaining(ends: float | None) -> float | None:
    return None if ends is None else max(0.0, ends - asyncio.get_running_loop().time())
