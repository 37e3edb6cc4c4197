"""What a client of OpenHands is told by its socket, on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from api.openhands import sockets
from api.openhands.looking import look
from palaver.errors import StoreUnavailable
from tests.unit.test_api_sockets import serving
from tests.unit.test_openhands_api import Talk, begin


class Listener:
    """What hears a conversation."""

    def __init__(self, socket: ClientConnection, talk: Talk) -> None:
        self.talk = talk
        self.heard: list[str] = []
        """A word for each event: the status that a state has, or else its kind."""
        self._socket = socket

    async def until(self, enough: Callable[[list[str]], object]) -> list[str]:
        """What was heard, once it is enough."""
        while not enough(self.heard):
            self.heard.append(_word(orjson.loads(await asyncio.wait_for(self._socket.recv(), 20))))
        return self.heard


def _word(event: dict[str, Any]) -> str:
    match event:
        case {"key": "full_state", "value": {"execution_status": status}}:
            return f"full {status}"
        case {"key": "execution_status", "value": status}:
            return str(status)
        case _:
            return str(event["kind"])


@asynccontextmanager
async def listening(prepare: Callable[[Talk], Any] | None = None) -> AsyncIterator[Listener]:
    """To a conversation, after something was done with it."""
    async with serving() as served:
        talk = await begin(served.api)
        if prepare is not None:
            await prepare(talk)
        async with connect(f"{served.url}/openhands/sockets/events/{talk.id}", proxy=None) as socket:
            listener = Listener(socket, talk)
            await listener.until(len)
            yield listener


async def _finish(talk: Talk) -> None:
    await talk.say(run=True)
    await talk.api.finish(await talk.run())


async def test_a_stop_does_not_end_the_run_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening() as listener:
        talk, behind = listener.talk, asyncio.Event()

        async def late(*given: Any) -> Any:
            await behind.wait()
            return await look(*given)

        monkeypatch.setattr(sockets, "look", late)
        await _finish(talk)
        await listener.until(lambda heard: heard[-1] == "finished")
        await talk.say(run=True)
        behind.set()
        heard = await listener.until(lambda heard: heard.count("running") == 2)
        assert heard[heard.index("finished") :].count("full finished") == 0, heard


async def test_a_stop_is_told_again_as_clients_listen_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_AGAIN", (0.01, 0.01))
    async with listening(_finish) as listener:
        await listener.talk.ask("POST", "/run")
        await listener.until(lambda heard: heard.count("full finished") == 4)
        await _finish(listener.talk)
        await listener.until(lambda heard: heard.count("full finished") == 7)


async def test_while_the_store_is_away_there_is_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening() as listener:

        async def away(*given: Any) -> Any:
            monkeypatch.setattr(sockets, "look", look)
            raise StoreUnavailable

        monkeypatch.setattr(sockets, "look", away)
        await _finish(listener.talk)
        await listener.until(lambda heard: heard[-1] == "full finished")


async def test_what_is_no_uuid_is_no_conversation() -> None:
    async with serving() as served:
        async with connect(f"{served.url}/openhands/sockets/events/nothing", proxy=None) as socket:
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(socket.recv(), 20)
        assert socket.close_code == 4004
