"""Names of hosts that came with requests: what they lead to is judged, and nothing else is connected to."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import aiohttp
import pytest

from palaver.errors import ConfigurationError, ErrorClass, classify
from workers.connections.guarded_resolver import GuardedResolver


class Names:
    """A name server that answers with something else each time."""

    def __init__(self, *answers: tuple[str, ...]) -> None:
        self._answers = list(answers)

    async def resolve(self, host: str, port: int, family: int) -> list[dict[str, Any]]:
        found = self._answers.pop(0)
        return [
            {"hostname": host, "host": each, "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0}
            for each in found
        ]

    async def close(self) -> None:
        pass


def resolver(*answers: tuple[str, ...]) -> GuardedResolver:
    made = GuardedResolver()
    made._names = Names(*answers)  # type: ignore[assignment]
    return made


async def test_what_is_never_asked_is_left_out() -> None:
    guarded = resolver(("169.254.169.254", "10.0.0.7", "127.0.0.1"))
    assert [each["host"] for each in await guarded.resolve("llm.example.com", 80)] == ["10.0.0.7"]


@pytest.mark.parametrize("address", ["169.254.169.254", "127.0.0.1", "::1", "0.0.0.0"])
async def test_a_name_that_leads_nowhere_else_is_refused_for_good(address: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        await resolver((address,)).resolve("llm.example.com", 80)
    assert classify(refused.value).error_class is ErrorClass.INVALID_REQUEST


async def test_localhost_is_this_machine() -> None:
    assert await resolver(("127.0.0.1",)).resolve("localhost", 80)


async def test_a_connection_goes_where_the_name_led_and_a_name_that_turns_leads_nowhere() -> None:
    asked = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    names = resolver(("127.0.0.1",), ("169.254.169.254",))
    connector = aiohttp.TCPConnector(resolver=names, use_dns_cache=False)
    async with server, aiohttp.ClientSession(connector=connector) as session:
        async with session.get(f"http://api.localhost:{port}/") as answer:
            assert await answer.text() == "hi"
        with pytest.raises(ConfigurationError):
            await session.get(f"http://api.localhost:{port}/")
    assert len(asked) == 1
    assert f"Host: api.localhost:{port}".encode() in asked[0]
