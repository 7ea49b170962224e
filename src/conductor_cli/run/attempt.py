"""One attempt of one worker at one step: its prompt, its place in the queue, its stream, and what it cost.

Timeouts on the stream of a call, and the wait before it is retried, which honours a server's `Retry-After`.

`executor` and `planner` decide whether a call is retried at all.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Chunk, Finish, Message, Request, ToolCall
from conductor_cli.core.data_policy import withheld_note
from conductor_cli.core.errors import LimitReached, ModelError, PolicyError
from conductor_cli.core.estimate import estimated_usage
from conductor_cli.core.formatting import format_duration
from conductor_cli.core.plan import GIVEN, Step
from conductor_cli.core.policy import POLICY_HINT
from conductor_cli.core.pool import Timeouts, Worker
from conductor_cli.core.profile import SeenStep
from conductor_cli.core.prompts import worker_messages
from conductor_cli.core.question import Conversation
from conductor_cli.core.terminal_text import is_blank
from conductor_cli.core.tools import CallCollector
from conductor_cli.core.trace import describe_failed_attempts
from conductor_cli.core.usage import NO_USAGE, Usage, with_cost
from conductor_cli.models.base import Model
from conductor_cli.run.state import NOT_CHECKED, RunState, with_fault
from conductor_cli.run.tool_loop import Reply, ToolLoop, conversation_tokens, open_tool_loop

BACKOFF: Final = 0.5
"""Seconds before the second attempt; doubled for each one after it, and jittered by a half either way."""
LONGEST_WAIT: Final = 30.0
"""The longest wait before another attempt, whatever a server asks for."""


@asynccontextmanager
async def with_timeouts(
    chunks: AsyncGenerator[Chunk, None], timeouts: Timeouts, room: asyncio.Event | None = None
) -> AsyncGenerator[AsyncIterator[Chunk], None]:
    """The chunks of one call, to be read inside the block; leaving the block closes them.

    While `room` is not set, nothing is read, and only the time for the whole answer goes on.
    Raises `ModelError` of reason `timeout` when the first chunk, the next one or the last is late.
    """
    now = asyncio.get_running_loop().time
    ends, late = now() + timeouts.total, f"no first token within {format_duration(timeouts.first_token)}"
    alarm = asyncio.timeout_at(min(now() + timeouts.first_token, ends))

    async def timed() -> AsyncIterator[Chunk]:
        nonlocal late
        async for chunk in chunks:
            if alarm.expired():
                raise TimeoutError  # the model swallowed the cancellation, and there is no second one
            if room is not None and not room.is_set():
                alarm.reschedule(ends)
                await room.wait()
            late = f"no next token within {format_duration(timeouts.idle)}"
            alarm.reschedule(min(now() + timeouts.idle, ends))
            yield _encodable(chunk)

    async with aclosing(chunks):  # closing may take long; by then the alarm has ended
        try:
            async with alarm:
                yield timed()
        except TimeoutError:
            over = alarm.when() == ends
            message = f"the answer did not end within {format_duration(timeouts.total)}" if over else late
            raise ModelError("timeout", message) from None
        except asyncio.CancelledError:
            # A library may cancel its own task. Only a cancellation that somebody asked of this task is one.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise ModelError("broken", "the call was cancelled from inside") from None


def _encodable(chunk: Chunk) -> Chunk:
    """The chunk with a question mark for each lone surrogate, which no encoding can write."""
    if chunk.text.isascii() and chunk.thinking.isascii():
        return chunk
    text, thinking = (piece.encode("utf-8", "replace").decode() for piece in (chunk.text, chunk.thinking))
    return replace(chunk, text=text, thinking=thinking)


def retry_wait(attempt: int, retry_after: float | None, chance: random.Random) -> float:
    """Seconds before the attempt (2 or more): the server's `Retry-After`, else a backoff; at most `LONGEST_WAIT`."""
    if retry_after is not None and not math.isnan(retry_after):
        return min(max(retry_after, 0.0), LONGEST_WAIT)
    return round(min(BACKOFF * 2.0 ** (attempt - 2) * chance.uniform(0.5, 1.5), LONGEST_WAIT), 3)


