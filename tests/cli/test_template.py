"""`conductor template` and `ask -t`.

Templates of the user and of a project, and the recipes that ship.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from conductor_cli.app.templates import SHIPPED, Template, fill_template
from conductor_cli.core.errors import UsageError
from conductor_cli.core.plan import Step
from tests.cli.stage import COMMAND, TWO, Stage, says
from tests.test_links import ROOT

PLAN = '[[steps]]\nworker = "beta"\nsubtask = "Look for $what."\n'


def write(directory: Path, name: str, text: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.toml"
    path.write_text(text)
    return path


def own_templates(stage: Stage) -> Path:
    return stage.config.parent / "templates"


@pytest.mark.parametrize(
    ("question", "given", "words", "filled"),
    [
        ("Review this $lang code.", {"lang": "rust"}, "", "Review this rust code."),
        ("Review this $lang code.", {}, "", "Review this Python code."),
        ("Review: $question ($lang)", {}, "a $lang b", "Review: a $lang b (Python)"),
        ("Costs $5 in $PATH, $$lang", {}, "", "Costs $5 in $PATH, $lang"),
        ("Something else", {}, "my question", "my question"),
        ("$lang", {"lang": "$what"}, "", "$what"),
    ],
)
def test_placeholders_are_replaced_once(
    question: str, given: dict[str, str], words: str, filled: str
) -> None:
    template = Template(question=question, params={"lang": "Python"})
    assert fill_template(template, "t", given, words).question == filled


@pytest.mark.parametrize(
    ("template", "given", "message"),
    [
        (Template(question="$question"), {}, "needs a question"),
        (
            Template(question="a", steps=(Step(worker="$who", subtask="$what"),)),
            {"who": "x"},
            "needs what",
        ),
        (Template(question="a"), {"lang": "x"}, "has no $lang"),
    ],
)
def test_a_value_that_is_missing_or_has_no_place_is_an_error(
    template: Template, given: Any, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        fill_template(template, "t", given, "")
    assert message in caught.value.message


def test_a_template_asks_with_its_plan_system_text_schema_and_limits(stage: Stage) -> None:
    write(
        own_templates(stage),
        "bugs",
        f'question = "Find $what"\nsystem = "Be short."\nlimits = {{ calls = 2 }}\n{PLAN}',
    )
    done = stage.ok("ask", "-t", "bugs", "-p", "what=races", "--format", "json")
    assert [(step["worker"], step["subtask"]) for step in done.json["steps"]] == [
        ("beta", "Look for races.")
    ]
    [sent] = stage.asked("beta")
    assert "Find races" in json.dumps(sent.json["messages"])
    assert "Be short." in json.dumps(sent.json["messages"])
    assert not stage.asked("planner")


def test_a_template_whose_schema_has_a_number_of_toml_alone_is_refused(stage: Stage) -> None:
    limit = "schema = { properties = { a = { maximum = inf } } }"
    write(own_templates(stage), "endless", f'question = "How many?"\n{limit}\n')
    done = stage.costs_nothing(2, "ask", "-t", "endless")
    assert "schema: it holds NaN, Infinity" in done.err


def test_a_step_of_nobody_says_which_value_gives_it_to_another(stage: Stage) -> None:
    stage.configure(workers=dict.fromkeys(("alpha", "beta"), PRICE))
    stage.fails(
        2,
        "ask",
        "-t",
        "reviewer",
        "Why?",
        "-p",
        "cheap=gamma",
        told=("gives a step to 'gamma'", "-p cheap=NAME; known: alpha, beta"),
    )
    stage.ok("ask", "-t", "reviewer", "Why?", "-p", "cheap=alpha", "-p", "reviewer=beta")


def test_a_template_takes_the_users_workers_where_its_own_are_not_there(stage: Stage) -> None:
    """That of the same provider comes first; two that it tells apart are two, where there are."""
    names = ("first", "my-claude", "second")
    stage.configure(workers=dict.fromkeys(names, PRICE))
    reply = says(json.dumps({"block": False, "findings": []}))
    stage.models |= dict.fromkeys(names, reply)
    message = "first = first, second = my-claude, judge = first; to choose: -p first=NAME"
    done = stage.ok("ask", "-t", "review", "Why?", "--format", "json", told=message)
    workers = [step["worker"] for step in done.json["steps"]]
    assert workers == ["first", "my-claude", "first"]
    done = stage.ok("ask", "-t", "review", "Why?", "-p", "judge=second", "--format", "json")
    assert done.json["steps"][-1]["worker"] == "second"


def test_a_shipped_limit_on_money_is_one_on_tokens_where_no_price_is_known(stage: Stage) -> None:
    stage.configure(workers=("alpha", "beta"))
    reply = says(json.dumps({"block": False, "findings": []}))
    stage.models |= dict.fromkeys(("alpha", "beta"), reply)
    messages = ("there is none of alpha, beta: the limit is 200,000 tokens", "price=IN,OUT")
    stage.ok("ask", "-t", "review", "Why?", told=messages)
    limited = ("ask", "-t", "review", "Why?", "--max-cost", "0.2")
    refused = stage.run(*limited)
    assert refused.code == 3
    assert "the cost limit cannot be enforced" in refused.err
    assert "tokens instead;" not in refused.err
    write(own_templates(stage), "mine", 'question = "$question"\n[limits]\ncost = "0.50"')
    stage.fails(3, "ask", "-t", "mine", "Why?", told="the cost limit cannot be enforced")


def test_what_is_to_stay_on_this_machine_gets_no_stand_in_elsewhere(stage: Stage) -> None:
    far = 'kind = "openai"\nmodel = "gpt-6-luna"\nprice = { input = 1, output = 1 }\n'
    stage.configure(f"[workers.far]\n{far}", workers=())
    stage.costs_nothing(2, "ask", "-t", "private", "Why?", told="gives a step to 'local'")


def test_a_file_of_the_template_private_stays_on_this_machine(stage: Stage, tmp_path: Path) -> None:
    """No setting is needed for it, and a worker elsewhere cannot take the place of the local one."""
    contract = write(tmp_path, "contract", "a clause of mine")
    stage.configure(workers={"near": PRICE})
    far = f'[workers.far]\nkind = "openai-compatible"\nbase_url = "http://far.test/v1"\n{PRICE}'
    with stage.config.open("a") as file:
        file.write(f'{far}\nmodel = "far"\n')
    way = {"http_proxy": stage.server.url, "no_proxy": "127.0.0.1"}
    stage.ok("ask", "-t", "private", "-f", contract, "-p", "remote=far", env=way)
    assert "a clause of mine" in str(stage.asked("near")[0].json)
    assert [str(request.json).count("a clause of mine") for request in stage.asked("far")] == [0]
    stage.ok("template", "save", "kept")
    kept = tomllib.loads((own_templates(stage) / "kept.toml").read_text())
    assert kept["files_only"] == ["provider:local"]
    words = ("ask", "-t", "private", "-f", contract, "-p", "local=far", "-p", "remote=near")
    stage.costs_nothing(3, *words, env=way, told="policy.files_only")


@pytest.mark.parametrize(
    "narrowing", [("--workers", "first,second"), ("--deny", "my-claude"), ("--pool", "small")]
)
def test_the_stand_ins_of_a_template_are_workers_of_this_question(
    stage: Stage, narrowing: tuple[str, ...]
) -> None:
    names = ("first", "my-claude", "second")
    stage.configure(workers=dict.fromkeys(names, PRICE))
    stage.pool("small", "first", "second")
    reply = says(json.dumps({"block": False, "findings": []}))
    stage.models |= dict.fromkeys(names, reply)
    done = stage.ok("ask", "-t", "review", "Why?", "--format", "json", *narrowing)
    workers = [step["worker"] for step in done.json["steps"]]
    assert workers == ["first", "second", "first"]


def test_an_empty_template_is_an_error(stage: Stage) -> None:
    write(own_templates(stage), "review", "")
    stage.costs_nothing(2, "ask", "-t", "review", "Why?", told="is empty, so it asks nothing")


def test_a_template_narrows_the_workers_and_never_raises_a_limit(stage: Stage) -> None:
    """A worker that no setting has is an error.

    A limit above the user's is refused with a notice.
    """
    stage.configure("[limits]\nattempts = 1\ncalls = 1")
    write(
        own_templates(stage), "one", 'question = "Why?"\nworkers = ["beta"]\nlimits = { calls = 5 }'
    )
    stage.plan = "beta | - | Answer it."
    stage.ok("ask", "-t", "one", told="yours is 1 and stays")
    assert not stage.asked("alpha")
    write(own_templates(stage), "other", 'question = "Why?"\nworkers = ["gamma"]')
    stage.fails(2, "ask", "-t", "other", told="gamma")


def test_a_project_s_template_is_used_only_after_its_text_was_shown(
    stage: Stage, tmp_path: Path
) -> None:
    """What was shown is remembered by its text: once it has changed, it must be shown again."""
    directory = tmp_path / ".conductor/templates"
    path = write(directory, "bugs", 'question = "Why?"')
    stage.fails(
        2, "ask", "-t", "bugs", cwd=tmp_path, told=("was not shown", "conductor template show bugs")
    )
    assert 'question = "Why?"' in stage.ok("template", "show", "bugs", cwd=tmp_path).out
    stage.ok("ask", "-t", "bugs", cwd=tmp_path)
    path.write_text('question = "Why not?"')
    stage.fails(2, "ask", "-t", "bugs", cwd=tmp_path, told="was not shown")
    write(own_templates(stage), "bugs", 'question = "Mine?"')
    stage.ok("ask", "-t", "bugs", cwd=tmp_path)
    assert "Mine?" in stage.asked("planner")[-1].body.decode()
    listed = stage.ok("template", "list", "--json", cwd=tmp_path).json
    assert {"name": "bugs", "origin": "yours", "about": ""} in listed
    stage.configure("[policy]\nproject = false")
    (own_templates(stage) / "bugs.toml").unlink()
    stage.fails(2, "ask", "-t", "bugs", cwd=tmp_path, told="there is no template")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('limit = { cost = 1 }\nquestion = "a"', "unknown limit"),
        ('question = "a"\nlimits = { cast = 1 }', "limits.cast"),
        ("question = 3", "question"),
        ('question = "a"\nsteps = ["b"]', "steps"),
        ("question = ", "not valid TOML"),
    ],
)
def test_a_template_that_cannot_be_read_is_an_error(stage: Stage, text: str, message: str) -> None:
    write(own_templates(stage), "bad", text)
    done = stage.inside("ask", "-t", "bad")
    assert done.code in (2, 3)
    assert message in done.err
    assert "bad" in stage.ok("template", "list").out


def test_a_run_becomes_a_template_that_asks_the_same(stage: Stage) -> None:
    stage.plan = TWO
    stage.ok("ask", "What is $question, and $$?", "--system", "Be short.")
    assert "saved" in stage.ok("template", "save", "again").out
    stage.fails(2, "template", "save", "again", told="there is a template again already")
    stage.fails(2, "template", "save", "../x", told="is no name for a template")
    done = stage.ok("ask", "-t", "again", "--format", "json")
    assert [step["worker"] for step in done.json["steps"]] == ["alpha", "beta"]
    assert "What is $question, and $$?" in stage.asked("beta")[-1].body.decode()
    assert len(stage.asked("planner")) == 1


def test_an_edited_template_is_the_user_s(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins as the one of that name; what cannot be read is kept and reported."""
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "$ADDED" >> "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setattr("conductor_cli.cli.template.TERMINAL", "/dev/null")
    env = {"VISUAL": str(editor), "ADDED": "# mine"}
    assert "saved" in stage.ok("template", "edit", "review", env=env).out
    saved = own_templates(stage) / "review.toml"
    assert saved.read_text().endswith("# mine")
    assert 'subtask = "List the defects' in saved.read_text()
    stage.fails(2, "template", "edit", "../x", env=env, told="is no name for a template")
    assert "nothing was changed" in stage.ok("template", "edit", "new", env=env | {"ADDED": ""}).out
    stage.fails(3, "template", "edit", "review", env=env | {"ADDED": "\nx"}, told="not valid TOML")
    assert "saved" in stage.ok("template", "edit", "review", env=env | {"ADDED": "=1"}).out
    assert saved.read_text().endswith("# mine\nx=1")


