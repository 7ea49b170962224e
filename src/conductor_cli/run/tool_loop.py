"""Offers tools to one attempt at a step, and makes the calls of each reply in parallel.

A model may ask for anything any number of times. Whatever is wrong with a call goes back to it as
the call's result; a step that has made too many calls, or too many wrong ones, gets one more turn
in which it has to answer.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Attachment, Message, Tool, ToolCall, ToolChoice
from conductor_cli.core.estimate import conversation_tokens
from conductor_cli.core.formatting import format_count, format_list
from conductor_cli.core.input_requests import InputReply, InputRequest
from conductor_cli.core.pool import Worker
from conductor_cli.core.question import File, shorten
from conductor_cli.core.reading import context_of, is_context_known
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.tools import CallBounds, OfferedTool, ToolBox, ToolResult, parse_arguments
from conductor_cli.core.usage import CHARS_PER_TOKEN
from conductor_cli.models.addresses import max_tools_of
from conductor_cli.run.directory_tools import DirectoryToolBox
from conductor_cli.run.orchestra import NOBODY_TO_ASK, ToolVerdict
from conductor_cli.run.state import RunState

# Characters of a result that a worker is given; of a longer one, the middle is left out
MAX_RESULT_CHARS: Final = 40_000
SLOW_START_SECONDS: Final = 1.0  # After which a reader is told what a step waits for
MAX_TURNS: Final = 25  # Replies of one attempt that may ask for tools
FULL_SHARE: Final = 0.6
"""The part of a context after which a worker has to answer: results of one more turn may take a
quarter of it, and its answer needs room, too.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """One reply of a model, joined from its chunks."""

    text: str
    calls: tuple[ToolCall, ...]
    provider_data: Mapping[str, Any]


async def open_tool_loop(
    state: RunState, number: int, worker: Worker, attempt: int, looked_up: Sequence[File] = ()
) -> ToolLoop | None:
    """Return the tools of an attempt, with those that look things up in the files `looked_up`.

    None where the worker has none or the policy lets it use none.
    """
    if state.orchestra.tools is None and not looked_up:
        return None
    step = replace(state.record(number).step, worker=worker.name)
    before = state.steps_before(number)
    servers: list[str] = []
    chosen: tuple[str, ...] = ()
    if state.orchestra.tools is not None:
        chosen = worker.tools
    for server in chosen:
        why = state.policy.tool_objection(server, before, step)
        text = f"{worker.name} does not get the tools of {server}: {why}"
        if not why:
            servers.append(server)
        elif all((notice.text, notice.step) != (text, number) for notice in state.trace.notices):
            state.stream.notice(text, number)
    box = None
    if servers:
        box = state.resources.tools
    if looked_up:
        box = DirectoryToolBox(looked_up, box)
    if box is None:
        return None
    if attempt == 1:
        tell_of_changes(state, number)
    loop = ToolLoop(state, number, worker, attempt, box, servers)
    await loop.offer()
    return loop


