"""A server of tools with the SDK: `python sdk_server.py PORT [FILE]`.

With a `FILE` it asks for a login.

The authorization server is the SDK's own, too. `FILE` has what it does, as JSON, read anew at each
request: `refuse` (the user says no), `state` (what comes back in place of the state), `revoked` (no
token is known any more), `needs` (the right that a call of a tool needs), `documents` (clients may be
named by the address of a document).
"""

from __future__ import annotations

import base64
import json
import secrets
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import Image, MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp.types import ToolAnnotations
from pydantic import AnyHttpUrl, AnyUrl
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

PORT = int(sys.argv[1])
BOOK = Path(sys.argv[-1])
URL = f"http://127.0.0.1:{PORT}"


class DescribedClient(OAuthClientInformationFull):
    """A client whose document names this machine with any port (RFC 8252, 7.3)."""

    def validate_redirect_uri(self, redirect_uri: AnyUrl | None) -> AnyUrl:
        assert redirect_uri is not None
        assert redirect_uri.host == "127.0.0.1"
        return redirect_uri


class Authority(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Knows its clients, codes and tokens, and notes what was asked for.

    That is in `BOOK` with the suffix `.log`.
    """

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: dict[str, AccessToken] = {}
        self.refreshes: dict[str, RefreshToken] = {}

    @property
    def rules(self) -> dict[str, Any]:
        rules: dict[str, Any] = json.loads(BOOK.read_text())
        return rules

    def note(self, case_name: str) -> None:
        with BOOK.with_suffix(".log").open("a") as log:
            log.write(f"{case_name}\n")

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        if client_id.startswith("https://"):
            return DescribedClient(client_id=client_id, token_endpoint_auth_method="none")
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.note("register")
        self.clients[client_info.client_id] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        self.note("authorize" if params.code_challenge else "authorize without PKCE")
        if str(client.client_id).startswith("https://"):
            self.note(f"document:{client.client_id}")
        if params.scopes:
            self.note("scopes:" + ",".join(params.scopes))
        state = self.rules.get("state", params.state)
        if self.rules.get("refuse"):
            return construct_redirect_uri(
                str(params.redirect_uri), error="access_denied", state=state
            )
        code = secrets.token_urlsafe(24)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=state)

    def issue(self, client_id: str, resource: str | None, scopes: list[str]) -> OAuthToken:
        # Longer than one item of a keyring may be.
        access = secrets.token_urlsafe(1200)
        refresh = secrets.token_urlsafe(24)
        self.tokens[access] = AccessToken(
            token=access, client_id=client_id, scopes=scopes, resource=resource
        )
        self.refreshes[refresh] = RefreshToken(
            token=refresh, client_id=client_id, scopes=scopes, resource=resource
        )
        return OAuthToken(
            access_token=access,
            refresh_token=refresh,
            expires_in=3600,
            scope=" ".join(scopes) or None,
        )

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        self.note("exchange")
        del self.codes[authorization_code.code]
        return self.issue(client.client_id, authorization_code.resource, authorization_code.scopes)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return None if self.rules.get("revoked") else self.refreshes.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        self.note("refresh")
        del self.refreshes[refresh_token.token]
        return self.issue(client.client_id, refresh_token.resource, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return None if self.rules.get("revoked") else self.tokens.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.tokens.pop(token.token, None)


LOGIN: dict[str, Any] = {
    "auth_server_provider": Authority(),
    "auth": AuthSettings(
        issuer_url=AnyHttpUrl(URL),
        resource_server_url=AnyHttpUrl(f"{URL}/mcp"),
        validate_token_resource=True,
        client_registration_options=ClientRegistrationOptions(enabled=True),
    ),
}
METADATA = {
    "issuer": f"{URL}/",
    "authorization_endpoint": f"{URL}/authorize",
    "token_endpoint": f"{URL}/token",
    "registration_endpoint": f"{URL}/register",
    "response_types_supported": ["code"],
    "code_challenge_methods_supported": ["S256"],
}
READ_ONLY = ToolAnnotations(read_only_hint=True)
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

server = MCPServer("sdk", **(LOGIN if sys.argv[2:] else {}))


@server.tool()
def hello() -> str:
    """Say hello."""
    return "hello"


if not sys.argv[2:]:

    @server.tool(annotations=READ_ONLY)
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool(annotations=READ_ONLY)
    def picture() -> Image:
        """An image."""
        return Image(data=PIXEL, format="png")

    @server.tool(annotations=READ_ONLY)
    def fail(why: str) -> str:
        """Fail."""
        raise ValueError(why)

    @server.tool(annotations=READ_ONLY)
    def flood(megabytes: int) -> str:
        """A result of so many megabytes."""
        return "x" * (megabytes << 20)


class Rules:
    """Follows `needs` and `documents` of the file."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        rules = LOGIN["auth_server_provider"].rules
        if rules.get("documents") and scope["path"] == "/.well-known/oauth-authorization-server":
            described = {**METADATA, "client_id_metadata_document_supported": True}
            await JSONResponse(described)(scope, receive, send)
            return
        needs = ""
        if scope["path"] == "/mcp":
            needs = rules.get("needs", "")
        if not needs:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        body = await request.body()
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        access_token = LOGIN["auth_server_provider"].tokens.get(token)
        if (
            access_token is not None
            and needs not in access_token.scopes
            and b'"tools/call"' in body
        ):
            challenge = f'Bearer error="insufficient_scope", scope="{needs}"'
            refusal = Response(status_code=403, headers={"WWW-Authenticate": challenge})
            await refusal(scope, receive, send)
            return
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def again() -> Message:
            return next(messages, None) or await receive()

        await self._app(scope, again, send)


if __name__ == "__main__":
    app: ASGIApp = server.streamable_http_app()
    if sys.argv[2:]:
        app = Rules(app)
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="error")
