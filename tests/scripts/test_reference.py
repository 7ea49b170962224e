"""The generated documents, from a small application with every kind of parameter."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.main import get_command

from conductor_cli import __version__
from conductor_cli.cli.command_tree import app as orchestra
from conductor_cli.cli.examples import EXAMPLES
from conductor_cli.config.schema import SETTINGS
from conductor_cli.core.events import KINDS
from scripts.reference import commands, completion, man, markdown
from scripts.reference.__main__ import documents, stale, write
from scripts.reference.topics import topics
from tests.cli.stage import need, output_of

AWKWARD = 'It\'s "x": [a] $HOME `b` \\n -- 50 % | é; (c)'
app = typer.Typer()
trace = typer.Typer()
app.add_typer(trace, name="trace")


@app.callback()
def main(
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help=AWKWARD)] = None,
    color: Annotated[Literal["auto", "always"], typer.Option(help="When to colour.")] = "auto",
) -> None:
    """Ask one hard question. It's planned."""


@app.command()
def ask(
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "-f", "--file", metavar="FILE...", envvar="CONDUCTOR_LLM_FILE", help="A file."
        ),
    ] = None,
    hidden: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Answer a question.

    .B is no request here. 'Nor is this.
    """


@trace.command("list")
def list_(json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """List them."""


@app.command("secret", hidden=True)
def secret() -> None:
    """Not shown."""


SMALL = commands.read(app, "conductor")
PROGRAM = commands.read(orchestra, "conductor")
PAGES = {
    Path(name).name: text
    for name, text in documents(PROGRAM, __version__).items()
    if "man/" in name
}
PAGES["awkward.1"] = man.pages(SMALL, topics(), __version__)["conductor.1"]


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_man_page_is_well_formed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(PAGES[name])
    done = subprocess.run(
        [need("mandoc"), "-T", "lint", str(path)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(
    "name", ["conductor.1", "conductor-ask.1", "conductor-config.5", "conductor-events.7"]
)
def test_a_man_page_is_shown_by_man(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    path.write_text(PAGES[name])
    monkeypatch.setenv("MANWIDTH", "80")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    shown = re.sub(".\b", "", output_of(tmp_path, need("man"), "--warnings", "-l", str(path)))
    assert shown.startswith(name.partition(".")[0].upper())
    assert {"NAME", "DESCRIPTION", "SEE ALSO"} <= set(shown.splitlines())
    assert max(len(line) for line in shown.splitlines()) <= 80


@pytest.mark.parametrize("line", [line for _, line in chain.from_iterable(EXAMPLES.values())])
def test_every_example_is_a_command_line_that_can_be_read(line: str) -> None:
    for part in re.findall(r"conductor[^|>)]*", line):
        command: Any = get_command(orchestra)
        context = command.make_context("conductor", [])
        words = shlex.split(part)[1:]
        # A group with options has an action of its own.
        while words and not words[0].startswith("-") and hasattr(command, "commands"):
            command = command.get_command(context, words.pop(0))
            assert command is not None, part
        command.make_context("conductor", words, parent=context)  # raises what is wrong with them


def test_every_page_has_examples_that_fit_and_a_version_has_a_date() -> None:
    for name, text in PAGES.items():
        part = text.partition(".SH EXAMPLES\n")[2].partition(".SH ")[0]
        assert name == "awkward.1" or 2 <= part.count(".nf\n") <= 5, name
    examples = chain.from_iterable(EXAMPLES.values())
    assert max(len(line) for _, line in examples) <= 80 - 11
    with pytest.raises(KeyError):
        man.pages(SMALL, (), "99.0")


def test_text_is_shown_as_it_is_written_and_what_is_hidden_is_not(tmp_path: Path) -> None:
    path = tmp_path / "conductor.1"
    path.write_text(PAGES["awkward.1"])
    shown = output_of(tmp_path, need("mandoc"), "-T", "utf8", "-O", "width=200", str(path))
    assert AWKWARD in re.sub(".\b", "", shown)
    page = markdown.page(SMALL)
    titles = re.findall(r"^#+ `(.*)`$", page, re.MULTILINE)
    assert titles == ["conductor", "conductor ask", "conductor trace", "conductor trace list"]
    assert (
        "| `-f, --file FILE...` | A file. Environment: `CONDUCTOR_LLM_FILE`. May be repeated. |"
        in page
    )
    assert "| `--color auto\\|always` | When to colour. Default: `auto`. |" in page
    assert "hidden" not in page


def test_topics_hold_every_setting_and_event() -> None:
    config, events = topics()
    for item in SETTINGS:
        assert f"| `{item.name}` |" in markdown.topic(config)
        assert item.variable in PAGES["conductor-config.5"]
    for name, kind in KINDS.items():
        part = markdown.topic(events).partition(f"### `{name}`\n")[2].partition("###")[0]
        assert re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE) == [
            f.name for f in fields(kind) if f.name != "at"
        ]
        assert f".SS {name}" in PAGES["conductor-events.7"]
    assert "`Usage`" in markdown.topic(events)
    assert "conductor_cli" not in markdown.topic(events)


def test_every_place_with_known_words_exists() -> None:
    paths = set()
    for command in PROGRAM.walk():
        for parameter in (*command.options, *command.arguments):
            name = max(parameter.names, key=len, default=parameter.metavar)
            paths.add(" ".join((*command.words, name)))
    alone = {path.rpartition(" ")[2] for path in paths}
    assert {*completion.WORDS} <= paths
    assert {*completion.NAMES} <= paths | alone


def test_documents_are_stale_when_they_differ_are_missing_or_left_over(tmp_path: Path) -> None:
    wanted = documents(SMALL, __version__)
    assert set(write(wanted, tmp_path)) == set(wanted)
    assert stale(wanted, tmp_path) == []
    tmp_path.joinpath("docs/cli.md").write_text("old")
    tmp_path.joinpath("man/man1/conductor.1").unlink()
    tmp_path.joinpath("man/man1/conductor-gone.1").write_text("old")
    tmp_path.joinpath("man/man7/conductor-gone.7").write_text("old")
    gone = {"man/man1/conductor-gone.1", "man/man7/conductor-gone.7"}
    assert set(stale(wanted, tmp_path)) == {"docs/cli.md", "man/man1/conductor.1"} | gone
    write(wanted, tmp_path)
    assert stale(wanted, tmp_path) == []
