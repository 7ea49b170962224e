"""The commands that campaigns disturb: what has to be there before, and what exit code 0 promises."""

from __future__ import annotations

import json
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import httpx

from conductor_cli.core.events import RunFinished, RunStarted, StepFailed, StepFinished
from conductor_cli.state.trace_file import read_events
from scripts.faults.desk import CANARY, SETTINGS, Desk, desk
from scripts.faults.prefork import COLUMNS, Command, Ended
from tests.cli.stage import refuses, says
from tests.cli.test_model import entry
from tests.hub import hub
from tests.servers import SeenStep, Wire
from tests.tiny_gguf import make

INTERRUPTED: Final = 130
"""The exit code of a command that SIGINT has ended."""

ANSWER: Final = "alpha answers\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One command. `holds` says what is missing of what was promised, given how the command ended.

    `environ` are variables of its environment, and opens what they name. `act` is what is done while the command runs,
    with a text that is added to its output.
    """

    words: tuple[str, ...]
    holds: Callable[[Desk, Ended], str]
    prepare: Callable[[Desk], None] = lambda _: None
    given: str = ""
    environ: Callable[[ExitStack], Mapping[str, str]] = lambda _: {}
    act: Callable[[Command], str] = lambda _: ""
    on_terminal: bool = False

    def run(self, at: Desk, words: Sequence[str], *, fault: str = "", limit: int = -1) -> Ended:
        """Run it to its end."""
        command = at.prefork.start(words, given=self.given, fault=fault, limit=limit, on_terminal=self.on_terminal)
        said = self.act(command)
        ended = command.ended()
        # The signal of `act` may come when the command is already ending by itself.
        code = INTERRUPTED if ended.code == -signal.SIGINT else ended.code
        return replace(ended, out=ended.out + said, code=code)


def _fails(condition: object, problem: str) -> str:
    return "" if condition else problem


def _whole_traces(at: Desk) -> int:
    """How many traces have their end."""
    ends = [list(read_events(path))[-1:] for path in (at.state / "traces").glob("*.jsonl")]
    return sum(isinstance(event, RunFinished) for end in ends for event in end)


def _asked(at: Desk, ended: Ended) -> str:
    """The answer was printed, and trace and spending are whole."""
    if ended.code:
        return ""
    if ended.out != ANSWER:
        return f"exit code 0 with the answer {ended.out[:80]!r}"
    return _fails(_whole_traces(at) == 1, "exit code 0 without a whole trace")


def _asked_without_limits(at: Desk, ended: Ended) -> str:
    told = "trace" in ended.err
    return "" if ended.code or told else _asked(at, ended)


def _ask_in_vain(at: Desk) -> None:
    """A run that stored its first step and failed in the second."""
    at.configure(f"revise = false\n{SETTINGS.replace('attempts = 2', 'attempts = 1')}")
    at.stage.plan = "alpha | - | Find it out.\nbeta | 1 | Answer it."
    answered = []

    async def once(seen: SeenStep, wire: Wire) -> None:
        answered.append(seen)
        await (says("alpha answers") if len(answered) == 1 else refuses(500))(seen, wire)

    at.stage.models = {"alpha": once, "beta": refuses(500)}
    at.prefork.run(["ask", "hi"])
    at.stage.models = {}


def _paid_again(at: Desk) -> bool:
    """Whether a resumed run has called somebody for the first step. A substitute may do the second."""
    traces = [list(read_events(path)) for path in (at.state / "traces").glob("*.jsonl")]
    resumed = [each for each in traces if each and isinstance(each[0], RunStarted) and each[0].resumed]
    ends = [event for each in resumed for event in each if isinstance(event, StepFinished | StepFailed)]
    return any(event.step == 1 and event.usage.calls for event in ends)


def _resumed(at: Desk, ended: Ended) -> str:
    if "planner" in at.billed or _paid_again(at):
        return f"what was stored was paid again: {at.billed}"
    right = ("beta answers\n", "alpha answers\n")
    return _fails(ended.code or ended.out in right, f"exit code 0 with the answer {ended.out[:80]!r}")


def _cases(at: Desk) -> None:
    at.configure()
    lines = ({"id": str(n), "question": f"{n} + 1?", "answer": str(n + 1)} for n in range(2))
    (at.home / "cases.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _evaluated(_: Desk, ended: Ended) -> str:
    if ended.code:
        return ""
    systems = json.loads(ended.out)["systems"]
    # A run that failed is counted and told; the same command does it again.
    return _fails([each["n"] + each["failed"] for each in systems] == [2, 2], f"exit code 0 with {ended.out[:200]!r}")


def _configured(at: Desk, ended: Ended) -> str:
    """The settings are the old or the new ones, whole; with exit code 0 the new ones."""
    got = at.prefork.run(["config", "get", "limits.cost"])
    if got.code:
        return f"the settings cannot be read: {got.err}"
    value = got.out.strip().split()[0] if got.out.strip() else ""
    return _fails(
        value == "1" if ended.code == 0 else value in {"1", "0.5"}, f"limits.cost is {value!r}, exit {ended.code}"
    )


def _set_cost(at: Desk) -> None:
    at.prefork.run(["config", "set", "limits.cost", "0.5"])


def _old_key(at: Desk) -> None:
    at.prefork.run(["keys", "set", "anthropic", "--insecure-storage"], given="sk-old-0123456789abcdef\n")
    at.may_keep_key = at.home / "data/conductor-llm/keys.json"


def _key_stored(at: Desk, ended: Ended) -> str:
    got = at.prefork.run(["keys", "list", "--json"])
    if got.code:
        return f"the keys cannot be read: {got.err}"
    stored = {row["provider"] for row in json.loads(got.out) if row["state"] in {"stored", "set"}}
    missing = {"anthropic", "openai"} - stored if ended.code == 0 else {"anthropic"} - stored
    return _fails(not missing, f"the keys of {missing} are gone, exit {ended.code}")


def _tiny(at: Desk) -> None:
    make(at.home / "tiny.gguf")


def _imported(at: Desk, ended: Ended) -> str:
    """The model is listed, and its file there; or nothing is left of it."""
    got = at.prefork.run(["model", "list", "--json"])
    if got.code:
        return f"the models cannot be listed: {got.err}"
    listed = any(row["name"] == "new" for row in json.loads(got.out))
    data = at.home / "data/conductor-llm"
    files = [
        str(path.relative_to(data)) for path in data.rglob("*") if path.is_file() and path.stat().st_size > 100_000
    ]
    if ended.code == 0:
        return _fails(listed and files, "exit code 0 and the model is not there")
    return _fails(listed or not files, f"exit code {ended.code} left {files}")


def _three_runs(at: Desk) -> None:
    for _ in range(3):
        at.prefork.run(["ask", "hi"])


def _pruned(at: Desk, ended: Ended) -> str:
    left = _whole_traces(at)
    return _fails(left == 1 if ended.code == 0 else left >= 1, f"{left} traces left, exit {ended.code}")


def _one_run(at: Desk) -> None:
    at.prefork.run(["ask", "hi"])


def _exported(_: Desk, ended: Ended) -> str:
    whole = ended.out.rstrip().endswith("</html>")
    return _fails(whole or ended.code, f"exit code 0 with {len(ended.out)} characters of a page")


def _rated(at: Desk, ended: Ended) -> str:
    """The rating is there; one that is given later is not lost."""
    later = at.prefork.run(["trace", "rate", "last", "bad"])
    path = at.state / "ratings.jsonl"
    stored = path.read_text().count('"verdict":') if path.exists() else 0
    if later.code or '"verdict":"bad"' not in (path.read_text() if path.exists() else ""):
        return f"a later rating is lost: {later.err}"
    return _fails(stored == 2 or ended.code, f"exit code 0 and {stored - 1} ratings stored")


def _hub(stack: ExitStack) -> Mapping[str, str]:
    """A hub on loopback with one model, and a registry that knows its hash."""
    place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    server, tiny = stack.enter_context(hub()), make(place / "tiny.gguf")
    server.commit("acme/small", {tiny.name: tiny.read_bytes()})
    (place / "registry.toml").write_text(entry("small", tiny) + "\n")
    return {"HF_ENDPOINT": server.url, "CONDUCTOR_LLM_REGISTRY": str(place / "registry.toml")}


def _pulled(at: Desk, ended: Ended) -> str:
    """The model is whole and verified, or the next pull brings it."""
    later = at.prefork.run(["model", "verify", "small"] if ended.code == 0 else ["model", "pull", "small"])
    return _fails(later.code == 0, f"exit code {ended.code}, and afterwards: {later.err}")


def _one_request(command: Command) -> str:
    """Wait for the server, ask it once, and end it. Returns the status and the answer."""
    said, end = "", time.monotonic() + 8
    while not said and time.monotonic() < end and command.is_running:
        try:
            body = {"model": "conductor", "messages": [{"role": "user", "content": "hi"}]}
            reply = httpx.post(f"http://127.0.0.1:{PORT}/v1/chat/completions", json=body, timeout=15)
            said = json.dumps({"status": reply.status_code, "body": reply.json()})
        except (httpx.HTTPError, ValueError) as error:
            said = "" if isinstance(error, httpx.ConnectError) else json.dumps({"status": 0, "body": str(error)})
            time.sleep(0.02)
    command.signal(signal.SIGINT)
    return f"\n{said}"


def _served(at: Desk, ended: Ended) -> str:
    """A response of status 200 has the whole answer, and its run is stored."""
    said = ended.out.rpartition("\n")[2]
    found: dict[str, Any] = json.loads(said) if said else {"status": 0}
    if found["status"] != 200:  # the client saw that it failed
        return _fails(
            said or ended.err or ended.code not in {0, INTERRUPTED}, "the server ended well and answered nothing"
        )
    answer = found["body"]["choices"][0]["message"]["content"]
    if answer not in {"alpha answers", "beta answers"}:  # a substitute may do the step
        return f"status 200 with {answer[:80]!r}"
    return _fails(_whole_traces(at) == 1, "status 200 without a whole trace")


def _talk(command: Command) -> str:
    """Ask one question at the prompt and leave, as far as the chat goes along; then hang up."""
    screen = command.screen
    assert screen is not None
    for typed, said in (("hi\r", "2 workers"), ("/quit\r", "alpha answers"), ("\x04", "/quit")):
        end = time.monotonic() + CHAT_SECONDS
        while not (said in screen.text or "conductor: " in screen.text) and command.is_running:
            if time.monotonic() > end:
                break
            time.sleep(0.02)
        if typed == "/quit\r":
            time.sleep(0.3)  # until the next prompt
        screen.type(typed)
    end = time.monotonic() + CHAT_SECONDS
    while command.is_running and time.monotonic() < end:
        time.sleep(0.02)
    command.signal(signal.SIGHUP)
    return ""


CHAT_SECONDS: Final = 30.0
"""How long the next line of a chat may take, on a busy machine."""


def _talked(at: Desk, ended: Ended) -> str:
    """What was answered is stored, or the user is told."""
    if "alpha answers" not in ended.out or "trace" in ended.out.lower():
        return ""
    return _fails(_whole_traces(at) >= 1, "an answer without a whole trace, and no word about it")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


PORT: Final = _free_port()

WIDE: Final = {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
"""A terminal that wraps no explanation."""

SCENES: Final = {
    "config": Scene(words=("config", "set", "limits.cost", "1"), prepare=_set_cost, holds=_configured),
    "keys": Scene(
        words=("keys", "set", "openai", "--insecure-storage"), prepare=_old_key, holds=_key_stored, given=f"{CANARY}\n"
    ),
    "rate": Scene(words=("trace", "rate", "last", "good"), prepare=_one_run, holds=_rated),
    "prune": Scene(words=("trace", "prune", "--keep", "1", "--yes"), prepare=_three_runs, holds=_pruned),
    "export": Scene(words=("trace", "export", "last"), prepare=_one_run, holds=_exported),
    "ask": Scene(words=("ask", "hi"), holds=_asked),
    "ask-plain": Scene(
        words=("ask", "hi"), prepare=lambda at: at.configure("[limits]\nattempts = 2"), holds=_asked_without_limits
    ),
    "resume": Scene(words=("ask", "--resume", "last"), prepare=_ask_in_vain, holds=_resumed),
    "eval": Scene(
        words=("eval", "HOME/cases.jsonl", "--systems", "alone", "--yes", "--json"), prepare=_cases, holds=_evaluated
    ),
    "import": Scene(
        words=("model", "import", "HOME/tiny.gguf", "--copy", "--name", "new"), prepare=_tiny, holds=_imported
    ),
    "pull": Scene(words=("model", "pull", "small"), environ=_hub, holds=_pulled),
    "serve": Scene(words=("serve", "--port", str(PORT)), holds=_served, act=_one_request),
    "chat": Scene(
        words=("chat",),
        holds=_talked,
        act=_talk,
        on_terminal=True,
        environ=lambda _: WIDE,
    ),
}
"""The commands by name. HOME in a word is the home of the desk."""


@contextmanager
def opened(scene: Scene) -> Iterator[tuple[Desk, list[str]]]:
    """A desk on which everything is ready for the command, and its words. Raises where it fails without faults."""
    with ExitStack() as stack:
        at = stack.enter_context(desk(scene.environ(stack)))
        words = [word.replace("HOME", str(at.home)) for word in scene.words]
        scene.prepare(at)
        at.save()
        at.reset()
        at.prefork.learn_imports()
        ended = scene.run(at, words)
        at.prefork.warm()
        problem = at.problem(ended) or scene.holds(at, ended)
        if problem or ended.code not in {0, INTERRUPTED}:
            raise RuntimeError(f"without a fault: {problem} {ended.code} {ended.err}")
        yield at, words
