"""What is run for a conversation, without what a client's program adds.

A new question, or the worker goes on.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.config.files import AppPaths
from conductor_cli.core.chat import (
    Attachment,
    Chunk,
    MediaKind,
    Message,
    Tool,
    ToolCall,
    ToolCallDelta,
)
from conductor_cli.core.plan import SELF
from conductor_cli.core.question import Conversation, File, Question
from conductor_cli.core.terminal_text import MAX_SEARCHED_CHARACTERS
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import Usage
from conductor_cli.models.base import ScriptedModel
from conductor_cli.server.api.request import ClientRequest, RequestError
from conductor_cli.server.runs.conversation import (
    CallIds,
    ParsedRequest,
    SignedCall,
    client_calls,
    read_conversation,
    without_context,
)
from conductor_cli.state.opening import FileState
from tests.run.kit import plan_of, play, says, setting, with_team

IDS = CallIds(b"k" * 32)
EDIT = Tool(name="edit", parameters={"type": "object"})
SIGNED = {"signature": "abc"}
WORKERS = ("ann", "bob")
SCREEN = Attachment(name="screen.png", media_type="image/png", sha256="0" * 64, size=9)
ASK = Message(role="user", content="Rename it.")


def call(index: int, provider_id: str, arguments: str = '{"file": "a.py"}') -> Chunk:
    return Chunk(
        tool_call=ToolCallDelta(index=index, id=provider_id, name="edit", arguments=arguments)
    )


def ends(**provider_fields: Any) -> Chunk:
    return Chunk(
        usage=Usage(tokens_in=9, tokens_out=4, calls=1),
        finish="tool",
        provider_data=provider_fields or SIGNED,
    )


TWO_CALLS: list[Any] = ["I edit.", call(0, "e1"), call(1, "e2", '{"file":"b.py"}'), ends()]


class Orchestra:
    """Ann finds, Bob answers; the traces of their runs are kept."""

    def __init__(self, *bobs: list[Any], plan: str = "A | | find it\nB | 1 | rename it\n") -> None:
        self.bob = ScriptedModel(list(bobs))
        self.orchestra = setting(plan, {"ann": says("it is in a.py"), "bob": self.bob})
        self.traces: dict[str, Trace] = {}
        self._plan = plan

    def plan_again(self) -> None:
        self.orchestra = with_team(self.orchestra, model=ScriptedModel([self._plan]))

    def read_request(
        self,
        *messages: Message,
        workers: tuple[str, ...] = WORKERS,
        sees: tuple[str, ...] = (),
        **how: Any,
    ) -> ParsedRequest:
        request = ClientRequest(model="conductor", messages=messages, tools=(EDIT,), **how)
        files = {}
        for attachment in chain.from_iterable(message.attachments for message in messages):
            file = File(name=attachment.name, text="", attachment=attachment)
            files[attachment.sha256] = file
        images: tuple[MediaKind, ...] = ("image",)
        accepted = {name: images if name in sees else () for name in workers}
        return read_conversation(request, files, accepted, self.traces.get, IDS)

    def conversation(self, *messages: Message, **how: Any) -> Conversation:
        talk = self.read_request(*messages, **how).question.conversation
        assert talk is not None
        return talk

    def answer(self, *messages: Message, **how: Any) -> tuple[Trace, Message]:
        request = self.read_request(*messages, **how)
        run, _ = play(self.orchestra, request.question, plan=request.plan)
        self.traces[run.id] = run.trace
        trace = run.trace
        return trace, Message(
            role="assistant", content=trace.answer, tool_calls=client_calls(trace, IDS)
        )


def begun(*bobs: list[Any], **how: Any) -> tuple[Orchestra, Message]:
    """An orchestra whose Bob has asked for tools, and what the client was told."""
    orchestra = Orchestra(*bobs, **how)
    return orchestra, orchestra.answer(ASK)[1]


def results(reply: Message, *texts: str) -> list[Message]:
    answered = zip(reply.tool_calls, texts, strict=True)
    return [
        Message(role="tool", content=text, tool_call_id=tool_call.id)
        for tool_call, text in answered
    ]


def test_a_question_is_planned_with_the_conversation_word_for_word() -> None:
    talk = (
        ASK,
        Message(role="assistant", content="Done."),
        Message(role="user", content="Now test it."),
    )
    request = Orchestra().read_request(
        Message(role="system", content="Be brief."), *talk, max_tokens=7, stop=("END",)
    )
    question = request.question
    assert request.plan is None
    assert (question.text, question.system) == ("Now test it.", "Be brief.")
    assert [(turn.question, turn.answer) for turn in question.history] == [("Rename it.", "Done.")]
    assert question.conversation is not None
    assert (question.conversation.messages, question.conversation.max_tokens) == (talk, 7)


def test_the_worker_that_asked_goes_on_with_its_own_ids_and_data() -> None:
    orchestra, reply = begun(TWO_CALLS, [call(0, "e1"), ends(signature="def")], ["Done."])
    assert [call.id for call in reply.tool_calls] != ["e1", "e2"]
    first = (ASK, reply, *reversed(results(reply, "one", "two")))
    middle, again = orchestra.answer(*first)
    trace, last = orchestra.answer(*first, again, *results(again, "three"))
    assert (trace.answer, trace.question.text[:10]) == ("Done.", "Rename it.")
    assert trace.question.parent == middle.run
    sent = [request.messages for request in orchestra.bob.requests]
    assert sent[1][: len(sent[0])] == sent[0]
    assert sent[2][: len(sent[1])] == sent[1]
    assert [
        (message.role, message.content, message.tool_call_id) for message in sent[1][len(sent[0]) :]
    ] == [
        ("assistant", "I edit.", ""),
        ("tool", "one", "e1"),
        ("tool", "two", "e2"),
    ]
    assert sent[1][len(sent[0])].provider_data == SIGNED
    assert sent[2][len(sent[1])].provider_data == {"signature": "def"}
    planner: Any = orchestra.orchestra.team.model
    assert len(planner.requests) == 1
    assert last.tool_calls == ()


def test_the_same_worker_is_asked_the_next_question_with_its_own_ids_and_data() -> None:
    orchestra, reply = begun(TWO_CALLS, ["Done."], ["Tested."], plan="B | | rename it\n")
    first = (ASK, reply, *results(reply, "one", "two"))
    _, done = orchestra.answer(*first)
    follow_up = Message(role="user", content="Test it.")
    orchestra.plan_again()
    question = orchestra.read_request(*first, done, follow_up).question
    trace, _ = orchestra.answer(*first, done, follow_up)
    sent = [request.messages for request in orchestra.bob.requests]
    assert trace.answer == "Tested."
    assert sent[2] == (*sent[1], done, follow_up)
    assert sent[2][1].provider_data == SIGNED
    assert [message.tool_call_id for message in sent[2][2:4]] == ["e1", "e2"]
    assert question.conversation is not None
    assert question.conversation.as_sent_to("ann") == (*first, done, follow_up)


def test_narration_that_comes_back_is_taken_out() -> None:
    message = "<think>\nstep 1 planned\n</think>\n\n<think>hm</think>Done. <think> is a tag."
    narrated = [
        Message(role="assistant", content=text)
        for text in (message, "<think>step 1 failed</think>")
    ]
    now = Message(role="user", content="Now test it.")
    talk = Orchestra().conversation(ASK, *narrated, now)
    assert talk.messages == (ASK, Message(role="assistant", content="Done. <think> is a tag."), now)


def test_a_schema_is_told_once_for_each_question() -> None:
    """However often the worker goes on with results of tools."""
    orchestra = Orchestra(TWO_CALLS, TWO_CALLS, TWO_CALLS)
    talk = [ASK]
    for _ in range(3):
        _, reply = orchestra.answer(*talk, schema={"type": "integer"})
        talk += [reply, *results(reply, "ok", "ok")]
    contents = [
        message.content
        for message in orchestra.bob.requests[-1].messages
        if "JSON" in message.content
    ]
    assert len(contents) == 1


def test_a_history_that_the_client_changed_is_sent_as_it_is_now() -> None:
    orchestra, reply = begun(TWO_CALLS, ["Done."], plan="B | | rename it\n")
    first = (ASK, reply, *results(reply, "one", "two"))
    _, done = orchestra.answer(*first)
    talk = (
        replace(ASK, content="Rename it to b."),
        *first[1:],
        done,
        Message(role="user", content="Test it."),
    )
    conversation = orchestra.conversation(*talk)
    assert conversation.as_sent_to("bob") == talk


def test_what_the_client_changed_wins_over_the_trace() -> None:
    orchestra, reply = begun(TWO_CALLS, ["Done."])
    edited = replace(ASK, content="Rename it to b.")
    talk = (edited, reply, *results(reply, "one", "two"))
    request = orchestra.read_request(*talk)
    assert request.plan is not None
    assert request.plan.steps[0].worker == "bob"
    assert request.question.conversation is not None
    assert request.question.conversation.messages == talk


def test_without_the_trace_the_same_worker_goes_on_with_the_clients_messages() -> None:
    orchestra, reply = begun(TWO_CALLS)
    orchestra.traces.clear()
    request = orchestra.read_request(ASK, reply, *results(reply, "one", "two"))
    assert request.plan is not None
    assert [step.worker for step in request.plan.steps] == ["bob"]


def test_a_text_beside_the_results_goes_along() -> None:
    orchestra, reply = begun(TWO_CALLS)
    first, second = results(reply, "one", "two")
    hurry = Message(role="user", content="Hurry.")
    conversation = orchestra.conversation(ASK, reply, first, hurry, second)
    assert [message.content for message in conversation.messages[-3:]] == ["one", "two", "Hurry."]


def test_a_missing_result_is_an_error_that_names_the_call() -> None:
    orchestra, reply = begun(TWO_CALLS)
    with pytest.raises(RequestError, match=reply.tool_calls[1].id) as caught:
        orchestra.read_request(ASK, reply, results(reply, "one", "two")[0])
    assert (caught.value.status, caught.value.param) == (400, "messages")


def test_two_results_of_one_call_are_an_error_that_names_it() -> None:
    """One of them would reach the worker as that of a call that is not shown."""
    orchestra, reply = begun(TWO_CALLS)
    first, second = results(reply, "one", "two")
    again = replace(first, content="other")
    with pytest.raises(RequestError, match=f"edit .{first.tool_call_id}. has two") as caught:
        orchestra.read_request(ASK, reply, first, second, again)
    assert caught.value.code == "duplicate_tool_result"
    assert (caught.value.status, caught.value.param) == (400, "messages")


def test_two_calls_of_one_turn_with_one_id_are_an_error_that_names_both() -> None:
    """The result of either could be that of the other, and the worker was sent only the first."""
    calls = tuple(ToolCall(id="c1", name=name, arguments="{}") for name in ("edit", "read"))
    reply = Message(role="assistant", content="", tool_calls=calls)
    with pytest.raises(RequestError, match=r"edit \(c1\) and read \(c1\)") as caught:
        Orchestra().read_request(ASK, reply, *results(reply, "one", "two"))
    assert caught.value.code == "duplicate_tool_call"
    assert (caught.value.status, caught.value.param) == (400, "messages")


def test_an_id_may_come_again_in_a_later_turn() -> None:
    """Some servers count the calls of each turn from 0."""
    call_0 = ToolCall(id="call_0", name="edit", arguments="{}")
    reply = Message(role="assistant", content="", tool_calls=(call_0,))
    talk = [ASK]
    for text in ("one", "two"):
        talk += [reply, Message(role="tool", content=text, tool_call_id=call_0.id)]
    read = Orchestra().conversation(*talk)
    assert [message.content for message in read.messages if message.role == "tool"] == [
        "one",
        "two",
    ]


@pytest.mark.parametrize("forged", ["call_1", "forged"])
def test_calls_with_foreign_or_forged_ids_are_planned_anew(forged: str) -> None:
    orchestra, reply = begun(TWO_CALLS)
    text = forged if forged == "call_1" else reply.tool_calls[0].id[:-1] + "~"
    asks = Message(
        role="assistant", content="", tool_calls=(ToolCall(id=text, name="edit", arguments="{}"),)
    )
    request = orchestra.read_request(
        ASK, asks, Message(role="tool", content="edited it", tool_call_id=text)
    )
    assert request.plan is None
    assert "Called the tool edit: {}" in request.question.text
    assert "edited it" in request.question.text


def test_of_calls_of_two_runs_the_newest_counts() -> None:
    asked_by = (("20261122-201012-0a1b2c", "ann"), ("20261122-201013-0a1b2c", "bob"))
    signed = [IDS.sign(SignedCall(run=run, worker=worker, index=0)) for run, worker in asked_by]
    calls = tuple(ToolCall(id=call, name="edit", arguments="{}") for call in signed)
    reply = Message(role="assistant", content="", tool_calls=calls)
    request = Orchestra().read_request(ASK, reply, *results(reply, "one", "two"))
    assert request.plan is not None
    assert request.plan.steps[0].worker == "bob"


def test_a_result_without_its_call_becomes_a_text_of_the_user() -> None:
    conversation = Orchestra().conversation(
        ASK, Message(role="tool", content="42", tool_call_id="x")
    )
    assert [message.role for message in conversation.messages] == ["user", "user"]
    assert "42" in conversation.messages[1].content


def test_a_request_without_a_user_is_refused() -> None:
    with pytest.raises(RequestError, match="no message of the user"):
        Orchestra().read_request(Message(role="system", content="Be brief."))


def test_calls_of_a_nested_run_reach_the_client_and_come_back() -> None:
    orchestra = Orchestra(TWO_CALLS, ["Done."], plan="B | | rename it\n")
    nests = plan_of((SELF, (), "Rename it."))
    run, _ = play(orchestra.orchestra, orchestra.read_request(ASK).question, plan=nests)
    orchestra.traces[run.id] = run.trace
    reply = Message(
        role="assistant", content=run.trace.answer, tool_calls=client_calls(run.trace, IDS)
    )
    assert [call.name for call in reply.tool_calls] == ["edit", "edit"]
    trace, _ = orchestra.answer(ASK, reply, *results(reply, "one", "two"))
    assert trace.answer == "Done."
    assert orchestra.bob.requests[1].messages[-1].tool_call_id == "e2"
    assert orchestra.bob.requests[1].messages[-3].provider_data == SIGNED


def test_json_mode_asks_for_an_object() -> None:
    assert Orchestra().read_request(ASK, json_only=True).question.schema == {"type": "object"}


def test_an_image_of_a_tool_that_nobody_can_see_is_left_out_with_a_note() -> None:
    orchestra, reply = begun(TWO_CALLS, ["Done."])
    first, second = results(reply, "one", "two")
    talk = (ASK, reply, replace(first, attachments=(SCREEN,)), second)
    for turns in (
        (),
        (Message(role="assistant", content="Done."), Message(role="user", content="Test it.")),
    ):
        question = orchestra.read_request(*talk, *turns).question
        assert question.files == ()
        assert question.conversation is not None
        messages = question.conversation.messages
        assert not any(message.attachments for message in messages)
        assert "\n(Left out, because it cannot be seen here: PNG image" in messages[2].content
    # The worker that asked is sent it if it can see it.
    for sees, files in (("bob",), 1), (("ann",), 0):
        assert len(orchestra.read_request(*talk, sees=sees).question.files) == files


def test_an_image_that_the_user_attaches_now_is_never_left_out() -> None:
    shown = replace(ASK, attachments=(SCREEN,))
    assert len(Orchestra(TWO_CALLS).read_request(shown).question.files) == 1
    talk = (
        shown,
        Message(role="assistant", content="I cannot."),
        Message(role="user", content="Then guess."),
    )
    assert Orchestra(TWO_CALLS).read_request(*talk).question.files == ()
    assert len(Orchestra(TWO_CALLS).read_request(*talk, sees=("ann",)).question.files) == 1


CALL = SignedCall(
    run="20261122-201012-0a1b2c",
    worker="a worker with a rather long name / of any form: ü",
    index=63,
)


def test_an_id_says_which_worker_of_which_run_asked() -> None:
    text = IDS.sign(CALL)
    assert IDS.read(text, ("other", CALL.worker)) == CALL
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", text)


def test_a_changed_or_foreign_id_is_unknown() -> None:
    """So is a foreign one, and one of another secret or of a removed worker."""
    text = IDS.sign(CALL)
    changed = [
        text[:at] + ("1" if text[at] != "1" else "2") + text[at + 1 :] for at in range(5, 54)
    ]
    for foreign in (
        *changed,
        "",
        "call_1",
        "toolu_01A09q90qw90lq917835lq9",
        "call_" + "_" * 59,
        "ü" * 70,
        "\x00",
    ):
        assert IDS.read(foreign, (CALL.worker,)) is None, foreign
    assert CallIds(b"x" * 32).read(text, (CALL.worker,)) is None
    assert IDS.read(text, ("other",)) is None


def test_the_secret_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    state = FileState(AppPaths(config=tmp_path, state=tmp_path, data=tmp_path, cache=tmp_path))
    secret = state.secret()
    (path,) = (tmp_path / "serve").glob("call-*")
    assert (len(secret), state.secret(), path.stat().st_mode & 0o777) == (32, secret, 0o600)
    path.write_bytes(b"short")
    assert state.secret() not in (secret, b"short")


CODEX = """<environment_context>
  <cwd>/home/ann/repo</cwd>
  <shell>bash</shell>
  <current_date>2026-11-22</current_date>