class Attempt:
    """The `attempt`-th call for step `number`, to `worker`."""

    def __init__(
        self, state: RunState, number: int, worker: Worker, attempt: int, repair: tuple[Message, ...] = ()
    ) -> None:
        """`repair` are the messages that ask for an answer again, because it broke its JSON Schema."""
        self._state = state
        self._number = number
        self._worker = worker
        self.worker = worker.name
        self._attempt = attempt
        self._text = ""
        self._finish: Finish = "other"
        self._announce: ev.StepStarted | None = None
        """The event that the attempt begins, until it has begun."""
        self._conversation: Conversation | None = None
        """A client's conversation, where this attempt gives its next reply."""
        self.repair = repair
        """After an error of reason `schema`: the messages that tell the worker what is wrong."""
        self._may_repair = not repair
        self.usage = NO_USAGE
        """What the calls have cost that have ended."""

    @property
    def text_is_out(self) -> bool:
        """Whether some of the text has been shown as the answer and cannot be taken back."""
        state = self._state
        # An answer with a schema is shown when it is complete.
        held = state.question.schema is not None or state.config.holds_answer
        streams = state.config.streams_answer and not held
        in_view = state.config.streams_nested and state.final if state.nested else True
        shown = streams and in_view and state.record(self._number).last
        return shown and bool(self._text.strip())

    async def make(self) -> None:
        """Call the worker. Raises `ModelError`, `LimitReached` or `PolicyError`; cancelled, it reports what it cost.

        A worker with tools is called again after each reply that asks for some, with the results.
        """
        state = self._state
        messages = self._prompt()
        messages = self.repair or messages
        self._conversation = self._client_conversation()
        # A step whose client has tools does not get others: one reply cannot wait for both.
        has_client_tools = self._conversation is not None and bool(self._conversation.tools)
        tools = None
        if not has_client_tools:
            tools = await open_tool_loop(state, self._number, self._worker, self._attempt)
        self._announce = ev.StepStarted(
            at=0.0, step=self._number, worker=self._worker.name, attempt=self._attempt, prompt=messages
        )  # fmt: skip
        try:
            while (reply := await self._turn(messages, tools)).calls and tools is not None:
                messages = (*messages, *await tools.answer(reply))
                self._text = ""
            await self._check_schema(messages, reply)
        except (asyncio.CancelledError, LimitReached) as error:
            # Where no turn has begun, nothing was used.
            if self._announce is None:
                limit = isinstance(error, LimitReached)
                state.stop_step(self._number, "limit" if limit else None, usage=self.usage)
            raise
        finished = ev.StepFinished(
            at=state.now(), step=self._number, attempt=self._attempt, text=self._text, usage=self.usage,
            finish=self._finish, tool_calls=reply.calls, provider_data=reply.provider_data if reply.calls else {},
        )  # fmt: skip
        state.emit(finished)

    async def _check_schema(self, messages: tuple[Message, ...], reply: Reply) -> None:
        """Raise `ModelError` where an answer breaks its JSON Schema, and its worker was not told so before.

        What is found about an answer that may not be repaired is kept for the end of the run.
        """
        state = self._state
        if not (state.record(self._number).last and state.final) or reply.calls or self._finish == "length":
            return
        state.busy.add(self._number)  # a run that may only end its running calls waits for this one, too
        try:
            fault = await state.schema_fault(self._text)
        finally:
            state.busy.discard(self._number)
        if fault and fault != NOT_CHECKED and self._may_repair:
            self.repair = with_fault(messages, self._text, fault)
            raise ModelError("schema", f"the answer does not follow the JSON Schema: {fault}")

    def _client_conversation(self) -> Conversation | None:
        """The client's conversation, where this attempt gives its next reply."""
        state = self._state
        if not (state.record(self._number).last and state.final):
            return None
        return state.policy.question_for(self._worker.name).conversation

    async def _turn(self, messages: tuple[Message, ...], tools: ToolLoop | None) -> Reply:
        """One reply. However it ends, `usage` then has what it cost."""
        state, resources = self._state, self._state.resources
        model = state.config.workers[self._worker.name]
        offered = tools.tools if tools is not None else self._conversation.tools if self._conversation else ()
        tokens = conversation_tokens(messages, offered)
        longest = self._longest(tokens)
        # Turns, slot, reservation: always in this order, so that no two calls wait for each other.
        async with resources.turn(model), resources.provider_slot(self._worker), resources.call_slots:
            reservation = await resources.reserve(tokens, longest, self._worker.price, self._worker)
            call = _Call()
            began = state.now()
            try:
                await self._call(call, model, self._request(messages, reservation.answer, tools))
            finally:
                state.busy.discard(self._number)
                if not call.usage.seconds:
                    call.usage += Usage(seconds=round(state.now() - began, 4))
                self.usage += call.usage
                resources.settle(reservation, call.usage, cached=call.cached, failed=call.failed)
        return Reply(text=self._text, calls=call.asked, provider_data=call.provider_data)

    def _longest(self, tokens_in: int) -> int:
        """The most tokens of a reply. A client's own limit counts, unless the user has set a lower one for the worker.

        A client does not know the worker's context, so of a known one its limit leaves `tokens_in` for the prompt.
        """
        own, usual = self._worker.options.get("max_tokens"), self._state.config.worker_profile.max_tokens
        asked = self._conversation.max_tokens if self._conversation is not None else None
        if asked is None:
            return int(own or usual)
        context = self._worker.options.get("context")
        if context and asked > usual:
            asked = max(min(asked, int(context) - tokens_in), usual)
        return min(asked, int(own)) if own else asked

    def _prompt(self) -> tuple[Message, ...]:
        state, profile = self._state, self._state.config.worker_profile
        # Checked again although the plan was: by now a substitute may do the step, or one that it sees.
        forbidden = state.call_violation(self._number, self._worker.name)
        if forbidden:
            raise PolicyError(forbidden, hint=POLICY_HINT)
        record = state.record(self._number)
        seen = steps_seen_by(state, record.step)
        question = state.policy.question_for(self._worker.name)
        messages, notice = worker_messages(
            question,
            record.step,
            seen,
            self._worker,
            profile,
            final=record.last and state.final,
            withheld=withheld_note(state.policy.withheld(self._worker.name)),
        )
        if self._attempt == 1:
            for missing in (item.number for item in seen if item.answer is None):
                text = f"step {missing} failed, so step {self._number} runs without its answer"
                why = describe_failed_attempts(state.record(missing).failed)
                state.notice(f"{text}: {why}" if why else text, self._number, recovered=True)
            if notice:
                state.notice(notice, self._number, recovered=True)
        return messages

    def _request(self, messages: tuple[Message, ...], most: int, tools: ToolLoop | None) -> Request:
        config, options = self._state.config, self._worker.options
        request = Request(
            messages=messages,
            max_tokens=most,
            temperature=options.get("temperature"),
            seed=options.get("seed", config.seed),
            deadline=config.timeouts.for_worker(self._worker).total,
            tools=tools.tools if tools is not None else (),
            tool_choice=tools.choice if tools is not None else "auto",
            read_attachment=config.attachments.read if config.attachments is not None else None,
        )
        return request if self._conversation is None else _as_client_asks(request, self._conversation)

    async def _call(self, call: _Call, model: Model, request: Request) -> None:
        """Stream the reply. However it ends, `usage` then says what it cost."""
        state = self._state
        if self._announce is not None:
            state.emit(replace(self._announce, at=state.now()))
            self._announce = None
        state.busy.add(self._number)
        try:
            await self._stream(call, model, request)
        except ModelError as error:
            state.resources.circuits.failed(self._worker, error)
            call.failed = True
            call.reported = error.usage or call.reported
            # A call that failed before its first word counts as free.
            begun = call.reported is not None or call.written
            call.usage = self._spent(call, request) if begun else Usage(calls=1)
            raise
        except asyncio.CancelledError:
            call.usage = self._spent(call, request)
            raise
        except Exception:
            # An error of our own: no event of the step will carry what its calls cost.
            state.unreported_usage += self.usage + self._spent(call, request)
            raise
        if not call.cached:
            state.resources.circuits.succeeded(self._worker)
        call.usage = self._spent(call, request)

    async def _stream(self, call: _Call, model: Model, request: Request) -> None:
        timeouts = self._state.config.timeouts.for_worker(self._worker)
        async with with_timeouts(model.stream(request), timeouts, self._state.config.room) as chunks:
            async for chunk in chunks:
                self._take(call, chunk)
        # In a last turn a model may go on asking; nobody calls anything for it any more.
        asked = call.collector.calls() if request.tools else ()
        call.asked = asked if request.tool_choice != "none" else ()
        if asked and not call.asked and is_blank(self._text):
            # The next attempt would call all the tools again, and most likely end here.
            raise ModelError("empty_answer", "it asked for tools again instead of answering", retryable=False)
        if is_blank(self._text) and not call.asked:
            raise ModelError("empty_answer", "the answer is empty")

    def _take(self, call: _Call, chunk: Chunk) -> None:
        state = self._state
        if chunk.text or chunk.thinking:
            self._text += chunk.text
            call.written += chunk.text + chunk.thinking
            delta = ev.StepDelta(
                at=state.now(), step=self._number, attempt=self._attempt, text=chunk.text, thinking=chunk.thinking
            )
            state.emit(delta)
        if chunk.tool_call is not None:
            call.collector.add(chunk.tool_call)
            call.written += chunk.tool_call.arguments
        if chunk.note:
            state.notice(f"{self._worker.name}: {chunk.note}", self._number)
        call.reported = chunk.usage or call.reported
        call.cached = call.cached or chunk.from_cache
        call.provider_data = chunk.provider_data or call.provider_data
        self._finish = chunk.finish or self._finish

    def _spent(self, call: _Call, request: Request) -> Usage:
        return with_cost(call.reported or estimated_usage(request.messages, call.written), self._worker.price)


