"""No key leaves.

One is planted in every spelling in all that providers say, and everything written is searched.

Real processes, real servers, the key from a variable or from the store; what is searched is the
terminal, and every file that a run leaves.
"""

from __future__ import annotations

import ast
import base64
import html
import json
import os
import re
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

import conductor_cli
from conductor_cli.config.settings import load_settings
from conductor_cli.core.pool import Worker
from conductor_cli.core.redact import REDACTED, Secrets
from conductor_cli.models.catalog import open_model, secrets_around
from conductor_cli.models.weights import huggingface
from conductor_cli.system.known_secrets import KNOWN_SECRETS
from tests.cli.stage import PLANNER, Done, Stage, replies, says, sends
from tests.servers import Script, delta, usage
from tests.traces.stored import trace_bytes

KEY = 'sk-planted/Zq+82&71"key=='

PLAN_FORMATS = {
    "raw": KEY,
    "url": quote(KEY, safe=""),
    "path": quote(KEY),
    "form": re.sub("%..", lambda match: match[0].lower(), quote_plus(KEY)),
    "half": quote(KEY, safe="/="),
    "twice": quote(quote(KEY, safe=""), safe=""),
    "json": json.dumps(KEY)[1:-1],
    "html": html.escape(KEY),
    "base64": base64.b64encode(KEY.encode()).decode(),
    "basic": base64.b64encode(f"user:{KEY}".encode()).decode(),
    "basic2": base64.b64encode(f"me:{KEY}".encode()).decode(),
    "base64url": base64.urlsafe_b64encode(f"u:{KEY}".encode()).decode(),
    "hex": KEY.encode().hex(),
}
TELLING = 10
"""So many characters in a row of any spelling tell something of the key."""


def leaked_part(text: str) -> str:
    """The first part of a spelling of the key that is in `text`; empty if there is none."""
    for spelled in PLAN_FORMATS.values():
        # What stands around may be part of the first and last letters of base64
        core = spelled[6:-3]
        for start in range(len(core) - TELLING):
            part = core[start : start + TELLING]
            if part in text and part not in "sk-planted":
                return part
    return ""


def searched(stage: Stage, *shown: Done) -> None:
    """Assert that neither what was shown nor any file has the key in it.

    The store itself is where it belongs.
    """
    for done in shown:
        assert leaked_part(done.out) == "", done.out
        assert leaked_part(done.err) == "", done.err
    files = [path for path in stage.home.rglob("*") if path.is_file() and path.name != "keys.json"]
    assert any(path.suffix == ".jsonl" for path in files)
    for path in files:
        assert leaked_part(trace_bytes(path).decode("utf-8", "replace")) == "", path


def error(status: int, text: str, code: str = "") -> Script:
    """A provider that repeats the key in its error."""
    error_object = {"message": text, "type": text, "code": code or text, "param": text}
    return replies(json.dumps({"error": error_object}), "application/json", status)


def everything() -> str:
    return " | ".join(f"{name}: {spelled}" for name, spelled in PLAN_FORMATS.items())


def streamed(text: str, size: int) -> Script:
    """A model that writes `text` in pieces."""
    return says(*(text[at : at + size] for at in range(0, len(text), size)))


def thinking(text: str) -> Script:
    pieces = (delta(reasoning_content=letter) for letter in text)
    return sends(*pieces, delta("done"), delta(finish="stop"), usage(1, 1), "[DONE]")


PLANTED: dict[str, Script] = {
    "refused key": error(401, everything()),
    "long error": error(400, "x" * 280 + KEY + everything()),
    "encoded at the cut": error(400, "x" * 290 + quote(KEY, safe="")),
    "overloaded": error(503, everything()),
    "rate": error(429, everything(), "rate_limit_exceeded"),
    "in the stream": sends({"error": {"message": everything(), "code": 500}}),
    "web page": replies(f"<html><body>{everything()}</body></html>", "text/html"),
    "bad status page": replies(f"<html><body>{everything()}</body></html>", "text/html", 500),
    "garbage": replies(f"data: {everything()}\n\n", "text/event-stream"),
    "not a reply": replies(json.dumps({"said": everything()}), "application/json"),
    "redirect": replies("", "text/plain", 302, location=f"/login?key={quote(KEY, safe='')}"),
    "answer": streamed(f"your key is {KEY}, in base64 {PLAN_FORMATS['base64']}", 3),
    "answer at once": says(everything()),
    "thinking": thinking(f"the key is {KEY}."),
}


