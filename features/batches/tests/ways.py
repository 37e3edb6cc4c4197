"""Ways to ask for a payment by a batch."""

from __future__ import annotations

from typing import Any, Final

from tests.unit.asking import Ways
from tests.unit.test_api_second_person import PAY, Office

WAYS: Final = Ways()
way = WAYS.by


@way("POST /v1/batches")
async def _order(desk: Office) -> dict[str, Any]:
    await desk.batch("ann")
    await desk.look()
    return (await desk.runs())[0]


@way("POST /v1/batches/{batch_id}/items")
async def _add(desk: Office) -> dict[str, Any]:
    batch = await desk.batch("bob", items=[])
    await desk.have("ann", "POST", f"/v1/batches/{batch['id']}/items", {"offset": 0, "items": [{"input": PAY}]})
    await desk.look()
    return (await desk.runs())[0]


@way("POST /v1/batches/{batch_id}/retry")
async def _begin_again(desk: Office) -> dict[str, Any]:
    batch = await desk.batch("bob", complete=True)
    await desk.look()
    await desk.fail((await desk.runs())[0])
    await desk.look()
    await desk.have("ann", "POST", f"/v1/batches/{batch['id']}/retry")
    await desk.look()
    return (await desk.runs("status=queued"))[0]
