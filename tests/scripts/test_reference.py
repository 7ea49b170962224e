"""The generated documents, from a small application with every kind of parameter."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.main import get_command

from conductor_cli import __version__
from conductor_cli.cli.command_tree import app as conductor
from conductor_cli.cli.examples import EXAMPLES
from conductor_cli.config.schema import SETTINGS
from conductor_cli.core.events import KINDS
from scripts.reference import commands, completion, man, markdown
from scripts.reference.__main__ import documents, stale, write
from scripts.reference.topics import topics

app = typer.Typer()
trace = typer.Typer()
model = typer.Typer()
app.add_typer(trace, name="trace")
app.add_typer(model, name="model")
keys = typer.Typer()
workers = typer.Typer()
app.add_typer(keys, name="keys")
app.add_typer(workers, name="workers")

AWKWARD = 'It\'s "x": [a] $HOME `b` \\n -- 50 % | é; (c)'


@app.callback()
def main(
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help=AWKWARD)] = None,
    color: Annotated[Literal["auto", "always"], typer.Option(help="When to colour.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say less.")] = False,
) -> None:
    """Ask one hard question. It's planned."""


@app.command()
def ask(
    question: Annotated[list[str] | None, typer.Argument(metavar="QUESTION", help="The words.")] = None,
    file: Annotated[
        list[Path] | None, typer.Option("-f", "--file", metavar="FILE...", envvar="CONDUCTOR_LLM_FILE", help="A file.")
    ] = None,
    go_on: Annotated[str | None, typer.Option("-c", "--continue", metavar="[ID]", help="Go on.")] = None,
    schema: Annotated[str | None, typer.Option(metavar="FILE", help="Text that is a path.")] = None,
    conductor: Annotated[str | None, typer.Option(metavar="NAME|PATH|URL", help="Who plans.")] = None,
    max_time: Annotated[float | None, typer.Option(help="Seconds.")] = None,
    hidden: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Answer a question.

    .B is no request here. 'Nor is this.
    """


@app.command()
def completions(shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="Which shell.")]) -> None:
    """Print a completion script: for a shell."""


@trace.callback()
def traces() -> None:
    """Look at earlier runs."""


@trace.command("list")
def list_(json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """List them."""


@trace.command()
def show(path: Annotated[Path, typer.Argument(help="The file.")]) -> None:
    """Show one."""


@model.command()
def pull(name: Annotated[str | None, typer.Argument(metavar="NAME", help="Which.")] = None) -> None:
    """Get a model."""


@model.command()
def use(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", help="Which.")],
    called: Annotated[str, typer.Option("--name", metavar="NAME", help="What to call it.")] = "",
) -> None:
    """Use one."""


@app.command("eval")
def evaluate(
    cases: Annotated[
        str | None, typer.Argument(metavar="rehearsal|basics|SUITE|CASES.jsonl", help="Which cases.")
    ] = None,
    systems: Annotated[str, typer.Option("--systems", metavar="all|A,B", help="Which ways.")] = "all",
    shown: Annotated[str | None, typer.Option("--show", metavar="ID|last", help="Print a report.")] = None,
    names: Annotated[str | None, typer.Option("--workers", metavar="A,B", help="Only these.")] = None,
) -> None:
    """Compare."""


@keys.command("rm")
def forget(provider: Annotated[str, typer.Argument(metavar="PROVIDER", help="Whose.")]) -> None:
    """Remove a key."""


@keys.callback()
def all_keys() -> None:
    """Keys."""


@workers.command("rm")
def dismiss(name: Annotated[str, typer.Argument(help="Which.")]) -> None:
    """Remove a worker."""


@workers.command()
def calibrate(cases: Annotated[str | None, typer.Argument(metavar="CASES.jsonl", help="Cases.")] = None) -> None:
    """Measure."""


@app.command("secret", hidden=True)
def secret() -> None:
    """Not shown."""


ROOT = commands.read(app, "conductor")
PAGES = man.pages(ROOT, topics(), __version__)


def need(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


def run(place: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_man_page_is_well_formed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(PAGES[name])
    done = subprocess.run([need("mandoc"), "-T", "lint", str(path)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("name", ["conductor.1", "conductor-ask.1", "conductor-config.5", "conductor-events.7"])
def test_a_man_page_is_shown_by_man(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / name
    path.write_text(PAGES[name])
    monkeypatch.setenv("MANWIDTH", "80")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    shown = re.sub(".\b", "", run(tmp_path, need("man"), "--warnings", "-l", str(path)))
    assert shown.startswith(name.partition(".")[0].upper())
    assert {"NAME", "DESCRIPTION", "SEE ALSO"} <= set(shown.splitlines())
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_every_page_has_examples_that_fit() -> None:
    pages = documents(commands.read(conductor, "conductor"), __version__)
    for name in (name for name in pages if name.startswith("man/")):
        part = pages[name].partition(".SH EXAMPLES\n")[2].partition(".SH ")[0]
        assert 2 <= part.count(".nf\n") <= 5, name
    assert max(len(line) for found in EXAMPLES.values() for _, line in found) <= 80 - 11


@pytest.mark.parametrize("line", [line for found in EXAMPLES.values() for _, line in found])
def test_every_example_is_a_command_line_that_can_be_read(line: str) -> None:
    for part in re.findall(r"conductor[^|>)]*", line):
        command: Any = get_command(conductor)
        context = command.make_context("conductor", [])
        words = shlex.split(part)[1:]
        # A group with options has an action of its own.
        while words and not words[0].startswith("-") and hasattr(command, "commands"):
            command = command.get_command(context, words.pop(0))
            assert command is not None, part
        command.make_context("conductor", words, parent=context)  # raises what is wrong with them


def test_a_version_without_a_date_is_refused() -> None:
    with pytest.raises(KeyError):
        man.pages(ROOT, (), "99.0")


def test_topics_hold_every_setting_and_event(tmp_path: Path) -> None:
    config, events = topics()
    for item in SETTINGS:
        assert f"| `{item.name}` |" in markdown.topic(config)
        assert item.variable in PAGES["conductor-config.5"]
    for name, kind in KINDS.items():
        part = markdown.topic(events).partition(f"### `{name}`\n")[2].partition("###")[0]
        assert re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE) == [f.name for f in fields(kind) if f.name != "at"]
        assert f".SS {name}" in PAGES["conductor-events.7"]
    assert "`Usage`" in markdown.topic(events)
    assert "conductor_cli" not in markdown.topic(events)


def test_a_man_page_shows_text_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "conductor.1"
    path.write_text(PAGES["conductor.1"])
    shown = run(tmp_path, need("mandoc"), "-T", "utf8", "-O", "width=200", str(path))
    assert AWKWARD in re.sub(".\b", "", shown)


def test_a_group_has_one_page_with_its_commands() -> None:
    assert sorted(PAGES) == [
        "conductor-ask.1", "conductor-completions.1", "conductor-config.5", "conductor-eval.1", "conductor-events.7",
        "conductor-keys.1", "conductor-model.1", "conductor-trace.1", "conductor-workers.1", "conductor.1",
    ]  # fmt: skip
    assert '.SH "TRACE LIST"' in PAGES["conductor-trace.1"]


def test_the_markdown_page_names_everything_once() -> None:
    shown = markdown.page(ROOT)
    assert re.findall(r"^#+ `(.*)`$", shown, re.MULTILINE) == [
        "conductor", "conductor ask", "conductor completions", "conductor eval", "conductor trace",
        "conductor trace list", "conductor trace show", "conductor model", "conductor model pull",
        "conductor model use", "conductor keys", "conductor keys rm", "conductor workers", "conductor workers rm",
        "conductor workers calibrate",
    ]  # fmt: skip
    assert "| `-f, --file FILE...` | A file. Environment: `CONDUCTOR_LLM_FILE`. May be repeated. |" in shown
    assert "| `--color auto\\|always` | When to colour. Default: `auto`. |" in shown
    assert "| 130 | The command was interrupted (Ctrl-C). |" in shown


def test_hidden_commands_and_options_are_in_no_document() -> None:
    said = {name: text for name, text in documents(ROOT, __version__).items() if "events" not in name}
    assert [name for name, text in said.items() if "secret" in text or "hidden" in text] == []


def test_every_place_with_known_words_exists() -> None:
    program = commands.read(conductor, "conductor")
    places = {
        " ".join((*command.words, max(each.names, key=len, default=each.metavar)))
        for command in program.walk()
        for each in (*command.options, *command.arguments)
    }
    alone = {place.rpartition(" ")[2] for place in places}
    assert {*completion.WORDS} <= places
    assert {*completion.NAMES} <= places | alone


def test_options_of_every_command_are_listed_once() -> None:
    program = commands.read(conductor, "conductor")
    for command in program.walk():
        assert [option.names[-1] for option in command.everywhere] == (
            ["--config", "--color", "--debug", "--quiet"] if command.words else []
        )
    assert markdown.page(program).count("| `-q, --quiet` |") == 1


def test_documents_are_stale_when_they_differ_are_missing_or_left_over(tmp_path: Path) -> None:
    wanted = documents(ROOT, __version__)
    assert set(write(wanted, tmp_path)) == set(wanted)
    assert stale(wanted, tmp_path) == []
    tmp_path.joinpath("docs/cli.md").write_text("old")
    tmp_path.joinpath("man/conductor.1").unlink()
    tmp_path.joinpath("man/conductor-gone.1").write_text("old")
    tmp_path.joinpath("man/conductor-gone.7").write_text("old")
    gone = {"man/conductor-gone.1", "man/conductor-gone.7"}
    assert set(stale(wanted, tmp_path)) == {"docs/cli.md", "man/conductor.1"} | gone
    write(wanted, tmp_path)
    assert stale(wanted, tmp_path) == []
