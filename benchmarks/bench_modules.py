"""Which modules a question, a token and a request pass.

`conductor ask` and `conductor serve` run in a process of their own over a model server, and
`sys.setprofile` sees each call of their functions in every thread. Everything is done once before
it is traced, so that no import is counted.

- A question is handed on by the functions that wait for the rest: the stack at the moment at which
  the worker's request is written, with the stacks that began its tasks.
- A token is carried by the functions that are given it or give it on, from the bytes of the worker
  to those for the client.
- A request passes what it has called in `server` until its run begins, in its tasks and threads.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from http.client import HTTPConnection
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from figures import Figure, Table, newcomer
from loopback import Asked, choice, ending, listen, server, spelled

import conductor_cli
from conductor_cli.__main__ import main as run_command
from conductor_cli.core.chat import Chunk
from conductor_cli.core.events import StepDelta

PACKAGE: Final = Path(conductor_cli.__file__).parent
WORKER: Final = "worker"
QUESTION: Final = "Which island is far away?"
FIRST_QUESTION: Final = "Which island is near?"
"""What a server is asked before: the same question again may be answered by the run that is there.
"""
MARK: Final = "Zanzibar"
"""The token that is traced."""

PAUSE_SECONDS: Final = 0.4
"""How long the worker writes nothing before and after that token."""

BESIDE_THE_WAY: Final = ("core.", "state.")
"""Where a token is only looked at or changed, and where it is stored beside its way."""

TITLES: Final[dict[str, tuple[str, int]]] = {
    "question": ("modules that hand a question on, until the worker's request is written", 16),
    "token": ("modules that carry a token through `serve`, beside the core and the store", 15),
    "request": ("modules of the server that a request passes until its run begins", 20),
}
"""What is counted, and how many there may be."""

ABOUT: Final = (
    "`conductor ask` and `conductor serve` in mode mini, traced with `sys.setprofile` in every "
    "thread, after one question that is not."
)

TASK_STARTERS: Final = ("create_task", "ensure_future")
"""The functions of asyncio that begin a task of a coroutine."""


class Modules:
    """The modules of `conductor_cli` by their code; the code of an import has none."""

    def __init__(self) -> None:
        self._names: dict[CodeType, str] = {}

    def name(self, frame: FrameType) -> str:
        """Return the module of a function of ours, or an empty text."""
        code = frame.f_code
        if code not in self._names:
            path = Path(code.co_filename)
            is_ours = path.is_relative_to(PACKAGE) and code.co_name != "<module>"
            self._names[code] = module_name(path) if is_ours else ""
        return self._names[code]

    def on_stack(self, frame: FrameType | None) -> list[str]:
        """Return the modules of a stack, the outermost first, each once."""
        names = []
        while frame is not None:
            if name := self.name(frame):
                names.append(name)
            frame = frame.f_back
        return list(dict.fromkeys(reversed(names)))


def module_name(path: Path) -> str:
    """Return `run.runner` for its file."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


