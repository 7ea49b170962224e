"""One attempt of one worker at one step.

Its prompt, its place in the queue, its stream, and what it cost.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from conductor_cli.core import events as ev
from conductor_cli.core.chat import (
    CUT_FINISHES,
    Chunk,
    Finish,
    Message,
    Request,
    Tool,
    ToolCall,
    ToolChoice,
    joined_halves,
)
from conductor_cli.core.data_policy import withheld_note
from conductor_cli.core.errors import Failure, LimitReached, ModelError, PolicyError
from conductor_cli.core.estimate import billed_usage, conversation_tokens, prompt_tokens
from conductor_cli.core.fast_copies import fast_replace
from conductor_cli.core.formatting import format_duration
from conductor_cli.core.ledger import Reservation
from conductor_cli.core.outline import directory_files
from conductor_cli.core.plan import GIVEN, Step
from conductor_cli.core.policy import POLICY_HINT
from conductor_cli.core.pool import Timeouts, Worker
from conductor_cli.core.profile import SeenStep
from conductor_cli.core.question import ClosingTagFilter, Conversation, File
from conductor_cli.core.reading import (
    assumed_context,
    is_context_known,
    outline_for,
    with_passages,
)
from conductor_cli.core.terminal_text import is_blank
from conductor_cli.core.tools import CallCollector
from conductor_cli.core.trace import describe_failed_attempts, has_notice
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.core.worker_prompts import worker_messages
from conductor_cli.models.base import Model
from conductor_cli.run.state import NOT_CHECKED, RunState, with_fault
from conductor_cli.run.tool_loop import ModelReply, ToolLoop, open_tool_loop

if TYPE_CHECKING:
    from conductor_cli.models.base import GivesAtOnce

MIN_REPEATED_WORDS: Final = 6  # Of an answer that is the question again
FIRST_BACKOFF_SECONDS: Final = 0.5
"""Seconds before the second attempt; doubled for each one after it, and jittered by a half either
way.
"""
SMALL_CONTEXT_TOKENS: Final = 4096
"""The smallest context that servers have by default. One of an unknown size may cut a longer
prompt without a word.
"""
# The longest wait before another attempt, whatever a server asks for
MAX_RETRY_SECONDS: Final = 30.0


async def read_chunks(
    chunks: AsyncGenerator[Chunk, None],
    take: Callable[[Chunk], bool | None],
    timeouts: Timeouts,
    keeps_up: asyncio.Event | None = None,
) -> bool:
    """Give each chunk of one call to `take` until the call ends or `take` returns true.

    Returns whether `take` did. While `keeps_up` is not set, nothing is read, and only the timeout
    of the whole answer runs. Lone surrogates, which no encoding can write, are replaced.
    Raises `ModelError` of reason `timeout` when the first chunk, the next one or the last is late.
    """
    return await _CallReader(take, timeouts, keeps_up).read(chunks)


class _CallReader:
    """Reads the chunks of one call, within its timeouts. Make it in the task that reads.

    A model that can gives pieces of text to `take_text` at once, while the next chunk is waited
    for: to wake a task for each of them takes as long as all the rest.
    """

    def __init__(
        self,
        take: Callable[[Chunk], bool | None],
        timeouts: Timeouts,
        keeps_up: asyncio.Event | None,
        take_text: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        self._take = take
        self._take_text = take_text
        self._keeps_up = keeps_up
        self._alarm = _Alarm(timeouts)
        # What is given at once comes from the loop, and not from this task
        self._context = contextvars.copy_context()
        self._problem: Exception | None = None

    async def read_reply(self, model: Model, request: Request) -> None:
        """Give all of the reply of a model to `take` and `take_text`."""
        # To ask a protocol of `typing` takes as long as to send the request
        if hasattr(model, "stream_to"):
            await self.read(cast("GivesAtOnce", model).stream_to(self, request))
        else:
            await self.read(model.stream(request))

    async def read(self, chunks: AsyncGenerator[Chunk, None]) -> bool:
        """Give chunks to `take`, and return whether it wants no more."""
        alarm = self._alarm
        async with aclosing(chunks):  # closing may take long; by then the alarm has ended
            try:
                async with alarm.timeout:
                    async for chunk in chunks:
                        if alarm.timeout.expired():
                            # The model swallowed the cancellation, and there is no second one
                            raise TimeoutError
                        if self._keeps_up is not None and not self._keeps_up.is_set():
                            alarm.wait_for_end()
                            await self._keeps_up.wait()
                        alarm.wait_for_next_chunk()
                        if not (chunk.text.isascii() and chunk.thinking.isascii()):
                            chunk = _without_surrogates(chunk)  # noqa: PLW2901
                        if self._take(chunk):
                            return True
            except TimeoutError:
                raise ModelError("timeout", alarm.message()) from None
            except asyncio.CancelledError:
                # A library may cancel its own task. Only a cancellation that somebody asked of
                # this task is one.
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                raise ModelError("broken", "the call was cancelled from inside") from None
            except ModelError as error:
                if self._problem is not None:
                    raise self._problem from error
                raise
            finally:
                alarm.stop()
        return False

    @property
    def is_ready(self) -> bool:
        """Whether it can be given a piece now."""
        return self._keeps_up is None or self._keeps_up.is_set()

    def take_at_once(self, text: str, thinking: str) -> None:
        """Take a piece of the reply while `read` waits for the next chunk."""
        self._alarm.wait_for_next_chunk()
        try:
            self._context.run(self._take_text, text, thinking)
        except Exception as error:
            self._problem = error  # an error of our own, and none of the model
            raise


class _Alarm:
    """Ends `timeout` when the first chunk, the next one or the last is late.

    Each chunk only moves `_due`, and the timer follows when it goes off: setting it again for each
    costs more.
    """

    def __init__(self, timeouts: Timeouts) -> None:
        self.timeout = asyncio.timeout(None)
        self._timeouts = timeouts
        self._idle_seconds = timeouts.idle
        self._has_begun = False
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._ends = now + timeouts.total
        self._due = min(now + timeouts.first_token, self._ends)
        self._timer = self._loop.call_at(self._due, self._watch)

    def wait_for_next_chunk(self) -> None:
        self._has_begun = True
        due = self._loop.time() + self._idle_seconds
        if due > self._ends:  # noqa: PLR1730 - once a chunk, so without a call of `min`
            due = self._ends
        self._due = due
        if due < self._timer.when():
            self._timer.cancel()
            self._timer = self._loop.call_at(due, self._watch)

    def wait_for_end(self) -> None:
        """Let only the timeout of the whole answer run, until the next chunk is waited for."""
        self._due = self._ends

    def message(self) -> str:
        """Return which timeout has passed."""
        if self._due == self._ends:
            return f"the answer did not end within {format_duration(self._timeouts.total)}"
        if self._has_begun:
            return f"no next token within {format_duration(self._timeouts.idle)}"
        return f"no first token within {format_duration(self._timeouts.first_token)}"

    def stop(self) -> None:
        self._timer.cancel()

    def _watch(self) -> None:
        now = self._loop.time()
        if now < self._due:
            self._timer = self._loop.call_at(self._due, self._watch)
        else:
            self.timeout.reschedule(now)


def _without_surrogates(chunk: Chunk) -> Chunk:
    return replace(chunk, text=joined_halves(chunk.text), thinking=joined_halves(chunk.thinking))


def retry_wait(attempt: int, retry_after: float | None, chance: random.Random) -> float:
    """Return seconds before the attempt (2 or more): the server's `Retry-After`, else a backoff."""
    if retry_after is not None and not math.isnan(retry_after):
        return min(max(retry_after, 0.0), MAX_RETRY_SECONDS)
    backoff = FIRST_BACKOFF_SECONDS * 2.0 ** (attempt - 2) * chance.uniform(0.5, 1.5)
    return round(min(backoff, MAX_RETRY_SECONDS), 3)


