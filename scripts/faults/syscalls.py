"""Every Nth system call of a command fails, as SQLite tests itself.

N rises until the command passes without a hit.

strace makes the call fail. It counts for each thread, so the Nth call of every thread fails. A
short write is one that wrote nothing; a full disk is a limit on the size of files, at which the
system cuts a write short and refuses the next. Of each command it says what has to be there before,
and what exit code 0 promises.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx

from conductor_cli.core.events import Event, RunFinished, RunStarted, StepFailed, StepFinished
from conductor_cli.state.trace_file import read_events
from scripts.faults.desk import CANARY, SETTINGS, Desk, desk
from scripts.faults.prefork import COLUMNS, Command, Ended
from scripts.faults.tries import Outcome, Tries
from tests.cli.stage import refuses, says
from tests.cli.test_model import entry
from tests.hub import hub
from tests.servers import SeenRequest, Wire
from tests.tiny_gguf import make

INTERRUPTED: Final = 130  # the exit code of a command that SIGINT has ended
ANSWER: Final = "alpha answers\n"


@dataclass(frozen=True, slots=True)
class Scene:
    """One command. `holds` says what is missing of what was promised, given how the command ended.

    `prepare` and the commands `ready` come before it. `environ` are variables of its environment,
    and opens what they name. `act` is what is done while the command runs, with a text that is
    added to its output.
    """

    words: tuple[str, ...]
    holds: Callable[[Desk, Ended], str]
    ready: Sequence[Sequence[str]] = ()
    prepare: Callable[[Desk], object] = lambda _: None
    given: str = ""
    environ: Callable[[ExitStack], Mapping[str, str]] = lambda _: {}
    act: Callable[[Command], str] = lambda _: ""
    on_terminal: bool = False

    def run(self, at: Desk, words: Sequence[str], *, fault: str = "", limit: int = -1) -> Ended:
        command = at.prefork.start(
            words, given=self.given, fault=fault, limit=limit, on_terminal=self.on_terminal
        )
        output = self.act(command)
        ended = command.ended()
        # The signal of `act` may come when the command is already ending by itself.
        code = INTERRUPTED if ended.code == -signal.SIGINT else ended.code
        return replace(ended, out=ended.out + output, code=code)


def _fails(condition: object, problem: str) -> str:
    return "" if condition else problem


def _traces(at: Desk) -> list[list[Event]]:
    return [list(read_events(path)) for path in (at.state / "traces").glob("*.jsonl")]


def _whole_traces(at: Desk) -> int:
    traces = [events for events in _traces(at) if events]
    return sum(isinstance(events[-1], RunFinished) for events in traces)


def _asked(at: Desk, ended: Ended) -> str:
    """The answer was printed, and trace and spending are whole.

    Without limits per day, a lost trace is only told.
    """
    if ended.code or (not at.must_store and "trace" in ended.err):
        return ""
    if ended.out != ANSWER:
        return f"exit code 0 with the answer {ended.out[:80]!r}"
    return _fails(_whole_traces(at) == 1, "exit code 0 without a whole trace")


def _ask_in_vain(at: Desk) -> None:
    """A run that stored its first step and failed in the second."""
    at.configure(f"revise = false\n{SETTINGS.replace('attempts = 2', 'attempts = 1')}")
    at.stage.plan = "alpha | - | Find it out.\nbeta | 1 | Answer it."
    answered = []

    async def once(request: SeenRequest, wire: Wire) -> None:
        answered.append(request)
        await (says("alpha answers") if len(answered) == 1 else refuses(500))(request, wire)

    at.stage.models = {"alpha": once, "beta": refuses(500)}
    at.prefork.run(["ask", "hi"])
    at.stage.models = {}


def _resumed(at: Desk, ended: Ended) -> str:
    """Nobody was called for the plan or the first step; a substitute may do the second."""
    has_paid_again = "planner" in at.billed
    for events in _traces(at):
        if events and isinstance(events[0], RunStarted) and events[0].resumed:
            has_paid_again = has_paid_again or _calls_first_step(events)
    if has_paid_again:
        return f"what was stored was paid again: {at.billed}"
    right = ("beta answers\n", "alpha answers\n")
    return _fails(
        ended.code or ended.out in right, f"exit code 0 with the answer {ended.out[:80]!r}"
    )


def _calls_first_step(events: Sequence[Event]) -> bool:
    ends = [event for event in events if isinstance(event, StepFinished | StepFailed)]
    return any(event.step == 1 and event.usage.calls for event in ends)


def _cases(at: Desk) -> None:
    at.configure()
    lines = ({"id": str(n), "question": f"{n} + 1?", "answer": str(n + 1)} for n in range(2))
    (at.home / "cases.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _evaluated(_: Desk, ended: Ended) -> str:
    """A run that failed is counted and told; the same command does it again."""
    counts = (
        []
        if ended.code
        else [system["n"] + system["failed"] for system in json.loads(ended.out)["systems"]]
    )
    return _fails(ended.code or counts == [2, 2], f"exit code 0 with {ended.out[:200]!r}")


def _configured(at: Desk, ended: Ended) -> str:
    """The settings are the old or the new ones, whole; with exit code 0 the new ones."""
    shown = at.prefork.run(["config", "show", "limits.cost"])
    if shown.code:
        return f"the settings cannot be read: {shown.err}"
    value = next(iter(shown.out.split()), "")
    is_right = value == "1" or (ended.code != 0 and value == "0.5")
    return _fails(is_right, f"limits.cost is {value!r}, exit {ended.code}")


def _old_key(at: Desk) -> None:
    at.prefork.run(
        ["keys", "set", "anthropic", "--insecure-storage"], given="sk-old-0123456789abcdef\n"
    )
    at.may_keep_key = at.home / "data/conductor-llm/keys.json"


def _key_stored(at: Desk, ended: Ended) -> str:
    shown = at.prefork.run(["keys", "list", "--json"])
    if shown.code:
        return f"the keys cannot be read: {shown.err}"
    stored = {row["provider"] for row in json.loads(shown.out) if row["state"] in {"stored", "set"}}
    missing = {"anthropic", "openai"} - stored if ended.code == 0 else {"anthropic"} - stored
    return _fails(not missing, f"the keys of {missing} are gone, exit {ended.code}")


def _imported(at: Desk, ended: Ended) -> str:
    """The model is listed, and its file whole, linked or where it lies.

    Or nothing is left of it.
    """
    shown = at.prefork.run(["model", "list", "--json"])
    if shown.code:
        return f"the models cannot be listed: {shown.err}"
    listed = any(row["name"] == "new" for row in json.loads(shown.out))
    left = (path for path in (at.home / "data/conductor-llm").rglob("*") if path.is_file())
    files = [path.name for path in left if path.stat().st_size > 100_000]
    if ended.code == 0:
        whole = listed and at.prefork.run(["model", "verify", "new"]).code == 0
        return _fails(whole, "exit code 0 and the model is not there")
    return _fails(listed or not files, f"exit code {ended.code} left {files}")


def _pruned(at: Desk, ended: Ended) -> str:
    left = _whole_traces(at)
    return _fails(left == 1 or (ended.code and left > 1), f"{left} traces left, exit {ended.code}")


def _exported(_: Desk, ended: Ended) -> str:
    whole = ended.out.rstrip().endswith("</html>")
    return _fails(whole or ended.code, f"exit code 0 with {len(ended.out)} characters of a page")


def _rated(at: Desk, ended: Ended) -> str:
    """The rating is there; one that is given later is not lost."""
    later = at.prefork.run(["trace", "rate", "last", "bad"])
    path = at.state / "ratings.jsonl"
    stored = path.read_text() if path.exists() else ""
    if later.code or '"verdict":"bad"' not in stored:
        return f"a later rating is lost: {later.err}"
    count = stored.count('"verdict":')
    return _fails(count == 2 or ended.code, f"exit code 0 and {count - 1} ratings stored")


def _hub(stack: ExitStack) -> Mapping[str, str]:
    """A hub on loopback with one model, and a registry that knows its hash."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    server = stack.enter_context(hub())
    tiny = make(directory / "tiny.gguf")
    server.commit("acme/small", {tiny.name: tiny.read_bytes()})
    (directory / "registry.toml").write_text(entry("small", tiny) + "\n")
    return {"HF_ENDPOINT": server.url, "CONDUCTOR_LLM_REGISTRY": str(directory / "registry.toml")}


