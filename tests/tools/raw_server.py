"""A server of tools without any library, over stdio: `python raw_server.py [MODE]`.

It starts in a moment.

It speaks the protocol before 2026, as most servers do. Its modes and tools misbehave as a test
wants. A file named by DIARY gets a line for each start and each change that a tool makes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MODE = sys.argv[1] if len(sys.argv) > 1 else ""
SCHEMAS = {
    "add": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "write": {"text": {"type": "string"}},
    "flood": {"megabytes": {"type": "integer"}},
}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
BOMB = {
    "type": "object",
    "allOf": [{"$ref": "#/$defs/a0"}],
    "$defs": {
        **{
            f"a{number}": {"allOf": [{"$ref": f"#/$defs/a{number + 1}"}] * 2}
            for number in range(28)
        },
        "a28": {"type": "object"},
    },
}
READ_ONLY = ["add", "environment", "hang", "die", "flood", "grow", "ask", "babble", "picture"]
READ_ONLY += ["form", "visit"]
FORM = {
    "type": "object",
    "properties": {
        "email": {"type": "string", "format": "email", "title": "Your \x1b[31maddress"},
        "guests": {"type": "integer", "minimum": 1, "maximum": 8, "default": 2},
        "room": {"type": "string", "enum": ["s", "d"], "enumNames": ["single", "double"]},
        "quiet": {"type": "boolean"},
    },
    "required": ["email"],
}
MISNAMED = ["a b", "a.b", "\x1b[31mred", "x" * 200, "add"]


def note(line: str) -> None:
    """Add a line to the diary."""
    if os.environ.get("DIARY"):
        with Path(os.environ["DIARY"]).open("a") as diary:
            diary.write(line + "\n")


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tool(name: str, *, read_only: bool = True) -> dict[str, Any]:
    fields = SCHEMAS.get(name, {})
    schema: dict[str, Any] = {"type": "object", "properties": fields, "required": list(fields)}
    if name == "bomb":
        schema = BOMB
    # Its result is to follow the schema, too.
    promised = {"outputSchema": BOMB} if name == "promise" else {}
    shown = {"annotations": {"readOnlyHint": read_only}, "description": f"{name}."}
    return {"name": name, "inputSchema": schema, **promised, **shown}


TOOLS = [*(tool(name) for name in READ_ONLY), tool("write", read_only=False)]


def call(name: str, given: dict[str, Any]) -> str:
    """What a tool gives back."""
    match name:
        case "add":
            return str(given["a"] + given["b"])
        case "environment":
            return " ".join(sorted(os.environ))
        case "write":
            note(f"write {given['text']}")
            return "written"
        case "hang":
            time.sleep(3600)
        case "die":
            print("the disk is on fire", file=sys.stderr, flush=True)
            os._exit(3)
        case "flood":
            return "x" * (int(given["megabytes"]) << 20)
        case "babble":
            print("this is no message", flush=True)
            return "said"
        case "half":
            return "half \ud83d, whole \U0001f600"
        case "grow":
            TOOLS.append(tool("grown"))
            send(method="notifications/tools/list_changed")
            return "there is a new tool"
        case "form":
            return request({"message": "Who comes?\x1b[2J", "requestedSchema": FORM})
        case "visit":
            url = "https://pay.example/room?id=7"
            return request({"mode": "url", "message": "Pay", "elicitationId": "7", "url": url})
        case "ask":
            return "\n".join(
                _asked(method)
                for method in ("sampling/createMessage", "elicitation/create", "roots/list")
            )
    return name


def nested(levels: int) -> dict[str, Any]:
    """An object in an object, so many of them."""
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"in": value}
    return value


def request(params: dict[str, Any]) -> str:
    """What the client answers to a request for input."""
    send(id="input", method="elicitation/create", params=params)
    return json.dumps(json.loads(sys.stdin.readline())["result"], sort_keys=True)


def _asked(method: str) -> str:
    """What the client answers to a request of the server."""
    params: dict[str, Any] = {
        "messages": [],
        "maxTokens": 1,
        "message": "?",
        "requestedSchema": {"type": "object", "properties": {}},
    }
    send(id=f"ask {method}", method=method, params=params if method != "roots/list" else {})
    answer = json.loads(sys.stdin.readline())
    return f"{method}: {answer.get('error', {}).get('message', 'no error')}"


def listed(cursor: str) -> dict[str, Any]:
    """A page of the list of tools."""
    if MODE == "many":
        start = int(cursor or 0)
        page = [tool(f"tool{number}") for number in range(start, start + 1000)]
        return {"tools": page, **({"nextCursor": str(start + 1000)} if start < 9000 else {})}
    if MODE == "pages":
        number = int(cursor or 0) + 1
        return {"tools": [tool(f"tool{number % 3}")], "nextCursor": str(number)}
    if MODE == "again":
        return {"tools": [tool("only")], "nextCursor": ""}
    if MODE == "none":
        return {"tools": []}
    if MODE == "bare":
        return {"tools": [*TOOLS, {"name": "bare"}]}
    extra_names = {
        "names": MISNAMED,
        "bombs": ["bomb", "promise"],
        "answers": ["half", "deep", "parts"],
    }.get(MODE, [])
    return {"tools": [*TOOLS, *map(tool, extra_names)]}


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            version = params["protocolVersion"] if MODE != "old" else "1999-01-01"
            capabilities = {"tools": {"listChanged": True}}
            info = {"name": "raw", "version": "1"}
            return {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
        case "tools/list":
            return listed(params.get("cursor", ""))
        case "tools/call":
            if params["name"] == "picture":
                return {"content": [{"type": "image", "data": PIXEL, "mimeType": "text/html"}]}
            if params["name"] == "deep":
                return {"content": [], "structuredContent": nested(300)}
            if params["name"] == "parts":
                return {"content": [{"type": "text", "text": "y"}] * 100_000}
            text = call(params["name"], params.get("arguments") or {})
            promised: dict[str, Any] = (
                {"structuredContent": {}} if params["name"] == "promise" else {}
            )
            return {"content": [{"type": "text", "text": text}], **promised, "isError": False}
    return None


def main() -> None:
    """Answer requests until the input ends. Some modes never get there."""
    note(f"start {os.getpid()}")
    if MODE == "hang":
        time.sleep(3600)
    while MODE == "garbage":
        print("this is no message", flush=True)
    if MODE == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen(  # SIGTERM stays ignored in it
            [sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True
        )
        note(f"child {child.pid}")
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        result = result_of(request["method"], request.get("params") or {})
        if result is None:
            send(id=request["id"], error={"code": -32601, "message": "no such method"})
        else:
            send(id=request["id"], result=result)
    if MODE == "stubborn":
        time.sleep(3600)


if __name__ == "__main__":
    main()
