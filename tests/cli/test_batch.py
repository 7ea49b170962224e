"""`conductor batch`, also on Ray.

Every question once, whatever stops it, with the reasons of those that failed.
"""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from conductor_cli.app import evaluation, ray_jobs
from conductor_cli.app.batches.failure_rules import MAX_REFUSED
from tests.cli.stage import TWO, Stage, finished, limit_file_size, refuses, says, stalls
from tests.servers import SeenRequest, Wire

# US dollars for a million tokens: an answer costs 0.007
PRICE = "price = { input = 0.0, output = 1000.0 }\n"


@pytest.fixture
def one_worker(stage: Stage) -> Stage:
    """One worker, which answers with the number in the question, and fails for 13."""
    stage.configure(workers=("alpha",))
    stage.models["alpha"] = echo
    return stage


PLANNED = 'mode = "ultra"\n[limits]\nattempts = 1'
"""Settings by which a plan is made for one worker, too."""


async def echo(request: SeenRequest, wire: Wire) -> None:
    number = asked_number(request)
    await (refuses(400, "no thirteens") if number == "13" else says(number))(request, wire)


def asked_number(request: SeenRequest) -> str:
    match = re.search(r"number (\d+)", str(request.json["messages"]))
    return match[1] if match else ""


def write(path: Path, lines: list[Any]) -> Path:
    path.write_text(
        "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    )
    return path


def numbers(path: Path, count: int) -> Path:
    return write(path, [{"id": f"q{n}", "question": f"number {n}"} for n in range(count)])


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def chat(text: str, **body: Any) -> dict[str, Any]:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": text}]},
    ]
    return {
        "custom_id": "a",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"messages": messages, **body},
    }


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("number 7", {"id": "1", "question": "number 7", "answer": "7"}),
        ({"id": 5, "question": "number 7", "system": "Be brief."}, {"id": "5", "answer": "7"}),
        ({"question": "number 7"}, {"id": "1", "answer": "7"}),
        (chat("number 7"), {"custom_id": "a", "error": None}),
    ],
)
def test_each_form_of_question_is_answered(
    one_worker: Stage, tmp_path: Path, line: Any, expected: dict[str, Any]
) -> None:
    source = write(tmp_path / "questions", [line, ""])
    out = tmp_path / "answers.jsonl"
    one_worker.ok("batch", source, "-o", out, "--yes", out="", told="1 answer in")
    (answer,) = read(out)
    assert expected.items() <= answer.items()
    if "custom_id" in answer:
        assert answer["response"]["body"]["choices"][0]["message"] == {
            "role": "assistant",
            "content": "7",
        }
    if "Be brief." in str(line):
        assert "Be brief." in str(one_worker.asked("alpha")[0].json["messages"])
    assert not (tmp_path / "answers.failed.jsonl").exists()


def test_what_a_request_of_openais_form_wants_reaches_the_worker(
    one_worker: Stage, tmp_path: Path
) -> None:
    wishes = {"temperature": 0.5, "seed": 7, "top_p": 0.9, "frequency_penalty": 0.25}
    line = chat("number 7", max_completion_tokens=50, stop="END", **wishes)
    source = write(tmp_path / "questions.jsonl", [line])
    one_worker.ok(
        "batch", source, "-o", tmp_path / "answers.jsonl", "--yes", out="", told="1 answer in"
    )
    sent = one_worker.asked("alpha")[-1].json
    assert {name: sent[name] for name in wishes} == wishes
    assert (sent["max_tokens"], sent["stop"]) == (50, ["END"])


def test_an_answer_is_as_long_as_its_request_of_openais_form_wants(
    one_worker: Stage, tmp_path: Path
) -> None:
    """What its own `max_tokens` cuts is an answer, as in `serve`; what another limit cuts is none."""
    one_worker.models["alpha"] = says("seven or", finish="length")
    lines = [chat("number 7", max_tokens=7), chat("number 7", max_tokens=70) | {"custom_id": "b"}]
    source = write(tmp_path / "q.jsonl", lines)
    out = tmp_path / "a.jsonl"
    command = ("batch", source, "-o", out, "--yes")
    one_worker.ends(7, *command, told=("1 answer in", "1 question failed"))
    (answer,) = read(out)
    (failed,) = read(tmp_path / "a.failed.jsonl")
    (choice,) = answer["response"]["body"]["choices"]
    assert (answer["custom_id"], choice["finish_reason"]) == ("a", "length")
    assert choice["message"]["content"] == "seven or"
    assert (failed["custom_id"], failed["error"]["reason"]) == ("b", "answer_truncated")
    asked = len(one_worker.asked("alpha"))
    one_worker.ends(7, *command, told="2 of 2 questions are done")
    assert len(one_worker.asked("alpha")) == asked


