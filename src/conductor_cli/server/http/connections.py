"""Bounds of time and size below HTTP, where a middleware sees nothing yet: connections cost little.

uvicorn waits without end for a client that never sends its headers, and for one that never reads
its answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.server.api.errors import error_body
from conductor_cli.server.api.request import RequestError
from conductor_cli.server.http.access import (
    MAX_HEADER_BYTES,
    UPLOAD_BYTES_PER_SECOND,
    UPLOADS,
    describe_error,
    new_request_id,
)

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Base
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
else:
    Base = object  # uvicorn belongs to an extra, and is loaded where a server starts


MAX_MESSAGE_BYTES: Final = 34_000_000  # Of one message on a WebSocket, as of a body
MAX_URL: Final = MAX_HEADER_BYTES // 2
"""Bytes of an address where the head of a request is too long: then the address is what is too
long.
"""


WRITE_BODY: Final = "conductor.write_body"  # Where the scope of a request has a `WriteBody`

WriteBody = Callable[[bytes], bool]
"""Writes a piece of a body that has begun, past all that ASGI puts around it: for a token, that
takes longer than the rest. False where the client has to be waited for, or is gone.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionRules:
    """Seconds for the headers of a request, for a whole one, and without a client's reading.

    A file that is uploaded has longer, by the bytes that have arrived.
    """

    head_seconds: float = 20.0
    request_seconds: float = 150.0
    stalled_seconds: float = 60.0
    most_connections: int = 3_000


def uvicorn_options(rules: ConnectionRules = ConnectionRules()) -> dict[str, Any]:
    """Return what `uvicorn.Config` needs so that connections are bounded.

    Nothing of a request gets into a log.
    """
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    return {
        "http": type(
            "BoundedConnection", (_BoundedConnection, HttpToolsProtocol), {"rules": rules}
        ),
        "ws": "wsproto",
        "ws_max_size": MAX_MESSAGE_BYTES,
        "ws_per_message_deflate": False,  # what is compressed has passed no bound on its size
        "access_log": False,
        "log_config": None,
        "proxy_headers": False,  # whoever reaches the port could write them
        "server_header": False,
    }


def quiet_logs() -> None:
    """Let the loggers of the server name where an error arose, without its text.

    It may quote a prompt.
    """
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        if not any(isinstance(log_filter, _WithoutValues) for log_filter in logger.filters):
            logger.addFilter(_WithoutValues())


class _WithoutValues(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            # What asyncio adds after the first line are representations of tasks and callbacks.
            record.msg = (
                f"{record.getMessage().strip().partition(chr(10))[0]}: {describe_error(error)}"
            )
            record.args = ()
            record.exc_info = None
            record.exc_text = None
        return True


class _BoundedConnection(Base):
    """One connection.

    A timer runs while a request is being sent, and one while nothing of an answer is read.
    """

    rules: ConnectionRules
    _sending: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _in_head = True
    _head = 0
    _arrived = 0  # Bytes of the body of this request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        if len(self.connections) > self.rules.most_connections:
            transport.abort()
            return
        self._expect(self.rules.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(None)
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head += len(data)
        super().data_received(data)
        # The bytes of a body that came with the head were counted too: only an endless head is
        # refused here.
        if self._in_head and self._head > MAX_HEADER_BYTES and not self.transport.is_closing():
            self._refuse(*self._endless_head)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._expect(self.rules.head_seconds)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head = 0
        self._arrived = 0
        self._begin = self.loop.time()
        self._expect(self.rules.request_seconds)
        super().on_headers_complete()
        if self.cycle is not None and self.cycle.scope is self.scope:
            self.scope[WRITE_BODY] = partial(self._write_body, self.cycle)  # type: ignore[typeddict-unknown-key]

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        if self.scope["path"] == UPLOADS:
            self._arrived += len(body)
            seconds = self.rules.request_seconds + self._arrived / UPLOAD_BYTES_PER_SECOND
            self._expect(self._begin + seconds - self.loop.time())

    def on_message_complete(self) -> None:
        self._in_head = True
        self._head = 0
        self._expect(None)
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        self._expect(None)  # a WebSocket has bounds of its own
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        del msg
        # An answer may be under way on this connection; nothing may be written into it.
        if (
            self.cycle is not None
            and self.cycle.response_started
            and not self.cycle.response_complete
        ):
            self.transport.close()
        elif len(getattr(self, "url", b"")) > MAX_URL:  # the parser refuses one of more than 64 KB
            self._refuse(*self._endless_head)
        else:
            self._refuse(400, "invalid_http", "this is not a valid HTTP request")

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stalled is None:
            # Closing would wait for the client to read what is in the buffer.
            self._stalled = self.loop.call_later(self.rules.stalled_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    def _write_body(self, cycle: RequestResponseCycle, content: bytes) -> bool:
        is_ready = cycle.response_started and cycle.chunked_encoding and not cycle.response_complete
        if (
            not is_ready
            or cycle.disconnected
            or self.flow.write_paused
            or self.transport.is_closing()
        ):
            return False
        if content:
            self.transport.write(b"%x\r\n%b\r\n" % (len(content), content))
        return True

    def _unsupported_upgrade_warning(self) -> None:
        """Nobody has to be told: the request is answered as any other."""

    def _expect(self, seconds: float | None) -> None:
        """Break the connection off in so many seconds; None for never."""
        if self._sending is not None:
            self._sending.cancel()
        self._sending = None if seconds is None else self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        if self._in_head and self.headers is not None and not self.transport.is_closing():
            self._refuse(408, "request_timeout", "the request did not arrive in time")
        else:
            self.transport.abort()

    @property
    def _endless_head(self) -> tuple[int, str, str]:
        if len(getattr(self, "url", b"")) > MAX_URL:
            return 414, "uri_too_long", f"the address has more than {MAX_URL} bytes"
        return 431, "headers_too_large", f"the headers have more than {MAX_HEADER_BYTES} bytes"

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer what is no request yet, and close."""
        path = getattr(self, "url", b"").decode("latin-1")
        request_id = new_request_id()
        body = json.dumps(
            error_body(RequestError(status, code, message), path, request_id)
        ).encode()
        head = (
            f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\ncontent-length: "
            f"{len(body)}\r\n"
        )
        ids = f"x-request-id: {request_id}\r\nrequest-id: {request_id}\r\n"
        self.transport.write(f"{head}{ids}connection: close\r\n\r\n".encode() + body)
        self.transport.close()
