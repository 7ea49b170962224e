"""What users, files and workers get wrong: an exit code, at most three lines, and never a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.stage import TWO, Stage, explained, replies, says
from tests.servers import Script
from tests.traces.stored import trace_bytes

ESCAPES = "\x1b[31mred\x1b[0m \x1b]0;title\x07\x9b5n\x1b]52;c;aGk=\x1b\\\u202eback\r\x08"


def test_a_question_of_one_megabyte_is_answered(stage: Stage) -> None:
    done = stage.ok("ask", "--format", "json", given="word " * 210_000)
    assert done.json["answer"] == "alpha answers"
    assert "shortened" in json.dumps(done.json["notices"])
    (path,) = stage.traces.glob("*.jsonl")
    first, *_, last = (json.loads(line) for line in trace_bytes(path).splitlines())
    assert (last["kind"], len(first["question"]["text"])) == ("run_finished", 1_049_999)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xe9t\xe9", "byte 0xe9 at offset 0"),
        (b"a\x00b", "NUL"),
        (b"x" * (16 * 1024 * 1024 + 1), "larger than 16 MiB"),
    ],
    ids=["latin-1", "nul", "huge"],
)
def test_bytes_that_are_no_text_are_refused(stage: Stage, tmp_path: Path, data: bytes, said: str) -> None:
    file = tmp_path / "notes.bin"
    file.write_bytes(data)
    for done in (stage.inside("ask", given=data), stage.inside("ask", "hi", "-f", file)):
        assert done.code == 2
        explained(done)
        assert said in done.err
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
    for arguments in (["list"], ["list", "--json"], ["show"], ["show", "--json"], ["show", "--step", "1"]):
        out = stage.inside("trace", *arguments).out
        assert all(letter.isprintable() or letter in "\n\t" for letter in out), arguments


WRONG = [
    *(([*words], "there is no question") for words in ((), ("",), ("  \n ",), ("-",))), (["\udce9t\udce9"], ""),
    (["hi", "-f", "missing.txt"], "missing.txt"), (["hi", "-f", "folder"], "folder"),
    *((["hi", flag, value], "") for flag, value in (
        ("--workers", "nobody"), ("--workers", ","), ("--mode", "turbo"), ("--max-steps", "9"), ("--max-steps", "many"),
        ("--max-cost", "cheap"), ("--max-cost", "0"), ("--max-calls", "-3"), ("--max-time", "nan"),
        ("--resume", "nobody"),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("words", "told"), WRONG, ids=repr)
def test_what_cannot_be_asked_is_a_usage_error(stage: Stage, tmp_path: Path, words: list[str], told: str) -> None:
    (tmp_path / "folder").mkdir()
    stage.costs_nothing(2, "ask", *words, cwd=tmp_path, told=told)
    assert not stage.traces.exists()


BROKEN: dict[str, Script] = {
    "nothing": replies(""),
    "garbage": replies(bytes(range(256)) * 20),
    "html": replies("<!doctype html><html><body>Log in first</body></html>", "text/html"),
    "html as a stream": replies("<html>\n\n<body>Bad gateway</body>\n\n</html>"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_worker_that_answers_nonsense_fails(stage: Stage, what: str) -> None:
    stage.models = {"alpha": BROKEN[what], "beta": BROKEN[what]}
    stage.fails(1, "ask", "hi", out="")
    assert [entry["state"] for entry in stage.inside("trace", "list", "--json").json] == ["failed"]
