"""`conductor eval` as a user has it: real requests to a server of this machine, real files, real signals."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pexpect
import pytest

from conductor_cli.rehearsal import workers as rehearsal_workers
from tests.cli.stage import COMMAND, Done, Stage, explained, finished, refuses, says, stalls
from tests.servers import Script, SeenStep, Wire
from tests.tiny_gguf import make

SUMS = [
    {"id": f"s{number}", "question": f"What is {number} + 1?", "answer": f"{number + 1}", "scorer": "number",
     "tags": ["sums"]}
    for number in range(1, 7)
]  # fmt: skip


def knows(*numbers: int) -> Script:
    """A worker that can add one to these numbers and says 0 of all others."""

    async def script(seen: SeenStep, wire: Wire) -> None:
        text = " ".join(message["content"] for message in seen.json["messages"])
        right = next((number for number in numbers if f"What is {number} + 1?" in text), -1)
        await says(f"It is {right + 1}.", read=20, written=4)(seen, wire)

    return script


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """Six sums in a file."""
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(json.dumps(case) + "\n" for case in SUMS))
    return path


@pytest.fixture
def desk(stage: Stage) -> Stage:
    """Two workers, of which alpha knows more, and no conductor model."""
    stage.configure(conductor="-")
    stage.config.write_text(stage.config.read_text().replace('model = "-"', "", 1))
    stage.models = {"alpha": knows(1, 2, 3, 4), "beta": knows(4, 5)}
    return stage


def by_name(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {system["name"]: system for system in data["systems"]}


def posts(stage: Stage) -> int:
    return len([seen for seen in stage.server.requests if seen.method == "POST"])


def free(stage: Stage, name: str) -> str:
    """A worker that is known to cost nothing."""
    return stage.worker(name, "price = { input = 0, output = 0 }")


def test_each_system_is_measured_on_the_same_cases(desk: Stage, cases: Path) -> None:
    """What is right, what it took, and which worker is best, as JSON on stdout; progress is on stderr."""
    done = desk.inside("eval", cases, "--systems", "alone,vote", "--yes", "--json")
    assert done.code == 0, done.err
    found = by_name(done.json)
    assert {name: system["right"] for name, system in found.items()} == {"alone:alpha": 4, "alone:beta": 2, "vote": 4}
    assert [system["n"] for system in found.values()] == [6, 6, 6]
    assert (found["alone:alpha"]["calls"], found["vote"]["calls"], found["vote"]["tokens"]) == (1, 5, 120)
    assert (found["alone:alpha"]["cost"], found["alone:alpha"]["unpriced"]) == (None, 6)
    assert done.json["best_worker"] == {"by_card": None, "in_hindsight": "alone:alpha"}
    assert found["alone:beta"]["versus_best"]["difference"] == pytest.approx(-1 / 3)
    assert found["alone:alpha"]["tags"]["sums"]["right"] == 4
    assert (done.json["cases"], done.json["seed"], done.json["source"]) == (6, 0, "sums.jsonl")
    assert "18 of 18 runs" in done.err


def test_the_table_in_a_pipe_has_every_column(desk: Stage, cases: Path) -> None:
    """Plain text, one line a system, and the notes that explain it."""
    done = desk.inside("eval", cases, "--systems", "alone", "--yes", "--workers", "alpha,beta")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split()[:2] == ["SYSTEM", "RIGHT"]
    assert lines[1].split()[:2] == ["alone:alpha", "66.7"]
    assert lines[2].startswith("alone:beta")
    assert any(line.startswith("VS BEST: points above alone:alpha (66.7)") for line in lines)
    assert "unknown" in lines[1]
    assert "\x1b" not in done.out


def test_without_a_conductor_model_its_systems_are_left_out(desk: Stage, cases: Path) -> None:
    """One line says so and how to choose one; the others run all the same."""
    done = desk.inside("eval", cases, "--yes", "--json", "--n", "2")
    assert done.code == 0, done.err
    assert not any(name.startswith("conductor") for name in by_name(done.json))
    assert {"alone:alpha", "moa", "pipeline", "reflection", "random"} <= set(by_name(done.json))
    (line,) = [line for line in done.json["notes"] if "no conductor model is chosen" in line]
    assert "conductor-mini, conductor, " in line
    assert "conductor model use" in line


def test_only_the_conductor_without_a_model_is_an_error(desk: Stage, cases: Path) -> None:
    """Nothing is left to run: 5, as in any command that needs the model."""
    done = desk.inside("eval", cases, "--systems", "conductor", "--yes")
    assert (done.code, done.out) == (5, "")
    explained(done)


def test_the_conductor_is_measured_with_its_plans(stage: Stage, cases: Path) -> None:
    """Valid plans are counted, and the conductor's own tokens are part of all."""
    stage.models = {"alpha": knows(1, 2, 3), "beta": knows()}
    done = stage.inside("eval", cases, "--systems", "conductor,alone:alpha", "--yes", "--json")
    assert done.code == 0, done.err
    auto = by_name(done.json)["conductor"]
    assert (auto["plans"]["valid"], auto["plans"]["n"], auto["plans"]["accuracy_if_valid"]) == (6, 6, 0.5)
    assert (auto["tokens_conductor"], auto["tokens"], auto["calls"]) == (18, 42, 2)
    assert done.json["conductor"].startswith("openai-compatible/")


