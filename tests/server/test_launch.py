"""`conductor launch`: a client is pointed at a server of its own, and nothing of the user's is written."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from conductor_cli.server.launch import CLIENTS
from tests.cli.stage import Stage, finished

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
    json.dump([sys.argv[1:], dict(os.environ), answers, url, key], file)
sys.exit(7)
"""

FIND = {
    "codex": """(lambda told: (told.split('base_url="')[1].split('/v1"')[0],
        os.environ[told.split('env_key="')[1].split('"')[0]]))(sys.argv[6])""",
    "claude": '(os.environ["ANTHROPIC_BASE_URL"], os.environ["ANTHROPIC_AUTH_TOKEN"])',
    "opencode": """(lambda told: (told["baseURL"][:-3], told["apiKey"]))(
        json.loads(os.environ["OPENCODE_CONFIG_CONTENT"])["provider"]["conductor"]["options"])""",
    "aider": '(sys.argv[sys.argv.index("--openai-api-base") + 1][:-3], os.environ["AIDER_OPENAI_API_KEY"])',
}
"""Where each client finds the server's address and its key."""


def install(directory: Path, name: str, text: str) -> dict[str, str]:
    directory.mkdir(exist_ok=True)
    program = directory / name
    program.write_text(text)
    program.chmod(0o755)
    return {"PATH": f"{directory}:/usr/bin:/bin"}


@pytest.mark.parametrize("name", list(CLIENTS))
def test_a_client_is_pointed_at_the_server(stage: Stage, tmp_path: Path, name: str) -> None:
    stage.configure()
    place = tmp_path / "seen.json"
    text = STUB.format(python=sys.executable, find=FIND[name], place=str(place))
    environ = install(tmp_path / "bin", name, text) | {"ANTHROPIC_API_KEY": "sk-ant-of-the-user"}
    done = stage.run("launch", name, "--", "run", "--fast", "do it", env=environ)
    assert (done.code, done.out) == (7, ""), done.err
    arguments, variables, answers, url, key = json.loads(place.read_text())
    assert answers == ["conductor", 401]
    assert arguments[-3:] == ["run", "--fast", "do it"]
    assert key not in " ".join(arguments)
    if name == "claude":
        assert "ANTHROPIC_API_KEY" not in variables
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")
    assert not list(stage.config.parent.glob("*keys*"))


def test_a_client_that_is_missing_is_named_with_its_command(stage: Stage, tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path)}
    done = stage.run("launch", "codex", env=environ)
    assert (done.code, done.err) == (
        3,
        "conductor: codex is not installed, or not in PATH\n  npm install -g @openai/codex\n",
    )
    done = stage.run("launch", "emacs", env=environ)
    assert done.code == 2
    assert "there are: codex, opencode, claude, aider" in done.err


def test_signals_are_for_the_client(stage: Stage, tmp_path: Path) -> None:
    stage.configure()
    place = tmp_path / "ready"
    text = f"""#!{sys.executable}
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
pathlib.Path({str(place)!r}).touch()
time.sleep(60)
"""
    process: Any = stage.start("launch", "aider", env=install(tmp_path / "bin", "aider", text))
    end = time.monotonic() + 30
    while not place.exists() and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)  # only to conductor: a terminal would send it to both
    time.sleep(0.2)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert finished(process).code == 9
