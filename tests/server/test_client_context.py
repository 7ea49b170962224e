"""What a user asked is told from what the client's program adds, in the forms that real clients send."""

from __future__ import annotations

from typing import Any

import pytest

from conductor_cli.core.chat import Message
from conductor_cli.core.question import Question
from conductor_cli.server.api.request import ClientRequest
from conductor_cli.server.conversation import CallIds, read_conversation, without_context
from tests.run.kit import plan_of, play, says, setting

CODEX = """<environment_context>
  <cwd>/home/ann/repo</cwd>
  <shell>bash</shell>
  <current_date>2026-11-22</current_date>
</environment_context>"""
CODEX_PROJECT = "# AGENTS.md instructions for /home/ann/repo\n\n<INSTRUCTIONS>\nUse tabs.\n</INSTRUCTIONS>"
CLAUDE = """<system-reminder>
As you answer the user's questions, you can use the following context:
# currentDate
Today's date is 2026-11-22.

      IMPORTANT: this context may or may not be relevant to your tasks.
</system-reminder>"""
CLAUDE_LATE = "<system-d3f8112f>\nAvailable agent types for the Agent tool:\n- Explore: Search\n</system-d3f8112f>"
CLAUDE_COMMAND = """<local-command-caveat>Caveat: The messages below are of local commands.</local-command-caveat>


<command-name>/compact</command-name>
            <command-message>compact</command-message>
            <command-args></command-args>


<local-command-stdout>Not enough messages to compact.</local-command-stdout>"""
AIDER_WHOLE = """To suggest changes to a file you MUST return the entire content of the updated file.
You MUST use this *file listing* format:

path/to/filename.js"""
AIDER_DIFF = "# *SEARCH/REPLACE block* Rules:\n\nEvery *SEARCH/REPLACE block* must use this format:\n1. The path"


def user(*texts: str) -> tuple[Message, ...]:
    return tuple(Message(role="user", content=text) for text in texts)


SWITCH = "I switched to a new code base. Please don't consider the above files or try to edit them any longer."
AIDER_EXAMPLE = (
    *user("Change the greeting to be more casual"), Message(role="assistant", content="Ok, I will: ..."),
    *user(SWITCH), Message(role="assistant", content="Ok."),
)  # fmt: skip


def asked(*talk: Message) -> tuple[list[str], int]:
    told, context = without_context(talk)
    return [each.content for each in told if each.role == "user"], sum(map(len, context))


def question_of(talk: tuple[Message, ...]) -> Question:
    request = ClientRequest(model="conductor", messages=talk)
    return read_conversation(request, {}, {}, lambda _: None, CallIds(b"k" * 32)).question


@pytest.mark.parametrize(("talk", "left"), [
    (user(CODEX, "Fix it."), "Fix it."),
    (user(CODEX_PROJECT, CODEX, "Fix it."), "Fix it."),
    (user(f"<user_instructions>\nUse tabs.\n</user_instructions>\n\n{CODEX}", "Fix it."), "Fix it."),
    (user(f"{CLAUDE}\n\n\n\nFix it.", CLAUDE_LATE), "Fix it."),
    (user(f"{CLAUDE}\nFix it.\n\nAlso this.\n{CLAUDE}"), "Fix it.\n\nAlso this."),
    (user(f"{CLAUDE_COMMAND}\n\n\nFix it."), "Fix it."),
    (user(f"Fix it.\n\n{AIDER_WHOLE}"), "Fix it."),
    (user(f"Fix it.\n\n{AIDER_DIFF}"), "Fix it."),
])  # fmt: skip
def test_the_context_of_known_clients_is_told_from_the_question(talk: tuple[Message, ...], left: str) -> None:
    texts, length = asked(*talk)
    assert "\n".join(filter(None, texts)) == left
    assert length > 40


@pytest.mark.parametrize("text", [
    "What does <system-reminder> mean in a prompt?",
    "Explain this:\n<system-reminder>\nIt is never closed.",
    "Explain this:\n<my_context>\nBe brief.\n</my_context>",
    "  Keep my spaces, please.  ",
    "Why does aider write # *SEARCH/REPLACE block* Rules: there?",
])  # fmt: skip
def test_other_texts_are_left_as_they_are(text: str) -> None:
    assert asked(*user(text)) == ([text], 0)


def test_a_conversation_of_nothing_but_context_is_what_is_asked() -> None:
    assert asked(*user(CODEX)) == ([CODEX], 0)
    talk = (*user("Fix it."), Message(role="assistant", content="Done."), *user(CLAUDE_LATE))
    assert asked(*talk) == (["Fix it.", CLAUDE_LATE], 0)


def test_the_examples_of_aider_are_no_earlier_turns() -> None:
    question = question_of((*AIDER_EXAMPLE, *user(f"Fix it.\n\n{AIDER_WHOLE}")))
    assert (question.text, question.history) == ("Fix it.", ())


def test_the_planner_reads_the_question_and_workers_read_the_context() -> None:
    talk = user(f"{CLAUDE}\n\nFix it.", CLAUDE_LATE)
    question = question_of(talk)
    assert (question.text, question.context) == ("Fix it.", (CLAUDE, CLAUDE_LATE))
    conductor = setting("A | | look\nB | 1 | fix it\n", {"ann": says("found"), "bob": says("fixed")})
    run, _ = play(conductor, question)
    (planned,) = conductor.model.requests  # type: ignore[union-attr]
    told = planned.messages[-1].content
    assert "currentDate" not in told
    assert f"adds {len(CLAUDE) + len(CLAUDE_LATE)} characters" in told
    first, last = (step.prompt for step in run.trace.steps)
    assert CLAUDE in first[-1].content
    assert CLAUDE_LATE in first[-1].content
    assert last[0] == talk[0]
    assert last[1].content.startswith(CLAUDE_LATE)
    assert run.trace.plan == plan_of(("ann", (), "look"), ("bob", (1,), "fix it"))


@pytest.mark.parametrize(
    "opened", [["<system-reminder>\n"] * 1000, [f"<system-{number:08x}>\n" for number in range(1000)]]
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