def test_what_may_cost_money_begins_only_after_a_yes(desk: Stage, cases: Path) -> None:
    """Without a terminal and without --yes nobody is asked: 2, with the number of calls and an honest price."""
    done = desk.inside("eval", cases, "--systems", "alone")
    assert (done.code, done.out, posts(desk)) == (2, "", 0)
    assert "12 runs: about 12 calls" in done.err
    assert "unknown: no price is known for alpha, beta" in done.err
    assert "--yes" in done.err


def test_the_estimate_is_in_dollars_where_prices_are_known(desk: Stage, cases: Path) -> None:
    """From the least to the most."""
    tables = [desk.worker(name, "price = { input = 1000, output = 1000 }") for name in ("alpha", "beta")]
    desk.configure("\n".join(["[limits]\nattempts = 1", *tables]), workers=(), conductor="x")
    done = desk.inside("eval", cases, "--systems", "alone,moa")
    assert "estimated cost: $" in done.err
    assert "unknown" not in done.err
    assert posts(desk) == 0


def test_what_is_free_begins_at_once(desk: Stage, cases: Path) -> None:
    """Workers that are known to cost nothing need no yes."""
    desk.configure("\n".join(["[limits]\nattempts = 1", free(desk, "alpha"), free(desk, "beta")]), workers=())
    done = desk.inside("eval", cases, "--systems", "alone", "--json")
    assert done.code == 0, done.err
    assert by_name(done.json)["alone:alpha"]["cost"] == "0"
    assert "estimated" not in done.err


@pytest.mark.parametrize(("answer", "asked"), [("n", False), ("y", True)])
def test_a_person_is_asked_on_the_terminal(desk: Stage, cases: Path, answer: str, asked: bool) -> None:
    """A no asks nobody and is no failure; a yes begins, with a bar and then the table in the width of the terminal."""
    child = pexpect.spawn(
        COMMAND[0], [*COMMAND[1:], "eval", str(cases), "--systems", "alone"], env=desk.environ({"TERM": "xterm"}),
        timeout=30, encoding="utf-8", dimensions=(40, 80),
    )  # fmt: skip
    child.expect("Continue\\? ")
    child.sendline(answer)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert (posts(desk) > 0) is asked
    said = str(child.before)
    assert ("alone:alpha" in said) is asked
    assert "66.7" in said or not asked


def test_ctrl_c_answers_the_question(desk: Stage, cases: Path) -> None:
    """One Ctrl-C at the question ends the command: 130, and nobody was asked."""
    child = pexpect.spawn(
        COMMAND[0], [*COMMAND[1:], "eval", str(cases), "--systems", "alone"], env=desk.environ({"TERM": "xterm"}),
        timeout=30, encoding="utf-8",
    )  # fmt: skip
    child.expect("Continue\\? ")
    child.sendintr()
    child.expect(pexpect.EOF)
    child.close()
    assert (child.exitstatus, posts(desk)) == (130, 0)
    assert "Traceback" not in str(child.before)


