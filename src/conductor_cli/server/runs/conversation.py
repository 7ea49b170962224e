"""From a client's conversation to what is run: a question, or a worker that goes on with results.

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
from typing import Final

from conductor_cli.core.chat import (
    CLOSE,
    OPEN,
    Attachment,
    MediaKind,
    Message,
    Tool,
    ToolCall,
    ToolChoice,
)
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
from conductor_cli.core.serialization import encode_json
from conductor_cli.core.terminal_text import MAX_SEARCHED_CHARACTERS, one_line
from conductor_cli.core.tools import parse_arguments
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.server.api.request import ClientRequest, RequestError

_MARK: Final = re.compile(
    r"""
    <(
        # Claude Code, OpenCode
        system-reminder
        # Claude Code, for its own commands
        | local-command-(?:caveat|stdout|stderr) | command-(?:name|message|args)
        # A system text in the middle, as Messages is read here
        | system-[0-9a-f]{8}
        # Codex
        | environment_context | user_instructions | INSTRUCTIONS | turn_aborted
    )>
    """,
    re.VERBOSE,
)
_MAX_MARK_CHARACTERS: Final = 32

# What Codex writes before what a project's file says
_CODEX_HEADING: Final = "# AGENTS.md instructions"

# How the rules of a format begin that aider adds to each question, up to its end
_AIDER_RULES: Final = (
    "# *SEARCH/REPLACE block* Rules:",
    "# File editing rules:",
    "To suggest changes to a file you MUST return ",
)

# What aider says after its examples, which look like earlier turns
_AIDER_EXAMPLES_END: Final = (
    "I switched to a new code base. Please don't consider the above files or try to edit them any "
    "longer."
)

# What a streamed reply begins with: plan and steps, and the thinking of the worker that answered
_NARRATION: Final = re.compile(rf"\A\s*(?:{OPEN}.*?{CLOSE}\s*)+", re.DOTALL)

MAX_UNCLOSED_MARKS: Final = 20  # Marks without an end that are looked for in a text


def without_context(talk: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """Return the conversation as the user had it, and each text once that a program added.

    A conversation whose newest texts are nothing else stays as it is: then they are the question.
    Where it goes on with results of tools, the question is the one for which they were called.
    """
    messages = list[Message]()
    context = list[str]()
    newest_reply = _newest_reply(talk)
    has_results = any(message.role == "tool" for message in talk[newest_reply + 1 :])
    has_question = False
    start = _end_of_examples(talk)
    for index, message in enumerate(talk[start:], start):
        if message.role != "user":
            messages.append(message)
            continue
        text, added_texts = _split(message.content)
        context += added_texts
        if text == message.content:
            messages.append(message)
        elif text or message.attachments:
            messages.append(replace(message, content=text))
        if (index > newest_reply or has_results) and (text or message.attachments):
            has_question = True
    if not has_question:
        return tuple(talk), ()
    return tuple(messages), tuple(dict.fromkeys(context))


def _end_of_examples(talk: Sequence[Message]) -> int:
    """Return where the conversation begins behind aider's examples; 0 where there are none."""
    for index, message in enumerate(talk):
        if message.content.strip() == _AIDER_EXAMPLES_END:
            start = index + 1
            while start < len(talk) and talk[start].role == "assistant":
                start += 1  # its "Ok." belongs to the examples
            return start
    return 0


def _newest_reply(talk: Sequence[Message]) -> int:
    """Return the index of the newest reply; -1 where there is none."""
    for index in range(len(talk) - 1, -1, -1):
        if talk[index].role == "assistant":
            return index
    return -1


def _split(text: str) -> tuple[str, list[str]]:
    """Return what a user wrote, and the texts around it."""
    written = list[str]()
    added = list[str]()
    position = 0
    unclosed = set[str]()
    while (opening := _find_opening(text, position)) is not None:
        start, mark = opening
        closing = f"</{mark[1]}>"
        # After so many without an end, the others are not looked for: each would be looked for in
        # the whole text.
        is_vain = closing in unclosed or len(unclosed) >= MAX_UNCLOSED_MARKS
        end = -1 if is_vain else text.find(closing, mark.end())
        if end < 0:
            unclosed.add(closing)
            written.append(text[position : mark.end()])
            position = mark.end()
            continue
        written.append(text[position:start])
        position = end + len(closing)
        added.append(text[start:position])
    rest = "".join([*written, text[position:]])
    rules = _find_aider_rules(rest)
    if rules >= 0:
        added.append(rest[rules:].strip())
        rest = rest[:rules]
    if not added:
        return text, []
    return rest.strip(), added


