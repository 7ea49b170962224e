"""`conductor chat` in process, without a terminal.

Messages, slash commands, open models and the conversation.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent, DummyCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from conductor_cli.app.driver import RunResult, run_to_end
from conductor_cli.cli import session
from conductor_cli.cli.chat_prompt import MAX_ENTRY, ChatEnded, ChatPrompt, open_history
from conductor_cli.cli.chat_session import ChatSession
from conductor_cli.cli.options import GlobalOptions, RunOptions
from conductor_cli.cli.output import print_error
from conductor_cli.cli.slash_commands import SlashCommand, find_command
from conductor_cli.cli.slash_completer import SlashCompleter
from conductor_cli.core.errors import ConductorError, UsageError
from conductor_cli.system.known_secrets import KNOWN_SECRETS
from tests.cli.stage import ONE, TWO, Stage, refuses, says
from tests.media_files import png


def run_in_chat(work: Callable[[ChatSession], Awaitable[None]], **how: Any) -> ChatSession:
    """Open a chat, run `work` in it, close it and return it."""
    chat_options = {name: how.pop(name) for name in ("only", "system") if name in how}
    chat = ChatSession(GlobalOptions(), RunOptions(progress="none", **how), **chat_options)

    async def all_of_it() -> None:
        chat.begin()
        try:
            await work(chat)
        finally:
            await chat.close()

    asyncio.run(all_of_it())
    return chat


def talk(*lines: str, **how: Any) -> ChatSession:
    """A chat in which these slash commands were run and these questions asked, in turn."""

    async def work(chat: ChatSession) -> None:
        for line in lines:
            await (enter(chat, line) if line.startswith("/") else chat.ask(line))

    return run_in_chat(work, **how)


def command_of(line: str) -> tuple[SlashCommand, str]:
    """The command of a line that is one, and what follows its name."""
    command = find_command(line)
    assert command is not None, line
    return command


async def enter(chat: ChatSession, line: str) -> None:
    """Run a slash command as the chat does: an error is printed."""
    try:
        command, rest = command_of(line)
        await command.act(chat, rest)
    except ConductorError as error:
        print_error(error)


def test_a_slash_and_a_name_is_a_command_and_anything_else_a_question() -> None:
    command, rest = command_of("/redo 3  claude ")
    assert (command.name, rest) == ("redo", "3  claude")
    for line in ("What is it?", "/etc/hosts: what is it?", " /help", "1/2"):
        assert find_command(line) is None


@pytest.mark.parametrize(
    ("line", "hint"), [("/hepl", "did you mean /help?"), ("/zzz", "put a space first")]
)
def test_unknown_command_suggests_a_similar_one(line: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_command(line)
    assert hint in caught.value.hint


def test_letters_that_the_locale_does_not_know_are_sent(stage: Stage, tmp_path: Path) -> None:
    """As those of a command line are; what is no UTF-8 is refused, and nothing is asked."""
    typed = "Is it gr\udcc3\udcbcn?"  # As Python reads UTF-8 by an ASCII locale
    chat = talk("/system Be gr\udcc3\udcbcn.", typed)
    assert chat.system == "Be grün."
    assert "Is it grün?" in stage.asked("alpha")[0].json["messages"][-1]["content"]
    with pytest.raises(UsageError, match="what was typed is not UTF-8 text"):
        talk("Is it gr\udcfcn?")
    assert len(stage.asked("alpha")) == 1
    history = open_history(tmp_path)
    history.append_string(typed)
    assert list(open_history(tmp_path).load_history_strings()) == ["Is it grün?"]


def test_undo_removes_an_unanswered_question_first(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was stopped before its answer is the last question.

    /undo removes it, and /redo cannot run it any more.
    """

    async def work(chat: ChatSession) -> None:
        await chat.ask("Why is the sky blue?")
        stage.models = dict.fromkeys(("alpha", "beta"), refuses(400))
        await chat.ask("And at night?")
        assert chat.last.question.text == "And at night?"
        await enter(chat, "/undo")
        assert chat.last.question.text == "Why is the sky blue?"
        request_count = len(stage.server.requests)
        await enter(chat, "/redo")  # that run is complete
        assert len(stage.server.requests) == request_count
        await enter(chat, "/undo")
        with pytest.raises(UsageError, match="no run yet"):
            await chat.finish()
        await enter(chat, "/undo")

    assert run_in_chat(work).turns == []
    assert "there is nothing to undo" in capsys.readouterr().err


