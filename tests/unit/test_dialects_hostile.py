"""Whatever stands in a field of a body, no dialect answers 500: each field of a request that would do something, with
what no client means in its place, over HTTP."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import orjson
import pytest

from tests.feature_cases import brought_to_tests
from tests.unit.mcp_host import MODERN
from tests.unit.served_api import served
from tests.unit.waiting_runs import Waiting, waiting_in
from tests.waiting import PATIENCE

VALUES: Final[Sequence[Any]] = (None, True, -1, 1.5, "", "\x00", [], {}, [None], {"a": [None]})
BODIES: Final = brought_to_tests("bodies", "hostile")
"""Of each dialect, requests with all of their fields."""
Path = tuple[str | int, ...]


@pytest.mark.slow
@pytest.mark.parametrize("bodies", BODIES.values(), ids=BODIES)
async def test_no_field_is_an_error_of_ours(bodies: Callable[[Waiting], Iterator[tuple[str, Any]]]) -> None:
    async with served() as (api, address, _):
        for url, body in bodies(await waiting_in(api)):
            for path in _paths(body):
                for value in VALUES:
                    status, said = await _sent(address, url, _with(body, path, value))
                    assert status < 500, (url, path, value, said)
                    assert b'"code":-32603' not in said, (url, path, value, said)


async def _sent(address: str, url: str, body: Any) -> tuple[int, bytes]:
    """The status, and the beginning of what is answered. Written as it goes over the wire: a client of HTTP takes as
    long as what it asks."""
    content = orjson.dumps(body)
    # What goes on is answered after a second.
    lines = ["content-type: application/json", f"content-length: {len(content)}", "x-stainless-read-timeout: 11"]
    if "tasks/update" in str(body):
        lines += [f"mcp-protocol-version: {MODERN}", "mcp-method: tasks/update"]
    host, port = address.removeprefix("http://").split(":")
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write("\r\n".join([f"POST {url} HTTP/1.1", f"host: {host}", *lines, "", ""]).encode() + content)
            head = await reader.readuntil(b"\r\n\r\n")
            return int(head.split()[1]), await _beginning(reader, head.lower())
        finally:
            writer.close()
            await writer.wait_closed()


async def _beginning(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """All of a body whose length is said, else its first chunk."""
    if length := re.search(rb"content-length: (\d+)", head):
        return await reader.readexactly(int(length[1]))
    if b"transfer-encoding: chunked" not in head:
        return b""
    return await reader.readexactly(int(await reader.readuntil(b"\r\n"), 16))


def _paths(value: Any, behind: Path = ()) -> Iterator[Path]:
    yield behind
    places = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for place, part in places:
        yield from _paths(part, (*behind, place))


def _with(body: Any, path: Path, value: Any) -> Any:
    """The body with the value at that place."""
    if not path:
        return value
    made = copy.deepcopy(body)
    at = made
    for place in path[:-1]:
        at = at[place]
    at[path[-1]] = value
    return made
