"""The way in: help, version, odd orders of arguments, and how little is loaded."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conductor_cli.__main__ import main
from conductor_cli.cli import entry, typer_classes
from conductor_cli.cli.command_tree import COMMANDS, app
from conductor_cli.cli.completion_offers import COMPLETION_DIRECTORIES
from conductor_cli.cli.options import HEADINGS, RENAMED_OPTIONS
from conductor_cli.cli.typer_classes import load_command
from scripts.reference import commands as reference
from tests.cli.stage import Stage

TABLE = json.loads(Path(COMPLETION_DIRECTORIES[1], "words.json").read_text())
HEAVY = (
    "asyncio",
    "httpx",
    "rich",
    "litellm",
    "llama_cpp",
    "keyring",
    "huggingface_hub",
    "platformdirs",
    "tomllib",
    "mcp",
)


def loaded(stage: Stage, *arguments: str, modules: Sequence[str] = HEAVY) -> set[str]:
    """Which of the heavy modules are loaded when a command has ended."""
    lines = [
        "import sys",
        f"sys.argv = ['conductor', *{arguments!r}]",
        "from conductor_cli.__main__ import main",
        "try: main()",
        f"finally: print(*[m for m in {tuple(modules)} if m in sys.modules], file=sys.stderr)",
    ]
    code = "\n".join(lines)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=stage.environ(),
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.split())


def test_help_loads_nothing_heavy_and_imports_no_command(stage: Stage) -> None:
    commands = chain.from_iterable(rows.values() for rows in COMMANDS.values())
    modules = [target.partition(":")[0] for target, _ in commands]
    assert loaded(stage, "--help", modules=(*HEAVY, *modules)) == set()


def test_a_plan_loads_no_scorer_where_nothing_was_evaluated(stage: Stage) -> None:
    names = ("conductor_cli.app.opening", "conductor_cli.evals")
    assert loaded(stage, "plan", "Why?", modules=names) & set(names) == set(names[:1])


@pytest.mark.parametrize("rows", COMMANDS.values(), ids=COMMANDS)
def test_every_command_of_the_table_exists_and_its_help_fits(
    rows: dict[str, tuple[str, str]],
) -> None:
    for name, (target, text) in rows.items():
        command = load_command(name, target)
        assert command.name == name
        assert command.help
        assert len(text) <= 80 - len("  completions  ")


def help_of(words: Sequence[str], width: int = 80) -> str:
    return (
        CliRunner()
        .invoke(app, [*words, "--help"], prog_name="conductor", terminal_width=width)
        .output
    )


def every_help(*words: str) -> Iterator[tuple[str, str]]:
    """The words and the help of each command, groups included, at 80 columns."""
    shown = help_of(words)
    yield " ".join(words), shown
    below = shown.partition("COMMAND")[2].partition("Examples:")[0] if len(words) < 2 else ""
    names = list[str]()
    for row in re.findall(r"^  ((?:[a-z]+, )*[a-z]+) ", below, re.MULTILINE):
        names += row.split(", ")
    for name in {*names} - {"conductor"}:
        yield from every_help(*words, name)


def test_every_help_is_whole_at_80_columns() -> None:
    helps = dict(every_help())
    assert {"ask", "trace rerun", "workers calibrate", "completions"} <= helps.keys()
    for words, text in helps.items():
        assert text.startswith("Usage: conductor"), words
        for line in text.splitlines():
            assert len(line) <= 80, (words, line)
            assert not re.search(r"(\.\.\.|\w-)$", line) or line.startswith("Usage"), (words, line)


def test_help_on_a_narrow_terminal_breaks_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Typer writes for at least 50 columns, and a terminal of 40 then breaks every line of it."""
    monkeypatch.setattr(typer_classes, "terminal_width", lambda _: 40)
    width = typer_classes.help_width()["terminal_width"]
    assert width == 38
    for words, _ in every_help():
        # Commands stay whole, to be copied
        shown = help_of(words.split(), width).partition("\nExamples:")[0]
        assert max(map(len, shown.splitlines())) <= 40, words
    monkeypatch.setattr(typer_classes, "terminal_width", lambda _: 80)
    assert typer_classes.help_width() == {}


