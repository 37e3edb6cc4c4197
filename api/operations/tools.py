"""Which tools the workers have."""

from __future__ import annotations

import asyncio

from palaver.tools import ToolDeclaration

from .backend import Backend, within_deadline


class ToolState(ToolDeclaration):
    """A tool, and who has it. While a deployment rolls there may be two versions of one tool."""

    workers: tuple[str, ...] = ()
    """The processes that have it now; none for a while after the last of them has gone."""


async def read_tools(backend: Backend) -> list[ToolState]:
    """Every tool that a worker has or had within the last hour, by name; of one name, what was seen last first."""
    sets = await within_deadline(backend.store.tools.declared())
    workers = await within_deadline(backend.store.fleet.workers())
    having: dict[str, list[str]] = {}
    for worker in workers:
        having.setdefault(worker.tools, []).append(worker.id)
    found: dict[str, tuple[ToolDeclaration, list[str]]] = {}
    for digest, declarations in sets.items():
        await asyncio.sleep(0)  # a full set takes some milliseconds
        for each in declarations:
            found.setdefault(each.model_dump_json(), (each, []))[1].extend(having.get(digest, ()))
    states = [ToolState(**dict(each), workers=tuple(sorted(ids))) for each, ids in found.values()]
    return sorted(states, key=lambda each: each.name)
