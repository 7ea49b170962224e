"""`conductor serve` as a process: a socket, the application, and an end that lets running requests end.

The application of a server that listens already, while the application is still being loaded on a thread.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import socket
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
    from conductor_cli.server.http import Service

if TYPE_CHECKING:
    from conductor_cli.server.http import Service
    from conductor_cli.server.options import ServerOptions


TURNS = 8
"""Turns of the loop before loading begins: enough to accept a request that waits already and to answer it."""

ALIVE = json.dumps({"status": "ok", "running": 0}).encode()


class LoadingApp:
    """Answers requests as soon as the application is loaded, and `/health` before. `start` it on the server's loop."""

    def __init__(self, load: Callable[[], Service]) -> None:
        self._load = load
        self._app: App | None = None
        self.service: Service | None = None
        """What the requests share; None until it is loaded."""

    def start(self, *, on_failure: Callable[[], None]) -> None:
        """Load the application. `on_failure` is called where that fails; `close` raises why."""
        self._loaded = asyncio.create_task(self._load_app())
        self._loaded.add_done_callback(lambda task: on_failure() if task.exception() else None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if self._app is None and scope["path"] == "/health":
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
        if self.service is not None:
            await self.service.close()

    async def _load_app(self) -> App:
        # The thread takes the interpreter for milliseconds at a time, and so would delay whoever asks for /health.
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self._app = await asyncio.to_thread(self._load_on_thread)
        return self._app

    def _load_on_thread(self) -> App:
        from conductor_cli.server.http import build_app

        self.service = self._load()
        app = build_app(self.service)
        gc.freeze()  # what is loaded by now stays: the collector would stop every stream to look at it again
        return app


LOOPBACK: Final = "127.0.0.1"

PORT: Final = 8080
"""The port where none is asked for; if it is taken, a free one."""

ENDING: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""The signals that end the server. Windows has no SIGHUP."""

CLOSING_SECONDS: Final = 5
"""How long connections have to end once all runs have."""


def check_packages() -> None:
    """Raise `ConfigError` where a package of the extra `serve` is not installed."""
    for package in ("prometheus_client", "starlette", "uvicorn"):
        if find_spec(package) is None:
            raise ConfigError(
                f"the server needs the package {package}, which is not installed",
                hint='pip install "conductor-llm[serve]"',
            )


def open_socket(host: str, port: int | None) -> socket.socket:
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


class HttpServer:
    """The server of one socket, which serves until a signal comes or `stop` is called.

    It accepts requests at once, while `load` still loads what answers them, on a thread: that takes as long as to start
    Python and to read the settings together.
    """

    def __init__(self, load: Callable[[], Service], access: AccessRules, opened: socket.socket) -> None:
        self._loading = LoadingApp(load)
        self._socket = opened
        self._server = _make_server(Access(self._loading, access), self._load)
        self._code = 0
        self._draining: asyncio.Task[None] | None = None
        self._ready = threading.Event()

    def run(self) -> int:
        """Serve until the end. Returns the exit code. Raises `ConductorError` if the application cannot be loaded."""
        with asyncio.Runner(loop_factory=self._server.config.get_loop_factory()) as runner:
            self._loop = runner.get_loop()
            self._ready.set()
            return runner.run(self._serve())

    def stop(self) -> None:
        """End as a signal does, from any thread: running requests may end first, and a second call stops them."""
        self._ready.wait(CLOSING_SECONDS)
        self._loop.call_soon_threadsafe(self._end, 0)

    async def _serve(self) -> int:
        for number in ENDING:
            # A program under nohup ignores SIGHUP, and goes on doing so. Windows and threads have no such handlers.
            with suppress(NotImplementedError, RuntimeError, ValueError):
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._loop.add_signal_handler(number, self._end, 128 + number)
        await self._server.serve(sockets=[self._socket])
        await self._loading.close()
        return self._code

    def _load(self) -> None:
        self._loading.start(on_failure=self._exit)

    def _exit(self) -> None:
        self._server.should_exit = True

    def _end(self, code: int) -> None:
        """Let the runs end; when asked a second time, stop them; a third time, wait for nothing."""
        service = self._loading.service
        if self._draining is None:
            self._code = code
            self._draining = asyncio.create_task(self._drain(service))
        elif service is not None and service.hub.going_on:
            service.hub.cancel_all()
        else:
            self._server.should_exit = self._server.force_exit = True

    async def _drain(self, service: Service | None) -> None:
        if service is not None:
            await service.hub.drain(service.drain_seconds)
        self._exit()


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
        origins=settings["serve.origins"], most_body=settings["serve.body_mb"] * 1_000_000,
    )  # fmt: skip


def make_service(options: ServerOptions) -> Service:
    """What all requests of a server share, by its settings. Raises `ConfigError`."""
    from conductor_cli.server.http import Service
    from conductor_cli.server.run_registry import HubLimits
    from conductor_cli.server.runs import Runs

    runs = Runs(options)
    settings: Settings = runs.settings()
    limits = HubLimits(
        parallel=settings["serve.parallel"], queue=settings["serve.queue"], grace=float(settings["serve.grace"])
    )
    return Service(runs=runs, limits=limits, drain_seconds=float(settings["serve.drain"]))


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