def test_many_options_stand_under_headings(stage: Stage) -> None:
    shown = stage.inside("ask", "--help").out
    assert re.findall(r"^(\w+):$", shown, re.MULTILINE) == [
        "Arguments",
        *HEADINGS,
        "Options",
        "Examples",
    ]
    assert shown.index("Limits:") < shown.index("--max-cost") < shown.index("Output:")
    assert re.findall(r"^(\w+):$", stage.inside("cost", "--help").out, re.MULTILINE) == [
        "Options",
        "Examples",
    ]


def test_every_heading_names_options_that_exist() -> None:
    root = reference.read(app, "conductor")
    options = chain.from_iterable(command.options for command in root.walk())
    names = set(chain.from_iterable(option.names for option in options))
    assert set(chain.from_iterable(HEADINGS.values())) <= names


def test_a_look_at_a_setting_loads_no_library_of_models(stage: Stage) -> None:
    assert loaded(stage, "config", "show", "limits.steps") <= {"platformdirs", "tomllib", "asyncio"}


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["--version", "ask"], ["--help"], ["ask", "-h"], ["trace", "--help"]],
)
def test_help_and_version_go_to_stdout(stage: Stage, arguments: list[str]) -> None:
    done = stage.ok(*arguments)
    assert done.err == ""
    assert "conductor" in done.out


@pytest.mark.parametrize("arguments", [[], ["trace"], ["workers"], ["config"], ["model"]])
def test_without_a_command_the_help_is_on_stderr(stage: Stage, arguments: list[str]) -> None:
    stage.ends(
        2,
        *arguments,
        out="",
        told="Usage: conductor" if arguments else ("Usage: conductor", "Everyday:"),
    )


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("cost --days x", "--days takes a whole number", ""),
        ("ask --max-time x hi", "--max-time takes a number", ""),
        ("eval rehearsal --n 0", "--n must be at least 1", ""),
        ("cost --days 99999", "--days must be at most 3660", ""),
        ("ask --mode mni hi", "--mode takes mini, auto or ultra, not 'mni'", "did you mean mini?"),
        ("ask --mod mini hi", "there is no option --mod", "did you mean --mode?"),
        ("workers remove x", "there is no command 'remove'", "did you mean conductor workers rm?"),
        ("help", "there is no command 'help'", "did you mean conductor --help?"),
        (
            "config show workers.fast",
            "unknown setting 'workers.fast'",
            "conductor workers show NAME what one has",
        ),
        ("config show limits.step", "unknown setting 'limits.step'", "did you mean limits.steps?"),
        ("workers show alhpa", "no worker is named 'alhpa'", "did you mean alpha?"),
        (
            "keys sk-abcdef0123456789abcdef",
            "there is no command of that name",
            "known: set, list, rm, test",
        ),
    ],
)
def test_a_wrong_word_is_explained_in_our_words(
    stage: Stage, line: str, message: str, hint: str
) -> None:
    done = stage.fails(2, *line.split())
    first, *rest = done.err.splitlines()
    assert first == f"conductor: {message}"
    assert hint in "\n".join(rest)
    assert "Input should" not in done.err
    assert "sk-abc" not in done.err


