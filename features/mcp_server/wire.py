"""The words of the protocol: versions, the message of a request, and the errors that end one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, StringConstraints

from api.http.headers import Header
from palaver.schemas.fields import DataModel, Strict

from .tables import WORDS

MODERN: Final = "2026-07-28"
"""The revision in which each request stands for itself."""
LEGACY: Final = ("2025-11-25", "2025-06-18", "2025-03-26")
"""Revisions that begin with ``initialize``; the newest first."""
SUPPORTED: Final = (MODERN, *LEGACY)
_PREFIX: Final = "io.modelcontextprotocol/"
VERSION: Final = f"{_PREFIX}protocolVersion"
CAPABILITIES: Final = f"{_PREFIX}clientCapabilities"
SERVER: Final = f"{_PREFIX}serverInfo"
TASKS: Final = f"{_PREFIX}tasks"
IDEMPOTENCY: Final = "palaver/idempotencyKey"
"""The key of ``_meta`` for an idempotency key, for hosts that add one without the model."""
_TEXT: Final[Mapping[str, Any]] = {"type": "string"}
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

ProtocolVersion = Annotated[
    str | None,
    Header(
        "MCP-Protocol-Version",
        lambda request: request.headers.get("mcp-protocol-version"),
        _TEXT,
        f"The revision that the client speaks; {MODERN} wants it in the body as well.",
    ),
]
McpMethod = Annotated[
    str | None,
    Header(
        "Mcp-Method",
        lambda request: request.headers.get("mcp-method"),
        _TEXT,
        f"The method of the body; required by {MODERN}.",
    ),
]
McpName = Annotated[
    str | None,
    Header(
        "Mcp-Name",
        lambda request: request.headers.get("mcp-name"),
        _TEXT,
        f"The name of the tool, or the id of the task; required by {MODERN} where there is one.",
    ),
]


class McpMessage(Strict):
    """A request of JSON-RPC, or a notification, which has no id."""

    jsonrpc: Literal["2.0"]
    id: int | Annotated[str, StringConstraints(max_length=256)] | None = None
    method: Annotated[str, StringConstraints(max_length=128)]
    params: dict[str, Any] = Field(default={})


class McpErrorData(DataModel):
    """The data of an error, for programs; some have more."""

    model_config = ConfigDict(extra="allow")
    code: str
    request_id: str


class McpError(DataModel):
    """The error of a JSON-RPC answer."""

    code: int
    message: str
    data: McpErrorData


class McpResult(DataModel):
    """A JSON-RPC answer with a result."""

    jsonrpc: Literal["2.0"]
    id: int | str
    result: dict[str, Any]


class McpFailure(DataModel):
    """A JSON-RPC answer with an error."""

    jsonrpc: Literal["2.0"]
    id: int | str
    error: McpError


class RpcFault(Exception):
    """A request that JSON-RPC answers with an error.

    ``word`` is the code of the problem, ``data`` what else clients read there. ``status`` is the one of HTTP for
    clients that go by it: older ones read no body of another than 200.
    """

    def __init__(
        self, code: int, message: str, word: str | None = None, data: Mapping[str, Any] = NOTHING, *, status: int = 200
    ) -> None:
        super().__init__(message)
        self.code = code
        self.word = WORDS[code] if word is None else word
        self.data = data
        self.status = status

    def error(self, request_id: str) -> dict[str, Any]:
        """The ``error`` of the answer to the request of this id of HTTP."""
        data = {**self.data, "code": self.word, "request_id": request_id}
        return {"code": self.code, "message": str(self), "data": data}


class ClientSide:
    """The client of a request, as far as the request describes it."""

    def __init__(self, modern: bool, capabilities: Mapping[str, Any]) -> None:
        self.modern: Final = modern
        extensions = capabilities.get("extensions")
        self.tasks: Final = modern and isinstance(extensions, dict) and TASKS in extensions
        """True if it knows tasks."""
        forms = capabilities.get("elicitation")
        self.forms: Final = isinstance(forms, dict) and (not forms or "form" in forms)
        """True if it can put a form before its user."""

    def complete(self, **result: Any) -> dict[str, Any]:
        """Return a result that is complete."""
        return {"resultType": "complete", **result} if self.modern else result
