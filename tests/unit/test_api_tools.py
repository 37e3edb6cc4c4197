"""``GET /v1/tools``: what workers have, and who has it."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.errors import ConfigurationError
from palaver.limits import most
from palaver.store.fleet import WorkerReport
from palaver.tools import ToolDeclaration, ToolSet, load_tools, tool
from tests.unit.api_world import World, world


@tool(idempotent=True, risky=True, timeout=7)
def send(to: str) -> str:
    """Send something."""
    return to


async def _worker(api: World, name: str, *declarations: ToolDeclaration) -> None:
    tools = ToolSet.of(declarations)
    await api.store.tools.publish(tools)
    await api.store.fleet.report(WorkerReport(name, "tools", 0, 1, draining=False, tools=tools.digest))


async def _listed(api: World) -> list[dict[str, Any]]:
    answer = await api.client.get("/v1/tools")
    assert answer.status_code == 200
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


async def test_a_tool_is_shown_as_its_workers_declare_it() -> None:
    async with world() as api:
        assert await _listed(api) == []
        for name in ("w2", "w1"):
            await _worker(api, name, send.declaration)
        assert await _listed(api) == [
            {
                "name": "send",
                "description": "Send something.",
                "parameters": send.schema,
                "idempotent": True,
                "inline": False,
                "risky": True,
                "timeout": 7.0,
                "workers": ["w1", "w2"],
            }
        ]


async def test_versions_of_a_tool_are_told_apart_and_what_is_the_same_is_one() -> None:
    newer = send.declaration.model_copy(update={"description": "Send it."})
    builtin = load_tools(())["clock"].declaration
    async with world() as api:
        await _worker(api, "old", send.declaration, builtin)
        await _worker(api, "new", newer, builtin)
        found = {(each["name"], each["description"]): each["workers"] for each in await _listed(api)}
        assert found == {
            ("clock", builtin.description): ["new", "old"],
            ("send", "Send something."): ["old"],
            ("send", "Send it."): ["new"],
        }


async def test_a_tool_whose_workers_have_gone_has_none() -> None:
    async with world() as api:
        await _worker(api, "w1", send.declaration)
        await api.store.fleet.leave("w1")
        assert [(each["name"], each["workers"]) for each in await _listed(api)] == [("send", [])]


@pytest.mark.parametrize("too_large", [False, True])
def test_more_than_can_be_told_is_refused_when_the_worker_starts(too_large: bool) -> None:
    size = most("declared_tools_bytes") if too_large else 1
    number = 1 if too_large else most("declared_tools") + 1
    tools = [ToolDeclaration(name=f"t{n}", description="x" * size, timeout=1) for n in range(number)]
    with pytest.raises(ConfigurationError, match="give some to other workers"):
        ToolSet.of(tools)
