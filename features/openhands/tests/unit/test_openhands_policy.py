"""Rules of an operator hold for what OpenHands' clients ask for."""

from __future__ import annotations

from features.openhands.tests.unit.test_openhands_agents import AGENT, LLM
from tests.unit.api_world import world
from tests.unit.test_api_policy import REFUND, TOOLS


async def test_openhands_confirmation_policy_waives_nothing() -> None:
    llm = {**LLM, "base_url": None}
    agent = {**AGENT, "llm": llm, "tools": [{"name": "refund", "params": {}}], "include_default_tools": []}
    never = {"kind": "NeverConfirm"}
    async with world(rules={"r": {**REFUND, "max_steps": 50}}, tools=TOOLS) as api:
        path = "/openhands/api/conversations"
        refused = await api.client.post(path, json={"agent": agent, "confirmation_policy": never})
        assert refused.status_code == 403, refused.text
        assert "the rule r demands" in refused.text
        refused = await api.client.post(path, json={"agent": agent, "max_iterations": 500})
        assert refused.status_code == 403, refused.text
        begun = await api.client.post(path, json={"agent": agent})
        assert begun.status_code == 201, begun.text
        (listed,) = (await api.client.get("/v1/conversations")).json()["data"]
        assert listed["agent"]["approvals"]["require"] == ["refund"]
        assert listed["agent"]["max_steps"] == 50
        here = f"{path}/{begun.json()['id']}"
        refused = await api.client.post(f"{here}/confirmation_policy", json={"policy": never})
        assert refused.status_code == 403, refused.text
        analyzer = {"security_analyzer": {"kind": "LLMSecurityAnalyzer"}}
        taken = await api.client.post(f"{here}/security_analyzer", json=analyzer)
        assert taken.status_code == 200, taken.text
        always = {"policy": {"kind": "AlwaysConfirm"}}
        taken = await api.client.post(f"{here}/confirmation_policy", json=always)
        assert taken.status_code == 200, taken.text
        (listed,) = (await api.client.get("/v1/conversations")).json()["data"]
        assert listed["agent"]["approvals"]["require"] == "always"
