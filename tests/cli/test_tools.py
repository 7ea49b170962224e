"""`conductor tools`, and questions whose workers call tools.

In a pipe, on a terminal, under a policy.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.state import key_store, keyring_process
from conductor_cli.system.known_secrets import KNOWN_SECRETS
from conductor_cli.tools import session as sessions
from tests.cli.stage import COMMAND, TWO, Stage
from tests.cli.terminals import terminal
from tests.cli.test_start import loaded
from tests.servers import Script, SeenRequest, Speaker, Wire, loopback
from tests.state import backends
from tests.state.bus import own_backend
from tests.tools.test_tool_servers import sdk_server

SERVER = Path(__file__).resolve().parents[1] / "tools" / "raw_server.py"


@pytest.fixture
def tools(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A desk with the tools `t`, whose server keeps a diary."""
    monkeypatch.setenv("DIARY", str(stage.home / "diary"))
    added = stage.inside(
        "tools",
        "add",
        "t",
        "--set",
        "env=DIARY",
        "--set",
        "about=do sums",
        "--",
        sys.executable,
        str(SERVER),
    )
    assert added.out == "added t; see what it offers: conductor tools test t\n"
    return stage


def diary(stage: Stage) -> list[str]:
    """What the server has noted, without its process id."""
    path = stage.home / "diary"
    return [
        line.partition(" ")[0] if line.startswith("start") else line
        for line in path.read_text().splitlines()
    ]


def calls(name: str, **arguments: Any) -> Script:
    """A model that calls a tool once, and then answers with what came back."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        speaker = Speaker(request, wire)
        await speaker.begin()
        results = [message for message in request.json["messages"] if message["role"] == "tool"]
        if results:
            await speaker.say(f"the tool says: {results[-1]['content']}")
        else:
            await speaker.say("Let me see. ")
            await speaker.call(name, json.dumps(arguments))
        await speaker.end()

    return script


def test_tools_are_added_listed_and_removed(tools: Stage) -> None:
    [row] = tools.inside("tools", "list", "--json").json
    assert (row["name"], row["recipient"], row["env"], row["about"]) == (
        "t",
        "unknown",
        ["DIARY"],
        "do sums",
    )
    assert tools.inside("tools", "add", "t", "--set", "local=true").out.startswith("changed t")
    assert "this machine" in tools.inside("tools", "list").out
    tools.inside("workers", "add", "gamma", "--kind", "ollama", "--model", "m", "--tools", "t")
    tools.ends(2, "tools", "rm", "t", told="worker 'gamma' has the tools 't'")
    tools.inside("workers", "rm", "gamma")
    assert tools.inside("tools", "rm", "t").out == "removed t\n"
    assert tools.inside("tools", "list", "--json").json == []


@pytest.fixture
def keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    """A keyring that works, with a file for each item in the directory `backend` of the desk."""
    for name, value in {**own_backend("Kept"), "CONDUCTOR_LLM_KEYRING_SECONDS": "60"}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def quick_keyring(keyring: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, asked in this process: a login asks it often, and each start takes long."""

    def answer(script: Path, job: bytes, *_: Any, **__: Any) -> list[dict[str, Any]]:
        assert script.name == "keyring_process.py"
        return keyring_process.answer(job)

    monkeypatch.setattr(key_store, "run_child", answer)
    monkeypatch.setattr("keyring.core._keyring_backend", backends.Kept())