class Attempt:
    """The `attempt`-th call for step `number`, to `worker`."""

    def __init__(  # noqa: PLR0913 - what an attempt goes by
        self,
        state: RunState,
        number: int,
        worker: Worker,
        attempt: int,
        repair: tuple[Message, ...] = (),
        *,
        constrains: bool = True,
    ) -> None:
        """Make an attempt; `repair` asks for an answer again, because it broke its JSON Schema.

        Without `constrains` that schema stands in the words of the prompt only, and not in a field
        of its own as well.
        """
        self._state = state
        self._number = number
        self.worker = worker
        self._attempt = attempt
        self._pieces: list[str] = []  # The pieces of the reply
        self._tags = ClosingTagFilter("")
        self._finish: Finish = "other"
        self._stop_sequence = ""
        # What the worker is sent, until the attempt has begun
        self._unannounced: tuple[Message, ...] | None = None
        self._conversation: Conversation | None = None
        """A client's conversation, where this attempt gives its next reply."""
        # The files that the worker looks things up in, instead of being sent them
        self._looked_up: tuple[File, ...] = ()
        # After an error of reason `schema`: the messages that tell the worker what is wrong
        self.repair = repair
        self._may_repair = not repair
        self._constrains = constrains
        self.usage = NO_USAGE  # What the calls have cost that have ended

    @property
    def text_is_out(self) -> bool:
        """Whether some of the text has been shown as the answer and cannot be taken back."""
        state = self._state
        if not state.spec.streams_answer or not state.record(self._number).last:
            return False
        # An answer with a schema is shown when it is complete.
        is_held = state.question.schema is not None or state.team.holds_answer
        is_hidden = state.nesting.nested and not (state.spec.streams_nested and state.nesting.final)
        return not is_held and not is_hidden and bool(self._text.strip())

    @property
    def _text(self) -> str:
        return "".join(self._pieces)

    @property
    def _gives_answer(self) -> bool:
        """Whether the reply goes to the user, and not to another step or to the run around it."""
        return self._state.record(self._number).last and self._state.nesting.final

    async def make(self) -> None:
        """Call the worker.

        Raises `ModelError`, `LimitReached` or `PolicyError`; cancelled, it reports what it cost.

        A worker with tools is called again after each reply that asks for some, with the results.
        """
        state = self._state
        prompt = self._prompt()
        messages = self.repair or prompt
        self._conversation = self._conversation_of_client()
        tools = None
        # A step whose client has tools does not get others: one reply cannot wait for both.
        if self._conversation is None or not self._conversation.tools:
            tools = await open_tool_loop(
                state, self._number, self.worker, self._attempt, self._looked_up
            )
        self._unannounced = messages
        try:
            while (reply := await self._call(messages, tools)).calls and tools is not None:
                messages = (*messages, *await tools.answer(reply, messages))
                self._pieces = []
            if self._gives_answer and not reply.calls and self._finish not in CUT_FINISHES:
                await self._check_schema(messages)
        except (asyncio.CancelledError, LimitReached) as error:
            # Where no call has begun, nothing was used.
            if self._unannounced is None:
                reason: Literal["limit"] | None = None
                if isinstance(error, LimitReached):
                    reason = "limit"
                state.stop_step(self._number, reason, usage=self.usage)
            raise
        self._announce_end(reply)

    def _announce_end(self, reply: ModelReply) -> None:
        """Tell that the attempt has succeeded.

        Where the reply was cut, and is not the answer itself, that is told as well.
        """
        state = self._state
        provider_data: Mapping[str, Any] = {}
        if reply.calls:
            provider_data = reply.provider_data
        finished = ev.StepFinished(
            at=state.stream.now(),
            step=self._number,
            attempt=self._attempt,
            text=self._text,
            usage=self.usage,
            finish=self._finish,
            stop_sequence=self._stop_sequence,
            tool_calls=reply.calls,
            provider_data=provider_data,
        )
        state.stream.emit(finished)
        if self._finish not in CUT_FINISHES or state.record(self._number).last:
            return
        cut = state.work.cut_reply_of(self._number)
        if cut is not None:
            state.stream.notice(f"{cut.message}; {cut.hint}", self._number)

    async def _read_value(self) -> str:
        """Return what the answer breaks of the question's JSON Schema; empty for nothing.

        What a model wrote around the one value of its answer is left out.
        """
        value, fault = await self._state.schema_faults.read(self._text)
        left_out = len(self._text) - len(value)
        if left_out > 0:
            self._pieces = [value]
            text = (
                f"{self.worker.name} wrote {left_out} characters around the JSON value of its "
                "answer; they are left out"
            )
            self._state.stream.notice(text, self._number, recovered=True)
        return fault

    async def _check_schema(self, messages: tuple[Message, ...]) -> None:
        """Raise `ModelError` for an answer that breaks its JSON Schema and may be asked for again.

        What is found about one that may not be repaired is kept for the end of the run.
        """
        # A run that may only end its running calls waits for this one, too
        with self._state.work.busy_with(self._number):
            fault = await self._read_value()
        if fault and fault != NOT_CHECKED and self._may_repair:
            self.repair = with_fault(messages, self._text, fault)
            raise ModelError("schema", f"the answer does not follow the JSON Schema: {fault}")

    def _prompt(self) -> tuple[Message, ...]:
        """Return the messages for the worker.

        What is missing in them is told with the first attempt, and what is shortened once for each
        worker of the step: another one may have a smaller context.
        """
        state = self._state
        # Checked again although the plan was: by now a substitute may do the step, or one that it
        # sees.
        forbidden = state.call_violation(self._number, self.worker.name)
        if forbidden:
            raise PolicyError(forbidden, hint=POLICY_HINT)
        record = state.record(self._number)
        steps = steps_seen_by(state, record.step)
        question = state.policy.question_for(self.worker.name)
        profile = state.team.worker_profile
        if state.reading_of(self.worker) == "outline":
            self._looked_up = directory_files(question)
            question = outline_for(question, self.worker, profile)
            question = with_passages(question, self._looked_up, self.worker, profile)
        messages, notice = worker_messages(
            question,
            record.step,
            steps,
            self.worker,
            profile,
            final=self._gives_answer,
            withheld=withheld_note(state.policy.withheld(self.worker.name)),
        )
        if self._attempt == 1:
            for step in steps:
                if step.answer is None:
                    self._tell_missing(step.number)
        told = (item for item in state.trace.notices if item.step == self._number)
        if notice and not has_notice(told, notice):
            state.stream.notice(notice, self._number, recovered=True, reason="shortened")
        self._tell_assumed_context(messages)
        return messages

    def _tell_assumed_context(self, messages: tuple[Message, ...]) -> None:
        """Tell once in a run that nobody knows whether a worker reads so long a prompt."""
        state = self._state
        is_short = prompt_tokens(messages) <= SMALL_CONTEXT_TOKENS
        if is_short or is_context_known(self.worker):
            return
        text = assumed_context(self.worker, state.team.worker_profile)
        if not has_notice(state.trace.notices, text):
            state.stream.notice(text, self._number)

    def _tell_missing(self, number: int) -> None:
        """Tell that a step has no answer that this one could read."""
        text = f"step {number} failed, so step {self._number} runs without its answer"
        why = describe_failed_attempts(self._state.record(number).failed)
        if why:
            text = f"{text}: {why}"
        self._state.stream.notice(text, self._number, recovered=True)

    async def _call(self, messages: tuple[Message, ...], tools: ToolLoop | None) -> ModelReply:
        """Make one call and return its reply. However it ends, `usage` then has what it cost."""
        state = self._state
        resources = state.resources
        worker = self.worker
        model = state.team.workers[worker.name]
        tokens = conversation_tokens(messages, self._offered_tools(tools))
        # Turns, slot, reservation: always in this order, so that no two calls wait for each other.
        async with resources.turn(model), resources.provider_slot(worker), resources.call_slots:
            wanted, usual = self._wanted_tokens(tokens)
            reservation = await resources.reserve(tokens, wanted, worker.price, worker, usual)
            request = self._request(messages, reservation.answer, tools)
            self._tags = ClosingTagFilter("\n".join(message.content for message in messages))
            with state.work.busy_with(self._number):
                return await self._stream_reply(model, request, reservation)

    async def _stream_reply(
        self, model: Model, request: Request, reservation: Reservation
    ) -> ModelReply:
        """Stream the reply of a call that was reserved, which is settled however it ends."""
        state = self._state
        resources = state.resources
        worker = self.worker
        call = _Call()
        began = state.stream.now()
        usage = NO_USAGE
        self._announce(began)
        try:
            timeouts = state.orchestra.timeouts.for_worker(worker)
            reader = _CallReader(
                partial(self._take_chunk, call),
                timeouts,
                state.spec.keeps_up,
                partial(self._take_text, call),
            )
            await reader.read_reply(model, request)
            self._add_text(self._tags.end())
            reply = self._reply(call, request, reservation)
            if not call.cached:
                resources.circuits.succeeded(worker)
            usage = call.cost(request, worker)
            self._note_cut(reservation, usage.tokens_out)
        except ModelError as error:
            resources.circuits.failed(worker, error)
            call.failed = True
            call.reported = error.usage or call.reported
            # A call that failed before its first word counts as free.
            usage = Usage(calls=1)
            if call.reported is not None or any(call.written):
                usage = call.cost(request, worker)
            raise
        except asyncio.CancelledError:
            usage = call.cost(request, worker)
            raise
        except Exception:
            # An error of our own: no event of the step will carry what its calls cost.
            state.work.add_unreported_usage(self.usage + call.cost(request, worker))
            raise
        finally:
            if not usage.seconds:
                seconds = round(state.stream.now() - began, 4)
                usage = fast_replace(usage, seconds=seconds)
            self.usage += usage
            resources.settle(reservation, usage, cached=call.cached, failed=call.failed)
        return reply

    def _note_cut(self, reservation: Reservation, written: int) -> None:
        """Keep why a reply has no end, where it has none. Raises `LimitReached`."""
        work = self._state.work
        if self._finish == "length":
            self._state.resources.check_cut(reservation)
            work.add_cut_reply(self._number, cut_reply(self.worker, reservation, written))
        elif self._finish == "refusal":
            work.add_cut_reply(self._number, filtered_reply(self.worker))

    def _announce(self, at: float) -> None:
        """Tell that the attempt begins, once."""
        if self._unannounced is None:
            return
        started = ev.StepStarted(
            at=at,
            step=self._number,
            worker=self.worker.name,
            attempt=self._attempt,
            prompt=self._unannounced,
        )
        self._state.stream.emit(started)
        self._unannounced = None

    def _take_chunk(self, call: _Call, chunk: Chunk) -> None:
        """Add a chunk to what is known of a call, and its text to the events of the run."""
        stream = self._state.stream
        if chunk.text or chunk.thinking:
            self._take_text(call, chunk.text, chunk.thinking)
        if chunk.tool_call is not None:
            call.collector.add(chunk.tool_call)
            call.written.append(chunk.tool_call.arguments)
        if chunk.note:
            stream.notice(f"{self.worker.name}: {chunk.note}", self._number)
        call.reported = chunk.usage or call.reported
        call.cached = call.cached or chunk.from_cache
        call.provider_data = chunk.provider_data or call.provider_data
        self._finish = chunk.finish or self._finish
        self._stop_sequence = chunk.stop_sequence

    def _take_text(self, call: _Call, text: str, thinking: str) -> None:
        """Add a piece of text to what is known of a call, and to the events of the run."""
        call.written += (text, thinking)
        self._add_text(self._tags.feed(text), thinking)

    def _wanted_tokens(self, tokens_in: int) -> tuple[int, int]:
        """Return the most tokens of a reply, and how many are usual where nobody has set that."""
        usual = 0
        if not self._is_limit_configured:
            usual = self._state.team.worker_profile.max_tokens
        return self._reply_token_limit(tokens_in), usual

    def count_as_lost(self, prompt: tuple[Message, ...], calls: int) -> None:
        """Count so many calls with this prompt in the limits of the run: their process is gone.

        What they have used nobody knows, so the most that each can have counts.
        """
        self._conversation = self._conversation_of_client()
        tokens = prompt_tokens(prompt)
        wanted, usual = self._wanted_tokens(tokens)
        for _ in range(calls):
            self._state.resources.count_lost_call(tokens, wanted, self.worker.price, usual)

    def _conversation_of_client(self) -> Conversation | None:
        """Return the client's conversation, where this attempt gives its next reply."""
        if not self._gives_answer:
            return None
        return self._state.policy.question_for(self.worker.name).conversation

    @property
    def _is_limit_configured(self) -> bool:
        """Whether the user or a client says how long a reply may be."""
        client = self._conversation
        has_client_limit = client is not None and client.max_tokens is not None
        return has_client_limit or bool(self.worker.options.get("max_tokens"))

    def _add_text(self, text: str, thinking: str = "") -> None:
        """Add to the reply what was written of it, and to the events of the run."""
        if not text and not thinking:
            return
        self._pieces.append(text)
        stream = self._state.stream
        piece = ev.StepDelta(
            at=stream.now(),
            step=self._number,
            attempt=self._attempt,
            text=text,
            thinking=thinking,
        )
        stream.emit_piece(piece)

    def _offered_tools(self, tools: ToolLoop | None) -> tuple[Tool, ...]:
        """Return the worker's tools, or those of the client."""
        if tools is not None:
            return tools.tools
        if self._conversation is not None:
            return self._conversation.tools
        return ()

    def _reply_token_limit(self, tokens_in: int) -> int:
        """Return the most tokens of a reply to a prompt of `tokens_in`.

        A client's own limit counts, unless the user has set a lower one. Where the worker's context
        is known, it is cut so that the prompt still fits.
        """
        worker = self.worker
        profile = self._state.team.worker_profile
        configured = worker.options.get("max_tokens")
        client = self._conversation
        limit = profile.reply_tokens(worker)
        if client is not None and client.max_tokens:
            limit = client.max_tokens
        context = worker.options.get("context")
        if context and limit > profile.max_tokens:
            limit = max(min(limit, int(context) - tokens_in), profile.max_tokens)
        highest = configured or worker.max_output
        if not highest:
            return limit
        return min(limit, int(highest))

    def _request(
        self, messages: tuple[Message, ...], max_tokens: int, tools: ToolLoop | None
    ) -> Request:
        state = self._state
        store = state.orchestra.attachments
        options = self.worker.options
        offered: tuple[Tool, ...] = ()
        choice: ToolChoice = "auto"
        if tools is not None:
            offered = tools.tools
            choice = tools.choice
        request = Request(
            messages=messages,
            max_tokens=max_tokens,
            temperature=options.get("temperature"),
            seed=options.get("seed", state.seed),
            deadline=state.orchestra.timeouts.for_worker(self.worker).total,
            tools=offered,
            tool_choice=choice,
            read_attachment=store.read if store is not None else None,
        )
        if self._conversation is not None:
            request = _as_client_asks(request, self._conversation)
        return self._with_schema(request)

    @property
    def holds_to_schema(self) -> bool:
        """Whether the reply is to be held to the JSON Schema of the question by its server."""
        has_schema = self._state.question.schema is not None
        return self._gives_answer and self._constrains and has_schema

    def _with_schema(self, request: Request) -> Request:
        """Return a request whose reply the worker's server holds to the question's JSON Schema.

        Not one that may call tools: most servers hold the calls to the schema, too. Where the
        answer is asked for again, none are called any more.
        """
        if not self.holds_to_schema:
            return request
        if self.repair and self._conversation is not None and request.tools:
            request = replace(request, tool_choice="none")
        if request.tools and request.tool_choice != "none":
            return request
        return replace(request, schema=self._state.question.schema)

    def _reply(self, call: _Call, request: Request, reservation: Reservation) -> ModelReply:
        """Return the reply of a call that has ended. Raises `ModelError` where it is empty."""
        # In a last turn a model may go on asking; nobody calls anything for it any more.
        is_cut = self._finish in CUT_FINISHES
        requested: tuple[ToolCall, ...] = ()
        if request.tools and not is_cut:
            requested = call.collector.calls()
        calls = requested
        if request.tool_choice == "none":
            calls = ()
        if len(calls) > 1 and not request.parallel_tool_calls:
            text = (
                f"{self.worker.name} made {len(calls)} calls at once where one was asked for; "
                "the first one counts"
            )
            self._state.stream.notice(text, self._number, recovered=True)
            calls = calls[:1]
        if is_blank(self._text) and not calls:
            if requested:
                # The next attempt would call all the tools again, and most likely end here.
                raise ModelError(
                    "empty_answer", "it asked for tools again instead of answering", retryable=False
                )
            if not is_cut:
                raise ModelError("empty_answer", "the answer is empty")
            # To a client it is an answer that its limit has cut; for a step the next attempt would
            # end here too.
            if self._conversation is None:
                raise self._empty_reply(reservation)
        if not calls and self._repeats_question():
            raise ModelError("empty_answer", "the answer only repeats the question")
        if not is_cut:
            self._tell_missing_call(request.tool_choice, calls)
        return ModelReply(text=self._text, calls=calls, provider_data=call.provider_data)

    def _tell_missing_call(self, choice: ToolChoice | Tool, calls: Sequence[ToolCall]) -> None:
        """Tell where a client asked for a call, and the reply has none or another one."""
        text = ""
        if isinstance(choice, Tool):
            if all(call.name != choice.name for call in calls):
                text = f"{self.worker.name} did not call {choice.name}, which was asked for"
        elif choice == "required" and not calls:
            text = f"{self.worker.name} called no tool, although a call was asked for"
        if text:
            self._state.stream.notice(text, self._number, recovered=True)

    def _repeats_question(self) -> bool:
        """Return whether the reply is the question again, and can still be asked for anew.

        A few words, such as a greeting, may be a fitting answer to themselves.
        """
        words = self._text.casefold().split()
        has_own_prompts = self._state.team.worker_profile.render is not None
        if len(words) < MIN_REPEATED_WORDS or has_own_prompts or self.text_is_out:
            return False
        return words == self._state.question.text.casefold().split()

    def _empty_reply(self, reservation: Reservation) -> ModelError:
        """Return the error of a reply that ended too early, before anything of its answer."""
        if self._finish == "refusal":
            message = "the model refused to answer, or a content filter left nothing of its answer"
            return ModelError("empty_answer", message, retryable=False)
        message = f"the reply reached its limit of {reservation.answer:,} tokens before an answer"
        hint = cut_reply(self.worker, reservation, reservation.answer).hint
        return ModelError("empty_answer", message, hint=hint, retryable=False)