RECIPES: Final = ROOT / "docs/recipes"
WORKERS: Final = ("gpt", "claude", "gemini", "local")
FINDING: Final = {"file": "a.py", "line": 3, "problem": "divides by zero"}
PRICE: Final = "price = { input = 1, output = 1 }"


@pytest.fixture
def pool(stage: Stage) -> Stage:
    """The four workers of the recipes, with a price, since the templates limit their cost."""
    stage.configure(workers=dict.fromkeys(WORKERS, PRICE))
    for name in WORKERS:
        stage.models[name] = says(json.dumps({"block": True, "findings": [FINDING]}))
    return stage


@pytest.mark.parametrize("file", sorted(SHIPPED.glob("*.toml")), ids=lambda file: file.stem)
def test_a_recipe_runs_as_its_page_says(pool: Stage, tmp_path: Path, file: Path) -> None:
    table = tomllib.loads(file.read_text())
    (tmp_path / "input.txt").write_text("text of the attached file")
    words = ["Why?"] if "$question" in table["question"] else []
    done = pool.ok("ask", "-t", file.stem, *words, "-f", tmp_path / "input.txt", "--format", "json")
    workers = [table["params"][step["worker"].removeprefix("$")] for step in table["steps"]]
    assert [step["worker"] for step in done.json["steps"]] == workers
    page = " ".join((ROOT / "docs/recipes.md").read_text().split())
    assert [step["subtask"] for step in table["steps"] if step["subtask"] not in page] == []
    first = pool.asked(workers[0])[0]
    assert "text of the attached file" in json.dumps(first.json["messages"])