class Tracer:
    """Sees every call of a function of ours, and keeps what the three ways need."""

    def __init__(self) -> None:
        self.modules = Modules()
        self.is_open = False
        self.is_caused: ContextVar[bool] = ContextVar("is_caused", default=False)
        """Whether what is traced has led to this call: tasks and threads inherit it."""
        self.called: list[str] = []
        """The modules that were called while it was open, in their order."""
        self.carried: list[str] = []
        """Those that were given the token or gave it on, in their order."""
        self.sees_call: Callable[[str, FrameType], None] = no_call
        self._starts: dict[int, list[str]] = {}
        """The modules that began a task, by the identity of its coroutine."""

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Trace this thread, and every one that begins meanwhile."""
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def chain(self, frame: FrameType) -> list[str]:
        """Return the modules of a stack and of all stacks that began its tasks."""
        task = asyncio.current_task() if in_a_loop() else None
        begun = self._starts.get(id(task.get_coro()), []) if task is not None else []
        return list(dict.fromkeys([*begun, *self.modules.on_stack(frame)]))

    def _see(self, frame: FrameType, event: str, value: Any) -> None:
        module = self.modules.name(frame)
        if event == "call" and frame.f_code.co_name in TASK_STARTERS:
            self._keep_start(frame)
        elif event == "call" and module:
            self._see_call(module, frame)
        elif event == "return" and self.is_open and has_mark(value):
            self._carry(module)

    def _see_call(self, module: str, frame: FrameType) -> None:
        self.sees_call(module, frame)
        if not self.is_open or not self.is_caused.get():
            return
        if module not in self.called:
            self.called.append(module)
        if has_mark(list(frame.f_locals.values())):
            if frame.f_back is not None:
                self._carry(self.modules.name(frame.f_back))
            self._carry(module)

    def _carry(self, module: str) -> None:
        if module and module not in self.carried:
            self.carried.append(module)

    def _keep_start(self, frame: FrameType) -> None:
        for value in frame.f_locals.values():
            if inspect.iscoroutine(value):
                self._starts[id(value)] = self.chain(frame)


def no_call(_module: str, _frame: FrameType) -> None:
    """See nothing."""


def in_a_loop() -> bool:
    """Return whether this thread runs a loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def has_mark(value: object) -> bool:
    """Return whether a value is the token in one of its forms."""
    if isinstance(value, bytes | bytearray):
        return MARK.encode() in value
    if isinstance(value, str):
        return MARK in value
    if isinstance(value, Chunk | StepDelta):
        return MARK in value.text
    if isinstance(value, dict):
        return MARK in repr(value)
    if isinstance(value, list | tuple):
        return any(has_mark(item) for item in value)
    return False


# The ways, each in a process of its own


def trace_question(tracer: Tracer) -> list[str]:
    """Ask a question twice; return what hands the second one on."""
    handed_on: list[str] = []

    def see(module: str, frame: FrameType) -> None:
        is_request = module == "models.http_connections" and frame.f_code.co_name == "ask"
        if is_request and WORKER.encode() in frame.f_locals["body"]:
            handed_on[:] = tracer.chain(frame)

    run_conductor("ask", "--mode", "mini", QUESTION)
    tracer.sees_call = see
    with tracer.watch():
        run_conductor("ask", "--mode", "mini", QUESTION)
    return handed_on


def trace_request(tracer: Tracer) -> list[str]:
    """Serve two requests; return what the second one passes until its run begins."""

    def see(module: str, frame: FrameType) -> None:
        if module == "server.http.connections" and frame.f_code.co_name == "data_received":
            tracer.is_caused.set(tracer.is_open)
        elif module == "app.driver" and frame.f_code.co_name == "begin_run":
            tracer.is_open = False

    def use(address: str) -> None:
        read_answer(address, FIRST_QUESTION)
        tracer.is_open = True
        read_answer(address, QUESTION)

    tracer.sees_call = see
    with tracer.watch():
        serve(use)
    return [module for module in tracer.called if module.startswith("server.")]


def trace_token(tracer: Tracer) -> list[str]:
    """Serve two answers; return what carries a token of the second one."""
    is_second = threading.Event()

    def see(module: str, frame: FrameType) -> None:
        is_arrival = module == "models.http_connections" and frame.f_code.co_name == "data_received"
        if is_arrival and is_second.is_set() and has_mark(frame.f_locals["data"]):
            tracer.is_open = True
        tracer.is_caused.set(tracer.is_open)

    def use(address: str) -> None:
        read_answer(address, FIRST_QUESTION)
        is_second.set()
        for line in answer_lines(address, QUESTION):
            if has_mark(line):
                tracer.is_open = False

    tracer.sees_call = see
    with tracer.watch():
        serve(use)
    return [module for module in tracer.carried if not module.startswith(BESIDE_THE_WAY)]


