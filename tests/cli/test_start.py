"""The way in: help, version, odd orders of arguments, and how little is loaded."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from conductor_cli.__main__ import main
from conductor_cli.cli.command import load_command
from conductor_cli.cli.commands import COMMANDS, app
from conductor_cli.cli.options import HEADINGS, RunOptions, with_run_options
from scripts.reference import commands as reference
from tests.cli.stage import SOURCE, Stage, explained

if TYPE_CHECKING:
    from typer import Typer

HEAVY = (
    "asyncio", "httpx", "rich", "litellm", "llama_cpp", "keyring", "huggingface_hub", "platformdirs", "tomllib", "mcp",
)  # fmt: skip


def loaded(stage: Stage, *arguments: str) -> set[str]:
    """Which heavy modules are loaded when a command has ended."""
    lines = [
        "import sys",
        f"sys.argv = ['conductor', *{arguments!r}]",
        "from conductor_cli.__main__ import main",
        "try: main()",
        f"finally: print(*[m for m in {HEAVY} if m in sys.modules], file=sys.stderr)",
    ]
    code = "\n".join(lines)
    done = subprocess.run([sys.executable, "-c", code], env=stage.environ(), capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_help_and_version_load_nothing_heavy(stage: Stage, flag: str) -> None:
    """What a user looks at first costs no library."""
    assert loaded(stage, flag) == set()


def test_help_imports_no_command() -> None:
    """The help is printed from the table of commands; the module of a command is imported when it is run."""
    code = (
        "import sys; from conductor_cli.cli.commands import app; "
        "app(['--help'], standalone_mode=False); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = {target.partition(":")[0] for rows in COMMANDS.values() for target, _ in rows.values()}
    assert modules
    assert modules.isdisjoint(done.stdout.split())


@pytest.mark.parametrize("rows", COMMANDS.values(), ids=COMMANDS)
def test_every_command_of_the_table_exists_and_its_help_fits(rows: dict[str, tuple[str, str]]) -> None:
    """Each row names a function or a group, and its line of help fits 80 columns."""
    for name, (target, text) in rows.items():
        command = load_command(name, target)
        assert command.name == name
        assert command.help
        assert len(text) <= 80 - len("  completions  ")


def every_help(group: Typer, *words: str) -> Iterator[tuple[str, str]]:
    """The words and the help of each command, groups included, at 80 columns."""
    shown = CliRunner().invoke(group, [*words, "--help"], prog_name="conductor", terminal_width=80).output
    yield " ".join(words), shown
    below = shown.partition("COMMAND")[2].partition("Examples:")[0] if len(words) < 2 else ""
    for name in re.findall(r"^  ([a-z]+) ", below, re.MULTILINE):
        yield from every_help(group, *words, name)


def test_every_help_is_whole_at_80_columns() -> None:
    """No line of any help is cut or too long, and no option or its value is broken at a hyphen."""
    helps = dict(every_help(app))
    assert {"ask", "trace rerun", "workers calibrate", "completions"} <= helps.keys()
    for words, text in helps.items():
        assert text.startswith("Usage: conductor"), words
        for line in text.splitlines():
            assert len(line) <= 80, (words, line)
            assert not re.search(r"(\.\.\.|\w-)$", line) or line.startswith("Usage"), (words, line)


def test_many_options_stand_under_headings(stage: Stage) -> None:
    """`ask` has its options in six groups; a command with few has one list."""
    shown = stage.inside("ask", "--help").out
    assert re.findall(r"^(\w+):$", shown, re.MULTILINE) == ["Arguments", *HEADINGS, "Options", "Examples"]
    assert shown.index("Limits:") < shown.index("--max-cost") < shown.index("Output:")
    assert re.findall(r"^(\w+):$", stage.inside("cost", "--help").out, re.MULTILINE) == ["Options", "Examples"]


def test_what_few_people_need_stands_apart(stage: Stage) -> None:
    """Training, evaluation and the server are under "Advanced"; a command has examples, a group too."""
    assert {"pools", "eval", "serve", "launch", "mcp", "train"} == COMMANDS["Advanced"].keys()
    shown = stage.inside("workers", "--help").out
    assert shown.index("Commands:") < shown.index("  test ") < shown.index("Advanced:") < shown.index("  calibrate ")
    assert "\nExamples:\n  # Add a model of Ollama\n  conductor workers add fast" in shown
    assert 'conductor ask "What does it show?" -f chart.png' in stage.inside("ask", "--help").out
    assert "names" not in re.findall(r"^  (\w+) ", stage.inside("trace", "--help").out, re.MULTILINE)


def test_every_heading_names_options_that_exist() -> None:
    """An option that is listed under a heading is one of some command."""
    root = reference.read(app, "conductor")
    known = {name for command in root.walk() for option in command.options for name in option.names}
    assert {name for names in HEADINGS.values() for name in names} <= known


def test_shared_options_are_those_of_the_dataclass() -> None:
    """A command has an option for each field of `RunOptions` that it does not omit, and gets them as one value."""
    given = []

    @with_run_options(omit=("seed",))
    def command(name: str, options: RunOptions) -> None:
        given.append((name, options))

    fields = [field.name for field in dataclasses.fields(RunOptions) if field.name != "seed"]
    assert list(inspect.signature(command).parameters) == ["name", *fields]
    defaults = {name: getattr(RunOptions(), name) for name in fields}
    command(name="x", **defaults | {"max_calls": 3})
    assert given == [("x", RunOptions(max_calls=3))]


def test_a_look_at_a_setting_loads_no_library_of_models(stage: Stage) -> None:
    """`config get` with workers configured reads TOML and no more: no HTTP, no model library, no drawing."""
    assert loaded(stage, "config", "get", "limits.steps") <= {"platformdirs", "tomllib"}


@pytest.mark.parametrize(
    "arguments", [["--version"], ["--version", "ask"], ["--help"], ["ask", "-h"], ["trace", "--help"]]
)
def test_help_and_version_go_to_stdout(stage: Stage, arguments: list[str]) -> None:
    """What was asked for is no error: stdout and 0."""
    done = stage.inside(*arguments)
    assert done.code == 0
    assert done.err == ""
    assert "conductor" in done.out


@pytest.mark.parametrize("arguments", [[], ["trace"], ["workers"], ["config"], ["model"]])
def test_without_a_command_the_help_is_on_stderr(stage: Stage, arguments: list[str]) -> None:
    """A command line without a command: the help on stderr, 2."""
    done = stage.inside(*arguments)
    assert (done.code, done.out) == (2, "")
    assert "Usage: conductor" in done.err


@pytest.mark.parametrize(
    "arguments", [["frobnicate"], ["trace", "lst"], ["ask", "--mod", "mini"], ["workers", "add"], ["completions"]]
)
def test_a_command_line_that_cannot_be_understood_is_three_lines(stage: Stage, arguments: list[str]) -> None:
    """Unknown commands, unknown flags, missing arguments: 2, with a word on where to look."""
    done = stage.inside(*arguments)
    assert done.code == 2
    explained(done)
    assert "--help" in done.err


@pytest.mark.parametrize(
    ("line", "said", "hint"),
    [
        ("cost --days x", "--days takes a whole number", ""),
        ("ask --max-time x hi", "--max-time takes a number", ""),
        ("eval rehearsal --n 0", "--n must be at least 1", ""),
        ("cost --days 99999", "--days must be at most 3660", ""),
        ("completions pwsh", "shell takes bash, zsh, fish or powershell, not 'pwsh'", "did you mean powershell?"),
        ("trace export --format md", "--format takes html or markdown, not 'md'", "did you mean markdown?"),
        ("ask --format md hi", "--format takes answer, json or jsonl, not 'md'", "did you mean answer?"),
        ("ask --mode mni hi", "--mode takes mini, auto or ultra, not 'mni'", "did you mean mini?"),
        ("workers remove x", "there is no command 'remove'", "did you mean conductor workers rm?"),
        ("keys add openai", "there is no command 'add'", "did you mean conductor keys set?"),
        ("help", "there is no command 'help'", "did you mean conductor --help?"),
        ("version", "there is no command 'version'", "did you mean conductor --version?"),
        ("askk hi", "there is no command 'askk'", "did you mean conductor ask?"),
        (
            "ask --model m hi",
            "there is no option --model",
            "--conductor NAME is the model that plans; ",
        ),
        ("ask --keep-local hi", "there is no option --keep-local", "did you mean --local-only?"),
        (
            "ask --files-only a hi",
            "there is no option --files-only",
            "a setting: conductor config set policy.files_only",
        ),
        ("config get limits.step", "unknown setting 'limits.step'", "did you mean limits.steps?"),
        ("workers show alhpa", "no worker is named 'alhpa'", "did you mean alpha?"),
        ("workers rm alhpa", "no worker is named 'alhpa'", "did you mean alpha?"),
        ("keys sk-abcdef0123456789abcdef", "there is no command of that name", "known: set, list, rm, test"),
    ],
)
def test_a_wrong_word_is_explained_in_our_words(stage: Stage, line: str, said: str, hint: str) -> None:
    """What was expected, and what was probably meant; nothing of the libraries that read the command line."""
    done = stage.inside(*line.split())
    assert done.code == 2
    explained(done)
    first, *rest = done.err.splitlines()
    assert first == f"conductor: {said}"
    assert hint in "\n".join(rest)
    assert "Input should" not in done.err
    assert "sk-abc" not in done.err


@pytest.mark.parametrize("line", ["--debug --quiet ask hi", "--debug ask hi --quiet", "ask --debug -q hi"])
def test_debug_and_quiet_exclude_each_other(stage: Stage, line: str) -> None:
    """Both at once is a contradiction, wherever they stand: 2."""
    done = stage.inside(*line.split())
    assert done.code == 2
    assert "exclude each other" in done.err


def test_options_of_every_command_may_follow_it(stage: Stage, tmp_path: Path) -> None:
    """`--config` and `--quiet` mean the same before a command, after it, and after a command of a group."""
    other = tmp_path / "other.toml"
    other.write_text(stage.config.read_text().replace("[limits]", "[limits]\nsteps = 2"))
    for line in ("--config FILE config get limits.steps", "config --config FILE get limits.steps",
                 "config get limits.steps --config FILE"):  # fmt: skip
        done = stage.inside(*line.replace("FILE", str(other)).split())
        assert (done.code, done.out) == (0, "2\n"), line
    stage.plan = "nonsense"
    assert "plan" in stage.inside("ask", "hi").err
    assert stage.inside("ask", "-q", "hi").err == ""


def test_the_last_of_two_equal_options_counts(stage: Stage, tmp_path: Path) -> None:
    """A file named after the command replaces the one named before it."""
    missing = str(tmp_path / "none.toml")
    done = stage.inside("--config", missing, "config", "get", "limits.attempts", "--config", str(stage.config))
    assert (done.code, done.out) == (0, "1\n")


def test_words_after_two_dashes_are_no_options(stage: Stage) -> None:
    """A question about `--debug` is a question."""
    done = stage.inside("ask", "--", "what", "is", "--debug")
    assert (done.code, done.err) == (0, "")
    assert "what is --debug" in str(stage.asked("alpha")[0].json)


def test_debug_shows_what_happens_inside(stage: Stage) -> None:
    """`--debug` logs to stderr and leaves stdout alone."""
    done = stage.run("--debug", "ask", "hi")
    assert (done.code, done.out) == (0, "alpha answers\n")
    assert " ms " in done.err


def test_the_traceback_of_an_error_is_for_debug(stage: Stage) -> None:
    """An error shows its traceback with `--debug` only, and has the same code."""
    assert "Traceback" in stage.run("--debug", "ask", "hi", "--workers", "nobody").err
    assert "Traceback" not in stage.inside("ask", "hi", "--workers", "nobody").err


def test_a_bug_is_reported_as_one(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception that nobody foresaw is one line and a request, not a traceback: 1."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("conductor_cli.cli.config.format_value", fail)
    done = stage.inside("config", "get", "limits.steps")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("conductor: this is a bug in conductor: ZeroDivisionError")
    assert "--debug" in done.err


THREAD = """
import atexit, sys, threading, time
class Watch:
    def __del__(self):
        print("torn down", flush=True)
