"""`conductor serve` as a process: a socket, the application, and an end that lets running requests end.

The application of a server that listens already, while the application is still being loaded on a thread.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.config import Settings
from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.server.access import Access, AccessRules, is_loopback_host
from conductor_cli.server.client_keys import ClientKey, ClientKeys
from conductor_cli.server.connections import quiet_logs, uvicorn_options

if TYPE_CHECKING:
    from conductor_cli.server.access import App, Receive, Scope, Send
    from conductor_cli.server.options import ServerOptions
    from conductor_cli.server.run_registry import RunRegistry


TURNS = 8
"""Turns of the loop before loading begins: enough to accept a request that waits already and to answer it."""

ALIVE = json.dumps({"status": "ok", "running": 0}).encode()


class DeferredApp:
    """Answers requests once the application is loaded, `/health` and `/livez` before. `start` it on the loop."""

    def __init__(self, load: Callable[[], RunRegistry]) -> None:
        self._load = load
        self._app: App | None = None
        self.registry: RunRegistry | None = None
        """What the requests share; None until it is loaded."""

    def start(self, *, on_failure: Callable[[], None]) -> None:
        """Load the application. `on_failure` is called where that fails; `close` raises why."""
        self._loaded = asyncio.create_task(self._load_app())
        self._loaded.add_done_callback(lambda task: on_failure() if task.exception() else None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if self._app is None and scope["path"] in {"/health", "/livez"}:
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]}
            )
            await send({"type": "http.response.body", "body": ALIVE})
            return
        app = self._app
        if app is None:
            app = await asyncio.shield(self._loaded)
        await app(scope, receive, send)

    async def close(self) -> None:
        """End the runs and close the models. Raises what loading raised."""
        await self._loaded
        if self.registry is not None:
            await self.registry.drain(0.0)
            for each in self.registry.background:
                await each.close()
            await self.registry.runs.close()

    async def _load_app(self) -> App:
        # The thread takes the interpreter for milliseconds at a time, and so would delay whoever asks for /health.
        for _ in range(TURNS):
            await asyncio.sleep(0)

        def load() -> App:
            from conductor_cli.server.http import build_app

            self.registry = self._load()
            app = build_app(self.registry)
            gc.freeze()  # what is loaded by now stays: the collector would stop every stream to look at it again
            return app

        self._app = await asyncio.to_thread(load)
        for each in self.registry.background if self.registry is not None else ():
            each.start()
        return self._app


LOOPBACK: Final = "127.0.0.1"

PORT: Final = 8080
"""The port where none is asked for; if it is taken, a free one."""

ENDING: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""The signals that end the server. Windows has no SIGHUP."""

CLOSING_SECONDS: Final = 5
"""How long connections have to end once all runs have."""

MAX_PAUSE: Final = 10.0
"""Seconds in which balancers are told that the server ends."""

SWITCHING: Final = 0.001
"""Seconds after which a thread gives way to the loop, which needs several turns for one answer."""

DRAIN_SECONDS: Final = 90.0
"""How long running requests may go on when the server is told to end."""


def check_packages() -> None:
    """Raise `ConfigError` where a package of the extra `serve` is not installed."""
    for package in ("prometheus_client", "python_multipart", "starlette", "uvicorn"):
        if find_spec(package) is None:
            raise ConfigError(
                f"the server needs the package {package}, which is not installed",
                hint='pip install "conductor-llm[serve]"',
            )