@pytest.mark.parametrize(
    "option", [*" ".join(entry._OPTION_HINTS).split(), *entry._OPTIONS_THAT_BECAME_SETTINGS]
)
def test_an_option_that_is_gone_names_what_to_use_instead(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On each command that has what is to be used instead.

    It needs nothing which this line lacks.
    """
    needs, hint = entry._hint_for_option(option)
    command = next(
        words
        for words, about in TABLE.items()
        if words not in ("", "*")
        and (not needs or needs in about["options"])
        and option not in about["options"]
        and RENAMED_OPTIONS.get(option) not in about["options"]
        and not about["commands"]
    )
    assert entry.run_command_line([*command.split(), option, "x"]) == 2
    error_lines, hint_line = capsys.readouterr().err.splitlines()[:2]
    assert (error_lines, hint_line.strip()) == (f"conductor: there is no option {option}", hint)


@pytest.mark.parametrize("command", entry._DROPPED)
def test_a_command_that_is_gone_names_what_to_use_instead(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry.run_command_line([*command.split(), "x"]) == 2
    error_lines, hint_line = capsys.readouterr().err.splitlines()[:2]
    assert repr(command.rsplit(maxsplit=1)[-1]) in error_lines
    assert hint_line.strip() == f"it was dropped; use instead: {entry._DROPPED[command]}"


@pytest.mark.parametrize(
    "line", ["--debug --quiet ask hi", "--debug ask hi --quiet", "ask --debug -q hi"]
)
def test_debug_and_quiet_exclude_each_other(stage: Stage, line: str) -> None:
    stage.ends(2, *line.split(), told="exclude each other")


def test_options_of_every_command_may_follow_it(stage: Stage, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(stage.config.read_text().replace("[limits]", "[limits]\nsteps = 2"))
    for line in (
        "--config FILE config show limits.steps",
        "config --config FILE show limits.steps",
        "config show limits.steps --config FILE",
    ):
        stage.ok(*line.replace("FILE", str(other)).split(), out="2\n")
    stage.plan = "nonsense"
    assert "plan" in stage.inside("ask", "hi").err
    assert stage.inside("ask", "-q", "hi").err == ""


def test_debug_shows_what_happens_inside(stage: Stage) -> None:
    done = stage.run("--debug", "ask", "hi", "--workers", "nobody")
    assert (done.code, done.out) == (2, "")
    assert " ms " in done.err
    assert "Traceback" in done.err
    assert "Traceback" not in stage.inside("ask", "hi", "--workers", "nobody").err


def test_a_bug_is_reported_as_one(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("conductor_cli.cli.config.format_value", fail)
    done = stage.ends(1, "config", "show", "limits.steps", out="")
    assert done.err.startswith("conductor: this is a bug in conductor: ZeroDivisionError")
    assert "--debug" in done.err


THREAD = """
import atexit, sys, threading, time
class Watch:
    def __del__(self):
        print("torn down", flush=True)
watch = Watch()
from conductor_cli.__main__ import main
from conductor_cli.cli import entry
import conductor_cli.cli.entry as entry
def run(*_, **__):
    atexit.register(print, "registered")
    threading.Thread(target=time.sleep, args=(SECONDS,), daemon=True).start()
    time.sleep(0.05)
    sys.stdout.write("said ")
    return 7
entry.run_command_line = run
main()
"""
"""A command that leaves a thread which ends after so many seconds, and an object that notices the
end of Python.
"""


@pytest.mark.parametrize("seconds", ["60", "0"])
def test_python_is_not_taken_down_under_a_thread(stage: Stage, seconds: str) -> None:
    code = THREAD.replace("SECONDS", seconds)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=stage.environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "said registered\n", "")


@pytest.mark.parametrize(
    ("words", "code"),
    [(("--version",), 0), (("config", "show", "limits.steps"), 0), (("asks",), 2)],
)
def test_a_prompt_of_python_in_the_environment_changes_nothing(
    stage: Stage, words: tuple[str, ...], code: int
) -> None:
    """With PYTHONINSPECT a traceback followed, and standard input was run as a program."""
    plain, inspected = (
        subprocess.run(
            [sys.executable, "-m", "conductor_cli", *words],
            env=stage.environ(variables),
            input="print('this ran')\n",
            capture_output=True,
            text=True,
            check=False,
        )
        for variables in ({}, {"PYTHONINSPECT": "1"})
    )
    assert plain.returncode == inspected.returncode == code
    assert (inspected.stdout, inspected.stderr) == (plain.stdout, plain.stderr)


def test_ctrl_c_during_an_import_ends_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
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
