"""`conductor setup`.

What it finds and proposes, and what it changes, with a person at the terminal and without.
"""

from __future__ import annotations

import io
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pexpect
import pytest

from conductor_cli.app import planner_resolution, setup
from conductor_cli.app.keys import FoundKey
from conductor_cli.app.setup import (
    Findings,
    fitting_model,
    propose_limits,
    propose_model,
    propose_workers,
)
from conductor_cli.config.settings import load_settings
from conductor_cli.core.pool import Worker
from conductor_cli.core.usage import FREE, Price
from conductor_cli.models.presets import PRESETS
from conductor_cli.models.prices import with_prices
from conductor_cli.models.weights.registry import SHIPPED
from conductor_cli.system.hardware import Gpu, Memory
from tests.cli.stage import COMMAND, Stage
from tests.cli.terminals import start_in_terminal, terminal
from tests.hub import read_environment
from tests.state.bus import items

GB = 10**9
KEY = "sk-typed-0123456789abcdef"


@pytest.fixture
def fresh(stage: Stage) -> Stage:
    """Nothing is set up yet."""
    stage.config.unlink()
    return stage


def findings(home: Path, **changes: object) -> Findings:
    """A machine with room for everything."""
    here = Findings(
        memory=Memory(total=64 * GB, available=60 * GB), downloads=home, free=500 * GB, keyring="R"
    )
    return replace(here, **changes)  # type: ignore[arg-type]


def workers(stage: Stage) -> list[str]:
    return [item.worker.name for item in load_settings(stage.environ()).workers]


def steps(stage: Stage) -> dict[str, dict[str, object]]:
    done = stage.ok("setup", "--json")
    return {step["name"]: step for step in done.json["proposal"]}