def test_a_conductor_without_its_key_does_not_stop_the_others(desk: Stage, cases: Path) -> None:
    """What needs no conductor runs; the line says which key is missing; systems that want none do not look for it."""
    desk.configure(conductor="openai/gpt")
    done = desk.inside("eval", cases, "--yes", "--json", "--n", "2")
    assert done.code == 0, done.err
    assert any("OPENAI_API_KEY" in line for line in done.json["notes"])
    alone = desk.inside("eval", cases, "--yes", "--json", "--n", "2", "--systems", "alone")
    assert (alone.code, alone.json["conductor"]) == (0, None)


@pytest.mark.parametrize("width", [40, 80])
def test_the_table_fits_the_terminal(desk: Stage, cases: Path, width: int) -> None:
    """No line of figures is wider than the screen; on a narrow one each system is a block of lines."""
    desk.inside("eval", cases, "--systems", "alone,vote,moa", "--yes")
    child = pexpect.spawn(
        COMMAND[0], [*COMMAND[1:], "--color", "never", "--quiet", "eval", "--resume", "last"],
        env=desk.environ({"TERM": "xterm", "COLUMNS": str(width)}), timeout=30, encoding="utf-8",
        dimensions=(40, width),
    )  # fmt: skip
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", str(child.before)).splitlines()
    figures = lines[: next(number for number, line in enumerate(lines) if line.startswith("6 cases of"))]
    assert all(len(line.rstrip()) <= width for line in figures if "against" not in line)
    assert any(line.strip().startswith("SYSTEM" if width > 40 else "right, %: 66.7") for line in figures)
    assert sum(line.lstrip().startswith("alone:alpha") for line in figures) == (2 if width > 40 else 1)


def held_after(stage: Stage, name: str, count: int) -> threading.Event:
    """Have a worker answer so often and then say nothing; the event tells that somebody waits for it."""
    script, stall = stage.models[name], stalls()
    asked = 0
    waits = threading.Event()

    async def held(seen: SeenStep, wire: Wire) -> None:
        nonlocal asked
        asked += 1
        if asked > count:
            waits.set()
        await (script if asked <= count else stall)(seen, wire)

    stage.models[name] = held
    return waits


def cut_off(stage: Stage, *arguments: str | Path, by: signal.Signals) -> Done:
    """Start an evaluation, end it while it waits for a worker, and let the worker go on afterwards."""
    scripts = dict(stage.models)
    waits = held_after(stage, "beta", 2)
    with stage.start("eval", *arguments, "--systems", "alone", "--parallel", "1", "--yes", "--json") as process:
        assert waits.wait(30)
        os.killpg(process.pid, by)
        done = finished(process)
    stage.models = scripts
    return done


def test_a_killed_evaluation_goes_on_by_itself(desk: Stage, cases: Path) -> None:
    """After a kill the same command asks only what is missing, and gives the table of one that was never cut off."""
    cut_off(desk, cases, by=signal.SIGKILL)
    before = posts(desk)
    done = desk.inside("eval", cases, "--systems", "alone", "--yes", "--json")
    assert done.code == 0, done.err
    assert "continuing 2" in done.err
    assert posts(desk) - before < 12 - 4
    found = by_name(done.json)
    assert {name: (system["right"], system["n"]) for name, system in found.items()} == {
        "alone:alpha": (4, 6), "alone:beta": (2, 6),
    }  # fmt: skip
    fresh = desk.inside("eval", cases, "--systems", "alone", "--yes", "--json")
    for name, system in by_name(fresh.json).items():
        same = {key: value for key, value in system.items() if key != "seconds"}
        assert same == {key: value for key, value in found[name].items() if key != "seconds"}


