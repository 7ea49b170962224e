"""What is offered at a tab: the words, and that each shell shows them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from conductor_cli.cli import completion_offers
from conductor_cli.cli.completion_offers import COMPLETION_DIRECTORIES, offers
from conductor_cli.config.settings import app_paths
from tests.cli.stage import SOURCE, need, output_of

TABLE = json.loads(Path(COMPLETION_DIRECTORIES[1], "words.json").read_text())
FILES = [":files"]
LINES = [
    ("tr|", ["trace", "try", "train"]),
    ("ask --mode |", ["mini", "auto", "ultra"]),
    ("ask --mode=au|", ["--mode=auto"]),
    ("ask --mode = au|", ["auto"]),  # as bash has it
    ("--config trace mc|", ["mcp"]),
    ("--quiet trace li|", ["list"]),
    ("trace list --qu|", ["--quiet"]),
    ("ask --max-t|", ["--max-tokens", "--max-time"]),
    ("ask --file note|", FILES),
    ("ask --file=note|", FILES),
    ("ask notes|", []),
    ("ask --schema --max-time 5 --mode m|", ["mini"]),
    ("serve --port 1 --pool |", ["small"]),
    ("completions z|", ["zsh"]),
    ("model pull qwen2.5-7b-q8|", ["qwen2.5-7b-q8_0"]),
    ("model use he|", ["here", ":files"]),
    ("model rm |", ["broken", "here"]),
    ("ask hello --planner al|", ["alpha", ":files"]),
    ("eval reh|", ["rehearsal", ":files"]),
    ("eval --workers mine,b|", ["mine,beta"]),
    (
        "eval --workers=mine,|",
        [
            "--workers=mine,tired",
            "--workers=mine,alpha",
            "--workers=mine,beta",
            "--workers=mine,off",
        ],
    ),
    ("workers rm |", ["mine", "tired", "alpha", "beta", "off"]),
    ("tools test |", ["git"]),
    ("keys rm openai open|", []),
    ("ask -t re|", ["review", "reviewer"]),
    ("template show mi|", ["mine", "migration"]),
    ("chat --name |", ["pears", "plums"]),
    ("launch c|", ["codex", "claude"]),
    ("trace show l|", ["last"]),
    ("train --out |", [":directories"]),
]

OWN = """
[workers.mine]
kind = "openai"
[workers.tired]
enabled = false
[pools.small]
workers = ["mine"]
[tools.git]
command = ["git"]
"""


@pytest.fixture
def filled(home: Path) -> None:
    """Workers, pools, tools, models and a run in conductor's own files.

    Workers are in the user's file, too.
    """
    config = home / "config/conductor-llm"
    config.mkdir(parents=True)
    config.joinpath("settings.toml").write_text(OWN)
    config.joinpath("config.toml").write_text(
        "[workers.alpha]\n[workers.beta]\n[workers.off]\nenabled = false\n"
    )
    for name in ("here", "broken"):
        manifest = home / f"data/conductor-llm/models/{name}/manifest.toml"
        manifest.parent.mkdir(parents=True)
        manifest.write_text("no = manifest")
    traces = home / "state/conductor-llm/traces"
    traces.mkdir(parents=True)
    traces.joinpath("20261120-101010-abcdef.jsonl").touch()
    names = {"plums": "1", f"acp-{'0' * 16}": "2", "pears": "3"}
    home.joinpath("state/conductor-llm/conversations.json").write_text(json.dumps(names))
    config.joinpath("templates").mkdir()
    config.joinpath("templates/mine.toml").touch()


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(("line", "offered"), LINES, ids=[line for line, _ in LINES])
def test_what_may_stand_next_is_offered(line: str, offered: list[str]) -> None:
    *before, current = line.removesuffix("|").split(" ")
    assert [word for word, _ in offers(current, before, TABLE, os.environ)] == offered


@pytest.mark.parametrize(
    "environ", [{}, {"CONDUCTOR_LLM_CONFIG_DIR": "/a", "CONDUCTOR_LLM_STATE_DIR": "/b"}]
)
def test_files_are_where_the_settings_say(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("CONFIG", "DATA", "STATE"):
        monkeypatch.delenv(f"XDG_{kind}_HOME")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    for kind in ("config", "data", "state"):
        assert completion_offers._directory(kind, environ) == str(getattr(app_paths(environ), kind))


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ('[workers]\n"$(touch pwned)" = {}\n"a b" = {}\ngood = {}\n"`x`" = {}\n', ["good"]),
        ("[workers", []),
        ("workers = 3", []),
        ("[[workers]]", []),
        ("\xff", []),
        ("a." * 5000 + "b = 1", []),
    ],
)
def test_a_file_offers_only_plain_names(tmp_path: Path, text: str, offered: list[str]) -> None:
    tmp_path.joinpath("one.toml").write_text(text, encoding="latin-1")
    environ = {
        "CONDUCTOR_LLM_CONFIG": str(tmp_path / "one.toml"),
        "CONDUCTOR_LLM_CONFIG_DIR": str(tmp_path),
    }
    assert [word for word, _ in offers("", ["workers", "show"], TABLE, environ)] == offered


def test_nothing_heavy_is_loaded(filled: None) -> None:
    """A tab costs little more than the start of Python."""
    code = (
        "import json, sys; from conductor_cli.__main__ import main; sys.argv = ['conductor', "
        "*sys.argv[1:]]; main(); "
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "complete", ":m", "workers", "test"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "mine\t\n"
    heavy = {"typer", "rich", "dataclasses", "pathlib", "platformdirs", "conductor_cli.config"}
    assert heavy & {*json.loads(done.stderr)} <= {"pathlib"}  # an editable install may need it


SHELL_LINES = [
    ("conductor trace li", {"list"}),
    ("conductor ask --mode=au", {"--mode=auto", "auto"}),
    ("conductor eval --workers=mine,b", {"--workers=mine,beta", "mine,beta"}),
    ("conductor model use --config notes", {"notes one.txt", "notes two.txt"}),
    ("conductor ask hello -f notes\\ t", {"notes two.txt"}),
    ("conductor ask --file=notes\\ t", {"notes two.txt", "--file=notes two.txt"}),
    ("conductor ask notes", set()),
]

ZSH_SETUP = r"""
unsetopt zle_bracketed_paste prompt_cr prompt_sp
PS1=''
fpath=($PWD $fpath)
autoload -Uz compinit
compinit -D
compadd() {
  local -a hits
  if [[ ${@[1,(i)(-|--)]} != *-(O|A|D)\ * ]]; then
    builtin compadd -O hits "$@"
    print -rl -- $hits >> offered
  fi
  builtin compadd "$@"
}
offer() {
  : > offered
  _main_complete
  compstate[insert]='' compstate[list]=''
  print "offered""::end" > $TTY
}
zle -C offer complete-word offer
bindkey '^I' offer
print "set ""up"
"""
"""Makes a tab write what would be offered into a file, as the completion system hands it to the
line editor.
"""


@pytest.fixture
def directory(filled: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with files and the completion scripts; the program is found."""
    for name in ("notes one.txt", "notes two.txt", "other.txt"):
        tmp_path.joinpath(name).touch()
    for name, target in (("bash", "c.bash"), ("zsh", "_conductor"), ("fish", "c.fish")):
        shutil.copy(Path(COMPLETION_DIRECTORIES[1], f"conductor.{name}"), tmp_path / target)
    program = tmp_path / "programs/conductor"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH={SOURCE} exec {sys.executable} -m conductor_cli "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    return tmp_path


