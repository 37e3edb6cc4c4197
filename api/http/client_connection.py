"""The connection of a request: what it does for the application beside ASGI.

What is around the routes, and the parser's library, take longer for a message than the message does: an answer that is
there as a whole is one write, and a piece of a stream goes past all of them.
"""

from __future__ import annotations

from typing import Final, Protocol
from weakref import ReferenceType

from starlette.types import Message, Scope

CONNECTION: Final = "palaver.connection"
"""The name of it in the extensions of a scope. ``api.edge.connections`` puts it there."""


class ClientConnection(Protocol):
    """A connection that writes answers itself. All of them are to the request that is under way on it."""

    async def send_answer(self, start: Message, body: bytes) -> None:
        """Write an answer whose head has its length, once the client has taken enough of what was written before."""

    async def send_chunk(self, piece: bytes) -> None:
        """Write a piece of the body that has begun and goes on, once the client has taken enough of it."""

    def write_chunk(self, piece: bytes) -> bool:
        """Write a piece if the client is there, and not behind; tell whether that is so."""

    def cut(self) -> None:
        """End the connection in the middle of the body, so that the client knows that something is missing."""


def connection_of(scope: Scope) -> ClientConnection | None:
    """Return the connection of a request, if it is one that writes answers itself."""
    connection: ReferenceType[ClientConnection] | None = scope.get("extensions", {}).get(CONNECTION)
    return None if connection is None else connection()


def chunked_connection_of(scope: Scope) -> ClientConnection | None:
    """Return the same, if a body of unknown length goes over it in chunks."""
    return connection_of(scope) if scope.get("http_version") == "1.1" else None