@pytest.mark.parametrize(("by", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_evaluation_says_how_to_go_on(desk: Stage, cases: Path, by: signal.Signals, code: int) -> None:
    """Ctrl-C and SIGTERM keep what is finished, and the printed command goes on with it."""
    done = cut_off(desk, cases, by=by)
    assert (done.code, done.out) == (code, "")
    line = next(line for line in done.err.splitlines() if "continue: " in line)
    before = posts(desk)
    again = desk.inside(*line.partition("continue: conductor ")[2].split(), "--yes", "--json")
    assert again.code == 0, again.err
    assert by_name(again.json)["alone:beta"]["n"] == 6
    assert posts(desk) - before < 12 - 4


def test_a_finished_evaluation_is_shown_again_without_a_call(desk: Stage, cases: Path) -> None:
    """--resume of what has ended, and --rescore, ask nobody and need no yes."""
    desk.inside("eval", cases, "--systems", "alone", "--yes")
    before = posts(desk)
    shown = desk.inside("eval", "--resume", "last", "--json")
    scored = desk.inside("eval", "--rescore", "last", "--json")
    strict = desk.inside("eval", "--rescore", "last", "--scorer", "exact", "--json")
    assert (shown.code, scored.code, strict.code, posts(desk)) == (0, 0, 0, before)
    assert by_name(shown.json) == by_name(scored.json)
    assert [system["right"] for system in strict.json["systems"]] == [0, 0], '"It is 2." is not "2"'
    assert "6 changed" in strict.err


def test_a_finished_evaluation_needs_none_of_its_models(desk: Stage, cases: Path) -> None:
    """Whatever became of workers, cards and settings since, --resume shows what there is."""
    first = desk.inside("eval", cases, "--systems", "alone", "--yes", "--json")
    desk.configure(workers=("gamma",), conductor="none/such")
    again = desk.inside("eval", "--resume", "last", "--json")
    assert again.code == 0, again.err
    assert again.json == first.json


def test_a_report_says_the_same_each_time(desk: Stage, cases: Path) -> None:
    """Scored again, too, it names who was left out and why, and the best by card among those that could be asked."""
    with desk.config.open("a") as file:
        file.write("[workers.beta.card.strengths]\nsums = 0.5\n[workers.gone.card.strengths]\nsums = 1\n")
        file.write('[workers.gone]\nkind = "openai"\nmodel = "m"\n')
    first = desk.inside("eval", cases, "--systems", "alone,moa", "--yes", "--json")
    assert first.code == 0, first.err
    assert first.json["best_worker"]["by_card"] == "alone:beta"
    assert any("alone:gone" in line for line in first.json["notes"])
    assert desk.inside("eval", "--rescore", "last", "--json").json == first.json
    assert desk.inside("eval", "--resume", "last", "--json").json == first.json


@pytest.mark.parametrize("which", ["--resume", "--rescore"])
@pytest.mark.parametrize("more", [("--systems", "moa"), ("--workers", "alpha"), ("--seed", "0"), ("--n", "2")])
def test_what_an_evaluation_settled_is_not_asked_for_again(
    desk: Stage, cases: Path, which: str, more: tuple[str, str]
) -> None:
    """An option that would have no effect is refused, not read over: 2."""
    desk.inside("eval", cases, "--systems", "alone", "--yes")
    done = desk.inside("eval", which, "last", *more)
    assert (done.code, done.out) == (2, "")
    assert f"{more[0]} has no effect" in done.err
    explained(done)


def test_an_evaluation_does_not_go_on_with_other_workers(desk: Stage, cases: Path) -> None:
    """What was begun over one pool is not finished over another: 2."""
    desk.models["beta"] = refuses(400, "no")
    desk.inside("eval", cases, "--systems", "alone", "--yes")
    desk.config.write_text(desk.config.read_text().replace('model = "beta"', 'model = "gamma"'))
    done = desk.inside("eval", "--resume", "last", "--yes")
    assert done.code == 2
    assert "other workers or cards" in done.err
    explained(done)


@pytest.mark.parametrize("change", ["conductor", "profile", "timeouts"])
def test_an_evaluation_does_not_go_on_with_another_conductor(stage: Stage, cases: Path, change: str) -> None:
    """One that is called the same elsewhere, is spoken to in another way, or is given less time, is another: 2."""
    changed = {
        "conductor": ("http://127.0.0.1", "http://localhost", 1),
        "profile": ("[conductor]", '[conductor]\nprofile = "published"', 1),
        "timeouts": ("attempts = 1", "attempts = 1\n[timeouts]\nidle = 5", 1),
    }[change]
    stage.models["beta"] = refuses(400, "no")
    stage.inside("eval", cases, "--systems", "conductor,alone:beta", "--yes")
    stage.config.write_text(stage.config.read_text().replace(*changed))
    done = stage.inside("eval", "--resume", "last", "--yes")
    assert done.code == 2
    assert f"was started with other {change}" in done.err
    explained(done)


def test_a_worker_that_fails_is_counted_apart(desk: Stage, cases: Path) -> None:
    """Nothing is known of the system: no share holds it; --resume asks it again."""
    desk.models["beta"] = refuses(400, "no")
    done = desk.inside("eval", cases, "--systems", "alone", "--yes", "--json")
    assert done.code == 0, done.err
    beta = by_name(done.json)["alone:beta"]
    assert (beta["failed"], beta["n"], beta["accuracy"]) == (6, 0, None)
    desk.models["beta"] = knows(4, 5)
    again = desk.inside("eval", "--resume", "last", "--yes", "--json")
    beta = by_name(again.json)["alone:beta"]
    assert (beta["failed"], beta["n"], beta["right"]) == (0, 6, 2)


def test_8_where_not_one_case_could_be_judged(desk: Stage, cases: Path) -> None:
    """The table says that all failed, stderr says why, and the command fails."""
    desk.models = dict.fromkeys(("alpha", "beta"), refuses(500, "down"))
    done = desk.inside("eval", cases, "--systems", "alone", "--yes")
    assert done.code == 8
    assert "no case could be judged" in done.err


def test_a_limit_on_the_cost_stops_it(desk: Stage, cases: Path) -> None:
    """What is spent is spent, the rest is left, and the table shows what there is: 6."""
    tables = [desk.worker(name, "price = { input = 1000, output = 1000 }") for name in ("alpha", "beta")]
    desk.configure("\n".join(["[limits]\nattempts = 1", *tables]), workers=())
    done = desk.inside("eval", cases, "--systems", "alone", "--yes", "--max-cost", "0.06", "--parallel", "1", "--json")
    assert done.code == 6
    assert "the limit of $0.06 is reached" in done.err
    spent = sum(float(system["total"]["cost"] or 0) for system in done.json["systems"])
    assert 0.06 <= spent <= 0.1


def test_a_limit_that_is_reached_stays_reached(desk: Stage, cases: Path) -> None:
    """However many run at once it is passed by one run at most, and going on under it asks nobody."""
    tables = [desk.worker(name, "price = { input = 1000, output = 1000 }") for name in ("alpha", "beta")]
    desk.configure("\n".join(["[limits]\nattempts = 1", *tables]), workers=())
    arguments = ("--yes", "--max-cost", "0.06", "--json")
    first = desk.inside("eval", cases, "--systems", "alone", *arguments)
    before = posts(desk)
    assert (first.code, before) == (6, 3), "0.024 each"
    for again in (("--resume", "last"), (cases, "--systems", "alone")):
        done = desk.inside("eval", *again, *arguments)
        assert (done.code, posts(desk)) == (6, before)
        assert "the limit of $0.06 is reached: 3 of 12 runs cost $0.0720" in done.err
        assert done.json == first.json


def test_a_limit_on_the_cost_needs_prices(desk: Stage, cases: Path) -> None:
    """Counting an unknown price as nothing would keep the limit in appearance only: 3."""
    done = desk.inside("eval", cases, "--systems", "alone", "--yes", "--max-cost", "1")
    assert (done.code, posts(desk)) == (3, 0)
    explained(done)


def test_the_report_is_written_beside_the_table(desk: Stage, cases: Path, tmp_path: Path) -> None:
    """One HTML file with plots and every case; what a worker wrote stays text."""
    desk.models["beta"] = says("<script>alert(1)</script>")
    done = desk.inside("eval", cases, "--systems", "alone", "--yes", "--html", tmp_path / "report.html")
    assert done.code == 0
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 2
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script" not in page
    assert "What is 3 + 1?" in page


def test_no_key_is_in_the_report(desk: Stage, cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a question holds one that this process has read: neither on the page nor in the JSON."""
    key = "sk-planted/0123456789"
    monkeypatch.setenv("A_KEY", key)
    desk.config.write_text(desk.config.read_text().replace('model = "beta"', 'model = "beta"\nkey_env = "A_KEY"'))
    cases.write_text(cases.read_text().replace("What is 3", f"With {key}, what is 3").replace('"sums"', f'"{key}"'))
    done = desk.inside("eval", cases, "--systems", "alone", "--yes", "--json", "--html", tmp_path / "report.html")
    assert done.code == 0, done.err
    assert key not in (tmp_path / "report.html").read_text() + done.out + done.err
    assert "With [key], what is 3" in (tmp_path / "report.html").read_text()


def test_a_report_that_cannot_be_written_is_refused_first(desk: Stage, cases: Path, tmp_path: Path) -> None:
    """Nobody pays for an evaluation whose report has no place: 2."""
    done = desk.inside("eval", cases, "--systems", "alone", "--yes", "--html", tmp_path / "no" / "report.html")
    assert (done.code, posts(desk)) == (2, 0)
    explained(done)


def test_evaluations_are_listed(desk: Stage, cases: Path) -> None:
    """The newest first, as a table and as JSON; nothing yet is no failure."""
    assert "no evaluations are stored" in desk.inside("eval", "--list").out
    desk.inside("eval", cases, "--systems", "alone", "--yes", "--n", "2")
    (row,) = desk.inside("eval", "--list", "--json").json
    assert (row["source"], row["cases"], row["systems"], row["outcomes"]) == (
        "sums.jsonl", 2, ["alone:alpha", "alone:beta"], 4,
    )  # fmt: skip
    assert row["id"] in desk.inside("eval", "--list").out


def test_one_that_cannot_be_read_is_listed_by_its_name(desk: Stage, cases: Path) -> None:
    """What is damaged in one evaluation hides no other; a question mark stands for what is not known of it."""
    for _ in range(3):
        desk.inside("eval", cases, "--systems", "alone", "--yes", "--n", "2")
    whole, caseless, specless = (row["id"] for row in desk.inside("eval", "--list", "--json").json)
    place = desk.home / "state/conductor-llm/evals"
    (place / caseless / "cases.jsonl").write_text("{")
    (place / specless / "spec.json").write_text("{")
    (place / "a file").touch()
    listed = desk.inside("eval", "--list", "--json")
    assert listed.code == 0, listed.err
    assert [(row["id"], row["cases"], row["outcomes"]) for row in listed.json] == [
        (whole, 2, 4), (caseless, 2, None), (specless, None, None),
    ]  # fmt: skip
    lines = [line.split() for line in desk.inside("eval", "--list").out.splitlines()]
    assert [line[-3:] for line in lines[1:]] == [["2", "2", "4"], ["2", "2", "?"], ["?", "?", "?"]]


def test_a_part_of_a_file_is_drawn_by_the_seed(desk: Stage, cases: Path) -> None:
    """The same seed takes the same cases, in the file's order; another one takes others."""
    drawn = [desk.inside("eval", cases, "--n", "3", "--seed", seed, "--print-cases").events for seed in ("1", "1", "2")]
    ids = [[case["id"] for case in part] for part in drawn]
    assert ids[0] == ids[1] == sorted(ids[0])
    assert ids[0] != ids[2]
    assert posts(desk) == 0


def test_built_in_sets_are_printed(desk: Stage, tmp_path: Path) -> None:
    """What is printed can be read again, is the same for the same seed, and holds no question twice."""
    for name in ("rehearsal", "basics"):
        first = desk.inside("eval", name, "--n", "30", "--print-cases")
        assert first.out == desk.inside("eval", name, "--n", "30", "--print-cases").out
        assert len({case["question"] for case in first.events}) == 30
        (tmp_path / "again.jsonl").write_text(first.out)
        assert desk.inside("eval", tmp_path / "again.jsonl", "--print-cases").out == first.out


def test_a_published_set_is_read_from_the_hubs_file(desk: Stage, tmp_path: Path) -> None:
    """--from turns it into cases, which can be printed or evaluated at once."""
    row = {"problem": "What is 1 + 1?", "answer": "2", "subject": "Algebra", "level": 1, "unique_id": "test/a/1.json"}
    (tmp_path / "test.jsonl").write_text(json.dumps(row) + "\n")
    done = desk.inside("eval", tmp_path / "test.jsonl", "--from", "math500", "--print-cases")
    (case,) = done.events
    assert (case["answer"], case["scorer"]) == ("2", "math")


CASE = '{"id": "1", "question": "q", "answer": "1", "scorer": "number"}\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "contains no cases"),
        ('{"id": "1", "question": "q"}\n', "line 1"),
        (CASE.replace("number", "guess"), "guess"),
        (CASE * 2, "same id"),
        (CASE.replace('"answer": "1"', '"answer": "one"'), "does not fit"),
        (CASE.replace('"answer": "1"', '"answer": 1'), "line 1"),
        ("\x00\xff", "line 1"),
    ],
)
def test_a_file_that_is_wrong_is_told_with_its_line(desk: Stage, tmp_path: Path, text: str, said: str) -> None:
    """A missing field, a wrong scorer, a duplicate, an answer of the wrong type: 2, and nobody is asked."""
    (tmp_path / "bad.jsonl").write_text(text, encoding="latin-1")
    done = desk.inside("eval", tmp_path / "bad.jsonl", "--yes")
    assert (done.code, posts(desk)) == (2, 0)
    explained(done)
    assert said in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nothing",),
        ("rehearsal", "--resume", "last"),
        ("--resume", "last", "--rescore", "last"),
        ("--resume", "none"),
        ("--rescore", "last"),
        ("basics", "--systems", "magic", "--yes"),
        ("basics", "--systems", ",", "--yes"),
        ("basics", "--scorer", "exact"),
        ("basics", "--workers", "nobody", "--yes"),
        ("basics", "--n", "0"),
        ("basics", "--max-cost", "much"),
        ("basics", "--from", "riddles"),
        ("rehearsal", "--n", "100000000"),
    ],
    ids=" ".join,
)
def test_a_command_line_that_makes_no_sense_is_2(desk: Stage, arguments: tuple[str, ...]) -> None:
    """Nothing is asked, and the message says what to do."""
    done = desk.inside("eval", *arguments)
    assert (done.code, done.out, posts(desk)) == (2, "", 0)
    explained(done)