def _find_opening(text: str, position: int) -> tuple[int, re.Match[str]] | None:
    """Return where the next text of a program begins from `position` on, and its mark.

    A mark is the first of its line but for blanks. Above it there may be a heading of Codex.
    """
    searched = position
    while (mark := _find_mark(text, searched)) is not None:
        line = _start_of_line(text, searched, mark.start())
        if line is not None and not text[line : mark.start()].strip(" \t"):
            if line == mark.start():
                line = _start_of_heading(text, position, line)
            return line, mark
        # No other mark of this line is its first
        searched = text.find("\n", mark.end())
        if searched < 0:
            return None
    return None


def _find_mark(text: str, position: int) -> re.Match[str] | None:
    """Return the next mark. It is looked for in pieces, between which other threads go on."""
    for start in range(position, len(text), MAX_SEARCHED_CHARACTERS):
        end = start + MAX_SEARCHED_CHARACTERS + _MAX_MARK_CHARACTERS
        mark = _MARK.search(text, start, end)
        if mark is not None:
            return mark
    return None


def _start_of_line(text: str, position: int, index: int) -> int | None:
    """Return where the line of a character begins; None where it does before `position`."""
    line_break = text.rfind("\n", position, index)
    if line_break >= 0:
        return line_break + 1
    if position == 0 or text[position - 1] == "\n":
        return position
    return None


def _start_of_heading(text: str, position: int, line: int) -> int:
    """Return where the heading of Codex above a line begins, else the line.

    There may be an empty line between the two.
    """
    end = line - 1
    if end > position and text[end - 1] == "\n":
        end -= 1
    if end <= position:
        return line
    start = _start_of_line(text, position, end)
    if start is None or not text[start:end].lstrip(" \t").startswith(_CODEX_HEADING):
        return line
    return start


MAX_FILE_TAG: Final = 2000  # Characters of the tag that opens the text of a file, with its name


def _without_files(
    talk: Sequence[Message], texts: Mapping[str, File]
) -> tuple[tuple[Message, ...], tuple[File, ...]]:
    """Return the conversation without the files of text that it quotes, and these.

    So they are files to every rule, as images and PDF documents are.
    """
    if not texts:
        return tuple(talk), ()
    by_tag = {quoted.partition("\n")[0]: quoted for quoted in texts}
    messages = list[Message]()
    found = dict[str, File]()
    for message in talk:
        kept = list[str]()
        position = 0
        for start, quoted in _quoted_files(message.content, by_tag):
            kept.append(message.content[position:start])
            position = start + len(quoted)
            found[quoted] = texts[quoted]
        if position:
            rest = "".join([*kept, message.content[position:]])
            messages.append(replace(message, content=rest.strip("\n")))
        else:
            messages.append(message)
    return tuple(messages), tuple(found.values())


