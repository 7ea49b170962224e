"""`conductor launch`.

A client is pointed at a server of its own, and nothing of the user's is written.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from conductor_cli.core.pool import Worker
from conductor_cli.server.launch import CLIENTS, client_context
from tests.cli.stage import Stage, finished, refuses
from tests.server.plain_api import until

STUB = """#!{python}
import json, os, sys, urllib.request
url, key = {find}
def get(headers):
    request = urllib.request.Request(url + "/v1/models", headers=headers)
    try:
        return json.load(urllib.request.urlopen(request))["data"][0]["id"]
    except urllib.error.HTTPError as error:
        return error.code
with open({place!r}, "w") as file:
    answers = [get({{"authorization": "Bearer " + key}}), get({{}})]
    settings = {{}}
    for option in {{"--settings", "--model-metadata-file"}} & set(sys.argv):
        path = sys.argv[sys.argv.index(option) + 1]
        settings = json.load(open(path)) | {{"mode": os.stat(path).st_mode & 0o777}}
    json.dump([sys.argv[1:], dict(os.environ), answers, url, key, settings], file)
sys.exit(7)
"""

FIND = {
    "codex": """(lambda told: (told.split('base_url="')[1].split('/v1"')[0],
        os.environ[told.split('env_key="')[1].split('"')[0]]))(sys.argv[6])""",
    "claude": '(os.environ["ANTHROPIC_BASE_URL"], os.environ["ANTHROPIC_AUTH_TOKEN"])',
    "opencode": """(lambda told: (told["baseURL"][:-3], told["apiKey"]))(
        json.loads(os.environ["OPENCODE_CONFIG_CONTENT"])["provider"]["conductor"]["options"])""",
    "aider": (
        '(sys.argv[sys.argv.index("--openai-api-base") + 1][:-3], '
        'os.environ["AIDER_OPENAI_API_KEY"])'
    ),
}
"""Where each client finds the server's address and its key."""


def install(directory: Path, name: str, text: str) -> dict[str, str]:
    directory.mkdir(exist_ok=True)
    program = directory / name
    program.write_text(text)
    program.chmod(0o755)
    return {"PATH": f"{directory}:/usr/bin:/bin"}


def told_context(
    name: str, arguments: list[str], variables: dict[str, str], settings: dict[str, Any]
) -> int:
    """How many tokens of context a client was told."""
    if name == "codex":
        assert "model_auto_compact_token_limit=52428" in arguments
        [value] = [word for word in arguments if word.startswith("model_context_window=")]
        return int(value.partition("=")[2])
    if name == "claude":
        return int(variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"])
    if name == "aider":
        return int(settings["openai/conductor"]["max_input_tokens"])
    models = json.loads(variables["OPENCODE_CONFIG_CONTENT"])["provider"]["conductor"]["models"]
    return int(models["conductor"]["limit"]["context"])


@pytest.mark.parametrize(
    ("contexts", "smallest"),
    [
        ([200_000, 65_536, None], 65_536),
        ([8192, 131_072], 131_072),  # the small one could not hold the client's own prompts
        ([4096, 8192], 8192),
        ([None, None], 128_000),
    ],
)
def test_a_client_is_told_the_smallest_context_that_holds_its_work(
    contexts: list[int | None], smallest: int
) -> None:
    workers = []
    for context in contexts:
        options = {} if context is None else {"context": context}
        workers.append(Worker(name="w", kind="openai", model="m", options=options))
    assert client_context(workers) == smallest


@pytest.mark.parametrize(
    ("context", "options", "told", "notice"),
    [
        ("context = 8192", (), 8192, "no worker is known to hold 32,000 tokens"),
        ("context = 65536", (), 65_536, ""),
        ("context = 8192", ("--demo",), 128_000, ""),  # it reads the question alone
    ],
)
def test_a_context_that_holds_no_work_of_a_client_is_told(
    stage: Stage, tmp_path: Path, context: str, options: tuple[str, ...], told: int, notice: str
) -> None:
    """Claude Code says of every question that it is too long, and sends nothing."""
    path = tmp_path / "told"
    text = f'#!/bin/sh\necho "$CLAUDE_CODE_MAX_CONTEXT_TOKENS" > {path}\n'
    environ = install(tmp_path / "bin", "claude", text)
    stage.configure(workers={"alpha": context})
    done = stage.run("launch", "claude", *options, env=environ)
    assert (done.code, path.read_text()) == (0, f"{told}\n"), done.err
    assert notice in done.err
    assert ("too long" in done.err) == bool(notice)


@pytest.mark.parametrize("name", list(CLIENTS))
def test_a_client_is_pointed_at_the_server(stage: Stage, tmp_path: Path, name: str) -> None:
    path = tmp_path / "seen.json"
    text = STUB.format(python=sys.executable, find=FIND[name], place=str(path))
    environ = install(tmp_path / "bin", name, text) | {
        "ANTHROPIC_API_KEY": "sk-ant-of-the-user",
        "CLAUDE_CODE_USE_BEDROCK": "1",
        "CLAUDE_CODE_USE_MANTLE": "1",
        "CLAUDE_CODE_USE_ANTHROPIC_AWS": "1",
        "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD": "1",
        "ANTHROPIC_UNIX_SOCKET": "/tmp/theirs.sock",
        "OPENAI_BASE_URL": "http://127.0.0.1:1/v1",
        "OPENAI_API_BASE": "http://127.0.0.1:1/v1",
    }
    stage.configure(workers={"alpha": "context = 65536"})
    done = stage.run("launch", name, "--", "run", "--fast", "do it", env=environ)
    assert (done.code, done.out) == (7, ""), done.err
    arguments, variables, answers, url, key, settings = json.loads(path.read_text())
    assert answers == ["conductor", 401]
    assert arguments[-3:] == ["run", "--fast", "do it"]
    assert key not in " ".join(arguments)
    if name == "claude":
        assert "ANTHROPIC_API_KEY" not in variables
        for model in ("FABLE", "OPUS", "SONNET"):
            assert variables[f"ANTHROPIC_DEFAULT_{model}_MODEL"] == "conductor"
        assert variables["CLAUDE_CODE_AUTO_MODE_MODEL"] == "conductor-mini"
        file = Path(arguments[arguments.index("--settings") + 1])
        assert (file.exists(), settings["mode"]) == (False, 0o600)
        # Variables in a file of settings win over the environment, so none of them may be missing
        # there.
        assert settings["env"] == {variable: variables[variable] for variable in settings["env"]}
        assert settings["env"]["ANTHROPIC_BASE_URL"] == url
        assert settings["env"]["ANTHROPIC_UNIX_SOCKET"] == ""
        for provider in ("BEDROCK", "MANTLE", "ANTHROPIC_AWS", "ANTHROPIC_GOOGLE_CLOUD"):
            assert settings["env"][f"CLAUDE_CODE_USE_{provider}"] == "0"
    elif name == "aider":
        assert [variables[variable] for variable in ("OPENAI_BASE_URL", "OPENAI_API_BASE")] == [
            f"{url}/v1"
        ] * 2
        assert f"OPENAI_BASE_URL={url}/v1" in arguments
    elif name == "opencode":
        assert json.loads(variables["OPENCODE_CONFIG_CONTENT"])["enabled_providers"] == [
            "conductor"
        ]
    assert told_context(name, arguments, variables, settings) == 65_536
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")
    assert not list(stage.config.parent.glob("*keys*"))


def test_a_client_that_is_missing_is_named_with_its_command(stage: Stage, tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path)}
    message = "conductor: codex is not installed, or not in PATH\n  npm install -g @openai/codex\n"
    stage.ends(3, "launch", "codex", env=environ, told=message)
    stage.ends(2, "launch", "emacs", env=environ, told="there are: codex, opencode, claude, aider")


