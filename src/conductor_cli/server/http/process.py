"""`conductor serve` as a process.

A socket, the application, and an end that lets running requests end.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.config.settings import Settings
from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.server.client_keys import ClientKey, ClientKeys
from conductor_cli.server.http.access import Access, AccessRules, is_loopback_host
from conductor_cli.server.http.connections import quiet_logs, uvicorn_options
from conductor_cli.system.threads import close_threads

if TYPE_CHECKING:
    from conductor_cli.server.options import ServerOptions
    from conductor_cli.server.runs.run_registry import RunRegistry


LOOPBACK: Final = "127.0.0.1"

PORT: Final = 8080  # The port where none is asked for; if it is taken, a free one

ENDING: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""The signals that end the server. Windows has no SIGHUP."""

CLOSING_SECONDS: Final = 5  # How long connections have to end once all runs have
MAX_PAUSE: Final = 10.0  # Seconds in which balancers are told that the server ends
DRAIN_SECONDS: Final = 90.0  # How long running requests may go on when the server is told to end


def listen_at(host: str, port: int | None, *, shares_port: bool = False) -> socket.socket:
    """Return a socket that listens at `host`: at `port`; without one at 8080, or a free port.

    With `shares_port`, others of this user may listen there, too, if they want to share as well.
    Raises `UsageError`.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ports = (PORT, 0) if port is None else (port,)
    for tried in ports:
        opened = socket.socket(family, socket.SOCK_STREAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shares_port:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            opened.bind((host, tried))
            opened.listen(1024)
        except OSError as error:
            opened.close()
            problem = error
            continue
        return opened
    message = f"the server cannot listen at {host}:{ports[0]}: {problem.strerror or problem}"
    hint = "choose another port: --port N, or --port 0 for a free one"
    raise UsageError(message, hint=hint)


def handle_endings(end: Callable[[int], None]) -> None:
    """Have `end` called with the exit code when a signal comes that ends the server."""
    for number in ENDING:
        # A program under nohup ignores SIGHUP, and goes on doing so. Windows and threads have no
        # such handlers.
        with suppress(NotImplementedError, RuntimeError, ValueError):
            if signal.getsignal(number) != signal.SIG_IGN:
                asyncio.get_running_loop().add_signal_handler(number, end, 128 + number)


class HttpServer:
    """The server of one socket, which serves until a signal comes or `stop` is called.

    While `load` loads what answers requests, they wait in the queue of the socket, which listens
    already.
    """

    def __init__(
        self,
        load: Callable[[], RunRegistry],
        access: AccessRules,
        opened: socket.socket,
        parent: int | None = None,
    ) -> None:
        """`parent` is a pipe that ends with the process for which this one serves."""
        self._parent = parent
        self._load = load
        self._access = access
        self._socket = opened
        self._server: Any = None
        self.registry: RunRegistry | None = None  # What the requests share; None until it is loaded
        self._code = 0
        self._draining: asyncio.Task[None] | None = None
        self._ready = threading.Event()

    def run(self) -> int:
        """Serve until the end. Returns the exit code.

        Raises `ConductorError` if the application cannot be loaded.
        """
        import uvicorn

        # A thread gives way to the loop, which needs several turns for one answer
        sys.setswitchinterval(0.001)
        with (
            self._socket,
            asyncio.Runner(
                loop_factory=uvicorn.Config("", log_config=None).get_loop_factory()
            ) as runner,
        ):
            self._loop = runner.get_loop()
            self._ready.set()
            try:
                return runner.run(self._serve())
            finally:
                close_threads()

    def stop(self) -> None:
        """End as a signal does, from any thread.

        Running requests may end first, and a second call stops them.
        """
        self._ready.wait(CLOSING_SECONDS)
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._end, 0)

    async def _serve(self) -> int:
        import uvicorn

        from conductor_cli.server.http.routes import build_app

        handle_endings(self._end)
        registry = self._load()
        self.registry = registry
        if self._parent is not None:
            asyncio.get_running_loop().add_reader(self._parent, self._end_without_parent)
        app = Access(build_app(registry), self._access)
        # What is loaded by now stays: the collector would stop every stream to look at it again
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)  # nor at the many objects of a large body again and again
        quiet_logs()
        config = uvicorn.Config(
            app,
            **uvicorn_options(),
            date_header=False,
            lifespan="off",
            timeout_graceful_shutdown=CLOSING_SECONDS,
            timeout_keep_alive=75,
        )
        self._server = uvicorn.Server(config)
        self._server.capture_signals = nullcontext  # the signals are handled here
        tasks = [asyncio.create_task(work()) for work in registry.tasks]
        if (siblings := registry.starter.options.siblings) is not None:
            siblings.listen(registry.cancel)
            siblings.is_ready()
        await self._server.serve(sockets=[self._socket])
        await registry.drain(0.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await registry.starter.close()
        return self._code

    def _end_without_parent(self) -> None:
        assert self._parent is not None
        self._loop.remove_reader(self._parent)
        self._end(0)

    def _end(self, code: int) -> None:
        """Let the runs end; when asked a second time, stop them; a third time, wait for nothing."""
        registry = self.registry
        server = self._server
        assert registry is not None
        assert server is not None
        if self._draining is None:
            self._code = code
            if (
                hasattr(signal, "setitimer")
                and threading.current_thread() is threading.main_thread()
            ):
                # A thread that works on a request cannot be stopped, but the system can end the
                # process.
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.setitimer(
                    signal.ITIMER_REAL, MAX_PAUSE + DRAIN_SECONDS + 2 * CLOSING_SECONDS
                )

            async def leave() -> None:
                """Return when no balancer sends requests here, and what they have begun ended."""
                await registry.readiness.leave(MAX_PAUSE)
                await registry.drain(DRAIN_SECONDS)

            self._draining = asyncio.create_task(leave())
            self._draining.add_done_callback(lambda _: setattr(server, "should_exit", True))
        elif registry.going_on:
            registry.readiness.hurry()
            registry.cancel_all()
        else:
            server.should_exit = True
            server.force_exit = True


def access_rules(settings: Settings, host: str, key: ClientKey | None = None) -> AccessRules:
    """Return who may use a server at `host`: whoever has one of the user's keys, or `key`.

    Raises `ConfigError`.

    Without keys it is open to the programs of this machine, and to no other machine.
    """
    stored = ClientKeys(settings.paths.config)
    url_host = f"[{host}]" if ":" in host else host
    is_private = is_loopback_host(url_host)
    if not (is_private or key or stored.all()):
        message = (
            f"other machines can reach {host}, and the server has no keys, so everybody "
            "could spend your money"
        )
        hint = "add a key first: conductor serve keys add NAME"
        raise ConfigError(message, hint=hint)

    def valid_keys() -> Sequence[ClientKey]:
        """Return the keys that let a client in now: stored ones may come and go."""
        if key is None:
            return stored.all()
        return (key, *stored.all())

    return AccessRules(
        keys=valid_keys,
        needs_key=not is_private,
        origins=settings["serve.origins"],
    )


def make_registry(options: ServerOptions) -> RunRegistry:
    """Return the runs of a server, by its settings. Raises `ConfigError`."""
    from conductor_cli.server.runs.run_registry import RegistryLimits, RunRegistry
    from conductor_cli.server.runs.run_starter import RunStarter

    starter = RunStarter(options)
    parallel = starter.settings()["serve.parallel"]
    if options.siblings is not None:
        parallel = max(1, options.siblings.share_of(parallel))
    return RunRegistry(starter, RegistryLimits(parallel=parallel))