def test_json_is_demanded_where_a_request_of_openais_form_does(
    one_worker: Stage, tmp_path: Path
) -> None:
    one_worker.models["alpha"] = says("OKAY")
    line = chat("number 7", response_format={"type": "json_object"})
    source = write(tmp_path / "questions.jsonl", [line])
    done = one_worker.inside("batch", source, "-o", tmp_path / "answers.jsonl", "--yes")
    assert done.code != 0
    assert "not JSON" in (tmp_path / "answers.failed.jsonl").read_text() + done.err + str(
        read(tmp_path / "answers.jsonl")
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"n": 3}, "n must be 1"),
        ({"logprobs": True}, "logprobs cannot be had"),
        ({"max_tokens": "many"}, "max_tokens must be a whole number"),
        ({"temperature": -1}, "temperature must be a number from 0 to 2"),
        ({"max_tokens": 0}, "max_tokens must be a whole number of at least 1"),
        ({"top_p": 1.5}, "top_p must be a number from 0 to 1"),
        ({"top_k": 0.5}, "top_k must be a whole number"),
        ({"presence_penalty": 3}, "presence_penalty must be a number from -2 to 2"),
        ({"logit_bias": [1]}, "logit_bias must be an object of numbers"),
        ({"logit_bias": {"50256": "no"}}, "each value of logit_bias must be a number"),
        ({"modalities": ["text", "audio"]}, "modalities cannot have audio"),
        ({"function_call": "auto"}, "function_call cannot be had"),
        ({"moderation": {"model": "m"}}, "moderation cannot be had"),
        ({"prompt_cache_options": {"prewarm": True}}, "cannot have prewarm: it asks for no answer"),
        ({"stop": 5}, "stop must be a text"),
        ({"response_format": {"type": "json_schema", "json_schema": None}}, "schema is missing"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"schema": {"maximum": float("inf")}},
                }
            },
            "json_schema.schema cannot be used: it holds NaN, Infinity",
        ),
        ({"response_format": "json"}, "response_format.type must be"),
    ],
    ids=str,
)
def test_what_a_request_of_openais_form_cannot_have_is_refused_before_anything_is_asked(
    one_worker: Stage, tmp_path: Path, body: dict[str, Any], message: str
) -> None:
    source = write(tmp_path / "questions.jsonl", [chat("number 7", **body)])
    out = tmp_path / "answers.jsonl"
    done = one_worker.costs_nothing(2, "batch", source, "-o", out, "--yes")
    assert message in done.err
    assert "line 1" in done.err


def test_a_file_that_gzip_packed_is_told_with_the_command_that_unpacks_it(
    one_worker: Stage, tmp_path: Path
) -> None:
    source = tmp_path / "questions.jsonl.gz"
    source.write_bytes(gzip.compress(b'{"question": "number 7"}\n', mtime=0))
    out = tmp_path / "answers.jsonl"
    one_worker.costs_nothing(
        2, "batch", source, "-o", out, "--yes", told="unpack it first: gunzip FILE"
    )


def test_fields_of_a_request_without_effect_are_named_with_their_number(
    one_worker: Stage, tmp_path: Path
) -> None:
    lines = [
        {**chat("number 7", verbosity="low", user="me", store=True), "custom_id": "1"},
        {**chat("number 8", verbosity="low", reasoning_effort="high"), "custom_id": "2"},
    ]
    source = write(tmp_path / "questions.jsonl", lines)
    done = one_worker.ok(
        "batch", source, "-o", tmp_path / "answers.jsonl", "--yes", told="no effect"
    )
    unused_fields = "verbosity (in 2 questions), reasoning_effort (in 1 question)"
    assert f"these fields have no effect in a batch: {unused_fields}" in " ".join(done.err.split())


@pytest.mark.parametrize("order", ["done", "input"])
def test_a_killed_batch_is_finished_by_the_same_command(
    one_worker: Stage, tmp_path: Path, order: str
) -> None:
    """No question is asked again but those that were on their way.

    A line that was cut off does not count.
    """
    source = numbers(tmp_path / "questions.jsonl", 30)
    out = tmp_path / "answers.jsonl"
    request_count = 0

    async def held(request: SeenRequest, wire: Wire) -> None:
        nonlocal request_count
        request_count += 1
        if request_count == 20:
            os.killpg(process.pid, signal.SIGKILL)
        await (echo if request_count < 20 else stalls())(request, wire)

    one_worker.models["alpha"] = held
    command = (
        "batch",
        source,
        "-o",
        out,
        "--parallel",
        "4",
        "--yes",
        "--no-trace",
        "--order",
        order,
    )
    with one_worker.start(*command) as process:
        finished(process)
    with out.open("a") as file:
        file.write('{"id": "q29", "ans')
    one_worker.models["alpha"] = echo
    one_worker.ends(
        7, *command, told=("continuing", "29 answers", "1 question failed", "answers.failed.jsonl")
    )
    answers = read(out)
    assert sorted(answer["id"] for answer in answers) == sorted(
        f"q{n}" for n in range(30) if n != 13
    )
    assert {answer["id"]: answer["answer"] for answer in answers}["q29"] == "29"
    batch_result_of = Counter(map(asked_number, one_worker.asked("alpha")))
    del batch_result_of["13"]  # a refused call is tried without what the server may not know
    assert batch_result_of.total() <= 29 + 4
    if order == "input":
        assert [int(answer["id"][1:]) for answer in answers] == [n for n in range(30) if n != 13]
    before = len(one_worker.server.requests)
    one_worker.ends(7, *command, told="1 question failed")
    assert len(one_worker.server.requests) == before


def test_failed_questions_are_asked_again_from_their_file(
    one_worker: Stage, tmp_path: Path
) -> None:
    source = numbers(tmp_path / "q.jsonl", 15)
    out = tmp_path / "a.jsonl"
    failed = tmp_path / "a.failed.jsonl"
    one_worker.ends(
        7, "batch", source, "-o", out, "--yes", told=("14 answers", "1 question failed")
    )
    (line,) = read(failed)
    assert (line["id"], line["question"], line["error"]["reason"]) == (
        "q13",
        "number 13",
        "refused",
    )
    assert "no thirteens" in line["error"]["message"]
    one_worker.ends(7, "batch", failed, "-o", out, "--yes", told="1 question failed")
    assert len(read(failed)) == 1
    failing = failed.read_text()
    one_worker.models["alpha"] = says("at last")
    one_worker.ok("batch", failed, "-o", out, "--yes", told="1 answer in")
    assert not failed.exists()
    assert read(out)[-1]["answer"] == "at last"
    assert len({answer["id"] for answer in read(out)}) == len(read(out)) == 15
    one_worker.ok("batch", source, "-o", out, told="15 answers")
    failed.write_text(failing)  # as a kill leaves it between the answer and the end of the command
    out.write_bytes(out.read_bytes().rstrip(b"\n"))
    one_worker.ok("batch", source, "-o", out, told="15 answers")
    assert (len(read(out)), failed.exists()) == (15, False)