def _pulled(at: Desk, ended: Ended) -> str:
    """The model is whole and verified, or the next pull brings it."""
    later = at.prefork.run(
        ["model", "verify", "small"] if ended.code == 0 else ["model", "pull", "small"]
    )
    return _fails(later.code == 0, f"exit code {ended.code}, and afterwards: {later.err}")


def _one_request(command: Command) -> str:
    """Wait for the server, ask it once, and end it. Returns the status and the answer."""
    answer = ""
    end = time.monotonic() + 8
    while not answer and time.monotonic() < end and command.is_running:
        try:
            body = {"model": "conductor", "messages": [{"role": "user", "content": "hi"}]}
            reply = httpx.post(
                f"http://127.0.0.1:{PORT}/v1/chat/completions", json=body, timeout=15
            )
            answer = json.dumps({"status": reply.status_code, "body": reply.json()})
        except (httpx.HTTPError, ValueError) as error:
            answer = (
                ""
                if isinstance(error, httpx.ConnectError)
                else json.dumps({"status": 0, "body": str(error)})
            )
            time.sleep(0.02)
    command.signal(signal.SIGINT)
    return f"\n{answer}"


def _served(at: Desk, ended: Ended) -> str:
    """A response of status 200 has the whole answer, and its run is stored."""
    line = ended.out.rpartition("\n")[2]
    result: dict[str, Any] = json.loads(line) if line else {"status": 0}
    if result["status"] != 200:  # the client saw that it failed
        is_told = line or ended.err or ended.code not in {0, INTERRUPTED}
        return _fails(is_told, "the server ended well and answered nothing")
    answer = result["body"]["choices"][0]["message"]["content"]
    if answer not in {"alpha answers", "beta answers"}:  # a substitute may do the step
        return f"status 200 with {answer[:80]!r}"
    return _fails(_whole_traces(at) == 1, "status 200 without a whole trace")


