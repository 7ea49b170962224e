"""Runs Python code that is not trusted, inside a sandbox.

It is a script of its own, and the sandbox's first process.

It is started with `python -c`, the text of this file, and refuses to work unless it is in a
namespace of processes of its own, because it ends every process that it sees. A message, in both
directions, is a line with a number of bytes, and these bytes. The first one is the job, as JSON,
and `way` says what is made of it:

    run     Each further message is one run of the code, in a new process: a line of JSON with
            `seconds`, then the standard input. The reply is a line of JSON (`end`, `code`,
            `raised`, `complaint`), then the output.
    serve   The code is run once. Each further message asks for a call, an attribute or a name of
            it, and the reply has the value as data, or an error. What is no data stays here, and
            the reply has its number.
    test    The code is a test of what another sandbox serves. The messages are those of `serve`,
            sent by this side; the last one says whether the test has passed.
    unit    The code and its unit tests are run in one process. The reply says how many have run
            and which failed.

In the last three, all messages but the job are of the process that runs the code: whoever reads
them must not trust them. Only `test` may be believed, since it runs nothing that a model wrote.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import datetime as dt
import decimal
import fractions
import importlib
import io
import itertools
import json
import os
import resource
import select
import signal
import sys
import types
from collections.abc import Iterator
from typing import Any

PR_SET_DUMPABLE = 4
COMPLAINT = 2000  # Bytes of an error that are told
RAISED = 120  # How a program ends that raised an error, but for `SystemExit`
MAX_LISTED = 1_000_000  # Values that are taken from an iterator of the other side
MAX_MESSAGE = 64 << 20  # Bytes of a message between a test and the code

EXPECTED_NAMES = (
    "string",
    "re",
    "datetime",
    "collections",
    "heapq",
    "bisect",
    "copy",
    "math",
    "random",
    "statistics",
    "itertools",
    "functools",
    "operator",
    "io",
    "sys",
    "json",
)


def prelude() -> str:
    """Return the names that LiveCodeBench gives to each program (`testing_util.py`)."""
    lines = [f"from {name} import *" for name in (*EXPECTED_NAMES, "builtins", "typing")]
    lines += [f"import {name}" for name in EXPECTED_NAMES]
    lines += ["sys.setrecursionlimit(50000)"]
    return "\n".join(lines)


# Messages


class Channel:
    """The two ends of the pipes to whoever started the sandbox."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading = reading
        self.writing = writing

    def read(self) -> bytes:
        """Return the next message. Ends this process where nobody will send one any more."""
        head = b""
        while not head.endswith(b"\n"):
            head += self._take(1)
        left = int(head)
        pieces = []
        while left:
            piece = self._take(min(left, 1 << 20))
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def _take(self, most: int) -> bytes:
        piece = os.read(self.reading, most)
        if not piece:
            os._exit(0)
        return piece

    def send(self, *parts: bytes) -> None:
        message = b"".join(parts)
        rest = memoryview(b"%d\n%s" % (len(message), message))
        while rest:
            rest = rest[os.write(self.writing, rest) :]


def main() -> None:
    """Read the job and do it."""
    channel = Channel(os.dup(0), os.dup(1))
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    job = json.loads(channel.read())
    if os.readlink("/proc/self/ns/pid") == job["namespace"]:  # noqa: PTH115 - not a path
        channel.send(b"not in a sandbox")
        return
    sys.path = list(filter(None, sys.path))  # nothing is imported from the working directory
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    set_dumpable(0)  # the code may not look into this process
    os.nice(5)  # it gives way to whoever waits for it
    if job["way"] == "run":
        serve_runs(job, channel)
    else:
        serve_code(job, channel)


def set_dumpable(value: int) -> None:
    """Set whether processes of the same user may trace this one and read its memory."""
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, value, 0, 0, 0)