@dataclass
class _Call:
    """One call of the model as far as it has come; `usage` is what it cost, once it has ended."""

    written: str = ""
    reported: Usage | None = None
    cached: bool = False
    failed: bool = False
    usage: Usage = NO_USAGE
    provider_data: Mapping[str, Any] = field(default_factory=dict)
    collector: CallCollector = field(default_factory=CallCollector)
    asked: tuple[ToolCall, ...] = ()


def _as_client_asks(request: Request, conversation: Conversation) -> Request:
    """The request with what the client says of its next reply. A worker's own temperature holds."""
    only = next((tool for tool in conversation.tools if tool.name == conversation.only_tool), None)
    request = replace(
        request,
        temperature=conversation.temperature if request.temperature is None else request.temperature,
        stop=conversation.stop,
    )
    if not conversation.tools:
        return request
    return replace(
        request,
        tools=conversation.tools,
        tool_choice=only or conversation.tool_choice,
        parallel_tool_calls=conversation.parallel_tool_calls,
    )


def steps_seen_by(state: RunState, step: Step) -> list[SeenStep]:
    """What a step's access list opens; item 0 is what a nested run was given."""
    items: list[SeenStep] = []
    for number in step.access:
        if number == GIVEN:
            given = state.question.given
            items += [SeenStep(number=GIVEN, worker=g.worker, subtask=g.subtask, answer=g.answer) for g in given]
            continue
        record = state.record(number)
        answer = record.text if record.state == "done" else None
        items.append(SeenStep(number=number, worker=record.worker, subtask=record.step.subtask, answer=answer))
    return items