def test_the_private_file_stays_on_this_machine(pool: Stage, tmp_path: Path) -> None:
    local = (
        'files_only = ["local"]\n[workers.local]\n'
        f"{pool.worker('local', PRICE).partition(chr(10))[2]}"
    )
    tables = [pool.worker(name, PRICE) for name in WORKERS if name != "local"]
    pool.configure(workers=(), tables="\n".join(["[policy]", local, *tables]))
    (tmp_path / "contract.txt").write_text("secret clause")
    pool.ok("ask", "-t", "private", "-f", tmp_path / "contract.txt")
    assert "secret clause" not in json.dumps([request.json for request in pool.asked("gpt")])
    assert len(pool.asked("gpt")) == 1


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    settings = (
        "-c",
        "user.name=A",
        "-c",
        "user.email=a@example.org",
        "-c",
        "init.defaultBranch=main",
    )
    return subprocess.run(
        ["git", *settings, *words], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("blocks", [True, False])
def test_the_hook_stops_a_push_that_the_judge_blocks(
    pool: Stage, tmp_path: Path, blocks: bool
) -> None:
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    pool.models["gpt"] = says(json.dumps({"block": blocks, "findings": [FINDING]}))
    conductor = tmp_path / "bin/conductor"
    conductor.parent.mkdir()
    conductor.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    conductor.chmod(0o755)
    origin = tmp_path / "origin"
    work = tmp_path / "work"
    _git(tmp_path, "init", "-q", "--bare", str(origin))
    _git(tmp_path, "clone", "-q", str(origin), str(work))
    _git(work, "config", "conductor.reviewParams", "second=local judge=gpt")
    for text in ("one\n", "two\n"):
        (work / "a.py").write_text(text)
        _git(work, "add", "a.py")
        _git(work, "commit", "-qm", "change")
        if text == "one\n":
            _git(work, "push", "-q", "-u", "origin", "HEAD")
    hook = work / ".git/hooks/pre-push"
    hook.write_bytes((RECIPES / "pre-push").read_bytes())
    hook.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in pool.environ().items():
            patch.setenv(name, value)
        patch.setenv("PATH", f"{conductor.parent}:{pool.environ()['PATH']}")
        pushed = _git(work, "push", "-q")
    assert (pushed.returncode != 0) is blocks, pushed.stderr
    assert "a.py:3: divides by zero" in pushed.stderr
    assert ("stopped by the review" in pushed.stderr) is blocks
    assert "+two" in json.dumps(pool.asked("gpt")[0].json["messages"])
    assert (len(pool.asked("claude")), len(pool.asked("local"))) == (0, 1)
    # What no worker can read whole is not let through either.
    (work / "a.py").write_text("".join(f"line {number}\n" for number in range(20_000)))
    _git(work, "commit", "-qam", "a large change")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in pool.environ().items():
            patch.setenv(name, value)
        patch.setenv("PATH", f"{conductor.parent}:{pool.environ()['PATH']}")
        pushed = _git(work, "push", "-q")
    assert pushed.returncode != 0
    assert "not all of it was reviewed" in pushed.stderr
    assert "more than any worker reads" in pushed.stderr