def limit(limits: dict[str, int], seconds: float) -> None:
    """Set what the kernel enforces for this process and its children.

    A limit cannot be raised again.
    """
    wanted = {
        resource.RLIMIT_CPU: int(seconds) + 2,
        resource.RLIMIT_AS: limits["address_space"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: limits["scratch"],
        resource.RLIMIT_NOFILE: 256,
    }
    # Before Linux 5.14 the number is that of all processes of the user, not only of those in this
    # sandbox.
    if tuple(map(int, os.uname().release.split("-")[0].split(".")[:2])) >= (5, 14):
        wanted[resource.RLIMIT_NPROC] = limits["processes"]
    for kind, value in wanted.items():
        hard = resource.getrlimit(kind)[1]
        most = value
        if hard != resource.RLIM_INFINITY:
            most = min(value, hard)
        resource.setrlimit(kind, (most, most))


def end_everything() -> None:
    """Kill all other processes of the sandbox, as often as new ones appear."""
    while True:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def new_module(name: str) -> types.ModuleType:
    """Return a module that the code finds under this name, as if it had been imported."""
    module = types.ModuleType(name)
    module.__file__ = f"{name}.py"
    sys.modules[name] = module
    sys.argv = [module.__file__]
    return module


def run_source(source: str, module: types.ModuleType) -> None:
    """Run code in a module."""
    # What this script is for
    exec(compile(source, module.__file__ or "", "exec"), module.__dict__)  # noqa: S102


# run: a program that reads and writes


def serve_runs(job: dict[str, Any], channel: Channel) -> None:
    """Answer each run, until the other end is closed."""
    module = new_module("__main__")
    run_source(prelude(), module)  # once for all runs
    channel.send(b"ready")
    while True:
        head, _, stdin = channel.read().partition(b"\n")
        reply, output = run_once(job, module, json.loads(head)["seconds"], stdin, channel)
        channel.send(json.dumps(reply).encode(), b"\n", output)


def run_once(
    job: dict[str, Any], module: types.ModuleType, seconds: float, stdin: bytes, channel: Channel
) -> tuple[dict[str, Any], bytes]:
    """Return how one run ended, and its output."""
    given = os.memfd_create("stdin")
    with os.fdopen(os.dup(given), "wb") as file:
        file.write(stdin)
    os.lseek(given, 0, os.SEEK_SET)
    output = os.pipe()
    complaint = os.pipe()
    child = os.fork()
    if not child:
        become_program(job, module, seconds, [given, output[1], complaint[1]])
    for descriptor in (given, output[1], complaint[1]):
        os.close(descriptor)
    written = {output[0]: bytearray(), complaint[0]: bytearray()}
    end, status = collect(child, written, job["limits"]["output"], channel)
    for descriptor in written:
        os.close(descriptor)
    code = 0
    if end == "exit" and os.WIFSIGNALED(status):
        code = os.WTERMSIG(status)
        end = "signal"
        if code == signal.SIGXCPU:
            end = "time"
    elif end == "exit":
        code = os.WEXITSTATUS(status)
    raised = end == "exit" and code == RAISED
    if raised:
        code = 1
    text = bytes(written[complaint[0]])[-COMPLAINT:].decode("utf-8", "replace")
    reply = {"end": end, "code": code, "raised": raised, "complaint": text}
    return reply, bytes(written[output[0]])


def collect(
    child: int, written: dict[int, bytearray], most: int, channel: Channel
) -> tuple[str, int]:
    """Read what the program writes until it ends or has written too much.

    Why it ended, and its status.

    Everything that it has left behind is killed. How long it may take is for whoever started the
    sandbox, who ends it.
    """
    end = ""
    status = 0
    pending = set(written)
    while not end:
        pause = 0.02
        if not pending:
            pause = 0.002
        ready, _, _ = select.select([*pending, channel.reading], [], [], pause)
        if channel.reading in ready:  # nobody waits for the reply any more
            os._exit(0)
        for descriptor in ready:
            if not read_once(descriptor, written[descriptor], most):
                pending.discard(descriptor)
        if any(len(piece) > most for piece in written.values()):
            end = "output"
        process, ended = os.waitpid(child, os.WNOHANG)
        if process and not end:
            end = "exit"
            status = ended
    end_everything()
    for descriptor in pending:  # what was written before the end
        while len(written[descriptor]) <= most:
            if not read_once(descriptor, written[descriptor], most):
                break
    if any(len(piece) > most for piece in written.values()):
        end = "output"
    return end, status


def read_once(descriptor: int, written: bytearray, most: int) -> bool:
    """Read once, up to so many bytes in all; false at the end."""
    piece = os.read(descriptor, 1 << 16)
    written += piece[: most + 1 - len(written)]
    return bool(piece)


def become_program(
    job: dict[str, Any], module: types.ModuleType, seconds: float, streams: list[int]
) -> None:
    """Turn this new process into the program; it does not return."""
    code = RAISED
    try:
        for number, descriptor in enumerate([os.dup(stream) for stream in streams]):
            os.dup2(descriptor, number)
        os.closerange(3, 1 << 12)
        os.setsid()
        limit(job["limits"], seconds)
        set_dumpable(1)
        code = run_program(job["code"], module)
    except BaseException as error:  # noqa: BLE001 - it also may not go on as this script
        os.write(2, f"{type(error).__name__}\n".encode())
    finally:
        os._exit(code)


def run_program(source: str, module: types.ModuleType) -> int:
    """Run the program as Python would, its threads and its functions for the end included.

    The exit code.
    """
    import atexit
    import threading

    code = 0
    sys.stdin, sys.stdout, sys.stderr = (
        # descriptors
        open(number, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        for number, mode, errors in (
            (0, "r", "strict"),
            (1, "w", "strict"),
            (2, "w", "backslashreplace"),
        )
    )
    # of `from sys import *`
    module.__dict__["stdin"] = sys.stdin
    module.__dict__["stdout"] = sys.stdout
    try:
        run_source(source, module)
    except SystemExit as error:
        code = int(error.code is not None)
        if isinstance(error.code, int) and error.code & 0xFF != RAISED:
            code = error.code
    except BaseException as error:  # noqa: BLE001 - whatever the program raises
        code = RAISED
        sys.stderr.write(describe(error))
    # Waits for threads, as at the end of a program
    threading._shutdown()  # type: ignore[attr-defined] # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001 - likewise
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code & 0xFF


def describe(error: BaseException) -> str:
    """Return an error in one line. Its own text may fail, too."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"[:COMPLAINT] + "\n"
    except BaseException:  # noqa: BLE001 - of what a program defines
        return f"{name}\n"


# serve, test and unit: one process, which speaks for itself


def serve_code(job: dict[str, Any], channel: Channel) -> None:
    """Run the code in a process of its own and wait for its end; then end all others."""
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setsid()
            limit(job["limits"], job["seconds"])
            set_dumpable(1)
            sys.stdin = io.StringIO()
            # For ever
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
            sys.stderr = sys.stdout
            {"serve": serve_calls, "test": run_test, "unit": run_unit_tests}[job["way"]](
                job, channel
            )
            code = 0
        finally:
            os._exit(code)
    for descriptor in (channel.reading, channel.writing):
        os.close(descriptor)
    _, status = os.waitpid(child, 0)
    end_everything()
    if os.WIFSIGNALED(status):
        os._exit(128 + os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


def send_value(channel: Channel, value: dict[str, Any]) -> None:
    """Send a message as JSON."""
    channel.send(json.dumps(value).encode())


def serve_calls(job: dict[str, Any], channel: Channel) -> None:
    """Run the code, then answer what a test asks of it."""
    module = new_module("solution")
    if job["prelude"]:
        run_source(prelude(), module)
    try:
        for source in job["code"]:
            run_source(source, module)
    except BaseException as error:  # noqa: BLE001 - whatever the code raises
        send_value(channel, {"error": describe(error)})
        return
    send_value(channel, {"ready": True})
    objects = Objects()
    objects.number_of(module)
    while True:
        try:
            reply = answer_request(json.loads(channel.read()), module, objects)
        except BaseException as error:  # noqa: BLE001 - whatever the code raises
            reply = {"error": [type(error).__name__, describe(error)]}
        send_value(channel, reply)


def answer_request(
    request: dict[str, Any], module: types.ModuleType, objects: Objects
) -> dict[str, Any]:
    """Return the value of a call, an attribute or a name.

    Of a call, also what it has made of its arguments.
    """
    action = request["do"]
    if action == "name":
        name = request["name"]
        if name not in module.__dict__:
            raise NameError(f"name {name!r} is not defined")
        return {"value": encode(module.__dict__[name], objects)}
    if action == "method_of_class":  # LeetCode's: class Solution
        target = getattr(module.__dict__["Solution"](), request["name"])
        return {"value": encode(target, objects)}
    target = objects[request["of"]]
    if action == "attribute":
        return {"value": encode(getattr(target, request["name"]), objects)}
    if action == "assign":
        setattr(target, request["name"], decode(request["value"], objects.__getitem__))
        return {"value": None}
    if action == "truth":
        return {"value": bool(target)}
    if action == "list":
        return {"value": encode(list(itertools.islice(target, MAX_LISTED)), objects)}
    arguments = decode(request["arguments"], objects.__getitem__)
    named = decode(request["named"], objects.__getitem__)
    value = target(*arguments, **named)
    return {"value": encode(value, objects), "arguments": encode(list(arguments), objects)}


# Values as data. Of what is no data, the other side gets a number, and nothing of it is ever run
# there.

_TAGGED: dict[str, Any] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": collections.deque,
}
_WRITTEN: dict[str, Any] = {  # a date and time is a date, too, so it comes first
    "complex": complex,
    "decimal": decimal.Decimal,
    "fraction": fractions.Fraction,
    "datetime": dt.datetime,
    "date": dt.date,
    "time": dt.time,
}


class Objects(list):  # type: ignore[type-arg] # also runs in older Pythons
    """What is kept for the other side, each object once: the same one has the same number."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[int, int] = {}

    def number_of(self, value: Any) -> int:  # noqa: ANN401 - any value
        """Return the number of an object, which is kept from now on."""
        number = self._numbers.setdefault(id(value), len(self))
        if number == len(self):
            self.append(value)
        return number


def encode(value: Any, objects: Objects | None = None) -> Any:  # noqa: ANN401 - any value
    """Return a value in JSON.

    Raises `TypeError` for what is no data, unless it can be kept in `objects`.
    """
    if value is None or value is True or value is False:
        return value
    if isinstance(value, Remote):
        return {"object": object.__getattribute__(value, "_number")}
    if hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0:  # a number of numpy
        value = value.item()
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, bytearray):
        return {"bytearray": value.hex()}
    if isinstance(value, dict):
        pairs = [[encode(key, objects), encode(item, objects)] for key, item in value.items()]
        if isinstance(value, collections.OrderedDict):
            return {"ordered": pairs}
        return {"dict": pairs}
    if isinstance(value, list):
        return [encode(item, objects) for item in value]
    for name, kind in _TAGGED.items():
        if isinstance(value, kind):
            return {name: [encode(item, objects) for item in value]}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, dt.timedelta):
        return {"timedelta": [value.days, value.seconds, value.microseconds]}
    for name, kind in _WRITTEN.items():
        if isinstance(value, kind):
            if hasattr(value, "isoformat"):
                return {name: value.isoformat()}
            return {name: str(value)}
    name = getattr(value, "__name__", "")
    if isinstance(value, type) and vars(builtins).get(name) is value:
        return {"type": name}
    if objects is None:
        raise TypeError(f"{type(value).__name__} is no data")
    return {"object": objects.number_of(value)}