def test_failures_are_an_input_whatever_the_answers_are_called(
    one_worker: Stage, tmp_path: Path
) -> None:
    out = tmp_path / "a.csv"
    failed = tmp_path / "a.failed.csv"
    command = ("-o", out, "--yes")
    source = write(tmp_path / "q.txt", ["number 13"])
    one_worker.ends(7, "batch", source, *command, told=f"conductor batch {failed}")
    one_worker.models["alpha"] = says("at last")
    one_worker.ok("batch", failed, *command, told="1 answer in")
    assert not failed.exists()


FORM_OF_ANSWERS = {"question": "number 13", "input": "Some context", "answer": "42", "cost": 3}


def test_a_failed_question_may_have_the_fields_of_an_answer(
    one_worker: Stage, tmp_path: Path
) -> None:
    """Data sets have such fields. They are told, and the batch goes on with its failures."""
    source = write(tmp_path / "q.jsonl", [FORM_OF_ANSWERS | {"id": "a"}])
    out = tmp_path / "a.jsonl"
    failed = tmp_path / "a.failed.jsonl"
    fields = ("answer (in 1 question)", "cost (in 1 question)", "input (in 1 question)")
    told = (f"these fields have no effect in a batch: {', '.join(fields)}", "1 question failed")
    command = ("-o", out, "--yes")
    one_worker.ends(7, "batch", source, *command, told=told)
    one_worker.ends(7, "batch", source, *command, told=("1 of 1 questions are done", *told))
    assert len(read(failed)) == 1
    one_worker.models["alpha"] = says("at last")
    again = one_worker.ok("batch", failed, *command, told="1 answer in")
    assert "no effect" not in again.err
    one_worker.ok("batch", source, *command, told=(*told[:1], "1 of 1 questions are done"))


@pytest.mark.parametrize("line", [FORM_OF_ANSWERS | {"id": "a"}, {"question": "number 13"}, None])
def test_a_first_failure_that_a_kill_has_cut_off_is_asked_again(
    one_worker: Stage, tmp_path: Path, line: dict[str, Any] | None
) -> None:
    source = write(tmp_path / "q.jsonl", [line or chat("number 13")])
    failed = tmp_path / "a.failed.jsonl"
    command = ("batch", source, "-o", tmp_path / "a.jsonl", "--yes")
    one_worker.ends(7, *command)
    whole = failed.read_bytes()
    failed.write_bytes(whole[: len(whole) // 2])
    asked = len(one_worker.asked("alpha"))
    one_worker.ends(7, *command, told="1 question failed")
    assert failed.read_bytes() == whole
    assert len(one_worker.asked("alpha")) > asked


def test_a_question_that_was_edited_since_it_failed_is_told_as_that(
    one_worker: Stage, tmp_path: Path
) -> None:
    source = write(tmp_path / "q.jsonl", [{"id": "a", "question": "number 13"}])
    failed = tmp_path / "a.failed.jsonl"
    command = ("batch", source, "-o", tmp_path / "a.jsonl", "--yes")
    one_worker.ends(7, *command)
    write(source, [{"id": "a", "question": "number 14"}])
    told = ("the id 'a' has failed, with another question", f"remove its line from {failed}")
    one_worker.costs_nothing(2, *command, told=told)
    failed.write_text("")
    one_worker.ok(*command, told="1 answer in")


@pytest.mark.parametrize("change", ["cut", "longer", "moved", "gone", "the same again"])
def test_an_input_that_somebody_changes_is_asked_no_further(
    one_worker: Stage, tmp_path: Path, change: str
) -> None:
    """What is asked is what was checked. A file that is only written again does not matter."""
    source = write(tmp_path / "q.txt", [f"number {n}" for n in range(100, 160)])
    lines = source.read_text().splitlines()
    changed = {"cut": lines[:9], "longer": [*lines, "one more"], "moved": ["first", *lines]}

    async def changing(request: SeenRequest, wire: Wire) -> None:
        if asked_number(request) == "103":
            if change == "gone":
                source.unlink()
            else:  # At once: the batch must not read a file that is half written
                write(tmp_path / "new.txt", changed.get(change, lines)).replace(source)
        await echo(request, wire)

    one_worker.models["alpha"] = changing
    out = tmp_path / "a.jsonl"
    command = ("batch", source, "-o", out, "--yes", "--parallel", "2")
    if change not in changed:
        one_worker.ok(*command, told="60 answers")
        return
    done = one_worker.inside(*command)
    assert done.code == 2
    assert f"{source} was changed after it was checked, and nothing more of it is asked" in done.err
    assert "the limit of the batch" not in done.err
    assert 4 <= len(read(out)) <= 6
    write(source, lines)
    one_worker.ok(*command, told="60 answers")
    assert len(one_worker.asked("alpha")) == 60


@pytest.mark.skipif(os.name == "nt", reason="permissions are those of POSIX")
@pytest.mark.parametrize("order", ["done", "input"])
def test_files_that_are_written_again_stay_private_and_behind_their_links(
    one_worker: Stage, tmp_path: Path, order: str
) -> None:
    files = [tmp_path / "real" / "a.jsonl", tmp_path / "real" / "f.jsonl"]
    links = [tmp_path / "a.jsonl", tmp_path / "a.failed.jsonl"]
    files[0].parent.mkdir()
    for file, link in zip(files, links, strict=True):
        file.touch(mode=0o600)
        link.symlink_to(file)
    command = ("-o", links[0], "--yes", "--order", order)
    one_worker.ends(7, "batch", numbers(tmp_path / "q.jsonl", 15), *command)
    write(tmp_path / "more.jsonl", [{"id": "later", "question": "number 13"}])
    one_worker.ends(7, "batch", tmp_path / "more.jsonl", *command)
    one_worker.ends(7, "batch", links[1], *command)
    assert [link.is_symlink() for link in links] == [True, True]
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600, 0o600]
    assert [len(read(file)) for file in files] == [14, 2]
    one_worker.models["alpha"] = says("at last")
    one_worker.ok("batch", links[1], *command)
    assert [link.is_symlink() for link in links] == [True, True]
    assert [file.exists() for file in files] == [True, False]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["", " "], "has no questions"),
        (
            [{"id": "a", "question": "x"}, {"id": "a", "question": "y"}],
            "two questions have the id 'a'",
        ),
        ([{"id": "a", "question": "x"}, "{"], "line 2: it is not JSON"),
        ([{"id": "a", "question": "x"}, "[]"], "line 2: it is not a JSON object"),
        ([{"id": "a", "question": ""}], "line 1: it has no question"),
        ([{"id": ["a"], "question": "x"}], "line 1: its id is not a text"),
        ([{"id": "a", "question": "x", "schema": 1}], "its schema is not a JSON object"),
        (
            [{"id": "a", "question": "x", "schema": {"minimum": float("nan")}}],
            "its schema cannot be used: it holds NaN",
        ),
        (
            [{"id": "a", "question": "x", "schema": {"type": "record"}}],
            'its schema cannot be used: at type: "record" is not valid',
        ),
        ([chat("x", tools=[{"type": "function"}])], "tools cannot be called in a batch"),
        ([chat("x") | {"url": "/v1/embeddings"}], "it is not a request for /v1/chat/completions"),
        (
            [chat("x", messages=[{"role": "user", "content": [{"type": "image_url"}]}])],
            "only texts",
        ),
        (
            [{"id": "q1", "question": "another one"}],
            "the id 'q1' has an answer already, to another question",
        ),
        (
            [
                chat(
                    "x",
                    messages=[{"role": "user", "content": ["x", {"type": "text", "text": "y"}]}],
                )
            ],
            "only texts",
        ),
        (
            [
                chat(
                    "x",
                    messages=[{"role": "user", "content": [{"type": "image_url", "text": "x"}]}],
                )
            ],
            "only texts",
        ),
        (["x" * (16 << 20) + "x"], "line 1: it is longer than 16.8 MB"),
    ],
)
def test_input_that_cannot_be_asked_costs_nothing(
    one_worker: Stage, tmp_path: Path, lines: list[Any], message: str
) -> None:
    out = write(tmp_path / "a.jsonl", [{"id": "q1", "question": "number 1", "answer": "1"}])
    before = out.read_bytes()
    one_worker.fails(
        2, "batch", write(tmp_path / "q.jsonl", lines), "-o", out, "--yes", told=message
    )
    assert out.read_bytes() == before
    assert not one_worker.server.requests