@pytest.mark.parametrize(
    ("memory", "free", "name"),
    [
        (0, 500 * GB, "qwen2.5-7b-q4_k_m"),  # not known
        (8 * GB, 500 * GB, "qwen2.5-7b-q4_k_m"),
        (6 * GB, 500 * GB, "qwen2.5-7b-q3_k_m"),
        # The 3B model's licence allows no commercial use
        (4 * GB, 500 * GB, "qwen2.5-1.5b-q4_k_m"),
        (64 * GB, 2 * GB, "qwen2.5-1.5b-q4_k_m"),
        (3 * GB // 2, 500 * GB, None),
        (64 * GB, 100_000_000, None),
    ],
)
def test_the_model_fits_memory_and_disk(
    stage: Stage, home: Path, memory: int, free: int, name: str | None
) -> None:
    entry = fitting_model(
        findings(home, memory=Memory(total=memory), free=free), load_settings(stage.environ())
    )
    assert (entry.name if entry else None) == name


@pytest.fixture
def bare_build(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A machine whose build has no adapter of a planner, whatever this build has."""
    registry = stage.home / "bare/registry.toml"
    registry.parent.mkdir()
    registry.write_bytes(SHIPPED.read_bytes())
    monkeypatch.setenv("CONDUCTOR_LLM_REGISTRY", str(registry))
    return stage


@pytest.mark.parametrize(
    ("cores", "gpus", "name", "message"),
    [
        (
            2,
            (),
            "qwen2.5-1.5b-q4_k_m",
            "chosen for 2 cores; likely to plan worse than qwen2.5-7b-q4_k_m",
        ),
        (8, (), "qwen2.5-7b-q4_k_m", "qwen2.5-3b-q4_k_m (2.10 GB, not for commercial use)"),
        (2, (Gpu(kind="cuda", name="G"),), "qwen2.5-7b-q4_k_m", "qwen2.5-0.5b-q4_k_m (491 MB)"),
    ],
)
def test_few_cores_get_a_small_planner_with_a_word_on_it(
    bare_build: Stage, home: Path, cores: int, gpus: tuple[Gpu, ...], name: str, message: str
) -> None:
    """In a build without the trained planner."""
    stage = bare_build
    settings = load_settings(stage.environ(), {"planner.model": ""})
    [step] = propose_model(findings(home, cores=cores, gpus=gpus), settings)
    assert step.name == name
    assert message in step.text
    assert "not measured" in step.text


HOSTED = tuple(
    FoundKey(provider=name, source="V", base_url="", state="set")
    for name in ("gemini", "openai", "xai")
)


def test_on_a_few_cores_the_cheapest_allowed_planner_of_a_key_is_proposed(
    bare_build: Stage, home: Path
) -> None:
    stage = bare_build
    small = findings(home, keys=HOSTED, cores=4)
    for policy, name in (
        ("", "openai/gpt-6-luna"),
        ("deny = ['provider:openai']", "gemini/gemini-3.5-flash-lite"),
    ):
        stage.configure(f"[policy]\n{policy}", workers=())
        settings = load_settings(stage.environ(), {"planner.model": ""})
        [step] = propose_model(small, settings)
        assert step.command == ("model", "use", name)
        assert "conductor model pull qwen2.5-7b-q4_k_m --use" in step.text
    stage.configure("[policy]\nlocal_only = true", workers=())
    settings = load_settings(stage.environ(), {"planner.model": ""})
    assert propose_model(small, settings)[0].name == "qwen2.5-7b-q4_k_m"


@pytest.mark.parametrize(
    "machine", [{"cores": 8}, {"cores": 2, "gpus": (Gpu(kind="cuda", name="G"),)}]
)
def test_where_a_local_planner_works_well_it_comes_before_a_hosted_one(
    stage: Stage, home: Path, machine: dict[str, Any]
) -> None:
    stage.configure(workers=())
    settings = load_settings(stage.environ(), {"planner.model": ""})
    [step] = propose_model(findings(home, keys=HOSTED, **machine), settings)
    assert step.command[:3] == ("model", "pull", "qwen2.5-7b-q4_k_m")
    assert "hosted in its place" in step.text
    assert "conductor model use openai/gpt-6-luna" in step.text


def test_on_a_few_cores_a_model_of_a_server_here_comes_before_a_hosted_one(
    bare_build: Stage, home: Path
) -> None:
    bare_build.configure(workers=())
    settings = load_settings(bare_build.environ(), {"planner.model": ""})
    server = Worker(name="big", kind="ollama", model="qwen2.5:7b")
    [step] = propose_model(findings(home, keys=HOSTED, cores=4, workers=(server,)), settings)
    assert step.command == ("model", "use", "big")
    assert "conductor model use openai/gpt-6-luna" in step.text


def test_without_llama_cpp_no_local_planner_is_proposed(stage: Stage, home: Path) -> None:
    bare = findings(home, llama=False)
    stage.configure(workers=())
    assert propose_model(bare, load_settings(stage.environ(), {"planner.model": ""})) == []
    assert "pip install" in bare.lines()["llama.cpp"]


def test_without_llama_cpp_the_largest_running_model_is_proposed(stage: Stage, home: Path) -> None:
    """That of a worker that is set up, or one that is only proposed. Nobody can load a file here."""
    sizes = {"small": "qwen2.5-0.5b", "large": "qwen2.5-coder:7B-instruct", "other": "llama3.2"}
    servers = tuple(Worker(name=name, kind="ollama", model=model) for name, model in sizes.items())
    stage.configure(workers=())
    settings = load_settings(stage.environ(), {"planner.model": ""})
    [step] = propose_model(findings(home, llama=False, workers=servers), settings)
    assert step.command == ("model", "use", "large")
    stage.configure(workers=("alpha",))
    settings = load_settings(stage.environ(), {"planner.model": ""})
    [step] = propose_model(findings(home, llama=False), settings)
    assert step.command == ("model", "use", "alpha")


def test_yes_without_llama_cpp_ends_with_a_planner_or_not_with_0(
    fresh: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (setup, planner_resolution):
        monkeypatch.setattr(module, "is_installed", lambda: False)
    done = fresh.ends(5, "setup", "--yes")
    assert "conductor model use WORKER | URL | provider/model" in done.out.splitlines()[-1]
    assert not {"pull", "--demo"} & set(done.out.split())
    fresh.ok(
        "workers",
        "add",
        "mine",
        "--kind",
        "openai-compatible",
        "--base-url",
        fresh.url,
        "--model",
        "alpha",
    )
    fresh.ok("setup", "--yes")
    assert fresh.ok("ask", "Why?").out == "alpha answers\n"


def test_each_planner_of_a_provider_has_a_price() -> None:
    planners = [
        Worker(name="p", kind=kind, model=preset.planner)
        for kind, preset in PRESETS.items()
        if preset.planner
    ]
    assert all(planner.price is not None for planner in with_prices(planners)[0])
    assert len(planners) >= 7


def test_discovered_workers_are_proposed_once(stage: Stage, home: Path) -> None:
    stage.configure('[workers.openai]\nkind = "mistral"\nmodel = "m"', workers=())
    hand = (
        Worker(name="openai", kind="openai", model="a"),
        Worker(name="mistral", kind="mistral", model="m"),
    )
    proposed = propose_workers(findings(home, workers=hand), load_settings(stage.environ()))
    assert [(step.name, step.done) for step in proposed] == [("openai", True), ("openai-2", False)]
    assert "its key is missing: conductor keys set mistral" in proposed[0].text
    assert proposed[1].command_line == "conductor workers add openai-2 --kind openai --model a"
    assert "sends text to openai" in proposed[1].text


@pytest.mark.parametrize(
    ("prices", "names"),
    [
        ((), []),
        ((FREE,), []),
        ((FREE, Price(input=Decimal(1), output=Decimal(5))), ["limits.cost", "limits.cost_day"]),
        (
            (None, Price(input=Decimal(1), output=Decimal(5))),
            ["limits.tokens", "limits.tokens_day"],
        ),
    ],
)
def test_limits_are_in_an_enforceable_unit(
    stage: Stage, prices: tuple[Price | None, ...], names: list[str]
) -> None:
    stage.configure(workers=())
    kinds = [
        Worker(name=f"w{number}", kind="openai-compatible", price=price)
        for number, price in enumerate(prices)
    ]
    settings = load_settings(stage.environ(), {"planner.model": ""})
    assert [step.name for step in propose_limits(kinds, settings) if not step.done] == names


@pytest.mark.usefixtures("bare_build")
def test_json_without_yes_only_proposes(fresh: Stage) -> None:
    done = fresh.ok("setup", "--json", env={"GEMINI_API_KEY": KEY})
    assert KEY not in done.out
    assert done.json["done"] is None
    assert done.json["found"]["keys"] == "gemini in GEMINI_API_KEY"
    steps_by_name = {step["name"]: step for step in done.json["proposal"]}
    assert (
        steps_by_name["gemini"]["command"]
        == "conductor workers add gemini --kind gemini --model gemini-3.8-flash"
    )
    about = steps_by_name["gemini/gemini-3.5-flash-lite"]["about"]
    assert "sends each question to gemini, $0.3000 in and $2.50 out per million tokens" in about
    assert "to plan on this machine later: conductor model pull " in about
    assert not fresh.own_file.exists()


def test_yes_does_everything_once(
    fresh: Stage, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    assert all(
        item["ok"]
        for item in fresh.ok("setup", "--yes", "--json", "--model", str(tiny)).json["done"]
    )
    settings = load_settings(fresh.environ())
    assert workers(fresh) == ["gemini"]
    assert settings["planner.model"]
    assert settings["limits.cost"] or settings["limits.tokens"]
    before = fresh.own_file.read_bytes()
    again = fresh.inside("setup", "--yes", "--json")
    assert again.json["done"] == []
    assert all(step["done"] for step in again.json["proposal"])
    assert fresh.own_file.read_bytes() == before


def test_config_toml_is_never_changed(stage: Stage) -> None:
    stage.configure(
        '# mine\n[limits]\ncost = 1\ncost_day = 2\n[workers.g]\nkind = "gemini"', workers=()
    )
    before = stage.config.read_bytes()
    env = {"GEMINI_API_KEY": KEY}
    assert stage.ok("setup", "--yes", "--json", "--model", "none", env=env).json["done"] == []
    assert stage.config.read_bytes() == before
    assert not stage.own_file.exists()


def test_other_steps_are_done_after_a_failure(
    fresh: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    read_environment()
    done = fresh.ends(5, "setup", "--yes", "--json", "--model", "qwen2.5-7b-q4_k_m")
    by = {item["step"]: item for item in done.json["done"]}
    assert by["worker"]["ok"]
    assert not by["model"]["ok"]
    assert "HF_HUB_OFFLINE" in done.err
    assert workers(fresh) == ["gemini"]


def test_without_a_terminal_nothing_is_changed(fresh: Stage) -> None:
    done = fresh.fails(2, "setup", env={"GEMINI_API_KEY": KEY})
    assert "conductor workers add gemini" in done.out
    assert "conductor model pull" in done.out
    assert not fresh.own_file.exists()


def test_nothing_left_to_do_is_a_success(stage: Stage) -> None:
    stage.configure("[limits]\nattempts = 1\ntokens = 1000\ntokens_day = 5000")
    done = stage.inside("setup")
    assert (done.code, done.err) == (0, "")
    assert "done  alpha: openai-compatible alpha" in done.out
    assert "done  limits.tokens_day: at most 5,000 tokens a day" in done.out
    assert done.out.endswith("conductor doctor checks that everything works\n")


class Person:
    """Somebody at a terminal of some width.

    The program runs in this process or, with `command`, as one of its own.
    """

    def __init__(self, stage: Stage, columns: int = 80, **how: Any) -> None:
        self.seen = io.StringIO()
        self.program = start_in_terminal(stage, "setup", size=(columns, 60), **how)
        self.program.logfile_read = self.seen

    def answers(self, *pairs: tuple[str, str]) -> None:
        """Wait for each question and type the answer."""
        for question, answer in pairs:
            self.program.expect_exact(question)
            self.program.sendline(answer)

    def end(self, code: int = 0) -> str:
        """Wait for the end with this exit code; what was to be seen."""
        self.program.expect(pexpect.EOF)
        self.program.close()
        killed = self.program.signalstatus
        text = self.seen.getvalue().replace("\r\n", "\n")
        assert (self.program.exitstatus if killed is None else 128 + killed) == code, text
        return text


NO_KEY = ("skip):", "")  # no provider


@pytest.mark.parametrize("columns", [40, 100])
def test_a_person_accepts_everything_but_the_model(fresh: Stage, columns: int) -> None:
    person = Person(fresh, columns, GEMINI_API_KEY=KEY)
    person.answers(NO_KEY, ("Do this? [Y/n]", ""), ("Do these 2? [Y/n]", ""))
    person.answers(("Do this? [Y/n]", "no"), ("Run it? [Y/n]", ""), ("Measure them now? [y/N]", ""))
    text = person.end()
    assert "SIRAP" in text
    assert KEY not in text
    settings = load_settings(fresh.environ())
    assert workers(fresh) == ["gemini"]
    assert settings["planner.model"] == ""
    shown = text.partition("Run it?")[0].splitlines()
    assert all(len(line) <= columns or " " not in line[columns:] for line in shown), text


def test_a_typed_key_is_stored_and_adds_a_worker(fresh: Stage, keyring: str) -> None:
    # No provider is to be reached
    person = Person(fresh, command=COMMAND, HTTPS_PROXY="http://127.0.0.1:1")
    person.answers(("skip):", "mistral"), ("(not shown):", KEY))
    person.program.expect_exact("unreachable")
    person.answers(
        NO_KEY, ("Do this? [Y/n]", "y"), ("[Y/n]", "n"), ("[Y/n]", "n"), ("Run it? [Y/n]", "n")
    )
    person.answers(("Measure them now? [y/N]", ""))
    text = person.end()
    assert KEY not in text
    assert [name for name, _ in items(keyring)] == ["mistral"]
    assert workers(fresh) == ["mistral"]


@pytest.mark.parametrize(("answer", "measured"), [("", []), ("n", []), ("y", ["alpha", "beta"])])
def test_setup_ends_with_the_offer_to_measure_the_workers(
    stage: Stage, answer: str, measured: list[str]
) -> None:
    stage.configure(
        "[limits]\nattempts = 1\ntokens = 5000\ntokens_day = 9000000", workers=("alpha", "beta")
    )
    person = Person(stage, 100)
    person.answers(NO_KEY, ("Run it? [Y/n]", "n"), ("Measure them now? [y/N]", answer))
    if measured:
        person.answers(("Continue? [y/N]", "y"))
    text = person.end()
    assert "2 workers without a measured card: alpha, beta" in text
    assert "conductor workers calibrate" in text
    assert (
        sorted({card.worker for card in load_settings(stage.environ()).cards.measured}) == measured
    )
    assert bool(stage.asked("alpha")) == bool(measured)
    if measured:
        assert "measured card" not in stage.inside("setup").out


def test_yes_does_not_measure(stage: Stage) -> None:
    """Measuring costs money and improves what works already: `--yes` only shows the command."""
    assert (
        "2 workers without a measured card: alpha, beta"
        in stage.ok("setup", "--yes", "--model", "none").out
    )
    assert stage.server.requests == []


def test_a_mistyped_answer_is_asked_for_again(fresh: Stage) -> None:
    person = Person(fresh)
    person.answers(("skip):", "no-such-provider"), NO_KEY, ("Do this? [Y/n]", "maybe"))
    person.answers(("Do this? [Y/n]", "n"), ("Run it? [Y/n]", "n"))
    text = person.end()
    assert "that is not a provider" in text
    assert "answer with" in text


@pytest.mark.parametrize("columns", [40, 120])
def test_a_key_that_is_pasted_too_early_is_hidden(fresh: Stage, columns: int) -> None:
    with terminal(fresh, "setup", size=(columns, 40)) as shown:
        shown.until(lambda screen: "skip):" in screen)
        shown.program.send(f"{KEY}\r")
        shown.until(lambda screen: screen.count("skip):") == 2)
        assert KEY[-6:] not in shown.screen
        assert "looks like a key" in " ".join(shown.screen.split())


def test_a_worker_plans_where_the_planner_cannot_be_downloaded(fresh: Stage) -> None:
    # A new process, because the library of the hub reads the variable once
    person = Person(fresh, command=COMMAND, HF_ENDPOINT="http://127.0.0.1:1")
    person.answers(("skip):", fresh.url), ("(Enter for alpha):", ""), NO_KEY)
    person.answers(("Do this? [Y/n]", ""), ("Do these 2? [Y/n]", "n"))
    person.answers(("model pull", ""), ("model use alpha", ""), ("Run it? [Y/n]", "n"))
    person.answers(("Measure them now? [y/N]", ""))
    text = person.end()
    assert "Planner, in its place" in text
    assert load_settings(fresh.environ())["planner.model"] == "alpha"


def test_whom_nobody_wants_as_a_worker_is_not_proposed_as_the_planner(
    fresh: Stage, bare_build: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "is_installed", lambda: False)
    person = Person(fresh, GEMINI_API_KEY=KEY)
    person.answers(("skip):", fresh.url), ("(Enter for alpha):", ""), NO_KEY)
    person.answers(("Do these 2? [Y/n]", "n"))
    text = person.end()
    assert "model use alpha" not in text
    assert "model use gemini" not in text
    assert "conductor model use WORKER | URL | provider/model" in " ".join(text.split())


def test_a_server_is_added_by_its_address(fresh: Stage) -> None:
    person = Person(fresh)
    person.answers(("skip):", "http://127.0.0.1:1/v1"), ("skip):", "127.0.0.1:1"))
    person.answers(("skip):", fresh.url.removeprefix("http://").removesuffix("/v1")))
    person.answers(
        ("(Enter for alpha):", "beta"),
        ("skip):", fresh.url),
        ("(Enter for alpha):", ""),
    )
    person.answers(
        NO_KEY, ("Do these 2? [Y/n]", ""), ("[Y/n]", "n"), ("[Y/n]", "n"), ("Run it? [Y/n]", "n")
    )
    person.answers(("Measure them now? [y/N]", ""))
    text = person.end()
    assert "it offers:" in text
    assert " 2  beta" in text
    assert "127.0.0.1:1 cannot be reached" in text
    workers = [item.worker for item in load_settings(fresh.environ()).workers]
    assert sorted(
        (worker.name, worker.model, worker.options["base_url"]) for worker in workers
    ) == [
        ("alpha", "alpha", fresh.url),
        ("beta", "beta", fresh.url),
    ]


def test_ctrl_c_keeps_finished_steps(fresh: Stage) -> None:
    person = Person(fresh, command=COMMAND, GEMINI_API_KEY=KEY)
    person.answers(NO_KEY, ("Do this? [Y/n]", "y"))
    person.program.expect_exact("[Y/n]")
    person.program.sendintr()
    text = person.end(130)
    assert "stopped; finished steps are kept; to continue: conductor setup" in text
    assert "Traceback" not in text
    settings = load_settings(fresh.environ())
    assert workers(fresh) == ["gemini"]
    assert settings["limits.cost"] is None


def test_ctrl_d_is_a_no_to_every_question(fresh: Stage) -> None:
    person = Person(fresh, GEMINI_API_KEY=KEY)
    for question in ("skip):", "Do this? [Y/n]", "Do this? [Y/n]", "Run it? [Y/n]"):
        person.program.expect_exact(question)
        person.program.sendeof()
    person.end()
    assert not fresh.own_file.exists()


def test_a_chosen_model_that_is_missing_is_not_replaced(stage: Stage, tmp_path: Path) -> None:
    stage.configure("[limits]\ntokens = 9\ntokens_day = 9", conductor=str(tmp_path / "gone.gguf"))
    done = stage.inside("setup", "--yes", "--json")
    [step] = [step for step in done.json["proposal"] if step["step"] == "model"]
    assert (step["done"], done.json["done"]) == (True, [])
    assert "gone.gguf cannot be used" in step["about"]
    stage.configure(conductor="qwen2.5-0.5b-q4_k_m")
    assert (
        steps(stage)["qwen2.5-0.5b-q4_k_m"]["command"]
        == "conductor model pull qwen2.5-0.5b-q4_k_m --use --yes"
    )


@pytest.mark.parametrize(
    ("model", "last"),
    [
        (
            "none",
            "no planner is chosen, so no question can be answered yet; next: conductor model pull",
        ),
        ("openai/m", "next: conductor keys set openai, since the model that plans has no key"),
        (
            "http://127.0.0.1:9/v1#m",
            'next: conductor ask "…"; conductor doctor checks that everything works',
        ),
    ],
)
def test_the_last_line_says_what_is_still_missing(fresh: Stage, model: str, last: str) -> None:
    assert fresh.inside("setup", "--yes", "--model", model).out.splitlines()[-1].startswith(last)


def test_a_home_that_cannot_be_written_is_what_the_last_line_names(fresh: Stage) -> None:
    fresh.config.parent.rmdir()
    env = {"XDG_CONFIG_HOME": "/proc", "HOME": "/proc", "CONDUCTOR_LLM_CONFIG_DIR": ""}
    done = fresh.inside("setup", "--model", "none", env=env)
    last = done.out.splitlines()[-1]
    assert last.startswith("nothing can be set up, because /proc/conductor-llm cannot be written (")
    assert "CONDUCTOR_LLM_CONFIG_DIR=DIR" in last
