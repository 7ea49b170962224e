"""`make clients`.

What real coding clients and SDKs make of `serve`, over a planner and workers that follow a script.

Their pinned versions are installed into `~/.cache/conductor-llm/clients`, from npm and PyPI. After
that nothing but loopback is reached: all other addresses lead to a proxy that does not exist.
Prints a table, client by check. The exit code is 0 if nothing failed; where npm is missing, nothing
is tried.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from conductor_cli.app.rehearsal import DEMO_QUESTION
from scripts.faults.desk import homes, serving
from tests.cli.stage import COMMAND, SOURCE, Stage
from tests.servers import Loopback, SeenRequest, Wire, delta, usage

CACHE: Final = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "conductor-llm/clients"
)
HERE: Final = Path(__file__).parent
TABLE: Final[dict[str, Any]] = tomllib.loads((HERE / "clients.toml").read_text("utf-8"))
CLIENTS: Final[dict[str, Any]] = TABLE["clients"]
SECONDS: Final = 120.0  # how long a client may take for anything
ANSWER: Final = "All is well at the harbour."


@dataclass
class Script:
    """What the worker does.

    `status` is an error for all but the check that it answers; `seen` are its requests.
    """

    status: int = 200
    seen: list[dict[str, Any]] = field(default_factory=list)

    async def __call__(self, request: SeenRequest, wire: Wire) -> None:
        """Answer one request: by a call where a tool is asked for, else with `ANSWER`."""
        body = request.json
        if "the one word: ready" not in str(body["messages"]):
            self.seen.append(body)
            if self.status != 200:
                await wire.json(
                    {"error": {"message": "this key was revoked", "type": "x"}}, self.status
                )
                return
        names = [tool["function"]["name"] for tool in body.get("tools") or ()]
        name = next((tool_name for tool_name in TABLE["tools"] if tool_name in names), "")
        has_result = any(message["role"] == "tool" for message in body["messages"])
        wants = name and not has_result and "use a tool" in str(body["messages"])
        call = {"index": 0, "id": "w1", "type": "function"}
        call |= {"function": {"name": name, "arguments": json.dumps(TABLE["tools"].get(name))}}
        await wire.head()
        reply, finish = (
            (delta(tool_calls=[call]), "tool_calls") if wants else (delta(ANSWER), "stop")
        )
        await wire.frames(reply, delta(finish=finish), usage(), "[DONE]")


@dataclass
class Desk:
    """A home of its own, a provider whose worker follows `script`, and a trap.

    The server that nothing may reach.
    """

    home: Path
    stage: Stage
    trap: Loopback
    script: Script

    def launch(
        self, name: str, question: str, *arguments: str, environ: Mapping[str, str] | None = None
    ) -> str:
        """What `conductor launch` and the client print.

        Raises `AssertionError` for a bad end, and for a late one.
        """
        return self.run(
            *COMMAND,
            "launch",
            name,
            *arguments,
            "--",
            *CLIENTS[name]["words"],
            question,
            environ=environ,
        )

    def run(
        self, *words: str, environ: Mapping[str, str] | None = None, code: int | None = 0
    ) -> str:
        """What a command prints; `code` is how it must end, None for any."""
        done = subprocess.run(
            words,
            env={**self.environ, **(environ or {})},
            cwd=self.home / "work",
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
        assert code in (None, done.returncode), (
            f"ended with {done.returncode}: {(done.stderr or done.stdout)[-300:]}"
        )
        return done.stdout + done.stderr

    @property
    def environ(self) -> dict[str, str]:
        """Nothing of this user, and no way to other machines."""
        places = [
            CACHE / "node_modules/.bin",
            CACHE / "aider/bin",
            "/usr/local/bin",
            "/usr/bin",
            "/bin",
        ]
        nowhere = dict.fromkeys(
            ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9"
        )
        nowhere |= dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        return {
            **nowhere,
            **homes(self.home),
            "PATH": ":".join(map(str, places)),
            "PYTHONPATH": str(SOURCE),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "IS_SANDBOX": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
        }


def _answers(desk: Desk, name: str) -> str:
    assert ANSWER in desk.launch(name, "Is all well?")
    request = desk.script.seen[-1]
    return f"{limit} tokens" if (limit := request.get("max_tokens")) else "ok"


def _calls_tool(desk: Desk, name: str) -> str:
    if name == "aider":
        return "-"  # it has no tools
    assert ANSWER in desk.launch(name, "Please use a tool")
    assert (desk.home / "work/hello.txt").read_text() == "made\n"
    assert any(message["role"] == "tool" for message in desk.script.seen[-1]["messages"]), (
        "no result came back"
    )
    return "ok"


def _stays_here(desk: Desk, name: str) -> str:
    """B2, B16: settings and variables of the user name another server."""
    client = CLIENTS[name]
    settings = desk.home / CLIENTS[name]["settings"]
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(text := client["text"].replace("URL", desk.trap.url))
    environ = {
        variable: value.replace("URL", desk.trap.url)
        for variable, value in client["environ"].items()
    }
    assert ANSWER in desk.launch(name, "Is all well?", environ=environ)
    assert not desk.trap.requests, f"the other server got {desk.trap.requests[0].path}"
    assert settings.read_text() == text, "its settings were changed"
    return "ok"


def _is_refused(desk: Desk, name: str) -> str:
    """B3: nothing is set up."""
    desk.stage.config.unlink()
    began = time.monotonic()
    words = (*COMMAND, "launch", name, "--", *CLIENTS[name]["words"], "Is all well?")
    assert "conductor setup" in desk.run(*words, code=5)
    return f"{time.monotonic() - began:.0f} s"


def _knows_demo(desk: Desk, name: str) -> str:
    assert "simulated answer" in desk.launch(name, "Fix the failing test", "--demo")
    assert "SIRAP" in desk.launch(name, DEMO_QUESTION, "--demo")
    return "ok"


def _has_models(desk: Desk, name: str) -> str:
    """B6: what sub-agents ask for."""
    if name != "claude":
        return "-"
    for model in ("fable", "opus", "sonnet", "haiku"):
        words = ("--model", model, *CLIENTS[name]["words"])
        assert ANSWER in desk.run(*COMMAND, "launch", name, "--", *words, "Is all well?"), model
    return "ok"


def _keeps_mcp(desk: Desk, name: str) -> str:
    """B1: the tools of the client's MCP servers reach the worker."""
    if name != "codex":
        return "-"
    server = json.dumps([str(HERE.parents[1] / "tests/tools/raw_server.py")])
    # If it is not required, the client asks before its server is there.
    table = f"mcp_servers.echo={{command={json.dumps(sys.executable)},args={server},required=true}}"
    desk.run(*COMMAND, "launch", name, "--", "-c", table, *CLIENTS[name]["words"], "Is all well?")
    names = [tool["function"]["name"] for tool in desk.script.seen[-1].get("tools", ())]
    assert any("echo" in tool_name for tool_name in names), (
        f"the worker has {', '.join(sorted(names, reverse=True))}"
    )
    return "ok"


