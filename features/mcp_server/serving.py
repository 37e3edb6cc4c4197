"""The one route: each request stands for itself, in the revision that it names, and no session is kept."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Final

import orjson
from starlette.requests import HTTPConnection
from starlette.responses import Response

from api.http.answers import answer_json
from api.http.audit import only_read
from api.http.requests import below_root, request_id_of
from palaver.operations import Backend, Caller
from palaver.secrets.api_keys import PREFIX as PREFIX_OF_KEYS
from palaver.secrets.redaction import redact
from palaver.version import __version__

from .calls import McpCall
from .dialect import MCP, PREFIX, note_id
from .tables import HEADER_MISMATCH, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, UNSUPPORTED_VERSION
from .tasks import serve_task
from .tools import INSTRUCTIONS, list_tools
from .wire import (
    CAPABILITIES,
    LEGACY,
    MODERN,
    SERVER,
    SUPPORTED,
    TASKS,
    VERSION,
    ClientSide,
    McpFailure,
    McpMessage,
    McpMethod,
    McpName,
    McpResult,
    ProtocolVersion,
    RpcFault,
)

_OF_LISTS: Final = 60_000
_OF_SERVER: Final = 3_600_000
"""Milliseconds for which a client may take an answer for fresh."""
_NAMED: Final = {"tools/call": "name", "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}
"""The parameter that stands in a header, too, by method."""
_TOKEN: Final = re.compile("[!-~]{1,32}")
_KEYS: Final = (PREFIX_OF_KEYS, "eyJ", "sk-")
"""What keys of the store, tokens, and keys of providers begin with."""
_ENCODED: Final = ("=?base64?", "?=")
_A_RUN: Final = "run_00" + "0" * 26
_AN_ACTION: Final = "act_0123456789abcdef01234567"
_IDENTITY: Final = {"name": "palaver", "title": "Palaver", "version": __version__}


def _example(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def _example_call(name: str, **arguments: Any) -> dict[str, Any]:
    return _example("tools/call", {"name": name, "arguments": arguments})


def _example_task(method: str, **params: Any) -> dict[str, Any]:
    meta = {VERSION: MODERN, CAPABILITIES: {"extensions": {TASKS: {}}}}
    return _example(method, {"taskId": _A_RUN, **params, "_meta": meta})


@MCP.route(
    "POST",
    PREFIX,
    scope=("runs:submit", "runs:read", "runs:act", "actions:approve"),
    keeps_to=True,
    tag="mcp",
    summary="Send a message of the Model Context Protocol",
    examples={
        "list the tools": _example("tools/list", {}),
        "start a run": _example_call("run_start", agent="support", message="Where is my order?", wait_s=0),
        "go on": _example_call("run_start", conversation="conv_00" + "0" * 26, message="and then?"),
        "look": _example_call("run_get", run_id=_A_RUN, after=0),
        "approve": _example_call("run_answer", run_id=_A_RUN, answers=[{"action_id": "all", "decision": "approve"}]),
        "bring an output": _example_call(
            "run_answer", run_id=_A_RUN, answers=[{"action_id": _AN_ACTION, "content": {"lines": 12}}]
        ),
        "cancel": _example_call("run_cancel", run_id=_A_RUN),
        "ask an agent": _example_call("agent_support", message="Where is my order?"),
        "look at a task": _example_task("tasks/get"),
        "answer a task": _example_task("tasks/update", inputResponses={_AN_ACTION: {"action": "decline"}}),
        "cancel a task": _example_task("tasks/cancel"),
    },
    answers={
        200: ("The result, or an error of JSON-RPC.", McpResult | McpFailure),
        202: ("A notification: nothing is done.", None),
    },
    problems=("not_found", "not_durable"),
    audited=False,
)
async def call(
    backend: Backend,
    caller: Caller,
    connection: HTTPConnection,
    version: ProtocolVersion,
    method: McpMethod,
    name: McpName,
    message: McpMessage,
) -> Response:
    """One JSON-RPC request a body, answered in JSON; docs/reference/mcp.md has the methods and tools. A tool that
    refuses says so in its result, with `isError`."""
    note_id(connection, message.id)
    if message.id is None:
        only_read()
        if "id" in message.model_fields_set:
            fault = RpcFault(INVALID_REQUEST, "a request has an id: a text or a whole number")
            return _answered(None, 400, error=fault.error(request_id_of(connection)))
        return Response(status_code=202)
    older = (None, *LEGACY)
    legacy = _meta(message).get(VERSION) in older and (version in older or message.method == "initialize")
    calling: McpCall | None = None
    try:
        client = ClientSide(False, {}) if legacy else _modern(message, version, method, name)
        calling = McpCall(backend, caller, connection, client)
        result = await _result(message, backend, caller, client, calling)
    except RpcFault as fault:
        only_read()
        return _answered(message.id, 200 if legacy else fault.status, error=fault.error(request_id_of(connection)))
    started = {} if calling.started is None else {"Location": below_root(f"/v1/runs/{calling.started}")}
    return _answered(message.id, 200, started, result=result)


def _answered(
    request_id: int | str | None, status: int, headers: dict[str, str] | None = None, **told: Any
) -> Response:
    body = {"jsonrpc": "2.0", **({} if request_id is None else {"id": request_id}), **told}
    return answer_json(orjson.dumps(body), status, headers)


async def _result(
    message: McpMessage, backend: Backend, caller: Caller, client: ClientSide, calling: McpCall
) -> dict[str, Any]:
    """Return the result of a request.

    Raises:
        RpcFault: JSON-RPC has an error for it.
        InsufficientScope, NotDurable, StoreUnavailable: as use cases raise them; and what Redis raises.
    """
    params = message.params
    match message.method, client.modern:
        case "tools/call", _:
            return await calling.of(params)
        case (("tasks/get" | "tasks/update" | "tasks/cancel"), True):
            return await serve_task(message.method, params, backend, caller, client)
    only_read()
    match message.method, client.modern:
        case "tools/list", _:
            return await _tools(params, backend, caller, client)
        case "server/discover", True:
            return client.complete(
                supportedVersions=SUPPORTED,
                capabilities={"tools": {}, "extensions": {TASKS: {}}},
                instructions=INSTRUCTIONS,
                ttlMs=_OF_SERVER,
                cacheScope="public",
                _meta={SERVER: _IDENTITY},
            )
        case "initialize", False:
            return _initialized(params)
        case "ping", False:
            return {}
    raise RpcFault(METHOD_NOT_FOUND, "There is no such method here.", status=404)


async def _tools(params: dict[str, Any], backend: Backend, caller: Caller, client: ClientSide) -> dict[str, Any]:
    cursor = params.get("cursor")
    if not isinstance(cursor, str | None):
        raise RpcFault(INVALID_PARAMS, "a cursor is a text")
    tools, following = await list_tools(backend, caller, cursor)
    result = client.complete(tools=tools)
    if client.modern:
        result |= {"ttlMs": _OF_LISTS, "cacheScope": "private"}
    return result if following is None else {**result, "nextCursor": following}


def _initialized(params: dict[str, Any]) -> dict[str, Any]:
    wanted = params.get("protocolVersion")
    if not isinstance(wanted, str):
        raise RpcFault(INVALID_PARAMS, "params need a protocolVersion")
    chosen = wanted if wanted in LEGACY else LEGACY[0]
    return {
        "protocolVersion": chosen,
        "capabilities": {"tools": {}},
        "serverInfo": _IDENTITY,
        "instructions": INSTRUCTIONS,
    }


def _meta(message: McpMessage) -> dict[str, Any]:
    meta = message.params.get("_meta")
    return meta if isinstance(meta, dict) else {}


def _modern(message: McpMessage, version: str | None, method: str | None, name: str | None) -> ClientSide:
    """Return the client of a request that stands for itself: what is said twice in it is the same.

    Raises:
        RpcFault: it is not, or something is missing.
    """
    meta = _meta(message)
    declared, capabilities = meta.get(VERSION), meta.get(CAPABILITIES)
    if declared is None and version not in SUPPORTED:
        raise _unsupported(version or "")
    if not isinstance(declared, str):
        raise RpcFault(INVALID_PARAMS, f"params need a _meta with {VERSION}, a text", status=400)
    if version != declared:
        raise _mismatch("MCP-Protocol-Version")
    if declared != MODERN:
        raise _unsupported(declared)
    if not isinstance(capabilities, dict):
        raise RpcFault(INVALID_PARAMS, f"params need a _meta with {CAPABILITIES}, an object", status=400)
    if method != message.method:
        raise _mismatch("Mcp-Method")
    named = _NAMED.get(message.method)
    # Of a task only the extension wants it, and clients leave it out.
    stated = name is not None or named == "name"
    if named is not None and stated and _decoded(name) != message.params.get(named):
        raise _mismatch("Mcp-Name")
    return ClientSide(True, capabilities)


def _decoded(header: str | None) -> str | None:
    """Return the text of a header that may be in base64; None if it is none."""
    opening, closing = _ENCODED
    if header is None or not (header.startswith(opening) and header.endswith(closing)):
        return header
    try:
        return base64.b64decode(header[len(opening) : -len(closing)], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def _mismatch(header: str) -> RpcFault:
    return RpcFault(
        HEADER_MISMATCH, f"The header {header} is missing, or says something else than the body.", status=400
    )


def _unsupported(requested: str) -> RpcFault:
    # A client may have its key there.
    shown = _TOKEN.fullmatch(requested) and not requested.startswith(_KEYS) and redact(requested) == requested
    data = {"supported": SUPPORTED, "requested": requested if shown else "no date"}
    return RpcFault(UNSUPPORTED_VERSION, "This revision of the protocol is not spoken here.", data=data, status=400)
