"""Workers that are programs: what they are given, how they end, and what is left of them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.chat import Chunk, Message, Request, Tool
from conductor_cli.core.errors import ModelError
from conductor_cli.core.pool import Worker
from conductor_cli.core.redact import Secrets
from conductor_cli.models.base import Model
from conductor_cli.models.catalog import open_model
from conductor_cli.models.command.adapter import MAX_ARGUMENT
from tests.models.kit import CHART, asked, chunks_of, text, used

pytestmark = pytest.mark.skipif(os.name != "posix", reason="programs as workers need Linux or macOS")

KEY = "sk-secret-0123456789"
ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "OPENAI_API_KEY": KEY, "LANG": "C.UTF-8"}


def opened(script: str, environ: dict[str, str] | None = None, **options: Any) -> Model:
    """A program that is this script of the shell."""
    worker = Worker(name="w", kind="command", options={"command": ["sh", "-c", script], **options})
    return open_model(worker, environ=ENVIRON | (environ or {}), secrets=Secrets())


def play(model: Model, request: Request | None = None) -> list[Chunk]:
    return asyncio.run(chunks_of(model, request or asked()))


def failure(script: str, request: Request | None = None, **options: Any) -> ModelError:
    with pytest.raises(ModelError) as error:
        play(opened(script, **options), request)
    return error.value


def gone(process: int) -> bool:
    """Whether a process ends soon, or is one that nobody has waited for yet."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
            os.kill(process, 0)
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False


