"""`conductor chat` without a terminal in between: lines, commands, what stays open and what goes along."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from conductor_cli.app.loaded_models import LoadedModels
from conductor_cli.cli.options import GlobalOptions, Progress, RunOptions
from conductor_cli.cli.repl import prompt as prompt_module
from conductor_cli.cli.repl.chat_session import ChatSession
from conductor_cli.cli.repl.commands import find_command, run_command
from conductor_cli.cli.repl.completer import SlashCompleter
from conductor_cli.cli.repl.history import LARGEST, LONGEST, open_history
from conductor_cli.cli.repl.prompt import ChatEnded, Prompt, PromptStatus
from conductor_cli.core.errors import UsageError
from conductor_cli.core.pool import Card, Worker
from conductor_cli.models.catalog import no_stored_key
from conductor_cli.models.known_secrets import KNOWN_SECRETS
from tests.cli.stage import ONE, TWO, Stage, explained, refuses, says


def in_chat(work: Callable[[ChatSession], Awaitable[None]], **how: Any) -> ChatSession:
    """A chat with an open conductor, after `work` was done in it."""
    own = {name: how.pop(name) for name in ("only", "system") if name in how}
    chat = ChatSession(GlobalOptions(), RunOptions(progress=Progress.none, **how), **own)

    async def all_of_it() -> None:
        chat.begin()
        try:
            await work(chat)
        finally:
            await chat.close()

    asyncio.run(all_of_it())
    return chat


async def entered(chat: ChatSession, line: str) -> str | None:
    found = find_command(line)
    assert found is not None
    return await run_command(chat, *found)


# Lines


@pytest.mark.parametrize("line", ["What is it?", "/etc/hosts: what is it?", " /help", "1/2"])
def test_a_line_that_names_no_command_is_a_question(line: str) -> None:
    """A path or a space before the slash makes no command."""
    assert find_command(line) is None


def test_a_command_is_separated_from_its_arguments() -> None:
    """The name ends at the first space."""
    found = find_command("/redo 3  claude ")
    assert found is not None
    assert (found[0].name, found[1]) == ("redo", "3  claude")


@pytest.mark.parametrize(("line", "hint"), [("/hepl", "did you mean /help?"), ("/zzz", "put a space first")])
def test_an_unknown_command_says_what_may_be_meant(line: str, hint: str) -> None:
    """A typing error is not asked of a model."""
    with pytest.raises(UsageError) as caught:
        find_command(line)
    assert hint in caught.value.hint


# The conversation


def test_the_conductor_and_the_workers_are_given_the_conversation(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second question goes with the first and its answer, to the model that plans and to the worker."""

    async def work(chat: ChatSession) -> None:
        await chat.ask("Why is the sky blue?")
        await chat.ask("And at night?")

    chat = in_chat(work)
    for model in ("planner", "alpha"):
        sent = stage.asked(model)[-1].body.decode()
        assert "Why is the sky blue?" in sent
        assert "alpha answers" in sent
    assert [trace.question.parent for trace in chat.turns] == [None, chat.turns[0].run]
    assert capsys.readouterr().out == "alpha answers\nalpha answers\n"