@dataclass
class ToolLoop:
    """Offers the tools of `servers` to one attempt, and makes the calls that it asks for."""

    _state: RunState
    _number: int
    _worker: Worker
    _attempt: int
    _box: ToolBox
    _servers: Sequence[str]
    _offered: dict[str, OfferedTool] = field(default_factory=dict)
    _bounds: CallBounds = field(default_factory=CallBounds)
    _turn: int = 0
    _is_last: bool = False

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(item.tool for item in self._offered.values())

    @property
    def choice(self) -> ToolChoice:
        """Whether the next reply may ask for tools.

        Providers want them in the request even where it may not.
        """
        return "none" if self._is_last else "auto"

    async def offer(self) -> None:
        """Look which tools there are now.

        A server may change its list at any time, and may take long to start.
        """
        looking = asyncio.ensure_future(self._box.offered(self._servers))
        try:
            if not self._turn:
                await self._tell_of_slow_start(looking)
            self._offered = {item.tool.name: item for item in self._fitting(await looking)}
        finally:
            looking.cancel()
        for text in self._box.take_notices():
            self._state.stream.notice(text, self._number, recovered=True)

    def _fitting(self, offered: Sequence[OfferedTool]) -> Sequence[OfferedTool]:
        """Return the first tools, as many as the worker's provider takes, and tell of the others.

        It would refuse the whole request.
        """
        most = max_tools_of(self._worker)
        if most is None or len(offered) <= most:
            return offered
        servers = dict.fromkeys(item.server for item in offered[most:])
        text = (
            f"{self._worker.name} gets the first {most} of {len(offered)} tools, because its "
            f"provider takes no more; those left out are of {format_list([*servers])}; to choose: "
            f"{format_list([f'tools.{name}.only' for name in servers])}"
        )
        notices = self._state.trace.notices
        if all((notice.text, notice.step) != (text, self._number) for notice in notices):
            self._state.stream.notice(text, self._number)
        return offered[:most]

    async def _tell_of_slow_start(self, looking: asyncio.Future[tuple[OfferedTool, ...]]) -> None:
        """Wait for the tools for a moment, and then tell that they are waited for."""
        found, _ = await asyncio.wait([looking], timeout=SLOW_START_SECONDS)
        if not found:
            text = f"waiting for the tools of {format_list(self._servers)} to start"
            self._state.stream.notice(text, self._number)

    async def answer(self, reply: ModelReply, before: tuple[Message, ...]) -> tuple[Message, ...]:
        """Make the calls of a reply. Returns the messages by which the conversation goes on.

        `before` are those that were sent so far.
        """
        self._turn += 1
        calls = [
            asyncio.ensure_future(self._answer_call(call, len(reply.calls))) for call in reply.calls
        ]
        try:
            results = await asyncio.gather(*calls)
        finally:
            for call in calls:
                call.cancel()
        request = Message(
            role="assistant",
            content=reply.text,
            tool_calls=reply.calls,
            provider_data=reply.provider_data,
        )
        messages = (request, *results)
        why = self._why_enough((*before, *messages))
        if not why:
            await self.offer()
        elif not self._is_last:
            self._is_last = True
            text = f"{self._worker.name} {why}, and now has to answer"
            self._state.stream.notice(text, self._number, recovered=True)
        return messages

    def _why_enough(self, messages: tuple[Message, ...]) -> str:
        """Return why the next reply has to be the answer; empty where it may ask for tools."""
        is_spent = self._bounds.exhausted or self._turn >= MAX_TURNS
        if is_spent or self._state.resources.tool_calls_left <= 0:
            return "has called tools often enough"
        context = context_of(self._worker, self._state.team.worker_profile)
        # Of a context that is unknown nothing is held back from tools that the user chose.
        is_held = is_context_known(self._worker) or isinstance(self._box, DirectoryToolBox)
        if is_held and conversation_tokens(messages, self.tools) > FULL_SHARE * context:
            return f"has filled much of its context of {context:,} tokens with results of tools"
        return ""

    async def _answer_call(self, call: ToolCall, of: int) -> Message:
        """Make one of the `of` calls of a reply, or say why it is not made."""
        stream = self._state.stream
        tool = self._offered.get(call.name)
        arguments, problem = await self._check_call(call, tool)
        started = stream.now()
        self._announce_call(call, tool, started, is_made=not problem)
        if tool is None or problem:
            result = ToolResult(text=problem, error=True)
        else:
            ask = None
            if self._state.resources.approvals.asks:
                ask = self._ask_person
            result = await self._box.call(tool, arguments, ask)
        text, attachments = self._readable(result, of)
        ended = stream.now()
        returned = ev.ToolReturned(
            at=ended,
            **self._position,
            call_id=call.id,
            text=text,
            error=result.error,
            seconds=round(ended - started, 4),
            attachments=attachments,
        )
        stream.emit(returned)
        return Message(
            role="tool",
            content=text,
            attachments=attachments,
            tool_call_id=call.id,
            is_error=result.error,
        )

    async def _check_call(
        self, call: ToolCall, tool: OfferedTool | None
    ) -> tuple[dict[str, Any], str]:
        """Return the arguments of a call, and why it is not made; empty where it is."""
        if tool is None:
            return {}, self._unknown_tool(call)
        arguments, problem = self._admit(call)
        if not problem:
            problem = await self._ask_to_allow(call, tool)
        return arguments, problem

    def _announce_call(
        self, call: ToolCall, tool: OfferedTool | None, at: float, *, is_made: bool
    ) -> None:
        """Tell of a call; the server of its tool is named only where the call reaches it."""
        name = ""
        server = ""
        read_only = False
        if tool is not None:
            name = tool.full_name
            read_only = tool.read_only
            if is_made:
                server = tool.server
        called = ev.ToolCalled(
            at=at,
            **self._position,
            call=call,
            server=server,
            read_only=read_only,
            tool=name,
        )
        self._state.stream.emit(called)

    @property
    def _position(self) -> dict[str, Any]:
        """Where in the run a call is made, as its events say it."""
        return {"step": self._number, "attempt": self._attempt, "turn": self._turn}

    def _unknown_tool(self, call: ToolCall) -> str:
        self._bounds.add_fault()
        names = ", ".join(list(self._offered)[:20]) or "none"
        return f"there is no tool {call.name!r:.80}; the tools are: {names}"

    def _admit(self, call: ToolCall) -> tuple[dict[str, Any], str]:
        """Return the arguments of a call, and why it is not made; empty where it may be.

        One that may be made counts towards the run's limit of calls.
        """
        resources = self._state.resources
        try:
            arguments = parse_arguments(call)
            problem = self._bounds.admit(call.name, arguments)
        except ValueError as error:
            self._bounds.add_fault()
            return {}, f"not called: {error}"
        if problem:
            return arguments, problem
        if resources.tool_calls_left <= 0:
            problem = (
                "not called: the run's limit of tool calls is reached. Answer with what you have."
            )
            return arguments, problem
        resources.count_tool_calls(1)
        return arguments, ""

    async def _ask_to_allow(self, call: ToolCall, tool: OfferedTool) -> str:
        """Return why a call is not allowed; empty where it is. The user may be asked."""
        state = self._state
        approvals = state.resources.approvals
        offered_in = self._position

        async def ask() -> ToolVerdict:
            verdict = approvals.verdict()
            offered = ev.ToolOffered(
                at=state.stream.now(),
                **offered_in,
                call=call,
                server=tool.server,
                worker=self._worker.name,
            )
            state.stream.emit(offered)
            return await state.ending.answer_of_user(verdict)

        problem = await approvals.objection(tool, ask)
        if problem == NOBODY_TO_ASK:
            name = one_line(tool.full_name)
            # The name is the server's own, and a user may paste the option into a shell
            option = f"--allow-tools {shlex.quote(name)}"
            text = f"{name} was not called, because it may change something: {option}"
            state.stream.notice(text, self._number)
        return problem

    async def _ask_person(self, request: InputRequest) -> InputReply:
        """Have the user answer what the server of a tool asks meanwhile."""
        state = self._state
        approvals = state.resources.approvals
        called_in = self._position

        async def ask() -> InputReply:
            reply = approvals.awaited_input()
            event = ev.InputAsked(
                at=state.stream.now(),
                **called_in,
                server=request.server,
                message=request.message,
                fields=request.fields,
                url=request.url,
                worker=self._worker.name,
            )
            state.stream.emit(event)
            return await state.ending.answer_of_user(reply)

        return await approvals.input_of_user(ask)

    def _readable(self, result: ToolResult, of: int) -> tuple[str, tuple[Attachment, ...]]:
        """Return the text of a result, one of `of`, and the attachments that are accepted."""
        accepts = self._worker.accepts or ()
        accepted: list[Attachment] = []
        lines = [result.text]
        for attachment in result.attachments:
            if attachment.kind in accepts:
                accepted.append(attachment)
            else:
                lines.append(f"[{attachment.name} cannot be shown to you]")
        text = "\n".join(lines)
        # A small context must hold the results of several turns.
        context = context_of(self._worker, self._state.team.worker_profile)
        most = min(MAX_RESULT_CHARS, max(int(context * CHARS_PER_TOKEN) // (4 * of), 500))
        short = shorten(text.encode("utf-8", "replace").decode(), most)
        if len(short) < len(text):
            size = format_count(len(text), "character")
            self._state.stream.notice(
                f"a tool's result of {size} was shortened for {self._worker.name}", self._number
            )
        return short, tuple(accepted)


def tell_of_changes(state: RunState, number: int) -> None:
    """Tell the user which calls of a step may have changed something and may be repeated.

    That is before the step starts again. They are those of the newest attempt, or of the run that
    this one resumes.
    """
    record = state.record(number)
    if state.resumed is not None and not record.tools:
        for earlier in state.resumed.steps:
            if earlier.number == number and earlier.step == record.step:
                record = earlier
                break
    newest = max((use.attempt for use in record.tools), default=0)
    names = dict[str, None]()
    for use in record.tools:
        if use.attempt == newest and use.server and not use.read_only:
            names[f"{use.call.name} of {use.server}"] = None
    if names:
        text = (
            f"step {number} starts again and may repeat calls that can change something: "
            f"{', '.join(names)}"
        )
        state.stream.notice(text, number, recovered=True)