def numbers_in(path: Path, count: int = 1) -> list[int]:
    """The process numbers that a script has written into a file, once there are as many."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        found = path.read_text().split() if path.exists() else []
        if len(found) >= count:
            return [int(each) for each in found]
        time.sleep(0.02)
    raise AssertionError(path)


def test_a_prompt_goes_in_and_text_comes_out_as_it_is_written() -> None:
    chunks = play(opened("tr a-z A-Z; sleep 0.2; echo ' and more'; echo; echo"), asked("grüezi"))
    pieces = [chunk.text for chunk in chunks if chunk.text]
    assert (len(pieces), text(chunks)) == (2, "GRüEZI and more")
    assert (chunks[-1].finish, [chunk.usage for chunk in chunks].count(None)) == ("stop", 2)
    assert (used(chunks).cost, used(chunks).calls) == (None, 1)


def test_a_character_may_be_split_and_bytes_may_be_wrong() -> None:
    assert text(play(opened(r"printf '\303'; sleep 0.1; printf '\244 \377.'"))) == "ä \ufffd."


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ((Message(role="system", content="Be brief."), Message(role="user", content="One?")), "Be brief.\n\nOne?"),
        (
            (
                Message(role="system", content="Be brief."), Message(role="user", content="One?"),
                Message(role="assistant", content="1"), Message(role="user", content="Two?"),
            ),
            "Be brief.\n\nUser:\nOne?\n\nAssistant:\n1\n\nUser:\nTwo?",
        ),
    ],
)  # fmt: skip
def test_several_messages_are_one_text(messages: tuple[Message, ...], expected: str) -> None:
    assert text(play(opened("cat"), Request(messages=messages))) == expected


def test_a_placeholder_takes_the_prompt_into_an_argument() -> None:
    model = open_model(
        Worker(name="w", kind="command", options={"command": ["sh", "-c", 'echo "$1"; cat', "sh", "<{prompt}>"]}),
        environ=ENVIRON,
    )
    assert text(play(model, asked("it's $HOME; `id`\0"))) == "<it's $HOME; `id`\ufffd>"
    with pytest.raises(ModelError) as error:
        play(model, asked("x" * MAX_ARGUMENT))
    assert (error.value.reason, "standard input" in error.value.hint) == ("length", True)


def test_only_named_variables_are_passed_on() -> None:
    environ = {"AWS_SECRET_ACCESS_KEY": "aws-secret-1", "MINE": "yes"}
    names = {line.partition("=")[0] for line in text(play(opened("env", environ))).splitlines()}
    assert names <= {"PATH", "HOME", "LANG", "LC_CTYPE", "PWD", "SHLVL", "_", "OLDPWD"}
    shown = text(play(opened("echo $MINE $OPENAI_API_KEY", environ, env=["MINE", "OPENAI_API_KEY", "NOT_SET"])))
    assert shown == "yes [key]"


def test_a_directory_is_fresh_and_removed_unless_one_is_named(tmp_path: Path) -> None:
    model = opened("pwd; ls -A | wc -l; touch left")
    (first, files), (second, _) = (text(play(model)).split() for _ in range(2))
    assert (files, first != second, Path(first).exists()) == ("0", True, False)
    assert text(play(opened("pwd; touch left", cwd=str(tmp_path)))) == str(tmp_path.resolve())
    assert (tmp_path / "left").exists()
    assert failure("pwd", cwd=str(tmp_path / "none")).reason == "missing"


def test_a_failure_quotes_the_last_lines_of_standard_error() -> None:
    script = r"for i in 1 2 3 4 5 6 7; do echo line$i >&2; done; printf '\033[31m%s\n' $OPENAI_API_KEY >&2; exit 3"
    error = failure(script, env=["OPENAI_API_KEY"])
    assert (error.reason, error.retryable) == ("refused", False)
    assert error.message.startswith("sh ended with exit code 3: line4 | line5")
    assert not {"line3", KEY, "\x1b"} & set(error.message.split()) | ({KEY} if KEY in error.message else set())
    long = failure("head -c 20000000 /dev/zero | tr '\\0' e >&2; exit 1")
    assert len(long.message) < 400


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 0", "sh wrote no answer"),
        ("echo; echo why >&2", "sh wrote no answer: why"),
        ("kill -9 $$", "sh was ended by signal SIGKILL"),
        ("exec 0<&-; exit 4", "sh ended with exit code 4"),
        ("cat < /dev/tty", "sh ended with exit code"),
    ],
)
def test_a_program_that_gives_no_answer_says_why(script: str, words: str) -> None:
    assert failure(script, asked("x" * 1_000_000)).message.startswith(words)


@pytest.mark.parametrize(
    ("kind", "command", "words", "hint"),
    [
        ("command", "no-such-program", "the program no-such-program was not found", "PATH"),
        ("command", "./there", "./there is not executable", "chmod +x"),
        ("codex", "", "the program codex was not found", "npm install -g @openai/codex"),
    ],
)
def test_a_program_that_cannot_run_is_named(kind: str, command: str, words: str, hint: str, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("")
    options = {"command": [command], "cwd": str(tmp_path)} if command else {}
    with pytest.raises(ModelError, match=words) as error:
        open_model(Worker(name="w", kind=kind, options=options), environ={"PATH": "/nonexistent"})
    assert (error.value.reason, hint in error.value.hint) == ("missing", True)


def test_a_file_that_is_no_program_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"\x7fELF nonsense")
    (tmp_path / "empty").chmod(0o755)
    model = open_model(
        Worker(name="w", kind="command", options={"command": [str(tmp_path / "empty")]}), environ=ENVIRON
    )
    with pytest.raises(ModelError, match="empty could not be run: Exec format error"):
        play(model)


AGENT = """#!/bin/sh
printf '%s\\n' "$@" > "$HOME/arguments"; cat > "$HOME/prompt"; cat "$HOME/events"; echo a warning >&2
exit $(cat "$HOME/code")
"""
"""Stands for an agent: it notes what it is given, and says what a real one has said."""


@pytest.mark.parametrize("failed", [False, True])
def test_an_agent_is_started_and_read(failed: bool, tmp_path: Path) -> None:
    (tmp_path / "codex").write_text(AGENT)
    (tmp_path / "codex").chmod(0o755)
    events = Path(__file__).with_name("agent_events") / f"codex{'-failed' if failed else ''}.jsonl"
    (tmp_path / "events").write_bytes(events.read_bytes())
    (tmp_path / "code").write_text(str(int(failed)))
    worker = Worker(name="w", kind="codex", model="m-1", options={"args": ["-c", "a=b c"]})
    environ = {**ENVIRON, "PATH": f"{tmp_path}:{ENVIRON['PATH']}", "HOME": str(tmp_path)}
    model = open_model(worker, environ=environ)
    if failed:
        with pytest.raises(ModelError, match=r"codex ended with exit code 1: .*No such model at this double"):
            play(model)
    else:
        chunks = play(model, asked("Look around."))
        assert (text(chunks), chunks[-1].finish) == ("The answer of the double is 42.", "stop")
        assert (used(chunks).tokens_in, used(chunks).cost) == (2400, None)
        assert (tmp_path / "prompt").read_text() == "Look around."
    given = (tmp_path / "arguments").read_text().splitlines()
    assert given == ["exec", "--json", "--skip-git-repo-check", "-", "--model", "m-1", "-c", "a=b c"]


def test_a_flood_is_cut_at_what_was_asked_for() -> None:
    chunks = play(opened("head -c 100000000 /dev/zero | tr '\\0' x"), asked(max_tokens=100))
    assert (len(text(chunks)), chunks[-1].finish) == (1600, "length")
    assert text(play(opened("head -c 100000000 /dev/zero >&2; echo done"))) == "done"


def test_attachments_and_tools_are_refused_before_anything_runs(tmp_path: Path) -> None:
    picture = Request(messages=(Message(role="user", content="?", attachments=(CHART,)),))
    for request in (picture, asked(tools=(Tool(name="f"),))):
        assert failure("touch ran", request, cwd=str(tmp_path)).reason == "refused"
    assert not (tmp_path / "ran").exists()


STUBBORN = """
trap '' TERM HUP INT; echo $$ >> "$1"
(trap '' TERM HUP INT; echo $(exec sh -c 'echo $PPID') >> "$1"; sleep 600 & sleep 600; sleep 600) &
setsid sh -c 'trap "" TERM HUP INT; echo $$ >> "$0"; sleep 600; sleep 600' "$1" &
echo begun; while :; do sleep 600; done
"""
"""Ignores SIGTERM, and so do a child and a grandchild that has a session of its own."""


def stubborn(numbers: Path, **options: Any) -> Model:
    command = ["sh", "-c", STUBBORN, "sh", str(numbers)]
    return open_model(Worker(name="w", kind="command", options={"command": command, **options}), environ=ENVIRON)


needs_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux hands orphans to a guard")


@needs_linux
@pytest.mark.parametrize("how", ["cancel", "close", "deadline"])
def test_nothing_is_left(how: str, tmp_path: Path) -> None:
    """Cancelled, left or too slow: children that ignore SIGTERM or have left the session end with the program."""
    numbers = tmp_path / "numbers"
    model = stubborn(numbers)

    async def read(begun: asyncio.Event) -> None:
        async with aclosing(model.stream(asked(deadline=0.7 if how == "deadline" else None))) as stream:
            async for _ in stream:
                begun.set()
                if how == "close":
                    await asyncio.to_thread(numbers_in, numbers, 3)
                    return

    async def go() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(read(begun))
        await begun.wait()
        await asyncio.to_thread(numbers_in, numbers, 3)
        if how == "cancel":
            task.cancel()
        [result] = await asyncio.gather(task, return_exceptions=True)
        assert how != "deadline" or (isinstance(result, ModelError) and result.reason == "timeout")

    asyncio.run(go())
    assert all(gone(number) for number in numbers_in(numbers, 3))


@needs_linux
def test_what_a_program_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    numbers = tmp_path / "numbers"
    script = (
        f"setsid sh -c 'echo $$ > {numbers}; exec sleep 600' & while [ ! -s {numbers} ]; do sleep 0.01; done; echo ok"
    )
    assert text(play(opened(script))) == "ok"
    assert gone(numbers_in(numbers)[0])


def test_a_program_that_closes_its_output_and_sleeps_is_waited_for() -> None:
    assert failure("echo hi; exec >&- 2>&-; sleep 600", asked(deadline=0.4)).reason == "timeout"


@needs_linux
def test_nothing_is_left_when_conductor_is_killed(tmp_path: Path) -> None:
    numbers = tmp_path / "numbers"
    script = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from tests.models.test_programs import asked, chunks_of, stubborn\n"
        "asyncio.run(chunks_of(stubborn(Path(sys.argv[1])), asked()))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(numbers)], cwd=Path(__file__).parents[2],
        env=os.environ | {"TMPDIR": str(tmp_path)},  # where nobody is left to remove the directory of the program
    )  # fmt: skip
    try:
        found = numbers_in(numbers, 3)
        process.kill()
        process.wait(5)
        assert all(gone(each) for each in found)
    finally:
        process.kill()
        process.wait()


@needs_linux
def test_a_program_that_kills_its_guard_ends_too() -> None:
    assert failure("echo hi; kill -9 $PPID; sleep 600").message == "sh could not be run: its guard was killed"