def test_what_was_taken_back_goes_along_no_more(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """After /undo the next question knows nothing of the last one."""

    async def work(chat: ChatSession) -> None:
        await chat.ask("Why is the sky blue?")
        await entered(chat, "/undo")
        await chat.ask("And at night?")
        await entered(chat, "/undo")
        await entered(chat, "/undo")

    in_chat(work)
    assert "sky" not in stage.asked("planner")[-1].body.decode()
    said = capsys.readouterr().err
    assert "removed: Why is the sky blue?" in said
    assert "there is nothing to undo" in said


def test_a_long_conversation_loses_its_first_turns_and_says_so(stage: Stage) -> None:
    """Beyond `chat.context` tokens the oldest turns are no longer sent, with a notice in the trace."""
    stage.configure("[chat]\ncontext = 256")
    stage.models["alpha"] = says("word " * 120)

    async def work(chat: ChatSession) -> None:
        for number in range(3):
            await chat.ask(f"Question {number}?")

    chat = in_chat(work)
    assert [turn.question for turn in chat.runs[-1].question.history] == ["Question 1?"]
    assert any("its first 1 turn are no longer sent" in notice.text for notice in chat.runs[-1].notices)


def test_a_file_goes_with_the_next_question_and_those_after_it(stage: Stage, tmp_path: Path) -> None:
    """A file whose name holds a space is attached; a run without an answer does not lose it."""
    file = tmp_path / "my notes.txt"
    file.write_text("The key is under the mat.")
    stage.models["alpha"] = refuses(400)
    stage.models["beta"] = refuses(400)

    async def work(chat: ChatSession) -> None:
        await entered(chat, f"/file {file}")
        await chat.ask("Where?")
        stage.models.clear()
        await chat.ask("Where is it?")
        await chat.ask("Sure?")

    chat = in_chat(work)
    assert [len(run.question.files) for run in chat.runs] == [1, 1, 1]
    assert chat.files == []


def test_a_conversation_is_saved_once(stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """/save writes Markdown and never over a file that is there."""
    target = tmp_path / "talk.md"

    async def work(chat: ChatSession) -> None:
        await entered(chat, f"/save {target}")
        await chat.ask("Why?")
        await entered(chat, f"/save {target}")
        await entered(chat, f"/save {target}")

    in_chat(work)
    assert "## Question 1\n\nWhy?\n\n## Answer 1\n\nalpha answers" in target.read_text()
    said = capsys.readouterr().err
    assert "there is nothing to save yet" in said
    assert "exists already" in said


# Settings


def test_other_settings_leave_the_models_open(stage: Stage) -> None:
    """A change of mode or workers makes another conductor of the same models; `all` takes the choice back."""

    async def work(chat: ChatSession) -> None:
        first = await chat.open()
        await entered(chat, "/mode mini")
        await entered(chat, "/workers beta")
        second = await chat.open()
        assert (second.mode, second.pool.names) == ("mini", ("beta",))
        assert second.model is first.model
        assert second.workers["beta"] is first.workers["beta"]
        await entered(chat, "/workers all")
        assert (await chat.open()).pool.names == ("alpha", "beta")
        await chat.ready()
        assert chat.status() == ["mini", "2 workers", "$0.00"]
        assert chat.status(narrow=True) == ["mini", "2", "$0.00"]

    in_chat(work)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/mode fast", "unknown mode"),
        ("/workers gamma", "gamma"),
        ("/limits colour 3", "unknown limit"),
        ("/limits calls many", "limits.calls is 'many'"),
        ("/limits calls", "needs a value"),
        ("/redo 1", "no question was asked yet"),
        ("/redo one", "is not a step"),
        ("/trace 2026", "no runs are stored yet"),
        ("/file nowhere.txt", "cannot be read"),
    ],
)
def test_a_wrong_command_changes_nothing(
    stage: Stage, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    """It is told, in as few lines as any error, and the chat goes on as it was."""

    async def work(chat: ChatSession) -> None:
        await chat.open()
        before = (chat.flags, chat.only, chat.files)
        await entered(chat, line)
        assert (chat.flags, chat.only, chat.files) == before

    in_chat(work)
    told = capsys.readouterr().err
    assert said in told
    assert told.startswith("conductor: ")


def test_a_limit_holds_until_it_is_taken_back(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """A limit that is set here shows where it is from; `-` gives it back to the settings."""

    async def work(chat: ChatSession) -> None:
        await entered(chat, "/limits calls 3")
        assert chat.session.settings.limits.calls == 3
        await entered(chat, "/limits calls -")
        assert chat.session.settings.limits.calls is None

    in_chat(work)
    assert "this chat" in capsys.readouterr().out


# Runs again


def test_a_step_is_run_again_by_another_and_takes_the_place_of_its_answer(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """/redo 2 beta calls beta alone; the conversation holds the new answer, not both."""
    stage.plan = "alpha | - | Find it out.\nalpha | 1 | Check it and answer."

    async def work(chat: ChatSession) -> None:
        await chat.ask("Why?")
        await entered(chat, "/redo 2 beta")
        await entered(chat, "/redo 2 gamma")
        await entered(chat, "/redo")

    chat = in_chat(work)
    assert [len(stage.asked(model)) for model in ("planner", "alpha", "beta")] == [1, 2, 1]
    assert [trace.answer for trace in chat.turns] == ["beta answers"]
    assert len(chat.runs) == 2
    said = capsys.readouterr().err
    assert "gamma" in said
    assert "the last run is complete" in said


def test_a_plan_is_shown_first_and_run_by_redo(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """/plan calls no worker; /redo runs that very plan."""
    stage.plan = TWO

    async def work(chat: ChatSession) -> None:
        await entered(chat, "/plan Why?")
        assert not stage.asked("alpha")
        assert not chat.turns
        await entered(chat, "/redo")
        await entered(chat, "/cost")

    chat = in_chat(work)
    assert [len(stage.asked(model)) for model in ("planner", "alpha", "beta")] == [1, 1, 1]
    assert chat.turns[0].answer == "beta answers"
    assert "Check it and answer." in capsys.readouterr().out


def test_edit_begins_with_the_last_question(stage: Stage) -> None:
    """/edit gives what was asked last, or what stands behind it."""
    stage.plan = ONE

    async def work(chat: ChatSession) -> None:
        assert await entered(chat, "/edit") == ""
        await chat.ask("Why?")
        assert await entered(chat, "/edit") == "Why?"
        assert await entered(chat, "/edit How?") == "How?"

    in_chat(work)


# Keys


def typed(keys: str, *, stopped: float = float("-inf"), editor: bool = False) -> str:
    """What a prompt reads when these keys are pressed, right after a run was stopped at a time."""

    async def read() -> str:
        with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
            prompt = Prompt(None)
            prompt.chat = cast("PromptStatus", SimpleNamespace(stopped=stopped, status=lambda narrow: []))
            keyboard.send_text(keys)
            return await prompt.read("Why?" if editor else "", editor=editor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prompt_module, "TWICE", 3600)
        return asyncio.run(read())


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("one\x1b\rtwo\\\rthree\r", "one\ntwo\nthree"),
        ("typed before the prompt was there\n", "typed before the prompt was there"),
        ("\r  \r\x1b[200~a\r\nb\n\x1b[201~c\r", "a\nb\nc"),
        ("not this\x03but this\r", "but this"),
    ],
    ids=["breaks", "early", "paste", "cleared"],
)
def test_enter_sends_what_was_typed(keys: str, message: str) -> None:
    """Alt-Enter, a backslash before Enter and a paste break lines; Ctrl-C clears; nothing is not sent."""
    assert typed(keys) == message


@pytest.mark.parametrize(
    ("keys", "stopped", "code"),
    [("\x04", 0, 0), ("\x03\x04", 0, 0), ("\x03", -1, 130), ("x\x03\x03", -1, 130)],
    ids=["ctrl-d", "ctrl-c long after", "ctrl-c", "ctrl-c twice"],
)
def test_a_chat_is_left(keys: str, stopped: int, code: int) -> None:
    """Ctrl-D leaves; Ctrl-C does only within two seconds after one that stopped a run, at an empty line."""
    with pytest.raises(ChatEnded) as caught:
        typed(keys, stopped=time.monotonic() if stopped else float("-inf"))
    assert caught.value.code == code


def test_the_editor_writes_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-X Ctrl-E and /edit open $EDITOR on the text; what it leaves is the message."""
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf " And how?" >> "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    assert typed("Why?\x18\x05") == "Why? And how?"
    assert typed("", editor=True) == "Why? And how?"


# Completion


def test_a_tab_offers_what_may_stand_there(stage: Stage, tmp_path: Path) -> None:
    """Commands, modes, workers behind a comma, steps and runs, files; nothing in prose."""
    (tmp_path / "notes.txt").write_text("x")
    found: dict[str, list[str]] = {}

    async def work(chat: ChatSession) -> None:
        await chat.ask("Why?")
        for text in (
            "/re", "/mode u", "/workers alpha,b", "/redo ", "/redo 1 a", "/trace ", f"/file {tmp_path}/no",
            "/limits co", "Why", "/re\n",
        ):  # fmt: skip
            offered = SlashCompleter(chat).get_completions(Document(text), CompleteEvent())
            found[text] = [completion.text for completion in offered]

    chat = in_chat(work)
    runs = ["1", "last", chat.runs[0].run]
    assert list(found.values()) == [
        ["/redo"], ["ultra"], ["beta"], ["1"], ["alpha"], runs, ["tes.txt"], ["cost"], [], [],
    ]  # fmt: skip


# What is open


def test_a_worker_is_opened_once() -> None:
    """Another card, price or tag is the same model; another address is not."""
    worker = Worker(name="a", kind="openai-compatible", model="m", options={"base_url": "http://127.0.0.1:1/v1"})
    changed = Worker(name="a", kind="openai-compatible", model="m", options=worker.options, card=Card(measured=True))
    other = Worker(name="a", kind="openai-compatible", model="m", options={"base_url": "http://127.0.0.1:2/v1"})

    async def work() -> None:
        loaded = LoadedModels()
        first, second, third = (
            loaded.open(each, environ={}, stored=no_stored_key) for each in (worker, changed, other)
        )
        assert first is second
        assert first is not third
        await loaded.close()

    asyncio.run(work())


def test_a_conductor_that_cannot_be_opened_is_tried_again(stage: Stage) -> None:
    """What is mended meanwhile, in another terminal, is found at the next question."""
    stage.configure(conductor="/nowhere.gguf")
    failed: list[Any] = []
    chat = ChatSession(GlobalOptions(), RunOptions(progress=Progress.none))
    chat.failed = failed.append

    async def work() -> None:
        chat.begin()
        with pytest.raises(Exception, match="nowhere"):
            await chat.ready()
        stage.configure()
        chat.session = chat._session(chat.flags)
        await chat.ready()
        await chat.close()

    asyncio.run(work())
    assert len(failed) == 1


# History


def test_history_is_for_its_owner_and_without_keys(tmp_path: Path) -> None:
    """The file has the mode 0600, also where it had another; a key that was read stands in it redacted."""
    (tmp_path / "history").touch(0o644)
    KNOWN_SECRETS.add("a-secret-that-is-long")
    history = open_history(tmp_path)
    history.append_string("first\nof two lines")
    history.append_string("my key is a-secret-that-is-long")
    history.append_string("x" * (LONGEST + 1))
    assert (tmp_path / "history").stat().st_mode & 0o777 == 0o600
    again = list(open_history(tmp_path).load_history_strings())
    assert again[1] == "first\nof two lines"
    assert "a-secret" not in again[0]
    assert len(again) == 2


def test_a_history_that_grew_too_large_keeps_its_end(tmp_path: Path) -> None:
    """The newest entries stay, each whole."""
    history = open_history(tmp_path)
    for number in range(30):
        history.append_string(f"{number} {'x' * 50_000}")
    kept = list(open_history(tmp_path).load_history_strings())
    assert (tmp_path / "history").stat().st_size <= LARGEST
    assert [int(entry.split()[0]) for entry in kept] == list(range(29, 29 - len(kept), -1))


def test_a_history_that_is_a_directory_is_said_and_done_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The chat goes on and forgets what was typed."""
    (tmp_path / "history").mkdir()
    open_history(tmp_path).append_string("hello")
    assert "the history is not saved" in capsys.readouterr().err
    assert list((tmp_path / "history").iterdir()) == []


# The way in


def test_the_prompt_comes_before_what_a_run_needs() -> None:
    """Neither Typer nor the settings nor anything that draws is loaded for where one types."""
    code = "import sys, conductor_cli.cli.start, conductor_cli.cli.repl.loop\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    late = {"typer", "pydantic", "rich", "conductor_cli.cli.commands", "conductor_cli.config", "conductor_cli.run"}
    assert late & {*loaded} == set()
    assert "prompt_toolkit" in loaded


def test_a_chat_without_a_terminal_is_refused(stage: Stage) -> None:
    """Where nobody sits, the error names what a script would use."""
    done = stage.inside("chat")
    assert done.code == 2
    explained(done)
    assert "conductor ask" in done.err


def test_no_command_without_a_terminal_is_the_help(stage: Stage) -> None:
    """In a pipe `conductor` alone still shows its commands, as an error of usage."""
    done = stage.inside()
    assert (done.code, done.out) == (2, "")
    assert "Look back:" in done.err
