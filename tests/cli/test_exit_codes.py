"""Every exit code but those of signals, and the messages with it.

Users, files and workers that are wrong are among the causes. Nothing is recovered in silence, and
no bug is made up.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conductor_cli.cli.entry import _unexpected
from conductor_cli.core.errors import UsageError
from tests.cli.stage import (
    PLANNER,
    THREE,
    TWO,
    Stage,
    breaks,
    explained,
    refuses,
    replies,
    says,
    stalls,
)
from tests.servers import Script
from tests.tiny_gguf import Extra, make
from tests.traces.stored import trace_bytes


def test_a_setting_that_cannot_be_used_ends_with_3(stage: Stage) -> None:
    stage.configure("[limits]\nsteps = 'many'")
    line = stage.config.read_text().splitlines().index("steps = 'many'") + 1
    message = (
        f"{stage.config}, line {line}: limits.steps is 'many'; expected a whole number from 1 to 5"
    )
    stage.costs_nothing(3, "ask", "hi", told=message)


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_missing_key_ends_with_4(stage: Stage, kind: str) -> None:
    stage.configure(f'[workers.remote]\nkind = "{kind}"', workers=())
    stage.fails(4, "ask", "hi", told=(f"{kind.upper()}_API_KEY", f"conductor keys set {kind}"))


@pytest.mark.parametrize(
    ("model", "code", "out", "message"),
    [
        (refuses(401, "bad key"), 4, "", ""),
        (breaks("The first half"), 7, "The first half\n", "partial"),
        (says("It goes on and", finish="length"), 7, "It goes on and\n", ""),
        (says("It goes on and", finish="content_filter"), 7, "It goes on and\n", ""),
        (says("It goes on and", finish="network_error"), 7, "It goes on and\n", "partial"),
        (says("It goes on.", finish="banana"), 0, "It goes on.\n", "ended the reply with 'banana'"),
    ],
    ids=[
        "a refused key",
        "a worker dies in mid-stream",
        "an answer is cut by its token limit",
        "an answer is cut by a filter",
        "a server says that it failed",
        "an end that nobody documents",
    ],
)
def test_the_end_of_the_last_worker_ends_with_4_or_7(
    stage: Stage, model: Script, code: int, out: str, message: str
) -> None:
    stage.configure(workers=("alpha",))
    stage.models["alpha"] = model
    stage.fails(code, "ask", "hi", out=out, told=message)


@pytest.mark.parametrize(
    "how", [(), ("-q",), ("--format", "json"), ("--format", "jsonl"), ("--progress", "plain")]
)
def test_an_answer_that_is_made_of_a_step_without_an_end_ends_with_7(
    stage: Stage, how: tuple[str, ...]
) -> None:
    """In each output, and with what lets the step write more."""
    stage.configure()
    stage.plan = TWO
    stage.models["alpha"] = says("It goes on and", finish="length", written=32_000)
    done = stage.ends(7, "ask", "hi", *how, told="the answer is made of step 1, which was cut off")
    assert "alpha reached its limit of 32,000 tokens" in done.err
    assert "conductor workers add alpha --set max_tokens=64000" in done.err
    assert "beta answers" in done.out
    shown = stage.ok("trace", "show", "last")
    assert "which was cut off" in shown.out


def test_a_question_without_a_planner_ends_with_5(stage: Stage) -> None:
    done = stage.fails(5, "ask", "hi", env={"CONDUCTOR_LLM_CONFIG_DIR": str(stage.home / "empty")})
    for command in ("conductor model use", "conductor setup", "conductor ask --demo"):
        assert command in done.err


@pytest.mark.parametrize("damage", ["truncated", "architecture", "vanished", "folder"])
def test_a_model_file_that_cannot_be_used_ends_with_5(
    stage: Stage, tiny: Path, tmp_path: Path, damage: str
) -> None:
    file = tmp_path / "model.gguf"
    match damage:
        case "truncated":
            file.write_bytes(tiny.read_bytes()[:-1000])
        case "architecture":
            make(file, extra=Extra(architecture="tortoise"))
        case "folder":
            file.mkdir()
    stage.fails(5, "ask", "hi", "--planner", file, told="model.gguf")


@pytest.mark.parametrize(
    ("flag", "value"), [("--max-calls", "2"), ("--max-tokens", "2000"), ("--max-cost", "0.002")]
)
def test_a_limit_that_is_reached_ends_with_6(stage: Stage, flag: str, value: str) -> None:
    price = "price = { input = 1, output = 1 }\n"
    workers = dict.fromkeys(("alpha", "beta"), f"{price}max_tokens = 1000") | {
        PLANNER: f"{price}enabled = false"
    }
    stage.configure("[limits]\nattempts = 1\nparallel = 1", workers=workers, conductor=PLANNER)
    stage.plan = THREE
    stage.models = {
        name: says(f"{name} answers", read=300, written=900) for name in ("alpha", "beta")
    }
    stage.fails(6, "ask", "hi", flag, value, out="beta answers\n", told="limit")


def test_a_run_whose_time_is_up_ends_with_6(stage: Stage) -> None:
    stage.plan = TWO
    stage.models["beta"] = stalls("not whole")
    done = stage.ends(6, "ask", "hi", "--max-time", "2")
    assert done.out.strip()
    explained(done)


def test_a_run_that_reaches_no_worker_ends_with_8(stage: Stage) -> None:
    dead = (
        '[workers.{0}]\nkind = "openai-compatible"\nbase_url = "http://127.0.0.1:1/v1"\n'
        "model = "
        '"m"\n'
    )
    stage.configure(
        "[limits]\nattempts = 1\n" + dead.format("alpha") + dead.format("beta"), workers=()
    )
    stage.fails(8, "ask", "hi")


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (500, "alpha failed: {host}: server error (500): no"),
        (
            404,
            (
                "alpha failed: {host}: model or URL not found (404): no; hint: check the worker's "
                "model and base_url"
            ),
        ),
        (
            401,
            (
                "key missing or rejected (401): no; hint: conductor keys set openai-compatible "
                "--base-url {url}"
            ),
        ),
    ],
)
def test_a_script_is_told_who_answered_instead_and_why(
    stage: Stage, status: int, reason: str
) -> None:
    stage.models = {"alpha": refuses(status)}
    done = stage.ok("ask", "1+1", out="beta answers\n")
    (line,) = done.err.splitlines()
    assert line.startswith("conductor: step 1: beta answered instead of alpha; ")
    assert (
        reason.format(host=stage.url.removeprefix("http://").removesuffix("/v1"), url=stage.url)
        in line
    )


@pytest.mark.parametrize("flags", [("-q", "ask", "1+1"), ("ask", "1+1", "--progress", "none")])
def test_silence_that_was_asked_for_is_kept(stage: Stage, flags: tuple[str, ...]) -> None:
    stage.models = {"alpha": refuses(500)}
    done = stage.inside(*flags)
    assert (done.code, done.out, done.err) == (0, "beta answers\n", "")


def test_a_worker_without_a_key_is_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    stage.configure('[limits]\nattempts = 1\n[workers.remote]\nkind = "openai"')
    done = stage.inside("ask", "1+1")
    assert done.out == "alpha answers\n"
    (line,) = done.err.splitlines()
    assert line.startswith("conductor: note: remote is left out: ")
    assert (
        "OPENAI_API_KEY is not set; hint: export OPENAI_API_KEY=…, or conductor keys set openai"
        in line
    )


WITHOUT_THREADS = """
import sys, threading
left = int(sys.argv.pop(1))
start = threading._start_new_thread
def refuse(*arguments):
    global left
    left -= 1
    if left < 0:
        raise RuntimeError("can't start new thread")
    return start(*arguments)