@pytest.mark.parametrize(
    ("text", "encoding", "message"),
    [
        ("Das Café ist schön.\n", "latin-1", "iconv -f CP1252"),
        ("Das Café ist schön.\n", "utf-16", "iconv -f UTF-16 "),
        ("Why is it so?\nAnd how?\n", "utf-16-le", "iconv -f UTF-16LE"),
        ("日本語のテキスト\n", "shift_jis", "its encoding is not known"),
        ("a question\nanother\0one\n", "utf-8", "line 2: it is not UTF-8 text"),
    ],
)
def test_questions_in_another_encoding_are_not_asked(
    one_worker: Stage, tmp_path: Path, text: str, encoding: str, message: str
) -> None:
    source = tmp_path / "q.txt"
    source.write_bytes(text.encode(encoding))
    one_worker.fails(2, "batch", source, "-o", tmp_path / "a.jsonl", "--yes", told=message)
    assert not one_worker.server.requests


@pytest.mark.parametrize("name", ["q.csv", "q.YAML", "q.xml", "q.toml"])
def test_a_table_or_another_format_is_not_asked_line_by_line(
    one_worker: Stage, tmp_path: Path, name: str
) -> None:
    source = write(tmp_path / name, ["id,question", "1,Why?"])
    message = f"{name} is neither a text with a question on each line nor JSON Lines"
    one_worker.fails(2, "batch", source, "-o", tmp_path / "a.jsonl", "--yes", told=message)
    assert not one_worker.server.requests


def test_fields_of_a_line_that_nothing_reads_are_told(one_worker: Stage, tmp_path: Path) -> None:
    lines = [
        {"id": "a", "question": "number 1", "files": ["b.txt"]},
        {"question": "number 2", "model": "z"},
    ]
    source = write(tmp_path / "q.jsonl", lines)
    notice = "these fields have no effect in a batch: files (in 1 question), model (in 1 question)"
    one_worker.ok("-q", "batch", source, "-o", tmp_path / "a.jsonl", "--yes", told=notice)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ['{"id": "a", "question": "hi"},', '{"id": "b", "question": "ho"}'],
            "line 1: it is not a JSON object",
        ),
        (
            ["{'id': 'a'}", '{"id": "b", "question": "ho"}'],
            "line 2: it is JSON, and the first line is not",
        ),
        (
            ["[", '{"id": "a", "question": "hi"},', "]"],
            "line 2: it is JSON, and the first line is not",
        ),
        (['[{"id": "a", "question": "hi"}]'], "line 1: it is not a JSON object"),
    ],
)
@pytest.mark.parametrize("name", ["q.txt", "q.jsonl"])
def test_a_mistake_in_json_is_not_asked_as_a_question(
    one_worker: Stage, tmp_path: Path, lines: list[str], message: str, name: str
) -> None:
    message = "line 1: it is not a JSON object" if name == "q.jsonl" else message
    one_worker.fails(
        2, "batch", write(tmp_path / name, lines), "-o", tmp_path / "a.jsonl", "--yes", told=message
    )
    assert not one_worker.server.requests