def _gives_up(desk: Desk, name: str) -> str:
    """B8: the worker's provider refuses the key.

    How often it is asked, and how long the client takes.
    """
    desk.script.status = 401
    began = time.monotonic()
    desk.run(*COMMAND, "launch", name, "--", *CLIENTS[name]["words"], "Is all well?", code=None)
    calls = len(desk.script.seen)
    assert calls <= 4, f"{calls} calls"
    return f"{calls} calls, {time.monotonic() - began:.0f} s"


def _stops_repeating(desk: Desk, name: str) -> str:
    """The worker's server fails each time; the client may not go on for minutes."""
    desk.script.status = 500
    began = time.monotonic()
    desk.run(*COMMAND, "launch", name, "--", *CLIENTS[name]["words"], "Is all well?", code=None)
    return f"{len(desk.script.seen)} calls, {time.monotonic() - began:.0f} s"


CHECKS: Final[Mapping[str, Callable[[Desk, str], str]]] = {
    "answers": _answers,
    "calls a tool": _calls_tool,
    "stays here": _stays_here,
    "not set up": _is_refused,
    "demo": _knows_demo,
    "models": _has_models,
    "MCP": _keeps_mcp,
    "bad worker": _gives_up,
    "failing": _stops_repeating,
}


@contextmanager
def _desk() -> Iterator[Desk]:
    async def answer(_: SeenRequest, wire: Wire) -> None:
        await wire.json({"error": {"message": "this is another server"}}, 400)

    with (
        tempfile.TemporaryDirectory(prefix="conductor-clients-") as directory,
        ExitStack() as stack,
    ):
        home = Path(directory)
        script = Script()
        stage = Stage(home, models={"alpha": script, "beta": script})
        for server in (stage.server, trap := Loopback(answer)):
            stack.enter_context(server)
        stage.configure()
        (home / "work").mkdir()
        subprocess.run(["git", "init", "-q", str(home / "work")], check=True)
        yield Desk(home, stage, trap, script)