def test_a_pool_of_one_runs_what_needs_no_second(desk: Stage, cases: Path) -> None:
    """A router and a mixture have nothing to choose from; that is said, and the rest runs."""
    done = desk.inside("eval", cases, "--workers", "alpha", "--yes", "--json", "--n", "2")
    assert done.code == 0, done.err
    assert "alone:alpha" in by_name(done.json)
    assert "moa" not in by_name(done.json)
    assert any("at least two workers" in line for line in done.json["notes"])


def test_the_rehearsal_runs_its_own_workers(desk: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files through llama.cpp, with no key, no network, no yes, and none of the configured workers."""
    for name in rehearsal_workers.NAMES:
        make(tmp_path / f"{name}.gguf")
    monkeypatch.setattr(rehearsal_workers, "model_path", lambda name: tmp_path / f"{name}.gguf")
    done = desk.inside("eval", "rehearsal", "--systems", "alone,best-routing", "--n", "3", "--json")
    assert done.code == 0, done.err
    assert set(by_name(done.json)) == {*(f"alone:{name}" for name in rehearsal_workers.NAMES), "best-routing"}
    assert posts(desk) == 0
    assert (done.json["source"], done.json["cases"]) == ("rehearsal", 3)
    assert all(system["cost"] == "0" for system in done.json["systems"])


def test_a_rehearsal_without_its_files_is_told(desk: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without the models: 3, and what to do."""
    monkeypatch.setattr(rehearsal_workers, "model_path", lambda name: tmp_path / f"{name}.gguf")
    done = desk.inside("eval", "rehearsal", "--n", "3")
    assert done.code == 3
    explained(done)