def test_a_text_may_have_braces_and_brackets(one_worker: Stage, tmp_path: Path) -> None:
    lines = ["{7} number 7", "[1] number 8", "number 9: {", "{} number 10"]
    source = write(tmp_path / "q.txt", lines)
    one_worker.ok("batch", source, "-o", tmp_path / "a.jsonl", "--yes", told="4 answers")


@pytest.mark.parametrize("name", ["notes.txt", "notes.failed.txt"])
@pytest.mark.parametrize(
    "text", ["my notes", '{"id": "x", "name": "A"}\n', '{"name": "A"}', '{"name": "A', "{"]
)
def test_a_file_that_no_batch_has_written_is_not_touched(
    one_worker: Stage, tmp_path: Path, name: str, text: str
) -> None:
    """Not even its last line, where that has no end as if a kill had cut it off."""
    source = numbers(tmp_path / "q.jsonl", 2)
    path = tmp_path / name
    path.write_text(text)
    one_worker.costs_nothing(
        2, "batch", source, "-o", tmp_path / "notes.txt", "--yes", told="no batch has written this"
    )
    assert path.read_text() == text
    one_worker.costs_nothing(2, "batch", source, "-o", source, "--yes", told="is the input")


def test_a_half_line_of_openais_form_is_no_answer_of_a_batch(
    one_worker: Stage, tmp_path: Path
) -> None:
    """It may be an input that was named with -o."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"custom_id":"1","method":"PO')
    command = ("batch", numbers(tmp_path / "q.jsonl", 2), "-o", path, "--yes")
    one_worker.costs_nothing(2, *command, told="no batch has written this")
    assert path.read_text() == '{"custom_id":"1","method":"PO'


@pytest.mark.parametrize(
    ("questions", "out"), [("-", "a.jsonl"), ("q.jsonl", "/dev/null"), ("q.jsonl", ".")]
)
def test_a_batch_needs_files_that_can_be_read_again(
    one_worker: Stage, tmp_path: Path, questions: str, out: str
) -> None:
    numbers(tmp_path / "q.jsonl", 2)
    one_worker.fails(2, "batch", questions, "-o", out, "--yes", cwd=tmp_path, told="is not a file")


@pytest.mark.parametrize("act", ["remove", "replace", "cut"])
def test_answers_that_somebody_takes_away_are_told_and_kept(
    one_worker: Stage, tmp_path: Path, act: str
) -> None:
    source = numbers(tmp_path / "q.jsonl", 6)
    out = tmp_path / "a.jsonl"
    request_count = 0

    async def take_away(request: SeenRequest, wire: Wire) -> None:
        nonlocal request_count
        request_count += 1
        if request_count == 4:
            if act == "cut":
                out.write_text("")
            else:
                out.unlink()
            if act == "replace":
                out.write_text('{"id": "mine"}\n')
        await echo(request, wire)

    one_worker.models["alpha"] = take_away
    command = ("batch", source, "-o", out, "--parallel", "1", "--yes", "--order", "input")
    verb = {"remove": "removed", "replace": "replaced", "cut": "cut"}[act]
    one_worker.ends(
        2, *command, told=(f"{out} was {verb} by somebody else", "the same command continues")
    )
    if act == "replace":
        assert out.read_text() == '{"id": "mine"}\n'
        (tmp_path / "a.kept.jsonl").replace(out)
    one_worker.models["alpha"] = echo
    one_worker.ok(*command, told="6 answers")
    assert [line["id"] for line in read(out)] == [f"q{n}" for n in range(6)]
    assert len(one_worker.asked("alpha")) == 6 + 3 * (act == "cut")


def test_a_file_with_two_names_is_written_by_one_batch(one_worker: Stage, tmp_path: Path) -> None:
    source = numbers(tmp_path / "q.jsonl", 3)
    out = tmp_path / "a.jsonl"
    other = tmp_path / "b.jsonl"
    out.touch()
    other.hardlink_to(out)
    one_worker.models["alpha"] = stalls()
    with one_worker.start("batch", source, "-o", out, "--yes") as process:
        until_asked(one_worker)
        one_worker.fails(2, "batch", source, "-o", other, "--yes", told="another process writes")
        os.killpg(process.pid, signal.SIGKILL)
        finished(process)


def until_asked(one_worker: Stage) -> None:
    """Wait until a worker is asked."""
    end = time.monotonic() + 60
    while not one_worker.asked("alpha"):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_sorted_answers_stay_behind_their_link(one_worker: Stage, tmp_path: Path) -> None:
    source = numbers(tmp_path / "q.jsonl", 3)
    out = tmp_path / "a.jsonl"
    link = tmp_path / "link.jsonl"
    write(out, [{"id": "q2", "question": "number 2", "answer": "2"}])
    link.symlink_to(out)
    one_worker.ok("batch", source, "-o", link, "--yes", "--order", "input")
    assert link.is_symlink()
    assert [line["id"] for line in read(out)] == ["q0", "q1", "q2"]


EDITED = {"id": "a", "question": "number 7", "system": "Be brief."}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (EDITED, EDITED | {"system": "Be long."}),
        (EDITED, EDITED | {"schema": {"type": "string"}}),
        ({"id": "a", "question": "number 7"}, EDITED),
        (chat("number 7"), chat("number 8")),
        (chat("number 7"), chat("number 7", response_format={"type": "json_object"})),
    ],
)
def test_an_edited_question_does_not_keep_the_old_answer(
    one_worker: Stage, tmp_path: Path, first: Any, second: Any
) -> None:
    """An answer of an earlier version does not say what all of its question was: that is kept."""
    source = tmp_path / "q.jsonl"
    out = tmp_path / "a.jsonl"
    command = ("batch", source, "-o", out, "--yes")
    write(source, [first])
    one_worker.ok(*command, told="1 answer")
    one_worker.ok(*command, told="1 of 1 questions are done")
    write(source, [first | {"note": "mine"}])
    one_worker.ok(*command, told="1 of 1 questions are done")
    write(source, [second])
    one_worker.fails(2, *command, told="the id 'a' has an answer already, to another question")
    (line,) = read(out)
    write(out, [{name: value for name, value in line.items() if name != "input"}])
    code = 2 if second.get("question", "") != first.get("question", "") else 0
    assert one_worker.inside(*command).code == code


def test_sorting_loses_no_answer(one_worker: Stage, tmp_path: Path) -> None:
    """Neither those of questions that are gone from the input, nor all others after a retry."""
    source = numbers(tmp_path / "q.jsonl", 15)
    out = tmp_path / "a.jsonl"
    failed = tmp_path / "a.failed.jsonl"
    command = ("-o", out, "--yes", "--order", "input")
    one_worker.ends(
        7, "batch", source, *command, told=("to ask them again: conductor batch", str(failed))
    )
    one_worker.models["alpha"] = says("at last")
    one_worker.ok("batch", failed, *command)
    assert {answer["id"] for answer in read(out)} == {f"q{n}" for n in range(15)}
    one_worker.ok("batch", source, *command)
    assert [answer["id"] for answer in read(out)] == [f"q{n}" for n in range(15)]
    one_worker.ok("batch", numbers(tmp_path / "fewer.jsonl", 3), *command)
    assert [answer["id"] for answer in read(out)] == [f"q{n}" for n in range(15)]


def test_a_batch_that_ends_at_its_limit_is_finished(one_worker: Stage, tmp_path: Path) -> None:
    one_worker.config.write_text(one_worker.config.read_text() + PRICE)
    one_worker.models["alpha"] = says("fine")
    # 256 tokens, and little more
    command = ("--planner", "alpha", "--mode", "mini", "--max-cost", "0.27")
    one_worker.ok(
        "batch",
        numbers(tmp_path / "q.jsonl", 1),
        "-o",
        tmp_path / "a.jsonl",
        *command,
        told="1 answer in",
    )


def test_a_batch_stops_at_its_cost_and_goes_on_with_more(one_worker: Stage, tmp_path: Path) -> None:
    one_worker.config.write_text(one_worker.config.read_text() + PRICE)
    source = numbers(tmp_path / "q.jsonl", 12)
    out = tmp_path / "a.jsonl"
    command = (
        "batch",
        source,
        "-o",
        out,
        "--parallel",
        "2",
        "--planner",
        "alpha",
        "--mode",
        "mini",
        "--max-cost",
    )
    one_worker.models["alpha"] = says("fine")
    one_worker.ends(
        6,
        *command,
        "0.29",
        told=("the limit of the batch is reached", "the same command continues"),
    )
    some = len(read(out))
    assert 0 < some < 12
    one_worker.ok(*command, "5", told=(f"continuing {out}: {some} of 12", "12 answers"))
    assert len({answer["id"] for answer in read(out)}) == 12


def test_a_cost_that_is_not_known_whole_is_told_as_that(stage: Stage, tmp_path: Path) -> None:
    """Also when a batch that has failures goes on: a plus, as in lists of runs."""
    stage.configure(workers={"alpha": "", "beta": PRICE})
    stage.plan = TWO
    source = numbers(tmp_path / "q.jsonl", 1)
    out = tmp_path / "a.jsonl"
    command = ("-o", out, "--yes")
    told = f"1 answer in {out}, $0.0070+\n"
    stage.ok("batch", source, *command, told=told)
    assert [(line["cost"], line["unpriced"]) for line in read(out)] == [(0.007, 2)]
    stage.models["beta"] = refuses(400)
    stage.models["alpha"] = says("half of it", finish="length")
    stage.ends(7, "batch", numbers(source, 2), *command, told=told)
    (failed,) = read(tmp_path / "a.failed.jsonl")
    assert failed["error"]["unpriced"] > 0
    again = stage.ends(7, "batch", tmp_path / "a.failed.jsonl", *command, told="$0.0070+")
    assert "no effect" not in again.err


def test_what_a_batch_has_spent_takes_one_line_where_it_goes_on(
    one_worker: Stage, tmp_path: Path
) -> None:
    """Calls that a kill has cut off go on to count in full."""
    one_worker.config.write_text(one_worker.config.read_text() + PRICE)
    one_worker.models["alpha"] = says("fine")
    out = tmp_path / "a.jsonl"
    command = ("-o", out, "--planner", "alpha", "--mode", "mini", "--max-cost")
    one_worker.ok("batch", numbers(tmp_path / "q.jsonl", 1), *command, "5", told="$0.0140")
    (record,) = (one_worker.home / "state/conductor-llm/batches").glob("*.spent.jsonl")
    with record.open("a") as file:
        for number in range(10, 20_010):
            file.write(f'\n{{"holds": {number}, "cost": "0.5"}}')
            file.write(f'\n{{"ends": {number}, "cost": "0.0001"}}')
        file.write('\n{"holds": 20010, "cost": "1.5"}')
    source = numbers(tmp_path / "q.jsonl", 2)
    told = "the limit of the batch is reached: $3.51 of $3.60 spent"
    one_worker.ends(6, "batch", source, *command, "3.6", told=told)
    assert record.stat().st_size < 1000
    one_worker.ok("batch", source, *command, "5", told="2 answers")


def test_a_refused_key_stops_the_batch_and_fails_no_question(
    one_worker: Stage, tmp_path: Path
) -> None:
    one_worker.models["alpha"] = refuses(401, "bad key")
    source = numbers(tmp_path / "q.jsonl", 40)
    out = tmp_path / "a.jsonl"
    one_worker.ends(
        4, "batch", source, "-o", out, "--parallel", "2", "--yes", told="0 of 40 questions are done"
    )
    assert len(one_worker.asked("alpha")) <= MAX_REFUSED + 2
    assert not (tmp_path / "a.failed.jsonl").exists()


@pytest.mark.parametrize("parallel", ["1", "64"])
@pytest.mark.parametrize(("model", "status"), [("planner", 400), ("alpha", 401)])
def test_one_refused_question_is_a_failure_of_its_own(
    one_worker: Stage, tmp_path: Path, parallel: str, model: str, status: int
) -> None:
    """As of a filter of content.

    All others are answered, also where it is the last one that is left.
    """
    one_worker.configure(PLANNED, workers=("alpha",))
    say = echo if model == "alpha" else says(one_worker.plan)

    async def filtered(request: SeenRequest, wire: Wire) -> None:
        await (
            refuses(status, "filtered") if "number 11" in str(request.json["messages"]) else say
        )(request, wire)

    one_worker.models[model] = filtered
    source = write(tmp_path / "q.txt", [f"number {number}" for number in (11, 12, 14, 15, 16, 11)])
    out = tmp_path / "a.jsonl"
    failed = tmp_path / "a.failed.jsonl"
    command = ("-o", out, "--parallel", parallel, "--yes")
    one_worker.ends(7, "batch", source, *command, told=("4 answers", "2 questions failed"))
    assert [(line["id"], "filtered" in line["error"]["message"]) for line in read(failed)] == [
        ("1", True),
        ("6", True),
    ]
    one_worker.ends(7, "batch", failed, *command, told="2 questions failed")
    one_worker.models[model] = say
    one_worker.ok("batch", failed, *command, told="2 answers")


def test_a_planner_that_refuses_all_stops_the_batch(one_worker: Stage, tmp_path: Path) -> None:
    one_worker.configure(PLANNED, workers=("alpha",))
    one_worker.models["planner"] = refuses(404, "no such model")
    source = numbers(tmp_path / "q.jsonl", 5)
    out = tmp_path / "a.jsonl"
    one_worker.ends(5, "batch", source, "-o", out, "--yes", told="0 of 5 questions are done")
    assert not (tmp_path / "a.failed.jsonl").exists()


def test_a_batch_asks_before_it_costs_something(one_worker: Stage, tmp_path: Path) -> None:
    source = numbers(tmp_path / "q.jsonl", 2)
    out = tmp_path / "a.jsonl"
    one_worker.fails(2, "batch", source, "-o", out, "-q", told="needs a confirmation")
    assert not out.exists(), "nothing was asked, so nothing is left behind"
    one_worker.fails(
        3, "batch", source, "-o", out, "--max-cost", "1", told="no price is known for alpha"
    )
    assert not one_worker.asked("alpha")


def test_a_planner_without_a_price_is_told_as_what_it_is(one_worker: Stage, tmp_path: Path) -> None:
    priced = "price = { input = 1, output = 1 }\n"
    one_worker.configure(PLANNED, workers={"alpha": priced, "beta": priced})
    command = ("batch", numbers(tmp_path / "q.jsonl", 2), "-o", tmp_path / "a.jsonl")
    one_worker.fails(
        3, *command, "--max-cost", "1", told=("which plans", "conductor model use NAME")
    )


def test_a_batch_that_cannot_record_what_it_spends_says_so(
    one_worker: Stage, tmp_path: Path
) -> None:
    """A disk is full, and no limit on money was set that could be reached."""
    one_worker.configure(workers={"alpha": PRICE})
    source = numbers(tmp_path / "q.jsonl", 1)
    command = ("batch", source, "-o", tmp_path / "a.jsonl", "--yes", "--no-trace")
    one_worker.ok(*command)
    (record,) = (one_worker.home / "state/conductor-llm/batches").glob("*.spent.jsonl")
    record.write_text("\n" * 64 * 1024)
    numbers(source, 2)
    done = one_worker.run(*command, under=limit_file_size(64))
    assert done.code == 6
    assert f"what is spent cannot be recorded: {record}: File too large" in done.err
    assert "free some space; the same command continues" in done.err
    assert "--max-cost to" not in done.err
    assert len(one_worker.asked("alpha")) == 1


def test_a_batch_for_one_worker_needs_no_planner_and_no_price_of_one(
    stage: Stage, tmp_path: Path
) -> None:
    """Each question is one call, as with `ask`; where a plan is wanted, a planner has to be there."""
    stage.configure(workers={"alpha": PRICE}, conductor=None)
    stage.models["alpha"] = echo
    source = numbers(tmp_path / "q.jsonl", 3)
    stage.ok("batch", source, "-o", tmp_path / "free.jsonl", "--yes")
    stage.configure(workers={"alpha": PRICE, "beta": PRICE})
    limited = ("batch", source, "-o", tmp_path / "limited.jsonl", "--max-cost", "100")
    stage.fails(3, *limited, told="which plans")
    stage.ok(*limited, "--workers", "alpha")
    assert len(stage.asked("alpha")) == 6
    assert not stage.asked("planner")
    stage.configure(workers={"alpha": PRICE}, conductor=None)
    ultra = ("batch", source, "-o", tmp_path / "ultra.jsonl", "--yes", "--mode", "ultra")
    stage.fails(5, *ultra, told="no planner is chosen")


def test_a_node_of_ray_that_does_not_start_in_time_is_no_bug(
    one_worker: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray raises a bare exception for that."""

    def init(*_: object, **__: object) -> None:
        raise Exception("The current node timed out during startup.")  # noqa: TRY002 - as Ray does

    ray = ModuleType("ray")
    ray.__dict__.update(init=init, data=ModuleType("ray.data"))
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.data", ray.__dict__["data"])
    words = ("batch", numbers(tmp_path / "q.jsonl", 4), "-o", tmp_path / "a.jsonl", "--yes")
    told = "no Ray cluster answers at auto: The current node timed out during startup."
    done = one_worker.ends(3, *words, "--ray", "auto")
    assert told in done.err


needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="ray is not installed: make train-setup"
)


@needs_ray
@pytest.mark.timeout(600)
def test_a_batch_on_ray_asks_each_question_once_and_goes_on_without_it(
    one_worker: Stage, tmp_path: Path
) -> None:
    """One that fails costs only itself; the same command, here without Ray, asks nothing again."""
    # Ray imports jsonschema in each of its processes, which takes seconds where this library is
    # there too.
    (tmp_path / "rfc3987_syntax.py").write_text("raise ImportError\n")
    path = f"{tmp_path}{os.pathsep}{one_worker.environ()['PYTHONPATH']}"
    questions = numbers(tmp_path / "q.jsonl", 40)
    out = tmp_path / "a.jsonl"
    words = ("batch", questions, "-o", out, "--yes", "--no-trace")
    with one_worker.start(*words, "--ray", "auto", env={"PYTHONPATH": path}) as process:
        _, err = process.communicate(timeout=500)
    assert process.returncode == 7, err.decode()
    assert Counter(line["id"] for line in read(out)) == Counter(
        {f"q{n}": 1 for n in range(40) if n != 13}
    )
    assert [line["id"] for line in read(tmp_path / "a.failed.jsonl")] == ["q13"]
    request_count = len(one_worker.asked("alpha"))
    assert one_worker.inside(*words).code == 7
    assert len(one_worker.asked("alpha")) == request_count


