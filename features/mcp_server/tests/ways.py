"""Ways to ask for a payment by the MCP server."""

from __future__ import annotations

from typing import Any, Final

from tests.unit.asking import Ways, teller
from tests.unit.mcp_host import ACCEPT
from tests.unit.test_api_second_person import PAY, Office

WAYS: Final = Ways()
way = WAYS.by


@way("POST /mcp")
async def _call_as_host(desk: Office) -> dict[str, Any]:
    await teller(desk)
    asks = {"jsonrpc": "2.0", "id": "1"}
    listed = await desk.have("ann", "POST", "/mcp", {**asks, "method": "tools/list", "params": {}}, **ACCEPT)
    tool = next(each for each in listed["result"]["tools"] if "teller" in each["name"])
    (said_in,) = tool["inputSchema"]["required"]
    params = {"name": tool["name"], "arguments": {said_in: PAY}}
    await desk.have("ann", "POST", "/mcp", {**asks, "method": "tools/call", "params": params}, **ACCEPT)
    return (await desk.runs())[0]