ENDED_EARLY: Final = 0.9
"""A reply of a smaller part of the tokens that it was left was not cut by our limit."""


def cut_reply(worker: Worker, reservation: Reservation, written: int) -> Failure:
    """Return why a reply of so many tokens has no end, and what lets the next one be longer."""
    limit = reservation.answer
    if written and written < ENDED_EARLY * limit:
        message = f"{worker.name} ended after {written:,} tokens, before the end of its answer"
        hint = "its server or its context holds no more: ask for less, or use a larger worker"
        return Failure(kind="partial", message=message, hint=hint, reason="answer_truncated")
    message = f"{worker.name} reached its limit of {limit:,} tokens before the end of its answer"
    if reservation.cut:
        hint = f"the limits of the run leave no more: {_option_of(reservation.cut)}"
    elif worker.max_output is not None and limit >= worker.max_output:
        hint = "its model writes no more at once: ask for less, or use another worker"
    else:
        hint = f"raise it: conductor workers add {worker.name} --set max_tokens={2 * limit}"
    return Failure(kind="partial", message=message, hint=hint, reason="answer_truncated")


def filtered_reply(worker: Worker) -> Failure:
    """Return why a reply that its model or a filter did not let go on has no end."""
    message = f"{worker.name} refused to go on, or a content filter cut its answer off"
    hint = "ask in other words, or ask another worker"
    return Failure(kind="partial", message=message, hint=hint, reason="answer_filtered")