@needs_ray
@pytest.mark.timeout(600)
def test_a_batch_on_ray_that_is_interrupted_ends_as_one_without_it(
    one_worker: Stage, tmp_path: Path
) -> None:
    (tmp_path / "rfc3987_syntax.py").write_text("raise ImportError\n")  # as above
    path = f"{tmp_path}{os.pathsep}{one_worker.environ()['PYTHONPATH']}"
    questions = numbers(tmp_path / "q.jsonl", 4)
    words = ("batch", questions, "-o", tmp_path / "a.jsonl", "--yes", "--no-trace")

    async def interrupts(request: SeenRequest, wire: Wire) -> None:
        if len(one_worker.asked("alpha")) == 1:
            process.send_signal(signal.SIGINT)
        await wire.stall()

    one_worker.models["alpha"] = interrupts
    with one_worker.start(*words, "--ray", "auto", env={"PYTHONPATH": path}) as process:
        _, err = process.communicate(timeout=500)
    assert process.returncode == 130, err.decode()
    assert b"stopped: 0 of 4 questions are done; the same command continues" in err, err.decode()


@needs_ray
def test_an_evaluation_on_nodes_runs_cases_once(
    one_worker: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that no server answers is counted as failed.

    The same command, here without Ray, runs only that again.

    The node is one of this process, to which everything goes as bytes, as to an actor of Ray.
    """

    async def on_a_node(
        rows: Iterable[Any], *, opener: Any, **_: object
    ) -> AsyncIterator[tuple[Any, Any]]:
        node = ray_jobs._Node(pickle.loads(pickle.dumps(opener)), None)
        for row in rows:
            batch = await node({"number": [0], "row": [pickle.dumps(row)]})
            yield row, pickle.loads(batch["result"][0])
        await node._open.aclose()
        node._ask = None  # nothing is left to close

    monkeypatch.setattr(evaluation, "ask_over_nodes", on_a_node)
    monkeypatch.setattr("conductor_cli.cli.eval.ray_cluster", lambda _: nullcontext("this one"))
    rows = [
        {"id": f"c{n}", "question": f"What is number {n}?", "answer": str(n)} for n in range(10, 16)
    ]
    cases = tmp_path / "cases.jsonl"
    cases.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("eval", cases, "--systems", "alone", "--yes", "--json")

    async def overloaded_by_13(request: SeenRequest, wire: Wire) -> None:
        number = asked_number(request)
        await (refuses(503) if number == "13" else says(number))(request, wire)

    one_worker.models["alpha"] = overloaded_by_13
    first = one_worker.ok(*words, "--ray", "auto").json["systems"]
    assert [(system["right"], system["failed"]) for system in first] == [(5, 1)]
    request_count = len(one_worker.asked("alpha"))
    one_worker.models["alpha"] = says("13")
    again = one_worker.ok(*words).json["systems"]
    assert [(system["right"], system["failed"]) for system in again] == [(6, 0)]
    assert len(one_worker.asked("alpha")) == request_count + 1
