"""``mcp_config`` of OpenHands' clients: servers by HTTP where the operator allows them, headers as sealed secrets."""

from __future__ import annotations

from typing import Any

import pytest

from features.openhands.agents import spec_of
from features.openhands.tests.unit.test_openhands_agents import AGENT, _given
from features.openhands.tests.unit.test_openhands_api import PREFIX, begin, native_path
from palaver.errors import Refused
from tests.unit.api_world import SETTINGS, world

URL = "https://mcp.example.com/mcp/"
ALLOWING = SETTINGS.model_copy(update={"inline_mcp_hosts": ("mcp.example.com",)})
CANARY = "canary-of-openhands-5d1c"


def config(**server: Any) -> dict[str, Any]:
    return {"mcpServers": {"web": {"url": URL, **server}}}


@pytest.mark.parametrize("given", [config(), config(transport="http"), config()["mcpServers"]])
def test_both_forms_are_taken(given: dict[str, Any]) -> None:
    assert spec_of(_given(mcp_config=given)).mcp_servers["web"].url == URL


def test_none_is_none() -> None:
    assert spec_of(_given(mcp_config={"mcpServers": {}})).mcp_servers == {}


@pytest.mark.parametrize(
    ("server", "place", "why"),
    [
        ({"command": "npx", "args": ["x"]}, "command", "a command is never started for a request"),
        ({"transport": "sse"}, "transport", "is not spoken here"),
        ({"auth": "oauth"}, "auth", "nobody is here who could sign in"),
        ({"headers": {"X": "a\nb"}}, "headers/X", "no header can carry it"),
        ({"url": None}, "url", "is missing"),
        ({"url": f"{URL}?key=secret"}, "url", "must have neither a query nor a fragment"),
    ],
)
def test_what_is_not_done_is_refused_with_a_sentence(server: dict[str, Any], place: str, why: str) -> None:
    with pytest.raises(Refused) as refused:
        spec_of(_given(mcp_config=config(**server)))
    [fault] = refused.value.faults
    assert fault.pointer.endswith(f"/web/{place}")
    assert why in fault.message


async def test_a_host_that_is_not_allowed_is_refused_at_its_place() -> None:
    async with world() as api:
        answer = await api.client.post(PREFIX, json={"agent": {**AGENT, "mcp_config": config()}})
        assert answer.status_code == 422
        [fault] = answer.json()["detail"]
        assert fault["loc"][:3] == ["body", "agent", "mcp_config"]
        assert "PALAVER_INLINE_MCP_HOSTS" in fault["msg"]


@pytest.mark.parametrize(
    "server",
    [{"headers": {"Authorization": f"Bearer {CANARY}"}}, {"auth": CANARY}, {"headers": {"X-Key": CANARY, "X-B": "b"}}],
)
async def test_values_of_headers_become_secrets_and_nobody_is_told(server: dict[str, Any]) -> None:
    async with world(ALLOWING) as api:
        talk = await begin(api, agent={**AGENT, "mcp_config": config(**server)}, secrets={"A": "value-of-a"})
        native = native_path(talk)
        shown = (await api.client.get(native)).json()
        kept = shown["agent"]["mcp_servers"]["web"]["headers"]
        names = (await api.client.get(f"{native}/secrets")).json()["data"]
        assert names == ["A", *sorted(header["secret"] for header in kept.values())]
        opened = await api.store.vault.opened(shown["id"])
        assert any(CANARY in value for value in opened.values())
        assert CANARY not in str([shown, await talk.ask("GET"), await talk.events()])
        for name in await api.redis.keys("*"):
            assert CANARY.encode() not in (await api.redis.dump(name) or b""), name


async def test_a_value_may_name_a_secret_of_the_conversation() -> None:
    given = config(headers={"Authorization": "Bearer ${TOKEN}", "X-Key": "${KEY}"})
    async with world(ALLOWING) as api:
        talk = await begin(api, agent={**AGENT, "mcp_config": given}, secrets={"TOKEN": CANARY, "KEY": "k"})
        shown = (await api.client.get(native_path(talk))).json()
        assert shown["agent"]["mcp_servers"]["web"]["headers"] == {
            "Authorization": {"secret": "TOKEN", "prefix": "Bearer "},
            "X-Key": {"secret": "KEY", "prefix": ""},
        }
        assert (await api.client.get(f"{native_path(talk)}/secrets")).json()["data"] == ["KEY", "TOKEN"]