watch = Watch()
from conductor_cli.__main__ import main
import conductor_cli.cli.start as start
def run(*_, **__):
    atexit.register(print, "registered")
    threading.Thread(target=time.sleep, args=(SECONDS,), daemon=True).start()
    time.sleep(0.05)
    sys.stdout.write("said ")
    return 7
start.run = run
main()
"""
"""A command that leaves a thread which ends after so many seconds, and an object that notices the end of Python."""


@pytest.mark.parametrize("seconds", ["60", "0"])
def test_python_is_not_taken_down_under_a_thread(stage: Stage, seconds: str) -> None:
    """A thread may still be in native code, even after its end in Python: the process ends, with all that it said."""
    code = THREAD.replace("SECONDS", seconds)
    done = subprocess.run(
        [sys.executable, "-c", code], env=stage.environ(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "said registered\n", "")


def test_ctrl_c_during_an_import_ends_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of the first tenths of a second are imports."""

    class Interrupted:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == "conductor_cli.cli.chat_banner":
                raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["conductor", "ask", "hi"])
    monkeypatch.delitem(sys.modules, "conductor_cli.cli.chat_banner", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted, *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


def test_the_command_runs_as_a_module(stage: Stage) -> None:
    """`python -m conductor_cli` is the command."""
    done = subprocess.run(
        [sys.executable, "-m", "conductor_cli", "--version"], env=stage.environ({"PYTHONPATH": str(SOURCE)}),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("conductor ")
