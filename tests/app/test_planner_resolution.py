"""Which model plans, and how it is described.

Adapters without a model file, and the questions that the demo is asked, are among it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from conductor_cli.app.planner_resolution import max_planned_steps
from conductor_cli.app.rehearsal import held_out_cases
from conductor_cli.core.errors import UsageError
from conductor_cli.core.pool import Worker
from conductor_cli.core.profile import BRIEF_PROFILE, PROMPTED, Guide, Profile
from tests.cli.stage import ONE, Stage, says
from tests.tiny_gguf import lora


@pytest.mark.parametrize("conductor", ["http://127.0.0.1:9/v1#m", "openai/gpt-9", "alpha"])
def test_an_adapter_for_a_model_that_is_not_a_file_is_refused(
    stage: Stage, tmp_path: Path, conductor: str
) -> None:
    """The adapter is not silently ignored: no model is called, and the hint says what to do."""
    adapter = lora(tmp_path / "lora.gguf")
    messages = (f"the planner is {conductor}", "conductor config set planner.adapter default")
    environ = {"CONDUCTOR_LLM_PLANNER_ADAPTER": str(adapter)}
    stage.fails(3, "ask", "Why?", "--planner", conductor, env=environ, told=messages)
    assert stage.server.requests == []


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("gone", "there is no file"),
        ("text", "is not a GGUF file"),
        ("model", "is not a LoRA adapter"),
    ],
)
def test_the_error_names_the_bad_adapter(
    stage: Stage, tiny: Path, tmp_path: Path, damage: str, message: str
) -> None:
    adapter = tmp_path / "lora.gguf"
    if damage != "gone":
        adapter.write_bytes(tiny.read_bytes() if damage == "model" else b"Dear sir or madam,\n")
    environ = {"CONDUCTOR_LLM_PLANNER_ADAPTER": str(adapter)}
    done = stage.fails(5, "ask", "Why?", "--planner", tiny, env=environ)
    first = done.err.splitlines()[0]
    assert (str(adapter) in first, message in first) == (True, True)
    assert str(tiny) not in done.err
    assert "the planner cannot be used" not in done.err


def test_a_trace_names_the_conductor_as_the_model_store_does(stage: Stage, tiny: Path) -> None:
    """The trace has the name of the stored model and the hash of its file.

    The file may be called anything.
    """
    stage.config.write_text(stage.config.read_text().replace("[planner]\nmodel", "[planner]\n#"))
    stage.ok("model", "import", tiny, "--name", "mine", "--use")
    done = stage.inside("ask", "Why?", "--seed", "3", "--format", "json")
    assert done.json["conductor"].startswith("mine sha256-ends:")
    assert "planner    mine sha256-ends:" in stage.inside("trace", "show").out


@pytest.mark.parametrize("name", ["planner.model", "planner.adapter"])
def test_a_file_is_stored_in_a_setting_by_its_whole_path(
    stage: Stage, tiny: Path, name: str
) -> None:
    """A setting applies in every directory; a value that names no file is stored unchanged."""
    (stage.home / "my.gguf").symlink_to(tiny)
    stage.ok("config", "set", name, "my.gguf", cwd=stage.home)
    section, key = name.split(".")
    assert stage.own_settings[section][key] == str(stage.home / "my.gguf")
    stage.ok("config", "set", name, "other.gguf")
    assert stage.own_settings[section][key] == "other.gguf"


def test_without_a_planner_a_worker_that_is_there_is_named(stage: Stage) -> None:
    stage.configure('[workers.mine]\nkind = "command"\ncommand = ["cat"]', conductor=None)
    messages = ("conductor model use alpha", 'conductor ask -m alpha "…"')
    stage.costs_nothing(5, "ask", "Why?", told=messages)
    stage.ok("ask", "-m", "alpha", "Why?")
    stage.ok("model", "use", "alpha")
    stage.ok("ask", "Why?")


def test_a_url_without_a_model_says_which_model_plans(stage: Stage) -> None:
    """In a pipe, in JSON, in the trace and in the list.

    The first chat model, and how to choose another.
    """
    stage.configure(workers=("beta", "gamma"), conductor=stage.url)
    stage.models["alpha"] = says("beta | - | Answer it.")
    message = (
        f"alpha plans: it is the first chat model that {stage.url} lists; to choose another: "
        "--planner URL#MODEL"
    )
    done = stage.inside("ask", "How many?")
    assert (done.code, done.out, done.err) == (0, "beta answers\n", f"conductor: note: {message}\n")
    report = stage.inside("ask", "How many?", "--format", "json").json
    assert (report["conductor"], report["planner_worker"]) == ("openai-compatible/alpha", None)
    assert [notice["text"] for notice in report["notices"]] == [message]
    shown = stage.inside("trace", "show").out
    assert "planner    openai-compatible/alpha, profile" in shown
    assert message in " ".join(shown.replace("│", " ").split())
    assert stage.inside("trace", "list").out.count("openai-compatible/alpha") == 2
    assert stage.inside("trace", "list", "--json").json[0]["conductor"] == "openai-compatible/alpha"


def test_a_url_with_a_model_needs_no_word(stage: Stage) -> None:
    """The user chose it, on the command line or in the settings.

    The server is not asked which models it has.
    """
    stage.configure(workers=("beta", "gamma"), conductor=f"{stage.url}#planner")
    stage.plan = "beta | - | Answer it."
    for options in ((), ("--planner", f"{stage.url}#planner")):
        done = stage.inside("ask", "How many?", "--format", "json", *options)
        assert (done.json["conductor"], done.json["notices"]) == ("openai-compatible/planner", [])


@pytest.mark.parametrize("named", ["alpha", "url", "url#alpha"])
def test_a_planner_that_is_also_a_worker_is_called_so(stage: Stage, named: str) -> None:
    """By its name, or by the same address and model.

    And nobody is called so who only has the same address.
    """
    stage.models["alpha"] = says("beta | - | Answer it.")
    conductor = named.replace("url", stage.url)
    done = stage.inside("ask", "How many?", "--planner", conductor, "--progress", "plain")
    assert "openai-compatible/alpha (also the worker alpha) plans, auto, 2 workers" in done.err
    assert ("alpha plans, and is also the worker alpha: it is the first" in done.err) == (
        named == "url"
    )
    assert (
        "openai-compatible/alpha (also the worker alpha), profile"
        in stage.inside("trace", "show").out
    )
    other = stage.inside(
        "ask", "How many?", "--format", "json", "--planner", f"{stage.url}#planner"
    )
    assert other.json["planner_worker"] is None


def test_a_server_that_does_not_answer_has_no_model_to_name(stage: Stage) -> None:
    assert (
        "plans:" not in stage.ends(5, "ask", "How many?", "--planner", "http://127.0.0.1:9/v1").err
    )


def test_a_worker_without_a_model_of_its_own_is_named_by_its_preset(stage: Stage) -> None:
    """The planner reads what the provider's preset chooses, and the trace has it."""
    kind = '[workers.big]\nkind = "openai"\n'
    stage.configure(f"[limits]\nattempts = 1\n{kind}", workers=("alpha",))
    stage.plan = ONE
    done = stage.inside("ask", "How many?", "--format", "jsonl")
    sent = stage.asked("planner")[0].json["messages"][0]["content"]
    assert "big: gpt-6.1-sol (general purpose, reasoning, very long texts)" in sent
    assert {item["name"]: item["model"] for item in done.events[0]["pool"]["workers"]}[
        "big"
    ] == "gpt-6.1-sol"