</environment_context>"""
CODEX_PROJECT = (
    "# AGENTS.md instructions for /home/ann/repo\n\n<INSTRUCTIONS>\nUse tabs.\n</INSTRUCTIONS>"
)
CLAUDE = """<system-reminder>
As you answer the user's questions, you can use the following context:
# currentDate
Today's date is 2026-11-22.

      IMPORTANT: this context may or may not be relevant to your tasks.
</system-reminder>"""
CLAUDE_LATE = (
    "<system-d3f8112f>\nAvailable agent types for the Agent tool:\n- Explore: Search\n"
    "</system-d3f8112f>"
)
CLAUDE_COMMAND = """<local-command-caveat>Caveat: The messages below are of local \
commands.</local-command-caveat>


<command-name>/compact</command-name>
            <command-message>compact</command-message>
            <command-args></command-args>


<local-command-stdout>Not enough messages to compact.</local-command-stdout>"""
AIDER_WHOLE = """To suggest changes to a file you MUST return the entire content of the updated \
file.
You MUST use this *file listing* format:

path/to/filename.js"""
AIDER_DIFF = (
    "# *SEARCH/REPLACE block* Rules:\n\nEvery *SEARCH/REPLACE block* must use this "
    "format:\n1. The path"
)


def user(*texts: str) -> tuple[Message, ...]:
    return tuple(Message(role="user", content=text) for text in texts)


SWITCH = (
    "I switched to a new code base. Please don't consider the above files or try to edit "
    "them "
    "any longer."
)
AIDER_EXAMPLE = (
    *user("Change the greeting to be more casual"),
    Message(role="assistant", content="Ok, I will: ..."),
    *user(SWITCH),
    Message(role="assistant", content="Ok."),
)


def split_context(*talk: Message) -> tuple[list[str], int]:
    messages, context = without_context(talk)
    return [message.content for message in messages if message.role == "user"], sum(
        map(len, context)
    )


def question_of(talk: tuple[Message, ...]) -> Question:
    request = ClientRequest(model="conductor", messages=talk)
    return read_conversation(request, {}, {}, lambda _: None, CallIds(b"k" * 32)).question


@pytest.mark.parametrize(
    ("talk", "left"),
    [
        (user(CODEX, "Fix it."), "Fix it."),
        (user(CODEX_PROJECT, CODEX, "Fix it."), "Fix it."),
        (
            user(f"<user_instructions>\nUse tabs.\n</user_instructions>\n\n{CODEX}", "Fix it."),
            "Fix it.",
        ),
        (user(f"{CLAUDE}\n\n\n\nFix it.", CLAUDE_LATE), "Fix it."),
        (user(f"{CLAUDE}\nFix it.\n\nAlso this.\n{CLAUDE}"), "Fix it.\n\nAlso this."),
        (user(f"{CLAUDE_COMMAND}\n\n\nFix it."), "Fix it."),
        (user(f"Fix it.\n\n{AIDER_WHOLE}"), "Fix it."),
        (user(f"Fix it.\n\n{AIDER_DIFF}"), "Fix it."),
    ],
)
def test_the_context_of_known_clients_is_told_from_the_question(
    talk: tuple[Message, ...], left: str
) -> None:
    texts, length = split_context(*talk)
    assert "\n".join(filter(None, texts)) == left
    assert length > 40


@pytest.mark.parametrize(
    "text",
    [
        "What does <system-reminder> mean in a prompt?",
        "Explain this:\n<system-reminder>\nIt is never closed.",
        "Explain this:\n<my_context>\nBe brief.\n</my_context>",
        "  Keep my spaces, please.  ",
        "Why does aider write # *SEARCH/REPLACE block* Rules: there?",
    ],
)
def test_other_texts_are_left_as_they_are(text: str) -> None:
    assert split_context(*user(text)) == ([text], 0)


@pytest.mark.parametrize("length", [MAX_SEARCHED_CHARACTERS - 9, 3 * MAX_SEARCHED_CHARACTERS])
def test_context_is_found_behind_a_long_text(length: int) -> None:
    """It is looked for in pieces, between which other threads go on."""
    question = "x" * length
    assert split_context(*user(f"{question}\n{CLAUDE}")) == ([question], len(CLAUDE))


def test_a_conversation_of_nothing_but_context_is_what_is_asked() -> None:
    assert split_context(*user(CODEX)) == ([CODEX], 0)
    talk = (*user("Fix it."), Message(role="assistant", content="Done."), *user(CLAUDE_LATE))
    assert split_context(*talk) == (["Fix it.", CLAUDE_LATE], 0)


@pytest.mark.parametrize("late", [(), user(CLAUDE_LATE)], ids=["results", "and context"])
def test_a_conversation_that_goes_on_with_results_asks_what_the_user_wrote(
    late: tuple[Message, ...],
) -> None:
    """Else each call of a tool would be listed as a run about the client's own texts."""
    call = ToolCall(id="theirs", name="shell", arguments="{}")
    turn = Message(role="assistant", content="I look.", tool_calls=(call,))
    result = Message(role="tool", content="a.py", tool_call_id="theirs")
    asked = (*user(CLAUDE, "Fix it."), turn, result, *late)
    question = question_of(asked)
    assert question.text.startswith("Fix it.\n\nI look.\n\nCalled the tool shell: {}")
    assert question.history == ()
    assert question.context == (CLAUDE, *(message.content for message in late))
    assert question.conversation is not None
    assert question.conversation.messages == asked
    done = (Message(role="assistant", content="Done."), *user("And now?"))
    after = question_of((*asked, *done))
    assert (after.text, [turn.question for turn in after.history]) == ("And now?", ["Fix it."])


