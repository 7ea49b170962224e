"""A WebSocket client of few words, for tests."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import urlsplit

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    CloseConnection,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)

ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})


class Socket:
    """One connection; use it in a `with` statement.

    `status` is that of a handshake which was refused, and `body` what came with it.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str] | None = None, path: str = "/v1/responses"
    ) -> None:
        address = urlsplit(url)
        self._socket = socket.create_connection((address.hostname, address.port), 60)
        self._protocol = WSConnection(ConnectionType.CLIENT)
        other_headers = dict(headers or {})
        host = other_headers.pop("host", address.netloc)
        pairs = [(name.encode(), value.encode()) for name, value in other_headers.items()]
        request = Request(host=host, target=path, extra_headers=pairs)
        self._socket.sendall(self._protocol.send(request))
        self._events: list[Any] = []
        self.status = 101
        self.body = b""
        self._shake_hands()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, value: Mapping[str, Any] | str) -> None:
        """Send a message."""
        text = value if isinstance(value, str) else json.dumps(value)
        self._socket.sendall(self._protocol.send(TextMessage(text)))

    def ask(self, value: Mapping[str, Any] | str) -> list[dict[str, Any]]:
        """Send a message; returns the events up to the end of its response."""
        self.send(value)
        events = [self.next_event()]
        while events[-1]["type"] not in ENDS:
            events.append(self.next_event())
        return events

    def next_event(self) -> dict[str, Any]:
        """The next message of the server."""
        text = ""
        while True:
            event = self._next()
            assert isinstance(event, TextMessage), event
            text += event.data
            if event.message_finished:
                return dict(json.loads(text))

    def _shake_hands(self) -> None:
        while True:
            event = self._next()
            if isinstance(event, AcceptConnection):
                return
            if isinstance(event, RejectConnection):
                self.status = event.status_code
                if not event.has_body:
                    return
            if isinstance(event, RejectData):
                self.body += event.data
                if event.body_finished:
                    return

    def _next(self) -> Any:
        while not self._events:
            received = self._socket.recv(1 << 16)
            self._protocol.receive_data(received or None)
            for event in self._protocol.events():
                if isinstance(event, Ping):
                    self._socket.sendall(self._protocol.send(event.response()))
                else:
                    self._events.append(event)
        event = self._events.pop(0)
        assert not isinstance(event, CloseConnection), event
        return event
