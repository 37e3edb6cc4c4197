"""Secrets in OpenHands' dialect: every form that has the value itself is taken, and nothing is looked up."""

from __future__ import annotations

from typing import Any

from features.openhands.tests.unit.test_openhands_agents import AGENT
from features.openhands.tests.unit.test_openhands_api import PREFIX, Talk, begin, native_path
from tests.unit.api_world import World, in_one_world, world

STATIC = {"kind": "StaticSecret", "description": "For b.", "value": "value-of-b"}
LOOKUPS = [
    {"kind": "LookupSecret", "description": None, "url": "https://leak.example", "headers": {"X-Key": "leak"}},
    {"kind": "SecretOfMine", "value": "leak"},
]


async def _names(talk: Talk) -> list[str]:
    found: list[str] = (await talk.api.client.get(f"{native_path(talk)}/secrets")).json()["data"]
    return found


async def test_secrets_are_taken_and_not_told() -> None:
    async with world() as api:
        agent = {**AGENT, "agent_context": {"secrets": {"C": "value-of-c", "D": STATIC}}}
        talk = await begin(api, agent=agent, secrets={"A": "value-of-a", "B": STATIC})
        await talk.ask("POST", "/secrets", {"secrets": {"E": STATIC, "F": {"value": "value-of-f"}}})
        assert await _names(talk) == ["A", "B", "C", "D", "E", "F"]
        assert "value-of" not in str([await talk.ask("GET"), await talk.events()])
        await talk.ask("POST", "/secrets", {"secrets": {"A": {**STATIC, "value": None}, "B": None}})
        assert await _names(talk) == ["C", "D", "E", "F"]


@in_one_world(LOOKUPS)
async def test_nothing_is_looked_up(api: World, lookup: dict[str, Any]) -> None:
    talk = await begin(api)
    secrets = {"secrets": {"K": lookup}}
    context = {"agent": {**AGENT, "agent_context": secrets}}
    for path, body, place in (
        (PREFIX, {"agent": AGENT, **secrets}, ["body", "secrets", "K"]),
        (PREFIX, context, ["body", "agent", "agent_context", "secrets", "K"]),
        (f"{PREFIX}/{talk.id}/secrets", secrets, ["body", "secrets", "K"]),
    ):
        answer = await api.client.post(path, json=body)
        assert answer.status_code == 422
        [fault] = answer.json()["detail"]
        assert fault["loc"] == place
        assert "nothing is looked up" in fault["msg"]
        assert "leak" not in answer.text
    assert await _names(talk) == []