@pytest.fixture
def keyed(stage: Stage) -> Stage:
    """One worker, whose key is in the store."""
    stage.configure(workers=("alpha",))
    stage.ok(
        "keys", "set", "openai-compatible", "--base-url", stage.url, "--insecure-storage", given=KEY
    )
    return stage


def sent(stage: Stage) -> set[str]:
    return {request.headers.get("authorization", "") for request in stage.server.requests}


@pytest.mark.parametrize("name", PLANTED)
def test_what_a_provider_says_of_the_key_is_not_written(keyed: Stage, name: str) -> None:
    keyed.models = {"alpha": PLANTED[name]}
    shown = [
        keyed.inside("--debug", "ask", "why?", "--format", "jsonl"),
        keyed.inside("trace", "show", "last"),
        keyed.inside("trace", "show", "last", "--json"),
    ]
    assert f"Bearer {KEY}" in sent(keyed)
    searched(keyed, *shown)
    texts = "".join(event.get("text", "") + event.get("thinking", "") for event in shown[0].events)
    assert leaked_part(texts) == ""
    assert (REDACTED in shown[0].out) == ("page" not in name)  # of a web page nothing is shown


def test_the_whole_of_a_real_process_is_searched(keyed: Stage) -> None:
    keyed.models = {
        "alpha": error(401, everything()),
        PLANNER: streamed(f"alpha | - | Use {KEY}.\nalpha | 1 | Answer.", 2),
    }
    commands = [
        ("--debug", "ask", "why?"),
        ("ask", "why?", "--format", "json"),
        ("workers", "test", "--json"),
        ("workers", "list", "--json"),
        ("keys", "test", "--json"),
        ("keys", "list"),
        ("doctor", "--json"),
    ]
    shown = [keyed.inside(*command) for command in commands]
    assert f"Bearer {KEY}" in sent(keyed)
    searched(keyed, *shown)


def test_a_conductor_that_repeats_the_key_plans_without_it(keyed: Stage) -> None:
    keyed.plan = f"alpha | - | Use {KEY} well.\nalpha | 1 | Answer."
    done = keyed.ok(
        "ask",
        "why?",
        "--max-steps",
        "2",
        "--format",
        "jsonl",
        "--planner",
        f"{keyed.url}#{PLANNER}",
    )
    planned, _ = [event for event in done.events if event["kind"] == "step_planned"]
    assert REDACTED in json.dumps(planned)
    searched(keyed, done)


def test_a_key_in_an_attached_file_is_not_stored(keyed: Stage, tmp_path: Path) -> None:
    (tmp_path / "notes.env").write_text(f"THE_KEY={KEY}\n")
    done = keyed.ok("ask", "why?", "-f", tmp_path / "notes.env", "--format", "json")
    assert KEY in keyed.asked("alpha")[0].body.decode().replace('\\"', '"')
    searched(keyed, done)


def test_an_evaluation_holds_a_key_only_where_its_user_wrote_it(
    keyed: Stage, tmp_path: Path
) -> None:
    keyed.models = {"alpha": streamed(f"It is 7, your key is {everything()}", 3)}
    cases = tmp_path / "cases.jsonl"
    case = {
        "id": "1",
        "question": f"Is {KEY} good?",
        "answer": "7",
        "scorer": "number",
        "tags": ["keys"],
    }
    cases.write_text(json.dumps(case) + "\n")
    command = ("--debug", "eval", cases, "--systems", "alone", "--yes")
    shown = [keyed.inside(*command), keyed.inside("eval", "--show", "last", "--json")]
    assert [done.code for done in shown] == [0, 0], [done.err for done in shown]
    assert f"Bearer {KEY}" in sent(keyed)
    [copy] = keyed.home.rglob("cases.jsonl")
    assert json.loads(copy.read_text())["question"] == case["question"]
    copy.unlink()
    searched(keyed, *shown)


