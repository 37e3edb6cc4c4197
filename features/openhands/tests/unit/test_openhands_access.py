"""A key that is held to one conversation hears nothing of others by a socket."""

from __future__ import annotations

from uuid import UUID

from palaver.vocabulary.ids import conversation_id
from tests.unit.api_world import world
from tests.unit.test_api_scopes import CLOSED, NUMBER, bearer, code_of, knock


async def test_the_sockets_of_another_conversation_are_those_of_an_unknown_one() -> None:
    async with world(CLOSED) as api:
        numbers = UUID(int=0xABC), UUID(int=0xDEF)
        for number in numbers:
            body = {"id": conversation_id(number, 1)}
            assert (await api.client.post("/v1/conversations", json=body, headers=await bearer(api))).status_code == 201
        held = await bearer(api, conversation=conversation_id(numbers[0], 1))
        foreign, unknown = [
            await knock(api, f"/openhands/sockets/events/{number}", held) for number in (numbers[1], NUMBER)
        ]
        assert foreign == unknown
        assert code_of(foreign) == 4004
