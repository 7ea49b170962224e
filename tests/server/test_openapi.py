"""`GET /openapi.json` describes what the server answers, and nothing else."""

from __future__ import annotations

import httpx
from starlette.routing import Route

from conductor_cli.server.http import build_app
from conductor_cli.server.openapi import OPERATIONS, describe_api
from conductor_cli.server.options import ServerOptions
from conductor_cli.server.process import make_registry
from tests.cli.stage import Stage
from tests.server.plain_api import serving

OF_THE_PAGE = ("/v1/conductor/runs/{run}/frames", "/v1/conductor/runs/{run}/steps/{number}")
"""What only the page asks for."""


def test_every_operation_has_a_route(stage: Stage) -> None:
    stage.configure()
    app = build_app(make_registry(ServerOptions(flags={})))
    routed = {
        (method.lower(), "/".join("{id}" if part[:1] == "{" else part for part in route.path.split("/")))
        for route in app.routes
        if isinstance(route, Route) and not route.path.startswith(OF_THE_PAGE)
        for method in route.methods or ()
    }
    described = {(method, path) for method, path, *_ in OPERATIONS}
    assert described <= routed
    assert {each for each in routed if each[0] != "head"} - described == {("get", "/openapi.json")}


def test_the_document_is_served(stage: Stage) -> None:
    """It needs no key, and says what each request must have."""
    stage.configure()
    stage.inside("serve", "keys", "add", "a")
    with serving() as server:
        document = httpx.get(f"{server.url}/openapi.json").json()
    assert document == describe_api(document["info"]["version"])
    body = document["paths"]["/v1/messages"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    name = body["$ref"].rpartition("/")[2]
    assert document["components"]["schemas"][name]["required"] == ["model", "messages"]