def test_long_conversation_drops_its_first_turns_with_a_notice(stage: Stage) -> None:
    stage.configure("[chat]\ncontext = 256")
    stage.models["alpha"] = says("word " * 120)
    last = talk("Question 0?", "Question 1?", "Question 2?").runs[-1]
    assert [turn.question for turn in last.question.history] == ["Question 1?"]
    (told,) = (notice.text for notice in last.notices if "no longer sent" in notice.text)
    assert "its first turn is no longer sent" in told
    assert told.endswith("; to send more: conductor config set chat.context N")


def test_a_file_goes_along_until_detached(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also a file whose name has a space, and with a question that gets no answer.

    `/detach` ends it.
    """
    file = tmp_path / "my notes.txt"
    file.write_text("The key is under the mat.")
    stage.models = dict.fromkeys(("alpha", "beta"), refuses(400))

    async def work(chat: ChatSession) -> None:
        await enter(chat, f"/attach {file}")
        await chat.ask("Where?")
        stage.models.clear()
        await chat.ask("Where is it?")
        await chat.ask("Sure?")
        capsys.readouterr()
        await enter(chat, "/attach")
        assert "goes with each question until /detach" in capsys.readouterr().err
        assert "1 file" in chat.status()
        await enter(chat, "/detach other.txt")
        assert "1 file" in chat.status()
        await enter(chat, "/detach my notes.txt")
        await chat.ask("And the lamp?")

    chat = run_in_chat(work)
    assert [len(run.question.files) for run in chat.runs] == [1, 1, 1, 0]
    assert "under the mat" not in stage.asked("planner")[-1].body.decode()
    assert [turn.question for turn in chat.runs[-1].question.history] == ["Where is it?", "Sure?"]


def test_answers_about_a_detached_file_are_kept_from_those_who_may_not_see_it(
    stage: Stage, tmp_path: Path
) -> None:
    """The rule holds in the chat, and in a conversation that goes on with it later."""
    stage.configure('[policy]\nfiles_only = ["alpha"]')
    file = tmp_path / "pay.csv"
    file.write_text("Ann,7300")
    stage.models["alpha"] = says("Ann earns 7300.")
    chat = talk(f"/attach {file}", "What does Ann earn?", "/detach", "Is that much?")
    stage.ok("ask", "--continue-from", chat.runs[-1].run, "Why?")
    assert len(stage.asked("alpha")) == 3
    for name in ("planner", "beta"):
        assert not any("7300" in request.body.decode() for request in stage.asked(name))


def test_save_never_overwrites_a_file(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "talk.md"

    async def work(chat: ChatSession) -> None:
        await enter(chat, f"/save {target}")
        await chat.ask("Why?")
        await enter(chat, f"/save {target}")
        await enter(chat, f"/save {target}")

    run_in_chat(work)
    wanted = "## Question 1\n\n```text\nWhy?\n```\n\n## Answer 1\n\nalpha answers\n"
    assert target.read_text().endswith(wanted)
    stderr = capsys.readouterr().err
    assert "there is nothing to save yet" in stderr
    assert f"saved as {target}" in stderr
    assert "cannot be written: File exists" in stderr


@pytest.mark.parametrize("written", ['"my {}"', "'my {}'", "my\\ {}", "my {}"])
def test_a_path_may_be_written_as_for_a_shell(stage: Stage, tmp_path: Path, written: str) -> None:
    """Also the name of a text without a slash, which is no path that a terminal has pasted."""
    (tmp_path / "my notes.txt").write_text("The key is under the mat.")

    async def work(chat: ChatSession) -> None:
        await enter(chat, f"/attach {written.format('notes.txt')}")
        await chat.ask("Why?")
        await enter(chat, f"/save {written.format('talk.md')}")

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        chat = run_in_chat(work)
    assert [file.name for file in chat.files] == ["my notes.txt"]
    assert sorted(path.name for path in tmp_path.glob("*my*")) == ["my notes.txt", "my talk.md"]


def test_a_new_conversation_knows_nothing_of_the_one_before(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("The key is under the mat.")

    async def work(chat: ChatSession) -> None:
        await enter(chat, "/system Answer in one word.")
        await enter(chat, f"/attach {tmp_path / 'notes.txt'}")
        await chat.ask("Where is the key?")
        await enter(chat, "/name keys")
        await enter(chat, "/new")
        assert (chat.turns, chat.files, chat.name, chat.system) == (
            [],
            [],
            "",
            "Answer in one word.",
        )
        await chat.ask("Why?")
        sent = stage.asked("alpha")[-1].body.decode()
        assert "under the mat" not in sent
        assert "the key" not in sent
        assert "in one word" in sent
        await enter(chat, "/system -")
        await chat.ask("And now?")
        assert "in one word" not in stage.asked("alpha")[-1].body.decode()

    assert len(run_in_chat(work).runs) == 3


def test_a_named_conversation_goes_on_in_another_chat(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    began = talk("/name sky", "Why is it blue?", "Sure?", "/undo")
    editor = f"acp-{'0' * 16}"
    ChatSession(GlobalOptions(), RunOptions()).session.conversations.set(editor, "x")
    chat = talk("/name", "/name sky", "And at night?", "/new", "Something else?", "/name sky")
    assert [turn.question for turn in chat.runs[0].question.history] == ["Why is it blue?"]
    assert chat.runs[0].question.parent == began.turns[0].run
    printed = capsys.readouterr()
    assert f"sky   {began.turns[0].run}" in printed.out
    assert editor not in printed.out
    assert "there is another conversation sky" in printed.err
    assert ChatSession(GlobalOptions(), RunOptions()).session.conversations.read() == {
        "sky": chat.runs[0].run,
        editor: "x",
    }


def test_names_that_are_not_listed_are_counted(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(22):
        ChatSession(GlobalOptions(), RunOptions()).session.conversations.set(f"talk{number}", "x")
    talk("/name")
    printed = capsys.readouterr()
    assert printed.out.count("talk") == 20
    assert "talk21 " in printed.out
    assert "the last 20 of 22 names are listed" in printed.err


def test_undo_leaves_what_was_before_this_chat(stage: Stage) -> None:
    """And what was undone does not come back under its name."""
    talk("/name sky", "Why is it blue?", "Sure?")
    chat = talk("/name sky", "/undo", "And at night?")
    assert [turn.question for turn in chat.runs[0].question.history] == ["Why is it blue?"]
    talk("/name sky", "/undo", "/undo")
    chat = talk("/name sky", "Who is there?")
    assert chat.runs[0].question.history == ()
    last = talk("/name sky", "And now?").runs[0]
    stage.traces.joinpath(f"{chat.runs[0].run}.jsonl").unlink()
    chat = talk("/name sky", "/undo", "Later?")
    assert last.question.history == chat.runs[0].question.history != ()


def test_naming_a_conversation_is_confirmed(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the first question, too, when nothing is stored under it yet."""
    talk("/name sky")
    assert "this conversation is called sky" in capsys.readouterr().err


def test_a_chat_without_traces_has_no_name(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert talk("/name sky", no_trace=True).name == ""
    assert "this chat is not stored" in capsys.readouterr().err


@pytest.mark.parametrize("program", ["xclip", ""])
def test_copy_takes_the_desktop_s_program_or_the_terminal(
    stage: Stage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    program: str,
) -> None:
    """What a terminal would obey is not copied."""
    stage.models["alpha"] = says("ls\x1b[2J -l\r")
    if program:
        (tmp_path / program).write_text(f"#!/bin/sh\n/bin/cat > {tmp_path}/copied\n")
        (tmp_path / program).chmod(0o755)
    for name in ("SSH_CONNECTION", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", ":0")

    async def work(chat: ChatSession) -> None:
        await chat.ask("How?")
        monkeypatch.setenv("PATH", str(tmp_path))
        await enter(chat, "/copy")

    run_in_chat(work)
    stderr = capsys.readouterr().err
    if program:
        assert (tmp_path / "copied").read_text() == "ls -l\n"
        assert "copied" in stderr
    else:
        assert "\x1b]52;c;bHMgLWwK\x07" in stderr


def test_another_model_plans_from_the_next_question_on(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.models["beta"] = says(ONE)
    talk("/planner beta", "/tools", "Why?", "/planner -", "Why not?")
    assert [request.json["model"] for request in stage.posts] == [
        "beta",
        "alpha",
        "planner",
        "alpha",
    ]
    stderr = capsys.readouterr().err
    assert "beta plans" in stderr
    assert "there are no tools" in stderr


def test_one_worker_answers_in_a_chat_without_a_planner(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """What wants a planner says that there is none, and the next question is answered again."""
    stage.configure(workers=("alpha",), conductor=None)
    chat = talk("Why?", "/plan Why not?", "/mode ultra", "How?")
    assert [run.answer for run in chat.runs] == ["alpha answers"] * 2
    assert len(stage.posts) == 2
    assert capsys.readouterr().err.count("no planner is chosen") == 2


@pytest.mark.parametrize(
    ("workers", "model", "lacks"),
    [
        (("alpha",), None, False),
        (("alpha", "beta"), None, True),
        (("alpha", "beta"), "beta", False),
    ],
)
def test_a_chat_says_that_a_planner_is_missing_only_where_one_is_needed(
    stage: Stage, workers: tuple[str, ...], model: str | None, lacks: bool
) -> None:
    stage.configure(workers=workers, conductor=None)
    chat = ChatSession(GlobalOptions(), RunOptions(progress="none"), model=model)
    assert asyncio.run(chat.lacks_planner()) is lacks


def test_an_earlier_name_of_a_command_works_and_says_the_present_one(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    talk("/conductor beta", "Why?")
    assert not stage.asked("planner")
    message = "/conductor is called /planner now; the earlier name works on"
    assert message in capsys.readouterr().err


def test_changed_settings_keep_the_models_open(stage: Stage) -> None:
    async def work(chat: ChatSession) -> None:
        first = (await chat.open()).team
        await enter(chat, "/mode mini")
        await enter(chat, "/workers beta")
        await enter(chat, "/limits calls 3")
        assert chat.session.settings.limits.calls == 3
        await enter(chat, "/limits calls -")
        await enter(chat, "/limits")
        assert chat.session.settings.limits.calls is None
        second = (await chat.open()).team
        assert (second.mode, second.pool.names) == ("mini", ("beta",))
        assert second.model is first.model
        assert second.workers["beta"] is first.workers["beta"]
        await enter(chat, "/workers all")
        assert (await chat.open()).team.pool.names == ("alpha", "beta")
        await chat.ready()
        assert chat.status() == ["mini", "2 workers", "$0.00"]

    run_in_chat(work)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/mode fast", "unknown mode"),
        ("/workers gamma", "gamma"),
        ("/limits colour 3", "/limits takes a limit and its value"),
        ("/limits calls many", "limits.calls is 'many'"),
        ("/limits calls", "known: steps"),
        ("/redo 1", "the conversation has no run yet"),
        ("/redo one", "is not a step"),
        (f"/redo {'9' * 5000}", "is not a step"),
        (f"/good {'9' * 5000}", "is not a step"),
        ("/trace 2026", "there is no run"),
        ("/attach nowhere.txt", "cannot be read"),
        ("/limits cost 1", "the cost limit cannot be enforced"),
        ("/detach", "no file is attached"),
        ("/planner nowhere/model", "nowhere/model"),
        ("/tools nothing", "no tool server is named 'nothing'"),
        ("/name two words", "is no name for a conversation"),
        ("/copy", "there is no answer to copy yet"),
        ("/undo 2", "/undo takes nothing, not '2'"),
        ("/new Why?", "put a space first"),
    ],
)
def test_wrong_command_changes_nothing(
    stage: Stage, capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:

    async def work(chat: ChatSession) -> None:
        await chat.open()
        before = (chat.flags, chat.only, chat.files)
        await enter(chat, line)
        assert (chat.flags, chat.only, chat.files) == before

    run_in_chat(work)
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.startswith("conductor: ")


def test_redo_on_another_worker_replaces_the_answer(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.plan = "alpha | - | Find it out.\nalpha | 1 | Check it and answer."
    chat = talk("Why?", "/redo 2 beta", "/redo 2 gamma", "/redo")
    assert [len(stage.asked(model)) for model in ("planner", "alpha", "beta")] == [1, 2, 1]
    assert [trace.answer for trace in chat.turns] == ["beta answers"]
    assert len(chat.runs) == 2
    stderr = capsys.readouterr().err
    assert "gamma" in stderr
    assert "the last run is complete" in stderr


def test_plan_is_shown_without_running_and_redo_runs_it(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.plan = TWO

    async def work(chat: ChatSession) -> None:
        await enter(chat, "/plan Why?")
        assert not stage.asked("alpha")
        assert not chat.turns
        await enter(chat, "/redo")
        await enter(chat, "/cost")

    chat = run_in_chat(work)
    assert [len(stage.asked(model)) for model in ("planner", "alpha", "beta")] == [1, 1, 1]
    assert chat.turns[0].answer == "beta answers"
    assert "Check it and answer." in capsys.readouterr().out


def press_keys(keys: str) -> str:
    """The message that the prompt reads from these keys."""

    async def read() -> str:
        with (
            create_pipe_input() as keyboard,
            create_app_session(input=keyboard, output=DummyOutput()),
        ):
            prompt = ChatPrompt()
            prompt.connect(list, DummyCompleter(), None)
            keyboard.send_text(keys)
            return await prompt.read()

    return asyncio.run(read())


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("one\x1b\rtwo\\\rthree\r", "one\ntwo\nthree"),
        ("typed before the prompt was there\n", "typed before the prompt was there"),
        ("\r  \r\x1b[200~a\r\nb\n\x1b[201~c\r", "a\nb\nc"),
        ("not this\x03but this\r", "but this"),
        ("\x12abc\x03but this\r", "but this"),
    ],
    ids=["breaks", "early", "paste", "cleared", "search left"],
)
def test_enter_sends_what_was_typed(keys: str, message: str) -> None:
    assert press_keys(keys) == message


def test_ctrl_c_never_ends_the_chat(capsys: pytest.CaptureFixture[str]) -> None:
    assert press_keys("x\x03\x03\x03\x03still here\r") == "still here"
    assert capsys.readouterr().err.count("Ctrl-D or /exit leaves") == 1
    with pytest.raises(ChatEnded) as caught:
        press_keys("\x03\x04")
    assert caught.value.code == 0


def test_tab_completes_commands_and_their_arguments(stage: Stage, tmp_path: Path) -> None:
    """To /workers it offers those of the settings that are not named yet.

    To /redo it offers those of this chat.
    """
    (tmp_path / "notes.txt").write_text("x")
    off = stage.worker("gamma", "enabled = false")
    stage.configure(f'[policy]\ndeny = ["delta"]\n{off}', workers=("alpha", "beta", "delta"))
    completions: dict[str, list[str]] = {}

    async def work(chat: ChatSession) -> None:
        early = SlashCompleter(chat).get_completions(Document("/redo 1 "), CompleteEvent())
        assert [completion.text for completion in early] == ["alpha"]
        await chat.ask("Why?")
        for text in (
            "/re",
            "/mode u",
            "/workers ",
            "/workers alpha,",
            "/workers alpha, b",
            "/redo ",
            "/redo 1 ",
            "/trace ",
            f"/attach {tmp_path}/no",
            "/limits co",
            "Why",
            "/re\n",
        ):
            offered = SlashCompleter(chat).get_completions(Document(text), CompleteEvent())
            completions[text] = [completion.text for completion in offered]

    chat = run_in_chat(work, only=("alpha",))
    runs = ["1", "last", chat.runs[0].run]
    assert list(completions.values()) == [
        ["/redo "],
        ["ultra"],
        ["alpha", "beta", "all"],
        ["beta"],
        ["beta"],
        ["1"],
        ["alpha"],
        runs,
        ["tes.txt"],
        ["cost"],
        [],
        [],
    ]


def test_conductor_that_cannot_be_opened_is_tried_again(stage: Stage) -> None:
    stage.configure(conductor="/nowhere.gguf")
    failed: list[Any] = []
    chat = ChatSession(GlobalOptions(), RunOptions(progress="none"))
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


def test_sigterm_at_the_very_end_of_a_run_ends_the_chat_and_keeps_the_turn(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run_and_terminate(*args: Any, **options: Any) -> RunResult:
        result = await run_to_end(*args, **options)
        signal.raise_signal(signal.SIGTERM)
        return result

    monkeypatch.setattr(session, run_to_end.__name__, run_and_terminate)

    async def ask(chat: ChatSession) -> None:
        with pytest.raises(ChatEnded) as ended:
            await chat.ask("hi")
        assert ended.value.code == 143

    chat = run_in_chat(ask)
    assert [turn.answer for turn in chat.turns] == ["alpha answers"]


def test_history_file_is_private_and_redacts_keys(tmp_path: Path) -> None:
    (tmp_path / "history").touch(0o644)
    KNOWN_SECRETS.add("a-secret-that-is-long")
    history = open_history(tmp_path)
    history.append_string("first\nof two lines")
    history.append_string("my key is a-secret-that-is-long")
    history.append_string("x" * (MAX_ENTRY + 1))
    assert (tmp_path / "history").stat().st_mode & 0o777 == 0o600
    again = list(open_history(tmp_path).load_history_strings())
    assert again[1] == "first\nof two lines"
    assert "a-secret" not in again[0]
    assert len(again) == 2


def test_a_history_that_cannot_be_read_costs_no_chat(tmp_path: Path) -> None:
    history = open_history(tmp_path)
    (tmp_path / "history").unlink()
    (tmp_path / "history").mkdir()
    assert list(history.load_history_strings()) == []


def test_unusable_history_file_is_reported_and_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "history").mkdir()
    open_history(tmp_path).append_string("hello")
    assert "the history is not saved" in capsys.readouterr().err
    assert list((tmp_path / "history").iterdir()) == []


def test_banner_is_printed_before_anything_is_loaded() -> None:
    code = (
        "import sys, conductor_cli.cli.chat_banner, conductor_cli.cli.keypress\nprint(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {"typer", "pydantic", "rich", "asyncio", "prompt_toolkit", "conductor_cli.config"} & {
        *loaded
    } == set()


def test_chat_without_a_terminal_is_a_usage_error(stage: Stage) -> None:
    stage.fails(2, "chat", told="conductor ask")


def test_a_pasted_path_is_attached_and_a_word_is_a_question(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "my notes.txt"
    file.write_text("The key is under the mat.")
    address = f"file://{file}".replace(" ", "%20")
    for line in (str(file), f"'{file}'", str(file).replace(" ", "\\ "), address):
        assert command_of(line)[0].name == "attach"
    for line in ("notes", f"What is in {file}?", "/nowhere/at.all", "What's this?"):
        assert find_command(line) is None
    for named in (f"'{file}'", address):
        assert [attached.name for attached in talk(f"/attach {named}").files] == ["my notes.txt"]


def test_an_image_stays_attached_when_a_setting_changes(stage: Stage, tmp_path: Path) -> None:
    stage.configure(workers={"alpha": 'accepts = ["image"]'})
    (tmp_path / "chart.png").write_bytes(png())
    chat = talk(f"/attach {tmp_path / 'chart.png'}", "/mode mini", "What is it?", "Sure?")
    assert [run.state for run in chat.runs] == ["finished", "finished"]
    for request in stage.asked("alpha"):
        assert any(part["type"] == "image_url" for part in request.json["messages"][-1]["content"])