def _option_of(limit: str) -> str:
    """Return how a limit is raised: `raise --max-cost`."""
    name = limit.removeprefix("limit_")
    if name.endswith("_day"):
        return f"raise limits.{name}"
    return f"raise --max-{name.removesuffix('_all')}"


def _as_client_asks(request: Request, client: Conversation) -> Request:
    """Return a request with what a client asks of its model: temperature, stops, its tools."""
    temperature = request.temperature
    if temperature is None:
        temperature = client.temperature
    seed = request.seed
    if client.seed is not None:
        seed = client.seed
    asked = set[str]()
    if temperature != request.temperature:
        asked.add("temperature")
    if client.seed is not None:
        asked.add("seed")
    if client.stop:
        asked.add("stop")
    if asked or client.sampling:
        request = replace(
            request,
            temperature=temperature,
            seed=seed,
            stop=client.stop,
            sampling=client.sampling,
            asked=frozenset(asked),
        )
    if not client.tools:
        return request
    choice: ToolChoice | Tool = client.tool_choice
    for tool in client.tools:
        if tool.name == client.only_tool:
            choice = tool
            break
    return replace(
        request,
        tools=client.tools,
        tool_choice=choice,
        parallel_tool_calls=client.parallel_tool_calls,
    )


@dataclass
class _Call:
    """One call of the model as far as it has come."""

    written: list[str] = field(default_factory=list)
    reported: Usage | None = None
    cached: bool = False
    failed: bool = False
    provider_data: Mapping[str, Any] = field(default_factory=dict)
    collector: CallCollector = field(default_factory=CallCollector)

    def cost(self, request: Request, worker: Worker) -> Usage:
        written = "".join(self.written)
        return billed_usage(self.reported, request.messages, written, worker.price, request.tools)


def steps_seen_by(state: RunState, step: Step) -> list[SeenStep]:
    """Return what a step's access list opens; item 0 is what a nested run was given."""
    items: list[SeenStep] = []
    for number in step.access:
        if number == GIVEN:
            given = state.question.given
            for item in given:
                quoted_step = SeenStep(
                    number=GIVEN, worker=item.worker, subtask=item.subtask, answer=item.answer
                )
                items.append(quoted_step)
            continue
        record = state.record(number)
        answer = None
        if record.state == "done":
            answer = record.text
        quoted_step = SeenStep(
            number=number, worker=record.worker, subtask=record.step.subtask, answer=answer
        )
        items.append(quoted_step)
    return items