def _quoted_files(text: str, by_tag: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Yield where each quoted file begins in a text, and all of its words.

    No file has its own mark in its text, so no part of a text is compared with it twice.
    """
    position = 0
    while (tag := _FILE_TAG.search(text, position)) is not None:
        start = tag.start()
        position = tag.end()
        end = max(text.find("\n", start, start + MAX_FILE_TAG), start)
        quoted = by_tag.get(text[start:end], "")
        if quoted and text.startswith(quoted, start):
            yield start, quoted
            position = start + len(quoted)


_FILE_TAG: Final = re.compile(r"<file-[0-9a-f]{8} ")  # As `fence` begins one


def _find_aider_rules(text: str) -> int:
    """Return where the rules of a format begin; -1 where there are none."""
    if text.startswith(_AIDER_RULES):
        return 0
    starts = [text.find(f"\n{beginning}") for beginning in _AIDER_RULES]
    return min((start + 1 for start in starts if start >= 0), default=-1)


_ID: Final = re.compile(
    r"call_(\d{8}-\d{6}-[0-9a-f]{6,10})_(\d{1,2})_([A-Za-z0-9_-]{6})_([A-Za-z0-9_-]{16})", re.ASCII
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
        fields = _ID.fullmatch(text)
        if fields is None:
            return None
        run, index, short, signature = fields.groups()
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
    """Return six characters that stand for a worker's name, which may be longer than an id."""
    digest = hashlib.sha256(worker.encode("utf-8", "replace")).digest()
    return urlsafe_b64encode(digest).decode()[:6]


Workers = Mapping[str, Collection[MediaKind]]
"""The workers that may be asked, and what each of them accepts besides text."""

# Characters of one result of a tool that the planner, and steps before the last, are shown
MAX_QUOTED_RESULT: Final = 2000


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
    talk = _ordered(_readable_messages(request, files))
    if not any(message.role in ("user", "tool") for message in talk):
        message = "the messages hold no message of the user"
        raise RequestError(400, "no_user_message", message, param="messages")
    call, turn = _newest_calls(talk, workers, ids)
    newest_reply = _newest_reply(talk)
    next_worker = None
    if call is not None and turn == newest_reply:
        next_worker = workers[call.worker]
    talk = _without_unseen(talk, files, newest_reply, workers, next_worker)
    question = _question(request, talk, _files_in(talk, files))
    if call is None:
        return ParsedRequest(question=question)
    recorded = _recorded_turn(read_trace(call.run), call.worker, talk, turn)
    if turn < newest_reply:
        if recorded is not None:
            question = _with_cached_start(question, recorded, talk, turn)
        return ParsedRequest(question=question)
    if recorded is not None:
        return _go_on_with_record(question, recorded, talk, turn)
    plan = Plan(steps=(Step(worker=call.worker, subtask=GO_ON),))
    return ParsedRequest(question=question, plan=plan)


def _readable_messages(request: ClientRequest, files: Mapping[str, File]) -> list[Message]:
    """Return the messages without system texts and narration, with what files turned out to be."""
    messages = list[Message]()
    for message in request.messages:
        if message.role == "assistant":
            # Some clients send the narration back as a part of the text.
            content = _NARRATION.sub("", message.content)
            if content or message.tool_calls:
                messages.append(replace(message, content=content))
        elif message.role != "system" and not message.attachments:
            messages.append(message)
        elif message.role != "system":
            messages.append(replace(message, attachments=_read_attachments(message, files)))
    return messages


def _read_attachments(message: Message, files: Mapping[str, File]) -> tuple[Attachment, ...]:
    """Return the attachments as they are known once all were read; else as they were."""
    attachments = list[Attachment]()
    for attachment in message.attachments:
        file = files.get(attachment.sha256)
        if file is None or file.attachment is None:
            return message.attachments
        attachments.append(replace(file.attachment, detail=attachment.detail))
    return tuple(attachments)


def _files_in(talk: Sequence[Message], files: Mapping[str, File]) -> dict[str, File]:
    """Return the files that messages still have."""
    hashes = set[str]()
    for message in talk:
        hashes.update(attachment.sha256 for attachment in message.attachments)
    return {sha256: file for sha256, file in files.items() if sha256 in hashes}


@dataclass(frozen=True, slots=True)
class _RecordedTurn:
    """A turn with calls, as its run has it: the worker was sent what is before it, and made it."""

    trace: Trace
    record: StepRecord


def _recorded_turn(
    trace: Trace | None, worker: str, talk: Sequence[Message], turn: int
) -> _RecordedTurn | None:
    """Return what a run has of the turn at this index; None where the client has another one."""
    if trace is None:
        return None
    record = who_answers(trace)
    conversation = trace.question.conversation
    if record is None or conversation is None:
        return None
    if record.worker != worker or not record.prompt:
        return None
    reply = Message(role="assistant", content=record.text, tool_calls=record.tool_calls)
    is_same_start = _hash(talk[:turn]) in (conversation.origin, _hash(conversation.messages))
    is_same_reply = _hash([reply]) == _hash([talk[turn]])
    if not (is_same_start and is_same_reply):
        return None
    return _RecordedTurn(trace, record)


def _with_cached_start(
    question: Question, recorded: _RecordedTurn, talk: tuple[Message, ...], turn: int
) -> Question:
    """Return a new question after calls that were answered.

    If the worker that made them answers it, what its provider remembers still holds.
    """
    assert question.conversation is not None
    end = turn + 1
    while talk[end].role == "tool":
        end += 1
    results = _with_workers_ids(recorded.record, talk[turn], talk[turn + 1 : end])
    conversation = replace(
        question.conversation,
        known_by=recorded.record.worker,
        known=(*messages_up_to_calls(recorded.record), *results),
        known_messages=end,
    )
    return replace(question, conversation=conversation)


def _go_on_with_record(
    question: Question, recorded: _RecordedTurn, talk: tuple[Message, ...], turn: int
) -> ParsedRequest:
    """Return what is run where the same worker goes on with the results of its calls."""
    results = _with_workers_ids(recorded.record, talk[turn], talk[turn + 1 :])
    earlier, plan = continue_with_results(recorded.trace, results)
    assert question.conversation is not None
    assert earlier.conversation is not None
    conversation = replace(question.conversation, messages=earlier.conversation.messages)
    question = replace(question, parent=recorded.trace.run, conversation=conversation)
    return ParsedRequest(question=question, plan=plan)


def client_calls(trace: Trace, ids: CallIds) -> tuple[ToolCall, ...]:
    """Return the calls that a run leaves to its client, with signed ids for the worker's own."""
    record = who_answers(trace)
    if record is None:
        return trace.tool_calls
    signed = []
    for index, call in enumerate(trace.tool_calls):
        signed.append(
            replace(call, id=ids.sign(SignedCall(run=trace.run, worker=record.worker, index=index)))
        )
    return tuple(signed)


def continue_response(request: ClientRequest, earlier: Trace, ids: CallIds) -> ClientRequest:
    """Return the request behind the conversation of the run that it continues.

    `request` holds only what is new. Of the system text, `instructions` are not taken over, and
    what stood in the input is, as in OpenAI's API.
    """
    messages = _system_of_both(request, earlier)
    conversation = earlier.question.conversation
    if conversation is not None:
        messages += conversation.messages
    else:
        messages.append(Message(role="user", content=earlier.question.text))
    calls = client_calls(earlier, ids)
    _check_results(request, calls)
    messages.append(Message(role="assistant", content=earlier.answer, tool_calls=calls))
    for message in request.messages:
        if message.role != "system":
            messages.append(message)
    return replace(request, messages=tuple(messages))


def _system_of_both(request: ClientRequest, earlier: Trace) -> list[Message]:
    """Return the system text of a request behind that of the run which it continues, if any.

    The instructions of the request are the first, and those of the run are left out.
    """
    instructions = request.echo.get("instructions") or ""
    own = "".join(message.content for message in request.messages if message.role == "system")
    texts = (
        instructions,
        _without_instructions(earlier.question.system, _instructions_of(earlier)),
        _without_instructions(own, instructions),
    )
    system = _joined(texts)
    return [Message(role="system", content=system)] if system else []


def _instructions_of(earlier: Trace) -> str:
    conversation = earlier.question.conversation
    if conversation is None:
        return ""
    return conversation.echo.get("instructions") or ""


def _without_instructions(system: str, instructions: str) -> str:
    """Return what stands in a system text behind the instructions with which it begins."""
    if not instructions:
        return system
    return system.removeprefix(instructions).removeprefix("\n\n")


def _check_results(request: ClientRequest, calls: Sequence[ToolCall]) -> None:
    """Raise `RequestError` for the result of a call that the continued response did not make."""
    made = {call.id for call in calls}
    for message in request.messages:
        made.update(call.id for call in message.tool_calls)
    for message in request.messages:
        if message.role == "tool" and message.tool_call_id not in made:
            call = one_line(message.tool_call_id)[:80]
            text = f"no tool call of the previous response has the call_id {call}"
            raise RequestError(400, "tool_call_not_found", text, param="input")


# The client's messages, in an order that every provider takes


def _without_unseen(
    talk: Sequence[Message],
    files: Mapping[str, File],
    newest_reply: int,
    workers: Workers,
    next_worker: Collection[MediaKind] | None,
) -> tuple[Message, ...]:
    """Return the messages without files that say nothing to those who may answer.

    What the user attaches now stays.

    `newest_reply` is the index of the newest reply, `next_worker` what the one worker accepts that
    goes on after it; None where any worker may answer.
    """
    accepted_by_any = set[MediaKind]()
    for kinds in workers.values():
        accepted_by_any.update(kinds)
    messages = list[Message]()
    for index, message in enumerate(talk):
        is_new = index > newest_reply
        is_question = is_new and message.role == "user" and next_worker is None
        if not message.attachments or is_question:
            messages.append(message)
        elif is_new and next_worker is not None:
            messages.append(_with_seen_files(message, files, next_worker))
        else:
            messages.append(_with_seen_files(message, files, accepted_by_any))
    return tuple(messages)


def _with_seen_files(
    message: Message, files: Mapping[str, File], accepted: Collection[MediaKind]
) -> Message:
    """Return the message with a note in place of each file that is not of the accepted kinds."""
    texts = [message.content] if message.content else []
    attachments = list[Attachment]()
    places = list[int]()
    for index, attachment in enumerate(message.attachments):
        if _is_seen(attachment, files, accepted):
            attachments.append(attachment)
            if message.places:
                places.append(message.places[index])
        else:
            description = describe_media(attachment)
            texts.append(f"(Left out, because it cannot be seen here: {description}.)")
    return replace(
        message, content="\n".join(texts), attachments=tuple(attachments), places=tuple(places)
    )


def _is_seen(
    attachment: Attachment, files: Mapping[str, File], accepted: Collection[MediaKind]
) -> bool:
    """Return whether a file says something, by its text or to a worker that accepts its kind."""
    file = files.get(attachment.sha256)
    if file is None or file.kind_without_text is None:
        return True
    return attachment.kind in accepted


def _ordered(talk: Sequence[Message]) -> tuple[Message, ...]:
    """Return the results of each turn's calls directly after it.

    Results of calls that nobody made become texts of the user. Raises `RequestError` where a call
    has no result or several, or an id that another call of its turn has.
    """
    ordered = list[Message]()
    index = 0
    while index < len(talk):
        message = talk[index]
        index += 1
        ordered.append(_as_text(message))
        if not message.tool_calls:
            continue
        start = index
        while index < len(talk) and talk[index].role != "assistant":
            index += 1
        ordered += _answers(message, talk[start:index])
    return tuple(ordered)


def _answers(turn: Message, after: Sequence[Message]) -> Iterator[Message]:
    """Yield what comes after a turn with calls: their results in order, then all the rest."""
    results = dict[str, Message]()
    rest = list[Message]()
    calls = _calls_by_id(turn)
    for message in after:
        if message.role != "tool" or message.tool_call_id not in calls:
            rest.append(_as_text(message))
            continue
        if message.tool_call_id in results:
            named = _described(calls[message.tool_call_id])
            text = f"the tool call {named} has two results; send one result for each call"
            raise RequestError(400, "duplicate_tool_result", text, param="messages")
        results[message.tool_call_id] = message
    missing = [_described(call) for call_id, call in calls.items() if call_id not in results]
    if missing:
        text = (
            f"these tool calls have no result: {format_list(missing)}; send one result for each "
            "call"
        )
        raise RequestError(400, "missing_tool_result", text, param="messages")
    for call_id in calls:
        yield results[call_id]
    yield from rest


def _calls_by_id(turn: Message) -> dict[str, ToolCall]:
    """Return the calls of a turn by their ids. Raises `RequestError` where two have one id.

    OpenAI and Anthropic refuse them, too: nobody could say whose result is whose.
    """
    calls = dict[str, ToolCall]()
    for call in turn.tool_calls:
        if call.id in calls:
            pair = format_list([_described(calls[call.id]), _described(call)])
            text = f"two tool calls of one turn have the same id: {pair}; send each with its own"
            raise RequestError(400, "duplicate_tool_call", text, param="messages")
        calls[call.id] = call
    return calls


def _described(call: ToolCall) -> str:
    """Return a client's call in words: its name and its id."""
    return f"{one_line(call.name)[:80]} ({one_line(call.id)[:80]})"


def _as_text(message: Message) -> Message:
    """Return a result whose call is not shown as a text of the user; any other as it is."""
    if message.role != "tool":
        return message
    result = fence("result", message.content)
    text = f"A tool gave this result, for a call that is not shown:\n{result}"
    return Message(role="user", content=text, attachments=message.attachments)


def _question(
    request: ClientRequest, talk: tuple[Message, ...], files: Mapping[str, File]
) -> Question:
    """Return the question that a request asks, with the whole conversation beside it."""
    shown, texts = _without_files(talk, request.texts)
    messages, context = without_context(shown)
    *history, newest_turn = _turns(messages)
    schema = request.schema
    if schema is None and request.json_only:
        schema = {"type": "object"}
    system = [message.content for message in request.messages if message.role == "system"]
    return Question(
        text=_joined((newest_turn.question, newest_turn.answer)),
        system="\n\n".join(system),
        history=tuple(history),
        files=(*files.values(), *texts),
        schema=schema,
        conversation=_conversation(request, talk),
        context=context,
    )


def _conversation(request: ClientRequest, talk: tuple[Message, ...]) -> Conversation:
    """Return what the worker that answers is sent, with how it is to answer."""
    only_tool = ""
    tool_choice: ToolChoice = "auto"
    if isinstance(request.tool_choice, Tool):
        only_tool = request.tool_choice.name
    else:
        tool_choice = request.tool_choice
    return Conversation(
        messages=talk,
        tools=request.tools,
        tool_choice=tool_choice,
        only_tool=only_tool,
        parallel_tool_calls=request.parallel_tool_calls,
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        stop=request.stop,
        seed=request.seed,
        sampling=request.sampling,
        echo=request.echo,
        ignored=request.ignored,
        origin=_hash(talk),
    )


def _turns(talk: Sequence[Message]) -> list[PastTurn]:
    """Return the texts of the user, each with all that came after it until the next."""
    turns = [(list[str](), list[str]())]
    for message in talk:
        questions, answers = turns[-1]
        if message.role != "user":
            answers += _texts_of_reply(message)
        elif any(answers):
            turns.append(([message.content], []))
        else:
            questions.append(message.content)
    # They are joined once: ten thousand texts in a row would be copied for each of them.
    return [PastTurn(question=_joined(asking), answer=_joined(reply)) for asking, reply in turns]


def _texts_of_reply(message: Message) -> list[str]:
    """Return what a reply, or a tool, says to readers who are not sent the conversation itself."""
    if message.role == "tool":
        return [fence("result", shorten(message.content, MAX_QUOTED_RESULT))]
    texts = [message.content]
    for call in message.tool_calls:
        arguments = shorten(call.arguments, MAX_QUOTED_RESULT)
        texts.append(f"Called the tool {call.name}: {arguments}")
    return texts


def _joined(texts: Sequence[str]) -> str:
    return "\n\n".join(filter(None, texts))


# Going on


def _newest_calls(
    talk: Sequence[Message], workers: Collection[str], ids: CallIds
) -> tuple[SignedCall | None, int]:
    """Return what the conversation's newest signed calls say, and the place of their turn.

    Where they come from several runs, the newest one counts. Other calls that came later say that
    another server, or a client by itself, went on: then nobody is known to have asked.
    """
    for index in range(len(talk) - 1, -1, -1):
        if not talk[index].tool_calls:
            continue
        newest: SignedCall | None = None
        for call in talk[index].tool_calls:
            signed = ids.read(call.id, workers)
            if signed is not None and (newest is None or signed.run > newest.run):
                newest = signed
        return newest, index
    return None, -1


def _with_workers_ids(
    record: StepRecord, turn: Message, messages: Sequence[Message]
) -> tuple[Message, ...]:
    """Return the messages with the worker's own ids in the results of the calls of this turn."""
    workers_ids = dict[str, str]()
    for call, workers_call in zip(turn.tool_calls, record.tool_calls, strict=True):
        workers_ids[call.id] = workers_call.id
    renamed = list[Message]()
    for message in messages:
        if message.role == "tool":
            renamed.append(replace(message, tool_call_id=workers_ids[message.tool_call_id]))
        else:
            renamed.append(message)
    return tuple(renamed)


_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def _hash(messages: Sequence[Message]) -> str:
    """Return the hash of what messages say.

    The ids of calls, which differ between a client and a worker, are no part of it.
    """
    contents = [_content_of(message) for message in messages]
    text = encode_json(contents, _ENCODER)
    return hashlib.sha256(text.encode()).hexdigest()


def _content_of(message: Message) -> list[object]:
    return [
        message.role,
        message.content.strip(),
        [attachment.sha256 for attachment in message.attachments],
        message.is_error,
        [[call.name, _normal_arguments(call)] for call in message.tool_calls],
    ]


def _normal_arguments(call: ToolCall) -> str:
    """Return arguments in one form: clients write the same ones in their own."""
    try:
        return json.dumps(parse_arguments(call), sort_keys=True)
    except (ValueError, RecursionError):
        return call.arguments