def test_the_examples_of_aider_are_no_earlier_turns() -> None:
    question = question_of((*AIDER_EXAMPLE, *user(f"Fix it.\n\n{AIDER_WHOLE}")))
    assert (question.text, question.history) == ("Fix it.", ())


def test_the_planner_reads_the_question_and_workers_read_the_context() -> None:
    talk = user(f"{CLAUDE}\n\nFix it.", CLAUDE_LATE)
    question = question_of(talk)
    assert (question.text, question.context) == ("Fix it.", (CLAUDE, CLAUDE_LATE))
    orchestra = setting(
        "A | | look\nB | 1 | fix it\n", {"ann": says("found"), "bob": says("fixed")}
    )
    run, _ = play(orchestra, question)
    (planned,) = orchestra.team.model.requests  # type: ignore[union-attr]
    prompt = planned.messages[-1].content
    assert "currentDate" not in prompt
    assert f"adds {len(CLAUDE) + len(CLAUDE_LATE)} characters" in prompt
    first, last = (step.prompt for step in run.trace.steps)
    assert CLAUDE in first[-1].content
    assert CLAUDE_LATE in first[-1].content
    assert last[0] == talk[0]
    assert last[1].content.startswith(CLAUDE_LATE)
    assert run.trace.plan == plan_of(("ann", (), "look"), ("bob", (1,), "fix it"))


@pytest.mark.parametrize(
    "opened",
    [["<system-reminder>\n"] * 1000, [f"<system-{number:08x}>\n" for number in range(1000)]],
)
def test_openings_that_never_end_are_searched_for_a_few_times(opened: list[str]) -> None:
    """Else a text of a hundred thousand would be read as often."""

    class Watched(str):
        __slots__ = ()
        searched = 0

        def find(self, *arguments: Any) -> int:
            Watched.searched += 1
            return super().find(*arguments)

    text = Watched("".join(opened) + "Why?")
    assert without_context([Message(role="user", content=text)])[1] == ()
    assert 0 < Watched.searched <= 20