threading._start_new_thread = refuse
from conductor_cli.__main__ import main
main()
"""


@pytest.mark.parametrize("left", [0, 1])
def test_a_system_without_threads_is_named(stage: Stage, left: int) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            WITHOUT_THREADS,
            str(left),
            "ask",
            "--demo",
            "How many letters has apple",
        ],
        env=stage.environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert "the system allows no further thread or process\n  end other programs" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EAGAIN, "no further thread or process"),
        (errno.EMFILE, "no further open file"),
        (errno.ENFILE, "open file"),
        (errno.ENOMEM, "no further memory"),
    ],
)
def test_what_is_used_up_is_named(number: int, message: str) -> None:
    error = _unexpected(OSError(number, os.strerror(number)))
    assert (error.exit_code, message in error.message) == (3, True)
    full = _unexpected(BlockingIOError(errno.EAGAIN, "write could not complete without blocking"))
    assert "thread" not in full.message


def test_a_lack_of_memory_is_no_bug() -> None:
    """Neither where one of several things that went on at once found none."""
    message = "the system allows no further memory"
    assert _unexpected(MemoryError()).message == message
    group = ExceptionGroup("together", [ExceptionGroup("inside", [MemoryError()])])
    assert _unexpected(group).message == message
    expected = UsageError("a mistake")
    assert _unexpected(ExceptionGroup("together", [expected])) is expected


ESCAPES = "\x1b[31mred\x1b[0m \x1b]0;title\x07\x9b5n\x1b]52;c;aGk=\x1b\\\u202eback\r\x08"


def test_a_question_of_one_megabyte_is_answered(stage: Stage) -> None:
    done = stage.ok("ask", "--fit", "--format", "json", given="word " * 210_000)
    assert done.json["answer"] == "alpha answers"
    assert "was sent only a part of the question" in json.dumps(done.json["notices"])
    (path,) = stage.traces.glob("*.jsonl")
    first, *_, last = (json.loads(line) for line in trace_bytes(path).splitlines())
    assert (last["kind"], len(first["question"]["text"])) == ("run_finished", 1_049_999)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xe9t\xe9", "byte 0xe9 at offset 0"),
        (b"a\x00b", "NUL"),
        (b"x" * (16 * 1024 * 1024 + 1), "larger than 16 MiB"),
    ],
    ids=["latin-1", "nul", "huge"],
)
def test_bytes_that_are_no_text_are_refused(
    stage: Stage, tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "notes.bin"
    file.write_bytes(content)
    for done in (stage.inside("ask", given=content), stage.inside("ask", "hi", "-f", file)):
        assert done.code == 2
        explained(done)
        assert message in done.err
    assert stage.server.requests == []


def test_a_word_in_utf8_is_read_whatever_the_locale(stage: Stage) -> None:
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert stage.run("ask", "grüße ✓", env=env).code == 0
    assert "grüße ✓" in str(stage.asked("alpha")[0].json)


@pytest.mark.parametrize("content", ["not json", "[1]", "", "[" * 100_000])
def test_an_invalid_schema_is_refused(stage: Stage, tmp_path: Path, content: str) -> None:
    file = tmp_path / "schema.json"
    file.write_text(content)
    stage.fails(2, "ask", "hi", "--schema", file)


@pytest.mark.parametrize("view", ["plain", "none"])
def test_escapes_of_a_worker_never_reach_stderr(stage: Stage, view: str) -> None:
    stage.plan = TWO
    stage.models = {"alpha": says(ESCAPES, "found"), "beta": says("checked ", ESCAPES)}
    done = stage.ok("ask", f"what {ESCAPES} is this?", "--progress", view)
    assert all(letter.isprintable() or letter == "\n" for letter in done.err), repr(done.err)


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_json_holds_escapes_as_escapes(stage: Stage, form: str) -> None:
    stage.models["alpha"] = says(ESCAPES)
    done = stage.inside("ask", f"what {ESCAPES} is this?", "--format", form)
    assert all(letter.isprintable() or letter == "\n" for letter in done.out)
    answer = done.json["answer"] if form == "json" else done.events[-1]["answer"]
    assert answer == ESCAPES


def test_listing_and_showing_a_run_is_safe(stage: Stage) -> None:
    stage.models["alpha"] = says(ESCAPES)
    stage.inside("ask", f"what {ESCAPES} is this?")
    for arguments in (
        ["list"],
        ["list", "--json"],
        ["show"],
        ["show", "--json"],
        ["show", "--step", "1"],
    ):
        out = stage.inside("trace", *arguments).out
        assert all(letter.isprintable() or letter in "\n\t" for letter in out), arguments


WRONG_COMMANDS = [
    *(([*words], "there is no question") for words in ((), ("",), ("  \n ",), ("-",))),
    (["\udce9t\udce9"], ""),
    (["hi", "-f", "missing.txt"], "missing.txt"),
    (["hi", "-f", "folder"], "folder"),
    *(
        (["hi", flag, value], "")
        for flag, value in (
            ("--workers", "nobody"),
            ("--workers", ","),
            ("--mode", "turbo"),
            ("--max-steps", "9"),
            ("--max-steps", "many"),
            ("--max-cost", "cheap"),
            ("--max-cost", "0"),
            ("--max-calls", "-3"),
            ("--max-time", "nan"),
            ("--resume", "nobody"),
        )
    ),
]


@pytest.mark.parametrize(("words", "message"), WRONG_COMMANDS, ids=repr)
def test_what_cannot_be_asked_is_a_usage_error(
    stage: Stage, tmp_path: Path, words: list[str], message: str
) -> None:
    (tmp_path / "folder").mkdir()
    stage.costs_nothing(2, "ask", *words, cwd=tmp_path, told=message)
    assert not stage.traces.exists()


BROKEN: dict[str, Script] = {
    "nothing": replies(""),
    "garbage": replies(bytes(range(256)) * 20),
    "html": replies("<!doctype html><html><body>Log in first</body></html>", "text/html"),
    "html as a stream": replies("<html>\n\n<body>Bad gateway</body>\n\n</html>"),
}


@pytest.mark.parametrize("case_name", BROKEN)
def test_a_worker_that_answers_nonsense_fails(stage: Stage, case_name: str) -> None:
    stage.models = {"alpha": BROKEN[case_name], "beta": BROKEN[case_name]}
    stage.fails(1, "ask", "hi", out="")
    assert [entry["state"] for entry in stage.inside("trace", "list", "--json").json] == ["failed"]
