"""What a provider's informational heads do to the connection that they come on."""

from __future__ import annotations

import pytest

from palaver.config.providers import Provider
from palaver.errors import ProviderHTTPError
from palaver.schemas.models import AgentSpec
from tests.unit.answering import Answering, complete
from workers.models.model import ModelPort

SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"
REFUSED = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "connections"),
    [
        pytest.param(SWITCHING, 3, id="what follows is no HTTP"),
        pytest.param(REFUSED, 1, id="it can be used again"),
    ],
)
async def test_a_connection_that_was_switched_to_another_protocol_is_not_used_again(
    answer: bytes, connections: int
) -> None:
    agent = AgentSpec(model="odd/m")
    async with Answering(answer) as server:
        port = ModelPort({"odd": Provider(base_url=server.url)})
        for _ in range(3):
            with pytest.raises(ProviderHTTPError):
                await complete(port, agent)
        await port.close()
        assert server.connections == connections