WAYS: Final[dict[str, Callable[[Tracer], list[str]]]] = {
    "question": trace_question,
    "token": trace_token,
    "request": trace_request,
}


def run_conductor(*arguments: str) -> None:
    """Run the command in this process to its end."""
    sys.argv = ["conductor", *arguments]
    with suppress(SystemExit):
        run_command()


def serve(use: Callable[[str], None]) -> None:
    """Run a server in this process, and end it once `use` has used its address in a thread."""
    reading, writing = os.pipe()

    def work() -> None:
        with os.fdopen(reading, encoding="utf-8") as lines:
            address = lines.readline().split()[-1]
            try:
                use(address.removeprefix("http://"))
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

    client = threading.Thread(target=work)
    client.start()
    with os.fdopen(writing, "w", encoding="utf-8") as sys.stdout:
        run_conductor("serve", "--port", "0")
        client.join()


def answer_lines(address: str, question: str) -> Iterator[bytes]:
    """Yield the lines of a streamed answer as they come."""
    messages = [{"role": "user", "content": question}]
    body = json.dumps({"model": "conductor-mini", "stream": True, "messages": messages})
    connection = HTTPConnection(address)
    connection.request("POST", "/v1/chat/completions", body)
    yield from connection.getresponse()
    connection.close()


def read_answer(address: str, question: str) -> None:
    """Read a streamed answer to its end."""
    if not any(has_mark(line) for line in answer_lines(address, question)):
        raise SystemExit("the server gave no answer")


async def words(request: Asked) -> AsyncIterator[bytes]:
    """Answer as the planner, or as a worker with a pause before and after the traced token."""
    if request["model"] == WORKER:
        for word in ("It is ", f"{MARK} ", "today."):
            yield spelled(WORKER, choices=[choice({"content": word}, None)])
            await asyncio.sleep(PAUSE_SECONDS)
    else:
        yield spelled("planner", choices=[choice({"content": "A"}, None)])
    for event in ending("model", 3):
        yield event


def measure() -> Table:
    """Return how many modules each way passes, with their names."""
    figures: list[Figure] = []
    paragraphs = [ABOUT]
    for way, (title, bound) in TITLES.items():
        passed, beside = traced(way)
        called = f"{len(beside)} others are called beside it" if beside else ""
        figures.append(Figure(title, len(passed), "modules", bound, called))
        paragraphs.append(f"A {way}: {', '.join(passed)}.")
        if beside:
            paragraphs.append(f"Beside a {way}: {', '.join(beside)}.")
    return Table("modules", "\n\n".join(paragraphs), figures)


def traced(way: str) -> tuple[list[str], list[str]]:
    """Trace one way in a process of its own; return its modules, and those called beside it."""
    with server(__file__) as url, tempfile.TemporaryDirectory() as home:
        config = Path(home) / "config.toml"
        tables = "".join(
            f'[workers.{name}]\nkind = "openai-compatible"\nbase_url = "{url}"\nmodel = "{name}"\n'
            for name in (WORKER, "other")
        )
        config.write_text(f'[conductor]\nmodel = "{url}#planner"\n{tables}', encoding="utf-8")
        result = Path(home) / "result.json"
        environ = newcomer(home) | {"CONDUCTOR_LLM_CONFIG": str(config)}
        command = [sys.executable, __file__, way, str(result)]
        # A server that a signal has ended says so with its exit code
        subprocess.run(command, env=environ, check=False, stdout=subprocess.DEVNULL)
        passed, beside = json.loads(result.read_text(encoding="utf-8"))
    return passed, beside


def main(way: str, result: str) -> None:
    """Trace a way and write what it passed. The command ends the process as it ends any other."""
    tracer = Tracer()
    passed = WAYS[way](tracer)
    beside = [module for module in tracer.called if module not in passed]
    Path(result).write_text(json.dumps([passed, beside]), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:]:
        main(*sys.argv[1:])
    else:  # the upstream
        asyncio.run(listen(words))