def listen_at(host: str, port: int | None) -> socket.socket:
    """A socket that listens at `host`: at `port`; without one at 8080, or a free port. Raises `UsageError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for tried in (PORT, 0) if port is None else (port,):
        opened = socket.socket(family, socket.SOCK_STREAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            opened.bind((host, tried))
            opened.listen(1024)
        except OSError as error:
            opened.close()
            problem = error
            continue
        return opened
    raise UsageError(
        f"the server cannot listen at {host}:{PORT if port is None else port}: {problem.strerror or problem}",
        hint="choose another port: --port N, or --port 0 for a free one",
    )


def handle_endings(end: Callable[[int], None]) -> None:
    """Have `end` called with the exit code when a signal comes that ends the server of the running loop."""
    for number in ENDING:
        # A program under nohup ignores SIGHUP, and goes on doing so. Windows and threads have no such handlers.
        with suppress(NotImplementedError, RuntimeError, ValueError):
            if signal.getsignal(number) != signal.SIG_IGN:
                asyncio.get_running_loop().add_signal_handler(number, end, 128 + number)


class HttpServer:
    """The server of one socket, which serves until a signal comes or `stop` is called.

    It accepts requests at once, while `load` still loads what answers them, on a thread: that takes as long as to start
    Python and to read the settings together.
    """

    def __init__(self, load: Callable[[], RunRegistry], access: AccessRules, opened: socket.socket) -> None:
        self._loading = DeferredApp(load)
        self._socket = opened
        self._server = _make_server(Access(self._loading, access), lambda: self._loading.start(on_failure=self._exit))
        self._code = 0
        self._draining: asyncio.Task[None] | None = None
        self._ready = threading.Event()

    def run(self) -> int:
        """Serve until the end. Returns the exit code. Raises `ConductorError` if the application cannot be loaded."""
        sys.setswitchinterval(SWITCHING)
        with asyncio.Runner(loop_factory=self._server.config.get_loop_factory()) as runner:
            self._loop = runner.get_loop()
            self._ready.set()
            return runner.run(self._serve())

    def stop(self) -> None:
        """End as a signal does, from any thread: running requests may end first, and a second call stops them."""
        self._ready.wait(CLOSING_SECONDS)
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._end, 0)

    async def _serve(self) -> int:
        handle_endings(self._end)
        await self._server.serve(sockets=[self._socket])
        await self._loading.close()
        return self._code

    def _exit(self) -> None:
        self._server.should_exit = True

    def _end(self, code: int) -> None:
        """Let the runs end; when asked a second time, stop them; a third time, wait for nothing."""
        registry = self._loading.registry
        if self._draining is None:
            self._code = code
            if hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread():
                # A thread that works on a request cannot be stopped, but the system can end the process.
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.setitimer(signal.ITIMER_REAL, MAX_PAUSE + DRAIN_SECONDS + 2 * CLOSING_SECONDS)
            self._draining = asyncio.create_task(_leave(registry))
            self._draining.add_done_callback(lambda _: self._exit())
        elif registry is not None and registry.going_on:
            registry.readiness.hurry()
            registry.cancel_all()
        else:
            self._server.should_exit = self._server.force_exit = True


async def _leave(registry: RunRegistry | None) -> None:
    """Return when no balancer sends requests here any more, and what they have begun has ended."""
    if registry is not None:
        await registry.readiness.leave(MAX_PAUSE)
        await registry.drain(DRAIN_SECONDS)


def access_rules(settings: Settings, host: str, key: ClientKey | None = None) -> AccessRules:
    """Who may use a server that listens at `host`: whoever has one of the user's keys, or `key`. Raises `ConfigError`.

    Without keys it is open to the programs of this machine, and to no other machine.
    """
    stored = ClientKeys(settings.paths.config)
    is_private = is_loopback_host(f"[{host}]" if ":" in host else host)
    if not (is_private or key or stored.all()):
        raise ConfigError(
            f"other machines can reach {host}, and the server has no keys, so everybody could spend your money",
            hint="add a key first: conductor serve keys add NAME",
        )
    return AccessRules(
        keys=stored.all if key is None else lambda: (key, *stored.all()), needs_key=not is_private,
        origins=settings["serve.origins"],
    )  # fmt: skip


def make_registry(options: ServerOptions) -> RunRegistry:
    """The runs of a server, by its settings. Raises `ConfigError`."""
    from conductor_cli.server.run_registry import RegistryLimits, RunRegistry
    from conductor_cli.server.runs import Runs

    runs = Runs(options)
    return RunRegistry(runs, RegistryLimits(parallel=runs.settings()["serve.parallel"]))


def _make_server(app: Any, load: Callable[[], None]) -> Any:  # noqa: ANN401 - uvicorn is of an extra
    import uvicorn

    class Server(uvicorn.Server):
        """Leaves signals to whoever runs it, and calls `load` as soon as it accepts connections."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            load()

        @contextmanager
        def capture_signals(self) -> Generator[None, None, None]:
            yield

    quiet_logs()
    config = uvicorn.Config(
        app, **uvicorn_options(), date_header=False, lifespan="off",
        timeout_graceful_shutdown=CLOSING_SECONDS, timeout_keep_alive=75,
    )  # fmt: skip
    return Server(config)
