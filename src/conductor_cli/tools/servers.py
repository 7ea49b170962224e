"""What the user has said of a server of tools. Values only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from conductor_cli.core.policy import UNKNOWN_PROVIDER, Recipient
from conductor_cli.core.tools import tool_selector

EVERY_TOOL: Final = "*"  # In a list of names of tools: every tool
THIS_MACHINE: Final = "this machine"
ASKS_FOR_LOGIN: Final = "it asks for a login: conductor tools test"
"""How the reason begins why a server cannot be used that asks its user to log in."""
WANTED_SCOPE: Final = "wanted_scope"
"""In what is kept of a login: the rights that the server asked for since, for the next login."""


@dataclass(slots=True, kw_only=True)
class Login:
    """A login (OAuth) at a server.

    `kept` is what is stored of it, which `keep` stores and `load` reads again.

    `client_metadata` is the address of a document that describes this client, empty for none.
    `visit` sends the user to an address and returns the query with which the browser came back to
    `redirect`. Without it nobody is there who could log in.
    """

    keep: Callable[[Mapping[str, Any]], None]
    load: Callable[[], dict[str, Any]]
    kept: dict[str, Any] = field(repr=False)
    redirect: str = "http://127.0.0.1/callback"
    client_metadata: str = ""
    visit: Callable[[str], Awaitable[Mapping[str, str]]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTable:
    """What the files say of a server of tools: a `command` on this machine, or a `url`.

    `env` names the variables that a command is given besides those that every program needs.
    `headers` go with each request to a url, and may hold a variable as `$NAME`. A call may take
    `seconds`. `only` are the tools that workers get, all of them if it is empty. `read_only` are
    tools that change nothing, whatever the server says; with `trust` its own word counts too.
    `allow` are tools that need no approval. `local` says that nothing leaves this machine: a
    program may talk to anybody, so this is not known unless the user says it. `client_metadata` is
    the address of a document that describes conductor to the server where its users log in, which
    is used where that server reads such documents.
    """

    command: tuple[str, ...] = ()
    url: str = ""
    about: str = ""
    env: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    seconds: float = 60.0
    only: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    trust: bool = True
    allow: tuple[str, ...] = ()
    local: bool = False
    client_metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolServer(ToolTable):
    """A server as a run has it, with the values of its `variables` and in its `headers`.

    `login` is for a url.
    """

    name: str
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    login: Login | None = field(default=None, repr=False, compare=False)

    @property
    def recipient(self) -> str:
        """Who may read what its tools are called with: a host, this machine, or unknown."""
        if self.local:
            return THIS_MACHINE
        if self.url:
            return urlsplit(self.url).hostname or UNKNOWN_PROVIDER
        return UNKNOWN_PROVIDER

    @property
    def recipient_facts(self) -> Recipient:
        return Recipient(
            name=tool_selector(self.name), provider=self.recipient, kind="mcp", local=self.local
        )
