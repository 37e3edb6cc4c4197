"""Tools that call a service over HTTP, which is not always there (SHOP_URL)."""

from __future__ import annotations

import os

import httpx

from palaver import RetryPolicy, ToolContext, tool


@tool(retry=RetryPolicy(), limit_key="shop")
def order(context: ToolContext) -> str:
    """Orders something: twice is one too many."""
    headers = {"Idempotency-Key": context.idempotency_key}
    return httpx.post(os.environ["SHOP_URL"], headers=headers, timeout=10, trust_env=False).raise_for_status().text


@tool(retry=RetryPolicy(), limit_key="shop")
async def order_async(context: ToolContext) -> str:
    """As the other one."""
    headers = {"Idempotency-Key": context.idempotency_key}
    async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
        return (await client.post(os.environ["SHOP_URL"], headers=headers)).raise_for_status().text