@pytest.mark.parametrize(
    ("setup", "code", "message"),
    [
        ("nothing", 5, "no planner is chosen\n  to find or download one: conductor setup"),
        ("workers", 3, "no worker answers: "),
        ("planner", 3, "the planner does not answer: "),
    ],
)
def test_a_client_is_not_started_over_what_cannot_answer(
    stage: Stage, tmp_path: Path, setup: str, code: int, message: str
) -> None:
    """Nobody can plan, or no worker answers.

    The reason is said, and the client, which would try on, is not started.
    """
    refused = refuses(401)
    stage.models = (
        {"alpha": refused, "beta": refused} if setup == "workers" else {"planner": refused}
    )
    stage.configure()
    if setup == "nothing":
        stage.config.unlink()
    directory = tmp_path / "started"
    environ = install(tmp_path / "bin", "codex", f"#!/bin/sh\ntouch {directory}\n")
    done = stage.ends(code, "launch", "codex", env=environ, told=message)
    assert not directory.exists()
    assert setup == "nothing" or "\n  conductor keys set openai-compatible" in done.err
    if setup == "nothing":
        assert stage.run("launch", "codex", "--demo", env=environ).code == 0
        assert directory.exists()


@pytest.mark.parametrize("limit", ["cost", "cost_day"])
def test_a_limit_on_money_that_cannot_be_counted_is_told_at_the_start(
    stage: Stage, tmp_path: Path, limit: str
) -> None:
    """Each request was refused, and only whoever sent one read why."""
    prices = dict.fromkeys(("alpha", "beta"), "price = { input = 1, output = 1 }\n")
    stage.configure(f"[limits]\nattempts = 1\n{limit} = 1", workers=prices)
    problem = "cannot be enforced: the planner openai-compatible/planner has no price"
    with stage.start("serve", "--port", "0") as server:
        assert server.stdout is not None
        server.stdout.readline()
        server.terminate()
        told = finished(server).err
    assert "requests will be refused: " in told
    assert problem in told
    directory = tmp_path / "started"
    environ = install(tmp_path / "bin", "codex", f"#!/bin/sh\ntouch {directory}\n")
    stage.fails(3, "launch", "codex", env=environ, told=problem)
    assert not directory.exists()
    assert not stage.posts


def test_signals_are_for_the_client(stage: Stage, tmp_path: Path) -> None:
    directory = tmp_path / "ready"
    text = f"""#!{sys.executable}
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
pathlib.Path({str(directory)!r}).touch()
time.sleep(60)
"""
    process: Any = stage.start("launch", "aider", env=install(tmp_path / "bin", "aider", text))
    until(directory.exists)
    process.send_signal(signal.SIGINT)  # only to conductor: a terminal would send it to both
    time.sleep(0.2)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert finished(process).code == 9