@pytest.mark.parametrize(
    ("conductor", "hint"),
    [
        ("127.0.0.1:8080/v1", "did you mean http://127.0.0.1:8080/v1?"),
        ("qwen2.5-7b-q4km", "did you mean qwen2.5-7b-q4_k_m?"),
        ("alhpa", "did you mean alpha?"),
        ("zzz", "conductor model list, "),
        ("openai", "did you mean openai/gpt-"),
    ],
)
def test_an_unknown_model_is_answered_with_what_was_probably_meant(
    stage: Stage, conductor: str, hint: str
) -> None:
    """A URL without its scheme, a stored or known model, a worker; else where to look."""
    done = stage.fails(5, "ask", "Why?", "--planner", conductor)
    assert done.err.splitlines()[1].strip().startswith(hint)


def test_each_seed_asks_questions_of_its_own() -> None:
    """Twenty sets of 500 share no question.

    A set is always complete and has none twice; more are refused.
    """
    sets = [held_out_cases(500, seed) for seed in range(20)]
    assert [case.id for case in sets[0][:2]] == ["test-0-0001", "test-0-0002"]
    assert len({case.question for case in chain.from_iterable(sets)}) == 10_000
    assert held_out_cases(500, 22) == sets[2]
    assert len({case.id for case in held_out_cases(9_999, 10**9)}) == 9_999
    with pytest.raises(UsageError, match=r"--n 10001: the demo has 10,000 questions"):
        held_out_cases(10_001, 0)


@pytest.mark.parametrize(("size", "most"), [(1_999_999_999, 1), (2_000_000_000, 2)])
def test_a_small_file_that_was_neither_trained_nor_measured_plans_one_step(
    size: int, most: int, tmp_path: Path
) -> None:
    path = tmp_path / "a.gguf"
    with path.open("wb") as file:
        file.truncate(size)
    planner = Worker(name="conductor", kind="llama", model=str(path))
    assert max_planned_steps(planner, PROMPTED) == most


@pytest.mark.parametrize(
    ("planner", "profile", "most"),
    [
        (Worker(name="conductor", kind="llama", model="a.gguf"), PROMPTED, 2),
        (Worker(name="conductor", kind="llama", model="a.gguf"), BRIEF_PROFILE, 5),
        (
            Worker(name="conductor", kind="llama", model="a.gguf"),
            replace(PROMPTED, guide=Guide(proof="+35 points")),
            5,
        ),
        (Worker(name="conductor", kind="openai", model="gpt"), PROMPTED, 5),
        (None, PROMPTED, 5),
    ],
)
def test_a_file_that_was_neither_trained_nor_measured_plans_two_steps(
    planner: Worker | None, profile: Profile, most: int
) -> None:
    assert max_planned_steps(planner, profile) == most