def _try(check: Callable[[Desk, str], str], name: str) -> str:
    with _desk() as desk:
        try:
            return check(desk, name)
        except subprocess.TimeoutExpired:
            return f"FAILED: no end within {SECONDS:.0f} s"
        except (AssertionError, OSError, LookupError) as error:
            return f"FAILED: {' '.join(str(error).split())[:300] or 'another answer'}"


def _try_sdks(only: Sequence[str]) -> dict[str, dict[str, str]]:
    """The checks of each SDK, which `sdks.py` makes in the environment that has it."""
    rows: dict[str, dict[str, str]] = {}
    with _desk() as desk:
        key = desk.run(*COMMAND, "serve", "keys", "add", "clients").split()[0]
        words = (*COMMAND, "serve", "--port", "0")
        with serving(subprocess.Popen(words, env=desk.environ, stdout=subprocess.PIPE)) as url:
            for group in ("sdks", "litellm"):
                reply = desk.run(
                    str(CACHE / group / "bin/python"), str(HERE / "sdks.py"), url, key, group
                )
                rows |= json.loads(
                    next(line for line in reply.splitlines() if line.startswith('{"'))
                )
    return {name: row for name, row in rows.items() if not only or name in only}


def _install() -> None:
    """Install what is missing. Raises `CalledProcessError`."""
    wanted = json.dumps([TABLE["npm"], TABLE["pypi"]])
    stamp = CACHE / "installed.json"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    print(f"installing into {CACHE}: 2 GB, minutes", flush=True)
    options = ("--no-audit", "--no-fund", "--loglevel", "error", "--prefix", str(CACHE))
    _call("npm", "install", *options, *TABLE["npm"])
    # Newer versions of npm run no scripts of packages; these two put the program of this system in
    # its place.
    for script in ("@anthropic-ai/claude-code/install.cjs", "opencode-ai/postinstall.mjs"):
        _call("node", str(CACHE / "node_modules" / script))
    for group, packages in TABLE["pypi"].items():
        _call(sys.executable, "-m", "venv", str(CACHE / group))
        _call(str(CACHE / group / "bin/python"), "-m", "pip", "install", "--quiet", *packages)
    stamp.write_text(wanted)


def _call(*words: str) -> None:
    subprocess.run(words, check=True, cwd=CACHE, stderr=subprocess.PIPE, text=True)


def main() -> int:
    """Try every client, or those named, and print the table."""
    parser = argparse.ArgumentParser(prog="make clients", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="CLIENT", help=f"{', '.join(CLIENTS)} or an SDK; all without"
    )
    names = parser.parse_args().names
    if shutil.which("npm") is None:
        print("skipped: npm is not installed, which installs the clients")
        return 0
    try:
        _install()
    except subprocess.CalledProcessError as error:
        print(f"skipped: {' '.join(error.cmd[:3])} failed: {(error.stderr or '')[-500:]}")
        return 0
    failed = False
    for name in [name for name in CLIENTS if not names or name in names]:
        for check, make in CHECKS.items():
            failed |= _tell(name, check, _try(make, name))
    for name, row in _try_sdks(names).items() if not names or set(names) - set(CLIENTS) else ():
        for check, result in row.items():
            failed |= _tell(name, check, result)
    return int(failed)


def _tell(name: str, check: str, result: str) -> bool:
    print(f"{name:<12} {check:<14} {result}", flush=True)
    return result.startswith("FAILED")


if __name__ == "__main__":
    sys.exit(main())