def _talk(command: Command) -> str:
    """Ask one question at the prompt and leave, as far as the chat goes along; then hang up."""
    screen = command.screen
    assert screen is not None

    def wait(until: Callable[[], bool]) -> None:
        """Wait for the next line of a chat, on a busy machine."""
        end = time.monotonic() + 30
        while command.is_running and not until() and time.monotonic() < end:
            time.sleep(0.02)

    for typed, expected in (("hi\r", "2 workers"), ("/quit\r", "alpha answers"), ("\x04", "/quit")):
        wait(lambda expected=expected: expected in screen.text or "conductor: " in screen.text)  # type: ignore[misc]
        if typed == "/quit\r":
            time.sleep(0.3)  # until the next prompt
        screen.type(typed)
    wait(lambda: False)
    command.signal(signal.SIGHUP)
    return ""


def _talked(at: Desk, ended: Ended) -> str:
    """What was answered is stored, or the user is told."""
    if "alpha answers" not in ended.out or "trace" in ended.out.lower():
        return ""
    return _fails(_whole_traces(at) >= 1, "an answer without a whole trace, and no word about it")


with socket.create_server(("127.0.0.1", 0)) as _server:
    PORT: Final[int] = _server.getsockname()[1]

# A terminal that wraps no explanation
WIDE: Final = {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
ASKED = (("ask", "hi"),)
HALF = ("config", "set", "limits.cost", "0.5")

SCENES: Final = {
    "config": Scene(("config", "set", "limits.cost", "1"), _configured, ready=(HALF,)),
    "keys": Scene(
        ("keys", "set", "openai", "--insecure-storage"),
        _key_stored,
        prepare=_old_key,
        given=f"{CANARY}\n",
    ),
    "rate": Scene(("trace", "rate", "last", "good"), _rated, ready=ASKED),
    "prune": Scene(("trace", "rm", "--keep", "1", "--yes"), _pruned, ready=ASKED * 3),
    "export": Scene(("trace", "export", "last"), _exported, ready=ASKED),
    "ask": Scene(("ask", "hi"), _asked),
    "ask-plain": Scene(
        ("ask", "hi"), _asked, prepare=lambda at: at.configure("[limits]\nattempts = 2")
    ),
    "resume": Scene(("ask", "--resume", "last"), _resumed, prepare=_ask_in_vain),
    "eval": Scene(
        ("eval", "HOME/cases.jsonl", "--systems", "alone", "--yes", "--json"),
        _evaluated,
        prepare=_cases,
    ),
    "import": Scene(
        ("model", "import", "HOME/tiny.gguf", "--name", "new"),
        _imported,
        prepare=lambda at: make(at.home / "tiny.gguf"),
    ),
    "pull": Scene(("model", "pull", "small"), _pulled, environ=_hub),
    "serve": Scene(("serve", "--port", str(PORT)), _served, act=_one_request),
    "chat": Scene(("chat",), _talked, act=_talk, on_terminal=True, environ=lambda _: WIDE),
}
"""The commands by name. HOME in a word is the home of the desk."""


@contextmanager
def opened(scene: Scene) -> Iterator[tuple[Desk, list[str]]]:
    """A desk on which everything is ready for the command, and its words.

    Raises where it fails without faults.
    """
    with ExitStack() as stack:
        at = stack.enter_context(desk(scene.environ(stack)))
        words = [word.replace("HOME", str(at.home)) for word in scene.words]
        scene.prepare(at)
        for before in scene.ready:
            at.prefork.run(before)
        at.save()
        at.reset()
        with at.prefork.warming():
            ended = scene.run(at, words)
        problem = at.problem(ended) or scene.holds(at, ended)
        if problem or ended.code not in {0, INTERRUPTED}:
            raise RuntimeError(f"without a fault: {problem} {ended.code} {ended.err}")
        yield at, words


FAULTS: Final = {
    "write": ("error=ENOSPC", "error=EIO", "retval=0"),
    "pwrite64": ("error=ENOSPC", "error=EIO"),
    "fsync,fdatasync": ("error=EIO", "error=ENOSPC"),
    "rename,renameat,renameat2": ("error=ENOSPC", "error=EIO"),
    "openat": ("error=EMFILE", "error=EIO", "error=ENOSPC", "error=EACCES"),
    "clone,clone3,vfork": ("error=EAGAIN",),
    "connect": ("error=EIO", "error=EAGAIN"),
    "mkdir,mkdirat": ("error=ENOSPC", "error=EACCES"),
    "unlink,unlinkat": ("error=EIO",),
}
"""The system calls, and what becomes of them."""

OWN_PIPE: Final = re.compile(r"write\((?![12]<)\d+<(pipe|anon_inode|socket):")
"""A write that wakes another thread. The system never refuses it for want of space, so such a try
does not count.
"""

MOST: Final = 400  # no command that is tried makes so many of these calls in one thread
SIZES: Final = (
    0,
    1,
    200,
    511,
    1024,
    1500,
    2048,
    4095,
    4096,
    6000,
    8192,
    12_288,
    20_000,
    32_768,
    50_000,
    300_000,
)
"""Bytes at which files cannot grow any more."""


def run(tries: Tries) -> None:
    """Try all of it, command by command."""
    for name, scene in SCENES.items():
        if not tries.skips(name):
            with opened(scene) as (at, words):
                disturb(tries, name, Disturbed(scene, at, words))


@dataclass(frozen=True, slots=True)
class Disturbed:
    """A command that is run again and again, each time with another fault."""

    scene: Scene
    at: Desk
    words: Sequence[str]

    def __call__(self, *, fault: str = "", limit: int = -1) -> Outcome:
        """Run it once with `fault`, as strace reads it, or with files of at most `limit` bytes."""
        self.at.reset()
        ended = self.scene.run(self.at, self.words, fault=fault, limit=limit)
        if fault and not ended.hits:
            return Outcome(hit=False)
        if any(OWN_PIPE.search(line) for line in ended.hits):
            return Outcome(weight=0)
        problem = self.at.problem(ended) or self.scene.holds(self.at, ended)
        where = ended.hits[0][:160] if ended.hits else ""
        return Outcome(problem=f"{problem} [{where}]" if problem else "")


def disturb(tries: Tries, name: str, command: Disturbed) -> None:
    """Let each system call of a command fail. Time that runs out is shared by the faults."""
    for size in SIZES:
        tries.attempt(f"{name} files of at most {size} bytes", partial(command, limit=size))
    left = []
    for calls, kinds in FAULTS.items():
        left += [(calls, kind) for kind in kinds]
    for number in range(1, MOST):
        for calls, kind in tuple(left):
            fault = partial(command, fault=f"{calls}:{kind}:when={number}")
            if not tries.attempt(f"{name} {calls} {kind} {number}", fault).hit:
                left.remove((calls, kind))