@pytest.mark.usefixtures("keyring")
def test_servers_of_a_file_come_without_secrets(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = {
        "git": {"command": "uvx", "args": ["mcp-server-git"],
                "env": {"TOKEN": "s3cr3t", "HOME_DIR": "${env:HOME_DIR}"}},
        "web": {"type": "http", "url": "https://example.com/mcp",
                "headers": {"Authorization": "Bearer ${WEB_TOKEN}", "X-Key": "k3y"}},
        "off": {"command": "no", "disabled": True},
    }  # fmt: skip
    for name, key in (("claude.json", "mcpServers"), ("code.json", "servers")):
        (tmp_path / name).write_text(json.dumps({key: servers}))
        done = stage.ok("tools", "import", tmp_path / name)
    assert "git is configured already" in done.err
    rows = {row["name"]: row for row in stage.ok("tools", "list", "--json").json}
    assert rows.keys() == {"git", "web"}
    assert rows["git"]["env"] == ["TOKEN", "HOME_DIR"]
    assert "Bearer $WEB_TOKEN" in stage.own_file.read_text()
    assert not {"s3cr3t", "k3y"} & set(re.findall(r"\w+", stage.own_file.read_text() + done.err))
    # The header's secret is in the keyring, and goes with the server.
    assert "k3y" in (stage.home / "backend/tool:web").read_text()
    stage.ok("tools", "rm", "git", "web")
    assert not (stage.home / "backend/tool:web").exists()
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    messages = (
        "TOKEN: export TOKEN=",
        "web is not added, because it has a secret and no working keyring found",
    )
    stage.ok("tools", "import", tmp_path / "code.json", told=messages)
    assert "k3y" not in stage.own_file.read_text()


CODE_FILE = """// the servers of this project
{
  "inputs": [{"type": "promptString", "id": "gh-token"}],
  "servers": {
    /* reads the repository */
    "My Server (prod)": {
      "command": "uvx", // a program
      "args": ["mcp-server", "--root", "${workspaceFolder}/src", "http://x//y", "${API_KEY:-k3y}",],
      "env": {
        "TOKEN": "${input:gh-token}", "GITHUB_TOKEN": "${env:GH_TOKEN}", "HOME_DIR": "${HOME_DIR}",
        "PLACE": "a${B}c", "MODE": "${MODE:-fast}",
      },
      "envFile": "${workspaceFolder}/.env",
      "autoApprove": ["x"],
    },
    "web": {"type": "http", "url": "https://example.com/mcp",
            "headers": {"Authorization": "Bearer ${input:gh-token}", "X-Org": "${env:ORG}"}},
    "bad": {"url": "ftp://example.com"},
    "later": {"command": "true"},
    "off": {"command": "no", "disabled": true},
  },
}
"""


def test_a_file_of_vs_code_is_read_with_its_comments_and_variables(
    stage: Stage, tmp_path: Path
) -> None:
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".env").write_text("# both\nexport A=s3cr3t\nB = 2\n")
    path = tmp_path / ".vscode" / "mcp.json"
    path.write_text(CODE_FILE)
    done = stage.ends(2, "tools", "import", path, told="bad is not added: ")
    servers = stage.own_settings["tools"]
    assert servers.keys() == {"My-Server-prod", "web", "later"}
    program = servers["My-Server-prod"]
    assert program["command"] == [
        "uvx",
        "mcp-server",
        "--root",
        f"{tmp_path}/src",
        "http://x//y",
        "${API_KEY:-k3y}",
    ]
    assert program["env"] == ["A", "B", "TOKEN", "GITHUB_TOKEN", "HOME_DIR", "PLACE", "MODE"]
    assert servers["web"]["headers"] == {"Authorization": "Bearer $GH_TOKEN", "X-Org": "$ORG"}
    stderr = " ".join(done.err.split())
    for words in (
        "the file calls it 'My Server (prod)'",
        f"${{workspaceFolder}} is {tmp_path}",
        "the value of ${API_KEY} in an argument: write it there yourself",
        "the value of TOKEN, which the file asks for: export TOKEN=",
        'the value of GITHUB_TOKEN, which is that of GH_TOKEN: export GITHUB_TOKEN="$GH_TOKEN"',
        "the value of PLACE, which is made of variables: export PLACE=",
        "the value that MODE has where it is not set: export MODE=",
        f"the values in {tmp_path}/.env (A, B): export them before conductor starts",
        "its settings autoApprove",
        "what ${input:gh-token} asks for: export GH_TOKEN=",
        "off is disabled in the file, and is not added",
    ):
        assert words in stderr
    assert "HOME_DIR:" not in stderr
    assert "s3cr3t" not in stderr + stage.own_file.read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"mcpServers": {"x": {"command": "no", "disabled": true}}}', "x is disabled in the file"),
        ('{"mcpServers": {}}', "names no servers"),
        ('{"mcp": {"servers": {"x": {"command": "true"}}}}', "added x"),
        ('{"mcpServers": {"x": {"serverUrl": "https://example.com/mcp"}}}', "added x"),
        ('{"mcpServers": {"x": {"httpUrl": "https://example.com/mcp"}}}', "added x"),
        (
            '{"mcpServers": {"x": {"url": "https://example.com/sse", "type": "sse"}}}',
            "its type sse",
        ),
        ('\ufeff{"mcpServers": {"x": {"command": "true"}}}', "added x"),
        ('{"mcpServers": {"\\u002f": {"command": "true"}}}', "added server"),
        (
            '{"mcpServers": {"x": {"command": "true", "envFile": "none.env"}}}',
            "there is no such file",
        ),
        (
            '{"mcpServers": {"x": {"command": "true", "env": {"A-B": "1"}}}}',
            "is not the name of a variable",
        ),
    ],
)
def test_each_form_of_a_file_of_servers_says_what_becomes_of_it(
    stage: Stage, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "mcp.json").write_text(text, "utf-8")
    done = stage.inside("tools", "import", tmp_path / "mcp.json")
    assert message in " ".join((done.out + done.err).split())


