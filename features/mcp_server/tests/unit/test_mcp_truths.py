"""The OpenAPI document is true of answers of the MCP server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.mcp_host import Host, hosted
from tests.unit.test_openapi_truths import OPERATIONS, fits


@pytest.mark.parametrize(
    ("method", "params"), [("tools/list", {}), ("tools/call", {"name": "agent_missing"}), ("no/such", {})]
)
async def test_an_answer_of_mcp_has_a_result_or_an_error(method: str, params: dict[str, Any]) -> None:
    schema = dict(OPERATIONS)["post /mcp"]["responses"]["200"]["content"]["application/json"]["schema"]
    async with hosted() as api:
        answer = await Host(api.client).send(method, params)
    assert answer.status_code == 200
    assert fits(schema, answer.json()), answer.text
    assert not fits(schema, {"jsonrpc": "2.0", "id": 1})
