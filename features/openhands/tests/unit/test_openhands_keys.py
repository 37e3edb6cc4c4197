"""A socket ends with its key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest
from starlette.types import Message

from palaver.vocabulary.ids import conversation_id
from tests.unit.api_world import World, world
from tests.unit.test_api_scopes import DIALECTS
from tests.unit.test_api_stored_keys import _BODY, CLOSED, bearer, made, within_a_second
from tests.waiting import PATIENCE, aeventually


@pytest.fixture
async def api() -> AsyncIterator[World]:
    async with world(CLOSED) as made:
        yield made


async def open_socket(api: World, number: UUID, *said: str, **headers: str) -> tuple[list[Message], asyncio.Task[None]]:
    """A WebSocket of a conversation: what it is told, as it comes, and its end."""
    told: list[Message] = []
    says: list[Message] = [
        {"type": "websocket.connect"},
        *({"type": "websocket.receive", "text": text} for text in said),
    ]

    async def receive() -> Message:
        if not says:
            await asyncio.Event().wait()
        return says.pop(0)

    async def send(message: Message) -> None:
        told.append(message)

    path = f"/openhands/sockets/events/{number}"
    given = [(b"host", b"127.0.0.1"), *((name.encode(), value.encode()) for name, value in headers.items())]
    scope = {
        "type": "websocket", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "scheme": "ws",
        "path": path, "raw_path": path.encode(), "root_path": "", "query_string": b"", "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80), "headers": given, "extensions": {},
    }  # fmt: skip
    return told, asyncio.create_task(api.app(scope, receive, send))


@pytest.mark.parametrize("greets", [True, False])
async def test_a_socket_ends_with_its_key(api: World, greets: bool) -> None:
    key, number = await made(api), UUID(int=7)
    body = {"id": conversation_id(number, 1), "agent": _BODY["agent"]}
    assert (await api.client.post("/v1/conversations", json=body, headers=bearer(key.key))).status_code == 201
    if greets:
        hello = f'{{"type": "auth", "session_api_key": "{key.key}"}}'
        told, task = await open_socket(api, number, hello)
    else:
        told, task = await open_socket(api, number, **{"x-session-api-key": key.key})
    await aeventually(lambda: len(told) >= 2)
    await api.store.api_keys.revoke(key.record.id)

    async def over() -> bool:
        return str(told[-1]["type"]) == "websocket.close"

    await within_a_second(over)
    assert told[-1]["code"] == 4001
    await task


async def test_a_socket_whose_key_cannot_be_looked_up_may_come_again(api: World) -> None:
    key, number = await made(api), UUID(int=7)
    api.server.connected = False
    told, task = await open_socket(api, number, f'{{"type": "auth", "session_api_key": "{key.key}"}}')
    await asyncio.wait_for(task, PATIENCE)
    assert [message["type"] for message in told] == ["websocket.accept", "websocket.close"]
    assert told[-1]["code"] == 1011
    api.server.connected = True


def test_its_sockets_are_among_those_that_scopes_are_tried_with() -> None:
    assert [route.path for dialect in DIALECTS for route in dialect.sockets] != []