def test_the_home_directory_at_the_start_of_a_path_is_replaced(
    tools: Stage, tmp_path: Path
) -> None:
    """No shell does that in a file of servers, nor in one of settings."""
    program = tools.home / "server"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {SERVER}\n")
    program.chmod(0o700)
    entry = {"command": "~/server", "args": ["~/notes", "a~/b"]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"mine": entry}}))
    tools.ok("tools", "import", tmp_path / "mcp.json")
    home = str(tools.home)
    assert tools.own_settings["tools"]["mine"]["command"] == [
        f"{home}/server",
        f"{home}/notes",
        "a~/b",
    ]
    with tools.config.open("a") as file:
        file.write('[tools.other]\ncommand = ["~/server"]\n')
    assert "add" in tools.ok("tools", "test", "other").out


def test_a_server_that_is_none_keeps_no_other_from_being_added(
    stage: Stage, tmp_path: Path
) -> None:
    servers = {"empty": {}, "text": "uvx", "late": {"command": "true"}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    done = stage.ends(2, "tools", "import", tmp_path / "mcp.json", told="is not added")
    assert "added late" in done.out
    assert stage.own_settings["tools"].keys() == {"late"}
    error_text = " ".join(done.err.split())
    for name in ("empty", "text"):
        assert f"{name} is not added: it has neither a command nor an address" in error_text


@pytest.fixture(scope="module")
def login_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a server that asks for a login, and the file that says what it does."""
    book = tmp_path_factory.mktemp("server") / "book.json"
    book.write_text("{}")
    with sdk_server(book) as url:
        yield url, book


@pytest.fixture
def web(
    stage: Stage,
    quick_keyring: None,
    login_server: tuple[str, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """The tools `web`, whose server asks for a login; the file says what it does.

    The browser goes where it is sent.
    """
    browser = stage.home / "browser.py"
    browser.write_text("import sys, urllib.request\nurllib.request.urlopen(sys.argv[1]).read()\n")
    monkeypatch.setenv("BROWSER", f"{sys.executable} {browser} %s")
    url, book = login_server
    book.write_text("{}")
    book.with_suffix(".log").unlink(missing_ok=True)
    stage.ok("tools", "add", "web", url)
    return book


def test_a_login_goes_on_in_the_browser_and_lasts(
    web: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is registered, made with PKCE and kept in the keyring.

    Tokens that end are renewed without anybody.
    """
    log = web.with_suffix(".log")
    stage.ends(
        1,
        "tools",
        "test",
        "web",
        told="a login needs a terminal and a browser: conductor tools test web",
    )
    for rules, message in (
        ({"state": "another"}, "State parameter mismatch"),
        ({"refuse": True}, "the login was refused: access_denied"),
        ({}, "web offers 1 tool"),
    ):
        web.write_text(json.dumps(rules))
        with terminal(stage, "tools", "test", "web", size=(400, 24)) as screen:
            screen.end()
            assert message in screen.raw
    assert log.read_text().split() == [*["register", "authorize"] * 3, "exchange"]
    log.unlink()
    stage.ok("tools", "test", "web")
    assert not log.exists()
    with monkeypatch.context() as patch:
        patch.setattr(sessions, "RENEWAL_SECONDS", 1e6)  # as if they had ended
        assert "web offers 1 tool" in stage.ok("tools", "test", "web").out
    assert log.read_text().split() == ["refresh"]
    stored = json.loads(
        "".join(path.read_text() for path in sorted((stage.home / "backend").glob("tool:web*")))
    )
    login = json.loads(stored["key"])["login"]
    made = [login["tokens"]["access_token"], login["tokens"]["refresh_token"]]
    made.append(login["client"]["client_secret"])
    assert [text for text in made if not KNOWN_SECRETS.holds(text)] == []
    stage.models["alpha"] = calls("hello")
    assert (
        stage.ok("ask", "?", "--tools", "web", "--allow-tools", "web").out
        == "the tool says: hello\n"
    )
    # Nothing of it is in a file of settings or of a trace.
    secret = json.loads(
        json.loads(
            "".join(path.read_text() for path in sorted((stage.home / "backend").glob("tool:web*")))
        )["key"]
    )["login"]["tokens"]["access_token"]
    files = [
        path for path in stage.home.rglob("*") if path.is_file() and path.parent.name != "backend"
    ]
    assert not any(secret[:40].encode() in path.read_bytes() for path in files)
    web.write_text('{"revoked": true}')
    done = stage.ok("ask", "?", "--tools", "web")
    assert (
        "the tools of web cannot be used: it asks for a login: conductor tools test web" in done.err
    )
    stage.ok("keys", "rm", "tool:web")
    assert list((stage.home / "backend").iterdir()) == []


def test_rights_that_a_server_asks_for_later_are_granted_at_the_next_login(
    web: Path, stage: Stage
) -> None:
    """A run goes on without the tool and says how; the next login asks for all rights together."""
    log = web.with_suffix(".log")
    for rights in ("files:read", "files:write"):
        with terminal(stage, "tools", "test", "web", size=(400, 24)) as screen:
            screen.end()
            assert "web offers 1 tool" in screen.raw
        web.write_text(json.dumps({"needs": rights}))
        stage.models["alpha"] = calls("hello")
        done = stage.ok("ask", "?", "--tools", "web", "--allow-tools", "web")
        lack = f"it asks for further rights ({rights}): conductor tools test web"
        assert done.out == f"the tool says: Error: the call failed: {lack}\n"
        assert f"web refused a call, because {lack}" in done.err
        done = stage.ok("tools", "test", "web")
        assert f"it has asked for further rights ({rights})" in done.err
        assert "web offers 1 tool" in done.out
    with terminal(stage, "tools", "test", "web", size=(400, 24)) as screen:
        screen.end()
    assert stage.ok("ask", "?", "--tools", "web", "--allow-tools", "web").out == (
        "the tool says: hello\n"
    )
    scopes = [line for line in log.read_text().split() if line.startswith("scopes:")]
    assert scopes == ["scopes:files:read", "scopes:files:read,files:write"]
    log.unlink()
    stage.ok("tools", "test", "web")
    assert not log.exists()


def test_a_client_may_be_named_by_the_address_of_its_document(web: Path, stage: Stage) -> None:
    """Where the server reads such documents; elsewhere it is registered as before."""
    log = web.with_suffix(".log")
    message = (
        "client_metadata is 'http://example.com/c.json'; expected an https address with a path"
    )
    wrong = "client_metadata=http://example.com/c.json"
    stage.ends(2, "tools", "add", "web", "--set", wrong, told=message)
    stage.ok("tools", "add", "web", "--set", "client_metadata=https://example.com/c.json")
    web.write_text('{"documents": true}')
    with terminal(stage, "tools", "test", "web", size=(400, 24)) as screen:
        screen.end()
        assert "web offers 1 tool" in screen.raw
    assert log.read_text().split() == [
        "authorize",
        "document:https://example.com/c.json",
        "exchange",
    ]
    stage.ok("keys", "rm", "tool:web")
    web.write_text("{}")
    log.unlink()
    with terminal(stage, "tools", "test", "web", size=(400, 24)) as screen:
        screen.end()
    assert log.read_text().split() == ["register", "authorize", "exchange"]


@pytest.mark.usefixtures("quick_keyring")
def test_the_secret_of_a_header_is_kept_in_the_keyring(stage: Stage) -> None:
    """One that stands in a file works too, and doctor names it.

    No address but its own gets a stored one.
    """
    keys = list[str]()

    async def serve(request: SeenRequest, wire: Wire) -> None:
        keys.append(request.headers.get("x-key", ""))
        await wire.json({"error": "no"}, 401)

    with loopback(serve) as first, loopback(serve) as second:
        stage.ok(
            "tools",
            "add",
            "web",
            f"{first.url}/mcp",
            "--header",
            "X-Key: s3cr3t",
            "--header",
            "X-Team: blue",
        )
        stage.ends(1, "tools", "test", "web", told="a login needs a terminal")
        stage.inside("tools", "add", "web", "--header", "X-Key", given="an0ther\n")
        stage.ends(1, "tools", "test", "web")
        stage.ok("tools", "add", "web", f"{second.url}/mcp")
        stage.ends(1, "tools", "test", "web")
        assert list(dict.fromkeys(keys)) == ["s3cr3t", "an0ther", ""]
        assert 'X-Team = "blue"' in stage.own_file.read_text()
        assert "s3cr3t" not in stage.own_file.read_text() + stage.ok("tools", "list", "--json").out
        with stage.config.open("a") as file:
            file.write(
                f'[tools.old]\nurl = "{first.url}"\nheaders = {{ Authorization = "Bearer '
                'pl41n" '
                "}\n"
            )
        assert (
            "it refuses the header Authorization (HTTP 401)"
            in stage.ends(1, "tools", "test", "old").out
        )
    assert "pl41n" not in stage.ok("tools", "list", "--json").out
    rows = [
        row
        for row in stage.inside("doctor", "--offline", "--json").json["checks"]
        if row["name"] == "tools old"
    ]
    assert "the secret of the header Authorization stands in" in rows[0]["found"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"mcpServers": []}', '{"mcpServers": 3}', '{"other": {}}']
)
def test_what_is_no_mcp_file_is_refused(stage: Stage, tmp_path: Path, text: str) -> None:
    (tmp_path / "mcp.json").write_text(text)
    stage.fails(2, "tools", "import", tmp_path / "mcp.json", told="not a file of MCP servers")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("tools", "add", "x"), "need a command or a url"),
        (("tools", "add", "x", "ftp://example.com"), "is not an address of http or https"),
        (
            ("tools", "add", "x", "--header", "A: b", "--", "true"),
            "a header has a name and a value",
        ),
        (
            ("tools", "add", "x", "https://me:pw@example.com/mcp"),
            "a password does not belong in a file",
        ),
        (("tools", "add", "x", "--set", "env=A-B", "--", "true"), "is not the name of a variable"),
        (("tools", "add", "x", "--set", "seconds=0", "--", "true"), "expected a number above 0"),
        (("tools", "rm", "x"), "no tool server is named 'x'"),
        (("tools", "test", "x"), "no tool server is named 'x'"),
        (("ask", "hi", "--tools", "x"), "no tool server is named 'x'"),
        (("ask", "hi", "--allow-tools", "x.y"), "no tool server is named 'x.y'"),
    ],
)
def test_wrong_words_are_explained(tools: Stage, words: tuple[str, ...], message: str) -> None:
    done = tools.inside(*words)
    assert message in done.out + done.err
    assert done.code == (0 if message == "added x" else 2)