def test_bash_offers_what_fits_each_line(directory: Path) -> None:
    calls = []
    for line, _ in SHELL_LINES:
        words = shlex.split(line.replace("=", " = "))
        given = " ".join(shlex.quote(word) for word in words)
        calls.append(f"COMP_WORDS=({given}); COMP_CWORD={len(words) - 1}; _conductor")
    show = 'printf "%s\\n" "${COMPREPLY[@]}" "--"'
    script = "source c.bash; " + "".join(f"{call} 2>/dev/null; {show};" for call in calls)
    *parts, _ = output_of(directory, need("bash"), "--norc", "-c", script).split("--\n")
    for (line, offered), shown in zip(SHELL_LINES, parts, strict=True):
        assert {*shown.splitlines()} - {""} <= offered, line
        assert bool(shown.strip()) == bool(offered), line


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("-f a:b", "<-f><a:b.txt>"),
        ("--file=a:b", "<--file=a:b.txt>"),
        (r"-f a\:b", "<-f><a:b.txt>"),
        ('-f "a:b', "<-f><a:b.txt>"),
        ("-f d:", "<-f><d:x/>"),
        ("-f git:HEAD --mode m", "<-f><git:HEAD><--mode><mini>"),
    ],
)
def test_a_tab_in_bash_completes_a_word_with_a_colon(
    directory: Path, typed: str, completed: str
) -> None:
    """Bash takes a word with a colon for several words."""
    directory.joinpath("a:b.txt").touch()
    directory.joinpath("d:x").mkdir()
    options = ["--norc", "--noprofile"]
    shell = pexpect.spawn(need("bash"), options, cwd=str(directory), encoding="utf-8", timeout=20)
    shell.sendline("PS1=''; bind 'set enable-bracketed-paste off'; source c.bash; echo 'set' up")
    shell.expect_exact("set up")
    shell.sendline("shown() { printf '<%s>' \"$@\"; echo ' end'; }")
    shell.send(f"conductor ask {typed}\t\x01shown \r")
    shell.expect(r"<conductor><ask>(.*) end")
    assert shell.match[1] == completed
    shell.close(force=True)


def test_fish_offers_what_fits_each_line(directory: Path) -> None:
    script = "source c.fish;" + "".join(
        f"complete -C {shlex.quote(line)}; echo @@;" for line, _ in SHELL_LINES
    )
    *parts, _ = output_of(directory, need("fish"), "--no-config", "-c", script).split("@@\n")
    for (line, offered), shown in zip(SHELL_LINES, parts, strict=True):
        names = {text.split("\t")[0].replace("\\ ", " ") for text in shown.splitlines()}
        assert names <= offered, line
        assert bool(names) == bool(offered), line


def test_zsh_offers_what_fits_each_line(directory: Path) -> None:
    directory.joinpath("setup.zsh").write_text(ZSH_SETUP)
    shell = pexpect.spawn(
        need("zsh"), ["-f", "-i"], cwd=str(directory), encoding="utf-8", timeout=60
    )
    shell.sendline("source setup.zsh")
    shell.expect_exact("set up")
    for line, offered in SHELL_LINES:
        shell.send(f"\x15{line}\t")
        shell.expect_exact("offered:")
        shell.expect_exact(":end")
        names = {
            text.replace("\\ ", " ")
            for text in directory.joinpath("offered").read_text().splitlines()
        } - {""}
        assert names <= offered, line
        assert bool(names) == bool(offered), line
    shell.close(force=True)


def test_powershell_gets_a_script_that_is_whole() -> None:
    script = Path(COMPLETION_DIRECTORIES[1], "conductor.ps1").read_text()
    assert script.isascii()
    assert all(script.count(left) == script.count(right) for left, right in ("()", "[]", "{}"))
