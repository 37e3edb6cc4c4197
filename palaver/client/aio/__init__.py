"""The asyncio client, written by hand: `palaver.client.sync` is made from it."""

from __future__ import annotations

from palaver.client.aio.client import AsyncPalaver

__all__ = ["AsyncPalaver"]
