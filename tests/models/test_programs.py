"""Workers that are programs.

What they are given, how they end and what is left of them, and their sandbox.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
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
from conductor_cli.models.command.adapter import MAX_ARGUMENT_BYTES
from conductor_cli.models.command.process import (
    find_sandbox,
    own_files,
    sandbox_words,
    shares_network,
)
from conductor_cli.models.command.programs import PROGRAMS
from tests.models.kit import CHART, chunks_of, text, used, user_request

pytestmark = pytest.mark.skipif(
    os.name != "posix", reason="programs as workers need Linux or macOS"
)

KEY = "sk-secret-0123456789"
ENVIRON = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "OPENAI_API_KEY": KEY,
    "LANG": "C.UTF-8",
}


def opened(script: str, environ: dict[str, str] | None = None, **options: Any) -> Model:
    """A program that is this script of the shell."""
    worker = Worker(name="w", kind="command", options={"command": ["sh", "-c", script], **options})
    return open_model(worker, environ=ENVIRON | (environ or {}), secrets=Secrets())


def play(model: Model, request: Request | None = None) -> list[Chunk]:
    return asyncio.run(chunks_of(model, request or user_request()))


def failure(script: str, request: Request | None = None, **options: Any) -> ModelError:
    with pytest.raises(ModelError) as error:
        play(opened(script, **options), request)
    return error.value


def gone(process: int) -> bool:
    """Whether a process ends soon, or is one that nobody has waited for yet."""
    until = time.monotonic() + 60
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
    until = time.monotonic() + 60
    while time.monotonic() < until:
        numbers = path.read_text().split() if path.exists() else []
        if len(numbers) >= count:
            return [int(number) for number in numbers]
        time.sleep(0.02)
    raise AssertionError(path)


def test_a_prompt_goes_in_and_text_comes_out_as_it_is_written() -> None:
    chunks = play(
        opened("tr a-z A-Z; sleep 0.2; echo ' and more'; echo; echo"), user_request("grüezi")
    )
    pieces = [chunk.text for chunk in chunks if chunk.text]
    assert (len(pieces), text(chunks)) == (2, "GRüEZI and more")
    assert (chunks[-1].finish, [chunk.usage for chunk in chunks].count(None)) == ("stop", 2)
    assert (used(chunks).cost, used(chunks).calls) == (None, 1)


def test_a_character_may_be_split_and_bytes_may_be_wrong() -> None:
    assert text(play(opened(r"printf '\303'; sleep 0.1; printf '\244 \377.'"))) == "ä \ufffd."


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (
            (Message(role="system", content="Be brief."), Message(role="user", content="One?")),
            "Be brief.\n\nOne?",
        ),
        (
            (
                Message(role="system", content="Be brief."),
                Message(role="user", content="One?"),
                Message(role="assistant", content="1"),
                Message(role="user", content="Two?"),
            ),
            "Be brief.\n\nUser:\nOne?\n\nAssistant:\n1\n\nUser:\nTwo?",
        ),
    ],
)
def test_several_messages_are_one_text(messages: tuple[Message, ...], expected: str) -> None:
    assert text(play(opened("cat"), Request(messages=messages))) == expected


def test_a_placeholder_takes_the_prompt_into_an_argument() -> None:
    model = open_model(
        Worker(
            name="w",
            kind="command",
            options={"command": ["sh", "-c", 'echo "$1"; cat', "sh", "<{prompt}>"]},
        ),
        environ=ENVIRON,
    )
    assert text(play(model, user_request("it's $HOME; `id`\0"))) == "<it's $HOME; `id`\ufffd>"
    with pytest.raises(ModelError) as error:
        play(model, user_request("x" * MAX_ARGUMENT_BYTES))
    assert (error.value.reason, "standard input" in error.value.hint) == ("length", True)


def test_a_prompt_in_an_argument_is_no_option() -> None:
    command = ["printf", "%s|", "{prompt}", "-{prompt}", "x{prompt}"]
    model = open_model(
        Worker(name="w", kind="command", options={"command": command}), environ=ENVIRON
    )
    assert text(play(model, user_request("--help"))) == " --help|---help|x--help|"


def test_only_named_variables_are_passed_on() -> None:
    environ = {"AWS_SECRET_ACCESS_KEY": "aws-secret-1", "MINE": "yes"}
    names = {line.partition("=")[0] for line in text(play(opened("env", environ))).splitlines()}
    assert names <= {"PATH", "HOME", "LANG", "LC_CTYPE", "PWD", "SHLVL", "_", "OLDPWD"}
    shown = text(
        play(
            opened("echo $MINE $OPENAI_API_KEY", environ, env=["MINE", "OPENAI_API_KEY", "NOT_SET"])
        )
    )
    assert shown == "yes [key]"


def test_a_directory_is_fresh_and_removed_unless_one_is_named(tmp_path: Path) -> None:
    model = opened("pwd; ls -A | wc -l; touch left")
    (first, files), (second, _) = (text(play(model)).split() for _ in range(2))
    assert (files, first != second, Path(first).exists()) == ("0", True, False)
    assert text(play(opened("pwd; touch left", cwd=str(tmp_path)))) == str(tmp_path.resolve())
    assert (tmp_path / "left").exists()
    assert failure("pwd", cwd=str(tmp_path / "none")).reason == "missing"


def test_a_failure_names_a_proxy_that_the_program_was_not_given() -> None:
    environ = {"HTTPS_PROXY": "http://me:s3cr3t@proxy.example:3128"}
    proxy_hint = "it was not given HTTPS_PROXY, for the password in it: --set env=HTTPS_PROXY"
    assert failure("exit 3", environ=environ).hint == proxy_hint
    assert failure("exit 3", environ=environ, env=["HTTPS_PROXY"]).hint == ""


def test_a_failure_quotes_the_last_lines_of_standard_error() -> None:
    script = (
        r"for i in 1 2 3 4 5 6 7; do echo line$i >&2; done; printf '\033[31m%s\n' "
        r"$OPENAI_API_KEY >&2; exit 3"
    )
    error = failure(script, env=["OPENAI_API_KEY"])
    assert (error.reason, error.retryable) == ("refused", False)
    assert error.message.startswith("sh ended with exit code 3: line4 | line5")
    assert not {"line3", KEY, "\x1b"} & set(error.message.split()) | (
        {KEY} if KEY in error.message else set()
    )
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
    assert failure(script, user_request("x" * 1_000_000)).message.startswith(words)


@pytest.mark.parametrize(
    ("kind", "command", "words", "hint"),
    [
        ("command", "no-such-program", "the program no-such-program was not found", "PATH"),
        ("command", "./there", "./there is not executable", "chmod +x"),
        ("codex", "", "the program codex was not found", "npm install -g @openai/codex"),
    ],
)
def test_a_program_that_cannot_run_is_named(
    kind: str, command: str, words: str, hint: str, tmp_path: Path
) -> None:
    (tmp_path / "there").write_text("")
    options = {"command": [command], "cwd": str(tmp_path)} if command else {}
    with pytest.raises(ModelError, match=words) as error:
        open_model(Worker(name="w", kind=kind, options=options), environ={"PATH": "/nonexistent"})
    assert (error.value.reason, hint in error.value.hint) == ("missing", True)


def test_a_file_that_is_no_program_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"\x7fELF nonsense")
    (tmp_path / "empty").chmod(0o755)
    model = open_model(
        Worker(name="w", kind="command", options={"command": [str(tmp_path / "empty")]}),
        environ=ENVIRON,
    )
    with pytest.raises(ModelError, match="empty could not be run: Exec format error"):
        play(model)


AGENT = """#!/bin/sh
printf '%s\\n' "$@" > "$HOME/arguments"; cat > "$HOME/prompt"; cat "$HOME/events"; echo a warning \
>&2
exit $(cat "$HOME/code")
"""
"""Stands for an agent: it notes what it is given, and says what a real one has said."""


@pytest.mark.parametrize("failed", [False, True])
def test_an_agent_is_started_and_read(failed: bool, tmp_path: Path) -> None:
    script(tmp_path, "codex", AGENT)
    events = Path(__file__).with_name("agent_events") / f"codex{'-failed' if failed else ''}.jsonl"
    (tmp_path / "events").write_bytes(events.read_bytes())
    (tmp_path / "code").write_text(str(int(failed)))
    worker = Worker(name="w", kind="codex", model="m-1", options={"args": ["-c", "a=b c"]})
    environ = {**ENVIRON, "PATH": f"{tmp_path}:{ENVIRON['PATH']}", "HOME": str(tmp_path)}
    model = open_model(worker, environ=environ)
    if failed:
        with pytest.raises(
            ModelError, match=r"codex ended with exit code 1: .*No such model at this double"
        ):
            play(model)
    else:
        chunks = play(model, user_request("Look around."))
        assert (text(chunks), chunks[-1].finish) == ("The answer of the double is 42.", "stop")
        assert (used(chunks).tokens_in, used(chunks).cost) == (2400, None)
        assert (tmp_path / "prompt").read_text() == "Look around."
    given = (tmp_path / "arguments").read_text().splitlines()
    assert given == [
        "exec",
        "--json",
        "--skip-git-repo-check",
        "-",
        "--model",
        "m-1",
        "-c",
        "a=b c",
    ]


def test_a_flood_is_cut_at_what_was_asked_for() -> None:
    chunks = play(opened("head -c 100000000 /dev/zero | tr '\\0' x"), user_request(max_tokens=100))
    assert (len(text(chunks)), chunks[-1].finish) == (1600, "length")
    assert text(play(opened("head -c 100000000 /dev/zero >&2; echo done"))) == "done"


def test_attachments_and_tools_are_refused_before_anything_runs(tmp_path: Path) -> None:
    picture = Request(messages=(Message(role="user", content="?", attachments=(CHART,)),))
    for request in (picture, user_request(tools=(Tool(name="f"),))):
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
    return open_model(
        Worker(name="w", kind="command", options={"command": command, **options}), environ=ENVIRON
    )


needs_linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux hands orphans to a guard"
)


@needs_linux
@pytest.mark.parametrize("how", ["cancel", "close", "deadline"])
def test_a_program_that_is_stopped_leaves_no_process(how: str, tmp_path: Path) -> None:
    """Cancelled, left or too slow.

    Children that ignore SIGTERM or have left the session end with the program.
    """
    numbers = tmp_path / "numbers"
    model = stubborn(numbers)

    async def read(begun: asyncio.Event) -> None:
        async with aclosing(
            model.stream(user_request(deadline=4.0 if how == "deadline" else None))
        ) as stream:
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
        f"setsid sh -c 'echo $$ > {numbers}; exec sleep 600' & while [ ! -s {numbers} ]; do "
        "sleep 0.01; done; echo ok"
    )
    assert text(play(opened(script))) == "ok"
    assert gone(numbers_in(numbers)[0])


def test_a_program_that_closes_its_output_and_sleeps_is_waited_for() -> None:
    assert (
        failure("echo hi; exec >&- 2>&-; sleep 600", user_request(deadline=0.4)).reason == "timeout"
    )


@needs_linux
def test_nothing_is_left_when_conductor_is_killed(tmp_path: Path) -> None:
    numbers = tmp_path / "numbers"
    script = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from tests.models.test_programs import user_request, chunks_of, stubborn\n"
        "asyncio.run(chunks_of(stubborn(Path(sys.argv[1])), user_request()))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(numbers)],
        cwd=Path(__file__).parents[2],
        # Where nobody is left to remove the directory of the program
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    try:
        numbers_found = numbers_in(numbers, 3)
        process.kill()
        process.wait(30)
        assert all(gone(number) for number in numbers_found)
    finally:
        process.kill()
        process.wait()


@needs_linux
def test_a_program_that_kills_its_guard_ends_too() -> None:
    assert (
        failure("echo hi; kill -9 $PPID; sleep 600").message
        == "sh could not be run: its guard was killed"
    )


def boxed(*command: str, **options: Any) -> Worker:
    """A program in a sandbox."""
    return Worker(
        name="w", kind="command", options={"command": list(command), "sandbox": True, **options}
    )


def environ(home: Path, *first: Path) -> dict[str, str]:
    return {"PATH": os.pathsep.join([*map(str, first), os.environ["PATH"]]), "HOME": str(home)}


def script(directory: Path, name: str, content: str) -> Path:
    """An executable file in a directory of its own, which may come first in PATH."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(content)
    (directory / name).chmod(0o755)
    return directory


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A home directory with a key and with traces, beside a directory to work in."""
    home = tmp_path / "home"
    for name in (".ssh/id", ".local/state/conductor-llm/traces/run.jsonl", "work/mine.txt"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("secret")
    return home


@pytest.mark.parametrize(
    ("bwrap", "words"),
    [
        ("", "sandbox = true needs bubblewrap, which is not installed"),
        (
            "#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2; exit 1\n",
            "No permissions",
        ),
        ("nonsense", "Exec format error"),
    ],
)
def test_without_a_sandbox_nothing_runs(bwrap: str, words: str, tmp_path: Path) -> None:
    program = script(tmp_path / "bin", "bwrap", bwrap) if bwrap else tmp_path / "none"
    (tmp_path / "bin").mkdir(exist_ok=True)
    (tmp_path / "bin/sh").symlink_to("/bin/sh")
    with pytest.raises(ModelError, match=words) as error:
        open_model(
            boxed("sh", "-c", "touch ran; echo ok", cwd=str(tmp_path)),
            environ={"PATH": f"{program}:{tmp_path / 'bin'}", "HOME": "/nonexistent"},
        )
    assert (error.value.reason, "sandbox" in error.value.hint) == ("missing", True)
    assert not (tmp_path / "ran").exists()


def test_a_program_runs_in_its_sandbox_or_not_at_all(house: Path) -> None:
    work = house / "work"
    looks = (
        "cat mine.txt; echo; for f in $HOME/.ssh/id $HOME/.local/state/*/*/*; do cat $f; "
        "done; "
        "ls -A $HOME /tmp /run"
    )
    writes = (
        "echo hi > new.txt; touch /usr/x $HOME/y /etc/z && echo secret; mkdir /new && echo "
        "secret; mktemp -d"
    )
    counts = "ls -d /proc/[0-9]* | wc -l"
    worker = boxed("sh", "-c", f"{looks}; {writes}; {counts}", cwd=str(work))
    if refused(worker, house):
        assert not (work / "new.txt").exists()
        return
    answer = text(
        play(open_model(worker, environ=environ(house) | {"TMPDIR": "/nowhere"}))
    ).splitlines()
    assert answer[0] == "secret"
    assert "secret" not in answer[1:]
    assert int(answer[-1]) < 10
    assert [line for line in answer if line.startswith("/tmp/tmp.")]
    assert (work / "new.txt").read_text() == "hi\n"
    assert not (house / "y").exists()


def test_a_program_cannot_change_the_settings_of_the_kernel(house: Path) -> None:
    # Nothing is written.
    code = "if : 2>/dev/null >> /proc/sys/kernel/core_pattern; then echo open; else echo closed; fi"
    worker = boxed("sh", "-c", f"({code}) || echo closed")
    if refused(worker, house):
        return
    assert text(play(open_model(worker, environ=environ(house)))).strip() == "closed"


def refused(worker: Worker, home: Path) -> bool:
    """Whether this system lets nobody make a sandbox.

    Then the worker must say so and cannot be opened.
    """
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    try:
        find_sandbox(environ(home))
    except ModelError as error:
        why = error.message
    else:
        return False
    with pytest.raises(ModelError) as raised:
        open_model(worker, environ=environ(home))
    assert (raised.value.message, why.startswith("sandbox = true needs bubblewrap")) == (why, True)
    return True


@pytest.mark.parametrize("network", [False, True])
def test_the_network_and_sockets_are_reached_only_where_that_is_allowed(
    network: bool, house: Path, tmp_path: Path
) -> None:
    """An abstract UNIX socket is a part of the network.

    It is reached only where the sandbox shares the host's.
    """
    abstract = f"\0conductor-test-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as display,
    ):
        for server, name in ((unix, str(tmp_path / "agent.sock")), (display, abstract)):
            server.bind(name)
            server.listen()
        code = (
            f"import socket\nfor f, a in ((socket.AF_INET, ('127.0.0.1', {tcp.getsockname()[1]})),"
            f" (socket.AF_UNIX, {str(tmp_path / 'agent.sock')!r}), (socket.AF_UNIX, "
            f"{abstract!r})):\n"
            "  try:\n    s = socket.socket(f); s.connect(a); print('yes')\n  except OSError: "
            "print('no')\n"
        )
        worker = boxed("/usr/bin/python3", "-c", code, network=network)
        if refused(worker, house):
            return
        answer = text(play(open_model(worker, environ=environ(house)))).split()
    shared = shares_network(worker, environ(house))
    assert answer == ["yes" if network else "no", "no", "yes" if shared else "no"]
    assert network or not shared


@pytest.mark.parametrize("kind", [kind for kind, program in PROGRAMS.items() if program.state])
def test_an_agent_cannot_change_what_its_next_start_reads(
    kind: str, house: Path, tmp_path: Path
) -> None:
    """Settings and hooks are as before, and nothing new is there.

    Its login and sessions are what it wrote.
    """
    program = PROGRAMS[kind]
    kept = dict[Path, str]()
    changed = list[Path]()
    for state in program.state:
        directory = Path(state.path.replace("~", str(house)))
        directory.mkdir(parents=True, exist_ok=True)
        for name in (*state.writable, *state.readable, *state.copied):
            (directory / name).write_text("mine")
        kept |= {directory / name: "mine" for name in (*state.readable, *state.copied)}
        changed += [directory / name for name in state.writable]
    lines = [
        f"rm -f {path}; echo evil > {path}; echo evil > {path}.new" for path in (*kept, *changed)
    ]
    agent = script(
        tmp_path / "bin", program.command[0], "#!/bin/sh\n" + "\n".join([*lines, "exit 5"])
    )
    worker = Worker(name="w", kind=kind, options={"sandbox": True, "network": True})
    if refused(worker, house):
        return
    with pytest.raises(ModelError, match="exit code 5"):
        play(open_model(worker, environ=environ(house, agent)))
    assert {path: path.read_text() for path in kept} == kept
    assert {path.read_text() for path in changed} <= {"evil\n"}
    assert not [*house.rglob("*.new")]


def test_a_failure_in_the_sandbox_is_that_of_the_program(house: Path) -> None:
    worker = boxed("sh", "-c", "echo why >&2; exit 7")
    if refused(worker, house):
        return
    with pytest.raises(ModelError, match="sh ended with exit code 7: why"):
        play(open_model(worker, environ=environ(house)))
    slow = boxed("sh", "-c", "trap '' TERM; setsid sleep 61.25 & echo on; sleep 61.25")
    with pytest.raises(ModelError) as error:
        play(open_model(slow, environ=environ(house)), user_request(deadline=0.4))
    assert error.value.reason == "timeout"
    running = [
        command_line.read_bytes()
        for command_line in Path("/proc").glob("[0-9]*/cmdline")
        if command_line.exists()
    ]
    assert not [line for line in running if b"61.25" in line]


@pytest.mark.parametrize(
    "shown", ["", "..", ".local", ".local/state", ".local/state/conductor-llm", "work/link"]
)
@pytest.mark.parametrize("setting", ["cwd", "read"])
def test_a_directory_with_private_files_in_it_is_refused(
    shown: str, setting: str, house: Path, tmp_path: Path
) -> None:
    (house / "work/link").symlink_to(house)
    path = str(house / shown)
    worker = boxed("cat", **{setting: path if setting == "cwd" else [path]})
    works = script(tmp_path / "bin", "bwrap", "#!/bin/sh\nexit 0\n")
    with pytest.raises(ModelError, match="cannot show") as error:
        open_model(worker, environ=environ(house, works))
    assert error.value.reason == "refused"


def test_a_program_brings_its_own_files(tmp_path: Path) -> None:
    directory = tmp_path / "home/lib/node_modules/agent/bin"
    script(directory, "agent.js", "#!/usr/bin/env -S node --flag\n")
    runtime = script(tmp_path / "home/node/bin", "node", "#!/bin/sh\n")
    (tmp_path / "home/bin").mkdir()
    (tmp_path / "home/bin/agent").symlink_to(directory / "agent.js")
    files = own_files(str(tmp_path / "home/bin/agent"), {"PATH": str(runtime)})
    assert files == (
        str(tmp_path / "home/bin/agent"),
        str(tmp_path / "home/lib/node_modules"),
        str(runtime / "node"),
    )


def test_the_command_line_of_a_sandbox_shares_nothing_unasked() -> None:
    words = sandbox_words(
        "bwrap", ["cat"], cwd=Path("/w"), home="/h", shown=["--ro-bind", "/r", "/r"]
    )
    assert {"--unshare-all", "--die-with-parent", "--new-session"} <= set(words)
    assert "--share-net" not in words
    assert [words[index + 1] for index, word in enumerate(words) if word == "--bind"] == ["/w"]
    assert "--share-net" in sandbox_words("bwrap", ["cat"], cwd=Path("/w"), network=())