def test_a_server_is_tried_and_a_broken_one_says_why(tools: Stage) -> None:
    done = tools.ok("tools", "test", "t")
    assert "t offers 12 tools" in done.out
    assert "asks first" in next(line for line in done.out.splitlines() if line.startswith("write"))
    assert "freely: read-only" in next(
        line for line in done.out.splitlines() if line.startswith("add")
    )
    tools.inside(
        "tools", "add", "bad", "--", "sh", "-c", "echo no such directory: /data >&2; exit 2"
    )
    tools.inside("tools", "add", "none", "--", str(SERVER.parent / "missing"))
    tools.inside("tools", "add", "dead", "http://127.0.0.1:9/mcp")
    again = "start it, or change it: conductor tools add dead URL"
    done = tools.ends(1, "tools", "test", "bad", "none", "dead", told=again)
    assert "dead failed: its address cannot be reached" in done.out
    assert "bad failed: it has ended: no such directory: /data" in done.out
    assert "/missing cannot be started: No such file or directory" in done.out


def test_a_pipe_gets_the_text_after_the_last_call(tools: Stage) -> None:
    tools.models["alpha"] = calls("add", a=40, b=2)
    assert tools.ok("ask", "What is 40 and 2?", "--tools", "t").out == "the tool says: 42\n"
    [run] = tools.inside("trace", "list", "--json").json
    shown = tools.inside("trace", "show", run["run"], "--json").json
    [use] = shown["steps"][0]["tools"]
    assert (use["server"], use["name"], use["text"]) == ("t", "add", "42")
    [pid] = [int(line.split()[1]) for line in (tools.home / "diary").read_text().splitlines()]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_server_gets_no_keys_by_accident(tools: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-secret")
    tools.models["alpha"] = calls("environment")
    done = tools.inside("ask", "?", "--tools", "t")
    assert "DIARY" in done.out
    assert "PATH" in done.out
    assert "KEY" not in done.out


def test_a_change_is_refused_in_a_pipe_unless_it_is_allowed(tools: Stage) -> None:
    tools.models["alpha"] = calls("write", text="hello")
    done = tools.inside("ask", "?", "--tools", "t")
    assert "nobody can be asked to allow it" in done.out
    assert "--allow-tools t.write" in done.err
    assert "t.write {" in tools.ok("trace", "show", "last").out
    assert "write hello" not in diary(tools)
    assert (
        tools.inside("ask", "?", "--tools", "t", "--allow-tools", "t.write").out
        == "the tool says: written\n"
    )
    idle = tools.inside("ask", "?", "--allow-tools", "t.write")
    assert (
        "--allow-tools t allows nothing, because no worker has these tools: --tools t" in idle.err
    )
    assert "write hello" in diary(tools)


def test_a_model_file_without_a_form_for_tools_gets_none_and_it_is_said(
    tools: Stage, tiny: Path
) -> None:
    local = f'[workers.local]\nkind = "llama"\nmodel = "{tiny}"\nmax_tokens = 20'
    tools.configure(f"[limits]\nattempts = 1\n{local}", workers=())
    tools.plan = "local | - | Answer."
    done = tools.inside("ask", "?", "--tools", "t")
    assert done.code in (0, 7)
    why = "its chat template has no form for them that is read here"
    assert f"without tools, which they cannot be sent: local ({why})" in done.err


def test_local_only_gives_no_tools_that_may_send(tools: Stage) -> None:
    tools.models["alpha"] = calls("add", a=1, b=1)
    done = tools.inside("ask", "?", "--tools", "t", "--deny", "tool:t")
    assert "alpha does not get the tools of t: policy.deny names tool:t" in done.err
    assert "the tool says" not in done.out


def test_a_worker_a_pool_and_a_run_name_tools(tools: Stage) -> None:
    tools.config.write_text(
        tools.config.read_text() + '[pools.p]\nworkers = ["alpha"]\ntools = ["t"]\n'
    )
    tools.models["alpha"] = calls("add", a=1, b=1)
    assert tools.inside("ask", "?", "--pool", "p", "--mode", "ultra").out == "the tool says: 2\n"
    assert "the tool says" not in tools.inside("ask", "?", "--pool", "p", "--tools", "none").out
    planner = next(
        json.loads(request.body) for request in tools.server.requests if b"planner" in request.body
    )
    assert "can use tools: do sums." in planner["messages"][1]["content"]


def test_a_call_in_the_background_waits_for_a_person_elsewhere(tools: Stage) -> None:
    tools.models["alpha"] = calls("write", text="one line")
    run = tools.run("ask", "--bg", "?", "--tools", "t").out.strip()
    with terminal(tools, "trace", "attach", run, command=COMMAND) as shown:
        shown.until("l: leave it")
        assert "alpha (step 1) wants to call write of t:" in shown.scrolled
        (row,) = tools.ok("trace", "list", "--json").json
        assert (row["state"], row["waits"]) == ("running", "approval of t.write")
        shown.program.send("y")
        assert shown.end() == 0
    assert "the tool says: written" in tools.ok("trace", "show", run).out
    assert diary(tools)[-1] == "write one line"


@pytest.mark.parametrize(
    ("key", "message"), [("y", "the tool says: written"), ("n", "the user does not allow it")]
)
def test_a_person_decides_about_a_call_on_a_terminal(tools: Stage, key: str, message: str) -> None:
    tools.models["alpha"] = calls("write", text="one\x1b[31m line")
    with terminal(tools, "ask", "?", "--tools", "t") as shown:
        shown.until("n: refuse")
        assert "alpha (step 1) wants to call write of t:" in shown.scrolled
        assert "text: one line" in shown.scrolled
        shown.program.send(key)
        shown.until(message)
        shown.end()
    assert ("write one\x1b[31m line" in diary(tools)) == (key == "y")


def test_no_arguments_move_the_name_of_a_tool_off_the_screen(tools: Stage) -> None:
    tools.models["alpha"] = calls("write", text="a\n" * 60 + "wants to call add of t:")
    with terminal(tools, "ask", "?", "--tools", "t") as shown:
        shown.until("n: refuse")
        assert "\nalpha (step 1) wants to call write of t:" in shown.screen
        shown.program.send("n")
        shown.end()


def test_a_person_answers_what_a_server_asks_on_a_terminal(tools: Stage) -> None:
    tools.models["alpha"] = calls("form")
    with terminal(tools, "ask", "?", "--tools", "t", size=(80, 60)) as shown:
        shown.until("y: answer, n: decline")
        assert (
            "t asks you for something. These are its own words:\n  | Who comes?" in shown.scrolled
        )
        shown.program.send("y")
        shown.until("Your address (needed, email)")
        shown.program.send("nobody\n")
        shown.until("type an address as in ann@example.com")
        shown.program.send("ann@example.com\n")
        shown.until("guests (Enter takes 2, a whole number from 1 to 8)")
        shown.program.send("\n")
        shown.until("2: double")
        shown.program.send("2\n")
        shown.until("quiet (Enter leaves it out, yes or no)")
        shown.program.send("\n")
        shown.until("y: send it, n: decline")
        assert (
            "This is sent to t:\n  email: ann@example.com\n  guests: 2\n  room: d" in shown.scrolled
        )
        shown.program.send("y")
        shown.until("the tool says:")
        shown.end()
        values = '{"email": "ann@example.com", "guests": 2, "room": "d"}'
        assert f'{{"action": "accept", "content": {values}}}' in " ".join(shown.scrolled.split())


@pytest.mark.parametrize(("key", "action"), [("y", "accept"), ("n", "decline")])
def test_an_address_that_a_server_names_is_shown_and_not_opened(
    tools: Stage, monkeypatch: pytest.MonkeyPatch, key: str, action: str
) -> None:
    opened = tools.home / "opened"
    monkeypatch.setenv("BROWSER", f"touch {opened} %s")
    tools.models["alpha"] = calls("visit")
    with terminal(tools, "ask", "?", "--tools", "t") as shown:
        shown.until("o: open it in the browser, y: I open it myself, n: decline")
        assert "https://pay.example/room?id=7" in shown.scrolled
        shown.program.send(key)
        shown.until(f'{{"action": "{action}"}}')
        shown.end()
    assert not opened.exists()


def test_a_pipe_declines_what_a_server_asks_and_says_so(tools: Stage) -> None:
    tools.models["alpha"] = calls("form")
    done = tools.ok("ask", "?", "--tools", "t")
    assert '{"action": "decline"}' in done.out
    assert "t asked for input, which was declined because nobody is at a terminal" in done.err
    assert "\x1b" not in done.err


def test_ctrl_c_while_a_tool_hangs_ends_everything(tools: Stage) -> None:
    tools.models["alpha"] = calls("hang")
    with terminal(tools, "ask", "?", "--tools", "t", command=COMMAND) as shown:
        shown.until("hang")
        shown.program.sendintr()
        shown.end()
    pid = int((tools.home / "diary").read_text().split()[1])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_resumed_run_keeps_its_tools_and_repeats_nothing_that_ended(tools: Stage) -> None:
    tools.plan = TWO
    tools.models |= {"alpha": calls("write", text="once"), "beta": calls("add", a=1, b=2)}
    tools.ends(6, "ask", "?", "--tools", "t", "--allow-tools", "t", "--max-calls", "2")
    assert tools.inside("ask", "--resume", "last").out == "the tool says: 3\n"
    assert diary(tools).count("write once") == 1


def test_a_plan_says_which_tools_its_steps_may_call(tools: Stage) -> None:
    done = tools.inside("plan", "?", "--tools", "t", "--flow")
    assert "may call tool:t" in done.err
    assert "which is not counted" in " ".join(done.err.split())
    assert "may call" not in tools.inside("plan", "?", "--flow").err


def test_an_image_goes_to_a_worker_that_accepts_images(tools: Stage) -> None:
    tools.models |= {"alpha": calls("picture"), "beta": calls("picture")}
    text = tools.config.read_text()
    tools.config.write_text(text.replace('model = "alpha"', 'model = "alpha"\naccepts = ["image"]'))
    assert "cannot be shown to you" not in tools.inside("ask", "?", "--tools", "t").out
    assert "data:image/png;base64,iVBOR" in tools.asked("alpha")[-1].body.decode()
    assert (
        len([path for path in (tools.traces.parent / "attachments").glob("??/*") if path.is_file()])
        == 1
    )
    tools.plan = "beta | - | Answer it."
    assert "[picture-1.png cannot be shown to you]" in tools.inside("ask", "?", "--tools", "t").out


def test_a_run_without_tools_does_not_load_their_library(tools: Stage) -> None:
    assert "mcp" not in loaded(tools, "ask", "?")
