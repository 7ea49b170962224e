"""From a client's conversation to what is run.

A new question, or the same worker goes on with results.

A client sends its whole conversation each time. Where it ends with the results of tool calls, the
signed ids of these calls say which worker asked, and that one goes on without a plan. If the trace
of its run is there and belongs to the client's conversation, the worker is sent what it was sent
before, its own reply with its own ids, and the results: so what its provider remembers still holds.
Whatever the client changed in its messages wins over the trace.

What a client's program adds to a question (settings, reminders, rules of a format) has up to 6,000
characters before a question of ten. The planner needs the question. The worker that answers is sent
the conversation as it is, so what is taken for context by mistake is never lost. A text is taken
for context only where it is marked in the way of a known client; any other stays where it is.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from operator import not_
from typing import Final

from conductor_cli.core.chat import CLOSE, OPEN, Attachment, MediaKind, Message, Tool, ToolCall
from conductor_cli.core.continuation import (
    GO_ON,
    continue_with_results,
    messages_up_to_calls,
    who_answers,
)
from conductor_cli.core.formatting import format_list
from conductor_cli.core.media import describe_media
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.question import Conversation, File, PastTurn, Question, fence, shorten
from conductor_cli.core.tools import parse_arguments
from conductor_cli.core.trace import Trace
from conductor_cli.server.api.request import ClientRequest, RequestError

_OPENING: Final = re.compile(
    r"""
    ^[\ \t]*(?:\#\ AGENTS\.md\ instructions[^\n]*\n{1,2})?  # Codex, before what a project's file says
    <(
        system-reminder                              # Claude Code, OpenCode
        | local-command-(?:caveat|stdout|stderr) | command-(?:name|message|args)    # Claude Code, for its own commands
        | system-[0-9a-f]{8}                         # a system text in the middle, as Messages is read here
        | environment_context | user_instructions | INSTRUCTIONS | turn_aborted    # Codex
    )>
    """,
    re.MULTILINE | re.VERBOSE,
)

_AIDER_RULES: Final = re.compile(
    (
        r"^(?:# \*SEARCH/REPLACE block\* Rules:|# File editing rules:|To suggest changes to a file "
        r"you "
        r"MUST return )"
    ),
    re.MULTILINE,
)
"""How the rules of a format begin that aider adds to each question, up to its end."""

_AIDER_EXAMPLE_ENDS: Final = (
    "I switched to a new code base. Please don't consider the above "
    "files "
    "or try to edit them any longer."
)
"""What aider says after its examples, which look like earlier turns."""


_NARRATION: Final = re.compile(rf"\A\s*(?:{OPEN}.*?{CLOSE}\s*)+", re.DOTALL)
"""What a reply was told to begin with: plan and steps, and the thinking of the worker that
answered.
"""


def without_context(talk: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """The conversation as the user had it, and what the client's program added to it, each text
    once.

    A conversation whose newest texts are nothing else stays as it is: then they are what is asked.
    """
    start = next(
        (at + 1 for at, each in enumerate(talk) if each.content.strip() == _AIDER_EXAMPLE_ENDS), 0
    )
    while 0 < start < len(talk) and talk[start].role == "assistant":
        start += 1  # its "Ok." belongs to the examples
    begins = max((at + 1 for at, each in enumerate(talk) if each.role == "assistant"), default=0)
    messages = list[Message]()
    context = list[str]()
    asks = False
    for at, message in enumerate(talk[start:], start):
        if message.role != "user":
            messages.append(message)
            continue
        asked, added = _split(message.content)
        messages.append(replace(message, content=asked))
        context += added
        asks = asks or (at >= begins and bool(asked or message.attachments))
    return (tuple(messages), tuple(dict.fromkeys(context))) if asks else (tuple(talk), ())


def _split(text: str) -> tuple[str, list[str]]:
    """Return what a user wrote, and the texts around it."""
    asked = list[str]()
    added = list[str]()
    at = 0
    unclosed = set[str]()
    while (opening := _OPENING.search(text, at)) is not None:
        closing = f"</{opening[1]}>"
        # After so many without an end, the others are not looked for: each would be looked for in
        # the whole text.
        is_vain = closing in unclosed or len(unclosed) >= 20
        end = -1 if is_vain else text.find(closing, opening.end())
        if end < 0:
            unclosed.add(closing)
            asked.append(text[at : opening.end()])
            at = opening.end()
            continue
        asked.append(text[at : opening.start()])
        at = end + len(closing)
        added.append(text[opening.start() : at])
    rest = "".join([*asked, text[at:]])
    if rules := _AIDER_RULES.search(rest):
        added.append(rest[rules.start() :].strip())
        rest = rest[: rules.start()]
    return (rest.strip(), added) if added else (text, [])


_ID: Final = re.compile(
    r"call_(\d{8}-\d{6}-[0-9a-f]{6})_(\d{1,2})_([A-Za-z0-9_-]{6})_([A-Za-z0-9_-]{16})", re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedCall:
    """What an id says: call number `index`, from 0, of the reply that `worker` gave in `run`."""

    run: str
    worker: str
    index: int


@dataclass(frozen=True, slots=True)
class CallIds:
    """Writes and reads the ids of tool calls with one secret.

    Any server that has it can let the same worker go on.

    An id is `call_RUN_INDEX_WORKER_SIGNATURE`: at most 64 characters of letters, digits, `_` and
    `-`, which OpenAI's and Anthropic's clients both take. `INDEX` is the place of the call in its
    reply, by which the trace of the run has the worker's own id.
    """

    secret: bytes

    def sign(self, call: SignedCall) -> str:
        return f"call_{call.run}_{call.index}_{_short_name(call.worker)}_{self._signature(call)}"

    def read(self, text: str, workers: Collection[str]) -> SignedCall | None:
        """Return what an id says, if this secret signed it for one of these workers.

        None for any other text.
        """
        found = _ID.fullmatch(text)
        if found is None:
            return None
        run, index, short, signature = found.groups()
        for worker in workers:
            if _short_name(worker) == short:
                call = SignedCall(run=run, worker=worker, index=int(index))
                if hmac.compare_digest(self._signature(call), signature):
                    return call
        return None

    def _signature(self, call: SignedCall) -> str:
        text = f"{call.run}\n{call.index}\n{call.worker}".encode("utf-8", "replace")
        return urlsafe_b64encode(hmac.new(self.secret, text, hashlib.sha256).digest()).decode()[:16]


def _short_name(worker: str) -> str:
    """Six characters that stand for a worker's name, which may be longer than an id."""
    return urlsafe_b64encode(hashlib.sha256(worker.encode("utf-8", "replace")).digest()).decode()[
        :6
    ]


Workers = Mapping[str, Collection[MediaKind]]
"""The workers that may be asked, and what each of them accepts besides text."""

# Characters of one result of a tool that the planner, and steps before the last, are shown
QUOTED: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequest:
    """What is run for a request. Without `plan` the question is planned."""

    question: Question
    plan: Plan | None = None


def read_conversation(
    request: ClientRequest,
    files: Mapping[str, File],
    workers: Workers,
    read_trace: Callable[[str], Trace | None],
    ids: CallIds,
) -> ParsedRequest:
    """Return what is run for a request.

    Raises `RequestError` where calls have no results, or nothing is asked.

    `files` are the attachments of the messages by their SHA-256, `workers` are those that may be
    asked. Images of earlier turns and of tools that nobody can see are left out, or the
    conversation could not go on.
    """
    said = list[Message]()
    for message in request.messages:
        if message.role == "assistant":
            # Some clients send the narration back as a part of the text.
            content = _NARRATION.sub("", message.content)
            if content or message.tool_calls:
                said.append(replace(message, content=content))
        elif message.role != "system":
            # With what is known of the attachments now that they were read.
            read = (
                files[each.sha256].attachment
                for each in message.attachments
                if each.sha256 in files
            )
            found = tuple(each for each in read if each is not None)
            is_read = len(found) == len(message.attachments)
            said.append(replace(message, attachments=found) if is_read else message)
    talk = _ordered(said)
    if not any(message.role in ("user", "tool") for message in talk):
        raise RequestError(
            400, "no_user_message", "the messages hold no message of the user", param="messages"
        )
    asked_by, at = _newest_calls(talk, workers, ids)
    newest = next((i for i in range(len(talk) - 1, -1, -1) if talk[i].role == "assistant"), -1)
    alone = workers[asked_by.worker] if asked_by is not None and at == newest else None
    talk = _without_unseen(talk, files, newest, workers, alone)
    left = {each.sha256 for message in talk for each in message.attachments}
    question = _question(
        request, talk, {sha256: file for sha256, file in files.items() if sha256 in left}
    )
    if asked_by is None:
        return ParsedRequest(question=question)
    trace = read_trace(asked_by.run)
    # Whether a run had the conversation up to place `at`, and gave the reply that is there.
    record = who_answers(trace) if trace is not None else None
    before = trace.question.conversation if trace is not None else None
    belongs = (
        before is not None
        and record is not None
        and record.worker == asked_by.worker
        and bool(record.prompt)
        and _hash(talk[:at]) in (before.origin, _hash(before.messages))
        and _hash([Message(role="assistant", content=record.text, tool_calls=record.tool_calls)])
        == _hash([talk[at]])
    )
    if at < newest:
        # A new question after calls that were answered: if the worker that made them answers it,
        # its cache holds.
        if (
            trace is not None
            and record is not None
            and question.conversation is not None
            and belongs
        ):
            end = next(i for i in range(at + 1, len(talk)) if talk[i].role != "tool")
            known = (
                *messages_up_to_calls(record),
                *_with_own_ids(trace, talk, at, talk[at + 1 : end]),
            )
            conversation = replace(
                question.conversation, known_by=record.worker, known=known, known_messages=end
            )
            question = replace(question, conversation=conversation)
        return ParsedRequest(question=question)
    if trace is not None and belongs:
        earlier, plan = continue_with_results(trace, _with_own_ids(trace, talk, at, talk[at + 1 :]))
        assert question.conversation is not None
        assert earlier.conversation is not None
        conversation = replace(question.conversation, messages=earlier.conversation.messages)
        return ParsedRequest(
            question=replace(question, parent=trace.run, conversation=conversation), plan=plan
        )
    return ParsedRequest(
        question=question, plan=Plan(steps=(Step(worker=asked_by.worker, subtask=GO_ON),))
    )


def client_calls(trace: Trace, ids: CallIds) -> tuple[ToolCall, ...]:
    """The calls that a run leaves to its client, with signed ids in place of the worker's own."""
    record = who_answers(trace)
    if record is None:
        return trace.tool_calls
    return tuple(
        replace(call, id=ids.sign(SignedCall(run=trace.run, worker=record.worker, index=index)))
        for index, call in enumerate(trace.tool_calls)
    )


def continue_response(request: ClientRequest, earlier: Trace, ids: CallIds) -> ClientRequest:
    """A request that holds only what is new, with the conversation of the run that it continues
    before it.

    System text is not taken over, as OpenAI's API does not.
    """
    conversation = earlier.question.conversation
    before = (
        conversation.messages
        if conversation is not None
        else (Message(role="user", content=earlier.question.text),)
    )
    reply = Message(role="assistant", content=earlier.answer, tool_calls=client_calls(earlier, ids))
    system = [message for message in request.messages if message.role == "system"]
    new = [message for message in request.messages if message.role != "system"]
    return replace(request, messages=(*system, *before, reply, *new))


# The client's messages, in an order that every provider takes


def _without_unseen(
    talk: Sequence[Message],
    files: Mapping[str, File],
    newest: int,
    workers: Workers,
    alone: Collection[MediaKind] | None,
) -> tuple[Message, ...]:
    """The messages without files that say nothing to those who may answer.

    What the user attaches now stays.

    `newest` is the place of the newest reply, `alone` what the one worker accepts that goes on
    after it.
    """
    known = {kind for accepted in workers.values() for kind in accepted}

    def is_seen(each: Attachment, accepted: Collection[MediaKind]) -> bool:
        file = files.get(each.sha256)
        return file is None or file.kind_without_text is None or each.kind in accepted

    left: list[Message] = []
    for at, message in enumerate(talk):
        if not message.attachments or (at > newest and message.role == "user" and alone is None):
            left.append(message)
            continue
        accepted = alone if alone is not None and at > newest else known
        seen = [is_seen(each, accepted) for each in message.attachments]
        hidden = [describe_media(each) for each in compress(message.attachments, map(not_, seen))]
        note = [f"(Left out, because it cannot be seen here: {text}.)" for text in hidden]
        content = "\n".join(filter(None, [message.content, *note]))
        shown = tuple(compress(message.attachments, seen))
        places = tuple(compress(message.places, seen))
        left.append(replace(message, content=content, attachments=shown, places=places))
    return tuple(left)


def _ordered(talk: Sequence[Message]) -> tuple[Message, ...]:
    """The results of each turn's calls directly after it, and results of calls that nobody made as
    texts of the user.

    Raises `RequestError` where a call has no result.
    """
    ordered: list[Message] = []
    at = 0
    while at < len(talk):
        message = talk[at]
        at = at + 1
        ordered.append(_as_text(message) if message.role == "tool" else message)
        if not message.tool_calls:
            continue
        end = next((i for i in range(at, len(talk)) if talk[i].role == "assistant"), len(talk))
        ordered += _answers(message, talk[at:end])
        at = end
    return tuple(ordered)


def _answers(turn: Message, after: Sequence[Message]) -> Iterator[Message]:
    """Yield what comes after a turn with calls.

    A result for each, in their order, then all the rest.
    """
    results: dict[str, Message] = {}
    rest: list[Message] = []
    wanted = [call.id for call in turn.tool_calls]
    for message in after:
        if (
            message.role == "tool"
            and message.tool_call_id in wanted
            and message.tool_call_id not in results
        ):
            results[message.tool_call_id] = message
        else:
            rest.append(_as_text(message) if message.role == "tool" else message)
    missing = [f"{call.name} ({call.id})" for call in turn.tool_calls if call.id not in results]
    if missing:
        text = (
            f"these tool calls have no result: {format_list(missing)}; send one result for "
            "each "
            "call"
        )
        raise RequestError(400, "missing_tool_result", text, param="messages")
    yield from (results[each] for each in dict.fromkeys(wanted))
    yield from rest


def _as_text(result: Message) -> Message:
    text = (
        f"A tool gave this result, for a call that is not shown:\n{fence('result', result.content)}"
    )
    return Message(role="user", content=text, attachments=result.attachments)


def _question(
    request: ClientRequest, talk: tuple[Message, ...], files: Mapping[str, File]
) -> Question:
    only = request.tool_choice.name if isinstance(request.tool_choice, Tool) else ""
    conversation = Conversation(
        messages=talk,
        tools=request.tools,
        tool_choice="auto",
        only_tool=only,
        parallel_tool_calls=request.parallel_tool_calls,
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        stop=request.stop,
        origin=_hash(talk),
    )
    if not isinstance(request.tool_choice, Tool):
        conversation = replace(conversation, tool_choice=request.tool_choice)
    told, context = without_context(talk)
    *history, now = _turns(told)
    return Question(
        text="\n\n".join(filter(None, (now.question, now.answer))),
        system="\n\n".join(
            message.content for message in request.messages if message.role == "system"
        ),
        history=tuple(history),
        files=tuple(files.values()),
        schema={"type": "object"}
        if request.schema is None and request.json_only
        else request.schema,
        conversation=conversation,
        context=context,
    )


def _turns(talk: Sequence[Message]) -> list[PastTurn]:
    """The conversation as texts of the user, each with all that came after it until the next."""
    turns = [(list[str](), list[str]())]
    for message in talk:
        if message.role == "user":
            if any(turns[-1][1]):
                turns.append(([], []))
            turns[-1][0].append(message.content)
        else:  # for readers who are not sent the conversation itself
            calls = [
                f"Called the tool {each.name}: {shorten(each.arguments, QUOTED)}"
                for each in message.tool_calls
            ]
            told = [message.content, *calls]
            if message.role == "tool":
                told = [fence("result", shorten(message.content, QUOTED))]
            turns[-1][1].extend(told)
    # They are joined once: ten thousand texts in a row would be copied for each of them.
    joined = (["\n\n".join(filter(None, texts)) for texts in turn] for turn in turns)
    return [PastTurn(question=question, answer=answer) for question, answer in joined]


# Going on


def _newest_calls(
    talk: Sequence[Message], workers: Collection[str], ids: CallIds
) -> tuple[SignedCall | None, int]:
    """Return what the conversation's newest signed calls say, and the place of their turn.

    Where they come from several runs, the newest one counts. Other calls that came later say that
    another server, or a client by itself, went on: then nobody is known to have asked.
    """
    for at in range(len(talk) - 1, -1, -1):
        if not talk[at].tool_calls:
            continue
        signed = (ids.read(call.id, workers) for call in talk[at].tool_calls)
        return max(
            (call for call in signed if call is not None), key=lambda call: call.run, default=None
        ), at
    return None, -1


def _with_own_ids(
    trace: Trace, talk: tuple[Message, ...], at: int, messages: Sequence[Message]
) -> tuple[Message, ...]:
    """The messages with the worker's own ids in the results of the calls of the turn at `at`."""
    record = who_answers(trace)
    assert record is not None
    own = {
        mine.id: call.id for mine, call in zip(talk[at].tool_calls, record.tool_calls, strict=True)
    }
    return tuple(
        replace(each, tool_call_id=own[each.tool_call_id]) if each.role == "tool" else each
        for each in messages
    )


def _hash(messages: Sequence[Message]) -> str:
    """Return what messages say, without the ids of calls, which differ between a client and a
    worker.
    """

    def arguments(call: ToolCall) -> str:
        """Arguments in one form: clients write the same ones in their own."""
        try:
            return json.dumps(parse_arguments(call), sort_keys=True)
        except (ValueError, RecursionError):
            return call.arguments

    told = [
        [
            message.role,
            message.content.strip(),
            [each.sha256 for each in message.attachments],
            message.is_error,
            [[call.name, arguments(call)] for call in message.tool_calls],
        ]
        for message in messages
    ]
    text = json.dumps(told, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
