"""The dialect that the route here is added to: its problems, its settings, and where to get a token for it."""

from __future__ import annotations

from typing import Any, Final

import orjson
from pydantic import Field
from starlette.requests import HTTPConnection
from starlette.responses import Response

from api.http.answers import answer
from api.http.headers import JSON
from api.http.problems import Problem
from api.http.requests import backend_of, below_root, request_id_of
from api.kit.dialects import Dialect
from api.kit.openapi import ErrorFormat
from palaver.config.environment import FromEnvironment
from palaver.operations import Backend
from palaver.schemas.fields import DataModel
from palaver.vocabulary.scopes import SCOPES

from .tables import PROBLEMS, TABLES

PREFIX: Final = "/mcp"
METADATA: Final = f"/.well-known/oauth-protected-resource{PREFIX}"
"""The place of the metadata of the resource that ``/mcp`` is, by RFC 9728."""
_ID: Final = "mcp_request"
_SCHEMA: Final[dict[str, Any]] = {
    "title": "McpProblem",
    "type": "object",
    "required": ["jsonrpc", "error"],
    "properties": {
        "jsonrpc": {"type": "string"},
        "id": {"type": ["string", "integer"], "description": "The request's own, if it was read."},
        "error": {
            "type": "object",
            "required": ["code", "message", "data"],
            "properties": {
                "code": {"type": "integer"},
                "message": {"type": "string"},
                "data": {
                    "type": "object",
                    "required": ["code", "request_id"],
                    "properties": {"code": {"type": "string"}, "request_id": {"type": "string"}},
                },
            },
        },
    },
}


class McpSettings(FromEnvironment, prefix="PALAVER_MCP_"):
    """The settings of operators for this dialect."""

    url: str | None = Field(default=None, pattern=r"^https?://[!-~]+/mcp$")
    """The address of ``/mcp`` as its clients have it; None takes the one that each request was sent to."""


def note_id(connection: HTTPConnection, request_id: int | str | None) -> None:
    """Note the id of the JSON-RPC request, for a problem that ends it."""
    connection.scope["state"][_ID] = request_id


def respond(problem: Problem, request: HTTPConnection) -> Response:
    """Return the answer to a request that a problem ended."""
    data: dict[str, Any] = {"code": problem.code, "request_id": request_id_of(request)}
    body: dict[str, Any] = {"jsonrpc": "2.0"}
    if (told := request.scope["state"].get(_ID)) is not None:
        body["id"] = told
    body["error"] = {"code": PROBLEMS[problem.code].rpc, "message": problem.sentence, "data": data}
    headers = dict(problem.headers)
    challenge = headers.get("WWW-Authenticate")
    if challenge is not None and backend_of(request).settings.oidc_issuer is not None:
        scheme, _, parameters = challenge.partition(" ")
        headers["WWW-Authenticate"] = f'{scheme} resource_metadata="{_metadata_url(request)}", {parameters}'
    status = 400 if problem.status == 422 else problem.status
    return Response(orjson.dumps(body), status, headers, media_type=JSON)


MCP: Final = Dialect(
    "mcp",
    PREFIX,
    respond,
    ErrorFormat(JSON, "McpProblem", _SCHEMA),
    about="The same runs by tools, for hosts of the Model Context Protocol.",
    tables=TABLES,
    settings=McpSettings,
    well_known=(METADATA,),
    package=__package__,
    modules=("serving",),
)


class McpResource(DataModel):
    """The metadata of a protected resource, as RFC 9728 has them."""

    resource: str
    authorization_servers: list[str]
    bearer_methods_supported: list[str] = Field(default=["header"])
    scopes_supported: list[str] = Field(default=list(SCOPES))
    resource_name: str = "Palaver"


@MCP.route(
    "GET",
    METADATA,
    scope=None,
    tag="mcp",
    summary="Ask where to get a token",
    answers={200: ("The metadata of the resource, with its authorization server.", McpResource)},
    problems=("not_found",),
)
async def resource(backend: Backend, connection: HTTPConnection) -> Response:
    """Wants no key. There are none without PALAVER_OIDC_ISSUER: keys come from the operator then."""
    issuer = backend.settings.oidc_issuer
    if issuer is None:
        raise Problem("not_found")
    return answer(McpResource(resource=_url(connection), authorization_servers=[issuer]))


def _url(connection: HTTPConnection) -> str:
    chosen = backend_of(connection).setting(McpSettings).url
    if chosen is not None:
        return chosen
    return f"{_root(connection)}{below_root(PREFIX)}"


def _metadata_url(connection: HTTPConnection) -> str:
    chosen = backend_of(connection).setting(McpSettings).url
    if chosen is not None:
        return chosen.removesuffix(PREFIX) + METADATA
    return f"{_root(connection)}{below_root(METADATA)}"


def _root(connection: HTTPConnection) -> str:
    """Return the server as the client has it: the name is one that was let in."""
    return f"{connection.url.scheme}://{connection.headers['host']}"