def test_litellms_errors_hold_no_key(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_OWN_VARIABLE", KEY)
    table = (
        '[workers.alpha]\nkind = "anthropic"\nmodel = "claude-x"\nbase_url = '
        f'"{stage.server.url}"\n'
    )
    table += 'key_env = "MY_OWN_VARIABLE"'
    stage.configure(table, workers=())
    stage.models = {"claude-x": error(401, everything())}
    done = stage.run("--debug", "ask", "why?", "--format", "json")
    assert done.code != 0
    assert any(request.headers.get("x-api-key") == KEY for request in stage.server.requests)
    searched(stage, done)


def test_a_token_in_a_workers_header_is_hidden() -> None:
    headers = {
        "X-Token": "hdr-0123456789",
        "Authorization": "Bearer own-0123456789",
        "X-Title": "our evaluation",
    }
    worker = Worker(
        name="w",
        kind="openai-compatible",
        options={"base_url": "http://127.0.0.1:1", "headers": headers},
    )
    secrets = Secrets()
    open_model(worker, environ={}, secrets=secrets)
    shown = secrets.redact("hdr-0123456789, Bearer own-0123456789, own-0123456789, our evaluation")
    assert shown == f"{REDACTED}, {REDACTED}, {REDACTED}, our evaluation"


def test_keys_that_litellm_reads_itself_are_hidden() -> None:
    environ = {
        "COHERE_API_KEY": "co-0123456789",
        "AWS_SECRET_ACCESS_KEY": "aws/0123456789",
        "KEYBOARD": "dvorak-us",
    }
    secrets = Secrets(*secrets_around(Worker(name="w", kind="litellm", model="cohere/x"), environ))
    assert (
        secrets.redact("co-0123456789 aws/0123456789 dvorak-us")
        == f"{REDACTED} {REDACTED} dvorak-us"
    )


def test_a_stored_key_is_sent_to_its_own_address_only(stage: Stage) -> None:
    stage.configure(workers=("alpha",))
    other = "http://127.0.0.1:9/v1"
    stage.inside(
        "keys", "set", "openai-compatible", "--base-url", other, "--insecure-storage", given=KEY
    )
    assert stage.inside("ask", "why?").code == 0
    assert sent(stage) == {""}


def test_a_run_that_needs_no_stored_key_reads_none(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "no.such.Keyring")
    monkeypatch.setenv("CONDUCTOR_LLM_KEYRING_SECONDS", "never")  # an error, if it were read
    assert stage.inside("ask", "why?").code == 0


RAW_MAKERS = {"token_urlsafe", "getpass", "get_token"}
"""Functions of libraries that make a secret or read one."""

HOLDERS = {"set_tokens", "set_client_info", "stored_secrets", "store_secrets"}
"""Functions of ours that are the first to be given one."""


REMEMBERING = re.compile(r"KNOWN_SECRETS\.add|_remember\(")


def _called_names(function: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            names.add(node.func.attr)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            names.add(node.func.id)
    return names


def test_whoever_begins_to_hold_a_secret_remembers_it_there() -> None:
    """In the same function, so that no text can hold it in between.

    `make_key` makes the key of a client, which is shown once; `find_key` remembers it when it comes.
    `show_page` makes an address that one visit uses up.
    """
    forgetful = []
    for path in sorted(Path(conductor_cli.__file__).parent.rglob("*.py")):
        text = path.read_text("utf-8")
        if not any(name in text for name in HOLDERS | RAW_MAKERS):
            continue  # most files, which need not be parsed
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            is_first = node.name in HOLDERS or _called_names(node) & RAW_MAKERS
            if is_first and not REMEMBERING.search(ast.unparse(node)):
                forgetful.append(f"{path.name} {node.name}")
    assert forgetful == ["browser.py show_page", "browser.py show", "client_keys.py make_key"]


def test_what_is_secret_in_the_environment_is_known_before_anything_is_said(stage: Stage) -> None:
    """Passwords of proxies and of databases, and the headers for a collector of traces."""
    environ = {
        "HTTPS_PROXY": "http://me:pr0xy%40w0rd@127.0.0.1:1",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=c0llect0r-11,authorization=Bearer%20c0llect0r-22",
        "GIT_AUTHOR_NAME": "Somebody Ordinary",
    }
    del stage
    load_settings({**os.environ, **environ})
    secrets = ("pr0xy@w0rd", "pr0xy%40w0rd", "c0llect0r-11", "c0llect0r-22")
    assert [text for text in secrets if not KNOWN_SECRETS.holds(text)] == []
    assert not KNOWN_SECRETS.holds("Somebody Ordinary")


def test_the_token_of_the_hub_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_t0ken0123456789abc")
    huggingface._read_token()
    assert KNOWN_SECRETS.holds("hf_t0ken0123456789abc")