def decode(value: Any, find: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the value of JSON; `find` gives the object of a number."""
    if isinstance(value, list):
        return [decode(item, find) for item in value]
    if not isinstance(value, dict):
        return value
    ((name, held),) = value.items()
    if name == "object":
        return find(held)
    if name in ("bytes", "bytearray"):
        if name == "bytes":
            return bytes.fromhex(held)
        return bytearray.fromhex(held)
    if name in ("dict", "ordered"):
        pairs = ((decode(key, find), decode(item, find)) for key, item in held)
        if name == "dict":
            return dict(pairs)
        return collections.OrderedDict(pairs)
    if name in _TAGGED:
        return _TAGGED[name](decode(item, find) for item in held)
    if name == "range":
        return range(*held)
    if name == "timedelta":
        return dt.timedelta(*held)
    if name == "type":
        return vars(builtins)[held]
    kind = _WRITTEN[name]
    if hasattr(kind, "fromisoformat"):
        return kind.fromisoformat(held)
    return kind(held)


# test: the side of the tests, where no code of a model is run


class RemoteError(Exception):
    """The code raised an error of its own."""


class Remote:
    """Something of the other side that is no data: a function, a class or an object.

    It equals itself alone: what the code of a model says about equality does not count here.
    """

    peer: Any = None  # What asks the other side

    def __init__(self, number: int) -> None:
        object.__setattr__(self, "_number", number)

    def _ask(self, **request: Any) -> Any:  # noqa: ANN401 - any value
        return Remote.peer({"of": object.__getattribute__(self, "_number"), **request})

    def __call__(self, *arguments: object, **named: object) -> Any:  # noqa: ANN401 - any value
        return self._ask(do="call", arguments=list(arguments), named=named)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any value
        return self._ask(do="attribute", name=name)

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401 - any value
        self._ask(do="assign", name=name, value=encode(value))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._ask(do="list"))

    def __next__(self) -> Any:  # noqa: ANN401 - any value
        return self.__getattr__("__next__")()

    def __len__(self) -> int:
        try:
            return int(self.__getattr__("__len__")())
        except AttributeError as error:
            # Which is how Python's own types say that they have no length
            raise TypeError(str(error)) from None

    def __getitem__(self, key: object) -> Any:  # noqa: ANN401 - any value
        return self.__getattr__("__getitem__")(key)

    def __bool__(self) -> bool:
        return self._ask(do="truth") is True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and self._same(other)

    def _same(self, other: Remote) -> bool:
        number = object.__getattribute__(self, "_number")
        return bool(number == object.__getattribute__(other, "_number"))

    __hash__ = object.__hash__


def run_test(job: dict[str, Any], channel: Channel) -> None:
    """Run the tests with what the other side has, and say whether they passed."""

    def ask(request: dict[str, Any]) -> Any:  # noqa: ANN401 - any value
        arguments = request.pop("arguments", None)
        if arguments is not None:
            request["arguments"] = encode(arguments)
            request["named"] = encode(request["named"])
        send_value(channel, request)
        reply = json.loads(channel.read())
        if "error" in reply:
            name, text = reply["error"]
            kind = getattr(builtins, str(name), None)
            is_kind = isinstance(kind, type) and issubclass(kind, Exception)
            if kind is None or not is_kind or issubclass(kind, UnicodeError):
                raise RemoteError(text)
            raise kind(text)
        if arguments and reply["arguments"] != request["arguments"]:
            update(arguments, decode(reply["arguments"], Remote))
        return decode(reply["value"], Remote)

    Remote.peer = staticmethod(ask)
    send_value(channel, {"ready": True})
    channel.read()  # the other side is ready, too
    module = new_module("tests")
    verdict: dict[str, Any] = {"passed": False}
    try:
        run_source(job["before"], module)
        for name in job["modules"]:
            with contextlib.suppress(ImportError):
                module.__dict__.setdefault(name, importlib.import_module(name))
        for name in job["names"]:
            if name in job["tested"] or name not in module.__dict__:
                with contextlib.suppress(NameError):
                    module.__dict__[name] = ask({"do": "name", "name": name})
        run_source(job["tests"], module)
        verdict["passed"] = True
    except BaseException as error:  # noqa: BLE001 - a failure of a test, most likely
        verdict["why"] = describe(error).strip()
    send_value(channel, verdict)


def update(arguments: list[Any], after: list[Any]) -> None:
    """Change arguments as the call of the other side has changed its copies."""
    for before, now in zip(arguments, after):  # noqa: B905 - also runs in older Pythons
        if isinstance(before, (list, bytearray)):
            before[:] = now
        elif isinstance(before, (set, dict)):
            before.clear()
            before.update(now)
        elif isinstance(before, collections.deque):
            before.clear()
            before.extend(now)


# unit: unit tests, which have to be in the same process


def run_unit_tests(job: dict[str, Any], channel: Channel) -> None:
    """Run the code and its unit tests; say how many have run, and what failed.

    The word that the report must repeat is sent only when the module has been loaded. That stops
    code that writes a report of its own by accident or without knowing this file; it does not stop
    code that was written against it.
    """
    import unittest

    suite_class = unittest.TestLoader
    result_class = unittest.TestResult
    module = new_module("__test__")
    # As in the harness of BigCodeBench's authors
    module.__dict__.update(sys=sys, os=os, environ=os.environ)
    send_value(channel, {"ready": True})
    channel.read()
    try:
        for source in job["code"]:
            run_source(source, module)
        suite = suite_class().loadTestsFromTestCase(module.__dict__["TestCases"])
    except BaseException as error:  # noqa: BLE001 - whatever the code raises
        send_value(channel, {"why": describe(error).strip()})
        return
    send_value(channel, {"loaded": True})
    word = json.loads(channel.read())["word"]
    result = result_class()
    suite.run(result)
    failed = [test.id().rpartition(".")[2] for test, _ in (*result.failures, *result.errors)]
    failed += [test.id().rpartition(".")[2] for test in result.unexpectedSuccesses]
    why = ""
    if failed:
        why = (result.failures + result.errors)[0][1].strip().rpartition("\n")[2]
    send_value(
        channel,
        {"word": word, "ran": result.testsRun, "failed": failed[:20], "why": why[:COMPLAINT]},
    )


if __name__ == "__main__":
    main()
